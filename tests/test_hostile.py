"""Hostile and damaged files: whatever they hold, loading them ends with a result or a ValueError, soon and in little memory.

benchmarks/fuzz.py, here with a few hundred cases, goes on where these lists end.
"""

import contextlib
import importlib.util
import json
import os
import pickle
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from andrea import checkpoint, run_folder
from andrea.config import RunConfig, from_dict
from andrea.data.shards import HEADER, MAGIC, Tokens
from andrea.data.tokenizer import load_tokenizer
from andrea.training.history import list_runs
from andrea.training.optim import optimizer_for
from andrea.training.report import read_metrics
from andrea.training.start import resume
from andrea.training.state import State, set_train_tensors

ROOT = Path(__file__).parents[1]


@pytest.fixture
def run(tmp_path, finished_run):
    return Path(shutil.copytree(finished_run, tmp_path / "runs" / "mine"))


@pytest.fixture
def step(run):
    return run / "checkpoints" / (run / "last").read_text(encoding="utf-8").strip()


def change(path, *keys, to):
    """Set one value inside a JSON file; the last key may be new."""
    stored = json.loads(path.read_text(encoding="utf-8"))
    inside = stored
    for key in keys[:-1]:
        inside = inside[key]
    inside[keys[-1]] = to
    path.write_text(json.dumps(stored), encoding="utf-8")


@pytest.mark.parametrize(
    ("keys", "value", "why"),
    [
        (("config", "model", "vocab_size"), 10**12, "its tokenizer.json has 321 ids and its model 1000000000000"),
        (("config", "model", "vocab_size"), 10**400, "more than any machine can hold"),
        (("config", "model", "n_layer"), 10**9, "it has 2 layers, and n_layer is 1000000000"),
        (("config", "model", "context"), 128, r"position_embed.weight' is \(32, 32\) in F32 in the file and \(128, 32\)"),
        (("config", "model", "mlp_dim"), 2**47, r"mlp.down.weight' is \(32, 128\)"),
        (("config", "model", "mlp_ratio"), 1e308, "mlp_ratio=1e"),
        (("config", "model", "mlp_ratio"), -1e308, "mlp_ratio=-1e"),  # found by the fuzzer
        (("config", "model", "mlp_ratio"), 10**400, "wanted float"),
        (("config", "model", "tied"), False, "unembed.weight' is not there in the file and"),
        (("config", "model", "d_model"), "x" * 10**6, "wanted int"),
        (("config", "model", "norm"), "x" * 10**6, "is not one of pre, post, none"),
        (("config", "model", "x" * 10**6), 1, "ModelConfig has no field"),
        (("config", "model"), [1, 2], "ModelConfig is .*; wanted an object with its fields"),
        (("config",), 3, "config is 3; wanted dict"),
        (("config", "data", "paths"), [1], r"paths=\(1,\) is tuple"),
        (("resolved",), [], r"resolved is \[\]; wanted dict"),
        (("resolved", "steps"), None, "steps is None; wanted int"),
        (("resolved", "threads"), 10**9, "threads is 1000000000; wanted 1 to 4096"),
        (("resolved", "micro_batch"), 0, "micro_batch is 0; wanted 1 to"),
        (("resolved", "kernels"), "cuda", "kernels is 'cuda'; wanted torch or cpu or triton or mixed"),
        (("resolved", "legs"), [[0, 12, True], [20, 12, False]], "legs is .* wanted first step, end and warm-up of each, up to 12"),
        (("resolved", "until"), "soon", "until is 'soon'; wanted a date and time with its zone"),
        (("resolved", "until"), "2026-01-31T07:00", "wanted a date and time with its zone"),
        (("resolved", "until"), 7, "until is 7; wanted"),
        (("resolved", "dtype"), "load", "dtype is 'load'; wanted float32 or bfloat16"),
        (("provenance",), None, "provenance is None"),
        (("format_version",), [[]] * 10**5, "format_version"),
    ],
)
def test_a_run_json_that_lies_is_refused_before_a_model_is_built(run, keys, value, why):
    change(run / "run.json", *keys, to=value)
    before = torch.get_rng_state()
    with pytest.raises(ValueError, match=why) as refused:
        checkpoint.load(run)
    assert torch.equal(before, torch.get_rng_state())  # a model that is built draws its weights
    assert len(str(refused.value)) < 1000
    assert "unreadable" in list_runs(run.parent)[0]["state"] or keys[1:2] == ("model",)


