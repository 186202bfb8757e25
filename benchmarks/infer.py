"""Speaking: ours against Hugging Face's generate, CTranslate2 and llama.cpp, with the same weights, and against the memory, all in one run.

    pip install transformers ctranslate2 gguf llama-cpp-python      (each of them is left out where it is not there)
    python benchmarks/infer.py                                      # everything: an hour
    python benchmarks/infer.py --shape andrea-12m --precision f32 --batch 1 --rounds 3 --case 64+64      # a minute
    python benchmarks/infer.py --run runs/mine --json
    pip install llama-cpp-python with CMAKE_ARGS=-DGGML_NATIVE=ON makes llama.cpp for this very processor: compare with that one

Every contestant is a process of its own that waits while another has its turn; turns alternate, and medians are compared. The weights are
random (or a run's, --run) and exported by andrea/interop; all read the same random prompts and take the likeliest token each time, whatever
it is. In float32 all must say the same first tokens, or there is no result. The shapes have learned positions and a context of 1,024, for
that is what every contestant has.

load: from files to ready, imports apart; cold: from the start of the process to the first token after a prompt of 64, imports included.
decode: tokens/s of all sequences together, after the first; prefill: prompt tokens/s; whole: new tokens/s, prompts included. limit: the
bytes of the matrices once for each step, against what a plain loop reads from memory in the same minutes; at batch 1 a share, above it more
than 1 is possible. engine: our Engine, which samples in full and streams text besides; others only compute.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
SHAPES = ("andrea-120m", "andrea-12m", "andrea-4m")
COMMON = ("positions=learned", "init=gpt2", "context=1024", "batch_tokens=16384")
CASES, BATCHES = ("64+256", "512+128"), (1, 4, 16)
AGREE = 8  # first tokens of every float32 contestant that must be the same
FIRST = 64  # tokens of the prompt whose first answer is timed
BITS = {"f32": (32, 32), "bf16": (16, 16), "int8": (8, 8), "q8_0": (8.5, 8.5), "int4": (4.5, 8.5), "q4_0": (4.5, 8.5)}  # and of the output
CONTESTANTS = {  # precision -> name: (kind, how it calls the precision)
    "f32": {
        "ours": ("cpu", "float32"),
        "engine": ("engine", "float32"),
        "generate": ("generate", "float32"),
        "HF": ("hf", "float32"),
        "CTranslate2": ("ctranslate2", "float32"),
        "llama.cpp": ("llama", "f32"),
    },
    "bf16": {
        "ours": ("cpu", "bfloat16"),
        "engine": ("engine", "bfloat16"),
        "HF": ("hf", "bfloat16"),
        "CTranslate2": ("ctranslate2", "bfloat16"),
        "llama.cpp": ("llama", "bf16"),
    },
    "int8": {
        "ours": ("cpu", "int8"),
        "engine": ("engine", "int8"),
        "CTranslate2": ("ctranslate2", "int8_float32"),
        "llama.cpp": ("llama", "q8_0"),
    },
    "int4": {"ours": ("cpu", "int4"), "engine": ("engine", "int4"), "llama.cpp": ("llama", "q4_0")},
}
NEEDS = {
    "cpu": ("andrea.infer.cpu",),
    "engine": ("andrea.infer.cpu", "andrea.infer.engine"),
    "generate": (),
    "hf": ("transformers",),
    "ctranslate2": ("ctranslate2", "transformers"),
    "llama": ("llama_cpp", "gguf"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, action="append", help="one or more; all without it")
    parser.add_argument("--run", help="a run folder with learned positions, instead of random weights")
    parser.add_argument("--precision", choices=CONTESTANTS, action="append", help="one or more; all without it")
    parser.add_argument(
        "--case", metavar="PROMPT+NEW", action="append", help="tokens of the prompt and after it; 64+256 and 512+128 without it"
    )
    parser.add_argument("--batch", type=int, action="append", help="sequences at once; 1, 4 and 16 without it")
    parser.add_argument(
        "--peers", metavar="NAME,NAME", help="of ours, engine, generate, HF, CTranslate2, llama.cpp; all that is installed without it"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, help="all cores without it")
    parser.add_argument("--json", action="store_true", help="the JSON line alone")
    parser.add_argument("--contestant", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.contestant:
        return contestant(json.loads(args.contestant))
    from andrea.machine import cores, provenance

    cases = [tuple(map(int, case.split("+"))) for case in args.case or CASES]
    known = {name for of in CONTESTANTS.values() for name in of}
    if any(len(case) != 2 or min(case) < 1 or case[1] < 2 or sum(case) > 1024 for case in cases):
        parser.error("--case is PROMPT+NEW: at least 1 and 2 tokens, 1,024 together at most")
    if args.peers and (unknown := set(args.peers.split(",")) - known):
        parser.error(f"--peers has {', '.join(sorted(unknown))}; there are {', '.join(sorted(known))}")
    batches, threads = args.batch or list(BATCHES), args.threads or cores()
    results = []
    for shape in [args.run] if args.run else args.shape or SHAPES:
        with tempfile.TemporaryDirectory() as folder:
            run = Path(args.run) if args.run else random_run(shape, Path(folder) / "run")
            for precision in args.precision or CONTESTANTS:
                found = race(shape, run, Path(folder), precision, cases, batches, args.peers, args.rounds, threads)
                results.append(found)
                if not args.json:
                    show(found)
    told = provenance()
    print(
        json.dumps(
            {"hardware": told["processor"], "threads": threads, "commit": told["commit"], "torch": told["torch"], "results": results}
        )
    )
    return None


def random_run(shape: str, out: Path) -> Path:
    """A run folder of that shape, as an untrained one begins, with a tokenizer of its size."""
    import torch

    from andrea import checkpoint, run_folder
    from andrea.config import DataConfig, override
    from andrea.data.formats import texts
    from andrea.data.tokenizer import train_bpe
    from andrea.model import Transformer
    from andrea.presets import preset

    config = override(preset(shape), *COMMON)
    out.mkdir()
    train_bpe((text for _, text in texts(DataConfig())), config.model.vocab_size).save(out / "tokenizer.json")
    torch.manual_seed(1337)
    state = {"windows": 0, "tokens": 0, "seconds": 0.0, "skips": []}
    checkpoint.save(out, 0, checkpoint.weights(Transformer(config.model)), {}, state, best=True)
    run_folder.write_run(out, config, {"steps": 0}, {})
    return out


def race(shape, run: Path, folder: Path, precision: str, cases, batches, peers: str | None, rounds: int, threads: int) -> dict:
    from andrea.checkpoint import load

    opened = load(run)
    c = opened.config.model
    common = {"run": str(run), "threads": threads, "batch": max(batches), "length": max(map(sum, cases)), "vocab_size": c.vocab_size}
    wanted = [name for name in CONTESTANTS[precision] if peers is None or name in peers.split(",")]
    who = {}
    for name in wanted:
        kind, word = CONTESTANTS[precision][name]
        if all(is_there(module) for module in NEEDS[kind]) and can(kind, word):
            who[name] = common | {"kind": kind, "precision": word, "path": str(files(kind, word, opened, folder))}
    told, running = {}, {}
    for name, what in who.items():
        end(start(what))  # the files and compiled loops are in the caches from here on
        began = perf_counter()
        running[name] = start(what)
        told[name] = answer(running[name]) | {"cold_seconds": perf_counter() - began}
    memory = start({"kind": "memory", "threads": threads})
    answer(memory)
    found = []
    for prompt, new in cases:
        for batch in batches:
            turns: dict[str, list[dict]] = {name: [] for name in who}
            speeds = []
            for _ in range(rounds):
                speeds.append(ask(memory, {})["gb_per_second"])
                for name, process in running.items():
                    turns[name].append(ask(process, {"prompt": prompt, "new": new, "batch": batch}))
            ids = {name: seen[0]["ids"] for name, seen in turns.items()}
            found.append({"prompt": prompt, "new": new, "batch": batch, "gb_per_second": statistics.median(speeds)})
            found[-1]["contestants"] = {name: medians(seen, prompt, new, batch) for name, seen in turns.items()}
            found[-1]["same_tokens"] = {name: agreement(ids, name) for name in ids}
            if precision == "f32" and min(found[-1]["same_tokens"].values(), default=AGREE) < min(AGREE, new):
                raise SystemExit(f"the contestants do not say the same: {found[-1]['same_tokens']} first tokens; no benchmark")
            for name, rates in found[-1]["contestants"].items():
                if rates["decode"]:
                    kind, word = CONTESTANTS[precision][name]
                    moved = bytes_read(c, word if kind == "llama" else precision) * rates["decode"] / batch
                    rates["share_of_limit"] = moved / found[-1]["gb_per_second"] / 1e9
    for process in [*running.values(), memory]:
        end(process)
    return {"shape": shape, "precision": precision, "told": told, "cases": found}


def is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def can(kind: str, word: str) -> bool:
    if kind != "ctranslate2":
        return True
    import ctranslate2

    return word in ctranslate2.get_supported_compute_types("cpu")


def files(kind: str, word: str, opened, folder: Path) -> Path:
    """What a contestant reads: the run itself, or its export, made once."""
    from andrea.interop import export_gguf, export_hf

    if kind in ("cpu", "engine", "generate"):
        if word.startswith("int") and folder in opened.path.parents:  # a person's own run has what `andrea quantize` made
            from andrea.infer.quantize import pack, write_packed

            write_packed(opened, pack(opened.model, word))
        return opened.path
    name = opened.config.model.d_model
    hf, path = folder / f"{name}-hf", folder / (f"{name}-{word}.gguf" if kind == "llama" else f"{name}-ct2")
    if kind != "llama" and not hf.exists():
        export_hf(opened, hf)
    if kind == "llama" and not path.exists():
        export_gguf(opened, path, word)
    if kind == "ctranslate2" and not path.exists():
        import ctranslate2

        ctranslate2.converters.TransformersConverter(str(hf)).convert(str(path))
    return hf if kind == "hf" else path


def bytes_read(c, precision: str) -> float:
    """Of every matrix once, as one step needs it; of the embeddings a step reads a row, of the output all."""
    from andrea.accounting import parameters

    block, output = BITS[precision]
    blocks = sum(m.size for m in parameters(c) if m.address.startswith("blocks.") and len(m.shape) == 2)
    return (blocks * block + c.vocab_size * c.d_model * output) / 8


def medians(turns: list[dict], prompt: int, new: int, batch: int) -> dict:
    rates = lambda key, tokens: statistics.median(tokens / t[key] for t in turns) if turns[0].get(key) else None
    return {
        "decode": rates("decode_seconds", batch * (new - 1)),
        "prefill": rates("prefill_seconds", batch * prompt),
        "whole": rates("seconds", batch * new),
        "spread": [round(batch * new / t["seconds"], 1) for t in turns],
    }


def agreement(ids: dict[str, list[list[int]]], name: str) -> int:
    """How many tokens from the first on every sequence has in common with the first contestant's."""
    first = next(iter(ids.values()))
    return min(
        next((n for n, (a, b) in enumerate(zip(x, y, strict=True)) if a != b), len(x)) for x, y in zip(first, ids[name], strict=True)
    )


