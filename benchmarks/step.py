"""The decode step for a CPU against the speed of memory, measured in the same seconds.

    python benchmarks/step.py
    python benchmarks/step.py --shape andrea-12m --precision int8 --rounds 20

Every round times, one after the other: reading 200 MB of memory with as many threads, 8 steps of one sequence, one step of 16 sequences,
and a prompt of 64 tokens, for each precision, with random weights. Told are medians, and the best of each, which is what the machine does
when nobody else has it; the share is (bytes of weights, keys and values read) / (time of a step) / (speed of reading).
"""

import argparse
import json
import statistics
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
STEPS, PROMPT, BATCH = 8, 64, 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="andrea-120m")
    parser.add_argument("--precision", action="append", choices=("float32", "bfloat16", "int8", "int4"), help="one or more; all without it")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--threads", type=int, help="default: as many as torch takes")
    args = parser.parse_args()
    rows = measure(args.shape, args.precision or ["float32", "bfloat16", "int8", "int4"], args.rounds, args.threads)
    from andrea.machine import provenance

    print(f"{args.shape}, {args.rounds} rounds: median (best)")
    print(f"{'':10}{'tokens/s':>18}{'share of reading':>19}{f'{BATCH} sequences':>18}{f'prompt of {PROMPT}':>18}")
    for name, row in rows.items():
        cells = (f"{row['tokens_per_s'][i]:.0f}" for i in (0, 1)), (f"{row['share'][i]:.2f}" for i in (0, 1))
        more = (f"{row['batch_tokens_per_s'][i]:.0f}" for i in (0, 1)), (f"{row['prompt_tokens_per_s'][i]:.0f}" for i in (0, 1))
        both = [f"{median} ({best})" for median, best in (*cells, *more)]
        print(f"{name:10}{both[0]:>18}{both[1]:>19}{both[2]:>18}{both[3]:>18}")
    print(json.dumps({"shape": args.shape, "rows": rows, **provenance()}))


def measure(shape: str, precisions: list[str], rounds: int, threads: int | None) -> dict[str, dict]:
    import numpy as np
    import torch

    from andrea.infer.cpu import CpuDecoder
    from andrea.infer.quantize import pack
    from andrea.model import Transformer
    from andrea.presets import preset

    threads = threads or torch.get_num_threads()
    torch.manual_seed(0)
    model = Transformer(preset(shape).model)
    with torch.no_grad():
        for p in model.parameters():
            if p.ndim == 2:
                p.normal_(0, 0.02)  # also what `init=zero` leaves at 0
    decoders = {name: CpuDecoder(pack(model, name), BATCH, threads) for name in precisions}
    slots, c = list(range(BATCH)), model.config
    read = reader(threads)
    times: dict[str, dict[str, list[float]]] = {name: {"read": [], "step": [], "batch": [], "prompt": []} for name in precisions}
    for warm_up in [True] + [False] * rounds:
        for name, decoder in decoders.items():
            took = {"read": [timed(read) for _ in range(3)]}
            took["prompt"] = [timed(decoder.extend, 0, [1] * PROMPT, 0)]
            took["step"] = [timed(decoder.step, [0], [1], [PROMPT + i]) for i in range(STEPS)]
            for slot in slots[1:]:
                decoder.copy(0, slot, PROMPT)
            took["batch"] = [timed(decoder.step, slots, [1] * BATCH, [PROMPT] * BATCH)]
            for what, found in took.items() if not warm_up else ():
                times[name][what] += found
    rows = {}
    for name, decoder in decoders.items():
        moved = decoder.bytes_read + 2 * decoder.room.keys.itemsize * c.d_model * c.n_layer * (PROMPT + STEPS // 2)
        each = [{what: find(found) for what, found in times[name].items()} for find in (statistics.median, min)]
        rows[name] = {
            "tokens_per_s": [1 / t["step"] for t in each],
            "read_GB_per_s": [read.n_bytes / t["read"] / 1e9 for t in each],
            "share": [moved / t["step"] / (read.n_bytes / t["read"]) for t in each],
            "batch_tokens_per_s": [BATCH / t["batch"] for t in each],
            "prompt_tokens_per_s": [PROMPT / t["prompt"] for t in each],
            "bytes_read": moved,
            "threads": decoder.threads,
        }
        assert np.isfinite(decoder.extend(0, [1], 0)).all()
    return rows


def timed(call, *args) -> float:
    start = perf_counter()
    call(*args)
    return perf_counter() - start


def reader(threads: int):
    """A function that reads 200 MB, more than any cache here, a part with each thread; its n_bytes."""
    import numba
    import numpy as np

    @numba.njit(nogil=True, fastmath=True)
    def total(part):
        found = np.int64(0)
        for i in range(len(part)):
            found += part[i]
        return found

    parts = np.array_split(np.ones(25_000_000, np.int64), threads)
    pool = ThreadPoolExecutor(max(1, threads - 1))

    def read() -> None:
        others = [pool.submit(total, part) for part in parts[1:]]
        total(parts[0])
        for other in others:
            other.result()

    read.n_bytes = sum(part.nbytes for part in parts)  # type: ignore[attr-defined]
    return read


if __name__ == "__main__":
    main()
