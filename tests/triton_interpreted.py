"""The Triton kernels on a CPU, through Triton's interpreter: test_triton.py runs this file in a process with TRITON_INTERPRET=1."""

import numpy as np
import pytest
import torch
from reference import tiny
from triton_cases import CASES

from andrea.config import OptimConfig, RunConfig, override
from andrea.kernels import BY_NAME, REFERENCE, TRITON
from andrea.kernels.gpu import adamw, attention, cross_entropy, embedding, gelu, layer_norm, newton_schulz
from andrea.model import Transformer
from andrea.training.optim import optimizer_for
from andrea.training.start import choices
from andrea.training.step import train_step


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kernel", CASES)
def test_both_directions_are_the_references(kernel, dtype):
    torch.manual_seed(0)
    wrong = [check for check in CASES[kernel](dtype, "cpu", False) if not check.right]
    assert not wrong


def inputs() -> dict[str, tuple]:
    """Of every operation a function of float32 tensors to one, and small tensors."""
    torch.manual_seed(0)
    x, gamma, beta = torch.randn(3, 42), 1 + 0.3 * torch.randn(42), torch.randn(42)
    targets, ids = torch.tensor([1, 0, 6]), torch.tensor([[1, 4, 1]])
    q, k, v = torch.randn(3, 1, 2, 5, 16)
    return {
        "gelu": (gelu.gelu, x, beta),
        "layer_norm": (layer_norm.layer_norm, x, gamma, beta),
        "add_layer_norm": (lambda *t: sum(layer_norm.add_layer_norm(*t)), x, torch.randn(3, 42), gamma, beta),
        "loss": (lambda x, W: cross_entropy.loss(x, W, targets, 0.01), x, torch.randn(7, 42) / 6),
        "attention": (attention.attention, q, k, v),
        "embedding": (lambda W: embedding.embedding(ids, W), torch.randn(7, 42)),
    }


@pytest.mark.parametrize("name", inputs())
def test_gradients_are_slopes(name):
    """(f(t + h d) - f(t - h d)) / 2 h against the gradient, along a random d: wrong by h^2 and by float32's 2^-24 / h, both below 1e-3."""
    function, *tensors = inputs()[name]
    held = [t.requires_grad_() for t in tensors]
    directions = [torch.randn_like(t) for t in tensors]
    out = function(*held)
    weight, h = torch.randn_like(out), 1e-2
    along = sum((g * d).sum() for g, d in zip(torch.autograd.grad(out, held, weight), directions, strict=True))
    with torch.no_grad():
        there, back = ((weight * function(*(t + s * d for t, d in zip(tensors, directions, strict=True)))).sum() for s in (h, -h))
    size = sum((g.abs() * d.abs()).sum() for g, d in zip(torch.autograd.grad(function(*held), held, weight), directions, strict=True))
    assert abs((there - back) / (2 * h) - along) <= 1e-3 * size


def test_the_operators_keep_torchs_rules():
    """Shapes, strides, aliases and gradients are as declared, also when shapes are not known."""
    q, k, v = (t.requires_grad_() for t in torch.randn(3, 1, 2, 5, 16))
    x, r, W = (t.requires_grad_() for t in torch.randn(3, 4, 42))
    gamma, dy = torch.randn(42, requires_grad=True), torch.randn(4, 42)
    targets, ids = torch.tensor([1, 0, 3, -100]), torch.tensor([[1, 2, 1, 0]])
    y, lse = attention.flash(q.detach(), k.detach(), v.detach())
    losses, dz = cross_entropy.linear_cross_entropy(x.detach(), W.detach(), targets, 0.0, torch.float32, 2)
    held = [[torch.randn(3, 42)] for _ in range(4)]
    calls = [
        (gelu.gelu, (x, gamma)),
        (gelu.gelu_backward, (dy, x.detach(), None)),
        (layer_norm.layer_norm, (x, gamma, gamma)),
        (layer_norm.layer_norm_backward, (dy, x.detach(), gamma.detach())),
        (layer_norm.add_layer_norm, (x, r, gamma, gamma)),
        (layer_norm.add_layer_norm_backward, (dy, dy, x.detach(), gamma.detach())),
        (cross_entropy.linear_cross_entropy, (x, W, targets, 0.0, torch.float32, 2)),
        (cross_entropy.linear_cross_entropy_backward, (losses, x.detach(), W.detach(), dz)),
        (attention.flash, (q, k, v)),
        (attention.flash_backward, (y, q.detach(), k.detach(), v.detach(), y, lse)),
        (embedding.embedding, (ids, W)),
        (embedding.embedding_backward, (dy[None], ids, 4)),
        (newton_schulz.symmetric, (torch.randn(2, 3, 5),)),
        (adamw.step, (*held, [torch.ones(())], 1e-3, 0.9, 0.95, 1e-8, 0.1)),
    ]
    for operator, args in calls:
        failed = {test: told for test, told in torch.library.opcheck(operator, args).items() if told != "SUCCESS"}
        assert not failed, operator


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_in_one_graph_they_are_the_same(backend):
    def both(x, gamma, beta):
        return TRITON.gelu(TRITON.layer_norm(x, gamma, beta))

    torch.manual_seed(0)
    held = [t.requires_grad_() for t in (torch.randn(3, 42), torch.randn(42), torch.randn(42))]
    y, again = both(*held), torch.compile(both, backend=backend, fullgraph=True)(*held)
    assert torch.equal(y, again)
    weight = torch.randn_like(y)
    for got, wanted in zip(torch.autograd.grad(again, held, weight), torch.autograd.grad(y, held, weight), strict=True):
        assert torch.equal(got, wanted)


