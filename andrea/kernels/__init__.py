"""The operations a model is built from, each beside its plain reference. A model is handed one Kernels when it is built."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec

import torch
from torch import Tensor

from andrea.kernels import adamw, attention, cross_entropy, dropout, embedding, gelu, layer_norm, newton_schulz, rotary
from andrea.kernels.measured import FASTEST


@dataclass(frozen=True)
class Kernels:
    """One function per operation; the defaults are torch's own, which every machine has."""

    gelu: Callable[[Tensor], Tensor] = gelu.gelu
    layer_norm: Callable[[Tensor, Tensor, Tensor], Tensor] = layer_norm.layer_norm
    attention: Callable[..., Tensor] = attention.attention
    loss: Callable[[Tensor, Tensor, Tensor], Tensor] = cross_entropy.loss
    rotate: Callable[[Tensor, int, int], Tensor] = rotary.rotate
    dropout: Callable[[Tensor, float], Tensor] = dropout.dropout
    embedding: Callable[[Tensor, Tensor], Tensor] = embedding.embedding
    newton_schulz: Callable[[Tensor, torch.dtype], Tensor] = newton_schulz.newton_schulz
    adamw: Callable[..., None] = adamw.adamw


TORCH = Kernels()
REFERENCE = Kernels(
    gelu.reference,
    layer_norm.reference,
    attention.reference,
    cross_entropy.reference_loss,
    rotary.reference,
    dropout.reference,
    embedding.reference,
    adamw=adamw.reference,
)
CPU = Kernels(
    gelu.gelu_on_cpu,
    layer_norm.layer_norm,
    attention.attention_on_cpu,
    cross_entropy.loss_on_cpu,
    rotary.rotate_on_cpu,
    dropout.dropout_on_cpu,
)
TRITON = Kernels(
    gelu.gelu_on_gpu,
    layer_norm.layer_norm_on_gpu,
    attention.attention_on_gpu,
    cross_entropy.loss_on_gpu,
    embedding=embedding.embedding_on_gpu,
    newton_schulz=newton_schulz.newton_schulz_on_gpu,
    adamw=adamw.adamw_on_gpu,
)
MIXED = replace(TRITON, attention=attention.attention)  # the vendor's attention, which is made for one GPU
BY_NAME = {"torch": TORCH, "cpu": CPU, "triton": TRITON, "mixed": MIXED}


def choose(device: str, compiles: bool, wanted: str = "auto") -> tuple[str, str]:
    """The name of the fastest kernels for training that work here, and why. Raises ValueError where the wanted ones do not."""
    if wanted != "auto":
        if reason := lacking(wanted, device):
            raise ValueError(f"kernels={wanted} do not run here: {reason}; kernels=auto takes what does")
        return wanted, "asked for"
    if device.startswith("cuda"):
        return fastest(torch.cuda.get_device_name(device) if torch.cuda.is_available() else "a GPU", device, compiles)
    if device != "cpu":
        return "torch", f"the vendor's own on {device}"
    if compiles:
        return "torch", "torch.compile makes its own of them"
    try:
        from andrea.kernels import loops  # noqa: F401
    except (ImportError, RuntimeError) as error:  # not there; too old for this NumPy; no folder to keep compiled loops in
        return "torch", f"Numba does not run here: {error}"
    return "cpu", "attention in chunks; GELU and the loss as compiled loops"


def fastest(gpu: str, device: str, compiles: bool) -> tuple[str, str]:
    """What measured.py says of a GPU, as far as it runs."""
    name = FASTEST.get((gpu, compiles))
    if name is None:
        return "torch", f"the vendor's own; whether Triton's are faster on {gpu} has not been measured (benchmarks/gpu.py does)"
    if reason := lacking(name, device):
        return "torch", f"the vendor's own; {name} are faster on {gpu}, but {reason}"
    return name, f"the fastest on {gpu}, as benchmarks/gpu.py measured"


def lacking(name: str, device: str) -> str:
    """Why the kernels of this name do not run on the device; nothing where they do."""
    if name not in ("triton", "mixed"):
        return ""
    if find_spec("triton") is None:
        return "Triton is not installed (pip install triton; it has wheels for Linux only)"
    if not device.startswith("cuda") and (device != "cpu" or os.environ.get("TRITON_INTERPRET") != "1"):
        return f"Triton's kernels are for a GPU and the device is {device} (TRITON_INTERPRET=1 runs them on a CPU, slowly)"
    try:
        gelu.gelu_on_gpu(torch.zeros(1, device=device))
    except Exception as error:  # an old GPU, no C compiler, a Triton of another age: the smallest kernel says
        return f"the smallest of Triton's kernels failed: {(str(error) or type(error).__name__).splitlines()[0]}"
    return ""
