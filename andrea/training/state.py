"""All that changes as a run goes on, and how it is put back: begun from the seed, or taken from a checkpoint."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint as checkpointed

from andrea import checkpoint, kernels
from andrea.config import RunConfig
from andrea.files import Damaged
from andrea.model import Transformer
from andrea.training.optim import Optimizer, moments, optimizer_for, set_moments


@dataclass
class State:
    """With config, resolved and data it decides every later step."""

    model: Transformer
    optimizer: Optimizer
    step: int = 0
    windows: int = 0  # consumed or passed over: the position in the data
    best_loss: float = inf  # on part of the validation split, always the same
    seconds: float = 0.0  # of training, evaluation and sampling, over all sittings
    skips: list[tuple[int, int, int]] = field(default_factory=list)  # of the guard: the step gone back to, windows from and to

    def to_dict(self) -> dict[str, Any]:
        """What state.json holds besides the step."""
        best = None if self.best_loss == inf else self.best_loss
        return {"windows": self.windows, "best_loss": best, "seconds": self.seconds, "skips": self.skips}


def dtype_of(resolved: dict[str, Any]) -> torch.dtype:
    dtype: torch.dtype = getattr(torch, resolved["dtype"])
    return dtype


def begin(config: RunConfig, resolved: dict[str, Any]) -> State:
    """The state before the first step: the seed decides it, and leaves torch's generators where training draws on."""
    torch.manual_seed(config.train.seed)
    made_of = kernels.BY_NAME[resolved["kernels"]]
    model = Transformer(config.model, made_of).to(resolved["device"])
    for block in model.blocks if resolved["recompute"] else ():  # it keeps what it read. Chen et al. 2016, arXiv:1604.06174
        block.forward = partial(checkpointed, block.forward, use_reentrant=False)
    return State(model, optimizer_for(model, config.optim, dtype_of(resolved), made_of))


def put_back(state: State, folder: Path | None, config: RunConfig, resolved: dict[str, Any], moved: bool = False) -> None:
    """A checkpoint's state, or where there is none the beginning. The model's tensors keep their places: a compiled twin shares them.

    `moved` leaves the generators as they are: they are another device's. Raises ValueError for a checkpoint that does not fit.
    """
    if folder is None:
        checkpoint.set_weights(state.model, checkpoint.weights(begin(config, resolved).model))
        state.optimizer.state.clear()
        state.step, state.windows, state.best_loss, state.seconds, state.skips = 0, 0, inf, 0.0, []
        return
    tensors, saved = checkpoint.load_tensors(folder / "train.safetensors"), checkpoint.read_state(folder)
    checkpoint.set_weights(state.model, checkpoint.load_tensors(folder / "model.safetensors"))
    set_train_tensors(state, tensors, None if moved else resolved["device"])
    state.step, state.windows, state.seconds = saved["step"], saved["windows"], saved["seconds"]
    state.best_loss = inf if saved["best_loss"] is None else saved["best_loss"]
    state.skips = [tuple(skip) for skip in saved["skips"]]


def train_tensors(state: State, device: str) -> dict[str, Tensor]:
    """What train.safetensors holds: the optimizer's moments and the generators."""
    return moments(state.model, state.optimizer) | generators(device)


def set_train_tensors(state: State, tensors: dict[str, Tensor], device: str | None) -> None:
    """The reverse; without a device the generators stay as they are. Raises ValueError for tensors that do not fit."""
    set_moments(state.model, state.optimizer, {n: t for n, t in tensors.items() if not n.startswith("generator.")})
    if device:
        set_generators(tensors, device)


@torch.no_grad()
def is_finite(model: Transformer) -> bool:
    """Whether every weight is a finite number."""
    return all(norm.isfinite() for norm in torch._foreach_norm(list(model.parameters())))


def generators(device: str) -> dict[str, Tensor]:
    """The state of every random generator that training draws from."""
    states = {"generator.cpu": torch.get_rng_state()}
    if device.startswith("cuda"):
        states["generator.cuda"] = torch.cuda.get_rng_state(device)
    if device == "mps":
        states["generator.mps"] = torch.mps.get_rng_state()
    return states


def set_generators(saved: dict[str, Tensor], device: str) -> None:
    """Put generators' states back. Raises ValueError if one that training draws from has no saved state, or one that is none."""
    setters = {"cpu": torch.set_rng_state, "cuda": torch.cuda.set_rng_state, "mps": torch.mps.set_rng_state}
    for name in {"cpu", torch.device(device).type}:
        try:
            setters[name](saved[f"generator.{name}"], *([device] if name == "cuda" else []))
        except (KeyError, RuntimeError, TypeError) as error:
            raise Damaged(f"the saved state of the {name} generator cannot be used: {error}") from None


@contextmanager
def generators_kept(device: str) -> Iterator[None]:
    """Whatever is drawn inside, training goes on drawing as if it had not been."""
    states = generators(device)
    try:
        yield
    finally:
        set_generators(states, device)
