"""The compiled step against the model: every architecture and precision, alone and beside others, in pieces, from several threads.

Tolerances: float32 keeps 24 bits, and sums of up to 100 terms in another order lose a few of them: 1e-5 of the largest logit. Where inputs
are rounded to bfloat16 or int8, the reference rounds too, but a number that float32's last bits put on the other side of a boundary
moves by a whole step: 2^-8 of itself in bfloat16, 1/127 of the largest of 32 in int8. Of the thousands of numbers rounded for a logit
a few do, each one of dozens of terms: hundredths of a logit, while a mistake moves logits by their whole size.
"""

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from reference import random_ids, randomise, tiny

from andrea.config import ModelConfig
from andrea.data.tokenizer import byte_tokenizer
from andrea.infer import Sampling
from andrea.infer.cpu import ROWS, CpuDecoder, decoder_for, yield_address
from andrea.infer.decoder import TorchDecoder
from andrea.infer.engine import Engine
from andrea.infer.quantize import METHODS, as_model, pack
from andrea.model import Transformer

CLOSE = {"float32": 1e-5, "bfloat16": 2e-2, "int8": 4e-2, "int4": 4e-2}
SHAPES = {
    "the specification's": {},
    "rotary": {"positions": "rotary"},
    "post-norm": {"norm": "post"},
    "no norm": {"norm": "none"},
    "no residual": {"residual": False},
    "post-norm, no residual": {"norm": "post", "residual": False},
    "ReLU": {"activation": "relu"},
    "SwiGLU": {"activation": "swiglu"},
    "no biases": {"bias": False},
    "untied": {"tied": False},
    "odd": {"d_model": 45, "n_head": 5, "vocab_size": 67, "context": 19, "mlp_dim": 71},
    "one head": {"n_head": 1, "n_layer": 1, "d_model": 7, "context": 1},
    "three heads": {"n_head": 3, "d_model": 96, "positions": "rotary", "activation": "swiglu", "tied": False, "bias": False},
}

pytestmark = pytest.mark.usefixtures("one_thread")


def model_of(**changes) -> Transformer:
    return randomise(Transformer(tiny(context=40, **changes) if "context" not in changes else tiny(**changes))).eval()


def spoken(decoder, slot: int, ids: list[int], start: int = 0) -> np.ndarray:
    """Logits (T, V) after each id, token by token."""
    return np.stack([decoder.step([slot], [id], [start + i])[0] for i, id in enumerate(ids)])


@pytest.mark.parametrize("precision", METHODS)
@pytest.mark.parametrize("shape", SHAPES)
def test_the_step_equals_the_model(shape, precision):
    model = model_of(**SHAPES[shape])
    packed = pack(model, precision)
    ids = random_ids(model.config, model.config.context)  # to the last position
    with torch.no_grad():
        wanted = as_model(packed)(ids[None])[0].numpy()
    found = spoken(CpuDecoder(packed), 0, ids.tolist())
    assert found.dtype == np.float32 and found.shape == wanted.shape
    assert np.abs(found - wanted).max() <= CLOSE[precision] * np.abs(wanted).max()


