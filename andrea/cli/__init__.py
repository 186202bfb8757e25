"""The command line. Every command: parse, call one function, show."""

import gc
import os
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from andrea.cli import (
    claims,
    count,
    data,
    doctor,
    evaluate,
    export,
    flow,
    generate,
    heads,
    lens,
    plan,
    quantize,
    resume_check,
    runs,
    stories,
    trace,
    train,
    twin,
)
from andrea.cli.mistakes import answered
from andrea.machine import choose_threads
from andrea.version import __version__


class Flags:
    """A flag takes no value, so its help names no kind of value."""

    def get_params(self, ctx: Any) -> list[Any]:
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            if getattr(param, "is_flag", False):
                param.metavar = ""
        return params


class Command(Flags, TyperCommand):
    pass


class Group(Flags, TyperGroup):
    pass


app = typer.Typer(
    name="andrea",
    cls=Group,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="markdown",
)

COMMANDS: dict[str, Callable[..., None]] = {
    "demo": train.demo,
    "train": train.train,
    "plan": plan.plan,
    "runs": runs.runs,
    "generate": generate.generate,
    "eval": evaluate.evaluate,
    "quantize": quantize.quantize,
    "trace": trace.trace,
    "lens": lens.lens,
    "heads": heads.heads,
    "flow": flow.flow,
    "twin": twin.twin,
    "count": count.count,
    "data": data.data,
    "stories": stories.stories,
    "export": export.export,
    "import": export.import_run,
    "resume-check": resume_check.resume_check,
    "doctor": doctor.doctor,
}
for name, command in COMMANDS.items():
    app.command(name, cls=Command, rich_help_panel="Commands, in the order of a first visit")(command)
claims_app = typer.Typer(
    cls=Group, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]}, rich_markup_mode="markdown"
)
claims_app.callback()(claims.claims)
for name, part in claims.COMMANDS.items():
    claims_app.command(name, cls=Command)(part)
app.add_typer(claims_app, name="claims", rich_help_panel="Commands, in the order of a first visit")


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


def main() -> None:
    """Run the command line. Exit code 2 for what was asked wrongly, 1 for what failed; one message, no traceback without --debug."""
    # GNU OpenMP threads spin while they wait for each other; on a machine that does something else besides, that keeps those they wait for
    # from running. This many turns cost nothing alone and less in company (LOG.md). Read when torch is imported.
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    if "numba" not in sys.modules:  # it refuses another number later
        os.environ.setdefault("NUMBA_NUM_THREADS", str(choose_threads().value))  # idle ones hold up torch's threads (LOG.md)
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # torch asks Linux for 2 MiB pages
    open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a console that lacks a character prints ? instead of dying
    args = sys.argv[1:]
    options = args[: args.index("--")] if "--" in args else args
    debug, args = "--debug" in options, [arg for arg in options if arg != "--debug"] + args[len(options) :]
    name, part = [*(arg for arg in args if not arg.startswith("-")), "", ""][:2]
    words = [name] * (name in (*COMMANDS, "claims")) + [part] * (name == "claims" and part in claims.COMMANDS)
    help_page = " ".join(["andrea", *words, "--help"])
    code = answered(lambda: app(args, prog_name="andrea", standalone_mode=False), help_page, debug)
    if "triton" not in sys.modules:  # its bindings would list what stays as leaked
        gc.freeze()  # the interpreter, as it ends, looks again and again through all that torch is made of: 0.4 s
    sys.exit(code)


def open_closed_streams() -> None:
    """Whoever closed standard output or error does not want it: it goes nowhere, and no file of ours gets its number."""
    if None in (sys.stdin, sys.stdout, sys.stderr):
        while (last := os.open(os.devnull, os.O_RDWR)) <= 2:
            pass
        os.close(last)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8"))
