"""Change one thing inside the model, and see what it does at the end. Every edit is undone when its block ends, also by an exception.

    with edited(model, {"blocks.3.attn": zero}):        # skip a sublayer: it writes nothing
        logits = model(ids)

An edit is a function from what the model has at an address to what it goes on with. What can be edited: embed, what a sublayer writes
(blocks.3.attn), what it is made of (blocks.3.attn.attend.1 is one head; blocks.3.mlp.act), and the stream after a block (blocks.3).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from andrea.evaluate import evaluating
from andrea.insight.lens import attribute, divergence
from andrea.insight.trace import as_rows, check, places, split, sublayers, trace, watching
from andrea.model import Transformer

Edit = Callable[[Tensor], Tensor]
EDITABLE = ("embed", "attn", "q", "k", "v", "attend", "mlp", "act")  # and the stream after a block
LEAST = 1e-3  # logits: below this difference between clean and corrupt a share of it means nothing

zero: Edit = torch.zeros_like


def put(value: Tensor) -> Edit:
    """Another run's activation, or a mean, in place of the model's own; it must fit, or be the same for every sequence or position."""
    return value.expand_as


def put_at(position: int, value: Tensor) -> Edit:
    """The same at one position only: value is (..., D) of that position."""

    def edit(own: Tensor) -> Tensor:
        new = own.clone()
        new[..., position, :] = value
        return new

    return edit


@contextmanager
def edited(model: Transformer, edits: Mapping[str, Edit]) -> Iterator[None]:
    """The model with edits, inside the block. Raises ValueError for an address that cannot be edited."""
    found = places(model)
    with ExitStack() as undo:
        for address, edit in edits.items():
            base, head = check(model, address)
            kind = base.rpartition(".")[2]
            if not (kind in EDITABLE or kind.isdecimal()):
                raise ValueError(
                    f"{address!r} cannot be edited; what can: embed, blocks.0, and in it attn, attn.attend, q, k, v, mlp, mlp.act"
                )
            undo.enter_context(watching(found[base], edit if head is None else for_head(head, edit)))
        yield


def for_head(head: int, edit: Edit) -> Edit:
    def one(own: Tensor) -> Tensor:
        new = own.clone()
        new[:, head] = edit(own[:, head])
        return new

    return one


def skip(model: Transformer, *names: str) -> dict[str, Edit]:
    """Edits after which the named sublayers (blocks.3.attn), or whole blocks (blocks.3), write nothing."""
    if not model.config.residual:
        raise ValueError("this model has no residual connections: a sublayer replaces the stream, so skipping one is not defined")
    known = sublayers(len(model.blocks))
    skipped = [one for name in names for one in known if one == name or one.rpartition(".")[0] == name]
    if missing := [name for name in names if not any(one == name or one.startswith(f"{name}.") for one in skipped)]:
        raise ValueError(
            f"{missing[0]!r} is no sublayer or block; there are blocks.0 to blocks.{len(model.blocks) - 1}, and their attn and mlp"
        )
    return dict.fromkeys(skipped, zero)


@torch.no_grad()
def run(model: Transformer, ids: Tensor | Sequence[int], edits: Mapping[str, Edit] | None = None) -> Tensor:
    """The logits (B, T, V) with edits, in evaluation mode."""
    with evaluating(model.modules()), edited(model, edits or {}):
        return model(as_rows(model, ids))


def mean_of(model: Transformer, rows: Tensor, address: str) -> Tensor:
    """The mean activation over rows (N, T) of text and all their positions, of shape (..., 1, K), to `put` in a head's place."""
    total: Tensor | None = None
    for row in rows:
        seen = trace(model, row, [address])[address].double()
        part = seen.mean(-2, keepdim=True)[0]
        total = part if total is None else total + part
    assert total is not None, "no rows"
    return (total / len(rows)).to(seen.dtype)


def ablate_head(model: Transformer, block: int, head: int, rows: Tensor | None = None) -> dict[str, Edit]:
    """Edits after which a head gives 0, or, with rows (N, T) of text, what it gives there in the mean."""
    address = f"blocks.{block}.attn.attend.{head}"
    check(model, address)
    return {address: zero if rows is None else put(mean_of(model, rows, address))}


