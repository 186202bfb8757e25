"""`andrea heads`: what each attention head does."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from andrea.show import Table, print_json, terminal

Option, Argument = typer.Option, typer.Argument


def heads(
    run: Annotated[Path, Argument(help="A run folder, or its name under runs/.", show_default=False)],
    *,
    n: Annotated[int | None, Option("-n", help="Random tokens in a sequence, which comes twice. Default: 64, or what fits.")] = None,
    rows: Annotated[int, Option(help="Sequences.")] = 8,
    seed: Annotated[int, Option(help="Of the random tokens.")] = 0,
    device: Annotated[str, Option(help="cpu, cuda, cuda:1; not mps, which lacks the float64 that this takes.")] = "cpu",
    at: Annotated[str, Option(metavar="best|last", help="Which checkpoint of the run.")] = "best",
    as_json: Annotated[bool, Option("--json", help="Print one JSON object instead of tables.")] = False,
) -> None:
    """Find out what kind each head is: it looks one back, at the same token before, at what came after it, or at the beginning.

    The model reads random tokens that come twice, so that nothing but the order can help it. A head gets a name where a tenth of its
    attention or more goes that way, and five times what looking everywhere alike would give. That value is the first row.

    Examples:

      andrea heads runs/first

      andrea heads runs/first -n 100 --rows 16 --json
    """
    from andrea.checkpoint import load
    from andrea.insight.flow import SCORES
    from andrea.insight.flow import heads as score
    from andrea.machine import choose_device

    if rows < 1:
        raise ValueError(f"--rows {rows} must be at least 1")
    opened = load(run, at, choose_device(device).value)
    found = score(opened.model, n, rows, opened.tokenizer.separator, seed)
    if as_json:
        each = [{**asdict(head), "kind": found.kind(head)} for head in found.heads]
        print_json({"run": str(opened.path), "step": opened.step, **asdict(found), "heads": each, "repeats_help": found.repeats_help})
        return
    lines = [("", "", "uniform", *(f"{found.uniform[name]:.3f}" for name in SCORES), "", "1.000")]
    for head in found.heads:
        scores = (f"{getattr(head, name):.3f}" for name in SCORES)
        lines.append((str(head.block), str(head.head), found.kind(head), *scores, f"{head.copying:+.2f}", f"{head.entropy:.3f}"))
    columns = (">block", ">head", "kind", ">previous", ">duplicate", ">induction", ">first", ">copying", ">spread 0..1")
    first, second = found.loss_first, found.loss_second
    note = (
        f"{found.n} random tokens, twice: {first:.3f} nats per token in the first copy, {second:.3f} in the second ({second - first:+.3f})."
    )
    terminal([Table(f"{opened.path}: heads", columns, lines, note)])
