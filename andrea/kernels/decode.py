"""The decode step for a CPU, compiled by Numba: everything between token ids and logits in one call for each thread.

A matrix (N, K) lies in blocks of 64 rows, and within a block column by column, so that one vector instruction takes 16 rows at once, no sum
goes across a vector, and a thread reads memory in one stream. A word is 32 bits of a row: 1 column in float32, 2 in bfloat16, 4 in
int8, 8 in int4; a matrix is (N / 64, K / columns, 64) words. Rows and columns are padded with zeros to multiples of 64.

    float32   y = W x                                         every product and sum in float32
    bfloat16  y = W bf16(x)                                   products of bfloat16, sums in float32
    int8      y_i = s_i      sum_g a_g       sum_k W_ik q_k   q = round(x / a_g), a_g = max|x| / 127 over 32 columns; whole numbers inside
    int4      y_i = sum_g s_ig a_g           sum_k W_ik q_k   the same, with a scale for every 32 columns of a row

Each sum runs over the columns in their order, one accumulator for every row and sequence, however many rows and sequences are computed
together: the bits of an answer do not depend on what runs beside it, nor on how a prompt is cut. The threads share out rows of the
matrices, never a sum. They need no pool of Numba's or OpenMP's, whose hundred regions would cost more than a small model's step: see
step().

Importing this raises ImportError where Numba cannot run. Numba keeps what it compiled beside this file, and looks at this file alone to see
whether that is stale: what is compiled here stands here.
"""

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import extending, njit, types
from numba.core import cgutils
from numba.core.codegen import get_host_cpu_features

from andrea.kernels.layer_norm import EPSILON
from andrea.kernels.loops import CUBIC, FLAT, LOG2_E, ONE, SLOPE, exp2, narrow, softmax, widen

LANES = 16  # numbers of a vector: one AVX-512 register, two of AVX2, four of NEON
BLOCK = 64  # rows of a matrix that lie together, and that a thread takes at a time
GROUP = 32  # columns that share a scale
GROUPS = BLOCK // GROUP
COLUMNS = {np.dtype(np.float32): 1, np.dtype(np.uint16): 2, np.dtype(np.int8): 4, np.dtype(np.uint8): 8}  # of a word, by the weights' type
QKV, OUT, UP, DOWN, GATE = range(5)  # the matrices of a block, as Weights.table counts them
GELU, RELU, SWIGLU = range(3)
NOWHERE = -1  # the place of what the model does not have
SPINS = 20_000  # looks at a place in memory before a thread that waits gives its core away, again and again
LINGERS = 2_000  # and how often it does so before it sleeps

intrinsic: Any = extending.intrinsic
FEATURES = set(get_host_cpu_features().split(","))
HAS_BF16, HAS_INT8 = "+avx512bf16" in FEATURES, "+avx512vnni" in FEATURES
ACCUMULATORS = 16 if "+avx512f" in FEATURES else 4  # vectors of 16 that stay in registers beside what is multiplied

EXACT: dict[str, Any] = {"nogil": True, "error_model": "numpy", "cache": True}  # no fastmath: sums keep their order
LOOSE: dict[str, Any] = {**EXACT, "fastmath": {"contract", "reassoc", "arcp", "nsz"}}


class Matrices(NamedTuple):
    """Matrices in blocks, flat, and their scales: of a row, float32; of a group of int4, bfloat16 (N / 64, K / 32, 64)."""

    blocks: np.ndarray  # by their type (COLUMNS) float32, uint16, int8, or uint8 for int4
    scales: np.ndarray
    head: np.ndarray  # the output projection
    head_scales: np.ndarray
    embed: np.ndarray  # the token embedding, as a matrix (V, D); the same memory where they are tied
    embed_scales: np.ndarray


class Rest(NamedTuple):
    """All else about a model."""

    d_model: int
    d_head: int
    n_head: int
    mlp_width: int
    activation: int  # GELU, RELU or SWIGLU
    post_norm: bool
    residual: bool
    table: np.ndarray  # int64 (L, 5, 3): where each matrix begins in `blocks`, in words; its scales; its bias, in `small`, or NOWHERE
    norms: np.ndarray  # int64 (2 L + 1): where gamma, and after it beta, stand in `small`, or NOWHERE
    small: np.ndarray  # float32: norms, biases, positions
    positions: int  # where learned positions (context, D) stand in `small`, or NOWHERE
    angles: np.ndarray  # float32 (2, context, K / 2): cos and sin of rotary positions; empty where they are learned


