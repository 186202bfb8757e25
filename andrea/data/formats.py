"""Formats -> documents. A reader is a function (stream, reading) -> (row, block of text) pairs: a new row number begins a new document.

.jsonl .ndjson  .csv .tsv  .parquet .arrow .feather     the field of each row
.html .htm .xhtml  .epub  .docx                         what a reader would see
.mbox .eml                                              plain text, without what it quotes and without signatures
.bin                                                    token files of nanoGPT and llm.c, as text again
.gz .bz2 .xz .lzma .zst  .zip .tar .tgz                 what is in them; nothing is unpacked to the disk under its own name
anything else                                           text, if its bytes are
"""

import bz2
import codecs
import csv
import email
import gzip
import io
import json
import lzma
import re
import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from html.parser import HTMLParser
from itertools import chain, groupby
from pathlib import Path, PurePosixPath
from posixpath import dirname, join, normpath, splitext
from typing import Any, BinaryIO, NoReturn, cast
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree

import numpy as np

from andrea.config import DataConfig
from andrea.data.text import BLOCK, MARKS, WHOLE, NotText, Source, Tally, decode, find, read_whole, text_blocks
from andrea.data.tokenizer import BYTES, load_tokenizer

RATIO = 200  # what unpacks to more than this many times its size ...
ROOM = 64 << 20  # ... and to more bytes than this is a trap
Rows = Iterator[tuple[int, str]]


@dataclass
class Reading:
    """One source being read: how, and what was found so far."""

    config: DataConfig
    tally: Tally = field(default_factory=Tally)

    def text(self, stream: BinaryIO) -> Iterator[str]:
        return text_blocks(stream, self.config.encoding, self.tally)

    def decode(self, data: bytes, declared: str = "") -> str:
        """Text of bytes that name their own encoding; what names UTF-8 or a western one is often wrong, and looked at instead."""
        if not declared.lower().startswith(("utf", "us-ascii", "ascii", "iso-8859-1", "latin", "windows-1252", "cp1252")):
            try:
                text = data.decode(declared)
                self.tally.encodings[declared.lower()] += 1
                return text
            except (LookupError, ValueError):  # unknown, or not what it says
                pass
        return decode(data, self.config.encoding, self.tally)

    def value(self, row: Any) -> str | None:
        """The text in a row's field, or None, counted."""
        value = row.get(self.config.field) if isinstance(row, dict) else None
        if not isinstance(value, str):
            self.tally.rows_skipped[f"no text in {self.config.field!r}"] += 1
            return None
        return value


def documents(source: Source, reading: Reading) -> Rows:
    """The documents of a source, each as blocks that share a row number. Raises NotText, whatever a damaged file makes its reader raise."""
    try:
        if source.name.startswith("hf://"):
            reading.tally.formats["hf"] += 1
            yield from hub_rows(source.name, reading)
        else:
            with source.open() as opened:
                stream, suffix = unpacked(opened, source)
                reading.tally.formats[suffix if suffix in READERS else "text"] += 1
                yield from READERS.get(suffix, plain)(stream, reading)
    except Exception as error:
        raise why_not(error) from error


def texts(config: DataConfig) -> Iterator[tuple[str, str]]:
    """(name, text) of every document, one at a time; sources without text are passed over."""
    for source in (inner for given in find(config.paths) for inner in members(given)):
        try:
            for row, pairs in groupby(documents(source, Reading(config)), key=lambda pair: pair[0]):
                yield source.name + (f"#{row}" if row else ""), "".join(block for _, block in pairs)
        except NotText:
            continue


def why_not(error: Exception) -> NotText:
    """The reason why a source is not used. Zip, XML, mail and column files fail in as many ways as they can be damaged."""
    if isinstance(error, NotText):
        return error
    said = getattr(error, "strerror", None)
    return NotText(said or f"it is damaged: {str(error) or type(error).__name__}")


def missing(package: str, what: str, extra: str = "formats") -> NoReturn:
    raise NotText(f"{what} need the package {package}: pip install 'andrea[{extra}]'")


# --- containers ---------------------------------------------------------------------------------------------------------------------


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
    return path.is_absolute() or ".." in path.parts or ":" in path.parts[0]


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


# --- rows ---------------------------------------------------------------------------------------------------------------------------


