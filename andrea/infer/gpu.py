"""Decoding on a GPU: all slots in one compiled call with a cache that never moves. Tested on a CPU, uncompiled; not yet run on a GPU.

Shapes: S slots, H heads, K width of a head. Every step computes every slot, so that shapes never change and CUDA can play back one
recording; those that have nothing to read write to a position that nobody sees.
"""

import copy
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from andrea.evaluate import evaluating
from andrea.infer.decoder import TorchDecoder
from andrea.kernels.rotary import angles
from andrea.model import Transformer
from andrea.model.attention import Attention


class SlotAttention(nn.Module):
    """The attention of one new token in each slot. `attention` lends its weights."""

    keys: Tensor  # (S, H, context + 1, K); nobody sees the last position
    values: Tensor
    cos: Tensor  # (context + 1, K / 2)
    sin: Tensor
    slots: Tensor
    places: Tensor

    def __init__(self, attention: Attention, slots: int, context: int):
        super().__init__()
        self.qkv, self.out, self.n_head, weight = attention.qkv, attention.out, attention.n_head, attention.qkv.weight
        shape = slots, self.n_head, context + 1, weight.shape[1] // self.n_head
        self.register_buffer("keys", torch.zeros(shape, dtype=weight.dtype, device=weight.device))
        self.register_buffer("values", torch.zeros_like(self.keys))
        self.turns = attention.rotate is not None
        for name, table in zip(("cos", "sin"), angles(0, context + 1, shape[-1]), strict=True):
            self.register_buffer(name, table.to(weight.device, torch.promote_types(weight.dtype, torch.float32)))
        self.register_buffer("slots", torch.arange(slots, device=weight.device))
        self.register_buffer("places", torch.arange(context + 1, device=weight.device))

    def forward(self, x: Tensor, at: Tensor) -> Tensor:
        """x (S, 1, D) at the positions `at` (S,)."""
        q, k, v = self.qkv(x).unflatten(-1, (3, self.n_head, -1))[:, 0].unbind(1)  # (S, H, K) each
        if self.turns:
            q, k = self.turned(q, at), self.turned(k, at)
        self.keys[self.slots, :, at], self.values[self.slots, :, at] = k, v
        seen = self.places <= at[:, None]  # (S, context + 1)
        y = F.scaled_dot_product_attention(q[:, :, None], self.keys, self.values, seen[:, None, None])  # (S, H, 1, K)
        return self.out(y.flatten(1)[:, None])

    def turned(self, x: Tensor, at: Tensor) -> Tensor:
        (a, b), cos, sin = x.chunk(2, -1), self.cos[at][:, None], self.sin[at][:, None]
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(x.dtype)


class SlotDecoder(TorchDecoder):
    """The model with a fixed cache; prompts are read by the model itself. A library's products may add otherwise for other shapes."""

    batch_invariant = False

    def __init__(self, model: Transformer, slots: int, compiled: bool = True):
        super().__init__(model, slots)
        twin = copy.deepcopy(model, {id(p): p for p in model.parameters()})  # other modules, the same weights
        for i, block in enumerate(twin.blocks):
            assert isinstance(block.attn, Attention)
            block.attn = lent = SlotAttention(block.attn, slots, model.config.context)
            for slot, cache in enumerate(self.caches):
                cache[i].k, cache[i].v = lent.keys[slot : slot + 1, :, :-1], lent.values[slot : slot + 1, :, :-1]

        def read(ids: Tensor, at: Tensor) -> Tensor:
            x = twin.token_embed(ids)[:, None]  # (S, 1, D)
            if twin.position_embed is not None:
                x = x + twin.position_embed(at.clamp(max=model.config.context - 1))[:, None]
            for block in twin.blocks:
                x = block(x, at)
            return twin.unembed(twin.final_norm(x))[:, 0].float()

        self.twins, self.read = list(twin.modules()), torch.compile(read, mode="reduce-overhead") if compiled else read

    def step(self, slots: Sequence[int], ids: Sequence[int], positions: Sequence[int]) -> np.ndarray:
        n = next((n for n in range(1, len(slots)) if slots[n] in slots[:n]), len(slots))  # up to where a slot comes again
        rows = torch.tensor([[0] * self.slots, [self.config.context] * self.slots])
        for slot, id, at in zip(slots[:n], ids[:n], positions[:n], strict=True):
            rows[0, slot], rows[1, slot] = id, at
        with torch.inference_mode(), evaluating(self.twins):
            logits = self.read(*rows.to(self.model.token_embed.weight.device)).cpu().numpy()[list(slots[:n])]
        return np.concatenate([logits, self.step(slots[n:], ids[n:], positions[n:])]) if n < len(slots) else logits


def on_gpu(model: Transformer, slots: int) -> tuple[SlotDecoder, str]:
    """A SlotDecoder, compiled where that works here, and how it computes."""
    try:
        decoder = SlotDecoder(model, slots)
        decoder.step([0], [0], [0])
    except Exception as error:  # no C compiler, no Triton, an old GPU: the first step says
        return SlotDecoder(model, slots, compiled=False), f"torch, not compiled: {(str(error) or type(error).__name__).splitlines()[0]}"
    return decoder, "torch, compiled"
