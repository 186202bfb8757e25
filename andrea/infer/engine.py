"""Many answers at once: they join and leave between any two steps, and each is what it would be alone.

Sequence is one answer on its way. Scheduler knows who stands in which slot of the decoder and what can be used again. Engine.step reads
one chunk of a prompt, at most, and gives every running answer its next token.

Prompts are read in chunks whose borders are counted from position 0, and what is used again of another prompt ends at such a border, or
is that whole prompt. So the same ids are always read by the same calls, and an answer's bits are the same whatever ran before or beside it
(where the decoder is batch_invariant). One thread at a time may use an engine.
"""

import secrets
from collections import Counter, deque
from collections.abc import Sequence as Row
from dataclasses import dataclass, field

import numpy as np
import torch

from andrea.data.tokenizer import Tokenizer
from andrea.infer.constrain import Rule, Rules
from andrea.infer.decoder import Decoder
from andrea.infer.lookup import Lookup
from andrea.infer.sample import Sampling, choose
from andrea.infer.text import Finish, TextStream, Token, prompt_ids


class Full(ValueError):
    """All slots are taken and as many wait as may."""


@dataclass(eq=False)
class Sequence:
    """One answer: its prompt, what it has said, and how it ended."""

    ids: list[int]  # prompt and answer
    row: int  # which of a request's answers
    sampling: Sampling
    limit: int  # tokens at most
    generator: torch.Generator
    stream: TextStream
    rule: Rule | None
    lookup: Lookup | None
    start: int = 0  # where in ids the window begins that the model sees
    slot: int = -1  # none
    read: int = 0  # ids of the window that the slot holds, until all are there
    tokens: list[Token] = field(default_factory=list)
    told: int = 0  # tokens of earlier steps
    finish: Finish | None = None
    error: ValueError | None = None  # of finish "error"

    @property
    def news(self) -> list[Token]:
        """What the last step added."""
        return self.tokens[self.told :]

    @property
    def window(self) -> list[int]:
        """The ids that the model sees."""
        return self.ids[self.start :]

    @property
    def length(self) -> int:
        return len(self.ids) - self.start


@dataclass
class Slot:
    ids: list[int] = field(default_factory=list)  # read here in chunks from position 0, by whom ever
    logits: np.ndarray | None = None  # after the last of ids, where a prompt ended there
    holder: Sequence | None = None
    used: int = 0  # the slot with the least goes first


class Scheduler:
    """Who waits, who is being read, who runs, and in which slot."""

    def __init__(self, slots: int, chunk: int, waiting: int):
        self.slots, self.chunk, self.most = [Slot() for _ in range(slots)], chunk, slots + waiting
        self.waiting: deque[Sequence] = deque()
        self.reading: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self.clock = 0

    def __len__(self) -> int:
        return len(self.waiting) + len(self.reading) + len(self.running)

    def enqueue(self, sequences: list[Sequence]) -> None:
        if len(self) + len(sequences) > self.most:
            raise Full(
                f"{len(sequences)} more answers do not fit: {len(self)} are asked for, in {len(self.slots)} slots, of {self.most} at most; "
                "ask again when some have ended"
            )
        self.waiting.extend(sequences)

    def admit(self) -> tuple[int, int, int] | None:
        """Give the next that waits the slot unused for longest. (donor, slot, ids the donor has of it); None: nobody can begin."""
        free = [i for i, slot in enumerate(self.slots) if slot.holder is None]
        if not free or not self.waiting:
            return None
        sequence = self.waiting.popleft()
        lengths = [self.shared(slot, sequence.window) for slot in self.slots]
        donor = max(range(len(lengths)), key=lambda i: lengths[i])
        sequence.slot = target = min(free, key=lambda i: self.slots[i].used)
        self.clock += 1
        old, new = self.slots[donor], Slot(sequence.window[: lengths[donor]], None, sequence, self.clock)
        if new.ids:
            old.used = self.clock
            new.logits = old.logits if new.ids == old.ids else None
        self.slots[target], sequence.read = new, len(new.ids)
        self.reading.append(sequence)
        return donor, target, len(new.ids)

    def shared(self, slot: Slot, ids: list[int]) -> int:
        """How many of a slot's ids a prompt can use again: whole chunks, with one id left to read, or the very same prompt."""
        if slot.logits is not None and slot.ids == ids:
            return len(ids)
        n = 0
        while n + self.chunk <= min(len(slot.ids), len(ids) - 1) and slot.ids[n : n + self.chunk] == ids[n : n + self.chunk]:
            n += self.chunk
        return n

    def reread(self, sequence: Sequence) -> None:
        """Its window begins elsewhere, so nothing in its slot holds any more."""
        self.running.remove(sequence)
        self.reading.append(sequence)
        slot, sequence.read = self.slots[sequence.slot], 0
        slot.ids, slot.logits = [], None

    def leave(self, sequence: Sequence) -> None:
        """Free what it held; what was read stays in the slot for others."""
        for place in (self.waiting, self.reading, self.running):
            if sequence in place:
                place.remove(sequence)
        if sequence.slot >= 0:
            self.slots[sequence.slot].holder, sequence.slot = None, -1


