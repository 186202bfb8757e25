"""The orthogonal matrix nearest in direction to a given one, by matrix products alone: what Muon steps along.

    G = U S V^T   ->   about U V^T,   by   X <- a X + (b A + c A A) X,   A = X X^T,   from X = G / |G|

Each turn sends every singular value s to a s + b s^3 + c s^5. These coefficients do not converge to 1 but lift small values fast and
leave all of them between about 0.7 and 1.2. Jordan et al. 2024, https://kellerjordan.github.io/posts/muon.
"""

from collections.abc import Callable

import torch
from torch import Tensor

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
TURNS = 5
SMALLEST = 1e-7  # of the norm that is divided by: a zero matrix stays zero


def reference(G: Tensor) -> Tensor:
    """U V^T itself, for every matrix of G (..., m, n)."""
    U, _, Vt = torch.linalg.svd(G, full_matrices=False)
    return U @ Vt


def symmetric(X: Tensor, C: Tensor | None = None, alpha: float = 1.0, beta: float = 0.0) -> Tensor:
    """X X^T, or alpha X X^T + beta C, for every X (N, m, n) with a symmetric C (N, m, m)."""
    return X @ X.mT if C is None else torch.baddbmm(C, X, X.mT, beta=beta, alpha=alpha)


def newton_schulz(G: Tensor, dtype: torch.dtype = torch.bfloat16, symmetric: Callable[..., Tensor] = symmetric) -> Tensor:
    """For every matrix of G (N, m, n) one with its singular vectors, and singular values near 1; (N, m, n) in `dtype`.

    Matrices of one shape go through together. Products are taken on the shorter side.
    """
    a, b, c = COEFFICIENTS
    X = (G.mT if G.shape[-2] > G.shape[-1] else G).to(dtype)
    X = X / X.norm(dim=(-2, -1), keepdim=True).clamp(min=SMALLEST)
    for _ in range(TURNS):
        A = symmetric(X)
        X = torch.baddbmm(X, symmetric(A, A, alpha=c, beta=b), X, beta=a)
    return X.mT if G.shape[-2] > G.shape[-1] else X


def newton_schulz_on_gpu(G: Tensor, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    """The same with half of every symmetric product."""
    from andrea.kernels.gpu import newton_schulz as page

    return newton_schulz(G, dtype, page.symmetric)
