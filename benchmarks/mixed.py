"""A mixed corpus of real text (benchmarks/mixed_corpus.py), and what `andrea data` makes of it, judged by what was planted in it.

    python benchmarks/mixed.py [--megabytes 300] [--small 20] [--seed 42] [--workers 2] [--cache FOLDER] [--keep FOLDER]

The large corpus is prepared once, with near duplicates removed; the small one with none removed and Unicode composed, then with near ones
removed by one worker and by two. All tokens are decoded and the planted words counted: a mark is lost when a word of it is gone, refused
when its file is named as skipped; a planted quote or copy is removed when its words stand once and no more. Without removal, every word
must stand exactly as often as it was written. Prints tables, and one JSON line with the machine and the commit. Linux: memory is read
from /proc. By default some 2 GB of disk and half an hour.
"""

import argparse
import ctypes
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from mixed_corpus import FORM, HIDDEN, MOJIBAKE, SENTINEL, SIGNATURE, make

ROOT = Path(__file__).resolve().parent.parent
CHUNK = 1 << 20  # tokens read at a time
LISTS = ("lost", "refused", "words_counted_wrongly", "stayed", "not_named")  # of names: shown short

# -------------------------------------------------------------------------------------------------------------------------- preparing


def obey_permissions() -> None:
    """Root reads what nobody may: give up the two capabilities by which it does."""
    if hasattr(os, "geteuid") and os.geteuid() == 0 and sys.platform == "linux":
        drop, override, read_search = 24, 1, 2  # PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH: linux/prctl.h, linux/capability.h
        libc = ctypes.CDLL(None)
        libc.prctl(drop, override)
        libc.prctl(drop, read_search)


def memory(pid: int) -> int:
    """Bytes that a process and its descendants hold, what they share counted once; 0 where the system does not say."""
    total, children = 0, [pid]
    while children:
        process = Path("/proc", str(children.pop()))
        try:
            total += 1024 * int(re.search(r"(?m)^Pss:\s+(\d+)", (process / "smaps_rollup").read_text())[1])
            children += [int(child) for task in (process / "task").iterdir() for child in (task / "children").read_text().split()]
        except (OSError, TypeError):  # it has ended
            pass
    return total


