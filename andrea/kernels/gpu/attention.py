"""Causal attention without the matrix of weights. ../attention.py has the formula, Dao et al. 2022, arXiv:2205.14135, the order of sums.

A program takes ROWS queries and walks over the keys they see, COLUMNS at a time. With the scores s of one tile and the largest and the
sum of all before it,

    top' = max(top, max s),   p = 2^(s - top'),   sum' = sum 2^(top - top') + sum p,   y' = y 2^(top - top') + p v

and y / sum is the answer: scores are in units of log 2, so that one instruction is the exponential. Kept for backward is
lse = top + log2 sum of every query; then P = 2^(s - lse) at once. There dq is the walk of a query's program over keys, and dk, dv that of
a key's over queries.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from andrea.kernels import attention as page
from andrea.kernels.gpu.launch import INTERPRETED, dot, launch

WIDEST = {torch.bfloat16: 128, torch.float32: 64}  # head: a wider one does not fit the registers
LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def read(ptr, rows, stride, T, K: tl.constexpr, BLOCK_K: tl.constexpr):
    """Rows of a head, (rows, BLOCK_K), 0 where there are none."""
    columns = tl.arange(0, BLOCK_K)
    return tl.load(ptr + rows[:, None] * stride + columns[None, :], (rows[:, None] < T) & (columns[None, :] < K), 0)


@triton.jit
def write(ptr, rows, stride, T, value, K: tl.constexpr, BLOCK_K: tl.constexpr):
    columns = tl.arange(0, BLOCK_K)
    tl.store(ptr + rows[:, None] * stride + columns[None, :], value, (rows[:, None] < T) & (columns[None, :] < K))


@triton.jit
def forward_kernel(
    q_ptr, k_ptr, v_ptr, y_ptr, lse_ptr, in_b, in_h, in_t, out_b, out_h, out_t, H, scale,
    T: tl.constexpr, K: tl.constexpr, BLOCK_K: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    i, head = tl.program_id(0), tl.program_id(1).to(tl.int64)
    here, there = head // H * in_b + head % H * in_h, head // H * out_b + head % H * out_h
    queries = i * ROWS + tl.arange(0, ROWS)
    q = read(q_ptr + here, queries, in_t, T, K, BLOCK_K)
    top, total = tl.full([ROWS], -float("inf"), tl.float32), tl.zeros([ROWS], tl.float32)
    y = tl.zeros([ROWS, BLOCK_K], tl.float32)
    # The interpreter takes no bound that is computed (triton issue 9171), and there a query walks over all keys: the mask is the same.
    for start in range(0, T if INTERPRETED else tl.minimum((i + 1) * ROWS, T), COLUMNS):
        keys = start + tl.arange(0, COLUMNS)
        k, v = read(k_ptr + here, keys, in_t, T, K, BLOCK_K), read(v_ptr + here, keys, in_t, T, K, BLOCK_K)
        s = tl.where(keys[None, :] <= queries[:, None], dot(q, tl.trans(k)) * (scale * LOG2_E), -float("inf"))
        new = tl.maximum(top, tl.max(s, 1))
        p, faded = tl.exp2(s - new[:, None]), tl.exp2(top - new)
        total = total * faded + tl.sum(p, 1)
        y = y * faded[:, None] + dot(p.to(v.dtype), v)
        top = new
    write(y_ptr + there, queries, out_t, T, y / total[:, None], K, BLOCK_K)
    tl.store(lse_ptr + head * T + queries, top + tl.log2(total), queries < T)


@triton.jit
def queries_kernel(
    dy_ptr, q_ptr, k_ptr, v_ptr, y_ptr, lse_ptr, inner_ptr, dq_ptr, in_b, in_h, in_t, out_b, out_h, out_t, H, scale,
    T: tl.constexpr, K: tl.constexpr, BLOCK_K: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """dq, and for the other kernel inner = sum(dP P) = sum(dy y) of every query."""
    i, head = tl.program_id(0), tl.program_id(1).to(tl.int64)
    here, there = head // H * in_b + head % H * in_h, head // H * out_b + head % H * out_h
    queries = i * ROWS + tl.arange(0, ROWS)
    q, dy = read(q_ptr + here, queries, in_t, T, K, BLOCK_K), read(dy_ptr + there, queries, out_t, T, K, BLOCK_K)
    lse = tl.load(lse_ptr + head * T + queries, queries < T, 0)
    inner = tl.sum(dy.to(tl.float32) * read(y_ptr + there, queries, out_t, T, K, BLOCK_K).to(tl.float32), 1)
    tl.store(inner_ptr + head * T + queries, inner, queries < T)
    dq = tl.zeros([ROWS, BLOCK_K], tl.float32)
    for start in range(0, T if INTERPRETED else tl.minimum((i + 1) * ROWS, T), COLUMNS):
        keys = start + tl.arange(0, COLUMNS)
        k, v = read(k_ptr + here, keys, in_t, T, K, BLOCK_K), read(v_ptr + here, keys, in_t, T, K, BLOCK_K)
        s = dot(q, tl.trans(k)) * (scale * LOG2_E)
        P = tl.where(keys[None, :] <= queries[:, None], tl.exp2(s - lse[:, None]), 0)
        dS = P * (dot(dy, tl.trans(v)) - inner[:, None])
        dq += dot(dS.to(k.dtype), k)
    write(dq_ptr + there, queries, out_t, T, dq * scale, K, BLOCK_K)


@triton.jit
def keys_kernel(
    dy_ptr, q_ptr, k_ptr, v_ptr, lse_ptr, inner_ptr, dk_ptr, dv_ptr, in_b, in_h, in_t, out_b, out_h, out_t, H, scale,
    T: tl.constexpr, K: tl.constexpr, BLOCK_K: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    j, head = tl.program_id(0), tl.program_id(1).to(tl.int64)
    here, there = head // H * in_b + head % H * in_h, head // H * out_b + head % H * out_h
    keys = j * COLUMNS + tl.arange(0, COLUMNS)
    k, v = read(k_ptr + here, keys, in_t, T, K, BLOCK_K), read(v_ptr + here, keys, in_t, T, K, BLOCK_K)
    dk, dv = tl.zeros([COLUMNS, BLOCK_K], tl.float32), tl.zeros([COLUMNS, BLOCK_K], tl.float32)
    for start in range(0 if INTERPRETED else j * COLUMNS // ROWS * ROWS, T, ROWS):  # from the first query that sees one of these keys
        queries = start + tl.arange(0, ROWS)
        q, dy = read(q_ptr + here, queries, in_t, T, K, BLOCK_K), read(dy_ptr + there, queries, out_t, T, K, BLOCK_K)
        lse = tl.load(lse_ptr + head * T + queries, queries < T, 0)
        inner = tl.load(inner_ptr + head * T + queries, queries < T, 0)
        s = dot(k, tl.trans(q)) * (scale * LOG2_E)  # (keys, queries): all is transposed here, so that no tile has to be turned
        P = tl.where(keys[:, None] <= queries[None, :], tl.exp2(s - lse[None, :]), 0)
        dv += dot(P.to(dy.dtype), dy)
        dS = P * (dot(v, tl.trans(dy)) - inner[None, :])
        dk += dot(dS.to(q.dtype), q)
    write(dk_ptr + there, keys, out_t, T, dk * scale, K, BLOCK_K)
    write(dv_ptr + there, keys, out_t, T, dv, K, BLOCK_K)


def heads_last(q: Tensor) -> Tensor:
    """An empty tensor (B, H, T, K) in the order (B, T, H, K), as the linear layers on both sides have it."""
    B, H, T, K = q.shape
    return q.new_empty(B, T, H, K).transpose(1, 2)


def together(*tensors: Tensor) -> list[Tensor]:
    """The same, copied where they do not lie in memory alike with the head's values side by side."""
    alike = tensors[0].stride(-1) == 1 and all(t.stride() == tensors[0].stride() for t in tensors)
    return list(tensors) if alike else [heads_last(t).copy_(t) for t in tensors]


