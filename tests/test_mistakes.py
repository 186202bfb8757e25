"""Whatever is given wrongly or goes wrong gets one message on standard error, an exit code that says which, and no traceback."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import small
from test_cli import SMALL

from andrea.training.report import Saved
from andrea.training.start import train

MANY = """
import io, json, sys
from contextlib import redirect_stderr, redirect_stdout
from andrea.cli import main
answers = []
for args in json.load(sys.stdin):
    sys.argv, code = ["andrea", *args], None
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        try:
            main()
        except SystemExit as end:
            code = end.code
    answers.append((code, out.getvalue(), err.getvalue()))
print(json.dumps(answers))
"""
posix = pytest.mark.skipif(os.name == "nt", reason="descriptors, signals and devices are those of Unix")


def many(calls, cwd, env=None):
    """(exit code, output, error) of every call, made one after another in one process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", MANY],
        input=json.dumps([[str(arg) for arg in call] for call in calls]),
        cwd=cwd,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def check(table, cwd, code):
    """Every row's last part stands in the one line that its call is answered with."""
    for (*args, wanted), (got, out, err) in zip(table, many([row[:-1] for row in table], cwd), strict=True):
        assert got == code, (args, got, err)
        assert err.startswith("andrea: "), (args, err)
        assert err.count("\n") == 1, (args, err)
        assert wanted in err, (args, err)
        assert not out or args[0] == "data", (args, out)  # which says what it found before it learns a vocabulary


def sh(command, cwd, env=None):
    """A shell's line, in which $ANDREA is the program."""
    env = {**os.environ, "ANDREA": f"{sys.executable} -m andrea", **(env or {})}
    return subprocess.run(["bash", "-c", command], cwd=cwd, env=env, capture_output=True, text=True, check=False)


def test_options_that_are_none_are_answered_with_the_nearest(tmp_path):
    check(
        [
            ("train", "--stepz", "5", "no such option --stepz; did you mean --steps? (see andrea train --help)"),
            ("train", "--dropout=0", "did you mean --set dropout=VALUE?"),
            ("train", "--learning_rat=1", "did you mean --set lr=VALUE?"),
            ("data", "--val-fractio", "0.2", "did you mean --set val_fraction=VALUE?"),
            ("generate", "--lr", "1", "no such option --lr (see andrea generate --help)"),
            ("trian", "did you mean 'train'"),
            ("--verson", "did you mean --version"),
            ("qqq", "no such command 'qqq' (see andrea --help)"),
            ("count", "missing argument 'target' (see andrea count --help)"),
            ("train", "--steps", "option '--steps' requires an argument"),
            ("train", "--steps", "x", "given 'x'"),
            ("train", "--steps", "1.5", "given '1.5'"),
            ("generate", "r", "one prompt", "another", "unexpected extra argument"),
            ("train", "--set", "learning_rat=1", "did you mean 'optim.lr'?"),
            ("train", "--set", "optim.learnin=1", "OptimConfig has no field 'learnin'"),
            ("train", "--set", "d_modle=64", "did you mean 'model.d_model'?"),
            ("train", "--set", "dropout", "is not path=value"),
            ("train", "--set", "dropout=0", "--set", "model.dropout=0.1", "model.dropout is set twice, to '0' and '0.1'"),
            ("train", "--set", "dropout=zero", "dropout='zero' is not a number"),
            ("train", "--set", "compile=onn", "did you mean 'on'?"),
            ("train", "--set", "n_layer=2.5", "n_layer='2.5' is not a whole number"),
            ("train", "--preset", "andrea-1n", "did you mean 'andrea-1m'?"),
            ("train", "--preset", "", "there is no preset ''"),
            ("count", "andrea-120n", "no run is called andrea-120n, and there is no preset 'andrea-120n'; did you mean 'andrea-120m'?"),
            ("claims", "run", "missing argument 'NAME|FILE.py...' (see andrea claims run --help)"),
            ("data", "--tokenizer", "bpee", "--out", "p", "did you mean 'bpe'?"),
        ],
        tmp_path,
        2,
    )
    assert list(tmp_path.iterdir()) == []