def test_float32_is_the_model_itself():
    model = model_of()
    ids = random_ids(model.config, 21)
    with torch.no_grad():
        wanted = model(ids[None])[0].numpy()
    np.testing.assert_allclose(spoken(CpuDecoder(pack(model, "float32")), 0, ids.tolist()), wanted, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.parametrize("precision", METHODS)
def test_sequences_together_are_bit_for_bit_what_each_is_alone(precision):
    """Seven of unequal length: rows are computed by fours and one by one."""
    model = model_of(positions="rotary", d_model=48)
    packed, n = pack(model, precision), 7
    texts = [random_ids(model.config, 3 + 4 * i, seed=i).tolist() for i in range(n)]
    together, alone = CpuDecoder(packed, slots=n), CpuDecoder(packed)
    for slot, text in enumerate(texts):
        together.extend(slot, text, 0)
    for step in range(5):
        order = list(range(step, n))[:: -1 if step % 2 else 1]  # one leaves at every step
        found = together.step(order, [step] * len(order), [len(texts[slot]) + step for slot in order])
        for slot, logits in zip(order, found, strict=True):
            alone.extend(0, texts[slot] + list(range(step)), 0)
            assert np.array_equal(logits, alone.step([0], [step], [len(texts[slot]) + step])[0])


@pytest.mark.parametrize("precision", METHODS)
def test_a_prompt_has_the_same_bits_in_one_go_in_pieces_and_token_by_token(precision):
    model = model_of(context=2 * ROWS + 3)
    packed = pack(model, precision)
    decoder = CpuDecoder(packed, slots=3)
    ids = random_ids(model.config, 2 * ROWS + 3).tolist()  # more than are computed together
    whole = decoder.extend(0, ids, 0)
    for start, stop in ((0, 1), (1, 7), (7, 64), (64, 65), (65, 64 + ROWS + 5), (64 + ROWS + 5, len(ids))):
        pieces = decoder.extend(1, ids[start:stop], start)
    assert np.array_equal(whole, pieces)
    assert np.array_equal(whole, spoken(decoder, 2, ids)[-1])
    assert np.array_equal(whole, decoder.step([1] * len(ids), ids, range(len(ids)))[-1])


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_number_of_threads_changes_no_bit(threads):
    model = model_of(d_model=96, n_head=3)
    ids = random_ids(model.config, 30).tolist()
    for precision in ("float32", "int4"):
        packed = pack(model, precision)
        assert np.array_equal(CpuDecoder(packed, threads=threads).extend(0, ids, 0), CpuDecoder(packed, threads=1).extend(0, ids, 0))


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("d_model", "n_head", "mlp_dim", "activation"), [(45, 5, 71, "gelu"), (100, 4, 45, "swiglu"), (200, 8, 333, "gelu")]
)
def test_at_odd_widths_no_share_of_a_thread_and_no_cut_of_a_prompt_changes_a_bit(d_model, n_head, mlp_dim, activation, precision):
    """Threads take other shares every time: loops begin and end at other columns."""
    packed = pack(model_of(d_model=d_model, n_head=n_head, mlp_dim=mlp_dim, activation=activation, vocab_size=131), precision)
    ids = random_ids(packed.config, 40).tolist()
    wanted = CpuDecoder(packed).step([0] * 40, ids, range(40))
    for threads in (2, 3, 4):
        decoder = CpuDecoder(packed, slots=2, threads=threads)
        for cut in (1, 8, 13, 37):
            assert np.array_equal(decoder.step([0] * 40, ids, range(40)), wanted)
            decoder.extend(1, ids[:cut], 0)
            assert np.array_equal(decoder.extend(1, ids[cut:], cut), wanted[-1])


def test_where_memory_lies_changes_no_bit():
    """LLVM looks whether what a loop writes begins shortly behind what it reads, and then takes numbers one by one, not in vectors."""
    packed = pack(model_of(positions="rotary", d_model=48), "float32")  # the last norm is the end of `small`
    ids = random_ids(packed.config, 20).tolist()
    far, near = CpuDecoder(packed), CpuDecoder(packed)
    n, rest, matrices, room, *inputs = near.parts
    memory = np.zeros(rest.small.size + room.h.size, np.float32)
    small, h = memory[: rest.small.size], memory[rest.small.size :].reshape(room.h.shape)
    small[:] = rest.small
    near.room = room._replace(h=h)
    near.parts = (n, rest._replace(small=small), matrices, near.room, *inputs)
    assert np.array_equal(spoken(near, 0, ids), spoken(far, 0, ids))