def shape(q: Tensor) -> dict[str, int]:
    """Queries and keys of a tile, as many as find room in the registers: tests/test_triton.py compiles them."""
    T, K = q.shape[-2:]
    block = max(16, triton.next_power_of_2(K))  # 16 is the least that tensor cores take
    side = 64 if q.itemsize == 2 else 32
    return {"T": T, "K": K, "BLOCK_K": block, "ROWS": side, "COLUMNS": side, "num_warps": 8 if block > 64 else 4, "num_stages": 2}


@torch.library.custom_op("andrea::attention", mutates_args=())
def flash(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """y (B, H, T, K), and lse (B, H, T) float32."""
    B, H, T, K = q.shape
    q, k, v = together(q, k, v)
    y, lse = heads_last(q), torch.empty(B, H, T, dtype=torch.float32, device=q.device)
    strides = (*q.stride()[:3], *y.stride()[:3])
    sizes = shape(q)
    launch(forward_kernel, (triton.cdiv(T, sizes["ROWS"]), B * H), q, k, v, y, lse, *strides, H, K**-0.5, **sizes)
    return y, lse


@torch.library.custom_op("andrea::attention_backward", mutates_args=())
def flash_backward(dy: Tensor, q: Tensor, k: Tensor, v: Tensor, y: Tensor, lse: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    B, H, T, K = q.shape
    q, k, v = together(q, k, v)
    dq, dk, dv = (heads_last(t) for t in (q, k, v))
    dy, y = (t if t.stride() == dq.stride() else heads_last(t).copy_(t) for t in (dy, y))
    inner, strides = torch.empty_like(lse), (*q.stride()[:3], *dq.stride()[:3])
    args, sizes = (*strides, H, K**-0.5), shape(q)
    launch(queries_kernel, (triton.cdiv(T, sizes["ROWS"]), B * H), dy, q, k, v, y, lse, inner, dq, *args, **sizes)
    sizes["ROWS"] //= 2  # this one has two sums to hold
    launch(keys_kernel, (triton.cdiv(T, sizes["COLUMNS"]), B * H), dy, q, k, v, lse, inner, dk, dv, *args, **sizes)
    return dq, dk, dv


@flash.register_fake
def _(q, k, v):
    return heads_last(q), q.new_empty(q.shape[:3], dtype=torch.float32)


flash_backward.register_fake(lambda dy, q, k, v, y, lse: (heads_last(q), heads_last(k), heads_last(v)))


def keep(ctx, inputs, output):
    ctx.save_for_backward(*inputs, *output)
    ctx.mark_non_differentiable(output[1])


def backward(ctx, dy, _):
    return flash_backward(dy, *ctx.saved_tensors)


flash.register_autograd(backward, setup_context=keep)


def attention(q: Tensor, k: Tensor, v: Tensor, dropout: float = 0.0) -> Tensor:
    """y (B, H, T, K); the vendor's kernel where this one has no answer: dropout, a cache's continuation, wide heads, float64."""
    ours = not dropout and q.shape == k.shape and q.shape[-1] <= WIDEST.get(q.dtype, 0)
    return flash(q, k, v)[0] if ours else page.attention(q, k, v, dropout)
