"""How fast text is encoded, against the `tokenizers` library in the same run, and how much memory preparing it takes, by size of the text.

    python benchmarks/data.py [--big]      --big adds 2 GiB of text, for which it needs about 4 GB of disk

Prints a table and one JSON line with the machine and the commit.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

VOCAB_SIZE = 8_449
ROUNDS = 3
PREPARE = """
import json, resource, sys, time
from pathlib import Path
from andrea.config import DataConfig
from andrea.data.prepare import prepare
start = time.perf_counter()
report = prepare(DataConfig(paths=(sys.argv[1],)), int(sys.argv[2]), Path(sys.argv[3])).report
unit = 1 if sys.platform == "darwin" else 1024
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
print(json.dumps({"peak_mb": round(peak / 1e6), "seconds": round(time.perf_counter() - start, 1), "bytes": report["bytes"]}))
"""


def one_core() -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.environ["RAYON_NUM_THREADS"] = "1"
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def encode_speed() -> dict[str, float]:
    """MB of text per second of CPU time, one core, the built-in corpus: the best of ROUNDS, taken in turns."""
    import tokenizers

    from andrea.config import DataConfig
    from andrea.data.formats import texts as documents
    from andrea.data.tokenizer import load_tokenizer, train_bpe

    texts = [text for _, text in documents(DataConfig())]
    size = sum(len(text.encode()) for text in texts)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "tokenizer.json")
        train_bpe(texts, VOCAB_SIZE).save(path)
        ours, theirs = load_tokenizer(path), tokenizers.Tokenizer.from_file(str(path))
    runs: dict[str, Callable[[], list]] = {
        "andrea": lambda: ours.encode_batch(texts),
        "tokenizers": lambda: [theirs.encode(text, add_special_tokens=False).ids for text in texts],
    }
    best = dict.fromkeys(runs, float("inf"))
    found = {}
    for _ in range(ROUNDS):
        for name, run in runs.items():
            start = time.process_time()
            found[name] = run()
            best[name] = min(best[name], time.process_time() - start)
    assert [ids.tolist() for ids in found["andrea"]] == found["tokenizers"]
    speed = {f"{name}_mb_s": round(size / seconds / 1e6, 2) for name, seconds in best.items()}
    return {**speed, "ratio": round(best["tokenizers"] / best["andrea"], 2)}


def synthesise(folder: Path, size: int) -> None:
    """Standard-library files over and over, a counter after every few lines so that no two units are equal."""
    from andrea.config import DataConfig
    from andrea.data.formats import texts as documents

    texts, written, number = [text for _, text in documents(DataConfig())], 0, 0
    while written < size:
        lines = texts[number % len(texts)].splitlines(keepends=True)
        varied = "".join(line + f"# {number} {i}\n" * (i % 50 == 0) for i, line in enumerate(lines))
        inner = folder / f"{number // 1_000:04d}"
        inner.mkdir(exist_ok=True)
        data = varied.encode()
        (inner / f"{number:07d}.py").write_bytes(data)
        written, number = written + len(data), number + 1


def memory(size: int) -> dict[str, float]:
    """Peak resident memory, in MB, of a process that prepares `size` bytes of text, and its time in seconds."""
    with tempfile.TemporaryDirectory() as folder:
        text, out = Path(folder, "text"), Path(folder, "out")
        text.mkdir()
        synthesise(text, size)
        command = [sys.executable, "-c", PREPARE, str(text), str(VOCAB_SIZE), str(out)]
        return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    from andrea.machine import provenance

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--big", action="store_true", help="also prepare 2 GiB")
    sizes = {"20 MB": 20_000_000, "100 MB": 100_000_000} | ({"2 GiB": 2**31} if parser.parse_args().big else {})
    prepared = {name: memory(size) for name, size in sizes.items()}
    one_core()
    speed = encode_speed()
    print(f"encode, one core   andrea {speed['andrea_mb_s']} MB/s   tokenizers {speed['tokenizers_mb_s']} MB/s   ratio {speed['ratio']}")
    for name, row in prepared.items():
        print(f"prepare {name:>7}   peak {row['peak_mb']} MB   {row['seconds']} s")
    print(json.dumps({"benchmark": "data", **speed, "prepare": prepared, **provenance()}))


if __name__ == "__main__":
    main()
