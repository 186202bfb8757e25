"""What is told before a run begins, and what is refused."""

import json
import subprocess

import pytest
from conftest import small
from warm import program

from andrea.accounting import count
from andrea.config import override
from andrea.presets import preset
from andrea.training import forecast, plan, start
from andrea.training.report import Chosen, Finished, StepDone
from andrea.training.start import train


def told(config, **options):
    return next(event for event in forecast.forecast(config, "small", **options) if isinstance(event, forecast.Forecast))


def test_a_forecast_is_of_the_run_that_then_happens(tmp_path, text_file):
    config = small(text_file, changes=("steps=60", "evaluate_every=20", "sample_every=30", "save_every=20"))
    f = told(config)
    events = list(train(config, tmp_path / "run"))
    chosen = next(event for event in events if isinstance(event, Chosen))
    assert f.parameters == chosen.parameters
    assert f.steps == chosen.steps == 60
    settled = {c.name: c.value for c in chosen.choices}
    assert {c.name: c.value for c in f.choices if c.name in settled} == {name: settled[name] for name in settled if name != "steps"}
    done = [event for event in events if isinstance(event, StepDone)]
    assert f.passes == done[-1].tokens / f.train_tokens
    assert f.tokens_per_parameter == done[-1].tokens / f.parameters
    assert f.untrained_loss == pytest.approx(f.uniform_loss, abs=0.3)
    assert f.time.keys() == {"start", "measuring", "steps", "evaluations", "samples", "saves", "last evaluation"}
    assert all(seconds > 0 for seconds in f.time.values())
    assert f.seconds == sum(f.time.values())
    assert f.memory["copy_to_save"] == plan.snapshot_bytes(config)
    assert any(note.startswith(f"text: {f.passes:.2f} passes over it") for note in chosen.notes)


def test_a_run_that_saves_only_at_its_end_needs_no_copy_to_save_from(text_file):
    assert told(small(text_file, changes=("steps=10",))).memory["copy_to_save"] == 0


def test_a_time_budget_gives_about_as_many_steps_as_fit(text_file):
    f = told(small(text_file, changes=("steps=none", "minutes=0.05")))
    assert f.time["steps"] <= 3.0  # of the budget, by the speed that was measured
    assert f.steps > 1


def test_one_batch_is_learnt_by_heart(text_file):
    before, after = told(small(text_file), overfit=True).overfit
    assert after < before / 2


@pytest.mark.parametrize(("tokens", "wanted"), [(100_000, "andrea-1m"), (30_000_000, "andrea-4m"), (10**11, "andrea-480m")])
def test_what_fits_a_text_is_named(tokens, wanted):
    assert f": {wanted} for " in forecast.better(tokens, 3 * tokens, 1e12)


def test_a_small_text_is_filled_in_the_minutes_that_four_passes_take():
    text = forecast.better(300_000, 1_100_000, 1e11)
    flops = 4 * 300_000 * count(preset("andrea-1m").model).flops_per_token
    assert text == f"this text is 1.1 MB: andrea-1m for {max(1, round(flops / 1e11 / 60))} minute"


def test_a_run_whose_checkpoints_find_no_room_is_refused_and_leaves_nothing(tmp_path, text_file, monkeypatch):
    config = small(text_file, changes=("keep_every=4", "save_every=4"))
    monkeypatch.setattr(start, "free_disk_bytes", lambda folder: 5 * plan.snapshot_bytes(config))
    with pytest.raises(
        plan.TooLittleDisk, match=r"too little room on the disk: 8 checkpoints of .* take keep=1, a larger keep_every, another"
    ):
        list(train(config, tmp_path / "run"))
    assert not (tmp_path / "run").exists()
    assert isinstance(list(train(config, tmp_path / "run", force=True))[-1], Finished)
    list(train(override(config, "keep_every=none"), tmp_path / "other"))


def test_a_run_that_memory_cannot_hold_is_refused_with_the_nearest_that_it_can(text_file, tmp_path, monkeypatch):
    config = override(preset("andrea-120m"), f"data.paths={text_file}", "steps=2", "batch_tokens=1024", "compile=off")
    monkeypatch.setattr(start, "device_memory_bytes", lambda device: 2**31)
    with pytest.raises(plan.TooLittleMemory, match=r"a smaller preset \(andrea-12m fits\)"):
        list(train(config, tmp_path / "run"))
    resolved = {"device": "cpu", "dtype": "float32", "kernels": "torch"}
    start.settle_pass(config, resolved, force=True)
    assert resolved == {"device": "cpu", "dtype": "float32", "kernels": "torch", "micro_batch": 1, "recompute": True}


def test_plan_prints_tables_or_json(tmp_path, text_file):
    options = ["context=32", "n_layer=1", "d_model=32", "n_head=2", "vocab_size=321", "batch_tokens=64", "eval_tokens=64", "kernels=torch"]
    command = program("plan", text_file, "--steps", 9, *(f"--set={option}" for option in options))
    done = subprocess.run([*command, "--overfit"], cwd=tmp_path, capture_output=True, text=True, check=True)
    for words in ("memory, of ", "9 steps at", "what would fit: this text is", "one batch by heart", "passes over it"):
        assert words in done.stdout, done.stdout
    found = json.loads(subprocess.run([*command, "--json"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout)
    assert found["steps"] == 9
    assert found["memory_total"] == sum(found["memory"].values())
    assert list(tmp_path.iterdir()) == []
