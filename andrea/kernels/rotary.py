"""Rotary positions: q and k of token t turn by t theta_i in every plane (i, i + K/2), so that q k^T knows distances. Su et al. 2021,
arXiv:2104.09864, eq. 34; halves instead of neighbours as GPT-NeoX has them.

    forward    (a, b) -> (a cos - b sin, b cos + a sin),   angle = t BASE^(-2 i / K)
    backward   the same by the negative angle
"""

from functools import lru_cache

import torch
from torch import Tensor

from andrea.kernels.dtypes import LOOPED

BASE = 1_000.0  # no plane turns slower than once in 6,283 tokens, six contexts; at 64 tokens 100 learned more than 10,000 (LOG.md)


@lru_cache(maxsize=16)  # every block and every step asks for the same
def angles(start: int, T: int, K: int) -> tuple[Tensor, Tensor]:
    """cos and sin, (T, K / 2) float64, of positions start to start + T - 1. Not to be written to."""
    rates = BASE ** (-torch.arange(0, K, 2, dtype=torch.float64) / K)
    turned = torch.arange(start, start + T, dtype=torch.float64)[:, None] * rates
    return turned.cos(), turned.sin()


def reference(qkv: Tensor, n_head: int, start: int) -> Tensor:
    """By complex numbers: every pair times exp(i angle)."""
    q, k, v = qkv.unflatten(-1, (3, n_head, -1)).unbind(2)  # (B, T, H, K) each
    cos, sin = angles(start, qkv.shape[1], q.shape[-1])
    turn = torch.complex(cos, sin).to(qkv.device)[:, None]  # (T, 1, K / 2)
    parts = (torch.complex(*x.double().chunk(2, -1)) * turn for x in (q, k))
    turned = (torch.cat([z.real, z.imag], -1).to(qkv.dtype) for z in parts)
    return torch.stack([*turned, v], 2).flatten(2)


def rotate(qkv: Tensor, n_head: int, start: int = 0) -> Tensor:
    """qkv (B, T, 3 D) with its q and k turned; the first token stands at `start`."""
    qk, v = qkv.unflatten(-1, (3 * n_head, -1)).split((2 * n_head, n_head), 2)  # (B, T, 2 H, K) and (B, T, H, K)
    dtype = torch.promote_types(qkv.dtype, torch.float32)
    cos, sin = (t[:, None].to(qkv.device, dtype) for t in angles(start, qkv.shape[1], qk.shape[-1]))
    a, b = qk.chunk(2, -1)
    return torch.cat([torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(qkv.dtype), v], 2).flatten(2)


class RotateOnCPU(torch.autograd.Function):
    """The same in place, by loops.py."""

    @staticmethod
    def forward(ctx, qkv: Tensor, n_head: int, start: int) -> Tensor:
        ctx.n_head, ctx.start = n_head, start
        ctx.mark_dirty(qkv)
        return turn(qkv, n_head, start, 1)

    @staticmethod
    def backward(ctx, dy: Tensor) -> tuple[Tensor | None, ...]:
        return turn(dy.contiguous().clone(), ctx.n_head, ctx.start, -1), None, None


def turn(qkv: Tensor, n_head: int, start: int, sign: int) -> Tensor:
    from andrea.kernels import loops

    x = qkv.unflatten(-1, (3 * n_head, -1))  # (B, T, 3 H, K)
    cos, sin = angles(start, x.shape[1], x.shape[-1])
    loops.run(loops.rotate, x, 2 * n_head, cos.float(), (sign * sin).float())
    return qkv


def rotate_on_cpu(qkv: Tensor, n_head: int, start: int = 0) -> Tensor:
    """In place: what comes out of a linear layer is kept by nobody."""
    return RotateOnCPU.apply(qkv, n_head, start) if qkv.dtype in LOOPED else rotate(qkv, n_head, start)