def test_what_a_run_resolved_must_be_there_to_go_on(run):
    resolved = json.loads((run / "run.json").read_text(encoding="utf-8"))["resolved"]
    change(run / "run.json", "resolved", to={"steps": resolved["steps"]})
    with pytest.raises(ValueError, match="resolved has no compile, device, dtype, micro_batch, threads"):
        next(resume(run))


@pytest.mark.parametrize("values", [[1], "x", 3, None])
def test_a_configuration_is_made_from_an_object_alone(values):
    with pytest.raises(ValueError, match=r"RunConfig is .*; wanted an object"):
        from_dict(RunConfig, values)


def test_weights_in_another_precision_are_refused_by_name(run, step):
    path = step / "model.safetensors"
    save_file({name: tensor.half() for name, tensor in load_file(path).items()}, path)
    with pytest.raises(ValueError, match=r"blocks.0.attn.out.bias' is \(32,\) in F16 in the file and \(32,\) in F32 in the model"):
        checkpoint.load(run)


def test_more_weights_than_the_model_has_are_refused(run, step):
    path = step / "model.safetensors"
    save_file({**load_file(path), "x": torch.ones(1)}, path)
    with pytest.raises(ValueError, match=r"'x' is \(1,\) in F32 in the file and not there in the model"):
        checkpoint.load(run)


@pytest.mark.parametrize(
    ("tensors", "why"),
    [
        ({"exp_avg.x": torch.ones(1)}, "the model lacks"),
        ({"generator.cpu": torch.zeros(5056, dtype=torch.uint8)[:7]}, "the cpu generator cannot be used"),
        ({"generator.cpu": None}, "the cpu generator cannot be used"),
        ({"exp_avg.token_embed.weight": torch.ones(3)}, "exp_avg.token_embed.weight is not there as float32"),
        ({"x": torch.ones(1, dtype=torch.float64)}, "holds tensors of F64"),
    ],
)
def test_an_optimizer_state_that_does_not_fit_is_refused(run, step, tensors, why):
    path = step / "train.safetensors"
    model = checkpoint.load(run, "last").model
    whole = {name: tensor.clone() for name, tensor in load_file(path).items()}
    set_train_tensors(State(model, optimizer_for(model, RunConfig().optim)), checkpoint.load_tensors(path), "cpu")
    save_file({name: t for name, t in {**whole, **tensors}.items() if t is not None}, path)
    with pytest.raises(ValueError, match=why):
        set_train_tensors(State(model, optimizer_for(model, RunConfig().optim)), checkpoint.load_tensors(path), "cpu")


@pytest.mark.parametrize(
    ("keys", "value", "why"),
    [
        (("step",), "5", "step is '5'; wanted int"),
        (("step",), 3, "step is 3 in step-12"),
        (("windows",), 2**64, "windows is"),
        (("best",), 1, "best is 1; wanted bool"),
        (("seconds",), None, "seconds is None"),
        (("best_loss",), [], r"best_loss is \[\]"),
    ],
)
def test_a_state_that_is_damaged_is_refused(step, keys, value, why):
    assert checkpoint.read_state(step)["step"] == 12
    change(step / "state.json", *keys, to=value)
    with pytest.raises(ValueError, match=why):
        checkpoint.read_state(step)


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (("files",), {}),
        (("files",), []),
        (("files", "../../run.json"), {"bytes": 1, "sha256": ""}),
        (("files", "state.json"), None),
        (("files", "state.json", "bytes"), "many"),
        (("format_version",), "1"),
    ],
)
def test_a_manifest_that_says_anything_else_makes_no_whole_checkpoint(step, keys, value):
    checkpoint.verify(step)
    change(step / "manifest.json", *keys, to=value)
    with pytest.raises(checkpoint.BrokenCheckpoint, match=r"step-12 is not whole: .*(manifest\.json|is not what was written)"):
        checkpoint.verify(step)


@pytest.mark.parametrize(
    "content", [b"../../elsewhere", b"step-12/..", b"step-\xb2", b"\xff\xfe", b"step-012", b"step-" + b"9" * 300, b"x" * 10**6]
)
def test_a_pointer_leads_nowhere_but_to_a_checkpoint_of_the_run(run, content):
    (run / "last").write_bytes(content)
    assert checkpoint.load(run, "last").step == 12


