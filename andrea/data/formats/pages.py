"""Pages, books and Word documents: what a reader would see."""

import re
import zipfile
from collections.abc import Iterator
from functools import partial
from html.parser import HTMLParser
from posixpath import dirname, join, normpath
from typing import BinaryIO
from urllib.parse import unquote
from xml.etree import ElementTree

from andrea.data.formats.packed import Budget, measured, seekable
from andrea.data.formats.reading import Reading, Rows
from andrea.data.text import MARKS, NotText, read_whole

STEP = 65_536  # characters of a page
END = 4_096  # characters of a tag that the end of a page may leave open


class Page(HTMLParser):
    """Collects what a browser would show, a line or a blank line between blocks, a tab between cells."""

    HIDDEN = frozenset({"script", "style", "template", "noscript", "title", "svg"})
    APART = re.compile(
        "p|div|h[1-6]|ul|ol|dl|table|pre|blockquote|section|article|header|footer|nav|aside|main|figure|figcaption|form|fieldset|address"
        "|details|summary|hr"
    )
    BELOW = re.compile("li|dt|dd|tr|option|caption")

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

    def unknown_decl(self, data: str) -> None:
        if data.startswith("CDATA["):
            self.handle_data(data.removeprefix("CDATA["))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if not self.hidden:
            self.part(tag)  # <div/> of XHTML opens nothing

    def part(self, tag: str) -> None:
        if self.APART.fullmatch(tag):
            self.breaks = max(self.breaks, 2)
        elif tag == "br":
            self.breaks += 1
        elif self.BELOW.fullmatch(tag):
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
    page, start, step = Page(), 0, STEP
    while start < len(markup):
        page.feed(markup[start : start + step])
        start += step
        step = max(STEP, len(page.rawdata))  # a tag that is still open is looked at again: the longer it is, the fewer times
    if len(page.rawdata) > END:
        raise NotText("it is damaged: a tag or a comment has no end")  # html.parser would look for one from every < on
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
    """Paragraphs, table cells and notes of a Word document, a blank line after each paragraph."""
    with zipfile.ZipFile(seekable(stream)) as document:
        budget = Budget.of(sum(entry.compress_size for entry in document.infolist()))
        for name in ("word/document.xml", "word/footnotes.xml", "word/endnotes.xml"):
            if name == "word/document.xml" or name in document.namelist():
                yield 0, "".join(word_text(xml(entry_bytes(document, name, budget)), "\n\n"))


WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"


def word_text(node: ElementTree.Element, end: str) -> Iterator[str]:
    """The text below a node; `end` comes after a paragraph, or a line end where it stands in a table."""
    if node.tag == WORD + "t":
        yield node.text or ""
    elif node.tag in (WORD + "tab", WORD + "br", WORD + "cr"):
        yield "\t" if node.tag == WORD + "tab" else "\n"
    elif node.tag == WORD + "noBreakHyphen":
        yield "-"
    elif not node.tag.endswith(("}Fallback", "}pPr")):  # the same once more for older programs; tab stops, which are no text
        for child in node:
            yield from word_text(child, "\n" if node.tag == WORD + "tc" else end)
        if node.tag == WORD + "p":
            yield end
