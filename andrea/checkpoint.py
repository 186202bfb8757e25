"""What a run folder keeps of the training: a model and all that it takes to go on, at one step and another.

    RUN/checkpoints/step-N/   model.safetensors  train.safetensors  state.json  manifest.json (written last)
    RUN/last  RUN/best  RUN/sound   small files naming a step: the newest, the lowest loss, the newest that the guard may go back to

A checkpoint is built beside its place and moved there whole; the small files are replaced, never rewritten. Nothing is a pickle.
"""

import hashlib
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from andrea.accounting import parameters
from andrea.config import FORMAT_VERSION, ModelConfig, RunConfig
from andrea.data.prepare import Prepared
from andrea.data.tokenizer import Tokenizer, load_tokenizer
from andrea.files import Damaged, field, flush, read_json, read_text, replace_text, shown, size_of, write_json
from andrea.kernels import TORCH, Kernels
from andrea.model import Transformer, unfilled
from andrea.run_folder import check_version, find_run, open_data, read_run

PAYLOAD = ("model.safetensors", "train.safetensors", "state.json")
STEP = re.compile(r"step-(0|[1-9][0-9]{0,17})")  # the name of a checkpoint's folder


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


def weights(model: Transformer) -> dict[str, Tensor]:
    """Every distinct tensor once: a tied output projection is the token embedding and is not written a second time."""
    return {name: t for name, t in model.state_dict().items() if not (model.config.tied and name == "unembed.weight")}


def set_weights(model: Transformer, tensors: Mapping[str, Tensor]) -> None:
    """Copy tensors into model. Raises ValueError unless names and shapes are exactly the model's."""
    wanted = weights(model)
    if wanted.keys() != tensors.keys():
        missing, extra = sorted(wanted.keys() - tensors.keys()), sorted(tensors.keys() - wanted.keys())
        raise Damaged(f"the weights do not fit the model: missing {missing[:3] or 'none'}, unknown {extra[:3] or 'none'}")
    for name, tensor in wanted.items():
        if tensor.shape != tensors[name].shape:
            raise Damaged(f"{name} is {tuple(tensors[name].shape)} in the file and {tuple(tensor.shape)} in the model")
        tensor.copy_(tensors[name])  # state_dict's tensors are the parameters' own storage, detached


def save(
    run: Path,
    step: int,
    model: Mapping[str, Tensor],
    train: Mapping[str, Tensor],
    state: Mapping[str, Any],
    best: bool,
    sound: bool = True,
    keep: int = 2,
    keep_every: int | None = None,
) -> Path:
    """Write step-N and make it the last (the best and the newest sound one, if so); then remove what `prune` says.

    A crash or a full disk at any moment leaves the earlier ones whole.
    """
    folder = run / "checkpoints" / f"step-{step}"
    if not is_whole(folder):
        building = folder.with_name(f"{folder.name}.partial")
        shutil.rmtree(building, ignore_errors=True)
        building.mkdir(parents=True)
        try:
            write_tensors(building / "model.safetensors", model)
            write_tensors(building / "train.safetensors", train)
            write_json(building / "state.json", {"format_version": FORMAT_VERSION, "step": step, "best": best, "sound": sound, **state})
            for name in PAYLOAD:
                flush(building / name)
            files = {name: {"bytes": (building / name).stat().st_size, "sha256": checksum(building / name)} for name in PAYLOAD}
            write_json(building / "manifest.json", {"format_version": FORMAT_VERSION, "files": files})
            shutil.rmtree(folder, ignore_errors=True)  # one that was damaged, or half removed
            building.replace(folder)
        except BaseException:
            shutil.rmtree(building, ignore_errors=True)  # the room that it takes is needed
            raise
        flush(folder.parent)
    point(run, folder, best, sound)
    prune(run, keep, keep_every)
    return folder


