"""Next-token cross-entropy from logits, nats.

    forward    loss_i = logsumexp(z_i) - z_i[target_i]
    backward   dz_i = dloss_i (softmax(z_i) - onehot(target_i))

Always taken in float32 or wider: a bfloat16 logsumexp over thousands of entries loses the third digit.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def reference(logits: Tensor, targets: Tensor) -> Tensor:
    z = logits.double()
    return torch.logsumexp(z, -1) - z.gather(-1, targets[..., None])[..., 0]


def reference_backward(logits: Tensor, targets: Tensor, dloss: Tensor) -> Tensor:
    z = logits.double()
    return dloss[..., None] * (z.softmax(-1) - F.one_hot(targets, z.shape[-1]))


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Loss of every target, nats: logits (..., V) and targets (...) -> (...)."""
    z = logits if logits.dtype == torch.float64 else logits.float()
    return F.cross_entropy(z.flatten(0, -2), targets.flatten(), reduction="none").view(targets.shape)