def cpu_seconds() -> float:
    """Of the children that have ended, and of theirs."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def prepare(corpus: Path, out: Path, *options: str) -> dict[str, Any]:
    """Run `andrea data`; its report, and code, crash (what it said), seconds, cpu_seconds, peak_mb."""
    command = [sys.executable, "-m", "andrea", "data", str(corpus), "--out", str(out), "--json", *options]
    start, before, peak = time.perf_counter(), cpu_seconds(), 0
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with tempfile.TemporaryFile() as said:
        # No thread runs here that a lock could have been taken by.
        process = subprocess.Popen(command, env=environment, stdout=said, stderr=said, preexec_fn=obey_permissions)  # noqa: PLW1509
        while process.poll() is None:
            peak = max(peak, memory(process.pid))
            time.sleep(0.1)
        seconds = time.perf_counter() - start
        said.seek(0)
        text = said.read().decode("utf-8", "replace")
    ok = process.returncode == 0
    report = json.loads((out / "data.json").read_text(encoding="utf-8")) if ok else {}
    crash = "" if ok else text[-3_000:]
    return {
        "report": report,
        "code": process.returncode,
        "crash": crash,
        "seconds": seconds,
        "cpu_seconds": cpu_seconds() - before,
        "peak_mb": peak / 1e6,
    }


def documents(folder: Path) -> Iterator[str]:
    """Every unit of both splits, as text."""
    import numpy as np

    from andrea.data.prepare import open_prepared

    prepared = open_prepared(folder)
    for split in (prepared.train, prepared.val):
        held: list[int] = []
        for start in range(0, len(split), CHUNK):
            ids = split.read(start, min(start + CHUNK, len(split)))
            first, *rest = np.split(ids, np.flatnonzero(ids == prepared.tokenizer.separator))
            held += first.tolist()
            for unit in rest:
                yield prepared.tokenizer.decode(held)
                held = unit.tolist()
        yield prepared.tokenizer.decode(held)


# ---------------------------------------------------------------------------------------------------------------------------- judging


class Found:
    """How often each planted word stands in the prepared text: as written, in any normal form, and in lines that open with >."""

    def __init__(self, texts: Iterable[str]):
        self.exact, self.any_form, self.quoted, self.mojibake = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
        for text in texts:
            for match in SENTINEL.finditer(text):
                word = unicodedata.normalize("NFC", match[0])
                self.exact[match[0]] += 1
                self.any_form[word] += 1
                self.quoted[word] += text[text.rfind("\n", 0, match.start()) + 1 :].startswith(">")
            self.mojibake.update({pattern: text.count(pattern) for pattern in MOJIBAKE})


def share(part: int, whole: int) -> float | None:
    return round(part / whole, 4) if whole else None


def judge(run: dict[str, Any], truth: dict[str, Any], out: Path, options: dict[str, str]) -> dict[str, Any]:
    """Figures of one preparation; lists of names where something went wrong."""
    if run["code"]:
        return {"crashes": 1, "code": run["code"], "said": run["crash"]}
    report, found, removing = run["report"], Found(documents(out)), options["dedup"] != "off"
    recall: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    planted: dict[str, list[int]] = defaultdict(lambda: [0, 0])  # removed, planted
    lost, refused, stayed, wrong, instead = [], [], [], [], 0
    skipped = {entry["name"] for entry in report["skipped"]}
    for mark in truth["marks"]:
        form = "NFC" if options["normalize"] == "nfc" else FORM.get(mark["form"], "NFC")
        kind, words, counts = mark["planted"], mark["words"], found.any_form
        is_there = all(found.exact[unicodedata.normalize(form, word)] for word in words) or (kind and all(counts[word] for word in words))
        for column in ("format", "encoding", "form"):
            recall[f"{column} {mark[column]}"][0] += bool(is_there)
            recall[f"{column} {mark[column]}"][1] += 1
        if any(name.startswith(mark["file"]) for name in skipped):  # the file, or something in it: named, and so not lost
            refused.append(f"{mark['file']} ({mark['format']}, {mark['encoding']})")
            continue
        if not is_there:
            lost.append(f"{mark['file']} ({mark['format']}, {mark['encoding']}, {mark['form']}; {kind or 'nothing planted'})")
        if kind:
            gone = all(counts[word] <= 1 for word in mark["planted_words"]) and not counts[mark["own_word"]]
            planted[kind][0] += gone
            planted[kind][1] += 1
            instead += gone and all(found.quoted[word] for word in mark["planted_words"])
            if not gone:
                stayed.append(f"{kind}: {mark['planted_words'][0]}, of {mark['file']}")
        twice = set(mark["planted_words"]) if kind and not kind.startswith(("mbox", "eml")) else set()
        wrong += [] if removing else [word for word in words if counts[word] != 1 + (word in twice)]
    quotes = [pair for kind, pair in planted.items() if not kind.startswith("copy")]
    written = truth["written"]
    return {
        "crashes": 0,
        "mb_s": round(report["bytes"] / run["seconds"] / 1e6, 2),
        "seconds": round(run["seconds"], 1),
        "cpu_seconds": round(run["cpu_seconds"], 1),
        "peak_mb": round(run["peak_mb"]),
        "bytes": report["bytes"],
        "fingerprint": report["fingerprint"],
        "recall": share(len(truth["marks"]) - len(lost) - len(refused), len(truth["marks"])),
        "lost": lost,
        "refused": refused,
        "words_counted_wrongly": wrong,
        "quotes_removed": share(sum(pair[0] for pair in quotes), sum(pair[1] for pair in quotes)),
        "quotes_kept_instead_of_originals": instead,
        "stayed": stayed,
        "by_kind": dict(sorted(planted.items())),
        "by_place": dict(sorted(recall.items())),
        "boiler": {kind: [max(found.any_form[w] for w in words), written[kind]] for kind, words in truth["boiler"].items()},
        "hidden_words": found.any_form[HIDDEN],
        "signatures": found.any_form[SIGNATURE],
        "mojibake": {p: [n, written.get(p, 0)] for p, n in found.mojibake.items() if n > written.get(p, 0)},
        "not_named": [name for name in truth["broken"] if not any(name in other for other in skipped)],
        "rows_skipped": [sum(report.get("rows_skipped", {}).values()), written["rows without text"]],
        **{key: report.get(key) for key in ("documents", "formats", "encodings", "normal_forms", "duplicates", "overlap")},
    }


def show(name: str, result: dict[str, Any]) -> None:
    print(f"\n{name}")
    if result["crashes"]:
        print(f"  CRASHED with exit code {result['code']}:\n{result['said']}")
        return
    for kind, (removed, planted) in result["by_kind"].items():
        print(f"  removed  {kind:<28} {removed:>5} of {planted}")
    for kind, (left, planted) in result["boiler"].items():
        print(f"  left     {kind:<28} {left:>5} of {planted}")
    for place, (found, planted) in result["by_place"].items():
        print(f"  found    {place:<28} {found:>5} of {planted}" + "   <--" * (found < planted))
    for key in LISTS:
        print(f"  {key} {len(result[key])}", *result[key][:8], sep="\n    ")
    for key, value in result.items():
        if key not in ("by_kind", "boiler", "by_place", *LISTS):
            print(f"  {key}: {value}")


def short(result: dict[str, Any]) -> dict[str, Any]:
    """Numbers for lists, and of the places only those where something is missing."""
    result = {key: len(value) if isinstance(value, list) and key in LISTS else value for key, value in result.items()}
    return result | {"by_place": {place: pair for place, pair in result.get("by_place", {}).items() if pair[0] < pair[1]}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=300, help="of text in the large corpus; 0: none")
    parser.add_argument("--small", type=float, default=20, help="of text in the small corpus; 0: none")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--workers", type=int, default=2, help="for the large corpus")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir(), "mixed-packages"), help="where packages are unpacked")
    parser.add_argument("--keep", type=Path, help="a new folder for corpora and prepared text, which otherwise go in the end")
    args = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    from andrea.machine import provenance

    runs = [("small", "off", "nfc", 2), ("small", "near", "none", 1), ("small", "near", "none", 2), ("large", "near", "none", args.workers)]
    sizes = {name: size for name, size in (("small", args.small), ("large", args.megabytes)) if size}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary:
        folder = args.keep or Path(temporary)
        truths = {name: make(folder / name, size, args.seed, args.cache) for name, size in sizes.items()}
        results = {}
        for size, dedup, normalize, workers in runs:
            if size in truths:
                options, name = {"dedup": dedup, "normalize": normalize, "workers": str(workers)}, f"{size}-{dedup}-{normalize}-{workers}"
                run = prepare(folder / size / "corpus", folder / name, *(part for key in options for part in (f"--{key}", options[key])))
                results[name] = judge(run, truths[size], folder / name, options)
                show(name, results[name])
    prints = [results[name].get("fingerprint") for name in ("small-near-none-1", "small-near-none-2") if name in results]
    equal = prints[0] == prints[1] is not None if prints else None
    print(f"\nequal for one worker and two: {equal}")
    line = {name: short(result) for name, result in results.items()}
    packages = {"packages_missing": next(iter(truths.values()))["packages_missing"]} if truths else {}
    print(json.dumps({"benchmark": "mixed", "seed": args.seed, **packages, "equal_for_workers": equal, **line, **provenance()}))


if __name__ == "__main__":
    main()
