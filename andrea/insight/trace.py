"""One forward pass with everything in it worth seeing, by address. The model holds no line of this: hooks on its modules are enough.

Shapes: B sequences, T tokens, D d_model, H heads, K = D / H, M the MLP's width, V vocabulary.

    token_embed, position_embed, embed      what each token and position brings, and their sum, which the first block reads (B, T, D)
    blocks.3.attn_norm, blocks.3.mlp_norm   what a norm gives                                                               (B, T, D)
    blocks.3.attn.q, .k, .v                 what meets in attention; rotary positions are in q and k already                (B, H, T, K)
    blocks.3.attn.pattern                   softmax(q k^T / sqrt(K)): row q is where query q looks                          (B, H, T, T)
    blocks.3.attn.attend                    pattern v, before the output projection                                         (B, H, T, K)
    blocks.3.attn.heads                     what each head writes; their sum and the bias are blocks.3.attn                 (B, H, T, D)
    blocks.3.attn, blocks.3.mlp             what a sublayer writes                                                          (B, T, D)
    blocks.3.mid, blocks.3                  the residual stream between the block's two sublayers, and after it             (B, T, D)
    blocks.3.mlp.up, .gate, .act            the MLP before and after its nonlinearity (gate: SwiGLU)                        (B, T, M)
    final_norm, unembed                     the stream as the output projection reads it, and the logits         (B, T, D), (B, T, V)

A number at the end picks one head of what has heads: blocks.3.attn.pattern.0, (B, T, T).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cached_property, partial
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from andrea.data.tokenizer import Tokenizer
from andrea.evaluate import evaluating
from andrea.kernels.attention import pattern
from andrea.model import Transformer

DERIVED = {"pattern": ("q", "k"), "heads": ("attend",)}  # computed when asked for, from what was captured
HEADED = ("q", "k", "v", "attend", "pattern", "heads")


class Place(NamedTuple):
    """Where a tensor passes: what a module gives, or one of the arguments that it is given."""

    module: nn.Module
    side: Literal["out", "in"]
    argument: int = 0


def places(model: Transformer) -> dict[str, Place]:
    """Every address that a hook can see, in the order of the forward pass."""
    out = lambda module: Place(module, "out")
    found = {"token_embed": out(model.token_embed)}
    if model.position_embed is not None:
        found["position_embed"] = out(model.position_embed)
    found["embed"] = out(model.drop)
    for i in range(len(model.blocks)):
        at, block = f"blocks.{i}", module_at(model, f"blocks.{i}")
        attn, mlp = block.attn, block.mlp
        found[f"{at}.attn_norm"] = out(block.attn_norm)
        found |= {f"{at}.attn.{name}": Place(attn.attend, "in", n) for n, name in enumerate("qkv")}
        found |= {f"{at}.attn.attend": out(attn.attend), f"{at}.attn": out(attn)}
        found[f"{at}.mid"] = Place(mlp if model.config.norm == "post" else block.mlp_norm, "in")
        found[f"{at}.mlp_norm"] = out(block.mlp_norm)
        if hasattr(mlp, "gate"):
            found[f"{at}.mlp.gate"] = out(mlp.gate)
        found |= {f"{at}.mlp.up": out(mlp.up), f"{at}.mlp.act": out(mlp.act), f"{at}.mlp": out(mlp), at: out(block)}
    return found | {"final_norm": out(model.final_norm), "unembed": out(model.unembed)}


def addresses(model: Transformer) -> list[str]:
    """All that a Trace of this model can be asked for, but single heads."""
    names = list(places(model))
    return [*names, *(f"{name.removesuffix('q')}{new}" for name in names if name.endswith(".attn.q") for new in DERIVED)]


def split(address: str) -> tuple[str, int | None]:
    """'blocks.3.attn.q.1' -> ('blocks.3.attn.q', 1); an address without a head has None."""
    base, _, last = address.rpartition(".")
    return (base, int(last)) if last.isdecimal() and base.rpartition(".")[2] in HEADED else (address, None)


def check(model: Transformer, address: str) -> tuple[str, int | None]:
    """`split`. Raises ValueError, with the nearest address, for one that the model does not have."""
    base, head = split(address)
    known = addresses(model)
    if base not in known:
        near = get_close_matches(address, known, n=1)
        raise ValueError(f"the model has no {address!r}" + (f"; did you mean {near[0]!r}?" if near else f"; it has {', '.join(known)}"))
    if head is not None and head >= model.config.n_head:
        raise ValueError(f"{address!r} asks for head {head}; the model has 0 to {model.config.n_head - 1}")
    return base, head


def needed(address: str) -> list[str]:
    """What has to be captured for an address."""
    base, head = split(address)
    stem, _, name = base.rpartition(".")
    suffix = "" if head is None else f".{head}"
    return [f"{stem}.{part}{suffix}" for part in DERIVED[name]] if name in DERIVED else [address]


class Trace:
    """What one forward pass left behind: trace["blocks.3.attn"]. `logits` is (B, T, V), as the untraced model gives them.

    `gradient("blocks.3.attn")` is that of the scalar that was asked for. `words` are the texts of the first sequence's tokens.
    """

    def __init__(self, model: Transformer, ids: Tensor, tokenizer: Tokenizer | None = None):
        self.model, self.ids, self.tokenizer = model, ids, tokenizer
        self.kept: dict[str, Tensor] = {}
        self.gradients: dict[str, Tensor] = {}
        self.logits = torch.empty(0)

    def __getitem__(self, address: str) -> Tensor:
        if address in self.kept:
            return self.kept[address]
        base, head = check(self.model, address)
        if head is not None and base in self.kept:
            return self.kept[base][:, head]
        stem, _, name = base.rpartition(".")
        if name not in DERIVED:
            raise ValueError(f"{address!r} was not captured; name it in sites, which had {', '.join(self.kept) or 'nothing'}")
        if name == "pattern":
            return pattern(*(self[part] for part in needed(address)))
        z, attn = self[needed(address)[0]], module_at(self.model, stem)
        each = attn.out.weight.detach().unflatten(1, (attn.n_head, -1)).permute(1, 2, 0)  # (H, K, D)
        return z @ (each if head is None else each[head])

    def __contains__(self, address: str) -> bool:
        try:
            self[address]
        except ValueError:
            return False
        return True

    def gradient(self, address: str) -> Tensor:
        """d(scalar) / d(what stands at the address), of its shape. Raises ValueError where none was asked for."""
        base, head = check(self.model, address)
        if address in self.gradients or (head is not None and base in self.gradients):
            return self.gradients[address] if address in self.gradients else self.gradients[base][:, head]
        raise ValueError(f"there is no gradient of {address!r}; capture it, and pass gradient= the function of the logits to derive")

    def stream(self) -> dict[str, Tensor]:
        """The residual stream at its 2 L + 1 stations, each (B, T, D): embed, blocks.0.mid, blocks.0, blocks.1.mid, ..."""
        return {name: self[name] for name in stations(len(self.model.blocks))}

    def writes(self) -> dict[str, Tensor]:
        """What the 2 L sublayers wrote, each (B, T, D)."""
        return {name: self[name] for name in sublayers(len(self.model.blocks))}

    @cached_property
    def words(self) -> list[str]:
        ids = self.ids[0].tolist()
        return [word(self.tokenizer, i) for i in ids]

    def _repr_html_(self) -> str:
        """The last token's page, for a notebook."""
        from andrea.insight.page import frame
        from andrea.insight.story import tell

        return frame(tell(self))


