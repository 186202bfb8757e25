"""Muon for the hidden matrices and AdamW for the rest, or AdamW for all; and which parameter belongs to which group.

Muon: Jordan et al. 2024, https://kellerjordan.github.io/posts/muon. AdamW: Loshchilov & Hutter 2019, arXiv:1711.05101.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from andrea.config import OptimConfig
from andrea.files import Damaged
from andrea.kernels import TORCH, Kernels

KEPT = {"adamw": ("exp_avg", "exp_avg_sq", "step"), "muon": ("momentum",)}  # state of every parameter, by the group's rule
TOGETHER = 2**24  # values of matrices of one shape that go through Newton-Schulz at a time: small ones gain by it, large ones take room


def optimizer_for(model: nn.Module, c: OptimConfig, dtype: torch.dtype = torch.float32, kernels: Kernels = TORCH) -> "Optimizer":
    """Every distinct parameter in the first group that takes it. Muon's products are taken in `dtype`."""
    groups = (  # (rule, which parameters, learning rate / the schedule's, whether weight decay holds)
        ("muon", lambda name, p: c.name == "muon" and name.startswith("blocks.") and p.ndim == 2, c.matrix_lr / c.lr, True),
        ("adamw", lambda name, p: p.ndim < 2, 1.0, False),  # gamma, beta, biases
        ("adamw", lambda name, p: True, 1.0, True),  # embeddings, and every matrix where the rule is AdamW's alone
    )
    members: list[list[tuple[str, nn.Parameter]]] = [[] for _ in groups]
    for name, p in model.named_parameters():  # a tied matrix comes once
        members[next(i for i, (_, belongs, _, _) in enumerate(groups) if belongs(name, p))].append((name, p))
    return Optimizer(
        [
            {"params": [p for _, p in held], "rule": rule, "times": times, "weight_decay": c.weight_decay * decays}
            | ({"parts": [3 if name.endswith("attn.qkv.weight") else 1 for name, _ in held]} if rule == "muon" else {})
            for (rule, _, times, decays), held in zip(groups, members, strict=True)
            if held
        ],
        c,
        dtype,
        kernels,
    )


class Optimizer:
    """One step of every group by its rule, at the rate lr * times. A Muon group's `parts` says how many stacked matrices each holds.

    Not a torch.optim.Optimizer: making one imports torch._dynamo, a second of every start.
    """

    def __init__(self, groups: Iterable[dict[str, Any]], c: OptimConfig, dtype: torch.dtype, kernels: Kernels = TORCH):
        self.param_groups = [{"lr": c.lr, **group} for group in groups]
        self.state: dict[nn.Parameter, dict[str, Tensor]] = {}
        self.c, self.dtype, self.kernels = c, dtype, kernels

    @torch.no_grad()
    def begin(self) -> None:
        """Moments of zero for every parameter that has none."""
        for group in self.param_groups:
            for p in group["params"]:
                if p not in self.state:
                    self.state[p] = {key: torch.zeros_like(p) if key != "step" else p.new_zeros(()) for key in KEPT[group["rule"]]}

    @torch.no_grad()
    def step(self) -> None:
        self.begin()
        for group in self.param_groups:
            {"adamw": self.adamw, "muon": self.muon}[group["rule"]](group)

    def zero_grad(self) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                p.grad = None

    def adamw(self, group: dict[str, Any]) -> None:
        c, held = self.c, group["params"]
        first, second, steps = ([self.state[p][key] for p in held] for key in KEPT["adamw"])
        torch._foreach_add_(steps, 1)
        lr, decay = group["lr"] * group["times"], group["weight_decay"]
        self.kernels.adamw(held, [p.grad for p in held], first, second, steps, lr, c.beta1, c.beta2, c.eps, decay)

    def muon(self, group: dict[str, Any]) -> None:
        """Nesterov momentum, made orthogonal: a matrix (m, n) moves by the rate times sqrt(max(1, m / n)) along every direction."""
        rate, mu = group["lr"] * group["times"], self.c.momentum
        by_shape: dict[tuple[int, ...], list[tuple[Tensor, Tensor, Tensor, float]]] = {}
        for p, parts in zip(group["params"], group["parts"], strict=True):
            momentum = self.state[p]["momentum"].lerp_(p.grad, 1 - mu)
            p.mul_(1 - rate * group["weight_decay"])
            for trio in zip(*(t.chunk(parts) for t in (p, p.grad, momentum)), strict=True):
                m, n = trio[0].shape
                lying = trio if m <= n else tuple(t.mT for t in trio)  # so that both matrices of an MLP go through together
                by_shape.setdefault(lying[0].shape, []).append((*lying, rate * max(1, m / n) ** 0.5))
        for held in by_shape.values():
            at_once = max(1, TOGETHER // held[0][0].numel())
            for some in (held[i : i + at_once] for i in range(0, len(held), at_once)):
                steps = self.kernels.newton_schulz(torch.stack([grad.lerp(momentum, mu) for _, grad, momentum, _ in some]), self.dtype)
                for (target, _, _, size), step in zip(some, steps, strict=True):
                    target.add_(step, alpha=-size)


def moments(model: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    """The optimizer's state as named tensors, `<key>.<parameter>` with the keys of KEPT."""
    optimizer.begin()
    return {f"{key}.{name}": value for name, p in model.named_parameters() for key, value in optimizer.state[p].items()}


@torch.no_grad()
def set_moments(model: nn.Module, optimizer: Optimizer, saved: Mapping[str, Tensor]) -> None:
    """Put copies of saved moments back. Raises ValueError if one is absent, has another shape, or has no parameter here."""
    keys = {p: KEPT[group["rule"]] for group in optimizer.param_groups for p in group["params"]}
    wanted = {f"{key}.{name}": torch.Size() if key == "step" else p.shape for name, p in model.named_parameters() for key in keys[p]}
    if unknown := saved.keys() - wanted:
        raise Damaged(f"optimizer state for parameters that the model lacks: {sorted(unknown)[:3]}")
    for name, shape in wanted.items():
        if name not in saved or saved[name].shape != shape or saved[name].dtype != torch.float32:
            raise Damaged(f"optimizer state that does not fit the model: {name} is not there as float32 of {tuple(shape)}")
    for name, p in model.named_parameters():
        optimizer.state[p] = {key: saved[f"{key}.{name}"].to(p.device, copy=True) for key in keys[p]}
