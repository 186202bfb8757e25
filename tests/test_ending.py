"""Runs that end by a time of day. Time is made to jump, as it does for a laptop that sleeps; everything else runs as it is."""

import json
from collections import deque
from datetime import datetime, timedelta
from itertools import pairwise
from time import time

import pytest
from conftest import small

from andrea.cli.train import time_to_come
from andrea.config import OptimConfig
from andrea.training import ending
from andrea.training.check import Checked, check
from andrea.training.ending import FEW, LAST, TAIL, Clock
from andrea.training.report import Chosen, Finished, NewEnd, StepDone, Stopped, read_metrics
from andrea.training.schedule import rate
from andrea.training.start import resume, train

HOUR = timedelta(hours=1)
UNHURRIED = ("steps=none", "optim.warmup=0", "evaluate_every=1000", "sample_every=1000", "save_every=1000")


@pytest.fixture
def sleep(monkeypatch):
    """sleep(seconds): they have gone by, and nothing was done meanwhile."""
    slept = []
    monkeypatch.setattr(ending, "time", lambda: time() + sum(slept))
    return slept.append


def clock_at(left, pace=1.0):
    return Clock(datetime.fromtimestamp(time() + left + LAST).astimezone(), deque([pace] * FEW))


@pytest.mark.parametrize(
    ("left", "step", "start", "total", "wanted"),
    [
        (90, 10, 0, 100, 100),  # in time
        (87, 10, 0, 100, 100),  # nearly
        (45.5, 10, 0, 100, 55),
        (45.5, 10, 10, 100, 55),
        (180.5, 10, 0, 100, 190),
        (80.5, 3, 0, 100, 100),  # not for so little, so soon
        (50.5, 3, 0, 100, 53),
        (-60, 50, 0, 100, 51),  # late: a step for every TAIL
        (-60, 500, 0, 1000, 500 + 500 // TAIL),
        (-60, 999, 0, 1000, 1000),  # and never longer for being late
    ],
)
def test_the_end_follows_the_time_left_and_the_speed(left, step, start, total, wanted):
    assert clock_at(left).steps(step, start, total) == wanted


def test_what_comes_between_steps_takes_time_too():
    clock = clock_at(90.5)
    for _ in range(10):
        clock.saw(1.0, 2.0)
    assert clock.steps(10, 0, 100) == 40


@pytest.mark.parametrize(("schedule", "floor"), [("wsd", 0.0), ("cosine", 0.1)])
@pytest.mark.parametrize(("start", "end"), [(300, 310), (300, 700), (900, 905), (10, 40)])
def test_a_nearer_end_brings_the_rate_down_without_a_jump(schedule, floor, start, end):
    c = OptimConfig(lr=1.0, schedule=schedule, warmup=0.02, decay=0.4, floor=floor)
    rates = [rate(step, ((0, 1000, True), (start, end, False)), c) for step in range(end)]
    assert rates[:start] == [rate(step, ((0, 1000, True),), c) for step in range(start)]
    falls = [a - b for a, b in pairwise([*rates, floor])]
    if start > 20:
        assert min(falls[start - 1 :]) >= 0
    assert max(falls) <= 2.5 / min(end - start, 0.4 * end) + 1e-9  # the steepest: all the way in what is left, or half a cosine
    assert rates[-1] <= floor + 1.05 / (min(end - start, 0.4 * end) + 1)


def test_a_run_ends_in_time_though_it_slept(tmp_path, text_file, sleep):
    events = []
    for event in train(small(text_file, changes=UNHURRIED), tmp_path / "run", until=datetime.now() + HOUR):
        events.append(event)
        if isinstance(event, StepDone) and event.step == 40:
            sleep(3600)
    moved = [e for e in events if isinstance(e, NewEnd)]
    assert [(e.step, e.from_steps) for e in moved] == [(40, events_of(events, Chosen)[0].steps)]
    assert moved[0].steps == events_of(events, StepDone)[-1].step == 41
    rates = [e.lr for e in events_of(events, StepDone)]
    assert rates[-1] == pytest.approx(rates[39] / 2)  # the one step left is halfway to the floor
    stored = json.loads((tmp_path / "run/run.json").read_text(encoding="utf-8"))["resolved"]
    assert stored["legs"] == [[0, moved[0].from_steps, True], [40, 41, False]]
    assert isinstance(events[-1], Finished)


def events_of(events, kind):
    return [e for e in events if isinstance(e, kind)]


def stopped_at(step, events, stop):
    for event in events:
        if isinstance(event, StepDone) and event.step == step:
            stop.set()
        yield event


@pytest.fixture
def paused(tmp_path, text_file):
    """A run that was to take an hour, stopped after 60 steps."""
    from threading import Event

    stop = Event()
    events = list(stopped_at(60, train(small(text_file, changes=UNHURRIED), tmp_path / "run", stop, until=datetime.now() + HOUR), stop))
    assert isinstance(events[-1], Stopped)
    return tmp_path / "run"


def test_a_paused_run_has_less_to_do_in_the_time_that_is_left(paused, sleep):
    until = json.loads((paused / "run.json").read_text(encoding="utf-8"))["resolved"]["until"]
    sleep(datetime.fromisoformat(until).timestamp() - time() - 8)
    events = list(resume(paused))
    chosen, last = events_of(events, Chosen)[0], events_of(events, StepDone)[-1]
    assert any("to end by" in note and f"{chosen.steps:,} steps instead of" in note for note in chosen.notes)
    assert chosen.steps < 5000  # what an hour would hold is many times as much
    assert last.lr < 0.1 * 0.02
    assert [m["step"] for m in read_metrics(paused) if m["event"] == "StepDone"] == list(range(1, last.step + 1))


def test_a_run_whose_time_has_passed_says_so_and_takes_another(paused, sleep):
    total = json.loads((paused / "run.json").read_text(encoding="utf-8"))["resolved"]["steps"]
    sleep(4000)
    events = resume(paused)
    chosen = next(e for e in events if isinstance(e, Chosen))
    events.close()
    assert chosen.steps == total
    assert any("which has passed" in note for note in chosen.notes)
    with pytest.raises(ValueError, match="has passed; give a time that is to come"):
        next(resume(paused, until=datetime.now() + HOUR))
    later = datetime.now() + timedelta(seconds=4008)
    events = list(resume(paused, until=later))
    assert events_of(events, StepDone)[-1].step < total
    stored = json.loads((paused / "run.json").read_text(encoding="utf-8"))["resolved"]
    assert datetime.fromisoformat(stored["until"]).timestamp() == int(later.timestamp())


def test_steps_take_the_place_of_a_time(paused):
    total = json.loads((paused / "run.json").read_text(encoding="utf-8"))["resolved"]["steps"]
    events = resume(paused, steps=total + 5)
    assert next(e for e in events if isinstance(e, Chosen)).steps == total + 5
    events.close()
    assert "until" not in json.loads((paused / "run.json").read_text(encoding="utf-8"))["resolved"]


def test_resume_check_does_not_look_at_the_time(paused):
    checked = next(e for e in check(paused, 2) if isinstance(e, Checked))
    assert checked.differences == ()


def test_a_finished_run_goes_on_until_a_time(tmp_path, text_file):
    run = tmp_path / "run"
    list(train(small(text_file, changes=("steps=60",)), run))
    with pytest.raises(ValueError, match="--rewarm"):
        next(resume(run, until=datetime.now() + HOUR))
    events = list(resume(run, until=datetime.now() + timedelta(seconds=8), rewarm=True))
    assert events_of(events, StepDone)[-1].step > 60


def test_a_time_without_room_is_refused_and_leaves_no_folder(tmp_path, text_file):
    with pytest.raises(ValueError, match="has passed"):
        list(train(small(text_file), tmp_path / "run", until=datetime.now() - HOUR))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("text", ["00:00", "07:00", "7:05", "23:59"])
def test_a_time_of_day_is_the_next_one(text):
    at = time_to_come(text)
    assert timedelta(0) < at - datetime.now() <= timedelta(days=1, hours=1)
    assert f"{at:%H:%M}" == text.zfill(5)


def test_a_date_and_time_is_what_it_says():
    assert time_to_come("2030-01-31T07:00") == time_to_come("2030-01-31 07:00:00") == datetime(2030, 1, 31, 7)
    assert time_to_come("2030-01-31T07:00+02:00").utcoffset() == timedelta(hours=2)
    assert time_to_come(None) is None


@pytest.mark.parametrize("text", ["", "25:00", "7", "seven", "2030-01-31", "12:60", "99999-01-01T00:00"])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(ValueError, match="is no time; wanted HH:MM"):
        time_to_come(text)