def test_a_process_that_compiles_has_the_bits_of_one_that_loads(tmp_path):
    """LLVM compiles a function that others call more than once, and which of these runs depends on what else is in memory."""
    code = """if True:
        import sys
        sys.path.insert(0, 'tests')
        from test_cpu_step import CpuDecoder, model_of, pack, random_ids, spoken
        for changes in ({}, {'positions': 'rotary', 'activation': 'swiglu', 'd_model': 100, 'n_head': 5}):
            decoder = CpuDecoder(pack(model_of(**changes), 'float32'), threads=1)
            print(spoken(decoder, 0, random_ids(decoder.config, 20).tolist()).tobytes().hex())
        print(sum(decoder.take_part.stats.cache_misses.values()))
    """
    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    runs = [subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True) for _ in range(2)]
    (*compiled, misses), (*loaded, none) = (run.stdout.splitlines() for run in runs)
    assert (misses, none) == ("1", "0")
    assert compiled == loaded


@pytest.mark.parametrize("precision", METHODS)
def test_matrices_and_caches_begin_at_a_cache_line(precision):
    """Where they do not, every vector that is read stands in two."""
    _, _, matrices, room, *inputs = CpuDecoder(pack(model_of(d_model=96, n_head=3), precision), threads=1).parts
    assert not any(a.ctypes.data % 64 for a in (matrices.blocks, matrices.head, matrices.embed, room.keys, room.values, *inputs))


def test_a_slot_used_again_keeps_nothing_of_what_stood_there():
    model = model_of()
    packed = pack(model, "float32")
    used, fresh = CpuDecoder(packed, slots=2), CpuDecoder(packed, slots=2)
    used.room.keys[:] = used.room.values[:] = np.nan  # whatever stands past the end is not read
    used.extend(1, random_ids(model.config, 40, seed=1).tolist(), 0)
    ids = random_ids(model.config, 17, seed=2).tolist()
    assert np.array_equal(used.extend(1, ids, 0), fresh.extend(1, ids, 0))
    assert np.array_equal(spoken(used, 1, [1, 2, 3], 17), spoken(fresh, 1, [1, 2, 3], 17))


@pytest.mark.parametrize("length", [0, 1, 16, 17, 33])
def test_a_copied_slot_goes_on_as_its_source(length):
    model = model_of()
    decoder, ids = CpuDecoder(pack(model, "float32"), slots=3), random_ids(model.config, 36).tolist()
    wanted = decoder.extend(0, ids, 0)
    decoder.copy(0, 2, length)
    assert np.array_equal(decoder.extend(2, ids[length:], length), wanted)
    assert np.array_equal(decoder.extend(0, ids[35:], 35), wanted)  # the source is as it was


def test_two_python_threads_at_once_are_safe():
    model = model_of(d_model=96, n_head=3)
    decoder = CpuDecoder(pack(model, "float32"), slots=2, threads=2)
    texts = [random_ids(model.config, 12, seed=i).tolist() for i in range(2)]
    alone = [spoken(decoder, slot, text) for slot, text in enumerate(texts)]
    other = CpuDecoder(pack(model, "float32"), slots=2, threads=2)  # and another with threads of its own
    with ThreadPoolExecutor(4) as pool:
        found = [pool.submit(spoken, d, slot, text) for d in (decoder, other) for slot, text in enumerate(texts)]
    for logits, wanted in zip(found, alone * 2, strict=True):
        assert np.array_equal(logits.result(), wanted)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_decoder_goes_on_in_a_process_forked_from_its_own():
    """And in one forked from that, while the first goes on, too. A process that hangs is ended by its alarm."""
    code = """if True:
        import os, signal, sys
        sys.path.insert(0, 'tests')
        from reference import randomise, tiny
        from andrea.infer.cpu import CpuDecoder
        from andrea.infer.quantize import pack
        from andrea.model import Transformer
        decoder = CpuDecoder(pack(randomise(Transformer(tiny())).eval(), 'float32'), slots=2, threads=3)
        wanted = decoder.extend(0, [1, 2, 3], 0)
        for depth in range(2):
            child = os.fork()
            signal.alarm(120)
            for _ in range(3):
                assert (decoder.extend(1, [1, 2, 3], 0) == wanted).all()
            if child:
                os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        os._exit(0)
    """
    assert subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=False).returncode == 0


