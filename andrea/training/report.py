"""What happened in a run, as events, and where a run folder keeps them: metrics.jsonl, samples.txt, TensorBoard files."""

import json
from dataclasses import asdict, dataclass
from io import FileIO
from os import getpid
from pathlib import Path
from socket import gethostname
from time import time
from typing import Any, get_args, get_type_hints

from andrea.evaluate import Evaluation
from andrea.files import Damaged, append, replace_text, shown, size_of
from andrea.machine import Choice


@dataclass(frozen=True)
class Working:
    """Something that takes a while and has no step to show."""

    text: str


@dataclass(frozen=True)
class Prepared:
    """The text is tokens now. report is data.json's content; `new` says that it was made for this run, and not long before."""

    run: Path
    report: dict[str, Any]
    new: bool


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
class Skipped:
    """A step without an update: its loss or gradient was no finite number."""

    step: int
    reason: str
    first_window: int  # of the batch that is passed over
    end_window: int
    seconds: float


@dataclass(frozen=True)
class WentBack:
    """The run is at its last sound save again; what metrics.jsonl told of the steps since is taken out."""

    step: int  # the first that is done again
    from_step: int
    reason: str
    first_window: int  # of all that is passed over
    end_window: int
    seconds: float


@dataclass(frozen=True)
class NewEnd:
    """The run ends at another step than it was to, so that it ends by a time of day; run.json has the new end."""

    step: int  # steps done
    from_steps: int
    steps: int
    until: str  # ISO 8601, with the zone
    rate: float  # the learning rate of the next step, as a share of its peak


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
class Observed:
    """Inside the model, on a text that stays the same. Lists go along the stream: its 2 L + 1 stations, or the 2 L sublayers between.

    insight/flow.py has the definitions. None is what is not defined: without residual connections nothing is added.
    """

    step: int
    gradients: list  # |dLoss / dh| at every station, the mean over tokens, the loss being the mean over tokens, too
    writes: list  # |D| / |h| of every sublayer: how much it writes beside what it reads
    cosines: list  # of what it writes with what it reads
    norms: list  # |h| after every sublayer
    entropies: list  # of the logit lens at every station, bits
    heads: list  # by block, by head: previous-token, duplicate, induction and first-token score
    uniform: list  # the same four of a head that looks everywhere alike
    seconds: float


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
    diagnosis: tuple[str, ...] = ()  # what the course of the run says


Event = Working | Prepared | Chosen | StepDone | Skipped | WentBack | NewEnd | Evaluated | Observed | Sampled | Saved | Stopped | Finished
IN_METRICS = StepDone | Skipped | WentBack | Evaluated | Observed | Sampled  # what metrics.jsonl holds
KEPT = {kind.__name__: get_type_hints(kind) for kind in get_args(IN_METRICS)}
MOST = 1 << 30  # bytes of a metrics.jsonl: several million steps


def to_dict(event: Event) -> dict[str, Any]:
    """The event as a dictionary that json can write, its class name under `event`."""
    plain = {name: str(value) if isinstance(value, Path) else value for name, value in asdict(event).items()}
    return {"event": type(event).__name__, **plain}


class Log:
    """Appends events to a run folder. A resumed run first takes out what came after the checkpoint it goes on from.

    Nothing waits in a buffer: on a full disk `write` raises OSError, with the file's name, and not `close`. metrics.jsonl comes after
    the board: a run whose last line stands there is finished.
    """

    def __init__(self, run: Path, from_step: int = 0):
        self.metrics, self.samples = run / "metrics.jsonl", run / "samples.txt"
        self.board = tensorboard(run, from_step)
        self.back_to(from_step or -1)  # a run that begins, begins with an evaluation of step 0

    def back_to(self, step: int) -> None:
        """Take out what came after a step."""
        if self.metrics.exists():
            kept = [event for event in read_metrics(self.metrics.parent) if event["step"] <= step]
            replace_text(self.metrics, "".join(json.dumps(event) + "\n" for event in kept))
            replace_text(self.samples, "".join(heard(e["step"], e["text"]) for e in kept if e["event"] == "Sampled"))
        self.file = open_end(self.metrics)

    def write(self, event: Event) -> None:
        if isinstance(event, WentBack):
            self.file.close()
            self.back_to(event.step - 1)
            if self.board:
                self.board.restart(event.step)
        if self.board and isinstance(event, StepDone | Evaluated):
            split = "train" if isinstance(event, StepDone) else "validation"
            drawn = ("loss", "bits_per_byte", "lr", "grad_norm", "tokens_per_s")
            self.board.draw(event.step, {f"{split}/{name}": getattr(event, name) for name in drawn if hasattr(event, name)})
        if type(event).__name__ in KEPT:
            append(self.file, f"{json.dumps(to_dict(event))}\n".encode(), self.metrics)
        if isinstance(event, Sampled):
            with open_end(self.samples) as file:
                append(file, heard(event.step, event.text).encode(), self.samples)

    def close(self) -> None:
        self.file.close()
        if self.board:
            self.board.file.close()


