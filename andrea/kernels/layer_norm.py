"""LayerNorm over the last axis, for every token by itself. Ba, Kiros & Hinton 2016, arXiv:1607.06450.

forward    n = (x - mean) / sqrt(var + EPSILON),   y = gamma n + beta        (var is the biased one)
backward   g = dy gamma,   dx = (g - mean(g) - n mean(g n)) / sqrt(var + EPSILON),   dgamma = sum dy n,   dbeta = sum dy
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from andrea.kernels.dtypes import LOOPED

EPSILON = 1e-5


def reference(x: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
    mean = x.mean(-1, keepdim=True)
    var = (x - mean).square().mean(-1, keepdim=True)
    return gamma * (x - mean) / torch.sqrt(var + EPSILON) + beta


def reference_backward(x: Tensor, gamma: Tensor, dy: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """dx, dgamma, dbeta."""
    mean = x.mean(-1, keepdim=True)
    std = torch.sqrt((x - mean).square().mean(-1, keepdim=True) + EPSILON)
    n, g = (x - mean) / std, dy * gamma
    dx = (g - g.mean(-1, keepdim=True) - n * (g * n).mean(-1, keepdim=True)) / std
    return dx, (dy * n).flatten(0, -2).sum(0), dy.flatten(0, -2).sum(0)


def layer_norm(x: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
    """x (..., D) -> (..., D), with gamma and beta (D,)."""
    return F.layer_norm(x, gamma.shape, gamma, beta, EPSILON)


def layer_norm_on_gpu(x: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
    from andrea.kernels.gpu import layer_norm as page

    return page.layer_norm(x, gamma, beta) if x.dtype in LOOPED else layer_norm(x, gamma, beta)
