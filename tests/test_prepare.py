import json
import os
import random
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from andrea.config import DataConfig
from andrea.data import prepare as preparing
from andrea.data import split, spool, text
from andrea.data.prepare import encoded, open_prepared, prepare, prepare_steps
from andrea.data.spool import UNIT_ROW, Units, digest
from andrea.data.tokenizer import byte_tokenizer, train_bpe


def documents(folder: Path, texts) -> DataConfig:
    folder.mkdir(exist_ok=True)
    for i, content in enumerate(texts):
        (folder / f"{i:05d}.txt").write_text(content, encoding="utf-8", newline="")
    return DataConfig(paths=(str(folder),))


def config(base: DataConfig, **changes) -> DataConfig:
    return DataConfig(**{**base.__dict__, **changes})


def pieces(prepared, name: str) -> list[str]:
    """The units of a stream, parted at the separators."""
    tokens, separator = getattr(prepared, name), prepared.tokenizer.separator
    ids = tokens.read(0, len(tokens)).tolist()
    assert ids[0] == separator
    starts = [i for i, id in enumerate(ids) if id == separator]
    return [prepared.tokenizer.decode(ids[a:b]) for a, b in zip(starts, [*starts[1:], len(ids)], strict=True)]


@pytest.mark.parametrize("kind", ["bpe", "char", "byte"])
def test_three_documents_give_three_separators_and_come_back_in_order(tmp_path, kind):
    texts = ["one <|endoftext|> fish\r\n", "two\n", "red é🎉 fish, blue fish\n"]
    base = documents(tmp_path / "text", texts)
    prepared = prepare(config(base, tokenizer=kind), 300, tmp_path / "out")
    train, val = pieces(prepared, "train"), pieces(prepared, "val")
    assert len(train) + len(val) == 3 and sorted(train + val) == sorted(texts)
    assert train == [t for t in texts if t in train]
    assert prepared.report["train"]["bytes"] == sum(len(t.encode()) for t in train)
    assert prepared.report["train"]["units"] == len(train) and prepared.report["train"]["tokens"] == len(prepared.train)
    assert prepared.bytes_per_token == prepared.report["train"]["bytes"] / len(prepared.train)


@pytest.mark.parametrize("seed", [0, 1, 42])
def test_no_document_is_on_both_sides_whatever_repeats(tmp_path, seed):
    random.seed(seed)
    distinct = [f"document {i} says {random.random()}\n" * random.randint(1, 9) for i in range(1_000)]
    texts = distinct + random.choices(distinct, k=211)
    random.shuffle(texts)
    prepared = prepare(config(documents(tmp_path / "text", texts), seed=seed), 400, tmp_path / "out")
    train, val = pieces(prepared, "train"), pieces(prepared, "val")
    assert not set(train) & set(val) and sorted(train + val) == sorted(distinct)
    assert prepared.report["duplicates"]["units"] == 211
    assert prepared.report["duplicates"]["bytes"] == sum(map(len, texts)) - sum(map(len, distinct))
    share = prepared.report["val"]["bytes"] / sum(map(len, distinct))
    assert 0.1 <= share < 0.11


def test_another_seed_chooses_other_documents_and_the_same_seed_the_same(tmp_path):
    base = documents(tmp_path / "text", [f"{i}: {i**3}\n" for i in range(123)])
    runs = [prepare(config(base, tokenizer="byte", seed=seed), 257, tmp_path / f"out{n}") for n, seed in enumerate([0, 0, 1])]
    assert runs[0].fingerprint == runs[1].fingerprint != runs[2].fingerprint
    assert pieces(runs[0], "val") != pieces(runs[2], "val")
    assert runs[0].report["corpus_sha256"] == runs[2].report["corpus_sha256"]


