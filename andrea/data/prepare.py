"""Documents -> units -> duplicates dropped -> split -> tokenizer -> token files and a report, in memory that does not grow with the text.

One separator opens every unit of either stream; where a unit is cut between the two, each part has its own.
"""

import json
import secrets
import shutil
import tempfile
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from andrea.config import DataConfig, to_dict
from andrea.data.shards import ShardWriter, Tokens
from andrea.data.split import Units, shuffled, split_hash, split_tail, survey
from andrea.data.text import Corpus
from andrea.data.tokenizer import Tokenizer, byte_tokenizer, char_tokenizer, load_tokenizer, train_bpe

FORMAT_VERSION = 1
SAMPLE = 16_000_000  # bytes of training text that a BPE learns from


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


def prepare(config: DataConfig, vocab_size: int, out: Path) -> Prepared:
    """Prepare the text into the folder `out`, which must be new or empty and appears only when it is complete.

    vocab_size is a wish: `bpe` gives less where the text is too small, `char` and `byte` have their own; the report holds both.
    """
    steps = prepare_steps(config, vocab_size, out)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def prepare_steps(config: DataConfig, vocab_size: int, out: Path) -> Generator[str, None, Prepared]:
    """`prepare`, one line of progress at a time; the generator's return value is the result."""
    out = Path(out).resolve()
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"{out} exists and is not an empty folder; give a new one, or remove it")
    corpus = Corpus(config.paths)
    sizes, doubles = survey(corpus)
    units = split_tail(sizes, config.val_fraction) if config.split == "tail" or len(sizes) == 1 else split_hash(sizes, config)
    yield f"{plural(corpus.report['files'], 'file')}, {corpus.bytes:,} bytes, {plural(len(sizes), 'distinct unit')}"
    tokenizer = learn(config, vocab_size, units, corpus)
    short = (
        f": the text is too small for the {vocab_size:,} asked for" if tokenizer.kind == "bpe" and tokenizer.vocab_size < vocab_size else ""
    )
    yield f"{tokenizer.kind} tokenizer of {tokenizer.vocab_size:,} ids{short}"
    folder = out.parent / f".{out.name}.{secrets.token_hex(4)}.part"
    folder.mkdir(parents=True)
    try:
        tokenizer.save(folder / "tokenizer.json")
        splits = yield from write(units.parts(corpus), tokenizer, folder)
        hashes = [sha256((folder / "tokenizer.json").read_bytes()).hexdigest(), *(split.pop("sha256") for split in splits.values())]
        report = {
            "format_version": FORMAT_VERSION,
            "vocab_size": tokenizer.vocab_size,
            "vocab_size_requested": vocab_size,
            "tokenizer": tokenizer.kind,
            **splits,
            "duplicates": doubles,
            **corpus.report,
            "corpus_sha256": sha256(b"".join(sizes)).hexdigest(),
            "fingerprint": sha256("".join(hashes).encode()).hexdigest(),
            "config": to_dict(config),
        }
        (folder / "data.json").write_text(json.dumps(report, indent=1), encoding="utf-8")
        if out.exists():
            out.rmdir()
        folder.rename(out)
    except BaseException:
        shutil.rmtree(folder)
        raise
    return open_prepared(out)


def plural(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'s' * (n != 1)}"


def open_prepared(folder: Path) -> Prepared:
    """What `prepare` wrote. Raises FileNotFoundError where there is none, ValueError where it is damaged or newer."""
    path = Path(folder) / "data.json"
    if not path.is_file():
        raise FileNotFoundError(f"{folder} is not a prepared folder: it has no data.json")
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
        report["format_version"], report["train"]["tokens"], report["val"]["tokens"], report["fingerprint"]
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{path} is not a report that `andrea data` wrote") from None
    if report["format_version"] != FORMAT_VERSION:
        raise ValueError(f"{path} has format_version {report['format_version']}; this version of ANDREA reads {FORMAT_VERSION}")
    train, val = (Tokens(sorted(path.parent.glob(f"{split}-*.tok"))) for split in ("train", "val"))
    for split, tokens in (("train", train), ("val", val)):
        if len(tokens) != report[split]["tokens"]:
            raise ValueError(f"{folder} is damaged: {split} has {len(tokens)} tokens of {report[split]['tokens']}; prepare the data again")
    return Prepared(path.parent, load_tokenizer(path.parent / "tokenizer.json"), train, val, report)


def is_prepared(folder: Path) -> bool:
    """Whether a folder looks like one that `prepare` made, and not like somebody's text."""
    return (folder / "data.json").is_file() and (folder / "tokenizer.json").is_file()


def check_prepared(prepared: Prepared) -> None:
    """Read every token again. Raises ValueError unless they and the tokenizer are those that the fingerprint was taken of."""
    hashes = [sha256((prepared.folder / "tokenizer.json").read_bytes()).hexdigest(), prepared.train.sha256(), prepared.val.sha256()]
    if sha256("".join(hashes).encode()).hexdigest() != prepared.fingerprint:
        raise ValueError(f"{prepared.folder} is not what was prepared: its tokens have changed; prepare the text again")


def learn(config: DataConfig, vocab_size: int, units: Units, corpus: Corpus) -> Tokenizer:
    """The tokenizer; a BPE learns from training text alone, of which a keyed hash chooses up to SAMPLE bytes."""
    if config.tokenizer == "byte":
        return byte_tokenizer()
    if config.tokenizer == "char":
        return char_tokenizer(text for _, _, text in units.parts(corpus))
    room, chosen = SAMPLE, {}
    for unit in reversed(shuffled(units.sizes, config.seed)):  # from the end: the hash split took from the beginning
        if unit not in units.val and room:
            chosen[unit] = min(room, units.sizes[unit])
            room -= chosen[unit]
    training = ((unit, text) for unit, split, text in units.parts(corpus) if split == "train" and unit in chosen)
    return train_bpe((text.encode()[: chosen[unit]].decode("utf-8", "ignore") for unit, text in training), vocab_size)


def write(parts: Iterator[tuple[bytes, str, str]], tokenizer: Tokenizer, folder: Path) -> Generator[str, None, dict[str, dict[str, Any]]]:
    """Encode into train-*.tok and val-*.tok; returns tokens, bytes, units and sha256 of each. Raises ValueError if a split stays empty."""
    V = tokenizer.vocab_size
    found: dict[str, dict[str, Any]] = {split: {"tokens": 0, "bytes": 0, "units": 0} for split in ("train", "val")}
    done, said = 0, 0
    with ShardWriter(folder, "train", V) as train, ShardWriter(folder, "val", V) as val:
        for _, split, text in parts:
            if not text:
                continue
            writer, size = train if split == "train" else val, len(text.encode())
            write_unit(writer, tokenizer, text)
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


def write_unit(writer: ShardWriter, tokenizer: Tokenizer, text: str) -> None:
    writer.write(np.array([tokenizer.separator]))
    writer.write(tokenizer.encode_array(text))


@contextmanager
def encoded(paths: Sequence[str], tokenizer: Tokenizer) -> Iterator[Tokens]:
    """Any text as one sequence of tokens, undivided and with its duplicates, from temporary files that go when the block ends."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        with ShardWriter(Path(folder), "text", tokenizer.vocab_size) as writer:
            for text in Corpus(paths).units():
                write_unit(writer, tokenizer, text)
        yield Tokens(sorted(Path(folder).glob("text-*.tok")))
