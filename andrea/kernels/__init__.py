"""The operations a model is built from, each beside its plain reference. A model is handed one Kernels when it is built."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from andrea.kernels import attention, cross_entropy, gelu, layer_norm


@dataclass(frozen=True)
class Kernels:
    """One function per operation; the defaults are the fast ones that every machine has."""

    gelu: Callable[[Tensor], Tensor] = gelu.gelu
    layer_norm: Callable[[Tensor, Tensor, Tensor], Tensor] = layer_norm.layer_norm
    attention: Callable[..., Tensor] = attention.attention
    cross_entropy: Callable[[Tensor, Tensor], Tensor] = cross_entropy.cross_entropy


TORCH = Kernels()
REFERENCE = Kernels(gelu.reference, layer_norm.reference, attention.reference, cross_entropy.reference)
