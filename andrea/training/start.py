"""From a configuration, or a run folder, to the first step: text prepared, machine chosen, model built, number of steps settled."""

import copy
from collections.abc import Callable, Generator, Iterator
from dataclasses import fields, replace
from datetime import datetime
from functools import partial
from math import log
from pathlib import Path
from threading import Event as Flag
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from andrea import checkpoint, kernels, run_folder
from andrea.accounting import count
from andrea.config import DataConfig, RunConfig, from_dict, override
from andrea.data.prepare import Prepared, check_prepared, is_prepared, open_prepared, prepare_steps
from andrea.data.sampler import Sampler
from andrea.files import named
from andrea.machine import Choice, choose, choose_device, device_memory_bytes, free_disk_bytes, keep_memory, provenance
from andrea.model import Transformer
from andrea.show import size
from andrea.training import plan, report
from andrea.training.ending import clock_of, closing_seconds, settle_end
from andrea.training.loop import Setting, evaluate_now, go_on, observed, sample_now, stepper
from andrea.training.optim import optimizer_for
from andrea.training.report import Chosen, Event, Log
from andrea.training.state import State, begin, dtype_of, generators_kept, put_back

APART = 0.5  # nats from ln V: no initialisation here begins farther from it


def train(
    config: RunConfig, out: str | Path, stop: Flag | None = None, force: bool = False, until: datetime | None = None
) -> Iterator[Event]:
    """Grow a new model on config.data and keep it in the folder `out`, which must not exist.

    Setting `stop` saves after the running step and ends with Stopped. With `until`, local time where it has no zone, the number of steps
    follows the speed as it goes on, so that all ends by then. Raises ValueError for data or options that cannot be used,
    FileExistsError for a folder that is there; unless `force`, plan.TooLittleMemory and plan.TooLittleDisk for a run that cannot fit.
    """
    with run_folder.unfinished(Path(out)) as run:
        chosen = choices(config)
        resolved = {choice.name: choice.value for choice in chosen}
        least = replace(config, model=replace(config.model, vocab_size=1))
        settle_pass(least, resolved, force)  # what is refused whatever the text gives is refused before it is prepared
        data = yield from prepare_into(run, config)
        config = replace(config, model=replace(config.model, vocab_size=data.tokenizer.vocab_size), data=data_config(config.data, data))
        yield report.Prepared(run, data.report, data.folder.parent == run.resolve())
        sampler = Sampler(data.train, config.model.context, config.train.seed)
        settle_pass(config, resolved, force)
        if not force:
            plan.check_disk(config, free_disk_bytes(run))
        set_up_machine(resolved)
        state = begin(config, resolved)
        losses, note = compiled(state.model, config, resolved)
        chosen = [replace(choice, value=resolved[choice.name]) for choice in chosen]  # compiling may have failed
        setting = Setting(run, config, resolved, data, losses, saves_beside(config, resolved))
        yield report.Working("measuring the speed" if config.train.steps is None else "evaluating the untrained model")
        began = perf_counter()
        first, *seen = evaluate_now(state, setting, 0), *observed(state, setting, 0)
        sample = sample_now(state, setting)
        setting, choice = settle_steps(setting, state, perf_counter() - began, until)
        config = setting.config
        run_folder.write_run(run, config, resolved, provenance() | {"data": data.report["corpus_sha256"]})
    parameters = sum(p.numel() for p in state.model.parameters())
    epoch = f"epoch: {sampler.windows_per_epoch:,} windows of {sampler.context} tokens; {sampler.left_out} left out, others each time"
    expected = (*expectations(config, resolved, len(data.train)), untrained(first.loss, config.model.vocab_size))
    yield Chosen(run, (*chosen, choice), parameters, resolved["steps"], 0, (epoch, *expected, *fewer_rows(config, resolved), *note))
    state.seconds = perf_counter() - began
    yield from go_on(state, setting, Log(run), [first, *seen, sample], stop)