class Room(NamedTuple):
    """What a step reads and writes beside the weights. R rows are computed together, each one token of one slot."""

    asked: np.ndarray  # int64 (R + 1, 3): what `rows` will hold in the next step, and last `now`
    now: np.ndarray  # int64 (3): rows, the first row whose logits are wanted, whether rows belong to one slot
    rows: np.ndarray  # int64 (R, 3): slot, id, position
    keys: np.ndarray  # float32 (slots, L, H, context / 16, K, 16), or bfloat16 in pairs of K, uint16 (..., context / 16, K / 2, 32)
    values: np.ndarray  # float32 (slots, L, H, K / 16, context, 16), or bfloat16 in pairs of positions, uint16 (..., context / 2, 32)
    x: np.ndarray  # float32 (R, D): the residual stream
    h: np.ndarray  # float32 (R, D): what a matrix reads
    y: np.ndarray  # float32 (R, 3 D or M): what qkv and the MLP's first matrix give
    z: np.ndarray  # float32 (R, D): what goes back to the stream
    gate: np.ndarray  # float32 (R, M)
    q_scales: np.ndarray  # float32 (R, D / 32): of h where int8 is multiplied
    q_begin: np.ndarray  # int32: and what the sums of each group begin with
    p_scales: np.ndarray  # float32 (R, M / 32): the same of the MLP's hidden layer
    p_begin: np.ndarray
    scores: np.ndarray  # float32 (threads, context + K)
    factors: np.ndarray  # (threads, context or K) in the cache's type: what keys and values are multiplied with
    logits: np.ndarray  # float32 (R, V)
    sync: np.ndarray  # int64: see claim() and wait()


# --- between threads ----------------------------------------------------------------------------------------------------------------


def place(context, builder, kind, array, index):
    """A pointer to array[index]."""
    data = context.make_array(kind)(context, builder, array).data
    return builder.gep(data, [index])


@intrinsic
def look(typing, array, index):
    """array[index], and all that was written before it."""

    def codegen(context, builder, signature, args):
        return builder.load_atomic(place(context, builder, signature.args[0], *args), "acquire", 8)

    return types.int64(array, index), codegen


@intrinsic
def publish(typing, array, index, value):
    """array[index] = value, after all that was written before it."""

    def codegen(context, builder, signature, args):
        builder.store_atomic(args[2], place(context, builder, signature.args[0], *args[:2]), "release", 8)
        return context.get_dummy_value()

    return types.void(array, index, types.int64), codegen


@intrinsic
def turn(typing, array, index, old, new):
    """If array[index] is `old` it becomes `new`. Whether it was."""

    def codegen(context, builder, signature, args):
        pointer = place(context, builder, signature.args[0], *args[:2])
        return builder.extract_value(builder.cmpxchg(pointer, args[2], args[3], "acq_rel", "acquire"), 1)

    return types.boolean(array, index, types.int64, types.int64), codegen


@intrinsic
def add(typing, array, index, value):
    """array[index] += value; what stood there."""

    def codegen(context, builder, signature, args):
        return builder.atomic_rmw("add", place(context, builder, signature.args[0], *args[:2]), args[2], "acq_rel")

    return types.int64(array, index, types.int64), codegen


@intrinsic
def give_way(typing, address):
    """Call the system's function at `address`, which lets another thread have the core; nothing for 0."""

    def codegen(context, builder, signature, args):
        kind = ir.FunctionType(ir.IntType(32), []).as_pointer()
        with builder.if_then(builder.icmp_signed("!=", args[0], ir.Constant(args[0].type, 0))):
            builder.call(builder.inttoptr(args[0], kind), [])
        return context.get_dummy_value()

    return types.void(types.int64), codegen


# places in `sync`, a cache line each; from STATE on, one for every thread; then two counters for every stage
YIELD, COUNTERS, STATE = 0, 8, 16
ASLEEP, AWAKE, HELD, CALLED, DISMISSED = range(5)


