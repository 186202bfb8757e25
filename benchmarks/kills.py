"""Kill runs at random instants, damage their newest checkpoint now and then, and go on: none may be lost, none may end otherwise.

    python benchmarks/kills.py
    python benchmarks/kills.py --kills 2000 --in-save 500 --json
    python benchmarks/kills.py --kills 100 --folder /mnt/slow --set optim.name=adamw

One run goes through without a stop. Then run after run is started and sent SIGKILL at a random instant, or a random instant after a
save has begun, until enough have been; each killed run is resumed, killed again, and so on to its end. In one kill of ten the newest
checkpoint is truncated or a bit of it is flipped besides. Every finished run is compared with the first: weights, moments, generators,
metrics.jsonl but its clocks, samples.txt. A kill counts as inside a save where a checkpoint that is not whole was left, or no pointer yet.

Each attempt is a fork of this process, which has imported everything. Linux and macOS.
"""

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

os.environ |= {"OMP_NUM_THREADS": "1"}  # OpenMP's threads do not live on in a fork
ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

TINY = "tokenizer=byte context=16 n_layer=2 n_head=2 d_model=32 batch_tokens=64 eval_tokens=256 dropout=0.1"
COURSE = "steps=60 save_every=3 evaluate_every=10 sample_every=20 dtype=float32 kernels=torch"
LONGEST = 0.6  # seconds until a kill
DAMAGED = 0.1  # of the kills


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--in-save", type=int, default=0, help="as many at least inside a save")
    parser.add_argument("--folder", type=Path, help="where the runs are made; a temporary folder without it")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", action="append", default=[], metavar="PATH=VALUE", help="change the runs")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        result = kill_all(Path(folder), args)
    if args.json:
        print(json.dumps(result))
    else:
        print(", ".join(f"{name.replace('_', ' ')} {value:,}" for name, value in result.items() if name != "problems"))
        print(*result["problems"], sep="\n", end="")
    sys.exit(bool(result["problems"]))


def kill_all(folder: Path, args: argparse.Namespace) -> dict:
    from andrea.config import override
    from andrea.data.prepare import prepare
    from andrea.presets import preset

    rng = random.Random(args.seed)
    text = folder / "text.txt"
    text.write_text("".join(rng.choice("the cat sat on a mat and ate it. \n") for _ in range(20_000)), encoding="utf-8")
    config = override(preset("andrea-1m"), *TINY.split(), *COURSE.split(), *args.set, f"data.paths={text}")
    prepare(config.data, config.model.vocab_size, folder / "prepared")
    config = override(config, f"data.paths={folder / 'prepared'}")
    code, said = ended(attempt(config, folder / "straight"), folder / "straight")
    if code:
        raise SystemExit(f"the run without a kill ended with {code}: {said}")
    wanted = outcome(folder / "straight")
    counts = dict.fromkeys(("kills", "in_save", "damaged", "before_run_json", "runs", "lost", "different"), 0)
    problems: list[str] = []
    while counts["kills"] < args.kills or counts["in_save"] < args.in_save:
        run = folder / f"run-{counts['runs']}"
        what = one_run(config, run, wanted, rng, counts)
        counts["runs"] += 1
        if what:
            problems.append(f"{run.name}: {what}")
        shutil.rmtree(run, ignore_errors=True)
    return {**counts, "problems": problems}


def one_run(config, run: Path, wanted: dict, rng: random.Random, counts: dict[str, int]) -> str:
    """Kill a run and go on with it until it is finished; what is wrong with it then."""
    named: list[str] = []
    while True:
        child = attempt(config, run)
        aimed = rng.random() < 0.5  # at a save
        until = time.monotonic() + rng.uniform(0, LONGEST)
        while time.monotonic() < until and not (aimed and saving(run)):
            time.sleep(0.0005)
        time.sleep(rng.uniform(0, 0.02) if aimed else 0)
        os.kill(child, signal.SIGKILL)
        code, said = ended(child, run)
        if code > 0 and "is finished" in said:  # the kill had come after its last line
            code = 0
        if code > 0:
            counts["lost"] += 1
            return f"ended with {code}: {said}"
        if said and (missed := [name for name in named if name not in said]):  # killed at once it says nothing
            return f"a damaged checkpoint was not named: {missed}"
        if code == 0:
            break
        counts["kills"] += 1
        counts["in_save"] += saving(run) or torn(run)
        counts["before_run_json"] += not (run / "run.json").exists()
        named = damage(run, rng) if rng.random() < DAMAGED else []
        counts["damaged"] += len(named)
    found = outcome(run)
    if wrong := [name for name in wanted if found[name] != wanted[name]]:
        counts["different"] += 1
        return f"differs in {', '.join(wrong)}"
    return ""


def attempt(config, run: Path) -> int:
    """Begin the run, or go on with it, in a fork; the process's number."""
    import tensorboard.compat.proto.event_pb2  # noqa: F401, imported once, before the forks
    import torch

    from andrea.training.report import Chosen
    from andrea.training.start import resume, train

    torch.set_num_threads(1)
    run.with_suffix(".said").unlink(missing_ok=True)  # what an earlier attempt said is not this one's
    if child := os.fork():
        return child
    code = 70
    try:
        with run.with_suffix(".said").open("w", encoding="utf-8") as said:
            try:
                for event in resume(run) if (run / "run.json").exists() else train(config, run):
                    if isinstance(event, Chosen):
                        print(*event.notes, sep="\n", file=said, flush=True)
                code = 0
            except BaseException as error:
                print(repr(error), file=said)
                code = 1
    finally:
        os._exit(code)


def ended(child: int, run: Path) -> tuple[int, str]:
    """Exit code, negative for a kill, and what was said."""
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    said = run.with_suffix(".said")
    return code, said.read_text(encoding="utf-8") if said.exists() else ""


def saving(run: Path) -> bool:
    """Whether a checkpoint is being built."""
    return any((run / "checkpoints").glob("*.partial"))


def torn(run: Path) -> bool:
    """Whether the newest checkpoint stands in its place and `last` does not name it yet."""
    newest = max((int(p.name.removeprefix("step-")) for p in (run / "checkpoints").glob("step-*") if p.suffix == ""), default=None)
    last = run / "last"
    return newest is not None and (not last.exists() or last.read_text(encoding="utf-8") != f"step-{newest}")


def damage(run: Path, rng: random.Random) -> list[str]:
    """Spoil the newest whole checkpoint, if there is another beside it; its name."""
    from andrea.checkpoint import PAYLOAD, is_whole

    places = [p for p in (run / "checkpoints").glob("step-*") if not p.suffix]
    whole = sorted((p for p in places if is_whole(p)), key=lambda p: int(p.name.removeprefix("step-")))
    if len(whole) < 2:
        return []
    path = whole[-1] / rng.choice(PAYLOAD)
    content = bytearray(path.read_bytes())
    if rng.random() < 0.5:
        content = content[: rng.randrange(len(content))]
    else:
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(content)
    return [whole[-1].name]


def outcome(run: Path) -> dict:
    """All that has to be equal."""
    import hashlib

    from andrea.checkpoint import newest_whole, read_state
    from andrea.training.check import without_clocks
    from andrea.training.report import read_metrics

    folder = newest_whole(run)[0]
    hashes = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in ("model.safetensors", "train.safetensors")}
    told = [without_clocks(event) for event in read_metrics(run)]
    texts = {name: (run / name).read_text(encoding="utf-8") for name in ("samples.txt", "best", "last")}
    return {**hashes, **texts, "state": without_clocks(read_state(folder)), "metrics": told}


if __name__ == "__main__":
    main()
