"""One GPU in under eight minutes: are the Triton kernels right there, how fast are they, and what do whole models gain.

    python benchmarks/gpu.py                   # on a GPU; writes gpu.json, and andrea/kernels/measured.py for kernels=auto
    python benchmarks/gpu.py --quick           # the same lines in tiny sizes; without a GPU through Triton's interpreter

Runs unattended: what fails in one part is recorded with its reason and the rest goes on; what the time does not hold is left out and
named. Times are medians of CUDA events with the L2 cache overwritten between; a share of the copy bandwidth counts what an operation
must read and write, once. FLOPs of a model are accounting.flops_per_token's, and the peak is both what a large product reached here
and what the maker states, where the name is known.
"""

import argparse
import json
import math
import os
import statistics
import sys
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
STATED = {"A100": 312e12, "H100": 989e12, "H200": 989e12}  # dense bf16 FLOP/s of the SXM forms: NVIDIA's data sheets
SECONDS = 460  # for all of it
MARGIN = 45  # for one more model to be compiled and timed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny sizes, once")
    parser.add_argument("--out", type=Path, default=Path("gpu.json"))
    parser.add_argument("--only", help="some of the parts, with commas: " + ", ".join(PARTS))
    args = parser.parse_args()
    import torch

    there = torch.cuda.is_available()
    if not there:
        os.environ["TRITON_INTERPRET"] = "1"
        torch.set_num_threads(1)
    bench = Bench("cuda" if there else "cpu", args.quick or not there)
    for name in args.only.split(",") if args.only else PARTS:
        try:
            bench.result[name] = PARTS[name](bench)
        except Exception as error:
            bench.failed(name, error)
        print(table(name, bench.result.get(name)), flush=True)
        args.out.write_text(json.dumps(bench.result, indent=1), encoding="utf-8")  # what is done is kept whatever comes
    if there and not bench.quick and (fastest := winners(bench.result)):
        try:
            write_measured(fastest)
        except OSError as error:
            bench.failed("measured.py", error)
    bench.result["seconds"] = round(perf_counter() - bench.began, 1)
    args.out.write_text(json.dumps(bench.result, indent=1), encoding="utf-8")
    for name, reason in bench.result["failed"].items():
        print(f"failed: {name}: {reason}")
    print(f"{bench.result['seconds']} s; {args.out}")


class Bench:
    """Where it runs, how a time is taken there, and what was found so far."""

    def __init__(self, device: str, quick: bool):
        import torch
        import triton

        self.device, self.quick, self.began = device, quick, perf_counter()
        gpu = torch.cuda.get_device_name() if device == "cuda" else None
        self.result: dict[str, Any] = {"gpu": gpu, "torch": torch.__version__, "triton": triton.__version__, "quick": quick, "failed": {}}
        self.flush = torch.empty(2**28 if device == "cuda" else 1, dtype=torch.uint8, device=device)
        self.compile = partial(torch.compile, fullgraph=True, dynamic=False, backend="aot_eager" if quick else "inductor")
        self.copied: float | None = None  # bytes/s of a copy, read and written

    def failed(self, name: str, error: Exception) -> None:
        self.result["failed"][name] = (traceback.format_exception_only(error)[-1].strip() or type(error).__name__)[:500]

    def try_(self, name: str, function: Callable[[], Any]) -> Any:
        try:
            return function()
        except Exception as error:
            self.failed(name, error)
            return None

    def ms(self, function: Callable[[], Any], flush: bool = True) -> float:
        """Median milliseconds of a call."""
        import torch

        if self.device == "cpu":
            began = perf_counter()
            function()
            return 1e3 * (perf_counter() - began)
        for _ in range(3):
            function()
        torch.cuda.synchronize()
        began = perf_counter()
        function()
        torch.cuda.synchronize()
        turns = max(5, min(50, int(0.1 / (perf_counter() - began))))
        times = []
        for _ in range(turns):
            if flush:
                self.flush.zero_()
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            function()
            end.record()
            times.append((start, end))
        torch.cuda.synchronize()
        return statistics.median(start.elapsed_time(end) for start, end in times)

    def left(self) -> float:
        return SECONDS - (perf_counter() - self.began)


