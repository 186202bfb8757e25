"""What the claims about initialisation share: an untrained model, random tokens, and what passes through it forward and backward."""

from collections.abc import Callable
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

from andrea.config import ModelConfig
from andrea.model import Transformer


def fresh(c: ModelConfig, seed: int, build: Callable[[ModelConfig], Transformer] | None = None, dtype: torch.dtype = torch.float64) -> Transformer:
    """The model as initialised from this seed. float64: what vanishes in it did not merely fall below what float32 can hold."""
    torch.manual_seed(seed)
    return (build or Transformer)(c).to(dtype).eval()


def random_tokens(c: ModelConfig, rows: int, seed: int) -> Tensor:
    """(rows, T), every id equally likely: at initialisation no token knows another's meaning yet."""
    return torch.randint(c.vocab_size, (rows, c.context), generator=torch.Generator().manual_seed(seed))


def stream(model: Transformer, ids: Tensor) -> list[Tensor]:
    """The residual stream (B, T, D): the embedding, then what each block gives."""
    states = [model.embed(ids, None)]
    for block in model.blocks:
        states.append(block(states[-1]))
    return states


def loss_of(model: Transformer, last: Tensor, ids: Tensor) -> Tensor:
    """Mean loss of the next token, nats per token."""
    return F.cross_entropy(model.unembed(model.final_norm(last))[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


def token_cosine(state: Tensor) -> float:
    """Mean cosine between different tokens of a sequence: 1 where all have become the same vector, and the signal is lost."""
    unit = F.normalize(state, dim=-1, eps=1e-300)
    n = state.shape[1]
    return ((unit.sum(1).square().sum(-1) - n) / (n * (n - 1))).mean().item()


def gradient_sizes(loss: Tensor, states: list[Tensor]) -> list[float]:
    """Mean over tokens of |dLoss / dh|, of every state."""
    return [g.norm(dim=-1).mean().item() for g in torch.autograd.grad(loss, states, retain_graph=True)]


@torch.no_grad()
def writes(states: list[Tensor]) -> list[tuple[float, float]]:
    """Of each block: mean over tokens of |change| / |input|, and the cosine of output and input."""
    return [
        (((b - a).norm(dim=-1) / a.norm(dim=-1)).mean().item(), F.cosine_similarity(a, b, dim=-1).mean().item()) for a, b in pairwise(states)
    ]


def slope(values: list[float]) -> float:
    """Of the line through the values at 0, 1, 2, ... by least squares."""
    n = len(values)
    x, y = [i - (n - 1) / 2 for i in range(n)], sum(values) / n
    return sum(i * (v - y) for i, v in zip(x, values, strict=True)) / sum(i * i for i in x)
