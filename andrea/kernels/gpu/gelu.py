"""GELU in the tanh form, with the bias before it if there is one. ../gelu.py has the formula.

(1 + tanh u) / 2 = s, the logistic function of 2 u; in backward (1 - tanh^2 u) / 2 = 2 s (1 - s). Nothing is kept but x.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from andrea.kernels.gpu.launch import INTERPRETED, launch

NVIDIA = tl.constexpr(not INTERPRETED.value and torch.version.hip is None)
SLOPE, CUBIC = tl.constexpr(0.7978845608028654), tl.constexpr(0.044715)  # sqrt(2 / pi), as in ../gelu.py
LOG2_E = tl.constexpr(1.4426950408889634)
FLAT = tl.constexpr(8.0)  # beyond +-8 the derivative is 1 or 0 to more than float32's digits, and the exponential stays finite within
BLOCK = 1024  # values a program; 8 a thread, which are 16 bytes of bfloat16


@triton.jit
def halves(x, FAST: tl.constexpr):
    """s and 1 - s. FAST: by the one instruction for tanh, which is right to about 2^-11; else by an exponential, to float32's digits."""
    u = x * SLOPE * (x * x * CUBIC + 1)  # constants on the right: the interpreter of Triton 3.9 makes no tensor of the reverse
    if FAST:
        t = tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [u], dtype=tl.float32, is_pure=True, pack=1)
        s = 0.5 + 0.5 * t
        rest = 0.5 - 0.5 * t
    else:
        e = tl.exp2(u * (-2 * LOG2_E))
        s = 1 / (1 + e)
        rest = e * s
    return s, rest


@triton.jit
def forward_kernel(x_ptr, bias_ptr, y_ptr, n, D, BIAS: tl.constexpr, FAST: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, at < n, 0).to(tl.float32)
    if BIAS:
        x += tl.load(bias_ptr + at % D, at < n, 0).to(tl.float32)
    s, _ = halves(x, FAST)
    tl.store(y_ptr + at, x * s, at < n)


@triton.jit
def backward_kernel(dy_ptr, x_ptr, bias_ptr, dx_ptr, n, D, BIAS: tl.constexpr, FAST: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    dy = tl.load(dy_ptr + at, at < n, 0).to(tl.float32)
    x = tl.load(x_ptr + at, at < n, 0).to(tl.float32)
    if BIAS:
        x += tl.load(bias_ptr + at % D, at < n, 0).to(tl.float32)
    x = tl.minimum(tl.maximum(x, -FLAT), FLAT)
    s, rest = halves(x, FAST)
    tl.store(dx_ptr + at, dy * (s + 2 * x * s * rest * SLOPE * (x * x * (3 * CUBIC) + 1)), at < n)


def fast(x: Tensor) -> bool:
    """Whether the one instruction will do: on NVIDIA, where the result is rounded to fewer digits than it gives."""
    return NVIDIA.value and x.dtype != torch.float32


@torch.library.custom_op("andrea::gelu", mutates_args=())
def gelu(x: Tensor, bias: Tensor | None = None) -> Tensor:
    """GELU(x + bias) of every element; x (..., D), float32 or bfloat16, and bias (D,)."""
    x = x.contiguous()
    y = torch.empty_like(x)
    grid, D = (triton.cdiv(x.numel(), BLOCK),), x.shape[-1]
    launch(forward_kernel, grid, x, bias, y, x.numel(), D, BIAS=bias is not None, FAST=fast(x), BLOCK=BLOCK)
    return y


@torch.library.custom_op("andrea::gelu_backward", mutates_args=())
def gelu_backward(dy: Tensor, x: Tensor, bias: Tensor | None = None) -> Tensor:
    dy, x = dy.contiguous(), x.contiguous()
    dx = torch.empty_like(x)
    grid, D = (triton.cdiv(x.numel(), BLOCK),), x.shape[-1]
    launch(backward_kernel, grid, dy, x, bias, dx, x.numel(), D, BIAS=bias is not None, FAST=fast(x), BLOCK=BLOCK)
    return dx


@gelu.register_fake
def _(x, bias=None):
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@gelu_backward.register_fake
def _(dy, x, bias=None):
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def keep(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def backward(ctx, dy):
    x, bias = ctx.saved_tensors
    dx = gelu_backward(dy, x, bias)
    return dx, None if bias is None else dx.flatten(0, -2).sum(0, dtype=torch.float32).to(bias.dtype)


gelu.register_autograd(backward, setup_context=keep)
