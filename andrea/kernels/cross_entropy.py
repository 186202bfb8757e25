"""Next-token cross-entropy from logits, nats.

    forward    loss_i = logsumexp(z_i) - z_i[target_i]
    backward   dz_i = dloss_i (softmax(z_i) - onehot(target_i))

Always taken in float32 or wider: a bfloat16 logsumexp over thousands of entries loses the third digit.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from andrea.kernels.dtypes import LOOPED

ROWS = 1024  # targets at a time
MULTIPLE = 64  # columns


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


def loss(x: Tensor, unembed: Tensor, targets: Tensor) -> Tensor:
    """Loss of every target from what the unembedding (V, D) reads: x (..., D) and targets (...) -> (...)."""
    return cross_entropy(F.linear(x, unembed), targets)


def reference_loss(x: Tensor, unembed: Tensor, targets: Tensor) -> Tensor:
    return reference(x @ unembed.mT, targets)


def loss_on_cpu(x: Tensor, unembed: Tensor, targets: Tensor) -> Tensor:
    """The same, ROWS targets at a time. Raises IndexError for a target that is no column: the loops would not notice."""
    if targets.numel() and targets.max() >= len(unembed):
        raise IndexError(f"target {int(targets.max())} is out of bounds for {len(unembed)} tokens")
    return LinearCrossEntropy.apply(x, unembed, targets) if x.dtype in LOOPED else loss(x, unembed, targets)


def loss_on_gpu(x: Tensor, unembed: Tensor, targets: Tensor) -> Tensor:
    """The same without float32 logits; a target that is no column has the loss NaN."""
    from andrea.kernels.gpu import cross_entropy as page

    return page.loss(x, unembed, targets) if x.dtype in LOOPED else loss(x, unembed, targets)


class LinearCrossEntropy(torch.autograd.Function):
    """loss() for a CPU. Of the logits only their gradient is kept, in autocast's type, written over them while they are in the cache.

    The vocabulary is padded for the products: their speed drops by a tenth where it is odd.
    """

    @staticmethod
    def forward(ctx, x: Tensor, unembed: Tensor, targets: Tensor) -> Tensor:
        from andrea.kernels import loops

        dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else x.dtype
        V, D = unembed.shape
        rows = x.reshape(-1, D).to(dtype)
        padded = torch.zeros(-V % MULTIPLE + V, D, dtype=dtype)
        padded[:V] = unembed
        losses = torch.empty(len(rows), dtype=torch.float32)
        dz = torch.empty(len(rows), len(padded), dtype=dtype)
        for part, aims, z, out in zip(*(t.split(ROWS) for t in (rows, targets.flatten(), dz, losses)), strict=True):
            torch.mm(part, padded.mT, out=z)
            loops.run(loops.cross_entropy, z, aims.contiguous(), V, out)
        ctx.save_for_backward(rows, padded, dz)
        ctx.shape, ctx.dtype, ctx.V = x.shape, x.dtype, V
        return losses.view(targets.shape)

    @staticmethod
    def backward(ctx, dlosses: Tensor) -> tuple[Tensor, Tensor, None]:
        rows, padded, dz = ctx.saved_tensors
        each = dlosses.reshape(-1, 1)
        dx = (dz @ padded) * each
        dW = dz.mT @ (rows * each).to(rows.dtype)
        return dx.view(ctx.shape).to(ctx.dtype), dW[: ctx.V].float(), None
