import json
import random
import textwrap
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from andrea.config import DataConfig
from andrea.data import duplicates
from andrea.data.duplicates import Seen, overlap, paragraphs, shingles
from andrea.data.prepare import Prepared, prepare

WORDS = Path(json.__file__).read_text(encoding="utf-8").split()


def prose(seed: int, n: int) -> str:
    """n words in lines, no two seeds alike."""
    draw = random.Random(seed)
    return textwrap.fill(" ".join(f"{draw.choice(WORDS)}{draw.randrange(1_000)}" for _ in range(n)), 72)


def prepared(folder: Path, texts: list[str], **options) -> Prepared:
    (folder / "in").mkdir()
    for i, text in enumerate(texts):
        (folder / "in" / f"{i:03d}.txt").write_text(text, encoding="utf-8", newline="")
    return prepare(DataConfig(paths=(str(folder / "in"),), tokenizer="byte", dedup="near", **options), 257, folder / "out")


def said(p: Prepared) -> str:
    return "".join(p.tokenizer.decode(tokens.read(0, len(tokens)).tolist()) for tokens in (p.train, p.val))


def removed(p: Prepared) -> list[dict]:
    return [json.loads(line) for line in (p.folder / "duplicates.jsonl").read_text(encoding="utf-8").splitlines()]


def quote(text: str, width: int = 60) -> str:
    return "".join(f"> {line}\n" for line in textwrap.wrap(text.upper().replace(",", ";"), width))


def test_a_quotation_goes_and_what_it_quotes_stays(tmp_path):
    original, other = prose(1, 80), prose(2, 60)
    reply = f"Yes.\n\n{quote(original)}\n{prose(3, 30)}\n"
    p = prepared(tmp_path, [f"{original}\n\n{other}\n", reply])
    text = said(p)
    assert original in text and other in text and prose(3, 30) in text and "> " not in text
    assert [(r["name"], r["kind"]) for r in removed(p)] == [("001.txt", "paragraph")]
    assert p.report["duplicates"]["paragraphs"] == 1 and p.report["duplicates"]["paragraph_bytes"] == len(quote(original))


def test_a_quotation_goes_where_it_comes_before_what_it_quotes(tmp_path):
    original = prose(1, 80)
    p = prepared(tmp_path, [f"Yes.\n\n{quote(original)}\nand more\n", f"{original}\n", prose(5, 50)])
    assert original in said(p) and "> " not in said(p)


def test_part_of_a_paragraph_and_one_with_a_changed_word_go_too(tmp_path):
    original = prose(1, 120)
    words = original.split()
    part, changed = " ".join(words[40:65]), " ".join([*words[:10], "another", *words[11:30]])
    p = prepared(tmp_path, [original, f"{part}\n\n{prose(2, 40)}", f"{prose(3, 40)}\n\n{changed}\n"])
    assert len(removed(p)) == 2 and part not in said(p) and "another" not in said(p)
    assert all(prose(seed, 40) in said(p) for seed in (2, 3))


def test_boiler_plate_stays_once(tmp_path):
    licence = prose(9, 60)
    p = prepared(tmp_path, [f"{licence}\n\n{prose(i, 40)}\n" for i in range(10, 50)])
    assert said(p).count(licence) == 1 and p.report["duplicates"]["paragraphs"] == 39
    assert all(prose(i, 40) in said(p) for i in range(10, 50))


def test_short_paragraphs_and_different_ones_stay(tmp_path):
    texts = [f"Yes.\n\n}}\n\nSent from my telephone, as always in a hurry\n\n{prose(i, 100)}\n" for i in range(20)]
    p = prepared(tmp_path, texts)
    assert not removed(p) and said(p).count("in a hurry") == 20


def test_a_document_of_which_nothing_is_left_is_none(tmp_path):
    p = prepared(tmp_path, [prose(1, 90) + "\n\n" + prose(2, 90), prose(3, 50), prose(2, 90).upper()])
    assert p.report["train"]["units"] + p.report["val"]["units"] == 2
    assert p.report["duplicates"]["mode"] == "near" and p.report["documents"] == 3


def test_the_size_of_batches_changes_nothing(tmp_path, monkeypatch):
    texts = [f"{prose(i % 17, 50)}\n\n{quote(prose(i % 13, 40))}\n{prose(i, 30)}\n" for i in range(60)]
    one = prepared(tmp_path, texts)
    monkeypatch.setattr(duplicates, "BATCH", 1_000)
    monkeypatch.setattr("andrea.data.prepare.BATCH", 1_000)
    two = prepare(DataConfig(paths=(str(tmp_path / "in"),), tokenizer="byte", dedup="near"), 257, tmp_path / "two", workers=2)
    assert one.fingerprint == two.fingerprint and removed(one) == removed(two)


