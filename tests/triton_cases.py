"""Every Triton kernel beside its reference in float64, both directions: run in the interpreter by the tests, on a GPU by benchmarks/gpu.py.

A result may be wrong, of the largest value, by 1e-6 where all is float32: 24 bits and a few of them lost in sums. A sum of V products in
float32 that torch takes is known to about 2^-24 sqrt(V). bfloat16 has 8 bits; a rounding is within 2^-8, and within 2^-7 where bits are
cut off, as the interpreter does: so many roundings as a result is made of are allowed. What is summed in float32 has none of them.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from andrea.kernels import adamw as adamw_page
from andrea.kernels import attention as attention_page
from andrea.kernels import cross_entropy as cross_entropy_page
from andrea.kernels import embedding as embedding_page
from andrea.kernels import gelu as gelu_page
from andrea.kernels import layer_norm as layer_norm_page
from andrea.kernels.gpu import adamw, attention, cross_entropy, embedding, gelu, layer_norm, newton_schulz

FLOAT32, ROUNDING = 1e-6, 2**-7
BIG = ((8, 1024, 768), (3, 1000, 3072), (16_384, 384))


@dataclass(frozen=True)
class Check:
    what: str
    error: float  # the largest difference from the reference, of the largest value
    allowed: float

    @property
    def right(self) -> bool:
        return self.error <= self.allowed  # not so for NaN


def check(what: str, got: Tensor, wanted: Tensor, roundings: int = 0, floor: float = FLOAT32, of: Tensor | None = None) -> Check:
    """`of`: what the error is held against, where that is not the result."""
    assert got.shape == wanted.shape, f"{what}: {tuple(got.shape)} is not {tuple(wanted.shape)}"
    largest = max(wanted.abs().max().item(), 1e-30 if of is None else of.abs().max().item())
    return Check(what, ((got.double() - wanted).abs().max() / largest).item(), max(roundings * ROUNDING, floor))


def plain(*tensors: Tensor) -> tuple[Tensor, ...]:
    return tuple(t.detach().double().requires_grad_() for t in tensors)


def rows(dtype: torch.dtype, device: str, big: bool) -> Iterator[tuple[str, Tensor]]:
    for shape in ((1, 1), (3, 42), (2, 5, 123), (1, 768), (3, 8449), *(BIG if big else ())):
        yield str(shape), (3 * torch.randn(shape, device=device)).to(dtype)
    yield "(123, 3) not contiguous", torch.randn(3, 123, device=device).to(dtype).mT


def check_gelu(dtype: torch.dtype, device: str, big: bool) -> Iterator[Check]:
    """In bfloat16 the GPU's tanh is right to 2^-11 of 1, so that y is of x, and dx, with a slope of x besides, of dy."""
    b = int(dtype == torch.bfloat16)
    for name, x in rows(dtype, device, big):
        dy, bias = torch.randn(x.shape, device=device).to(dtype).mT.contiguous().mT, torch.randn(x.shape[-1], device=device)
        exact, shift = plain(x, bias)
        x.requires_grad_(), bias.requires_grad_()
        y, wanted = gelu.gelu(x), gelu_page.reference(exact)
        dx, exact_dx = torch.autograd.grad(y, x, dy)[0], torch.autograd.grad(wanted, exact, dy.double())[0]
        yield check(f"y {name}", y, wanted, b, of=x if b else None)
        yield check(f"dx {name}", dx, exact_dx, 2 * b, of=dy if b else None)
        y, wanted = gelu.gelu(x, bias), gelu_page.reference(exact + shift)
        (dx, db), (exact_dx, exact_db) = torch.autograd.grad(y, (x, bias), dy), torch.autograd.grad(wanted, (exact, shift), dy.double())
        yield check(f"y of x + b {name}", y, wanted, b, of=exact + shift if b else None)
        yield check(f"dx of x + b {name}", dx, exact_dx, 2 * b, of=dy if b else None)
        yield check(f"db {name}", db, exact_db, 2 * b, of=dy if b else None)


