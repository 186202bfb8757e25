"""Text from prompts, through an engine: generate() yields tokens as they are sampled, complete() waits for all, answer() takes a batch."""

import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from andrea.data.tokenizer import Tokenizer
from andrea.infer import engine
from andrea.infer.decoder import Decoder, TorchDecoder
from andrea.infer.engine import Engine
from andrea.infer.sample import Sampling
from andrea.infer.text import Finish, Token
from andrea.model import Transformer

SLOTS = 16  # answers at a time where nobody says


class Speaker(Protocol):
    """What generate() needs of a run."""

    @property
    def model(self) -> Transformer: ...
    @property
    def tokenizer(self) -> Tokenizer: ...


@dataclass(frozen=True)
class Completion:
    """One whole answer. `ids` has every sampled token, also a final separator and those of a stop string, which `text` has not."""

    text: str
    ids: tuple[int, ...]
    logprobs: tuple[float, ...]  # nats, one per id
    finish: Finish
    tops: tuple[tuple[tuple[int, float], ...], ...] = ()  # the likeliest (id, logprob) at each place, as many as were asked for


def generate(
    run: Speaker,
    prompt: str | Sequence[int],
    sampling: Sampling = Sampling(),
    n: int = 1,
    decoder: Decoder | None = None,
    **options: Any,
) -> Iterator[Token]:
    """Yield the tokens of n answers as they are sampled: rows that run at the same time get one each in turn.

    The answer ends with the separator (not part of its text), a stop string, or max_tokens; with max_tokens=0 nothing is yielded.
    Rows are independent: row i draws with seed + i, and is what it would be alone. The penalty's scope is prompt and answer, without
    the separator, so that it does not keep answers from ending. Ids that the tokenizer lacks (a padded vocabulary) are never sampled.

    A prompt longer than the context keeps its newest half-context, with a warning that says what was dropped; with
    past_context="stop" it is refused, and an answer ends ("length") when the context is full.

    `options` are fields of Sampling, to change single ones: generate(run, "Once", temperature=0). `decoder` is what computes; without
    one it is the model itself, hooks and all; infer/cpu.py's decoder_for() gives the fastest.

    Raises ValueError at the call for n < 1, a prompt that cannot be read, a rule that cannot be followed and a tokenizer of another model;
    while running for nan logits.
    """
    speaker = Engine(decoder or TorchDecoder(run.model, min(max(n, 1), SLOTS)), run.tokenizer, waiting=max(n, 1))
    ask(speaker, prompt, replace(sampling, **options), n)
    return tokens(speaker)


def ask(speaker: Engine, prompt: str | Sequence[int], sampling: Sampling, n: int = 1) -> list[engine.Sequence]:
    """Engine.add, with a warning that says what of a prompt longer than the context was dropped."""
    sequences = speaker.add(prompt, sampling, n)
    if dropped := sequences[0].start:
        length = len(sequences[0].ids)
        warnings.warn(
            f"the prompt has {length} tokens and the context holds {speaker.context}: "
            f"its oldest {dropped} were dropped, its newest {length - dropped} kept",
            stacklevel=3,
        )
    return sequences


def tokens(speaker: Engine) -> Iterator[Token]:
    """What an engine says until all its answers have ended."""
    while len(speaker.scheduler):
        for sequence in speaker.step():
            yield from sequence.news
            if sequence.error:
                raise sequence.error


def complete(
    run: Speaker, prompt: str | Sequence[int], sampling: Sampling = Sampling(), n: int = 1, decoder: Decoder | None = None
) -> list[Completion]:
    """The n answers that generate() yields, whole."""
    return collect(generate(run, prompt, sampling, n, decoder), n)


def collect(tokens: Iterable[Token], n: int) -> list[Completion]:
    """One Completion per row of all that generate() yields. Without tokens, as with max_tokens=0, it is empty, with finish "length"."""
    rows: list[list[Token]] = [[] for _ in range(n)]
    for token in tokens:
        rows[token.row].append(token)
    return [completion(row, (row[-1].finish if row else None) or "length") for row in rows]


def completion(tokens: Sequence[Token], finish: Finish) -> Completion:
    text = "".join(t.text for t in tokens)
    return Completion(text, tuple(t.id for t in tokens), tuple(t.logprob for t in tokens), finish, tuple(t.top for t in tokens))


def answer(
    speaker: Engine, requests: Iterable[tuple[str | Sequence[int], Sampling]], n: int = 1, named: bool = True
) -> Iterator[Completion | None]:
    """n answers to each prompt, one after another in the order of the prompts; row i draws with seed + i.

    No more are on their way than the engine takes, however many are asked for: one that ends early waits for those before it. None after
    every step, so that whoever listens can leave between two. Raises ValueError for n < 1 and for what cannot be answered, `named` with
    the number of the prompt, counted from 1.
    """
    if n < 1:
        raise ValueError(f"n={n} answers were asked for; wanted at least 1")
    rows = ((f"prompt {number}: " * named, row, *request) for number, request in enumerate(requests, 1) for row in range(n))
    asked, most = deque[tuple[str, engine.Sequence]](), speaker.scheduler.most
    left = next(rows, None)
    while left or asked:
        while left and max(len(asked), len(speaker.scheduler)) < most:
            where, row, prompt, sampling = left
            add = speaker.add if row else partial(ask, speaker)  # what is dropped of a prompt is said once
            with naming(where):
                if row and sampling.seed is not None:
                    sampling = replace(sampling, seed=sampling.seed + row)
                asked += [(where, sequence) for sequence in add(prompt, sampling)]
            left = next(rows, None)
        speaker.step()
        yield None
        while asked and asked[0][1].finish:
            where, sequence = asked.popleft()
            if sequence.error:
                with naming(where):
                    raise sequence.error
            yield completion(sequence.tokens, sequence.finish or "length")


@contextmanager
def naming(where: str) -> Iterator[None]:
    """A ValueError from inside tells where it was."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{where}{error}") from None
