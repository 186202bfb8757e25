"""From logits to the next token: penalty, then temperature, then top_k, then top_p, then min_p, then one draw.

probabilities() and sample() are the plain functions, of logits (B, V) or (V,). choose() does the same for one row, as an engine needs it:
without sorting the vocabulary or normalising. All compute in float64, where a sum such as 0.5 + 0.3 can be compared with 0.8.
Equal logits rank by id, lowest first, so that the same logits always give the same tokens.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

DAMAGED = "the logits hold nan or infinity, so that nothing can be drawn; the model's weights are damaged"
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
    logprobs: int = 0  # of how many of the likeliest tokens, at every place, to tell the log-probability
    choices: tuple[str, ...] = ()  # the answer is exactly one of these
    regex: str | None = None  # the whole answer matches it
    json_schema: str | dict[str, Any] | None = None  # the answer is JSON of this schema, itself a JSON text; an object becomes one
    lookup: int = 0  # ids guessed at a time from earlier text, which changes the speed and not the answer; 0 is off

    def __post_init__(self) -> None:
        for name in ("stop", "choices"):
            given = getattr(self, name)
            object.__setattr__(self, name, (given,) if isinstance(given, str) else tuple(given))
        if isinstance(self.json_schema, dict):
            object.__setattr__(self, "json_schema", json.dumps(self.json_schema))
        check(self.temperature, self.top_k, self.top_p, self.min_p)
        check_penalty(self.repetition_penalty)
        if self.seed is not None and not (isinstance(self.seed, int) and 0 <= self.seed < 2**63):
            raise ValueError(f"seed={self.seed} is not a whole number from 0 to 2^63 - 1; leave it out for a new one every time")
        if not isinstance(self.max_tokens, int) or self.max_tokens < 0:
            raise ValueError(f"max_tokens={self.max_tokens} is not a whole number of at least 0")
        for name in ("stop", "choices"):
            if not all(isinstance(text, str) and text for text in getattr(self, name)):
                raise ValueError(f"{name}={getattr(self, name)!r} holds something else than texts of at least one character")
        for name in ("logprobs", "lookup"):
            if not isinstance(getattr(self, name), int) or getattr(self, name) < 0:
                raise ValueError(f"{name}={getattr(self, name)} is not a whole number of at least 0; 0 turns it off")
        for name in ("regex", "json_schema"):
            given = getattr(self, name)
            if given is not None and not (isinstance(given, str) and given):
                raise ValueError(f"{name}={given!r} is no text of at least one character; leave it out where the answer is free")
        if len(self.rules) > 1:
            raise ValueError(f"{' and '.join(self.rules)} were given; an answer follows one rule")
        if self.past_context not in ("recompute", "stop"):
            raise ValueError(f"past_context={self.past_context!r} is neither 'recompute' nor 'stop'")

    @property
    def rules(self) -> list[str]:
        """Which of choices, regex and json_schema hold the answer."""
        return [name for name in ("choices", "regex", "json_schema") if getattr(self, name) not in ((), None)]


def check(temperature: float, top_k: int, top_p: float, min_p: float) -> None:
    """Raises ValueError for a value outside its range."""
    if not (isinstance(temperature, Real) and 0 <= temperature < math.inf):
        raise ValueError(f"temperature={temperature!r} is not a finite number of at least 0; 0 is greedy")
    if not isinstance(top_k, int) or top_k < 0:
        raise ValueError(f"top_k={top_k} is not a whole number of at least 0; 0 turns it off")
    if not (isinstance(top_p, Real) and 0 <= top_p <= 1):
        raise ValueError(f"top_p={top_p!r} is outside 0 to 1; 1 turns it off")
    if not (isinstance(min_p, Real) and 0 <= min_p <= 1):
        raise ValueError(f"min_p={min_p!r} is outside 0 to 1; 0 turns it off")


def check_penalty(penalty: float) -> None:
    """Raises ValueError for a penalty that is no factor."""
    if not (isinstance(penalty, Real) and 0 < penalty < math.inf):
        raise ValueError(f"repetition_penalty={penalty!r} is not a finite number above 0; 1 turns it off, more than 1 avoids repeats")


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
        raise ValueError(DAMAGED)
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


@dataclass(frozen=True)
class Choice:
    """A drawn token. Log-probabilities, in nats, are of the model's own logits, before rule, penalty, temperature and limits."""

    id: int
    logprob: float
    top: tuple[tuple[int, float], ...]  # the likeliest (id, logprob), as many as asked for


