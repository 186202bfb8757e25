"""`andrea data`."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from andrea.config import DataConfig, override


def data(
    out: Annotated[Path, typer.Option(help="The folder to make; must not exist.")],
    paths: Annotated[list[Path] | None, typer.Argument(help="Text files and folders. None: the Python standard library's source.")] = None,
    vocab_size: Annotated[int, typer.Option(help="Tokens: learned pieces + 256 bytes + 1 separator (bpe only).")] = 8449,
    tokenizer: Annotated[str | None, typer.Option(help="bpe, char or byte. Default: bpe.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help="e.g. split=tail, val_fraction=0.05.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Turn text into tokens once, to train on many times: `andrea train FOLDER` uses what this made.

    Examples:

      andrea data book.txt --out prepared

      andrea data books/ --vocab-size 4353 --out prepared

      andrea train prepared --preset andrea-4m
    """
    from andrea.data.prepare import open_prepared, prepare_steps
    from andrea.files import named
    from andrea.show import print_json

    config = override(DataConfig(), *([f"tokenizer={tokenizer}"] if tokenizer else []), *(set_ or []))
    config = replace(config, paths=tuple(map(str, paths))) if paths else config
    with named(out):
        for line in prepare_steps(config, vocab_size, out):
            if not json:
                print(line, flush=True)
    report = open_prepared(out).report
    if json:
        print_json(report)
        return
    from andrea.cli.progress import text_words

    for line in text_words(report):
        print(line)
    print(f"next: andrea train {out}")
