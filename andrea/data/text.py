"""Paths -> sources, and bytes -> text. Bytes become text here and nowhere else; what is not used is named, with the reason.

A source is one file, one member of an archive, standard input, or one data set of the hub.
"""

import codecs
import encodings.cp1252
import glob
import io
import os
import re
import sys
import sysconfig
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import BinaryIO

BLOCK = 1 << 20  # bytes read at a time
WHOLE = 64 << 20  # bytes: the most that a format which must be read whole may have
MADE = "a run or prepared text, which is made from text and is none itself"
NOT_OURS = frozenset({"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"})  # folders of the standard library
MARKS = {  # byte-order mark -> (encoding, its name in the report); UTF-32's begins with UTF-16's
    codecs.BOM_UTF32_LE: ("utf-32-le", "utf-32"),
    codecs.BOM_UTF32_BE: ("utf-32-be", "utf-32"),
    codecs.BOM_UTF16_LE: ("utf-16-le", "utf-16"),
    codecs.BOM_UTF16_BE: ("utf-16-be", "utf-16"),
}
KINDS = {  # how files begin that people take for text, or that lie beside it
    b"%PDF-": "a PDF; make text of it first",
    b"\x89PNG": "a picture",
    b"\xff\xd8\xff": "a picture",
    b"GIF8": "a picture",
    b"PK\3\4": "an archive, or an office document of a kind that is not read",
    b"\x1f\x8b": "compressed, and not named .gz",
    b"\x7fELF": "a program",
}
# Characters of more than one byte (RFC 3629, section 4).
MULTIBYTE = re.compile(
    rb"((?:[\xc2-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]|[\xe1-\xec\xee\xef][\x80-\xbf]{2}|\xed[\x80-\x9f][\x80-\xbf]"
    rb"|\xf0[\x90-\xbf][\x80-\xbf]{2}|[\xf1-\xf3][\x80-\xbf]{3}|\xf4[\x80-\x8f][\x80-\xbf]{2})+)"
)
PAIR = re.compile(rb"[\xc4-\xdf][\x80-\xbf]")  # two bytes that are a letter beyond Latin-1, or a western capital and a sign
LATIN = re.compile(MULTIBYTE.pattern.replace(rb"\xc2-\xdf", rb"\xc2\xc3", 1))  # MULTIBYTE without PAIR
CONTROLS = bytes({*range(32), 127} - {*b"\b\t\n\v\f\r\x1b"})  # what text does not hold
ASCII = bytes(range(128))
WESTERN = "".join(chr(i) if c == "\ufffe" else c for i, c in enumerate(encodings.cp1252.decoding_table))  # Latin-1 where cp1252 has a hole
HOLES = bytes(i for i, c in enumerate(encodings.cp1252.decoding_table) if c == "\ufffe")
FOREIGN = (64, 0.4)  # more bytes above ASCII than this, and than this share of all letters: no western text


class NotText(Exception):
    """Why a source is not used."""


@dataclass(frozen=True)
class Source:
    """Something to read: its name in reports, with forward slashes; how to open it; its size as stored, in bytes, where that is known."""

    name: str
    open: Callable[[], BinaryIO]
    size: int | None = None


@dataclass
class Tally:
    """What reading found. Adding two gives that of both."""

    skipped: list[dict[str, str]] = field(default_factory=list)  # {name, reason}
    encodings: Counter[str] = field(default_factory=Counter)  # name -> files
    formats: Counter[str] = field(default_factory=Counter)  # name -> files
    normal_forms: Counter[str] = field(default_factory=Counter)  # name -> documents
    rows_skipped: Counter[str] = field(default_factory=Counter)  # reason -> rows
    surrogates: int = 0  # halves of pairs, which are no characters, replaced by U+FFFD

    def add(self, other: "Tally") -> None:
        self.skipped += other.skipped
        for name in ("encodings", "formats", "normal_forms", "rows_skipped"):
            getattr(self, name).update(getattr(other, name))
        self.surrogates += other.surrogates


# --- where the bytes are ------------------------------------------------------------------------------------------------------------


def find(paths: Sequence[str]) -> list[Source]:
    """The sources that paths name: files, folders, patterns with * and ?, -, hf://datasets/NAME. None: the source of Python's library.

    Folders are searched to the bottom, in sorted order. Raises FileNotFoundError for a path that is not there, with the nearest name.
    """
    if not paths:
        root = Path(sysconfig.get_path("stdlib"))
        return [source for source in walk(root, NOT_OURS) if source.name.endswith(".py")]
    return [source for path in paths for source in sources_at(path)]


