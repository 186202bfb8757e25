"""The loop: steps, with an evaluation, a sample and a save now and then, each an event. start.py has what comes before the first step."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from math import inf, isfinite, log
from pathlib import Path
from threading import Event as Flag
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from andrea import checkpoint
from andrea.config import OptimConfig, RunConfig
from andrea.data.prepare import Prepared
from andrea.data.sampler import Sampler
from andrea.evaluate import Evaluation, evaluate, usual_rows
from andrea.files import Damaged
from andrea.infer.generate import complete
from andrea.infer.sample import Sampling
from andrea.model import Transformer
from andrea.training.optim import Optimizer, moments
from andrea.training.report import Evaluated, Event, Finished, Log, Sampled, Saved, StepDone, Stopped, Working
from andrea.training.schedule import learning_rate
from andrea.training.step import train_step

SAMPLE_TOKENS = 160


class Diverged(ArithmeticError):
    """The loss or the gradient is not finite."""


@dataclass
class State:
    """All that changes as a run goes on; with config, resolved and data it decides every later step."""

    model: Transformer
    optimizer: Optimizer
    step: int = 0
    windows: int = 0  # consumed: the position in the data
    best_loss: float = inf  # on part of the validation split, always the same
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

    @property
    def rows(self) -> int:
        """Sequences that an evaluation reads at a time: no more than a pass of the training holds."""
        return min(self.resolved["micro_batch"], usual_rows(self.config.model.context))


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
    evaluate_every = c.evaluate_every or max(50, total // 20)
    sample_every = c.sample_every or max(50, total // 5)
    save_every = c.save_every or max(50, total // 10)
    run_step = stepper(state, s)
    nats_to_bits_per_byte = 1 / log(2) / s.data.bytes_per_token
    while state.step < total:
        began = perf_counter()
        loss, grad_norm, lr = run_step()
        state.step += 1
        if not (isfinite(loss) and isfinite(grad_norm)):
            raise Diverged(
                f"step {state.step}: loss {loss}, gradient norm {grad_norm}; training has diverged and nothing of this step is kept. "
                f"A lower learning rate helps: {lower_rates(s.config.optim)}"
            )
        tokens = state.step * c.batch_tokens
        seconds = perf_counter() - began
        state.seconds += seconds
        yield StepDone(
            state.step, loss, loss * nats_to_bits_per_byte, lr, grad_norm, tokens, c.batch_tokens / seconds, round(state.seconds, 3)
        )
        began = perf_counter()
        last, asked = state.step == total, stop is not None and stop.is_set()
        best = False
        if last or state.step % evaluate_every == 0:  # also when asked to stop: a run goes on as if it had not stopped
            evaluated = evaluate_now(state, s, state.step)
            best = evaluated.best
            yield evaluated
        if last or state.step % sample_every == 0:
            yield sample_now(state, s)
        state.seconds += perf_counter() - began
        if best or last or asked or state.step % save_every == 0:
            yield save_now(state, s, best)
        if asked and not last:
            yield Stopped(state.step, s.run)
            return
    yield Working(f"evaluating on the whole validation split, {len(s.data.val) - 1:,} tokens")
    whole = evaluate(state.model, s.data.val, s.data.tokenizer, s.rows)
    yield Evaluated.of(whole, state.step, True, False, round(state.seconds, 3))
    yield Finished(
        state.step, checkpoint.step_at(s.run, "best"), s.run, whole.loss, whole.perplexity, whole.bits_per_byte, round(state.seconds, 3)
    )


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
        lr = learning_rate(state.step, s.resolved["steps"], c.optim)
        loss, norm = train_step(s.losses, parameters, state.optimizer, micro, lr, c.optim.grad_clip, s.autocast)
        state.windows += c.rows
        return loss.item(), norm.item(), lr

    return run_step


def evaluate_now(state: State, s: Setting, step: int) -> Evaluated:
    device = torch.device(s.resolved["device"]).type
    precision: AbstractContextManager = torch.autocast(device, s.autocast, enabled=s.autocast is not None)
    e: Evaluation = evaluate(state.model, s.data.val, s.data.tokenizer, s.rows, limit=s.config.train.eval_tokens, autocast=precision)
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


def generators(device: str) -> dict[str, Tensor]:
    """The state of every random generator that training draws from."""
    states = {"generator.cpu": torch.get_rng_state()}
    if device.startswith("cuda"):
        states["generator.cuda"] = torch.cuda.get_rng_state(device)
    if device == "mps":
        states["generator.mps"] = torch.mps.get_rng_state()
    return states


def set_generators(saved: dict[str, Tensor], device: str) -> None:
    """Put generators' states back. Raises ValueError if one that training draws from has no saved state, or one that is none."""
    setters = {"cpu": torch.set_rng_state, "cuda": torch.cuda.set_rng_state, "mps": torch.mps.set_rng_state}
    for name in {"cpu", torch.device(device).type}:
        try:
            setters[name](saved[f"generator.{name}"], *([device] if name == "cuda" else []))
        except (KeyError, RuntimeError, TypeError) as error:
            raise Damaged(f"the saved state of the {name} generator cannot be used: {error}") from None


@contextmanager
def generators_kept(device: str) -> Iterator[None]:
    """Whatever is drawn inside, training goes on drawing as if it had not been."""
    states = generators(device)
    try:
        yield
    finally:
        set_generators(states, device)
