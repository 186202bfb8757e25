"""Weights in fewer bits: what rounding may cost, the file, and the command."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from reference import random_ids, randomise, tiny
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from andrea.checkpoint import load
from andrea.cli import app
from andrea.infer.cpu import CpuDecoder, decoder_for
from andrea.infer.quantize import METHODS, Packed, as_model, calibration, layout, numbers, open_packed, pack, place, rounded, write_packed
from andrea.model import Transformer

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def run(finished_run, tmp_path):
    """A copy of a trained run, to write into."""
    return load(shutil.copytree(finished_run, tmp_path / "run"))


@pytest.mark.parametrize(("N", "K"), [(1, 1), (3, 32), (5, 45), (64, 96)])
def test_int8_is_within_half_a_step_of_its_row(N, K):
    w = torch.randn(N, K, generator=torch.Generator().manual_seed(0))
    codes, scales = rounded(w, "int8")
    assert codes.dtype == torch.int8 and codes.shape == (N, K) and codes.abs().amax() == 127
    assert ((numbers(codes, scales, (N, K)) - w).abs() <= w.abs().amax(1, keepdim=True) / 127 * 0.5001).all()


@pytest.mark.parametrize(("N", "K"), [(1, 1), (3, 32), (5, 45), (64, 96)])
def test_int4_is_nearer_than_plain_rounding(N, K):
    """Plain: codes -7 .. 7 of the largest of each 32."""
    w = torch.randn(N, K, generator=torch.Generator().manual_seed(0))
    codes, scales = rounded(w, "int4")
    assert codes.dtype == torch.uint8 and codes.shape == (N, -(-K // 32) * 16) and scales.dtype == torch.bfloat16
    groups = torch.nn.functional.pad(w, (0, -K % 32)).unflatten(1, (-1, 32))
    plain = groups.abs().amax(-1, keepdim=True) / 7
    error = ((groups / plain).round() * plain - groups).square().sum()
    found = numbers(codes, scales, (N, K))
    assert found.shape == (N, K)
    assert (found - w).square().sum() <= error + 2**-8 * w.square().sum() * (K == 1)  # one number alone: the scale's own rounding


@pytest.mark.parametrize("precision", ["int8", "int4"])
def test_zeros_stay_zeros(precision):
    assert not numbers(*rounded(torch.zeros(3, 45), precision), (3, 45)).any()
    assert not numbers(*rounded(torch.zeros(3, 45), precision, torch.zeros(45, 45)), (3, 45)).any()


@pytest.mark.parametrize("precision", ["int8", "int4"])
def test_what_seen_inputs_make_of_a_matrix_is_nearer_when_they_guide_the_rounding(precision):
    """Inputs that go together: 45 columns from 8 sources."""
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(500, 8, generator=generator) @ torch.randn(8, 45, generator=generator) + 0.1 * torch.randn(500, 45, generator=generator)
    w = torch.randn(20, 45, generator=generator)
    apart = [(X @ (numbers(*rounded(w, precision, gram), (20, 45)) - w).mT).norm() for gram in (None, X.mT @ X)]
    assert apart[1] < 0.5 * apart[0]


@pytest.mark.parametrize("precision", ["bfloat16", "int8", "int4"])
@pytest.mark.parametrize(
    "changes", [{}, {"activation": "swiglu", "tied": False, "bias": False}, {"d_model": 45, "n_head": 5, "norm": "none"}]
)
def test_a_packed_model_is_near_its_model_and_leaves_it_as_it_was(precision, changes):
    model = randomise(Transformer(tiny(**changes))).eval()
    before = {name: t.clone() for name, t in model.state_dict().items()}
    ids = random_ids(model.config, 4, 16)
    packed = pack(model, precision, ids)
    assert all(torch.equal(before[name], t) for name, t in model.state_dict().items())
    with torch.no_grad():
        wanted, found = model(ids), as_model(packed)(ids)
    apart = ((found - wanted).norm() / wanted.norm()).item()
    assert (
        1e-5 < apart < {"bfloat16": 0.02, "int8": 0.04, "int4": 0.4}[precision]
    )  # 2^-9, 1/254, 1/16 of a number, through a dozen matrices


@pytest.mark.parametrize("precision", ["bfloat16", "int8", "int4"])
def test_a_packed_file_comes_back_as_it_was_written(run, precision):
    packed = pack(run.model, precision, calibration(run.open_data().train, 32))
    path = write_packed(run, packed)
    assert path.name == f"packed-{precision}.safetensors" and not list(path.parent.glob("*.partial"))
    again = open_packed(run, precision)
    assert (again.config, again.precision) == (packed.config, precision)
    for ours, theirs in ((packed.tensors, again.tensors), (packed.scales, again.scales)):
        assert ours.keys() == theirs.keys() and all(torch.equal(t, theirs[name]) for name, t in ours.items())
    with safe_open(path, "pt") as file:
        about = file.metadata()
    assert about["method"] == METHODS[precision] and json.loads(about["config"])["d_model"] == 32
    assert packed.n_bytes < pack(run.model, "float32").n_bytes


def test_a_decoder_opens_what_was_written(run):
    with pytest.raises(ValueError, match=r"has no packed-int4.safetensors at step \d+; make it with: andrea quantize .* --to int4"):
        decoder_for(run, "int4")
    packed = pack(run.model, "int4", calibration(run.open_data().train, 32))
    write_packed(run, packed)
    decoder, _ = decoder_for(run, "int4")
    assert np.array_equal(decoder.extend(0, [1, 2, 3], 0), CpuDecoder(packed).extend(0, [1, 2, 3], 0))


def test_a_file_made_from_other_weights_is_refused(run):
    packed = pack(run.model, "int8")
    path = write_packed(run, packed)
    manifest = path.with_name("manifest.json")
    found = json.loads(manifest.read_text(encoding="utf-8"))
    found["files"]["model.safetensors"]["sha256"] = "0" * 64  # as a checkpoint of other weights has it
    manifest.write_text(json.dumps(found), encoding="utf-8")
    with pytest.raises(ValueError, match="made from other weights than the model beside it; make it with"):
        open_packed(run, "int8")
    del found["files"]["model.safetensors"]
    manifest.write_text(json.dumps(found), encoding="utf-8")
    with pytest.raises(ValueError, match="it has no checksum of model"):
        open_packed(run, "int8")


def test_a_file_of_another_precision_or_model_is_refused(run):
    write_packed(run, pack(run.model, "int8"))
    place(run, "int8").rename(place(run, "int4"))
    with pytest.raises(ValueError, match="made from other weights"):
        open_packed(run, "int4")
    other = Transformer(replace(run.config.model, n_head=1))
    write_packed(run, pack(other, "int8"))
    with pytest.raises(ValueError, match="made from other weights"):
        open_packed(run, "int8")


def test_a_damaged_file_is_refused(run):
    path = write_packed(run, pack(run.model, "int8"))
    whole = path.read_bytes()

    def rewritten(change, about_change=()):
        path.write_bytes(whole)
        tensors = {name: t.clone() for name, t in load_file(path).items()}
        with safe_open(path, "pt") as file:
            about = file.metadata() | dict(about_change)
        change(tensors)
        save_file(tensors, path, about)

    for data in (b"", whole[:40], whole[:-1]):
        path.write_bytes(data)
        with pytest.raises(ValueError, match="cannot be read as safetensors"):
            open_packed(run, "int8")
    name = "blocks.0.attn.qkv.weight"
    for change, told in (
        (lambda t: t.pop(name), f"'{name}' is None"),
        (lambda t: t.update({name: t[name].float()}), "'F32'"),
        (lambda t: t.update(extra=torch.zeros(1)), "'extra'"),
        (lambda t: t[f"{name}.scales"].fill_(torch.nan), "it holds what is no number"),
        (lambda t: t["final_norm.gamma"].fill_(torch.nan), "it holds what is no number"),
    ):
        rewritten(change)
        with pytest.raises(ValueError, match=told):
            open_packed(run, "int8")
    for about, told in (
        ({"format_version": "99"}, "update andrea"),
        ({"format_version": "?"}, "is damaged"),
        ({"format_version": "\u00b2"}, "is damaged"),
        ({"config": "{"}, "is damaged: .*config"),
    ):
        rewritten(lambda t: None, about.items())
        with pytest.raises(ValueError, match=told):
            open_packed(run, "int8")


@pytest.mark.parametrize("precision", ["int8", "int4"])
def test_weights_that_are_no_numbers_or_too_large_are_not_rounded(precision):
    model, ids = Transformer(tiny()), torch.arange(8)[None]
    with torch.no_grad():
        model.blocks[0].mlp.up.weight[0, 0] = torch.nan
    with pytest.raises(ValueError, match=r"blocks\.0\.mlp\.up\.weight holds numbers that are not finite"):
        pack(model, precision)
    with torch.no_grad():
        model.blocks[0].mlp.up.weight.fill_(1e38)
    with pytest.raises(ValueError, match="is beyond float32 on the training text"):
        pack(model, precision, ids)


def test_the_layout_is_what_pack_makes():
    for changes in ({}, {"tied": False, "activation": "swiglu", "d_model": 45, "n_head": 5}):
        model = Transformer(tiny(**changes))
        for precision in ("bfloat16", "int8", "int4"):
            packed: Packed = pack(model, precision)
            sizes = {n: tuple(t.shape) for n, t in packed.tensors.items()} | {
                f"{n}.scales": tuple(t.shape) for n, t in packed.scales.items()
            }
            assert sizes == {name: shape for name, (_, shape) in layout(model.config, precision).items()}


def test_calibration_takes_windows_from_everywhere_and_what_there_is():
    class Numbers:
        def __init__(self, n):
            self.n = n

        def __len__(self):
            return self.n

        def read(self, start, stop):
            return np.arange(start, stop, dtype=np.uint32)

    ids = calibration(Numbers(1_000_000), 512)
    assert ids.shape == (32, 512) and ids.dtype == torch.long
    assert ids[0, 0] == 0 and ids[-1, -1] > 900_000
    assert calibration(Numbers(7), 512).tolist() == [[0, 1, 2, 3, 4, 5]]


@pytest.mark.parametrize("to", ["int8", "int4", "bf16"])
def test_the_command_tells_perplexity_and_size_before_and_after(run, to):
    done = CliRunner().invoke(app, ["quantize", str(run.path), "--to", to, "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["after"]["weight_bytes"] < told["before"]["weight_bytes"] and told["before"]["targets"] == told["after"]["targets"]
    assert 0 < abs(told["perplexity_change"]) < 0.02
    assert told["perplexity_change"] == pytest.approx(told["after"]["perplexity"] / told["before"]["perplexity"] - 1)
    decoder, _ = decoder_for(load(run.path), told["precision"])
    assert np.isfinite(decoder.extend(0, [1, 2, 3], 0)).all()


def test_the_command_prints_a_table_and_refuses_other_bits(run):
    done = CliRunner().invoke(app, ["quantize", str(run.path)])
    assert done.exit_code == 0 and "int8" in done.stdout and "packed-int8.safetensors" in done.stdout.replace("\n", "")
    done = CliRunner().invoke(app, ["quantize", str(run.path), "--to", "int3"])
    assert isinstance(done.exception, ValueError) and "--to int3 is none of int8, int4, bf16" in str(done.exception)
