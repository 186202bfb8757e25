"""Causal multi-head attention: the only place where a position learns of another.

Shapes: B batch, T tokens now, S tokens the cache and these make together, D d_model, H heads, K = D / H.
"""

from typing import Protocol

from torch import Tensor, nn

from andrea.config import ModelConfig
from andrea.kernels import Kernels
from andrea.model.dropout import Dropout


class LayerCache(Protocol):
    """Keys and values of positions already seen; infer/cache.py has one."""

    length: int

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Append (B, H, T, K) and return everything held, (B, H, S, K)."""


class Attend(nn.Module):
    """softmax(q k^T / sqrt(K)) v, causal. No parameters: a module so that q, k, v can be observed and the whole swapped."""

    def __init__(self, dropout: float, kernels: Kernels):
        super().__init__()
        self.dropout, self.attention = dropout, kernels.attention

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return self.attention(q, k, v, self.dropout if self.training else 0.0)  # (B, H, T, K)


class Attention(nn.Module):
    def __init__(self, c: ModelConfig, kernels: Kernels):
        super().__init__()
        self.n_head = c.n_head
        self.rotate = kernels.rotate if c.positions == "rotary" else None
        self.qkv = nn.Linear(c.d_model, 3 * c.d_model, bias=c.bias)
        self.attend = Attend(c.dropout, kernels)
        self.out = nn.Linear(c.d_model, c.d_model, bias=c.bias)
        self.drop = Dropout(c.dropout, kernels)

    def forward(self, x: Tensor, cache: LayerCache | None = None) -> Tensor:
        qkv = self.qkv(x)  # (B, T, 3 D)
        if self.rotate is not None:
            qkv = self.rotate(qkv, self.n_head, 0 if cache is None else cache.length)
        q, k, v = (part.unflatten(-1, (self.n_head, -1)).transpose(1, 2) for part in qkv.chunk(3, -1))  # (B, H, T, K) each
        if cache is not None:
            k, v = cache.extend(k, v)  # (B, H, S, K)
        y = self.attend(q, k, v)  # (B, H, T, K)
        return self.drop(self.out(y.transpose(1, 2).flatten(-2)))  # (B, T, D)
