"""Set up, try and test ANDREA with nothing but Python: `python dev.py setup | demo | test`. Standard library only."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
PYTHON = BIN / ("python.exe" if os.name == "nt" else "python")

# Where no NVIDIA GPU is, this exact version: an index or folder that has the CPU build of it serves that one.
TORCH_WITHOUT_GPU, TORCH_WITH_GPU = "torch==2.13.0", "torch>=2.9"


def run(*command: str | Path) -> None:
    """Run a command in the project's folder; leave with its exit code if it fails."""
    print("$", *(os.path.relpath(c, ROOT) if isinstance(c, Path) else c for c in command), flush=True)
    code = subprocess.run([str(c) for c in command], cwd=ROOT, check=False).returncode
    if code:
        sys.exit(code)


def setup(extras: str = "plot") -> None:
    """Make .venv and install ANDREA into it; what is already there is kept."""
    if sys.hexversion < 0x030B0000:
        sys.exit(f"ANDREA needs Python 3.11 or newer; this is {sys.version.split()[0]}. Try: python3.11 dev.py setup")
    if not PYTHON.exists():
        print(f"making {VENV.name}", flush=True)
        venv.create(VENV, with_pip=True)
    mark = VENV / f"installed-{extras}"
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    if mark.exists() and mark.read_text(encoding="utf-8") == project:
        return
    pip = (PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    if subprocess.run([PYTHON, "-c", "import torch"], check=False, capture_output=True).returncode:
        run(*pip, TORCH_WITH_GPU if shutil.which("nvidia-smi") else TORCH_WITHOUT_GPU)
    # "compat" puts this folder on Python's path; the other way an `andrea` folder in the current directory would hide the package.
    run(*pip, "--config-settings", "editable_mode=compat", "--editable", f".[{extras}]")
    mark.write_text(project, encoding="utf-8")


def demo(*options: str) -> None:
    setup()
    run(PYTHON, "-m", "andrea", "demo", *options)


def test(*options: str) -> None:
    """Format, lint, types, and every test, a process for each core; options go to pytest (-n 0: one process)."""
    setup("test")
    run(PYTHON, "-m", "ruff", "format", "--check", ".")
    run(PYTHON, "-m", "ruff", "check", ".")
    run(PYTHON, "-m", "mypy")
    run(PYTHON, "-m", "pytest", "-n", "auto", "--dist", "worksteal", *options)


COMMANDS: dict[str, Callable[..., None]] = {"setup": setup, "demo": demo, "test": test}

if __name__ == "__main__":
    name, *rest = sys.argv[1:] or ["--help"]
    if name not in COMMANDS:
        print(__doc__ if name in ("-h", "--help") else f"python dev.py setup | demo | test: {name!r} is none of these")
        sys.exit(0 if name in ("-h", "--help") else 2)
    if name == "setup" and rest:
        sys.exit(f"dev.py setup takes nothing more; given: {' '.join(rest)}")
    COMMANDS[name](*rest)