def write_tensors(path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, str] = {}) -> None:
    """A safetensors file, with what it says about itself. Raises OSError naming it where it cannot be written."""
    path.touch()
    mode = path.stat().st_mode  # as every other file here has it: save_file lets nobody but the owner read
    try:
        save_file({n: t.contiguous() for n, t in tensors.items()}, path, {"format_version": str(FORMAT_VERSION), **about})
        path.chmod(mode)
    except SafetensorError as error:
        code = re.search(r"\(os error (\d+)\)", str(error))
        if not code:
            raise OSError(f"{path} cannot be written: {error}") from None
        number = int(code[1])
        raise OSError(number, os.strerror(number), str(path), number) from None  # errno, or the last where the system is Windows


def point(run: Path, folder: Path, best: bool, sound: bool) -> None:
    """Make a checkpoint the last, and the best and the sound one if so."""
    for name, so in (("best", best), ("sound", sound)):
        if so:
            replace_text(run / name, folder.name)
    replace_text(run / "last", folder.name)


def pointed(run: Path, at: str) -> str | None:
    """The name of a checkpoint that the file `last`, `best` or `sound` holds; None where it is not there or holds anything else."""
    try:
        name = read_text(run / at).strip()
    except (FileNotFoundError, ValueError):
        return None
    return name if STEP.fullmatch(name) else None


def prune(run: Path, keep: int, keep_every: int | None) -> None:
    """Remove what interrupted saves left, and every checkpoint but the `keep` newest, the best, the sound one, and every Nth step's."""
    kept = {pointed(run, name) for name in ("last", "best", "sound") if (run / name).exists()}
    if None in kept:
        return  # one that is damaged might have named any of them
    steps = sorted(int(match[1]) for path in (run / "checkpoints").iterdir() if (match := STEP.fullmatch(path.name)))
    kept |= {f"step-{step}" for step in steps if step in steps[-keep:] or (keep_every and step % keep_every == 0)}
    for folder in (run / "checkpoints").iterdir():
        if folder.name not in kept:
            shutil.rmtree(folder, ignore_errors=True)


def forget_after(run: Path, step: int) -> None:
    """Remove the checkpoints of later steps: the run goes from `step` another way, and theirs will be other ones."""
    for folder in (run / "checkpoints").glob("step-*"):
        if (match := STEP.fullmatch(folder.name)) and int(match[1]) > step:
            shutil.rmtree(folder, ignore_errors=True)
    if (whole := run / "checkpoints" / f"step-{step}").exists():
        replace_text(run / "last", whole.name)


def verify(folder: Path) -> None:
    """Raises BrokenCheckpoint unless every file of the manifest is there with its size and checksum."""
    path = folder / "manifest.json"
    try:
        manifest = read_json(path)
        check_version(path, manifest)
        files = field(manifest, "files", dict, path)
        if files.keys() != set(PAYLOAD):
            raise Damaged(f"{path} names {shown(sorted(files))}; wanted {', '.join(PAYLOAD)}")
        for name in PAYLOAD:
            wanted = field(files, name, dict, path)
            if size_of(folder / name) != wanted.get("bytes") or checksum(folder / name) != wanted.get("sha256"):
                raise Damaged(f"{folder / name} is not what was written")
    except (OSError, ValueError) as error:
        raise BrokenCheckpoint(f"{folder} is not whole: {error}") from None


def is_whole(folder: Path) -> bool:
    try:
        verify(folder)
    except BrokenCheckpoint:
        return False
    return True


def newest_whole(run: Path) -> tuple[Path, list[str]]:
    """The newest checkpoint that passes `verify`, and a sentence for each newer one that does not. Raises ValueError for none."""
    folder, skipped = search(run)
    if folder is None:
        words = ": " + "; ".join(skipped) if skipped else "; it stopped before the first save: andrea train --resume begins it again"
        raise ValueError(f"{run} holds no whole checkpoint" + words)
    return folder, skipped


def newest_sound(run: Path) -> Path | None:
    """The newest whole checkpoint of a run in order, saved when it was due: what the guard goes back to."""
    return search(run, sound=True)[0]


