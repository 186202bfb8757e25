"""The loss over a whole split: every target once, weighted by token, the same for any batch size."""

import math
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from typing import Protocol

import numpy as np
import torch
from torch import nn

from andrea.data.tokenizer import Tokenizer
from andrea.model import Transformer

LARGEST_EXPONENT = 709  # exp of more is no float64


class TokenSequence(Protocol):
    """data/shards.py's Tokens, or anything that reads like it."""

    def __len__(self) -> int: ...

    def read(self, start: int, stop: int) -> np.ndarray: ...


@dataclass(frozen=True)
class Part:
    """Tokens start to stop - 1 of others."""

    tokens: TokenSequence
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    def read(self, start: int, stop: int) -> np.ndarray:
        return self.tokens.read(self.start + start, self.start + stop)


@dataclass(frozen=True)
class Evaluation:
    loss: float  # nats per token
    standard_error: float | None  # of loss, over windows; None where there is only one
    targets: int  # tokens predicted
    bytes: int  # of text that those tokens stand for

    @property
    def perplexity(self) -> float:
        return math.exp(self.loss) if self.loss < LARGEST_EXPONENT else math.inf

    @property
    def bits_per_byte(self) -> float:
        return self.loss * self.targets / math.log(2) / self.bytes if self.bytes else math.nan

    def to_dict(self) -> dict[str, float | None]:
        return {**asdict(self), "perplexity": self.perplexity, "bits_per_byte": self.bits_per_byte}


def byte_lengths(tokenizer: Tokenizer) -> np.ndarray:
    """Bytes of text each id stands for (V,); the separator stands for none."""
    return np.array([len(tokenizer.token_bytes(i)) for i in range(tokenizer.vocab_size)])


def windows(n_tokens: int, context: int) -> list[tuple[int, int]]:
    """(start, stop) of the token windows that hold every target once: each ends where the next one's targets begin."""
    return [(start, min(start + context + 1, n_tokens)) for start in range(0, n_tokens - 1, context)]


@torch.no_grad()
def evaluate(
    model: Transformer,
    tokens: TokenSequence,
    tokenizer: Tokenizer,
    batch_rows: int | None = None,
    limit: int | None = None,
    autocast: AbstractContextManager | None = None,
) -> Evaluation:
    """Mean loss of `model` over `tokens`, or over windows spread evenly with about `limit` targets. Every module's mode is restored.

    A target at the start of a window is predicted from few tokens, as everywhere that windows do not overlap.
    The standard error treats windows as independent draws and targets within one as dependent: the error of a ratio of window sums.
    """
    context, device = model.config.context, next(model.parameters()).device
    if len(tokens) < 2:
        raise ValueError(f"{len(tokens)} token{'s' * (len(tokens) != 1)} to evaluate on; it takes 2 to make one prediction")
    if batch_rows is not None and batch_rows < 1:
        raise ValueError(f"batch_rows={batch_rows} must be at least 1")
    spans = spread(windows(len(tokens), context), max(1, limit // context)) if limit else windows(len(tokens), context)
    sums, counts, n_bytes, lengths = [], [], 0, byte_lengths(tokenizer)
    with evaluating(model.modules()), autocast or nullcontext():
        for batch in batches(spans, batch_rows or usual_rows(context)):
            rows = np.stack([tokens.read(start, stop) for start, stop in batch])
            ids = torch.from_numpy(rows).to(device)
            sums += model(ids[:, :-1], ids[:, 1:]).cpu().double().sum(1).tolist()  # Apple's GPUs have no float64
            counts += [rows.shape[1] - 1] * len(rows)
            n_bytes += int(lengths[rows[:, 1:]].sum())
    total, n = math.fsum(sums), sum(counts)
    mean = total / n
    variation = math.fsum((s - c * mean) ** 2 for s, c in zip(sums, counts, strict=True))
    w = len(sums)
    return Evaluation(mean, math.sqrt(variation * w / (w - 1)) / n if w > 1 else None, n, n_bytes)


@contextmanager
def evaluating(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Evaluation mode inside, and afterwards each module as it was."""
    training = [module for module in modules if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


def usual_rows(context: int) -> int:
    """Sequences at a time where nobody says."""
    return max(1, 8192 // context)


def spread(spans: list[tuple[int, int]], n: int) -> list[tuple[int, int]]:
    """n of the spans at equal distances, or all where there are no more."""
    return spans if n >= len(spans) else [spans[i * len(spans) // n] for i in range(n)]


def batches(spans: list[tuple[int, int]], rows: int) -> Iterator[list[tuple[int, int]]]:
    """Groups of at most `rows` windows of one length; a shorter last window goes alone."""
    whole = [s for s in spans if s[1] - s[0] == spans[0][1] - spans[0][0]]
    for i in range(0, len(whole), rows):
        yield whole[i : i + rows]
    if len(whole) < len(spans):
        yield spans[len(whole) :]
