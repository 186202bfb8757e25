"""Causal attention, softmax(q k^T / sqrt(K)) v. Vaswani et al. 2017, arXiv:1706.03762 eq. 1.

q (B, H, T, K) are the last T of S positions; k, v are (B, H, S, K). With S = T + p, query t sees keys 0 .. p + t.

    forward    P = softmax(q k^T / sqrt(K) + mask),   y = P v
    backward   dv = P^T dy,   dP = dy v^T,   dS = P (dP - sum(dP P)),   dq = dS k / sqrt(K),   dk = dS^T q / sqrt(K)
"""

from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from andrea.kernels.dropout import masked, seed
from andrea.kernels.dtypes import LOOPED

CHUNK = 128  # queries at a time on a CPU; 64 to 256 are within a tenth of each other


def pattern(q: Tensor, k: Tensor) -> Tensor:
    """The attention weights (B, H, T, S); every row sums to 1 and no row looks ahead."""
    T, S = q.shape[-2], k.shape[-2]
    future = torch.ones(T, S, dtype=torch.bool, device=q.device).triu(S - T + 1)
    return (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(future, -torch.inf).softmax(-1)


def reference(q: Tensor, k: Tensor, v: Tensor, dropout: float = 0.0) -> Tensor:
    return F.dropout(pattern(q, k), dropout, training=dropout > 0) @ v


def attention(q: Tensor, k: Tensor, v: Tensor, dropout: float = 0.0) -> Tensor:
    """y (B, H, T, K), through the vendor's fused kernel; `dropout` falls on the attention weights."""
    T, S = q.shape[-2], k.shape[-2]
    if T in (S, 1):  # one query sees every key, so it needs no mask
        return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=T == S)
    seen = torch.ones(T, S, dtype=torch.bool, device=q.device).tril(S - T)
    return F.scaled_dot_product_attention(q, k, v, seen, dropout)


def attention_on_cpu(q: Tensor, k: Tensor, v: Tensor, dropout: float = 0.0) -> Tensor:
    """y (B, H, T, K): in chunks, except for a cache's continuation."""
    whole = q.shape[-2] == k.shape[-2] and q.dtype in LOOPED
    return Chunks.apply(q, k, v, dropout) if whole else attention(q, k, v, dropout)


def attention_on_gpu(q: Tensor, k: Tensor, v: Tensor, dropout: float = 0.0) -> Tensor:
    from andrea.kernels.gpu import attention as page

    return page.attention(q, k, v, dropout)


class Chunks(torch.autograd.Function):
    """The same for a CPU, S = T, as plain matrix products of CHUNK queries with the keys they see, and loops.py between them.

    torch's fused kernel multiplies at a quarter of the speed of its matrix products in bfloat16 (2 cores of Zen 4). The weights P are kept
    for backward, H T^2 / 2 values, and what fell on them is known from one seed for each chunk.
    """

    @staticmethod
    def forward(ctx, q: Tensor, k: Tensor, v: Tensor, dropout: float) -> Tensor:
        from andrea.kernels import loops

        B, H, T, K = q.shape
        q, k, v = (t.reshape(B * H, T, K) for t in (q, k, v))
        y = torch.empty(B, T, H, K, dtype=q.dtype)  # the order in which the output projection reads it
        kept, ctx.seeds = [], [seed() if dropout else 0 for _ in chunks(T)]
        for (start, stop), drawn in zip(chunks(T), ctx.seeds, strict=True):
            P = q[:, start:stop] @ k[:, :stop].mT  # (B H, stop - start, stop)
            loops.run(loops.causal_softmax, P, start, np.float32(K**-0.5))
            y[:, start:stop] = in_heads((masked(P, dropout, drawn) if dropout else P) @ v[:, :stop], H)
            kept.append(P)
        ctx.save_for_backward(q, k, v, *kept)
        ctx.H, ctx.dropout = H, dropout
        return y.transpose(1, 2)

    @staticmethod
    def backward(ctx, dy: Tensor) -> tuple[Tensor | None, ...]:
        from andrea.kernels import loops

        q, k, v, *kept = ctx.saved_tensors
        T, K = q.shape[1:]
        dy = dy.reshape(q.shape)
        dq = torch.empty(len(q) // ctx.H, T, ctx.H, K, dtype=q.dtype)
        dk = dv = torch.empty(0)
        for (start, stop), P, drawn in reversed(list(zip(chunks(T), kept, ctx.seeds, strict=True))):
            d = dy[:, start:stop]
            dS, dropped = d @ v[:, :stop].mT, P
            if ctx.dropout:
                dS, dropped = (masked(t, ctx.dropout, drawn) for t in (dS, P))
            loops.run(loops.softmax_backward, dS, P, start, np.float32(K**-0.5))
            dq[:, start:stop] = in_heads(dS @ k[:, :stop], ctx.H)
            if stop == T:  # the last chunk sees every key
                dk, dv = dS.mT @ q[:, start:stop], dropped.mT @ d
            else:
                dk[:, :stop] += dS.mT @ q[:, start:stop]
                dv[:, :stop] += dropped.mT @ d
        return dq.transpose(1, 2), *(in_heads(t, ctx.H).contiguous().transpose(1, 2) for t in (dk, dv)), None


def chunks(T: int) -> list[tuple[int, int]]:
    """(start, stop) of every chunk of queries."""
    return list(pairwise([*range(0, T, CHUNK), T]))


def in_heads(x: Tensor, H: int) -> Tensor:
    """(B H, T, K) as (B, T, H, K), the order of the linear layers on both sides."""
    return x.unflatten(0, (-1, H)).transpose(1, 2)
