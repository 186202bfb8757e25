"""The account against the specification's figures, the built model, and what autograd really keeps."""

import itertools
import json
from dataclasses import replace
from typing import Literal

import pytest
import torch
from reference import random_ids, tiny
from typer.testing import CliRunner

from andrea.accounting import claims_of_the_document, count, flops_per_token, kv_cache_bytes, parameters, training_bytes
from andrea.cli import app
from andrea.config import ModelConfig, RunConfig
from andrea.model import Transformer
from andrea.presets import PRESETS
from andrea.run_folder import write_run

FULL = ModelConfig()  # ANDREA-120M
OPTIONS = {
    "norm": ("pre", "post", "none"),
    "residual": (True, False),
    "activation": ("gelu", "relu", "swiglu"),
    "positions": ("learned", "rotary"),
    "bias": (True, False),
    "tied": (True, False),
    "mlp_ratio": (None, 2.5),
    "mlp_dim": (None, 42),
}
EVERY = [tiny(**dict(zip(OPTIONS, values, strict=True))) for values in itertools.product(*OPTIONS.values())]


def built(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    with torch.device("meta"):
        return {address: tuple(p.shape) for address, p in Transformer(config).named_parameters()}


def check(config: ModelConfig) -> None:
    """Three ways to one number: the built model, the list, and the closed form."""
    model, listed, sums = built(config), parameters(config), count(config)
    assert [(m.address, m.shape) for m in listed] == list(model.items())
    sizes = {m.address: m.size for m in listed}

    def part(*words: str) -> int:
        return sum(size for address, size in sizes.items() if any(word in address for word in words))

    assert sums.total == sum(sizes.values()) == part("embed", "blocks", "final_norm")
    assert sums.trunk == part("blocks.")
    assert (sums.token_embed, sums.position_embed) == (sizes["token_embed.weight"], sizes.get("position_embed.weight", 0))
    assert (sums.final_norm, sums.unembed) == (part("final_norm"), part("unembed"))
    assert sums.attention == part("attn.qkv.weight", "attn.out.weight")
    assert sums.mlp_total == part("mlp.up.weight", "mlp.down.weight", "mlp.gate.weight") == config.n_layer * sums.mlp_per_block
    assert sums.biases == part(".bias")
    assert sums.layer_norms == len([address for address in sizes if address.endswith("gamma")])
    assert sums.layer_norm_parameters == part("gamma", "beta")
    assert sums.total_counting_tied_twice == sums.total + (sums.token_embed if config.tied else 0)


def test_every_combination_of_options_counts_what_is_built() -> None:
    assert len(EVERY) == 576
    for config in EVERY:
        check(config)


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_counts_what_is_built(name: str) -> None:
    check(PRESETS[name].model)


def test_andrea_120m_has_the_specified_numbers() -> None:
    n = count(FULL)
    assert (n.total, n.trunk, n.total_counting_tied_twice) == (92_331_264, 85_054_464, 98_820_096)
    assert (n.token_embed, n.position_embed, n.final_norm, n.unembed) == (6_488_832, 786_432, 1_536, 0)
    assert (n.mlp_per_block, n.mlp_total, n.layer_norms, n.layer_norm_parameters) == (4_718_592, 56_623_104, 25, 38_400)
    assert 2 * FULL.d_model * FULL.mlp_width == 2 * 2_359_296 == n.mlp_per_block
    shares = [f"{100 * part / whole:.1f}" for part in (n.mlp_total, n.trunk) for whole in (n.total, n.total_counting_tied_twice, 120e6)]
    assert shares == ["61.3", "57.3", "47.2", "92.1", "86.1", "70.9"]
    assert count(PRESETS["andrea-120m"].model) == n


def test_swiglu_at_its_default_ratio_has_as_many_weights_as_gelu() -> None:
    assert count(replace(FULL, activation="swiglu")).mlp_per_block == count(FULL).mlp_per_block


def test_the_documents_figures_stand_beside_exact_ones_for_120m_alone() -> None:
    figures = {figure.about: figure for figure in claims_of_the_document(FULL)}
    assert figures["all"].exact == "92,331,264"
    assert figures["token embeddings"].exact == "6,488,832"
    assert figures["all MLPs, share"].exact == "61.3 % / 57.3 % / 47.2 %"
    assert figures["trunk, share"].exact == "92.1 % / 86.1 % / 70.9 %"
    assert figures["SwiGLU at 8/3"].exact == f"{count(replace(FULL, activation='swiglu')).mlp_per_block:,}"
    assert all(figure.why.endswith(".") for figure in figures.values())
    for changes in ({"n_layer": 11}, {"vocab_size": 8448}, {"norm": "post"}, {"tied": False}):
        assert claims_of_the_document(replace(FULL, **changes)) == []


# ---- costs ----


def test_flops_per_token_follow_the_formula() -> None:
    assert flops_per_token(FULL) == count(FULL).flops_per_token == 6 * (92_331_264 - 786_432) + 6 * 12 * 768 * 1024
    assert flops_per_token(FULL, 123) == 6 * (92_331_264 - 786_432) + 6 * 12 * 768 * 123


def test_flops_per_token_are_those_of_the_matrix_products() -> None:
    """torch counts the products that are really made; masked scores count whole there, and there are T (T + 1) / 2 true ones of T^2."""
    from torch.utils.flop_counter import FlopCounterMode

    from andrea.kernels import REFERENCE

    config = tiny(context=16, bias=False, norm="none")  # vectors make no products
    model, ids = Transformer(config, REFERENCE), random_ids(config, 3, 16)
    with FlopCounterMode(display=False) as counter:
        model(ids, ids).mean().backward()
    attention = 6 * config.n_layer * config.d_model * 16
    assert counter.get_total_flops() / ids.numel() == flops_per_token(config) + attention


def test_kv_cache_bytes_are_the_keys_and_values() -> None:
    assert kv_cache_bytes(FULL, 1024) == 2 * 12 * 1024 * 768 * 4
    assert kv_cache_bytes(FULL, 1, 2) == 36 * 1024


def kept_bytes(config: ModelConfig, batch: int, tokens: int, dtype: str) -> int:
    """Bytes of every storage, not a parameter's, that autograd keeps between forward and backward."""
    model, ids = Transformer(config), random_ids(config, batch, tokens)
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept: dict[int, torch.Tensor] = {}  # holds the tensors, so that no address is used twice

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.untyped_storage().data_ptr() not in own:
            kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    autocast = torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bfloat16")
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t), autocast:
        model(ids, ids).sum()
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("activation", ["gelu", "relu", "swiglu"])
@pytest.mark.parametrize("norm", ["pre", "post", "none"])
def test_activation_bytes_are_what_autograd_keeps(norm: str, activation: str, dtype: Literal["float32", "bfloat16"]) -> None:
    """Exactly, with a third of the logits (one of their three copies is kept) and the ids: 8 bytes a target, 8 a token, 8 a position."""
    config, (B, T) = tiny(norm=norm, activation=activation, n_layer=3), (3, 16)
    items = training_bytes(config, B, T, dtype)
    predicted = items["activations"] + items["bfloat16_copies"] + items["logits"] // 3
    assert 0 <= kept_bytes(config, B, T, dtype) - predicted <= 16 * B * T + 8 * T + 8


