"""GELU in the tanh form. Hendrycks & Gimpel 2016, arXiv:1606.08415.

forward    y  = x Phi(x),   Phi(x) ~ (1 + tanh u) / 2,   u = sqrt(2/pi) (x + 0.044715 x^3)
backward   dx = dy [ (1 + tanh u) / 2 + x (1 - tanh^2 u) / 2 * u' ],   u' = sqrt(2/pi) (1 + 3 * 0.044715 x^2)
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from andrea.kernels.dtypes import LOOPED

SQRT_2_OVER_PI = math.sqrt(2 / math.pi)


def reference(x: Tensor) -> Tensor:
    return 0.5 * x * (1 + torch.tanh(SQRT_2_OVER_PI * (x + 0.044715 * x**3)))


def reference_backward(x: Tensor, dy: Tensor) -> Tensor:
    t = torch.tanh(SQRT_2_OVER_PI * (x + 0.044715 * x**3))
    return dy * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * SQRT_2_OVER_PI * (1 + 3 * 0.044715 * x * x))


def gelu(x: Tensor) -> Tensor:
    """GELU of every element, the shape of x kept."""
    return F.gelu(x, approximate="tanh")


def gelu_on_cpu(x: Tensor) -> Tensor:
    return GeluOnCPU.apply(x) if x.dtype in LOOPED else gelu(x)


def gelu_on_gpu(x: Tensor) -> Tensor:
    from andrea.kernels.gpu import gelu as page

    return page.gelu(x) if x.dtype in LOOPED else gelu(x)


class GeluOnCPU(torch.autograd.Function):
    """The same in one pass of loops.py, float32 or bfloat16. It keeps the derivative in x's place, so that backward is one product."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        from andrea.kernels import loops

        x = x.contiguous()
        y, slope = torch.empty_like(x), torch.empty_like(x)
        loops.run(loops.gelu, *(t.view(-1, x.shape[-1]) for t in (x, y, slope)))
        ctx.save_for_backward(slope)
        return y

    @staticmethod
    def backward(ctx, dy: Tensor) -> Tensor:
        return dy * ctx.saved_tensors[0]