def sources_at(path: str) -> Iterator[Source]:
    if not path.strip():
        raise ValueError("a path is empty; name a file or a folder, or leave it out")
    if path == "-":
        yield Source("standard input", standard_input)
    elif path.startswith("hf://"):
        yield Source(path, io.BytesIO)  # its rows come through a library, by name
    elif Path(path).is_dir():
        yield from walk(Path(path))
    elif os.path.lexists(path):
        yield file_source(Path(path).name, Path(path), named=True)
    elif glob.has_magic(path):
        found = sorted(glob.glob(path, recursive=True))
        if not found:
            raise FileNotFoundError(f"no file matches {path!r}")
        for match in found:
            if "**" not in path or not Path(match).is_dir():  # ** finds a folder and, once more, what is in it
                yield from sources_at(match)
    else:
        near = nearest_name(Path(path))
        raise FileNotFoundError(f"there is no file or folder {path!r}" + (f"; did you mean {near!r}?" if near else ""))


def nearest_name(path: Path) -> str | None:
    try:
        names = {found.stem: found.name for found in path.parent.iterdir()}
    except OSError:
        return None
    near = get_close_matches(path.stem, names, n=1)
    return str(path.with_name(names[near[0]])) if near else None


def walk(root: Path, without: frozenset[str] = frozenset()) -> Iterator[Source]:
    """Every file below root; hidden ones, runs and prepared text become sources that refuse. Folders named in `without` are left out."""
    found: list[Source] = []

    def unreadable(error: OSError) -> None:
        found.append(refused(below(root, error.filename), error.strerror))

    for folder, inner, names in os.walk(root, onerror=unreadable):
        here = Path(folder)
        if is_made(here, set(names)):
            inner.clear()
            found.append(refused(below(root, folder), MADE if here != root else f"{root} is {MADE}"))
            continue
        hidden = [name for name in (*inner, *names) if name.startswith(".") and not name.endswith(".part")]
        found += [refused(below(root, here / name), "hidden") for name in hidden]
        inner[:] = [name for name in inner if not name.startswith(".") and name not in without]
        found += [file_source(below(root, here / name), here / name) for name in names if not name.startswith(".")]
    yield from sorted(found, key=lambda source: source.name)


def is_made(folder: Path, names: set[str]) -> bool:
    """Whether a folder is a run, one that is being made, or prepared text."""
    if "unfinished.txt" in names:
        with (folder / "unfinished.txt").open("rb") as file:
            return file.read(15) == b"A run of ANDREA"
    return "tokenizer.json" in names and bool({"run.json", "data.json"} & names)


def below(root: Path, path: str | os.PathLike[str]) -> str:
    return Path(path).relative_to(root).as_posix()


def file_source(name: str, path: Path, named: bool = False) -> Source:
    """A file. A pipe is read only where a person named it: one that lies in a folder could keep us waiting for ever."""
    if path.is_file():
        return Source(name, lambda: path.open("rb"), path.stat().st_size)
    if path.is_symlink() and not path.exists():
        return refused(name, "a link to nothing")
    return Source(name, lambda: path.open("rb")) if named else refused(name, "no regular file")


def refused(name: str, reason: str | None) -> Source:
    return Source(name, lambda: refuse(reason or "it cannot be read"))


def refuse(reason: str) -> BinaryIO:
    raise NotText(reason)


def standard_input() -> BinaryIO:
    if sys.stdin is None:
        raise NotText("standard input is closed")
    return sys.stdin.buffer


# --- what the bytes say -------------------------------------------------------------------------------------------------------------


def text_blocks(stream: BinaryIO, encoding: str, tally: Tally) -> Iterator[str]:
    """The stream's text in blocks of about BLOCK, newlines untouched, cut at line ends where there are any. Raises NotText.

    With a byte-order mark, or NUL bytes in the high halves alone, UTF-16 or UTF-32; otherwise UTF-8, and what is no UTF-8 is `encoding`.
    """
    head = stream.read(BLOCK)
    if kind := next((kind for magic, kind in KINDS.items() if head.startswith(magic)), None):
        raise NotText(f"it is {kind}")
    mark = next((mark for mark in MARKS if head.startswith(mark)), None)
    wide = MARKS[mark] if mark else wide_encoding(head)
    if wide:
        yield from wide_blocks(head[len(mark or b"") :], stream, wide[0])
        tally.encodings[wide[1]] += 1
        return
    marked = head.startswith(codecs.BOM_UTF8)
    decoder = Decoder(encoding)
    for data in whole_lines(head[3 * marked :], stream):
        yield decoder.decode(data)
    tally.encodings[decoder.name(marked)] += 1


