"""What happened in a run, as events, and where a run folder keeps them: metrics.jsonl, samples.txt, TensorBoard files."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from andrea.checkpoint import replace_text
from andrea.config import Damaged
from andrea.evaluate import Evaluation
from andrea.machine import Choice


@dataclass(frozen=True)
class Working:
    """Something that takes a while and has no step to show."""

    text: str


@dataclass(frozen=True)
class Prepared:
    """The text is tokens now. report is data.json's content."""

    run: Path
    report: dict[str, Any]


@dataclass(frozen=True)
class Chosen:
    """Everything that had to be settled, each with its reason; the run begins."""

    run: Path
    choices: tuple[Choice, ...]
    parameters: int
    steps: int
    first_step: int  # 0, or where a resumed run goes on
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class StepDone:
    step: int  # steps done, this one counted
    loss: float  # nats per token, of this step's batch before its update
    bits_per_byte: float  # loss at the training split's bytes per token
    lr: float
    grad_norm: float  # before clipping
    tokens: int  # targets seen since the run began
    tokens_per_s: float
    seconds: float  # of training since the run began


@dataclass(frozen=True)
class Evaluated:
    step: int
    loss: float  # nats per token
    standard_error: float | None
    perplexity: float
    bits_per_byte: float
    targets: int
    whole: bool  # the whole validation split, or the part that is read while training
    best: bool  # the lowest so far
    seconds: float

    @classmethod
    def of(cls, e: Evaluation, step: int, whole: bool, best: bool, seconds: float) -> "Evaluated":
        return cls(step, e.loss, e.standard_error, e.perplexity, e.bits_per_byte, e.targets, whole, best, seconds)


@dataclass(frozen=True)
class Sampled:
    step: int
    text: str


@dataclass(frozen=True)
class Saved:
    step: int
    folder: Path
    best: bool


@dataclass(frozen=True)
class Stopped:
    """Ended before the last step because somebody asked; `andrea train --resume` goes on from here."""

    step: int
    run: Path


@dataclass(frozen=True)
class Finished:
    step: int
    best_step: int  # which `load` takes unless told otherwise
    run: Path
    loss: float  # of the last step, on the whole validation split, nats per token
    perplexity: float
    bits_per_byte: float
    seconds: float  # of training


Event = Working | Prepared | Chosen | StepDone | Evaluated | Sampled | Saved | Stopped | Finished


def to_dict(event: Event) -> dict[str, Any]:
    """The event as a dictionary that json can write, its class name under `event`."""
    plain = {name: str(value) if isinstance(value, Path) else value for name, value in asdict(event).items()}
    return {"event": type(event).__name__, **plain}


class Log:
    """Appends events to a run folder. A resumed run first takes out what came after the checkpoint it goes on from."""

    def __init__(self, run: Path, from_step: int = 0):
        self.metrics, self.samples = run / "metrics.jsonl", run / "samples.txt"
        if self.metrics.exists():
            kept = [event for event in read_metrics(run) if event["step"] <= from_step]
            replace_text(self.metrics, "".join(json.dumps(event) + "\n" for event in kept))
            replace_text(self.samples, "".join(heard(e["step"], e["text"]) for e in kept if e["event"] == "Sampled"))
        self.file = self.metrics.open("a", buffering=1, encoding="utf-8", newline="\n")  # a line is written when it is whole
        self.board = tensorboard(run, from_step)

    def write(self, event: Event) -> None:
        if isinstance(event, StepDone | Evaluated | Sampled):
            self.file.write(json.dumps(to_dict(event)) + "\n")
        if isinstance(event, Sampled):
            with self.samples.open("a", encoding="utf-8", newline="\n") as file:
                file.write(heard(event.step, event.text))
        if self.board and isinstance(event, StepDone | Evaluated):
            split = "train" if isinstance(event, StepDone) else "validation"
            for name in ("loss", "bits_per_byte", "lr", "grad_norm", "tokens_per_s"):
                if hasattr(event, name):
                    self.board.add_scalar(f"{split}/{name}", getattr(event, name), event.step)

    def close(self) -> None:
        self.file.close()
        if self.board:
            self.board.close()


def heard(step: int, text: str) -> str:
    """One entry of samples.txt."""
    return f"--- step {step} ---\n{text}\n\n"


def tensorboard(run: Path, from_step: int) -> Any:
    """A SummaryWriter for the run, or None where the tensorboard package is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(run / "tensorboard"), purge_step=from_step + 1 if from_step else None)


def read_metrics(run: Path) -> list[dict[str, Any]]:
    """The events of metrics.jsonl, oldest first; a last line that was cut off is left out. Raises Damaged for one that is none."""
    path = run / "metrics.jsonl"
    try:
        *whole, _ = path.read_text(encoding="utf-8").split("\n") if path.exists() else [""]
        events = [json.loads(line) for line in whole]
    except (ValueError, RecursionError) as error:
        raise Damaged(f"{path} is damaged: {error}") from None
    if not all(isinstance(event, dict) and isinstance(event.get("step"), int) and "event" in event for event in events):
        raise Damaged(f"{path} is damaged: a line of it is no event")
    return events
