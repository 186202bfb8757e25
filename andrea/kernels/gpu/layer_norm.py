"""LayerNorm, and residual addition + LayerNorm in one. ../layer_norm.py has the formula.

A program holds whole rows in registers, so that every value is read once and written once; the statistics are float32 and taken again in
backward. There each of a few programs takes many rows and adds up its own share of dgamma and dbeta; torch adds the shares.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from andrea.kernels.gpu.launch import crowd, launch
from andrea.kernels.layer_norm import EPSILON as EPSILON_

EPSILON = tl.constexpr(EPSILON_)
AT_ONCE = 2048  # values of a program's rows; a wide row alone may have more


def tile(D: int) -> dict[str, int]:
    """Rows and columns that a program holds, and its warps of 32 threads."""
    columns = triton.next_power_of_2(D)
    return {"ROWS": max(1, AT_ONCE // columns), "COLUMNS": columns, "num_warps": min(16, max(4, columns // 1024))}


@triton.jit
def standardised(x, there, D: tl.constexpr):
    """n and 1 / standard deviation, for each row of x, which is 0 outside `there`."""
    centred = tl.where(there, x - tl.sum(x, 1)[:, None] / D, 0)
    inverse = 1 / tl.sqrt(tl.sum(centred * centred, 1) / D + EPSILON)
    return centred * inverse[:, None], inverse


@triton.jit
def forward_kernel(
    x_ptr, r_ptr, gamma_ptr, beta_ptr, s_ptr, y_ptr, N, D: tl.constexpr, ADD: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    rows, columns = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    there = (rows[:, None] < N) & (columns[None, :] < D)
    at = rows[:, None].to(tl.int64) * D + columns[None, :]
    x = tl.load(x_ptr + at, there, 0).to(tl.float32)
    if ADD:
        x += tl.load(r_ptr + at, there, 0).to(tl.float32)
        tl.store(s_ptr + at, x, there)
    gamma = tl.load(gamma_ptr + columns, columns < D, 0).to(tl.float32)
    beta = tl.load(beta_ptr + columns, columns < D, 0).to(tl.float32)
    n, _ = standardised(x, there, D)
    tl.store(y_ptr + at, gamma[None, :] * n + beta[None, :], there)


@triton.jit
def backward_kernel(
    dy_ptr, ds_ptr, x_ptr, gamma_ptr, dx_ptr, dgamma_ptr, dbeta_ptr, N,
    D: tl.constexpr, ADD: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    columns = tl.arange(0, COLUMNS)
    gamma = tl.load(gamma_ptr + columns, columns < D, 0).to(tl.float32)
    dgamma, dbeta = tl.zeros([COLUMNS], tl.float32), tl.zeros([COLUMNS], tl.float32)
    first = tl.program_id(0) * ROWS
    while first < N:
        rows = first + tl.arange(0, ROWS)
        there = (rows[:, None] < N) & (columns[None, :] < D)
        at = rows[:, None].to(tl.int64) * D + columns[None, :]
        dy = tl.load(dy_ptr + at, there, 0).to(tl.float32)
        n, inverse = standardised(tl.load(x_ptr + at, there, 0).to(tl.float32), there, D)
        g = dy * gamma[None, :]
        dx = (g - tl.sum(g, 1)[:, None] / D - n * (tl.sum(g * n, 1)[:, None] / D)) * inverse[:, None]
        if ADD:
            dx += tl.load(ds_ptr + at, there, 0).to(tl.float32)
        tl.store(dx_ptr + at, dx, there)
        dgamma += tl.sum(dy * n, 0)
        dbeta += tl.sum(dy, 0)
        first += tl.num_programs(0) * ROWS
    share = tl.program_id(0) * D + columns
    tl.store(dgamma_ptr + share, dgamma, columns < D)
    tl.store(dbeta_ptr + share, dbeta, columns < D)


def forward(x: Tensor, r: Tensor | None, gamma: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
    """s = x + r, which is x itself where nothing is added, and LayerNorm of s."""
    D, x = x.shape[-1], x.contiguous()
    y, s = torch.empty_like(x), torch.empty_like(x) if r is not None else x
    N, shape = x.numel() // D, tile(D)
    launch(
        forward_kernel, (triton.cdiv(N, shape["ROWS"]),),
        x, None if r is None else r.contiguous(), gamma.contiguous(), beta.contiguous(), s, y, N, D=D, ADD=r is not None, **shape,
    )  # fmt: skip
    return s, y


def gradients(dy: Tensor, ds: Tensor | None, x: Tensor, gamma: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """dx with ds added, dgamma, dbeta."""
    D, x = x.shape[-1], x.contiguous()
    N, shape = x.numel() // D, tile(D)
    programs = min(triton.cdiv(N, shape["ROWS"]), crowd(x))
    dx, shares = torch.empty_like(x), torch.empty(2, programs, D, dtype=torch.float32, device=x.device)
    launch(
        backward_kernel, (programs,),
        dy.contiguous(), None if ds is None else ds.contiguous(), x, gamma.contiguous(), dx, *shares, N, D=D, ADD=ds is not None, **shape,
    )  # fmt: skip
    dgamma, dbeta = shares.sum(1).to(gamma.dtype)
    return dx, dgamma, dbeta.clone()  # an operator's results share no memory


@torch.library.custom_op("andrea::layer_norm", mutates_args=())
def layer_norm(x: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
    """x (..., D) -> (..., D), with gamma and beta (D,)."""
    return forward(x, None, gamma, beta)[1]


@torch.library.custom_op("andrea::layer_norm_backward", mutates_args=())
def layer_norm_backward(dy: Tensor, x: Tensor, gamma: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return gradients(dy, None, x, gamma)


@torch.library.custom_op("andrea::add_layer_norm", mutates_args=())
def add_layer_norm(x: Tensor, r: Tensor, gamma: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
    """s = x + r and LayerNorm of s, both (..., D). The model keeps its two lines; benchmarks/gpu.py says what this would gain."""
    return forward(x, r, gamma, beta)


@torch.library.custom_op("andrea::add_layer_norm_backward", mutates_args=())
def add_layer_norm_backward(dy: Tensor, ds: Tensor, s: Tensor, gamma: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return gradients(dy, ds, s, gamma)


def like(x: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


layer_norm.register_fake(lambda x, gamma, beta: like(x))
layer_norm_backward.register_fake(lambda dy, x, gamma: (like(x), like(gamma), like(gamma)))
add_layer_norm.register_fake(lambda x, r, gamma, beta: (like(x), like(x)))
add_layer_norm_backward.register_fake(lambda dy, ds, s, gamma: (like(s), like(gamma), like(gamma)))


def keep(ctx, inputs, output):
    x, gamma, _ = inputs
    ctx.save_for_backward(x, gamma)


def keep_sum(ctx, inputs, output):
    ctx.save_for_backward(output[0], inputs[2])


def backward(ctx, dy):
    return layer_norm_backward(dy, *ctx.saved_tensors)


def backward_of_sum(ctx, ds, dy):
    dx, dgamma, dbeta = add_layer_norm_backward(dy, ds, *ctx.saved_tensors)
    return dx, dx, dgamma, dbeta


layer_norm.register_autograd(backward, setup_context=keep)
add_layer_norm.register_autograd(backward_of_sum, setup_context=keep_sum)
