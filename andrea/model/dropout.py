"""Dropout as a module, so that the whole can be swapped and `eval()` switches it off."""

from torch import Tensor, nn

from andrea.kernels import Kernels


class Dropout(nn.Module):
    """While training, every value is 0 with probability p and the rest grows to keep the mean. No parameters."""

    def __init__(self, p: float, kernels: Kernels):
        super().__init__()
        self.p, self.dropout = p, kernels.dropout

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(x, self.p) if self.training and self.p else x