def test_options_that_contradict_each_other_are_refused(tmp_path, text_file):
    check(
        [
            ("train", "--minutes", "1", "--steps", "1", "give one of them"),
            ("train", "--minutes", "1", "--set", "steps=2", "give one of them"),
            ("train", "--steps", "1", "--set", "minutes=2", "give one of them"),
            ("train", "--dtype", "bfloat16", "--set", "dtype=float32", "is set twice"),
            ("train", text_file, "--set", "paths=other.txt", "the text is named twice"),
            ("train", "--tokenizer", "char", "--set", "vocab_size=99", "vocab_size is for bpe"),
            ("train", "--resume", "r", "--minutes", "1", "--steps", "2", "give one of them"),
            ("train", "--rewarm", "--resume RUN --steps N --rewarm"),
            ("train", "--resume", "r", "book.txt", "leave out the text"),
            ("train", "--resume", "r", "--set", "lr=1", "leave out --set"),
            ("train", "--resume", "r", "--out", "other", "leave out --out"),
            ("train", "--set", "micro_batch=3", "micro_batch=3 does not divide"),
            ("train", "--set", "batch_tokens=100", "is not a multiple of context"),
            ("data", text_file, "--tokenizer", "char", "--vocab-size", "99", "--out", "p", "--vocab-size is for bpe"),
            ("data", text_file, "--set", "tokenizer=byte", "--vocab-size", "99", "--out", "p", "--vocab-size is for bpe"),
            ("data", text_file, "--set", "paths=other.txt", "--out", "p", "the text is named twice"),
            ("runs", "--png", "x.png", "--png draws one run"),
            ("runs", "r", "--json", "--png", "x.png", "give one of them"),
        ],
        tmp_path,
        2,
    )
    assert list(tmp_path.iterdir()) == []


def test_numbers_out_of_range_paths_and_devices_that_are_not_there_are_refused(tmp_path, finished_run, text_file):
    r = finished_run
    check(
        [
            ("generate", r, "x", "--temperature", "-1", "temperature=-1.0 is not a finite number of at least 0"),
            ("generate", r, "x", "--temperature", "nan", "temperature=nan"),
            ("generate", r, "x", "--top-k", "-1", "top_k=-1"),
            ("generate", r, "x", "--top-p", "1.5", "top_p=1.5 is outside 0 to 1"),
            ("generate", r, "x", "--min-p", "-0.1", "min_p=-0.1 is outside 0 to 1"),
            ("generate", r, "x", "--repetition-penalty", "0", "repetition_penalty=0.0"),
            ("generate", r, "x", "--seed", "-1", "seed=-1"),
            ("generate", r, "x", "--max-tokens", "-1", "max_tokens=-1"),
            ("generate", r, "x", "--stop", "", "at least one character"),
            ("generate", r, "x", "-n", "0", "n=0 answers were asked for"),
            ("generate", r, "x", "--past-context", "roll", "neither 'recompute' nor 'stop'"),
            ("generate", r, "x", "--at", "first", "neither 'best' nor 'last'"),
            ("generate", r, "x", "--device", "tpu", "device 'tpu' is not there; this machine has cpu"),
            ("eval", r, "--device", "cuda:99", "device 'cuda:99' is not there"),
            ("eval", r, "--batch-rows", "0", "batch_rows=0 must be at least 1"),
            ("eval", r, "--at", "middle", "neither 'best' nor 'last'"),
            ("eval", r, "nothing.txt", "nothing.txt"),
            ("eval", "nowhere", "is not a run folder"),
            ("runs", "nowhere", "is not a run folder"),
            ("train", "--resume", "nowhere", "is not a run folder"),
            ("train", "nothing.txt", "nothing.txt"),
            ("data", "nothing.txt", "--out", "p", "nothing.txt"),
            ("generate", text_file, "x", "is not a run folder"),
            ("runs", r, "--png", "loss.xyz", "does not end as a picture that can be drawn: ."),
            ("runs", r, "--png", "no/such/folder/x.png", "no/such/folder/x.png"),
            ("train", "--device", "tpu", "device 'tpu' is not there"),
            ("train", text_file, "--out", r, "exists already"),
            ("train", "--seed", "-1", "seed=-1"),
            ("train", "--minutes", "0", "minutes=0.0"),
            ("train", "--steps", "0", "steps=0 must be at least 1"),
            ("demo", "--minutes", "nan", "is not a number"),
            ("train", "--resume", r, "is finished"),
            ("data", text_file, "--vocab-size", "5", "--out", "p", "vocab_size=5 is too small"),
            ("data", text_file, "--out", r, "is not an empty folder"),
        ],
        tmp_path,
        2,
    )
    assert not list(tmp_path.glob("runs/*")) and not (tmp_path / "p").exists()


def broken(run, name, text):
    path = run / name
    path.write_text(text, encoding="utf-8")
    return run


