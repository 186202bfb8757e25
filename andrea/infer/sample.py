"""From logits to the next token: penalty, then temperature, then top_k, then top_p, then min_p, then one draw.

Pure functions of logits (B, V), or (V,) for one row. They compute in float64, where a sum such as 0.5 + 0.3 can be compared with 0.8.
Equal logits rank by id, lowest first, so that the same logits always give the same tokens.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

TOLERANCE = 1e-6  # of probabilities compared with top_p and min_p: those of float32 logits are off by about 1e-7


@dataclass(frozen=True)
class Sampling:
    """How an answer is drawn and where it ends. Raises ValueError for a value outside its range."""

    temperature: float = 0.8  # 0 is greedy: always the likeliest token
    top_k: int = 0  # only the k likeliest; 0 is off
    top_p: float = 1.0  # only the likeliest that together reach p, the crossing one included; 1 is off, 0 is greedy
    min_p: float = 0.0  # only those at least min_p times as likely as the likeliest; 0 is off
    repetition_penalty: float = 1.0  # on every token of prompt and answer so far; 1 is off
    seed: int | None = None  # of row 0; row i has seed + i. None: a new one every time
    max_tokens: int = 200  # of the answer; a sampled separator counts
    stop: tuple[str, ...] = ()  # strings that end the answer; none is part of it
    past_context: str = "recompute"  # "recompute" or "stop": a full context drops its oldest half and is read again, or ends the answer
    ignore_separator: bool = False  # go on into the next document

    def __post_init__(self) -> None:
        object.__setattr__(self, "stop", (self.stop,) if isinstance(self.stop, str) else tuple(self.stop))
        check(self.temperature, self.top_k, self.top_p, self.min_p)
        check_penalty(self.repetition_penalty)
        if self.seed is not None and not (isinstance(self.seed, int) and 0 <= self.seed < 2**63):
            raise ValueError(f"seed={self.seed} is not a whole number from 0 to 2^63 - 1; leave it out for a new one every time")
        if not isinstance(self.max_tokens, int) or self.max_tokens < 0:
            raise ValueError(f"max_tokens={self.max_tokens} is not a whole number of at least 0")
        if not all(isinstance(text, str) and text for text in self.stop):
            raise ValueError(f"stop={self.stop!r} holds something else than texts of at least one character")
        if self.past_context not in ("recompute", "stop"):
            raise ValueError(f"past_context={self.past_context!r} is neither 'recompute' nor 'stop'")


def check(temperature: float, top_k: int, top_p: float, min_p: float) -> None:
    """Raises ValueError for a value outside its range."""
    if not 0 <= temperature < math.inf:
        raise ValueError(f"temperature={temperature} is not a finite number of at least 0; 0 is greedy")
    if not isinstance(top_k, int) or top_k < 0:
        raise ValueError(f"top_k={top_k} is not a whole number of at least 0; 0 turns it off")
    if not 0 <= top_p <= 1:
        raise ValueError(f"top_p={top_p} is outside 0 to 1; 1 turns it off")
    if not 0 <= min_p <= 1:
        raise ValueError(f"min_p={min_p} is outside 0 to 1; 0 turns it off")


def check_penalty(penalty: float) -> None:
    """Raises ValueError for a penalty that is no factor."""
    if not 0 < penalty < math.inf:
        raise ValueError(f"repetition_penalty={penalty} is not a finite number above 0; 1 turns it off, more than 1 avoids repeats")


def penalise(logits: Tensor, seen_ids: Tensor, penalty: float) -> Tensor:
    """Logits in which every seen token, (B, S) or (S,) ids, is less likely: positive ones divided by the penalty, negative ones multiplied.

    Seeing a token twice counts once. Raises ValueError for a penalty of 0 or less. Keskar et al. 2019, arXiv:1909.05858 section 4.1,
    which divides always and so makes tokens with negative logits likelier.
    """
    check_penalty(penalty)
    seen = logits.gather(-1, seen_ids)
    return logits.scatter(-1, seen_ids, torch.where(seen > 0, seen / penalty, seen * penalty))


def probabilities(logits: Tensor, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0) -> Tensor:
    """Probabilities in float64, of the shape of logits: every row sums to 1 and keeps at least its likeliest token.

    The limits apply in the order of the arguments, each to what the one before left, renormalised. Raises ValueError for a value
    outside its range and for logits whose largest is nan or infinite. top_p: Holtzman et al. 2020, arXiv:1904.09751;
    min_p: Nguyen et al. 2024, arXiv:2407.01082.
    """
    check(temperature, top_k, top_p, min_p)
    logits = logits.double()
    top = logits.amax(-1, keepdim=True)
    if not top.isfinite().all():
        raise ValueError("the logits hold nan or infinity, so that nothing can be drawn; the model's weights are damaged")
    if temperature == 0:
        return F.one_hot(logits.argmax(-1), logits.shape[-1]).double()
    p = ((logits - top) / temperature).softmax(-1)  # the largest is 0 whatever the temperature, so that nothing overflows
    if 0 < top_k < p.shape[-1] or top_p < 1:
        order = logits.sort(stable=True, dim=-1, descending=True).indices
        ranked = p.gather(-1, order)
        if top_k:
            ranked[..., top_k:] = 0
        before = (ranked.cumsum(-1) - ranked) / ranked.sum(-1, keepdim=True)  # probability of all that are likelier
        dropped = before >= top_p - TOLERANCE if top_p < 1 else torch.zeros_like(before, dtype=torch.bool)
        dropped[..., 0] = False
        p = torch.zeros_like(p).scatter(-1, order, ranked.masked_fill(dropped, 0))
    p = p.masked_fill(p < min_p * (1 - TOLERANCE) * p.amax(-1, keepdim=True), 0)
    return p / p.sum(-1, keepdim=True)


def sample(probabilities: Tensor, generator: torch.Generator | Sequence[torch.Generator]) -> Tensor:
    """Ids (B,), or () for one row, drawn with the given probabilities; one with probability 0 never is.

    Each row takes one number from the generator, or from its own when there is one per row: the id at which the cumulative probability
    passes that number. So what a row draws depends on no other row. The generators are on the CPU, as are the probabilities.
    """
    shape = probabilities.shape[:-1]
    if isinstance(generator, torch.Generator):
        draw = torch.rand(shape, generator=generator, dtype=torch.float64)
    else:
        draw = torch.cat([torch.rand(1, generator=g, dtype=torch.float64) for g in generator]).view(shape)
    cumulative = probabilities.double().cumsum(-1)
    passed = draw[..., None] * cumulative[..., -1:]  # below the total also after rounding, as a draw is at most 1 - 2^-53
    return torch.searchsorted(cumulative, passed, right=True)[..., 0]
