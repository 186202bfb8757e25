"""One token on its way from the embedding to the logits, as plain data: what every sublayer read, added and left behind.

The terminal table, the page and the picture are drawn from this and nothing else. What a model does not have (an angle without residual
connections, say) is None.
"""

import math
from typing import Any

import torch
from torch import Tensor

from andrea.insight.edit import check_position
from andrea.insight.flow import cosine
from andrea.insight.lens import Attribution, attribute_both, hidden, read, wide
from andrea.insight.trace import Trace, module_at, stations, sublayers, word
from andrea.kernels.layer_norm import EPSILON

TOP = 10  # words of a lens
LOOKS = 5  # positions where a head looks most
NEURONS = 5  # those whose writes are longest


def tell(seen: Trace, position: int = -1) -> dict[str, Any]:
    """The story of one token of the first sequence of a trace that kept everything. Raises ValueError for a position that is not there.

    `answer` is the model's likeliest next token, `next` the one that follows in the text (None at its end); pushes are direct attributions
    to the centred logit (against the mean over the vocabulary), so that they compare with 0. `balance_error` is the largest difference
    between a logit, as it is and centred, and the sum of its parts, over the largest logit.
    """
    check_position(seen.ids, position)
    T = seen.ids.shape[1]
    at = position % T
    ids, words = seen.ids[0].tolist(), seen.words
    final = wide(seen.logits[0, at])
    answer = int(final.argmax())
    target = ids[at + 1] if at + 1 < T else answer
    asked = [answer, target]
    raw, centred = attribute_both(seen, at, asked)
    names, states = sublayers(len(seen.model.blocks)), stations(len(seen.model.blocks))
    lenses = read_all(seen, at, states, target)
    scale = final.abs().max().item()
    error = max((part.total - part.logits).abs().max().item() for part in (raw, centred)) / scale
    return {
        "tokens": [{"position": i, "id": id, "text": text} for i, (id, text) in enumerate(zip(ids, words, strict=True))],
        "position": at,
        "answer": {"id": answer, "text": word(seen.tokenizer, answer), "probability": final.softmax(0)[answer].item()},
        "next": {"id": target, "text": words[at + 1], "probability": final.softmax(0)[target].item()} if at + 1 < T else None,
        "embedding": {
            "token_norm": seen["token_embed"][0, at].norm().item(),
            "position_norm": seen["position_embed"][at].norm().item() if "position_embed" in seen else None,
            "norm": seen["embed"][0, at].norm().item(),
            "lens": lenses[0],
            "push": push(centred, "token_embed"),
            "position_push": push(centred, "position_embed"),
        },
        "sublayers": [
            sublayer(seen, at, name, before, after, centred) | {"before": lenses[k], "after": lenses[k + 1]}
            for k, (name, before, after) in enumerate(zip(names, states, states[1:], strict=False))
        ],
        "final_norm": norm_steps(seen, "final_norm", states[-1], at),
        "books": {
            "parts": [{"part": name, "answer": value[0].item(), "target": value[1].item()} for name, value in sums(raw)],
            "undefined": list(raw.undefined),
            "sum": raw.total.tolist(),
            "logit": raw.logits.tolist(),
            "mean_logit": seen.logits[0, at].double().mean().item(),
            "largest_logit": scale,
            "stream_error": stream_error(seen, at),
        },
        "balance_error": error,
    }


def push(parts: Attribution, address: str) -> dict[str, float] | None:
    value = parts.of(address)
    return None if value is None else {"answer": value[0].item(), "target": value[1].item()}


def sums(parts: Attribution) -> list[tuple[str, Tensor]]:
    """The parts as a person adds them up: attention's heads together, every bias by itself."""
    found: dict[str, Tensor] = {}
    for name, value in parts.parts.items():
        key = name.partition(".heads.")[0]
        found[key] = found[key] + value if key in found else value
    return list(found.items())


def read_all(seen: Trace, at: int, states: list[str], target: int) -> list[dict[str, Any]]:
    """The logit lens at every station for one token: the likeliest words, and the target's probability and rank."""
    stack = torch.stack([seen[name][0, at] for name in states])
    found = read(
        seen.model, stack, seen.logits[0, at].expand(len(states), -1), torch.full((len(states),), target, device=stack.device), TOP
    )
    return [
        {
            "top": [
                {"id": id, "text": word(seen.tokenizer, id), "probability": p}
                for id, p in zip(found.top[k].tolist(), found.top_p[k].tolist(), strict=True)
            ],
            "entropy_bits": found.entropy[k].item(),
            "kl": found.kl[k].item(),
            "target_probability": found.p[k].item(),
            "target_rank": int(found.rank[k]),
        }
        for k in range(len(states))
    ]


def sublayer(seen: Trace, at: int, name: str, before: str, after: str, centred: Attribution) -> dict[str, Any]:
    """What one sublayer did to the token. An MLP's and an attention's own are under `mlp` and `attention`."""
    c, kind = seen.model.config, name.rpartition(".")[2]
    read_, wrote, left = (seen[x][0, at].double() for x in (before, name, after))
    turn = cosine(wrote, read_).item() if c.residual else None
    return {
        "address": name,
        "read": {"mean": read_.mean().item(), "std": read_.std(correction=0).item(), "norm": read_.norm().item()},
        "norm": sublayer_norm(seen, name, before, at),
        "added": {
            "norm": wrote.norm().item(),
            "relative": (wrote.norm() / read_.norm().clamp_min(1e-6)).item() if c.residual else None,
            "cosine": turn,
            "degrees": None if turn is None else math.degrees(math.acos(max(-1.0, min(1.0, turn)))),
        },
        "stream_norm": left.norm().item(),
        "push": push(centred, name),
        **({"attention": attention(seen, at, name, centred)} if kind == "attn" else {"mlp": mlp(seen, at, name, centred)}),
    }


