"""Which tokens a step trains on: pure arithmetic in (seed, position), so that resuming needs one integer.

An epoch is the sequence's disjoint windows, shifted by an offset drawn anew for each epoch, in an order drawn anew for each epoch.
The order is a Feistel network (Luby & Rackoff 1988) over the window numbers: a permutation that is computed and never stored.
"""

import numpy as np

from andrea.data.shards import Tokens

ROUNDS = 8


class Sampler:
    """Rows of T + 1 tokens: T inputs, and T targets one to the right; T is `context`. Raises ValueError for fewer than T + 1 tokens."""

    def __init__(self, tokens: Tokens, context: int, seed: int):
        if len(tokens) < context + 1:
            n = len(tokens)
            raise ValueError(f"{n} tokens do not fill one window of context + 1 = {context + 1}; give more text, or a shorter context")
        self.tokens, self.context = tokens, context
        self.seed = np.uint64(seed % 2**64)
        self.windows_per_epoch = max(1, (len(tokens) - context) // context)

    @property
    def left_out(self) -> int:
        """Tokens that an epoch does not see, before its offset and after its last window; the largest offset too. Less than 2 T."""
        return len(self.tokens) - 1 - self.windows_per_epoch * self.context

    def batch(self, position: int, rows: int) -> np.ndarray:
        """The next `rows` windows after `position` of them were consumed, (rows, T + 1), int64; they may run over the end of an epoch."""
        return np.stack([self.tokens.read(start, start + self.context + 1) for start in self.starts(position, rows).tolist()])

    def starts(self, position: int, rows: int) -> np.ndarray:
        """Where those windows begin, (rows,). Raises ValueError for a negative position or less than one row."""
        if position < 0 or rows < 1:
            raise ValueError(f"position={position} and rows={rows}: a batch begins at 0 or later and has at least one row")
        epoch, index = np.divmod(np.arange(position, position + rows, dtype=np.uint64), np.uint64(self.windows_per_epoch))
        key = scramble(self.seed + scramble(epoch))
        offset = scramble(key) % np.uint64(self.left_out + 1)
        return (offset + permute(index, key, self.windows_per_epoch) * np.uint64(self.context)).astype(np.int64)


def permute(index: np.ndarray, key: np.ndarray, count: int) -> np.ndarray:
    """Where a keyed permutation of 0 .. count - 1 sends each index; (n,) uint64 each.

    The network permutes the next larger power of four; a result at or above count is sent on until it falls below (cycle-walking).
    """
    half = np.uint64(max(1, ((count - 1).bit_length() + 1) // 2))  # bits
    mask = (np.uint64(1) << half) - np.uint64(1)
    result, outside = index.copy(), np.arange(len(index))
    while outside.size:
        left, right = result[outside] >> half, result[outside] & mask
        for turn in range(ROUNDS):
            left, right = right, left ^ (scramble(key[outside] + scramble(right + (np.uint64(turn) << np.uint64(32)))) & mask)
        result[outside] = left << half | right
        outside = outside[result[outside] >= count]
    return result


def scramble(x: np.ndarray) -> np.ndarray:
    """A fixed bijection of 64-bit numbers that spreads every bit over all. Steele, Lea & Flood 2014, SplitMix64."""
    with np.errstate(over="ignore"):
        x = x + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ x >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ x >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
        return x ^ x >> np.uint64(31)
