"""The model against Hugging Face's GPT-2, against its equations written out by hand, and against itself."""

import ast
import copy
import inspect
import math
import textwrap

import pytest
import torch
import torch.nn.functional as F
from reference import as_hf, hf_gpt2, hf_name, our_name, random_ids, randomise, tiny, worst
from torch import Tensor

from andrea.config import ModelConfig
from andrea.kernels import REFERENCE, TORCH, attention, cross_entropy, gelu, layer_norm
from andrea.model import Block, Transformer, unfilled
from andrea.model.attention import Attention
from andrea.model.transformer import BLOCKS

SMALL = tiny(context=64, d_model=48, n_head=3)
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-9}  # of the largest entry: some hundred times the dtype's rounding through 12 blocks
VARIANTS = list(BLOCKS)


def gradients(model: torch.nn.Module, loss: Tensor) -> dict[str, Tensor]:
    names, parameters = zip(*model.named_parameters(), strict=True)
    return dict(zip(names, torch.autograd.grad(loss, parameters), strict=True))


def qkv_apart(address: str, tensor: Tensor) -> list[Tensor]:
    """q, k and v have gradients of very different size; each is measured against its own."""
    return list(tensor.chunk(3)) if ".qkv." in address else [tensor]


def check_parity(config: ModelConfig, shape: tuple[int, int], dtype: torch.dtype) -> None:
    model = randomise(Transformer(config)).to(dtype)
    theirs = hf_gpt2(config, model)
    ids, targets = random_ids(config, *shape), random_ids(config, *shape, seed=1)
    logits, their_logits = model(ids), theirs(ids).logits
    loss, their_loss = model(ids, targets).mean(), F.cross_entropy(their_logits.flatten(0, 1), targets.flatten())
    assert worst(logits, their_logits) <= TOLERANCE[dtype]
    assert worst(loss, their_loss) <= TOLERANCE[dtype]

    ours, others = gradients(model, loss), gradients(theirs, their_loss)
    assert {hf_name(address) for address in ours} == set(others)
    # The key bias adds the same to all scores of a row, and with one position there is nothing to attend to: such gradients are 0, and
    # what is left of them is the rounding of sums of terms as large as the largest gradient.
    floor = 2 * torch.finfo(dtype).eps * max(g.abs().max().item() for g in others.values())
    for address, gradient in ours.items():
        pairs = zip(qkv_apart(address, gradient), qkv_apart(address, as_hf(address, others[hf_name(address)])), strict=True)
        for part, (a, b) in enumerate(pairs):
            far = (a - b).abs().max().item()
            assert far <= max(TOLERANCE[dtype] * b.abs().max().item(), floor), f"{address} part {part}: {far}"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(1, 1), (2, 17), (3, 64)])
def test_logits_loss_and_every_gradient_equal_hugging_face(shape: tuple[int, int], dtype: torch.dtype) -> None:
    check_parity(SMALL, shape, dtype)


def test_the_120m_shape_equals_hugging_face() -> None:
    check_parity(ModelConfig(), (1, 8), torch.float32)


@pytest.mark.parametrize("changes", [{"tied": False}, {"bias": False}, {"activation": "relu"}, {"mlp_ratio": 2.5}])
def test_options_that_gpt2_knows_equal_hugging_face(changes: dict) -> None:
    config = tiny(**changes)
    model = randomise(Transformer(config))
    ids = random_ids(config, 2, 13)
    assert worst(model(ids), hf_gpt2(config, model)(ids).logits) <= TOLERANCE[torch.float32]


def test_the_loss_equals_hugging_faces_own() -> None:
    model = randomise(Transformer(SMALL))
    ids = random_ids(SMALL, 3, 42)
    ours = model(ids[:, :-1], ids[:, 1:]).mean()
    assert worst(ours, hf_gpt2(SMALL, model)(ids, labels=ids).loss) <= TOLERANCE[torch.float32]


def test_the_name_table_reads_both_ways() -> None:
    for address, _ in Transformer(tiny(tied=False)).named_parameters():
        assert our_name(hf_name(address)) == address


# ---- equations by hand ----


def norm_by_hand(x: Tensor, norm: torch.nn.Module) -> Tensor:
    if isinstance(norm, torch.nn.Identity):
        return x
    mean = x.sum(-1, keepdim=True) / x.shape[-1]
    variance = ((x - mean) ** 2).sum(-1, keepdim=True) / x.shape[-1]
    return norm.gamma * (x - mean) / (variance + 1e-5) ** 0.5 + norm.beta


