"""`andrea eval`."""

from typing import Annotated

import typer


def evaluate(
    run: Annotated[str, typer.Argument(help="A run folder, or its name under runs/.")],
    paths: Annotated[list[str] | None, typer.Argument(help="Other text to measure on. None: the run's own validation split.")] = None,
    field: Annotated[
        str | None, typer.Option(help="The key or column of .jsonl, .csv, .parquet that holds the text. Default: as in training.")
    ] = None,
    at: Annotated[str, typer.Option(help="best or last.")] = "best",
    batch_rows: Annotated[int | None, typer.Option(help="Sequences at a time; changes speed and memory, not the result.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, mps.")] = "auto",
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure a model: nats per token, perplexity, bits per byte, with the standard error.

    The whole split is read and every token but the first is predicted once, in float32.

    Examples:

      andrea eval runs/mine

      andrea eval runs/mine other-book.txt --json
    """
    from contextlib import nullcontext
    from dataclasses import replace

    from andrea.checkpoint import load
    from andrea.data.prepare import encoded
    from andrea.evaluate import evaluate as measure
    from andrea.machine import choose_device
    from andrea.show import print_json

    opened = load(run, at, choose_device(device).value)
    data = opened.config.data
    config = replace(data, paths=tuple(paths or ()), field=field or data.field)
    with encoded(config, opened.tokenizer) if paths else nullcontext(opened.open_data().val) as tokens:
        result = measure(opened.model, tokens, opened.tokenizer, batch_rows)
    if json:
        print_json({"run": str(opened.path), "step": opened.step, **result.to_dict()})
        return
    print(f"{opened.path} at step {opened.step}: {result.targets:,} tokens, {result.bytes:,} bytes")
    error = "no standard error: one window" if result.standard_error is None else f"+- {result.standard_error:.4f}, standard error"
    print(f"  loss           {result.loss:.4f} nats/token ({error})")
    print(f"  perplexity     {result.perplexity:.3f}")
    print(f"  bits per byte  {result.bits_per_byte:.4f}")
