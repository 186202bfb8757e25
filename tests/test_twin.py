"""Two models that differ in one field, grown beside each other."""

import json
import math

import pytest
import torch
from test_cli import andrea

from andrea.claims.grow import corpus, paired
from andrea.claims.twin import PROBE_ROWS, USUAL, Born, Grew, Grown, Looked, twin
from andrea.cli.twin import ending
from andrea.config import override
from andrea.insight.flow import gradients, held_out
from andrea.model import Transformer

pytestmark = pytest.mark.usefixtures("one_thread")
TINY = override(
    USUAL,
    "data.corpus=stories",
    "data.stories=60",
    "model.vocab_size=300",
    "model.n_layer=3",
    "model.d_model=32",
    "model.context=24",
    "train.batch_tokens=48",
    "train.steps=6",
)


def of(kind, events):
    return [event for event in events if isinstance(event, kind)]


@pytest.fixture(scope="module")
def events():
    return list(twin("model.residual=false", TINY, seed=4, every=4))


def test_twins_begin_alike_and_are_told_by_their_field(events):
    (born,) = of(Born, events)
    assert born.field == "model.residual" and born.names == ("residual=true", "residual=false")
    assert born.alike == born.tensors[0] == born.tensors[1] and born.parameters[0] == born.parameters[1]
    assert [event.step for event in of(Grew, events)] == [1, 2, 3, 4, 5, 6]
    assert [event.step for event in of(Looked, events)] == [0, 4, 6]


def test_gradients_are_those_of_the_models_on_text_that_stays(events):
    text = corpus(TINY.data, 300)
    rows = held_out(text.data.val, 24, PROBE_ROWS)[:, :-1]
    first = of(Looked, events)[0]
    for changes, seen in (((), first.first), (("model.residual=false",), first.second)):
        c = override(TINY, *changes, f"model.vocab_size={text.data.tokenizer.vocab_size}").model
        found = gradients(paired(lambda c=c: Transformer(c), 4), rows).activations
        assert seen == pytest.approx([found[name] for name in ("embed", "blocks.0", "blocks.1", "blocks.2")], rel=1e-5)


def test_the_end_says_what_was_measured_and_what_decides(events):
    (grown,), last = of(Grown, events), of(Looked, events)[-1]
    assert grown.ratios == (last.first[1] / last.first[-1], last.second[1] / last.second[-1])
    assert grown.ratios[0] > 0.5 and grown.ratios[1] < 0.01  # what the document says of residual connections, after six steps
    a, b = grown.losses
    assert f"residual=true has {a:.3f} nats" in grown.told and f"residual=false has {b:.3f} nats" in grown.told
    assert f"({b - a:+.3f})" in grown.told
    assert grown.next == "andrea claims run residual-training --quick"


def test_twins_that_differ_in_the_rate_take_the_same_first_step():
    events = list(twin("lr=0.01", TINY))
    first, *rest = of(Grew, events)
    assert first.losses[0] == first.losses[1] and first.grad_norms[0] == first.grad_norms[1]
    assert all(event.losses[0] != event.losses[1] for event in rest[-3:])
    assert of(Born, events)[0].names == ("lr=0.002", "lr=0.01") and of(Grown, events)[0].next.startswith("andrea claims run ")


def test_twins_of_different_depth_are_shown_as_far_as_they_go():
    events = list(twin("model.n_layer=1", TINY, every=6))
    last = of(Looked, events)[-1]
    assert (len(last.first), len(last.second)) == (4, 2)
    assert of(Grown, events)[0].next == "andrea claims"
    assert of(Born, events)[0].alike < of(Born, events)[0].tensors[0]
    assert "no number" not in ending(events)[0] and "block 3" in ending(events)[0]


def test_a_twin_that_breaks_is_told_and_the_other_goes_on():
    events = list(twin("model.norm=none", override(TINY, "optim.lr=1e9", "optim.grad_clip=0"), every=3))
    grown = of(Grown, events)[0]
    assert grown.losses[1] is None and "norm=none has no finite loss" in grown.told
    assert len(of(Grew, events)) == 6


def test_time_ends_it():
    events = list(twin("model.norm=post", TINY, seconds=1e-9))
    assert len(of(Grew, events)) == 1 and of(Grown, events)[0].step == 1
    assert of(Grown, events)[0].told.startswith("After 1 of 6 steps, when the time was up, norm=pre has")


@pytest.mark.parametrize(
    ("change", "options", "said"),
    [
        ("model.residual=true", {}, "residual is true in both"),
        ("data.seed=3", {}, "share text, seed and steps"),
        ("train.seed=3", {}, "share text, seed and steps"),
        ("model.vocab_size=400", {}, "share text, seed and steps"),
        ("model.residual", {}, "not path=value"),
        ("model.residul=false", {}, "did you mean 'residual'"),
        ("model.norm=post", {"every": 0}, "at least 1 step"),
        ("model.norm=post", {"seconds": 0.0}, "more than 0"),
    ],
)
def test_what_cannot_differ_is_refused(change, options, said):
    with pytest.raises(ValueError, match=said):
        next(twin(change, TINY, **options))


SMALL = [f"--both={change}" for change in ("n_layer=2", "d_model=32", "context=24", "batch_tokens=48", "vocab_size=300")]


def test_the_command_shows_both_and_draws_them(tmp_path, text_file):
    done = andrea("twin", text_file, "--steps", 3, "--png", "t.png", *SMALL, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "t.png").read_bytes().startswith(b"\x89PNG")
    for part in (
        "residual=true | residual=false",
        "step 1/3",
        "block 2",
        "After 3 steps",
        "Next: andrea claims run residual-training",
        "wrote t.png",
    ):
        assert part in done.stdout
    done = andrea("twin", text_file, "--set", "norm=post", "--steps", 3, "--every", 1, "--json", *SMALL, cwd=tmp_path)
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [event["event"] for event in told] == ["Born", "Looked", *["Grew", "Looked"] * 3, "Grown"]
    assert told[0]["names"] == ["norm=pre", "norm=post"] and all(math.isfinite(x) for x in told[-1]["losses"])
    refused = andrea("twin", text_file, "--png", "gone/t.png", *SMALL, cwd=tmp_path)
    assert refused.returncode == 2 and "cannot be drawn: there is no folder gone" in refused.stderr and not refused.stdout
    refused = andrea("twin", text_file, "--steps", 0, cwd=tmp_path)
    assert refused.returncode == 2 and "steps=0 must be at least 1" in refused.stderr
    refused = andrea("twin", "--set", "train.steps=4", cwd=tmp_path)
    assert refused.returncode == 2 and "share text, seed and steps" in refused.stderr


def test_the_screen_holds_both_side_by_side(events):
    from io import StringIO

    from rich.console import Console

    from andrea.cli.twin import bar, drawn

    out = StringIO()
    for n in range(1, len(events) + 1):
        Console(file=out, width=90).print(drawn(events[:n]))
    last = out.getvalue()[-3000:]
    assert all(
        part in last for part in ("residual=true", "residual=false", "step 6/6", "embedding", "block 3", "bars by the logarithm, from ")
    )
    assert bar(1e-9, -9, 0).count("█") == 1 and bar(1.0, -9, 0).count("█") == 16 and bar(None, -9, 0) == "no number"
    assert torch.get_num_threads() == 1
