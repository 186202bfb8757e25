"""Measures over depth: gradients, what the layers write, what heads look at, and how many layers are in use.

h_k is the stream after k sublayers, D_k what sublayer k writes, A[q, j] an attention pattern.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from andrea.evaluate import TokenSequence, evaluating, spread, windows
from andrea.insight.edit import edited, skip
from andrea.insight.lens import BATCH, entropy_bits, lens, wide
from andrea.insight.trace import Trace, as_rows, module_at, stations, sublayers, trace
from andrea.model import Transformer

FLOOR = 1e-6  # of a norm that is divided by
COSTS = 0.01  # nats: a block whose absence costs more counts as used
NEAR = 0.1  # nats of KL(final || tuned lens): the prediction is made


def next_token_loss(ids: Tensor) -> Callable[[Tensor], Tensor]:
    """The mean loss of predicting ids (B, T) from each other, as trace() wants its `gradient`."""
    return lambda logits: F.cross_entropy(wide(logits[:, :-1].flatten(0, 1)), ids[:, 1:].flatten())


class Gradients(NamedTuple):
    """Before any clipping. Activations: the mean over tokens of |dLoss / dh|, at every station of the stream, Loss the mean over targets.
    Weights: |dLoss / dW|, Frobenius, of this one batch, and that over |W| (None where W is 0)."""

    activations: dict[str, float]
    weights: dict[str, float]
    relative: dict[str, float | None]

    @property
    def ratio(self) -> float:
        """What reaches the first block's output, over the last one's: G_1 / G_L."""
        ends = [value for name, value in self.activations.items() if name.startswith("blocks.") and not name.endswith(".mid")]
        return ends[0] / ends[-1] if ends[-1] else math.nan


def gradients(model: Transformer, ids: Tensor) -> Gradients:
    """Gradients of the next-token loss on ids (B, T). No parameter's .grad changes."""
    rows = as_rows(model, ids)
    if rows.shape[1] < 2:
        raise ValueError("one token predicts nothing that is known; the loss needs at least 2")
    loss, names = next_token_loss(rows), stations(len(model.blocks))
    seen = trace(model, rows, names, gradient=loss)
    activations = {name: seen.gradient(name).norm(dim=-1).mean().item() for name in names}
    with evaluating(model.modules()), torch.enable_grad():
        parameters = dict(model.named_parameters())
        slopes = torch.autograd.grad(loss(model(rows)), list(parameters.values()))
    weights = {name: slope.norm().item() for name, slope in zip(parameters, slopes, strict=True)}
    sizes = {name: parameter.norm().item() for name, parameter in parameters.items()}
    return Gradients(activations, weights, {name: weights[name] / sizes[name] if sizes[name] else None for name in weights})


