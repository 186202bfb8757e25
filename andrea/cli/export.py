"""`andrea export` and `andrea import`."""

from pathlib import Path
from typing import Annotated

import typer


def export(
    run: Annotated[str, typer.Argument(help="A run folder, or its name under runs/.")],
    to: Annotated[str, typer.Option(metavar="hf|gguf", help="hf: a folder for Hugging Face's transformers. gguf: a file for llama.cpp.")],
    precision: Annotated[
        str, typer.Option(metavar="f32|f16|bf16|q8_0|q4_0", help="Of the matrices; q8_0 and q4_0, 8 and 4 bits a weight, are gguf's.")
    ] = "f32",
    out: Annotated[Path | None, typer.Option(help="What to write; must not exist. Default: RUN-hf or RUN-PRECISION.gguf.")] = None,
    at: Annotated[str, typer.Option(metavar="best|last", help="Which checkpoint of the run.")] = "best",
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Write a model as the files of another program, its tokenizer included.

    Both give the logits that ANDREA gives, to rounding and what the precision takes. What their formats cannot say is refused by name.

    Examples:

      andrea export runs/mine --to hf

      andrea export runs/mine --to gguf --precision q8_0 --out mine.gguf
    """
    from andrea.checkpoint import load
    from andrea.cli.progress import shell
    from andrea.interop.gguf import export_gguf
    from andrea.interop.hf import export_hf
    from andrea.show import print_json, size

    if to not in ("hf", "gguf"):
        raise ValueError(f"--to {to} is neither hf nor gguf")
    opened = load(run, at)
    name = opened.path.resolve().name
    path = out or Path(f"{name}-hf" if to == "hf" else f"{name}-{precision}.gguf")
    (export_hf if to == "hf" else export_gguf)(opened, path, precision)
    taken = sum(p.stat().st_size for p in path.iterdir()) if path.is_dir() else path.stat().st_size
    if json:
        print_json({"run": str(opened.path), "step": opened.step, "to": to, "precision": precision, "path": str(path), "bytes": taken})
        return
    print(f"{opened.path} at step {opened.step}: {path}, {size(taken)} in {precision}")
    if to == "hf":
        print(f"next, in Python: transformers.AutoModelForCausalLM.from_pretrained({str(path)!r})")
    else:
        print(f"next: llama-completion -m {shell(path)} -p 'Once upon a time'")


def import_run(
    folder: Annotated[Path, typer.Argument(help="A folder of transformers with a GPT-2: config.json, model.safetensors, tokenizer.json.")],
    out: Annotated[Path, typer.Option(help="The run folder to make; must not exist.")],
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Make a run folder of a GPT-2 of Hugging Face's transformers, to hear, measure and look inside it.

    It has neither text nor training state: eval wants a text, and train --resume has nothing to go on from.

    Examples:

      andrea import gpt2/ --out runs/gpt2

      andrea generate runs/gpt2 "Once upon a time"
    """
    from andrea.accounting import count
    from andrea.cli.progress import shell
    from andrea.interop.hf import import_hf
    from andrea.run_folder import read_run
    from andrea.show import print_json

    model = read_run(import_hf(folder, out))[0].model
    parameters = count(model).total
    if json:
        print_json(
            {"run": str(out), "from": str(folder), "parameters": parameters, "vocab_size": model.vocab_size, "context": model.context}
        )
        return
    print(f"{out}: {parameters:,} parameters, {model.n_layer} layers, {model.vocab_size:,} tokens, context {model.context:,}")
    print(f"next: andrea generate {shell(out)} 'Once upon a time'")
