"""One optimizer step. It depends on nothing but its arguments."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from andrea.training.optim import Optimizer


def train_step(
    losses: Callable[[Tensor, Tensor], Tensor],
    parameters: Sequence[nn.Parameter],
    optimizer: Optimizer | torch.optim.Optimizer,
    micro_batches: Sequence[tuple[Tensor, Tensor]],
    lr: float,
    grad_clip: float,
    autocast: torch.dtype | None = None,
    guarded: bool = False,
) -> tuple[Tensor, Tensor]:
    """Mean loss over all targets of the batch (nats per token) and gradient norm before clipping, both still on the device.

    losses(ids, targets) gives the loss of every target, 0 for one that does not count (target -100). A batch in several
    micro-batches has the gradient of the whole: each is divided by the targets of all of them, not by its own.
    `guarded`: where loss or gradient is not finite, weights and moments stay as they are.
    """
    device = parameters[0].device
    n_targets = sum(int((targets != -100).sum()) for _, targets in micro_batches)
    loss = torch.zeros((), device=device)
    for ids, targets in micro_batches:
        with torch.autocast(device.type, autocast, enabled=autocast is not None):
            part = losses(ids, targets).sum() / n_targets
        part.backward()
        loss = loss + part.detach()
    grad_norm = nn.utils.clip_grad_norm_(parameters, grad_clip or torch.inf)
    for group in optimizer.param_groups:
        group["lr"] = lr
    if not guarded or (loss.isfinite() & grad_norm.isfinite()):
        optimizer.step()
    optimizer.zero_grad()
    return loss, grad_norm