def module_at(model: Transformer, address: str) -> Any:
    """The module at an address."""
    return model.get_submodule(address)


def stations(n_layer: int) -> list[str]:
    return ["embed", *(name for i in range(n_layer) for name in (f"blocks.{i}.mid", f"blocks.{i}"))]


def sublayers(n_layer: int) -> list[str]:
    return [f"blocks.{i}.{kind}" for i in range(n_layer) for kind in ("attn", "mlp")]


def word(tokenizer: Tokenizer | None, id: int) -> str:
    """A token as text; bytes that are no character alone, and what has no text, are named."""
    if tokenizer is None or id >= tokenizer.vocab_size:
        return f"#{id}"
    piece = tokenizer.token_bytes(id)
    try:
        return "<|endoftext|>" if id == tokenizer.separator else piece.decode()
    except UnicodeDecodeError:
        return "".join(f"<{byte:02x}>" for byte in piece)


def trace(
    model: Transformer,
    ids: Tensor | Sequence[int],
    sites: Iterable[str] | str | None = None,
    gradient: Callable[[Tensor], Tensor] | None = None,
    tokenizer: Tokenizer | None = None,
) -> Trace:
    """Run the model once over ids (B, T), or (T,), and keep what stands at `sites`: addresses, where * stands for anything; None: all.

    Nothing but the sites is kept, of single heads only theirs; patterns are computed when asked for. `gradient` is a function from
    logits to a scalar, which is then derived for every site; no parameter's .grad changes. The pass is in evaluation mode and draws no
    random number; hooks and modes are undone also when it fails. Raises ValueError for ids and addresses that the model does not have.
    """
    ids = as_rows(model, ids)
    found, result = places(model), Trace(model, ids, tokenizer)
    wanted = list(found) if sites is None else list(expand(model, [sites] if isinstance(sites, str) else sites))
    bases = {split(name)[0] for name in wanted}
    live: dict[str, Tensor] = {}

    def see(name: str, value: Tensor) -> None:
        if gradient is not None:
            live[name] = value
        for one in wanted:
            base, head = split(one)
            if base == name:
                result.kept[one] = value.detach() if head is None else value[:, head].detach().clone()  # a view would keep the rest

    with ExitStack() as undo, torch.set_grad_enabled(gradient is not None):
        undo.enter_context(evaluating(model.modules()))
        for name in found:
            if name in bases:
                undo.enter_context(watching(found[name], partial(see, name)))
        logits = model(ids)
        if gradient is not None:
            slopes = torch.autograd.grad(gradient(logits), list(live.values()), allow_unused=True)
            full = {n: torch.zeros_like(live[n]) if g is None else g for n, g in zip(live, slopes, strict=True)}
            picked = {one: (full[split(one)[0]], split(one)[1]) for one in wanted}
            result.gradients = {one: g if head is None else g[:, head].clone() for one, (g, head) in picked.items()}
    result.logits = logits.detach()
    return result


