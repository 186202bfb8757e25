"""Which units train and which validate. A unit is known by the hash of its content, so equal units are one and fall on one side.

Between readings of the text only a 16-byte hash and a length per distinct unit are kept.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b

from andrea.config import DataConfig
from andrea.data.text import Corpus

VAL_MOST = 4_000_000  # bytes that the hash split takes for validation


@dataclass(frozen=True)
class Units:
    """The distinct units in order, hash -> bytes, and those of them that validate; `cut` does both, its first `at` bytes training."""

    sizes: dict[bytes, int]
    val: frozenset[bytes]
    cut: bytes | None = None
    at: int = 0

    def parts(self, corpus: Corpus) -> Iterator[tuple[bytes, str, str]]:
        """(hash, split, text) of every distinct unit in order. Raises ValueError if the text is no longer what was hashed."""
        left = self.sizes.copy()
        changed = ValueError("the text was changed while it was being prepared; start again")
        for text in corpus.units():
            unit = digest(text)
            if unit not in self.sizes:
                raise changed
            if left.pop(unit, None) is None:
                continue  # a duplicate
            if unit == self.cut:
                train, val = cut_bytes(text, self.at)
                yield from ((unit, "train", train), (unit, "val", val))
            else:
                yield unit, "val" if unit in self.val else "train", text
        if left:
            raise changed


def survey(corpus: Corpus) -> tuple[dict[bytes, int], dict[str, int]]:
    """Hash -> bytes of every distinct unit in order, and how many units and bytes repeat an earlier one."""
    sizes: dict[bytes, int] = {}
    doubles = {"units": 0, "bytes": 0}
    for text in corpus.units():
        unit, size = digest(text), len(text.encode())
        if unit in sizes:
            doubles = {"units": doubles["units"] + 1, "bytes": doubles["bytes"] + size}
        sizes.setdefault(unit, size)
    return sizes, doubles


def split_tail(sizes: dict[bytes, int], val_fraction: float) -> Units:
    """Validation is the last val_fraction of the bytes."""
    border, start, val = int((1 - val_fraction) * sum(sizes.values())), 0, set()
    cut, at = None, 0
    for unit, size in sizes.items():
        if start >= border:
            val.add(unit)
        elif start + size > border:
            cut, at = unit, border - start
        start += size
    return Units(sizes, frozenset(val), cut, at)


def split_hash(sizes: dict[bytes, int], config: DataConfig) -> Units:
    """Validation takes units in the order of a keyed hash until it has val_fraction of the bytes, or VAL_MOST.

    A unit that would bring it over VAL_MOST or half of the text is passed over; if that leaves none, the smallest gives its end.
    """
    total, taken, val = sum(sizes.values()), 0, set()
    for unit in shuffled(sizes, config.seed):
        if taken >= min(config.val_fraction * total, VAL_MOST):
            break
        if taken + sizes[unit] <= min(total / 2, VAL_MOST):
            val.add(unit)
            taken += sizes[unit]
    if val:
        return Units(sizes, frozenset(val))
    smallest = min(sizes, key=lambda unit: (sizes[unit], unit))
    return Units(sizes, frozenset(), smallest, sizes[smallest] - VAL_MOST)


def shuffled(sizes: dict[bytes, int], seed: int) -> list[bytes]:
    """Units in an order that depends on nothing but the seed and their own content."""
    return sorted(sizes, key=lambda unit: blake2b(unit, key=str(seed).encode(), digest_size=16).digest())


def digest(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=16).digest()


def cut_bytes(text: str, at: int) -> tuple[str, str]:
    """Cut after `at` UTF-8 bytes, or a little later where that is inside a character."""
    data = text.encode()
    while at < len(data) and data[at] & 0xC0 == 0x80:
        at += 1
    return data[:at].decode(), data[at:].decode()
