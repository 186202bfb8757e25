"""`andrea train` and `andrea demo`."""

import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from andrea.cli.data import PATHS, CorpusOption, LanguageOption, StoriesOption, with_text
from andrea.config import RunConfig, override
from andrea.presets import PRESETS, preset

if TYPE_CHECKING:
    from threading import Event as Flag

    from andrea.training.report import Event

DEFAULT = "andrea-1m"
PresetOption = Annotated[
    str | None, typer.Option("--preset", help=", ".join(PRESETS) + f". Default: {DEFAULT}; options not given are the preset's.")
]
MinutesOption = Annotated[float | None, typer.Option(help="Time budget for training; sets the number of steps by measured speed.")]
UntilOption = Annotated[
    str | None, typer.Option(metavar="HH:MM", help="Time of day to be done by, or a date and time; the number of steps follows the speed.")
]
StepsOption = Annotated[int | None, typer.Option(help="Number of optimizer steps, instead of --minutes.")]
TokenizerOption = Annotated[
    str | None, typer.Option(help="bpe (pieces learned from the text), char (its characters) or byte. Default: bpe.")
]
FieldOption = Annotated[str | None, typer.Option(help="The key or column of .jsonl, .csv, .parquet that holds the text.")]
DedupOption = Annotated[
    str | None, typer.Option(metavar="off|exact|near", help="Leave out equal texts; near: paragraphs that mostly stood before, too.")
]
DtypeOption = Annotated[str | None, typer.Option(help="auto, float32 or bfloat16.")]
SetOption = Annotated[list[str] | None, typer.Option("--set", metavar="PATH=VALUE", help="Any field, e.g. optim.lr=1e-3. Repeatable.")]
OutOption = Annotated[Path | None, typer.Option(help="The run's folder; must not exist. Default: runs/PRESET-1, -2, ...")]
DeviceOption = Annotated[str | None, typer.Option(help="auto, cpu, cuda, cuda:1, mps.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print every event as one JSON line instead.")]


def train(
    paths: Annotated[list[str] | None, typer.Argument(help=PATHS)] = None,
    preset_name: PresetOption = None,
    minutes: MinutesOption = None,
    steps: StepsOption = None,
    until: UntilOption = None,
    out: OutOption = None,
    resume: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="Go on with a run that was stopped; with --steps, --minutes or --until, make it longer."),
    ] = None,
    rewarm: Annotated[
        bool, typer.Option("--rewarm", help="With --resume and --steps: let the learning rate rise to its peak again.")
    ] = False,
    corpus: CorpusOption = None,
    language: LanguageOption = None,
    stories: StoriesOption = None,
    tokenizer: TokenizerOption = None,
    field: FieldOption = None,
    dedup: DedupOption = None,
    device: DeviceOption = None,
    dtype: DtypeOption = None,
    compile: Annotated[str | None, typer.Option(help="auto, on or off.")] = None,
    seed: Annotated[int | None, typer.Option(help="Decides initialisation and the order of the data.")] = None,
    keep: Annotated[int | None, typer.Option(help="How many of the newest checkpoints to keep, besides the best. Default: 2.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Begin although memory or disk seem too small.")] = False,
    set_: SetOption = None,
    json: JsonOption = False,
) -> None:
    """Grow a model on text, and keep it in a run folder.

    Without PATHS the text is the Python standard library's own source, found on this machine, or stories that a grammar makes. Ctrl-C saves
    and stops.

    Examples:

      andrea train book.txt --minutes 5

      andrea train notes/ letters.txt --preset andrea-4m --until 07:00 --out runs/mine

      andrea train book.txt --tokenizer char --steps 500 --set model.context=128 --set optim.lr=3e-3

      andrea train --corpus stories --language sv --minutes 2

      andrea train --resume runs/mine

      andrea train --resume runs/mine --minutes 10 --rewarm
    """
    of_train = {"minutes": minutes, "steps": steps, "device": device, "dtype": dtype, "compile": compile, "seed": seed, "keep": keep}
    of_data = {"corpus": corpus, "language": language, "stories": stories, "tokenizer": tokenizer, "field": field, "dedup": dedup}
    options = given(train=of_train, data=of_data)
    if resume:
        if sum(given is not None for given in (minutes, steps, until)) > 1:
            raise ValueError("--minutes, --steps and --until each say how much longer to train; give one of them")
        refuse_with_resume({**options, "paths": paths, "out": out, "set": set_, "preset": preset_name})
        follow_resume(
            resume, json, device=device, steps=steps, minutes=minutes, rewarm=rewarm, force=force, until=until and time_to_come(until)
        )
        return
    if rewarm:
        raise ValueError("--rewarm is for a run that is made longer: --resume RUN --steps N --rewarm")
    config = configured(paths, preset_name, options, set_, until)
    follow_train(config, out, preset_name or DEFAULT, force, json, time_to_come(until))


def time_to_come(text: str | None) -> datetime | None:
    """The next time of day that is HH:MM, or an ISO 8601 date and time, local where it has no zone. Raises ValueError."""
    if text is None:
        return None
    now = datetime.now()
    try:
        at = datetime.combine(now, datetime.strptime(text, "%H:%M").time())
        return at if at > now else at + timedelta(days=1)
    except ValueError:
        pass
    try:
        if len(text) < len("2026-01-01T00:00"):
            raise ValueError
        return datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"--until {text} is no time; wanted HH:MM, as 07:00, or a date and time, as 2026-01-31T07:00") from None


