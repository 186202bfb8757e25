"""`andrea generate`: a prompt, continued."""

import json
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from andrea.show import printable

if TYPE_CHECKING:
    from andrea.infer import Completion, Sampling, Token

Option, Argument = typer.Option, typer.Argument


def generate(
    run: Annotated[Path, Argument(help="A run folder, or its name under runs/.", show_default=False)],
    prompt: Annotated[
        str | None, Argument(help="The text to continue. `-`, or none with piped input: standard input, as it is.", show_default=False)
    ] = None,
    *,
    temperature: Annotated[
        float, Option(help="Below 1 bolder in what is likely, above 1 more surprising; 0 always takes the likeliest.")
    ] = 0.8,
    top_k: Annotated[int, Option(help="Draw from the k likeliest tokens only; 0 is off.")] = 0,
    top_p: Annotated[float, Option(help="Draw from the likeliest tokens that together reach this probability; 1 is off.")] = 1.0,
    min_p: Annotated[float, Option(help="Draw from tokens at least this many times as likely as the likeliest; 0 is off.")] = 0.0,
    repetition_penalty: Annotated[float, Option(help="Above 1 avoids tokens of the prompt and the answer so far; 1 is off.")] = 1.0,
    seed: Annotated[int | None, Option(help="The same seed gives the same text; a new one every time when not given.")] = None,
    max_tokens: Annotated[int, Option(help="The most tokens to add.")] = 200,
    stop: Annotated[list[str] | None, Option(help="End before this text; may be given several times.", show_default=False)] = None,
    n: Annotated[int, Option("-n", help="How many answers; answer i has the seed + i.")] = 1,
    ignore_separator: Annotated[bool, Option("--ignore-separator", help="Go on where the model ends its document.")] = False,
    past_context: Annotated[
        str, Option(metavar="recompute|stop", help="When the context is full: drop its oldest half and go on, or end.")
    ] = "recompute",
    device: Annotated[str, Option(help="auto, cpu, cuda, cuda:1, mps.")] = "auto",
    at: Annotated[str, Option(metavar="best|last", help="Which checkpoint of the run.")] = "best",
    as_json: Annotated[bool, Option("--json", help="Print one JSON object instead of text.")] = False,
) -> None:
    """Let a model speak: continue a prompt, and print both as the text comes.

    Without a prompt it begins a document of its own. How it ended, the speed and the seed go to standard error.
    Standard input is read as UTF-8 to its end, and nothing is stripped: a final newline is part of the prompt.

    Examples:

      andrea generate runs/first "Once upon a time"

      andrea generate runs/first "ROMEO:" --temperature 0.6 --top-p 0.95 --seed 7 --stop "JULIET:"

      cat story.txt | andrea generate runs/first --max-tokens 500 -n 3

      andrea generate runs/first "The" --temperature 0 --json
    """
    import secrets
    from time import perf_counter

    from andrea import infer
    from andrea.checkpoint import load
    from andrea.machine import choose_device

    text = read_standard_input() if prompt == "-" or (prompt is None and piped()) else prompt or ""
    seed = secrets.randbits(32) if seed is None else seed
    sampling = infer.Sampling(
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
        seed=seed,
        max_tokens=max_tokens,
        stop=tuple(stop or ()),
        past_context=past_context,
        ignore_separator=ignore_separator,
    )
    opened = load(run, at, choose_device(device).value)
    with warnings_on_standard_error():
        tokens = infer.generate(opened, text, sampling, n)
    start = perf_counter()
    streams = n == 1 and not as_json
    try:
        with interruptible(tokens) as until_asked:
            answers = infer.collect(streamed(text, until_asked) if streams else until_asked, n)
    except KeyboardInterrupt:
        typer.echo("\n" * streams + f"andrea: interrupted; seed {seed}", err=True)
        sys.exit(130)
    seconds = perf_counter() - start

    if as_json:
        write(json.dumps(report(opened.tokenizer, text, sampling, answers)) + "\n")
    elif n > 1:
        for i, answer in enumerate(answers):
            write(f"--- {i + 1} of {n}, seed {seed + i} ---\n{text}{answer.text}\n")
    finish = ", ".join(answer.finish for answer in answers)
    count = sum(len(answer.ids) for answer in answers)
    typer.echo(f"finish: {finish}; {count} tokens, {count / seconds:.1f} tokens/s; seed {seed}", err=True)


@contextmanager
def interruptible(tokens: "Iterator[Token]") -> "Iterator[Iterator[Token]]":
    """The same tokens, with KeyboardInterrupt between two of them after Ctrl-C; the second time at once.

    Raised wherever the program happens to be, it would now and then come to code that lets no exception out, and be lost.
    """
    asked: list[int] = []

    def ask(number: int, frame: Any) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    def until_asked() -> "Iterator[Token]":
        for token in tokens:
            if asked:
                raise KeyboardInterrupt
            yield token

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield until_asked()
    finally:
        signal.signal(signal.SIGINT, before)


def streamed(prompt: str, tokens: "Iterator[Token]") -> "Iterator[Token]":
    """The same tokens, printed on their way, after the prompt and before a line end."""
    write(prompt)
    for token in tokens:
        write(token.text)
        yield token
    write("\n")


def report(tokenizer: Any, prompt: str, sampling: "Sampling", answers: "list[Completion]") -> dict[str, Any]:
    """What --json prints. Logprobs are in nats, one per id; a token that is part of a character reads U+FFFD."""
    from andrea.infer import prompt_ids

    return {
        "prompt": prompt,
        "prompt_ids": prompt_ids(tokenizer, prompt),
        "samples": [
            {
                "text": answer.text,
                "ids": answer.ids,
                "tokens": [tokenizer.token_bytes(i).decode("utf-8", "replace") for i in answer.ids],
                "logprobs": answer.logprobs,
                "finish_reason": answer.finish,
            }
            for answer in answers
        ],
        "seed": sampling.seed,
        "sampling": asdict(sampling),
    }


def piped() -> bool:
    return sys.stdin is not None and not sys.stdin.isatty()


def read_standard_input() -> str:
    if sys.stdin is None:
        raise ValueError("standard input is closed; give the prompt as an argument")
    try:
        return sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"standard input is not UTF-8: byte {error.start} is {error.object[error.start]:#04x}") from None


def write(text: str) -> None:
    """Print at once, with ? for what the console's encoding lacks; on a terminal control characters are spelled out."""
    if sys.stdout.isatty():
        text = printable(text)
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
    sys.stdout.flush()


@contextmanager
def warnings_on_standard_error() -> Iterator[None]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield
    for warning in caught:
        typer.echo(f"warning: {warning.message}", err=True)
