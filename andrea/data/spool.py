"""All text of a corpus on the disk while it is prepared: read once from wherever it comes, then read here as often as needed.

    text.utf8      the documents one after another
    documents.bin  DOCUMENT of each
    units.bin      UNIT_ROW of each unit

A unit is what is deduplicated and split: a document, or, of one that is large, a piece of about 64 kB. In memory stand only a few dozen
bytes for each unit, and the names of the sources.
"""

import unicodedata
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from andrea.config import DataConfig
from andrea.data.formats import Reading, documents, members, sources
from andrea.data.text import NotText, Tally

UNIT = 65_536  # characters
LARGE = 0.05  # of the corpus's bytes: a document above this, and above UNIT, is cut ...
WHOLE = 1 << 20  # ... and one of more bytes than this in any case
BLOCK = 1 << 20  # bytes read at a time
SAY = 64_000_000  # bytes between two lines of progress
DOCUMENT = np.dtype([("start", "<u8"), ("bytes", "<u8"), ("source", "<u4"), ("row", "<u4")])
UNIT_ROW = np.dtype([("start", "<u8"), ("bytes", "<u4"), ("document", "<u4"), ("hash", "<u8"), ("check", "<u8")])  # 128 bits of hash


class Spool:
    """A corpus, read and kept in a folder. `tally` tells what was found, `skipped` with it what was not used."""

    def __init__(self, folder: Path, config: DataConfig):
        self.folder, self.config = folder, config
        self.tally = Tally()
        self.sources: list[str] = []
        self.files = 0

    def fill(self) -> Generator[str, None, None]:
        """Read every source, a line of progress now and then. Raises ValueError where no text is left, OSError where the disk is full.

        A source that breaks is taken back as a whole and named in tally.skipped.
        """
        said = 0
        with (self.folder / "text.utf8").open("wb") as text, (self.folder / "documents.bin").open("wb") as table:
            writer = Writer(text, table)
            for source in (inner for given in sources(self.config) for inner in members(given)):
                reading, mark = Reading(self.config), writer.mark()
                self.sources.append(source.name)
                try:
                    for row, block in documents(source, reading):
                        writer.add(len(self.sources) - 1, row, self.clean(block, reading.tally), reading.tally)
                        if writer.at - said >= SAY:
                            said = writer.at
                            yield f"{said:,} bytes read"
                    writer.end(reading.tally)
                    if writer.count == mark[1]:
                        raise NotText("it is empty" if writer.nothing else "it holds only white space")
                except NotText as error:
                    writer.back(mark)
                    self.tally.skipped.append({"name": source.name, "reason": str(error)})
                    self.sources.pop()
                else:
                    self.files += 1
                    reading.tally.encodings = Counter(set(reading.tally.encodings))  # a file with many mails is one file
                    self.tally.add(reading.tally)
        if not writer.count:
            raise ValueError(self.nothing_found())
        self.documents = np.fromfile(self.folder / "documents.bin", DOCUMENT)
        self.bytes = writer.at

    def clean(self, block: str, tally: Tally) -> str:
        """The block in the normal form asked for, and without half surrogate pairs, which JSON can hold and UTF-8 cannot."""
        if self.config.normalize == "nfc":
            block = unicodedata.normalize("NFC", block)
        try:
            block.encode()
        except UnicodeEncodeError:
            whole = block.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
            tally.surrogates += whole.count("\ufffd") - block.count("\ufffd")
            return whole
        return block

    def nothing_found(self) -> str:
        where, skipped = ", ".join(self.config.paths) or "the standard library", self.tally.skipped
        if not skipped:
            why = "no files"
        elif len(skipped) == 1:
            why = f"{skipped[0]['name']} was skipped: {skipped[0]['reason']}"
        else:
            why = f"all {len(skipped)} files were skipped, the first ({skipped[0]['name']}) because {skipped[0]['reason']}"
        return f"no text in {where}: {why}" + "; give text files, or folders that hold some" * (len(skipped) != 1)

    def report(self) -> dict[str, Any]:
        """What was read, for data.json."""
        t = self.tally
        return {
            "files": self.files,
            "documents": len(self.documents),
            "bytes": self.bytes,
            "formats": dict(t.formats),
            "encodings": dict(t.encodings),
            "normal_forms": dict(t.normal_forms),
            "surrogates": t.surrogates,
            "rows_skipped": dict(t.rows_skipped),
            "skipped": t.skipped,
        }

    def blocks(self, document: int) -> Iterator[str]:
        """One document's text, BLOCK bytes or a little less at a time."""
        row = self.documents[document]
        left, held = int(row["bytes"]), b""
        with (self.folder / "text.utf8").open("rb") as file:
            file.seek(int(row["start"]))
            while left:
                data = held + file.read(min(left, BLOCK))
                left -= len(data) - len(held)
                stop = whole_characters(data) if left else len(data)
                yield data[:stop].decode()
                held = data[stop:]

    def name(self, document: int) -> str:
        """Of the source, and the number of the row where a source has several documents."""
        row = self.documents[document]
        return self.sources[row["source"]] + (f"#{row['row']}" if row["row"] else "")

    def units(self) -> "Units":
        """Cut the documents, hash the pieces."""
        with (self.folder / "text.utf8").open("rb") as text, (self.folder / "units.bin").open("wb") as table:
            rows = []
            for document, (start, size) in enumerate(places(self.documents)):
                if is_large(size, self.bytes):
                    pieces: Iterable[bytes] = (piece.encode() for piece in cut(self.blocks(document)))
                else:
                    text.seek(start)
                    pieces = [text.read(size)]
                for piece in pieces:
                    rows.append((start, len(piece), document, *digest(piece)))
                    start += len(piece)
                if len(rows) >= 65_536:
                    table.write(np.array(rows, UNIT_ROW).tobytes())
                    rows = []
            table.write(np.array(rows, UNIT_ROW).tobytes())
        return Units(self.folder / "text.utf8", np.fromfile(self.folder / "units.bin", UNIT_ROW))


