"""One step of AdamW for many tensors at once. ../adamw.py has the formula.

A table holds the addresses of every tensor, and each program finds in it the piece that is its own: one launch, whatever the number of
tensors, and every value is read once and written once.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from andrea.kernels.gpu.launch import launch

BLOCK = 1024  # values a program
ENTRIES = tl.constexpr(6)  # of a tensor in the table: p, gradient, first moment, second moment; values; its first program


@triton.jit
def tensor(table_ptr, entry: tl.constexpr, ALIGNED: tl.constexpr):
    """The address of a float32 tensor; ALIGNED: a multiple of 16 bytes, which the compiler cannot know of what it reads in a table."""
    address = tl.load(table_ptr + entry).to(tl.pointer_type(tl.float32))
    return tl.multiple_of(address, 16) if ALIGNED else address


@triton.jit
def kernel(owners_ptr, table_ptr, rates_ptr, beta1, beta2, eps, fade, ALIGNED: tl.constexpr, BLOCK: tl.constexpr):
    """fade = 1 - lr weight_decay; rates: of every tensor, lr / (1 - beta1^t) and 1 / sqrt(1 - beta2^t)."""
    owner = tl.load(owners_ptr + tl.program_id(0))
    table_ptr += owner * ENTRIES
    values, first = tl.load(table_ptr + 4), tl.load(table_ptr + 5)
    p_ptr, g_ptr = tensor(table_ptr, 0, ALIGNED), tensor(table_ptr, 1, ALIGNED)
    m_ptr, v_ptr = tensor(table_ptr, 2, ALIGNED), tensor(table_ptr, 3, ALIGNED)
    start = (tl.program_id(0) - first) * BLOCK
    at, rate, root = start + tl.arange(0, BLOCK), tl.load(rates_ptr + 2 * owner), tl.load(rates_ptr + 2 * owner + 1)
    if start + BLOCK <= values:  # a mask that is known lets 16 bytes be read at a time
        move(p_ptr, g_ptr, m_ptr, v_ptr, at, at >= start, rate, root, beta1, beta2, eps, fade)
    else:
        move(p_ptr, g_ptr, m_ptr, v_ptr, at, at < values, rate, root, beta1, beta2, eps, fade)


@triton.jit
def move(p_ptr, g_ptr, m_ptr, v_ptr, at, there, rate, root, beta1, beta2, eps, fade):
    g = tl.load(g_ptr + at, there, 0)
    m = beta1 * tl.load(m_ptr + at, there, 0) + (1 - beta1) * g
    v = beta2 * tl.load(v_ptr + at, there, 0) + (1 - beta2) * g * g
    step = rate * m / (tl.sqrt(v) * root + eps)
    tl.store(p_ptr + at, fade * tl.load(p_ptr + at, there, 0) - step, there)
    tl.store(m_ptr + at, m, there)
    tl.store(v_ptr + at, v, there)


@torch.library.custom_op("andrea::adamw", mutates_args=("held", "first", "second"))
def step(
    held: list[Tensor], grads: list[Tensor], first: list[Tensor], second: list[Tensor], steps: list[Tensor],
    lr: float, beta1: float, beta2: float, eps: float, weight_decay: float,
) -> None:  # fmt: skip
    device = held[0].device
    grads = [g.contiguous() for g in grads]
    rows, programs = [], 0
    for four in zip(held, grads, first, second, strict=True):
        rows.append([*(t.data_ptr() for t in four), four[0].numel(), programs])
        programs += triton.cdiv(four[0].numel(), BLOCK)
    counts = [triton.cdiv(row[4], BLOCK) for row in rows]
    table = torch.tensor(rows).to(device, non_blocking=True)
    owners = torch.repeat_interleave(torch.tensor(counts)).to(device, non_blocking=True)
    t = torch.stack(steps).double()
    rates = torch.stack([lr / (1 - beta1**t), (1 - beta2**t).rsqrt()], 1).float()
    aligned = all(address % 16 == 0 for row in rows for address in row[:4])
    launch(kernel, (programs,), owners, table, rates, beta1, beta2, eps, 1 - lr * weight_decay, ALIGNED=aligned, BLOCK=BLOCK)


@step.register_fake
def _(held, grads, first, second, steps, lr, beta1, beta2, eps, weight_decay):
    return None


def adamw(
    held: list[Tensor], grads: list[Tensor], first: list[Tensor], second: list[Tensor], steps: list[Tensor],
    lr: float, beta1: float, beta2: float, eps: float, weight_decay: float,
) -> None:  # fmt: skip
    """Move float32 tensors, contiguous, by one step; `steps` holds the number of each, this one counted."""
    step(held, grads, first, second, steps, lr, beta1, beta2, eps, weight_decay)
