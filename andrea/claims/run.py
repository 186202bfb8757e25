"""Run a claim: its tasks in processes of one thread each, every finished run kept, events on the way.

The order is what a run that is stopped needs: rates first, on seeds of their own; then the baseline's first seeds, which tell the noise;
then seed by seed through all arms, so that what is there is always balanced.
"""

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, stdev
from time import monotonic
from typing import Any

from andrea.claims.claim import HOME, SEEDS_NEEDED, Claim, Opened, Task
from andrea.claims.evidence import Run, begin, by_seed, chosen_rates, grid, read_runs, recorded, write_run
from andrea.claims.verdict import Judgement, judge
from andrea.claims.worker import CODE
from andrea.files import hold
from andrea.machine import cores, provenance


@dataclass(frozen=True)
class Began:
    claim: str
    folder: str
    design: str
    done: int  # runs that are there already
    to_do: int  # runs that are left, as far as is known: a best rate at the edge of its grid adds some
    jobs: int


@dataclass(frozen=True)
class RunDone:
    arm: str
    seed: int
    rate: float
    tunes: bool  # whether it is for the choice of a rate
    seconds: float
    done: int
    to_do: int
    seconds_left: float
    runs_per_hour: float


@dataclass(frozen=True)
class RatesChosen:
    rates: dict[str, float]  # by arm


@dataclass(frozen=True)
class Noise:
    """What seeds alone make of the baseline: the floor under every difference."""

    arm: str
    figure: str
    sd: float
    seeds: int


@dataclass(frozen=True)
class Judged:
    judgement: Judgement
    left: int  # runs, when time was up

    def to_dict(self) -> dict[str, Any]:
        return {**self.judgement.to_dict(), "left": self.left}


Event = Began | RunDone | RatesChosen | Noise | Judged


class Failed(RuntimeError):
    """A run of a claim ended without figures."""


def run(
    opened: Opened,
    out: Path = Path("evidence"),
    quick: bool = False,
    minutes: float | None = None,
    jobs: int | None = None,
    anew: bool = False,
) -> Iterator[Event]:
    """Do what is left of a claim, in out/NAME, and judge it. `quick` is its first few seeds, at the recorded rates where there are such.

    After `minutes` no run is begun that would, as the others went, end later. What is finished is kept, and the same call goes on.
    Raises ValueError as `begin` does, and for a folder that another process fills; Failed where a claim's code raises or its process dies.
    """
    claim, folder = opened.claim, out / opened.claim.name
    jobs = cores() if jobs is None else jobs
    if jobs < 1:
        raise ValueError(f"jobs={jobs} must be at least 1")
    if minutes is not None and not minutes > 0:
        raise ValueError(f"minutes={minutes} must be more than 0")
    begin(folder, opened, anew)
    held = hold(folder / "design.json")
    if held is None:
        raise ValueError(f"{folder} is being filled by another process; wait for it, or give another --out")
    known = recorded_rates(opened) if quick else {}
    seeds = claim.seeds[: claim.quick_seeds] if quick else claim.seeds
    with held, Workers(opened.target, jobs) as workers:
        runs = read_runs(folder, opened)
        yield Began(claim.name, str(folder), opened.design, len(runs), len(to_do(claim, runs, seeds, known)), jobs)
        began, did, told, machine = monotonic(), 0, set[str](), provenance()
        while batch := to_do(claim, runs, seeds, known, tuning_alone=True):
            before = len(runs)
            for task, answer in workers.do(batch, None if minutes is None else began + 60 * minutes):
                runs.append(finished(task, answer, machine))
                write_run(folder, opened.design, task, runs[-1])
                did += 1
                left, per_hour = len(to_do(claim, runs, seeds, known)), did / (monotonic() - began) * 3600
                tunes = task.seed in claim.tuning_seeds
                yield RunDone(task.arm, task.seed, task.rate, tunes, runs[-1].seconds, len(runs), left, left / per_hour * 3600, per_hour)
                yield from news(claim, runs, known, told)
            if len(runs) - before < len(batch):  # time is up
                break
    yield Judged(judged(opened, runs, known), len(to_do(claim, runs, seeds, known)))


def news(claim: Claim, runs: Sequence[Run], known: Mapping[str, float], told: set[str]) -> Iterator[Event]:
    """What is now known for the first time: the rates, and the noise."""
    rates = chosen_rates(claim, runs, known)
    if len(claim.rates) > 1 and len(rates) == len(claim.arms) and "rates" not in told:
        told.add("rates")
        yield RatesChosen(rates)
    baseline = [figures[claim.base_arm] for figures in by_seed(claim, runs, rates).values() if claim.base_arm in figures]
    noise = [figures[claim.tune_by] for figures in baseline if claim.tune_by in figures]
    if len(noise) >= SEEDS_NEEDED and "noise" not in told:
        told.add("noise")
        yield Noise(claim.base_arm, claim.tune_by, stdev(noise), len(noise))


