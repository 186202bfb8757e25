"""What every reader is given, and how it says that a file or a row holds no text."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO, NoReturn

from andrea.config import DataConfig
from andrea.data.text import NotText, Tally, decode, text_blocks

USUAL = ("us-ascii", "ascii", "iso-8859-1", "latin-1", "latin1", "windows-1252", "cp1252")
WIDER = {"gb2312": "gb18030", "gbk": "gb18030", "shift_jis": "cp932", "euc-kr": "cp949"}  # as browsers read them: encoding.spec.whatwg.org
NO_TEXT = ("idna", "punycode", "unicode_escape", "raw_unicode_escape")  # which Python counts as encodings of text
Rows = Iterator[tuple[int, str]]  # a block of text with its row; a new row number begins a new document


def is_utf8(data: bytes) -> bool:
    """Whether bytes say themselves that they are UTF-8, by characters beyond ASCII."""
    try:
        return not data.isascii() and bool(data.decode())
    except UnicodeDecodeError:
        return False


@dataclass
class Reading:
    """One source being read: how, and what was found so far."""

    config: DataConfig
    tally: Tally = field(default_factory=Tally)

    def text(self, stream: BinaryIO) -> Iterator[str]:
        return text_blocks(stream, self.config.encoding, self.tally)

    def decode(self, data: bytes, declared: str = "") -> str:
        """Text of bytes that name their own encoding; what names UTF-8 or a western one is often wrong, and looked at instead."""
        declared = declared.lower()
        if not (declared.startswith("utf") or declared in (*USUAL, *NO_TEXT) or is_utf8(data)):
            try:
                text = data.decode(WIDER.get(declared, declared))
                self.tally.encodings[declared] += 1
                return text
            except UnicodeDecodeError as error:
                raise NotText(f"it is not the {declared} that it says it is: {error.reason}") from None
            except (LookupError, ValueError):  # no encoding that is known
                pass
        return decode(data, self.config.encoding, self.tally)

    def value(self, row: Any) -> str | None:
        """The text in a row's field, or None, counted."""
        value = row.get(self.config.field) if isinstance(row, dict) else None
        if not isinstance(value, str):
            self.tally.rows_skipped[f"no text in {self.config.field!r}"] += 1
            return None
        return value


def why_not(error: Exception) -> NotText:
    """The reason why a source is not used. Zip, XML, mail and column files fail in as many ways as they can be damaged."""
    if isinstance(error, NotText):
        return error
    said = getattr(error, "strerror", None)
    return NotText(said or f"it is damaged: {str(error) or type(error).__name__}")


def missing(package: str, what: str, extra: str = "formats") -> NoReturn:
    raise NotText(f"{what} need the package {package}: pip install 'andrea[{extra}]'")