def machine(bench: Bench) -> list[dict[str, Any]]:
    """Copy bandwidth and the fastest bf16 product: what the rest is held against."""
    import torch

    n = 2**12 if bench.quick else 2**28
    source = torch.zeros(n, device=bench.device)
    target = torch.empty_like(source)
    bench.copied = 8 * n / bench.ms(lambda: target.copy_(source)) * 1e3
    size = 64 if bench.quick else 8192
    a = torch.randn(size, size, device=bench.device, dtype=torch.bfloat16)
    peak = 2 * size**3 / bench.ms(lambda: a @ a) * 1e3
    stated = next((flops for name, flops in STATED.items() if name in (bench.result["gpu"] or "")), None)
    bench.result |= {"copy_bytes_per_s": bench.copied, "product_flops": peak, "stated_flops": stated}
    return [{"copy GB/s": round(bench.copied / 1e9), "bf16 TFLOP/s reached": round(peak / 1e12, 1), "stated": stated and stated / 1e12}]


def correctness(bench: Bench) -> list[dict[str, Any]]:
    """Every kernel, both directions, against float64."""
    import torch
    from triton_cases import CASES

    rows = []
    for name, cases in CASES.items():
        for dtype in (torch.float32, torch.bfloat16):
            torch.manual_seed(0)
            checks = bench.try_(f"correctness {name} {dtype}", lambda: list(cases(dtype, bench.device, not bench.quick)))  # noqa: B023
            if checks:
                worst = max(checks, key=lambda c: math.inf if math.isnan(c.error) else c.error / max(c.allowed, 1e-30))
                wrong = [f"{c.what}: {c.error:.2e}, allowed {c.allowed:.2e}" for c in checks if not c.right]
                row = {"kernel": name, "dtype": str(dtype)[6:], "checks": len(checks), "largest error": float(f"{worst.error:.2e}")}
                rows.append(row | {"allowed": float(f"{worst.allowed:.2e}"), "at": worst.what, "right": not wrong, "wrong": wrong})
            elif checks is None:
                rows.append({"kernel": name, "dtype": str(dtype)[6:], "right": False, "wrong": ["it failed"]})
    return rows


def operations(bench: Bench) -> Iterator[tuple[str, Callable, Callable, tuple, int]]:
    """Of every operation: its name, torch's function, ours, inputs, and the bytes that forward must move; of sizes of andrea-120m."""
    import torch
    import torch.nn.functional as F

    from andrea.kernels import TORCH, TRITON
    from andrea.kernels.gpu import layer_norm

    N, D, V = (8, 16, 61) if bench.quick else (16_384, 768, 8449)
    make = lambda *shape, dtype=torch.float32: torch.randn(*shape, device=bench.device).to(dtype).requires_grad_()
    gamma, beta, wide = make(D), make(D), make(N, 4 * D, dtype=torch.bfloat16)
    yield "gelu", TORCH.gelu, TRITON.gelu, (wide,), 2 * 2 * wide.numel()
    bias = make(4 * D)
    biased = lambda x, b: F.gelu((x + b).to(x.dtype), approximate="tanh")
    yield "bias + gelu", biased, torch.ops.andrea.gelu, (wide, bias), 2 * 2 * wide.numel()
    for dtype, size in ((torch.float32, 4), (torch.bfloat16, 2)):
        x, r = make(N, D, dtype=dtype), make(N, D, dtype=dtype)
        plain = lambda x, g, b: F.layer_norm(x, g.shape, g.to(x.dtype), b.to(x.dtype))
        yield f"layer_norm {str(dtype)[6:]}", plain, TRITON.layer_norm, (x, gamma, beta), 2 * size * x.numel()
        both = lambda x, r, g, b: (s := x + r) + F.layer_norm(s, g.shape, g.to(x.dtype), b.to(x.dtype))
        ours = lambda x, r, g, b: sum(layer_norm.add_layer_norm(x, r, g, b))
        yield f"add + layer_norm + add {str(dtype)[6:]}", both, ours, (x, r, gamma, beta), (4 + 3) * size * x.numel()
    x, W, targets = make(N, D, dtype=torch.bfloat16), make(V, D, dtype=torch.bfloat16), torch.randint(V, (N,), device=bench.device)
    yield "linear + loss", lambda x, W: TORCH.loss(x, W, targets), lambda x, W: TRITON.loss(x, W, targets), (x, W), 0
    ids = torch.randint(V, (N,), device=bench.device)
    yield "embedding", lambda W: TORCH.embedding(ids, W), lambda W: TRITON.embedding(ids, W), (make(V, D),), 2 * 4 * N * D


