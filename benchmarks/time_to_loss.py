"""How long it takes to reach a loss on Tiny Shakespeare, by character: ours against nanoGPT's recipe for a CPU, from process start.

    git clone https://github.com/karpathy/nanoGPT
    python benchmarks/time_to_loss.py --text input.txt --nanogpt nanoGPT            # nanoGPT's loss, and how soon ours has it
    python benchmarks/time_to_loss.py --text input.txt --recipe gpu                 # the loss of nanoGPT's GPU recipe, on this machine
    python benchmarks/time_to_loss.py --text input.txt --seeds 5 --ours optim.name=adamw --ours steps=400     # any change of ours

nanoGPT is its own train.py in a process of its own, with the options of its README. Ours is `andrea train`. Both are asked at the end, by
one evaluator (andrea.evaluate), for the loss of every character of the last tenth but the first, in windows that do not overlap. A clock
runs from the start of the process until the last step, preparing and compiling included; evaluations are taken out. Turns alternate;
medians count.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
NANOGPT = (  # README.md, "I only have a macbook"
    "config/train_shakespeare_char.py --device=cpu --compile=False --eval_iters=1 --log_interval=100 --block_size=64 --batch_size=12 "
    "--n_layer=4 --n_head=4 --n_embd=128 --max_iters=2000 --lr_decay_iters=2000 --dropout=0.0 --eval_interval=2000 "
    "--always_save_checkpoint=True"
)
COMMON = ("data.split=tail", "evaluate_every=1_000_000", "sample_every=1_000_000", "save_every=1_000_000")
RECIPES = {  # ours: a preset, and what is changed of it
    "cpu": (
        "andrea-1m",
        "context=64 n_layer=4 n_head=4 d_model=128 positions=rotary init=zero batch_tokens=1024 steps=160 lr=0.03 matrix_lr=0.05 "
        "momentum=0.85 beta1=0.8 warmup=0.05 decay=0.9",
    ),
    "gpu": (
        "andrea-4m",
        "context=256 n_layer=6 n_head=4 d_model=256 dropout=0.1 batch_tokens=4096 steps=800 lr=0.01 matrix_lr=0.03 warmup=0.03 decay=0.95",
    ),
}
EVALUATED = {"Evaluated", "Sampled"}  # events before which an evaluation, or a sample, took the time


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--nanogpt", type=Path, help="a clone of nanoGPT; without it ours runs alone")
    parser.add_argument("--recipe", choices=RECIPES, default="cpu")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--ours", action="append", default=[], metavar="PATH=VALUE", help="change ours")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    runs: dict[str, list[dict]] = {}
    for seed in range(args.seeds):
        if args.nanogpt:
            runs.setdefault("nanoGPT", []).append(nanogpt(args.nanogpt, args.text, seed))
        runs.setdefault("ours", []).append(ours(args.text, args.recipe, args.ours, seed))
        if not args.json:
            print(*(f"{who} {one[-1]['loss']:.4f} in {one[-1]['seconds']:.1f} s  " for who, one in runs.items()), flush=True)
    medians = {who: {key: statistics.median(run[key] for run in all_of) for key in ("loss", "seconds")} for who, all_of in runs.items()}
    result = {"recipe": args.recipe, "changed": args.ours, "medians": medians, "runs": runs}
    if args.nanogpt:
        result["ratio"] = medians["nanoGPT"]["seconds"] / medians["ours"]["seconds"]
        result["reached"] = sum(one["loss"] <= medians["nanoGPT"]["loss"] for one in runs["ours"])
    if args.json:
        print(json.dumps(result))
        return
    for who, found in medians.items():
        losses = [run["loss"] for run in runs[who]]
        spread = f"{found['loss']:.4f} nats ({min(losses):.4f} to {max(losses):.4f})"
        print(f"{who}: median {spread} in {found['seconds']:.1f} s; {runs[who][0]['parameters']:,} parameters")
    if args.nanogpt:
        print(f"ours takes 1/{result['ratio']:.1f} of the time; {result['reached']} of {args.seeds} seeds are at or below nanoGPT's median")


def ours(text: Path, recipe: str, changes: list[str], seed: int) -> dict:
    preset, options = RECIPES[recipe]
    with tempfile.TemporaryDirectory() as folder:
        sets = [f"--set={option}" for option in (*last_of([*options.split(), *changes]), *COMMON, f"train.seed={seed}")]
        command = [
            sys.executable,
            "-m",
            "andrea",
            "train",
            str(text),
            "--preset",
            preset,
            "--tokenizer",
            "char",
            "--json",
            "--out",
            f"{folder}/run",
            *sets,
        ]
        last, spent, counted, quiet = perf_counter(), 0.0, {}, False
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
            for line in process.stdout:
                event, now = json.loads(line), perf_counter()
                if not (counted and event["event"] != "StepDone") and not quiet and event["event"] not in EVALUATED:
                    spent += now - last
                if event["event"] == "StepDone":
                    counted = event
                quiet = event.get("text", "").startswith("evaluating")
                last = now
        if process.returncode:
            raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
        return {
            "seconds": spent,
            "steps": counted["step"],
            "tokens": counted["tokens"],
            **judged(f"{folder}/run", text),
        }


def last_of(options: list[str]) -> list[str]:
    """One assignment for each path: the last."""
    return list({option.partition("=")[0].rpartition(".")[2]: option for option in options}.values())


def judged(run: str, text: Path) -> dict:
    import numpy as np

    from andrea.checkpoint import load

    loaded = load(run, "last")
    return {**loss_of(loaded.model, np.array(loaded.tokenizer.encode(validation(text)), dtype=np.int64), loaded.tokenizer)}


def validation(text: Path) -> str:
    whole = text.read_text(encoding="utf-8")
    return whole[int(len(whole) * 0.9) :]


def loss_of(model, ids, tokenizer) -> dict:
    from andrea.evaluate import evaluate

    class Sequence:
        __len__ = lambda self: len(ids)
        read = lambda self, start, stop: ids[start:stop]

    return {"loss": evaluate(model, Sequence(), tokenizer).loss, "parameters": sum(p.numel() for p in model.parameters())}


def nanogpt(clone: Path, text: Path, seed: int) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "nanoGPT")
        shutil.copytree(clone, place, ignore=shutil.ignore_patterns(".git", "assets"))
        shutil.copy(text, place / "data/shakespeare_char/input.txt")
        subprocess.run([sys.executable, "prepare.py"], cwd=place / "data/shakespeare_char", check=True, stdout=subprocess.DEVNULL)
        script = (place / "train.py").read_text().replace("torch.manual_seed(1337", f"torch.manual_seed({1337 + seed}")
        (place / "train.py").write_text(script)
        began, seconds = perf_counter(), 0.0
        with subprocess.Popen(
            [sys.executable, "-u", "train.py", *NANOGPT.split()], cwd=place, stdout=subprocess.PIPE, text=True
        ) as process:
            for line in process.stdout:
                if line.startswith("step 2000"):  # all 2,000 updates are done
                    seconds = perf_counter() - began
        if process.returncode:
            raise SystemExit(f"nanoGPT ended with {process.returncode}")
        return {"seconds": seconds, **nanogpt_judged(place, text)}


def nanogpt_judged(place: Path, text: Path) -> dict:
    """In a process of its own, whose `model` is nanoGPT's."""
    paths = [str(place), str(ROOT / "benchmarks"), str(ROOT)]
    code = f"import sys; sys.path[:0] = {paths!r}; import time_to_loss; time_to_loss.nanogpt_loss({str(place)!r}, {str(text)!r})"
    done = subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def nanogpt_loss(place: str, text: str) -> None:
    import pickle
    from types import SimpleNamespace

    import numpy as np
    import torch
    from model import GPT, GPTConfig
    from torch.nn.functional import cross_entropy

    saved = torch.load(Path(place, "out-shakespeare-char/ckpt.pt"), weights_only=False)  # written by the run above
    number = pickle.loads(Path(place, "data/shakespeare_char/meta.pkl").read_bytes())["stoi"]

    class Losses(GPT):
        def forward(self, ids, targets):
            logits, _ = super().forward(ids, targets.contiguous())
            return cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").view(targets.shape)

    model = Losses(GPTConfig(**saved["model_args"]))
    model.load_state_dict(saved["model"])
    model.config.context = model.config.block_size
    ids = np.array([number[c] for c in validation(Path(text))], dtype=np.int64)
    one_byte = SimpleNamespace(vocab_size=len(number), token_bytes=lambda i: b".")
    print(json.dumps(loss_of(model, ids, one_byte)))


if __name__ == "__main__":
    main()