def sublayer_norm(seen: Trace, name: str, before: str, at: int) -> dict[str, Any] | None:
    """The LayerNorm's steps: in pre-norm of what the sublayer reads, in post-norm of what the stream is after the addition."""
    c = seen.model.config
    if c.norm == "none":
        return None
    return norm_steps(seen, f"{name}_norm", before, at, added=name if c.norm == "post" else None, residual=c.residual)


def norm_steps(seen: Trace, name: str, before: str, at: int, added: str | None = None, residual: bool = True) -> dict[str, Any] | None:
    """gamma (x - mean) / sqrt(var + epsilon) + beta, a step at a time. None where the model has no such norm."""
    norm = module_at(seen.model, name)
    if not hasattr(norm, "gamma"):
        return None
    x = seen[before][0, at].double()
    if added:
        x = seen[added][0, at].double() + (x if residual else 0)
    centred, std = x - x.mean(), torch.sqrt(x.var(correction=0) + EPSILON)
    scaled = centred / std * norm.gamma.detach().double()
    return {
        "address": name,
        "mean": x.mean().item(),
        "std": std.item(),
        "centred_norm": centred.norm().item(),
        "normalised_norm": (centred / std).norm().item(),
        "after_gamma_norm": scaled.norm().item(),
        "after_beta_norm": (scaled + norm.beta.detach().double()).norm().item(),
    }


def attention(seen: Trace, at: int, name: str, centred: Attribution) -> dict[str, Any]:
    """Where every head looked from this token, how sharply (0 one position, 1 all alike), and what it wrote."""
    attn = module_at(seen.model, name)
    q, k = seen[f"{name}.q"][0, :, at].double(), seen[f"{name}.k"][0, :, : at + 1].double()  # (H, K), (H, at + 1, K)
    rows = ((k @ q[..., None])[..., 0] / q.shape[-1] ** 0.5).softmax(-1)  # (H, at + 1): one query's, so that T^2 is never needed
    z = seen[f"{name}.attend"][0, :, at].double()  # (H, K)
    each = attn.out.weight.detach().double().unflatten(1, (attn.n_head, -1))  # (D, H, K)
    wrote = torch.einsum("dhk,hk->hd", each, z)
    recomputed = rows[:, None] @ seen[f"{name}.v"][0, :, : at + 1].double()
    found = []
    for h, row in enumerate(rows):
        top = row.topk(min(LOOKS, len(row)))
        found.append(
            {
                "head": h,
                "looks": [
                    {"position": p, "text": seen.words[p], "weight": w}
                    for p, w in zip(top.indices.tolist(), top.values.tolist(), strict=True)
                ],
                "weights": row.tolist(),
                "entropy": (-torch.special.xlogy(row, row).sum() / math.log(at + 1)).item() if at else None,
                "norm": wrote[h].norm().item(),
                "push": push(centred, f"{name}.heads.{h}"),
            }
        )
    return {
        "heads": found,
        "bias_push": push(centred, f"{name}.bias"),
        "pattern_error": ((recomputed[:, 0] - z).abs().max() / z.abs().max().clamp_min(1e-30)).item(),
    }


def mlp(seen: Trace, at: int, name: str, centred: Attribution) -> dict[str, Any]:
    """Its three operations: expand, what the nonlinearity let through and cut, compress; and the neurons that write most.

    let_through: the share of |pre-activation| that is left after the nonlinearity, |act(x)| / |x| summed over neurons. cut: neurons whose
    value shrank to less than a tenth. For SwiGLU the nonlinearity acts on the gate.
    """
    module = module_at(seen.model, name)
    before = seen[f"{name}.gate" if hasattr(module, "gate") else f"{name}.up"][0, at].double()
    act, h = seen[f"{name}.act"][0, at].double(), hidden(seen, name, at)
    lengths = h.abs() * module.down.weight.detach().norm(dim=0).double()  # of what each neuron writes
    pushes = centred.neurons.get(name)
    strongest = lengths.topk(min(NEURONS, len(lengths))).indices.tolist()
    return {
        "expanded_norm": before.norm().item(),
        "activated_norm": act.norm().item(),
        "hidden_norm": h.norm().item(),
        "positive": int((before > 0).sum()),
        "cut": int((act.abs() < before.abs() / 10).sum()),
        "width": len(before),
        "let_through": (act.abs().sum() / before.abs().sum().clamp_min(1e-30)).item(),
        "neurons": [
            {
                "neuron": m,
                "before": before[m].item(),
                "after": h[m].item(),
                "norm": lengths[m].item(),
                "push": None if pushes is None else {"answer": pushes[0, m].item(), "target": pushes[1, m].item()},
            }
            for m in strongest
        ],
        "bias_push": push(centred, f"{name}.bias"),
    }


def stream_error(seen: Trace, at: int) -> float | None:
    """max|embedding + all writes - final state| / max|final state|; None where the stream is not that sum (post-norm, no residual)."""
    c = seen.model.config
    if c.norm == "post" or not c.residual:
        return None
    total = seen["embed"][0, at].double() + torch.stack([wrote[0, at].double() for wrote in seen.writes().values()]).sum(0)
    last = seen[stations(c.n_layer)[-1]][0, at].double()
    return ((total - last).abs().max() / last.abs().max()).item()
