"""Decoding on a CPU: kernels/decode.py's compiled step, its weights in blocks, and the threads that compute it together."""

import ctypes
import math
import os
import sys
import weakref
from collections.abc import Sequence
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from andrea.checkpoint import Run
from andrea.config import ModelConfig
from andrea.infer.decoder import Decoder, TorchDecoder
from andrea.infer.gpu import on_gpu
from andrea.infer.quantize import GROUP, METHODS, Packed, as_model, open_packed, pack
from andrea.kernels.rotary import angles

if TYPE_CHECKING:
    from andrea.kernels import decode

ROWS = 128  # tokens computed together, of a prompt or of many sequences
MATRICES = ("attn.qkv", "attn.out", "mlp.up", "mlp.down", "mlp.gate")  # in the order of kernels/decode.py
LANES, BLOCK = 16, 64  # as kernels/decode.py has them
ALONE = 4 << 20  # bytes of weights that one core reads before a second has joined it


def decoder_for(run: Run, precision: str = "auto", slots: int = 1, threads: int | None = None) -> tuple[Decoder, str]:
    """The fastest decoder of a run here, and why it is that one. auto is float32; int8 and int4 open what `andrea quantize` wrote.

    Without Numba the same numbers come from torch, slower. On a GPU the model decodes itself, in the dtype it has. Raises ValueError for
    another precision there, and as open_packed.
    """
    if precision != "auto" and precision not in METHODS:
        raise ValueError(f"precision {precision!r} is none of auto, {', '.join(METHODS)}")
    precision, device = "float32" if precision == "auto" else precision, run.model.token_embed.weight.device.type
    if device != "cpu":
        if precision != "float32":
            raise ValueError(f"precision {precision} is for a CPU and the model is on {device}; give --device cpu")
        return on_gpu(run.model, slots) if device == "cuda" else (TorchDecoder(run.model, slots), f"torch, on {device}")
    packed = open_packed(run, precision) if precision in ("int8", "int4") else pack(run.model, precision)
    if reason := lacking():
        return TorchDecoder(run.model if precision == "float32" else as_model(packed), slots), f"torch: {reason}"
    return CpuDecoder(packed, slots, threads), "compiled for this processor by Numba"


def lacking() -> str:
    """Why the compiled step does not run here; nothing where it does."""
    try:
        from andrea.kernels import decode  # noqa: F401
    except (ImportError, RuntimeError) as error:  # not there; too old for this NumPy; no folder to keep compiled code in
        return f"Numba does not run here: {error}"
    return ""


