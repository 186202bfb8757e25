"""Which units train and which validate. A unit is known by the hash of its content, so equal units fall on one side of the hash split."""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from andrea.config import DataConfig
from andrea.data.spool import Units

VAL_MOST = 4_000_000  # bytes that the hash split takes for validation


@dataclass(frozen=True)
class Split:
    """Of the kept units, (k,): their indices, which of them validate, and one that may do both, its first `at` bytes training."""

    keep: np.ndarray
    val: np.ndarray
    cut: int | None = None  # a place in keep
    at: int = 0

    def parts(self, units: Units) -> Iterator[tuple[int, str, str]]:
        """(place in keep, split, text) in order; the unit that is cut comes twice."""
        for place, text in enumerate(units.read(self.keep)):
            if place == self.cut:
                train, val = cut_bytes(text, self.at)
                yield from ((place, "train", train), (place, "val", val))
            else:
                yield place, "val" if self.val[place] else "train", text

    def part(self, units: Units, split: str) -> Iterator[bytes]:
        return (text.encode() for _, name, text in self.parts(units) if name == split)


def split_tail(units: Units, keep: np.ndarray, val_fraction: float) -> Split:
    """Validation is the last val_fraction of the bytes."""
    ends = np.cumsum(units.rows["bytes"][keep], dtype=np.int64)
    starts = ends - units.rows["bytes"][keep]
    border = int((1 - val_fraction) * ends[-1])
    across = np.flatnonzero((starts < border) & (ends > border))
    cut = int(across[0]) if across.size else None
    return Split(keep, starts >= border, cut, border - int(starts[cut]) if cut is not None else 0)


def split_hash(units: Units, keep: np.ndarray, config: DataConfig) -> Split:
    """Validation takes units, equal ones together, in the order of a keyed hash until it has val_fraction of the bytes, or VAL_MOST.

    Units that would bring it over VAL_MOST or half of the text are passed over; if that leaves none, the tail validates.
    """
    rows = units.rows[keep]
    _, first, group = np.unique(rows["hash"], return_index=True, return_inverse=True)
    sizes = np.bincount(group, rows["bytes"])
    total, taken, val = sizes.sum(), 0, np.zeros(len(first), bool)
    for number in shuffled(rows[first], config.seed).tolist():
        if taken >= min(config.val_fraction * total, VAL_MOST):
            break
        if taken + sizes[number] <= min(total / 2, VAL_MOST):
            val[number] = True
            taken += sizes[number]
    return Split(keep, val[group]) if val.any() else split_tail(units, keep, config.val_fraction)


def shuffled(rows: np.ndarray, seed: int) -> np.ndarray:
    """Places of unit rows, (n,), in an order that depends on nothing but the seed and their own content."""
    key, order = str(seed).encode(), np.empty(len(rows), np.uint64)
    for place, (high, low) in enumerate(zip(rows["hash"].tolist(), rows["check"].tolist(), strict=True)):
        unit = high.to_bytes(8, "big") + low.to_bytes(8, "big")
        order[place] = int.from_bytes(blake2b(unit, key=key, digest_size=8).digest(), "big")
    return np.argsort(order, kind="stable")


def cut_bytes(text: str, at: int) -> tuple[str, str]:
    """Cut after `at` UTF-8 bytes, or a little later where that is inside a character."""
    data = text.encode()
    while at < len(data) and data[at] & 0xC0 == 0x80:
        at += 1
    return data[:at].decode(), data[at:].decode()
