"""What a person sees while a model grows: a bar on a terminal, plain lines elsewhere; the same words for everything else."""

import json
import shlex
import sys
from pathlib import Path
from time import monotonic
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from andrea.data.prepare import plural
from andrea.show import printable
from andrea.training.report import (
    Chosen,
    Evaluated,
    Event,
    Finished,
    NewEnd,
    Observed,
    Prepared,
    Sampled,
    Saved,
    Skipped,
    StepDone,
    Stopped,
    WentBack,
    Working,
    to_dict,
)

SECONDS_BETWEEN_LINES = 10.0
SKIPPED_SHOWN, NAMES_SHOWN = 8, 3
MUCH_SHARED = 0.2  # of validation's runs of 13 words
WIDTH_OF_FIGURES, WIDTH_OF_BAR = 80, 24  # columns


class Lines:
    """Plain lines on standard output, one for the training loss now and then."""

    def __init__(self) -> None:
        self.steps, self.left, self.last_line = 0, TimeLeft(), -SECONDS_BETWEEN_LINES

    def __enter__(self) -> "Lines":
        return self

    def __exit__(self, *error: Any) -> None:
        pass

    def say(self, text: str) -> None:
        print(printable(text) if sys.stdout.isatty() else text, flush=True)

    def show(self, event: Event) -> None:
        if isinstance(event, Chosen | NewEnd):
            self.steps = event.steps
        if isinstance(event, StepDone):
            self.progress(event)
        else:
            for line in words(event):
                self.say(line)

    def progress(self, event: StepDone) -> None:
        self.left.saw(event)
        if monotonic() - self.last_line >= SECONDS_BETWEEN_LINES or event.step == self.steps:
            self.last_line = monotonic()
            self.say(f"step {event.step}/{self.steps}  {self.left.of(self.steps)} left  {figures(event)}")


class JsonLines(Lines):
    """Every event as one JSON line."""

    def show(self, event: Event) -> None:
        print(json.dumps(to_dict(event)), flush=True)


class Bar(Lines):
    """A progress bar on standard error under the lines; what is said scrolls above it."""

    def __init__(self) -> None:
        super().__init__()
        console = Console(stderr=True, highlight=False)
        bar = (BarColumn(WIDTH_OF_BAR),) if console.width >= WIDTH_OF_FIGURES + WIDTH_OF_BAR else ()
        columns = (TextColumn("step {task.completed:.0f}/{task.total:.0f}"), *bar, TextColumn("{task.description}"))
        self.bar = Progress(*columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False)
        self.task: Any = None

    @staticmethod
    def is_possible() -> bool:
        console = Console(stderr=True)
        return sys.stderr.isatty() and not console.is_dumb_terminal and console.width >= WIDTH_OF_FIGURES

    def __exit__(self, *error: Any) -> None:
        self.bar.stop()

    def say(self, text: str) -> None:
        if sys.stdout.isatty():
            self.bar.console.print(printable(text), markup=False, highlight=False, soft_wrap=True)
        else:
            print(text, flush=True)

    def show(self, event: Event) -> None:
        if isinstance(event, Finished | Stopped):
            self.bar.stop()
        super().show(event)

    def progress(self, event: StepDone) -> None:
        if self.task is None:
            self.bar.start()
            self.task = self.bar.add_task("", total=self.steps)
        self.left.saw(event)
        self.bar.update(self.task, total=self.steps, completed=event.step, description=f"{self.left.of(self.steps)} left  {figures(event)}")


class TimeLeft:
    """What remains, from the mean speed of this sitting, evaluation and sampling counted."""

    def __init__(self) -> None:
        self.first: StepDone | None = None
        self.last: StepDone | None = None

    def saw(self, event: StepDone) -> None:
        self.first, self.last = self.first or event, event

    def of(self, steps: int) -> str:
        if not self.first or not self.last or self.first is self.last:
            return "-:--"
        pace = (self.last.seconds - self.first.seconds) / (self.last.step - self.first.step)
        return clock(pace * (steps - self.last.step))


def clock(seconds: float) -> str:
    s = round(seconds)
    return f"{s // 3600}:{s // 60 % 60:02}:{s % 60:02}" if s >= 3600 else f"{s // 60}:{s % 60:02}"


def figures(e: StepDone) -> str:
    return f"loss {e.loss:.3f}  {e.bits_per_byte:.3f} bits/byte  {e.tokens_per_s:,.0f} tokens/s"