def check_layer_norm(dtype: torch.dtype, device: str, big: bool) -> Iterator[Check]:
    b = int(dtype == torch.bfloat16)
    for name, x in rows(dtype, device, big):
        D, (r, dy, ds) = x.shape[-1], torch.randn(3, *x.shape, device=device).to(dtype)
        gamma, beta = 1 + 0.3 * torch.randn(D, device=device), 0.3 * torch.randn(D, device=device)
        exact = plain(x, gamma, beta)
        for t in (x, r, gamma, beta):
            t.requires_grad_()
        y, wanted = layer_norm.layer_norm(x, gamma, beta), layer_norm_page.reference(*exact)
        yield check(f"y {name}", y, wanted, b)
        wanted = layer_norm_page.reference_backward(exact[0], exact[1], dy.double())
        for what, got, should in zip(("dx", "dgamma", "dbeta"), torch.autograd.grad(y, (x, gamma, beta), dy), wanted, strict=True):
            yield check(f"{what} {name}", got, should, b * (what == "dx"))
        s, y = layer_norm.add_layer_norm(x, r, gamma, beta)
        yield check(f"x + r {name}", s, x.double() + r.double(), b)
        if dtype == torch.float32:  # in bfloat16 y is that of the sum before it was rounded, and backward reads the rounded one
            exact = plain(x, r, gamma, beta)
            both = exact[0] + exact[1], layer_norm_page.reference(exact[0] + exact[1], *exact[2:])
            yield check(f"y of x + r {name}", y, both[1])
            ours = torch.autograd.grad((s, y), (x, r, gamma, beta), (ds, dy))
            wanted = torch.autograd.grad(both, exact, (ds.double(), dy.double()))
            for what, got, should in zip(("dx", "dr", "dgamma", "dbeta"), ours, wanted, strict=True):
                yield check(f"{what} of x + r {name}", got, should)


def check_cross_entropy(dtype: torch.dtype, device: str, big: bool) -> Iterator[Check]:
    sizes = [(1, 3, 1, 4), (6, 42, 8, 4), (25, 123, 64, 10), (5, 8449, 6, 4)] + [(5000, 8449, 768, 4096)] * big
    b = int(dtype == torch.bfloat16)
    for n, V, D, at_once in sizes:
        targets = torch.randint(V, (n,), device=device)
        z, dz = (4 * torch.randn(n, V + 3, device=device)).to(dtype), torch.empty(n, V + 3, device=device, dtype=dtype)
        losses, ones = torch.empty(n, device=device), torch.ones(n, device=device)
        cross_entropy.losses_and_gradient(z, targets, V, 0.0, dz, losses)
        yield check(f"losses {n, V}", losses, cross_entropy_page.reference(z[:, :V], targets))
        yield check(f"dz {n, V}", dz[:, :V], cross_entropy_page.reference_backward(z[:, :V], targets, ones), b)
        yield check(f"dz of the padding {n, V}", dz[:, V:], torch.zeros(n, 3, device=device))
        for w in (0.0, 1e-2):
            x, W = torch.randn(1, n, D, device=device).to(dtype).requires_grad_(), (0.3 * torch.randn(V, D, device=device)).to(dtype)
            ignored, dlosses = torch.arange(n, device=device)[None] == 1, torch.rand(1, n, device=device)
            exact, W = plain(x, W), W.requires_grad_()
            losses = cross_entropy.loss(x, W, targets[None].masked_fill(ignored, -100), w, at_once)
            lse = torch.logsumexp(exact[0] @ exact[1].mT, -1)
            wanted = (cross_entropy_page.reference_loss(*exact, targets[None]) + w * lse**2).masked_fill(ignored, 0)
            yield check(f"losses of x W^T {n, V, D}, w {w:g}", losses, wanted, 2 * b)  # the logits are rounded
            ours, theirs = torch.autograd.grad(losses, (x, W), dlosses), torch.autograd.grad(wanted, exact, dlosses.double())
            for what, got, should in zip(("dx", "dW"), ours, theirs, strict=True):
                floor = max(FLOAT32, 2**-24 * max(n, V) ** 0.5)
                yield check(f"{what} {n, V, D}, w {w:g}", got, should, 3 * b, floor)  # logits, their gradient, the result