@pytest.mark.parametrize("n", [10, 123, 70_001, 300_000])
def test_the_tail_split_trains_on_the_first_nine_tenths_of_the_bytes(tmp_path, n):
    random.seed(n)
    content = "".join(random.choices("abcdef \n", k=n))
    base = documents(tmp_path / "text", [content])
    prepared = prepare(config(base, split="tail", tokenizer="char"), 257, tmp_path / "out")
    train, val = "".join(pieces(prepared, "train")), "".join(pieces(prepared, "val"))
    assert train == content[: int(0.9 * n)] and val == content[int(0.9 * n) :]
    units = prepared.report["train"]["units"] + prepared.report["val"]["units"]
    assert len(prepared.train) + len(prepared.val) == n + units


def test_the_tail_split_cuts_the_document_on_the_border_and_opens_its_rest(tmp_path):
    base = documents(tmp_path / "text", ["a" * 50, "b" * 30, "c" * 20])
    prepared = prepare(config(base, split="tail", val_fraction=0.35, tokenizer="byte"), 257, tmp_path / "out")
    assert pieces(prepared, "train") == ["a" * 50, "b" * 15] and pieces(prepared, "val") == ["b" * 15, "c" * 20]


def test_a_cut_inside_a_character_moves_behind_it(tmp_path):
    base = documents(tmp_path / "text", ["🎉" * 3])
    prepared = prepare(config(base, split="tail", val_fraction=0.5, tokenizer="byte"), 257, tmp_path / "out")
    assert pieces(prepared, "train") == ["🎉" * 2] and pieces(prepared, "val") == ["🎉"]


def test_a_single_unit_is_cut_by_position_and_two_give_one_each(tmp_path):
    one = prepare(config(documents(tmp_path / "one", ["x" * 99]), tokenizer="byte"), 257, tmp_path / "out1")
    assert pieces(one, "train") == ["x" * 89] and pieces(one, "val") == ["x" * 10]
    for seed in range(4):
        base = documents(tmp_path / "two", ["long " * 99, "short"])
        two = prepare(config(base, tokenizer="byte", seed=seed), 257, tmp_path / f"out2-{seed}")
        assert pieces(two, "train") == ["long " * 99] and pieces(two, "val") == ["short"]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(1, 9_000_000), min_size=2, max_size=60), st.floats(0.01, 0.5), st.integers(0, 9))
def test_the_hash_split_is_never_empty_nor_above_its_limits(sizes, val_fraction, seed):
    rows = np.array([(0, size, i, *digest(str(i).encode())) for i, size in enumerate(sizes)], UNIT_ROW)
    found = split.split_hash(Units(Path(), rows), np.arange(len(rows)), DataConfig(val_fraction=val_fraction, seed=seed))
    val = int(rows["bytes"][found.val].sum())
    if found.cut is not None:
        val += sizes[found.cut] - found.at
    assert 0 < val < sum(sizes)
    assert val <= 4_000_000 or (min(sizes) > 4_000_000 and val <= val_fraction * sum(sizes) + 1)


def test_text_too_short_to_divide_is_refused_and_leaves_nothing(tmp_path):
    base = documents(tmp_path / "text", ["é"])
    with pytest.raises(ValueError, match="2 bytes of text are too few to be divided: val would be empty"):
        prepare(config(base, tokenizer="byte"), 257, tmp_path / "out")
    assert [p.name for p in tmp_path.iterdir()] == ["text"]


def test_the_tokenizer_learns_from_training_text_alone(tmp_path):
    texts = [f"word{i} word{i} word{i}\n" for i in range(200)]
    prepared = prepare(documents(tmp_path / "text", texts), 2_000, tmp_path / "out")
    assert prepared.tokenizer.merges == train_bpe(pieces(prepared, "train"), 2_000).merges
    assert prepared.tokenizer.merges != train_bpe(texts, 2_000).merges


def test_the_tokenizer_sample_has_a_limit_and_is_cut_there(tmp_path, monkeypatch):
    monkeypatch.setattr(preparing, "SAMPLE", 1_000)
    texts = [f"word{i:03d} é\n" * 20 for i in range(50)]
    seen = []
    monkeypatch.setattr(preparing, "train_bpe", lambda texts, vocab_size: seen.extend(texts) or train_bpe(seen, vocab_size))
    prepared = prepare(documents(tmp_path / "text", texts), 300, tmp_path / "out")
    assert 990 < sum(len(t.encode()) for t in seen) <= 1_000 and len(seen) == 5
    assert all(any(unit.startswith(t) for unit in pieces(prepared, "train")) for t in seen)


