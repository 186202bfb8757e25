"""Damage the files of a real run in every way that comes to mind, and load them: a result, ValueError or OSError is right, else a finding.

    python benchmarks/fuzz.py [--minutes 10] [--only shards] [--seed 0] [--cases N] [--run RUN] [--json]

Targets: shards, run, tokenizer, safetensors, checkpoint, metrics. Each runs in a process of its own with a few GiB of memory; one that dies
or hangs is a finding, and another goes on after it. A case is decided by target, seed and number. What was found lies in --keep, as files,
with the case in their names. Linux and macOS.
"""

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

MEMORY = 3 << 30  # bytes of address space above what the imports take
PATIENCE = 30.0  # seconds that one case may take
TINY = ("vocab_size=321", "context=32", "n_layer=2", "n_head=2", "d_model=16", "batch_tokens=256", "eval_tokens=512", "steps=4")
NUMBERS = (0, -1, 1, 2, 255, 256, 257, 65_535, 65_536, 2**31 - 1, 2**31, 2**32, 2**48, 2**53, 2**63 - 1, 2**63, 2**64 - 1, 10**12, 10**30)
RAW = (
    "NaN",
    "-Infinity",
    "1e999",
    "1" + "0" * 400,
    "9" * 5000,
    "[" * 900 + "]" * 900,
    "[" * 200_000,
    '{"a":' * 900 + "1" + "}" * 900,
    "1.0",
)
STRINGS = (
    "",
    "..",
    "../../etc/passwd",
    "/etc/passwd",
    "step-9",
    "step-\u00b2",
    "a\0b",
    "\ud800",
    "bpe",
    "char",
    "F64",
    "I4",
    "x" * 100_000,
)
VALUES = (*NUMBERS, *STRINGS, None, True, False, 0.5, -1e308, 1e308, [], {}, [[]], [1, "a", None], {"": 0})


# --- damage -------------------------------------------------------------------------------------------------------------------------


def damage_bytes(data: bytes, r: random.Random) -> bytes:
    """Flipped bits, other bytes, numbers, parts cut out, doubled, moved or appended."""
    new = bytearray(data)
    for _ in range(r.choice((1, 1, 1, 2, 4, 16))):
        at = r.randrange(len(new) + 1) if r.random() < 0.5 else r.randrange(min(len(new), 128) + 1)
        stop = min(len(new), at + r.choice((1, 2, 8, 64, 1024, 1 << 16)))
        kind = r.randrange(8)
        if kind == 0 and at < len(new):
            new[at] ^= 1 << r.randrange(8)
        elif kind == 1 and at < len(new):
            new[at] = r.choice((0, 1, 0x7F, 0x80, 0xFF, ord("{"), ord('"'), r.randrange(256)))
        elif kind == 2:
            width = r.choice((4, 8))
            new[at : at + width] = (r.choice(NUMBERS) % 256**width).to_bytes(width, "little")
        elif kind == 3:
            del new[at:stop]
        elif kind == 4:
            new[at:at] = new[at:stop]
        elif kind == 5:
            there = r.randrange(len(new) + 1)
            new[there : there + stop - at] = new[at:stop]
        elif kind == 6:
            new[at:at] = r.randbytes(r.choice((1, 8, 100)))
        elif r.random() < 0.3:
            del new[at:]
    return bytes(new)


def places(value: Any) -> list[tuple[Any, Any]]:
    """(container, key) of everything inside a JSON value."""
    inside = list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    return [place for key, child in inside for place in ((value, key), *places(child))]


def damage_json(text: str, r: random.Random) -> bytes:
    """Values replaced, removed, exchanged, renamed, doubled, nested without end; the text stays JSON, or nearly."""
    value, raws = json.loads(text), []
    for _ in range(r.choice((1, 1, 1, 2, 5))):
        found = places(value)
        if not found:
            break
        shallow = [place for place in found if len(found) < 200 or place[0] is value or r.random() < 100 / len(found)]
        holder, key = r.choice(shallow or found)
        kind = r.randrange(7)
        if kind == 0:
            raws.append(r.choice(RAW))
            holder[key] = f"@raw{len(raws) - 1}@"
        elif kind == 1 and isinstance(holder, dict):
            holder[r.choice(STRINGS)] = holder.pop(key)
        elif kind == 2:
            del holder[key]
        elif kind == 3:
            other, there = r.choice(found)
            with suppress(KeyError, IndexError):
                holder[key], other[there] = json.loads(json.dumps(other[there])), json.loads(json.dumps(holder[key]))
        elif kind == 4 and isinstance(holder, list):
            holder.insert(key, holder[key])
        elif isinstance(holder[key], int | float) and r.random() < 0.6:
            holder[key] = r.choice((*NUMBERS, holder[key] + 1, -holder[key], holder[key] * 2, float(holder[key])))
        else:
            holder[key] = json.loads(json.dumps(r.choice(VALUES)))
    written = json.dumps(value, ensure_ascii=r.random() < 0.5, allow_nan=True)
    for number, raw in enumerate(raws):
        written = written.replace(f'"@raw{number}@"', raw)
    if r.random() < 0.1:  # a key twice
        key = re.search(r'"\w+": ?', written)
        written = written.replace(key[0], f"{key[0]}{r.choice(RAW)}, {key[0]}", 1) if key else written
    return written.encode("utf-8", "surrogatepass")


