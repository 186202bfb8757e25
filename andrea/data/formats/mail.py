"""Mails and mailboxes: the plain part of each, without what it quotes and without signatures."""

import email
import re
from collections.abc import Iterator
from typing import BinaryIO, cast

from andrea.data.formats.pages import visible
from andrea.data.formats.reading import Reading, Rows
from andrea.data.text import BLOCK, WHOLE, NotText, read_whole

QUOTED = re.compile(r"(?:^[ \t]*>[^\n]*(?:\n|\Z))+", re.M)
WROTE = re.compile(  # the end of what stands before a quotation: one line, or two if the first opens as such lines do
    r"(?:\A|\n)((?:(?:On|Den|Am|Le|El|Il|Op|Em)\b[^\n]*\n?[^\n]*|(?!>)[^\n]*)"
    r"\b(?:wrote|writes|skrev|skriver|schrieb|a écrit|escribió|ha scritto|schreef|escreveu)\b"
    r"[^\n]{0,100}:[ \t]*\r?\n(?:[ \t]*\r?\n)?)\Z"
)
OLD = re.compile(  # all below is a signature, or somebody else's mail
    r"^(?:-- ?\r?$|-{2,} ?(?:Original Message|Ursprungligt meddelande|Ursprüngliche Nachricht|Message d'origine) ?-{2,})", re.M
)
HEADER = 100_000  # characters: email takes the square of it to read the parameters of one


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
    short = [part for part in email.message_from_bytes(data).walk() if max((len(str(v)) for v in part.values()), default=0) <= HEADER]
    parts = [part for part in short if part.get_content_disposition() != "attachment"]
    for kind in ("text/plain", "text/html"):
        bodies = [(cast(bytes, p.get_payload(decode=True)), p.get_content_charset("utf-8")) for p in parts if p.get_content_type() == kind]
        texts = [reading.decode(body, charset) for body, charset in bodies if body]
        own = "\n".join(own_words(visible(text) if kind == "text/html" else text) for text in texts)
        if own.strip() or kind == "text/html":
            return own
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