def decode(data: bytes, encoding: str, tally: Tally) -> str:
    """`text_blocks` of bytes that are all there."""
    return "".join(text_blocks(io.BytesIO(data), encoding, tally))


class Decoder:
    """UTF-8, and the named one-byte encoding for what is none: a byte, or with a named encoding a block, at a time."""

    def __init__(self, encoding: str):
        self.encoding, self.utf8, self.strays, self.letters, self.holes = encoding, False, 0, 0, False

    def decode(self, data: bytes) -> str:
        """Text of whole lines. Raises NotText where they hold control characters, or letters of no western alphabet."""
        if b"\0" in data or len(data) - len(data.translate(None, CONTROLS)) > max(8, len(data) // 200):
            raise NotText("it is no text: it holds NUL bytes or other control characters")
        try:
            text = data.decode()
        except UnicodeDecodeError:
            pass
        else:
            self.utf8 = self.utf8 or len(text) < len(data)
            return text
        if self.encoding != "auto":
            self.strays += 1
            try:
                return data.decode(self.encoding)
            except (UnicodeError, ValueError) as error:
                raise NotText(f"it is neither UTF-8 nor {self.encoding}: {error}") from None
        parts = MULTIBYTE.split(data)
        if sum(len(part.translate(None, ASCII)) for part in parts[::2]) >= len(PAIR.findall(data)):
            parts = LATIN.split(data)  # a capital and a quotation mark after it look like a letter of two bytes
        self.utf8 = self.utf8 or len(parts) > 1
        return "".join(part.decode() if i % 2 else self.western(part) for i, part in enumerate(parts))

    def western(self, part: bytes) -> str:
        others = part.translate(None, ASCII)
        self.strays += len(others)
        self.letters += len(part.translate(None, bytes({*ASCII} - {*b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"})))
        self.holes = self.holes or bool(set(others) & set(HOLES))
        if self.strays > FOREIGN[0] and self.strays > FOREIGN[1] * self.letters:
            raise NotText("its encoding is not recognised: neither UTF-8, UTF-16 nor western; name it with --encoding, for example koi8-r")
        return codecs.charmap_decode(part, "strict", WESTERN)[0]

    def name(self, marked: bool) -> str:
        other = self.encoding if self.encoding != "auto" else "latin-1" if self.holes else "cp1252"
        utf8 = "utf-8-sig" if marked else "utf-8"
        return utf8 if not self.strays else f"utf-8 + {other}" if self.utf8 and self.encoding == "auto" else other


def wide_encoding(head: bytes) -> tuple[str, str] | None:
    """UTF-16 without a mark: NUL bytes in the high halves, those of spaces at least, and hardly any in the low ones."""
    n = len(head) // 2
    for order, low, high in (("le", 0, 1), ("be", 1, 0)):
        if head[high::2].count(0) > max(1, n / 20) and head[low::2].count(0) <= head[high::2].count(0) / 10:
            return f"utf-16-{order}", "utf-16"
    return None


def wide_blocks(head: bytes, stream: BinaryIO, encoding: str) -> Iterator[str]:
    decoder, data = codecs.getincrementaldecoder(encoding)(), head
    while True:
        try:
            text = decoder.decode(data, final=not data)
        except UnicodeDecodeError as error:
            raise NotText(f"it is not whole {encoding}: {error.reason}") from None
        if sum(map(text.count, map(chr, CONTROLS))) > max(8, len(text) // 200):
            raise NotText("it is no text: it holds control characters")
        yield text
        if not data:
            return
        data = stream.read(BLOCK)


def whole_lines(head: bytes, stream: BinaryIO) -> Iterator[bytes]:
    """The stream in blocks that end at a line end; without one at a space, or else between two characters of UTF-8."""
    held, data = b"", head
    while data:
        held += data
        data = stream.read(BLOCK)
        stop = border(held) if data else len(held)
        if stop:
            yield held[:stop]
            held = held[stop:]
    if held:
        yield held


def border(data: bytes) -> int:
    if stop := max(data.rfind(b"\n"), data.rfind(b" ")) + 1:
        return stop
    return next((i for i in range(len(data) - 1, max(0, len(data) - 5), -1) if data[i] & 0xC0 != 0x80), len(data))


def read_whole(stream: BinaryIO, limit: int = WHOLE) -> bytes:
    """All of a stream. Raises NotText beyond `limit` bytes."""
    data = stream.read(limit + 1)
    if len(data) > limit:
        raise NotText(f"it is larger than the {limit >> 20} MiB that its format is read up to")
    return data
