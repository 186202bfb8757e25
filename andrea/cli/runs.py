"""`andrea runs`."""

from pathlib import Path
from typing import Annotated, Any

import typer


def runs(
    run: Annotated[str | None, typer.Argument(help="One run, to see its course. None: list all.")] = None,
    folder: Annotated[Path, typer.Option(help="Where the runs are.")] = Path("runs"),
    png: Annotated[Path | None, typer.Option(help="Draw the run's losses into this file.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the runs, or show one: its losses while it learned.

    Examples:

      andrea runs

      andrea runs andrea-1m-1

      andrea runs andrea-1m-1 --png loss.png
    """
    from andrea import show
    from andrea.training.history import course, list_runs

    if png and json:
        raise ValueError("--png draws and --json prints; give one of them")
    if run is None:
        if png:
            raise ValueError("--png draws one run; name it: andrea runs RUN --png loss.png")
        rows = list_runs(folder)
        if json:
            show.print_json(rows)
        elif rows:
            show.table(
                [{**row, "run": Path(row["run"]).name, "steps": f"{row.get('step', '?')}/{row.get('steps', '?')}"} for row in rows],
                RUN_COLUMNS,
            )
        else:
            print(f"no runs in {folder}; andrea demo makes one")
        return
    found = course(run, folder)
    if png and not found["evaluations"]:
        raise ValueError(f"{found['run']} has no record of a training that could be drawn")
    if png:
        show.draw_losses(found, png)
        print(f"drew {png}")
    elif json:
        show.print_json(found)
    elif not found["evaluations"]:
        print("\n".join(without_record(found)))
    else:
        on = {True: "whole split", False: "part of it"}
        rows = [
            {**row, "loss": f"{row['loss']:.4f}", "bits_per_byte": f"{row['bits_per_byte']:.4f}", "on": on[row["whole"]]}
            for row in found["evaluations"]
        ]
        show.table(rows, ("step", "loss", "bits_per_byte", "seconds", "on"), f"{found['run']}: validation")


def without_record(found: dict[str, Any]) -> list[str]:
    """What there is to say of a run that was imported, or has only begun."""
    from andrea.cli.progress import shell

    model, run = found["model"], shell(found["run"])
    origin = f"imported from {found['imported_from']}" if found["imported_from"] else found["state"]
    sizes = ", ".join(f"{name} {model[name]:,}" for name in ("n_layer", "n_head", "d_model", "context", "vocab_size"))
    return [
        f"{found['run']}: {origin}; there is no record of its training",
        f"{found['parameters']:,} parameters: {sizes}, {model['activation']}, {model['positions']} positions",
        f"next: andrea count {run} tells of every matrix, andrea eval {run} FILE measures it on a text of yours",
    ]


RUN_COLUMNS = ("run", "parameters", "steps", "loss", "bits_per_byte", "minutes", "state")
