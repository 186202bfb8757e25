"""Every fast kernel against its plain reference, both directions, odd sizes beside round ones.

Tolerances: float32 keeps 24 bits, and sums of n terms lose at most a few of them; bfloat16 keeps 8, so that one rounding is 2^-9 of a
value and the result of a chain of five stays within 2^-6 of the largest.
"""

import subprocess
import sys

import numpy as np
import pytest
import torch
from reference import tiny

from andrea import kernels
from andrea.config import OptimConfig
from andrea.kernels import BY_NAME, CPU, REFERENCE, TORCH, adamw, attention, choose, cross_entropy, dropout, embedding, gelu, loops, rotary
from andrea.kernels.newton_schulz import newton_schulz
from andrea.kernels.newton_schulz import reference as polar
from andrea.model import Transformer
from andrea.training.optim import optimizer_for
from andrea.training.step import train_step

CLOSE = {torch.float32: 2e-6, torch.bfloat16: 2**-6}


def close(got: torch.Tensor, wanted: torch.Tensor, dtype: torch.dtype) -> None:
    """Within dtype's tolerance of the largest value."""
    assert got.shape == wanted.shape
    largest = max(wanted.abs().max().item(), 1e-30)
    assert (got.double() - wanted).abs().max().item() <= CLOSE[dtype] * largest


@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize("shape", [(1, 1), (3, 42), (2, 5, 123), (1, 768)])
def test_gelu(shape, dtype):
    torch.manual_seed(0)
    x = (4 * torch.randn(shape)).to(dtype).requires_grad_()
    dy = torch.randn(shape).to(dtype)
    y = gelu.GeluOnCPU.apply(x)
    close(y, gelu.reference(x.detach().double()), dtype)
    close(torch.autograd.grad(y, x, dy)[0], gelu.reference_backward(x.detach().double(), dy.double()), dtype)


def test_gelu_of_what_is_not_contiguous_and_of_extremes():
    x = torch.randn(6, 42).mT
    close(gelu.GeluOnCPU.apply(x), gelu.reference(x.double()), torch.float32)
    y = gelu.GeluOnCPU.apply(torch.tensor([[0.0, 1e4, -1e4, 3e38, torch.inf, torch.nan, 8.0, -8.0]]))
    assert y[0, :5].tolist() == [0.0, 1e4, pytest.approx(0.0, abs=1e-15), pytest.approx(3e38), torch.inf]
    assert y[0, 5].isnan()
    assert gelu.GeluOnCPU.apply(torch.tensor([[torch.nan, 1.0]], dtype=torch.bfloat16))[0, 0].isnan()


def test_bfloat16_is_rounded_as_torch_rounds_it():
    """Turned by no angle and lengthened by a factor, every value is one product and one rounding; 1.5 * 3 * 2^-7 and its like are ties."""
    x = torch.cat([torch.randn(9_000), torch.arange(-500, 500) / 128, torch.tensor([torch.inf, torch.nan])]).to(torch.bfloat16)
    for factor in (1.0, 1.5, 0.3):
        got = x.clone().view(1, 1, -1, 2)
        loops.run(loops.rotate, got, got.shape[2], torch.full((1, 1), factor), torch.zeros(1, 1))
        wanted = (x.float() * factor).to(torch.bfloat16)
        finite = wanted.isfinite()
        assert torch.equal(got.flatten()[finite], wanted[finite])
        assert got.flatten()[~finite].isnan().any()


@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize("T", [1, 6, 123, 128, 129, 300])
def test_attention_in_chunks(T, dtype):
    torch.manual_seed(0)
    q, k, v = ((torch.randn(2, T, 3, 8)).to(dtype).transpose(1, 2).requires_grad_() for _ in range(3))
    dy = torch.randn(2, 3, T, 8).to(dtype)
    plain = [t.detach().double().requires_grad_() for t in (q, k, v)]
    y, wanted = attention.Chunks.apply(q, k, v, 0.0), attention.reference(*plain)
    close(y, wanted, dtype)
    for got, exact in zip(torch.autograd.grad(y, (q, k, v), dy), torch.autograd.grad(wanted, plain, dy.double()), strict=True):
        if T > 1:  # of one position q and k have no gradient
            close(got, exact, dtype)


