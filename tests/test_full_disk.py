"""Full disks: one message that names the file, exit code 1, nothing lost, and the same end once there is room.

The disk is a small tmpfs in a namespace of its own, or a program whose writes fail from the N-th on.
Each attempt is a fork of one process that has imported everything, because importing takes longer than training.
"""

import builtins
import errno
import importlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

TINY = "tokenizer=byte context=16 n_layer=1 n_head=1 d_model=16 batch_tokens=64 eval_tokens=64 steps=4"
OFTEN = "save_every=2 evaluate_every=4 sample_every=4"
IN_A_FORK = "kernels=torch"  # Numba ends a process that was forked from one whose threads it had used
TRAIN = ["--force", *(part for change in f"{TINY} {OFTEN} {IN_A_FORK}".split() for part in ("--set", change))]  # else the disk is looked at
SIZES = (8, 16, 24, 40, 64, 96, 160, 192, 224, 256, 400)  # KiB; the run takes some 300
MOUNT = ["unshare", "--mount", "--map-root-user"]


def can_mount() -> bool:
    if not sys.platform.startswith("linux") or not shutil.which("unshare"):
        return False
    return not subprocess.run([*MOUNT, "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, check=False).returncode


mounts = pytest.mark.skipif(not can_mount(), reason="file systems cannot be mounted here without privilege")
forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")


@pytest.fixture(scope="module")
def text(tmp_path_factory, text_file):
    path = tmp_path_factory.mktemp("short") / "short.txt"
    path.write_bytes(text_file.read_bytes()[:6000])
    return path


def script(name: str, *args: object, before: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """Run a function of this file in a process of its own; what it printed, a JSON line each."""
    one_thread = os.environ | {"OMP_NUM_THREADS": "1"}  # these functions fork, and OpenMP's threads do not live on in a fork
    command = [*before, sys.executable, __file__, name, *map(str, args)]
    done = subprocess.run(command, env=one_thread, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def check(attempt: dict[str, Any]) -> None:
    """What holds wherever the disk is full."""
    assert attempt["code"] == 1, attempt
    where = "go on from the last save" if attempt["saved"] else "begin it again, for nothing was saved yet"
    advice = rf"; to {where}: andrea train --resume [^\n]+" if attempt["has_run"] else ""
    message = rf"andrea: No space left on device: \S+; make room, and nothing that was saved is lost{advice}\n"
    assert re.fullmatch(message, attempt["errors"]), attempt
    assert attempt["partial"] == [], attempt
    assert (attempt["end"], attempt["same"]) == (0, True), attempt


@mounts
def test_wherever_a_small_disk_is_full_nothing_is_lost_and_the_run_comes_to_the_same_end(tmp_path, text):
    attempts = script("small_disks", tmp_path, text, before=tuple(MOUNT))
    full = [attempt for attempt in attempts if attempt["code"]]
    for attempt in full:
        check(attempt)
    assert attempts[-1]["code"] == 0
    assert {(attempt["has_run"], attempt["saved"] > 0) for attempt in full} == {(False, False), (True, False), (True, True)}


@forks
def test_whichever_write_is_the_first_to_fail_nothing_is_lost_and_the_run_comes_to_the_same_end(tmp_path, text):
    attempts = script("failing_writes", tmp_path, text)
    full = [attempt for attempt in attempts if attempt["code"]]
    for attempt in full:
        check(attempt)
    named = {re.sub(r"\.\d+.*", "", attempt["name"]) for attempt in full}
    payload = {"model.safetensors", "train.safetensors", "state.json", "manifest.json"}
    data = {"unfinished.txt", "tokenizer.json", "train-00000.tok.part", "val-00000.tok.part", "run.json"}
    assert named >= payload | data | {"metrics.jsonl", "samples.txt", "last", "best", "events.out.tfevents"}, named
    assert attempts[-1]["code"] == 0


@mounts
def test_a_picture_that_finds_no_room_is_said_so_and_leaves_none(tmp_path, finished_run):
    (attempt,) = script("small_picture", tmp_path, finished_run, before=tuple(MOUNT))
    assert attempt["code"] == 1
    assert re.fullmatch(r"andrea: No space left on device: \S+/loss\.png; make room.*\n", attempt["errors"]), attempt
    assert attempt["files"] == []


@mounts
def test_a_disk_that_can_only_be_read_is_named(tmp_path, text, finished_run):
    attempts = {attempt["what"]: attempt for attempt in script("read_only", tmp_path, text, finished_run, before=tuple(MOUNT))}
    for what in ("train", "resume", "data", "picture"):
        assert attempts[what]["code"] == 1, attempts
        assert re.fullmatch(r"andrea: Read-only file system: \S*disk\S*(; [^\n]*)?\n", attempts[what]["errors"]), attempts
    assert attempts["eval"]["code"] == attempts["runs"]["code"] == 0, attempts


@forks
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can become somebody who may not read")
def test_what_may_not_be_read_is_named(finished_run):
    for attempt in script("as_nobody", finished_run):
        assert attempt["code"] == 1, attempt
        assert re.fullmatch(rf"andrea: Permission denied: \S*/{attempt['hidden']}(/\S*)?\n", attempt["errors"]), attempt


# --- in processes of their own ------------------------------------------------------------------------------------------------------


def command(*args: object, before: Callable[[], None] = lambda: None) -> dict[str, Any]:
    """The command line in a fork: its exit code and what it said on standard error."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        if not (child := os.fork()):
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            code = 70
            try:
                sys.argv = ["andrea", *map(str, args)]
                before()
                from andrea.cli import main

                main()
                code = 0
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else int(end.code is not None)
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        err.seek(0)
        return {"code": code, "errors": err.read().decode()}


def outcome(run: Path) -> Any:
    """What has to be equal at the end: every loss, and the weights."""
    import hashlib

    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    losses = [(line["event"], line["step"], line.get("loss"), line.get("text")) for line in lines]
    last = (run / "last").read_text(encoding="utf-8")
    return losses, last, hashlib.sha256((run / "checkpoints" / last / "model.safetensors").read_bytes()).hexdigest()


def attempt(run: Path, text: Path, wanted: Any, before: Callable[[], None], room: Callable[[], None]) -> dict[str, Any]:
    """Train until the disk is full, make room, go on as the message says, and compare."""
    from andrea.checkpoint import is_whole, load

    told = command("train", text, "--out", run, *TRAIN, before=before)
    name = re.search(r"device: (\S+);", told["errors"])
    told |= {"name": Path(name[1]).name if name else "", "has_run": (run / "run.json").exists()}
    told["partial"] = [str(p) for p in run.rglob("*.part*")]
    told["saved"] = sum(map(is_whole, (run / "checkpoints").glob("step-*")))
    if told["code"] == 0:
        return told
    if told["saved"]:
        load(run)
    elif told["has_run"]:
        shutil.rmtree(run)
    elif run.exists():
        told["partial"].append("the folder")
    room()
    again = command("train", "--resume", run) if told["saved"] else command("train", text, "--out", run, *TRAIN)
    told["end"] = again["code"]
    told["same"] = outcome(run) == wanted if again["code"] == 0 else again["errors"]
    return told


def straight(folder: Path, text: Path) -> Any:
    here("train", text, "--out", folder / "straight", *TRAIN)
    return outcome(folder / "straight")


def here(*args: object) -> None:
    """The command line in this process, which must succeed: the forks then have everything imported."""
    importlib.import_module("torch").set_num_threads(1)
    out = sys.stdout
    sys.stdout, sys.argv = io.StringIO(), ["andrea", *map(str, args)]
    try:
        importlib.import_module("andrea.cli").main()
    except SystemExit as end:
        assert not end.code
    finally:
        sys.stdout = out


def mount(folder: Path, options: str) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", folder], check=True)


def small_disks(folder: Path, text: Path) -> None:
    wanted = straight(folder, text)
    for kib in SIZES:
        disk = folder / f"disk{kib}"
        disk.mkdir()
        mount(disk, f"size={kib}k")
        room = lambda disk=disk: mount(disk, "remount,size=100m")
        print(json.dumps({"kib": kib, **attempt(disk / "run", text, wanted, lambda: None, room)}))


def failing_writes(folder: Path, text: Path) -> None:
    wanted = straight(folder, text)
    n, code = 0, 1
    while code:
        n += 1
        told = attempt(folder / f"run{n}", text, wanted, lambda n=n: fail_from(n, folder), lambda: None)
        code = told["code"]
        print(json.dumps({"n": n, **told}))


def fail_from(n: int, folder: Path) -> None:
    """From the n-th on, every write, flush to disk and new folder below `folder` fails; a file keeps half of what did not fit."""
    from safetensors import SafetensorError

    from andrea import checkpoint

    count, plain_open, plain_fsync, plain_mkdir, plain_save = 0, io.open, os.fsync, os.mkdir, checkpoint.save_file

    def is_full() -> bool:
        nonlocal count
        count += 1
        return count >= n

    full = lambda *path: OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), *path)

    class File(io.FileIO):
        def write(self, data: Any) -> int:
            if is_full():
                super().write(bytes(data)[: len(data) // 2])
                raise full()
            return super().write(data)

    def opened(
        file: Any, mode: str = "r", buffering: int = -1, encoding: Any = None, errors: Any = None, newline: Any = None, **more: Any
    ) -> Any:
        if isinstance(file, int) or str(folder) not in str(file) or not set(mode) & set("wax"):
            return plain_open(file, mode, buffering, encoding, errors, newline, **more)
        raw = File(file, mode.replace("b", "").replace("t", ""))
        if buffering == 0:
            return raw
        buffered = io.BufferedWriter(raw)
        return buffered if "b" in mode else io.TextIOWrapper(buffered, encoding, errors, newline)

    def fsync(handle: int) -> None:
        if is_full():
            raise full()
        plain_fsync(handle)

    def mkdir(path: Any, *args: Any, **more: Any) -> None:
        if str(folder) in str(path) and is_full():
            raise full(str(path))
        plain_mkdir(path, *args, **more)

    def save_file(tensors: Any, path: Path, metadata: Any) -> None:
        plain_save(tensors, path, metadata)
        if is_full():
            os.truncate(path, path.stat().st_size // 2)
            raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    io.open = builtins.open = opened  # type: ignore[assignment]
    os.fsync, os.mkdir, checkpoint.save_file = fsync, mkdir, save_file  # type: ignore[assignment]


def small_picture(folder: Path, run: Path) -> None:
    importlib.import_module("andrea.training.history")

    disk = folder / "disk"
    disk.mkdir()
    mount(disk, "size=8k")
    told = command("runs", run, "--png", disk / "loss.png")
    print(json.dumps({**told, "files": [p.name for p in disk.iterdir()]}))


def read_only(folder: Path, text: Path, run: Path) -> None:
    importlib.import_module("andrea.training.start")

    disk = folder / "disk"
    disk.mkdir()
    mount(disk, "size=100m")
    shutil.copytree(run, disk / "runs" / "mine")
    mine = disk / "runs" / "mine"
    metrics = (mine / "metrics.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (mine / "metrics.jsonl").write_text("".join(metrics[:-1]), encoding="utf-8")  # not quite finished
    mount(disk, "remount,ro")
    for what, args in {
        "train": ("train", text, "--out", disk / "run", *TRAIN),
        "resume": ("train", "--resume", mine),
        "data": ("data", text, "--out", disk / "prepared", "--vocab-size", 300),
        "picture": ("runs", mine, "--png", disk / "loss.png"),
        "eval": ("eval", mine),
        "runs": ("runs", "--folder", disk / "runs"),
    }.items():
        print(json.dumps({"what": what, **command(*args)}))


def as_nobody(finished: Path) -> None:
    """One file or folder after the other may not be read, by somebody who is not root."""
    for use in ("eval", "runs"):  # nobody may not import either
        here(use, finished)

    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        run = Path(shutil.copytree(finished, Path(folder, "mine")))
        for hidden in ("run.json", "tokenizer.json", "model.safetensors", "metrics.jsonl", "data", "mine"):
            path = run if hidden == "mine" else next(run.rglob(hidden))
            mode = path.stat().st_mode
            path.chmod(0)
            told = command("runs" if hidden == "metrics.jsonl" else "eval", run, before=lambda: os.setuid(65_534))
            path.chmod(mode)
            print(json.dumps({"hidden": hidden, **told}))


if __name__ == "__main__":
    globals()[sys.argv[1]](*(Path(arg) if "/" in arg else arg for arg in sys.argv[2:]))
