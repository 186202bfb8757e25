"""Text <-> token ids. The last id is the separator: it is only ever placed by id, and no text encodes to it.

bpe   byte-level byte-pair encoding: ids 0-255 are the bytes, then one id per merge. Trained with `tokenizers`, encoded with `tiktoken`
char  the distinct characters of a text, sorted
byte  the 256 bytes

tokenizer.json is a file of the `tokenizers` library, which reads it to the same ids; our own mark is model.andrea. The separator is in
its vocabulary but not among its special tokens, so there too no text becomes one.
"""

import json
import re
from collections.abc import Iterable, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import tiktoken
import tokenizers

from andrea.files import Damaged, field, read_json, replace_text, shown

FORMAT_VERSION = 1
MOST = 256 << 20  # bytes of a tokenizer.json: one of five million ids
SEPARATOR = "<|endoftext|>"  # its name in the file
UNKNOWN = "\ufffd".encode()  # what an id outside the vocabulary decodes to
# GPT-2's pieces (Radford et al. 2019, section 2.2); the possessive forms match the same and never go back.
PIECES = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
SPACES = r"\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"  # \s as PIECES means it; Python's has four more
BORDER = re.compile(f"(?<=[^{SPACES}])(?=[{SPACES}])|(?<=[{SPACES}])(?=[{SPACES}][^{SPACES}])")  # PIECES always parts a text here
STRETCH = 100_000  # characters; tiktoken dies of a run of white space of between 200,000 and 1,000,000


def byte_letters() -> list[str]:
    """The printable character that stands for each byte in tokenizer.json: GPT-2's, itself or the next from U+0100 on."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


LETTERS = byte_letters()
BYTES = {letter: bytes([byte]) for byte, letter in enumerate(LETTERS)}


class Tokenizer:
    """What the three kinds share. `pieces` are the bytes of each id but the separator."""

    kind: str

    def __init__(self, pieces: Iterable[bytes]):
        self.pieces = [*pieces, b""]
        self.vocab_size = len(self.pieces)
        self.separator = self.vocab_size - 1
        self.merges: list[tuple[bytes, bytes]] = []

    def encode(self, text: str) -> list[int]:
        """Never the separator. Raises ValueError for text that is not Unicode (half a surrogate pair), or holds an unknown character."""
        return self.encode_array(text).tolist()

    def encode_array(self, text: str) -> np.ndarray:
        """`encode` as uint32."""
        raise NotImplementedError

    def encode_batch(self, texts: Iterable[str]) -> list[np.ndarray]:
        return [self.encode_array(text) for text in texts]

    def decode(self, ids: Iterable[int]) -> str:
        """The ids' bytes as UTF-8; what is not UTF-8, and an id outside the vocabulary, gives U+FFFD; the separator gives nothing."""
        return b"".join(map(self.token_bytes, ids)).decode("utf-8", "replace")

    def token_bytes(self, id: int) -> bytes:
        return self.pieces[id] if 0 <= id < self.vocab_size else UNKNOWN

    def spell(self, piece: bytes) -> str:
        """The name of a piece in tokenizer.json."""
        return "".join(LETTERS[byte] for byte in piece)

    def to_json(self) -> dict[str, Any]:
        """tokenizer.json's content."""
        names = [*map(self.spell, self.pieces[:-1]), SEPARATOR]
        model = {
            "type": "BPE",
            "andrea": {"format_version": FORMAT_VERSION, "kind": self.kind},
            "vocab": {name: id for id, name in enumerate(names)},
            "merges": [[self.spell(left), self.spell(right)] for left, right in self.merges],
        }
        level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": self.kind == "bpe"}
        around = {"pre_tokenizer": level, "decoder": level} if self.kind != "char" else {"decoder": {"type": "Fuse"}}
        return {"version": "1.0", **around, "model": model}

    def save(self, path: Path) -> None:
        replace_text(path, json.dumps(self.to_json(), ensure_ascii=False))


class BPETokenizer(Tokenizer):
    """`tiktoken` joins the neighbours that make the lowest id, `tokenizers` those of the first merge: the same, as an id has one merge."""

    kind = "bpe"

    def __init__(self, merges: Sequence[tuple[bytes, bytes]]):
        super().__init__(chain((bytes([byte]) for byte in range(256)), (left + right for left, right in merges)))
        self.merges = list(merges)
        ranks = {piece: id for id, piece in enumerate(self.pieces[:-1])}
        if len(ranks) != self.separator:
            raise ValueError("two merges make the same piece, so its id would depend on the way it is reached")
        if any(max(ranks.get(part, id) for part in pair) >= id for id, pair in enumerate(merges, 256)):
            raise ValueError("a merge joins a piece that no merge before it makes")
        self.encoding = tiktoken.Encoding("andrea", pat_str=PIECES, mergeable_ranks=ranks, special_tokens={})

    def encode_array(self, text: str) -> np.ndarray:
        utf8(text)
        ids, start = [], 0
        while start < len(text):
            border = BORDER.search(text, start + STRETCH) if len(text) - start > STRETCH else None
            stop = border.start() if border else len(text)
            ids.append(np.array(self.encoding.encode_ordinary(text[start:stop]), dtype=np.uint32))
            start = stop
        return np.concatenate(ids) if ids else np.empty(0, np.uint32)


