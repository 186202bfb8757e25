"""What an engine asks of a model: keys and values of several sequences in slots of their own, and logits of what follows.

TorchDecoder is the plain reference: the model itself, one sequence a pass. cpu.py has the fast one.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch

from andrea.config import ModelConfig
from andrea.evaluate import evaluating
from andrea.infer.cache import new_cache
from andrea.model import Transformer


class Decoder(Protocol):
    """A model with room for the keys and values of `slots` sequences of up to the context; the memory is taken once, when it is built.

    Positions are filled in order, and filling one again forgets what stood after it. Nothing is checked here: an engine counts.
    """

    config: ModelConfig
    slots: int
    batch_invariant: bool  # an answer's bits do not depend on what runs beside it

    def extend(self, slot: int, ids: Sequence[int], start: int) -> np.ndarray:
        """Read ids at the positions from `start` on of a slot that is filled up to there; float32 logits (V,) after the last."""

    def step(self, slots: Sequence[int], ids: Sequence[int], positions: Sequence[int]) -> np.ndarray:
        """Read one id for each slot named; float32 logits (n, V). A slot named several times reads its ids one after the other."""

    def copy(self, source: int, target: int, length: int) -> None:
        """Give one slot the first `length` positions of another."""


class TorchDecoder:
    """The model itself, on its device, in its dtype. Every row of a step is a pass of its own, so that it is what it would be alone."""

    batch_invariant = True

    def __init__(self, model: Transformer, slots: int):
        if slots < 1:
            raise ValueError(f"slots={slots}: a decoder has room for at least 1 sequence")
        self.model, self.config, self.slots, self.modules = model, model.config, slots, list(model.modules())
        self.caches = [new_cache(model, 1) for _ in range(slots)]

    def extend(self, slot: int, ids: Sequence[int], start: int) -> np.ndarray:
        cache = self.caches[slot]
        for layer in cache:
            layer.length = start
        with torch.inference_mode(), evaluating(self.modules):
            logits = self.model(torch.tensor([ids], device=self.model.token_embed.weight.device), cache=cache)
        return logits[0, -1].float().cpu().numpy()

    def step(self, slots: Sequence[int], ids: Sequence[int], positions: Sequence[int]) -> np.ndarray:
        return np.stack([self.extend(slot, [id], start) for slot, id, start in zip(slots, ids, positions, strict=True)])

    def copy(self, source: int, target: int, length: int) -> None:
        for ours, theirs in zip(self.caches[target], self.caches[source], strict=True):
            ours.k[:, :, :length], ours.v[:, :, :length] = theirs.k[:, :, :length], theirs.v[:, :, :length]