def test_training_bytes_add_up() -> None:
    items = training_bytes(FULL, 4, 1024, "bfloat16")
    assert items["total"] == sum(items.values()) - items["total"]
    assert items["weights"] + items["gradients"] + items["adamw_moments"] == 16 * 92_331_264
    assert items["activations"] == 4 * training_bytes(FULL, 1, 1024, "bfloat16")["activations"]
    assert training_bytes(FULL, 1, 1)["bfloat16_copies"] == 0


# ---- the command ----


def run(*arguments: str):
    return CliRunner().invoke(app, ["count", *arguments])


def test_json_holds_the_count_and_the_matrices() -> None:
    found = json.loads(run("andrea-120m", "--json", "--check").output)
    assert found["total"] == sum(m["count"] for m in found["matrices"]) == 92_331_264
    assert found["check"] == {"agrees": True, "differences": []}
    assert count(FULL).to_dict().items() <= found.items()
    assert len(found["document"]) == len(claims_of_the_document(FULL))


def test_the_tables_hold_every_number() -> None:
    words = " ".join(run("andrea-120m", "--check").output.split())
    for text in ("2,359,296 x 12", "56,623,104", "85,054,464", "92,331,264", "98,820,096", "605,892,096", "no other"):
        assert text in words, text


def test_set_changes_the_model_first() -> None:
    for path in ("d_model=96", "model.d_model=96"):
        found = json.loads(run("andrea-1m", "--set", path, "--set", "n_head=3", "--json").output)
        assert found["model"]["d_model"] == 96


def test_a_run_folder_is_counted_by_its_own_configuration(tmp_path) -> None:
    config = RunConfig(tiny(activation="swiglu", tied=False))
    write_run(tmp_path, config, {"steps": 1}, {})
    found = json.loads(run(str(tmp_path), "--json").output)
    assert found["total"] == count(config.model).total
    assert found["document"] == []


def test_what_is_neither_a_preset_nor_a_run_is_refused(tmp_path) -> None:
    for arguments, word in (
        (["andrea-12"], "andrea-12m"),
        ([str(tmp_path)], "run.json"),
        (["andrea-1m", "--set", "n_layers=3"], "n_layer"),
    ):
        result = run(*arguments)
        assert isinstance(result.exception, ValueError) and word in str(result.exception)


def test_check_fails_where_the_built_model_differs(monkeypatch) -> None:
    true = parameters(tiny())
    monkeypatch.setattr("andrea.accounting.parameters", lambda c: true[:-1])
    result = run("andrea-1m", "--check", "--json")
    assert result.exit_code == 1
    assert "final_norm.beta: counted None, built (128,)" in result.output