def kernels(bench: Bench) -> list[dict[str, Any]]:
    """Milliseconds of forward and backward: torch's own, the same compiled, ours."""
    import torch

    rows = []

    def timed(row: dict[str, Any], way: str, function: Callable, inputs: tuple) -> None:
        out = function(*inputs)
        dy = torch.randn_like(out)
        with torch.no_grad():
            row[f"{way} forward"] = bench.ms(lambda: function(*inputs))
        row[f"{way} backward"] = bench.ms(lambda: torch.autograd.grad(out, inputs, dy, retain_graph=True))

    for name, theirs, ours, inputs, moved in operations(bench):
        row: dict[str, Any] = {"operation": name}
        for way, function in (("torch", theirs), ("compiled", bench.compile(theirs)), ("ours", ours)):
            bench.try_(f"kernels {name} {way}", partial(timed, row, way, function, inputs))
            if moved and bench.copied and f"{way} forward" in row:
                row[f"{way} of copy"] = round(moved / (row[f"{way} forward"] * 1e-3) / bench.copied, 2)
        rows.append(row)
    for name, pair in (("newton_schulz", partial(orthogonal, bench)), ("adamw", partial(updates, bench))):
        functions = bench.try_(f"kernels {name}", pair) or {}
        rows.append(
            {"operation": name} | {f"{way} forward": bench.try_(f"{name} {way}", partial(bench.ms, f)) for way, f in functions.items()}
        )
    return rows


def orthogonal(bench: Bench) -> dict[str, Callable]:
    import torch

    from andrea.kernels import TORCH, TRITON

    G = torch.randn(*((1, 16, 64) if bench.quick else (12, 768, 3072)), device=bench.device)
    dtype = torch.float32 if bench.quick else torch.bfloat16
    return {"torch": lambda: TORCH.newton_schulz(G, dtype), "ours": lambda: TRITON.newton_schulz(G, dtype)}


def updates(bench: Bench) -> dict[str, Callable]:
    """All parameters of andrea-120m, as many tensors as it has."""
    import torch

    from andrea.kernels import TORCH, TRITON
    from andrea.model import Transformer

    with torch.device(bench.device):
        held = [p.detach() for p in Transformer(config_of(bench, "andrea-120m").model).parameters()]
    grads, first, second = ([torch.full_like(p, 1e-3) for p in held] for _ in range(3))
    args = held, grads, first, second, [torch.ones((), device=bench.device) for _ in held], 1e-3, 0.9, 0.95, 1e-8, 0.1
    return {"torch": lambda: TORCH.adamw(*args), "ours": lambda: TRITON.adamw(*args)}