def given(**sections: dict[str, Any]) -> dict[str, Any]:
    """The options that were given, by their paths: train.minutes, data.field, ..."""
    return {f"{section}.{name}": value for section, of in sections.items() for name, value in of.items() if value is not None}


def configured(
    paths: list[str] | None, preset_name: str | None, options: dict[str, Any], set_: list[str] | None, until: str | None = None
) -> RunConfig:
    """The preset with the options, by their paths, and what --set says. Raises ValueError for what contradicts each other."""
    minutes, steps = options.get("train.minutes"), options.get("train.steps")
    if minutes is not None and steps is not None:
        raise ValueError("--minutes and --steps both say how long to train; give one of them")
    start = preset(DEFAULT if preset_name is None else preset_name)
    config = override(start, *(f"{path}={value}" for path, value in options.items()), *(set_ or []))
    if config.train.steps is not None and (minutes is not None or config.train.minutes != start.train.minutes):
        raise ValueError("minutes and steps both say how long to train; give one of them")
    if until is not None and (minutes is not None or config.train.steps is not None or config.train.minutes != start.train.minutes):
        raise ValueError("--until, minutes and steps each say how long to train; give one of them")
    if config.data.tokenizer != "bpe" and config.model.vocab_size != start.model.vocab_size:
        raise ValueError(f"vocab_size is for bpe; a {config.data.tokenizer} tokenizer has its own number of tokens: leave it out")
    return replace(config, data=with_text(config.data, paths, options.get("data.corpus")))


def demo(
    minutes: Annotated[float, typer.Option(help="Time budget for training.")] = 5,
    corpus: CorpusOption = None,
    language: LanguageOption = None,
    out: OutOption = None,
    device: DeviceOption = None,
    json: JsonOption = False,
) -> None:
    """Grow a small model on a built-in corpus in a few minutes, and hear it speak.

    Examples:

      andrea demo --minutes 5

      andrea demo --corpus stories --language sv --minutes 2
    """
    chosen = given(train={"minutes": minutes, "device": device}, data={"corpus": corpus, "language": language})
    config = override(preset("andrea-1m"), *(f"{path}={value}" for path, value in chosen.items()))
    if not json:
        what = "tell stories" if config.data.corpus == "stories" else "write Python from the standard library on this machine"
        print(f"ANDREA's demo: a model with about a million parameters learns to {what}.\n")
    follow_train(config, out, "demo", False, json)


def refuse_with_resume(options: dict[str, Any]) -> None:
    for path, value in options.items():
        if value is not None and value != [] and path not in ("train.device", "train.steps", "train.minutes"):
            name = "the text" if path == "paths" else f"--{path.rpartition('.')[2]}"
            raise ValueError(f"--resume goes on with the options of the run; leave out {name}, or start a new run")


def follow_train(config: RunConfig, out: Path | None, stem: str, force: bool, json: bool, until: datetime | None = None) -> None:
    from threading import Event as Flag

    from andrea.run_folder import next_name
    from andrea.training.start import train

    stop = Flag()
    follow(train(config, out or next_name(Path("runs"), stem), stop, force, until), stop, json)


def follow_resume(run: Path, json: bool, **options: Any) -> None:
    from threading import Event as Flag

    from andrea.training.start import resume

    stop = Flag()
    follow(resume(run, stop, **options), stop, json)


def way_on(run: Path, saved: bool) -> str:
    """What to do with a run that an error has ended; a checkpoint may be whole though saving it failed."""
    from andrea.checkpoint import search
    from andrea.cli.progress import shell

    from_where = "go on from the last save" if saved or search(run)[0] else "begin it again, for nothing was saved yet"
    return f"to {from_where}: andrea train --resume {shell(run)}"


def follow(events: "Iterator[Event]", stop: "Flag", json: bool) -> None:
    """Show each event: as JSON lines, with a progress bar, or as plain lines when standard error is no terminal.

    Ctrl-C and SIGTERM set `stop`; before the first step, or the second time, they end at once.
    """
    from andrea.cli.progress import Bar, JsonLines, Lines
    from andrea.training.report import Chosen, Saved

    begun = saved = False
    run = Path()

    def ask(number: int, frame: Any) -> None:
        if stop.is_set() or not begun:
            raise KeyboardInterrupt
        stop.set()
        print("\nstopping: this step is finished and saved first; Ctrl-C again leaves at once, without saving", file=sys.stderr)

    signal.signal(signal.SIGINT, ask)
    signal.signal(signal.SIGTERM, ask)
    try:
        with (JsonLines if json else Bar if Bar.is_possible() else Lines)() as view:
            for event in events:
                begun, run = (True, event.run) if isinstance(event, Chosen) else (begun, run)
                saved = saved or isinstance(event, Saved) or (isinstance(event, Chosen) and event.first_step > 0)
                view.show(event)
    except KeyboardInterrupt:
        kept = "what was saved before can be resumed" if saved else "nothing was saved"
        print(f"\nandrea: interrupted; {kept}", file=sys.stderr)
        sys.exit(130)
    except Exception as error:
        if begun and not isinstance(error, ArithmeticError):  # the same steps would diverge again
            error.add_note(way_on(run, saved))
        raise
