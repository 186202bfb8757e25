"""The operations a model is built from, each beside its plain reference. A model is handed one Kernels when it is built."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from andrea.kernels import attention, cross_entropy, dropout, gelu, layer_norm, rotary


@dataclass(frozen=True)
class Kernels:
    """One function per operation; the defaults are torch's own, which every machine has."""

    gelu: Callable[[Tensor], Tensor] = gelu.gelu
    layer_norm: Callable[[Tensor, Tensor, Tensor], Tensor] = layer_norm.layer_norm
    attention: Callable[..., Tensor] = attention.attention
    loss: Callable[[Tensor, Tensor, Tensor], Tensor] = cross_entropy.loss
    rotate: Callable[[Tensor, int, int], Tensor] = rotary.rotate
    dropout: Callable[[Tensor, float], Tensor] = dropout.dropout


TORCH = Kernels()
REFERENCE = Kernels(
    gelu.reference, layer_norm.reference, attention.reference, cross_entropy.reference_loss, rotary.reference, dropout.reference
)
CPU = Kernels(
    gelu.gelu_on_cpu,
    layer_norm.layer_norm,
    attention.attention_on_cpu,
    cross_entropy.loss_on_cpu,
    rotary.rotate_on_cpu,
    dropout.dropout_on_cpu,
)
BY_NAME = {"torch": TORCH, "cpu": CPU}


def choose(device: str, compiles: bool, wanted: str = "auto") -> tuple[str, str]:
    """The name of the fastest kernels for training that work here, and why."""
    if wanted != "auto":
        return wanted, "asked for"
    if device != "cpu":
        return "torch", f"the vendor's own on {device}"
    if compiles:
        return "torch", "torch.compile makes its own of them"
    try:
        from andrea.kernels import loops  # noqa: F401
    except (ImportError, RuntimeError) as error:  # not there; too old for this NumPy; no folder to keep compiled loops in
        return "torch", f"Numba does not run here: {error}"
    return "cpu", "attention in chunks; GELU and the loss as compiled loops"
