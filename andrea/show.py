"""Plain results -> what a person reads. A Table is data; how it looks is decided here alone."""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, TextIO

from andrea.files import replace_bytes

LONG_WORD = 20  # columns; what is longer is folded
CONTROL = re.compile(r"(?!\r\n)[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")  # also what turns the reading direction


@dataclass(frozen=True)
class Table:
    """Rows under column names. A name beginning with `>` aligns its column to the right, as numbers want."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    note: str = ""


def number(value: float) -> str:
    """4718592 -> '4,718,592'; a float keeps four digits."""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def size(n_bytes: float) -> str:
    """2359296 -> '2.25 MiB'."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(n_bytes) < 1024:
            return f"{n_bytes:.0f} B" if unit == "B" else f"{n_bytes:.3g} {unit}" if n_bytes < 1000 else f"{n_bytes:.0f} {unit}"
        n_bytes /= 1024
    return f"{n_bytes:,.2f} TiB"


def terminal(tables: Sequence[Table], file: TextIO | None = None) -> None:
    """Print the tables one under another, as wide as the terminal; long cells are folded, never cut."""
    from rich import box
    from rich.console import Console
    from rich.table import Table as Grid
    from rich.text import Text

    out = file or sys.stdout
    console = Console(file=out, highlight=False)
    usual = max(console.width, 80 if out.isatty() else 120)  # a narrower terminal folds lines better than a table folds words
    for table in tables:
        least = [least_width(name, [row[i] for row in table.rows]) for i, name in enumerate(table.columns)]
        console.width = max(usual, sum(least) + 3 * len(least))
        grid = Grid(title=Text(table.title, "bold"), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
        for name, width in zip(table.columns, least, strict=True):
            right = name.startswith(">")
            grid.add_column(
                Text(name.removeprefix(">")), justify="right" if right else "left", no_wrap=right, overflow="fold", min_width=width
            )
        for row in table.rows:
            grid.add_row(*(Text(told(cell)) for cell in row))
        console.print(grid)
        if table.note:
            console.print(Text(table.note), width=usual)


def told(cell: object) -> str:
    return number(cell) if isinstance(cell, int | float) else str(cell)


def least_width(name: str, cells: Sequence[object]) -> int:
    """Columns of a terminal that a column takes at least: numbers are never cut, nor words up to LONG_WORD."""
    from rich.cells import cell_len

    texts = [name.removeprefix(">"), *map(told, cells)]
    if name.startswith(">"):
        return max(map(cell_len, texts))
    return max((min(cell_len(word), LONG_WORD) for text in texts for word in text.split()), default=0)


def table(rows: Sequence[Mapping[str, object]], columns: Sequence[str], title: str = "") -> None:
    """Print the named columns of records; numbers are aligned to the right, and what a record lacks, or None, stays empty."""
    cells = [["" if row.get(name) is None else row[name] for name in columns] for row in rows]
    right = [all(isinstance(row.get(name), int | float | None) for row in rows) for name in columns]
    terminal([Table(title, [">" * aligned + name.replace("_", " ") for name, aligned in zip(columns, right, strict=True)], cells)])


def printable(text: str) -> str:
    r"""Text with \x1b and the like for control characters, so that what a young model says cannot command a terminal."""
    return CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def print_json(value: object) -> None:
    print(json.dumps(value, indent=2))


def draw_losses(course: Mapping[str, Any], path: Path) -> None:
    """Draw training/history.py's course into a picture: losses (nats per token) by step. Raises ValueError without matplotlib."""
    axes = (figure := new_figure(8, 4.5)).add_subplot(xlabel="step", ylabel="loss, nats per token")
    pairs = lambda rows: ([row["step"] for row in rows], [row["loss"] for row in rows])
    steps, losses = pairs(course["training"])
    window = max(1, len(losses) // 50)
    means = [sum(losses[i : i + window]) / len(losses[i : i + window]) for i in range(0, len(losses), window)]
    axes.plot(steps, losses, color="tab:blue", alpha=0.2, linewidth=0.7)
    axes.plot(steps[::window], means, color="tab:blue", label=f"training, mean of {window} steps")
    part = [row for row in course["evaluations"] if not row["whole"]]
    axes.plot(*pairs(part), color="tab:orange", marker=".", label="validation, part of the split")
    if whole := [row for row in course["evaluations"] if row["whole"]]:
        axes.plot(*pairs(whole), color="tab:red", marker="D", linestyle="", label="validation, whole split")
    axes.set_title(Path(course["run"]).name)
    axes.grid(alpha=0.3)
    axes.legend()
    save_figure(figure, path)


def new_figure(width: float, height: float) -> Any:
    """An empty matplotlib Figure of so many inches. Raises ValueError without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ValueError("drawing needs matplotlib: pip install 'andrea[plot]'") from None
    return Figure(layout="constrained", figsize=(width, height))


def check_picture(path: Path) -> None:
    """Raises ValueError where no such picture can be drawn: without matplotlib, of another kind, in a folder that is not there."""
    known = new_figure(1, 1).canvas.get_supported_filetypes()
    if path.suffix[1:].lower() not in known:
        raise ValueError(f"{path} does not end as a picture that can be drawn: {', '.join('.' + kind for kind in sorted(known))}")
    if not path.parent.is_dir():
        raise ValueError(f"{path} cannot be drawn: there is no folder {path.parent}; make it first, or give another name")


def save_figure(figure: Any, path: Path) -> None:
    """Write a picture of the kind that the name ends with. Raises ValueError as check_picture does."""
    check_picture(path)
    drawn = BytesIO()
    figure.savefig(drawn, format=path.suffix.removeprefix(".") or None, dpi=120)
    replace_bytes(path, drawn.getvalue())
