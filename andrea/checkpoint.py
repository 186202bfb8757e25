"""The run folder: the one hand-off between training and everything after it.

    RUN/run.json         format_version, config, resolved, provenance
    RUN/tokenizer.json   RUN/data/ (shards, or data/pointer.json naming a prepared folder)
    RUN/metrics.jsonl    RUN/samples.txt
    RUN/checkpoints/step-N/   model.safetensors  train.safetensors  state.json  manifest.json (written last)
    RUN/last  RUN/best   small files naming a step

A checkpoint is built beside its place and moved there whole; the small files are replaced, never rewritten. Nothing is a pickle.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from andrea.config import FORMAT_VERSION, Damaged, RunConfig, from_dict, to_dict
from andrea.data.prepare import Prepared, open_prepared
from andrea.data.tokenizer import Tokenizer, load_tokenizer
from andrea.kernels import TORCH, Kernels
from andrea.model import Transformer

PAYLOAD = ("model.safetensors", "train.safetensors", "state.json")


class BrokenCheckpoint(Exception):
    """A checkpoint that is not whole, and what is wrong with it."""


@dataclass
class Run:
    """What `load` gives: a model at one step, and all that belongs to it."""

    path: Path
    config: RunConfig
    resolved: dict[str, Any]
    provenance: dict[str, Any]
    tokenizer: Tokenizer
    model: Transformer
    step: int

    def open_data(self) -> Prepared:
        return open_data(self.path)


# --- the folder ---------------------------------------------------------------------------------------------------------------------


def create(out: Path) -> Path:
    """Make the folder of a new run. Raises FileExistsError where something is already: a run is never overwritten."""
    try:
        out.mkdir(parents=True)
    except FileExistsError:
        raise FileExistsError(f"{out} exists already, and a run is never overwritten; give another name") from None
    return out


def next_name(parent: Path, stem: str) -> Path:
    """The first of stem-1, stem-2, ... that does not exist in parent."""
    n = 1
    while (parent / f"{stem}-{n}").exists():
        n += 1
    return parent / f"{stem}-{n}"


def write_run(run: Path, config: RunConfig, resolved: Mapping[str, Any], provenance: Mapping[str, Any]) -> None:
    write_json(
        run / "run.json",
        {"format_version": FORMAT_VERSION, "config": to_dict(config), "resolved": dict(resolved), "provenance": dict(provenance)},
    )


def read_run(run: Path) -> tuple[RunConfig, dict[str, Any], dict[str, Any]]:
    """config, resolved and provenance of a run folder. Raises ValueError for a folder that is none, or newer than this program."""
    try:
        found = read_json(run / "run.json")
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(f"{run} is not a run folder: it has no run.json" + nearest(run)) from None
    try:
        return from_dict(RunConfig, found["config"]), dict(found["resolved"]), dict(found["provenance"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Damaged(f"{run / 'run.json'} cannot be read: {error!r}") from None


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
    version = found.get("format_version") if isinstance(found, Mapping) else None
    if not isinstance(version, int):
        raise Damaged(f"{path} is damaged: it has no format_version")
    if version > FORMAT_VERSION:
        raise ValueError(f"{path} has format_version {version!r}; this program reads up to {FORMAT_VERSION}: update andrea")


def point_to_data(run: Path, prepared: Prepared) -> None:
    """Use a prepared folder where it lies: remember its path and its fingerprint."""
    (run / "data").mkdir()
    write_json(
        run / "data" / "pointer.json",
        {"format_version": FORMAT_VERSION, "path": str(prepared.folder.resolve()), "fingerprint": prepared.fingerprint},
    )


def open_data(run: Path) -> Prepared:
    """The run's prepared data. Raises FileNotFoundError if what the pointer names is gone, ValueError if it has changed."""
    pointer = run / "data" / "pointer.json"
    if not pointer.exists():
        return open_prepared(run / "data")
    found = read_json(pointer)
    prepared = open_prepared(Path(found["path"]))
    if prepared.fingerprint != found["fingerprint"]:
        raise ValueError(f"{found['path']} has changed since {run} was trained on it; prepare that text again, or start a new run")
    return prepared


# --- one checkpoint -----------------------------------------------------------------------------------------------------------------


def weights(model: Transformer) -> dict[str, Tensor]:
    """Every distinct tensor once: a tied output projection is the token embedding and is not written a second time."""
    return {name: t for name, t in model.state_dict().items() if not (model.config.tied and name == "unembed.weight")}


def set_weights(model: Transformer, tensors: Mapping[str, Tensor]) -> None:
    """Copy tensors into model. Raises ValueError unless names and shapes are exactly the model's."""
    wanted = weights(model)
    if wanted.keys() != tensors.keys():
        missing, extra = sorted(wanted.keys() - tensors.keys()), sorted(tensors.keys() - wanted.keys())
        raise ValueError(f"the weights do not fit the model: missing {missing[:3] or 'none'}, unknown {extra[:3] or 'none'}")
    for name, tensor in wanted.items():
        if tensor.shape != tensors[name].shape:
            raise ValueError(f"{name} is {tuple(tensors[name].shape)} in the file and {tuple(tensor.shape)} in the model")
        tensor.copy_(tensors[name])  # state_dict's tensors are the parameters' own storage, detached


