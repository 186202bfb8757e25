"""Whether somebody's evidence holds: a sample of its runs, done again here."""

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import stdev
from time import monotonic
from typing import Any

from andrea.claims.claim import SEEDS_NEEDED, Claim, Opened
from andrea.claims.evidence import Run, file_of, read_run
from andrea.claims.run import Workers, finished
from andrea.config import to_dict
from andrea.files import Damaged, field, read_json
from andrea.machine import cores, provenance

SAME = ("andrea", "python", "torch", "platform", "processor")  # where these are equal, a run on one thread gives equal bits
TIMES = ("_ms", "_s")  # how the name of a figure ends that is a time, and equal nowhere
SPREADS = 4.0  # standard deviations over seeds that another machine's figure may be away


@dataclass(frozen=True)
class Checked:
    arm: str
    seed: int
    rate: float
    holds: bool
    how: str  # "equal", "within the noise of seeds", or what differs


@dataclass(frozen=True)
class Verified:
    claim: str
    runs: int  # there are
    checked: int
    holds: bool
    words: str


def verify(
    folder: Path, opened: Opened, n: int = 3, minutes: float | None = None, seed: int | None = None, jobs: int | None = None
) -> Iterator[Checked | Verified]:
    """Do n runs of the folder of a claim again, chosen by chance, and compare. `seed` chooses the same ones again.

    Raises ValueError for a folder without evidence, or of another design.
    """
    path = folder / "design.json"
    if not path.is_file():
        raise ValueError(f"{folder} holds no evidence of a claim: it has no design.json; `andrea claims run` makes such folders")
    found = field(read_json(path), "design", str, path)
    if found != opened.design:
        raise ValueError(
            f"{folder} was made for another design of {opened.claim.name} than the one that is here, so that its runs cannot be done again"
        )
    if minutes is not None and not minutes > 0:
        raise ValueError(f"minutes={minutes} must be more than 0")
    if jobs is not None and jobs < 1:
        raise ValueError(f"jobs={jobs} must be at least 1")
    kept = [(path, *read_run(path)) for path in sorted(folder.glob("*.json")) if path.name != "design.json"]
    if not kept:
        raise ValueError(f"{folder} holds a design and no run yet")
    claim, runs, checks = opened.claim, list[Run](), list[Checked]()
    for path, run, design, config in kept:
        if path != file_of(folder, *run.key):
            checks.append(Checked(*run.key, False, f"it stands in {path.name}, which is the name of another run"))
        elif design != opened.design or not is_of(claim, run, config):
            checks.append(Checked(*run.key, False, "its configuration is not the one that the claim gives this run"))
        else:
            runs.append(run)
            continue
        yield checks[-1]
    sample = random.Random(seed).sample(runs, min(n, len(runs)))
    tasks = [claim.task(*run.key) for run in sample]
    here, by_key = provenance(), {run.key: run for run in runs}
    with Workers(opened.target, min(cores() if jobs is None else jobs, len(tasks)) or 1) as workers:
        for task, answer in workers.do(tasks, None if minutes is None else monotonic() + 60 * minutes):
            again = finished(task, answer, here)
            checks.append(compare(by_key[again.key], again, runs, here))
            yield checks[-1]
    bad = [check for check in checks if not check.holds]
    words = f"{len(bad)} of {len(checks)} do not hold" if bad else f"{len(checks)} of {len(kept)} runs were done again, and hold"
    yield Verified(claim.name, len(kept), len(checks), not bad and bool(checks), words if checks else "time was up before one was done")


def is_of(claim: Claim, run: Run, config: Any) -> bool:
    """Whether this is the configuration of that run."""
    try:
        return run.arm in claim.arms and same(config, to_dict(claim.task(*run.key).config))
    except ValueError:  # of a rate that no run can have
        return False


def same(one: Any, other: Any) -> bool:
    """Equal as json keeps them: tuples are lists."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def leaves(value: Any, name: str = "") -> dict[str, Any]:
    """Every single figure by its path; times are left out."""
    if name.endswith(TIMES):
        return {}
    parts = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list | tuple) else None
    if parts is None:
        return {name: value}
    return {path: leaf for key, part in parts for path, leaf in leaves(part, f"{name}.{key}" if name else str(key)).items()}


def compare(recorded: Run, again: Run, runs: Sequence[Run], here: Mapping[str, Any]) -> Checked:
    """Exactly where machine and versions are the same; otherwise within what seeds make of each figure."""
    old, new = leaves(recorded.figures), leaves(again.figures)
    if old == new:
        return Checked(*recorded.key, True, "equal")
    if old.keys() != new.keys():
        return Checked(*recorded.key, False, f"other figures: {', '.join(sorted(old.keys() ^ new.keys())[:3])}")
    differing = [name for name in old if old[name] != new[name]]
    if all(recorded.machine.get(name) == here.get(name) for name in SAME):
        name = differing[0]
        return Checked(
            *recorded.key, False, f"{name} is {old[name]} in the evidence and {new[name]} here, on the same machine and versions"
        )
    others = [leaves(run.figures) for run in runs if (run.arm, run.rate) == (recorded.arm, recorded.rate) and run.seed != recorded.seed]
    if len(others) < SEEDS_NEEDED:
        return Checked(
            *recorded.key, False, f"another machine, and {len(others)} other seeds of this arm do not tell how much figures vary"
        )
    for name in differing:
        spread = [found[name] for found in others if name in found]
        if not all(isinstance(x, int | float) for x in (old[name], new[name], *spread)):
            return Checked(*recorded.key, False, f"{name} is {old[name]!r} in the evidence and {new[name]!r} here")
        if abs(old[name] - new[name]) > max(SPREADS * stdev(spread), 1e-6 * math.hypot(old[name], new[name])):
            return Checked(
                *recorded.key,
                False,
                f"{name} is {old[name]:.6g} in the evidence and {new[name]:.6g} here; seeds vary by {stdev(spread):.2g}",
            )
    return Checked(*recorded.key, True, "within the noise of seeds, on another machine or other versions")


def claim_of(folder: Path) -> str:
    """The claim's name that a folder of evidence is of."""
    path = folder / "design.json"
    if not path.is_file():
        raise Damaged(f"{folder} holds no evidence of a claim: it has no design.json; `andrea claims run` makes such folders")
    return field(read_json(path), "claim", str, path)