def test_a_long_paragraph_is_judged_piece_by_piece(tmp_path):
    first, shared, last = (prose(seed, 900) for seed in (1, 2, 3))
    p = prepared(tmp_path, [f"{prose(4, 50)}\n\n{shared}\n", f"{first}\n{shared}\n{last}\n"])
    left = said(p)
    assert left.count(shared[3_000:6_000]) == 1 and first[: -duplicates.LONG // 3] in left and last[duplicates.LONG // 3 :] in left
    assert len(removed(p)) > 2 and max(r["bytes"] for r in removed(p)) <= duplicates.LONG


def test_decomposed_and_composed_text_are_the_same_but_both_stay_as_written(tmp_path):
    text = " ".join(f"ångström{i} över{i}" for i in range(40))
    other = unicodedata.normalize("NFD", text)
    p = prepared(
        tmp_path, [f"{text}\n\n{prose(1, 40)}", f"{prose(2, 40)}\n\n{other}", f"{prose(3, 20)} {unicodedata.normalize('NFD', 'å')}"]
    )
    assert text in said(p) and other not in said(p) and unicodedata.normalize("NFD", "å") in said(p)


@given(st.text(alphabet="ab >\n\t", max_size=60))
def test_paragraphs_cut_a_text_and_lose_nothing(text):
    data = text.encode()
    cuts = paragraphs(data)
    assert cuts == sorted(set(cuts)) and cuts[0] == 0 and cuts[-1] == len(data)


@settings(deadline=None)
@given(st.lists(st.lists(st.sampled_from(["aa", "b", "cc", "ddd"]), max_size=12), min_size=1, max_size=5), st.integers(1, 4))
def test_shingles_are_the_runs_of_words_within_each_span(spans, n):
    pieces = [(" ".join(words) + ", ").encode() for words in spans]
    borders = np.cumsum([0, *map(len, pieces)])
    grams, span = shingles(b"".join(pieces), borders, n)
    wanted = [(i, tuple(words[j : j + n])) for i, words in enumerate(spans) for j in range(len(words) - n + 1)]
    assert span.tolist() == [i for i, _ in wanted]
    names: dict[int, tuple] = {}
    assert all(names.setdefault(gram, run) == run for gram, (_, run) in zip(grams.tolist(), wanted, strict=True))
    assert len(set(names.values())) == len(names)


def test_long_words_and_marks_make_no_difference_where_they_should_not():
    def of(text: str) -> list[int]:
        data = text.encode()
        return shingles(data, np.array([0, len(data)]), 3)[0].tolist()

    assert of("One, two: THREE") == of("> one two\n> three") and of("one two threes") != of("one two three")
    assert of("å\u00a0ä ö\u202fx") == of("a\u030a a\u0308 o\u0308 x") != of("a a o x")
    assert of("x" * 200 + " b c") != of("x" * 199 + "y b c") and of("åäö b c") != of("åäå b c")


def test_a_filter_of_every_mth_shingle_finds_long_repetitions():
    text = " ".join(f"word{i}" for i in range(3_000)).encode()
    borders = np.array([0, len(text)])
    seen = Seen(every=7)
    assert not seen.judge(text, borders, np.array([True])).any() and seen.judge(text, borders, np.array([True])).all()
    assert 0 < np.count_nonzero(seen.bits) < 600


def test_the_filter_errs_rarely_when_it_is_full():
    seen = Seen()
    draw = np.random.default_rng(42)
    seen.bits |= draw.integers(0, 2**64, len(seen.bits), np.uint64, endpoint=False) & draw.integers(
        0, 2**64, len(seen.bits), np.uint64, endpoint=False
    )
    pieces = [(prose(i, 40) + "\n\n").encode() for i in range(1_000)]  # a quarter of the bits set: 0.25 ** 3 of shingles seem known
    borders = np.cumsum([0, *map(len, pieces)])
    assert not seen.judge(b"".join(pieces), borders, np.ones(1_000, bool)).any()


def test_the_overlap_is_the_share_of_validations_runs_that_training_has():
    shared, own = (" ".join(f"{name}{i}" for i in range(30)) for name in ("shared", "own"))
    val = [f"{shared} {own}".encode()]
    assert overlap(val, [prose(3, 500).encode(), shared.encode()], 100) == pytest.approx(18 / 48)
    assert overlap(val, [], 100) == 0 and overlap([b"too short"], val, 100) is None


def test_the_overlap_of_a_large_split_is_estimated_from_some_of_its_runs():
    texts = [prose(i, 400).encode() for i in range(60)]
    exact = overlap(texts[:40], texts[20:], 1)
    assert exact == pytest.approx(0.5, abs=0.01)
    assert overlap(texts[:40], texts[20:], 10 * duplicates.OVERLAP_BYTES) == pytest.approx(exact, abs=0.05)


def test_the_report_tells_the_overlap(tmp_path):
    p = prepared(tmp_path, [f"{prose(i, 200)}\n" for i in range(30)])
    assert p.report["overlap"] == {"units": 0, "thirteen_grams": 0.0}