def lines(blocks: Iterable[str]) -> Iterator[str]:
    """Lines with their ends. Raises NotText for one that is longer than WHOLE."""
    held = ""
    for block in blocks:
        *whole, held = (held + block).split("\n")
        yield from (line + "\n" for line in whole)
        if len(held) > WHOLE:
            raise NotText(f"it has a line of more than {WHOLE >> 20} million characters")
    if held:
        yield held


def json_lines(stream: BinaryIO, reading: Reading) -> Rows:
    first: Any = None
    used = False
    for number, line in enumerate(lines(reading.text(stream)), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            reading.tally.rows_skipped["no JSON"] += 1
            continue
        first = row if first is None else first
        if (text := reading.value(row)) is not None:
            used = True
            yield number, text
    if not used:
        raise NotText(f"no line has text in {reading.config.field!r}{keys_of(first)}")


def keys_of(row: Any) -> str:
    return f"; the first has {names(row)}: choose one with --field" if isinstance(row, dict) and row else ""


def names(known: Iterable[object]) -> str:
    return ", ".join(repr(str(name)[:40]) for name, _ in zip(known, range(12), strict=False))


def separated(stream: BinaryIO, reading: Reading, delimiters: str) -> Rows:
    """Rows under a header, separated by whichever delimiter the header has most of. A single column needs no name."""
    csv.field_size_limit(WHOLE)
    text = lines(reading.text(stream))
    head = next(text, "")
    delimiter = max(delimiters, key=head.count)
    rows = csv.reader(chain([head], text), delimiter=delimiter)
    header = [name.strip() for name in next(rows, [])]
    column = reading.config.field if len(header) > 1 else (header or [""])[0]
    if column not in header or not column:
        raise NotText(f"it has no column {column!r}; it has {names(header)}: choose one with --field")
    for number, row in enumerate(rows, 1):
        text_of = dict(zip(header, row, strict=False)).get(column)
        if text_of is None:
            reading.tally.rows_skipped[f"no text in {column!r}"] += 1
        else:
            yield number, text_of


def columns(stream: BinaryIO, reading: Reading, kind: str) -> Rows:
    """Parquet and Arrow files, a thousand rows at a time."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        missing("pyarrow", f"{kind} files")
    file = seekable(stream)
    if kind == ".parquet":
        table = pyarrow.parquet.ParquetFile(file)
        schema = table.schema_arrow
    else:
        table = open_arrow(pyarrow, file)
        schema = table.schema
    column = reading.config.field
    texts = [f.name for f in schema if pyarrow.types.is_string(f.type) or pyarrow.types.is_large_string(f.type)]
    if column not in texts:
        raise NotText(f"it has no column {column!r} of text; it has {names(texts) or 'none'}: choose one with --field")
    if kind == ".parquet":
        batches = table.iter_batches(batch_size=1000, columns=[column])
    elif hasattr(table, "num_record_batches"):
        batches = map(table.get_batch, range(table.num_record_batches))
    else:
        batches = iter(table)
    number = 0
    for batch in batches:
        for value in batch.column(batch.schema.get_field_index(column)):
            number += 1
            if (text := reading.value({column: value.as_py()})) is not None:
                yield number, text


def open_arrow(pyarrow: Any, file: BinaryIO) -> Any:
    try:
        return pyarrow.ipc.open_file(file)
    except pyarrow.ArrowInvalid:
        file.seek(0)
        return pyarrow.ipc.open_stream(file)


def hub_rows(url: str, reading: Reading) -> Rows:
    """hf://datasets/NAME?split=train&name=CONFIGURATION, streamed."""
    try:
        import datasets
    except ImportError:
        missing("datasets", "data sets of the hub", "hub")
    parts = urlsplit(url)
    options = {key: values[0] for key, values in parse_qs(parts.query).items()}
    if parts.netloc != "datasets" or not parts.path.strip("/") or not options.keys() <= {"name", "split", "revision"}:
        raise NotText("wanted hf://datasets/NAME, with ?split=, name= or revision= where needed")
    rows = datasets.load_dataset(unquote(parts.path[1:]), streaming=True, **{"split": "train", **options})
    first, used = None, False
    for number, row in enumerate(rows, 1):
        first = first or row
        if (text := reading.value(row)) is not None:
            used = True
            yield number, text
    if not used:
        raise NotText(f"no row has text in {reading.config.field!r}{keys_of(first)}")


# --- pages --------------------------------------------------------------------------------------------------------------------------


class Page(HTMLParser):
    """Collects what a browser would show, a line or a blank line between blocks, a tab between cells."""

    HIDDEN = frozenset({"script", "style", "template", "noscript", "title", "svg"})
    APART = frozenset(
        {
            "p",
            "div",
            "h1",
            "h2",
            "h3",
            "h4",
            "h5",
            "h6",
            "ul",
            "ol",
            "dl",
            "table",
            "pre",
            "blockquote",
            "section",
            "article",
            "header",
            "footer",
            "nav",
            "aside",
            "main",
            "figure",
            "figcaption",
            "form",
            "fieldset",
            "address",
            "details",
            "summary",
            "hr",
        }
    )
    BELOW = frozenset({"li", "dt", "dd", "tr", "br", "option", "caption"})

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self.breaks, self.space, self.pre = 0, False, 0
        self.hidden: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self.hidden:
            self.hidden += [tag] * (tag == self.hidden[0])
        elif tag in self.HIDDEN or (tag in ("div", "span", "section") and unseen(dict(attrs))):
            self.hidden = [tag]
        else:
            self.part(tag)
            self.pre += tag == "pre"

    def handle_endtag(self, tag: str) -> None:
        if self.hidden:
            self.hidden = self.hidden[: len(self.hidden) - (tag == self.hidden[0])]
        elif tag not in ("br", "td", "th"):
            self.part(tag)
            self.pre = max(0, self.pre - (tag == "pre"))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if not self.hidden:
            self.part(tag)  # <div/> of XHTML opens nothing

    def part(self, tag: str) -> None:
        if tag in self.APART:
            self.breaks = max(self.breaks, 2)
        elif tag == "br":
            self.breaks += 1
        elif tag in self.BELOW:
            self.breaks = max(self.breaks, 1)
        elif tag in ("td", "th") and self.parts and not self.breaks and self.parts[-1] != "\t":
            self.parts.append("\t")
            self.space = False

    def handle_data(self, data: str) -> None:
        if self.hidden:
            return
        if not self.pre:
            words = data.split()  # also at no-break spaces, which are there for the eye
            self.space = self.space or data[:1].isspace()
            if not words:
                return
            text = " ".join(words)
        else:
            text = data
        if self.parts:
            self.parts.append("\n" * min(self.breaks, 2) or " " * (self.space and self.parts[-1] != "\t"))
        self.parts.append(text.removeprefix("\n") if self.pre and self.breaks else text)
        self.breaks, self.space = 0, not self.pre and data[-1:].isspace()


def unseen(attributes: dict[str, str | None]) -> bool:
    return "hidden" in attributes or "display:none" in (attributes.get("style") or "").replace(" ", "").lower()


def visible(markup: str) -> str:
    """The text that a browser would show of a page."""
    page = Page()
    page.feed(markup)
    page.close()
    return "".join(page.parts)


CHARSET = re.compile(rb"""(?:charset|encoding)\s*=\s*["']?([A-Za-z0-9_.:-]+)""")


def page_text(data: bytes, reading: Reading) -> str:
    declared = None if data.startswith(tuple(MARKS)) else CHARSET.search(data[:4096])
    return visible(reading.decode(data, declared[1].decode() if declared else "utf-8"))


def html(stream: BinaryIO, reading: Reading) -> Rows:
    yield 0, page_text(read_whole(stream), reading)


def epub(stream: BinaryIO, reading: Reading) -> Rows:
    """The chapters of a book in reading order (its spine), as one document."""
    with zipfile.ZipFile(seekable(stream)) as book:
        size = sum(entry.compress_size for entry in book.infolist())
        content = partial(entry_bytes, book, budget=Budget.of(size))
        roots = [node.get("full-path", "") for node in xml(content("META-INF/container.xml")).iter() if node.tag.endswith("}rootfile")]
        package = xml(content(roots[0]))
        items = {node.get("id"): node for node in package.iter() if node.tag.endswith("}item")}
        spine = [items[node.get("idref")] for node in package.iter() if node.tag.endswith("}itemref")]
        for item in spine:
            if item.get("media-type") in ("application/xhtml+xml", "text/html"):
                yield 0, page_text(content(normpath(join(dirname(roots[0]), unquote(item.get("href", ""))))), reading) + "\n\n"


def entry_bytes(archive: zipfile.ZipFile, name: str, budget: Budget) -> bytes:
    if name not in archive.namelist():
        raise NotText(f"it is damaged: it holds no {name!r}")
    with archive.open(name) as entry:
        return read_whole(measured(entry, budget))


def xml(data: bytes) -> ElementTree.Element:
    if b"<!ENTITY" in data:
        raise NotText("its XML defines entities, which such files do not need")
    return ElementTree.fromstring(data)


def docx(stream: BinaryIO, reading: Reading) -> Rows:
    """Paragraphs, table cells and footnotes of a Word document, a blank line after each paragraph."""
    with zipfile.ZipFile(seekable(stream)) as document:
        budget = Budget.of(sum(entry.compress_size for entry in document.infolist()))
        for name in ("word/document.xml", "word/footnotes.xml"):
            if name == "word/document.xml" or name in document.namelist():
                yield 0, "".join(word_text(xml(entry_bytes(document, name, budget)), "\n\n"))


WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"


def word_text(node: ElementTree.Element, end: str) -> Iterator[str]:
    """The text below a node; `end` comes after a paragraph, or a line end where it stands in a table."""
    if node.tag == WORD + "t":
        yield node.text or ""
    elif node.tag in (WORD + "tab", WORD + "br", WORD + "cr"):
        yield "\t" if node.tag == WORD + "tab" else "\n"
    elif not node.tag.endswith("}Fallback"):  # of a text box: the same once more for older programs
        for child in node:
            yield from word_text(child, "\n" if node.tag == WORD + "tc" else end)
        if node.tag == WORD + "p":
            yield end


# --- mail ---------------------------------------------------------------------------------------------------------------------------

QUOTED = re.compile(r"(?:^[ \t]*>[^\n]*(?:\n|\Z))+", re.M)
WROTE = re.compile(  # the end of what stands before a quotation: one line, or two if the first opens as such lines do
    r"(?:\A|\n)((?:(?:On|Den|Am|Le|El|Il|Op|Em)\b[^\n]*\n?[^\n]*|(?!>)[^\n]*)"
    r"\b(?:wrote|writes|skrev|skriver|schrieb|a écrit|escribió|ha scritto|schreef|escreveu)\b"
    r"[^\n]{0,100}:[ \t]*\r?\n(?:[ \t]*\r?\n)?)\Z"
)
OLD = re.compile(  # all below is a signature, or somebody else's mail
    r"^(?:-- ?\r?$|-{2,} ?(?:Original Message|Ursprungligt meddelande|Ursprüngliche Nachricht|Message d'origine) ?-{2,})", re.M
)


def own_words(mail: str) -> str:
    """A mail without what it quotes, the line that says who wrote it, what follows an `Original Message` mark, and the signature."""
    found = OLD.search(mail)
    mail = mail[: found.start()] if found else mail
    kept, start = [], 0
    for quoted in QUOTED.finditer(mail):
        before = mail[start : quoted.start()]
        said = WROTE.search(before[-400:])
        kept.append(before[: len(before) - len(said[1])] if said else before)
        start = quoted.end()
    return "".join([*kept, mail[start:]])


def mail_text(data: bytes, reading: Reading) -> str:
    parts = [part for part in email.message_from_bytes(data).walk() if part.get_content_disposition() != "attachment"]
    for kind in ("text/plain", "text/html"):
        bodies = [(cast(bytes, p.get_payload(decode=True)), p.get_content_charset("utf-8")) for p in parts if p.get_content_type() == kind]
        if bodies:
            texts = [reading.decode(body, charset) for body, charset in bodies if body]
            return own_words("\n".join(map(visible, texts) if kind == "text/html" else texts))
    return ""


def eml(stream: BinaryIO, reading: Reading) -> Rows:
    yield 0, mail_text(read_whole(stream), reading)


def mbox(stream: BinaryIO, reading: Reading) -> Rows:
    """A document for each mail. RFC 4155."""
    for number, message in enumerate(messages(stream), 1):
        try:
            yield number, mail_text(re.sub(rb"(?m)^>(>*From )", rb"\1", message), reading)
        except NotText as error:
            reading.tally.rows_skipped[str(error)] += 1


def messages(stream: BinaryIO) -> Iterator[bytes]:
    held: list[bytes] = []
    size, blank = 0, True
    while line := stream.readline(BLOCK):
        begins = blank and line.startswith(b"From ")
        if not held and not begins:
            raise NotText("it is no mailbox: it does not begin with 'From '")
        if begins and held:
            yield b"".join(held)
            held, size = [], 0
        held.append(line)
        size += len(line)
        if size > WHOLE:
            raise NotText(f"it holds a mail of more than {WHOLE >> 20} MiB")
        blank = line in (b"\n", b"\r\n")
    if held:
        yield b"".join(held)


# --- token files of others ----------------------------------------------------------------------------------------------------------

LLM_C = {20240520: "<u2", 20240801: "<u4"}  # magic number of the header of 256 int32 -> token


def token_file(stream: BinaryIO, reading: Reading) -> Rows:
    """nanoGPT's (uint16, no header) and llm.c's: a document at each end-of-text token, or one where there is none."""
    if reading.config.bin_tokenizer is None:
        raise NotText("if it is a token file of nanoGPT or llm.c, name its tokenizer: --bin-tokenizer gpt2, or a tokenizer.json")
    pieces, end = pieces_of(reading.config.bin_tokenizer)
    head = stream.read(1024)
    magic = int.from_bytes(head[:4], "little")
    dtype = np.dtype(LLM_C.get(magic, "<u2"))
    data, number = head if magic not in LLM_C else b"", 1
    utf8 = incremental()
    while data or magic in LLM_C:
        magic = 0
        whole = len(data) - len(data) % dtype.itemsize
        ids, data = np.frombuffer(data[:whole], dtype), data[whole:]
        if ids.size and int(ids.max()) >= len(pieces):
            raise NotText(f"it holds the token {ids.max()}, but its tokenizer has {len(pieces)}; was it made with another?")
        for part in np.split(ids, np.flatnonzero(ids == end)) if end is not None else [ids]:
            if part.size and part[0] == end:
                number, utf8, part = number + 1, incremental(), part[1:]
            if part.size:
                yield number, utf8(b"".join([pieces[id] for id in part]))
        more = stream.read(BLOCK)
        if not more:
            if data:
                raise NotText("it is damaged: it ends within a token")
            return
        data += more


def incremental() -> Callable[[bytes], str]:
    return codecs.getincrementaldecoder("utf-8")("replace").decode


def pieces_of(name: str) -> tuple[list[bytes], int | None]:
    """The bytes of each id, and the id that ends a document, of a tokenizer.json (ours or of `tokenizers`) or one that tiktoken knows."""
    path = Path(name)
    if path.is_file():
        try:
            ours = load_tokenizer(path)
            return ours.pieces, ours.separator
        except ValueError:
            return pieces_in(json.loads(path.read_text(encoding="utf-8")))
    import tiktoken

    try:
        encoding = tiktoken.get_encoding(name)
    except Exception as error:  # an unknown name, or no network
        raise NotText(f"the tokenizer {name!r} is neither a file nor one that tiktoken can load here: {error}") from error
    return [piece_or_none(encoding, id) for id in range(encoding.n_vocab)], encoding.eot_token


def pieces_in(stored: dict[str, Any]) -> tuple[list[bytes], int | None]:
    """The same of a tokenizer.json that is not ours, if its pieces are bytes."""
    if (stored.get("decoder") or {}).get("type") != "ByteLevel":
        raise NotText("the tokenizer named for .bin files does not work on bytes, as those of nanoGPT and llm.c do")
    table = {**stored["model"]["vocab"], **{added["content"]: added["id"] for added in stored.get("added_tokens", [])}}
    pieces = [b""] * (max(table.values()) + 1)
    for piece, id in table.items():
        pieces[id] = b"".join(BYTES.get(letter, letter.encode()) for letter in piece)
    return pieces, table.get("<|endoftext|>")


def piece_or_none(encoding: Any, id: int) -> bytes:
    try:
        return encoding.decode_single_token_bytes(id)
    except KeyError:
        return b""


def plain(stream: BinaryIO, reading: Reading) -> Rows:
    for block in reading.text(stream):
        yield 0, block


READERS: dict[str, Callable[[BinaryIO, Reading], Rows]] = {
    ".jsonl": json_lines,
    ".ndjson": json_lines,
    ".csv": partial(separated, delimiters=",;\t"),
    ".tsv": partial(separated, delimiters="\t"),
    ".parquet": partial(columns, kind=".parquet"),
    ".arrow": partial(columns, kind=".arrow"),
    ".feather": partial(columns, kind=".feather"),
    ".html": html,
    ".htm": html,
    ".xhtml": html,
    ".epub": epub,
    ".docx": docx,
    ".mbox": mbox,
    ".eml": eml,
    ".bin": token_file,
}