def test_a_large_document_is_deduplicated_and_split_by_its_pieces(tmp_path):
    block = "".join(f"line {i}\n" for i in range(8_000))
    prepared = prepare(config(documents(tmp_path / "text", [block * 7]), tokenizer="byte"), 257, tmp_path / "out")
    report = prepared.report
    assert report["train"]["units"] + report["val"]["units"] >= 8 and report["files"] == 1
    assert report["train"]["bytes"] + report["val"]["bytes"] + report["duplicates"]["bytes"] == len(block) * 7
    whole = "".join(pieces(prepared, "train")) + "".join(pieces(prepared, "val"))
    assert len(whole) == report["train"]["bytes"] + report["val"]["bytes"]


def test_the_report_says_what_was_asked_and_what_came_of_it(tmp_path):
    base = documents(tmp_path / "text", ["hello hello\n", "hello there\n", "hello hello\n", ""])
    (tmp_path / "text" / "latin.txt").write_bytes(b"caf\xe9\n")
    prepared = prepare(base, 5_000, tmp_path / "out")
    report = prepared.report
    assert report["vocab_size_requested"] == 5_000 and report["vocab_size"] == prepared.tokenizer.vocab_size < 300
    assert report["files"] == 4 and report["encodings"] == {"utf-8": 3, "cp1252": 1}
    assert report["skipped"] == [{"name": "00003.txt", "reason": "it is empty"}]
    assert report["duplicates"] == {"mode": "exact", "units": 1, "bytes": 12, "paragraphs": 0, "paragraph_bytes": 0}
    assert report["normal_forms"] == {"either": 3, "composed": 1} and report["documents"] == 4
    removed = [json.loads(line) for line in (tmp_path / "out" / "duplicates.jsonl").read_text().splitlines()]
    assert removed == [{"name": "00002.txt", "kind": "unit", "bytes": 12, "text": "hello hello", "same_as": "00000.txt"}]
    assert report["config"]["paths"] == [str(tmp_path / "text")] and report["tokenizer"] == "bpe"
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [
        "data.json",
        "duplicates.jsonl",
        "tokenizer.json",
        "train-00000.tok",
        "val-00000.tok",
    ]


def test_the_fingerprint_is_the_content_and_not_the_place(tmp_path):
    texts = [f"{i} {i * i}\n" for i in range(40)]
    here = prepare(documents(tmp_path / "here", texts), 300, tmp_path / "out1")
    there = prepare(documents(tmp_path / "there", texts), 300, tmp_path / "out2")
    changed = prepare(documents(tmp_path / "changed", [*texts[:-1], "39 1522\n"]), 300, tmp_path / "out3")
    assert here.fingerprint == there.fingerprint != changed.fingerprint
    assert open_prepared(tmp_path / "out1").fingerprint == here.fingerprint
    stored = (tmp_path / "out1" / "tokenizer.json").read_bytes()
    assert stored == (tmp_path / "out2" / "tokenizer.json").read_bytes() and sha256(stored).hexdigest() != here.fingerprint


def test_an_occupied_folder_is_refused_and_an_empty_one_used(tmp_path):
    base = config(documents(tmp_path / "text", ["abc\n" * 9, "xyz\n"]), tokenizer="byte")
    (tmp_path / "out").mkdir()
    prepare(base, 257, tmp_path / "out")
    with pytest.raises(ValueError, match="exists and is not an empty folder"):
        prepare(base, 257, tmp_path / "out")
    with pytest.raises(ValueError, match="exists and is not an empty folder"):
        prepare(base, 257, tmp_path / "text" / "00000.txt")


