"""AdamW, for many tensors at a time. Loshchilov & Hutter 2019, arXiv:1711.05101, algorithm 2.

    m <- beta1 m + (1 - beta1) g,   v <- beta2 v + (1 - beta2) g^2
    p <- (1 - lr weight_decay) p - lr m' / (sqrt(v') + eps),   m' = m / (1 - beta1^t),   v' = v / (1 - beta2^t)

p, m and v are written over; `steps` has the t of every tensor, this step counted.
"""

import torch
from torch import Tensor

Tensors = list[Tensor]


def reference(
    held: Tensors, grads: Tensors, first: Tensors, second: Tensors, steps: Tensors,
    lr: float, beta1: float, beta2: float, eps: float, weight_decay: float,
) -> None:  # fmt: skip
    for p, g, m, v, t in zip(held, grads, first, second, steps, strict=True):
        m.copy_(beta1 * m + (1 - beta1) * g)
        v.copy_(beta2 * v + (1 - beta2) * g * g)
        p.copy_((1 - lr * weight_decay) * p - lr * (m / (1 - beta1**t)) / ((v / (1 - beta2**t)).sqrt() + eps))


def adamw(
    held: Tensors, grads: Tensors, first: Tensors, second: Tensors, steps: Tensors,
    lr: float, beta1: float, beta2: float, eps: float, weight_decay: float,
) -> None:  # fmt: skip
    """By torch's own fused kernel."""
    torch._fused_adamw_(
        held, grads, first, second, [], steps,
        lr=lr, beta1=beta1, beta2=beta2, weight_decay=weight_decay, eps=eps, amsgrad=False, maximize=False,
    )  # fmt: skip


def adamw_on_gpu(
    held: Tensors, grads: Tensors, first: Tensors, second: Tensors, steps: Tensors,
    lr: float, beta1: float, beta2: float, eps: float, weight_decay: float,
) -> None:  # fmt: skip
    from andrea.kernels.gpu import adamw as page

    ours = all(t.dtype == torch.float32 and t.is_contiguous() for t in (*held, *first, *second))
    (page.adamw if ours else adamw)(held, grads, first, second, steps, lr, beta1, beta2, eps, weight_decay)
