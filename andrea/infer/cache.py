"""Keys and values already computed, one LayerCache per block. Each knows its own length, so nothing has to advance it.

Shapes: B rows, H heads, T positions now, S positions held, K width of a head.
"""

import torch
from torch import Tensor

from andrea.model import Transformer


class LayerCache:
    """Keys and values k, v (B, H, room, K) of one block, filled up to `length` positions."""

    def __init__(self, shape: tuple[int, int, int, int], dtype: torch.dtype, device: torch.device):
        self.k = torch.empty(shape, dtype=dtype, device=device)
        self.v = torch.empty_like(self.k)
        self.length = 0

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Append (B, H, T, K) and return views of everything held, (B, H, S, K).

        Raises ValueError, and keeps what it held, for positions past its end and for another number of rows.
        """
        (batch, _, room, _), end = self.k.shape, self.length + k.shape[2]
        if end > room:
            raise ValueError(f"{end} positions do not fit a cache of {room}; make a longer one")
        if k.shape[0] != batch:
            raise ValueError(f"{k.shape[0]} rows were given to a cache of {batch}; make one of that many")
        self.k[:, :, self.length : end], self.v[:, :, self.length : end] = k, v
        self.length = end
        return self.k[:, :, :end], self.v[:, :, :end]


def new_cache(model: Transformer, batch: int, length: int | None = None) -> list[LayerCache]:
    """One empty LayerCache per block, for `batch` rows of up to `length` positions (the context when not given).

    It has the dtype and device of the model's weights. Keys carry the position they were computed at, so that a cache longer than
    the context could never be filled. Raises ValueError for one.
    """
    c, weight = model.config, model.token_embed.weight
    room = c.context if length is None else length
    if not 1 <= room <= c.context or batch < 1:
        raise ValueError(
            f"a cache of {batch} rows and {room} positions: wanted at least 1 row, and 1 to {c.context} positions (the context)"
        )
    return [LayerCache((batch, c.n_head, room, c.d_head), weight.dtype, weight.device) for _ in range(c.n_layer)]