def recorded_rates(opened: Opened) -> dict[str, float]:
    found = recorded(opened)
    return chosen_rates(opened.claim, found.runs) if found.is_current and found.runs else {}


def judged(opened: Opened, runs: Sequence[Run], known: Mapping[str, float] | None = None) -> Judgement:
    """The judgement of these runs, at the rates they chose or, where they chose none, at those that the package recorded."""
    rates = chosen_rates(opened.claim, runs, recorded_rates(opened) if known is None else known)
    return judge(opened.claim, by_seed(opened.claim, runs, rates))


def to_do(claim: Claim, runs: Sequence[Run], seeds: Sequence[int], known: Mapping[str, float], tuning_alone: bool = False) -> list[Task]:
    """The runs that are left, the most telling first; `tuning_alone` leaves out what waits for the choice of rates."""
    there = {run.key for run in runs}
    rates = chosen_rates(claim, runs, known)
    open_arms = [arm for arm in claim.arms if arm not in rates]
    grids = {arm: grid(claim, runs, arm) for arm in open_arms}
    tuning = [(arm, seed, rate) for seed in claim.tuning_seeds for arm in open_arms for rate in grids[arm]]
    keys: list[tuple[str, int, float | None]] = [*tuning]
    if not (open_arms and tuning_alone):
        first = [(claim.base_arm, seed) for seed in seeds[:SEEDS_NEEDED]]
        pairs = first + [(arm, seed) for seed in seeds for arm in claim.arms]
        keys += [(arm, seed, rates.get(arm)) for arm, seed in dict.fromkeys(pairs)]
    return [claim.task(arm, seed, rate or 1.0) for arm, seed, rate in keys if (arm, seed, rate) not in there]


def finished(task: Task, answer: Mapping[str, Any], machine: Mapping[str, Any]) -> Run:
    if "error" in answer:
        raise Failed(f"claim {task.claim}, arm {task.arm}, seed {task.seed}, rate {task.rate:g}: {answer['error']}\n{answer['traceback']}")
    return Run(task.arm, task.seed, task.rate, answer["figures"], answer["seconds"], machine)


# --- processes ----------------------------------------------------------------------------------------------------------------------


class Workers:
    """So many processes of one thread. They end with the `with`, and with this process, however it ends: their standard input ends."""

    def __init__(self, target: str, jobs: int):
        self.target, self.jobs = target, jobs
        self.free: list[subprocess.Popen[bytes]] = []
        self.all: list[subprocess.Popen[bytes]] = []
        self.spent: list[float] = []

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *error: Any) -> None:
        for process in self.all:
            process.kill()
        for process in self.all:
            process.wait()

    def start(self) -> subprocess.Popen[bytes]:
        paths = [str(HOME.parent.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        env = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)}
        self.all.append(subprocess.Popen([sys.executable, "-P", "-c", CODE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env))
        return self.all[-1]

    def do(self, tasks: Sequence[Task], until: float | None = None) -> Iterator[tuple[Task, Any]]:
        """Each task with its answer, in the order in which they end. After `until` (of the monotonic clock) none begins."""
        answers: queue.SimpleQueue[tuple[subprocess.Popen[bytes], Task, Any]] = queue.SimpleQueue()
        waiting, at_work = list(tasks), 0
        while waiting or at_work:
            mean = fmean(self.spent) if self.spent else 0.0
            while waiting and at_work < self.jobs and (until is None or monotonic() + mean <= until):
                process = self.free.pop() if self.free else self.start()
                threading.Thread(target=ask, args=(process, self.target, waiting.pop(0), answers), daemon=True).start()
                at_work += 1
            if not at_work:
                return
            process, task, answer = answers.get()
            at_work -= 1
            self.free.append(process)
            self.spent.append(answer.get("seconds", 0.0))
            yield task, answer


def ask(process: subprocess.Popen[bytes], target: str, task: Task, answers: "queue.SimpleQueue[Any]") -> None:
    """Hand one task to a process and wait for what it says."""
    assert process.stdin and process.stdout
    asked = {"target": target, "arm": task.arm, "seed": task.seed, "rate": task.rate}
    try:
        process.stdin.write(json.dumps(asked).encode() + b"\n")
        process.stdin.flush()
        line = process.stdout.readline()
    except OSError:
        line = b""
    answers.put((process, task, json.loads(line) if line else {"error": death(process), "traceback": ""}))


def death(process: subprocess.Popen[bytes]) -> str:
    try:
        code: int | None = process.wait(10)
    except subprocess.TimeoutExpired:
        code = None
    return f"its process died (exit code {code})" + "; the system ended it, as it does where memory is short: --jobs 1 takes less" * (
        code == -9
    )


def to_dict(event: Event) -> dict[str, Any]:
    """An event as json writes it."""
    return {"event": type(event).__name__, **(event.to_dict() if isinstance(event, Judged) else asdict(event))}
