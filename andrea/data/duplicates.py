"""What a corpus says twice: equal units, paragraphs that mostly stood before, and what validation shares with training.

Near-duplicates are found by containment, as Broder 1997 ("On the resemblance and containment of documents") defines it on shingles, here
runs of WORDS words: a paragraph is left out if most of its shingles stood earlier in the corpus, wherever that was. So a quotation of
two sentences falls to a long original, which resemblance (MinHash) would not see. The shingles that were seen are bits of a
Bloom filter (1970) of fixed size; of a corpus too large for it, every m-th shingle stands for all, Broder's sketch MOD m.
"""

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, pairwise
from pathlib import Path

import numpy as np

from andrea.data.sampler import scramble
from andrea.data.spool import UNIT_ROW, Spool, Units, digest

WORDS = 5  # a shingle
LEAST = 8  # shingles that a paragraph must have to be judged: 12 words
SHARE = 2 / 3  # of them seen before: left out
LONG = 1_000  # bytes of a paragraph that are judged together
FILTER_WORDS = 1 << 24  # of 64 bits: 128 MiB
FILTER_BYTES = 600_000_000  # of text that the filter holds with few errors
BATCH = 1 << 20  # bytes looked at together
OVERLAP = 13  # words. Brown et al. 2020, arXiv:2005.14165, appendix C
OVERLAP_BYTES = 32_000_000  # of validation whose shingles are all compared
SHOWN = 80  # characters of what was left out

SPACES = [space.encode() for space in "\u00a0\u2002\u2003\u2009\u202f\u3000"]  # those of more than one byte
# Letters small, punctuation and white space a space: what a quotation's marks, its line ends and its capitals leave alike.
FOLD = bytes(b if b >= 128 or chr(b).isalnum() else 32 for b in b"".join(bytes([i]).lower() for i in range(256)))
BORDERS = re.compile(rb"\n(?:[ \t\r>|]*\n)+|^(?:[ \t]*>[^\n]*(?:\n|\Z))+", re.M)  # blank lines; runs of quoted lines


@dataclass
class Removed:
    """What was left out, counted, and a line of duplicates.jsonl for each."""

    path: Path
    counts: dict[str, int] = field(default_factory=lambda: {"units": 0, "bytes": 0, "paragraphs": 0, "paragraph_bytes": 0})

    def __enter__(self) -> "Removed":
        self.file = self.path.open("w", encoding="utf-8", newline="\n")
        return self

    def __exit__(self, *error: object) -> None:
        self.file.close()

    def add(self, kind: str, name: str, data: bytes, same_as: str | None = None) -> None:
        self.counts["units" if kind == "unit" else "paragraphs"] += 1
        self.counts["bytes" if kind == "unit" else "paragraph_bytes"] += len(data)
        start = data[: 4 * SHOWN].decode("utf-8", "ignore").strip()[:SHOWN]
        self.file.write(json.dumps({"name": name, "kind": kind, "bytes": len(data), "text": start, "same_as": same_as}) + "\n")


def distinct(units: Units, spool: Spool, removed: Removed, remove: bool) -> np.ndarray:
    """The indices of the units to keep, in order: the first of each, or all where nothing is to be removed; repetitions are counted."""
    first, documents = first_of_each(units), units.rows["document"]
    again = np.flatnonzero(first != np.arange(len(units)))
    for index, data in zip(again.tolist(), units.read_bytes(again), strict=True):
        removed.add("unit", spool.name(int(documents[index])), data, spool.name(int(documents[first[index]])))
    return np.flatnonzero(first == np.arange(len(units))) if remove else np.arange(len(units))


def first_of_each(units: Units) -> np.ndarray:
    """The index of the first unit with the same hash, (n,)."""
    order = np.lexsort((units.rows["check"], units.rows["hash"]))  # stable: of equal ones the first comes first
    hashes = units.rows[["hash", "check"]][order]
    begins = np.append(True, hashes[1:] != hashes[:-1])
    first = np.empty(len(units), np.int64)
    first[order] = order[begins][np.cumsum(begins) - 1]
    return first