class Swap(NamedTuple):
    before: Tensor  # logits (T, V)
    after: Tensor
    kl: Tensor  # (T,) nats, KL(before || after); 0 up to the token that was swapped


def swap(model: Transformer, ids: Tensor | Sequence[int], position: int, new: int) -> Swap:
    """What another token at one position changes from there on, for one sequence."""
    rows = as_rows(model, ids)[:1]
    check_position(rows, position)
    other = rows.clone()
    other[0, position] = new
    before, after = run(model, rows)[0], run(model, other)[0]
    return Swap(before, after, divergence(before.log_softmax(-1), after.log_softmax(-1)))


@dataclass(frozen=True)
class Patch:
    """Activation patching, m = logit(right) - logit(wrong) at the last position. Heimersheim & Nanda 2024, arXiv:2404.15255.

    Both scores are (m_patched - m_start) / (m_goal - m_start): 1 where the patch carries all of the difference, 0 where none of it.
    `denoise` puts the clean activation into the corrupt run: is it sufficient? `noise` the corrupt one into the clean run: is it
    necessary? They need not agree.
    """

    denoise: float
    noise: float
    clean: float  # m
    corrupt: float


def patch(
    model: Transformer, clean: Sequence[int], corrupt: Sequence[int], address: str, right: int, wrong: int, position: int | None = None
) -> Patch:
    """Both ways at one address, all positions or one. Raises ValueError for prompts of different length, or that differ too little in m."""
    if len(clean) != len(corrupt):
        raise ValueError(f"the prompts have {len(clean)} and {len(corrupt)} tokens; patching needs the same number, position by position")
    rows = torch.stack([as_rows(model, ids)[0] for ids in (clean, corrupt)])
    if position is not None:
        check_position(rows, position)
    measure = lambda logits: (logits[0, -1, right] - logits[0, -1, wrong]).item()
    traces = [trace(model, row, [address]) for row in rows]
    m_clean, m_corrupt = (measure(seen.logits) for seen in traces)
    if abs(m_clean - m_corrupt) < LEAST:
        raise ValueError(f"logit(right) - logit(wrong) is {m_clean:.4g} clean and {m_corrupt:.4g} corrupt: no difference to explain")
    values = [seen[address] for seen in traces]
    edits = [put(value) if position is None else put_at(position, value[..., position, :]) for value in values]
    denoised, noised = (measure(run(model, row, {address: edit})) for row, edit in zip(rows.flip(0), edits, strict=True))
    gap = m_clean - m_corrupt
    return Patch((denoised - m_corrupt) / gap, (noised - m_clean) / -gap, m_clean, m_corrupt)


class Effect(NamedTuple):
    """What a sublayer or head does for a logit. Where they differ, later layers answer to what is missing, or the norm's scale does."""

    direct: float  # its part of the logit, norms frozen: lens.attribute
    total: float  # the logit, minus the logit without it
    repair: float  # direct - total: what the rest makes up for


def effect(model: Transformer, ids: Tensor | Sequence[int], address: str, token: int, position: int = -1) -> Effect:
    """Direct and total effect of blocks.3.attn, blocks.3.mlp or one head, blocks.3.attn.heads.1, on one logit (centred over V)."""
    rows = as_rows(model, ids)[:1]
    check_position(rows, position)
    seen = trace(model, rows)
    direct = attribute(seen, position, [token], centred=True).of(address)
    if direct is None:
        raise ValueError(f"{address!r} does not write to the end of this model; named can be a sublayer or a head, blocks.0.attn.heads.0")
    base, head = split(address)
    edits = skip(model, base) if head is None else {f"{base.removesuffix('heads')}attend.{head}": zero}
    push = lambda logits: (logits[0, position, token] - logits[0, position].mean()).item()
    total = push(seen.logits) - push(run(model, rows, edits))
    return Effect(direct.item(), total, direct.item() - total)


def check_position(rows: Tensor, position: int) -> None:
    if not -rows.shape[1] <= position < rows.shape[1]:
        raise ValueError(f"position {position} is not among the {rows.shape[1]} tokens, 0 to {rows.shape[1] - 1}")
