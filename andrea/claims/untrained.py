"""What the claims about initialisation share: an untrained model, random tokens, and what passes through it forward and backward."""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import linear_regression

import torch
import torch.nn.functional as F
from torch import Tensor

from andrea.config import ModelConfig
from andrea.model import Transformer
from andrea.model.transformer import Block


def fresh(
    c: ModelConfig, seed: int, build: Callable[[ModelConfig], Transformer] | None = None, dtype: torch.dtype = torch.float64
) -> Transformer:
    """The model as initialised from this seed. float64: what vanishes in it did not merely fall below what float32 can hold."""
    torch.manual_seed(seed)
    return (build or Transformer)(c).to(dtype).eval()


def random_tokens(c: ModelConfig, rows: int, seed: int) -> Tensor:
    """(rows, T), every id equally likely: at initialisation no token knows another's meaning yet."""
    return torch.randint(c.vocab_size, (rows, c.context), generator=torch.Generator().manual_seed(seed))


def blocks(model: Transformer) -> list[Block]:
    return [block for block in model.blocks if isinstance(block, Block)]


def stream(model: Transformer, ids: Tensor) -> list[Tensor]:
    """The residual stream (B, T, D): the embedding, then what each block gives."""
    states = [model.embed(ids, None)]
    for block in model.blocks:
        states.append(block(states[-1]))
    return states


def loss_of(model: Transformer, last: Tensor, ids: Tensor) -> Tensor:
    """Mean loss of the next token, nats per token."""
    return F.cross_entropy(model.unembed(model.final_norm(last))[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


@torch.no_grad()
def token_cosine(state: Tensor) -> float | None:
    """Mean cosine between different tokens of a sequence: 1 where all are the same vector, and the signal is lost. None for a state of
    zeros, or one that is no number."""
    largest = state.abs().max().item()
    if not 0 < largest < math.inf:
        return None
    unit = F.normalize(state / largest, dim=-1, eps=1e-300)
    n = state.shape[1]
    return ((unit.sum(1).square().sum(-1) - n) / (n * (n - 1))).mean().item()


def decades(value: float, reference: float) -> float:
    """log10(value / reference), within +-300, which is what float64 holds; what is no number any more counts as grown beyond it."""
    if not (math.isfinite(value) and math.isfinite(reference)):
        return 300.0
    return max(-300.0, min(300.0, math.log10(max(value, 1e-320)) - math.log10(max(reference, 1e-320))))


def gradient_sizes(loss: Tensor, states: list[Tensor]) -> list[float]:
    """Mean over tokens of |dLoss / dh|, of every state."""
    return [g.norm(dim=-1).mean().item() for g in torch.autograd.grad(loss, states, retain_graph=True)]


@torch.no_grad()
def writes(states: list[Tensor]) -> list[tuple[float, float]]:
    """Of each block: mean over tokens of |change| / |input|, and the cosine of output and input."""
    return [
        (((b - a).norm(dim=-1) / a.norm(dim=-1)).mean().item(), F.cosine_similarity(a, b, dim=-1).mean().item())
        for a, b in pairwise(states)
    ]


def slope(x: Sequence[float], y: Sequence[float]) -> float:
    """Of the line through the points, by least squares."""
    return linear_regression(x, y).slope
