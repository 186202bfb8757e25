"""Dropout: every value is kept with probability 1 - p, and what is kept grows by 1 / (1 - p). Srivastava et al. 2014, JMLR 15.

forward    y = x m / (1 - p),   m 0 or 1        backward   dx = dy m / (1 - p)
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from andrea.kernels.dtypes import LOOPED


def reference(x: Tensor, p: float) -> Tensor:
    return x * torch.bernoulli(torch.full_like(x, 1 - p)) / (1 - p)


def dropout(x: Tensor, p: float) -> Tensor:
    """x with every value 0 with probability p, and the rest divided by 1 - p."""
    return F.dropout(x, p)


def dropout_on_cpu(x: Tensor, p: float) -> Tensor:
    return DropoutOnCPU.apply(x, p) if x.dtype in LOOPED else dropout(x, p)


class DropoutOnCPU(torch.autograd.Function):
    """The same by loops.py. The mask is a hash of a seed and the place: backward makes it again, and keeps nothing but the seed.

    torch draws one value after another, on one core.
    """

    @staticmethod
    def forward(ctx, x: Tensor, p: float) -> Tensor:
        ctx.p, ctx.seed = p, seed()
        return masked(x, p, ctx.seed)

    @staticmethod
    def backward(ctx, dy: Tensor) -> tuple[Tensor, None]:
        return masked(dy, ctx.p, ctx.seed), None


def seed() -> int:
    """32 bits from torch's generator for the CPU, whose state is saved with every checkpoint."""
    return int(torch.randint(2**32, ()))


def masked(x: Tensor, p: float, seed: int) -> Tensor:
    """x m / (1 - p), contiguous, with the mask of this seed."""
    from andrea.kernels import loops

    x = x.contiguous()
    y = torch.empty_like(x)
    loops.run(loops.dropout, *(t.view(-1, x.shape[-1]) for t in (x, y)), seed, p)
    return y
