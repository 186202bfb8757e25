"""What run folders tell of the past: the list of runs, and the course of one."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from andrea.run_folder import find_run, read_run
from andrea.training.report import read_metrics


def list_runs(folder: Path) -> list[dict[str, Any]]:
    """A row for every run in folder, oldest first; loss and bits per byte are of the latest evaluation."""
    found = sorted((p.parent for p in folder.glob("*/run.json")), key=lambda run: (run / "run.json").stat().st_mtime)
    return [row(run) for run in found]


def row(run: Path) -> dict[str, Any]:
    """`summary`, or what is wrong with a run that cannot be read."""
    try:
        return summary(run, read_metrics(run))
    except (ValueError, OSError) as error:
        return {"run": str(run), "state": f"unreadable: {error}"}


def summary(run: Path, metrics: list[dict[str, Any]]) -> dict[str, Any]:
    from andrea.accounting import count

    config, resolved, origin = read_run(run)
    evaluations = [m for m in metrics if m["event"] == "Evaluated" and m["step"]]
    last = evaluations[-1] if evaluations else {}
    step = metrics[-1]["step"] if metrics else 0
    return {
        "run": str(run),
        "parameters": count(config.model).total,
        "step": step,
        "steps": resolved["steps"],
        "loss": last.get("loss"),
        "bits_per_byte": last.get("bits_per_byte"),
        "minutes": round(max((m.get("seconds", 0.0) for m in metrics), default=0.0) / 60, 2),
        "state": "finished"
        if last.get("whole") and last["step"] >= resolved["steps"]
        else "imported"
        if "imported_from" in origin
        else "stopped"
        if (run / "last").exists()
        else "begun",
    }


def course(name: str, folder: Path) -> dict[str, Any]:
    """One run: its summary, its model, where it was imported from, and the losses of its steps and evaluations in order."""
    run = find_run(name, folder)
    config, _, origin = read_run(run)
    metrics = read_metrics(run)
    pick = lambda kind, *keys: [{key: m[key] for key in keys} for m in metrics if m["event"] == kind]
    return {
        **summary(run, metrics),
        "model": asdict(config.model),
        "imported_from": origin.get("imported_from"),
        "evaluations": pick("Evaluated", "step", "loss", "standard_error", "bits_per_byte", "seconds", "whole"),
        "training": pick("StepDone", "step", "loss", "bits_per_byte", "lr", "tokens", "seconds"),
    }
