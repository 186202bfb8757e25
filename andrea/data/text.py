"""Files and folders -> documents -> units. Bytes become text here and nowhere else; what was not read is named in the report.

A unit is what is deduplicated and split: a document, or, of one that would be a large part of the corpus, a piece of about 64 kB.
"""

import os
import sysconfig
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

UNIT = 65_536  # characters
LARGE = 0.05  # of the corpus's bytes: a document above this, and above UNIT, is cut
BLOCK = 1 << 20  # characters read at a time
ENCODINGS = {
    "utf-8": "utf-8-sig",
    "cp1252": "cp1252",
    "latin-1": "latin-1",
}  # tried in this order; the first skips a BOM, the last never fails
NOT_OURS = frozenset({"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"})  # folders of the standard library


@dataclass(frozen=True)
class Document:
    """A file's whole text, its newlines as they were; `name` is its path below the given folder, with forward slashes."""

    name: str
    text: str


@dataclass(frozen=True)
class File:
    """A file found to hold text: `size` is that of the text in UTF-8 bytes."""

    name: str
    path: Path
    encoding: str
    size: int

    def blocks(self) -> Iterator[str]:
        return read_blocks(self.path, self.encoding)


class Corpus:
    """The documents of files and folders, in sorted order, read one at a time and as often as it is iterated.

    Folders are searched to the bottom, without hidden ones, runs and prepared text. No paths means the built-in corpus: the Python standard
    library on this machine, without its tests. Raises FileNotFoundError for a missing path; ValueError, once read, where there is no text.
    """

    def __init__(self, paths: Sequence[str]):
        self.paths = tuple(paths)
        if self.paths:
            self.found = [pair for path in self.paths for pair in find(Path(path))]
        else:
            self.found = [pair for pair in find(Path(sysconfig.get_path("stdlib")), NOT_OURS) if pair[0].endswith(".py")]

    @cached_property
    def survey(self) -> tuple[list[File], list[dict[str, str]]]:
        """Read everything once: the files that hold text, and {name, reason} of those that do not."""
        files, skipped = [], []
        for name, path in self.found:
            try:
                encoding, size = examine(path)
                files.append(File(name, path, encoding, size))
            except (OSError, NotText) as error:
                skipped.append({"name": name, "reason": str(error)})
        if not files:
            where = ", ".join(self.paths) or "the standard library"
            why = (
                f"all {len(skipped)} files were skipped, the first ({skipped[0]['name']}) because {skipped[0]['reason']}"
                if skipped
                else "no files"
            )
            raise ValueError(f"no text in {where}: {why}; give text files, or folders that hold some")
        return files, skipped

    @property
    def bytes(self) -> int:
        """Of all documents together, as UTF-8."""
        return sum(file.size for file in self.survey[0])

    @property
    def report(self) -> dict[str, Any]:
        """files (how many were read), bytes, encodings {name: files}, skipped [{name, reason}]."""
        files, skipped = self.survey
        return {"files": len(files), "bytes": self.bytes, "encodings": dict(Counter(f.encoding for f in files)), "skipped": skipped}

    def __iter__(self) -> Iterator[Document]:
        for file in self.survey[0]:
            yield Document(file.name, "".join(file.blocks()))

    def units(self) -> Iterator[str]:
        """Every document's units in order, as `units` gives them, without ever holding the whole of a document that is cut."""
        corpus_bytes = self.bytes
        for file in self.survey[0]:
            if is_large(file.size, corpus_bytes):
                yield from cut(file.blocks())
            else:
                yield "".join(file.blocks())


class NotText(Exception):
    """Why a file is skipped."""


def find(path: Path, without: frozenset[str] = frozenset()) -> list[tuple[str, Path]]:
    """(name, path) of a file, or of every file below a folder, sorted by name; hidden ones and folders named in `without` are left out."""
    if path.is_file():
        return [(path.name, path)]
    if not path.is_dir():
        raise FileNotFoundError(f"there is no file or folder {str(path)!r}")
    found = []
    for folder, inner, names in os.walk(path):
        if "run.json" in names or {"data.json", "tokenizer.json"} <= set(names):
            inner.clear()  # a run, or prepared text: made from text, and none itself
            continue
        inner[:] = [name for name in inner if not name.startswith(".") and name not in without]
        found += [Path(folder, name) for name in names if not name.startswith(".")]
    return sorted((file.relative_to(path).as_posix(), file) for file in found if file.is_file())


def examine(path: Path) -> tuple[str, int]:
    """The first of ENCODINGS that reads the whole file, and the text's size in UTF-8 bytes. Raises NotText."""
    for encoding in ENCODINGS:
        size, ink = 0, False
        try:
            for block in read_blocks(path, encoding):
                if "\0" in block:
                    raise NotText("it holds NUL bytes, so it is not text in UTF-8 or a one-byte encoding")
                size += len(block.encode())
                ink = ink or not block.isspace()
        except UnicodeDecodeError:
            continue
        if not ink:
            raise NotText("it is empty" if not size else "it holds only white space")
        break
    return encoding, size


def read_blocks(path: Path, encoding: str) -> Iterator[str]:
    """The text in blocks, newlines untouched. Another format (jsonl, parquet) would have its reader beside this one."""
    with path.open(encoding=ENCODINGS[encoding], newline="") as file:
        while block := file.read(BLOCK):
            yield block


def units(doc: Document, corpus_bytes: int) -> Iterator[str]:
    """The document, or pieces of about 64 kB if it is larger than that and than 5 % of the corpus; joined they are its text."""
    return cut([doc.text]) if is_large(len(doc.text.encode()), corpus_bytes) else iter([doc.text])


def is_large(size: int, corpus_bytes: int) -> bool:
    return size > UNIT and size > LARGE * corpus_bytes


def cut(blocks: Iterable[str]) -> Iterator[str]:
    """Cut after the last line break that leaves at most UNIT characters, or after UNIT where a line is longer."""
    held = ""
    for block in blocks:
        held, start = held + block, 0
        while len(held) - start > UNIT:
            stop = held.rfind("\n", start, start + UNIT) + 1 or start + UNIT
            yield held[start:stop]
            start = stop
        held = held[start:]
    if held:
        yield held