def words(event: Event) -> list[str]:
    """What to say of an event."""
    if isinstance(event, Working):
        return [event.text]
    if isinstance(event, Prepared):
        return text_words(event.report) if event.new else text_words(event.report)[:1]
    if isinstance(event, Chosen):
        words_of = {True: "on", False: "off"}
        chosen = [f"{c.name}: {words_of[c.value] if isinstance(c.value, bool) else c.value} ({c.reason})" for c in event.choices]
        going = f", from step {event.first_step}" if event.first_step else ""
        return [*chosen, *event.notes, f"run: {event.run}: {event.parameters:,} parameters, {event.steps:,} steps{going}"]
    if isinstance(event, Skipped):
        return [f"step {event.step} is left out: {event.reason}"]
    if isinstance(event, WentBack):
        passed = f"windows {event.first_window:,} to {event.end_window:,} of the data are passed over"
        return [f"step {event.from_step}: {event.reason}: back to step {event.step - 1}; {passed}"]
    if isinstance(event, NewEnd):
        ends = f"to end by {event.until} the run goes to step {event.steps:,}, not {event.from_steps:,}"
        return [f"step {event.step}: {ends}; the learning rate is at {event.rate:.0%} of its peak"]
    if isinstance(event, Evaluated):
        told = f"step {event.step}: validation loss {event.loss:.4f} nats/token, {event.bits_per_byte:.4f} bits/byte"
        return [] if event.whole else [f"{told} on {event.targets:,} tokens of it"]  # Finished tells of the whole
    if isinstance(event, Sampled):
        return [f"--- it says, after {event.step} steps:", event.text or "(nothing: it ended its document at once)", "---"]
    if isinstance(event, Stopped):
        return [f"stopped after step {event.step}; to go on: andrea train --resume {shell(event.run)}"]
    if isinstance(event, Finished):
        return finished_words(event)
    assert isinstance(event, Saved | Observed), event
    return []


def text_words(report: dict[str, Any]) -> list[str]:
    """What data.json says that was not said on the way."""
    train, val = report["train"], report["val"]
    share = val["bytes"] / (train["bytes"] + val["bytes"])
    each = train["bytes"] / train["tokens"]
    lines = [f"text: {train['tokens']:,} tokens to train on ({each:.2f} bytes each), {val['tokens']:,} ({share:.0%}) to validate"]
    if report["encodings"].keys() != {"utf-8"}:
        lines.append("encodings: " + ", ".join(f"{name}: {plural(n, 'file')}" for name, n in report["encodings"].items()))
    forms = {name: n for name, n in report.get("normal_forms", {}).items() if name in ("decomposed", "mixed")}
    if forms:
        said = ", ".join(f"{plural(n, 'document')} {name}" for name, n in forms.items())
        lines.append(f"letters with marks, like \u00e5, are not all composed: {said}; --set data.normalize=nfc makes them one")
    left_out = report["duplicates"]
    if left_out["units"] or left_out.get("paragraphs"):
        verb = "found" if left_out.get("mode") == "off" else "left out"
        near = (
            f", and {left_out['paragraphs']:,} near-duplicate paragraphs, {left_out['paragraph_bytes']:,} bytes"
            if left_out.get("paragraphs")
            else ""
        )
        lines.append(f"{verb} {plural(left_out['units'], 'duplicate')}, {left_out['bytes']:,} bytes{near}; duplicates.jsonl names them")
    shared = report.get("overlap", {}).get("thirteen_grams") or 0.0
    if shared:
        lines.append(f"validation: {shared:.1%} of its runs of 13 words stand in training, too")
    lines += [f"skipped {plural(n, 'row')}: {reason}" for reason, n in report.get("rows_skipped", {}).items()]
    lines += skipped_words(report["skipped"])
    if shared > MUCH_SHARED:
        lines.append(
            f"warning: much of the validation text ({shared:.0%}) also stands in training, so that the validation loss "
            "will look better than it is" + "; --dedup near leaves repetitions out" * (left_out.get("mode") != "near")
        )
    return lines


def skipped_words(skipped: list[dict[str, str]]) -> list[str]:
    """The files that were not used, those with the same reason on one line; first what can be mended, last what is hidden."""
    names: dict[str, list[str]] = {}
    for file in skipped:
        names.setdefault(file["reason"], []).append(file["name"])
    order = sorted(names, key=lambda reason: (reason == "hidden") - any(word in reason for word in ("--", "pip install")))
    lines = [
        f"skipped {', '.join(names[reason][:NAMES_SHOWN])}"
        + f" and {len(names[reason]) - NAMES_SHOWN:,} more" * (len(names[reason]) > NAMES_SHOWN)
        + f": {reason}"
        for reason in order
    ]
    more = len(lines) - SKIPPED_SHOWN
    return [*lines[:SKIPPED_SHOWN], *([f"and {plural(more, 'more reason')} to skip files; data.json names them all"] if more > 0 else [])]


def finished_words(event: Finished) -> list[str]:
    run = shell(event.run)
    best = f"; step {event.best_step} was better than the last and is what generate and eval use" if event.best_step != event.step else ""
    return [
        f"validation, whole split: {event.loss:.4f} nats/token, perplexity {event.perplexity:.2f}, {event.bits_per_byte:.4f} bits/byte",
        f"trained {clock(event.seconds)}; the run is {event.run}" + best,
        *event.diagnosis,
        "next:",
        f"  andrea generate {run}",
        f"  andrea eval {run}",
        f"  andrea count {run}",
        f"  andrea runs {run} --png loss.png",
    ]


def shell(path: Path) -> str:
    return shlex.quote(str(path)) if sys.platform != "win32" else f'"{path}"' if " " in str(path) else str(path)