def updates(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> dict[str, float | None]:
    """|W' - W| / |W| of every tensor between two moments of training; None where W was 0."""
    sizes = {name: w.norm().item() for name, w in before.items()}
    return {name: (after[name] - w).norm().item() / sizes[name] if sizes[name] else None for name, w in before.items()}


@dataclass(frozen=True)
class Write:
    """One sublayer, means over tokens. Csordas et al. 2025, arXiv:2505.13898.

    relative   |D_k| / |h_(k-1)|, the ratio first, then the mean
    cosine     of D_k with h_(k-1): below 0 it erases, near 0 it writes what is new, above 0 it strengthens
    kept       the cosine of h_k with h_(k-1)
    norm       |h_k|. Without residual connections nothing is added: relative and cosine are None.
    """

    relative: float | None
    cosine: float | None
    kept: float
    norm: float


def writes(seen: Trace, positions: slice = slice(1, None)) -> dict[str, Write]:
    """Every sublayer of a trace, by default without the first position."""
    residual, found = seen.model.config.residual, {}
    states = stations(len(seen.model.blocks))
    for name, before, after in zip(sublayers(len(seen.model.blocks)), states, states[1:], strict=False):
        wrote, read, left = (seen[x][:, positions].cpu().double() for x in (name, before, after))
        relative = (wrote.norm(dim=-1) / read.norm(dim=-1).clamp_min(FLOOR)).mean().item()
        found[name] = Write(
            relative if residual else None,
            cosine(wrote, read).mean().item() if residual else None,
            cosine(left, read).mean().item(),
            left.norm(dim=-1).mean().item(),
        )
    return found


def cosine(a: Tensor, b: Tensor) -> Tensor:
    return F.cosine_similarity(a, b, dim=-1, eps=1e-12)


def block_influence(seen: Trace, positions: slice = slice(1, None)) -> list[float]:
    """1 - mean cosine between a block's input and output. ShortGPT, Men et al. 2024, arXiv:2403.03853."""
    names = ["embed", *(f"blocks.{i}" for i in range(len(seen.model.blocks)))]
    ends = [seen[name][:, positions].cpu().double() for name in names]
    return [1 - cosine(a, b).mean().item() for a, b in pairwise(ends)]


def entropy(pattern: Tensor) -> Tensor:
    """Of each row q > 0 of a causal pattern (..., T, T), divided by ln(q + 1), what q + 1 equal weights have: 0 to 1, (..., T - 1)."""
    q = torch.arange(1, pattern.shape[-1], device=pattern.device)
    return -torch.special.xlogy(pattern, pattern).sum(-1)[..., 1:] / torch.log(q + 1)


@dataclass(frozen=True)
class Head:
    """How much one head does of four things, 0 to 1, on a random sequence that comes twice (Olsson et al. 2022, Elhage et al. 2021).

    previous      mean over q >= 1 of A[q, q - 1]
    duplicate     mean over q in the second copy of A[q, the same token in the first]
    induction     mean over q in the second copy of A[q, q - (n - 1)], what came after the same token
    first         mean over q of A[q, 0], and `uniform` the same four of a head that looks everywhere alike
    copying       by how many standard deviations of all logits its output raises that of the token it looks at: above 0 it copies
    """

    block: int
    head: int
    previous: float
    duplicate: float
    induction: float
    first: float
    copying: float
    entropy: float  # mean over q >= 1, of ln(q + 1)


SCORES = ("previous", "duplicate", "induction", "first")


@dataclass(frozen=True)
class Heads:
    heads: list[Head]
    uniform: dict[str, float]
    n: int  # tokens in each copy
    loss_first: float  # nats per token, in the first copy
    loss_second: float  # lower where the model has seen that it comes again

    @property
    def repeats_help(self) -> float:
        return self.loss_second - self.loss_first

    def kind(self, head: Head) -> str:
        return kind_of({name: getattr(head, name) for name in SCORES}, self.uniform)


def kind_of(scores: Mapping[str, float], uniform: Mapping[str, float]) -> str:
    """The largest of the scores, where it is a tenth or more and five times the uniform value; else `mixed`. The limits are ours."""
    name = max(scores, key=lambda score: scores[score])
    return name if scores[name] >= max(0.1, 5 * uniform[name]) else "mixed"


def repeated(model: Transformer, n: int, rows: int, opening: int, seed: int = 0) -> Tensor:
    """rows of: the opening token, n random distinct tokens, the same n again; (rows, 2 n + 1)."""
    generator = torch.Generator().manual_seed(seed)
    others = torch.tensor([i for i in range(model.config.vocab_size) if i != opening])
    drawn = torch.stack([others[torch.randperm(len(others), generator=generator)[:n]] for _ in range(rows)])
    return torch.cat([torch.full((rows, 1), opening), drawn, drawn], 1)


def scores(pattern: Tensor, n: int) -> dict[str, float]:
    """SCORES of one head's pattern (..., T, T) on `repeated` sequences, T = 2 n + 1."""
    A, q = pattern.cpu().double(), torch.arange(2 * n + 1)  # Apple's GPUs have no float64
    second = q[n + 1 :]
    found = A[..., q[1:], q[1:] - 1], A[..., second, second - n], A[..., second, second - (n - 1)], A[..., 0]
    return {name: values.mean().item() for name, values in zip(SCORES, found, strict=True)}


def uniform(n: int) -> dict[str, float]:
    """SCORES of a head that looks everywhere alike."""
    return scores(torch.ones(2 * n + 1, 2 * n + 1).tril() / torch.arange(1, 2 * n + 2)[:, None], n)


def heads(model: Transformer, n: int | None = None, rows: int = 8, opening: int | None = None, seed: int = 0) -> Heads:
    """Score every head on `rows` random sequences of n distinct tokens, twice. The opening token is by default the last id, the separator.

    Raises ValueError for n that does not fit the context or the vocabulary.
    """
    c = model.config
    most = min((c.context - 1) // 2, c.vocab_size - 1)
    n = min(most, 64) if n is None else n
    if not 2 <= n <= most:
        raise ValueError(f"n={n} is not 2 to {most}: twice n and an opening must fit the context of {c.context}, n the {c.vocab_size} ids")
    ids = as_rows(model, repeated(model, n, rows, c.vocab_size - 1 if opening is None else opening, seed))
    seen = trace(model, ids, ["blocks.*.attn.q", "blocks.*.attn.k", "blocks.*.attn.v"])
    found = []
    for i in range(c.n_layer):
        for h in range(c.n_head):
            A = seen[f"blocks.{i}.attn.pattern.{h}"]
            found.append(Head(i, h, **scores(A, n), copying=copying(seen, i, h), entropy=entropy(A.cpu().double()).mean().item()))
    losses = F.cross_entropy(wide(seen.logits[:, :-1].flatten(0, 1)), ids[:, 1:].flatten(), reduction="none").view(rows, 2 * n)
    # the first token of the second copy comes unforeseen to anyone, so that of the first is left out as well
    return Heads(found, uniform(n), n, losses[:, 1:n].mean().item(), losses[:, n + 1 :].mean().item())


@torch.no_grad()
def copying(seen: Trace, block: int, head: int) -> float:
    """Over all positions of a trace: what W N(.) makes of a head's output where it looks there alone, for the very token that stands there.

    In standard deviations over the vocabulary, its mean taken as 0; the norm's scale and beta do not matter to that.
    """
    model = seen.model
    attn = module_at(model, f"blocks.{block}.attn")
    each = attn.out.weight.unflatten(1, (attn.n_head, -1))[:, head]  # (D, K)
    written = seen[f"blocks.{block}.attn.v.{head}"] @ each.T  # (B, T, D)
    gamma = getattr(model.final_norm, "gamma", torch.ones((), device=written.device, dtype=written.dtype))
    logits = ((written - written.mean(-1, keepdim=True)) * gamma) @ model.unembed.weight.T  # (B, T, V)
    own = logits.gather(-1, seen.ids[..., None])[..., 0]
    return ((own - logits.mean(-1)) / logits.std(-1).clamp_min(FLOOR)).mean().item()


class Cost(NamedTuple):
    """What the loss rises by without a block, nats per token, and the 95 % interval of that over the rows of text (bootstrap)."""

    mean: float
    low: float
    high: float


def skip_costs(model: Transformer, rows: Tensor, seed: int = 0, draws: int = 1000, batch: int = 8) -> list[Cost]:
    """For each block: the loss on rows (N, T + 1) of held-out text where it writes nothing, minus the whole model's; rows are the unit."""
    whole = row_losses(model, rows, batch)
    generator = torch.Generator().manual_seed(seed)
    picks = torch.randint(len(rows), (draws, len(rows)), generator=generator)
    found = []
    for i in range(len(model.blocks)):
        with edited(model, skip(model, f"blocks.{i}")):
            rise = row_losses(model, rows, batch) - whole
        low, high = rise[picks].mean(1).quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
        found.append(Cost(rise.mean().item(), low, high))
    return found


@torch.no_grad()
def row_losses(model: Transformer, rows: Tensor, batch: int = 8) -> Tensor:
    """Mean loss of each of the rows (N, T + 1), nats per token, (N,) float64."""
    rows = as_rows(model, rows)
    with evaluating(model.modules()):
        return torch.cat([model(part[:, :-1], part[:, 1:]).double().mean(1).cpu() for part in rows.split(batch)])


def held_out(tokens: TokenSequence, context: int, n: int) -> Tensor:
    """2 to n windows of the validation split, at equal distances, (n, T + 1); T is the context, or what fits twice into a shorter split."""
    T = min(context, (len(tokens) - 1) // 2)
    if T < 1:
        raise ValueError(f"the validation split has {len(tokens)} tokens; two windows, to learn on and to measure on, take 3")
    whole = [(start, start + T + 1) for start, stop in windows(len(tokens), T) if stop - start == T + 1]
    return torch.tensor(np.stack([tokens.read(start, stop) for start, stop in spread(whole, n)]).astype(np.int64))


class Depth(NamedTuple):
    """How much of the depth is in use, three ways, because no one number says it (the definitions are ours)."""

    used: int | None  # blocks whose absence costs more than COSTS nats, the interval above 0; None: skipping is not defined
    settled: int  # the first block after which KL(final || tuned lens) stays below NEAR nats; 0: the embedding already
    centre: float | None  # of mass of what blocks write, |D| / |h| by block, counted from 1; None without residual connections


def effective_depth(costs: Sequence[Cost] | None, tuned_kl: Tensor, written: Mapping[str, Write]) -> Depth:
    """From skip_costs, the tuned lens's KL at every station (S,), and writes."""
    used = None if costs is None else sum(cost.mean > COSTS and cost.low > 0 for cost in costs)
    after_blocks = tuned_kl[::2] < NEAR  # the embedding, then every block's end
    settled = len(after_blocks) - int(after_blocks.flip(0).long().cumprod(0).sum())
    masses = [(int(name.split(".")[1]) + 1, write.relative) for name, write in written.items()]
    total = sum(mass or 0.0 for _, mass in masses)
    return Depth(used, settled, sum(i * (mass or 0.0) for i, mass in masses) / total if total else None)


@torch.no_grad()
def lens_entropies(seen: Trace) -> dict[str, float]:
    """Mean entropy in bits of the logit lens at every station."""
    found = {}
    for name, state in seen.stream().items():
        parts = [entropy_bits(wide(lens(seen.model, part)).log_softmax(-1)) for part in state.flatten(0, 1).split(BATCH)]
        found[name] = torch.cat(parts).mean().item()
    return found
