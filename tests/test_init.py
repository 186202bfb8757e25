"""What a fresh model holds, and what it therefore says."""

import math

import pytest
import torch
from reference import random_ids, tiny
from torch import Tensor, nn

from andrea.config import ModelConfig
from andrea.model import Transformer


def fresh(config: ModelConfig, seed: int = 1337) -> Transformer:
    torch.manual_seed(seed)
    return Transformer(config)


def writers(model: Transformer) -> list[nn.Linear]:
    """The residual projections: the matrices whose output is added to the stream."""
    return [matrix for block in model.blocks for matrix in (block.attn.out, block.mlp.down)]


def near(std: Tensor, wanted: float) -> bool:
    return abs(std.item() / wanted - 1) < 0.02


def test_gpt2_init_has_the_specified_scales() -> None:
    """A standard deviation of 589,824 draws, the smallest matrix, is known to 1 / sqrt(2 n), 0.1 %."""
    model = fresh(ModelConfig())
    small = {id(matrix.weight) for matrix in writers(model)}
    assert len(small) == 24 and math.isclose(0.02 / math.sqrt(24), 0.0040825, rel_tol=1e-5)
    for address, p in model.named_parameters():
        if p.ndim == 2:
            assert near(p.std(), 0.0040825 if id(p) in small else 0.02), address
            assert abs(p.mean().item()) < 5 * 0.02 / math.sqrt(p.numel()), address
        else:
            assert (p == (1 if address.endswith("gamma") else 0)).all(), address


@pytest.mark.parametrize("changes", [{"activation": "swiglu"}, {"norm": "post"}, {"residual": False}, {"tied": False}])
def test_gpt2_init_reaches_every_variant(changes: dict) -> None:
    model = fresh(tiny(d_model=256, vocab_size=512, context=256, n_layer=8, **changes))
    small = {id(matrix.weight) for matrix in writers(model)}
    for address, p in model.named_parameters():
        if p.ndim == 2:  # 65,536 draws and more: 0.3 %
            assert near(p.std(), 0.005 if id(p) in small else 0.02), address


@pytest.mark.parametrize("activation", ["gelu", "relu", "swiglu"])
def test_zero_init_makes_every_block_the_identity(activation: str) -> None:
    model = fresh(tiny(init="zero", activation=activation))
    x = torch.randn(2, 16, 32)
    for block in model.blocks:
        assert torch.equal(block(x), x)
    assert all(not matrix.weight.any() for matrix in writers(model))
    assert all(block.attn.qkv.weight.any() and block.mlp.up.weight.any() for block in model.blocks)  # or nothing would ever learn


@pytest.mark.parametrize("activation", ["gelu", "swiglu"])
def test_xavier_init_fills_its_bound(activation: str) -> None:
    """sqrt(6 / (n_in + n_out)), with q, k and v as the three layers they are; the largest of n draws is within some 1/n of it."""
    model = fresh(tiny(init="xavier", activation=activation, d_model=64))
    for address, p in model.blocks.named_parameters():
        if p.ndim == 2:
            for matrix in p.chunk(3) if "qkv" in address else [p]:
                bound = math.sqrt(6 / sum(matrix.shape))
                assert 0.99 * bound < matrix.abs().max() <= bound, address
    for embedding in (model.token_embed, model.position_embed):
        assert abs(embedding.weight.std().item() / 0.02 - 1) < 0.1  # 1,024 draws and more: 2 %, four times over
    assert abs(fresh(tiny(init="xavier", tied=False)).unembed.weight.std().item() / 0.02 - 1) < 0.1


def test_a_fresh_model_knows_nothing() -> None:
    """ln V = 9.0418 at V = 8449, on 64 random windows; the logits' own spread adds some hundredths."""
    config = ModelConfig(vocab_size=8449, context=1024, n_layer=6, n_head=12, d_model=384)
    ids = random_ids(config, 64, 33)
    with torch.no_grad():
        loss = fresh(config)(ids[:, :-1], ids[:, 1:]).mean().item()
    assert abs(loss - 9.04) < 0.15


@pytest.mark.parametrize("init", ["gpt2", "zero", "xavier"])
def test_the_same_seed_gives_the_same_model_and_another_another(init: str) -> None:
    first, again, other = (fresh(tiny(init=init), seed).state_dict() for seed in (7, 7, 8))
    assert all(torch.equal(first[address], again[address]) for address in first)
    assert not torch.equal(first["token_embed.weight"], other["token_embed.weight"])
    assert not torch.equal(first["blocks.1.attn.qkv.weight"], other["blocks.1.attn.qkv.weight"])
