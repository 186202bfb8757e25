"""Evidence: one JSON file for each run, and the compact form of it that comes with the package.

FOLDER/CLAIM/design.json         the hash of everything that was settled before the first run, and the claim's file as it was
FOLDER/CLAIM/ARM-SEED-RATE.json  one run: its configuration, figures, seconds, machine
evidence/CLAIM.json              in the package: the same runs with fewer digits and short curves
"""

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from andrea.claims.claim import HOME, Claim, Figures, Opened, Task
from andrea.config import to_dict
from andrea.files import Damaged, field, read_json, replace_text, write_json

FORMAT_VERSION = 1
RECORDED = HOME / "evidence"
MOST_POINTS = 16  # of a curve that is kept in the package
WIDENED = 2  # times that a grid of rates may grow


@dataclass(frozen=True)
class Run:
    """One finished run."""

    arm: str
    seed: int
    rate: float
    figures: Figures
    seconds: float
    machine: Mapping[str, Any]

    @property
    def key(self) -> tuple[str, int, float]:
        return self.arm, self.seed, self.rate


def file_of(folder: Path, arm: str, seed: int, rate: float) -> Path:
    return folder / f"{arm}-{seed}-{rate:g}.json"


def write_run(folder: Path, design: str, task: Task, run: Run) -> None:
    """Whole or not at all."""
    first = {"format_version": FORMAT_VERSION, "claim": task.claim, "design": design, "config": to_dict(task.config)}
    write_json(file_of(folder, *run.key), {**first, **asdict(run)})


def read_run(path: Path) -> tuple[Run, str, dict[str, Any]]:
    """A run, the design that it belongs to, and its configuration. Raises ValueError for a file that is none."""
    found = read_json(path)
    if found.get("format_version") != FORMAT_VERSION:
        raise Damaged(f"{path} is no run of a claim that this program reads: its format_version is {found.get('format_version')!r}")
    kinds = {"arm": str, "seed": int, "rate": float, "figures": dict, "seconds": float, "machine": dict}
    values = {name: field(found, name, kind, path) for name, kind in kinds.items()}
    return Run(**values), field(found, "design", str, path), field(found, "config", dict, path)


def begin(folder: Path, opened: Opened, anew: bool = False) -> None:
    """Write the design, before the first run.

    Raises ValueError where the folder's runs belong to another design; `anew` moves those to a name of their own.
    """
    path = folder / "design.json"
    if path.exists():
        old = field(read_json(path), "design", str, path)
        if old == opened.design:
            return
        if not anew:
            raise ValueError(
                f"{folder} holds runs of another design of {opened.claim.name}: what was to be measured has changed since, and runs of "
                "both together would decide nothing; --anew sets the old ones aside, or give another --out"
            )
        asides = (folder.with_name(f"{folder.name}-{old[:8]}{'-again' * i}") for i in itertools.count())
        folder.rename(next(aside for aside in asides if not aside.exists()))
    folder.mkdir(parents=True, exist_ok=True)
    write_json(path, {"format_version": FORMAT_VERSION, "claim": opened.claim.name, "design": opened.design, "source": opened.source})


def read_runs(folder: Path, opened: Opened) -> list[Run]:
    """Every run of a claim's folder. Raises ValueError for one that belongs to another design."""
    runs = []
    for path in sorted(folder.glob("*.json")):
        if path.name != "design.json":
            run, design, _ = read_run(path)
            if design != opened.design:
                raise ValueError(f"{path} belongs to another design of {opened.claim.name} than the one that is here")
            runs.append(run)
    return runs


# --- what the package brings --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Recorded:
    """A claim's runs as they come with the package; `is_current` says whether the claim is still the one they were made for."""

    runs: list[Run]
    is_current: bool