def damage_text(data: bytes, r: random.Random) -> bytes:
    """A file of JSON: as JSON mostly, as bytes sometimes."""
    if r.random() < 0.7:
        return damage_json(data.decode(), r)
    if r.random() < 0.3:
        m = r.choice(list(re.finditer(rb"-?\d+(\.\d+)?", data)))
        return data[: m.start()] + str(r.choice(NUMBERS)).encode() + data[m.end() :]
    return damage_bytes(data, r)


def damage_lines(data: bytes, r: random.Random) -> bytes:
    lines = data.split(b"\n")
    at = r.randrange(max(1, len(lines) - 1))
    lines[at] = damage_text(lines[at], r)
    return b"\n".join(lines)


def damage_tensors(data: bytes, r: random.Random) -> bytes:
    """A safetensors file: its length, its header (offsets that overlap, run backwards, lie outside; shapes, types), its bytes."""
    if r.random() < 0.25:
        return damage_bytes(data, r)
    n = int.from_bytes(data[:8], "little")
    header, body = data[8 : 8 + n], data[8 + n :]
    if r.random() < 0.5:
        named = json.loads(header)
        names = [name for name in named if name != "__metadata__"]
        for name in r.sample(names, min(len(names), r.choice((1, 2, 5)))):
            tensor = named[name]
            kind = r.randrange(6)
            if kind == 0:
                tensor["data_offsets"] = [r.choice((*NUMBERS, len(body), tensor["data_offsets"][0])) for _ in range(2)]
            elif kind == 1:
                tensor["data_offsets"] = named.get(r.choice(names), tensor)["data_offsets"]
            elif kind == 2:
                tensor["shape"] = [r.choice((*NUMBERS[:8], 2**32, 2**62)) for _ in range(r.choice((0, 1, 2, 3, 80)))]
            elif kind == 3:
                tensor["dtype"] = r.choice(("F64", "F16", "BF16", "I32", "U8", "BOOL", "F8_E4M3", "F4", "C64", "", "X"))
            elif kind == 4:
                named[r.choice(("x", "blocks.99999.attn.qkv.weight", "blocks.", "unembed.weight", ""))] = named.pop(name)
            else:
                tensor["shape"] = [*tensor["shape"][::-1], *([1] * r.randrange(3))]
        header = json.dumps(named).encode()
    else:
        header = damage_json(header.decode(), r)
    if r.random() < 0.2:
        body = body[: r.randrange(len(body) + 1)] if r.random() < 0.5 else body + r.randbytes(r.choice((1, 100)))
    length = len(header) if r.random() < 0.9 else r.choice(NUMBERS) % 2**64
    return length.to_bytes(8, "little") + header + body


def damage_shard(data: bytes, r: random.Random) -> bytes:
    """A token file: the fields of its header above all."""
    from andrea.data.shards import HEADER, MAGIC

    if r.random() < 0.4:
        return damage_bytes(data, r)
    _, version, width, count, vocab_size = HEADER.unpack(data[: HEADER.size])
    body = data[HEADER.size :]
    if r.random() < 0.5:
        body = damage_bytes(body, r)
    width = r.choice((width, width, 2, 4, 0, 1, 2**32 - 1))
    vocab_size = r.choice((vocab_size, vocab_size, 0, 1, 65_536, 65_537, 2**32, 2**63, 2**64 - 1))
    whole = len(body) // max(1, width)
    count = r.choice((count, whole, whole, 0, 1, 2**31, 2**62, 2**63, 2**64 - 1))
    return HEADER.pack(MAGIC, r.choice((version, version, 0, 2**32 - 1)), width, count, vocab_size) + body