def resume(
    run: str | Path,
    stop: Flag | None = None,
    device: str | None = None,
    steps: int | None = None,
    minutes: float | None = None,
    rewarm: bool = False,
    force: bool = False,
    until: datetime | None = None,
) -> Iterator[Event]:
    """Go on with a run from its newest whole checkpoint, or from the beginning, to the same end as if it had never stopped.

    `steps`, or `minutes` more, makes it longer: `lengthen` has the rule for the learning rate. A run with a time to end by, its own or
    `until`, ends by then. Raises ValueError for a folder that is no run, for data that has changed, and for a run that is finished;
    unless `force`, plan.TooLittleMemory.
    """
    run = run_folder.find_run(run)
    config, resolved, _ = run_folder.read_run(run)
    resolved = dict[str, Any](kernels="torch", recompute=False) | resolved  # all that there were at first
    if missing := run_folder.RESOLVED.keys() - resolved.keys():
        raise ValueError(f"{run / 'run.json'} is damaged: resolved has no {', '.join(sorted(missing))}")
    moved = device is not None and device != resolved["device"]
    resolved["device"] = choose_device(device or resolved["device"]).value
    if resolved["kernels"] == "cpu" or kernels.lacking(resolved["kernels"], resolved["device"]):
        resolved["kernels"], _ = kernels.choose(resolved["device"], resolved["compile"])
    folder, skipped = checkpoint.search(run)
    if skipped and not folder:
        checkpoint.newest_whole(run)  # refuses: what cannot be read is not trained over
    as_before = f"micro_batch={resolved['micro_batch']}", f"recompute={'on' if resolved['recompute'] else 'off'}"
    settle_pass(override(config, *as_before), resolved, force)
    data = run_folder.open_data(run)
    check_prepared(data)
    set_up_machine(resolved)
    if folder:
        checkpoint.check_weights(folder / "model.safetensors", config.model)
        saved = checkpoint.read_state(folder)
        checkpoint.point(run, folder, saved["best"], saved["sound"])  # a crash may have come between the checkpoint and this
    state = begin(config, resolved)
    if folder:
        put_back(state, folder, config, resolved, moved)
    setting = Setting(run, config, resolved, data, state.model, saves_beside(config, resolved))
    closing = partial(closing_seconds, state.model, data, setting.rows)
    clock, ending = settle_end(run, config, resolved, state.step, steps, minutes, until, rewarm, closing)
    if state.step >= resolved["steps"] and any(m.get("whole") and m["step"] == state.step for m in report.read_metrics(run)):
        ways = "--steps N, --minutes M or --until HH:MM"
        raise ValueError(f"{run} is finished: {state.step} of {resolved['steps']} steps done. {ways} trains it longer")
    losses, note = compiled(state.model, config, resolved)
    stored = tuple(Choice(name, value, "as stored in run.json") for name, value in resolved.items() if name != "legs")
    elsewhere = (f"moved to {resolved['device']}: the rest differs from what it would have been, by rounding and dropout",) if moved else ()
    notes = (
        *(f"skipped: {s}" for s in skipped),
        *["nothing whole was saved: from the beginning"] * (not folder),
        *ending,
        *elsewhere,
        *note,
    )
    yield Chosen(run, stored, sum(p.numel() for p in state.model.parameters()), resolved["steps"], state.step, notes)
    setting = replace(setting, losses=losses, clock=clock)
    first: list[Event] = [] if state.step else [evaluate_now(state, setting, 0), *observed(state, setting, 0), sample_now(state, setting)]
    yield from go_on(state, setting, Log(run, state.step), first, stop)


def choices(config: RunConfig) -> list[Choice]:
    """What is settled before the text is read: device, dtype, compile, threads, kernels. Raises ValueError for an absent device."""
    first = choose(config.model, config.train)
    values = {choice.name: choice.value for choice in first}
    return [*first, Choice("kernels", *kernels.choose(values["device"], values["compile"], config.train.kernels))]


def settle_pass(config: RunConfig, resolved: dict[str, Any], force: bool = False) -> None:
    """Set resolved["micro_batch"], sequences per pass, and resolved["recompute"]. Raises plan.TooLittleMemory unless `force`."""
    memory = device_memory_bytes(resolved["device"])
    ways = {"auto": (False, True), "on": (True,), "off": (False,)}[config.train.recompute]
    for recompute in ways:
        try:
            rows = plan.micro_batch_rows(config, resolved["device"], resolved["dtype"], memory, resolved["kernels"], recompute)
        except plan.TooLittleMemory:
            if recompute is ways[-1] and force:
                resolved["micro_batch"], resolved["recompute"] = config.train.micro_batch or 1, recompute
            elif recompute is ways[-1]:
                raise
        else:
            resolved["micro_batch"], resolved["recompute"] = rows, recompute
            return


def saves_beside(config: RunConfig, resolved: dict[str, Any]) -> bool:
    """Whether memory holds a copy of weights and moments besides all that the run takes."""
    memory = device_memory_bytes("cpu")  # where the copy is, whatever the device
    needed = sum(plan.memory_of(config, resolved).values()) if resolved["device"] == "cpu" else plan.PROGRAM
    return memory is None or needed + plan.snapshot_bytes(config) <= memory


def expectations(config: RunConfig, resolved: dict[str, Any], train_tokens: int) -> tuple[str, ...]:
    """What `andrea plan` tells of memory and text, in two lines."""
    items, there = plan.memory_of(config, resolved), device_memory_bytes(resolved["device"])
    tokens = resolved["steps"] * config.train.batch_tokens
    each = tokens / count(config.model).total
    return (
        f"memory: about {size(sum(items.values()))}" + (f" of {size(there)}" if there else "") + f" ({plan.told(items)})",
        f"text: {tokens / train_tokens:.2f} passes over it, {each:.3g} tokens per parameter",
    )


def untrained(loss: float, vocab_size: int) -> str:
    """How near an untrained model is to one that holds every token for equally likely."""
    told = f"untrained: loss {loss:.3f}, where knowing nothing has ln {vocab_size:,} = {log(vocab_size):.3f}"
    return told + f"; more than {APART} apart, so that something is wrong with init or data" * (abs(loss - log(vocab_size)) > APART)


