"""The Triton kernels without a GPU: what they compute, by the interpreter, and what they are compiled to.

Either takes a process of its own: a module that was imported for the interpreter cannot be compiled, nor the reverse.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="Triton is not installed; it has wheels for Linux only")

HERE = Path(__file__).resolve().parent


def pytest_in(file: str, **env: str) -> str:
    """What a process of its own says of a file of tests."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--durations=5", str(HERE / file)]
    done = subprocess.run(command, cwd=HERE.parent, env={**os.environ, **env}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    return done.stdout


def test_the_kernels_compute_what_their_references_do():
    pytest_in("triton_interpreted.py", TRITON_INTERPRET="1")


def test_the_kernels_compile_to_what_the_hardware_is_good_at():
    pytest_in("triton_compiled.py", TRITON_INTERPRET="0")


def test_importing_the_kernels_brings_no_triton():
    code = "import sys, andrea.kernels, andrea.model, andrea.training; print('triton' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_the_gpu_benchmark_runs_through_the_interpreter(tmp_path):
    command = [sys.executable, str(HERE.parent / "benchmarks" / "gpu.py"), "--quick", "--out", str(tmp_path / "gpu.json")]
    done = subprocess.run(command, env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    import json

    said = json.loads((tmp_path / "gpu.json").read_text(encoding="utf-8"))
    assert said["failed"] == {}
    assert all(row["right"] for row in said["correctness"])
    assert said["gpu"] is None