def test_a_run_that_is_damaged_or_newer_is_told_from_one_that_is_none(tmp_path, finished_run):
    step = (finished_run / "last").read_text(encoding="utf-8").strip()
    deep = "[" * 100_000
    damages = [
        ("run.json", '{"format_version": 1, "conf'),
        ("run.json", "[1]"),
        ("run.json", deep),
        ("run.json", '{"format_version": 1}'),
        ("run.json", '{"format_version": 1, "config": {"model": {"n_layer": "2"}}, "resolved": {}, "provenance": {}}'),
        ("tokenizer.json", "{}"),
        ("tokenizer.json", deep),
        (f"checkpoints/{step}/model.safetensors", "no tensors"),
        ("metrics.jsonl", "{}\n"),
        ("metrics.jsonl", "{\n"),
    ]
    table = []
    for i, (name, text) in enumerate(damages):
        run = broken(shutil.copytree(finished_run, tmp_path / f"run-{i}"), name, text)
        table.append(("runs" if name == "metrics.jsonl" else "generate", run, Path(name).name))
    check(table, tmp_path, 1)

    newer = shutil.copytree(finished_run, tmp_path / "newer")
    stored = json.loads((newer / "run.json").read_text(encoding="utf-8"))
    broken(newer, "run.json", json.dumps({**stored, "format_version": 99}))
    state = broken(shutil.copytree(finished_run, tmp_path / "state"), f"checkpoints/{step}/state.json", "{}")
    table = [
        ("generate", newer, "x", "format_version 99; this program reads up to 1: update andrea"),
        ("generate", tmp_path, "x", "is not a run folder"),
        ("train", "--resume", state, "state.json is not what was written"),
    ]
    check(table, tmp_path, 2)


def test_options_of_any_spelling_reach_the_stored_configuration(tmp_path, text_file):
    sets = ("--set", "dropout=0", "--set", "train.compile=off", "--set", "weight-decay=0.0", "--set", "bias=off")
    ((code, _, err),) = many([("train", text_file, "--steps", 1, "--out", "run", *SMALL, *sets)], tmp_path)
    assert code == 0, err
    stored = json.loads((tmp_path / "run/run.json").read_text(encoding="utf-8"))
    config = stored["config"]
    assert (config["model"]["dropout"], config["model"]["bias"]) == (0.0, False)
    assert (config["train"]["compile"], config["optim"]["weight_decay"], config["train"]["steps"]) == ("off", 0.0, 1)
    assert stored["resolved"]["compile"] is False


