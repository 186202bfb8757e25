"""What went wrong, as one message, and the exit code: 2 for what was asked wrongly, 1 for what failed, 130 for Ctrl-C."""

import errno
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import fields
from difflib import get_close_matches
from typing import Any

from andrea.config import OTHER_NAMES, DataConfig, ModelConfig, OptimConfig, TrainConfig

OUT_OF_MEMORY = ("allocate memory", "out of memory", "not enough memory")  # what torch's allocators say
LESS = "less memory is taken by a smaller preset, a shorter context, --set micro_batch=1"
FULL = (errno.ENOSPC, getattr(errno, "EDQUOT", None))
MISSING = (FileNotFoundError, FileExistsError, NotADirectoryError, IsADirectoryError)


def answered(command: Callable[[], Any], help_page: str, debug: bool) -> int:
    """Run the command; its exit code. Whatever it raises becomes one message on standard error, after a traceback with `debug`."""
    try:
        code = command() or 0
    except SystemExit as end:
        code = int(end.code or 0)
    except Exception as error:
        message, code = told(error, help_page)
        if type(error).__name__ == "NoArgsIsHelpError":  # the help is printed already
            return flushed(code)
        if debug and not is_usage(error):
            traceback.print_exception(error)
        print(f"andrea: {message}", file=sys.stderr)
    else:
        if code == 130:  # typer's word for Ctrl-C
            print("andrea: interrupted", file=sys.stderr)
    return flushed(code)


def flushed(code: int) -> int:
    """The exit code once standard output is written; whoever reads it may leave early (`| head`), which takes no message."""
    try:
        sys.stdout.flush()
    except OSError as error:
        silence()
        if not code and not isinstance(error, BrokenPipeError):
            print(f"andrea: {told(error, '')[0]}", file=sys.stderr)
        return code or 1
    return code


def silence() -> None:
    """Let what standard output still holds go nowhere, or Python would complain of it on its way out."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def told(error: Exception, help_page: str) -> tuple[str, int]:
    """The message and the exit code."""
    if is_usage(error):
        return f"{usage(error)} (see {help_page})", error.exit_code  # type: ignore[attr-defined]
    notes = "".join(f"; {note}" for note in getattr(error, "__notes__", ()))
    first = (str(error).strip() or type(error).__name__).splitlines()[0]
    if type(error).__name__ == "Abort":
        return "interrupted", 130
    if type(error).__module__.startswith("andrea."):  # Damaged, Diverged, TooLittleMemory
        return f"{error}{notes}", 1
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and any(w in str(error).lower() for w in OUT_OF_MEMORY)):
        return f"out of memory: {first}; {LESS}{notes}", 1
    if isinstance(error, OSError):
        code = 2 if isinstance(error, MISSING) else 1
        if not error.strerror:  # words of our own
            return f"{error}{notes}", code
        place = f": {error.filename}" if error.filename else "" if takes_output() else ": standard output"
        room = "; make room, and nothing that was saved is lost" if error.errno in FULL and error.filename else ""
        return f"{error.strerror}{place}{room}{notes}", code
    if isinstance(error, ValueError) and raised_here(error):
        return f"{error}{notes}", 2
    return f"unexpected {type(error).__name__}: {first}; run again with --debug and report it{notes}", 1


def is_usage(error: Exception) -> bool:
    """Whether it is click's, which typer brings under different names."""
    return hasattr(error, "format_message")


def usage(error: Any) -> str:
    """Click's message on one line, with what was given and the nearest name."""
    if hasattr(error, "possibilities"):
        return f"no such option {error.option_name}" + nearest(error.option_name, error.ctx)
    said = " ".join(error.format_message().split()).removesuffix(".").replace(". Did", "; did")
    found = error.__cause__.errors()[0] if hasattr(error.__cause__, "errors") else {}
    return said[:1].lower() + said[1:] + (f"; given {found['input']!r}" if "input" in found else "")


def nearest(option: str, context: Any) -> str:
    """The option, or the field of the configuration, that may have been meant."""
    options = {name.lstrip("-"): name for p in context.command.params for name in p.opts if name.startswith("-")} if context else {}
    if "set" in options:
        sections = (DataConfig,) if "out" in options and "preset" not in options else (ModelConfig, DataConfig, OptimConfig, TrainConfig)
        names = {f.name: f.name for section in sections for f in fields(section)}
        names = {other: names[name] for other, name in OTHER_NAMES.items() if name in names} | names
        options = {given.replace("_", "-"): f"--set {name}=VALUE" for given, name in names.items()} | options
    near = get_close_matches(option.lstrip("-").replace("_", "-"), options, n=1, cutoff=0.7)
    return f"; did you mean {options[near[0]]}?" if near else ""


def raised_here(error: Exception) -> bool:
    """Whether this program raised it, and not a library that it uses."""
    place = error.__traceback__
    while place and place.tb_next:
        place = place.tb_next
    return place is not None and str(place.tb_frame.f_globals.get("__name__")).startswith("andrea.")


def takes_output() -> bool:
    """Whether standard output can still be written, by one more line end: an error of the system does not say which file it was."""
    try:
        sys.stdout.write("\n")
        sys.stdout.flush()
    except OSError:
        return False
    return True