def test_stopping_half_way_leaves_no_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(preparing, "SAMPLE", 1)
    base = config(documents(tmp_path / "text", ["abc\n" * 9, "xyz\n"]), tokenizer="byte")
    steps = prepare_steps(base, 257, tmp_path / "deep" / "out")
    lines = [next(steps) for _ in range(4)]
    assert lines[:2] == ["2 files, 2 documents, 40 bytes", "2 units, no two alike"] and lines[3] == "36 bytes encoded"
    assert list((tmp_path / "deep").iterdir()) != []
    steps.close()
    assert list((tmp_path / "deep").iterdir()) == []


def test_text_that_changes_once_it_was_read_changes_nothing(tmp_path):
    base = config(documents(tmp_path / "text", ["abc\n" * 9, "xyz\n", "more\n"]), tokenizer="byte")
    steps = prepare_steps(base, 257, tmp_path / "out")
    next(steps)
    (tmp_path / "text" / "00002.txt").unlink()
    list(steps)
    prepared = open_prepared(tmp_path / "out")
    assert sorted(pieces(prepared, "train") + pieces(prepared, "val")) == ["abc\n" * 9, "more\n", "xyz\n"]


def test_the_size_of_the_blocks_read_does_not_change_the_tokens(tmp_path, monkeypatch):
    base = documents(tmp_path / "text", ["".join(f"{i} naïve 🎉\r\n" for i in range(20_011)), "short\n"])
    one = prepare(base, 300, tmp_path / "out1")
    for module in (text, spool, preparing):
        monkeypatch.setattr(module, "BATCH" if module is preparing else "BLOCK", 1_009)
    assert prepare(base, 300, tmp_path / "out2").fingerprint == one.fingerprint


def test_a_damaged_or_foreign_folder_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="is not a prepared folder"):
        open_prepared(tmp_path)
    out = tmp_path / "out"
    prepare(config(documents(tmp_path / "text", ["abc\n" * 9, "xyz\n"]), tokenizer="byte"), 257, out)
    good = (out / "data.json").read_text()
    (out / "data.json").write_text(json.dumps({**json.loads(good), "format_version": 2}))
    with pytest.raises(ValueError, match="format_version 2; this version of ANDREA reads 1"):
        open_prepared(out)
    (out / "data.json").write_text(good)
    (out / "val-00000.tok").unlink()
    with pytest.raises(ValueError, match="val has 0 tokens of 5; prepare the data again"):
        open_prepared(out)


def test_the_built_in_corpus_needs_no_paths(tmp_path):
    prepared = prepare(DataConfig(), 1_000, tmp_path / "out")
    assert prepared.report["files"] > 300 and prepared.tokenizer.vocab_size == 1_000
    assert 0.09 < prepared.report["val"]["bytes"] / prepared.report["bytes"] < 0.15
    assert 2 < prepared.bytes_per_token < 5


def test_other_text_is_encoded_whole_and_its_files_go_afterwards(tmp_path):
    documents(tmp_path / "text", ["two\n", "two\n", "é\n"])
    tokenizer = byte_tokenizer()
    with encoded(DataConfig(paths=(str(tmp_path / "text"),)), tokenizer) as tokens:
        ids = tokens.read(0, len(tokens)).tolist()
        folder = Path(tokens.shards[0].filename).parent
    assert ids == [256, *b"two\n", 256, *b"two\n", 256, *"é\n".encode()]
    assert not folder.exists()


@pytest.mark.parametrize("kind", ["bpe", "char"])
def test_any_number_of_workers_makes_the_same_files(tmp_path, kind):
    base = config(documents(tmp_path / "text", [f"{i} naïve 🎉 {i * i}\n" * (i % 97 + 1) * 30 for i in range(400)]), tokenizer=kind)
    outs = [prepare(base, 400, tmp_path / f"out{n}", workers=n).folder for n in (1, 2, 5)]
    files = [{p.name: p.read_bytes() for p in out.iterdir()} for out in outs]
    assert files[0] == files[1] == files[2] and len(files[0]) == 5
    with pytest.raises(ValueError, match="workers=0 must be at least 1"):
        prepare(base, 400, tmp_path / "none", workers=0)


