"""The architecture, as a test: a module imports only from layers below its own. docs and this list change together."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import andrea

LAYERS = [  # top to bottom; names on one line are strangers to each other
    {"__main__"},
    {"cli", "andrea"},  # andrea itself: what `import andrea` hands on
    {"serve"},
    {"claims"},
    {"training", "interop"},
    {"infer", "insight"},
    {"checkpoint", "evaluate"},
    {"run_folder"},
    {"model", "data"},
    {"kernels", "presets", "accounting", "machine", "show"},
    {"config", "version"},
    {"files"},  # how files are read and written: nothing of ours is below it, so that data, checkpoints and pictures may all use it
]
DEPTH = {name: depth for depth, layer in enumerate(LAYERS) for name in layer}
PACKAGE = Path(andrea.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))


def home(file: Path) -> str:
    """The name in LAYERS that a file of the package belongs to."""
    parts = file.relative_to(PACKAGE).with_suffix("").parts
    return "andrea" if parts == ("__init__",) else parts[0]


def imports(source: str, package: str) -> Iterator[str]:
    """Full names of what a module of `package` imports, wherever in the file, import_module("literal") too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) + 1 - node.level] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            names = (alias.name for alias in node.names)
            yield from (f"andrea.{name}" if name in DEPTH else "andrea" for name in names) if module == "andrea" else [module]
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in ("import_module", "__import__"):
            yield from (a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str))


def wrong(source: str, here: str, package: str = "andrea") -> list[str]:
    """The layers that a module at `here` imports and may not."""
    roots = [name.split(".") for name in imports(source, package)]
    there = [parts[1] if len(parts) > 1 else "andrea" for parts in roots if parts[0] == "andrea"]
    unknown = [name for name in there if name not in DEPTH]
    assert not unknown, f"{here} imports {unknown}, which LAYERS does not place"
    return [name for name in there if name != here and DEPTH[name] <= DEPTH[here]]


@pytest.mark.parametrize("file", FILES, ids=[str(f.relative_to(PACKAGE)) for f in FILES])
def test_imports_point_down(file: Path) -> None:
    assert home(file) in DEPTH, f"LAYERS does not place andrea.{home(file)}; put it on a line, here and in the documentation"
    package = ".".join(file.relative_to(PACKAGE.parent).parent.parts)
    bad = wrong(file.read_text(encoding="utf-8"), home(file), package)
    assert not bad, f"{file.relative_to(PACKAGE)} is in {home(file)} and may not import {bad}"


@pytest.mark.parametrize(
    ("source", "here", "package", "bad"),
    [
        ("from andrea.model import Transformer", "kernels", "andrea.kernels", ["model"]),
        ("def f():\n    import andrea.cli.count", "serve", "andrea.serve", ["cli"]),
        ("from ..training import loop", "infer", "andrea.infer", ["training"]),
        ("from . import show", "presets", "andrea", ["show"]),
        ("from .. import infer", "insight", "andrea.insight", ["infer"]),
        ("from .cache import Cache", "infer", "andrea.infer", []),
        ("from andrea import presets, show", "cli", "andrea.cli", []),
        ("from andrea import train", "claims", "andrea.claims", ["andrea"]),
        ("import andrea", "model", "andrea.model", ["andrea"]),
        ("from importlib import import_module\nimport_module('andrea.serve')", "model", "andrea.model", ["serve"]),
        ("from andrea.version import __version__\nimport torch, json", "config", "andrea", ["version"]),
        ("from andrea.config import ModelConfig", "accounting", "andrea", []),
    ],
)
def test_the_layer_test_sees(source: str, here: str, package: str, bad: list[str]) -> None:
    assert wrong(source, here, package) == bad


def test_an_unplaced_module_is_refused() -> None:
    with pytest.raises(AssertionError, match="utils"):
        wrong("from andrea.utils import anything", "cli", "andrea.cli")


@pytest.mark.parametrize(
    "module", ["andrea", "andrea.cli", "andrea.config", "andrea.files", "andrea.presets", "andrea.accounting", "andrea.show"]
)
def test_importing_brings_no_torch(module: str) -> None:
    heavy = f"import sys, {module}; print(*sorted({{'torch', 'numpy', 'matplotlib', 'transformers'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", heavy], cwd=PACKAGE.parent, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
