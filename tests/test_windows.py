"""Windows' rules about files, kept by this program on Linux: what is open or mapped is neither replaced, renamed nor removed.

A program started by the test refuses it as Windows would, and goes through the life of a run.
"""

import json
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="Windows is emulated on Linux alone")

RULES = '''
import functools, os, shutil, sys
from pathlib import Path

HOME = Path(sys.argv[1]).resolve()
REFUSED = []

def used():
    """Every file that this process has open or mapped."""
    for handle in os.listdir("/proc/self/fd"):
        try:
            yield os.readlink(f"/proc/self/fd/{handle}")
        except OSError:
            pass
    with open("/proc/self/maps") as maps:
        yield from (line.split(None, 5)[5].rstrip("\\n") for line in maps if len(line.split(None, 5)) == 6)

def refuse(name, *paths):
    for path in paths:
        if isinstance(path, int):
            continue
        path = os.path.realpath(os.fspath(path))
        for file in used():
            if file == path or file.startswith(path + "/"):
                REFUSED.append(f"{name} {path}: {file} is open")
                raise PermissionError(13, "The process cannot access the file because it is being used by another process", path)

def watched(name):
    plain = getattr(os, name)
    @functools.wraps(plain)
    def call(*paths, **more):
        full = [Path(os.readlink(f"/proc/self/fd/{more['dir_fd']}"), p) if more.get("dir_fd") is not None else p for p in paths]
        refuse(name, *full)
        return plain(*paths, **more)
    setattr(os, name, call)

for name in ("replace", "rename", "unlink", "remove"):
    watched(name)
shutil._use_fd_functions = False  # as on Windows: rmtree goes by names
'''

LIFE = (
    RULES
    + """
import json
from threading import Event as Flag
import torch
torch.set_num_threads(1)
from andrea import run_folder
from andrea.cli import app
from andrea.config import override
from andrea.data.prepare import prepare
from andrea.presets import preset
from andrea.training.report import StepDone
from andrea.training.start import resume, train
from dataclasses import replace

text, out = sys.argv[2], HOME
tiny = "vocab_size=300 context=16 n_layer=1 n_head=1 d_model=16 batch_tokens=64 eval_tokens=64 steps=12"
config = override(preset("andrea-1m"), *tiny.split(), "save_every=2", "evaluate_every=3", "sample_every=4", "keep=1")
config = replace(config, data=replace(config.data, paths=(text,)))
prepare(config.data, 300, out / "prepared")
pointing = replace(config, data=replace(config.data, paths=(str(out / "prepared"),)))
list(train(pointing, out / "pointing"))
stop = Flag()
for event in train(config, out / "run", stop):
    if isinstance(event, StepDone) and event.step == 5:
        stop.set()
list(resume(out / "run"))
# and a folder that a killed program left
with run_folder.unfinished(out / "again") as made:
    (made / "data").mkdir()
    shutil.copytree(made, out / "left")
list(train(config, out / "left"))
run = str(out / "run")
for command in (
    ["eval", run],
    ["eval", run, text],
    ["generate", run, "def", "--max-tokens", "5"],
    ["data", text, "--out", str(out / "other"), "--vocab-size", "300"],
    ["runs", run, "--png", str(out / "x.png")],
):
    app(command, standalone_mode=False)
print()
print(json.dumps(REFUSED))
"""
)


def start(code: str, *args: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, *map(str, args)], capture_output=True, text=True, check=False)


def test_the_life_of_a_run_keeps_windows_rules(tmp_path, text_file):
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / "temporary").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", LIFE, str(home), str(text_file)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path / "temporary")},
    )
    assert done.returncode == 0, done.stderr
    refused = json.loads(done.stdout.splitlines()[-1])
    assert [line for line in refused if str(home) in line] == []
    for run in ("run", "left", "pointing"):
        kept = {(home / run / name).read_text(encoding="utf-8") for name in ("last", "best")}
        assert {p.name for p in (home / run / "checkpoints").iterdir()} == kept
        assert not [p for p in (home / run).rglob("*") if "part" in p.suffix or p.name == "unfinished.txt"]


@pytest.mark.parametrize("call", ["os.replace(f, g)", "f.rename(g)", "f.unlink()", "shutil.rmtree(f.parent)", "f.parent.rename(g)"])
@pytest.mark.parametrize("use", ["h = f.open()", "import mmap; o = f.open('r+b'); h = mmap.mmap(o.fileno(), 0); o.close()"])
def test_the_emulation_refuses_what_windows_refuses(tmp_path, call, use):
    files = "(HOME / 'a').mkdir(); f, g = HOME / 'a' / 'f', HOME / 'g'; f.write_text('x')"
    code = f"{RULES}\n{files}\n{use}\ntry: {call}\nexcept PermissionError: print(1)\nh.close()\n{call}\nprint(2)"
    done = start(code, tmp_path)
    assert done.stdout.split() == ["1", "2"], done.stderr


def test_importing_in_a_spawned_process_does_nothing_else(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        threads, environment = pool.apply(imported)
    assert threads == 1
    assert environment == {}
    assert list(tmp_path.iterdir()) == []


def imported() -> tuple[int, dict[str, str]]:
    import importlib
    import threading

    before, there = dict(os.environ), threading.active_count()
    for name in ("andrea", "andrea.cli", "andrea.training.start", "andrea.infer", "andrea.files"):
        importlib.import_module(name)
    changed = {key: value for key, value in os.environ.items() if before.get(key) != value and key.startswith(("OMP", "GOMP", "ANDREA"))}
    return 1 + threading.active_count() - there, changed