def check_attention(dtype: torch.dtype, device: str, big: bool) -> Iterator[Check]:
    b, sizes = int(dtype == torch.bfloat16), [(1, 1, 1, 4), (1, 2, 42, 16), (1, 1, 123, 24), (1, 1, 3, 64), (1, 2, 130, 32)]
    for B, H, T, K in sizes + [(2, 12, 1024, 64), (1, 3, 1023, 32), (2, 2, 768, 128)] * big:
        qkv = torch.randn(B, T, 3 * H * K, device=device).to(dtype)
        q, k, v = (part.unflatten(-1, (H, K)).transpose(1, 2).requires_grad_() for part in qkv.chunk(3, -1))
        dy, exact = torch.randn(B, H, T, K, device=device).to(dtype), plain(q, k, v)
        y, wanted = attention.attention(q, k, v), attention_page.reference(*exact)
        yield check(f"y {B, H, T, K}", y, wanted, 2 * b)  # P, y
        # dP - sum(dP P) is a difference of sums of K products each, and may be much smaller than they
        ours, theirs = torch.autograd.grad(y, (q, k, v), dy), torch.autograd.grad(wanted, exact, dy.double())
        for what, got, should in zip(("dq", "dk", "dv"), ours, theirs, strict=True):
            if T > 1:  # of one position q and k have no gradient
                yield check(f"{what} {B, H, T, K}", got, should, 3 * b, max(FLOAT32, 2**-24 * K))  # y, dS or P, the result


def check_embedding(dtype: torch.dtype, device: str, big: bool) -> Iterator[Check]:
    b = int(dtype == torch.bfloat16)
    for V, n, D in [(3, 1, 1), (42, 5, 123), (5, 40, 768)] + [(8449, 20_000, 768)] * big:
        W, ids = torch.randn(V, D, device=device).to(dtype), torch.randint(V, (n,), device=device)
        dy = torch.randn(n, D, device=device).to(dtype)
        W.requires_grad_()
        y = embedding.embedding(ids, W)
        yield check(f"y {V, n, D}", y, W.double()[ids], floor=0)
        wanted = embedding_page.reference_backward(ids, W.double(), dy.double())
        yield check(f"dW {V, n, D}, tokens repeat", torch.autograd.grad(y, W, dy)[0], wanted, b)


def check_newton_schulz(dtype: torch.dtype, device: str, big: bool) -> Iterator[Check]:
    b = int(dtype == torch.bfloat16)
    for N, m, n in [(1, 1, 1), (3, 42, 123), (1, 123, 42), (1, 130, 70)] + [(4, 768, 3072)] * big:
        X = torch.randn(N, m, n, device=device).to(dtype)
        C = (X @ X.mT).detach()
        floor = max(FLOAT32, 2**-24 * n**0.5)
        yield check(f"X X^T {N, m, n}", newton_schulz.symmetric(X), X.double() @ X.double().mT, b, floor)
        yield check(f"X^T X {N, m, n}", newton_schulz.symmetric(X.mT), X.double().mT @ X.double(), b, max(FLOAT32, 2**-24 * m**0.5))
        wanted = 2 * X.double() @ X.double().mT + 0.5 * C.double()
        yield check(f"2 X X^T + C / 2 {N, m, n}", newton_schulz.symmetric(X, C, 2.0, 0.5), wanted, b, floor)


def check_adamw(dtype: torch.dtype, device: str, big: bool) -> Iterator[Check]:
    if dtype != torch.float32:
        return
    whole = torch.randn(3 * 43 + 1, device=device)
    shapes = [(3,), (42, 123), (1,), (1025,)] + [(8449, 768)] * big
    held = [torch.randn(shape, device=device) for shape in shapes] + [whole[1:].view(3, 43)]  # the last begins at no multiple of 16 bytes
    first, second = [torch.zeros_like(p) for p in held], [torch.zeros_like(p) for p in held]
    steps = [torch.zeros((), device=device) for _ in held]
    exact = [[t.double() for t in some] for some in (held, first, second)]
    for turn in range(3):
        grads = [torch.randn(p.mT.shape, device=device).mT if p.ndim > 1 and turn else torch.randn_like(p) for p in held]
        torch._foreach_add_(steps, 1)
        adamw.adamw(held, grads, first, second, steps, 1e-2, 0.9, 0.999, 1e-8, 0.1)
        adamw_page.reference(exact[0], [g.double() for g in grads], *exact[1:], [t.double() for t in steps], 1e-2, 0.9, 0.999, 1e-8, 0.1)
    for what, ours, wanted in zip(("p", "m", "v"), (held, first, second), exact, strict=True):
        for got, should in zip(ours, wanted, strict=True):
            yield check(f"{what} {tuple(got.shape)} after 3 steps", got, should)


CASES: dict[str, Callable[[torch.dtype, str, bool], Iterator[Check]]] = {
    "gelu": check_gelu,
    "layer_norm": check_layer_norm,
    "cross_entropy": check_cross_entropy,
    "attention": check_attention,
    "embedding": check_embedding,
    "newton_schulz": check_newton_schulz,
    "adamw": check_adamw,
}
