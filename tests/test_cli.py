"""The command line as a person meets it: real processes, their output and exit codes."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from warm import program

TINY = ["vocab_size=321", "context=32", "n_layer=1", "n_head=2", "d_model=32", "batch_tokens=256", "eval_tokens=512"]
SMALL = [part for change in TINY for part in ("--set", change)]


def andrea(*args, cwd=None, stdin=None, env=None):
    env = {**os.environ, **(env or {})}
    return subprocess.run(program(*args), cwd=cwd, input=stdin, capture_output=True, text=True, encoding="utf-8", env=env, check=False)


def ended(before: str) -> subprocess.CompletedProcess[str]:
    """`andrea --version` in a process that has done something before; at its end it prints the variable of Numba's threads."""
    code = f"""if True:
        {before}
        import os, sys
        from andrea.cli import main
        sys.argv[1:] = ["--version"]
        try:
            main()
        finally:
            print(os.environ.get("NUMBA_NUM_THREADS"))
    """
    env = {name: value for name, value in os.environ.items() if name != "NUMBA_NUM_THREADS"}
    return subprocess.run([sys.executable, "-W", "ignore", "-c", code], env=env, capture_output=True, text=True, check=True)


def test_a_command_sets_numbas_threads_before_numba_is_there_and_never_after():
    assert ended("import numba").stdout.splitlines()[-1] == "None"
    assert int(ended("pass").stdout.splitlines()[-1]) >= 1


def test_the_end_of_a_command_lists_no_leaks_where_triton_is_loaded():
    pytest.importorskip("triton")
    assert ended("import triton").stderr == ""


def test_training_prints_plain_lines_and_the_next_command(tmp_path, text_file):
    done = andrea("train", text_file, "--steps", 3, *SMALL, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for part in (
        "device: ",
        "dtype: ",
        "compile: ",
        "step 3/3  ",
        "loss ",
        "bits/byte",
        "tokens/s",
        " left",
        "perplexity",
        "andrea generate",
    ):
        assert part in done.stdout, part
    assert "\x1b" not in done.stdout
    assert (tmp_path / "runs/andrea-1m-1/run.json").exists()
    listed = andrea("runs", "--json", cwd=tmp_path)
    (row,) = json.loads(listed.stdout)
    assert (row["step"], row["steps"], row["state"]) == (3, 3, "finished")
    assert "andrea-1m-1" in andrea("runs", cwd=tmp_path).stdout


def test_json_is_one_event_a_line(tmp_path, text_file):
    done = andrea("train", text_file, "--steps", 2, "--json", *SMALL, cwd=tmp_path)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    kinds = [e["event"] for e in events]
    assert set(kinds[: kinds.index("Prepared")]) == {"Working"}
    assert events[-1]["event"] == "Finished"
    assert events[-1]["bits_per_byte"] > 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_names_the_command_that_goes_on(tmp_path, text_file, number):
    command = [sys.executable, "-m", "andrea", "train", str(text_file), "--steps", "100000", "--out", "run", "--json", *SMALL]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for line in process.stdout:
        if json.loads(line)["event"] == "StepDone":
            break
    process.send_signal(number)
    rest, error = process.communicate(timeout=60)
    last = json.loads(rest.splitlines()[-1])
    assert process.returncode == 0
    assert last["event"] == "Stopped"
    assert "Traceback" not in error
    going_on = subprocess.Popen(
        [sys.executable, "-m", "andrea", "train", "--resume", "run"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    said = []
    for line in going_on.stdout:
        said.append(line)
        if line.startswith("step "):
            break
    going_on.send_signal(number)
    rest, error = going_on.communicate(timeout=60)
    assert going_on.returncode == 0, error
    assert f"from step {last['step']}" in "".join(said)
    assert "to go on: andrea train --resume run" in rest


def test_interrupting_before_the_first_step_leaves_nothing(tmp_path):
    process = subprocess.Popen(  # the built-in corpus takes seconds to prepare
        [sys.executable, "-m", "andrea", "train", "--out", "run", "--json"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert json.loads(process.stdout.readline())["event"] == "Working"
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted; nothing was saved" in error
    assert "Traceback" not in error
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL is not Windows")
def test_a_run_that_was_killed_while_its_text_was_prepared_is_begun_again_by_the_same_command(tmp_path, text_file):
    command = [sys.executable, "-m", "andrea", "train", "--json"]  # the built-in corpus takes seconds to prepare
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    for _ in range(2):  # files read; tokenizer learned
        assert json.loads(process.stdout.readline())["event"] == "Working"
    run = tmp_path / "runs" / "andrea-1m-1"
    assert (run / "unfinished.txt").exists()
    held = andrea("train", text_file, "--steps", 2, "--out", run, *SMALL, cwd=tmp_path)
    assert held.returncode == 2
    assert "is being made by another process; wait for it" in held.stderr
    process.kill()
    process.communicate()
    assert sorted(p.name for p in run.iterdir()) != ["unfinished.txt"]
    assert "its making was killed" in andrea("generate", run, "x", cwd=tmp_path).stderr
    again = andrea("train", text_file, "--steps", 2, *SMALL, cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert [p.name for p in run.parent.iterdir()] == ["andrea-1m-1"]
    assert not (run / "unfinished.txt").exists()
    assert "perplexity" in again.stdout


@pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals are not Windows")
def test_on_a_terminal_there_is_a_bar(tmp_path, text_file):
    import pty

    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "andrea", "train", str(text_file), "--steps", "200", *SMALL]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=theirs, stderr=theirs, env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "140"}
    )
    os.close(theirs)
    seen, deadline = b"", time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            piece = os.read(ours, 65_536)
        except OSError:  # Linux, when the other end is closed; macOS reads nothing
            piece = b""
        if not piece:
            break
        seen += piece
    assert process.wait(timeout=10) == 0
    text = seen.decode("utf-8", "replace")
    assert "\x1b[" in text
    for part in ("/200", "bits/byte", "tokens/s", "left", "perplexity"):
        assert part in text, part


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["count", "andrea-120n"], "andrea-120m"),
        (["train", "--stepz", "5"], "--stepz"),
        (["train", "nothing.txt"], "nothing.txt"),
    ],
)
def test_a_mistake_gets_one_message_and_exit_code_2(tmp_path, args, message):
    """As a person makes it; test_mistakes.py has all the others, many in one process."""
    done = andrea(*args, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir()) or args[0] == "train"
    assert not list(tmp_path.glob("runs/*"))


