"""`andrea generate`: a prompt continued, or a file of them."""

import json
import signal
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from andrea.files import field, parse, read_text
from andrea.show import printable

if TYPE_CHECKING:
    from andrea.infer import Completion, Engine, Sampling

Option, Argument = typer.Option, typer.Argument
T = TypeVar("T")
MOST = 1 << 30  # bytes of a file of prompts


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
    n: Annotated[int, Option("-n", "--n", help="How many answers; answer i has the seed + i. With --json all come at the end.")] = 1,
    choices: Annotated[str | None, Option(metavar="'A|B|...'", help="The answer is exactly one of these.", show_default=False)] = None,
    regex: Annotated[str | None, Option(help="The whole answer matches this regular expression.", show_default=False)] = None,
    schema: Annotated[Path | None, Option(metavar="FILE", help="The answer is JSON of this JSON schema.", show_default=False)] = None,
    logprobs: Annotated[int, Option(help="With --json, tell of this many of the likeliest tokens at every place.")] = 0,
    lookup: Annotated[
        int, Option(help="Guess this many tokens at a time from earlier text: faster where text repeats itself, and the same text.")
    ] = 0,
    prompts: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="Continue every line of a file; of a .jsonl, the `prompt` of every object, with options of its own (max_tokens, ...).",
            show_default=False,
        ),
    ] = None,
    ignore_separator: Annotated[bool, Option("--ignore-separator", help="Go on where the model ends its document.")] = False,
    past_context: Annotated[
        str, Option(metavar="recompute|stop", help="When the context is full: drop its oldest half and go on, or end.")
    ] = "recompute",
    precision: Annotated[
        str, Option(metavar="auto|float32|bf16|int8|int4", help="Of the weights; int8 and int4 after `andrea quantize`. auto is float32.")
    ] = "auto",
    device: Annotated[str, Option(help="auto, cpu, cuda, cuda:1, mps.")] = "auto",
    at: Annotated[str, Option(metavar="best|last", help="Which checkpoint of the run.")] = "best",
    as_json: Annotated[bool, Option("--json", help="Print one JSON object instead of text; with --prompts one a line.")] = False,
) -> None:
    """Let a model speak: continue a prompt, and print both as the text comes.

    Without a prompt it begins a document of its own. How it ended, the speed and the seed go to standard error.
    Standard input is read as UTF-8 to its end, and nothing is stripped: a final newline is part of the prompt.

    Examples:

      andrea generate runs/first "Once upon a time"

      andrea generate runs/first "ROMEO:" --temperature 0.6 --top-p 0.95 --seed 7 --stop "JULIET:"

      cat story.txt | andrea generate runs/first --max-tokens 500 -n 3

      andrea generate runs/first "The" --temperature 0 --json --logprobs 5

      andrea generate runs/first "Is it a function? " --choices "yes|no"

      andrea generate runs/first --prompts questions.txt --json > answers.jsonl
    """
    import secrets
    from time import perf_counter

    from andrea import infer
    from andrea.checkpoint import load
    from andrea.infer.cpu import CpuDecoder, decoder_for
    from andrea.machine import choose_device

    if logprobs and not as_json:
        raise ValueError("--logprobs are told with --json; add it")
    if prompts and prompt is not None:
        raise ValueError(f"a prompt and --prompts {prompts} were given; wanted one of them")
    fresh = lambda: secrets.randbits(32) if seed is None else seed
    sampling = infer.Sampling(
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
        seed=fresh(),
        max_tokens=max_tokens,
        stop=tuple(stop or ()),
        past_context=past_context,
        ignore_separator=ignore_separator,
        logprobs=logprobs,
        choices=() if choices is None else split_choices(choices),
        regex=regex,
        json_schema=None if schema is None else read_schema(schema),
        lookup=lookup,
    )
    if prompts:
        requests = [(text, replace(s, seed=fresh()) if s is sampling else s) for text, s in read_prompts(prompts, sampling)]
    else:
        requests = [(read_standard_input() if prompt == "-" or (prompt is None and piped()) else prompt or "", sampling)]
    opened = load(run, at, choose_device(device).value)
    tokenizer = opened.tokenizer
    if any(text.endswith(" ") and not s.rules for text, s in requests) and any(p[:1] == b" " and p[1:] for p in tokenizer.pieces):
        typer.echo("note: the prompt ends in a space, and words of this tokenizer bring their own: leave it out", err=True)
    slots = max(1, min(n * len(requests), infer.SLOTS))
    with compiling_aloud("float32" if precision == "auto" else precision):
        decoder, why = decoder_for(opened, {"bf16": "bfloat16"}.get(precision, precision), slots)
    if not isinstance(decoder, CpuDecoder):
        typer.echo(f"decoding by {why}", err=True)
    del opened  # the decoder has what it needs of the model
    speaker = infer.Engine(decoder, tokenizer)
    aloud = n == 1 and not as_json and not prompts
    work = continued(speaker, *requests[0]) if aloud else infer.answer(speaker, requests, n, named=prompts is not None)
    start, ends, count, answers = perf_counter(), Counter[str](), 0, list[infer.Completion]()
    try:
        with warnings_on_standard_error(), interruptible(work) as until_asked:
            for i, answer in enumerate(filter(None, until_asked)):
                text, s = requests[i // n]
                if as_json:  # an object has all answers to its prompt
                    answers.append(answer)
                    if len(answers) == n:
                        write(json.dumps(report(tokenizer, text, s, answers)) + "\n")
                        answers.clear()
                elif not aloud:
                    write(f"--- {i % n + 1} of {n}, seed {(s.seed or 0) + i % n} ---\n{text}{answer.text}\n")
                ends[answer.finish] += 1
                count += len(answer.ids)
    except KeyboardInterrupt:
        typer.echo("\n" * aloud + f"andrea: interrupted; seed {sampling.seed}", err=True)
        sys.exit(130)
    seconds = perf_counter() - start
    finish = ", ".join(end if ends.total() == 1 else f"{times} {end}" for end, times in ends.items())
    guesses = f"; {speaker.held} of {speaker.guessed} guesses held" if lookup else ""
    typer.echo(f"finish: {finish}; {count} tokens, {count / seconds:.1f} tokens/s{guesses}; seed {sampling.seed}", err=True)


def split_choices(text: str) -> tuple[str, ...]:
    if not all(choices := tuple(text.split("|"))):
        raise ValueError(f"--choices {text!r} has an empty choice; wanted texts with | between them, as 'yes|no'")
    return choices


def read_schema(path: Path) -> str:
    from andrea.infer.constrain import WANTED

    try:
        parse(text := read_text(path), path)
    except (OSError, ValueError) as error:
        said = f"{path}: {error.strerror}" if isinstance(error, OSError) else error
        raise ValueError(f"--schema {said}; {WANTED['json_schema']}") from None
    return text


def read_prompts(path: Path, sampling: "Sampling") -> "list[tuple[str, Sampling]]":
    """The prompts of a file, and how each is to be answered: as `sampling` says, but for what a line of a .jsonl says itself."""
    lines = read_text(path, MOST).split("\n")
    lines = [line.removesuffix("\r") for line in (lines if lines[-1] else lines[:-1])]
    if not lines:
        raise ValueError(f"{path} is empty; wanted a prompt on every line")
    if path.suffix != ".jsonl":
        return [(line, sampling) for line in lines]
    requests = []
    for number, line in enumerate(lines, 1):
        where = f"{path}, line {number}"
        given = parse(line, where)
        text = field(given, "prompt", str, where)
        options = {name: value for name, value in given.items() if name != "prompt"}
        if unknown := [name for name in options if name not in asdict(sampling)]:
            raise ValueError(f"{where} has {unknown[0]!r}; known are prompt, {', '.join(asdict(sampling))}")
        try:
            requests.append((text, replace(sampling, **options) if options else sampling))
        except (ValueError, TypeError) as error:
            raise ValueError(f"{where}: {error}") from None
    return requests


def continued(speaker: "Engine", text: str, sampling: "Sampling") -> "Iterator[Completion | None]":
    """The prompt and then its answer, printed as they come; None after every token, and at last the whole answer."""
    from andrea.infer import ask, collect, tokens

    ask(speaker, text, sampling)
    said = []
    write(text)
    for token in tokens(speaker):
        write(token.text)
        said.append(token)
        yield None
    write("\n")
    yield collect(said, 1)[0]


@contextmanager
def interruptible(work: Iterator[T]) -> Iterator[Iterator[T]]:
    """The same, with KeyboardInterrupt between two of its items after Ctrl-C; the second time at once.

    Raised wherever the program happens to be, it would now and then come to code that lets no exception out, and be lost.
    """
    asked: list[int] = []

    def ask(number: int, frame: Any) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    def until_asked() -> Iterator[T]:
        for item in work:
            if asked:
                raise KeyboardInterrupt
            yield item

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield until_asked()
    finally:
        signal.signal(signal.SIGINT, before)


def report(tokenizer: Any, prompt: str, sampling: "Sampling", answers: "list[Completion]") -> dict[str, Any]:
    """What --json prints. Logprobs are in nats, one per id; a token that is part of a character reads U+FFFD."""
    from andrea.infer import prompt_ids

    spelled = lambda id: tokenizer.token_bytes(id).decode("utf-8", "replace")
    told = lambda top: {"token": spelled(top[0]), "id": top[0], "logprob": top[1]}
    return {
        "prompt": prompt,
        "prompt_ids": prompt_ids(tokenizer, prompt),
        "samples": [
            {
                "text": answer.text,
                "ids": answer.ids,
                "tokens": list(map(spelled, answer.ids)),
                "logprobs": answer.logprobs,
                **({"top_logprobs": [list(map(told, top)) for top in answer.tops]} if sampling.logprobs else {}),
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
    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = lambda message, *_, **__: typer.echo(f"warning: {message}", err=True)
        yield


@contextmanager
def compiling_aloud(precision: str) -> Iterator[None]:
    """Say so where Numba has to compile because nothing of it is on the disk yet."""
    try:
        from numba.core.event import Event, Listener, install_listener
    except ImportError:  # torch computes
        yield
        return

    class Told(Listener):
        events = 0

        def on_start(self, event: Event) -> None:
            if not self.events:
                typer.echo(f"compiling the {precision} step for this processor, once (5 to 10 s)", err=True)
            self.events += 1

        def on_end(self, event: Event) -> None:
            pass

    with install_listener("numba:compile", Told()):
        yield
