"""The two ends of an answer as text: ids of a prompt, and characters from the bytes of tokens."""

from codecs import getincrementaldecoder
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from andrea.data.tokenizer import Tokenizer

Finish = Literal["stop", "length", "cancelled", "error"]


@dataclass(frozen=True)
class Token:
    """One sampled token. The last of its answer has `finish`, and no other has: "stop" (separator, stop string or rule) or "length"."""

    row: int
    id: int
    text: str  # what has become certain with this token: whole characters, no beginning of a stop string; may be empty
    logprob: float  # nats: the log-softmax of the model's own logits, before rule, penalty, temperature and limits
    finish: Finish | None
    top: tuple[tuple[int, float], ...] = ()  # the likeliest (id, logprob), as many as Sampling.logprobs asks for


def prompt_ids(tokenizer: Tokenizer, prompt: str | Sequence[int]) -> list[int]:
    """The ids the model reads first. Text is opened by the separator, as every document was in training; ids are taken as they are.

    An empty prompt is the separator alone. Raises ValueError for an id that the tokenizer does not have.
    """
    ids = [tokenizer.separator, *tokenizer.encode(prompt)] if isinstance(prompt, str) else [int(i) for i in prompt]
    for i in ids:
        if not 0 <= i < tokenizer.vocab_size:
            raise ValueError(f"the prompt holds the id {i}; this tokenizer has 0 to {tokenizer.vocab_size - 1}")
    return ids or [tokenizer.separator]


class TextStream:
    """Text from the bytes of tokens, as far as it can no longer change.

    Bytes that do not yet make a character wait, as does text that may be the beginning of a stop string. `before` is the prompt's bytes:
    a character it left incomplete is completed here. Bytes that never make a character become U+FFFD.
    """

    def __init__(self, stop: tuple[str, ...] = (), before: bytes = b""):
        self.decoder = getincrementaldecoder("utf-8")("replace")
        self.decoder.decode(before)
        self.stop, self.held = stop, ""

    def feed(self, piece: bytes, last: bool = False) -> tuple[str, bool]:
        """The text that became certain, and whether it ends before a stop string; `last` lets go of all that waits.

        Of several stop strings the one that is complete first counts, and the longest of those: so it does not matter
        how the text was cut into tokens.
        """
        held = self.held + self.decoder.decode(piece, last)
        found = min(((at + len(s), at) for s in self.stop if (at := held.find(s)) >= 0), default=None)
        if found:
            return held[: found[1]], True
        sizes = (n for s in self.stop for n in range(1, len(s)) if held.endswith(s[:n]))
        certain = len(held) - (0 if last else max(sizes, default=0))
        self.held = held[certain:]
        return held[:certain], False
