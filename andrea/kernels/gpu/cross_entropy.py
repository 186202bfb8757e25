"""The unembedding and the cross-entropy of its logits in one. ../cross_entropy.py has the formula; with a z-loss (Chowdhery et al. 2022,
arXiv:2204.02311, section 5) it is

    forward    loss_i = lse_i - z_i[target_i] + w lse_i^2,   lse = logsumexp(z)
    backward   dz_i = dloss_i ((1 + 2 w lse_i) softmax(z_i) - onehot(target_i))

Logits come ROWS targets at a time, in the type of the product, and their gradient is written over them by the kernel that takes the
loss: float32 logits are never there, and what backward needs is two products.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from andrea.kernels.cross_entropy import MULTIPLE
from andrea.kernels.gpu.launch import launch

ROWS = 4096  # targets at a time
BLOCK = 4096  # logits that a program holds
IGNORED = tl.constexpr(-100)  # a target that does not count, as everywhere in torch
LOG2_E, LN_2 = tl.constexpr(1.4426950408889634), tl.constexpr(0.6931471805599453)


@triton.jit
def read(row_ptr, columns, V: tl.constexpr, COLUMNS: tl.constexpr):
    """Logits, -inf where there are none. The padding is read too: 16 bytes at a time end where it ends, not at V."""
    z = tl.load(row_ptr + columns, columns < COLUMNS, 0).to(tl.float32)
    return tl.where(columns < V, z, -float("inf"))


@triton.jit
def kernel(z_ptr, targets_ptr, dz_ptr, losses_ptr, stride, w, V: tl.constexpr, COLUMNS: tl.constexpr, BLOCK: tl.constexpr):
    """One row: first maximum and sum, then loss and gradient. A row is short enough that its second reading comes from a cache."""
    row = tl.program_id(0).to(tl.int64)
    target = tl.load(targets_ptr + row)
    z_target = 0.0
    top, total = -float("inf"), 0.0
    for start in range(0, V, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        z = read(z_ptr + row * stride, columns, V, COLUMNS)
        new = tl.maximum(top, tl.max(z, 0))
        total = total * tl.exp2((top - new) * LOG2_E) + tl.sum(tl.exp2((z - new) * LOG2_E), 0)
        top = new
        z_target += tl.sum(tl.where(columns == target, z, 0), 0)
    lse = top + tl.log2(total) * LN_2
    counts = target != IGNORED
    loss = tl.where((target >= 0) & (target < V), lse - z_target + w * lse * lse, float("nan"))  # a target that is no column
    tl.store(losses_ptr + row, tl.where(counts, loss, 0))
    for start in range(0, COLUMNS, BLOCK):  # with the padding, whose gradient is 0
        columns = start + tl.arange(0, BLOCK)
        z = read(z_ptr + row * stride, columns, V, COLUMNS)
        dz = tl.exp2((z - top) * LOG2_E) * ((1 + 2 * w * lse) / total) - tl.where(columns == target, 1.0, 0.0)
        tl.store(dz_ptr + row * stride + columns, tl.where(counts, dz, 0), columns < COLUMNS)


def losses_and_gradient(z: Tensor, targets: Tensor, columns: int, w: float, dz: Tensor, losses: Tensor) -> None:
    """Fill losses (N,) and dz, which may be z itself, from the first `columns` of logits z, (N, stride) as dz."""
    N, stride = z.shape
    constants = {"V": columns, "COLUMNS": stride, "BLOCK": min(BLOCK, triton.next_power_of_2(stride)), "num_warps": 8}
    launch(kernel, (N,), z, targets, dz, losses, stride, w, **constants)


@torch.library.custom_op("andrea::linear_cross_entropy", mutates_args=())
def linear_cross_entropy(x: Tensor, unembed: Tensor, targets: Tensor, w: float, dtype: torch.dtype, rows: int) -> tuple[Tensor, Tensor]:
    """Loss of every target, float32, and the gradient of the logits, (N, V padded) in `dtype`: x (..., D), unembed (V, D)."""
    V, D = unembed.shape
    flat, aims = x.reshape(-1, D).to(dtype), targets.flatten().contiguous()
    padded = unembed.new_zeros(-V % MULTIPLE + V, D, dtype=dtype)  # so that rows begin at whole 16 bytes
    padded[:V] = unembed
    dz = torch.empty(len(flat), len(padded), dtype=dtype, device=x.device)
    losses = torch.empty(len(flat), dtype=torch.float32, device=x.device)
    for part, some, z, out in zip(*(t.split(rows) for t in (flat, aims, dz, losses)), strict=True):
        torch.mm(part, padded.mT, out=z)
        losses_and_gradient(z, some, V, w, z, out)
    return losses.view(targets.shape), dz


@torch.library.custom_op("andrea::linear_cross_entropy_backward", mutates_args=())
def linear_cross_entropy_backward(dlosses: Tensor, x: Tensor, unembed: Tensor, dz: Tensor) -> tuple[Tensor, Tensor]:
    V, D = unembed.shape
    flat, each = x.reshape(-1, D).to(dz.dtype), dlosses.reshape(-1, 1)
    padded = unembed.new_zeros(dz.shape[1], D, dtype=dz.dtype)
    padded[:V] = unembed
    dx = (dz @ padded) * each
    dW = dz.mT @ (flat * each).to(dz.dtype)
    return dx.view(x.shape).to(x.dtype), dW[:V].to(unembed.dtype, copy=True)


@linear_cross_entropy.register_fake
def _(x, unembed, targets, w, dtype, rows):
    padded = -len(unembed) % MULTIPLE + len(unembed)
    return targets.new_empty(targets.shape, dtype=torch.float32), x.new_empty(targets.numel(), padded, dtype=dtype)


@linear_cross_entropy_backward.register_fake
def _(dlosses, x, unembed, dz):
    return x.new_empty(x.shape), unembed.new_empty(unembed.shape)


def keep(ctx, inputs, output):
    ctx.save_for_backward(*inputs[:2], output[1])
    ctx.mark_non_differentiable(output[1])


def backward(ctx, dlosses, _):
    return *linear_cross_entropy_backward(dlosses, *ctx.saved_tensors), None, None, None, None


linear_cross_entropy.register_autograd(backward, setup_context=keep)


def loss(x: Tensor, unembed: Tensor, targets: Tensor, w: float = 0.0, rows: int = ROWS) -> Tensor:
    """Loss of every target, nats, in the type that autocast wants products in; NaN for a target that is no token."""
    device = x.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype
    return linear_cross_entropy(x, unembed, targets, w, dtype, rows)[0]
