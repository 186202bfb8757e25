"""Causal attention, softmax(q k^T / sqrt(K)) v. Vaswani et al. 2017, arXiv:1706.03762 eq. 1.

q (B, H, T, K) are the last T of S positions; k, v are (B, H, S, K). With S = T + p, query t sees keys 0 .. p + t.

    forward    P = softmax(q k^T / sqrt(K) + mask),   y = P v
    backward   dv = P^T dy,   dP = dy v^T,   dS = P (dP - sum(dP P)),   dq = dS k / sqrt(K),   dk = dS^T q / sqrt(K)
"""

import torch
import torch.nn.functional as F
from torch import Tensor


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