def test_threads_end_with_their_decoder():
    before = set(threading.enumerate())
    decoder = CpuDecoder(pack(model_of(), "float32"), threads=3)
    decoder.extend(0, [1, 2], 0)
    mine = set(threading.enumerate()) - before
    assert len(mine) == 2
    del decoder
    for thread in mine:
        thread.join(60)
        assert not thread.is_alive()


@pytest.mark.parametrize(
    ("slots", "ids", "positions", "told"),
    [
        ([2], [0], [0], "slots 2 to 2"),
        ([0], [61], [0], "ids 61 to 61"),
        ([0], [-1], [0], "ids -1 to -1"),
        ([0], [0], [40], "positions 40 to 40"),
    ],
)
def test_what_would_be_written_outside_is_refused(slots, ids, positions, told):
    decoder = CpuDecoder(pack(model_of(), "float32"), slots=2)
    with pytest.raises(ValueError, match=told):
        decoder.step(slots, ids, positions)
    with pytest.raises(ValueError, match=told):
        decoder.extend(slots[0], ids, positions[0])


def test_a_decoder_without_slots_or_threads_is_refused():
    packed = pack(model_of(), "float32")
    with pytest.raises(ValueError, match="slots=0"):
        CpuDecoder(packed, slots=0)
    with pytest.raises(ValueError, match="threads=0"):
        CpuDecoder(packed, threads=0)


@dataclass
class Run:
    model: Transformer


def test_the_engine_answers_the_same_through_either_decoder():
    tokenizer = byte_tokenizer()
    model = randomise(Transformer(ModelConfig(tokenizer.vocab_size, 48, 2, 2, 32))).eval()
    ours, reason = decoder_for(Run(model), slots=3)
    assert isinstance(ours, CpuDecoder) and "Numba" in reason
    texts = []
    for decoder in (ours, TorchDecoder(model, 3)):
        engine = Engine(decoder, tokenizer)
        sampling = Sampling(temperature=0, max_tokens=20, ignore_separator=True)
        running = [s for prompt in ("a", "The quick", "") for s in engine.add(prompt, sampling)]
        while engine.step():
            pass
        texts.append([s.ids if hasattr(s, "ids") else s.window for s in running])
    assert texts[0] == texts[1]


def test_an_unknown_precision_is_refused():
    with pytest.raises(ValueError, match="precision 'int3' is none of auto, float32"):
        decoder_for(Run(model_of()), "int3")
    with pytest.raises(ValueError, match="precision 'int3' is none of float32"):
        pack(model_of(), "int3")
    with pytest.raises(ValueError, match="precision bfloat16 is for a CPU and the model is on meta"):
        decoder_for(Run(model_of().to("meta")), "bfloat16")


def test_on_another_device_the_model_decodes_itself():
    decoder, reason = decoder_for(Run(model_of().to("meta")))
    assert isinstance(decoder, TorchDecoder) and reason == "torch, on meta"


def test_without_numba_torch_decodes_and_the_reason_is_said():
    code = """if True:
        import sys
        sys.path.insert(0, 'tests')
        sys.modules['numba'] = None
        import numpy as np, torch
        from reference import randomise, tiny
        from andrea.infer.cpu import decoder_for
        from andrea.infer.quantize import as_model, pack
        from andrea.model import Transformer
        class run: model = randomise(Transformer(tiny())).eval()
        for precision in ('auto', 'bfloat16'):
            decoder, reason = decoder_for(run, precision)
            print(type(decoder).__name__, reason)
            wanted = as_model(pack(run.model, 'float32' if precision == 'auto' else precision))(torch.tensor([[1, 2, 3]]))[0, -1]
            assert np.array_equal(decoder.extend(0, [1, 2, 3], 0), wanted.detach().numpy())
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["TorchDecoder torch: Numba does not run here: import of numba halted; None in sys.modules"] * 2


def test_the_system_can_give_a_core_away():
    assert yield_address() > 0 or sys.platform not in ("linux", "darwin", "win32")
