"""`andrea twin`: two models that differ in one field, grown side by side before your eyes."""

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from andrea.claims.twin import Born, Event, Looked

Option, Argument = typer.Option, typer.Argument
SECONDS_BETWEEN_LINES = 5.0
BAR = 16  # columns of the longest bar
LOSSES = 10  # steps whose mean is shown


def twin(
    text: Annotated[list[str] | None, Argument(help="Text of yours. Default: the built-in corpus.", show_default=False)] = None,
    *,
    change: Annotated[str, Option("--set", metavar="PATH=VALUE", help="What the second twin has otherwise.")] = "model.residual=false",
    both: Annotated[
        list[str] | None, Option(metavar="PATH=VALUE", help="Set in both; can be repeated. model.n_layer=6", show_default=False)
    ] = None,
    seconds: Annotated[float, Option(help="Grow for so long, if the steps are not done before.")] = 60.0,
    steps: Annotated[int | None, Option(help="Of both. Default: 300, or of --both.", show_default=False)] = None,
    every: Annotated[int, Option(help="Steps between two looks at the gradients.")] = 10,
    seed: Annotated[int, Option(help="Of both: weights and order of the text.")] = 0,
    png: Annotated[Path | None, Option(help="Draw losses and gradients.", show_default=False)] = None,
    as_json: Annotated[bool, Option("--json", help="Print every event as one JSON line.")] = False,
) -> None:
    """Grow two small models side by side that differ in one field, and watch loss and gradient of each layer part.

    Both have the same seed, so the same text in the same order, and the same numbers in every tensor that both have. 12 layers of
    width 64, trained by AdamW. One pair shows; `andrea claims` decides, with many.

    Examples:

      andrea twin

      andrea twin --set model.norm=post --both optim.warmup=0

      andrea twin --set model.activation=relu --seconds 120 --png twins.png

      andrea twin book.txt --set model.norm=none --both optim.grad_clip=0 --json
    """
    import torch

    from andrea.claims.twin import USUAL, Born, to_dict
    from andrea.claims.twin import twin as grow_both
    from andrea.config import override
    from andrea.machine import cores
    from andrea.show import check_picture

    paths = [f"data.paths={','.join(text)}"] if text else []
    base = override(USUAL, *paths, *(both or ()), *([] if steps is None else [f"train.steps={steps}"]))
    if png:
        check_picture(png)  # before a minute has gone by
    torch.set_num_threads(max(1, cores() // 2))
    view = Lines() if as_json or not sys.stdout.isatty() else Screen()
    events: list[Event] = []
    with view:
        for event in grow_both(change, base, seed, every, seconds):
            events.append(event)
            if as_json:
                import json

                print(json.dumps(to_dict(event)), flush=True)
            else:
                view.show(events)
    if png:
        from andrea.insight.picture import draw_twins

        born = next(event for event in events if isinstance(event, Born))
        draw_twins([to_dict(event) for event in events], born.names, png)
        if not as_json:
            print(f"wrote {png}")


class Lines:
    """A line now and then."""

    last = -math.inf

    def __enter__(self) -> "Lines":
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def show(self, events: "Sequence[Event]") -> None:
        from andrea.claims.twin import Born, Grew, Grown

        event, born = events[-1], events[0]
        assert isinstance(born, Born)
        if isinstance(event, Born):
            print(introduction(event), flush=True)
        elif isinstance(event, Grew) and monotonic() - self.last >= SECONDS_BETWEEN_LINES:
            self.last = monotonic()
            told = "   ".join(f"{name}: {number(loss, '.3f')}" for name, loss in zip(born.names, event.losses, strict=True))
            print(f"step {event.step}/{born.steps}   loss of {told}", flush=True)
        elif isinstance(event, Grown):
            for line in ending(events):
                print(line)


class Screen(Lines):
    """Both side by side, drawn anew with each step."""

    def __enter__(self) -> "Screen":
        from rich.live import Live

        self.live = Live(refresh_per_second=8)
        self.live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.live.stop()

    def show(self, events: "Sequence[Event]") -> None:
        from andrea.claims.twin import Grown

        self.live.update(drawn(events))
        if isinstance(events[-1], Grown):
            self.live.stop()
            for line in ending(events)[1:]:
                print(line)


def introduction(born: "Born") -> str:
    a, b = born.names
    tensors = f"{born.alike} of {max(born.tensors)} tensors begin alike"
    return f"{a} | {b}: {born.parameters[0]:,} | {born.parameters[1]:,} parameters; {tensors}; {born.steps} steps of the same text"


def ending(events: "Sequence[Event]") -> list[str]:
    """The gradients block by block, as a table, what was seen in one sentence, and what to do next."""
    from andrea.claims.twin import Born, Grown, Looked

    born, grown = events[0], events[-1]
    looked = next(event for event in reversed(events) if isinstance(event, Looked))
    assert isinstance(born, Born) and isinstance(grown, Grown)
    wide = [max(9, len(name)) for name in born.names]
    rows = (f"{name:>10}  {number(x, '.2e'):>{wide[0]}}  {number(y, '.2e'):>{wide[1]}}" for name, x, y in layers(looked))
    table = "\n".join([f"{'|dL/dh| at':>10}  {born.names[0]:>9}  {born.names[1]:>9}", *rows])
    return [table, grown.told, f"Next: {grown.next}"]


def layers(looked: "Looked") -> list[tuple[str, float | None, float | None]]:
    """By depth: the first twin's gradient and the second's; None is no number, nan a block that one of them lacks."""
    n = max(len(looked.first), len(looked.second))
    padded = [(*sizes, *[math.nan] * (n - len(sizes))) for sizes in (looked.first, looked.second)]
    return [("embedding" if i == 0 else f"block {i}", x, y) for i, (x, y) in enumerate(zip(*padded, strict=True))]


def drawn(events: "Sequence[Event]") -> Any:
    """What the screen shows: a column for each twin."""
    from rich import box
    from rich.table import Table

    from andrea.claims.twin import Born, Grew, Looked

    born, grew = events[0], [event for event in events if isinstance(event, Grew)]
    assert isinstance(born, Born)
    looked = next((event for event in reversed(events) if isinstance(event, Looked)), None)
    step, seconds = (grew[-1].step, grew[-1].seconds) if grew else (0, 0.0)
    grid = Table(title=f"step {step}/{born.steps}  {seconds:.0f} s", box=box.SIMPLE_HEAD, title_justify="left", caption_justify="left")
    for name in ("", *born.names):
        grid.add_column(name, min_width=0 if not name else BAR + 10)
    recent = [[event.losses[side] for event in grew[-LOSSES:]] for side in (0, 1)]
    means = [
        sum(x for x in some if x is not None) / len(some) if some and None not in some else None if some else math.nan for some in recent
    ]
    grid.add_row("loss", *(number(mean, ".3f") for mean in means))
    grid.add_row("gradient", *(number(norm, ".2e") for norm in (grew[-1].grad_norms if grew else (math.nan, math.nan))), end_section=True)
    if looked:
        sizes = [size for size in (*looked.first, *looked.second) if size]
        low, high = (math.log10(min(sizes)), math.log10(max(sizes))) if sizes else (0.0, 0.0)
        if sizes:
            grid.caption = f"gradients of the stream, |dL/dh|; bars by the logarithm, from {min(sizes):.0e} to {max(sizes):.0e}"
        for name, *pair in layers(looked):
            grid.add_row(name, *(bar(size, low, high) for size in pair))
    return grid


def bar(size: float | None, low: float, high: float) -> str:
    """A bar by the logarithm, the smallest of all a column long, and the number."""
    if not size or math.isnan(size):
        return number(size, ".2e")
    return f"{'█' * (1 + round((BAR - 1) * (math.log10(size) - low) / max(high - low, 1e-9))):<{BAR}} {size:.1e}"


def number(value: float | None, how: str) -> str:
    return "no number" if value is None else "" if math.isnan(value) else format(value, how)
