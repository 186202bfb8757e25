"""What another program's file can say of our models, and how their parts are called there."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from secrets import token_hex

import torch
from torch import Tensor

from andrea.accounting import parameters
from andrea.checkpoint import weights
from andrea.config import ModelConfig
from andrea.model import Transformer

BLOCK = re.compile(r"^blocks\.(\d+)\.")
LEAVES = {"gamma": "weight", "beta": "bias"}  # LayerNorm's; linear layers call theirs as we do


def check_shape(c: ModelConfig, activations: tuple[str, ...] = ("gelu", "relu")) -> None:
    """Raises ValueError, naming the field, for a model that is neither a GPT-2 (learned positions) nor a GPT-NeoX (rotary)."""
    for name, kept in (("norm", ("pre",)), ("residual", (True,)), ("activation", activations)):
        if (value := getattr(c, name)) not in kept:
            wanted = " or ".join(f"{name}={word}" for word in kept)
            raise ValueError(f"a model with {name}={value} cannot be exported: the format has {wanted} only; train one with that")


def check_precision(precision: str, known: tuple[str, ...]) -> None:
    if precision not in known:
        raise ValueError(f"precision {precision!r} is not one of {', '.join(known)}")


def check_free(out: Path) -> None:
    """Raises FileExistsError for a path that is taken: an export replaces nothing."""
    if out.exists():
        raise FileExistsError(f"{out} exists already; remove it, or give another name with --out")


def beside(out: Path) -> Path:
    """A name in the same folder that nobody has, to build under."""
    return out.with_name(f".{out.name}.{token_hex(4)}.partial")


def tensors(model: Transformer) -> Iterator[tuple[str, Tensor]]:
    """Address and float32 tensor of every parameter, each once. Biases that the model does without are zeros: both formats want them."""
    kept = weights(model)
    for address, shape in parameters(replace(model.config, bias=True)):
        yield address, kept[address].cpu() if address in kept else torch.zeros(shape)


def renamed(address: str, names: Mapping[str, str]) -> str:
    """The address in another's words: blocks.3.attn.qkv.weight -> transformer.h.3.attn.c_attn.weight."""
    module, leaf = address.rsplit(".", 1)
    found = BLOCK.match(module)
    name = names[BLOCK.sub("blocks.{}.", module)]
    return f"{name.format(*found.groups()) if found else name}.{LEAVES.get(leaf, leaf)}"