def record(opened: Opened, runs: Sequence[Run], folder: Path = RECORDED) -> Path:
    """Write the compact form. Runs of one machine share its description."""
    machines: list[Mapping[str, Any]] = []
    rows = []
    for run in sorted(runs, key=lambda run: (run.seed, run.arm, run.rate)):
        if run.machine not in machines:
            machines.append(run.machine)
        tunes = run.seed in opened.claim.tuning_seeds  # of these the one figure that they are for is enough
        figures = {opened.claim.tune_by: run.figures[opened.claim.tune_by]} if tunes else run.figures
        rows.append([run.arm, run.seed, run.rate, digits(run.seconds, 3), machines.index(run.machine), short(figures)])
    lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
    head = {"format_version": FORMAT_VERSION, "claim": opened.claim.name, "design": opened.design, "machines": machines}
    path = folder / f"{opened.claim.name.replace('-', '_')}.json"
    path.parent.mkdir(exist_ok=True)
    replace_text(path, f'{json.dumps(head, indent=1)[:-2]},\n "runs": [\n{lines}\n]}}\n')
    return path


def recorded(opened: Opened, folder: Path = RECORDED) -> Recorded:
    """The runs that the package brings; none where it brings none."""
    path = folder / f"{opened.claim.name.replace('-', '_')}.json"
    if not path.exists():
        return Recorded([], True)
    found = read_json(path)
    machines = field(found, "machines", list, path)
    runs = [
        Run(arm, seed, float(rate), figures, float(seconds), machines[at])
        for arm, seed, rate, seconds, at, figures in field(found, "runs", list, path)
    ]
    return Recorded(runs, field(found, "design", str, path) == opened.design)


def digits(value: float, n: int = 7) -> float:
    return float(f"{value:.{n}g}")


def short(value: Any, n: int = 6) -> Any:
    """Floats with six digits, four within lists; a list of points (`curve`) thinned, its last kept."""
    if isinstance(value, Mapping):
        return {name: short(inner, n) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        step = -(-len(value) // MOST_POINTS) if value and isinstance(value[0], list | tuple) else 1
        return [short(inner, 4) for inner in [*value[:-1:step], *value[-1:]]]
    return digits(value, n) if isinstance(value, float) else value


# --- rates and seeds ----------------------------------------------------------------------------------------------------------------


def scores(claim: Claim, runs: Iterable[Run], arm: str) -> dict[float, float]:
    """The mean of the figure that tunes, by rate, of the rates that were tried on every tuning seed."""
    tried: dict[float, dict[int, float]] = {}
    for run in runs:
        if run.arm == arm and run.seed in claim.tuning_seeds:
            if claim.tune_by not in run.figures:
                raise ValueError(f"claim {claim.name} tunes by {claim.tune_by!r}, which its runs do not measure: {', '.join(run.figures)}")
            tried.setdefault(run.rate, {})[run.seed] = run.figures[claim.tune_by]
    return {rate: fmean(found.values()) for rate, found in tried.items() if len(found) == len(claim.tuning_seeds)}


def grid(claim: Claim, runs: Iterable[Run], arm: str) -> list[float]:
    """The rates to try for an arm: the claim's, and where the best is at the edge one beyond it, at most twice."""
    rates, found = sorted(claim.rates), scores(claim, runs, arm)
    for _ in range(WIDENED if len(rates) > 1 else 0):
        if not found.keys() >= set(rates):
            break
        best = min(rates, key=found.__getitem__)
        if best == rates[0]:
            rates.insert(0, digits(rates[0] ** 2 / rates[1]))
        elif best == rates[-1]:
            rates.append(digits(rates[-1] ** 2 / rates[-2]))
        else:
            break
    return rates


def chosen_rates(claim: Claim, runs: Sequence[Run], known: Mapping[str, float] | None = None) -> dict[str, float]:
    """The rate of each arm that has one: the only one, the best of the grid once all of it was tried, or what is known already."""
    if len(claim.rates) == 1:
        return dict.fromkeys(claim.arms, claim.rates[0])
    chosen = dict(known or {})
    for arm in claim.arms:
        found, rates = scores(claim, runs, arm), grid(claim, runs, arm)
        if found.keys() >= set(rates):
            chosen[arm] = min(rates, key=found.__getitem__)
    return chosen


def by_seed(claim: Claim, runs: Sequence[Run], rates: Mapping[str, float]) -> dict[int, dict[str, Figures]]:
    """Figures by seed and arm, at the chosen rates, of the seeds that decide."""
    table: dict[int, dict[str, Figures]] = {}
    for run in runs:
        if run.seed in claim.seeds and rates.get(run.arm) == run.rate:
            table.setdefault(run.seed, {})[run.arm] = run.figures
    return table
