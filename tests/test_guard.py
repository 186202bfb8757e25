"""What the guard lets pass and what not, on real runs whose gradients or batches are spoilt at a known place."""

import json
from math import inf, isfinite, nan
from threading import Event

import pytest
import torch
from conftest import small

from andrea import checkpoint
from andrea.training import loop, start
from andrea.training.check import check
from andrea.training.guard import FEW, PATIENCE, Guard
from andrea.training.loop import Diverged
from andrea.training.report import Evaluated, Finished, Saved, Skipped, StepDone, WentBack, read_metrics
from andrea.training.start import resume, train
from andrea.training.state import set_generators


def pick(events, kind):
    return [event for event in events if isinstance(event, kind)]


def settled(losses):
    guard = Guard()
    for loss in losses:
        assert guard.judge(loss, 1.0) is None
    return guard


def test_noise_and_a_falling_loss_are_no_spikes():
    torch.manual_seed(0)
    settled((9 * 0.97**step + 2 + 0.1 * torch.randn(()).item()) for step in range(300))


@pytest.mark.parametrize(
    ("loss", "norm", "why"),
    [(nan, 1.0, "loss nan"), (2.0, inf, "gradient norm inf"), (2.3, 1.0, "loss 2.300 above 2.200"), (2.1, 1.0, None)],
)
def test_a_settled_loss_has_a_limit(loss, norm, why):
    told = settled([2.0] * FEW).judge(loss, norm)
    assert (told is None) if why is None else (why in told)


def test_an_early_loss_may_rise_a_little():
    guard = settled([8.0])
    assert guard.judge(8.9, 1.0) is None
    assert guard.judge(10.0, 1.0)
    assert Guard().judge(100.0, 1.0) is None  # nothing is known of the first


def test_a_loss_that_climbs_slowly_is_stopped_by_the_lowest_it_was():
    guard, loss = settled([2.0] * 50), 2.0
    while not guard.judge(loss, 1.0) and loss < 9:
        loss += 0.02
    assert loss < 6


def test_unsound_losses_do_not_raise_the_limit_and_a_sound_one_ends_the_streak():
    guard = settled([2.0] * FEW)
    for n in range(1, PATIENCE + 1):
        assert guard.judge(5.0, 1.0)
        assert guard.streak == n
    assert guard.judge(2.0, 1.0) is None
    assert guard.streak == 0


def test_metrics_give_the_same_guard():
    guard = settled([2.0 + 0.01 * (i % 7) for i in range(150)])
    guard.judge(nan, nan)
    events = [{"event": "StepDone", "loss": 2.0 + 0.01 * (i % 7), "grad_norm": 1.0} for i in range(150)]
    again = Guard.after([*events, {"event": "Sampled"}, {"event": "Skipped"}])
    assert (again.sound, again.lowest, again.streak, again.most()) == (guard.sound, guard.lowest, guard.streak, guard.most())


@pytest.fixture
def spoil(monkeypatch):
    """spoil(how, first, end): the loss of batches that begin at these windows is multiplied by `how`."""

    def spoil(how, first, end=2**62):
        honest_batch, honest_step, at = loop.Sampler.batch, loop.train_step, []

        def batch(self, position, rows):
            at[:] = [position]
            return honest_batch(self, position, rows)

        def step(losses, *rest):
            wrong = lambda ids, targets: losses(ids, targets) * how
            return honest_step(wrong if first <= at[0] < end else losses, *rest)

        monkeypatch.setattr(loop.Sampler, "batch", batch)
        monkeypatch.setattr(loop, "train_step", step)

    return spoil


def finite(run, at):
    return all(t.isfinite().all() for t in checkpoint.load(run, at).model.state_dict().values())