def test_debug_shows_where_an_error_comes_from(tmp_path):
    assert "Traceback" in andrea("--debug", "train", "nothing.txt", cwd=tmp_path).stderr


def test_eval_measures_the_run_or_another_text(finished_run, text_file):
    own = json.loads(andrea("eval", finished_run, "--json").stdout)
    again = json.loads(andrea("eval", finished_run, "--batch-rows", 3, "--json").stdout)
    assert own["loss"] == pytest.approx(again["loss"], abs=1e-6)
    assert own["standard_error"] > 0
    other = andrea("eval", finished_run, text_file)
    assert "bits per byte" in other.stdout, other.stderr


def test_data_prepares_what_train_uses(tmp_path, text_file):
    report = json.loads(andrea("data", text_file, "--vocab-size", 321, "--out", tmp_path / "p", "--json").stdout)
    assert report["vocab_size"] == 321
    done = andrea("train", tmp_path / "p", "--steps", 2, *SMALL, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "andrea train" in andrea("data", text_file, "--vocab-size", 99_999, "--out", tmp_path / "q").stdout


def test_a_text_too_small_for_its_vocabulary_is_said_aloud(tmp_path, text_file):
    assert "too small for the 99,999" in andrea("data", text_file, "--vocab-size", 99_999, "--out", tmp_path / "q").stdout


def test_a_run_can_be_drawn(tmp_path, finished_run):
    done = andrea("runs", finished_run, "--png", tmp_path / "loss.png")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")
    assert "loss" in andrea("runs", finished_run).stdout


def test_help_names_every_command_and_imports_no_torch():
    code = "import sys\nfrom andrea.cli import main\nsys.argv = ['andrea', '--help']\ntry: main()\nfinally: print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    for command in ("demo", "train", "runs", "generate", "eval", "count", "data", "doctor"):
        assert command in done.stdout
    assert "bool" not in done.stdout  # a flag takes no value
    assert done.stdout.rstrip().endswith("False")


def test_the_version_is_told():
    assert andrea("--version").stdout.startswith("andrea 0.")
