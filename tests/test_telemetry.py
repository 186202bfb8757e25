"""What a run notes of its layers at every evaluation."""

import json

import pytest
import torch
from conftest import small
from test_cli import andrea

from andrea import checkpoint
from andrea.insight.flow import SCORES, gradients, heads, held_out, lens_entropies, writes
from andrea.insight.trace import stations, sublayers, trace
from andrea.training import telemetry
from andrea.training.report import Evaluated, Observed, StepDone, read_metrics
from andrea.training.start import train
from andrea.training.telemetry import observe


def grow(folder, text_file, *changes):
    return list(train(small(text_file, changes=changes), folder))


def kept(run):
    return [m for m in read_metrics(run) if m["event"] == "Observed"]


def test_what_a_run_notes_is_what_the_flow_measures_of_the_same_model(finished_run):
    run = checkpoint.load(finished_run, at="last")
    noted = kept(finished_run)[-1]
    assert [m["step"] for m in kept(finished_run)] == [0, 12]
    rows = held_out(run.open_data().val, 32, telemetry.ROWS)
    seen = trace(run.model, rows[:, :-1], [*stations(2), *sublayers(2)])
    near = lambda values: pytest.approx(list(values), rel=6e-4)  # four digits are kept
    assert noted["entropies"] == near(lens_entropies(seen).values())
    for key, field in (("writes", "relative"), ("cosines", "cosine"), ("norms", "norm")):
        assert noted[key] == near(getattr(write, field) for write in writes(seen).values())
    scored = heads(run.model, 15, telemetry.PAIRS, run.tokenizer.separator)
    assert noted["uniform"] == near(scored.uniform.values())
    flat = [head for block in noted["heads"] for head in block]
    assert flat == [near(getattr(head, name) for name in SCORES) for head in scored.heads]


def test_its_gradients_are_those_of_the_mean_loss(finished_run):
    run = checkpoint.load(finished_run, at="last")
    rows = held_out(run.open_data().val, 32, telemetry.ROWS)

    class Shorter:  # flow's gradients predict ids from each other, so that the same targets take one window less of context
        def __len__(self):
            return 17

        def read(self, start, stop):
            return rows[0, start:stop].numpy()

    seen = observe(run.model, Shorter(), run.tokenizer.separator, 0, 0.0)
    whole = torch.stack([rows[0, 0:9], rows[0, 8:17]])
    assert seen.gradients == pytest.approx(list(with_last(run.model, whole)), rel=6e-4)


def with_last(model, rows):
    """gradients() of rows (B, T + 1), its means taken over the T positions that predict."""
    return [value * rows.shape[1] / (rows.shape[1] - 1) for value in gradients(model, rows).activations.values()]


def test_looking_inside_changes_nothing_of_the_run(tmp_path, text_file):
    runs = {}
    for told in ("true", "false"):
        events = grow(tmp_path / told, text_file, "dropout=0.1", "steps=6", "evaluate_every=2", f"telemetry={told}")
        runs[told] = [(e.step, e.loss) for e in events if isinstance(e, StepDone | Evaluated)]
        assert [e.step for e in events if isinstance(e, Observed)] == ([0, 2, 4, 6] if told == "true" else [])
    assert runs["true"] == runs["false"]
    first, second = (checkpoint.load(tmp_path / told, at="last").model.state_dict() for told in runs)
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_what_is_not_defined_is_null_and_is_read_again(tmp_path, text_file):
    events = grow(tmp_path / "run", text_file, "residual=false", "steps=2", "context=4", "n_layer=1")
    noted = kept(tmp_path / "run")
    assert [m["writes"] for m in noted] == [[None, None]] * 2 and [m["heads"] for m in noted] == [[], []]
    assert noted[-1]["gradients"] == [e for e in events if isinstance(e, Observed)][-1].gradients
    done = andrea("flow", "run", "--growth", "--png", "growth.png", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "not defined" in andrea("flow", "run", "--growth", cwd=tmp_path).stdout


def test_a_context_of_one_token_shows_nothing(tmp_path, text_file):
    grow(tmp_path / "run", text_file, "context=1", "steps=1")
    assert not kept(tmp_path / "run")
    done = andrea("flow", "run", "--growth", cwd=tmp_path)
    assert done.returncode == 2 and "noted nothing of its layers" in done.stderr


def test_the_growth_of_a_run_is_told_and_drawn(finished_run, tmp_path):
    found = json.loads(andrea("flow", finished_run, "--growth", "--json", "--png", tmp_path / "growth.png").stdout)
    assert found["observed"] == kept(finished_run)
    assert len(found["stations"]) == len(found["observed"][0]["gradients"]) == 5
    assert len(found["sublayers"]) == len(found["observed"][0]["writes"]) == 4
    assert (tmp_path / "growth.png").read_bytes().startswith(b"\x89PNG")
    assert "as it grew" in andrea("flow", finished_run, "--growth").stdout