def attention(bench: Bench) -> list[dict[str, Any]]:
    """The backends raced at each head width of the presets: 16 sequences of 1,024 tokens, bfloat16."""
    import torch
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel

    from andrea.kernels import TRITON

    def vendor(backend: SDPBackend, q, k, v):
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    ways = {"ours": TRITON.attention} | {
        name.removesuffix("_ATTENTION").lower(): partial(vendor, getattr(SDPBackend, name))
        for name in ("FLASH_ATTENTION", "CUDNN_ATTENTION", "EFFICIENT_ATTENTION")
        if hasattr(SDPBackend, name)
    }
    rows = []
    for H, K in ((2, 16),) if bench.quick else ((12, 32), (12, 64), (24, 64)):
        B, T = (1, 8) if bench.quick else (16, 1024)
        qkv = torch.randn(B, T, 3 * H * K, device=bench.device, dtype=torch.bfloat16)
        q, k, v = (part.unflatten(-1, (H, K)).transpose(1, 2).requires_grad_() for part in qkv.chunk(3, -1))
        flops = 2 * B * H * T * T * K  # q k^T and P v, half of each
        for name, way in ways.items():

            def timed(way=way, name=name):
                out = way(q, k, v)  # noqa: B023
                dy = torch.randn_like(out)
                with torch.no_grad():
                    forward = bench.ms(lambda: way(q, k, v))  # noqa: B023
                backward = bench.ms(lambda: torch.autograd.grad(out, (q, k, v), dy, retain_graph=True))  # noqa: B023
                rates = {"forward TFLOP/s": flops / forward / 1e9, "backward TFLOP/s": 2.5 * flops / backward / 1e9}  # noqa: B023
                return {"heads": H, "width": K, "way": name, "forward ms": forward, "backward ms": backward, **rates}  # noqa: B023

            row = bench.try_(f"attention {name} {K}", timed) if bench.device == "cuda" or name == "ours" else None
            rows += [row] if row else []
    return rows


def config_of(bench: Bench, name: str) -> Any:
    from andrea.config import override
    from andrea.presets import preset

    tiny = ("vocab_size=61", "context=16", "n_layer=1", "n_head=2", "d_model=32", "batch_tokens=16")
    return override(preset(name), *tiny) if bench.quick else preset(name)


def training(bench: Bench) -> list[dict[str, Any]]:
    """Tokens a second of a whole step, bfloat16 autocast, and peak memory: eager and compiled, each with every set of kernels."""
    rows = []
    for compiles in (True, False):
        for name, sequences in (("andrea-120m", 32), ("andrea-12m", 64), ("andrea-480m", 16))[: 1 if bench.quick else 3]:
            for made_of in ("torch", "mixed", "triton"):
                what = f"training {name} {made_of} {'compiled' if compiles else 'eager'}"
                if bench.left() < MARGIN:
                    bench.result["failed"][what] = "left out: the time is up"
                elif row := bench.try_(what, partial(steps, bench, name, 1 if bench.quick else sequences, made_of, compiles)):
                    rows.append(row)
    return rows


def steps(bench: Bench, name: str, sequences: int, made_of: str, compiles: bool) -> dict[str, Any]:
    import torch

    from andrea.accounting import flops_per_token
    from andrea.kernels import BY_NAME
    from andrea.model import Transformer
    from andrea.training.optim import optimizer_for
    from andrea.training.step import train_step

    c = config_of(bench, name)
    torch.manual_seed(0)
    torch.compiler.reset()  # what was compiled for other models counts against a limit
    if bench.device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    model = Transformer(c.model, BY_NAME[made_of]).to(bench.device)
    optimizer, losses = optimizer_for(model, c.optim, torch.bfloat16, BY_NAME[made_of]), bench.compile(model) if compiles else model
    ids = torch.randint(c.model.vocab_size, (sequences, c.model.context + 1), device=bench.device)
    batch, parameters = [(ids[:, :-1], ids[:, 1:])], list(model.parameters())
    step = lambda: train_step(losses, parameters, optimizer, batch, 1e-4, 1.0, None if bench.device == "cpu" else torch.bfloat16)
    first = step()[0].item()
    ms = bench.ms(step, flush=False)
    tokens = sequences * c.model.context / ms * 1e3
    row = {"model": name, "kernels": made_of, "compiled": compiles, "ms": ms, "tokens/s": round(tokens), "loss": first}
    for peak in ("product_flops", "stated_flops"):
        if bench.result.get(peak):
            row[f"of {peak}"] = round(tokens * flops_per_token(c.model) / bench.result[peak], 3)
    return row | ({"peak GiB": round(torch.cuda.max_memory_allocated() / 2**30, 2)} if bench.device == "cuda" else {})


