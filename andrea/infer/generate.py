"""Text from a prompt, token by token: generate() yields what was sampled, complete() waits and collects it.

All rows of one call have the same prompt, so that they always have the same length and share every pass of the model.
"""

import secrets
import warnings
from codecs import getincrementaldecoder
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from andrea.data.tokenizer import Tokenizer
from andrea.evaluate import evaluating
from andrea.infer.cache import new_cache
from andrea.infer.sample import Sampling, penalise, probabilities, sample
from andrea.model import Transformer

Finish = Literal["stop", "length"]


class Speaker(Protocol):
    """What generate() needs of a run."""

    @property
    def model(self) -> Transformer: ...
    @property
    def tokenizer(self) -> Tokenizer: ...


@dataclass(frozen=True)
class Token:
    """One sampled token. The last of its row, and no other, has `finish`: "stop" (separator or stop string) or "length"."""

    row: int
    id: int
    text: str  # what has become certain with this token: whole characters, no beginning of a stop string; may be empty
    logprob: float  # nats: the log-softmax of the model's own logits, before penalty, temperature and limits
    finish: Finish | None


@dataclass(frozen=True)
class Completion:
    """One whole answer. `ids` has every sampled token, also a final separator and those of a stop string, which `text` has not."""

    text: str
    ids: tuple[int, ...]
    logprobs: tuple[float, ...]  # nats, one per id
    finish: Finish


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


class Reader:
    """Next-token logits for rows of equal length, through a cache, also past the context.

    A learned position ends with the context, and a cached key carries its position, so that a cache cannot be shifted: when one token
    more than the context is to be read, only the newest half stays, read anew from position 0. That costs one pass every context / 2
    tokens. Without `cached` every call reads its whole window; the windows, and so the logits, are the same.
    """

    def __init__(self, model: Transformer, room: int, cached: bool):
        self.model, self.modules, self.start = model, list(model.modules()), 0
        self.cache = new_cache(model, 1, min(room, model.config.context)) if cached else None

    def read(self, rows: Sequence[list[int]]) -> Tensor:
        """Logits (B, V) of what follows each row of ids; between calls a row only grows at its end."""
        context, length = self.model.config.context, len(rows[0])
        if length - self.start > context:
            self.start = length - kept(context)
            for layer in self.cache or ():
                layer.reset()
        done = self.start + (self.cache[0].length if self.cache else 0)
        ids = torch.tensor([row[done:] for row in rows], device=self.model.token_embed.weight.device)
        with torch.inference_mode(), evaluating(self.modules):
            return self.model(ids, cache=self.cache)[:, -1]

    def select(self, rows: Sequence[int]) -> None:
        """Go on with these rows only; a row named twice is copied."""
        for layer in self.cache or ():
            layer.select(rows)