def test_a_damaged_pointer_costs_no_checkpoint(run):
    loaded = checkpoint.load(run, "last")
    (run / "best").write_bytes(b"\0\0\0\0\0\0\0")
    before = {p.name for p in (run / "checkpoints").iterdir()}
    state = {"windows": 1, "tokens": 1, "best_loss": None, "seconds": 1.0}
    checkpoint.save(run, 13, checkpoint.weights(loaded.model), {}, state, best=False)
    assert {p.name for p in (run / "checkpoints").iterdir()} == before | {"step-13"}


@pytest.mark.parametrize(
    ("pointer", "why"),
    [
        ({"format_version": 1, "path": "../x", "fingerprint": ""}, "wanted the full path of a folder"),
        ({"format_version": 1, "path": "/tmp/../etc", "fingerprint": ""}, "wanted the full path of a folder"),
        ({"format_version": 1, "path": "/a\0b", "fingerprint": ""}, "wanted the full path of a folder"),
        ({"format_version": 1, "path": 3, "fingerprint": ""}, "path is 3"),
        ({"format_version": 1, "path": "/x"}, "fingerprint is not there"),
        ({"path": "/x", "fingerprint": ""}, "format_version None"),
    ],
)
def test_a_pointer_to_data_that_is_damaged_is_refused(run, pointer, why):
    (run / "data" / "pointer.json").write_text(json.dumps(pointer), encoding="utf-8")
    with pytest.raises(ValueError, match=why):
        run_folder.open_data(run)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"[]",
        b"null",
        b'{"event": "Nothing", "step": 1}',
        b'{"event": ["StepDone"], "step": 1}',
        b'{"event": "Sampled", "step": "1", "text": ""}',
        b'{"event": "Sampled", "step": true, "text": ""}',
        b'{"event": "Sampled", "step": -1, "text": ""}',
        b'{"event": "Sampled", "step": 1}',
        b"\xff",
        b"[" * 100_000,
        b"\0" * 100,
    ],
)
def test_a_damaged_line_of_the_metrics_is_named(run, line):
    good = (run / "metrics.jsonl").read_bytes()
    assert len(read_metrics(run)) == good.count(b"\n")
    (run / "metrics.jsonl").write_bytes(line + b"\n" + good)
    with pytest.raises(ValueError, match=r"line 1 of .*metrics\.jsonl is damaged"):
        read_metrics(run)
    assert "unreadable" in list_runs(run.parent)[0]["state"]


def test_endless_files_are_refused_by_their_size(run):
    for path, read in (
        (run / "metrics.jsonl", lambda: read_metrics(run)),
        (run / "run.json", lambda: run_folder.read_run(run)),
        (run / "tokenizer.json", lambda: load_tokenizer(run / "tokenizer.json")),
    ):
        os.truncate(path, 1 << 40)  # a hole: it takes no room on the disk
        with pytest.raises(ValueError, match="1,099,511,627,776 bytes"):
            read()


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (("model", "vocab"), []),
        (("model", "vocab"), {"a": None, "b": 1}),
        (("model", "merges"), [["a"]]),
        (("model", "merges"), [["", ""]]),
        (("model", "merges"), [["ab", "c"], ["a", "b"]]),
        (("model", "merges"), [[["a"], "b"]]),
        (("model", "merges"), {"a": "b"}),
        (("model", "andrea", "kind"), ["bpe"]),
        (("model", "andrea", "kind"), "char"),
        (("model", "andrea", "format_version"), {}),
        (("model",), "x"),
        (("decoder",), {"a": [[]]}),
    ],
)
def test_a_tokenizer_that_does_not_agree_with_itself_is_refused(run, keys, value):
    load_tokenizer(run / "tokenizer.json")
    change(run / "tokenizer.json", *keys, to=value)
    with pytest.raises(ValueError, match=r"tokenizer\.json (is damaged|is not a tokenizer|has format_version)"):
        load_tokenizer(run / "tokenizer.json")


@pytest.mark.parametrize("characters", [["a", "bc"], ["b", "a"], ["a", "\ud800"], [""]])
def test_a_vocabulary_of_anything_but_characters_in_order_is_refused(run, characters):
    model = {"type": "BPE", "andrea": {"format_version": 1, "kind": "char"}, "merges": []}
    vocab = {character: id for id, character in enumerate([*characters, "<|endoftext|>"])}
    stored = {"version": "1.0", "decoder": {"type": "Fuse"}, "model": {**model, "vocab": vocab}}
    (run / "tokenizer.json").write_text(json.dumps(stored), encoding="utf-8")
    with pytest.raises(ValueError, match="is damaged"):
        load_tokenizer(run / "tokenizer.json")


