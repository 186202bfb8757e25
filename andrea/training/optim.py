"""AdamW, and which parameter belongs to which group. Loshchilov & Hutter 2019, arXiv:1711.05101."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from andrea.config import OptimConfig
from andrea.files import Damaged

GROUPS = (  # (name, which parameters, whether weight decay holds): the first that fits takes the parameter
    ("vectors", lambda p: p.ndim < 2, False),  # gamma, beta, biases
    ("matrices", lambda p: True, True),  # linear layers and embeddings
)


def adamw(model: nn.Module, c: OptimConfig) -> torch.optim.AdamW:
    """AdamW over every distinct parameter of model, in the groups of GROUPS."""
    members: dict[str, list[nn.Parameter]] = {name: [] for name, _, _ in GROUPS}
    for p in model.parameters():  # a tied matrix comes once
        members[next(name for name, belongs, _ in GROUPS if belongs(p))].append(p)
    groups = [{"params": members[name], "weight_decay": c.weight_decay * decays} for name, _, decays in GROUPS]
    return torch.optim.AdamW(groups, lr=c.lr, betas=(c.beta1, c.beta2), eps=c.eps, fused=True)


def moments(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's state as named tensors: `exp_avg.<parameter>`, `exp_avg_sq.<parameter>`, `step.<parameter>`."""
    return {f"{key}.{name}": value for name, p in model.named_parameters() for key, value in optimizer.state[p].items()}


@torch.no_grad()
def set_moments(model: nn.Module, optimizer: torch.optim.Optimizer, saved: Mapping[str, Tensor]) -> None:
    """Put copies of saved moments back. Raises ValueError if one is absent, has another shape, or has no parameter here."""
    keys = ("exp_avg", "exp_avg_sq", "step")
    wanted = {f"{key}.{name}": torch.Size() if key == "step" else p.shape for name, p in model.named_parameters() for key in keys}
    if unknown := saved.keys() - wanted:
        raise Damaged(f"optimizer state for parameters that the model lacks: {sorted(unknown)[:3]}")
    for name, shape in wanted.items():
        if name not in saved or saved[name].shape != shape or saved[name].dtype != torch.float32:
            raise Damaged(f"optimizer state that does not fit the model: {name} is not there as float32 of {tuple(shape)}")
    for name, p in model.named_parameters():
        optimizer.state[p] = {key: saved[f"{key}.{name}"].to(p.device, copy=True) for key in keys}
