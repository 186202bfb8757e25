"""Builds a mixed corpus of real text in every format and encoding, with planted copies, quotes and broken files, and the truth about it.

    python benchmarks/mixed_corpus.py FOLDER [--megabytes 300] [--seed 42] [--cache FOLDER]

FOLDER/corpus gets the files, FOLDER/truth.json what was planted. benchmarks/mixed.py builds one and judges what `andrea data` makes of it.

Texts come from manual pages, documentation and Python source of this machine, and from Debian packages, which are downloaded and unpacked
(--cache) but not installed; without `apt-get` the machine's own do. Needs pyarrow, zstandard and python-docx. For equal sources and an
equal seed the corpus is the same to the byte.

A marked paragraph carries a made-up word in each sentence, found nowhere else ("kåvätuzöq"), so that what became of it can be counted.
"""

import argparse
import bz2
import csv
import gzip
import html
import io
import json
import lzma
import os
import random
import re
import subprocess
import sysconfig
import tempfile
import textwrap
import unicodedata
import zipfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from email.message import EmailMessage
from email.policy import SMTP
from hashlib import blake2b
from pathlib import Path
from zlib import crc32

# ---------------------------------------------------------------------------------------------------------------------------- sources

PACKAGES = [
    *("cfi-sv", "lifelines-doc-sv", "manpages-sv", "wswedish", "libreoffice-help-sv", "installation-guide-amd64", "gnome-user-docs"),
    *("debian-handbook", "debian-faq", "debian-faq-de", "debian-faq-ru", "developers-reference", "developers-reference-de"),
    *("developers-reference-ru", "dict-gcide", "wbritish", "wngerman", "wfrench", "manpages-de", "manpages-fr", "manpages-ru"),
    *("fortunes", "fortunes-de", "fortunes-ru", "apt-doc"),
]
SWEDISH = re.compile(r"-sv/|wswedish/|[./_/]sv[./_/]")
NOT_TEXT = re.compile(r"\.(png|jpe?g|gif|svg|ico|css|js|map|pdf|eps|dat|u8|idx|epub|mo|inv|pyc|so|woff2?|ttf)(\.gz)?$|/_sources/|/index\.")
LARGEST = 2_000_000  # characters: longer sources are cut at an empty line or a line's end


@dataclass
class Mark:
    """A paragraph with a made-up word in every sentence, and what was planted of it elsewhere."""

    number: int
    words: list[str]
    sentences: list[str]
    form: str = "ascii"  # or composed, or decomposed
    file: str = ""
    format: str = ""
    encoding: str = ""
    planted: str = ""  # the kind of quote or copy: at most one of each mark
    planted_words: list[str] = field(default_factory=list)  # those that stand in it
    own_word: str = ""  # of a quote with a changed word


@dataclass
class Doc:
    name: str
    suffix: str
    text: str
    swedish: bool
    mark: Mark | None = None
    is_host: bool = False  # holds a quote or boiler-plate
    path: Path | None = None  # where it stands alone in a file

    def is_html(self) -> bool:
        return self.suffix == ".html"