def choose(
    logits: np.ndarray,
    s: Sampling,
    generator: torch.Generator,
    seen: Sequence[int] = (),
    exempt: int = -1,
    allowed: np.ndarray | None = None,
) -> Choice:
    """The id drawn from logits (V,), one of `allowed` where given; those `seen` are penalised, but not the id `exempt`.

    Takes one number from the generator, none where it is greedy. Raises ValueError for logits whose largest is nan or infinite.
    """
    own = logits.astype(np.float64)
    if not np.isfinite(top := own.max()):
        raise ValueError(DAMAGED)
    log_total = top + math.log(np.exp(own - top).sum())
    x = own
    if s.repetition_penalty != 1:
        x = penalise(torch.from_numpy(own), torch.tensor(seen), s.repetition_penalty).numpy()
        x[exempt] = own[exempt]
    if allowed is not None:
        forbidden = np.ones(len(x), dtype=bool)
        forbidden[allowed] = False
        x = np.where(forbidden, -math.inf, x)
    id = int(x.argmax()) if s.temperature == 0 else draw(x, s, generator)
    listed = [int(i) for i in ranked(own, s.logprobs)] if s.logprobs else []
    return Choice(id, float(own[id] - log_total), tuple((i, float(own[i] - log_total)) for i in listed))


def draw(x: np.ndarray, s: Sampling, generator: torch.Generator) -> int:
    """What sample(probabilities(x)) draws, for one row of scores (V,)."""
    with np.errstate(over="ignore"):
        p = np.exp((x - x.max()) / s.temperature)  # times their sum; the likeliest has 1
    ids = ranked(x, s.top_k) if 0 < s.top_k < len(x) else None  # None: all
    if s.top_p < 1:
        ids = nucleus(x, p, np.arange(len(x)) if ids is None else ids, s.top_p)
    if ids is not None:
        ids.sort()  # in this order one number of the generator means one id
        p = p[ids]
    if s.min_p:
        p[p < s.min_p * (1 - TOLERANCE)] = 0
    cumulative = torch.from_numpy(p).cumsum(0).numpy()  # five times as fast as NumPy's
    at = cumulative.searchsorted(torch.rand(1, generator=generator, dtype=torch.float64).item() * cumulative[-1], side="right")
    return int(at if ids is None else ids[at])


def nucleus(x: np.ndarray, p: np.ndarray, ids: np.ndarray, top_p: float) -> np.ndarray:
    """Of `ids` the likeliest that together reach top_p of their sum, likeliest first; only as many are sorted as it takes."""
    total, n = p[ids].sum(), 64
    first = ids[ranked(x[ids], n)]
    while n < len(ids) and p[first].sum() < top_p * total:
        n *= 8
        first = ids[ranked(x[ids], n)]
    cumulative = p[first].cumsum()
    kept = (cumulative - p[first]) / total < top_p - TOLERANCE  # what all that are likelier have together
    kept[0] = True
    return first[kept]


def ranked(x: np.ndarray, n: int) -> np.ndarray:
    """Where the n largest of x stand, largest first, and the first of equal ones first."""
    if n >= len(x):
        return np.argsort(-x, kind="stable")
    least = torch.from_numpy(x).topk(n).values[-1].item()
    ids = np.flatnonzero(x >= least)
    return ids[np.argsort(-x[ids], kind="stable")[:n]]
