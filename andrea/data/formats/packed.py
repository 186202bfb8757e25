"""Compressed files and archives: what is in them, never more than text could be, and nothing written to the disk under its own name."""

import bz2
import gzip
import io
import lzma
import re
import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import PurePosixPath
from posixpath import splitext
from typing import Any, BinaryIO, NoReturn, cast

from andrea.data.formats.reading import missing, why_not
from andrea.data.text import BLOCK, NotText, Source

RATIO = 200  # what unpacks to more than this many times its size ...
ROOM = 64 << 20  # ... and to more bytes than this is a trap


@dataclass
class Budget:
    """How many bytes may still come out of something packed: RATIO times its size, or ROOM."""

    left: int

    @classmethod
    def of(cls, size: int | None) -> "Budget":
        return cls(max(ROOM, RATIO * (size or 0)))


class Measured(io.RawIOBase):
    """A stream that refuses to give more than a budget, which others may share, however little is asked for at a time."""

    def __init__(self, inner: Any, budget: Budget):
        self.inner, self.budget = inner, budget

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self.inner.read(len(buffer))
        buffer[: len(data)] = data
        self.budget.left -= len(data)
        if self.budget.left < 0:
            raise NotText(f"it unpacks to more than {RATIO} times its size; text does not")
        return len(data)


def measured(inner: Any, budget: Budget) -> BinaryIO:
    return cast(BinaryIO, io.BufferedReader(Measured(inner, budget), BLOCK))


def open_zst(stream: BinaryIO) -> Any:
    try:
        import zstandard
    except ImportError:
        missing("zstandard", ".zst files")
    return Zst(stream, zstandard.ZstdDecompressor)


class Zst:
    """A .zst file's content; unlike zstandard's own stream, one that notices where the file was cut off."""

    def __init__(self, stream: BinaryIO, decompressor: Any):
        self.stream, self.new, self.held = stream, decompressor, b""
        self.frame: Any = None  # the one that is being read

    def read(self, size: int) -> bytes:
        while not self.held:
            over = self.frame is None or self.frame.eof
            data = self.frame.unused_data if self.frame and over else b""
            data = data or self.stream.read(1 << 10)  # of which 32 MiB may come
            if not data and not over:
                raise EOFError("the compressed file ends before its end")
            if not data:
                return b""
            if over:
                self.frame = self.new().decompressobj()
            self.held = self.frame.decompress(data)
        data, self.held = self.held[:size], self.held[size:]
        return data


UNPACK: dict[str, Callable[[BinaryIO], Any]] = {
    ".gz": lambda stream: gzip.GzipFile(fileobj=stream),
    ".bz2": bz2.BZ2File,
    ".xz": lzma.LZMAFile,
    ".lzma": lzma.LZMAFile,
    ".zst": open_zst,
}


def suffixes(name: str) -> tuple[str, str]:
    """`a.csv.GZ` -> ('.csv', '.gz'), `a.csv` -> ('.csv', '')."""
    stem, last = splitext(name.lower())
    if last == ".tgz":
        return ".tar", ".gz"
    return (splitext(stem)[1], last) if last in UNPACK else (last, "")


def unpacked(stream: BinaryIO, source: Source) -> tuple[BinaryIO, str]:
    """The stream without the compression that its name tells of, and the suffix that is left."""
    suffix, packed = suffixes(source.name)
    return (measured(UNPACK[packed](stream), Budget.of(source.size)) if packed else stream), suffix


def seekable(stream: BinaryIO) -> BinaryIO:
    """The stream, or a temporary copy of one that cannot go back."""
    if isinstance(stream, io.FileIO | io.BytesIO) or (isinstance(stream, io.BufferedReader) and stream.seekable()):
        return stream
    copy = tempfile.SpooledTemporaryFile(max_size=BLOCK)  # noqa: SIM115 (whoever reads it lets it go, and the system then removes it)
    shutil.copyfileobj(stream, copy, BLOCK)
    copy.seek(0)
    return cast(BinaryIO, copy)


def members(source: Source) -> Iterator[Source]:
    """The files in an archive, or the source itself. Each must be read before the next is asked for. What lies in an archive stays shut."""
    open_archive = ARCHIVES.get(suffixes(source.name)[0])
    if open_archive is None:
        yield source
        return
    try:
        with source.open() as stream:
            budget = Budget.of(source.size)
            for name, opener, size in open_archive(unpacked(stream, source)[0]):
                inside = Source(f"{source.name}/{name}", partial(open_member, opener, budget), size)
                yield Source(inside.name, partial(fail, NotText("its name leads out of the archive"))) if leads_out(name) else inside
    except Exception as error:
        yield Source(source.name, partial(fail, why_not(error)))


def leads_out(name: str) -> bool:
    path = PurePosixPath(name.replace("\\", "/"))
    return path.is_absolute() or ".." in path.parts or bool(re.match("[A-Za-z]:", name))


def open_member(opener: Callable[[], Any], budget: Budget) -> BinaryIO:
    return measured(opener(), budget)


def fail(error: Exception) -> NoReturn:
    raise error


def zip_members(stream: BinaryIO) -> Iterator[tuple[str, Callable[[], Any], int]]:
    with zipfile.ZipFile(seekable(stream)) as archive:
        for entry in archive.infolist():
            if not entry.is_dir():
                yield entry.filename, partial(archive.open, entry), entry.file_size


def tar_members(stream: BinaryIO) -> Iterator[tuple[str, Callable[[], Any], int]]:
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for entry in archive:
            if entry.isfile():
                yield entry.name, partial(archive.extractfile, entry), entry.size


ARCHIVES = {".zip": zip_members, ".tar": tar_members}