def unpack(package: str, cache: Path) -> Path | None:
    """The package's files, unpacked below `cache`; None where it is not to be had."""
    folder = cache / package
    if not folder.exists():
        cache.mkdir(parents=True, exist_ok=True)
        try:
            apt = ["apt-get", "download", "-qq", "-o", "APT::Sandbox::User=root", package]
            subprocess.run(apt, cwd=cache, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            [archive] = cache.glob(f"{package}_*.deb")
            subprocess.run(["dpkg-deb", "-x", archive, folder], check=True)
        except (OSError, subprocess.CalledProcessError, ValueError):
            return None
    return folder


def find_sources(cache: Path) -> tuple[list[Path], list[str]]:
    """Files that may hold text, sorted, and the packages that were not to be had."""
    folders = {package: unpack(package, cache) for package in PACKAGES}
    roots = [*filter(None, folders.values()), Path("/usr/share/man"), Path("/usr/share/doc"), Path(sysconfig.get_path("stdlib"))]
    files = [
        file for root in roots for file in root.rglob("*") if not NOT_TEXT.search(file.as_posix()) and "site-packages" not in file.parts
    ]
    return sorted(file for file in files if file.is_file() and not file.is_symlink()), [name for name in folders if not folders[name]]


def read_source(path: Path) -> Iterator[Doc]:
    """What a file holds, manual pages and XML as plain text."""
    data = path.read_bytes()
    if data[:2] == b"\x1f\x8b":
        data, path = gzip.decompress(data), path.with_suffix("")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        if b"\x81" in data or b"\0" in data or not SWEDISH.search(path.as_posix()):
            return
        text = data.decode("cp1252", "ignore")
    if "\0" in text or SENTINEL.search(text):
        return
    text, suffix = text.replace("\r\n", "\n"), path.suffix
    if "/man/" in path.as_posix():
        text = re.sub(r"(?m)^[.'](SH|SS|B|I|BR|IR|RB) ?|^[.'].*$|\\f(\(..|\[.*?\]|.)|\\[&|]", "", text)
        text = re.sub(r"\\\(?(-|aq|lq|rq|e)", lambda m: {"-": "-", "aq": "'", "lq": '"', "rq": '"', "e": "\\"}[m[1]], text)
    elif suffix == ".page":
        text = re.sub(r"\n\s*\n\s*", "\n\n", html.unescape(re.sub(r"<[^>]*>", "", text)))
    is_html = suffix in (".html", ".htm") and "<body" in text and "charset=iso" not in text.lower()
    if is_html and crc32(path.name.encode()) % 2:  # every other page as text: most Swedish there is are pages
        text, is_html = visible(text), False
    suffix = ".html" if is_html else suffix if suffix in (".py", ".md", ".rst") else ".txt"
    while text.strip():
        cut = len(text) if len(text) <= LARGEST or is_html else text.rfind("\n", 0, LARGEST) + 1 or LARGEST
        yield Doc(re.sub(r"[^\w.-]", "_", path.stem)[:40], suffix, text[:cut], bool(SWEDISH.search(path.as_posix())))
        text = text[cut:]


def visible(markup: str) -> str:
    """Text of a page, near enough."""
    text = re.sub(r"(?s)<(head|script|style)\b.*?</\1>|</(p|h\d|li|td|div|pre)>|<[^>]*>", lambda m: "\n\n" * bool(m[2]), markup)
    return re.sub(r"\n\s*\n\s*", "\n\n", html.unescape(text))


def choose(files: list[Path], size: int, rng: random.Random) -> list[Doc]:
    """Documents of about `size` bytes as UTF-8: a sixth of it Swedish where there is that much, each file once."""
    swedish, others = [f for f in files if SWEDISH.search(f.as_posix())], [f for f in files if not SWEDISH.search(f.as_posix())]
    docs, total = [], 0
    for group, limit in ((swedish, size // 6), (others, size)):
        rng.shuffle(group)
        for doc in (doc for path in group for doc in read_source(path)):
            if total >= limit:
                break
            docs.append(doc)
            total += len(doc.text.encode())
    rng.shuffle(docs)
    return docs


# --------------------------------------------------------------------------------------------------------------------------- planting

FORM = {"composed": "NFC", "decomposed": "NFD"}
SENTINEL = re.compile(r"[\w\u0308\u030a]+z(?:o\u0308?|ö)q\b")
MOJIBAKE = ("Ã¥", "Ã¤", "Ã¶", "Ã…", "Ã„", "Ã–", "Ã©", "â€", "ï»¿", "þÿ", "ÿþ", "\ufffd", "\ufeff", "Â\xa0", "Â ")
TEXT_KINDS = ["txt whole", "txt partial", "txt changed word", "txt nested"]
MAIL_KINDS = ["mbox whole", "eml whole", "mbox partial", "eml changed word"]
COPIES = ["same bytes", "other encoding", "other format", "compressed", "other normal form"]
LICENCE = """Permission is given to everyone who holds this file to use it for any purpose at all. Whoever passes it on keeps this notice
with it, unchanged and in full. The authors promise nothing about what it does or fails to do. They answer for no damage, whatever its kind
and whoever had warned them of it. Names of the authors are not used in advertisements unless they have agreed in writing."""
FOOTER = """Den här sidan hör till en samling som sköts av frivilliga på deras fritid. Fel och förslag tas tacksamt emot på adressen
som står överst på varje sida. Innehållet får spridas vidare så länge källan anges och inget läggs till. Senast granskad under våren."""


def new_word(number: int, ascii_only: bool) -> str:
    vowels, consonants, word = "aeiou" if ascii_only else "aeioyåäö", "bdfgklmnprstv", ""
    for _ in range(4):
        number, c = divmod(number, len(consonants))
        number, v = divmod(number, len(vowels))
        word += consonants[c] + vowels[v]
    return word + ("zoq" if ascii_only else "zöq")


def sentences_of(paragraph: str) -> list[str]:
    return re.split(r"(?<=[.!?])(?=\s)", paragraph)


def shingles(text: str) -> Iterator[bytes]:
    """Runs of five words, those of them whose first word falls into one of eight classes."""
    words = text.casefold().split()
    for i, word in enumerate(words[:-4]):
        if crc32(word.encode()) % 8 == 0:
            yield blake2b(" ".join(words[i : i + 5]).encode(), digest_size=8).digest()


def paragraphs(text: str, is_html: bool) -> list[tuple[int, int]]:
    """Where the paragraphs of a text stand; of HTML, those that hold no further tag, where all is shown."""
    if is_html and re.search("hidden|display: ?none", text):
        return []
    pattern = r"<p\b[^>]*>([^<>&]{80,})</p>" if is_html else r"(\S[^\n]*(?:\n[ \t]*\S[^\n]*)*)"
    return [match.span(1) for match in re.finditer(pattern, text)]


def is_prose(text: str) -> bool:
    words = text.split()
    letters = sum(c.isalpha() or c.isspace() for c in text)
    return 25 <= len(words) <= 300 and letters > 0.92 * len(text) and not re.search(r"(?m)^\s*[^\w\s\"'(«“]|: |\.\.\.", text)


def mark_docs(docs: list[Doc]) -> list[Mark]:
    """Give each document one marked paragraph, where it has prose no part of which stands anywhere else in the corpus."""
    seen: Counter[bytes] = Counter()
    for doc in docs:
        text = visible(doc.text) if doc.is_html() else doc.text
        seen.update(shingles(text))
    marks: list[Mark] = []
    for doc in docs:
        pairs = paragraphs(doc.text, doc.is_html())
        found = [(pair, sentences_of(doc.text[slice(*pair)])) for pair in pairs if is_prose(doc.text[slice(*pair)])]
        own = (
            (pair, parts, [seen[s] for s in shingles("".join(parts))]) for pair, parts in found if all(len(p.split()) > 3 for p in parts)
        )
        good = [(pair, parts) for pair, parts, counts in own if len(parts) > 1 and len(counts) > 2 and max(counts) == 1]
        if good:
            (start, stop), parts = max(good, key=lambda candidate: min(len(candidate[1]), 6))
            doc.mark = marked(parts, len(marks), doc.text.isascii())
            doc.text = doc.text[:start] + "".join(doc.mark.sentences) + doc.text[stop:]
            marks.append(doc.mark)
    return marks


def marked(parts: list[str], number: int, ascii_only: bool) -> Mark:
    words, sentences = [], []
    for i, sentence in enumerate(parts):
        words.append(new_word(64 * number + i, ascii_only))
        tokens = list(re.finditer(r"\S+", sentence))
        middle = tokens[len(tokens) // 2 - 1].end()
        sentences.append(f"{sentence[:middle]} {words[-1]}{sentence[middle:]}")
    return Mark(number, words, sentences, "ascii" if ascii_only else "composed")


def quote(mark: Mark, kind: str, rng: random.Random) -> str:
    """The mark's paragraph as a mail quotes it; notes in the mark what of it was taken."""
    first, last = 0, len(mark.words)
    if "partial" in kind:
        first = rng.randrange(last - 2)
        last = first + rng.choice((2, 3)) if last > 3 else first + 2
    mark.planted, mark.planted_words = kind, mark.words[first:last]
    text = re.split(r"[ \t\n]+", "".join(mark.sentences[first:last]).strip())
    if "changed" in kind:
        i = rng.choice([i for i, word in enumerate(text) if not SENTINEL.search(word)])
        mark.own_word = text[i] = new_word(64 * mark.number + 63, text[i].isascii())
    width, prefix = rng.choice((58, 64, 72, 76)), "> > " if "nested" in kind else "> "
    lines = textwrap.wrap(" ".join(text), width, break_long_words=False, break_on_hyphens=False)
    day, name = rng.randrange(1, 29), rng.choice(("Åsa Öberg", "Per Ek", "Jo Doe"))
    head = (f"On Tue, {day} Mar 2020 at 10:{day:02d}, {name} wrote:", f"Den {day} mars 2020 kl. 10:{day:02d} skrev {name}:")
    return "\n".join([rng.choice(head), *(prefix + line for line in lines)])


def insert(text: str, block: str, rng: random.Random) -> str:
    """Put a block between two paragraphs."""
    at = text.find("\n\n", rng.randrange(len(text))) + 1 or len(text)
    return f"{text[:at]}\n{block}\n{text[at:]}"


# ---------------------------------------------------------------------------------------------------------------------------- formats

ENCODINGS = {
    "utf-8": ("utf-8", b""),
    "utf-8 with mark": ("utf-8", b"\xef\xbb\xbf"),
    "utf-16-le with mark": ("utf-16-le", b"\xff\xfe"),
    "utf-16-be with mark": ("utf-16-be", b"\xfe\xff"),
    "utf-16-le without mark": ("utf-16-le", b""),
    "cp1252": ("cp1252", b""),
    "latin-1": ("latin-1", b""),
}
MIXED = "utf-8 + cp1252"  # line by line
PACKERS = {".gz": lambda data: gzip.compress(data, mtime=0), ".bz2": bz2.compress, ".xz": lambda data: lzma.compress(data, preset=1)}
ROLES = {"plain": 40, "packed": 12, "zip": 6, "jsonl": 8, "csv": 5, "tsv": 3, "parquet": 5, "arrow": 4, "html": 6, "epub": 3, "docx": 3}
BATCH = {"zip": 12, "jsonl": 40, "csv": 20, "tsv": 20, "parquet": 40, "arrow": 40, "epub": 6}  # documents in one file
ROWS = ("jsonl", "csv", "tsv", "parquet", "arrow")
MAIL = 12_000  # characters: shorter documents may become mails


def encode(text: str, encoding: str) -> bytes | None:
    """None where the encoding lacks a character, or Latin-1 bytes would mean others in cp1252."""
    if encoding == MIXED:
        halves = [line.encode("cp1252" if i % 2 else "utf-8", "replace") for i, line in enumerate(text.splitlines(keepends=True))]
        return b"".join(halves) if encode(text, "cp1252") and text.count("\n") > 3 else None
    codec, mark = ENCODINGS[encoding]
    try:
        data = mark + text.encode(codec)
    except UnicodeEncodeError:
        return None
    return None if encoding == "latin-1" and re.search("[\x80-\x9f]", text) else data


def zipped(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Without times, so that equal members give equal bytes."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_STORED if name == "mimetype" else method)
    return file.getvalue()


def as_html(doc: Doc, charset: str, footer: str = "") -> str:
    blocks = (html.escape(block) for block in re.split(r"\n\s*\n", doc.text))
    body = "\n".join("<p>" + (block.replace("\n", "<br>\n") if "\n&gt; " in block else block) + "</p>" for block in blocks)
    hidden = f"<style>/* {HIDDEN} */</style><script>var x = '{HIDDEN}';</script><!-- {HIDDEN} -->"
    meta = f'<meta charset="{charset}">' if charset else ""
    return f"<!DOCTYPE html>\n<html><head>{meta}<title>{doc.name}</title>{hidden}</head>\n<body>\n{body}\n{footer}</body></html>\n"


def as_epub(docs: list[Doc], href: str = "c{}.xhtml") -> bytes:
    items = "".join(f'<item id="c{i}" href="{href.format(i)}" media-type="application/xhtml+xml"/>' for i in range(len(docs)))
    spine = "".join(f'<itemref idref="c{i}"/>' for i in range(len(docs)))
    about = '<metadata xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>Samling</dc:title><dc:language>sv</dc:language></metadata>'
    container = (
        '<?xml version="1.0"?><container version="1.0" xmlns="urn:oasis:names:tc:opendocument:xmlns:container">'
        '<rootfiles><rootfile full-path="OEBPS/book.opf" media-type="application/oebps-package+xml"/></rootfiles></container>'
    )
    package = (
        f'<?xml version="1.0"?><package xmlns="http://www.idpf.org/2007/opf" version="3.0">{about}'
        f"<manifest>{items}</manifest><spine>{spine}</spine></package>"
    )
    chapters = {f"OEBPS/c{i}.xhtml": as_html(doc, "utf-8").encode() for i, doc in enumerate(docs)}
    meta = {"META-INF/container.xml": container.encode(), "OEBPS/book.opf": package.encode()}
    return zipped({"mimetype": b"application/epub+zip", **meta, **chapters})


def as_docx(doc: Doc) -> bytes:
    """As python-docx writes it; every third marked paragraph stands in a table."""
    from docx import Document

    made, file = Document(), io.BytesIO()
    made.add_heading(doc.name)
    for block in re.split(r"\n\s*\n", re.sub("[\x00-\x08\x0b\x0c\x0e-\x1f]", "", doc.text)):
        if in_table(doc) and doc.mark.words[0] in block:
            made.add_table(1, 2).cell(0, 1).text = block
        else:
            made.add_paragraph(block)
    made.save(file)
    with zipfile.ZipFile(file) as archive:
        return zipped({name: archive.read(name) for name in archive.namelist()})


def in_table(doc: Doc) -> bool:
    return doc.mark is not None and doc.mark.number % 3 == 0


def as_mail(doc: Doc, quoted: str, rng: random.Random) -> tuple[EmailMessage, str]:
    """A mail that answers `quoted` with the document and closes with a signature; and its character set."""
    message, charset = EmailMessage(policy=SMTP), rng.choice(["utf-8", "utf-8", "windows-1252", "iso-8859-1"])
    body = f"{quoted}\n\n{doc.text.strip()}\n\n-- \nÅsa Öberg, {SIGNATURE}\n"
    charset = charset if encode(body, {"windows-1252": "cp1252", "iso-8859-1": "latin-1"}.get(charset, "utf-8")) else "utf-8"
    message["From"], message["To"], message["Subject"] = "asa@example.org", "lista@example.org", f"Sv: {doc.name} på svenska"
    message["Date"], message["Message-ID"] = "Tue, 03 Mar 2020 10:00:00 +0000", f"<{rng.getrandbits(64):x}@example.org>"
    message.set_content(body, charset=charset, cte=rng.choice(("quoted-printable", "base64", "8bit")))
    if rng.random() < 0.3:
        message.add_alternative(as_html(Doc("m", ".html", f"{HIDDEN}", False), "utf-8"), subtype="html")
        message.set_boundary(f"b{rng.getrandbits(64):x}")
    return message, charset


def as_rows(docs: list[Doc], role: str, rng: random.Random) -> tuple[bytes, int]:
    """The documents as rows with the columns id and text, and rows without text among them: bytes, and how many those are."""
    rows: list[dict] = [{"id": i, "text": doc.text} for i, doc in enumerate(docs)]
    bad = [{"id": -1, "text": ""}, {"id": -2, "text": " \n\t "}] + [{"id": -3}, {"id": -4, "text": None}] * (role not in ("csv", "tsv"))
    for row in bad:
        rows.insert(rng.randrange(len(rows) + 1), row)
    if role == "jsonl":
        return "".join(json.dumps(row, ensure_ascii=rng.random() < 0.2) + "\n" for row in rows).encode(), len(bad)
    if role in ("csv", "tsv"):
        file = io.StringIO(newline="")
        writer = csv.DictWriter(file, ["id", "text"], delimiter="," if role == "csv" else "\t")
        writer.writeheader()
        writer.writerows(rows)
        return file.getvalue().encode(), len(bad)
    import pyarrow
    import pyarrow.parquet

    sink, table = io.BytesIO(), pyarrow.Table.from_pylist(rows, pyarrow.schema([("id", pyarrow.int64()), ("text", pyarrow.string())]))
    if role == "parquet":
        pyarrow.parquet.write_table(table, sink, row_group_size=16)
    else:
        write = rng.choice((pyarrow.ipc.new_file, pyarrow.ipc.new_stream))
        with write(sink, table.schema) as out:
            out.write_table(table)
    return sink.getvalue(), len(bad)


# --------------------------------------------------------------------------------------------------------------------------- building

HIDDEN, SIGNATURE = "osynligzöq", "underskriftzöq"  # words that no reader of HTML, and none of mail, may give


class Builder:
    """Writes the files below `folder` and keeps the truth about them."""

    def __init__(self, folder: Path, seed: int):
        import zstandard

        self.folder, self.rng, self.number = folder, random.Random(seed), 0
        self.broken: dict[str, str] = {}  # name -> what is wrong with it
        self.boiler: dict[str, Mark] = {}
        self.written: Counter[str] = Counter()  # boiler-plates: how often; "bytes", "rows without text"; patterns of MOJIBAKE
        self.packers = {**PACKERS, ".zst": zstandard.ZstdCompressor(level=3).compress}
        self.odd = [
            "with space.txt",
            "åäö, ‘文’.txt",
            "new\nline.txt",
            os.fsdecode(b"inval\xffid.txt"),
            "-o.txt",
            "de\u0301compose\u0301.txt",
        ]

    def put(self, stem: str, suffix: str, data: bytes) -> Path:
        self.number += 1
        path = self.folder / f"{self.rng.randrange(40):02d}" / f"{self.number:06d}-{stem}{suffix}"
        if suffix == ".txt" and self.odd:
            path = path.with_name(self.odd.pop())
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path

    def note(self, doc: Doc, path: Path, format: str, encoding: str) -> None:
        """The document has been written, for the first time or again."""
        self.written["bytes"] += len(doc.text.encode())
        self.written.update({pattern: doc.text.count(pattern) for pattern in MOJIBAKE})
        if doc.mark and not doc.mark.format:
            doc.mark.format, doc.mark.encoding, doc.mark.file = format, encoding, path.relative_to(self.folder).as_posix()

    def encoded(self, doc: Doc, without: str = "") -> tuple[str, bytes]:
        """The document in a random encoding that has its characters."""
        if doc.text.isascii() and not without and self.rng.random() < 0.7:
            return "ascii", doc.text.encode()
        names = [name for name in (*ENCODINGS, MIXED) if name != without]
        pairs = ((name, encode(doc.text, name)) for name in self.rng.sample(names, len(names)))
        name, data = next((name, data) for name, data in pairs if data is not None)
        return name, data.replace(b"\n", b"\r\n") if name == "cp1252" else data

    def write(self, role: str, docs: list[Doc]) -> None:
        """One file of the documents, or one for each where the role holds one."""
        if role in ("zip", "epub"):
            pairs = [self.encoded(doc) if role == "zip" else ("utf-8", b"") for doc in docs]
            members = {f"{i}/{doc.name}{doc.suffix}": data for i, (doc, (_, data)) in enumerate(zip(docs, pairs, strict=True))}
            path = self.put(docs[0].name, f".{role}", zipped(members) if role == "zip" else as_epub(docs))
            for doc, (encoding, _) in zip(docs, pairs, strict=True):
                self.note(doc, path, f".{role}", encoding)
        elif role in ROWS:
            self.write_rows(role, docs)
        else:
            for doc in docs:
                self.write_one(role, doc)

    def write_rows(self, role: str, docs: list[Doc]) -> None:
        data, without_text = as_rows(docs, role, self.rng)
        self.written["rows without text"] += without_text
        encoding, packing = "utf-8", self.rng.choice(("", "", *self.packers)) if role in ("jsonl", "csv") else ""
        if role in ("csv", "tsv"):
            encoding = self.rng.choice(("utf-8", "utf-8 with mark", "cp1252"))
            narrow = encode(data.decode(), encoding)
            encoding, data = (encoding, narrow) if narrow else ("utf-8", data)
        path = self.put(docs[0].name, f".{role}{packing}", self.pack(data, packing))
        for doc in docs:
            self.note(doc, path, f".{role}{packing}", encoding)

    def write_one(self, role: str, doc: Doc) -> None:
        suffix, format, packing = doc.suffix, doc.suffix, self.rng.choice([*self.packers]) if role == "packed" else ""
        if role == "html":
            footer = f"<footer>\n<p>{self.boilerplate('html footer', FOOTER)}</p></footer>\n" if self.rng.random() < 0.7 else ""
            encoding, charset = self.rng.choice((("utf-8", "utf-8"), ("utf-8", ""), ("utf-8 with mark", ""), ("cp1252", "windows-1252")))
            narrow = encode(as_html(doc, charset, footer), encoding)
            encoding, data = (encoding, narrow) if narrow else ("utf-8", as_html(doc, "utf-8", footer).encode())
            suffix, format = ".html", ".html (made)"
        elif role == "docx":
            suffix, format, encoding, data = ".docx", ".docx table" if in_table(doc) else ".docx", "utf-8", as_docx(doc)
        else:
            encoding, data = ("utf-8", doc.text.encode()) if doc.is_html() else self.encoded(doc)
        doc.path = self.put(doc.name, suffix + packing, self.pack(data, packing))
        self.note(doc, doc.path, format + packing, encoding)

    def pack(self, data: bytes, packing: str) -> bytes:
        return self.packers[packing](data) if packing else data

    def write_mails(self, suffix: str, docs: list[Doc], quotes: list[str]) -> None:
        """A .mbox file of all the mails, or the .eml file of one."""
        pairs = [as_mail(doc, quoted, self.rng) for doc, quoted in zip(docs, quotes, strict=True)]
        mails = [message.as_bytes(policy=SMTP if suffix == ".eml" else SMTP.clone(linesep="\n")) for message, _ in pairs]
        if suffix == ".mbox":
            mails = [b"From a@example.org Tue Mar  3 10:00:00 2020\n" + re.sub(rb"(?m)^(>*From )", rb">\1", mail) for mail in mails]
        path = self.put(docs[0].name, suffix, b"\n".join(mails))
        for doc, (_, charset) in zip(docs, pairs, strict=True):
            self.note(doc, path, suffix, charset)

    def boilerplate(self, kind: str, text: str) -> str:
        self.boiler.setdefault(kind, marked(sentences_of(text), 900_000 + len(self.boiler), False))
        self.written[kind] += 1
        return "".join(self.boiler[kind].sentences)

    def copy(self, doc: Doc, kind: str) -> None:
        """Write a document that stands alone in a file again."""
        doc.mark.planted, doc.mark.planted_words = f"copy, {kind}", doc.mark.words
        if kind == "other format":
            self.write(self.rng.choice(("jsonl", "parquet", "csv", "html", "docx")), [doc])
            return
        packing = self.rng.choice([*self.packers]) if kind == "compressed" else ""
        data = {
            "other encoding": lambda: self.encoded(doc, without=doc.mark.encoding)[1],
            "other normal form": lambda: unicodedata.normalize("NFD", doc.text).encode(),
        }.get(kind, doc.path.read_bytes)()
        self.note(doc, self.put(doc.name, doc.suffix + packing, self.pack(data, packing)), "", "")


def build(folder: Path, docs: list[Doc], seed: int) -> dict:
    """Write the corpus, and return the truth about it."""
    builder = Builder(folder, seed)
    rng, marks = builder.rng, mark_docs(docs)
    texts = [doc for doc in docs if doc.suffix in (".txt", ".md", ".rst")]
    mails = rng.sample(small := [doc for doc in texts if len(doc.text) < MAIL], len(small) // 4)
    is_mail = set(map(id, mails))
    texts = [doc for doc in texts if id(doc) not in is_mail]
    chosen = rng.sample(long := [mark for mark in marks if len(mark.words) >= 4], len(long) // 2)
    by_mail, by_text = chosen[: min(len(mails), len(chosen) // 2)], chosen[len(chosen) // 2 :]
    for i, mark in enumerate(by_text):
        host = rng.choice([doc for doc in rng.sample(texts, 2) if doc.mark is not mark])
        host.text, host.is_host = insert(host.text, quote(mark, TEXT_KINDS[i % len(TEXT_KINDS)], rng), rng), True
    quotes = [(MAIL_KINDS[i % len(MAIL_KINDS)], mark) for i, mark in enumerate(by_mail)]
    for suffix, size in ((".mbox", 12), (".eml", 1)):
        mine = [(kind, mark) for kind, mark in quotes if kind.startswith(suffix[1:])]
        for i in range(0, len(mine), size):
            hosts = [mails.pop() for _ in mine[i : i + size]]
            builder.write_mails(suffix, hosts, [quote(mark, kind, rng) for kind, mark in mine[i : i + size]])
    rest = [doc for doc in docs if id(doc) not in is_mail] + mails
    for doc in rng.sample(rest, min(400, len(rest) // 8)):
        if doc.suffix == ".py":
            lines = builder.boilerplate("licence in comments", LICENCE).split("\n")
            doc.text, doc.is_host = "".join(f"# {line}\n" for line in lines) + "\n" + doc.text, True
        elif not doc.is_html():
            doc.text, doc.is_host = builder.boilerplate("licence", LICENCE) + "\n\n" + doc.text, True
    decompose([doc for doc in rest if not doc.is_host], rng)
    pools: dict[str, list[Doc]] = defaultdict(list)
    for doc in rest:
        role = rng.choices([*ROLES], [*ROLES.values()])[0]
        if doc.is_html() or len(doc.text) > 300_000:
            role = rng.choice(("plain", "packed"))
        pools[role].append(doc)
        if len(pools[role]) >= BATCH.get(role, 1):
            builder.write(role, pools.pop(role))
    for role, pool in pools.items():
        builder.write(role, pool)
    free = [
        doc for doc in texts if doc.path and doc.mark and not doc.mark.planted and not doc.is_host and doc.path.name.endswith(doc.suffix)
    ]
    for i, doc in enumerate(rng.sample(free, len(free) // 4)):
        builder.copy(doc, COPIES[i % (len(COPIES) - (doc.mark.form != "composed"))])
    break_things(builder)
    return {
        "seed": seed,
        "written": builder.written,
        "files": builder.number,
        "broken": builder.broken,
        "boiler": {kind: mark.words for kind, mark in builder.boiler.items()},
        "marks": [asdict(mark) for mark in marks],
    }


def decompose(docs: list[Doc], rng: random.Random) -> None:
    """Three in ten of the Swedish texts get their letters in two parts."""
    for doc in docs:
        if doc.mark and doc.mark.form == "composed" and not doc.mark.planted and doc.swedish and not doc.is_html() and rng.random() < 0.3:
            doc.text, doc.mark.form = unicodedata.normalize("NFD", doc.text), "decomposed"


# --------------------------------------------------------------------------------------------------------------------------- breaking


def break_things(builder: Builder) -> None:
    """Files that cannot be read whole, each to be named as skipped, beside the good ones."""
    rng, pack = builder.rng, builder.packers
    text = "".join(f"Line {i} of a file that is broken on purpose, number {rng.random()}.\n" for i in range(20_000)).encode()
    rows, noise = [Doc("row", ".txt", line, False) for line in text.decode().splitlines()[:200]], rng.randbytes(40_000)
    archive = zipped({"a.txt": text[:5_000]}, zipfile.ZIP_STORED)
    bomb = b"\0" * 300_000_000
    broken: dict[str, bytes] = {
        **{f"cut{suffix}": (data := pack[suffix](text))[: len(data) // 2] for suffix in pack},
        "cut.zip": (data := zipped({"a.txt": text}))[: len(data) // 2],
        "wrong-crc.zip": archive.replace(b"Line 7 ", b"Line 8 "),
        "cut.parquet": (data := as_rows(rows, "parquet", rng)[0])[: len(data) // 2],
        "empty.txt": b"",
        "white.txt": b" \n\t\r\n" * 500,
        "picture.png": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + noise[:9_000],
        "photo.jpg": b"\xff\xd8\xff\xe0\0\x10JFIF\0" + noise[:9_000],
        "program": b"\x7fELF\2\1\1" + bytes(9) + noise[:9_000],
        "paper.pdf": b"%PDF-1.5\n%\xbf\xf7\xa2\xfe\n1 0 obj\n<< /Filter /FlateDecode >>\nstream\n"
        + noise[:9_000]
        + b"\nendstream\n%%EOF\n",
        **{f"noise{suffix}": noise for suffix in (".txt", ".gz", ".docx", ".epub", ".parquet")},
        "no-column.csv": b"id,body\n1,some words\n2,more words\n",
        "bomb.zip": zipped({"zeros.txt": bomb}),
        "bomb.txt.gz": pack[".gz"](b"bombs " * 50_000_000),
        "outside.zip": zipped({"../../evil.txt": b"evil\n" * 100, "/tmp/evil.txt": b"evil\n" * 99}),
        "outside.epub": as_epub([Doc("good", ".txt", "A chapter that may be read.", False)], "../../../../../../etc/passwd"),
    }
    for name, data in broken.items():
        builder.broken[f"broken/{name}"] = "cannot be read whole"
        path = builder.folder / "broken" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    lines = [
        b'{"text": "A good row among the bad."}',
        b'{"text": "cut',
        b"no json",
        b"[1, 2]",
        b'{"text": 3}',
        b"7",
    ]
    (path.parent / "lines.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    builder.written["rows without text"] += len(lines) - 1
    if hasattr(os, "mkfifo"):
        os.mkfifo(path.parent / "pipe.txt")
        (path.parent / "dangling.txt").symlink_to("nowhere.txt")
        (path.parent / "forbidden.txt").write_bytes(text[:2_000])
        (path.parent / "forbidden.txt").chmod(0)
        builder.broken |= {f"broken/{name}": "cannot be opened" for name in ("pipe.txt", "dangling.txt", "forbidden.txt")}


def make(folder: Path, megabytes: float, seed: int, cache: Path) -> dict:
    """FOLDER/corpus and FOLDER/truth.json, which is also returned. Raises FileExistsError where there already is a corpus."""
    (folder / "corpus").mkdir(parents=True)
    files, missing = find_sources(cache)
    docs = choose(files, int(0.95e6 * megabytes), random.Random(seed))  # quotes, copies and boiler-plate are the rest
    truth = build(folder / "corpus", docs, seed)
    truth["packages_missing"] = missing
    (folder / "truth.json").write_text(json.dumps(truth, indent=1), encoding="utf-8")
    return truth


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--megabytes", type=float, default=300, help="of text, as UTF-8")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir(), "mixed-packages"), help="where packages are unpacked")
    args = parser.parse_args()
    truth = make(args.folder, args.megabytes, args.seed, args.cache)
    kinds = Counter(mark["planted"] for mark in truth["marks"] if mark["planted"])
    print(f"{truth['files']:,} files, {truth['written']['bytes']:,} bytes of text, {len(truth['marks']):,} marked paragraphs")
    print(", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())))
    if truth["packages_missing"]:
        print("packages not to be had:", *truth["packages_missing"])


if __name__ == "__main__":
    main()