def attention_by_hand(x: Tensor, a: Attention) -> Tensor:
    """One head and one position after another, only over what lies before."""
    D, K = x.shape[-1], x.shape[-1] // a.n_head
    q, k, v = (x @ w.T + b for w, b in zip(a.qkv.weight.split(D), a.qkv.bias.split(D), strict=True))
    y = torch.zeros_like(x)
    for head in range(a.n_head):
        part = slice(head * K, (head + 1) * K)
        for t in range(x.shape[1]):
            scores = (k[:, : t + 1, part] * q[:, t : t + 1, part]).sum(-1) / math.sqrt(K)  # (B, t + 1)
            weights = scores.exp() / scores.exp().sum(-1, keepdim=True)
            y[:, t, part] = (weights[..., None] * v[:, : t + 1, part]).sum(1)
    return y @ a.out.weight.T + a.out.bias


def mlp_by_hand(x: Tensor, mlp: torch.nn.Module, activation: str) -> Tensor:
    h = x @ mlp.up.weight.T + mlp.up.bias
    if activation == "gelu":
        h = h * 0.5 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (h + 0.044715 * h**3)))
    elif activation == "relu":
        h = h * (h > 0)
    else:
        gate = x @ mlp.gate.weight.T + mlp.gate.bias
        h = gate / (1 + torch.exp(-gate)) * h
    return h @ mlp.down.weight.T + mlp.down.bias


