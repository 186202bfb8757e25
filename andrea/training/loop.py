"""Training as a generator: train() and resume() yield what happened, and whoever iterates decides what to do about it."""

import copy
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from math import inf, log
from pathlib import Path
from threading import Event as Flag
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from andrea import checkpoint
from andrea.config import RunConfig
from andrea.data.prepare import Prepared, open_prepared, prepare
from andrea.data.sampler import Sampler
from andrea.evaluate import Evaluation, evaluate
from andrea.infer.generate import complete
from andrea.infer.sample import Sampling
from andrea.machine import Choice, choose, choose_device, keep_memory, provenance
from andrea.model import Transformer
from andrea.training import plan, report
from andrea.training.optim import adamw, moments, set_moments
from andrea.training.report import Chosen, Evaluated, Event, Finished, Log, Sampled, Saved, StepDone, Stopped
from andrea.training.schedule import learning_rate
from andrea.training.step import train_step

SAMPLE_TOKENS = 160


@dataclass
class State:
    """All that changes as a run goes on; with config, resolved and data it decides every later step."""

    model: Transformer
    optimizer: torch.optim.Optimizer
    step: int = 0
    windows: int = 0  # consumed: the position in the data
    best_loss: float = inf  # on the beginning of the validation split
    seconds: float = 0.0  # of training, evaluation and sampling, over all sittings


@dataclass(frozen=True)
class Setting:
    """All that does not."""

    run: Path
    config: RunConfig
    resolved: dict[str, Any]
    data: Prepared
    losses: Callable[[Tensor, Tensor], Tensor]  # the model, or its compiled twin

    @property
    def autocast(self) -> torch.dtype | None:
        return None if self.resolved["dtype"] == "float32" else getattr(torch, self.resolved["dtype"])


def train(config: RunConfig, out: str | Path, stop: Flag | None = None) -> Iterator[Event]:
    """Grow a new model on config.data and keep it in the folder `out`, which must not exist.

    Setting `stop` saves after the running step and ends with Stopped. Raises ValueError for data or options that cannot be used,
    FileExistsError for a folder that is there.
    """
    run = checkpoint.create(Path(out))
    try:
        data = prepare_into(run, config)
        yield report.Prepared(run, data.report)
        config = replace(config, model=replace(config.model, vocab_size=data.tokenizer.vocab_size))
        choices = choose(config.model, config.train)
        resolved = {choice.name: choice.value for choice in choices}
        set_up_machine(config.train.seed, resolved)
        model = Transformer(config.model).to(resolved["device"])
        state = State(model, adamw(model, config.optim))
        resolved["micro_batch"] = config.train.micro_batch or plan.micro_batch_rows(config, resolved["device"])
        losses, note = compiled(model, config, resolved)
        setting = Setting(run, config, resolved, data, losses)
        began = perf_counter()
        first = evaluate_now(state, setting, 0)
        sample = sample_now(state, setting)
        setting, choice = settle_steps(setting, state, perf_counter() - began)
        config = setting.config
        checkpoint.write_run(run, config, resolved, provenance() | {"data": data.report["corpus_sha256"]})
    except BaseException:
        if not (run / "run.json").exists():
            shutil.rmtree(run, ignore_errors=True)  # nothing of a run yet: leave no folder that looks like one
        raise
    parameters = sum(p.numel() for p in model.parameters())
    yield Chosen(run, (*choices, choice), parameters, resolved["steps"], 0, note)
    state.seconds = perf_counter() - began
    yield from go_on(state, setting, Log(run), [first, sample], stop)


def resume(run: str | Path, stop: Flag | None = None, device: str | None = None) -> Iterator[Event]:
    """Go on with a run from its newest whole checkpoint, to the same end as if it had never stopped.

    Raises ValueError for a folder that is no run, for data that has changed, and for a run that is finished.
    """
    run = checkpoint.find_run(run)
    config, resolved, _ = checkpoint.read_run(run)
    resolved["device"] = choose_device(device or resolved["device"]).value
    folder, skipped = checkpoint.newest_whole(run)
    data = checkpoint.open_data(run)
    set_up_machine(config.train.seed, resolved)
    model = Transformer(config.model)
    checkpoint.set_weights(model, checkpoint.load_tensors(folder / "model.safetensors"))
    model.to(resolved["device"])
    state = State(model, adamw(model, config.optim))
    saved = checkpoint.read_state(folder)
    state.step, state.windows, state.seconds = saved["step"], saved["windows"], saved["seconds"]
    state.best_loss = inf if saved["best_loss"] is None else saved["best_loss"]
    if state.step >= resolved["steps"]:
        raise ValueError(f"{run} is finished: {state.step} of {resolved['steps']} steps done. Start a new run to train longer")
    tensors = checkpoint.load_tensors(folder / "train.safetensors")
    losses, note = compiled(model, config, resolved)
    set_moments(model, state.optimizer, {n: t for n, t in tensors.items() if not n.startswith("generator.")})
    set_generators(tensors, resolved["device"])
    choices = tuple(Choice(name, value, "as stored in run.json") for name, value in resolved.items())
    notes = (*(f"skipped: {s}" for s in skipped), *note)
    yield Chosen(run, choices, sum(p.numel() for p in model.parameters()), resolved["steps"], state.step, notes)
    yield from go_on(state, Setting(run, config, resolved, data, losses), Log(run, state.step), [], stop)


