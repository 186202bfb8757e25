"""The symmetric products of Newton-Schulz: alpha X X^T + beta C. ../newton_schulz.py has the rest.

Half of such a product is the mirror of the other half: only tiles on and below the diagonal are multiplied, and each is written twice.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from andrea.kernels.gpu.launch import dot, launch

TILE = 64  # rows and columns of the result that a program makes


@triton.jit
def kernel(
    X_ptr, C_ptr, Y_ptr, alpha, beta, m, n: tl.constexpr, batch_stride, row_stride, column_stride,
    ADD: tl.constexpr, TILE: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    i, j, batch = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    if j > i:
        return
    rows, columns = i * TILE + tl.arange(0, TILE), j * TILE + tl.arange(0, TILE)
    X_ptr += batch * batch_stride
    total = tl.zeros([TILE, TILE], tl.float32)
    for start in range(0, n, DEPTH):
        inner = start + tl.arange(0, DEPTH)
        left = X_ptr + rows[:, None] * row_stride + inner[None, :] * column_stride
        right = X_ptr + columns[None, :] * row_stride + inner[:, None] * column_stride
        a = tl.load(left, (rows[:, None] < m) & (inner[None, :] < n), 0)
        b = tl.load(right, (columns[None, :] < m) & (inner[:, None] < n), 0)
        total += dot(a, b)
    there = (rows[:, None] < m) & (columns[None, :] < m)
    at = batch * m * m + rows[:, None] * m + columns[None, :]
    total *= alpha
    if ADD:
        total += beta * tl.load(C_ptr + at, there, 0).to(tl.float32)
    tl.store(Y_ptr + at, total, there)
    tl.store(Y_ptr + batch * m * m + columns[:, None] * m + rows[None, :], tl.trans(total), (columns[:, None] < m) & (rows[None, :] < m))


@torch.library.custom_op("andrea::symmetric", mutates_args=())
def symmetric(X: Tensor, C: Tensor | None = None, alpha: float = 1.0, beta: float = 0.0) -> Tensor:
    """alpha X X^T + beta C for every X (N, m, n), with C (N, m, m) symmetric too; (N, m, m) in X's type."""
    N, m, n = X.shape
    Y = torch.empty(N, m, m, dtype=X.dtype, device=X.device)
    tiles = triton.cdiv(m, TILE)
    C = None if C is None else C.contiguous()
    depth = 64 if X.itemsize == 2 else 32  # of the sum at a time; float32 takes twice the room
    launch(kernel, (tiles, tiles, N), X, C, Y, alpha, beta, m, n, *X.stride(), ADD=C is not None, TILE=TILE, DEPTH=depth, num_stages=3)
    return Y


@symmetric.register_fake
def _(X, C=None, alpha=1.0, beta=0.0):
    N, m, _ = X.shape
    return X.new_empty(N, m, m)
