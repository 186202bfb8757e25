"""What a run is compared with, and what is said of it."""

import pytest
from conftest import small

from andrea.config import override
from andrea.presets import PRESETS, preset
from andrea.training import curves, loop
from andrea.training.curves import RECORDED, Curve, curve_of, preset_of, verdict, warning
from andrea.training.report import Finished, Working
from andrea.training.start import train

CURVE = Curve("andrea-1m", "a text", "abc", ((1_000, 2.0), (4_000, 1.0)), ((500, 3.0), (2_000, 2.5)))


@pytest.mark.parametrize(
    ("tokens", "wanted"),
    [(1_000, 2.0), (2_000, 1.5), (4_000, 1.0), (900, 2.0), (5_000, 1.0), (700, None), (6_000, None), (0, None)],
)
def test_between_recorded_lengths_lies_a_straight_line_over_the_logarithm(tokens, wanted):
    assert CURVE.at_end(tokens) == (wanted if wanted is None else pytest.approx(wanted))


@pytest.mark.parametrize(
    ("bits", "said"),
    [(1.5, "this is normal"), (1.58, "this is normal"), (1.65, "this is 10% more than normal"), (1.2, "this is 20% less than normal")],
)
def test_a_run_is_normal_within_what_seeds_make_of_it(bits, said):
    (told,) = verdict(CURVE, 2_000, bits)
    assert told == f"andrea-1m on a text ends near 1.500 bits/byte after as many tokens: {said}"


def test_nothing_is_said_of_what_was_not_recorded():
    assert verdict(None, 2_000, 1.5) == verdict(CURVE, 20_000, 1.5) == ()
    assert warning(None, 2_000, 9.0) == warning(CURVE, 20_000, 9.0) == warning(CURVE, 2_000, 2.6) == ()
    assert warning(CURVE, 2_000, 2.9) == ("2.900 bits/byte is much for 2,000 tokens: andrea-1m on a text was at 2.500 by then",)


def test_the_preset_of_a_run_is_known_whatever_its_text_length_and_machine():
    same = override(preset("andrea-4m"), "steps=77", "data.paths=book.txt", "train.seed=3", "device=cpu", "dtype=float32")
    assert preset_of(same) == "andrea-4m"
    assert [preset_of(override(same, change)) for change in ("n_layer=2", "optim.lr=1e-3", "batch_tokens=4096")] == [None] * 3


def test_what_is_recorded_is_of_presets_as_they_are():
    assert {curve.preset for curve in RECORDED} <= PRESETS.keys()
    for curve in RECORDED:
        for points in (curve.ends, curve.way):
            assert [tokens for tokens, _ in points] == sorted({tokens for tokens, _ in points})
            assert all(0.3 < bits < 4 for _, bits in points)
        assert curve_of(preset(curve.preset), curve.corpus_sha256) is curve


def test_a_run_says_how_it_compares(tmp_path, text_file, monkeypatch):
    config = small(text_file, changes=("steps=50",))
    list(train(config, tmp_path / "first"))
    corpus = loop.checkpoint.load(tmp_path / "first").open_data().report["corpus_sha256"]
    low = ((50 * config.train.batch_tokens, 0.5),)
    monkeypatch.setattr(curves, "RECORDED", (Curve("small", "a text", corpus, low, low),))
    monkeypatch.setattr(curves, "preset_of", lambda c: "small")
    events = list(train(config, tmp_path / "second"))
    (said,) = [told for e in events if isinstance(e, Finished) for told in e.diagnosis if "normal" in told]
    assert said.startswith("small on a text ends near 0.500 bits/byte")
    monkeypatch.setattr(loop, "dues", lambda *_: (20, 50, 50))
    events = list(train(config, tmp_path / "third"))
    assert not [e for e in events if isinstance(e, Working) and "is much for" in e.text]  # 20 steps are far from 50