# --- targets ------------------------------------------------------------------------------------------------------------------------


class Bench:
    """A copy of the run in which files are damaged, and the functions that load them."""

    def __init__(self, run: Path, folder: Path):
        from andrea.data.tokenizer import char_tokenizer

        self.run, self.folder = folder / "run", folder
        shutil.copytree(run, self.run, ignore=shutil.ignore_patterns("tensorboard"))
        char_tokenizer(["an example é"]).save(folder / "char.json")
        self.step = self.run / "checkpoints" / (self.run / "last").read_text(encoding="utf-8").strip()

    def files(self, target: str) -> list[Path]:
        """What to damage."""
        return {
            "shards": [*sorted((self.run / "data").glob("*.tok"))],
            "run": [self.run / "run.json"],
            "tokenizer": [self.run / "tokenizer.json", self.folder / "char.json"],
            "safetensors": [self.step / "model.safetensors", self.step / "train.safetensors"],
            "checkpoint": [self.step / "state.json", self.step / "manifest.json", self.run / "last", self.run / "best"],
            "metrics": [self.run / "metrics.jsonl"],
        }[target]

    def load(self, target: str, file: Path) -> None:
        """Load a damaged file through every public function that reads it."""
        from andrea import checkpoint, run_folder
        from andrea.data.shards import Tokens
        from andrea.data.tokenizer import load_tokenizer
        from andrea.training.history import course, list_runs
        from andrea.training.optim import optimizer_for
        from andrea.training.state import State, set_train_tensors

        if target == "shards":
            tokens = Tokens([file])
            for start in (0, len(tokens) // 2, max(0, len(tokens) - 300)):
                tokens.read(start, min(len(tokens), start + 300))
        elif target == "tokenizer":
            tokenizer = load_tokenizer(file)
            tokenizer.decode([*tokenizer.encode("an example of"), tokenizer.vocab_size, 0])
        elif file.name == "train.safetensors":
            config = run_folder.read_run(self.run)[0]
            model = checkpoint.load_model(self.step / "model.safetensors", config.model)
            set_train_tensors(State(model, optimizer_for(model, config.optim)), checkpoint.load_tensors(file), "cpu")
        elif target == "checkpoint":
            checkpoint.step_at(self.run, "last")
            checkpoint.load(self.run)
            checkpoint.read_state(self.step)
            checkpoint.newest_whole(self.run)
        elif target == "metrics":
            list_runs(self.folder)
            course(str(self.run), self.folder)
        else:
            checkpoint.load(self.run, "last")


DAMAGE: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "shards": damage_shard,
    "run": damage_text,
    "tokenizer": damage_text,
    "safetensors": damage_tensors,
    "checkpoint": lambda data, r: damage_text(data, r) if data.startswith(b"{") else damage_bytes(data, r),
    "metrics": damage_lines,
}


def case(bench: Bench, target: str, seed: int, number: int) -> tuple[str | None, Path, bytes]:
    """Run one case. What was wrong ("" where it was refused as it should be, None where it loaded), the file, and its damaged bytes."""
    r = random.Random(f"{target} {seed} {number}")
    file = r.choice(bench.files(target))
    good = file.read_bytes()
    bad = DAMAGE[target](good, r)
    file.write_bytes(bad)
    wrong = None
    try:
        bench.load(target, file)
    except (ValueError, OSError):
        wrong = ""
    except BaseException as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        wrong = f"{type(error).__name__} at {Path(last.filename).name}:{last.lineno}: {str(error)[:200]}"
    finally:
        file.write_bytes(good)
    return wrong, file, bad


def work(target: str, run: Path, seed: int, first: int, cases: int | None, seconds: float, keep: Path) -> None:
    """Cases from number `first` on: one line per finding, and the number of the next case in a file of its own before it runs."""
    import resource

    import torch

    torch.set_num_threads(1)
    import andrea.training.start  # noqa: F401  (what is imported does not count)

    taken = sum(int(line.split("-")[1].split()[0], 16) - int(line.split("-")[0], 16) for line in maps())
    resource.setrlimit(resource.RLIMIT_AS, (taken + MEMORY, resource.RLIM_INFINITY))
    end = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder, (keep / f"{target}.at").open("w", encoding="ascii") as at:
        bench = Bench(run, Path(folder))
        number, refused = first, 0
        while number < cases if cases else time.monotonic() < end:
            at.seek(0)
            at.write(f"{number:12}")
            at.flush()
            wrong, file, bad = case(bench, target, seed, number)
            if wrong:
                (keep / f"{target}-{seed}-{number}-{file.name}").write_bytes(bad)
                print(json.dumps({"case": number, "wrong": wrong}), flush=True)
            number, refused = number + 1, refused + (wrong == "")
        at.seek(0)
        at.write(f"{number:12}")
    print(json.dumps({"refused": refused}))


