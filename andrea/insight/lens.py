"""What the model would say at each station of the residual stream, and which part said it.

With h_k the stream after k of the K = 2 L sublayers, N the final norm, W the output projection, z = W N(h_K) the logits:

    logit lens    softmax(W N(h_k)),   the statistics of N taken from h_k itself      nostalgebraist 2020
    tuned lens    softmax(W N(h_k + A_k h_k + a_k)),   A_k and a_k learned            Belrose et al. 2023, arXiv:2303.08112
    attribution   c_k(t) = w_t . (gamma * P D_k) / s(h_K)                              Elhage et al. 2021

Attribution freezes the norm: P subtracts the mean and s is the standard deviation of the whole final state, so that the parts add up to
the logit. The lens recomputes it for every state. The two are never mixed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from andrea.insight.trace import Trace, module_at, stations, sublayers, trace
from andrea.kernels.layer_norm import EPSILON
from andrea.model import Transformer

BATCH = 512  # positions whose logits are looked at together: V float32 each


def lens(model: Transformer, state: Tensor) -> Tensor:
    """Logits (..., V) if the model stopped at state (..., D): its own final norm, where it has one, and its own output projection."""
    return model.unembed(model.final_norm(state))


@dataclass(frozen=True)
class Reading:
    """What a lens sees in n states. Probabilities in 0..1, entropy in bits, kl in nats, rank 1 for the likeliest token."""

    top: Tensor  # (n, k) ids, the likeliest first
    top_p: Tensor  # (n, k)
    entropy: Tensor  # (n,)
    kl: Tensor  # (n,) of the model's final distribution from this one, KL(final || lens)
    p: Tensor  # (n,) of the target tokens
    rank: Tensor  # (n,)


@torch.no_grad()
def read(model: Transformer, state: Tensor, final: Tensor, targets: Tensor, k: int = 10) -> Reading:
    """Read states (n, D) through the logit lens, beside the final logits (n, V); targets (n,) are the tokens to look up."""
    groups = zip(*(x.split(BATCH) for x in (state, final, targets)), strict=True)
    found = [reading(lens(model, some), end, wanted, k) for some, end, wanted in groups]
    return Reading(*(torch.cat([getattr(one, name) for one in found]) for name in Reading.__dataclass_fields__))


def reading(logits: Tensor, final: Tensor, targets: Tensor, k: int) -> Reading:
    """The Reading of logits (n, V)."""
    logp, wanted = wide(logits).log_softmax(-1), targets[:, None]
    p, top = logp.exp(), logp.topk(min(k, logp.shape[-1]))
    rank = (logp > logp.gather(1, wanted)).sum(1) + 1
    return Reading(
        top.indices, top.values.exp(), entropy_bits(logp), divergence(wide(final).log_softmax(-1), logp), p.gather(1, wanted)[:, 0], rank
    )


def wide(x: Tensor) -> Tensor:
    """At least float32: what is summed over the vocabulary would not survive in less."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def entropy_bits(logp: Tensor) -> Tensor:
    return -(logp.exp() * logp).sum(-1) / math.log(2)


def divergence(logp: Tensor, logq: Tensor) -> Tensor:
    """KL(p || q) in nats over the last axis."""
    return (logp.exp() * (logp - logq)).sum(-1)


def convergence(top: Tensor, final: Tensor) -> Tensor:
    """The first station from which the top token stays the final one, for top ids (S, n) and final (n,); S where it never does."""
    agrees = (top == final).flip(0).long().cumprod(0).sum(0)  # stations at the end that agree
    return len(top) - agrees


class TunedLens(nn.Module):
    """A_k and a_k for every station but the last, where the model itself speaks. They begin at 0: the logit lens."""

    def __init__(self, n_stations: int, d_model: int):
        super().__init__()
        self.A, self.a = nn.Parameter(torch.zeros(n_stations, d_model, d_model)), nn.Parameter(torch.zeros(n_stations, 1, d_model))

    def forward(self, states: Tensor) -> Tensor:
        """States (S, n, D) -> (S, n, D), as the final norm would want them."""
        return states + states @ self.A.mT + self.a


