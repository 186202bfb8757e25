"""`andrea quantize`: the same model in fewer bits."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from andrea.show import Table, print_json, size, terminal

Option, Argument = typer.Option, typer.Argument
PRECISIONS = {"int8": "int8", "int4": "int4", "bf16": "bfloat16", "bfloat16": "bfloat16"}


def quantize(
    run: Annotated[Path, Argument(help="A run folder, or its name under runs/.", show_default=False)],
    *,
    to: Annotated[str, Option(metavar="int8|int4|bf16", help="Bits of a weight: 8, 4 or 16.")] = "int8",
    at: Annotated[str, Option(metavar="best|last", help="Which checkpoint of the run.")] = "best",
    as_json: Annotated[bool, Option("--json", help="Print one JSON object instead of a table.")] = False,
) -> None:
    """Write a model's weights in fewer bits beside the model, and tell what that does to its perplexity.

    Fewer bits are read faster: that is what the speed of an answer hangs on. The model itself stays as it is. The perplexity is that of the
    whole validation split, with the weights and the rounded inputs that generate will compute with.

    Examples:

      andrea quantize runs/mine

      andrea quantize runs/mine --to int4 --json
    """
    from andrea.checkpoint import load
    from andrea.evaluate import evaluate
    from andrea.infer.quantize import CALIBRATION, METHODS, as_model, calibration, pack, write_packed

    if to not in PRECISIONS:
        raise ValueError(f"--to {to} is none of {', '.join(PRECISIONS)}")
    opened, precision = load(run, at), PRECISIONS[to]
    data, model = opened.open_data(), opened.model
    print(f"rounding to {precision}, on {CALIBRATION:,} tokens of the training text", file=sys.stderr, flush=True)
    packed = pack(model, precision, calibration(data.train, model.config.context))
    print(f"perplexity before and after, on {len(data.val) - 1:,} tokens of validation text", file=sys.stderr, flush=True)
    before, after = (evaluate(m, data.val, opened.tokenizer) for m in (model, as_model(packed)))
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
    note = f"Perplexity {100 * change:+.3f} % on {before.targets:,} tokens of the validation split. Written to {path}."
    terminal([Table(f"{opened.path} at step {opened.step}", ("weights", ">size", ">nats/token", ">perplexity"), lines, note)])
