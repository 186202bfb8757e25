"""Compiling a kernel for a GPU that is not there, exactly as a call of it would be compiled, and reading the machine code."""

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from andrea.kernels.gpu import adamw, attention, cross_entropy, embedding, gelu, layer_norm, newton_schulz

TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
TYPES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.int64: "i64"}
ALIGNED = [["tt.divisibility", 16]]  # what a launch tells the compiler of addresses and numbers that are multiples of 16


@dataclass(frozen=True)
class Compiled:
    name: str  # page and kernel
    arch: int  # 80 is an A100's, 90 an H100's
    ptx: str
    sass: str  # machine code, an instruction a line
    registers: int  # a thread
    stack: int  # bytes of it: what did not find a register
    shared: int  # bytes a program

    def has(self, instruction: str) -> int:
        return len(re.findall(rf"\b{instruction}", self.sass))


Call = tuple[Any, tuple[Any, ...], dict[str, Any]]  # a kernel, what it was called with, and its constants


def page(call: Call) -> str:
    return str(call[0].fn.__module__).rsplit(".", 1)[1]


def compiled(call: Call, arch: int, folder: str) -> Compiled:
    kernel, args, constants = call
    options = {key: constants[key] for key in ("num_warps", "num_stages") if key in constants}
    names = [p.name for p in kernel.params]
    values = dict(zip(names, args, strict=False)) | {key: value for key, value in constants.items() if key in names}
    signature, fixed, known = {}, {}, {}
    for place, name in enumerate(names):
        value = values[name]
        if isinstance(value, Tensor):
            signature[name] = "*" + TYPES[value.dtype]
        elif kernel.params[place].is_constexpr or value is None or (type(value) is int and value == 1):
            signature[name] = "constexpr"
            fixed[name] = value
        else:
            signature[name] = "fp32" if isinstance(value, float) else "i32" if abs(value) < 2**31 else "i64"
        if isinstance(value, Tensor) or (signature[name] in ("i32", "i64") and value % 16 == 0):
            known[(place,)] = ALIGNED
    made = triton.compile(ASTSource(kernel, signature, fixed, known), GPUTarget("cuda", arch, 32), options)
    file = Path(folder) / f"{made.metadata.name}-{arch}.cubin"
    file.write_bytes(made.asm["cubin"])
    usage = read("cuobjdump", "--dump-resource-usage", file)
    number = lambda what: int(re.search(rf"{what}:(\d+)", usage)[1])
    name = f"{page(call)}.{kernel.fn.__name__}"
    return Compiled(
        name, arch, made.asm["ptx"], read("nvdisasm", "--print-code", file), number("REG"), number("STACK"), made.metadata.shared
    )


def read(tool: str, *args: Any) -> str:
    return subprocess.run([TOOLS / tool, *args], capture_output=True, text=True, check=True).stdout


def calls(dtype: torch.dtype, d_head: int = 64) -> list[Call]:
    """What every operation launches, both directions, for sizes of andrea-120m; nothing runs."""
    launched: list[Call] = []
    pages = (adamw, attention, cross_entropy, embedding, gelu, layer_norm, newton_schulz)
    kept = [module.launch for module in pages]
    for module in pages:
        module.launch = lambda kernel, grid, *args, **constants: launched.append((kernel, args, constants))
    try:
        x, wide, bias = torch.zeros(8, 768, dtype=dtype), torch.zeros(8, 3072, dtype=dtype), torch.zeros(3072)
        gamma, ids = torch.zeros(768), torch.zeros(1, 8, dtype=torch.long)
        W = torch.zeros(8449, 768)
        qkv = torch.zeros(1, 1024, 3 * 768, dtype=dtype)
        q, k, v = (part.unflatten(-1, (768 // d_head, d_head)).transpose(1, 2) for part in qkv.chunk(3, -1))
        gelu.gelu(wide), gelu.gelu_backward(wide, wide), gelu.gelu(wide, bias), gelu.gelu_backward(wide, wide, bias)
        layer_norm.layer_norm(x, gamma, gamma), layer_norm.layer_norm_backward(x, x, gamma)
        layer_norm.add_layer_norm(x, x, gamma, gamma), layer_norm.add_layer_norm_backward(x, x, x, gamma)
        cross_entropy.linear_cross_entropy(x[None], W, ids, 0.0, dtype, 8)
        y, lse = attention.flash(q, k, v)
        attention.flash_backward(y, q, k, v, y, lse)
        embedding.embedding(ids, W), embedding.embedding_backward(torch.zeros(1, 8, 768), ids, 8449)
        square = newton_schulz.symmetric(qkv[:, :768, :768])
        newton_schulz.symmetric(square, square, 2.0, 0.5)
        adamw.adamw([gamma], [gamma], [gamma], [gamma], [torch.ones(())], 1e-3, 0.9, 0.95, 1e-8, 0.1)
    finally:
        for module, launch in zip(pages, kept, strict=True):
            module.launch = launch
    return launched
