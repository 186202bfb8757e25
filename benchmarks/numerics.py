"""Whether the fast path learns as float32 does: the same runs with either, from several seeds.

    python benchmarks/numerics.py --text input.txt
    python benchmarks/numerics.py --text input.txt --steps 500 --seeds 5 --preset andrea-4m --plot curves.png --json

fast: what `andrea train` chooses here (bfloat16 autocast and the kernels for a CPU, where they run); plain: float32 and torch's own
operations. Both see the same batches in the same order. A difference between them counts against the spread between seeds.
"""

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
ARMS = {"fast": (), "plain": ("dtype=float32", "kernels=torch")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--preset", default="andrea-1m")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--plot", type=Path, help="draw the curves too")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    told: dict[str, dict] = {}
    curves: dict[str, list[list[float]]] = {arm: [] for arm in ARMS}
    finals: dict[str, list[float]] = {arm: [] for arm in ARMS}
    for seed in range(args.seeds):
        for arm, changes in ARMS.items():
            curve, final, told[arm] = grown(args.text, args.preset, (*changes, f"steps={args.steps}", f"train.seed={seed}"))
            curves[arm].append(curve)
            finals[arm].append(final)
            print(f"seed {seed}, {arm}: {final:.4f} nats on the validation split", file=sys.stderr, flush=True)
    if args.plot:
        draw(curves, args.plot)
    rows = compared(curves, finals, args.steps)
    if args.json:
        print(json.dumps({"resolved": told, "rows": rows, "validation": finals}))
        return
    print(f"{args.preset}, {args.steps} steps, {args.seeds} seeds; fast: {told['fast']}")
    print(f"{'':24}{'fast':>9}{'plain':>9}{'difference':>12}{'seeds apart':>13}")
    for name, row in rows.items():
        print(f"{name:24}{row['fast']:9.4f}{row['plain']:9.4f}{row['difference']:+12.4f}{row['seeds_apart']:13.4f}")


def grown(text: Path, preset_name: str, changes: tuple[str, ...]) -> tuple[list[float], float, dict]:
    """Training loss of every step, loss on the whole validation split, and what was resolved."""
    from andrea import run_folder
    from andrea.config import override
    from andrea.presets import preset
    from andrea.training.report import Finished, StepDone
    from andrea.training.start import train

    rare = [f"{what}_every=1000000" for what in ("evaluate", "sample", "save")]
    config = override(preset(preset_name), f"data.paths={text}", *rare, *changes)
    with tempfile.TemporaryDirectory() as folder:
        events = list(train(config, Path(folder, "run")))
        resolved = run_folder.read_run(Path(folder, "run"))[1]
    losses = [event.loss for event in events if isinstance(event, StepDone)]
    return losses, next(event.loss for event in events if isinstance(event, Finished)), resolved


def compared(curves: dict[str, list[list[float]]], finals: dict[str, list[float]], steps: int) -> dict[str, dict[str, float]]:
    """Means over seeds by fifths of the run and at its end, and the standard deviation between seeds of the plain arm."""
    fifth = max(1, steps // 5)
    rows = {}
    for start in range(0, steps, fifth):
        name = f"steps {start + 1} to {min(start + fifth, steps)}"
        rows[name] = row({arm: [statistics.fmean(c[start : start + fifth]) for c in all_of] for arm, all_of in curves.items()})
    return rows | {"validation": row(finals)}


def row(of: dict[str, list[float]]) -> dict[str, float]:
    fast, plain = (statistics.fmean(of[arm]) for arm in ARMS)
    return {"fast": fast, "plain": plain, "difference": fast - plain, "seeds_apart": statistics.stdev(of["plain"])}


def draw(curves: dict[str, list[list[float]]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(layout="constrained", figsize=(8, 4))
    axes = figure.subplots()
    for arm, colour in zip(ARMS, ("tab:blue", "tab:orange"), strict=True):
        for number, curve in enumerate(curves[arm]):
            axes.plot(range(1, len(curve) + 1), curve, color=colour, linewidth=0.7, label=None if number else arm)
    axes.set(xlabel="step", ylabel="training loss, nats per token")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