def show(result: dict) -> None:
    print(f"\n{result['shape']} in {result['precision']}")
    print(f"{'':14}{'load':>9}{'first token':>14}{'cold':>9}{'memory':>12}")
    for name, t in result["told"].items():
        load, first, cold = t["load_seconds"], 1000 * t["first_token_seconds"], t["cold_seconds"]
        print(f"{name:14}{load:8.2f}s{first:11.0f} ms{cold:8.1f}s{t['peak_mib']:8,.0f} MiB")
    for case in result["cases"]:
        about = f"{case['prompt']} + {case['new']}, batch {case['batch']}, {case['gb_per_second']:.1f} GB/s"
        print(f"{about:34}{'decode':>10}{'prefill':>10}{'whole':>10}{'limit':>8}{'same':>6}  to llama.cpp: decode, prefill, whole")
        peer = case["contestants"].get("llama.cpp")
        for name, rates in case["contestants"].items():
            cells = "".join(f"{rates[key]:10,.1f}" if rates[key] else f"{'':10}" for key in ("decode", "prefill", "whole"))
            share = f"{100 * rates['share_of_limit']:7.1f}%" if "share_of_limit" in rates else " " * 8
            ratios = [rates[key] / peer[key] if peer and rates[key] else None for key in ("decode", "prefill", "whole")]
            told = "".join(f"{ratio:8.2f}" if ratio else " " * 8 for ratio in ratios)
            print(f"  {name:32}{cells}{share}{case['same_tokens'][name]:6}  {told}")
    sys.stdout.flush()