class CharTokenizer(Tokenizer):
    kind = "char"

    def __init__(self, characters: Sequence[str]):
        if any(len(character) != 1 for character in characters) or any(a >= b for a, b in pairwise(characters)):
            raise ValueError("the characters are not single ones in ascending order")
        super().__init__(map(utf8, characters))
        self.points = np.array([ord(character) for character in characters], dtype=np.uint32)

    def spell(self, piece: bytes) -> str:
        return piece.decode()

    def encode_array(self, text: str) -> np.ndarray:
        utf8(text)
        points = np.frombuffer(text.encode("utf-32-le"), dtype="<u4")
        ids = np.searchsorted(self.points, points)
        unknown = np.flatnonzero(np.append(self.points, 0x110000)[ids] != points)
        if unknown.size:
            offset, character = int(unknown[0]), text[unknown[0]]
            raise ValueError(
                f"the character {character!r} (U+{ord(character):04X}) at offset {offset} is not among the {len(self.points)} known ones"
            )
        return ids.astype(np.uint32)


class ByteTokenizer(Tokenizer):
    kind = "byte"

    def __init__(self) -> None:
        super().__init__(bytes([byte]) for byte in range(256))

    def encode_array(self, text: str) -> np.ndarray:
        return np.frombuffer(utf8(text), dtype=np.uint8).astype(np.uint32)


def utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        what = f"U+{ord(text[error.start]):04X} at offset {error.start} is half a surrogate pair, not a character"
        raise ValueError(f"{what}; decode the text's bytes with errors='replace'") from None


def check_vocab_size(vocab_size: int) -> None:
    if vocab_size < 257:
        raise ValueError(f"vocab_size={vocab_size} is too small: the 256 bytes and the separator take 257")


def train_bpe(texts: Iterable[str], vocab_size: int) -> Tokenizer:
    """Learn vocab_size - 257 merges, or fewer where no pair of pieces occurs twice any more. Raises ValueError below 257."""
    check_vocab_size(vocab_size)
    learner = tokenizers.Tokenizer(tokenizers.models.BPE())
    learner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=vocab_size - 1, min_frequency=2, initial_alphabet=LETTERS, show_progress=False)
    learner.train_from_iterator(texts, trainer)
    return BPETokenizer([(unspell(left), unspell(right)) for left, right in json.loads(learner.to_str())["model"]["merges"]])


def char_tokenizer(texts: Iterable[str]) -> Tokenizer:
    return CharTokenizer(sorted(set(chain.from_iterable(map(set, texts)))))


def byte_tokenizer() -> Tokenizer:
    return ByteTokenizer()


def unspell(name: str) -> bytes:
    return b"".join(BYTES[letter] for letter in name)


def load_tokenizer(path: Path) -> Tokenizer:
    """Read a tokenizer.json that `save` wrote. Raises ValueError for another's, a newer one, and a damaged one."""
    try:
        stored = read_json(path, MOST)
        model = field(stored, "model", dict, path)
        mark, vocab, merges = field(model, "andrea", dict, path), field(model, "vocab", dict, path), field(model, "merges", list, path)
        version, kind = mark["format_version"], field(mark, "kind", str, path)
    except (ValueError, KeyError) as error:
        raise Damaged(f"{path} is not a tokenizer.json that ANDREA wrote: {error}") from None
    if version != FORMAT_VERSION:
        raise ValueError(f"{path} has format_version {shown(version)}; this version of ANDREA reads {FORMAT_VERSION}")
    build = {
        "bpe": lambda: BPETokenizer([(unspell(left), unspell(right)) for left, right in merges]),
        "char": lambda: CharTokenizer(sorted(vocab, key=vocab.__getitem__)[:-1]),
        "byte": ByteTokenizer,
    }
    try:
        tokenizer = build[kind]()
    except (ValueError, KeyError, TypeError):
        tokenizer = None
    if tokenizer is None or tokenizer.to_json() != stored:
        raise Damaged(f"{path} is damaged: its kind, vocabulary and merges do not agree")
    return tokenizer