def test_a_step_that_is_not_finite_changes_nothing_and_is_told(tmp_path, text_file, spoil):
    config = small(text_file, changes=("save_every=1", "evaluate_every=100"))
    spoil(inf, 4 * config.rows, 5 * config.rows)  # the fifth batch
    weights = {}
    events = []
    for event in train(config, tmp_path / "run"):
        events.append(event)
        if isinstance(event, Saved):
            weights[event.step] = checkpoint.load(tmp_path / "run", "last").model.state_dict()
    (skipped,) = pick(events, Skipped)
    assert (skipped.step, skipped.first_window, skipped.end_window) == (5, 4 * config.rows, 5 * config.rows)
    assert [e.step for e in pick(events, StepDone)] == [1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 12]
    assert 5 not in weights  # nothing is saved in the middle of trouble
    assert any(not torch.equal(weights[4][name], weights[6][name]) for name in weights[4])
    assert isinstance(events[-1], Finished)
    assert "Skipped" in {m["event"] for m in read_metrics(tmp_path / "run")}


@pytest.mark.parametrize("how", [nan, 3.0])
def test_from_trouble_that_lasts_the_run_goes_back_and_passes_over_it(tmp_path, text_file, spoil, how):
    config = small(text_file, changes=("steps=40", "save_every=10", "evaluate_every=10", "sample_every=20", "lr=1e-3"))
    spoil(how, 33 * config.rows, 38 * config.rows)
    events = list(train(config, tmp_path / "run"))
    back = pick(events, WentBack)
    assert (back[0].step, back[0].from_step, back[0].first_window, back[0].end_window) == (31, 36, 30 * config.rows, 36 * config.rows)
    assert isinstance(events[-1], Finished)
    told = read_metrics(tmp_path / "run")
    assert [m["step"] for m in told if m["event"] in ("StepDone", "Skipped")] == list(range(1, 41))  # none twice
    assert all(isfinite(m["loss"]) for m in told if m["event"] == "StepDone")
    assert finite(tmp_path / "run", "last")
    saved = checkpoint.read_state(tmp_path / "run/checkpoints/step-40")
    assert saved["skips"][0] == [30, 30 * config.rows, 36 * config.rows]
    assert saved["windows"] > 40 * config.rows


@pytest.mark.parametrize("stop_at", [31, 34, 35, 37])
def test_a_run_that_went_back_ends_alike_however_often_it_was_killed(tmp_path, text_file, spoil, stop_at):
    config = small(text_file, changes=("steps=40", "save_every=10", "evaluate_every=10", "sample_every=20", "lr=1e-3"))
    spoil(nan, 33 * config.rows, 38 * config.rows)
    list(train(config, tmp_path / "straight"))
    courses = {"killed": [None], "stopped": [stop_at], "stopped before and after": [stop_at, stop_at]}
    for name, stops in list(courses.items())[: 3 if stop_at < 36 else 2]:  # at 36 it goes back
        go_on = [lambda stop, name=name: train(config, tmp_path / name, stop), *[lambda stop, name=name: resume(tmp_path / name, stop)] * 2]
        for begin, at in zip(go_on, [*stops, 99], strict=False):
            stop, gone_back = loop.Flag(), begin is not go_on[1]  # the second stop is on the way that is taken after going back
            for event in begin(stop):
                gone_back = gone_back or isinstance(event, WentBack)
                if gone_back and isinstance(event, StepDone | Skipped) and event.step == (at or stop_at):
                    if at is None:
                        break  # as if killed
                    stop.set()
        clocks = ("seconds", "tokens_per_s")
        told = [[{k: v for k, v in m.items() if k not in clocks} for m in read_metrics(tmp_path / run)] for run in ("straight", name)]
        assert told[0] == told[1]
        ends = [checkpoint.load_tensors(tmp_path / run / "checkpoints/step-40/model.safetensors") for run in ("straight", name)]
        assert all(torch.equal(ends[0][key], value) for key, value in ends[1].items())