def fewer_rows(config: RunConfig, resolved: dict[str, Any]) -> tuple[str, ...]:
    """A sentence where memory, and nothing else, made the micro-batch smaller, and one where it asks for activations anew."""
    usual = plan.micro_batch_rows(config, resolved["device"], resolved["dtype"], None, resolved["kernels"])
    rows, again = resolved["micro_batch"], resolved["recompute"] and config.train.recompute == "auto"
    fewer = [f"memory holds {rows} sequences at a time, not {usual}: the result differs by rounding alone"] * (rows < usual)
    return (*fewer, *["memory does not hold the activations: backward computes them again, a third more work"] * again)


def prepare_into(run: Path, config: RunConfig) -> Generator[Event, None, Prepared]:
    """Tokens for the run: of a folder that `andrea data` made, used where it lies, or prepared into RUN/data."""
    prepared = [path for path in config.data.paths if is_prepared(Path(path))]
    if prepared and len(config.data.paths) > 1:
        raise ValueError(f"{prepared[0]} is prepared already and goes alone; give it alone, or the texts it was made from")
    if prepared:
        data = open_prepared(Path(prepared[0]))
        run_folder.point_to_data(run, data)
    else:
        with named(run / "data"):
            for line in prepare_steps(config.data, config.model.vocab_size, run / "data"):
                yield report.Working(f"text: {line}")
        data = open_prepared(run / "data")
    data.tokenizer.save(run / "tokenizer.json")
    return data


def data_config(wanted: DataConfig, data: Prepared) -> DataConfig:
    """How the text was really prepared. Raises ValueError if a prepared folder differs from an option that was given."""
    made = replace(from_dict(DataConfig, data.report["config"]), paths=wanted.paths)
    for field in fields(DataConfig):
        asked, is_made = getattr(wanted, field.name), getattr(made, field.name)
        if asked not in (is_made, getattr(DataConfig(), field.name)):
            raise ValueError(
                f"{data.folder} was prepared with {field.name}={is_made}, not {asked}; leave the option out, or prepare the text again"
            )
    return made


def set_up_machine(resolved: dict[str, Any]) -> None:
    torch.set_num_threads(resolved["threads"])
    keep_memory()


def compiled(model: Transformer, config: RunConfig, resolved: dict[str, Any]) -> tuple[Callable[[Tensor, Tensor], Tensor], tuple[str, ...]]:
    """The function that gives the losses: the model, or a compiled twin that lives outside the module tree."""
    if not resolved["compile"]:
        return model, ()
    compiled_model = torch.compile(model, dynamic=False)
    try:
        ids = torch.zeros(resolved["micro_batch"], config.model.context, dtype=torch.long, device=resolved["device"])
        dtype = getattr(torch, resolved["dtype"])
        with generators_kept(resolved["device"]), torch.autocast(ids.device.type, dtype, enabled=dtype != torch.float32):
            torch.autograd.grad(compiled_model(ids, ids).sum(), list(model.parameters()))
    except Exception as error:  # a compiler fails in many ways; the eager model is the same model
        resolved["compile"] = False
        return model, (f"compiling failed, running eagerly: {(str(error) or type(error).__name__).splitlines()[0]}",)
    return compiled_model, ()


def settle_steps(s: Setting, state: State, evaluation_seconds: float, until: datetime | None) -> tuple[Setting, Choice]:
    """Set resolved["steps"]: as asked for, or what the time budget holds at the speed of a few steps of a twin; and the clock."""
    c, clock = s.config.train, None
    if until and (clock := clock_of(s.run, s.config, s.resolved, until)):
        clock.closing = closing_seconds(state.model, s.data, s.rows)
    if c.steps and not clock:
        choice = Choice("steps", c.steps, "asked for")
    else:
        with generators_kept(s.resolved["device"]):
            twin = copy.deepcopy(state.model)
            losses = torch.compile(twin, dynamic=False) if s.resolved["compile"] else twin
            spoilt = State(twin, optimizer_for(twin, s.config.optim, dtype_of(s.resolved), kernels.BY_NAME[s.resolved["kernels"]]))
            budget = clock.left if clock else c.minutes * 60
            s.resolved["steps"] = 1_000_000  # of no consequence: a learning rate for the twin
            began = perf_counter()
            seconds = plan.probe(stepper(spoilt, replace(s, losses=losses)), budget)
            spent = perf_counter() - began + evaluation_seconds
        n = plan.steps_in(budget, seconds, spent + 20 * evaluation_seconds)
        why = f"until {clock.until:%Y-%m-%d %H:%M}" if clock else f"{c.minutes:g} minutes"
        choice = Choice("steps", n, f"{why} at {c.batch_tokens / seconds:,.0f} tokens/s")
    s.resolved["steps"] = choice.value
    return replace(s, config=replace(s.config, train=replace(c, steps=choice.value)), clock=clock), choice