def decoding(bench: Bench) -> list[dict[str, Any]]:
    """Tokens a second, one after the other, bfloat16, after a prompt of half the context."""
    import torch

    from andrea.infer.cache import new_cache
    from andrea.model import Transformer

    rows = []
    for name in ("andrea-12m", "andrea-120m", "andrea-480m"):
        for batch in (1,) if bench.quick else (1, 32):

            def decode(name=name, batch=batch):
                c, n = config_of(bench, name).model, 2 if bench.quick else 64
                model = Transformer(c).to(bench.device, torch.bfloat16).eval()
                with torch.inference_mode():
                    cache = new_cache(model, batch)
                    ids = model(torch.zeros(batch, c.context // 2, dtype=torch.long, device=bench.device), cache=cache)[:, -1:].argmax(-1)

                    def some():
                        nonlocal ids
                        for layer in cache:
                            layer.length = c.context // 2
                        for _ in range(n):
                            ids = model(ids, cache=cache)[:, -1:].argmax(-1)

                    ms = bench.ms(some, flush=False)
                return {"model": name, "rows": batch, "tokens/s": round(batch * n / ms * 1e3), "ms a token": ms / n}

            row = bench.try_(f"decoding {name} {batch}", decode)
            rows += [row] if row else []
    return rows


PARTS: dict[str, Callable[[Bench], list[dict[str, Any]]]] = {
    "machine": machine,
    "correctness": correctness,
    "kernels": kernels,
    "attention": attention,
    "decoding": decoding,
    "training": training,
}


def winners(result: dict[str, Any]) -> dict[tuple[str, bool], str]:
    """For this GPU, compiled and not: the kernels whose steps take the least time, by the geometric mean over the models that all ran.

    None but torch's where a kernel was wrong or a model's first loss was another.
    """
    if not all(row["right"] for row in result.get("correctness") or [{"right": False}]):
        return {}
    best = {}
    for compiles in (True, False):
        by_model: dict[str, dict[str, dict]] = {}
        for row in result.get("training") or []:
            if row["compiled"] == compiles:
                by_model.setdefault(row["model"], {})[row["kernels"]] = row
        whole = [rows for rows in by_model.values() if len(rows) == 3]
        alike = all(abs(row["loss"] - rows["torch"]["loss"]) < 0.02 for rows in whole for row in rows.values())
        if whole and alike:
            best[result["gpu"], compiles] = min(whole[0], key=lambda name: sum(math.log(rows[name]["ms"]) for rows in whole))
    return best


def write_measured(fastest: dict[tuple[str, bool], str]) -> None:
    """Put what was found here into andrea/kernels/measured.py; other GPUs keep their lines."""
    from andrea.kernels.measured import FASTEST

    page = ROOT / "andrea" / "kernels" / "measured.py"
    text = page.read_text(encoding="utf-8")
    start = text.index("FASTEST:")
    lines = "".join(f"    {key!r}: {name!r},\n".replace("'", '"') for key, name in sorted({**FASTEST, **fastest}.items()))
    comment = "  # (the GPU's name, whether torch.compile is on) -> one of kernels.BY_NAME"
    page.write_text(text[:start] + f"FASTEST: dict[tuple[str, bool], str] = {{{comment}\n{lines}}}\n", encoding="utf-8")


def table(name: str, rows: Any) -> str:
    if not isinstance(rows, list) or not rows:
        return f"\n{name}: nothing"
    keys = [key for key in dict.fromkeys(key for row in rows for key in row) if key != "wrong"]
    shown = lambda value: f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)
    cells = [keys, *([shown(row.get(key)) for key in keys] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(keys))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells]
    return "\n".join([f"\n{name}", *lines, *(f"WRONG: {w}" for row in rows for w in row.get("wrong", ()))])


if __name__ == "__main__":
    main()