@njit(**EXACT)
def claim(sync, stage, units, n):
    """Units of work that no other thread has: the first, and the one after the last, the same where none are left.

    A thread of n takes half its share of what is left, so that it reads memory in long streams and all end together.
    Polychronopoulos & Kuck 1987, guided self-scheduling.
    """
    at = sync[COUNTERS] + 16 * stage
    while True:
        first = look(sync, at)
        if first >= units:
            return units, units
        last = units if n == 1 else first + max(1, (units - first) // (2 * n))
        if turn(sync, at, first, last):
            return first, last


@njit(**EXACT)
def following(sync, stage, first, last, units, n):
    """The next ones, when first to last - 1 are done."""
    add(sync, sync[COUNTERS] + 16 * stage + 8, last - first)
    return claim(sync, stage, units, n)


@njit(**EXACT)
def settle(sync, stage, units):
    """Wait until all units of a stage are done; what was written for them is seen after it. The number of the next stage."""
    spins = 0
    while look(sync, sync[COUNTERS] + 16 * stage + 8) < units:
        spins += 1
        if spins > SPINS:
            give_way(sync[YIELD])
    return stage + 1


@njit(**EXACT)
def wait(sync, t):
    """CALLED, DISMISSED, or ASLEEP after a while without either."""
    state, spins = STATE + 8 * t, 0
    turn(sync, state, ASLEEP, AWAKE)
    while True:
        seen = look(sync, state)
        if seen >= CALLED:
            return seen
        spins += seen == AWAKE
        if spins > SPINS:
            give_way(sync[YIELD])
        if spins > SPINS + LINGERS and turn(sync, state, AWAKE, ASLEEP):
            return ASLEEP


@njit(**EXACT)
def hold(sync, n):
    """Take all other threads back from the step before; 0, or the number of one that sleeps, and then none is held."""
    for t in range(1, n):
        spins = 0
        while not turn(sync, STATE + 8 * t, AWAKE, HELD):
            if look(sync, STATE + 8 * t) == CALLED:  # it had lost its core, and finds now that all was done without it
                give_way(sync[YIELD])
                continue
            spins += 1
            if spins > SPINS:
                for held in range(1, t):
                    publish(sync, STATE + 8 * held, AWAKE)
                return t
    return 0


# --- products -----------------------------------------------------------------------------------------------------------------------

F32, I32 = ir.FloatType(), ir.IntType(32)
VF, VI = ir.VectorType(F32, LANES), ir.VectorType(I32, LANES)


def tile(vectors: int, rows: int, step: int) -> Any:
    """The product of some vectors of a matrix's rows with some rows of x, as LLVM's instructions: what a compiler makes of loops is luck.

    y[r, 16 v + lane] for r < rows, v < vectors; a vector's next column stands `step` words on, the next vector's `stride`. Each place and
    stride counts numbers of its array, those of w and x words.
    """

    @intrinsic
    def product(typing, w, start, stride, words, scales, scale_start, x, x_scales, x_begin, x_start, x_stride, y, y_start, y_stride):
        signature = types.void(w, start, stride, words, scales, scale_start, x, x_scales, x_begin, x_start, x_stride, y, y_start, y_stride)

        def codegen(context, builder, signature, args):
            def data(i: int, kind: ir.Type) -> Any:
                return builder.bitcast(context.make_array(signature.args[i])(context, builder, args[i]).data, kind.as_pointer())

            scale = ir.IntType(16) if str(w.dtype) == "uint8" else F32
            pointers = [data(0, I32), data(4, scale), data(6, I32), data(7, F32), data(8, I32), data(11, F32)]
            emit = Emit(builder, str(w.dtype), step, pointers)
            places = [args[i] for i in (1, 2, 3, 5, 9, 10, 12, 13)]
            together = max(1, ACCUMULATORS // rows)
            for first in range(0, vectors, together):
                emit.block(range(first, min(vectors, first + together)), range(rows), *places)
            return context.get_dummy_value()

        return signature, codegen

    return product


class Vectors:
    """Writes instructions on vectors."""

    def __init__(self, builder: Any):
        self.b = builder

    def vector(self, pointer: Any, at: Any, kind: ir.Type = VI) -> Any:
        return self.b.load(
            self.b.bitcast(self.b.gep(pointer, [at]), kind.as_pointer()),
            align=kind.element.width // 8 if isinstance(kind.element, ir.IntType) else 4,
        )

    def everywhere(self, value: Any) -> Any:
        """One number in all lanes."""
        one = self.b.insert_element(ir.Constant(ir.VectorType(value.type, LANES), ir.Undefined), value, I32(0))
        return self.b.shuffle_vector(one, ir.Constant(one.type, ir.Undefined), ir.Constant(VI, [0] * LANES))

    def call(self, name: str, result: ir.Type, *args: Any) -> Any:
        return self.b.call(cgutils.get_or_insert_function(self.b.module, ir.FunctionType(result, [a.type for a in args]), name), args)


class Emit(Vectors):
    """Writes the instructions of one block of accumulators."""

    def __init__(self, builder: Any, kind: str, step: int, pointers: list[Any]):
        super().__init__(builder)
        self.kind, self.step = kind, step
        self.w, self.scales, self.x, self.x_scales, self.x_begin, self.y = pointers
        self.whole = kind in ("int8", "uint8")

    def fma(self, a: Any, x: Any, total: Any) -> Any:
        return self.call("llvm.fmuladd.v16f32", VF, a, x, total)

    def dot(self, total: Any, a: Any, x: Any) -> Any:
        """total + the products of the columns in one word; int8: of a's unsigned bytes with x's signed ones."""
        b, each = self.b, lambda value: ir.Constant(VI, [value] * LANES)
        if self.kind == "float32":
            return self.fma(b.bitcast(a, VF), b.bitcast(x, VF), total)
        if self.kind == "uint16":
            if HAS_BF16:
                return self.call("llvm.x86.avx512bf16.dpbf16ps.512", VF, total, a, x)
            for part in (lambda v: b.shl(v, each(16)), lambda v: b.and_(v, each(-65536))):  # a bfloat16 is the upper half of a float32
                total = self.fma(b.bitcast(part(a), VF), b.bitcast(part(x), VF), total)
            return total
        if HAS_INT8:
            return self.call("llvm.x86.avx512.vpdpbusd.512", VI, total, a, x)
        for left in (24, 16, 8, 0):
            a_byte = b.lshr(b.shl(a, each(left)), each(24))
            x_byte = b.ashr(b.shl(x, each(left)), each(24))
            total = b.add(total, b.mul(a_byte, x_byte))
        return total

    def block(self, ps, rs, start, stride, words, scale_start, x_start, x_stride, y_start, y_stride) -> None:
        b, at = self.b, lambda base, step, i: self.b.add(base, self.b.mul(step, start.type(i)))
        totals = {(p, r): cgutils.alloca_once(b, VF) for p in ps for r in rs}
        for total in totals.values():
            b.store(ir.Constant(VF, [0.0] * LANES), total)
        w = {p: b.gep(self.w, [at(start, stride, p)]) for p in ps}
        x = {r: b.gep(self.x, [at(x_start, x_stride, r)]) for r in rs}
        if self.whole:
            groups = {r: b.udiv(at(x_start, x_stride, r), start.type(GROUP // 4)) for r in rs}
            self.in_groups(totals, w, x, words, groups, {p: b.add(scale_start, start.type(LANES * p)) for p in ps})
        else:
            self.word_by_word(totals, w, x, words)
        for (p, r), total in totals.items():
            value = b.load(total)
            if self.kind == "int8":
                value = b.fmul(value, self.vector(self.scales, b.add(scale_start, start.type(LANES * p)), VF))
            target = b.gep(self.y, [b.add(at(y_start, y_stride, r), start.type(LANES * p))])
            b.store(value, b.bitcast(target, VF.as_pointer()), align=4)

    def word_by_word(self, totals, w, x, words) -> None:
        b, unrolled = self.b, 4

        def one(k: Any) -> None:
            xs = {r: self.everywhere(b.load(b.gep(pointer, [k]))) for r, pointer in x.items()}
            ws = {p: self.vector(pointer, b.mul(k, k.type(self.step))) for p, pointer in w.items()}
            for (p, r), total in totals.items():
                b.store(self.dot(b.load(total), ws[p], xs[r]), total)

        rounds = b.udiv(words, words.type(unrolled))
        with cgutils.for_range(b, rounds) as loop:
            for i in range(unrolled):
                one(b.add(b.mul(loop.index, words.type(unrolled)), words.type(i)))
        with cgutils.for_range_slice(b, b.mul(rounds, words.type(unrolled)), words, words.type(1)) as (k, _):
            one(k)

    def in_groups(self, totals, w, x, words, groups, scales) -> None:
        b, nibbles = self.b, self.kind == "uint8"
        each, of = (lambda value: ir.Constant(VI, [value] * LANES)), words.type
        n = GROUP // 8 if nibbles else GROUP // 4  # words of the weights in a group
        with cgutils.for_range(b, b.udiv(words, of(n))) as loop:
            begin = {r: self.everywhere(b.load(b.gep(self.x_begin, [b.add(groups[r], loop.index)]))) for r in x}
            sums = {(p, r): begin[r] for p, r in totals}
            for i in range(n):
                k = b.add(b.mul(loop.index, of(n)), of(i))
                for p, pointer in w.items():
                    a = self.vector(pointer, b.mul(k, of(self.step)))
                    parts = [b.and_(a, each(0x0F0F0F0F)), b.and_(b.lshr(a, each(4)), each(0x0F0F0F0F))] if nibbles else [a]
                    for j, part in enumerate(parts):
                        for r, row in x.items():
                            value = b.load(b.gep(row, [b.add(b.mul(k, of(len(parts))), of(j))]))
                            sums[p, r] = self.dot(sums[p, r], part, self.everywhere(value))
            for (p, r), total in totals.items():
                value = b.sitofp(sums[p, r], VF)
                if nibbles:
                    place = b.add(scales[p], b.mul(loop.index, of(self.step)))
                    upper = self.vector(self.scales, place, ir.VectorType(ir.IntType(16), LANES))
                    value = b.fmul(value, b.bitcast(b.shl(b.zext(upper, VI), each(16)), VF))
                scale = self.everywhere(b.load(b.gep(self.x_scales, [b.add(groups[r], loop.index)])))
                b.store(self.fma(value, scale, b.load(total)), total)


@intrinsic
def quantise(typing, h, q, scales, begin, group, middle):
    """Group `group` of h in int8, its scale, and what its sums begin with; a loop of it is not made into vectors."""

    def codegen(context, builder, signature, args):
        b, v, I8 = builder, Vectors(builder), ir.IntType(8)
        h, q, scales, begin = (context.make_array(signature.args[i])(context, b, args[i]).data for i in range(4))
        places = [b.add(b.mul(args[4], args[4].type(GROUP)), args[4].type(i)) for i in (0, LANES)]
        xs = [v.vector(h, at, VF) for at in places]
        sizes = [v.call("llvm.fabs.v16f32", VF, x) for x in xs]
        largest = v.call("llvm.vector.reduce.fmax.v16f32", F32, v.call("llvm.maxnum.v16f32", VF, *sizes))
        inverse = b.select(b.fcmp_ordered(">", largest, F32(1e-30)), b.fdiv(F32(127), largest), F32(0))
        codes = [b.fptosi(v.call("llvm.rint.v16f32", VF, b.fmul(x, v.everywhere(inverse))), VI) for x in xs]
        for at, code in zip(places, codes, strict=True):
            target = b.bitcast(b.gep(q, [at]), ir.VectorType(I8, LANES).as_pointer())
            b.store(b.trunc(code, ir.VectorType(I8, LANES)), target, align=1)
        total = v.call("llvm.vector.reduce.add.v16i32", I32, b.add(*codes))
        b.store(b.fmul(largest, F32(float(np.float32(1 / 127)))), b.gep(scales, [args[4]]))
        b.store(b.mul(total, b.neg(args[5])), b.gep(begin, [args[4]]))
        return context.get_dummy_value()

    return types.void(h, q, scales, begin, group, middle), codegen


VECTORS = BLOCK // LANES
block_by_one, block_by_four = tile(VECTORS, 1, BLOCK), tile(VECTORS, 4, BLOCK)  # of a matrix, by rows of x
vector_by_one, four_by_one = tile(1, 1, LANES), tile(4, 1, LANES)  # of keys or values


@njit(**EXACT)
def multiply(w, start, words, scales, scale_start, scale_stride, x, x_scales, x_begin, x_start, x_stride, rows, y, y_stride, first, last):
    """y[r, 64 b + i] of blocks first to last - 1 and of rows x. The weights come from memory once: x is what is read again."""
    lanes = np.int64(LANES)
    for block in range(first, last):
        a, s, out = start + block * words * BLOCK, scale_start + block * scale_stride, block * BLOCK
        r = 0
        while rows - r >= 4:
            block_by_four(
                w, a, lanes, words, scales, s, x, x_scales, x_begin, x_start + r * x_stride, x_stride, y, out + r * y_stride, y_stride
            )
            r += 4
        while r < rows:
            block_by_one(
                w, a, lanes, words, scales, s, x, x_scales, x_begin, x_start + r * x_stride, x_stride, y, out + r * y_stride, y_stride
            )
            r += 1


@njit(**EXACT)
def multiply_cached(w, start, stride, words, vectors, x, x_start, y, y_start, room):
    """y[y_start:] = so many vectors of keys or values, `stride` words apart, times the `words` words of x from x_start on."""
    zero, scales, begin = np.int64(0), room.q_scales, room.q_begin  # the last two are not looked at
    v = 0
    while v < vectors:
        a, out = start + v * stride, y_start + v * LANES
        if vectors - v >= 4:
            four_by_one(w, a, stride, words, scales, zero, x, scales, begin, x_start, zero, y, out, zero)
            v += 4
        else:
            vector_by_one(w, a, stride, words, scales, zero, x, scales, begin, x_start, zero, y, out, zero)
            v += 1


def columns_of(w): ...
def read(h, q): ...
def element(w, start, scales, scale_start, width, row, column): ...
def prepare(w, h, first, last, q, scales, begin): ...


@extending.overload(columns_of)
def _(w):
    columns = COLUMNS[np.dtype(str(w.dtype))]
    return lambda w: columns


@extending.overload(read)
def _(h, q):
    """What a product reads: h itself in float32, else what prepare() made of it."""
    return (lambda h, q: h) if q.dtype == types.float32 else (lambda h, q: q)


@extending.overload(element)
def _(w, start, scales, scale_start, width, row, column):
    """One number of a matrix of `width` columns."""
    if w.dtype == types.float32:
        return lambda w, start, scales, scale_start, width, row, column: w[start + (row // 64 * width + column) * 64 + row % 64]
    if w.dtype == types.uint16:

        def from_bf16(w, start, scales, scale_start, width, row, column):
            return widen(w[2 * (start + (row // 64 * (width // 2) + column // 2) * 64 + row % 64) + column % 2])

        return from_bf16
    if w.dtype == types.int8:

        def from_int8(w, start, scales, scale_start, width, row, column):
            code = np.uint8(w[4 * (start + (row // 64 * (width // 4) + column // 4) * 64 + row % 64) + column % 4])
            return np.float32(np.int32(code) - 128) * scales[scale_start + row]

        return from_int8

    def from_int4(w, start, scales, scale_start, width, row, column):
        pair = np.int32(w[4 * (start + (row // 64 * (width // 8) + column // 8) * 64 + row % 64) + column % 4])
        code = (pair >> 4 if column % 8 >= 4 else pair & 15) - 8
        return np.float32(code) * widen(scales[scale_start + (row // 64 * (width // GROUP) + column // GROUP) * 64 + row % 64])

    return from_int4


@extending.overload(prepare)
def _(w, h, first, last, q, scales, begin):
    """Groups first to last - 1 of one row of h in the type that w multiplies.

    The weights' codes are stored without a sign, 8 or 128 too large: sums begin with what takes that back.
    """
    if w.dtype == types.float32:
        return lambda w, h, first, last, q, scales, begin: None
    if w.dtype == types.uint16:

        def to_bf16(w, h, first, last, q, scales, begin):
            h, q = h[first * GROUP : last * GROUP], q[first * GROUP : last * GROUP]  # from 0 on, or it is not made into vectors
            for k in range(len(h)):
                q[k] = narrow(h[k], q[k])

        return to_bf16
    middle = np.int32(128 if w.dtype == types.int8 else 8)

    def to_int8(w, h, first, last, q, scales, begin):
        for g in range(first, last):
            quantise(h, q, scales, begin, g, middle)

    return to_int8


@njit(**EXACT)
def matrix(w, start, scale_start, n_in, scales, h, q, q_scales, q_begin, first_row, rows, y, first, last):
    """Blocks first to last - 1 of y = those rows of W (N, n_in) times rows of what read(h, q) gives."""
    columns = columns_of(w)
    scale_stride = BLOCK * (n_in // GROUP) if columns == 8 else BLOCK
    x = read(h, q)
    x_stride = x.shape[1] // min(columns, 4)  # int4 multiplies int8
    multiply(
        w, start, n_in // columns, scales, scale_start, scale_stride,
        x, q_scales, q_begin, first_row * x_stride, x_stride, rows, y, y.shape[1], first, last,
    )  # fmt: skip


# --- the step -----------------------------------------------------------------------------------------------------------------------


@njit(**LOOSE)
def normalise(x, gamma, small, y, D):
    """y[:D] = LayerNorm(x[:D])."""
    scale, shift = small[gamma : gamma + D], small[gamma + D : gamma + 2 * D]
    mean = np.float32(0)
    for d in range(D):
        mean += x[d]
    mean /= np.float32(D)
    var = np.float32(0)
    for d in range(D):
        var += (x[d] - mean) * (x[d] - mean)
    scaled(x, mean, ONE / np.sqrt(var / np.float32(D) + np.float32(EPSILON)), scale, shift, y)


@njit(**EXACT)
def scaled(x, mean, inverse, scale, shift, y):
    """Not LOOSE: LLVM multiplies in another order in vectors and number by number, and does the latter where y begins shortly behind
    another array; and in each of the places that it compiles this for, of which one process runs this and another that."""
    for d in range(len(scale)):
        y[d] = (x[d] - mean) * inverse * scale[d] + shift[d]


@njit(**LOOSE)
def enter(n, c, room, q, norm, w, stage):
    """h, what the next matrix reads of the stream: normalised, or as it is. Post-norm: the stream itself is normalised."""
    rows = room.now[0]
    first, last = claim(room.sync, stage, rows, n)
    while first < last:
        for r in range(first, last):
            x, h = room.x[r], room.h[r]
            if norm != NOWHERE:
                normalise(x, norm, c.small, h, c.d_model)
                if c.post_norm:
                    for d in range(c.d_model):
                        x[d] = h[d]
            else:
                for d in range(c.d_model):
                    h[d] = x[d]
            prepare(w, h, 0, len(h) // GROUP, q[r], room.q_scales[r], room.q_begin[r])
        first, last = following(room.sync, stage, first, last, rows, n)
    return settle(room.sync, stage, rows)


@njit(**LOOSE)
def leave(c, room, bias, first, last):
    """Columns of z, with their bias, join the stream or replace it."""
    last = min(last, c.d_model)
    for r in range(room.now[0]):
        x, z = room.x[r, first:last], room.z[r, first:last]  # counted from 0, or it is not made into vectors
        for d in range(len(x)):
            x[d] = (x[d] if c.residual else np.float32(0)) + z[d]
        if bias != NOWHERE:
            gain(x, c.small[bias + first : bias + last])


@njit(**LOOSE)
def gain(x, y):
    for d in range(len(x)):
        x[d] += y[d]


@njit(**LOOSE)
def add_bias(c, y, rows, bias, first, last, width):
    if bias != NOWHERE:
        last = min(last, width)
        for r in range(rows):
            gain(y[r, first:last], c.small[bias + first : bias + last])


@njit(**LOOSE)
def activate(c, y, gate):
    for d in range(len(y)):
        v = min(max(y[d], -FLAT), FLAT)
        if c.activation == GELU:
            y[d] = y[d] / (ONE + exp2(-v * (SLOPE + CUBIC * v * v) * LOG2_E))
        elif c.activation == RELU:
            y[d] = max(y[d], np.float32(0))
        else:
            u = min(max(gate[d], np.float32(-80)), np.float32(80))
            y[d] *= gate[d] / (ONE + exp2(-u * LOG2_E))


@njit(**LOOSE)
def rotate(x, K, cos, sin):
    """One head turned by the angles of its token."""
    for j in range(K // 2):
        a, b = x[j], x[j + K // 2]
        x[j], x[j + K // 2] = a * cos[j] - b * sin[j], b * cos[j] + a * sin[j]


@njit(**LOOSE)
def remember(c, room, layer, r, head):
    """Key and value of one row and head go to their places in the cache."""
    K, D = c.d_head, c.d_model
    slot, position, y = room.rows[r, 0], room.rows[r, 2], room.y[r]
    at = head * K
    q, k, v = y[at : at + K], y[D + at : D + at + K], y[2 * D + at : 2 * D + at + K]
    if c.angles.shape[1]:
        rotate(q, K, c.angles[0, position], c.angles[1, position])
        rotate(k, K, c.angles[0, position], c.angles[1, position])
    keys, values = room.keys[slot, layer, head, position // LANES], room.values[slot, layer, head]
    columns = columns_of(room.keys)
    lane, like = position % LANES * columns, room.factors[0, 0]
    for w in range(len(keys)):
        for i in range(columns):
            d = w * columns + i
            keys[w, lane + i] = narrow(k[d] if d < K else np.float32(0), like)
    for part in range(len(values)):
        held, second = values[part, position // columns], position % columns
        for i in range(min(LANES, K - part * LANES)):
            held[i * columns + second] = narrow(v[part * LANES + i], like)


@njit(**LOOSE)
def attend(c, room, layer, r, head, t):
    """h[r, head] = softmax(q k^T / sqrt(K)) v over the positions up to this row's own."""
    K, seen, keys, values = c.d_head, room.rows[r, 2] + 1, room.keys, room.values
    which = (room.rows[r, 0] * len(c.table) + layer) * c.n_head + head  # of all heads of all slots
    columns, words = columns_of(keys), keys.shape[4]
    parts, pairs = values.shape[3], values.shape[4]  # pairs of positions in bfloat16, in float32 positions
    context = keys.shape[3] * LANES
    scores, factors, q = room.scores[t], room.factors[t], room.y[r, head * K : head * K + K]
    e, x = t * room.scores.shape[1], t * len(factors) // columns
    for d in range(K):
        factors[d] = narrow(q[d], factors[d])
    for d in range(K, words * columns):
        factors[d] = narrow(np.float32(0), factors[d])
    vectors = (seen + LANES - 1) // LANES
    multiply_cached(keys, which * context * words, words * LANES, words, vectors, room.factors, x, room.scores, e, room)
    _, total = softmax(scores, seen, np.float32(1 / np.sqrt(K)), scores)
    for i in range(seen):
        factors[i] = narrow(scores[i], factors[i])
    whole, y, z = seen // columns, scores[context : context + K], room.h[r, head * K : head * K + K]
    start = which * parts * pairs * LANES
    multiply_cached(values, start, pairs * LANES, whole, parts, room.factors, x, room.scores, e + context, room)
    if whole * columns < seen:  # the last pair has no second yet
        held, last = values[room.rows[r, 0], layer, head], seen - 1
        for d in range(K):
            y[d] += scores[last] * widen(held[d // LANES, whole, d % LANES * columns])
    for d in range(K):
        z[d] = y[d] / total


@njit(inline="always", **EXACT)
def step(t, n, c, m, room, q, p):
    """Thread t's part, of n, in the logits of the rows in `room`, (R, V).

    Every thread goes through all stages, takes of each what is not taken, and waits only for what others have taken. So one
    that comes late, or loses its core on a busy machine, keeps nobody waiting but for the units that it holds.
    """
    rows, sync, zero = room.now[0], room.sync, np.int64(0)  # a plain 0 is a type of its own, and everything would be compiled again for it
    D, wide, mlp = c.d_model, room.x.shape[1], p.shape[1]
    three, vocab, pairs = (3 * D + BLOCK - 1) // BLOCK, room.logits.shape[1] // BLOCK, c.n_head * rows
    stage = zero
    first, last = claim(sync, stage, rows, n)
    while first < last:
        for r in range(first, last):
            for d in range(D):
                learned = c.small[c.positions + room.rows[r, 2] * D + d] if c.positions != NOWHERE else np.float32(0)
                room.x[r, d] = element(m.embed, 0, m.embed_scales, 0, wide, room.rows[r, 1], d) + learned
        first, last = following(sync, stage, first, last, rows, n)
    stage = settle(sync, stage, rows)
    for layer in range(len(c.table)):
        at = c.table[layer]
        stage = enter(n, c, room, q, c.norms[2 * layer], m.blocks, stage)
        first, last = claim(sync, stage, three, n)
        while first < last:
            matrix(
                m.blocks, at[QKV, 0], at[QKV, 1], wide, m.scales, room.h, q, room.q_scales, room.q_begin, zero, rows, room.y, first, last
            )
            add_bias(c, room.y, rows, at[QKV, 2], first * BLOCK, last * BLOCK, 3 * D)
            first, last = following(sync, stage, first, last, three, n)
        stage = settle(sync, stage, three)
        if room.now[2]:  # rows read what others of their slot wrote
            first, last = claim(sync, stage, pairs, n)
            while first < last:
                for i in range(first, last):
                    remember(c, room, layer, i % rows, i // rows)
                first, last = following(sync, stage, first, last, pairs, n)
            stage = settle(sync, stage, pairs)
        first, last = claim(sync, stage, pairs, n)
        while first < last:
            for i in range(first, last):
                if not room.now[2]:
                    remember(c, room, layer, i % rows, i // rows)
                attend(c, room, layer, i % rows, i // rows, t)
            first, last = following(sync, stage, first, last, pairs, n)
        stage = settle(sync, stage, pairs)
        if columns_of(m.blocks) > 1:
            first, last = claim(sync, stage, rows, n)
            while first < last:
                for r in range(first, last):
                    prepare(m.blocks, room.h[r], 0, wide // GROUP, q[r], room.q_scales[r], room.q_begin[r])
                first, last = following(sync, stage, first, last, rows, n)
            stage = settle(sync, stage, rows)
        first, last = claim(sync, stage, wide // BLOCK, n)
        while first < last:
            matrix(
                m.blocks, at[OUT, 0], at[OUT, 1], wide, m.scales, room.h, q, room.q_scales, room.q_begin, zero, rows, room.z, first, last
            )
            leave(c, room, at[OUT, 2], first * BLOCK, last * BLOCK)
            first, last = following(sync, stage, first, last, wide // BLOCK, n)
        stage = settle(sync, stage, wide // BLOCK)
        stage = enter(n, c, room, q, c.norms[2 * layer + 1], m.blocks, stage)
        first, last = claim(sync, stage, mlp // BLOCK, n)
        while first < last:
            if c.activation == SWIGLU:
                matrix(
                    m.blocks, at[GATE, 0], at[GATE, 1], wide, m.scales,
                    room.h, q, room.q_scales, room.q_begin, zero, rows, room.gate, first, last,
                )  # fmt: skip
                add_bias(c, room.gate, rows, at[GATE, 2], first * BLOCK, last * BLOCK, c.mlp_width)
            matrix(m.blocks, at[UP, 0], at[UP, 1], wide, m.scales, room.h, q, room.q_scales, room.q_begin, zero, rows, room.y, first, last)
            add_bias(c, room.y, rows, at[UP, 2], first * BLOCK, last * BLOCK, c.mlp_width)
            for r in range(rows):
                activate(c, room.y[r, first * BLOCK : last * BLOCK], room.gate[r, first * BLOCK : last * BLOCK])
                prepare(m.blocks, room.y[r], first * GROUPS, last * GROUPS, p[r], room.p_scales[r], room.p_begin[r])
            first, last = following(sync, stage, first, last, mlp // BLOCK, n)
        stage = settle(sync, stage, mlp // BLOCK)
        first, last = claim(sync, stage, wide // BLOCK, n)
        while first < last:
            matrix(
                m.blocks, at[DOWN, 0], at[DOWN, 1], mlp, m.scales, room.y, p, room.p_scales, room.p_begin, zero, rows, room.z, first, last
            )
            leave(c, room, at[DOWN, 2], first * BLOCK, last * BLOCK)
            first, last = following(sync, stage, first, last, wide // BLOCK, n)
        stage = settle(sync, stage, wide // BLOCK)
    stage = enter(n, c, room, q, c.norms[2 * len(c.table)], m.head, stage)
    first, last = claim(sync, stage, vocab, n)
    while first < last:
        matrix(
            m.head, zero, zero, wide, m.head_scales,
            room.h, q, room.q_scales, room.q_begin, room.now[1], rows - room.now[1], room.logits, first, last,
        )  # fmt: skip
        first, last = following(sync, stage, first, last, vocab, n)
    settle(sync, stage, vocab)


@njit(**EXACT)
def take_part(t, n, c, m, room, q, p):
    """Thread 0: compute the step that is asked for with the other threads, 0; or nothing, and the number of one that must be woken first.

    Another thread: compute its part of every step that it is called to; 1 when dismissed, 0 when no call came for a while.
    """
    sync = room.sync
    if t == 0:
        sleeping = hold(sync, n)
        if sleeping:
            return sleeping
        for i in range(3):
            room.now[i] = room.asked[-1, i]
        for r in range(room.now[0]):
            for i in range(3):
                room.rows[r, i] = room.asked[r, i]
        for i in range(sync[COUNTERS], len(sync), 8):
            sync[i] = 0
        for other in range(1, n):
            publish(sync, STATE + 8 * other, CALLED)
    while True:
        if t > 0:
            called = wait(sync, t)
            if called != CALLED:
                return int(called == DISMISSED)
        step(t, n, c, m, room, q, p)
        if t == 0:
            return 0
        turn(sync, STATE + 8 * t, CALLED, AWAKE)
