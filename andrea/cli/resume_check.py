"""`andrea resume-check`."""

from typing import Annotated

import typer


def resume_check(
    run: Annotated[str, typer.Argument(help="A run folder, or its name under runs/. It is only read.")],
    steps: Annotated[int, typer.Option(min=1, help="Steps before the stop, and as many after it.")] = 5,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Prove on a run of yours, on this machine, that stopping and resuming changes nothing.

    The run goes on from its newest save (or, where it is finished, from its beginning) twice, in folders that are thrown away: once
    without a stop, once with. Every weight, moment, generator and line of metrics.jsonl is compared. Exit code 1 if anything differs.

    Examples:

      andrea resume-check runs/mine

      andrea resume-check runs/mine --steps 20 --json
    """
    from andrea.show import print_json
    from andrea.training.check import Checked, check

    for event in check(run, steps):
        if not isinstance(event, Checked):
            if not json:
                print(event.text, flush=True)
        elif json:
            print_json(event.to_dict())
        else:
            print(*event.differences, sep="\n", end="\n" * bool(event.differences))
            verdict = f"{len(event.differences)} things differ" if event.differences else "the same, bit for bit"
            what = f"{event.tensors} tensors, the position in the data and metrics.jsonl at step {event.last_step:,}"
            print(f"{event.run}: {verdict}: {what}")
        if isinstance(event, Checked) and event.differences:
            raise typer.Exit(1)
