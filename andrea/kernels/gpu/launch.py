"""What all pages of this folder share: where their kernels run, and products that Triton's interpreter can take.

With TRITON_INTERPRET=1 in the environment when this is imported, kernels run on a CPU, one program after another in NumPy: for tests.
"""

import os
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

INTERPRETED = tl.constexpr(os.environ.get("TRITON_INTERPRET") == "1")


def launch(kernel: Any, grid: tuple[int, ...], *args: Any, **constants: Any) -> None:
    """Run the kernel on the device of its first argument, in as many programs as the grid says."""
    if all(grid):
        with torch.cuda.device_of(args[0]):
            kernel[grid](*args, **constants)


def crowd(x: Tensor) -> int:
    """Programs that a device runs side by side, where each takes many rows in turn."""
    return 4 * torch.cuda.get_device_properties(x.device).multi_processor_count if x.is_cuda else 3


@triton.jit
def dot(a, b):
    """a b, summed in float32; float32 stays float32. The interpreter would multiply bfloat16's bits (triton issue 11584)."""
    if INTERPRETED:
        a, b = a.to(tl.float32), b.to(tl.float32)
    return tl.dot(a, b, input_precision="ieee")