def maps() -> list[str]:
    try:
        return Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    except OSError:  # no Linux
        return [f"0-{8 << 30:x} "]


# --- all of it ----------------------------------------------------------------------------------------------------------------------


def watch(target: str, run: Path, seed: int, cases: int | None, seconds: float, keep: Path) -> dict[str, Any]:
    """Executions and findings of one target; a worker that dies or hangs is a finding, and another goes on after the case."""
    begun, first, findings, refused = time.monotonic(), 0, [], 0
    place = keep / f"{target}.at"
    while True:
        left = seconds - (time.monotonic() - begun)
        place.write_text(f"{first}", encoding="ascii")
        options = [target, str(run), str(seed), str(first), str(cases), str(left), str(keep)]
        with tempfile.TemporaryFile() as told, tempfile.TemporaryFile() as errors:
            process = subprocess.Popen([sys.executable, __file__, "--worker", *options], stdout=told, stderr=errors)
            seen, since, hung = "", time.monotonic(), False
            while process.poll() is None:
                time.sleep(0.2)
                if (now := place.read_text(encoding="ascii")) != seen:
                    seen, since = now, time.monotonic()
                elif time.monotonic() - since > PATIENCE + 30 * (int(now or first) == first):  # the imports
                    process.kill()
                    hung = True
            told.seek(0)
            lines = [json.loads(line) for line in told.read().splitlines()]
            findings += [line for line in lines if "wrong" in line]
            refused += sum(line.get("refused", 0) for line in lines)
            number = int(place.read_text(encoding="ascii"))
            if not process.returncode:
                break
            errors.seek(0)
            last = (errors.read().decode("utf-8", "replace").strip().splitlines() or [""])[-1]
            how = f"hung for {PATIENCE:.0f} s" if hung else f"died with {process.returncode}: {last}"
            findings.append({"case": number, "wrong": how})
            first = number + 1
    place.unlink()
    kinds: dict[str, list[int]] = {}
    for finding in findings:
        kinds.setdefault(re.sub(r"\d{3,}", "N", finding["wrong"]), []).append(finding["case"])
    return {"target": target, "seed": seed, "executions": number, "refused": refused, "findings": len(findings), "kinds": kinds}


def tiny_run(folder: Path) -> Path:
    """A run made with the program itself, from one module of the standard library."""
    text = Path(sysconfig.get_path("stdlib"), "argparse.py")
    options = [part for change in TINY for part in ("--set", change)]
    made = folder / "made"
    subprocess.run([sys.executable, "-m", "andrea", "train", str(text), "--out", str(made), *options], check=True, capture_output=True)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1.0, help="for each target")
    parser.add_argument("--cases", type=int, help="so many for each target, however long they take")
    parser.add_argument("--only", choices=DAMAGE, action="append")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--run", type=Path, help="a run to damage copies of; none: one is made")
    parser.add_argument("--keep", type=Path, default=Path("fuzz-findings"), help="where findings are kept")
    parser.add_argument("--json", action="store_true", help="JSON alone")
    options = parser.parse_args()
    options.keep.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        run = options.run or tiny_run(Path(folder))
        rows = []
        for target in options.only or DAMAGE:
            row = watch(target, run, options.seed, options.cases, options.minutes * 60, options.keep)
            rows.append(row)
            if not options.json:
                counts = "".join(f"{row[name]:11,} {name}" for name in ("executions", "refused", "findings"))
                print(f"{target:12}{counts}", flush=True)
                for kind, numbers in row["kinds"].items():
                    print(f"    {len(numbers)} x {kind}   (case {numbers[0]})", flush=True)
    if not any(options.keep.iterdir()):
        options.keep.rmdir()
    from andrea.machine import provenance

    print(json.dumps({"benchmark": "fuzz", "targets": rows, **provenance()}))
    sys.exit(any(row["findings"] for row in rows))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        name, where, s, n, most, left_s, kept = sys.argv[2:]
        work(name, Path(where), int(s), int(n), None if most == "None" else int(most), float(left_s), Path(kept))
    else:
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        main()
