"""Rows of a matrix by number, and their gradient. ../embedding.py has the formula.

In backward every row of the matrix has a program of its own that adds up the positions where its token stands, found by sorting: no two
programs write to one place, so that a token that repeats loses nothing, and the sum has one order and always the same bits.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from andrea.kernels.gpu.launch import launch

BLOCK = 256  # columns a program, at most
POSITIONS = tl.constexpr(16)  # of one token that are added at a time


@triton.jit
def forward_kernel(W_ptr, ids_ptr, y_ptr, D, BLOCK: tl.constexpr):
    i, columns = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    token = tl.load(ids_ptr + i)
    tl.store(y_ptr + i * D + columns, tl.load(W_ptr + token * D + columns, columns < D), columns < D)


@triton.jit
def backward_kernel(dy_ptr, order_ptr, ends_ptr, dW_ptr, D, BLOCK: tl.constexpr):
    token, columns = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    first, end = tl.load(ends_ptr + token), tl.load(ends_ptr + token + 1)
    total = tl.zeros([BLOCK], tl.float32)
    while first < end:
        among = first + tl.arange(0, POSITIONS)
        i = tl.load(order_ptr + among, among < end, 0)
        dy = tl.load(dy_ptr + i[:, None] * D + columns[None, :], (among[:, None] < end) & (columns[None, :] < D), 0)
        total += tl.sum(dy.to(tl.float32), 0)
        first += POSITIONS
    tl.store(dW_ptr + token * D + columns, total, columns < D)


def pieces(D: int) -> tuple[int, int]:
    """Programs for a row, and columns of each."""
    block = min(BLOCK, triton.next_power_of_2(D))
    return triton.cdiv(D, block), block


@torch.library.custom_op("andrea::embedding", mutates_args=())
def embedding(ids: Tensor, W: Tensor) -> Tensor:
    """W (V, D) and ids (...) -> (..., D)."""
    D, ids = W.shape[1], ids.contiguous()
    y = torch.empty(*ids.shape, D, dtype=W.dtype, device=W.device)
    n, block = pieces(D)
    launch(forward_kernel, (ids.numel(), n), W.contiguous(), ids, y, D, BLOCK=block, num_warps=1)
    return y


@torch.library.custom_op("andrea::embedding_backward", mutates_args=())
def embedding_backward(dy: Tensor, ids: Tensor, V: int) -> Tensor:
    D, dy = dy.shape[-1], dy.contiguous()
    tokens, order = ids.flatten().sort(stable=True)
    ends = torch.searchsorted(tokens, torch.arange(V + 1, device=ids.device))  # token t stands at order[ends[t] : ends[t + 1]]
    dW = torch.empty(V, D, dtype=dy.dtype, device=dy.device)
    n, block = pieces(D)
    launch(backward_kernel, (V, n), dy, order, ends, dW, D, BLOCK=block)
    return dW


embedding.register_fake(lambda ids, W: W.new_empty(*ids.shape, W.shape[1]))
embedding_backward.register_fake(lambda dy, ids, V: dy.new_empty(V, dy.shape[-1]))


def keep(ctx, inputs, output):
    ids, W = inputs
    ctx.save_for_backward(ids)
    ctx.V = len(W)


def backward(ctx, dy):
    return None, embedding_backward(dy, *ctx.saved_tensors, ctx.V)


embedding.register_autograd(backward, setup_context=keep)
