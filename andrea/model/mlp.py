"""The MLPs: each expands D -> M, applies a nonlinearity, compresses M -> D, on every position alone.

GELU: y = GELU(x W1 + b1) W2 + b2      ReLU: the same with max(0, .)      SwiGLU: y = (SiLU(x Wg + bg) * (x W1 + b1)) W2 + b2
(Shazeer 2020, arXiv:2002.05202). `act` is a module of its own so that what it let through can be observed.
"""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from andrea.config import ModelConfig
from andrea.kernels import Kernels
from andrea.model.dropout import Dropout


class Activation(nn.Module):
    """A function of every element, without parameters."""

    def __init__(self, function: Callable[[Tensor], Tensor]):
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


class MLP(nn.Module):
    def __init__(self, c: ModelConfig, kernels: Kernels):
        super().__init__()
        self.up = nn.Linear(c.d_model, c.mlp_width, bias=c.bias)
        self.act = Activation(kernels.gelu if c.activation == "gelu" else F.relu)
        self.down = nn.Linear(c.mlp_width, c.d_model, bias=c.bias)
        self.drop = Dropout(c.dropout, kernels)

    def forward(self, x: Tensor) -> Tensor:
        h = self.up(x)  # (B, T, M): expand
        h = self.act(h)  # (B, T, M)
        return self.drop(self.down(h))  # (B, T, D): compress


class SwiGLU(MLP):
    def __init__(self, c: ModelConfig, kernels: Kernels):
        super().__init__(c, kernels)
        self.gate = nn.Linear(c.d_model, c.mlp_width, bias=c.bias)
        self.act = Activation(F.silu)

    def forward(self, x: Tensor) -> Tensor:
        h = self.act(self.gate(x)) * self.up(x)  # (B, T, M): expand, one half gates the other
        return self.drop(self.down(h))  # (B, T, D): compress


MLPS = {"gelu": MLP, "relu": MLP, "swiglu": SwiGLU}