# ---- the processes ------------------------------------------------------------------------------------------------------------------


def start(what: dict) -> subprocess.Popen:
    environment = dict(os.environ)
    if what["kind"] in ("cpu", "engine", "generate"):  # as `andrea` sets them
        environment = {"GOMP_SPINCOUNT": "10000", "THP_MEM_ALLOC_ENABLE": "1"} | environment
    environment |= {"OMP_NUM_THREADS": str(what["threads"]), "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    environment["HF_HUB_DISABLE_PROGRESS_BARS"] = environment["TQDM_DISABLE"] = "1"
    command = [sys.executable, "-W", "ignore", __file__, "--contestant", json.dumps(what)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)


def answer(process: subprocess.Popen) -> dict:
    for line in process.stdout:
        if line.startswith("{"):
            return json.loads(line)
    raise SystemExit("a contestant ended before its turn; its message stands above")


def ask(process: subprocess.Popen, what: dict) -> dict:
    process.stdin.write(json.dumps(what) + "\n")
    process.stdin.flush()
    return answer(process)


def end(process: subprocess.Popen) -> None:
    process.stdin.close()
    process.stdout.read()
    process.wait()


def contestant(what: dict) -> None:
    if what["kind"] == "memory":
        turn, told = memory(what["threads"]), {}
    else:
        import numpy as np

        generator = np.random.default_rng(7)
        prompts = generator.integers(0, what["vocab_size"] - 1, (what["batch"], what["length"]))
        speaker = KINDS[what["kind"]](what)
        loaded = perf_counter()
        speaker.say(prompts[:1, :FIRST].tolist(), 1)
        told = {"load_seconds": loaded - speaker.began, "first_token_seconds": perf_counter() - loaded, "peak_mib": peak_mib()}

        def turn(asked: dict) -> dict:
            given = prompts[: asked["batch"], : asked["prompt"]].tolist()
            speaker.say(given, 1)  # whatever a size needs for its first time
            began = perf_counter()
            prefilled, ids = speaker.say(given, asked["new"])
            seconds = perf_counter() - began
            if prefilled is None:
                return {"seconds": seconds, "ids": ids}
            return {"seconds": seconds, "prefill_seconds": prefilled, "decode_seconds": seconds - prefilled, "ids": ids}

    print(json.dumps(told), flush=True)
    for line in sys.stdin:
        print(json.dumps(turn(json.loads(line))), flush=True)


def peak_mib() -> float:
    """Of this process; Linux counts what its parent had at the fork into getrusage's."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


class Ours:
    """The decoder that andrea.infer.cpu compiles, the likeliest token taken by numpy."""

    def __init__(self, what: dict):
        import torch

        from andrea.checkpoint import load

        torch.set_num_threads(what["threads"])
        from andrea.infer.cpu import decoder_for

        self.began = perf_counter()
        self.run = load(what["path"])
        self.decoder, how = decoder_for(self.run, what["precision"], what["batch"], what["threads"])
        print(f"{what['precision']}: {how}", file=sys.stderr)

    def say(self, prompts: list[list[int]], new: int) -> tuple[float | None, list[list[int]]]:
        import numpy as np

        began, slots, length = perf_counter(), list(range(len(prompts))), len(prompts[0])
        said = [[int(self.decoder.extend(slot, prompt, 0).argmax())] for slot, prompt in enumerate(prompts)]
        prefilled = perf_counter() - began
        for position in range(length, length + new - 1):
            logits = self.decoder.step(slots, [row[-1] for row in said], [position] * len(slots))
            for row, id in zip(said, np.argmax(logits, 1).tolist(), strict=True):
                row.append(id)
        return prefilled, said


class Answers(Ours):
    """The same through the Engine: continuous batching, sampling with its log-probabilities, text."""

    def say(self, prompts: list[list[int]], new: int) -> tuple[float | None, list[list[int]]]:
        from andrea.infer import Sampling

        sampling = Sampling(temperature=0, max_tokens=new, ignore_separator=True)
        from andrea.infer.engine import Engine

        engine = Engine(self.decoder, self.run.tokenizer)
        asked = [engine.add(prompt, sampling)[0] for prompt in prompts]
        while any(sequence.finish is None for sequence in asked):
            engine.step()
        return None, [[token.id for token in sequence.tokens] for sequence in asked]


class Generate:
    """andrea.infer.generate as anybody calls it; prompts of a batch one after the other."""

    def __init__(self, what: dict):
        import torch

        torch.set_num_threads(what["threads"])
        from andrea.checkpoint import load

        self.began = perf_counter()
        self.run = load(what["path"])

    def say(self, prompts: list[list[int]], new: int) -> tuple[float | None, list[list[int]]]:
        from andrea.infer import generate

        options = {"temperature": 0, "ignore_separator": True, "max_tokens": new}
        return None, [[token.id for token in generate(self.run, prompt, **options)] for prompt in prompts]


class HuggingFace:
    def __init__(self, what: dict):
        import torch
        from transformers import AutoModelForCausalLM

        torch.set_num_threads(what["threads"])
        self.began = perf_counter()
        self.model = AutoModelForCausalLM.from_pretrained(what["path"], dtype=getattr(torch, what["precision"])).eval()
        self.model.generation_config.eos_token_id = None
        self.model.generation_config.pad_token_id = 0

    def say(self, prompts: list[list[int]], new: int) -> tuple[float | None, list[list[int]]]:
        import torch

        ids = torch.tensor(prompts)
        began = perf_counter()
        with torch.inference_mode():
            self.model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=1)
            prefilled = perf_counter() - began
            if new == 1:
                return prefilled, []
            said = self.model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=new)
        return prefilled, said[:, ids.shape[1] :].tolist()


class CTranslate2:
    def __init__(self, what: dict):
        import ctranslate2

        self.began, path = perf_counter(), Path(what["path"])
        options = {"compute_type": what["precision"], "intra_threads": what["threads"], "inter_threads": 1}
        self.generator = ctranslate2.Generator(str(path), device="cpu", **options)
        self.words = json.loads((path / "vocabulary.json").read_text(encoding="utf-8"))

    def say(self, prompts: list[list[int]], new: int) -> tuple[float | None, list[list[int]]]:
        words, options = [[self.words[id] for id in prompt] for prompt in prompts], {"sampling_topk": 1, "include_prompt_in_result": False}
        began = perf_counter()
        self.generator.generate_batch(words, max_length=1, min_length=1, **options)
        prefilled = perf_counter() - began
        if new == 1:
            return prefilled, []
        found = self.generator.generate_batch(words, max_length=new, min_length=new, **options)
        return prefilled, [result.sequences_ids[0] for result in found]


class LlamaCpp:
    """Its own C interface, one batch a step with a sequence number for each row; the likeliest token taken by numpy."""

    def __init__(self, what: dict):
        import ctypes

        import llama_cpp

        self.l, self.what, self.size = llama_cpp, what, None
        self.quiet = llama_cpp.llama_log_callback(lambda level, text, data: None)
        llama_cpp.llama_log_set(self.quiet, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        self.began = perf_counter()
        self.model = llama_cpp.llama_model_load_from_file(what["path"].encode(), llama_cpp.llama_model_default_params())
        self.context(1, what["length"])

    def context(self, batch: int, length: int) -> None:
        """Room for so many sequences of that length; made anew only where another was asked for."""
        if self.size == (batch, length):
            return
        if self.size:
            self.l.llama_free(self.ctx)
            self.l.llama_batch_free(self.batch)
        options = self.l.llama_context_default_params()
        options.n_ctx = batch * (-(-length // 256) * 256)
        options.n_batch, options.n_seq_max = 2048, batch
        options.n_threads = options.n_threads_batch = self.what["threads"]
        self.ctx, self.size = self.l.llama_init_from_model(self.model, options), (batch, length)
        self.batch = self.l.llama_batch_init(options.n_batch, 0, 1)

    def decode(self, rows: list[tuple[int, int, int, bool]]) -> None:
        """(id, position, sequence, whether its logits are wanted) of each row."""
        b = self.batch
        b.n_tokens = len(rows)
        for i, (id, position, sequence, wanted) in enumerate(rows):
            b.token[i], b.pos[i], b.n_seq_id[i], b.logits[i] = id, position, 1, wanted
            b.seq_id[i][0] = sequence
        assert self.l.llama_decode(self.ctx, b) == 0

    def likeliest(self, n: int) -> list[int]:
        import numpy as np

        return np.ctypeslib.as_array(self.l.llama_get_logits(self.ctx), (n, self.what["vocab_size"])).argmax(1).tolist()

    def say(self, prompts: list[list[int]], new: int) -> tuple[float | None, list[list[int]]]:
        n, length = len(prompts), len(prompts[0])
        self.context(n, self.what["length"])
        self.l.llama_memory_clear(self.l.llama_get_memory(self.ctx), True)
        began, at_once = perf_counter(), max(1, 2048 // length)
        said: list[list[int]] = []
        for first in range(0, n, at_once):
            part = prompts[first : first + at_once]
            rows = [(id, i, s, i == length - 1) for s, prompt in enumerate(part, first) for i, id in enumerate(prompt)]
            self.decode(rows)
            said += [[id] for id in self.likeliest(len(part))]
        prefilled = perf_counter() - began
        for position in range(length, length + new - 1):
            self.decode([(row[-1], position, s, True) for s, row in enumerate(said)])
            for row, id in zip(said, self.likeliest(n), strict=True):
                row.append(id)
        return prefilled, said


KINDS = {"cpu": Ours, "engine": Answers, "generate": Generate, "hf": HuggingFace, "ctranslate2": CTranslate2, "llama": LlamaCpp}


def memory(threads: int):
    """GB/s that a plain loop reads from memory, the best of five times 512 MiB."""
    import numba
    import numpy as np

    numba.set_num_threads(threads)
    held = np.ones(128 << 20, np.float32)

    @numba.njit(fastmath=True)
    def part(x):  # apart: written inside prange the loop comes out without vectors, at an eighth of the speed
        one = np.float32(0)
        for i in range(x.size):
            one += x[i]
        return one

    @numba.njit(parallel=True, fastmath=True)
    def total(x, parts):
        sums, n = np.zeros(parts * 16, np.float32), x.size // parts
        for i in numba.prange(parts):
            sums[i * 16] = part(x[i * n : (i + 1) * n])
        return sums.sum()

    total(held, threads)

    def turn(asked: dict) -> dict:
        best = float("inf")
        for _ in range(5):
            began = perf_counter()
            total(held, threads)
            best = min(best, perf_counter() - began)
        return {"gb_per_second": held.nbytes / best / 1e9}

    return turn


if __name__ == "__main__":
    main()