def tune(model: Transformer, rows: Tensor, steps: int = 100, tokens: int = 512, lr: float = 1e-2, seed: int = 0) -> TunedLens:
    """Learn a tuned lens on rows (N, T) of held-out ids: least KL(final || lens), by Adam, `tokens` positions a step.

    The learning rate falls to 0 in a straight line. Text whose lens will be looked at must not be among the rows.
    """
    generator = torch.Generator().manual_seed(seed)
    tuned = TunedLens(2 * len(model.blocks), model.config.d_model).to(rows.device)
    optimizer = torch.optim.Adam(tuned.parameters(), lr)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps)
    for _ in range(steps):
        n = max(1, tokens // rows.shape[1])
        picked = rows[torch.randint(len(rows), (n,), generator=generator).to(rows.device)]
        states, final = stations_of(model, picked)
        some = torch.randperm(final.shape[0], generator=generator)[:tokens].to(rows.device)
        logq = lens(model, tuned(states[:-1, some])).log_softmax(-1)
        loss = divergence(final[some].log_softmax(-1), logq).mean(1).sum()  # each station's is its own
        grads = torch.autograd.grad(loss, list(tuned.parameters()))  # no parameter of the model gets a .grad
        for parameter, grad in zip(tuned.parameters(), grads, strict=True):
            parameter.grad = grad
        optimizer.step()
        schedule.step()
    return tuned


@torch.no_grad()
def both_lenses(model: Transformer, tuned: TunedLens, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Mean KL(final || lens) in nats at every station (S,): of the logit lens and of the tuned one. The last station's are 0."""
    sums = torch.zeros(2, 2 * len(model.blocks) + 1, dtype=torch.float64)
    for row in rows:
        states, final = stations_of(model, row[None])
        logp = final.log_softmax(-1)
        for k, state in enumerate(states):
            better = state if k == len(states) - 1 else state + state @ tuned.A[k].mT + tuned.a[k]
            for which, seen in enumerate((state, better)):
                sums[which, k] += divergence(logp, lens(model, seen).log_softmax(-1)).mean().double().cpu()
    logit, better = sums / len(rows)
    return logit, better


@torch.no_grad()
def stations_of(model: Transformer, rows: Tensor) -> tuple[Tensor, Tensor]:
    """The stream at every station, (S, B T, D), and the logits, (B T, V)."""
    names = stations(len(model.blocks))
    seen = trace(model, rows, names)
    return torch.stack([seen[name].flatten(0, 1) for name in names]), seen.logits.flatten(0, 1)


@dataclass(frozen=True)
class Attribution:
    """A logit as the sum of what each part pushed it by, at one position; every tensor is float64, (n,), one value for each target.

    `parts` has token_embed, position_embed, every head (blocks.0.attn.heads.1) and what its projection's bias adds (blocks.0.attn.bias),
    every MLP without its bias (blocks.0.mlp) and that (blocks.0.mlp.bias), and `norms`, what the norms' beta add. `neurons` are the MLP's
    parts, (n, M). A part in `undefined` has no push: without residual connections only the last sublayer's write reaches the end.
    """

    parts: dict[str, Tensor]
    neurons: dict[str, Tensor]
    undefined: tuple[str, ...]
    logits: Tensor  # the model's own

    @property
    def total(self) -> Tensor:
        return torch.stack(list(self.parts.values())).sum(0)

    def of(self, address: str) -> Tensor | None:
        """The push of a sublayer, heads and bias together, or of any part. None: not defined."""
        found = [value for name, value in self.parts.items() if name == address or name.startswith(f"{address}.")]
        return torch.stack(found).sum(0) if found else None


def attribute(seen: Trace, position: int, targets: Sequence[int], row: int = 0, centred: bool = False) -> Attribution:
    """Which part pushed the logits of `targets` at a position, and by how much; `centred`: against the mean over the vocabulary.

    The sum of the parts is the logit: of LayerNorm's statistics the real pass's are used, so this is a way of sharing the logit out and
    not what would happen without the part (that is edit.py's).
    """
    return attribute_both(seen, position, targets, row)[centred]


def attribute_both(seen: Trace, position: int, targets: Sequence[int], row: int = 0) -> tuple[Attribution, Attribution]:
    """`attribute` as it is, and centred."""
    logits, w = seen.logits[row, position].double(), seen.model.unembed.weight.detach()
    chosen = torch.cat([w[list(targets)].double(), w.mean(0, keepdim=True, dtype=torch.float64)])  # the last one is the average token
    found = shares(seen, position, row, chosen, torch.cat([logits[list(targets)], logits.mean()[None]]))
    each = lambda values, change: {name: change(value) for name, value in values.items()}
    changed = lambda f: Attribution(each(found.parts, f), each(found.neurons, f), found.undefined, f(found.logits))
    return changed(lambda x: x[:-1]), changed(lambda x: x[:-1] - x[-1:])


def shares(seen: Trace, position: int, row: int, chosen: Tensor, logits: Tensor) -> Attribution:
    """Every part's share of chosen . (final state), for chosen (n, D)."""
    model = seen.model
    at = lambda name: seen[name][row, position].double()
    toward, norms = directions(seen, chosen, position, row)
    parts: dict[str, Tensor] = {}
    neurons: dict[str, Tensor] = {}
    undefined: list[str] = []
    if "embed" in toward:
        parts["token_embed"] = toward["embed"] @ at("token_embed")
        if model.position_embed is not None:
            parts["position_embed"] = toward["embed"] @ seen["position_embed"][position].double()
    else:
        undefined += ["token_embed"] + ["position_embed"] * (model.position_embed is not None)
    for name in sublayers(len(model.blocks)):
        if name not in toward:
            undefined.append(name)
        elif name.endswith("attn"):
            z, out = seen[f"{name}.attend"][row, :, position].double(), module_at(model, name).out
            pushes = toward[name] @ out.weight.detach().double()  # (n, H K)
            parts |= {f"{name}.heads.{h}": share for h, share in enumerate((pushes.unflatten(1, z.shape) * z).sum(-1).T)}
            parts |= bias(name, out, toward[name])
        else:
            mlp = module_at(model, name)
            neurons[name] = (toward[name] @ mlp.down.weight.detach().double()) * hidden(seen, name, position, row)
            parts[name] = neurons[name].sum(1)
            parts |= bias(name, mlp.down, toward[name])
    parts["norms"] = norms
    return Attribution(parts, neurons, tuple(undefined), logits)


def bias(name: str, linear: nn.Linear, toward: Tensor) -> dict[str, Tensor]:
    return {} if linear.bias is None else {f"{name}.bias": toward @ linear.bias.detach().double()}


def hidden(seen: Trace, mlp: str, position: int, row: int = 0) -> Tensor:
    """What the MLP's second matrix reads, (M,) float64: the activation, for SwiGLU times the other half."""
    act = seen[f"{mlp}.act"][row, position].double()
    return act * seen[f"{mlp}.up"][row, position].double() if seen.model.config.activation == "swiglu" else act


def directions(seen: Trace, w: Tensor, position: int, row: int = 0) -> tuple[dict[str, Tensor], Tensor]:
    """For `embed` and every sublayer the vectors u (n, D) so that u . write is what reaches w . (final state); and what beta adds, (n,).

    Norms are frozen, so that each is the linear map x -> gamma (x - mean(x)) / s plus beta. Pre-norm has one on the way, post-norm every
    later one. Without residual connections nothing but the last sublayer's write gets there.
    """
    model = seen.model
    c, u, names = model.config, w, sublayers(len(model.blocks))
    at = lambda name: seen[name][row, position].double()
    betas = torch.zeros(len(w), dtype=torch.float64, device=w.device)
    states, found = stations(len(model.blocks)), {}
    if c.norm == "pre":
        norm = module_at(model, "final_norm")
        betas, u = u @ norm.beta.detach().double(), back(u, at(states[-1]), norm)
    for before, name in reversed(list(zip(states, names, strict=False))):
        if c.norm == "post":
            norm = module_at(model, f"{name}_norm")
            betas = betas + u @ norm.beta.detach().double()
            u = back(u, at(name) + (at(before) if c.residual else 0), norm)
        found[name] = u
        if not c.residual:
            return found, betas
    return found | {"embed": u}, betas


def back(u: Tensor, x: Tensor, norm: Any) -> Tensor:
    """u (n, D), which reads what a norm gave, as what reads the norm's input x (D,), its statistics frozen."""
    scaled = u * norm.gamma.detach().double()
    return (scaled - scaled.mean(-1, keepdim=True)) / torch.sqrt(x.var(correction=0) + EPSILON)