def test_attention_drops_weights_and_its_gradient_knows_which():
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 2, 200, 4).requires_grad_() for _ in range(3))
    torch.manual_seed(1)
    y = attention.Chunks.apply(q, k, v, 0.5)
    gradients = torch.autograd.grad(y, (q, k, v), torch.ones_like(y))
    torch.manual_seed(1)
    chunks = attention.chunks(200)
    seeds = [dropout.seed() for _ in chunks]
    kept = [dropout.masked(torch.ones(2, stop - start, stop), 0.5, s) for s, (start, stop) in zip(seeds, chunks, strict=True)]
    mask = torch.cat([torch.nn.functional.pad(part, (0, 200 - part.shape[-1])) for part in kept], 1)
    wanted = (attention.pattern(q, k) * mask) @ v
    torch.testing.assert_close(y, wanted, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(gradients, torch.autograd.grad(wanted, (q, k, v), torch.ones_like(y)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 42), (2, 5, 123), (500, 768)])
def test_dropout_keeps_what_backward_keeps(shape, dtype):
    torch.manual_seed(0)
    x = torch.randn(shape).to(dtype).requires_grad_()
    y = dropout.dropout_on_cpu(x, 0.3)
    ones = torch.autograd.grad(y, x, torch.ones_like(x))[0]
    assert set(ones.unique().tolist()) <= {0.0, torch.tensor(1 / 0.7, dtype=torch.float32).to(dtype).item()}
    close(y, x.detach().double() * (ones != 0) / 0.7, dtype)


def test_dropout_is_fair_and_no_two_places_know_of_each_other():
    torch.manual_seed(0)
    masks = torch.stack([dropout.dropout_on_cpu(torch.ones(300, 400), 0.2) != 0 for _ in range(6)]).double()
    n = masks.numel()
    assert abs(masks.mean() - 0.8) < 5 * (0.16 / n) ** 0.5
    for axis in range(3):  # calls, rows and columns, each of them and what stands beside it
        assert abs(masks.mean([a for a in range(3) if a != axis]) - 0.8).max() < 5 * (0.16 * masks.shape[axis] / n) ** 0.5
        here, there = (masks.narrow(axis, start, masks.shape[axis] - 1) - 0.8 for start in (0, 1))
        assert abs((here * there).mean()) < 5 * 0.16 / here.numel() ** 0.5
    torch.manual_seed(0)
    assert torch.equal(dropout.dropout_on_cpu(torch.ones(300, 400), 0.2) != 0, masks[0] != 0)


def test_attention_of_a_continuation_is_the_vendors():
    q, k, v = torch.randn(1, 2, 3, 4), torch.randn(1, 2, 9, 4), torch.randn(1, 2, 9, 4)
    torch.testing.assert_close(attention.attention_on_cpu(q, k, v), attention.reference(q, k, v))


@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize(("n", "V", "D"), [(1, 3, 1), (6, 42, 8), (1500, 123, 64), (42, 8449, 6)])
def test_linear_cross_entropy(n, V, D, dtype):
    torch.manual_seed(0)
    x, W, targets = torch.randn(1, n, D).to(dtype).requires_grad_(), (0.3 * torch.randn(V, D)).requires_grad_(), torch.randint(V, (1, n))
    ignored = torch.arange(n)[None] == 1
    dloss = torch.rand(1, n)
    with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
        losses = cross_entropy.loss_on_cpu(x, W, targets.masked_fill(ignored, -100))
    gradients = torch.autograd.grad(losses, (x, W), dloss)
    plain = x.detach().double().requires_grad_(), W.detach().to(dtype).double().requires_grad_()
    wanted = cross_entropy.reference_loss(*plain, targets).masked_fill(ignored, 0)
    close(losses, wanted, dtype)
    for got, exact in zip(gradients, torch.autograd.grad(wanted, plain, dloss.double()), strict=True):
        close(got, exact, dtype)


def test_a_target_that_is_no_token_is_refused():
    with pytest.raises(IndexError, match="target 5 is out of bounds for 5 tokens"):
        cross_entropy.loss_on_cpu(torch.ones(1, 2, 2), torch.ones(5, 2), torch.tensor([[0, 5]]))


def test_a_target_of_a_loss_that_is_not_finite_is_seen():
    x = torch.tensor([[[torch.nan, 1.0]], [[1.0, 1.0]]])
    losses = cross_entropy.loss_on_cpu(x, torch.ones(5, 2), torch.zeros(2, 1, dtype=torch.long))
    assert losses.isnan().tolist() == [[True], [False]]