class CpuDecoder:
    """Next-token logits from a model in blocks, for up to `slots` sequences, whose keys and values have their place from the beginning.

    The bits of every answer are the same whatever is computed beside it, in whichever pieces its prompt comes, and with any number
    of threads. May be called from several Python threads: one waits for the other. Raises ImportError where Numba does not run.
    """

    batch_invariant = True

    def __init__(self, packed: Packed, slots: int = 1, threads: int | None = None):
        from numba import typeof

        from andrea.kernels.decode import take_part

        if slots < 1 or (threads is not None and threads < 1):
            raise ValueError(f"slots={slots}, threads={threads}: wanted at least 1 of each")
        self.config, self.slots, self.take_part, self.lock = packed.config, slots, take_part, Lock()
        rest, matrices = in_order(packed)
        self.bytes_read = sum(part.nbytes for part in matrices[:4])  # by every step
        self.threads = threads or (1 if self.bytes_read < ALONE else torch.get_num_threads())
        self.room, *inputs = room(self.config, matrices.blocks.dtype, slots, self.threads)
        self.parts = (self.threads, rest, matrices, self.room, *inputs)
        take_part.compile(tuple(map(typeof, (0, *self.parts))))  # or, mostly, found on the disk: a quarter of a second
        self.process, self.bells = os.getpid(), start_threads(self)

    def extend(self, slot: int, ids: Sequence[int], start: int) -> np.ndarray:
        """Read ids at positions start, start + 1, ... of a slot whose cache holds all before; logits (V,) float32 after the last."""
        return self.read([slot] * len(ids), ids, range(start, start + len(ids)), 1)[0]

    def step(self, slots: Sequence[int], ids: Sequence[int], positions: Sequence[int]) -> np.ndarray:
        """Read one token each, whose slot's cache holds all before; logits (n, V) float32. A slot may come again, in order."""
        return self.read(slots, ids, positions, len(ids))

    def copy(self, source: int, target: int, length: int) -> None:
        """The first `length` positions of one slot's keys and values to another."""
        with self.lock:
            keys, values = self.room.keys, self.room.values
            groups, pairs = -(-length // LANES), -(-length // (values.shape[5] // LANES))
            keys[target, :, :, :groups] = keys[source, :, :, :groups]
            values[target, :, :, :, :pairs] = values[source, :, :, :, :pairs]

    def read(self, slots: Sequence[int], ids: Sequence[int], positions: Sequence[int], wanted: int) -> np.ndarray:
        """Logits of the last `wanted` rows."""
        for what, values, end in (
            ("slots", slots, self.slots),
            ("ids", ids, self.config.vocab_size),
            ("positions", positions, self.config.context),
        ):
            if not 0 <= min(values) <= max(values) < end:  # compiled code would write there
                raise ValueError(f"{what} {min(values)} to {max(values)} were given; there are 0 to {end - 1}")
        found = np.empty((wanted, self.config.vocab_size), np.float32)
        with self.lock:
            if self.process != os.getpid():  # os.fork() takes no threads along
                self.process, self.bells = os.getpid(), start_threads(self)
            for first in range(0, len(ids), ROWS):
                n = min(ROWS, len(ids) - first)
                for column, values in enumerate((slots, ids, positions)):
                    self.room.asked[:n, column] = values[first : first + n]
                unwanted = min(n, max(0, len(ids) - wanted - first))
                self.room.asked[-1] = n, unwanted, len(set(slots[first : first + n])) < n
                while asleep := self.take_part(0, *self.parts):
                    self.bells[asleep - 1].set()
                at = first + unwanted - (len(ids) - wanted)
                found[at : at + n - unwanted] = self.room.logits[: n - unwanted, : self.config.vocab_size]
        return found


def start_threads(decoder: CpuDecoder) -> list[Event]:
    """The threads that compute with the caller's, and a bell to wake each. They end with the decoder."""
    from andrea.kernels.decode import ASLEEP, STATE

    bells = [Event() for _ in range(decoder.threads - 1)]
    parts, take_part = decoder.parts, decoder.take_part
    decoder.room.sync[STATE : STATE + 8 * decoder.threads : 8] = ASLEEP

    def work(t: int, bell: Event) -> None:
        dismissed = 0
        while not dismissed:
            bell.wait()
            bell.clear()  # before it looks: the caller rings a hundred times until a thread is awake, which is to be awake once
            dismissed = take_part(t, *parts)

    for t, bell in enumerate(bells, 1):
        Thread(target=work, args=(t, bell), daemon=True, name=f"decode-{t}").start()
    weakref.finalize(decoder, dismiss, decoder.room.sync, bells)
    return bells


def dismiss(sync: np.ndarray, bells: list[Event]) -> None:
    from andrea.kernels import decode

    for t, bell in enumerate(bells, 1):
        sync[decode.STATE + 8 * t] = decode.DISMISSED
        bell.set()


def yield_address() -> int:
    """Where the system's function stands that lets another thread have the core; 0 where it is not known."""
    try:
        if sys.platform == "win32":
            function = ctypes.WinDLL("kernel32").SwitchToThread
        else:
            function = ctypes.CDLL(None).sched_yield
        return ctypes.cast(function, ctypes.c_void_p).value or 0
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
    return -(-n // BLOCK) * BLOCK


def room(c: ModelConfig, kind: np.dtype, slots: int, threads: int) -> "tuple[decode.Room, np.ndarray, np.ndarray]":
    """Everything a step writes to, zeros where padding is read; the last two are what matrices multiply, in the type they do it in."""
    from andrea.kernels import decode

    R, K, context, D = ROWS, c.d_head, -(-c.context // LANES) * LANES, padded(c.d_model)
    M, read = padded(c.mlp_width), kind.type if kind in (np.float32, np.uint16) else np.int8
    cached, pair = (np.float32, 1) if kind == np.float32 else (np.uint16, 2)

    def zeros(*shape: int, dtype: type = np.float32) -> np.ndarray:
        memory = aligned(shape, dtype)
        memory[...] = 0
        return memory

    counters = decode.STATE + 8 * threads
    sync = zeros(counters + 16 * (9 * c.n_layer + 3), dtype=np.int64)  # at most 9 stages a block
    sync[decode.YIELD], sync[decode.COUNTERS] = yield_address(), counters
    found = decode.Room(
        asked=np.zeros((R + 1, 3), np.int64),
        now=np.zeros(3, np.int64),
        rows=np.zeros((R, 3), np.int64),
        keys=aligned((slots, c.n_layer, c.n_head, context // LANES, -(-K // pair), LANES * pair), cached),
        values=aligned((slots, c.n_layer, c.n_head, -(-K // LANES), context // pair, LANES * pair), cached),
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
        factors=zeros(threads, max(context, padded(K)), dtype=cached),
        logits=zeros(R, padded(c.vocab_size)),
        sync=sync,
    )
    return found, zeros(R, D, dtype=read), zeros(R, M, dtype=read)


def in_order(packed: Packed) -> "tuple[decode.Rest, decode.Matrices]":
    """The model as the compiled step reads it; nothing of `packed` is kept."""
    from andrea.kernels import decode

    assert (decode.GROUP, decode.LANES, decode.BLOCK) == (GROUP, LANES, BLOCK)
    NOWHERE = decode.NOWHERE
    c, tensors = packed.config, packed.tensors
    small: list[Tensor] = []
    blocks, embed, head = Laid(packed), Laid(packed), Laid(packed)

    def note(*names: str) -> int:
        if names[0] not in tensors:
            return NOWHERE
        small.extend(tensors[name].flatten() for name in names)
        return sum(t.numel() for t in small[: -len(names)])

    def norm(name: str) -> int:
        return note(f"{name}.gamma", f"{name}.beta")

    table = np.full((c.n_layer, len(MATRICES), 3), NOWHERE, np.int64)
    for layer in range(c.n_layer):
        for i, name in enumerate(MATRICES):
            address = f"blocks.{layer}.{name}"
            if f"{address}.weight" in tensors:
                table[layer, i] = *blocks.append(f"{address}.weight"), note(f"{address}.bias")
    each = [[norm(f"blocks.{layer}.attn_norm"), norm(f"blocks.{layer}.mlp_norm")] for layer in range(c.n_layer)]
    order = [n for pair in each for n in pair]
    norms = [NOWHERE, *order] if c.norm == "post" else [*order, norm("final_norm")]
    embed.append("token_embed.weight")
    embedded = embed.whole()
    if not c.tied:
        head.append("unembed.weight")
    turns = np.stack([t.float().numpy() for t in angles(0, c.context, c.d_head)]) if c.positions == "rotary" else np.zeros((2, 0, 0))
    positions = note("position_embed.weight")
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
    return rest, decode.Matrices(*blocks.whole(), *(embedded if c.tied else head.whole()), *embedded)


class Laid:
    """Matrices one behind the other in blocks of 64 rows, and their scales: written once, to where the step reads them."""

    def __init__(self, packed: Packed):
        self.packed, self.codes, self.scales = packed, Flat(), Flat()

    def append(self, name: str) -> tuple[int, int]:
        """Where it will begin, in words, and where its scales."""
        codes, scales = self.packed.tensors[name], self.packed.scales.get(name)
        columns = {torch.float32: 1, torch.bfloat16: 2}.get(codes.dtype, 4)  # of a word; in int4 of two columns each
        begin = self.codes.append(codes, columns, BLOCK // 2 if codes.dtype == torch.uint8 else BLOCK)
        assert scales is not None or columns < 4
        return begin // columns, 0 if scales is None else self.scales.append(scales, 1, 1 if codes.dtype == torch.int8 else BLOCK // GROUP)

    def whole(self) -> tuple[np.ndarray, np.ndarray]:
        codes, scales = self.codes.whole(), self.scales.whole()
        if codes.dtype == np.int8:
            codes ^= np.int8(-128)  # where they are: another array need not begin at a cache line
        return codes, scales


class Flat:
    """Matrices (N, K) as (N / 64, K / columns, 64, columns), one behind the other, padded with zeros."""

    def __init__(self) -> None:
        self.parts: list[tuple[Tensor, tuple[int, int, int, int]]] = []
        self.length = 0

    def append(self, matrix: Tensor, columns: int, multiple: int) -> int:
        """Where it will begin. K is padded to a multiple."""
        shape = padded(len(matrix)) // BLOCK, -(-matrix.shape[1] // multiple) * multiple // columns, BLOCK, columns
        self.parts.append((matrix, shape))
        self.length += math.prod(shape)
        return self.length - math.prod(shape)

    def whole(self) -> np.ndarray:
        kind = self.parts[0][0].dtype if self.parts else torch.float32
        memory = aligned(self.length, np.uint16 if kind == torch.bfloat16 else torch.empty(0, dtype=kind).numpy().dtype.type)
        left = torch.from_numpy(memory).view(kind)
        for matrix, (n, k, rows, columns) in self.parts:
            if (n * rows, k * columns) != matrix.shape:
                matrix = F.pad(matrix, (0, k * columns - matrix.shape[1], 0, n * rows - len(matrix)))
            part, left = left[: n * k * rows * columns], left[n * k * rows * columns :]
            part.view(n, k, rows, columns).copy_(matrix.unflatten(1, (k, columns)).unflatten(0, (n, rows)).transpose(1, 2))
        return memory
