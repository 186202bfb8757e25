"""Token files of nanoGPT and llm.c, as text again."""

import codecs
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from andrea.data.formats.reading import Reading, Rows
from andrea.data.text import BLOCK, NotText
from andrea.data.tokenizer import BYTES, load_tokenizer

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