def search(run: Path, sound: bool = False) -> tuple[Path | None, list[str]]:
    folders = [p for p in (run / "checkpoints").glob("step-*") if STEP.fullmatch(p.name)]
    skipped: list[str] = []
    for folder in sorted(folders, key=lambda p: int(p.name.removeprefix("step-")), reverse=True):
        try:
            verify(folder)
            if not sound or read_state(folder)["sound"]:
                return folder, skipped
        except BrokenCheckpoint as error:
            skipped.append(str(error))
    return None, skipped


def read_state(folder: Path) -> dict[str, Any]:
    """state.json of one checkpoint. Raises ValueError for one that is damaged or newer."""
    path = folder / "state.json"
    found = {"sound": True, "skips": []} | read_json(path)  # as they were before there was a guard
    check_version(path, found)
    for name, kind in (("step", int), ("windows", int), ("tokens", int), ("best", bool), ("sound", bool), ("seconds", float)):
        field(found, name, kind, path)
    if found.get("best_loss") is not None:
        field(found, "best_loss", float, path)
    for skip in field(found, "skips", list, path):
        if not isinstance(skip, list) or len(skip) != 3 or not all(type(n) is int and 0 <= n < 2**63 for n in skip):
            raise Damaged(f"{path} is damaged: skips holds {shown(skip)}; wanted three whole numbers")
    if f"step-{found['step']}" != folder.name:
        raise Damaged(f"{path} is damaged: step is {found['step']} in {folder.name}")
    return found


def step_at(run: Path, at: str) -> int:
    """The step that `last` or `best` names; where it names no checkpoint, that of the newest whole one."""
    name = pointed(run, at)
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
    tokenizer = load_tokenizer(run / "tokenizer.json")
    if tokenizer.vocab_size != config.model.vocab_size:
        raise Damaged(
            f"{run} is damaged: its tokenizer.json has {tokenizer.vocab_size:,} ids and its model {shown(config.model.vocab_size)}"
        )
    model = load_model(run / "checkpoints" / f"step-{step}" / "model.safetensors", config.model, kernels)
    model.to(device).eval()
    return Run(run, config, resolved, provenance, tokenizer, model, step)


def load_model(path: Path, config: ModelConfig, kernels: Kernels = TORCH) -> Transformer:
    """The model of run.json with the weights of a file. Raises ValueError, before anything is built, where the two do not agree."""
    check_weights(path, config)
    model = unfilled(config, kernels)
    set_weights(model, load_tensors(path))
    return model


def check_weights(path: Path, config: ModelConfig) -> None:
    """Raises ValueError unless the header of a weights file names exactly the model's tensors, in their shapes and in float32."""
    found = header(path)
    n_layer = len({name.split(".")[1] for name in found if name.startswith("blocks.")})
    if n_layer != config.n_layer:  # first: a list of a billion layers' tensors does not end
        raise Damaged(f"{path} does not fit run.json: it has {n_layer} layers, and n_layer is {config.n_layer}")
    wanted = {address: ("F32", shape) for address, shape in parameters(config)}
    if wrong := sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name)):
        told = [f"{shown(one[wrong[0]][1])} in {one[wrong[0]][0]}" if wrong[0] in one else "not there" for one in (found, wanted)]
        raise Damaged(f"{path} does not fit run.json: {shown(wrong[0])} is {told[0]} in the file and {told[1]} in the model")


def header(path: Path) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Name -> dtype (F32, U8, ...) and shape of every tensor of a safetensors file, of which nothing else is read."""
    size_of(path)
    path.open("rb").close()  # says why where it may not be read; safe_open says that it is not there
    try:
        with safe_open(path, "pt") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118, it has no iterator
            return {name: (part.get_dtype(), tuple(part.get_shape())) for name, part in slices.items()}
    except (OSError, SafetensorError) as error:
        raise Damaged(f"{path} cannot be read as safetensors: {error}") from None


def load_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a file, float32 or uint8. They are the file, mapped: copy what is kept, or Windows will not remove it."""
    if others := {dtype for dtype, _ in header(path).values()} - {"F32", "U8"}:
        raise Damaged(f"{path} holds tensors of {', '.join(sorted(others))}; ANDREA writes float32 and bytes alone")
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise Damaged(f"{path} cannot be read as safetensors: {error}") from None


def checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