@pytest.mark.parametrize("rotate", [rotary.rotate, rotary.rotate_on_cpu])
@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize(("B", "T", "H", "K", "start"), [(1, 1, 1, 2, 0), (2, 7, 3, 6, 5), (1, 42, 2, 32, 0)])
def test_rotary_positions(B, T, H, K, start, dtype, rotate):
    torch.manual_seed(0)
    x = torch.randn(B, T, 3 * H * K).to(dtype).requires_grad_()
    dy = torch.randn(B, T, 3 * H * K).to(dtype)
    plain = x.detach().double().requires_grad_()
    y, wanted = rotate(x * 1, H, start), rotary.reference(plain, H, start)
    close(y, wanted, dtype)
    close(torch.autograd.grad(y, x, dy)[0], torch.autograd.grad(wanted, plain, dy.double())[0], dtype)


def test_turned_queries_and_keys_know_distances_alone():
    q, k = torch.randn(2, 8, dtype=torch.float64)
    same = torch.cat([q, k, k]).expand(1, 20, 24)
    turned_q, turned_k, v = rotary.rotate(same, 1, 0)[0].chunk(3, -1)
    products = turned_q @ turned_k.mT
    for distance in (0, 1, 7):
        along = products.diagonal(-distance)
        torch.testing.assert_close(along, along[:1].expand_as(along))
    assert not torch.isclose(products[5, 4], products[5, 3])
    assert torch.equal(v, same[0, :, 16:])


def test_the_embedding_counts_every_time_that_a_token_comes():
    W, ids, dy = (
        torch.randn(7, 3, dtype=torch.float64, requires_grad=True),
        torch.tensor([[1, 4, 1], [1, 0, 6]]),
        torch.randn(2, 3, 3).double(),
    )
    y = embedding.embedding(ids, W)
    torch.testing.assert_close(y, embedding.reference(ids, W))
    torch.testing.assert_close(torch.autograd.grad(y, W, dy)[0], embedding.reference_backward(ids, W.detach(), dy))


def test_adamw_of_torch_is_the_formula():
    torch.manual_seed(0)
    held, grads = [[torch.randn(shape) for shape in ((3,), (42, 6))] for _ in range(2)]
    ours = [held, [torch.zeros_like(p) for p in held], [torch.zeros_like(p) for p in held]]
    exact = [[t.double() for t in some] for some in ours]
    for t in (1.0, 2.0, 3.0):
        numbers = [torch.full((), t) for _ in held], 1e-2, 0.9, 0.999, 1e-8, 0.1
        adamw.adamw(ours[0], grads, *ours[1:], *numbers)
        adamw.reference(exact[0], [g.double() for g in grads], *exact[1:], *numbers)
    for some, wanted in zip(ours, exact, strict=True):
        for got, should in zip(some, wanted, strict=True):
            close(got, should, torch.float32)


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 6, 6), (2, 42, 123), (2, 123, 42), (1, 64, 256)])
def test_newton_schulz_keeps_directions_and_brings_singular_values_near_1(shape):
    torch.manual_seed(0)
    G = torch.randn(shape)
    X = newton_schulz(G, torch.float32)
    U, S, Vt = torch.linalg.svd(G, full_matrices=False)
    turned = U.mT @ X @ Vt.mT  # diagonal if X has G's singular vectors
    values = turned.diagonal(dim1=-2, dim2=-1)
    torch.testing.assert_close(turned, torch.diag_embed(values), rtol=0, atol=2e-4)
    lifted = values[S.amax(-1, keepdim=True) * 0.05 < S]  # smaller ones need more turns
    assert 0.6 < lifted.min() <= lifted.max() < 1.25
    torch.testing.assert_close(polar(G), U @ Vt)


def test_newton_schulz_of_nothing_is_nothing_and_bfloat16_is_near():
    assert newton_schulz(torch.zeros(2, 3, 4)).abs().max() == 0
    torch.manual_seed(0)
    G = torch.randn(2, 48, 64)
    apart = newton_schulz(G, torch.bfloat16).float() - newton_schulz(G, torch.float32)
    assert apart.norm() / 2**0.5 / 48**0.5 < 0.05


