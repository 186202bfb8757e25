"""`andrea quantize`: the same model in fewer bits."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from andrea.show import Table, print_json, size, terminal

if TYPE_CHECKING:
    from andrea.checkpoint import Run
    from andrea.evaluate import TokenSequence

Option, Argument = typer.Option, typer.Argument
PRECISIONS = {"int8": "int8", "int4": "int4", "bf16": "bfloat16", "bfloat16": "bfloat16"}


def quantize(
    run: Annotated[Path, Argument(help="A run folder, or its name under runs/.", show_default=False)],
    paths: Annotated[
        list[str] | None,
        Argument(help="Text to round for; the last tenth of it is measured on. None: the run's own splits.", show_default=False),
    ] = None,
    *,
    to: Annotated[str, Option(metavar="int8|int4|bf16", help="Bits of a weight: 8, 4 or 16.")] = "int8",
    field: Annotated[
        str | None,
        Option(help="The key or column of .jsonl, .csv, .parquet that holds the text. Default: as in training.", show_default=False),
    ] = None,
    at: Annotated[str, Option(metavar="best|last", help="Which checkpoint of the run.")] = "best",
    as_json: Annotated[bool, Option("--json", help="Print one JSON object instead of a table.")] = False,
) -> None:
    """Write a model's weights in fewer bits beside the model, and tell what that does to its perplexity.

    Fewer bits are read faster: that is what the speed of an answer hangs on. The model itself stays as it is. The perplexity is that of the
    whole validation split, with the weights and the rounded inputs that generate will compute with. An imported run has no text: give one.

    Examples:

      andrea quantize runs/mine

      andrea quantize runs/mine --to int4 --json

      andrea quantize runs/imported book.txt
    """
    from andrea.checkpoint import load
    from andrea.evaluate import evaluate
    from andrea.infer.quantize import CALIBRATION, METHODS, as_model, calibration, pack, write_packed

    if to not in PRECISIONS:
        raise ValueError(f"--to {to} is none of {', '.join(PRECISIONS)}")
    opened, precision = load(run, at), PRECISIONS[to]
    model = opened.model
    with splits(opened, paths or (), field) as (train, val):
        print(f"rounding to {precision}, on {min(CALIBRATION, len(train)):,} tokens of text", file=sys.stderr, flush=True)
        packed = pack(model, precision, calibration(train, model.config.context))
        print(f"perplexity before and after, on {len(val) - 1:,} tokens of other text", file=sys.stderr, flush=True)
        before, after = (evaluate(m, val, opened.tokenizer) for m in (model, as_model(packed)))
    path = write_packed(opened, packed)
    change = after.perplexity / before.perplexity - 1
    sizes = pack(model, "float32").n_bytes, packed.n_bytes
    if as_json:
        print_json(
            {
                "run": str(opened.path),
                "step": opened.step,
                "precision": precision,
                "method": METHODS[precision],
                "path": str(path),
                "before": {"weight_bytes": sizes[0], **before.to_dict()},
                "after": {"weight_bytes": sizes[1], **after.to_dict()},
                "perplexity_change": change,
            }
        )
        return
    each = zip(("float32", precision), sizes, (before, after), strict=True)
    lines = [(name, size(n_bytes), f"{found.loss:.4f}", f"{found.perplexity:.4f}") for name, n_bytes, found in each]
    note = f"Perplexity {100 * change:+.3f} % on {before.targets:,} tokens that it was not rounded for. Written to {path}."
    terminal([Table(f"{opened.path} at step {opened.step}", ("weights", ">size", ">nats/token", ">perplexity"), lines, note)])


@contextmanager
def splits(opened: "Run", paths: Sequence[str], field: str | None) -> "Iterator[tuple[TokenSequence, TokenSequence]]":
    """What to round for and what to measure on: the run's own splits, or nine tenths of another text and its last."""
    from andrea.data.prepare import encoded
    from andrea.evaluate import Part

    if not paths:
        own = opened.open_data()
        yield own.train, own.val
        return
    data = opened.config.data
    with encoded(replace(data, paths=tuple(paths), field=field or data.field), opened.tokenizer) as tokens:
        cut = len(tokens) * 9 // 10
        if len(tokens) - cut < 2:
            raise ValueError(f"{' '.join(paths)} has {len(tokens)} tokens; wanted at least 11, and better some 100,000")
        yield Part(tokens, 0, cut), Part(tokens, cut, len(tokens))
