"""Records what andrea/training/curves.py compares runs with: whole runs of a preset on a text, of several lengths.

python benchmarks/curves.py andrea-1m 461 1000 3224 8702
python benchmarks/curves.py andrea-1m 500 2500 --text input.txt --name "Tiny Shakespeare"

Prints the entry for RECORDED. The runs stay in --out, and those that are there and finished are not made again.
"""

import argparse
import platform
from pathlib import Path

from andrea import run_folder
from andrea.config import override
from andrea.presets import preset
from andrea.training.curves import Curve
from andrea.training.report import read_metrics
from andrea.training.start import train


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("preset")
    parser.add_argument("steps", type=int, nargs="+")
    parser.add_argument("--text", type=Path, help="default: the built-in corpus")
    parser.add_argument("--name", default=f"the library of Python {platform.python_version()}")
    parser.add_argument("--out", type=Path, default=Path("curves"))
    args = parser.parse_args()
    ends, way, corpus = [], [], ""
    for steps in sorted(args.steps):
        run = args.out / f"{args.preset}-{args.text.stem if args.text else 'built-in'}-{steps}"
        texts = [f"data.paths={args.text.resolve()}"] if args.text else []
        if not any(m.get("whole") for m in read_metrics(run)):
            for _ in train(override(preset(args.preset), f"steps={steps}", *texts), run):
                pass
        config, _, provenance = run_folder.read_run(run)
        each, corpus = config.train.batch_tokens, provenance["data"]
        found = [(m["step"] * each, round(m["bits_per_byte"], 4), m["whole"]) for m in read_metrics(run) if m["event"] == "Evaluated"]
        ends += [(tokens, bits) for tokens, bits, whole in found if whole]
        stable = [(tokens, bits) for tokens, bits, whole in found if 0 < tokens <= (1 - config.optim.decay) * steps * each and not whole]
        way = [*(point for point in way if point[0] < stable[0][0]), *stable]
        print(f"{steps:,} steps: {ends[-1][1]} bits/byte", flush=True)
    print(Curve(args.preset, args.name, corpus, tuple(ends), tuple(way)))


if __name__ == "__main__":
    main()