def grown(kernels, steps, backend=None):
    """Losses and weights of a tiny model, Muon and AdamW, after some steps on one sequence."""
    torch.manual_seed(0)
    model = Transformer(tiny(vocab_size=17, context=8, n_layer=1), kernels)
    optimizer = optimizer_for(model, OptimConfig(), kernels=kernels)
    ids = torch.randint(17, (1, 9), generator=torch.Generator().manual_seed(1))
    losses = torch.compile(model, backend=backend, fullgraph=True) if backend else model
    batch = [(ids[:, :-1], ids[:, 1:])]
    return [train_step(losses, list(model.parameters()), optimizer, batch, 1e-3, 1.0)[0].item() for _ in range(steps)], model


def test_twenty_steps_equal_those_of_the_reference_kernels():
    """Losses are sums of float32 products, right to 1e-6 at first; each step hands its rounding on, and 20 of them add up."""
    (ours, model), (wanted, twin) = grown(TRITON, 20), grown(REFERENCE, 20)
    assert ours[-1] < ours[0] - 0.5
    np.testing.assert_allclose(ours, wanted, rtol=20 * 1e-6)
    for p, other in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(p, other, rtol=0, atol=2e-3)  # AdamW's first steps have the sign of a gradient, which may be of rounding


def test_a_whole_model_compiles_in_one_graph():
    np.testing.assert_allclose(grown(TRITON, 2, "aot_eager")[0], grown(REFERENCE, 2)[0], rtol=2e-6)


def test_under_autocast_the_logits_are_bfloat16_and_the_losses_float32():
    torch.manual_seed(0)
    model, ids = Transformer(tiny(), TRITON), torch.randint(61, (1, 16))
    with torch.autocast("cpu", torch.bfloat16):
        losses = model(ids, ids)
        dz = cross_entropy.linear_cross_entropy(torch.randn(1, 3, 32), torch.randn(5, 32), ids[:, :3] % 5, 0.0, torch.bfloat16, 4)[1]
    losses.sum().backward()
    assert (losses.dtype, dz.dtype) == (torch.float32, torch.bfloat16)
    twin = Transformer(model.config, REFERENCE)
    twin.load_state_dict(model.state_dict())
    assert ((losses - twin(ids, ids)).abs() < 2**-6 * losses).all()  # two layers of values with 8 bits


def test_what_the_kernels_do_not_do_the_vendors_do():
    torch.manual_seed(0)
    for name in ("triton", "mixed"):
        model, twin = (Transformer(tiny(dropout=0.5), BY_NAME[n]).double() for n in (name, "torch"))
        twin.load_state_dict(model.state_dict())
        torch.manual_seed(1)
        losses = model(ids := torch.randint(61, (1, 16)), ids)
        torch.manual_seed(1)
        torch.testing.assert_close(losses, twin(ids := torch.randint(61, (1, 16)), ids), rtol=1e-12, atol=1e-12)  # float64, and dropout
    q, k, v = torch.randn(1, 2, 3, 8), torch.randn(1, 2, 9, 8), torch.randn(1, 2, 9, 8)
    torch.testing.assert_close(TRITON.attention(q, k, v), BY_NAME["torch"].attention(q, k, v))


def test_a_target_that_is_no_token_has_no_loss():
    losses = cross_entropy.loss(torch.ones(1, 3, 2), torch.ones(5, 2), torch.tensor([[0, 5, -100]]))
    assert losses.isnan().tolist() == [[False, True, False]]
    assert losses[0, 2] == 0


def test_a_run_may_ask_for_them_here():
    config = override(RunConfig(), "kernels=triton", "device=cpu")
    assert ("triton", "asked for") in [(choice.value, choice.reason) for choice in choices(config)]