class Engine:
    """Answers requests with one decoder. Memory is bounded: the decoder's slots, and `waiting` requests beside them."""

    def __init__(self, decoder: Decoder, tokenizer: Tokenizer, waiting: int = 64, chunk: int = 128):
        if tokenizer.vocab_size > decoder.config.vocab_size:
            raise ValueError(
                f"the tokenizer has {tokenizer.vocab_size} ids, the model {decoder.config.vocab_size}: they do not belong together"
            )
        if chunk < 1 or waiting < 0:
            raise ValueError(f"chunk={chunk}, waiting={waiting}: wanted at least 1 id of a prompt at a time and 0 requests that wait")
        self.decoder, self.tokenizer, self.context, self.chunk = decoder, tokenizer, decoder.config.context, chunk
        self.scheduler, self.rules = Scheduler(decoder.slots, chunk, waiting), Rules(tokenizer)
        self.moved: dict[Sequence, None] = {}  # by the last step, in this order
        self.finished: Counter[Finish] = Counter()
        self.ids_read = self.ids_reused = 0  # of prompts
        self.guessed = self.held = 0  # ids, and those of them that were right

    def add(self, prompt: str | Row[int], sampling: Sampling, n: int = 1) -> list[Sequence]:
        """n answers to a prompt, which begin when slots are free; row i draws with seed + i.

        Raises Full where they do not fit, and ValueError for n < 1, a prompt that cannot be read and a rule that cannot be followed.
        """
        if n < 1:
            raise ValueError(f"n={n} answers were asked for; wanted at least 1")
        ids, limit, start = prompt_ids(self.tokenizer, prompt), sampling.max_tokens, 0
        if sampling.past_context == "stop":
            if len(ids) > self.context:
                raise ValueError(
                    f"the prompt has {len(ids)} tokens and the context holds {self.context}; "
                    "shorten it, or let past_context='recompute' drop its oldest"
                )
            limit = min(limit, self.context - len(ids) + 1)  # the last position still predicts a token, which need not be read
        elif len(ids) > self.context:
            start = len(ids) - kept(self.context)
        seed = secrets.randbits(62) if sampling.seed is None else sampling.seed
        before = b"".join(map(self.tokenizer.token_bytes, ids))
        sequences = [
            Sequence(
                list(ids),
                row,
                sampling,
                limit,
                torch.Generator().manual_seed(seed + row),
                TextStream(sampling.stop, before),
                self.rules.rule(sampling, limit),
                Lookup() if sampling.lookup else None,
                start,
            )
            for row in range(n)
        ]
        self.scheduler.enqueue(sequences if limit else [])
        for sequence in sequences if not limit else []:
            self.end(sequence, "length")
        return sequences

    def cancel(self, sequence: Sequence) -> None:
        """End an answer now; its slot is free for the next step. One that has ended stays as it is."""
        if sequence.finish is None:
            self.end(sequence, "cancelled")

    def step(self) -> list[Sequence]:
        """Give every running answer a token (or more where guesses held), and read a chunk of those that begin. Who got `news` or ended."""
        for sequence in self.moved:
            sequence.told = len(sequence.tokens)
        self.moved = {}
        self.decode()
        self.read()
        return list(self.moved)

    def decode(self) -> None:
        for s in list(self.scheduler.running):
            self.slide(s)
        running = list(self.scheduler.running)
        if not running:
            return
        rows = [[s.ids[-1], *self.guess(s)] for s in running]
        slots = [s.slot for s, row in zip(running, rows, strict=True) for _ in row]
        positions = [s.length - 1 + i for s, row in zip(running, rows, strict=True) for i in range(len(row))]
        logits = iter(self.decoder.step(slots, [id for row in rows for id in row], positions))
        for s, row in zip(running, rows, strict=True):
            right = True  # so far, what was read is what was said
            for guess, found in zip([*row[1:], None], [next(logits) for _ in row], strict=True):
                if right and s.finish is None:
                    self.take(s, found)
                    right = s.ids[-1] == guess
                    self.held += right

    def guess(self, s: Sequence) -> list[int]:
        """Ids that may come next, as many as asked for and as there is room for."""
        if s.lookup is None:
            return []
        room = min(s.sampling.lookup, s.limit - len(s.tokens) - 1, self.context - s.length)
        guesses = s.lookup.guess(s.ids, room)
        self.guessed += len(guesses)
        return guesses

    def read(self) -> None:
        """Read on in prompts, up to a chunk of ids in all."""
        scheduler, left = self.scheduler, self.chunk
        while scheduler.reading or self.admit():
            s = scheduler.reading[0]
            window, slot = s.window, scheduler.slots[s.slot]
            stop = min((s.read // self.chunk + 1) * self.chunk, len(window))  # whatever was read before, chunks have the same borders
            if (piece := stop - s.read) > left:
                return
            if piece:
                slot.logits = self.decoder.extend(s.slot, window[s.read : stop], s.read)
                slot.ids, s.read = window[:stop], stop
                self.ids_read += piece
                left -= piece
            if stop == len(window):
                assert slot.logits is not None
                scheduler.running.append(scheduler.reading.popleft())
                self.take(s, slot.logits)

    def admit(self) -> bool:
        """Let the next that waits begin, with what a slot already has of its prompt."""
        if (admitted := self.scheduler.admit()) is None:
            return False
        donor, slot, length = admitted
        if length and donor != slot:
            self.decoder.copy(donor, slot, length)
        self.ids_reused += length
        return True

    def slide(self, s: Sequence) -> None:
        """Where one token more than the context is to be read, only the newest half stays, read anew from position 0.

        A learned position ends with the context, and a cached key carries its position, so that what is cached cannot be shifted.
        """
        if s.length > self.context:
            s.start = len(s.ids) - kept(self.context)
            self.scheduler.reread(s)

    def take(self, s: Sequence, logits: np.ndarray) -> None:
        """Draw the next token of an answer, and end the answer where it ends."""
        tokenizer = self.tokenizer
        self.moved[s] = None
        try:
            allowed = s.rule.allowed() if s.rule else None
            choice = choose(logits[: tokenizer.vocab_size], s.sampling, s.generator, s.ids, tokenizer.separator, allowed)
            whole = s.rule is not None and s.rule.advance(choice.id)
        except ValueError as error:
            s.error = error
            self.end(s, "error")
            return
        s.ids.append(choice.id)
        ended = whole or (choice.id == tokenizer.separator and not s.sampling.ignore_separator)
        spent = len(s.tokens) + 1 == s.limit
        text, stopped = s.stream.feed(tokenizer.token_bytes(choice.id), last=ended or spent)
        finish: Finish | None = "stop" if ended or stopped else "length" if spent else None
        s.tokens.append(Token(s.row, choice.id, text, choice.logprob, finish, choice.top))
        if finish:
            self.end(s, finish)

    def end(self, sequence: Sequence, finish: Finish) -> None:
        sequence.finish = finish
        self.finished[finish] += 1
        self.scheduler.leave(sequence)


def kept(context: int) -> int:
    """Tokens that stay of a window longer than the context."""
    return max(1, context // 2)
