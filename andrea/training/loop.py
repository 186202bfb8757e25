"""The loop: steps, with an evaluation, a sample and a save now and then, each an event. start.py has what comes before the first step."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import chain
from math import inf, isfinite, log
from pathlib import Path
from statistics import median
from threading import Event as Flag
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from andrea import checkpoint
from andrea.accounting import count
from andrea.config import OptimConfig, RunConfig, TrainConfig
from andrea.data.prepare import Prepared, plural
from andrea.data.sampler import Sampler
from andrea.evaluate import Evaluation, evaluate, usual_rows
from andrea.infer.generate import complete
from andrea.infer.sample import Sampling
from andrea.training.curves import curve_of, verdict, warning
from andrea.training.diagnose import diagnose
from andrea.training.ending import Clock, by_the_clock, legs_of
from andrea.training.guard import PATIENCE, Guard
from andrea.training.report import (
    Evaluated,
    Event,
    Finished,
    Log,
    Observed,
    Sampled,
    Saved,
    Skipped,
    StepDone,
    Stopped,
    WentBack,
    Working,
    read_metrics,
)
from andrea.training.saving import Saver
from andrea.training.schedule import rate
from andrea.training.state import State, is_finite, put_back, train_tensors
from andrea.training.step import train_step
from andrea.training.telemetry import observe

SAMPLE_TOKENS = 160
MOST_BACK = 3  # times to one save; then the data is not what is wrong
MOST_BACK_IN_ALL = 20


class Diverged(ArithmeticError):
    """Training does not come past a place, or its weights are no numbers."""


@dataclass(frozen=True)
class Setting:
    """All that does not change as a run goes on."""

    run: Path
    config: RunConfig
    resolved: dict[str, Any]
    data: Prepared
    losses: Callable[[Tensor, Tensor], Tensor]  # the model, or its compiled twin
    beside: bool = False  # whether memory holds a copy of weights and moments, so that saving goes on beside the training
    clock: Clock | None = None  # of a run that is to end by a time of day, which moves resolved["steps"]

    @property
    def autocast(self) -> torch.dtype | None:
        return None if self.resolved["dtype"] == "float32" else getattr(torch, self.resolved["dtype"])

    @property
    def rows(self) -> int:
        """Sequences that an evaluation reads at a time: no more than a pass of the training holds."""
        return min(self.resolved["micro_batch"], usual_rows(self.config.model.context))

    @property
    def guarded(self) -> bool:
        return self.config.train.guard


def go_on(state: State, s: Setting, log: Log, first: list[Event], stop: Flag | None) -> Iterator[Event]:
    """The loop: yields each event once it stands in the run folder."""
    saver = Saver()
    try:
        for event in chain(first, steps(state, s, saver, stop)):
            log.write(event)
            yield event
    finally:
        log.close()
        if saver.thread:  # only where the run has been left, or an error ends it, which is not replaced by another
            saver.thread.join()


def steps(state: State, s: Setting, saver: Saver, stop: Flag | None) -> Iterator[Event]:
    run_step = stepper(state, s)
    guard = Guard.after(read_metrics(s.run))
    curve = curve_of(s.config, s.data.report["corpus_sha256"])
    while state.step < s.resolved["steps"]:
        begun = perf_counter()
        event, trouble = one_step(state, s, run_step, guard)
        yield event
        yield from saver.finished()
        began = perf_counter()
        last, asked = state.step == s.resolved["steps"], stop is not None and stop.is_set()
        due = [last or state.step % every == 0 for every in dues(s.config.train, end_in_view(state.step, s.resolved))]
        healthy, best = trouble is None, False
        if healthy and (asked or any(due)):
            healthy = is_finite(state.model)
            trouble = "weights that are no numbers" if s.guarded and not healthy else None
        if healthy and due[0]:  # also when asked to stop: a run goes on as if it had not stopped
            evaluated = evaluate_now(state, s, state.step)
            best = evaluated.best
            yield evaluated
            yield from observed(state, s, state.step)
            if state.step <= (1 - s.config.optim.decay) * s.resolved["steps"]:
                yield from map(Working, warning(curve, state.step * s.config.train.batch_tokens, evaluated.bits_per_byte))
        if healthy and due[1]:
            yield sample_now(state, s)
        state.seconds += perf_counter() - began
        sound = guard.streak == 0 and (best or due[2])
        if healthy and (sound or last or asked):
            yield from saver.finished(wait=True)
            saver.start(saving(state, s, best, sound, s.beside and not (last or asked)))
            yield from saver.finished(wait=last or asked or not s.beside)
        elif last and not trouble:
            raise Diverged(f"the weights are no numbers after step {state.step}, and are not saved. {diagnosis(s)}")
        if trouble:
            yield from saver.finished(wait=True)
            yield go_back(state, s, trouble)
            guard = Guard.after(read_metrics(s.run))
        elif asked and not last:
            yield Stopped(state.step, s.run)
            return
        if s.clock:
            s.clock.saw(began - begun, perf_counter() - began)
            if not last and (moved := by_the_clock(s.run, s.config, s.resolved, state.step, s.clock)):
                yield moved
    yield Working(f"evaluating on the whole validation split, {len(s.data.val) - 1:,} tokens")
    whole = evaluate(state.model, s.data.val, s.data.tokenizer, s.rows)
    yield Evaluated.of(whole, state.step, True, False, round(state.seconds, 3))
    said = verdict(curve, state.step * s.config.train.batch_tokens, whole.bits_per_byte)
    said += diagnose(read_metrics(s.run), s.config, len(s.data.train), count(s.config.model).total)
    figures = whole.loss, whole.perplexity, whole.bits_per_byte, round(state.seconds, 3)
    yield Finished(state.step, checkpoint.step_at(s.run, "best"), s.run, *figures, said)


def end_in_view(step: int, resolved: dict[str, Any]) -> int:
    """The end that a run had in view as it made a step, counted from 1: a later leg changes nothing of what was due before it."""
    return next(end for start, end, _ in reversed(legs_of(resolved)) if start < step)


def dues(c: TrainConfig, total: int) -> tuple[int, int, int]:
    """Steps between evaluations, samples and saves."""
    return c.evaluate_every or max(50, total // 20), c.sample_every or max(50, total // 5), c.save_every or max(50, total // 10)


def one_step(state: State, s: Setting, run_step: Callable[[], tuple[float, float, float]], guard: Guard) -> tuple[Event, str | None]:
    """A step as an event, and why the run has to go back, if it has to."""
    c, began, window = s.config.train, perf_counter(), state.windows
    loss, grad_norm, lr = run_step()
    state.step += 1
    seconds = perf_counter() - began
    state.seconds += seconds
    why = guard.judge(loss, grad_norm) if s.guarded else None
    trouble = why if guard.streak >= PATIENCE else None
    if why and not (isfinite(loss) and isfinite(grad_norm)):
        return Skipped(state.step, why, window, state.windows, round(state.seconds, 3)), trouble
    tokens, bits_per_byte = state.step * c.batch_tokens, loss / log(2) / s.data.bytes_per_token
    done = StepDone(state.step, loss, bits_per_byte, lr, grad_norm, tokens, c.batch_tokens / seconds, round(state.seconds, 3))
    return done, trouble


def go_back(state: State, s: Setting, why: str) -> WentBack:
    """The last sound save, and every batch since passed over. Raises Diverged where that has been tried often enough."""
    step, windows, seconds, skips = state.step, state.windows, state.seconds, state.skips
    folder = checkpoint.newest_sound(s.run)
    to = checkpoint.read_state(folder)["step"] if folder else 0
    if sum(skip[0] == to for skip in skips) >= MOST_BACK or len(skips) >= MOST_BACK_IN_ALL:
        raise Diverged(
            f"step {step}: {why}; training has diverged, and {plural(len(skips), 'return')} to step {to} with other batches did not help. "
            + diagnosis(s)
        )
    put_back(state, folder, s.config, s.resolved)
    checkpoint.forget_after(s.run, to)
    first = state.windows if not skips or skips[-1][0] != to else skips[-1][2]
    state.windows, state.seconds, state.skips = windows, seconds, [*skips, (to, first, windows)]
    return WentBack(to + 1, step, why, first, windows, round(seconds, 3))


def diagnosis(s: Setting) -> str:
    """What the gradients say of a run that failed, and what helps."""
    c, norms = s.config.optim, [m["grad_norm"] for m in read_metrics(s.run) if m["event"] == "StepDone"]
    clipped = sum(norm > c.grad_clip for norm in norms) / len(norms) if norms and c.grad_clip else 0.0
    told = f"The gradient's norm was {median(norms):.3g} in the middle" + f" and clipped in {clipped:.0%} of the steps" * (c.grad_clip > 0)
    return (told + ". " if norms else "") + f"A lower learning rate helps: {lower_rates(c)}"


def lower_rates(c: OptimConfig) -> str:
    """The options for a third of the rates in use."""
    return f"--set optim.lr={c.lr / 3:.1g}" + f" --set optim.matrix_lr={c.matrix_lr / 3:.1g}" * (c.name == "muon")


def stepper(state: State, s: Setting) -> Callable[[], tuple[float, float, float]]:
    """A function that takes the next batch and makes one step of it; gives loss, gradient norm and learning rate."""
    c, device = s.config, s.resolved["device"]
    sampler = Sampler(s.data.train, c.model.context, c.train.seed)
    parameters = list(state.model.parameters())

    def run_step() -> tuple[float, float, float]:
        rows = torch.from_numpy(sampler.batch(state.windows, c.rows)).to(device)
        micro = [(part[:, :-1], part[:, 1:]) for part in rows.split(s.resolved["micro_batch"])]
        lr = rate(state.step, legs_of(s.resolved), c.optim)
        loss, norm = train_step(s.losses, parameters, state.optimizer, micro, lr, c.optim.grad_clip, s.autocast, s.guarded)
        state.windows += c.rows
        return loss.item(), norm.item(), lr

    return run_step


def evaluate_now(state: State, s: Setting, step: int) -> Evaluated:
    device = torch.device(s.resolved["device"]).type
    precision: AbstractContextManager = torch.autocast(device, s.autocast, enabled=s.autocast is not None)
    e: Evaluation = evaluate(state.model, s.data.val, s.data.tokenizer, s.rows, limit=s.config.train.eval_tokens, autocast=precision)
    best = e.loss < state.best_loss  # never so for NaN
    state.best_loss = (e.loss if best else state.best_loss) if step else inf  # an untrained model is never the best
    return Evaluated.of(e, step, False, best and step > 0, round(state.seconds, 3))


def observed(state: State, s: Setting, step: int) -> Iterator[Observed]:
    """What is seen inside the model, where that is wanted and possible."""
    seen = observe(state.model, s.data.val, s.data.tokenizer.separator, step, state.seconds) if s.config.train.telemetry else None
    yield from [seen] if seen else []


def sample_now(state: State, s: Setting) -> Sampled:
    """What the model says from the beginning of a document, with the same seed each time; no generator of the training is touched."""
    run = checkpoint.Run(s.run, s.config, s.resolved, {}, s.data.tokenizer, state.model, state.step)
    return Sampled(state.step, complete(run, "", Sampling(seed=0, max_tokens=min(SAMPLE_TOKENS, s.config.model.context - 1)))[0].text)


def saving(state: State, s: Setting, best: bool, sound: bool, copied: bool) -> Callable[[], Saved]:
    """A function that saves the state as it is now; `copied`, so that training may go on meanwhile."""
    c, step, told = s.config.train, state.step, state.to_dict() | {"tokens": state.step * s.config.train.batch_tokens}
    model, train = checkpoint.weights(state.model), train_tensors(state, s.resolved["device"])
    if copied:
        model, train = ({name: t.to("cpu", copy=True) for name, t in tensors.items()} for tensors in (model, train))
    return lambda: Saved(step, checkpoint.save(s.run, step, model, train, told, best, sound, c.keep, c.keep_every), best)
