"""GELU in the tanh form. Hendrycks & Gimpel 2016, arXiv:1606.08415.

forward    y  = x Phi(x),   Phi(x) ~ (1 + tanh u) / 2,   u = sqrt(2/pi) (x + 0.044715 x^3)
backward   dx = dy [ (1 + tanh u) / 2 + x (1 - tanh^2 u) / 2 * u' ],   u' = sqrt(2/pi) (1 + 3 * 0.044715 x^2)
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

SQRT_2_OVER_PI = math.sqrt(2 / math.pi)


def reference(x: Tensor) -> Tensor:
    return 0.5 * x * (1 + torch.tanh(SQRT_2_OVER_PI * (x + 0.044715 * x**3)))


def reference_backward(x: Tensor, dy: Tensor) -> Tensor:
    t = torch.tanh(SQRT_2_OVER_PI * (x + 0.044715 * x**3))
    return dy * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * SQRT_2_OVER_PI * (1 + 3 * 0.044715 * x * x))


def gelu(x: Tensor) -> Tensor:
    """GELU of every element, the shape of x kept."""
    return F.gelu(x, approximate="tanh")
