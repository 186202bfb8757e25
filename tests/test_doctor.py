"""`andrea doctor`, and the commands on a small machine."""

import json
import os
import sys

import pytest
import torch
from test_cli import SMALL, andrea
from test_mistakes import many

from andrea import machine
from andrea.cli import doctor


def test_the_doctor_tells_what_there_is_and_what_will_be_used(tmp_path):
    shown, printed = many([("doctor", "--folder", tmp_path), ("doctor", "--json")], tmp_path)
    assert (shown[0], printed[0]) == (0, 0), shown[2] + printed[2]
    report = json.loads(printed[1])
    here, choices = report["machine"], report["choices"]
    assert here["torch"]["value"] == torch.__version__
    assert here["cores"]["value"].startswith(f"{machine.cores()} of ")
    assert choices.keys() == {"device", "dtype", "compile", "threads"}
    for name, fact in here.items():
        assert name in shown[1]
        assert fact["advice"].split(" ")[0] in shown[1]
    assert str(tmp_path)[:20] in shown[1]  # a long one is folded
    assert choices["device"]["reason"]


def test_a_package_that_is_missing_comes_with_its_pip_line(monkeypatch):
    lines = ["torch>=2.9", 'pytest>=8; extra == "test"', 'numpy>=1; extra == "plot"', 'no-such-package>=3; extra == "formats"']
    monkeypatch.setattr(doctor.metadata, "requires", lambda name: lines)
    found = doctor.extras()
    assert found.keys() == {"extra formats", "extra plot"}
    assert found["extra formats"] == ("no no-such-package", "pip install 'andrea[formats]'")
    assert found["extra plot"][0].startswith("numpy ")
    assert found["extra plot"][1] == ""


def test_a_program_that_was_never_installed_has_no_extras(monkeypatch):
    def absent(name):
        raise doctor.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(doctor.metadata, "requires", absent)
    assert doctor.extras() == {}


@pytest.mark.skipif(sys.platform == "win32", reason="a PATH without a compiler is a matter of Unix")
def test_a_laptop_without_bfloat16_and_without_a_compiler_does_everything(tmp_path, text_file):
    (tmp_path / "bin").mkdir()
    env = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "PATH": str(tmp_path / "bin")}
    wide = [part.replace("d_model=32", "d_model=128") for part in SMALL]  # a width at which bfloat16 would be chosen
    calls = [
        ("train", text_file, "--steps", 2, "--out", "run", *wide),
        ("generate", "run", "def", "--max-tokens", 5, "--seed", 1),
        ("count", "run"),
        ("doctor", "--json"),
    ]
    answers = many(calls, tmp_path, {**env, "CXX": "", "CC": ""})
    assert [code for code, _, _ in answers] == [0] * 4, answers
    trained, spoken, counted, examined = (out for _, out, _ in answers)
    resolved = json.loads((tmp_path / "run/run.json").read_text(encoding="utf-8"))["resolved"]
    assert (resolved["dtype"], resolved["compile"]) == ("float32", False)
    assert "dtype: float32 (ONEDNN_MAX_CPU_ISA=AVX2 has no bfloat16 matrix products)" in trained
    assert "compile: off (no C++ compiler here)" in trained
    assert spoken.startswith("def")
    assert "Training memory" in counted
    report = json.loads(examined)
    assert report["machine"]["bfloat16"]["value"] == "no"
    assert report["machine"]["compiler"] == {"value": "none", "advice": doctor.COMPILER.get(sys.platform)}
    assert report["settings"]["ATEN_CPU_CAPABILITY"] == "avx2"


def test_the_screen_is_described(tmp_path):
    env = {"PYTHONIOENCODING": "cp1252", "PYTHONUTF8": "0", "COLUMNS": "44"}
    told = json.loads(andrea("doctor", "--json", cwd=tmp_path, env={**os.environ, **env}).stdout)["machine"]["terminal"]
    assert told == {"value": "cp1252, 44 columns, no terminal", "advice": "PYTHONUTF8=1 prints every character"}
