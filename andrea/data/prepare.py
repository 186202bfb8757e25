"""Text -> units -> duplicates left out -> split -> tokenizer -> token files and a report, in memory that does not grow with the text.

One separator opens every unit of either stream; where a unit is cut between the two, each part has its own.
"""

import shutil
import tempfile
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from andrea.config import DataConfig, to_dict
from andrea.data.duplicates import Removed, distinct, overlap, without_near
from andrea.data.formats import sources
from andrea.data.shards import ShardWriter, Tokens
from andrea.data.split import Split, shuffled, split_hash, split_tail
from andrea.data.spool import Spool, Units
from andrea.data.tokenizer import Tokenizer, byte_tokenizer, char_tokenizer, check_vocab_size, load_tokenizer, train_bpe
from andrea.files import Damaged, field, hold, named, read_json, write_json
from andrea.machine import cores

FORMAT_VERSION = 1
SAMPLE = 16_000_000  # bytes of training text that a BPE learns from
MOST = 256 << 20  # bytes of a data.json, which names every file that was skipped
BATCH = 1 << 20  # bytes of text that a thread encodes at a time


@dataclass(frozen=True)
class Prepared:
    """A prepared folder; `report` is its data.json."""

    folder: Path
    tokenizer: Tokenizer
    train: Tokens
    val: Tokens
    report: dict[str, Any]

    @property
    def bytes_per_token(self) -> float:
        """Of the training split, UTF-8 bytes of text per token, separators counted as tokens."""
        return self.report["train"]["bytes"] / self.report["train"]["tokens"]

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the tokenizer and of both splits' tokens: equal exactly where training sees the same."""
        return self.report["fingerprint"]


def prepare(config: DataConfig, vocab_size: int, out: Path, workers: int | None = None) -> Prepared:
    """Prepare the text into the folder `out`, which must be new or empty and appears only when it is complete.

    vocab_size is a wish: `bpe` gives less where the text is too small, `char` and `byte` have their own; the report holds both.
    workers are the threads that encode (None: one for each core); the files are the same for any number.
    """
    steps = prepare_steps(config, vocab_size, out, workers)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def prepare_steps(config: DataConfig, vocab_size: int, out: Path, workers: int | None = None) -> Generator[str, None, Prepared]:
    """`prepare`, one line of progress at a time; the generator's return value is the result."""
    out = Path(out).resolve()
    if workers is not None and workers < 1:
        raise ValueError(f"workers={workers} must be at least 1")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"{out} exists and is not an empty folder; give a new one, or remove it")
    sources(config)  # what cannot be is told before anything is made
    if config.tokenizer == "bpe":
        check_vocab_size(vocab_size)
    with workshop(out) as folder:
        spool = Spool(folder, config)
        yield from spool.fill()
        told = f"{plural(spool.files, 'file')}, {plural(len(spool.documents), 'document')}"
        yield f"{told if config.corpus == 'library' else f'{spool.files:,} stories'}, {spool.bytes:,} bytes"
        units = spool.units()
        with Removed(folder / "duplicates.jsonl") as removed:
            keep = distinct(units, spool, removed, config.dedup != "off")
            if config.dedup == "near":
                yield "looking for near-duplicates"
                units, keep = without_near(units, keep, spool, removed)
        yield f"{plural(len(keep), 'unit')}{'' if config.dedup == 'off' else ', no two alike'}"
        split = split_tail(units, keep, config.val_fraction) if config.split == "tail" else split_hash(units, keep, config)
        tokenizer = learn(config, vocab_size, units, split)
        small = tokenizer.kind == "bpe" and tokenizer.vocab_size < vocab_size
        too_small = f": the text is too small for the {vocab_size:,} asked for" if small else ""
        yield f"{tokenizer.kind} tokenizer of {tokenizer.vocab_size:,} ids{too_small}"
        tokenizer.save(folder / "tokenizer.json")
        found = yield from write(split.parts(units), tokenizer, folder, workers or cores())
        yield "comparing validation with training"
        shared = overlap(split.part(units, "val"), split.part(units, "train"), found["val"]["bytes"])
        hashes = [sha256((folder / "tokenizer.json").read_bytes()).hexdigest(), *(part.pop("sha256") for part in found.values())]
        report = {
            "format_version": FORMAT_VERSION,
            "vocab_size": tokenizer.vocab_size,
            "vocab_size_requested": vocab_size,
            "tokenizer": tokenizer.kind,
            **found,
            "duplicates": {"mode": config.dedup, **removed.counts},
            "overlap": {"units": common(units, split), "thirteen_grams": shared},
            **spool.report(),
            "corpus_sha256": sha256(np.stack([units.rows[name][keep] for name in ("hash", "check")], 1).tobytes()).hexdigest(),
            "fingerprint": sha256("".join(hashes).encode()).hexdigest(),
            "config": to_dict(config),
        }
        write_json(folder / "data.json", report)
        finish(folder, out)
    return open_prepared(out)


