"""`andrea plan`."""

from typing import TYPE_CHECKING, Annotated

import typer

from andrea.cli.data import PATHS, CorpusOption, LanguageOption, StoriesOption
from andrea.cli.train import (
    DEFAULT,
    DedupOption,
    DeviceOption,
    DtypeOption,
    FieldOption,
    MinutesOption,
    PresetOption,
    SetOption,
    StepsOption,
    TokenizerOption,
    UntilOption,
    configured,
    given,
    time_to_come,
)

if TYPE_CHECKING:
    from andrea.training.forecast import Forecast


def plan(
    paths: Annotated[list[str] | None, typer.Argument(help=PATHS)] = None,
    preset_name: PresetOption = None,
    minutes: MinutesOption = None,
    steps: StepsOption = None,
    until: UntilOption = None,
    corpus: CorpusOption = None,
    language: LanguageOption = None,
    stories: StoriesOption = None,
    tokenizer: TokenizerOption = None,
    field: FieldOption = None,
    dedup: DedupOption = None,
    device: DeviceOption = None,
    dtype: DtypeOption = None,
    overfit: Annotated[bool, typer.Option("--overfit", help="Also learn one small batch by heart, as a check.")] = False,
    set_: SetOption = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Tell what a run would take, before it begins: memory, disk, time, and how much text each parameter gets.

    The text is read and a few steps are made, in a folder that is thrown away. The options are those of **andrea train**.

    Examples:

      andrea plan book.txt

      andrea plan notes/ --preset andrea-12m --minutes 120

      andrea plan book.txt --preset andrea-4m --steps 2000 --json
    """
    from andrea.show import print_json
    from andrea.training.forecast import Forecast, forecast

    of_train = {"minutes": minutes, "steps": steps, "device": device, "dtype": dtype}
    of_data = {"corpus": corpus, "language": language, "stories": stories, "tokenizer": tokenizer, "field": field, "dedup": dedup}
    options = given(train=of_train, data=of_data)
    config = configured(paths, preset_name, options, set_, until)
    for event in forecast(config, preset_name or DEFAULT, overfit, time_to_come(until)):
        if not isinstance(event, Forecast):
            if not json and hasattr(event, "text"):
                print(event.text, flush=True)
        elif json:
            print_json(event.to_dict())
        else:
            show(event)


def show(f: "Forecast") -> None:
    from andrea.cli.progress import clock
    from andrea.show import Table, number, size, terminal

    total = sum(f.memory.values())
    there = f"of {size(f.memory_there)}" if f.memory_there else "the system does not say how much there is"
    memory = [(name.replace("_", " "), size(n)) for name, n in f.memory.items() if n] + [("all", size(total))]
    time = [(name, clock(seconds)) for name, seconds in f.time.items()] + [("all", clock(f.seconds))]
    terminal(
        [
            Table(
                f"{f.preset}: {f.parameters:,} parameters",
                ("setting", "value", "why"),
                [(c.name, str(c.value), c.reason) for c in f.choices],
            ),
            Table(f"memory, {there}", ("item", ">bytes"), memory),
            Table("time", ("item", ">h:mm:ss"), time, f"{f.steps:,} steps at {f.tokens_per_s:,.0f} tokens/s\n"),
        ]
    )
    print(f"disk: {size(f.disk)} of {size(f.disk_there)} free, for checkpoints")
    print(
        f"text: {f.train_tokens:,} tokens to train on; {f.passes:.2f} passes over it, {number(f.tokens_per_parameter)} tokens per parameter"
    )
    print("      (about 20 per parameter make the most of the work that goes into them; up to 4 passes teach almost as new text does)")
    print(f"untrained: loss {f.untrained_loss:.3f}; a model that knows nothing has {f.uniform_loss:.3f}")
    if f.bits_per_byte:
        print(f"at the end: about {f.bits_per_byte:.2f} bits/byte on the validation text, as recorded of this preset on this text")
    if f.overfit:
        first, last = f.overfit
        verdict = "it can learn" if last < first / 2 else "it does not learn: the rate may be far too high or low"
        print(f"one batch by heart: loss {first:.3f} to {last:.3f}; {verdict}")
    if f.memory_there and total > f.memory_there:
        print("this does not fit into the memory")
    print(f"what would fit: {f.better}")