def expand(model: Transformer, sites: Iterable[str]) -> Iterator[str]:
    """The addresses to capture for what was asked, each once."""
    seen: set[str] = set()
    for site in sites:
        base, head = split(site)
        names = [name for name in addresses(model) if fnmatchcase(name, base)] if "*" in base else []
        asked = [name if head is None else f"{name}.{head}" for name in names] or [site]
        for address in asked:
            check(model, address)
            for part in needed(address):
                if part not in seen:
                    seen.add(part)
                    yield part


def as_rows(model: Transformer, ids: Tensor | Sequence[int]) -> Tensor:
    """ids as (B, T) on the model's device."""
    rows = torch.as_tensor(ids, device=model.token_embed.weight.device)
    rows = rows[None] if rows.ndim == 1 else rows
    if rows.ndim != 2 or not rows.numel() or rows.is_floating_point():
        raise ValueError(f"ids are {rows.dtype} of shape {tuple(rows.shape)}; wanted whole numbers, (T,) or (B, T), at least one")
    low, high = int(rows.min()), int(rows.max())
    if low < 0 or high >= model.config.vocab_size:
        raise ValueError(f"ids go from {low} to {high}; the model knows 0 to {model.config.vocab_size - 1}")
    return rows.long()


@contextmanager
def watching(place: Place, see: Callable[[Tensor], Any]) -> Iterator[None]:
    """Call `see` with what passes the place; where it returns a tensor, that goes on instead."""

    def given(module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        new = see(args[place.argument])
        return None if new is None else (*args[: place.argument], new, *args[place.argument + 1 :])

    if place.side == "in":
        handle = place.module.register_forward_pre_hook(given)
    else:
        handle = place.module.register_forward_hook(lambda module, args, out: see(out))
    try:
        yield
    finally:
        handle.remove()
