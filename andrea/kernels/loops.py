"""Loops over rows for a CPU, compiled by Numba: in one pass over memory what torch does in several, or with a slow tanh.

bfloat16 travels as its bits, uint16: Numba has no such type. Arithmetic is float32. NaN and infinity keep their meaning.
Importing this raises ImportError where Numba cannot run; kernels.choose() then takes torch's operations.
"""

import math
from threading import Lock
from typing import Any

import numba
import numpy as np
import torch
from numba import njit, prange, types
from numba.extending import overload
from torch import Tensor

LOG2_E = np.float32(1 / math.log(2))
SLOPE, CUBIC = np.float32(2 * math.sqrt(2 / math.pi)), np.float32(2 * math.sqrt(2 / math.pi) * 0.044715)
ONE, HALF, FLAT = np.float32(1), np.float32(0.5), np.float32(8)  # beyond +-8 GELU is x or 0 to more than float32's digits
SMALL = np.float32(-126)  # the power of two that is still a float32
IGNORED = -100  # a target that does not count, as everywhere in torch
PARTS = 64  # of the rows, for the threads to share

OPTIONS: dict[str, Any] = {"fastmath": {"contract", "reassoc", "arcp", "nsz"}, "error_model": "numpy", "cache": True}
MOST_THREADS = numba.get_num_threads()
one_at_a_time = Lock()  # Numba's own thread pool ends the process when two threads enter it


def run(loop, *tensors: Tensor | float | np.float32) -> None:
    """Call a loop on the memory of contiguous tensors, and numbers, with as many threads as torch uses."""
    arrays = [t if not isinstance(t, Tensor) else (t.view(torch.uint16) if t.dtype == torch.bfloat16 else t).numpy() for t in tensors]
    with one_at_a_time:
        numba.set_num_threads(min(torch.get_num_threads(), MOST_THREADS))
        loop(*arrays)


def widen(value): ...
def narrow(value, like): ...


@overload(widen)
def _(value):
    """float32 from float32, or from bfloat16's bits."""
    if value is types.uint16:
        return lambda value: np.uint32(np.uint32(value) << np.uint32(16)).view(np.float32)
    return lambda value: np.float32(value)  # noqa: PLW0108, an overload is a function


