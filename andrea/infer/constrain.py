"""What an answer may say: one of some texts, what a regular expression matches, or JSON of a schema.

A rule follows one answer and names the ids that may come next. It works on bytes: any way of cutting an allowed text into tokens is
allowed.
"""

from collections.abc import Sequence
from functools import cached_property, partial
from typing import Any, Protocol

import numpy as np

from andrea.data.tokenizer import SEPARATOR, Tokenizer
from andrea.files import shown
from andrea.infer.sample import Sampling

WANTED = {
    "regex": "wanted an expression that the whole answer matches, as '[0-9]{4}', without look-around, \\b and back-references",
    "json_schema": """wanted a JSON schema, as '{"type": "object", "properties": {"age": {"type": "integer"}}}'""",
}


class Rule(Protocol):
    def allowed(self) -> np.ndarray:
        """The ids that may come next; never empty."""

    def advance(self, id: int) -> bool:
        """Take note of the id that came; whether the answer is whole, so that nothing can follow."""


class Choices:
    """Exactly one of some texts. Where one begins another, the separator chooses the shorter."""

    def __init__(self, choices: Sequence[str], tokenizer: Tokenizer, id_of: dict[bytes, int]):
        self.left = [choice.encode() for choice in dict.fromkeys(choices)]  # what each that is still possible has to come
        self.tokenizer, self.id_of = tokenizer, id_of

    def allowed(self) -> np.ndarray:
        beginnings = {text[:n] for text in self.left for n in range(1, len(text) + 1)}
        ids = sorted(self.id_of[piece] for piece in beginnings if piece in self.id_of)
        return np.array(ids + [self.tokenizer.separator] * (b"" in self.left))

    def advance(self, id: int) -> bool:
        piece = self.tokenizer.token_bytes(id)
        self.left = [text[len(piece) :] for text in self.left if text.startswith(piece)]
        return id == self.tokenizer.separator or self.left == [b""]


class Grammar:
    """A regular expression or a schema, through llguidance (github.com/guidance-ai/llguidance), which parses along with the answer."""

    def __init__(self, matcher: Any, vocab_size: int):
        self.matcher, self.vocab_size = matcher, vocab_size

    def allowed(self) -> np.ndarray:
        bits = np.frombuffer(self.matcher.compute_bitmask(), np.uint8)
        if self.matcher.is_error():
            raise ValueError(f"no token can go on as the rule asks: {self.matcher.get_error().splitlines()[0]}")
        return np.flatnonzero(np.unpackbits(bits, bitorder="little")[: self.vocab_size])

    def advance(self, id: int) -> bool:
        if not self.matcher.consume_token(id):  # at its own limits it gives up on a rule
            raise ValueError(f"the rule cannot be followed any further: {self.matcher.get_error().splitlines()[0]}")
        return self.matcher.is_stopped()


class Rules:
    """Makes the rules of one tokenizer; what they share is made once, when it is first needed."""

    def __init__(self, tokenizer: Tokenizer):
        self.tokenizer = tokenizer

    @cached_property
    def id_of(self) -> dict[bytes, int]:
        return {piece: id for id, piece in enumerate(self.tokenizer.pieces[:-1])}

    @cached_property
    def guided(self) -> Any:
        """The tokenizer as llguidance knows it."""
        from llguidance import LLTokenizer, TokenizerWrapper

        return LLTokenizer(TokenizerWrapper(Guided(self.tokenizer)), n_vocab=self.tokenizer.vocab_size)

    def rule(self, sampling: Sampling, limit: int) -> Rule | None:
        """A new rule for one answer of at most `limit` tokens. Raises ValueError for one that cannot be followed."""
        if sampling.choices:
            for choice in sampling.choices:
                self.tokenizer.encode(choice)  # says which character is unknown
            longest = max(len(choice.encode()) for choice in sampling.choices) + 1
            if limit < longest:
                raise ValueError(
                    f"the longest of the choices may take {longest} tokens, one for each byte and one to end, and max_tokens and the "
                    f"context leave room for {limit}; raise max_tokens, or shorten the prompt or the choices"
                )
            return Choices(sampling.choices, self.tokenizer, self.id_of)
        if sampling.regex is None and sampling.json_schema is None:
            return None
        try:
            from llguidance import LLMatcher
        except ImportError:
            raise ValueError("a regular expression or a schema needs the package llguidance: pip install 'andrea[grammar]'") from None
        compact = partial(LLMatcher.grammar_from_json_schema, defaults={"whitespace_flexible": False})  # or blanks without end fit, too
        kind, make = ("json_schema", compact) if sampling.regex is None else ("regex", LLMatcher.grammar_from_regex)
        given = sampling.json_schema if sampling.regex is None else sampling.regex
        assert isinstance(given, str)
        try:
            grammar = make(given)
            matcher = LLMatcher(self.guided, grammar, log_level=0)
            problem = matcher.get_error()
        except ValueError as error:
            problem = str(error)
        if problem:
            # what is wrong stands between two copies of the expression
            why = problem.rpartition("error: ")[2].rpartition("(in regex): ")[2].splitlines()[0]
            raise ValueError(f"{kind}={shown(given)} cannot be followed: {why}; {WANTED[kind]}")
        return Grammar(matcher, self.tokenizer.vocab_size)


class Guided:
    """The names under which llguidance asks for a tokenizer."""

    def __init__(self, tokenizer: Tokenizer):
        self.tokens = [*tokenizer.pieces[:-1], SEPARATOR.encode()]
        self.eos_token_id, self.bos_token_id, self.special_token_ids = tokenizer.separator, None, [tokenizer.separator]
        self.encode = tokenizer.encode

    def __call__(self, text: bytes | str) -> list[int]:
        return self.encode(text.decode() if isinstance(text, bytes) else text)