def without_near(units: Units, keep: np.ndarray, spool: Spool, removed: Removed) -> tuple[Units, np.ndarray]:
    """The kept units without the paragraphs that mostly stood before, in new files; a unit of which nothing is left is no unit.

    Quoted paragraphs (> at the head of each line) are judged last and by the whole corpus: a mail may come before what it quotes.
    """
    seen = Seen(every=1 + int(units.rows["bytes"][keep].sum(dtype=np.uint64)) // FILTER_BYTES)
    verdicts = [seen.judge(batch.data, batch.borders, ~batch.quoted) for batch in batches(units, keep)]
    path, table_path, at = spool.folder / "kept.utf8", spool.folder / "kept.bin", 0
    with path.open("wb") as text, table_path.open("wb") as table:
        for batch, verdict in zip(batches(units, keep), verdicts, strict=True):
            old = verdict | seen.judge(batch.data, batch.borders, batch.quoted) if batch.quoted.any() else verdict
            rows = []
            for index, parts in batch.parts(old):
                document = int(units.rows["document"][index])
                for part, is_old in parts:
                    if is_old:
                        removed.add("paragraph", spool.name(document), part)
                left = b"".join(part for part, is_old in parts if not is_old)
                if left.strip():
                    text.write(left)
                    rows.append((at, len(left), document, *digest(left)))
                    at += len(left)
            table.write(np.array(rows, UNIT_ROW).tobytes())
    left_over = Units(path, np.fromfile(table_path, UNIT_ROW))
    return left_over, distinct(left_over, spool, removed, True)


@dataclass(frozen=True)
class Batch:
    """Units that are looked at together, and their paragraphs: borders (p + 1,) into data, quoted (p,)."""

    indices: list[int]
    cuts: list[list[int]]  # of each unit, from 0 to its length
    data: bytes
    borders: np.ndarray
    quoted: np.ndarray

    @classmethod
    def of(cls, indices: list[int], pieces: list[bytes]) -> "Batch":
        cuts = list(map(paragraphs, pieces))
        starts = np.cumsum([0, *map(len, pieces)])
        borders = np.append(np.concatenate([start + np.array(cut[:-1]) for start, cut in zip(starts, cuts, strict=False)]), starts[-1])
        quoted = [piece[a:b].lstrip(b" \t").startswith(b">") for piece, cut in zip(pieces, cuts, strict=True) for a, b in pairwise(cut)]
        return cls(indices, cuts, b"".join(pieces), borders, np.array(quoted, bool))

    def parts(self, old: np.ndarray) -> Iterator[tuple[int, list[tuple[bytes, bool]]]]:
        """Each unit's index, and its paragraphs with what `old` (p,) says of them."""
        spans = zip(pairwise(self.borders.tolist()), old.tolist(), strict=True)
        for index, cut in zip(self.indices, self.cuts, strict=True):
            yield index, [(self.data[a:b], is_old) for _, ((a, b), is_old) in zip(cut[:-1], spans, strict=False)]


def batches(units: Units, keep: np.ndarray) -> Iterator[Batch]:
    indices: list[int] = []
    pieces: list[bytes] = []
    size = 0
    for index, data in zip(keep.tolist(), units.read_bytes(keep), strict=True):
        indices.append(index)
        pieces.append(data)
        size += len(data)
        if size >= BATCH:
            yield Batch.of(indices, pieces)
            indices, pieces, size = [], [], 0
    if indices:
        yield Batch.of(indices, pieces)


def paragraphs(data: bytes) -> list[int]:
    """Where paragraphs begin, from 0 on, and the length: after blank lines, and before and after a run of quoted lines.

    One of more than LONG bytes is cut at the ends of lines, or of words where a line is longer.
    """
    found = {0, len(data)}
    for border in BORDERS.finditer(data):
        found |= {border.end()} if data[border.start()] == 10 else {border.start(), border.end()}
    for start, stop in pairwise(sorted(found)):
        while stop - start > LONG:
            start = data.rfind(b"\n", start, start + LONG) + 1 or data.rfind(b" ", start, start + LONG) + 1 or stop
            found.add(start)
    return sorted(found)


class Seen:
    """The shingles of all that was judged so far, every `every`-th of them. A Bloom filter whose three bits of a shingle share a word."""

    def __init__(self, every: int = 1):
        self.every, self.bits = np.uint64(every), np.zeros(FILTER_WORDS, np.uint64)

    def judge(self, data: bytes, borders: np.ndarray, which: np.ndarray) -> np.ndarray:
        """Whether each paragraph, (p,), mostly stood before; those not in `which` are neither judged nor remembered."""
        grams, span = shingles(data, borders, WORDS)
        chosen = which[span] & (grams % self.every == 0)
        grams, span = grams[chosen], span[chosen]
        mixed = scramble(grams)  # its bits do not depend on the choice above
        word, one, six = mixed >> np.uint64(64 - 24), np.uint64(1), np.uint64(63)
        mask = one << (mixed & six) | one << (mixed >> np.uint64(6) & six) | one << (mixed >> np.uint64(12) & six)
        before = (self.bits[word] & mask) == mask
        _, first, inverse = np.unique(grams, return_index=True, return_inverse=True)
        before |= span[first][inverse] < span  # in this batch, in an earlier paragraph
        np.bitwise_or.at(self.bits, word, mask)
        n = len(borders) - 1
        judged, old = np.bincount(span, minlength=n), np.bincount(span[before], minlength=n)
        return (judged >= LEAST) & (old >= SHARE * judged)


def shingles(data: bytes, borders: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """A 64-bit hash of every n words in a row that lie within one span of borders, and the number of that span; (k,) each."""
    data, borders = folded(data, borders)
    flat = np.frombuffer(data, np.uint8)
    ink = flat != 32
    border = np.zeros(len(flat) + 1, bool)
    border[borders] = True
    starts = np.flatnonzero(ink & (border[:-1] | ~np.append(False, ink[:-1])))
    stops = np.flatnonzero(ink & (border[1:] | ~np.append(ink[1:], False))) + 1
    if len(starts) < n:
        return np.empty(0, np.uint64), np.empty(0, np.int64)
    words = hashes(flat[ink], stops - starts)
    grams = np.zeros(len(words) - n + 1, np.uint64)
    for i in range(n):
        grams = scramble(grams + words[i : len(words) - n + 1 + i])
    span = np.searchsorted(borders, starts[: len(grams)], side="right") - 1
    inside = stops[n - 1 :] <= borders[span + 1]
    return grams[inside], span[inside]


def folded(data: bytes, borders: np.ndarray) -> tuple[bytes, np.ndarray]:
    """The bytes that are compared, composed letters in place of decomposed ones, and where the borders are in them."""
    if not data.isascii():
        for space in SPACES:
            data = data.replace(space, b" " * len(space))
        if not unicodedata.is_normalized("NFC", data.decode()):
            parts = [unicodedata.normalize("NFC", data[a:b].decode()).encode() for a, b in pairwise(borders.tolist())]
            data, borders = b"".join(parts), np.cumsum([0, *map(len, parts)])
    return data.translate(FOLD), borders


def hashes(letters: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """A polynomial, modulo 2^64, of the bytes of each word; the words stand one after another. (w,)"""
    starts = np.cumsum(lengths) - lengths
    place = np.arange(len(letters)) - np.repeat(starts, lengths)
    return np.add.reduceat((letters + np.uint64(1)) * POWERS[place % len(POWERS)], starts)


POWERS = scramble(np.arange(64, dtype=np.uint64))


def overlap(val: Iterable[bytes], train: Iterable[bytes], val_bytes: int) -> float | None:
    """The share of validation's distinct runs of OVERLAP words that training holds too; None where it has none.

    Of a large validation split every m-th run, by its hash, stands for all.
    """
    every = np.uint64(1 + val_bytes // OVERLAP_BYTES)
    wanted = np.unique(np.concatenate([np.empty(0, np.uint64), *(grams[grams % every == 0] for grams in runs(val))]))
    found = np.zeros(len(wanted), bool)
    if not len(wanted):
        return None
    for grams in runs(train):
        place = np.minimum(np.searchsorted(wanted, grams), len(wanted) - 1)
        found[place[wanted[place] == grams]] = True
    return float(found.mean())


def runs(pieces: Iterable[bytes]) -> Iterator[np.ndarray]:
    """Hashes of the runs of OVERLAP words in each piece."""
    held: list[bytes] = []
    for piece in chain(pieces, [None]):
        if piece is not None:
            held.append(piece)
        if held and (piece is None or sum(map(len, held)) >= BATCH):
            yield shingles(b"".join(held), np.cumsum([0, *map(len, held)]), OVERLAP)[0]
            held = []
