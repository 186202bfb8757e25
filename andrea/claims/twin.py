"""Twins: two models of one seed that differ in one field, grown beside each other, step by step, on the same text."""

import math
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from andrea.claims.grow import EVAL_TOKENS, SMALL, Text, corpus, steps_of, training
from andrea.config import RunConfig, full_path, override
from andrea.evaluate import evaluate
from andrea.insight.flow import gradients, held_out
from andrea.model import Transformer

# The document's depth, at a width that two cores can grow in a minute. No decay of the learning rate: a twin may be stopped anywhere.
USUAL = override(SMALL, "model.n_layer=12", "train.batch_tokens=512", "train.steps=300", "optim.decay=0")
PROBE_ROWS = 4  # windows of validation text on which gradients are looked at
TRIED_BY = {  # what decides, where one seed only shows
    "model.residual": "residual-training",
    "model.norm": "pre-post-norm",
    "optim.warmup": "pre-post-norm",
    "model.activation": "gelu-relu",
    "model.mlp_ratio": "mlp-ratio",
    "model.mlp_dim": "mlp-ratio",
    "model.init": "identity-init",
    "optim.grad_clip": "norm-stability",
    "optim.lr": "norm-stability",
}

Pair = tuple[float | None, float | None]  # of the first and the second twin; None for what is no number


@dataclass(frozen=True)
class Born:
    field: str
    names: tuple[str, str]  # "residual=true", "residual=false"
    parameters: tuple[int, int]
    alike: int  # tensors of the same name that begin with the same numbers
    tensors: tuple[int, int]
    steps: int
    unigram: float  # nats per token of knowing no more than how frequent each token is


@dataclass(frozen=True)
class Grew:
    """One step of both: losses of the batch before it, nats per token, and the gradient's norm before clipping."""

    step: int
    losses: Pair
    grad_norms: Pair
    seconds: float


@dataclass(frozen=True)
class Looked:
    """|dLoss / dh|, mean over tokens, of text that stays the same: at the embedding and after each block, of both."""

    step: int
    first: tuple[float | None, ...]
    second: tuple[float | None, ...]


@dataclass(frozen=True)
class Grown:
    step: int
    losses: Pair  # on validation text, nats per token
    ratios: Pair  # the gradient after the first block over that after the last
    told: str
    next: str  # a command
    seconds: float


Event = Born | Grew | Looked | Grown


def twin(
    change: str, base: RunConfig = USUAL, seed: int = 0, every: int = 10, seconds: float = math.inf, text: Text | None = None
) -> Iterator[Event]:
    """Grow `base` and the same with one `path=value`, both at once, to the end of base.train.steps, or until they have grown for `seconds`.

    Raises ValueError for a change that is none, or of what twins share: the text, the seed, the number of steps.
    """
    began = perf_counter()
    other = override(base, change)
    path = full_path(base, change.partition("=")[0].strip().replace("-", "_"))
    section, _, name = path.partition(".")
    if section not in ("model", "optim") or name == "vocab_size":
        raise ValueError(
            f"twins share text, seed and steps, so that {path} cannot differ; what can: a field of model or optim, as model.norm=post"
        )
    if base == other:
        raise ValueError(f"{path} is {change.partition('=')[2]} in both; give another value, so that the twins differ")
    if every < 1:
        raise ValueError(f"every={every} must be at least 1 step")
    if not seconds > 0:
        raise ValueError(f"seconds={seconds:g} must be more than 0")
    text = text or corpus(base.data, base.model.vocab_size)
    V = text.data.tokenizer.vocab_size  # a small text gives less than was asked for
    configs = [replace(c, model=replace(c.model, vocab_size=V)) for c in (base, other)]
    states, runs = zip(*(training(c, seed, None, text) for c in configs), strict=True)
    a, b = (state.model for state in states)
    names = tuple(f"{name}={str(getattr(getattr(c, section), name)).lower()}" for c in configs)
    counts, total = tuple(sum(p.numel() for p in m.parameters()) for m in (a, b)), steps_of(base)
    yield Born(path, (names[0], names[1]), (counts[0], counts[1]), *alike(a, b), total, text.unigram)
    probe = held_out(text.data.val, min(c.model.context for c in configs), PROBE_ROWS)[:, :-1]
    with ThreadPoolExecutor(2) as pool:  # torch computes without Python's lock
        yield (looked := Looked(0, *pool.map(lambda m: look(m, probe), (a, b))))
        ready = perf_counter()  # the clock of `seconds`: reading the text is not growing
        for step in range(1, total + 1):
            done = tuple(pool.map(next, runs))
            yield Grew(step, pair(s.loss for s in done), pair(s.grad_norm for s in done), round(perf_counter() - began, 3))
            last = step == total or perf_counter() - ready > seconds
            if last or step % every == 0:
                yield (looked := Looked(step, *pool.map(lambda m: look(m, probe), (a, b))))
            if last:
                break
        losses = pair(pool.map(lambda m: evaluate(m, text.data.val, text.data.tokenizer, limit=EVAL_TOKENS // 2).loss, (a, b)))
    ratios = pair(ratio(g) for g in (looked.first, looked.second))
    next_one = f"andrea claims run {TRIED_BY[path]} --quick" if path in TRIED_BY else "andrea claims"
    yield Grown(step, losses, ratios, tell((names[0], names[1]), step, total, losses, ratios), next_one, round(perf_counter() - began, 3))


def look(model: Transformer, rows: Tensor) -> tuple[float | None, ...]:
    found = gradients(model, rows).activations
    return tuple(finite(found[name]) for name in ("embed", *(f"blocks.{i}" for i in range(len(model.blocks)))))


def finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def pair(values: Iterable[float]) -> Pair:
    a, b = values
    return finite(a), finite(b)


def ratio(sizes: Sequence[float | None]) -> float:
    """What reaches the first block's output, over the last one's."""
    first, last = sizes[1], sizes[-1]
    return math.nan if first is None or not last else first / last


def alike(a: Transformer, b: Transformer) -> tuple[int, tuple[int, int]]:
    """How many tensors have the same name and numbers in both, and how many each has."""
    ours, theirs = dict(a.named_parameters()), dict(b.named_parameters())
    return sum(name in theirs and torch.equal(p, theirs[name]) for name, p in ours.items()), (len(ours), len(theirs))


def tell(names: tuple[str, str], step: int, total: int, losses: Pair, ratios: Pair) -> str:
    """One sentence of what was measured."""
    said = [
        f"{name} has " + ("no finite loss" if loss is None else f"{loss:.3f} nats per token")
        + ("" if r is None else f", and its first block {r:.2g} times the gradient of its last")
        for name, loss, r in zip(names, losses, ratios, strict=True)
    ]  # fmt: skip
    gap = f" ({losses[1] - losses[0]:+.3f})" if losses[0] is not None and losses[1] is not None else ""
    when = f"After {step:,} steps" if step == total else f"After {step:,} of {total:,} steps, when the time was up,"
    return f"{when} {said[0]}; {said[1]}{gap}: one seed shows a difference, and more decide."


def to_dict(event: Event) -> dict[str, Any]:
    """An event as json writes it."""
    return {"event": type(event).__name__, **asdict(event)}
