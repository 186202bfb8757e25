"""`andrea doctor`."""

import os
import re
import sys
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import typer

COMPILER = {
    "linux": "install g++, for example: sudo apt install g++",
    "darwin": "xcode-select --install",
    "win32": "install the Visual Studio Build Tools with C++",
}


def doctor(
    folder: Annotated[Path, typer.Option(help="Where runs are to be kept; its free disk is told.")] = Path(),
    json: Annotated[bool, typer.Option("--json", help="Print everything as JSON, for a bug report.")] = False,
) -> None:
    """Tell what this machine offers, what ANDREA will use of it, what is missing and how to get it.

    Examples:

      andrea doctor

      andrea doctor --folder /data/runs

      andrea doctor --json > report.json
    """
    from andrea.config import ModelConfig, TrainConfig
    from andrea.machine import choose
    from andrea.show import Table, print_json, terminal

    facts, choices = examine(folder), choose(ModelConfig(), TrainConfig())
    if json:
        here = {name: {"value": value, "advice": advice} for name, (value, advice) in facts.items()}
        print_json({"machine": here, "choices": {c.name: {"value": c.value, "reason": c.reason} for c in choices}, "settings": settings()})
        return
    used = [
        (c.name, {True: "on", False: "off"}.get(c.value, c.value) if isinstance(c.value, bool) else str(c.value), c.reason) for c in choices
    ]
    terminal(
        [
            Table("This machine", ("", "", "to get more"), [(name, *fact) for name, fact in facts.items()]),
            Table("ANDREA will use", ("", "", "because"), used, "dtype: of models as wide as andrea-120m; each run says what it chose."),
        ]
    )


def examine(folder: Path) -> dict[str, tuple[str, str]]:
    """Everything found, and what to do where it is less than it could be."""
    import torch

    from andrea import machine
    from andrea.show import size

    told = machine.provenance()
    memory, compiler = told["memory_bytes"], machine.compiler()
    gpu = told["gpu"] or ("Apple's GPU" if torch.backends.mps.is_available() else "none")
    wrong_build = gpu == "none" and machine.has_nvidia()
    threads = machine.choose_threads()
    return {
        "ANDREA": (told["andrea"] + (f", commit {told['commit']}" if told["commit"] else ""), ""),
        "system": (told["platform"], ""),
        "Python": (told["python"], ""),
        "torch": (told["torch"], "this build has no CUDA; pytorch.org names the one that has" if wrong_build else ""),
        "processor": (told["processor"], ""),
        "cores": (f"{told['cores']} of {os.cpu_count()}", ""),
        "threads": (str(threads.value), "" if threads.value == told["cores"] else f"{threads.reason} keeps it below the cores"),
        "memory": (size(memory) if memory else "unknown", ""),
        "bfloat16": ("yes" if machine.has_fast_bfloat16() else "no", machine.onednn_limit()),
        "compiler": (compiler or "none", "" if compiler else COMPILER.get(sys.platform, "install a C++ compiler")),
        "GPU": (gpu, ""),
        "free disk": (f"{size(machine.free_disk_bytes(folder))} at {folder.absolute()}", ""),
        "terminal": screen(),
        **extras(),
    }


def screen() -> tuple[str, str]:
    """Encoding, width and colour of standard output; what keeps characters or colours away."""
    from rich.console import Console

    console = Console()
    encoding = sys.stdout.encoding or "unknown"
    kind = (
        "no terminal"
        if not sys.stdout.isatty()
        else "dumb"
        if console.is_dumb_terminal
        else "colour"
        if console.color_system
        else "no colour"
    )
    utf8 = encoding.lower().replace("-", "") == "utf8"
    return f"{encoding}, {console.width} columns, {kind}", "" if utf8 else "PYTHONUTF8=1 prints every character"


def extras() -> dict[str, tuple[str, str]]:
    """What the package's extras want, and whether it is installed."""
    wanted: dict[str, list[str]] = {}
    try:
        for line in metadata.requires("andrea") or ():
            if found := re.match(r"([\w.-]+).*extra == ['\"]([\w-]+)['\"]", line):
                wanted.setdefault(found[2], []).append(found[1])
    except metadata.PackageNotFoundError:  # run from a folder that was never installed
        return {}
    wanted.pop("test", None)
    return {f"extra {name}": extra(name, packages) for name, packages in sorted(wanted.items())}


def extra(name: str, packages: list[str]) -> tuple[str, str]:
    has, lacks = [], []
    for package in packages:
        try:
            has.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            lacks.append(package)
    return ", ".join([*has, *(f"no {package}" for package in lacks)]), f"pip install 'andrea[{name}]'" if lacks else ""


def settings() -> dict[str, Any]:
    """Environment variables that change what ANDREA does, as far as they are set."""
    pattern = re.compile(r"(OMP|GOMP|MKL|ONEDNN|DNNL|ATEN|TORCH|PYTORCH|CUDA|PYTHON)[A-Z_]*|CC|CXX|TERM|COLUMNS|NO_COLOR|LANG|LC_ALL")
    return {name: value for name, value in sorted(os.environ.items()) if pattern.fullmatch(name)}
