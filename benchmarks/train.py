"""Training speed against nanoGPT and against the machine's matrix products, all in one run.

    git clone https://github.com/karpathy/nanoGPT
    python benchmarks/train.py --nanogpt nanoGPT
    python benchmarks/train.py --nanogpt nanoGPT --shape andrea-12m --json
    ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 python benchmarks/train.py --nanogpt nanoGPT --no-compiler    # an ordinary laptop
    python benchmarks/train.py --plot cost.png            # ours alone: tokens/s against d_model, context and batch

Every contestant is a process of its own that waits while another has its turn; turns alternate, and medians are compared. nanoGPT is
its own model file and its own optimiser settings in its own step, as its README runs it on a CPU (float32, eager), and with bfloat16
autocast, eager and compiled, where the processor multiplies in it. Tokens are random: their values change no timing. Ours is built and
set up as `andrea train` does it, with AdamW.

peak: the fastest product of any of the model's matrices, in any direction; mean: all the products of a step, one after the other.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from time import perf_counter

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
SHAPES = {  # name -> sequences a step, steps a turn, and overrides of the preset
    "andrea-120m": (4, 1, ()),
    "andrea-12m": (4, 2, ()),
    "char-128": (12, 40, ("n_layer=4", "n_head=4", "d_model=128", "context=64", "vocab_size=65", "positions=learned", "batch_tokens=768")),
}
SCAN = {  # what is varied, and of what
    "d_model": (64, 128, 256, 384, 512, 768),
    "context": (64, 128, 256, 512, 1024),
    "rows": (1, 2, 4, 8, 16, 32),
}
MIDDLE = {"d_model": 256, "context": 256, "rows": 8}
NANOGPT = {"as its README": ("float32", False), "bfloat16": ("bfloat16", False), "bfloat16 compiled": ("bfloat16", True)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nanogpt", type=Path, help="a clone of nanoGPT; without it ours runs alone")
    parser.add_argument("--shape", choices=SHAPES, action="append", help="one or more of the shapes; all without it")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-compiler", action="store_true", help="nanoGPT does not compile")
    parser.add_argument("--plot", type=Path, help="measure how the cost grows instead, and draw it")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--contestant", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.contestant:
        return contestant(json.loads(args.contestant))
    if args.plot:
        return draw(scan(args.rounds), args.plot)
    for shape in args.shape or SHAPES:
        result = race(shape, args.nanogpt, args.rounds, args.no_compiler)
        print(json.dumps(result)) if args.json else show(result)
    return None


def race(shape: str, nanogpt: Path | None, rounds: int, no_compiler: bool) -> dict:
    rows, steps, overrides = SHAPES[shape]
    from andrea.machine import has_fast_bfloat16

    who = {"ours": {"kind": "ours"}, "peak": {"kind": "peak"}}
    for name, (dtype, compiled) in (NANOGPT if nanogpt else {}).items():
        if not (compiled and no_compiler) and (dtype == "float32" or has_fast_bfloat16()):
            who[f"nanoGPT {name}"] = {"kind": "nanogpt", "path": str(nanogpt.resolve()), "dtype": dtype, "compile": compiled}
    common = {"shape": shape, "rows": rows, "steps": steps, "overrides": overrides}
    running = {name: start(common | what) for name, what in who.items()}
    told = {name: answer(process) for name, process in running.items()}
    turns: dict[str, list] = {name: [] for name in who}
    for _ in range(rounds):
        for name, process in running.items():
            turns[name].append(ask(process, "turn"))
    ends = {name: ask(process, "end") for name, process in running.items()}
    products = turns.pop("peak")
    peaks = {key: statistics.median(turn[key] for turn in products) for key in products[0]}
    tokens = {name: statistics.median(t["tokens"] / t["seconds"] for t in seen) for name, seen in turns.items()}
    flops, dtype = told["ours"]["flops_per_token"], told["ours"]["resolved"]["dtype"]
    best = max((n for n in tokens if n != "ours"), key=tokens.__getitem__, default=None)
    return {
        "shape": shape,
        "tokens_per_second": tokens,
        "spread": {n: [round(t["tokens"] / t["seconds"], 1) for t in seen] for n, seen in turns.items()},
        "ratio_to_readme": tokens["ours"] / tokens["nanoGPT as its README"] if nanogpt else None,
        "ratio_to_best": tokens["ours"] / tokens[best] if best else None,
        "best": best,
        "peak_gflops": peaks,
        "share_of_peak": {name: rate * flops / peaks[dtype] / 1e9 for name, rate in tokens.items()},
        "share_of_mean": {name: rate * flops / peaks[f"{dtype}_mean"] / 1e9 for name, rate in tokens.items()},
        "peak_memory_mib": {name: end["peak_mib"] for name, end in ends.items() if name != "peak"},
        "warm_up_seconds": {name: t["warm_up"] for name, t in told.items() if name != "peak"},
        "ours": told["ours"],
    }


def show(result: dict) -> None:
    p = result["peak_gflops"]
    told = ", ".join(f"{p[t]:.0f} in {t} (mean {p[t + '_mean']:.0f})" for t in ("bfloat16", "float32") if t in p)
    print(f"\n{result['shape']}: products, GFLOP/s: {told}")
    print(f"{'':28}{'tokens/s':>10}{'of peak':>9}{'of mean':>9}{'memory':>11}{'start':>8}")
    for name, rate in result["tokens_per_second"].items():
        share, mean = (100 * result[key][name] for key in ("share_of_peak", "share_of_mean"))
        memory, warm = result["peak_memory_mib"][name], result["warm_up_seconds"][name]
        print(f"{name:28}{rate:10,.0f}{share:8.1f}%{mean:8.1f}%{memory:7,.0f} MiB{warm:7.1f}s")
    if result["best"]:
        print(f"ours / nanoGPT as its README {result['ratio_to_readme']:.2f}; ours / {result['best']} {result['ratio_to_best']:.2f}")
    print(f"ours: {result['ours']['resolved']}", flush=True)


def scan(rounds: int) -> dict[str, list[tuple[int, float, float]]]:
    """(value, tokens/s, GFLOP/s) along each of SCAN, the others in the middle; one shape after another."""
    found: dict[str, list[tuple[int, float, float]]] = {}
    for name, values in SCAN.items():
        for value in values:
            at = MIDDLE | {name: value}
            shape = [f"d_model={at['d_model']}", f"n_head={max(1, at['d_model'] // 64)}", f"context={at['context']}", "n_layer=4"]
            overrides = (*shape, "vocab_size=4353", f"batch_tokens={at['rows'] * at['context']}")
            process = start({"kind": "ours", "shape": "middle", "rows": at["rows"], "steps": 3, "overrides": overrides})
            told, turns = answer(process), [ask(process, "turn") for _ in range(rounds)]
            process.stdin.close()
            rate = statistics.median(turn["tokens"] / turn["seconds"] for turn in turns)
            found.setdefault(name, []).append((value, rate, rate * told["flops_per_token"] / 1e9))
            print(f"{name} {value}: {rate:,.0f} tokens/s, {found[name][-1][2]:.0f} GFLOP/s", flush=True)
    return found


def draw(found: dict[str, list[tuple[int, float, float]]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(layout="constrained", figsize=(11, 3.6))
    for axes, (name, points) in zip(figure.subplots(1, len(found)), found.items(), strict=True):
        values, rates, flops = zip(*points, strict=True)
        axes.loglog(values, rates, marker=".", label="tokens/s")
        axes.loglog(values, flops, marker=".", label="GFLOP/s")
        axes.set_xticks(values, [str(value) for value in values], minor=False)
        axes.minorticks_off()
        fixed = ", ".join(f"{other} {value}" for other, value in MIDDLE.items() if other != name)
        axes.set(xlabel={"rows": "sequences a step"}.get(name, name), title=fixed)
        axes.grid(alpha=0.3)
        axes.legend()
    figure.savefig(path, dpi=120)


# ---- the processes ------------------------------------------------------------------------------------------------------------------


def start(what: dict) -> subprocess.Popen:
    environment = dict(os.environ)
    if what["kind"] != "nanogpt":  # as `andrea` sets them
        environment = {"GOMP_SPINCOUNT": "10000", "THP_MEM_ALLOC_ENABLE": "1"} | environment
    command = [sys.executable, "-W", "ignore", __file__, "--contestant", json.dumps(what)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)


def answer(process: subprocess.Popen) -> dict:
    for line in process.stdout:
        if line.startswith("{"):  # nanoGPT prints besides
            return json.loads(line)
    raise SystemExit("a contestant ended before its turn; its message stands above")


def ask(process: subprocess.Popen, word: str) -> dict:
    process.stdin.write(word + "\n")
    process.stdin.flush()
    return answer(process)


def contestant(what: dict) -> None:
    from andrea.config import override
    from andrea.presets import preset

    base = preset(what["shape"] if what["shape"].startswith("andrea-") else "andrea-1m")
    config = override(base, *what["overrides"])
    if what["kind"] == "peak":
        turn, told = products(config), {}
    else:
        began = perf_counter()
        step, told = (ours if what["kind"] == "ours" else nanogpt)(config, what)
        for _ in range(2):
            step()
        told["warm_up"] = round(perf_counter() - began, 2)

        def turn() -> dict:
            began = perf_counter()
            for _ in range(what["steps"]):
                step()
            return {"seconds": perf_counter() - began, "tokens": what["steps"] * what["rows"] * config.model.context}

    print(json.dumps(told), flush=True)
    for line in sys.stdin:
        said = turn() if line.strip() == "turn" else {"peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}
        print(json.dumps(said), flush=True)


def ours(config, what: dict):
    """A step as andrea.training does it, and what it chose."""
    import torch

    from andrea import accounting, kernels
    from andrea.config import override
    from andrea.model import Transformer
    from andrea.training.optim import optimizer_for
    from andrea.training.start import choices, set_up_machine, settle_pass
    from andrea.training.step import train_step

    config = override(config, f"batch_tokens={what['rows'] * config.model.context}")
    resolved = {choice.name: choice.value for choice in choices(config)}
    settle_pass(config, resolved)
    set_up_machine(resolved)
    torch.manual_seed(1337)
    model = Transformer(config.model, kernels.BY_NAME[resolved["kernels"]])
    optimizer, parameters = optimizer_for(model, override(config.optim, "name=adamw")), list(model.parameters())
    autocast = None if resolved["dtype"] == "float32" else getattr(torch, resolved["dtype"])
    data = torch.randint(config.model.vocab_size, (1_000_000,))

    def step() -> float:
        starts = torch.randint(len(data) - config.model.context, (what["rows"],))
        rows = torch.stack([data[i : i + config.model.context + 1] for i in starts])
        micro = [(part[:, :-1], part[:, 1:]) for part in rows.split(resolved["micro_batch"])]
        loss, norm = train_step(model, parameters, optimizer, micro, 6e-4, 1.0, autocast)
        return loss.item() + norm.item()

    return step, {"resolved": resolved, "flops_per_token": accounting.flops_per_token(config.model)}


def nanogpt(config, what: dict):
    import torch

    sys.path.insert(0, what["path"])
    from model import GPT, GPTConfig

    c, rows = config.model, what["rows"]
    torch.manual_seed(1337)
    model = GPT(GPTConfig(c.context, c.vocab_size, c.n_layer, c.n_head, c.d_model, dropout=0.0, bias=False))
    optimizer = model.configure_optimizers(0.1, 6e-4, (0.9, 0.95), "cpu")
    if what["compile"]:
        model = torch.compile(model)
    precision = torch.autocast("cpu", torch.bfloat16) if what["dtype"] == "bfloat16" else nullcontext()
    data = torch.randint(c.vocab_size, (1_000_000,))

    def step() -> float:
        starts = torch.randint(len(data) - c.context, (rows,))
        x, y = (torch.stack([data[i + shift : i + shift + c.context] for i in starts]) for shift in (0, 1))
        with precision:
            _, loss = model(x, y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    return step, {}


def products(config):
    """GFLOP/s of the model's own matrix products (2,048 rows; forward, input gradient, weight gradient): the best and the mean."""
    import torch

    from andrea.machine import cores, has_fast_bfloat16, keep_memory

    torch.set_num_threads(cores())
    keep_memory()
    c, rows = config.model, min(2048, 12 * config.model.context)
    blocks = [(c.d_model, 3 * c.d_model), (c.d_model, c.d_model), (c.d_model, c.mlp_width), (c.mlp_width, c.d_model)]
    shapes = [(n_in, n_out, c.n_layer) for n_in, n_out in blocks] + [(c.d_model, c.vocab_size, 1)]

    def turn() -> dict:
        found = {}
        for name in ("bfloat16", "float32") if has_fast_bfloat16() else ("float32",):
            dtype, rates, flops, seconds = getattr(torch, name), [], 0, 0.0
            for n_in, n_out, times in shapes:
                x, w, dy = (torch.randn(shape, dtype=dtype) for shape in ((rows, n_in), (n_out, n_in), (rows, n_out)))
                for a, b in ((x, w.mT), (dy, w), (dy.mT, x)):
                    spent = []
                    for _ in range(5):
                        began = perf_counter()
                        torch.mm(a, b)
                        spent.append(perf_counter() - began)
                    median = statistics.median(spent[1:])
                    rates.append(2 * rows * n_in * n_out / median / 1e9)
                    flops, seconds = flops + times * 2 * rows * n_in * n_out, seconds + times * median
            found |= {name: max(rates), f"{name}_mean": flops / seconds / 1e9}
        return found

    return turn


if __name__ == "__main__":
    main()
