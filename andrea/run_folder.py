"""The run folder, the one hand-off between training and everything after it: how it is made, and its run.json. checkpoint.py has the rest.

RUN/run.json         format_version, config, resolved, provenance
RUN/tokenizer.json   RUN/data/ (shards, or data/pointer.json naming a prepared folder)
RUN/metrics.jsonl    RUN/samples.txt
RUN/checkpoints/step-N/   RUN/last  RUN/best  RUN/sound
RUN/unfinished.txt   until run.json is there: the folder is being made, or was left by a program that was killed
"""

import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from difflib import get_close_matches
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

from andrea.config import FORMAT_VERSION, RunConfig, from_dict, to_dict
from andrea.data.prepare import Prepared, open_prepared
from andrea.files import Damaged, field, hold, named, read_json, shown, write_json
from andrea.kernels import BY_NAME

UNFINISHED = "unfinished.txt"
WORDS = """A run of ANDREA is being made in this folder, or its making was killed. Once it begins to learn this file is gone.
Giving the same andrea train command again starts afresh here; or remove the folder.
"""
MADE = re.compile(
    r"data|\.data\..*|tokenizer\.json(\.partial)?|run\.json\.partial|" + re.escape(UNFINISHED)
)  # what stands in a run folder before run.json
RESOLVED = {
    "device": str,
    "dtype": str,
    "compile": bool,
    "threads": int,
    "kernels": str,
    "recompute": bool,
    "micro_batch": int,
    "steps": int,
}
MOST_THREADS = 4096  # more than any machine has cores; asking the system for a billion ends the process


def create(out: Path) -> Path:
    """Make the folder of a new run, without a mark. Raises FileExistsError as `unfinished` does."""
    claim(out).close()
    (out / UNFINISHED).unlink()
    return out


@contextmanager
def unfinished(out: Path) -> Iterator[Path]:
    """The folder of a new run, marked as unfinished and held while run.json is not there; an error until then leaves no folder.

    A folder that a killed process left unfinished is taken and emptied. Raises FileExistsError for one that is being made by another
    process, and for any other that is there: a run is never overwritten.
    """
    marker = claim(out)
    try:
        yield out
    except BaseException:
        if not (out / "run.json").exists():
            empty(out)
        raise
    finally:
        marker.close()  # first: Windows removes no open file
        with suppress(OSError):
            (out / UNFINISHED).unlink()
        if not (out / "run.json").exists():
            with suppress(OSError):
                out.rmdir()  # only where it is empty


def claim(out: Path) -> BinaryIO:
    marker = out / UNFINISHED
    try:
        out.mkdir(parents=True)
    except FileExistsError:
        if not is_left(out):
            raise FileExistsError(f"{out} exists already, and a run is never overwritten; give another name") from None
    else:
        try:
            with named(marker):
                marker.write_text(WORDS, encoding="utf-8", newline="\n")
        except BaseException:
            shutil.rmtree(out, ignore_errors=True)
            raise
    held = hold(marker)
    if held is None:
        raise FileExistsError(f"{out} is being made by another process; wait for it, or give another name")
    if not is_left(out):  # the other has just finished
        held.close()
        raise FileExistsError(f"{out} exists already, and a run is never overwritten; give another name")
    empty(out)
    return held


def is_left(out: Path) -> bool:
    """Whether a folder has the mark of an unfinished run and nothing but what comes before run.json."""
    return out.is_dir() and (out / UNFINISHED).is_file() and all(MADE.fullmatch(p.name) for p in out.iterdir())


def empty(out: Path) -> None:
    """Remove what an unfinished run has made, but its mark."""
    for path in out.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name != UNFINISHED:
            with suppress(OSError):
                path.unlink()


def next_name(parent: Path, stem: str) -> Path:
    """The first of stem-1, stem-2, ... in parent that does not exist, or that a killed process left unfinished."""
    n = 1
    while (parent / f"{stem}-{n}").exists() and not is_free(parent / f"{stem}-{n}"):
        n += 1
    return parent / f"{stem}-{n}"


def is_free(out: Path) -> bool:
    """Whether a folder was left unfinished and nobody is at work in it."""
    if not is_left(out) or (held := hold(out / UNFINISHED)) is None:
        return False
    held.close()
    return True


def write_run(run: Path, config: RunConfig, resolved: Mapping[str, Any], provenance: Mapping[str, Any]) -> None:
    write_json(
        run / "run.json",
        {"format_version": FORMAT_VERSION, "config": to_dict(config), "resolved": dict(resolved), "provenance": dict(provenance)},
    )