def test_muon_steps_as_torchs_own():
    """torch.optim.Muon on matrices of both kinds of shape, q, k and v apart, over three steps, all in bfloat16 as it always does."""
    torch.manual_seed(0)
    c = OptimConfig(lr=1e-3, matrix_lr=0.02, weight_decay=0.1)
    model = Transformer(tiny())
    ours = optimizer_for(model, c, torch.bfloat16)
    block = model.blocks[0]
    parts = [
        *block.attn.qkv.weight.detach().chunk(3),
        block.attn.out.weight.detach(),
        block.mlp.up.weight.detach(),
        block.mlp.down.weight.detach(),
    ]
    theirs = [torch.nn.Parameter(p.clone()) for p in parts]
    muon = torch.optim.Muon(theirs, lr=0.02, weight_decay=0.1, momentum=0.95, nesterov=True)
    for _ in range(3):
        for p in model.parameters():
            p.grad = torch.randn_like(p)
        gradients = [*block.attn.qkv.weight.grad.chunk(3), block.attn.out.weight.grad, block.mlp.up.weight.grad, block.mlp.down.weight.grad]
        for p, g in zip(theirs, gradients, strict=True):
            p.grad = g.clone()
        for group in ours.param_groups:
            group["lr"] = c.lr
        ours.step()
        muon.step()
    for mine, other in zip(parts, theirs, strict=True):
        assert (mine - other).norm() / (3 * 0.02 * min(mine.shape) ** 0.5) < 0.02  # of the way gone, by bfloat16's rounding


@pytest.mark.parametrize("positions", ["learned", "rotary"])
@pytest.mark.parametrize("kernels", [TORCH, CPU], ids=["torch", "cpu"])
def test_twenty_steps_equal_those_of_the_reference_kernels(kernels, positions):
    def grown(kernels):
        torch.manual_seed(0)
        model = Transformer(tiny(context=160, positions=positions), kernels)
        optimizer = optimizer_for(model, OptimConfig())
        ids = torch.randint(61, (2, 161), generator=torch.Generator().manual_seed(1))
        losses = [
            train_step(model, list(model.parameters()), optimizer, [(ids[:, :-1], ids[:, 1:])], 1e-3, 1.0)[0].item() for _ in range(20)
        ]
        return losses, model

    (ours, model), (plain, twin) = grown(kernels), grown(REFERENCE)
    np.testing.assert_allclose(ours, plain, rtol=2e-4)
    for p, other in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(p, other, rtol=0, atol=2e-3)


def test_in_float64_the_kernels_for_a_cpu_are_torchs():
    torch.manual_seed(0)
    model = Transformer(tiny(positions="rotary"), CPU).double()
    twin = Transformer(tiny(positions="rotary"), REFERENCE).double()
    twin.load_state_dict(model.state_dict())
    ids = torch.randint(61, (2, 16))
    torch.testing.assert_close(model(ids, ids), twin(ids, ids), rtol=1e-12, atol=1e-12)


def test_which_kernels_is_a_matter_of_the_device():
    assert choose("cpu", False)[0] == "cpu"
    assert choose("cpu", True)[0] == choose("cuda", False)[0] == choose("mps", False)[0] == "torch"
    assert choose("cpu", False, "torch") == ("torch", "asked for")
    assert set(BY_NAME) == {"torch", "cpu", "triton", "mixed"}


def test_kernels_for_a_gpu_that_do_not_run_here_are_refused_with_the_reason(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(kernels, "find_spec", lambda name: name)
    for name in ("triton", "mixed"):
        with pytest.raises(ValueError, match=f"kernels={name} do not run here: .* for a GPU and the device is cpu .*; kernels=auto takes"):
            choose("cpu", False, name)
    monkeypatch.setattr(kernels, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match="Triton is not installed"):
        choose("cuda", True, "triton")


def test_a_kernel_that_fails_is_a_reason(monkeypatch):
    def fails(x):
        raise RuntimeError("no C compiler\nand more")

    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr(kernels, "find_spec", lambda name: name)
    monkeypatch.setattr(gelu, "gelu_on_gpu", fails)
    assert kernels.lacking("triton", "cpu") == "the smallest of Triton's kernels failed: no C compiler"


def test_auto_on_a_gpu_is_what_was_measured_there(monkeypatch):
    name, why = kernels.fastest("NVIDIA X1", "cuda", True)
    assert name == "torch" and "has not been measured" in why
    monkeypatch.setitem(kernels.FASTEST, ("NVIDIA X1", True), "mixed")
    monkeypatch.setattr(kernels, "lacking", lambda name, device: "")
    assert kernels.fastest("NVIDIA X1", "cuda", True) == ("mixed", "the fastest on NVIDIA X1, as benchmarks/gpu.py measured")
    monkeypatch.setattr(kernels, "lacking", lambda name, device: "it rains")
    assert kernels.fastest("NVIDIA X1", "cuda", True) == ("torch", "the vendor's own; mixed are faster on NVIDIA X1, but it rains")


def test_without_numba_torch_does_it_and_the_reason_is_told():
    code = "import sys; sys.modules['numba'] = None; from andrea.kernels import choose; print(*choose('cpu', False))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told.startswith("torch Numba does not run here")
