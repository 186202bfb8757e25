"""The vector of every token: a row of a matrix.

forward    y_i = W[id_i]        backward   dW[t] = sum of dy_i over all i with id_i = t
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from andrea.kernels.dtypes import LOOPED


def reference(ids: Tensor, W: Tensor) -> Tensor:
    return W[ids]


def reference_backward(ids: Tensor, W: Tensor, dy: Tensor) -> Tensor:
    return torch.zeros_like(W).index_add_(0, ids.flatten(), dy.flatten(0, -2))


def embedding(ids: Tensor, W: Tensor) -> Tensor:
    """ids (...) and W (V, D) -> (..., D)."""
    return F.embedding(ids, W)


def embedding_on_gpu(ids: Tensor, W: Tensor) -> Tensor:
    from andrea.kernels.gpu import embedding as page

    return page.embedding(ids, W) if W.dtype in LOOPED else embedding(ids, W)
