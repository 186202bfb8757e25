"""What a run will take, before it begins: memory item by item, disk, time by measurement, and how much text a parameter gets."""

import math
import tempfile
from collections.abc import Generator, Iterator
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import torch

from andrea.accounting import count, flops_per_token
from andrea.config import RunConfig
from andrea.data.prepare import Prepared
from andrea.data.sampler import Sampler
from andrea.machine import Choice, device_memory_bytes, free_disk_bytes
from andrea.presets import PRESETS
from andrea.training import plan
from andrea.training.curves import curve_of
from andrea.training.ending import closing_seconds
from andrea.training.loop import Setting, dues, evaluate_now, sample_now, saving, stepper
from andrea.training.report import Working
from andrea.training.schedule import learning_rate
from andrea.training.start import choices, compiled, data_config, prepare_into, saves_beside, set_up_machine, settle_pass
from andrea.training.state import State, begin
from andrea.training.step import train_step

PROBE_SECONDS = 300.0  # as if this were the run's budget, of which a probe takes a small share
OVERFIT_STEPS, OVERFIT_ROWS = 100, 4


@dataclass(frozen=True)
class Forecast:
    """Bytes and seconds. `seconds` is the sum of `time`; `memory` that of what it holds, and of `copy_to_save` where saving is beside."""

    preset: str
    parameters: int
    choices: tuple[Choice, ...]
    memory: dict[str, int]
    memory_there: int | None
    disk: int
    disk_there: int
    steps: int
    tokens_per_s: float
    time: dict[str, float]
    train_tokens: int
    train_bytes: int
    passes: float  # over the training text
    tokens_per_parameter: float
    untrained_loss: float
    uniform_loss: float  # ln V: what an untrained model should be near
    bits_per_byte: float | None  # at the end, where runs of this preset on this text were recorded
    overfit: tuple[float, float] | None  # loss of one small batch, before and after OVERFIT_STEPS steps on it alone
    better: str  # what would fit this text, and for how long

    @property
    def seconds(self) -> float:
        return sum(self.time.values())

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"seconds": self.seconds, "memory_total": sum(self.memory.values())}