def shard(path, count, vocab_size, tokens, width=2):
    path.write_bytes(HEADER.pack(MAGIC, 1, width, count, vocab_size) + struct.pack(f"<{len(tokens)}H", *tokens))
    return path


@pytest.mark.parametrize("count", [2**62, 2**63, 2**64 - 1, 4, 2])
def test_a_token_file_that_claims_another_length_is_refused(tmp_path, count):
    with pytest.raises(ValueError, match="is damaged"):
        Tokens([shard(tmp_path / "x.tok", count, 300, [1, 2, 3])])


def test_ids_that_the_vocabulary_lacks_are_refused_when_they_are_read(tmp_path):
    tokens = Tokens([shard(tmp_path / "x.tok", 4, 300, [1, 299, 300, 3])])
    assert tokens.read(0, 2).tolist() == [1, 299]
    with pytest.raises(ValueError, match="an id is 300 where vocab_size is 300"):
        tokens.read(1, 3)


def test_token_files_of_two_tokenizers_are_not_read_as_one(tmp_path):
    files = [shard(tmp_path / "a.tok", 1, 300, [1]), shard(tmp_path / "b.tok", 1, 301, [1])]
    with pytest.raises(ValueError, match="are of several tokenizers"):
        Tokens(files)


@pytest.fixture(scope="module")
def fuzz():
    spec = importlib.util.spec_from_file_location("fuzz", ROOT / "benchmarks/fuzz.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("target", ["shards", "run", "tokenizer", "safetensors", "checkpoint", "metrics"])
def test_hundreds_of_damaged_files_of_each_kind_do_no_harm(tmp_path, finished_run, fuzz, target):
    bench = fuzz.Bench(finished_run, tmp_path)
    told = [fuzz.case(bench, target, 0, number)[0] for number in range(200)]
    assert [f"case {number}: {wrong}" for number, wrong in enumerate(told) if wrong] == []
    assert 60 < told.count("") < 200  # most damage is refused, and some is none


def test_a_loader_that_fails_otherwise_is_found(tmp_path, finished_run, fuzz, monkeypatch):
    monkeypatch.setattr(run_folder, "field", lambda found, name, kind, where: found[name])
    bench = fuzz.Bench(finished_run, tmp_path)
    told = {fuzz.case(bench, "run", 0, number)[0] for number in range(200)}
    assert any("Error at " in wrong for wrong in told if wrong)


@pytest.mark.skipif(sys.platform == "win32", reason="limits of memory are not Windows")
def test_the_fuzzer_counts_in_a_process_of_its_own(tmp_path, finished_run):
    options = ["--only", "shards", "--cases", "50", "--run", finished_run, "--keep", tmp_path / "found", "--json"]
    done = subprocess.run([sys.executable, ROOT / "benchmarks/fuzz.py", *options], cwd=ROOT, capture_output=True, text=True, check=False)
    (row,) = json.loads(done.stdout)["targets"]
    assert (row["target"], row["executions"], row["findings"], row["kinds"]) == ("shards", 50, 0, {})
    assert 10 < row["refused"] < 50
    assert not (tmp_path / "found").exists()
    assert done.returncode == 0


class Opened(BaseException):
    """Nobody catches it by accident."""


class Payload:
    def __reduce__(self):
        return exec, ("raise __import__('test_hostile').Opened",)


def files_of(run):
    return sorted(path.relative_to(run).as_posix() for path in run.rglob("*") if path.is_file())


def test_the_payload_of_a_pickle_goes_off_where_it_is_opened():
    with pytest.raises(Opened):
        pickle.loads(pickle.dumps(Payload()))


def test_no_file_of_a_run_is_opened_as_a_pickle(tmp_path, finished_run):
    """A hostile pickle in the place of every file in turn: of torch's kind and of the plain one."""
    for number, name in enumerate(files_of(finished_run)):
        run = Path(shutil.copytree(finished_run, tmp_path / str(number)))
        if number % 2:
            torch.save(Payload(), run / name)
        else:
            (run / name).write_bytes(pickle.dumps(Payload()))
        for use in (lambda run: checkpoint.load(run, "last").open_data(), lambda run: next(resume(run, steps=20, rewarm=True))):
            with contextlib.suppress(ValueError, OSError):
                use(run)
