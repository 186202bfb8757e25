"""Formats -> documents. A reader is a function (stream, reading) -> (row, block of text) pairs: a new row number begins a new document.

.jsonl .ndjson  .csv .tsv  .parquet .arrow .feather     the field of each row
.html .htm .xhtml  .epub  .docx                         what a reader would see
.mbox .eml                                              plain text, without what it quotes and without signatures
.bin                                                    token files of nanoGPT and llm.c, as text again
.gz .bz2 .xz .lzma .zst  .zip .tar .tgz                 what is in them; nothing is unpacked to the disk under its own name
anything else                                           text, if its bytes are
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from io import BytesIO
from itertools import groupby
from typing import BinaryIO

from andrea.config import LANGUAGES, STORIES, DataConfig
from andrea.data.formats.mail import eml, mbox
from andrea.data.formats.packed import members, unpacked
from andrea.data.formats.pages import docx, epub, html
from andrea.data.formats.reading import Reading, Rows, why_not
from andrea.data.formats.rows import arrow, hub_rows, json_lines, parquet, separated
from andrea.data.formats.tokens import token_file
from andrea.data.stories import story
from andrea.data.text import NotText, Source, find


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


def sources(config: DataConfig) -> Iterable[Source]:
    """What a config names: its paths, or where there are none a built-in corpus, of which each story is a source of its own."""
    if config.corpus == "library" or config.paths:
        return find(config.paths)
    language = config.language or LANGUAGES[0]
    return (story_source(config.seed, index, language) for index in range(config.stories or STORIES))


def story_source(seed: int, index: int, language: str) -> Source:
    return Source(f"stories/{language}/{index}", lambda: BytesIO(f"{story(seed, index, language).text}\n".encode()))


def texts(config: DataConfig) -> Iterator[tuple[str, str]]:
    """(name, text) of every document, one at a time; sources without text are passed over."""
    for source in (inner for given in sources(config) for inner in members(given)):
        try:
            for row, pairs in groupby(documents(source, Reading(config)), key=lambda pair: pair[0]):
                yield source.name + (f"#{row}" if row else ""), "".join(block for _, block in pairs)
        except NotText:
            continue


def plain(stream: BinaryIO, reading: Reading) -> Rows:
    for block in reading.text(stream):
        yield 0, block


READERS: dict[str, Callable[[BinaryIO, Reading], Rows]] = {
    ".jsonl": json_lines,
    ".ndjson": json_lines,
    ".csv": partial(separated, delimiters=",;\t"),
    ".tsv": partial(separated, delimiters="\t"),
    ".parquet": parquet,
    ".arrow": arrow,
    ".feather": arrow,
    ".html": html,
    ".htm": html,
    ".xhtml": html,
    ".epub": epub,
    ".docx": docx,
    ".mbox": mbox,
    ".eml": eml,
    ".bin": token_file,
}