def read_run(run: Path) -> tuple[RunConfig, dict[str, Any], dict[str, Any]]:
    """config, resolved and provenance of a run folder. Raises ValueError for a folder that is none, or newer than this program."""
    path = run / "run.json"
    try:
        found = read_json(path)
    except (FileNotFoundError, NotADirectoryError):
        begun = "; its making was killed, and giving the same command again starts it afresh" if is_left(run) else nearest(run)
        raise ValueError(f"{run} is not a run folder: it has no run.json" + begun) from None
    check_version(path, found)
    config, resolved, provenance = (field(found, name, dict, path) for name in ("config", "resolved", "provenance"))
    for name in resolved.keys() & RESOLVED.keys():
        field(resolved, name, RESOLVED[name], path)
    field(resolved, "steps", int, path)
    if resolved.get("dtype", "float32") not in ("float32", "bfloat16"):
        raise Damaged(f"{path} is damaged: dtype is {shown(resolved['dtype'])}; wanted float32 or bfloat16")
    if resolved.get("kernels", "torch") not in BY_NAME:
        raise Damaged(f"{path} is damaged: kernels is {shown(resolved['kernels'])}; wanted {' or '.join(BY_NAME)}")
    for name, most in (("threads", MOST_THREADS), ("micro_batch", 2**31)):
        if not 1 <= resolved.get(name, 1) <= most:
            raise Damaged(f"{path} is damaged: {name} is {resolved[name]}; wanted 1 to {most}")
    legs = field({"legs": []} | resolved, "legs", list, path)
    if legs and not are_legs(legs, resolved["steps"]):
        raise Damaged(f"{path} is damaged: legs is {shown(legs)}; wanted first step, end and warm-up of each, up to {resolved['steps']}")
    if "until" in resolved and not is_time(resolved["until"]):
        raise Damaged(f"{path} is damaged: until is {shown(resolved['until'])}; wanted a date and time with its zone")
    if isinstance(config.get("optim"), dict):
        config = {**config, "optim": {"name": "adamw", **config["optim"]}}  # all that there was at first
    try:
        return from_dict(RunConfig, config), resolved, provenance
    except ValueError as error:
        raise Damaged(f"{path} is damaged: {error}") from None


def are_legs(legs: list[Any], steps: int) -> bool:
    """Whether this is what schedule.rate() takes: each leg begins within the one before, the last ends at `steps`."""
    kinds = [[type(value) for value in leg] if isinstance(leg, list) else None for leg in legs]
    if any(kind != [int, int, bool] for kind in kinds) or legs[0][0] != 0 or not legs[0][2] or legs[-1][1] != steps:
        return False
    return all(a[0] <= b[0] <= a[1] and b[0] < b[1] for a, b in pairwise(legs))


def is_time(value: Any) -> bool:
    try:
        return datetime.fromisoformat(value).tzinfo is not None
    except (TypeError, ValueError):
        return False


def find_run(name: str | Path, parent: Path = Path("runs")) -> Path:
    """The run folder called `name`: a path, or a name inside `parent`. Raises ValueError with the nearest name otherwise."""
    for candidate in (Path(name), parent / name):
        if (candidate / "run.json").exists():
            return candidate
    read_run(Path(name))
    raise AssertionError("read_run has refused it")


def nearest(run: Path) -> str:
    names = [p.parent.name for p in Path("runs").glob("*/run.json")]
    near = get_close_matches(run.name, names, n=1)
    return f"; did you mean runs/{near[0]}?" if near else "; `andrea runs` lists the runs here" if names else ""


def check_version(path: Path, found: Mapping[str, Any]) -> None:
    version = found.get("format_version")
    if not isinstance(version, int):
        raise Damaged(f"{path} is damaged: it has format_version {shown(version)}")
    if version > FORMAT_VERSION:
        raise ValueError(f"{path} has format_version {shown(version)}; this program reads up to {FORMAT_VERSION}: update andrea")


def point_to_data(run: Path, prepared: Prepared) -> None:
    """Use a prepared folder where it lies: remember its path and its fingerprint."""
    (run / "data").mkdir()
    write_json(
        run / "data" / "pointer.json",
        {"format_version": FORMAT_VERSION, "path": str(prepared.folder.resolve()), "fingerprint": prepared.fingerprint},
    )


def open_data(run: Path) -> Prepared:
    """The run's prepared data. Raises FileNotFoundError if what the pointer names is gone, ValueError if it has changed or never was."""
    if not (run / "data").exists() and "imported_from" in read_run(run)[2]:
        raise ValueError(f"{run} was imported and has no text of its own; name one: andrea eval {run} FILE, andrea quantize {run} FILE")
    pointer = run / "data" / "pointer.json"
    if not pointer.exists():
        return open_prepared(run / "data")
    found = read_json(pointer)
    check_version(pointer, found)
    folder, fingerprint = Path(field(found, "path", str, pointer)), field(found, "fingerprint", str, pointer)
    if not folder.is_absolute() or ".." in folder.parts or "\0" in str(folder):
        raise Damaged(f"{pointer} is damaged: path is {shown(str(folder))}; wanted the full path of a folder")
    prepared = open_prepared(folder)
    if prepared.fingerprint != fingerprint:
        raise Damaged(f"{folder} has changed since {run} was trained on it; prepare that text again, or start a new run")
    return prepared
