"""Weights in fewer bits, and the file that keeps them beside the model they came from: RUN/checkpoints/step-N/packed-PRECISION.safetensors.

    float32, bfloat16   the numbers themselves
    int8                codes -127 .. 127 (N, K) and one scale for each row, float32
    int4                codes -8 .. 7 and a scale for every 32 columns of a row, bfloat16; embedding and output projection are int8

Norms, biases and learned positions stay float32. A byte of int4 holds columns c (its lower half) and c + 4, for c in the first four of
every eight columns, as kernels/decode.py multiplies them.

Rounding one number leaves an error, and the numbers of the same row that are not rounded yet can make good for it as far as their inputs
go together: GPTQ, Frantar et al. 2022, arXiv:2210.17323, algorithm 1. It needs text to see those inputs; without, every number
is rounded by itself.
"""

import json
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from andrea.accounting import parameters
from andrea.checkpoint import Run, header, set_weights, weights, write_tensors
from andrea.config import ModelConfig, from_dict, to_dict
from andrea.evaluate import TokenSequence, spread, windows
from andrea.files import Damaged, flush, parse, read_json, shown
from andrea.model import Transformer, unfilled
from andrea.model.attention import Attend
from andrea.model.transformer import Block
from andrea.run_folder import check_version

GROUP = 32  # columns of int4 that share a scale, and inputs that do in both
CALIBRATION = 16_384  # tokens of training text that show what inputs a matrix has
OUTER = ("token_embed.weight", "unembed.weight")
STORED = {"bfloat16": "BF16", "int8": "I8", "int4": "U8"}  # precision -> how safetensors calls its codes
METHODS = {
    "float32": "as trained",
    "bfloat16": "nearest",
    "int8": "gptq, a scale for each row",
    "int4": f"gptq, a scale for {GROUP} columns",
}


@dataclass(frozen=True)
class Packed:
    """A model's weights by name, without a tied output projection: codes, and the scales of those that have some."""

    config: ModelConfig
    precision: str
    tensors: dict[str, Tensor]
    scales: dict[str, Tensor] = field(default_factory=dict)

    @property
    def n_bytes(self) -> int:
        return sum(t.nbytes for part in (self.tensors, self.scales) for t in part.values())


def is_matrix(name: str, shape: tuple[int, ...]) -> bool:
    """Whether a weight is multiplied, and so packed."""
    return len(shape) == 2 and name != "position_embed.weight"


@torch.no_grad()
def pack(model: Transformer, precision: str, ids: Tensor | None = None) -> Packed:
    """The weights of a model in `precision`; with ids (B, T) of training text int8 and int4 are rounded as that text makes best."""
    if precision not in METHODS:
        raise ValueError(f"precision {precision!r} is none of {', '.join(METHODS)}")
    tensors, scales = {name: t.detach() for name, t in weights(model).items()}, {}
    if precision == "bfloat16":
        tensors = {name: t.to(torch.bfloat16) if is_matrix(name, t.shape) else t for name, t in tensors.items()}
    elif precision in ("int8", "int4"):
        if bad := next((name for name, t in tensors.items() if not t.isfinite().all()), None):
            raise ValueError(
                f"{bad} holds numbers that are not finite; such a model cannot be rounded, and an earlier checkpoint may be sound"
            )
        for name in [name for name in OUTER if name in tensors]:
            tensors[name], scales[name] = rounded(tensors[name], "int8")
        for name, weight, gram in matrices(model, precision, ids):
            if gram is not None and not gram.isfinite().all():
                raise ValueError(f"what {name} reads is beyond float32 on the training text; such a model cannot be rounded")
            tensors[name], scales[name] = rounded(weight.detach(), precision, gram)
            weight.copy_(numbers(tensors[name], scales[name], weight.shape))
    return Packed(model.config, precision, tensors, scales)


def matrices(model: Transformer, precision: str, ids: Tensor | None) -> Iterator[tuple[str, Tensor, Tensor | None]]:
    """Name and weight of every linear layer of a copy of the blocks, in order, and X^T X of its inputs over `ids`.

    What is written to a weight before the next block's are asked for is what the later inputs come from.
    """
    model = rounds_inputs(deepcopy(model).eval(), precision)
    x = None if ids is None else model.embed(ids, None)
    for i, block in enumerate(model.blocks):
        assert isinstance(block, Block)
        layers = {name: layer for name, layer in block.named_modules() if isinstance(layer, nn.Linear)}
        grams = {} if x is None else products(block, layers, x)
        for name, layer in layers.items():
            yield f"blocks.{i}.{name}.weight", layer.weight, grams.get(name)
        x = None if x is None else torch.cat([block(rows) for rows in some(x)])


def products(block: Block, layers: dict[str, nn.Linear], x: Tensor) -> dict[str, Tensor]:
    """X^T X (K, K) of the inputs X (tokens, K) of each layer when the block reads x."""
    grams: dict[str, Tensor] = {}

    def add(name: str, read: Tensor) -> None:
        rows = read.flatten(0, -2)
        grams[name] = grams.get(name, 0) + rows.mT @ rows

    hooks = [layer.register_forward_hook(lambda _, read, __, name=name: add(name, read[0])) for name, layer in layers.items()]
    for rows in some(x):
        block(rows)
    for hook in hooks:
        hook.remove()
    return grams