def kept(context: int) -> int:
    """Tokens that stay of a window longer than the context."""
    return max(1, context // 2)


def prompt_ids(tokenizer: Tokenizer, prompt: str | Sequence[int]) -> list[int]:
    """The ids the model reads first. Text is opened by the separator, as every document was in training; ids are taken as they are.

    An empty prompt is the separator alone. Raises ValueError for an id that the tokenizer does not have.
    """
    ids = [tokenizer.separator, *tokenizer.encode(prompt)] if isinstance(prompt, str) else [int(i) for i in prompt]
    for i in ids:
        if not 0 <= i < tokenizer.vocab_size:
            raise ValueError(f"the prompt holds the id {i}; this tokenizer has 0 to {tokenizer.vocab_size - 1}")
    return ids or [tokenizer.separator]


def generate(
    run: Speaker, prompt: str | Sequence[int], sampling: Sampling = Sampling(), n: int = 1, use_cache: bool = True, **options: Any
) -> Iterator[Token]:
    """Yield the tokens of n answers as they are sampled, in rounds: one token of every row that still runs, lowest row first.

    The answer ends with the separator (not part of its text), a stop string, or max_tokens; with max_tokens=0 nothing is yielded.
    Rows are independent: row i draws with seed + i, and is what it would be alone. The penalty's scope is prompt and answer, without
    the separator, so that it does not keep answers from ending. Ids that the tokenizer lacks (a padded vocabulary) are never sampled.

    A prompt longer than the context keeps its newest half-context, with a warning that says what was dropped; with
    past_context="stop" it is refused, and an answer ends ("length") when the context is full.

    `options` are fields of Sampling, to change single ones: generate(run, "Once", temperature=0).

    Raises ValueError at the call for n < 1, a prompt that cannot be read and a tokenizer of another model; while running for nan logits.
    """
    model, tokenizer, context = run.model, run.tokenizer, run.model.config.context
    sampling = replace(sampling, **options)
    if n < 1:
        raise ValueError(f"n={n} answers were asked for; wanted at least 1")
    if tokenizer.vocab_size > model.config.vocab_size:
        raise ValueError(f"the tokenizer has {tokenizer.vocab_size} ids, the model {model.config.vocab_size}: they do not belong together")
    ids, limit = prompt_ids(tokenizer, prompt), sampling.max_tokens
    if sampling.past_context == "stop":
        if len(ids) > context:
            raise ValueError(
                f"the prompt has {len(ids)} tokens and the context holds {context}; "
                "shorten it, or let past_context='recompute' drop its oldest"
            )
        limit = min(limit, context - len(ids) + 1)  # the last position still predicts a token, which need not be read
    elif len(ids) > context:
        left = kept(context)
        warnings.warn(
            f"the prompt has {len(ids)} tokens and the context holds {context}: "
            f"its oldest {len(ids) - left} were dropped, its newest {left} kept",
            stacklevel=2,
        )
    return answers(run, ids, sampling, n, limit=limit, cached=use_cache)


def answers(run: Speaker, prompt: list[int], sampling: Sampling, n: int, *, limit: int, cached: bool) -> Iterator[Token]:
    """The tokens that generate() promises, once everything is known to be in order."""
    if not limit:
        return
    tokenizer, separator = run.tokenizer, run.tokenizer.separator
    seed = secrets.randbits(62) if sampling.seed is None else sampling.seed
    before = b"".join(map(tokenizer.token_bytes, prompt))
    generators = [torch.Generator().manual_seed(seed + i) for i in range(n)]
    streams = [TextStream(sampling.stop, before) for _ in range(n)]
    rows = {i: list(prompt) for i in range(n)}  # those still running

    reader = Reader(run.model, len(prompt) + limit - 1, cached)
    logits = reader.read([prompt]).expand(n, -1)  # one pass whatever n is
    reader.select([0] * n)
    for left in reversed(range(limit)):
        running = list(rows)
        for i, (id, logprob) in zip(running, choose(logits, rows, sampling, tokenizer, generators), strict=True):
            rows[i].append(id)
            ended = id == separator and not sampling.ignore_separator
            text, stopped = streams[i].feed(tokenizer.token_bytes(id), last=ended or not left)
            finish: Finish | None = "stop" if ended or stopped else None if left else "length"
            if finish:
                del rows[i]
            yield Token(i, id, text, logprob, finish)
        if not rows:
            return
        if len(rows) < len(running):
            reader.select([at for at, i in enumerate(running) if i in rows])
        logits = reader.read(list(rows.values()))


def choose(
    logits: Tensor, rows: dict[int, list[int]], sampling: Sampling, tokenizer: Tokenizer, generators: Sequence[torch.Generator]
) -> list[tuple[int, float]]:
    """The id that each row draws from logits (B, V), and its log-probability in nats.

    On the CPU whatever the model's device: there a seed always means the same numbers, and float64 exists.
    """
    logits = logits[:, : tokenizer.vocab_size].cpu().double()
    s, scores = sampling, logits
    if s.repetition_penalty != 1:
        scores = penalise(logits, torch.tensor(list(rows.values())), s.repetition_penalty)
        scores[:, tokenizer.separator] = logits[:, tokenizer.separator]
    p = probabilities(scores, s.temperature, s.top_k, s.top_p, s.min_p)
    ids = sample(p, [generators[i] for i in rows])
    logprobs = logits.log_softmax(-1).gather(-1, ids[:, None])[:, 0]
    return list(zip(ids.tolist(), logprobs.tolist(), strict=True))


def complete(run: Speaker, prompt: str | Sequence[int], sampling: Sampling = Sampling(), n: int = 1) -> list[Completion]:
    """The n answers that generate() yields, whole."""
    return collect(generate(run, prompt, sampling, n), n)


def collect(tokens: Iterable[Token], n: int) -> list[Completion]:
    """One Completion per row of all that generate() yields. Without tokens, as with max_tokens=0, it is empty, with finish "length"."""
    rows: list[list[Token]] = [[] for _ in range(n)]
    for token in tokens:
        rows[token.row].append(token)
    finishes: list[Finish] = [(row[-1].finish if row else None) or "length" for row in rows]
    return [
        Completion("".join(t.text for t in row), tuple(t.id for t in row), tuple(t.logprob for t in row), finish)
        for row, finish in zip(rows, finishes, strict=True)
    ]
