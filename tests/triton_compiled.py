"""The Triton kernels as machine code of GPUs that are not there: test_triton.py runs this file in a process of its own."""

from functools import cache
from tempfile import TemporaryDirectory

import pytest
import torch
from triton_offline import Compiled, calls, compiled, page

ARCHES = (80, 90)  # an A100's and an H100's


@cache
def kernels(arch: int) -> tuple[Compiled, ...]:
    """Of all operations in bfloat16, attention with heads of three widths and in float32."""
    launched = [
        *calls(torch.bfloat16),
        *(call for width in (32, 128) for call in calls(torch.bfloat16, width) if page(call) == "attention"),
        *(call for call in calls(torch.float32) if page(call) in ("attention", "gelu", "layer_norm", "cross_entropy")),
    ]
    with TemporaryDirectory() as folder:
        return tuple(compiled(call, arch, folder) for call in launched)


@pytest.mark.parametrize("arch", ARCHES)
def test_every_value_finds_a_register(arch):
    assert {(k.name, k.stack) for k in kernels(arch) if k.stack} == set()


@pytest.mark.parametrize("arch", ARCHES)
def test_memory_is_read_16_bytes_at_a_time(arch):
    assert {k.name for k in kernels(arch) if not k.has(r"LDG\S*\.128") and not k.has(r"LDGSTS\S*\.128")} == set()


@pytest.mark.parametrize("arch", ARCHES)
def test_gelu_in_bfloat16_has_one_instruction_for_tanh(arch):
    """8 values a thread: as many instructions, in the machine code as in Triton's assembly."""
    found = [k for k in kernels(arch) if k.name.startswith("gelu.")]
    fast = [k for k in found if k.has("MUFU.TANH")]
    assert len(fast) == 4  # forward and backward, with bias and without
    assert all(k.has("MUFU.TANH") == k.ptx.count("tanh.approx.f32") == 8 and not k.has("MUFU.EX2") for k in fast)
    assert len(found) == 8 and all(k.has("MUFU.EX2") for k in found if k not in fast)  # float32 keeps its digits


@pytest.mark.parametrize("arch", ARCHES)
def test_products_in_bfloat16_are_the_tensor_cores(arch):
    instruction = {80: "HMMA", 90: "HGMMA"}[arch]
    found = {k.name for k in kernels(arch) if k.has(instruction)}
    assert found == {"attention.forward_kernel", "attention.queries_kernel", "attention.keys_kernel", "newton_schulz.kernel"}
