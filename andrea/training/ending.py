"""Where a run ends: at a later step when somebody asks, or by a time of day, however fast the machine is and however long it slept."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import median
from time import perf_counter, time
from typing import Any

from andrea import run_folder
from andrea.config import OptimConfig, RunConfig
from andrea.data.prepare import Prepared
from andrea.evaluate import evaluate
from andrea.model import Transformer
from andrea.training import plan
from andrea.training.report import NewEnd, read_metrics
from andrea.training.schedule import Leg, rate

PACES = 200  # steps, the newest: what a run's speed is taken from
ENDS = ("steps", "legs", "until")  # of `resolved`: what a sitting may change for good
FALLEN = 0.05  # of the peak: less than this teaches little
EVALUATED = 16_384  # tokens, to time the last evaluation, which is in float32
LAST = 3.0  # seconds for the last save and the program's end
FEW = 20  # steps before an end is moved again
LATE, EARLY = 1.05, 0.9  # of the time left: what the steps left may take
FAR_LATE, FAR_EARLY, SOON = 1.25, 0.5, 0.05  # the same, where less than this share of a leg has gone by
TAIL = 50  # one step for so many that were made are left at least, though late: a learning rate that comes down is worth the wait


@dataclass
class Clock:
    """The time that a run is to end by, and how fast it goes: seconds of the steps, and of evaluations, samples and saves between them."""

    until: datetime  # with its zone
    paces: deque[float]  # of the newest steps
    closing: float = 0.0  # the last evaluation's
    seen: int = 0  # steps in this sitting
    beside: float = 0.0  # seconds in this sitting that were no step

    def saw(self, seconds: float, beside: float) -> None:
        self.paces.append(seconds)
        self.seen, self.beside = self.seen + 1, self.beside + beside

    @property
    def left(self) -> float:
        """Seconds for steps; none where the time has passed."""
        return max(0.0, self.until.timestamp() - time() - self.closing - LAST)

    def steps(self, step: int, start: int, total: int) -> int:
        """The step to end at: `total` while that fits the time left, an earlier one where it does not, a later one where there is time."""
        pace, left = median(self.paces) + self.beside / max(1, self.seen), self.left
        needed, soon = (total - step) * pace, 0 < step - start < SOON * (total - start)
        most, least = (FAR_LATE * left, FAR_EARLY * left) if soon else (LATE * left, EARLY * left)
        fits = step + max(int(left / pace), step // TAIL, 1)
        return min(total, fits) if needed > most else max(total, fits) if needed < least else total


def clock_of(run: Path, config: RunConfig, resolved: dict[str, Any], until: datetime | None) -> Clock | None:
    """A clock at the speed that the run's metrics tell of: for `until`, which is put into `resolved`, or for the time that stands there.

    None where there is no time, or the run's own has passed. Raises ValueError where `until` has passed.
    """
    if until:
        if until.timestamp() <= time():
            raise ValueError(f"{shown(until)} has passed; give a time that is to come")
        resolved["until"] = shown(until)
    stored = datetime.fromisoformat(resolved["until"]) if "until" in resolved else None
    return Clock(stored, deque(paces(run, config), PACES)) if stored and stored.timestamp() > time() else None


def shown(until: datetime) -> str:
    """ISO 8601 with the zone."""
    return until.astimezone().isoformat(timespec="seconds")


def closing_seconds(model: Transformer, data: Prepared, rows: int) -> float:
    """What the last evaluation, of the whole validation split, will take: measured on a part of it."""
    began = perf_counter()
    evaluate(model, data.val, data.tokenizer, rows, EVALUATED)
    return (perf_counter() - began) * max(1.0, (len(data.val) - 1) / EVALUATED)


def paces(run: Path, config: RunConfig) -> list[float]:
    """Seconds of each of the newest steps of a run."""
    steps = [m for m in read_metrics(run) if m["event"] == "StepDone"]
    return [config.train.batch_tokens / m["tokens_per_s"] for m in steps[-PACES:]]


def by_the_clock(run: Path, config: RunConfig, resolved: dict[str, Any], step: int, clock: Clock) -> NewEnd | None:
    """Move the end of a run, at `step`, to where the clock wants it, in `resolved` and in run.json; None where it stays."""
    *_, (start, total, _) = legs_of(resolved)
    if len(clock.paces) < FEW or 0 < step - start < FEW:
        return None
    if (steps := clock.steps(step, start, total)) == total or (steps > total and rate_at(step, resolved, config.optim) < FALLEN):
        return None
    move_end(run, config, resolved, step, steps, False)
    return NewEnd(step, total, steps, resolved["until"], rate_at(step, resolved, config.optim))


def settle_end(
    run: Path,
    config: RunConfig,
    resolved: dict[str, Any],
    step: int,
    steps: int | None,
    minutes: float | None,
    until: datetime | None,
    rewarm: bool,
    closing: Callable[[], float],
) -> tuple[Clock | None, tuple[str, ...]]:
    """Where a resumed run, at `step`, ends, in `resolved` and in run.json: its clock, and what there is to say.

    `steps` and `minutes` take the place of a time that it was to end by. Raises ValueError for an end that cannot be.
    """
    if steps or minutes:
        resolved.pop("until", None)
    clock, seconds = clock_of(run, config, resolved, until), minutes and minutes * 60
    if clock:
        clock.closing = closing()
    if clock and until and (rewarm or step >= resolved["steps"]):
        seconds = clock.left
    told = lengthen(run, config, resolved, step, steps, seconds, rewarm)
    if clock and not told and (moved := by_the_clock(run, config, resolved, step, clock)):
        told = (f"to end by {moved.until}: {moved.steps:,} steps instead of {moved.from_steps:,}",)
    if "until" in resolved and not clock:
        told = (f"it was to end by {resolved['until']}, which has passed: it goes on to its last step; --until HH:MM gives another time",)
    if until:
        store(run, config, resolved)
    return clock, told


def lengthen(
    run: Path, config: RunConfig, resolved: dict[str, Any], step: int, steps: int | None, seconds: float | None, rewarm: bool
) -> tuple[str, ...]:
    """Give a run, at `step`, a later end, in `resolved` and in run.json; what that means for the learning rate.

    From there on it has the rates of a run with the new end, but never more than it had: no jump. With `rewarm` a schedule of its own
    begins. Raises ValueError for an end that is no later, and without `rewarm` where the rate has fallen so far that nothing is learned.
    """
    if steps is None and seconds is None and rewarm:
        raise ValueError("--rewarm is for a run that is made longer: give --steps N, --minutes M or --until HH:MM besides")
    if steps is None and seconds is not None:
        if not (known := paces(run, config)):
            raise ValueError(f"{run} has made no step yet, so that its speed is not known; give --steps N instead of a time")
        steps = step + plan.steps_in(seconds, median(known), 0)
    if steps is None:
        return ()
    if steps <= resolved["steps"]:
        raise ValueError(f"{run} goes to step {resolved['steps']:,} as it is; --steps {steps} would not make it longer")
    before = rate_at(step, resolved, config.optim)
    if not rewarm and before < FALLEN:
        raise ValueError(
            f"the learning rate of {run} has fallen to {before:.1%} of its peak, and more steps at that teach it little; "
            "--rewarm warms it up again for the steps that are added, and the loss is higher for a while"
        )
    move_end(run, config, resolved, step, steps, rewarm)
    after = rate_at(step, resolved, config.optim)
    return (f"longer: to step {steps:,}; the learning rate goes on at {after:.1%} of its peak, where it was {before:.1%}",)


def move_end(run: Path, config: RunConfig, resolved: dict[str, Any], step: int, steps: int, rewarm: bool) -> None:
    """From `step` on a new leg, to the end `steps`, in place of any that would have begun later."""
    begun = [list(leg) for leg in legs_of(resolved) if leg[0] <= step]
    resolved["legs"], resolved["steps"] = [*begun, [step, steps, rewarm]], steps
    store(run, config, resolved)


def store(run: Path, config: RunConfig, resolved: dict[str, Any]) -> None:
    """Write the end of a run into run.json, and nothing else: another device, for this sitting, is not stored."""
    _, stored, provenance = run_folder.read_run(run)
    kept = {name: value for name, value in stored.items() if name not in ENDS}
    run_folder.write_run(run, config, kept | {name: resolved[name] for name in ENDS if name in resolved}, provenance)


def legs_of(resolved: dict[str, Any]) -> tuple[Leg, ...]:
    """The legs of a run's schedule; one that was never made longer or shorter has one."""
    return tuple((start, end, warm) for start, end, warm in resolved.get("legs", [[0, resolved["steps"], True]]))


def rate_at(step: int, resolved: dict[str, Any], c: OptimConfig) -> float:
    """Share of the peak learning rate at a step, or at the last one for a run that is finished."""
    return rate(min(step, resolved["steps"] - 1), legs_of(resolved), c) / c.lr