def test_without_a_compiler_a_compiled_run_is_said_to_be_eager_and_equals_one(tmp_path, text_file):
    none = {"CC": "/nonexistent", "CXX": "/nonexistent"}
    calls = [("train", text_file, "--steps", 3, "--compile", mode, "--out", mode, *SMALL) for mode in ("on", "off")]
    (on, off) = many(calls, tmp_path, none)
    assert (on[0], off[0]) == (0, 0), on[2] + off[2]
    assert "compile: off (asked for, but there is no C++ compiler here: running eagerly)" in on[1]
    losses = [
        [json.loads(line).get("loss") for line in (tmp_path / name / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
        for name in ("on", "off")
    ]
    assert losses[0] == losses[1]


@posix
def test_closed_and_broken_streams(tmp_path, finished_run):
    r = finished_run
    closed = sh(f"$ANDREA generate {r} - <&-", tmp_path)
    assert (closed.returncode, closed.stderr) == (2, "andrea: standard input is closed; give the prompt as an argument\n")
    begun = sh(f"$ANDREA generate {r} --max-tokens 5 --seed 1 <&-", tmp_path)
    assert begun.returncode == 0, begun.stderr
    assert "5 tokens" in begun.stderr
    unseen = sh("$ANDREA count andrea-1m >&-", tmp_path)
    assert (unseen.returncode, unseen.stderr) == (0, "")
    mute = sh("$ANDREA count andrea-1n 2>&-", tmp_path)
    assert (mute.returncode, mute.stdout) == (2, "")
    headed = sh("set -o pipefail; $ANDREA count andrea-120m --json | head -1", tmp_path)
    assert (headed.stdout, headed.stderr) == ("{\n", "")
    gone = sh("$ANDREA count andrea-1m > >(exec true); exit $?", tmp_path)
    assert gone.stderr == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_an_output_that_is_full_is_said_once(tmp_path, finished_run, text_file):
    for command in (
        "count andrea-1m",
        "--version",
        f"generate {finished_run} x",
        f"train {text_file} --steps 2 --out run {' '.join(SMALL)}",
    ):
        done = sh(f"$ANDREA {command} > /dev/full", tmp_path)
        assert done.returncode == 1, command
        assert done.stderr == "andrea: No space left on device: standard output\n", command


@posix
def test_generation_that_is_interrupted_ends_its_line_and_tells_the_seed(tmp_path, finished_run):
    command = [sys.executable, "-m", "andrea", "generate", str(finished_run), "def", "--max-tokens", "100000000", "--ignore-separator"]
    process = subprocess.Popen(
        [*command, "--seed", "77"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    )
    assert process.stdout.read(10).startswith("def")
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert error.endswith("\nandrea: interrupted; seed 77\n")


def test_a_console_that_lacks_characters_prints_what_it_can(tmp_path):
    text = tmp_path / "smile.txt"
    text.write_text("\u263a\u4e16\u03c0 abc\n" * 600, encoding="utf-8")
    env = {"PYTHONIOENCODING": "cp1252", "PYTHONUTF8": "0", "TERM": "dumb", "NO_COLOR": "1", "COLUMNS": "40"}
    calls = [
        ["train", text, "--tokenizer", "char", "--steps", "3", "--out", "run", *SMALL[2:]],
        ["generate", "run", "\u263a", "--max-tokens", "9", "--seed", "1"],
        ["count", "run"],
        ["doctor"],
        ["--help"],
    ]
    code = f"""
import sys
from andrea.cli import main
for args in {[[str(arg) for arg in call] for call in calls]}:
    sys.argv = ["andrea", *args]
    try:
        main()
    except SystemExit as end:
        assert not end.code, args
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env={**os.environ, **env}, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert b"\x1b" not in done.stdout + done.stderr
    said = done.stdout.decode("cp1252")
    assert "--- it says, after 3 steps" in said
    assert "\n?" in said  # the prompt, as far as this console can
    assert "Commands, in the order" in said


def on_a_terminal(args, cwd, columns):
    """What the command shows on a terminal of that width; it must end well."""
    import pty

    ours, theirs = pty.openpty()
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(columns), "LINES": "24"}
    process = subprocess.Popen([sys.executable, "-m", "andrea", *map(str, args)], cwd=cwd, stdout=theirs, stderr=theirs, env=env)
    os.close(theirs)
    seen, piece = b"", b"begin"
    while piece:
        try:
            piece = os.read(ours, 65_536)
        except OSError:  # Linux, when the other end is closed; macOS reads nothing
            piece = b""
        seen += piece
    assert process.wait() == 0, seen
    return seen.decode()


@posix
@pytest.mark.parametrize(("columns", "bar"), [(20, False), (80, True)])
def test_a_narrow_terminal_shows_whole_words(tmp_path, text_file, columns, bar):
    text = on_a_terminal(["train", text_file, "--steps", 40, *SMALL], tmp_path, columns)
    assert "\u2026" not in text
    assert "bits/byte" in text
    assert ("\x1b[?25l" in text) is bar  # a bar hides the cursor
    assert "blocks.*.attn_norm.gamma" in on_a_terminal(["count", "andrea-1m"], tmp_path, columns)


def test_what_nobody_foresaw_is_one_message_too(tmp_path):
    code = """
import sys
from andrea.cli import mistakes
def fail(error):
    def command(): raise error
    return command
import json, torch
for error in (KeyError('tokens'), MemoryError(), RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"),
              torch.OutOfMemoryError('CUDA out of memory. Tried'), RuntimeError('a\\nb'), OSError(12, 'Cannot allocate memory'),
              PermissionError(13, 'Permission denied', 'x')):
    print(mistakes.answered(fail(error), '', False), flush=True)
def unreadable(): json.loads('{')
print(mistakes.answered(unreadable, '', False))
def huge(): bytearray(2**62)
print(mistakes.answered(huge, '', False))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.stdout.split() == ["1"] * 9, done.stderr
    lines = done.stderr.splitlines()
    assert lines[0] == "andrea: unexpected KeyError: 'tokens'; run again with --debug and report it"
    assert all(line.startswith("andrea: out of memory: ") for line in (*lines[1:4], lines[8]))
    assert lines[4] == "andrea: unexpected RuntimeError: a; run again with --debug and report it"
    assert lines[6] == "andrea: Permission denied: x"
    assert lines[7].startswith("andrea: unexpected JSONDecodeError")
    assert len(lines) == 9


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets one process limit another's memory")
def test_memory_that_runs_out_while_training_is_said_and_leaves_what_was_saved(tmp_path, text_file):
    import resource

    large = ("batch_tokens=65536", "micro_batch=2048", "steps=50", "save_every=1")  # a pass takes some 300 MB, and a while
    for event in train(small(text_file, changes=large), tmp_path / "run"):
        if isinstance(event, Saved):
            break
    command = [sys.executable, "-m", "andrea", "train", "--resume", "run", "--json"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert json.loads(process.stdout.readline())["event"] == "Chosen"
    resource.prlimit(process.pid, resource.RLIMIT_AS, (1, 1))
    _, error = process.communicate(timeout=100)
    assert process.returncode == 1, error
    assert error.startswith(("andrea: out of memory: ", "andrea: unexpected SystemError: "))  # the second where Python itself has none left
    assert error.endswith("; to go on from the last save: andrea train --resume run\n")
    assert error.count("\n") == 1
    ((code, _, err),) = many([("generate", "run", "x", "--max-tokens", 1)], tmp_path)
    assert code == 0, err
