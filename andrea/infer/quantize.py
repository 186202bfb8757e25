"""Weights in fewer bits."""

from dataclasses import dataclass

import torch
from torch import Tensor

from andrea.checkpoint import weights
from andrea.config import ModelConfig
from andrea.kernels.decode import GROUP
from andrea.model import Transformer


@dataclass(frozen=True)
class Packed:
    config: ModelConfig
    precision: str
    tensors: dict[str, Tensor]
    scales: dict[str, Tensor]


def pack(model: Transformer, precision: str) -> Packed:
    tensors, scales = {}, {}
    for name, w in weights(model).items():
        if w.ndim < 2 or name == "position_embed.weight" or precision == "float32":
            tensors[name] = w
        elif precision == "bfloat16":
            tensors[name] = w.to(torch.bfloat16)
        elif precision == "int8" or name in ("token_embed.weight", "unembed.weight"):
            s = w.abs().amax(1) / 127
            scales[name] = s[:, None]
            tensors[name] = (w / s.clamp_min(1e-30)[:, None]).round().to(torch.int8)
        else:
            groups = torch.nn.functional.pad(w, (0, -w.shape[1] % GROUP)).unflatten(1, (-1, GROUP))
            s = groups.abs().amax(-1) / 7
            scales[name] = s
            tensors[name] = (groups / s.clamp_min(1e-30)[..., None]).round().to(torch.int8).flatten(1)[:, : w.shape[1]]
    return Packed(model.config, precision, tensors, scales)
