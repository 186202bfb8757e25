"""Decoding on a CPU: kernels/decode.py's compiled step, its weights in panels, and the threads that compute it together."""

import ctypes
import os
import sys
import weakref
from collections.abc import Sequence
from threading import Lock, Semaphore, Thread

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from andrea.config import ModelConfig
from andrea.infer.quantize import Packed
from andrea.kernels import decode
from andrea.kernels.decode import GROUP, LANES, NOWHERE
from andrea.kernels.rotary import angles

CHUNK = 128  # rows of a prompt computed together
MATRICES = ("attn.qkv", "attn.out", "mlp.up", "mlp.down", "mlp.gate")  # in the order of kernels/decode.py
SMALL = 4 << 20  # bytes of weights that one core reads before a second has woken


class CpuDecoder:
    """Next-token logits from a model in panels, for up to `slots` sequences, whose keys and values have their place from the beginning.

    The bits of every answer are the same whatever is computed beside it, in whichever pieces its prompt comes, and with any number
    of threads. May be called from several Python threads: one waits for the other.
    """

    batch_invariant = True

    def __init__(self, packed: Packed, slots: int = 1, threads: int | None = None):
        c = self.config = packed.config
        if slots < 1:
            raise ValueError(f"slots={slots} must be at least 1")
        self.slots = slots
        rest, self.matrices = in_panels(packed)
        n_bytes = sum(part.nbytes for part in self.matrices[:4])
        self.threads = 1 if n_bytes < SMALL and threads is None else threads or torch.get_num_threads()
        self.room, *inputs = room(c, self.matrices.blocks.dtype, slots, self.threads)
        self.parts = (self.threads, rest, self.matrices, self.room, *inputs)
        self.lock = Lock()
        self.bells = start_threads(self)

    def extend(self, slot: int, ids: Sequence[int], start: int) -> np.ndarray:
        """Read ids at positions start, start + 1, ... of a slot whose cache holds all before; logits (V,) float32 after the last."""
        self.check([slot], ids, [start, start + len(ids) - 1])
        with self.lock:
            for first in range(0, len(ids), CHUNK):
                piece = ids[first : first + CHUNK]
                rows, last = self.room.rows[: len(piece)], first + CHUNK >= len(ids)
                rows[:, 0], rows[:, 1], rows[:, 2] = slot, piece, np.arange(start + first, start + first + len(piece))
                self.compute(len(piece), len(piece) - last, len(piece) > 1)
            return self.room.logits[0, : self.config.vocab_size].copy()

    def step(self, slots: Sequence[int], ids: Sequence[int], positions: Sequence[int]) -> np.ndarray:
        """Read one token each, whose slot's cache holds all before; logits (n, V) float32. A slot may come again with its next positions."""
        self.check(slots, ids, positions)
        n = len(ids)
        with self.lock:
            rows = self.room.rows[:n]
            rows[:, 0], rows[:, 1], rows[:, 2] = slots, ids, positions
            self.compute(n, 0, len(set(slots)) < n)
            return self.room.logits[:n, : self.config.vocab_size].copy()

    def copy(self, source: int, target: int, length: int) -> None:
        """The first `length` positions of one slot's keys and values to another."""
        self.check([source, target], [0], [length - 1] if length else [])
        with self.lock:
            for held, end in ((self.room.keys, -(-length // LANES)), (self.room.values, length)):
                held[target, :, :, ..., :end, :, :] = held[source, :, :, ..., :end, :, :]

    def compute(self, n: int, first_logits: int, shared: bool) -> None:
        self.room.now[:] = n, first_logits, shared
        while asleep := decode.take_part(0, *self.parts):
            self.bells[asleep - 1].release()

    def check(self, slots: Sequence[int], ids: Sequence[int], positions: Sequence[int]) -> None:
        c, most = self.config, len(self.room.rows)
        for what, values, end in (("slot", slots, self.slots), ("id", ids, c.vocab_size), ("position", positions, c.context)):
            if len(values) and not 0 <= min(values) <= max(values) < end:
                raise ValueError(f"{what} {min(values) if min(values) < 0 else max(values)} was given; there are 0 to {end - 1}")


def start_threads(decoder: CpuDecoder) -> list[Semaphore]:
    """The threads that compute with the caller's, and a bell to wake each. They end with the decoder."""
    bells = [Semaphore(0) for _ in range(decoder.threads - 1)]
    parts = decoder.parts

    def work(t: int, bell: Semaphore) -> None:
        bell.acquire()
        while not decode.take_part(t, *parts):
            bell.acquire()

    for t, bell in enumerate(bells, 1):
        Thread(target=work, args=(t, bell), daemon=True, name=f"decode-{t}").start()
    weakref.finalize(decoder, dismiss, decoder.room.sync, bells)
    return bells


def dismiss(sync: np.ndarray, bells: list[Semaphore]) -> None:
    for t, bell in enumerate(bells, 1):
        sync[decode.STATE + 8 * t] = decode.DISMISSED
        bell.release()


def yield_address() -> int:
    """Where the system's function stands that lets another thread have the core; 0 where it is not known."""
    try:
        library, name = (ctypes.windll.kernel32, "SwitchToThread") if sys.platform == "win32" else (ctypes.CDLL(None), "sched_yield")
        return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
    except (AttributeError, OSError):
        return 0


# --- memory -------------------------------------------------------------------------------------------------------------------------


def aligned(shape: int | tuple[int, ...], dtype: type = np.float32) -> np.ndarray:
    """Memory that begins at a cache line, not written to yet."""
    n_bytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.empty(n_bytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + n_bytes].view(dtype).reshape(shape)


def padded(n: int) -> int:
    return -(-n // GROUP) * GROUP


def room(c: ModelConfig, kind: np.dtype, slots: int, threads: int) -> tuple[decode.Room, np.ndarray, np.ndarray]:
    """Everything a step writes to, zeros where padding is read."""
    R, K, context, D = max(slots, CHUNK), c.d_head, -(-c.context // LANES) * LANES, padded(c.d_model)
    M, read = padded(c.mlp_width), kind.type if kind in (np.float32, np.uint16) else np.int8

    def zeros(*shape: int, dtype: type = np.float32) -> np.ndarray:
        memory = aligned(shape, dtype)
        memory[...] = 0
        return memory

    sync = zeros(decode.STATE + 8 * (threads + 1), dtype=np.int64)
    sync[decode.YIELD] = yield_address()
    found = decode.Room(
        now=np.zeros(3, np.int64),
        rows=np.zeros((R, 3), np.int64),
        keys=aligned((slots, c.n_layer, c.n_head, context // LANES, K, LANES)),
        values=aligned((slots, c.n_layer, c.n_head, -(-K // LANES), context, LANES)),
        x=zeros(R, D),
        h=zeros(R, D),
        y=zeros(R, max(padded(3 * c.d_model), M)),
        z=zeros(R, D),
        gate=zeros(R if c.activation == "swiglu" else 1, M),
        q_scales=zeros(R, D // GROUP),
        q_begin=zeros(R, D // GROUP, dtype=np.int32),
        p_scales=zeros(R, M // GROUP),
        p_begin=zeros(R, M // GROUP, dtype=np.int32),
        scores=zeros(threads, context + padded(K)),
        logits=zeros(R, padded(c.vocab_size)),
        sync=sync,
    )
    return found, zeros(R, D, dtype=read), zeros(R, M, dtype=read)


def in_panels(packed: Packed) -> tuple[decode.Rest, decode.Matrices]:
    """The model as the compiled step reads it; nothing of `packed` is kept."""
    c, tensors = packed.config, packed.tensors
    small: list[Tensor] = []
    blocks, block_scales = Flat(), Flat()

    def note(*names: str) -> int:
        at = sum(t.numel() for t in small)
        small.extend(tensors[name].detach().float().flatten() for name in names)
        return at if all(name in tensors for name in names) and names else NOWHERE

    def norm(name: str) -> int:
        return note(f"{name}.gamma", f"{name}.beta") if f"{name}.gamma" in tensors else NOWHERE

    table = np.full((c.n_layer, len(MATRICES), 3), NOWHERE, np.int64)
    for layer in range(c.n_layer):
        for i, name in enumerate(MATRICES):
            address = f"blocks.{layer}.{name}"
            if f"{address}.weight" in tensors:
                panels, scales = matrix(packed, f"{address}.weight")
                bias = note(f"{address}.bias") if f"{address}.bias" in tensors else NOWHERE
                table[layer, i] = blocks.append(panels) * panels.itemsize // 4, block_scales.append(scales), bias
    each = [[norm(f"blocks.{layer}.attn_norm"), norm(f"blocks.{layer}.mlp_norm")] for layer in range(c.n_layer)]
    order = [n for pair in each for n in pair]
    norms = [NOWHERE, *order] if c.norm == "post" else [*order, norm("final_norm")]
    embed, embed_scales = matrix(packed, "token_embed.weight")
    head, head_scales = (embed, embed_scales) if c.tied else matrix(packed, "unembed.weight")
    turns = np.stack([t.float().numpy() for t in angles(0, c.context, c.d_head)]) if c.positions == "rotary" else np.zeros((2, 0, 0))
    positions = note("position_embed.weight") if c.positions == "learned" else NOWHERE
    rest = decode.Rest(
        c.d_model,
        c.d_head,
        c.n_head,
        c.mlp_width,
        {"gelu": decode.GELU, "relu": decode.RELU, "swiglu": decode.SWIGLU}[c.activation],
        c.norm == "post",
        c.residual,
        table,
        np.array(norms, np.int64),
        torch.cat(small).numpy() if small else np.zeros(1, np.float32),
        positions,
        turns.astype(np.float32),
    )
    return rest, decode.Matrices(blocks.whole(), block_scales.whole(), head, head_scales, embed, embed_scales)


class Flat:
    """Arrays one behind the other."""

    def __init__(self) -> None:
        self.parts: list[np.ndarray] = []
        self.length = 0

    def append(self, part: np.ndarray) -> int:
        self.parts.append(part)
        self.length += len(part)
        return self.length - len(part)

    def whole(self) -> np.ndarray:
        memory = aligned(self.length, self.parts[0].dtype.type)
        np.concatenate(self.parts, out=memory)
        return memory


def matrix(packed: Packed, name: str) -> tuple[np.ndarray, np.ndarray]:
    """A matrix in panels, flat, and its scales as the step counts them."""
    codes, scales = packed.tensors[name].detach(), packed.scales.get(name)
    rows, columns = codes.shape
    codes = F.pad(codes, (0, 0 if codes.dtype == torch.uint8 else -columns % GROUP, 0, -rows % GROUP))
    none = np.zeros(0, np.float32)
    if codes.dtype == torch.float32:
        return panels(codes, 1).numpy(), none
    if codes.dtype == torch.bfloat16:
        return panels(codes, 2).view(torch.uint16).numpy(), none
    assert scales is not None
    scales = F.pad(scales, (0, 0, 0, -rows % GROUP))
    if codes.dtype == torch.int8:
        return panels(codes, 4).numpy() ^ np.int8(-128), scales[:, 0].numpy()
    return panels(codes, 4).numpy(), panels(scales, 1).view(torch.uint16).numpy()


def panels(codes: Tensor, columns: int) -> Tensor:
    """(N, K) -> (N / 16, K / columns, 16, columns), flat."""
    return codes.unflatten(1, (-1, columns)).unflatten(0, (-1, LANES)).transpose(1, 2).flatten().contiguous()