def save(run: Path, step: int, model: Transformer, train: Mapping[str, Tensor], state: Mapping[str, Any], best: bool) -> Path:
    """Write step-N and make it the last (and the best, if so). A crash at any moment leaves the earlier ones whole."""
    folder = run / "checkpoints" / f"step-{step}"
    if not is_whole(folder):
        building = folder.with_name(f"{folder.name}.partial")
        shutil.rmtree(building, ignore_errors=True)
        building.mkdir(parents=True)
        save_file(
            {n: t.contiguous() for n, t in weights(model).items()}, building / "model.safetensors", {"format_version": str(FORMAT_VERSION)}
        )
        save_file({n: t.contiguous() for n, t in train.items()}, building / "train.safetensors", {"format_version": str(FORMAT_VERSION)})
        write_json(building / "state.json", {"format_version": FORMAT_VERSION, "step": step, "best": best, **state})
        for name in PAYLOAD:
            flush(building / name)
        files = {name: {"bytes": (building / name).stat().st_size, "sha256": checksum(building / name)} for name in PAYLOAD}
        write_json(building / "manifest.json", {"format_version": FORMAT_VERSION, "files": files})
        shutil.rmtree(folder, ignore_errors=True)  # one that was damaged, or half removed
        building.replace(folder)
        flush(folder.parent)
    point(run, folder, best)
    prune(run)
    return folder


def point(run: Path, folder: Path, best: bool) -> None:
    """Make a checkpoint the last, and the best if so."""
    if best:
        replace_text(run / "best", folder.name)
    replace_text(run / "last", folder.name)


def prune(run: Path) -> None:
    """Remove every checkpoint that neither `last` nor `best` names, and what interrupted saves left."""
    kept = {(run / name).read_text(encoding="utf-8").strip() for name in ("last", "best") if (run / name).exists()}
    for folder in (run / "checkpoints").iterdir():
        if folder.name not in kept:
            shutil.rmtree(folder, ignore_errors=True)


def verify(folder: Path) -> None:
    """Raises BrokenCheckpoint unless every file of the manifest is there with its size and checksum."""
    try:
        manifest = read_json(folder / "manifest.json")
        for name, wanted in manifest["files"].items():
            if (folder / name).stat().st_size != wanted["bytes"] or checksum(folder / name) != wanted["sha256"]:
                raise BrokenCheckpoint(f"{folder / name} is not what was written")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BrokenCheckpoint(f"{folder} is not whole: {error}") from None


def is_whole(folder: Path) -> bool:
    try:
        verify(folder)
    except BrokenCheckpoint:
        return False
    return True


def newest_whole(run: Path) -> tuple[Path, list[str]]:
    """The newest checkpoint that passes `verify`, and a sentence for each newer one that does not."""
    folders = [p for p in (run / "checkpoints").glob("step-*") if p.name.removeprefix("step-").isdigit()]
    skipped: list[str] = []
    for folder in sorted(folders, key=lambda p: int(p.name.removeprefix("step-")), reverse=True):
        try:
            verify(folder)
            return folder, skipped
        except BrokenCheckpoint as error:
            skipped.append(str(error))
    raise ValueError(
        f"{run} holds no whole checkpoint"
        + (": " + "; ".join(skipped) if skipped else "; it stopped before the first save: remove it and start again")
    )


def read_state(folder: Path) -> dict[str, Any]:
    """state.json of one checkpoint."""
    return read_json(folder / "state.json")


def step_at(run: Path, at: str) -> int:
    """The step that `last` or `best` names; where it names no checkpoint, that of the newest whole one."""
    name = (run / at).read_text(encoding="utf-8").strip() if (run / at).exists() else ""
    if not name or not (run / "checkpoints" / name / "manifest.json").exists():
        name = newest_whole(run)[0].name
    return int(name.removeprefix("step-"))


def load(path: str | Path, at: str = "best", device: str = "cpu", kernels: Kernels = TORCH) -> Run:
    """Open a run folder at its `best` or `last` step. Raises ValueError for what is not a run or holds no such checkpoint."""
    run = find_run(path)
    config, resolved, provenance = read_run(run)
    if at not in ("best", "last"):
        raise ValueError(f"at={at!r} is neither 'best' nor 'last'")
    step = step_at(run, at)
    model = Transformer(config.model, kernels)
    set_weights(model, load_tensors(run / "checkpoints" / f"step-{step}" / "model.safetensors"))
    model.to(device).eval()
    return Run(run, config, resolved, provenance, load_tokenizer(run / "tokenizer.json"), model, step)


def load_tensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise Damaged(f"{path} cannot be read as safetensors: {error}") from None


# --- files --------------------------------------------------------------------------------------------------------------------------


def read_json(path: Path) -> dict[str, Any]:
    """The object that write_json wrote. Raises Damaged for what is none, ValueError for one of a newer format."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise Damaged(f"{path} cannot be read: {error}") from None
    check_version(path, found)
    return found


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    replace_text(path, json.dumps(value, indent=2) + "\n")  # ASCII: a path may hold bytes that are no text


def replace_text(path: Path, text: str) -> None:
    """Give path this content in one step: whoever reads it sees the old text or the new."""
    temporary = path.with_name(path.name + ".partial")
    temporary.write_text(text, encoding="utf-8", newline="\n")
    flush(temporary)
    temporary.replace(path)


def flush(path: Path) -> None:
    """Ask the system to put a file or folder on the disk now. Windows cannot open folders, and does not need to."""
    if path.is_dir() and os.name == "nt":
        return
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
