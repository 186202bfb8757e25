"""Token files: a header of 32 bytes, then the tokens, all little-endian.

Header: magic (8 bytes), format_version (u4), bytes per token (u4), number of tokens (u8), vocab_size (u8).

A token takes two bytes where every id fits, that is up to a vocab_size of 65,536, and four above.
"""

import hashlib
import struct
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import numpy as np

from andrea.files import Damaged, named, size_of

MAGIC = b"ANDREAtk"
FORMAT_VERSION = 1
HEADER = struct.Struct("<8sIIQQ")
SHARD_TOKENS = 1 << 27


def token_dtype(vocab_size: int) -> np.dtype:
    return np.dtype("<u2" if vocab_size <= 65_536 else "<u4")


class ShardWriter:
    """Writes tokens to folder/split-00000.tok, -00001.tok, ... of shard_tokens each, holding no more than what is passed to write.

    A context manager: the files get their names when it ends without an error, and are removed when it ends with one.
    `digest` is the SHA-256 of all token bytes, `count` the number of tokens.
    """

    def __init__(self, folder: Path, split: str, vocab_size: int, shard_tokens: int = SHARD_TOKENS):
        self.folder, self.split, self.vocab_size, self.shard_tokens = folder, split, vocab_size, shard_tokens
        self.dtype, self.digest, self.count = token_dtype(vocab_size), hashlib.sha256(), 0
        self.parts: list[Path] = []
        self.file: BinaryIO | None = None
        self.room = 0  # tokens that the open file still takes

    def write(self, tokens: np.ndarray) -> None:
        """Append a 1-D array of ids. Raises ValueError for an id outside 0 .. vocab_size - 1."""
        if tokens.size and not 0 <= int(tokens.min()) <= int(tokens.max()) < self.vocab_size:
            raise ValueError(
                f"ids run from {tokens.min()} to {tokens.max()}, but vocab_size={self.vocab_size} allows 0 to {self.vocab_size - 1}"
            )
        tokens = tokens.astype(self.dtype)
        self.digest.update(tokens.tobytes())
        self.count += len(tokens)
        while len(tokens):
            file = self.file if self.file and self.room else self.open()
            now, tokens = tokens[: self.room], tokens[self.room :]
            with named(self.parts[-1]):
                file.write(now.tobytes())
            self.room -= len(now)

    def open(self) -> BinaryIO:
        self.finish()
        self.parts.append(self.folder / f"{self.split}-{len(self.parts):05d}.tok.part")
        self.file, self.room = self.parts[-1].open("wb"), self.shard_tokens
        self.file.write(bytes(HEADER.size))  # filled in by finish
        return self.file

    def finish(self) -> None:
        if self.file is not None:
            with named(self.parts[-1]):
                self.file.seek(0)
                self.file.write(HEADER.pack(MAGIC, FORMAT_VERSION, self.dtype.itemsize, self.shard_tokens - self.room, self.vocab_size))
                self.file.close()
            self.file = None

    def __enter__(self) -> "ShardWriter":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if kind is None:
                if not self.parts:
                    self.open()  # no tokens is one file of none
                self.finish()
                for part in self.parts:
                    part.replace(part.with_suffix(""))
        except BaseException:
            self.discard()
            raise
        if kind is not None:
            self.discard()

    def discard(self) -> None:
        """Close and remove what was written."""
        if self.file is not None:
            with suppress(OSError):  # what is still in its buffer does not fit a full disk
                self.file.close()
        for part in self.parts:
            part.unlink(missing_ok=True)
            part.with_suffix("").unlink(missing_ok=True)


class Tokens:
    """Shard files, memory-mapped and read as one sequence. Raises ValueError for a file that is damaged or not ours."""

    def __init__(self, files: Sequence[Path]):
        heads = [read_header(file) for file in files]
        if len({vocab_size for _, _, vocab_size in heads}) > 1:
            raise Damaged(f"{files[0]} and the files beside it are of several tokenizers; prepare the data again")
        self.vocab_size = heads[0][2] if heads else 0
        self.shards = [open_shard(file) for file in files]
        self.ends = np.cumsum([0, *map(len, self.shards)])  # of each shard, after a 0

    def __len__(self) -> int:
        return int(self.ends[-1])

    def sha256(self) -> str:
        """Of every token, as ShardWriter.digest had it."""
        digest = hashlib.sha256()
        for shard in self.shards:
            for start in range(0, len(shard), 1 << 22):
                digest.update(shard[start : start + (1 << 22)].tobytes())
        return digest.hexdigest()

    def read(self, start: int, stop: int) -> np.ndarray:
        """Tokens start .. stop - 1 as int64, (stop - start,). Raises ValueError outside 0 .. len, and for damaged ones."""
        if not 0 <= start <= stop <= len(self):
            raise ValueError(f"tokens {start} to {stop} are not all within the {len(self)} there are")
        shard = int(np.searchsorted(self.ends, start, side="right")) - 1
        pieces = []
        while start < stop:
            base = int(self.ends[shard])
            pieces.append(self.shards[shard][start - base : stop - base])
            start, shard = min(stop, int(self.ends[shard + 1])), shard + 1
        ids = np.concatenate(pieces).astype(np.int64) if pieces else np.empty(0, np.int64)
        if ids.size and ids.max() >= self.vocab_size:
            raise Damaged(f"the tokens are damaged: an id is {ids.max()} where vocab_size is {self.vocab_size}; prepare the data again")
        return ids


def read_header(path: Path) -> tuple[np.dtype, int, int]:
    """dtype, number of tokens and vocab_size of one file. Raises ValueError unless they make its size."""
    size = size_of(path)
    with path.open("rb") as file:
        head = file.read(HEADER.size)
    if len(head) < HEADER.size or not head.startswith(MAGIC):
        raise Damaged(f"{path} is not a token file: it does not begin with {MAGIC.decode()}")
    _, version, width, count, vocab_size = HEADER.unpack(head)
    if version != FORMAT_VERSION:
        raise ValueError(f"{path} has format_version {version}; this version of ANDREA reads {FORMAT_VERSION}")
    dtype = token_dtype(vocab_size)
    if width != dtype.itemsize or size != HEADER.size + count * width:
        raise Damaged(
            f"{path} is damaged: {count} tokens of {width} bytes and the header do not make its {size} bytes; prepare the data again"
        )
    return dtype, count, vocab_size


def open_shard(path: Path) -> np.ndarray:
    """The tokens of one file, (count,), uint16 or uint32, mapped and not read."""
    dtype, count, _ = read_header(path)
    return np.memmap(path, dtype, "r", HEADER.size, (count,)) if count else np.empty(0, dtype)