class Board:
    """A file for TensorBoard. Its own writer has a thread behind it, which on a full disk loses what it was given. Raises ImportError."""

    def __init__(self, folder: Path, from_step: int):
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.record_writer import RecordWriter

        self.event, self.summary, self.records = Event, Summary, RecordWriter(self)
        folder.mkdir(exist_ok=True)
        self.path = folder / f"events.out.tfevents.{time():.6f}.{gethostname()}.{getpid()}"
        self.file = open_end(self.path)
        self.add(file_version="brain.Event:2")
        self.start = SessionLog(status=SessionLog.START)
        if from_step:
            self.restart(from_step + 1)

    def restart(self, step: int) -> None:
        """What was drawn from this step on is taken out."""
        self.add(step=step, session_log=self.start)

    def draw(self, step: int, values: dict[str, float]) -> None:
        self.add(step=step, summary=self.summary(value=[self.summary.Value(tag=tag, simple_value=v) for tag, v in values.items()]))

    def add(self, **content: Any) -> None:
        self.records.write(self.event(wall_time=time(), **content).SerializeToString())

    def write(self, record: bytes) -> None:
        append(self.file, record, self.path)


def open_end(path: Path) -> FileIO:
    """A file to append to, without a buffer."""
    return path.open("ab", buffering=0)


def heard(step: int, text: str) -> str:
    """One entry of samples.txt."""
    return f"--- step {step} ---\n{text}\n\n"


def tensorboard(run: Path, from_step: int) -> Board | None:
    """A board for the run, or None where the tensorboard package is not installed."""
    try:
        return Board(run / "tensorboard", from_step)
    except ImportError:
        return None


def read_metrics(run: Path) -> list[dict[str, Any]]:
    """The events of metrics.jsonl, oldest first; a last line that was cut off is left out. Raises ValueError for a damaged line."""
    path = run / "metrics.jsonl"
    if not path.exists():
        return []
    if (size := size_of(path)) > MOST:
        raise Damaged(f"{path} has {size:,} bytes; no such file has more than {MOST:,}, so it is damaged or another's")
    *whole, _ = path.read_bytes().split(b"\n")
    return [read_event(line, f"line {number} of {path}") for number, line in enumerate(whole, 1)]


def read_event(line: bytes, where: str) -> dict[str, Any]:
    """One line of metrics.jsonl. Raises ValueError unless it is an event with all of its fields."""
    try:
        event = json.loads(line)  # infinity is a perplexity
    except (ValueError, RecursionError) as error:
        raise Damaged(f"{where} is damaged: {error}; remove it") from None
    kind = event.get("event") if isinstance(event, dict) else None
    if not isinstance(kind, str) or kind not in KEPT:
        raise Damaged(f"{where} is damaged: it holds {shown(event)}, which is no event; remove it")
    for name, wanted in KEPT[kind].items():
        value, kinds = event.get(name, ...), get_args(wanted) or (wanted,)  # ... is of no kind
        fits = type(value) in kinds or (type(value) is int and float in kinds)
        if not fits or (type(value) is int and not 0 <= value < 2**63):
            raise Damaged(f"{where} is damaged: {name} is {shown(value)}; remove it")
    return event