def test_repetitions_may_stay_and_then_stay_on_one_side(tmp_path):
    base = documents(tmp_path / "text", [f"document {i % 40} of few\n" * (i % 40 + 1) for i in range(200)])
    prepared = prepare(config(base, dedup="off", tokenizer="byte"), 257, tmp_path / "out")
    train, val = pieces(prepared, "train"), pieces(prepared, "val")
    assert len(train) + len(val) == 200 and not set(train) & set(val) and val
    assert prepared.report["duplicates"]["units"] == 160 and prepared.report["duplicates"]["mode"] == "off"
    assert prepared.report["overlap"]["units"] == 0
    tail = prepare(config(base, dedup="off", split="tail", tokenizer="byte"), 257, tmp_path / "tail")
    assert tail.report["overlap"]["units"] == len(set(pieces(tail, "train")) & set(pieces(tail, "val"))) > 0


def test_what_was_killed_starts_clean_and_what_is_at_work_is_left_alone(tmp_path):
    base = config(documents(tmp_path / "text", ["abc\n" * 9, "xyz\n", "more\n"]), tokenizer="byte")
    code = (
        "import sys\nfrom pathlib import Path\nfrom andrea.config import DataConfig\nfrom andrea.data.prepare import prepare_steps\n"
        "steps = prepare_steps(DataConfig(paths=(sys.argv[1],), tokenizer='byte'), 257, Path(sys.argv[2]))\nnext(steps)\n"
        "print('at work', flush=True)\nsys.stdin.read()"
    )
    out = tmp_path / "out"
    at_work = subprocess.Popen([sys.executable, "-c", code, tmp_path / "text", out], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert at_work.stdout.readline() == b"at work\n"
    with pytest.raises(ValueError, match="is being prepared by another process"):
        prepare(base, 257, out)
    at_work.kill()
    at_work.communicate()
    assert not out.exists() and (tmp_path / ".out.part" / "text.utf8").exists()
    assert len(prepare(base, 257, out).train)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "text"]


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_DATA counts all private memory on Linux alone")
def test_memory_does_not_grow_with_the_text(tmp_path):
    """41 MB in one file under a limit that the text with its tokens, or 2 GiB read this way, would pass; LOG.md has 2 GiB measured."""
    import json as module

    source = Path(module.__file__).read_text(encoding="utf-8")
    with (tmp_path / "a.txt").open("w", encoding="utf-8") as file:
        for i in range(3_200):
            file.write(f"{i} {i * i}\n{source[:12_800]}")
    code = (
        "import resource, sys\nfrom pathlib import Path\nfrom andrea.config import DataConfig\nfrom andrea.data.prepare import prepare\n"
        "resource.setrlimit(resource.RLIMIT_DATA, (400_000_000, 400_000_000))\n"
        "prepare(DataConfig(paths=(sys.argv[1],)), 400, Path(sys.argv[2]), workers=2)"
    )
    environment = os.environ | {"OMP_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "a.txt", tmp_path / "out"], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    prepared = open_prepared(tmp_path / "out")
    whole = "".join(pieces(prepared, "train")) + "".join(pieces(prepared, "val"))
    assert len(whole) == (tmp_path / "a.txt").stat().st_size > 40_000_000
    first = prepared.train.read(1, 1 + 20_000)
    text = prepared.tokenizer.decode(first.tolist())
    assert prepared.tokenizer.encode(text)[:19_990] == first.tolist()[:19_990]


def test_line_ends_and_white_space_at_the_end_make_no_other_text(tmp_path):
    texts = ["one\ntwo å\n", "three\n", "one\r\ntwo å\r\n", "three", "one\ntwo a\n"]
    prepared = prepare(config(documents(tmp_path / "text", texts), tokenizer="byte"), 257, tmp_path / "out")
    assert sorted(pieces(prepared, "train") + pieces(prepared, "val")) == sorted([texts[0], texts[1], texts[4]])
    removed = [json.loads(line) for line in (tmp_path / "out" / "duplicates.jsonl").read_text().splitlines()]
    assert [(r["name"], r["same_as"]) for r in removed] == [("00002.txt", "00000.txt"), ("00003.txt", "00001.txt")]