def forecast(config: RunConfig, preset: str, overfit: bool = False, until: datetime | None = None) -> Iterator[Working | Forecast]:
    """Everything that `train` does up to the first step, and a few steps, in a folder that is thrown away.

    Raises ValueError for data or options that cannot be used, plan.TooLittleMemory.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        began = perf_counter() - process_time()  # the program's own start, too
        chosen = choices(config)
        resolved = {choice.name: choice.value for choice in chosen}
        data: Prepared = yield from working(prepare_into(Path(folder), config))
        config = replace(config, model=replace(config.model, vocab_size=data.tokenizer.vocab_size), data=data_config(config.data, data))
        Sampler(data.train, config.model.context, config.train.seed)
        settle_pass(config, resolved)
        set_up_machine(resolved)
        state = begin(config, resolved)
        losses, _ = compiled(state.model, config, resolved)
        s = Setting(Path(folder), config, resolved | {"steps": 1_000_000}, data, losses, saves_beside(config, resolved))
        time = {"start": perf_counter() - began}
        yield Working("measuring the speed")
        yield measured(state, s, preset, chosen, time, overfit, until)


def working(events: Generator[Any, None, Prepared]) -> Generator[Working, None, Prepared]:
    return (yield from events)


def measured(
    state: State, s: Setting, preset: str, chosen: list[Choice], time: dict[str, float], overfit: bool, until: datetime | None
) -> Forecast:
    """Each kind of work once, or a few times; how often each comes follows from the number of steps."""
    c, n = s.config.train, count(s.config.model)
    budget = (until.timestamp() - datetime.now().timestamp() if until else c.minutes * 60) if until or not c.steps else None
    evaluation, untrained = timed(lambda: evaluate_now(state, s, 0))
    sample, _ = timed(lambda: sample_now(state, s))
    probing, step = timed(lambda: plan.probe(stepper(state, s), PROBE_SECONDS if budget is None else budget))
    closing = closing_seconds(state.model, s.data, s.rows)
    stall, save = timed(lambda: saving(state, s, False, True, s.beside))
    written, _ = timed(save)
    after = 0.0 if until is None else closing
    steps = plan.steps_in(budget - after, step, probing + 21 * evaluation) if budget else c.steps or 1
    often = [steps // every + (steps % every > 0) for every in dues(c, steps)]
    time |= {
        "measuring": (probing if budget else 0) + evaluation + sample,
        "steps": steps * step,
        "evaluations": often[0] * evaluation,
        "samples": often[1] * sample,
        "saves": often[2] * (stall if s.beside else stall + written) + written,
        "last evaluation": closing,
    }
    tokens, report = steps * c.batch_tokens, s.data.report["train"]
    rate, device = c.batch_tokens / step, s.resolved["device"]
    return Forecast(
        preset,
        n.total,
        (*chosen, Choice("micro_batch", s.resolved["micro_batch"], "sequences at a time")),
        memory_items(s, steps),
        device_memory_bytes(device),
        plan.disk_needed(s.config),
        free_disk_bytes(Path("runs")),
        steps,
        rate,
        time,
        len(s.data.train),
        report["bytes"],
        tokens / len(s.data.train),
        tokens / n.total,
        untrained.loss,
        math.log(s.config.model.vocab_size),
        curve.at_end(tokens) if (curve := curve_of(s.config, s.data.report["corpus_sha256"])) else None,
        overfitted(state, s) if overfit else None,
        better(len(s.data.train), report["bytes"], rate * flops_per_token(s.config.model)),
    )


def timed(work: Any) -> tuple[float, Any]:
    began = perf_counter()
    result = work()
    return perf_counter() - began, result


def memory_items(s: Setting, steps: int) -> dict[str, int]:
    """What a run of so many steps takes, and a copy to save from where it saves, or has a best, before its end."""
    evaluation, _, save = dues(s.config.train, steps)
    copied = s.beside and s.resolved["device"] == "cpu" and steps > min(evaluation, save)
    return plan.memory_of(s.config, s.resolved) | {"copy_to_save": plan.snapshot_bytes(s.config) if copied else 0}


def better(train_tokens: int, train_bytes: int, flops_per_s: float) -> str:
    """The largest preset that this text can fill, and for how many minutes, at the speed that was measured, in FLOP/s."""
    wanted = {name: plan.TOKENS_PER_PARAMETER * count(p.model).total for name, p in PRESETS.items()}
    filled = [name for name, tokens in wanted.items() if tokens <= plan.PASSES * train_tokens]
    name = filled[-1] if filled else next(iter(PRESETS))
    tokens = min(wanted[name], plan.PASSES * train_tokens)
    minutes = tokens * flops_per_token(PRESETS[name].model) / flops_per_s / 60
    return f"this text is {train_bytes / 1e6:,.1f} MB: {name} for {max(1, round(minutes)):,} minute{'s' * (round(minutes) > 1)}"


def overfitted(state: State, s: Setting) -> tuple[float, float]:
    """Loss of a few sequences before and after steps on them alone: what cannot learn one batch by heart is broken somewhere."""
    rows = torch.from_numpy(Sampler(s.data.train, s.config.model.context, 0).batch(0, OVERFIT_ROWS)).to(s.resolved["device"])
    fresh = begin(s.config, s.resolved)
    losses = [
        train_step(
            fresh.model,
            list(fresh.model.parameters()),
            fresh.optimizer,
            [(rows[:, :-1], rows[:, 1:])],
            learning_rate(step, OVERFIT_STEPS, s.config.optim),
            s.config.optim.grad_clip,
            s.autocast,
        )[0].item()
        for step in range(OVERFIT_STEPS)
    ]
    return losses[0], losses[-1]