@pytest.mark.parametrize("activation", ["gelu", "relu", "swiglu"])
@pytest.mark.parametrize(("norm", "residual"), VARIANTS)
def test_every_block_is_its_equations(norm: str, residual: bool, activation: str) -> None:
    model = randomise(Transformer(tiny(norm=norm, residual=residual, activation=activation))).double()
    b = model.blocks[0]
    x = torch.randn(2, 9, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    first, second = b.attn_norm, b.mlp_norm

    def attn(z: Tensor) -> Tensor:
        return attention_by_hand(z, b.attn)

    def mlp(z: Tensor) -> Tensor:
        return mlp_by_hand(z, b.mlp, activation)

    if norm == "post":
        y = norm_by_hand(residual * x + attn(x), first)
        y = norm_by_hand(residual * y + mlp(y), second)
    else:
        y = residual * x + attn(norm_by_hand(x, first))
        y = residual * y + mlp(norm_by_hand(y, second))
    assert worst(b(x), y) <= 1e-13  # float64 rounding, 2e-16, times sums of some hundred terms


@pytest.mark.parametrize(("norm", "residual"), VARIANTS)
def test_sublayers_blocks_and_logits_keep_their_shapes(norm: str, residual: bool) -> None:
    config = tiny(norm=norm, residual=residual)
    model = Transformer(config)
    for B, T in ((1, 1), (3, 6), (2, 16)):
        x = torch.randn(B, T, config.d_model)
        for module in (model.blocks[0], model.blocks[0].attn, model.blocks[0].mlp, model.blocks[0].attn_norm):
            assert module(x).shape == (B, T, config.d_model)
        ids = random_ids(config, B, T)
        assert model(ids).shape == (B, T, config.vocab_size)
        assert model(ids, ids).shape == (B, T)


@pytest.mark.parametrize("norm", ["pre", "post", "none"])
def test_only_pre_norm_has_a_final_norm(norm: str) -> None:
    model = Transformer(tiny(norm=norm))
    assert bool(list(model.final_norm.parameters())) == (norm == "pre")
    assert bool(list(model.blocks[0].attn_norm.parameters())) == (norm != "none")


# ---- behaviour ----


@pytest.mark.parametrize("kernels", [TORCH, REFERENCE], ids=["torch", "reference"])
@pytest.mark.parametrize(("norm", "residual"), VARIANTS)
def test_a_token_changes_nothing_before_it(norm: str, residual: bool, kernels) -> None:
    config = tiny(norm=norm, residual=residual)
    model = randomise(Transformer(config, kernels))
    ids = random_ids(config, 1, 16)
    before = model(ids)
    for t in (0, 1, 7, 15):
        changed = ids.clone()
        changed[0, t] = (ids[0, t] + 1) % config.vocab_size
        after = model(changed)
        assert torch.equal(after[:, :t], before[:, :t])
        assert not torch.isclose(after[:, t:], before[:, t:]).all(-1).any()  # and every position from it on hears of it


def test_more_tokens_than_the_context_are_refused() -> None:
    model = Transformer(tiny())
    assert model(random_ids(tiny(), 1, 16)).shape[1] == 16
    with pytest.raises(ValueError, match="17 tokens do not fit the context of 16"):
        model(random_ids(tiny(), 1, 17))


@torch.no_grad()
def test_dropout_acts_only_in_training() -> None:
    ids = random_ids(tiny(), 2, 16)
    model, plain = randomise(Transformer(tiny(dropout=0.3))), randomise(Transformer(tiny()))
    assert not torch.equal(model(ids), model(ids))
    assert torch.equal(model.eval()(ids), plain(ids))
    assert torch.equal(plain.train()(ids), plain.eval()(ids))


def test_the_block_is_two_statements_and_the_model_at_most_six() -> None:
    def statements(function) -> int:
        body = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
        return sum(isinstance(node, ast.stmt) for node in ast.walk(body)) - 1 - (ast.get_docstring(body) is not None)

    assert all(statements(block.forward) == 2 for block in {Block, *BLOCKS.values()})
    assert statements(Transformer.forward) <= 6


# ---- kernels ----


@pytest.mark.parametrize("activation", ["gelu", "relu", "swiglu"])
@pytest.mark.parametrize(("norm", "residual"), VARIANTS)
def test_reference_and_fast_kernels_agree(norm: str, residual: bool, activation: str) -> None:
    config = tiny(norm=norm, residual=residual, activation=activation)
    fast, plain = (randomise(Transformer(config, kernels)).double() for kernels in (TORCH, REFERENCE))
    ids = random_ids(config, 2, 15)
    losses = fast(ids, ids), plain(ids, ids)
    assert worst(*losses) <= 1e-12
    ours, others = gradients(fast, losses[0].mean()), gradients(plain, losses[1].mean())
    for address in ours:
        assert worst(ours[address], others[address]) <= 1e-9, address


def test_one_query_and_a_few_queries_after_a_prefix_agree_with_the_reference() -> None:
    q, k, v = torch.randn(3, 2, 4, 11, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    whole = attention.reference(q, k, v)
    for T in (1, 3, 11):
        assert worst(attention.attention(q[:, :, -T:], k, v), whole[:, :, -T:]) <= 1e-13


def test_backward_references_equal_autograd() -> None:
    g = torch.Generator().manual_seed(0)
    x = 3 * torch.randn(5, 7, 42, dtype=torch.float64, generator=g)
    dy, gamma, beta = torch.randn_like(x), torch.randn(42, dtype=torch.float64), torch.randn(42, dtype=torch.float64)
    targets, dloss = torch.randint(42, (5, 7), generator=g), torch.randn(5, 7, dtype=torch.float64, generator=g)
    for leaf in (x, gamma, beta):
        leaf.requires_grad_()
    cases = [
        (gelu.reference(x), (x,), dy, (gelu.reference_backward(x, dy),)),
        (layer_norm.reference(x, gamma, beta), (x, gamma, beta), dy, layer_norm.reference_backward(x, gamma, dy)),
        (cross_entropy.reference(x, targets), (x,), dloss, (cross_entropy.reference_backward(x, targets, dloss),)),
    ]
    for y, inputs, gradient, backward in cases:
        for ours, theirs in zip(backward, torch.autograd.grad(y, inputs, gradient), strict=True):
            assert worst(ours, theirs) <= 1e-12


@pytest.mark.parametrize("function", [gelu.gelu, gelu.reference])
def test_gelu_has_the_specified_values(function) -> None:
    x = torch.tensor([1.0, 3.0, -2.0])
    assert (function(x) - torch.tensor([0.8411920, 2.9963626, -0.0454023])).abs().max() <= 1e-6
    assert function(torch.zeros(1)).item() == 0
    assert (function(torch.tensor([20.0, -20.0])) == torch.tensor([20.0, 0.0])).all()


# ---- the tied matrix ----


def twin_by_state_dict(model: Transformer) -> Transformer:
    twin = Transformer(model.config)
    twin.load_state_dict(model.state_dict())
    return twin


@pytest.mark.parametrize("way", [lambda m: m, lambda m: m.to(torch.float64), copy.deepcopy, twin_by_state_dict])
def test_the_tied_matrix_stays_one(way) -> None:
    model = way(randomise(Transformer(tiny())))
    assert model.unembed.weight is model.token_embed.weight
    assert [name for name, _ in model.named_parameters() if name.startswith(("token_embed", "unembed"))] == ["token_embed.weight"]
    ids = random_ids(tiny(), 1, 5)
    assert worst(model(ids).double(), randomise(Transformer(tiny())).double()(ids)) <= 1e-5


def test_untied_matrices_are_two() -> None:
    model = Transformer(tiny(tied=False))
    assert model.unembed.weight.data_ptr() != model.token_embed.weight.data_ptr()
    assert not torch.equal(model.unembed.weight, model.token_embed.weight)
    assert sum(p.shape == (61, 32) for p in model.parameters()) == 2


@pytest.mark.parametrize("init", ["gpt2", "zero", "xavier"])
def test_a_model_to_be_filled_draws_nothing_and_is_the_same_once_filled(init: str) -> None:
    config = tiny(init=init)
    drawn, before = Transformer(config), torch.get_rng_state()
    model = unfilled(config)
    assert torch.equal(torch.get_rng_state(), before)
    model.load_state_dict(drawn.state_dict())
    ids = random_ids(config, 2, 9)
    assert torch.equal(model(ids), drawn(ids))