@overload(narrow)
def _(value, like):
    """The reverse, into the type of `like`: the nearest bfloat16, ties to even. A NaN that arithmetic makes ends in zeros and stays one."""
    if like is types.uint16:

        def nearest(value, like):
            bits = np.float32(value).view(np.uint32)
            return np.uint16(np.uint32(bits + np.uint32(0x7FFF) + np.uint32((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16))

        return nearest
    return lambda value, like: np.float32(value)


@njit(**OPTIONS)
def exp2(t):
    """2^t for |t| <= 126, to 2e-7: 2^n by the exponent's bits, the rest by Taylor's series."""
    n = np.floor(t + HALF)
    f = (t - n) * np.float32(0.6931471805599453)
    p = ONE + f * (
        ONE + f * (HALF + f * (np.float32(1 / 6) + f * (np.float32(1 / 24) + f * (np.float32(1 / 120) + f * np.float32(1 / 720)))))
    )
    return p * np.int32((np.int32(n) + np.int32(127)) << np.int32(23)).view(np.float32)


@njit(parallel=True, **OPTIONS)
def gelu(x, y, slope):
    """y = GELU(x) and its derivative, (N, M) each, from one exponential: (1 + tanh u) / 2 = 1 / (1 + exp(-2 u))."""
    for i in prange(x.shape[0]):
        for j in range(x.shape[1]):
            value = widen(x[i, j])
            v = min(max(value, -FLAT), FLAT)
            square = v * v
            e = exp2(-v * (SLOPE + CUBIC * square) * LOG2_E)
            s = ONE / (ONE + e)  # 1 - s is e s
            y[i, j] = narrow(value * s, x[i, j])
            slope[i, j] = narrow(s + v * s * s * e * (SLOPE + np.float32(3) * CUBIC * square), x[i, j])


@njit(**OPTIONS)
def scramble(x):
    """A fixed bijection of 32-bit numbers that spreads every bit over all. Wellons 2018, https://nullprogram.com/blog/2018/07/31."""
    x = np.uint32(x ^ (x >> np.uint32(16)))
    x = np.uint32(x * np.uint32(0x7FEB352D))
    x = np.uint32(x ^ (x >> np.uint32(15)))
    x = np.uint32(x * np.uint32(0x846CA68B))
    return np.uint32(x ^ (x >> np.uint32(16)))


@njit(parallel=True, **OPTIONS)
def dropout(x, y, seed, p):
    """y = x m / (1 - p), (N, M): m is 0 where the hash of seed, row and column falls below p 2^32, and 1 elsewhere."""
    least, scale = np.uint32(p * 2**32), np.float32(1 / (1 - p))
    for i in prange(x.shape[0]):
        row = scramble(np.uint32(scramble(np.uint32(seed)) + np.uint32(i)))
        for j in range(x.shape[1]):
            kept = scramble(np.uint32(row + np.uint32(j))) >= least
            y[i, j] = narrow(widen(x[i, j]) * (scale if kept else np.float32(0)), x[i, j])


@njit(**OPTIONS)
def ordered(bits):
    """The bits of a float32 as an int32 in the order of the numbers, NaN above all; and back."""
    return np.int32(bits ^ ((bits >> np.int32(31)) & np.int32(0x7FFFFFFF)))


@njit(**OPTIONS)
def maximum(e, n):
    """The largest of e[:n]. Of integers: LLVM makes vector instructions of that, and of floats only where NaN may be anything."""
    bits, largest = e.view(np.int32), np.int32(-(2**31))
    for j in range(n):
        largest = max(largest, ordered(bits[j]))
    return np.int32(ordered(largest)).view(np.float32)


@njit(**OPTIONS)
def softmax(z, n, scale, e):
    """e[:n] = exp(scale z[:n] - their maximum); the maximum and the sum of e, float32."""
    for j in range(n):
        e[j] = widen(z[j]) * scale
    largest = maximum(e, n)
    total = np.float32(0)
    for j in range(n):
        e[j] = exp2(max((e[j] - largest) * LOG2_E, SMALL))
        total += e[j]
    return largest, total


@njit(parallel=True, **OPTIONS)
def cross_entropy(z, targets, columns, losses):
    """losses (N,) of logits z (N, at least `columns`), and z overwritten with the loss's gradient; 0 where the target is ignored."""
    for part in prange(PARTS):
        e = np.empty(z.shape[1], np.float32)
        for i in range(part * len(z) // PARTS, (part + 1) * len(z) // PARTS):
            if targets[i] == IGNORED:
                losses[i] = 0
                z[i, :] = narrow(np.float32(0), z[i, 0])
                continue
            z_target = widen(z[i, targets[i]])
            largest, total = softmax(z[i], columns, ONE, e)
            losses[i] = np.log(total) + largest - z_target
            inverse = ONE / total
            for j in range(columns):
                z[i, j] = narrow(e[j] * inverse, z[i, j])
            z[i, targets[i]] = narrow(e[targets[i]] * inverse - ONE, z[i, 0])
            for j in range(columns, z.shape[1]):
                z[i, j] = narrow(np.float32(0), z[i, j])


@njit(parallel=True, **OPTIONS)
def causal_softmax(z, start, scale):
    """Each row of z (N, n, S) becomes softmax(scale z) over the keys it sees: row t is query start + t, and the rest is 0."""
    for i in prange(z.shape[0]):
        e = np.empty(z.shape[2], np.float32)
        for t in range(z.shape[1]):
            seen = min(start + t + 1, z.shape[2])
            _, total = softmax(z[i, t], seen, scale, e)
            inverse = ONE / total
            for j in range(seen):
                z[i, t, j] = narrow(e[j] * inverse, z[i, t, j])
            for j in range(seen, z.shape[2]):
                z[i, t, j] = narrow(np.float32(0), z[i, t, j])


@njit(parallel=True, **OPTIONS)
def softmax_backward(dP, P, start, scale):
    """dP (N, n, S) becomes scale P (dP - sum(dP P)), the gradient of what causal_softmax read."""
    for i in prange(P.shape[0]):
        for t in range(P.shape[1]):
            seen = min(start + t + 1, P.shape[2])
            inner = np.float32(0)
            for j in range(seen):
                inner += widen(dP[i, t, j]) * widen(P[i, t, j])
            for j in range(seen):
                dP[i, t, j] = narrow(scale * widen(P[i, t, j]) * (widen(dP[i, t, j]) - inner), P[i, t, j])
            for j in range(seen, P.shape[2]):
                dP[i, t, j] = narrow(np.float32(0), P[i, t, j])


@njit(parallel=True, **OPTIONS)
def rotate(x, n, cos, sin):
    """The first n heads of x (B, T, heads, K) turn by the angles of their token, cos and sin (T, K / 2)."""
    half = x.shape[3] // 2
    for i in prange(x.shape[0]):
        for t in range(x.shape[1]):
            for h in range(n):
                for j in range(half):
                    a, b = widen(x[i, t, h, j]), widen(x[i, t, h, j + half])
                    x[i, t, h, j] = narrow(a * cos[t, j] - b * sin[t, j], x[i, t, h, j])
                    x[i, t, h, j + half] = narrow(b * cos[t, j] + a * sin[t, j], x[i, t, h, j])