@contextmanager
def workshop(out: Path) -> Iterator[Path]:
    """A folder beside `out` to work in, which goes when the block ends. What a killed preparation left there is removed first.

    Raises ValueError where another process is at work in it.
    """
    folder = out.parent / f".{out.name}.part"
    folder.mkdir(parents=True, exist_ok=True)
    with named(folder / "lock"):
        (folder / "lock").touch()
    held = hold(folder / "lock")
    if held is None:
        raise ValueError(f"{out} is being prepared by another process; wait for it, or give another folder")
    try:
        with held, named(folder):
            for old in folder.iterdir():
                if old.is_dir():
                    shutil.rmtree(old)
                elif old.name != "lock":
                    old.unlink()
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def finish(folder: Path, out: Path) -> None:
    """Move what is complete to its own place, in one step."""
    done = folder / "done"
    done.mkdir()
    for file in folder.iterdir():
        if file.suffix in (".tok", ".json", ".jsonl"):
            file.replace(done / file.name)
    if out.exists():
        out.rmdir()
    done.rename(out)


def common(units: Units, split: Split) -> int:
    """Distinct units that stand in training and in validation."""
    hashes = units.rows["hash"][split.keep]
    return len(np.intersect1d(hashes[~split.val], hashes[split.val]))


def plural(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'s' * (n != 1)}"


def open_prepared(folder: Path) -> Prepared:
    """What `prepare` wrote. Raises FileNotFoundError where there is none, ValueError where it is damaged or newer."""
    path = Path(folder) / "data.json"
    if not path.is_file():
        raise FileNotFoundError(f"{folder} is not a prepared folder: it has no data.json")
    report = read_json(path, MOST)
    if (version := field(report, "format_version", int, path)) != FORMAT_VERSION:
        raise ValueError(f"{path} has format_version {version}; this version of ANDREA reads {FORMAT_VERSION}")
    field(report, "fingerprint", str, path)
    field(report, "config", dict, path)
    splits = {}
    for split in ("train", "val"):
        told = field(report, split, dict, path)
        tokens = Tokens(sorted(path.parent.glob(f"{split}-*.tok")))
        field(told, "bytes", int, path)
        if len(tokens) != field(told, "tokens", int, path):
            raise Damaged(f"{folder} is damaged: {split} has {len(tokens)} tokens of {told['tokens']}; prepare the data again")
        splits[split] = tokens
    return Prepared(path.parent, load_tokenizer(path.parent / "tokenizer.json"), **splits, report=report)


def is_prepared(folder: Path) -> bool:
    """Whether a folder looks like one that `prepare` made, and not like somebody's text."""
    return (folder / "data.json").is_file() and (folder / "tokenizer.json").is_file()


def check_prepared(prepared: Prepared) -> None:
    """Read every token again. Raises ValueError unless they and the tokenizer are those that the fingerprint was taken of."""
    hashes = [sha256((prepared.folder / "tokenizer.json").read_bytes()).hexdigest(), prepared.train.sha256(), prepared.val.sha256()]
    if sha256("".join(hashes).encode()).hexdigest() != prepared.fingerprint:
        raise Damaged(f"{prepared.folder} is not what was prepared: its tokens have changed; prepare the text again")