def go_on(state: State, s: Setting, log: Log, first: list[Event], stop: Flag | None) -> Iterator[Event]:
    """The loop: yields each event once it stands in the run folder."""
    try:
        for event in first:
            log.write(event)
            yield event
        for event in steps(state, s, stop):
            log.write(event)
            yield event
    finally:
        log.close()


def steps(state: State, s: Setting, stop: Flag | None) -> Iterator[Event]:
    c, total = s.config.train, s.resolved["steps"]
    every = lambda given, times: given or max(50, total // times)  # noqa: E731
    evaluate_every, sample_every, save_every = every(c.evaluate_every, 20), every(c.sample_every, 5), every(c.save_every, 10)
    run_step = stepper(state, s)
    nats_to_bits_per_byte = 1 / log(2) / s.data.bytes_per_token
    while state.step < total:
        began = perf_counter()
        loss, grad_norm, lr = run_step()
        state.step += 1
        tokens = state.step * c.batch_tokens
        seconds = perf_counter() - began
        state.seconds += seconds
        yield StepDone(
            state.step, loss, loss * nats_to_bits_per_byte, lr, grad_norm, tokens, c.batch_tokens / seconds, round(state.seconds, 3)
        )
        began = perf_counter()
        last, asked = state.step == total, stop is not None and stop.is_set()
        best = False
        if last or (state.step % evaluate_every == 0 and not asked):
            evaluated = evaluate_now(state, s, state.step)
            best = evaluated.best
            yield evaluated
        if last or (state.step % sample_every == 0 and not asked):
            yield sample_now(state, s)
        state.seconds += perf_counter() - began
        if best or last or asked or state.step % save_every == 0:
            yield save_now(state, s, best)
        if asked and not last:
            yield Stopped(state.step, s.run)
            return
    whole = evaluate(state.model, s.data.val, s.data.tokenizer)
    yield Evaluated.of(whole, state.step, True, False, round(state.seconds, 3))
    yield Finished(state.step, s.run, whole.loss, whole.perplexity, whole.bits_per_byte, round(state.seconds, 3))


def stepper(state: State, s: Setting) -> Callable[[], tuple[float, float, float]]:
    """A function that takes the next batch and makes one step of it; gives loss, gradient norm and learning rate."""
    c, device = s.config, s.resolved["device"]
    sampler = Sampler(s.data.train, c.model.context, c.train.seed)
    parameters = list(state.model.parameters())

    def run_step() -> tuple[float, float, float]:
        rows = torch.from_numpy(sampler.batch(state.windows, c.rows)).to(device)
        micro = [(part[:, :-1], part[:, 1:]) for part in rows.split(s.resolved["micro_batch"])]
        lr = learning_rate(state.step, s.resolved["steps"], c.optim)
        loss, norm = train_step(s.losses, parameters, state.optimizer, micro, lr, c.optim.grad_clip, s.autocast)
        state.windows += c.rows
        return loss.item(), norm.item(), lr

    return run_step


def evaluate_now(state: State, s: Setting, step: int) -> Evaluated:
    device = torch.device(s.resolved["device"]).type
    precision: AbstractContextManager = torch.autocast(device, s.autocast, enabled=s.autocast is not None)
    e: Evaluation = evaluate(state.model, s.data.val, s.data.tokenizer, limit=s.config.train.eval_tokens, autocast=precision)
    best = e.loss < state.best_loss
    state.best_loss = min(state.best_loss, e.loss) if step else inf  # an untrained model is never the best
    return Evaluated.of(e, step, False, best and step > 0, round(state.seconds, 3))


def sample_now(state: State, s: Setting) -> Sampled:
    """What the model says from the beginning of a document, with the same seed each time; no generator of the training is touched."""
    run = checkpoint.Run(s.run, s.config, s.resolved, {}, s.data.tokenizer, state.model, state.step)
    return Sampled(state.step, complete(run, "", Sampling(seed=0, max_tokens=min(SAMPLE_TOKENS, s.config.model.context - 1)))[0].text)


def save_now(state: State, s: Setting, best: bool) -> Saved:
    saved = {
        "windows": state.windows,
        "tokens": state.step * s.config.train.batch_tokens,
        "best_loss": None if state.best_loss == inf else state.best_loss,
        "seconds": state.seconds,
    }
    train_tensors = moments(state.model, state.optimizer) | generators(s.resolved["device"])
    return Saved(state.step, checkpoint.save(s.run, state.step, state.model, train_tensors, saved, best), best)


# --- before the first step ----------------------------------------------------------------------------------------------------------


def prepare_into(run: Path, config: RunConfig) -> Prepared:
    """Tokens for the run: of a folder that `andrea data` made, used where it lies, or prepared into RUN/data."""
    paths = config.data.paths
    if len(paths) == 1 and (Path(paths[0]) / "data.json").exists():
        data = open_prepared(Path(paths[0]))
        checkpoint.point_to_data(run, data)
    else:
        data = prepare(config.data, config.model.vocab_size, run / "data")
    data.tokenizer.save(run / "tokenizer.json")
    Sampler(data.train, config.model.context, config.train.seed)  # refuses a text that is shorter than the context
    return data


def set_up_machine(seed: int, resolved: dict[str, Any]) -> None:
    torch.set_num_threads(resolved["threads"])
    keep_memory()
    torch.manual_seed(seed)  # initialisation and dropout draw from torch's own generators; they are saved with every checkpoint


def compiled(model: Transformer, config: RunConfig, resolved: dict[str, Any]) -> tuple[Callable[[Tensor, Tensor], Tensor], tuple[str, ...]]:
    """The function that gives the losses: the model, or a compiled twin that lives outside the module tree."""
    if not resolved["compile"]:
        return model, ()
    compiled_model = torch.compile(model, dynamic=False)
    try:
        ids = torch.zeros(resolved["micro_batch"], config.model.context, dtype=torch.long, device=resolved["device"])
        dtype = getattr(torch, resolved["dtype"])
        with torch.random.fork_rng(), torch.autocast(ids.device.type, dtype, enabled=dtype != torch.float32):
            torch.autograd.grad(compiled_model(ids, ids).sum(), list(model.parameters()))
    except Exception as error:  # a compiler fails in many ways; the eager model is the same model
        resolved["compile"] = False
        return model, (f"compiling failed, running eagerly: {str(error).splitlines()[0]}",)
    return compiled_model, ()


def settle_steps(s: Setting, state: State, evaluation_seconds: float) -> tuple[Setting, Choice]:
    """Set resolved["steps"]: as asked for, or what the time budget holds at the speed of a few steps of a twin."""
    c = s.config.train
    if c.steps:
        choice = Choice("steps", c.steps, "asked for")
    else:
        with torch.random.fork_rng():
            twin = copy.deepcopy(state.model)
            losses = torch.compile(twin, dynamic=False) if s.resolved["compile"] else twin
            spoilt = State(twin, adamw(twin, s.config.optim))
            budget = c.minutes * 60
            s.resolved["steps"] = 1_000_000  # of no consequence: a learning rate for the twin
            began = perf_counter()
            seconds = plan.probe(stepper(spoilt, replace(s, losses=losses)), budget)
            spent = perf_counter() - began + evaluation_seconds
        n = plan.steps_in(budget, seconds, spent + 20 * evaluation_seconds)
        choice = Choice("steps", n, f"{c.minutes:g} minutes at {c.batch_tokens / seconds:,.0f} tokens/s")
    s.resolved["steps"] = choice.value
    return replace(s, config=replace(s.config, train=replace(c, steps=choice.value))), choice


def generators(device: str) -> dict[str, Tensor]:
    """The state of every random generator that training draws from."""
    states = {"generator.cpu": torch.get_rng_state()}
    if device.startswith("cuda"):
        states["generator.cuda"] = torch.cuda.get_rng_state(device)
    return states


def set_generators(saved: dict[str, Tensor], device: str) -> None:
    """Raises KeyError if a generator that training draws from has no saved state."""
    torch.set_rng_state(saved["generator.cpu"])
    if device.startswith("cuda"):
        torch.cuda.set_rng_state(saved["generator.cuda"], device)
