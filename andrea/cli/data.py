"""`andrea data`."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from andrea.config import STORIES, DataConfig, ModelConfig, override

VOCAB_SIZE = ModelConfig().vocab_size

PATHS = "Files, folders, patterns, - for standard input, hf://datasets/NAME. None: the Python standard library's source."
CorpusOption = Annotated[
    str | None,
    typer.Option(
        metavar="library|stories", help="Without PATHS: the library's source (the default), or short stories that a grammar makes."
    ),
]
LanguageOption = Annotated[str | None, typer.Option(metavar="en|sv", help="Of the stories. Default: en.")]
StoriesOption = Annotated[int | None, typer.Option(help="How many stories.", show_default=f"{STORIES:,}")]


def with_text(config: DataConfig, paths: list[str] | None, corpus: str | None) -> DataConfig:
    """The config with the paths that were given as arguments. Raises ValueError where the text is named twice."""
    given = {"arguments": paths, "data.paths": config.paths, "the corpus": corpus or config.corpus != DataConfig().corpus}
    if len(names := [name for name, is_given in given.items() if is_given]) > 1:
        raise ValueError(f"the text is named twice, by {' and '.join(names)}; name it once")
    return replace(config, paths=tuple(paths)) if paths else config


def data(
    out: Annotated[Path, typer.Option(help="The folder to make; must not exist.")],
    paths: Annotated[list[str] | None, typer.Argument(help=PATHS)] = None,
    vocab_size: Annotated[
        int | None, typer.Option(help="Tokens: learned pieces + 256 bytes + 1 separator (bpe only).", show_default=str(VOCAB_SIZE))
    ] = None,
    tokenizer: Annotated[
        str | None, typer.Option(help="bpe (pieces learned from the text), char (its characters) or byte. Default: bpe.")
    ] = None,
    corpus: CorpusOption = None,
    language: LanguageOption = None,
    stories: StoriesOption = None,
    dedup: Annotated[
        str | None, typer.Option(metavar="off|exact|near", help="Leave out equal units; near: paragraphs that mostly stood before, too.")
    ] = None,
    field: Annotated[
        str | None, typer.Option(help="The key or column of .jsonl, .csv, .parquet that holds the text. Default: text.")
    ] = None,
    encoding: Annotated[str | None, typer.Option(help="Of files that are neither UTF-8 nor UTF-16, e.g. koi8-r. Default: western.")] = None,
    normalize: Annotated[
        str | None, typer.Option(metavar="none|nfc", help="Unicode normal form. Default: none, text stays as it is.")
    ] = None,
    bin_tokenizer: Annotated[
        str | None, typer.Option(metavar="NAME|FILE", help="What made nanoGPT's or llm.c's .bin files: gpt2, or a tokenizer.json.")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Threads; changes the speed, not the result. Default: every core.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help="e.g. split=tail, val_fraction=0.05.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Turn text into tokens once, to train on many times: `andrea train FOLDER` uses what this made.

    Examples:

      andrea data book.txt --out prepared

      andrea data books/ letters.mbox 'notes/**/*.md' --dedup near --vocab-size 4353 --out prepared

      zcat corpus.gz | andrea data - --out prepared

      andrea data --corpus stories --language sv --out sagor

      andrea train prepared --preset andrea-4m
    """
    from andrea.data.prepare import open_prepared, prepare_steps
    from andrea.files import named
    from andrea.show import print_json

    given = {
        "corpus": corpus,
        "language": language,
        "stories": stories,
        "tokenizer": tokenizer,
        "dedup": dedup,
        "field": field,
        "encoding": encoding,
        "normalize": normalize,
        "bin_tokenizer": bin_tokenizer,
    }
    config = override(DataConfig(), *(f"{name}={value}" for name, value in given.items() if value is not None), *(set_ or []))
    if vocab_size is not None and config.tokenizer != "bpe":
        raise ValueError(f"--vocab-size is for bpe; a {config.tokenizer} tokenizer has its own number of tokens: leave it out")
    config = with_text(config, paths, corpus)
    with named(out):
        for line in prepare_steps(config, VOCAB_SIZE if vocab_size is None else vocab_size, out, workers):
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