def learn(config: DataConfig, vocab_size: int, units: Units, split: Split) -> Tokenizer:
    """The tokenizer; a BPE learns from training text alone, of which a keyed hash chooses up to SAMPLE bytes."""
    if config.tokenizer == "byte":
        return byte_tokenizer()
    if config.tokenizer == "char":
        return char_tokenizer(text for _, _, text in split.parts(units))
    rows, room, chosen = units.rows[split.keep], SAMPLE, {}
    for place in shuffled(rows, config.seed)[::-1].tolist():  # from the end: the hash split took from the beginning
        if not room:
            break
        if not split.val[place]:
            chosen[place] = min(room, split.at if place == split.cut else int(rows["bytes"][place]))
            room -= chosen[place]
    places = sorted(chosen)
    texts = units.read(split.keep[places])
    return train_bpe(
        (text.encode()[: chosen[place]].decode("utf-8", "ignore") for place, text in zip(places, texts, strict=True)), vocab_size
    )


def write(
    parts: Iterator[tuple[int, str, str]], tokenizer: Tokenizer, folder: Path, workers: int
) -> Generator[str, None, dict[str, dict[str, Any]]]:
    """Encode into train-*.tok and val-*.tok; returns tokens, bytes, units and sha256 of each. Raises ValueError if a split stays empty."""
    V = tokenizer.vocab_size
    found: dict[str, dict[str, Any]] = {split: {"tokens": 0, "bytes": 0, "units": 0} for split in ("train", "val")}
    done, said = 0, 0
    with ShardWriter(folder, "train", V) as train, ShardWriter(folder, "val", V) as val:
        for split, size, ids in encode(((split, text) for _, split, text in parts if text), tokenizer, workers):
            write_unit(train if split == "train" else val, ids, tokenizer.separator)
            found[split]["bytes"] += size
            found[split]["units"] += 1
            done += size
            if done - said >= SAMPLE:
                said = done
                yield f"{done:,} bytes encoded"
        for split, writer in (("train", train), ("val", val)):
            found[split] |= {"tokens": writer.count, "sha256": writer.digest.hexdigest()}
            if not writer.count:
                raise ValueError(f"{done} bytes of text are too few to be divided: {split} would be empty; give more")
    return found


def encode(texts: Iterable[tuple[str, str]], tokenizer: Tokenizer, workers: int) -> Iterator[tuple[str, int, np.ndarray]]:
    """(name, bytes, ids) of (name, text), in order. The encoders leave Python's lock, so that threads are enough."""

    def of(batch: list[tuple[str, str]]) -> list[tuple[str, int, np.ndarray]]:
        return [(name, len(text.encode()), tokenizer.encode_array(text)) for name, text in batch]

    waiting: deque[Future] = deque()
    with ThreadPoolExecutor(workers) as pool:
        for batch in batches(texts):
            waiting.append(pool.submit(of, batch))
            if len(waiting) > workers:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()


def batches(texts: Iterable[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    held: list[tuple[str, str]] = []
    size = 0
    for name, text in texts:
        held.append((name, text))
        size += len(text)
        if size >= BATCH:
            yield held
            held, size = [], 0
    if held:
        yield held


def write_unit(writer: ShardWriter, ids: np.ndarray, separator: int) -> None:
    writer.write(np.array([separator]))
    writer.write(ids)


@contextmanager
def encoded(config: DataConfig, tokenizer: Tokenizer) -> Iterator[Tokens]:
    """The text of config as one sequence of tokens, undivided and with its duplicates, from temporary files that go when the block ends."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        spool = Spool(folder, config)
        for _ in spool.fill():
            pass
        units = spool.units()
        with ShardWriter(folder, "text", tokenizer.vocab_size) as writer:
            for _, _, ids in encode((("text", text) for text in units.read(np.arange(len(units)))), tokenizer, cores()):
                write_unit(writer, ids, tokenizer.separator)
        yield Tokens(sorted(folder.glob("text-*.tok")))
