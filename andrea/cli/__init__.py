"""The command line. Every command: parse, call one function, show."""

import errno
import os
import sys
from collections.abc import Callable
from typing import Annotated

import typer

from andrea.cli import count, data, evaluate, generate, runs, train
from andrea.version import __version__

app = typer.Typer(
    name="andrea",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="markdown",
)

COMMANDS: dict[str, Callable[..., None]] = {
    "demo": train.demo,
    "train": train.train,
    "runs": runs.runs,
    "generate": generate.generate,
    "eval": evaluate.evaluate,
    "count": count.count,
    "data": data.data,
}
for name, command in COMMANDS.items():
    app.command(name, rich_help_panel="Commands, in the order of a first visit")(command)


def show_version(wanted: bool) -> None:
    if wanted:
        print(f"andrea {__version__}")
        raise typer.Exit


@app.callback()
def andrea(
    version: Annotated[bool, typer.Option("--version", callback=show_version, is_eager=True, help="Print the version.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Grow a small language model on your own text, count it, hear it speak: offline, on the machine you have.

    Start with **andrea demo**, or with a text of yours: **andrea train book.txt --minutes 5**.
    """


def told(error: Exception) -> str:
    """What happened, with the file's name where the system gives one, and on a full disk what to do."""
    if not isinstance(error, OSError) or not error.strerror:
        return str(error)
    where = f": {error.filename}" if error.filename else ""
    full = error.errno in (errno.ENOSPC, getattr(errno, "EDQUOT", None))
    return f"{error.strerror}{where}" + ("; make room, and nothing that was saved is lost" if full else "")


def main() -> None:
    """Run the command line. Exit code 2 for what was asked wrongly, 1 for what failed; one message, no traceback without --debug."""
    # GNU OpenMP threads spin while they wait for each other; on a machine that does something else besides, that keeps those they wait for
    # from running. This many turns cost nothing alone and less in company (LOG.md). Read when torch is imported.
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a console that lacks a character prints ? instead of dying
    debug, sys.argv[1:] = "--debug" in sys.argv, [arg for arg in sys.argv[1:] if arg != "--debug"]
    try:
        app()
    except (ValueError, OSError, RuntimeError, ArithmeticError) as error:
        if debug:
            raise
        print(f"andrea: {told(error)}", *getattr(error, "__notes__", []), sep="\n", file=sys.stderr)
        sys.exit(2 if isinstance(error, ValueError | FileNotFoundError | FileExistsError) else 1)