def test_resume_check_proves_it_and_sees_what_is_forgotten(tmp_path, text_file, monkeypatch):
    config = small(text_file, changes=("dropout=0.1", "steps=30", "save_every=5", "micro_batch=2"))
    stop = loop.Flag()
    for event in train(config, tmp_path / "run", stop):
        if isinstance(event, StepDone) and event.step == 17:
            stop.set()
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    checked = list(check(tmp_path / "run", 4))[-1]
    assert (checked.first_step, checked.stop_step, checked.last_step, checked.differences) == (17, 21, 25, ())
    assert checked.tensors > 30
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == before
    forgetful = {"generators": lambda *_: None, "windows": lambda state, *_: setattr(state, "windows", 0)}
    honest = start.put_back
    for what, forget in forgetful.items():
        if what == "generators":
            monkeypatch.setattr("andrea.training.state.set_generators", forget)
        else:
            monkeypatch.setattr("andrea.training.state.set_generators", set_generators)
            monkeypatch.setattr(start, "put_back", lambda state, *rest, forget=forget: (honest(state, *rest), forget(state)))
        assert list(check(tmp_path / "run", 4))[-1].differences, what


def test_resume_check_of_a_finished_run_begins_at_its_beginning(finished_run):
    checked = list(check(finished_run, 50))[-1]
    assert (checked.first_step, checked.stop_step, checked.last_step, checked.differences) == (0, 6, 12, ())


def test_saving_goes_on_beside_the_training_and_its_error_is_told(tmp_path, text_file, monkeypatch):
    config = small(text_file, changes=("steps=12", "save_every=4", "evaluate_every=100"))
    list(train(config, tmp_path / "plain"))
    honest, gate = checkpoint.save, Event()

    def slow(run, step, *rest):
        if step == 4:
            gate.wait(60)
        return honest(run, step, *rest)

    monkeypatch.setattr(checkpoint, "save", slow)
    order = []
    for event in train(config, tmp_path / "slow"):
        order.append(event)
        if isinstance(event, StepDone) and event.step == 7:
            gate.set()
    assert [e.step for e in pick(order, Saved)] == [4, 8, 12]
    assert [e.step for e in order if isinstance(e, StepDone | Saved)].index(4) < len(order)
    kinds = [(type(e).__name__, e.step) for e in order if isinstance(e, StepDone | Saved)]
    assert kinds.index(("Saved", 4)) > kinds.index(("StepDone", 7))  # three steps were made meanwhile
    ends = [checkpoint.load(tmp_path / name, "last").model.state_dict() for name in ("plain", "slow")]
    assert all(torch.equal(ends[0][key], value) for key, value in ends[1].items())
    middle = checkpoint.load_tensors(tmp_path / "slow/checkpoints/step-8/model.safetensors")
    assert all(
        torch.equal(middle[key], value)
        for key, value in checkpoint.load_tensors(tmp_path / "plain/checkpoints/step-8/model.safetensors").items()
    )

    def fail(run, step, *rest):
        raise OSError(28, "No space left on device", "model.safetensors")

    monkeypatch.setattr(checkpoint, "save", fail)
    with pytest.raises(OSError, match="No space left"):
        list(train(config, tmp_path / "full"))


def test_trouble_without_end_ends_the_run_with_a_diagnosis_and_finite_weights(tmp_path, text_file, spoil):
    config = small(text_file, changes=("steps=40", "save_every=10", "evaluate_every=10", "lr=1e-3"))
    spoil(nan, 25 * config.rows)
    events = []
    with pytest.raises(
        Diverged, match=r"3 returns to step 20 with other batches did not help.*--set optim\.lr=0\.0003 --set optim\.matrix"
    ):
        for event in train(config, tmp_path / "run"):
            events.append(event)
    assert len(pick(events, WentBack)) == 3
    assert finite(tmp_path / "run", "last")
    assert finite(tmp_path / "run", "best")
    assert all(isfinite(e.loss) for e in pick(events, Evaluated))


def test_without_the_guard_nan_is_trained_on_but_never_saved_nor_best(tmp_path, text_file, spoil):
    config = small(text_file, changes=("steps=12", "save_every=2", "evaluate_every=2", "guard=off"))
    spoil(nan, 5 * config.rows, 6 * config.rows)
    with pytest.raises(Diverged, match="the weights are no numbers after step 12, and are not saved"):
        list(train(config, tmp_path / "run"))
    assert checkpoint.step_at(tmp_path / "run", "last") == 4
    assert finite(tmp_path / "run", "best")
    state = json.loads((tmp_path / "run/checkpoints/step-4/state.json").read_text(encoding="utf-8"))
    assert isfinite(state["best_loss"])