def some(x: Tensor) -> tuple[Tensor, ...]:
    """x (B, T, D) in parts of a few thousand tokens, whatever T is."""
    return x.split(max(1, 4096 // x.shape[1]))


def rounded(w: Tensor, precision: str, gram: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Codes and scales of a matrix (N, K)."""
    K = w.shape[1]
    wide, group = F.pad(w.float(), (0, -K % GROUP)), GROUP if precision == "int4" else -(-K // GROUP) * GROUP
    low, high = (-8, 7) if precision == "int4" else (-127, 127)
    if gram is None:
        scales = scale(wide.unflatten(1, (-1, group)).flatten(0, 1), precision).unflatten(0, (len(w), -1))
        codes = (wide / scales.float().repeat_interleave(group, 1)).round().clamp(low, high)
    else:
        codes, scales = compensated(wide, gram, precision, group, (low, high))
    codes = codes.to(torch.int8)
    if precision == "int8":
        return codes[:, :K].contiguous(), scales
    pairs = (codes + 8).unflatten(1, (-1, 2, 4))
    return (pairs[:, :, 0] | pairs[:, :, 1] << 4).flatten(1).view(torch.uint8), scales


def compensated(w: Tensor, gram: Tensor, precision: str, group: int, ends: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """The same where the error of every column is made good by the columns after it."""
    w, K = w.clone(), w.shape[1]
    gram = F.pad(gram.double(), (0, K - len(gram), 0, K - len(gram)))
    gram += gram.diagonal().mean().clamp_min(1e-12) * 0.01 * torch.eye(K)  # GPTQ's damping
    U = torch.linalg.cholesky(torch.cholesky_inverse(torch.linalg.cholesky(gram)), upper=True).float()
    codes, scales = torch.empty_like(w), []
    for first in range(0, K, GROUP):
        last = first + GROUP
        if first % group == 0:
            scales.append(scale(w[:, first : first + group], precision))
        block, s = w[:, first:last].clone(), scales[-1].float()
        errors = torch.empty_like(block)
        for j in range(GROUP):
            codes[:, first + j] = (block[:, j] / s).round().clamp(*ends)
            errors[:, j] = (block[:, j] - codes[:, first + j] * s) / U[first + j, first + j]
            block[:, j + 1 :] -= errors[:, j, None] * U[first + j, first + j + 1 : last]
        w[:, last:] -= errors @ U[first:last, last:]
    return codes, torch.stack(scales, 1)


def scale(w: Tensor, precision: str) -> Tensor:
    """The scale (N,) of each row of w (N, group). int4: the one of least squared error, of some that cut the largest number or not."""
    largest = w.gather(1, w.abs().argmax(1, keepdim=True))[:, 0]
    if precision == "int8":
        return torch.where(largest == 0, 1.0, largest.abs() / 127)
    best, least = torch.ones_like(largest, dtype=torch.bfloat16), torch.full_like(largest, torch.inf)
    for ratio in (-8, -7.5, -7, -6.5, -9, 7, 6.5, 7.5):  # which code the largest would have
        tried = (largest / ratio).to(torch.bfloat16)
        s = tried.float()[:, None]
        error = ((w / s).round().clamp(-8, 7) * s - w).square().sum(1)
        better = error < least  # never where the row is zeros: that is nan
        best, least = torch.where(better, tried, best), torch.where(better, error, least)
    return best


def numbers(codes: Tensor, scales: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The matrix (N, K), float32, that codes and scales stand for."""
    if codes.dtype == torch.uint8:
        codes = torch.stack([codes & 15, codes >> 4], -1).unflatten(1, (-1, 4)).transpose(2, 3).flatten(1).to(torch.int8) - 8
    scales = scales.float()
    wide = codes.float() * (scales if scales.shape[1] == 1 else scales.repeat_interleave(GROUP, 1))
    return wide[:, : shape[1]]


@torch.no_grad()
def as_model(packed: Packed) -> Transformer:
    """A Transformer with the weights that `packed` stands for and inputs rounded as the decode step rounds them: its plain reference."""
    shapes = dict(parameters(packed.config))
    model = unfilled(packed.config)
    whole = {n: numbers(t, packed.scales[n], shapes[n]) if n in packed.scales else t.float() for n, t in packed.tensors.items()}
    set_weights(model, whole)
    return rounds_inputs(model.eval(), packed.precision)


def rounds_inputs(model: Transformer, precision: str) -> Transformer:
    """The model, changed: what its matrices read is rounded first. bfloat16: to that; int8, int4: to 127 steps of the largest of 32.
    Queries, keys and values are bfloat16 in all three."""

    def nearest(x: Tensor) -> Tensor:
        if precision == "bfloat16":
            return x.to(torch.bfloat16).float()
        groups = F.pad(x, (0, -x.shape[-1] % GROUP)).unflatten(-1, (-1, GROUP))
        largest = groups.abs().amax(-1, keepdim=True)
        codes = (groups * (127 / largest.clamp_min(1e-30))).round()
        return (codes * (largest / 127)).flatten(-2)[..., : x.shape[-1]]

    if precision != "float32":
        for module in model.blocks.modules():
            if isinstance(module, nn.Linear):
                module.register_forward_pre_hook(lambda _, read: (nearest(read[0]), *read[1:]))
            if isinstance(module, Attend):
                module.register_forward_pre_hook(lambda _, read: tuple(x.to(torch.bfloat16).float() for x in read))
        model.final_norm.register_forward_hook(lambda _, __, given: nearest(given))  # the loss reads the output projection past its module
    return model


def calibration(tokens: TokenSequence, context: int) -> Tensor:
    """Windows (B, T) of training text, spread evenly, at most CALIBRATION tokens or one window; fewer where there is less text."""
    spans = [(start, stop - 1) for start, stop in windows(len(tokens), context)]
    whole = [span for span in spans if span[1] - span[0] == context] or spans[:1]
    chosen = spread(whole, max(1, CALIBRATION // context))
    return torch.stack([torch.from_numpy(tokens.read(start, stop)).long() for start, stop in chosen])


# --- the file -----------------------------------------------------------------------------------------------------------------------


def place(run: Run, precision: str) -> Path:
    return run.path / "checkpoints" / f"step-{run.step}" / f"packed-{precision}.safetensors"


def source(run: Run) -> str:
    """The checksum of the weights that a run was loaded with, as its manifest has it."""
    path = run.path / "checkpoints" / f"step-{run.step}" / "manifest.json"
    found = read_json(path).get("files")
    entry = found.get("model.safetensors") if isinstance(found, dict) else None
    if not isinstance(entry, dict) or not isinstance(entry.get("sha256"), str):
        raise Damaged(f"{path} is damaged: it has no checksum of model.safetensors")
    return entry["sha256"]


def write_packed(run: Run, packed: Packed) -> Path:
    """Write the file in one step: whoever reads it sees the old or the new."""
    path = place(run, packed.precision)
    partial = path.with_name(path.name + ".partial")
    about = {
        "config": json.dumps(to_dict(packed.config)),
        "precision": packed.precision,
        "method": METHODS[packed.precision],
        "source": source(run),
    }
    try:
        write_tensors(partial, packed.tensors | {f"{name}.scales": s for name, s in packed.scales.items()}, about)
        flush(partial)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return path


def open_packed(run: Run, precision: str) -> Packed:
    """What write_packed wrote for this checkpoint. The tensors are the file, mapped.

    Raises ValueError where there is none, where it was made from other weights, and for one that is damaged or newer.
    """
    path = place(run, precision)
    again = f"make it with: andrea quantize {run.path} --to {precision}"
    if not path.exists():
        raise ValueError(f"{run.path} has no {path.name} at step {run.step}; {again}")
    found = header(path)
    try:
        with safe_open(path, "pt") as file:
            about = file.metadata() or {}
        tensors = load_file(path)
    except (OSError, SafetensorError) as error:
        raise Damaged(f"{path} cannot be read as safetensors: {error}") from None
    version = about.get("format_version", "")
    check_version(path, {"format_version": int(version) if version.isascii() and version.isdigit() and len(version) < 10 else version})
    try:
        config = from_dict(ModelConfig, parse(about.get("config", ""), f"{path}: config"))
    except ValueError as error:
        raise Damaged(f"{path} is damaged: {error}; {again}") from None
    if config != run.config.model or about.get("precision") != precision or about.get("source") != source(run):
        raise ValueError(f"{path} was made from other weights than the model beside it; {again}")
    wanted = layout(config, precision)
    if wrong := sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name)):
        raise Damaged(
            f"{path} is damaged: {shown(wrong[0])} is {shown(found.get(wrong[0]))}; wanted {shown(wanted.get(wrong[0]))}; {again}"
        )
    scales = {name: tensors.pop(f"{name}.scales") for name in [n for n in tensors if f"{n}.scales" in tensors]}
    if not all(t.isfinite().all() for t in [*scales.values(), *(t for t in tensors.values() if t.dtype == torch.float32)]):
        raise Damaged(f"{path} is damaged: it holds what is no number; {again}")
    return Packed(config, precision, tensors, scales)


def layout(config: ModelConfig, precision: str) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Name -> dtype and shape of every tensor of the file."""
    found: dict[str, tuple[str, tuple[int, ...]]] = {}
    for name, shape in parameters(config):
        if not is_matrix(name, shape):
            found[name] = ("F32", shape)
            continue
        N, K = shape
        kind = STORED["int8" if precision == "int4" and name in OUTER else precision]
        groups = -(-K // GROUP)
        found[name] = (kind, (N, groups * GROUP // 2) if kind == "U8" else shape)
        if kind != "BF16":
            found[f"{name}.scales"] = ("BF16", (N, groups)) if kind == "U8" else ("F32", (N, 1))
    return found