class Writer:
    """Where documents go, block by block; a document of white space goes nowhere, and is counted."""

    def __init__(self, text: BinaryIO, table: BinaryIO):
        self.text, self.table = text, table
        self.at = self.count = 0  # bytes and documents that are whole
        self.open: tuple[int, int] | None = None  # source and row of the document that is being written

    def add(self, source: int, row: int, block: str, tally: Tally) -> None:
        if self.open != (source, row):
            self.end(tally)
            self.open, self.size, self.ink, self.composed, self.decomposed = (source, row), 0, False, False, False
        self.ink = self.ink or not (block.isspace() or not block)
        if not block.isascii():
            self.composed = self.composed or not unicodedata.is_normalized("NFD", block)
            self.decomposed = self.decomposed or not unicodedata.is_normalized("NFC", block)
        self.size += self.text.write(block.encode())

    def end(self, tally: Tally) -> None:
        """The document is whole."""
        if self.open is None:
            self.nothing = True
            return
        self.nothing = not self.size
        if self.ink:
            self.table.write(np.array((self.at, self.size, *self.open), DOCUMENT).tobytes())
            self.at, self.count = self.at + self.size, self.count + 1
            tally.normal_forms[
                {(1, 0): "composed", (0, 1): "decomposed", (1, 1): "mixed"}.get((self.composed, self.decomposed), "either")
            ] += 1
        else:
            self.text.seek(self.at)
            self.text.truncate()
            if self.open[1]:
                tally.rows_skipped["empty" if self.nothing else "only white space"] += 1
        self.open = None

    def mark(self) -> tuple[int, int]:
        return self.at, self.count

    def back(self, mark: tuple[int, int]) -> None:
        """Forget every document since the mark, and the open one."""
        self.at, self.count = mark
        self.open = None
        for file, size in ((self.text, self.at), (self.table, self.count * DOCUMENT.itemsize)):
            file.seek(size)
            file.truncate()


@dataclass
class Units:
    """Pieces of a text file, in order, known by their hashes. rows: UNIT_ROW of each, (n,)."""

    text: Path
    rows: np.ndarray

    def __len__(self) -> int:
        return len(self.rows)

    def read(self, which: np.ndarray) -> Iterator[str]:
        """The text of the units at these indices, (m,), one after another."""
        for data in self.read_bytes(which):
            yield data.decode()

    def read_bytes(self, which: np.ndarray) -> Iterator[bytes]:
        with self.text.open("rb") as file:
            for begin in range(0, len(which), 65_536):
                for start, size in places(self.rows[which[begin : begin + 65_536]]):
                    file.seek(start)
                    yield file.read(size)


def places(rows: np.ndarray) -> Iterator[tuple[int, int]]:
    """(start, bytes) of each row."""
    for begin in range(0, len(rows), 65_536):
        yield from rows[["start", "bytes"]][begin : begin + 65_536].tolist()


def digest(data: bytes) -> tuple[int, int]:
    """128 bits that stand for a unit; units that differ in line ends, or in white space at their end, have the same."""
    hashed = blake2b(data.replace(b"\r\n", b"\n").rstrip(), digest_size=16).digest()
    return int.from_bytes(hashed[:8], "big"), int.from_bytes(hashed[8:], "big")


def is_large(size: int, corpus_bytes: int) -> bool:
    return size > UNIT and (size > LARGE * corpus_bytes or size > WHOLE)


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


def whole_characters(data: bytes) -> int:
    """How many of the bytes are whole characters of UTF-8."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 != 0x80:  # where the last character begins
            needs = 1 if byte < 0x80 else 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return len(data) if needs <= back else len(data) - back
    return len(data)
