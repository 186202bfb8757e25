"""Whether a run that is stopped and resumed is, bit for bit, the run that was not: tried on copies of the run."""

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Event as Flag
from typing import Any

import torch
from torch import Tensor

from andrea import checkpoint, run_folder
from andrea.training.report import Finished, Skipped, StepDone, Stopped, Working, read_metrics
from andrea.training.start import resume

CLOCKS = ("seconds", "tokens_per_s")  # of events and of state.json: the only things that may differ


@dataclass(frozen=True)
class Checked:
    """Both went from first_step to last_step; one was stopped at stop_step, and resumed with other random numbers in the generators."""

    run: Path
    first_step: int
    stop_step: int
    last_step: int
    tensors: int  # compared, of weights, moments and generators
    differences: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"run": str(self.run), "same": not self.differences}


def check(run: str | Path, steps: int = 5) -> Iterator[Working | Checked]:
    """Go 2 * `steps` steps on from the run's newest whole checkpoint, or from its beginning where it is finished, once without a stop
    and once with. The run itself is only read. Raises ValueError for a folder that is no run."""
    run = run_folder.find_run(run)
    total = run_folder.read_run(run)[1]["steps"]
    newest = checkpoint.search(run)[0]
    first = checkpoint.read_state(newest)["step"] if newest else 0
    if total - first < 2:
        newest, first = None, 0
    if total < 2:
        raise ValueError(f"{run} has {total} step in all; it takes 2 to stop between them")
    half = max(1, min(steps, (total - first) // 2))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        straight, stopped = (copy(run, newest, Path(folder, name)) for name in ("straight", "stopped"))
        yield Working(f"steps {first + 1:,} to {first + 2 * half:,} without a stop")
        go(straight, first + 2 * half)
        yield Working(f"the same, stopped after step {first + half:,} and resumed")
        go(stopped, first + half)
        torch.seed()  # nothing may be left over from the first half
        go(stopped, first + 2 * half)
        n, differences = compare(straight, stopped, first + 2 * half)
    yield Checked(run, first, first + half, first + 2 * half, n, tuple(differences))


def copy(run: Path, newest: Path | None, to: Path) -> Path:
    """A run folder that resumes where `run` would, on the same data."""
    to.mkdir()
    shutil.copy(run / "tokenizer.json", to)
    config, resolved, provenance = run_folder.read_run(run)
    resolved.pop("until", None)  # nothing here depends on the time of day
    run_folder.write_run(to, config, resolved, provenance)
    run_folder.point_to_data(to, run_folder.open_data(run))
    if newest:
        shutil.copytree(newest, to / "checkpoints" / newest.name)
        shutil.copy(run / "metrics.jsonl", to)
    return to


def go(run: Path, until: int) -> None:
    stop = Flag()
    for event in resume(run, stop):
        if isinstance(event, StepDone | Skipped) and event.step >= until:
            stop.set()
        if isinstance(event, Stopped | Finished):
            return


def compare(straight: Path, stopped: Path, step: int) -> tuple[int, list[str]]:
    """How many tensors were compared, and a sentence for everything that differs."""
    folders = [run / "checkpoints" / f"step-{step}" for run in (straight, stopped)]
    n, told = 0, []
    for name in ("model.safetensors", "train.safetensors"):
        a, b = (checkpoint.load_tensors(folder / name) for folder in folders)
        told += [f"{name}: {key} is in one and not in the other" for key in sorted(a.keys() ^ b.keys())]
        told += [f"{name}: {key}: {how}" for key in sorted(a.keys() & b.keys()) if (how := difference(a[key], b[key]))]
        n += len(a)
    states = [without_clocks(checkpoint.read_state(folder)) for folder in folders]
    told += [f"state.json: {key} is {states[0][key]} and {states[1][key]}" for key in states[0] if states[0][key] != states[1][key]]
    lines = [[without_clocks(event) for event in read_metrics(run)] for run in (straight, stopped)]
    if lines[0] != lines[1]:
        at = next((i for i, (x, y) in enumerate(zip(*lines, strict=False)) if x != y), min(map(len, lines)))
        told.append(f"metrics.jsonl: line {at + 1} is {lines[0][at : at + 1]} and {lines[1][at : at + 1]}")
    return n, told


def without_clocks(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key not in CLOCKS}


def difference(a: Tensor, b: Tensor) -> str:
    """What differs between two tensors, or nothing."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return f"{a.dtype} {tuple(a.shape)} and {b.dtype} {tuple(b.shape)}"
    apart = a != b
    if not (n := int(apart.sum())):
        return ""
    return f"{n:,} of {a.numel():,} values differ, by up to {(a.double() - b.double()).abs().max().item():.3g}"
