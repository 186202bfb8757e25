"""How much to do at a time, and how many steps fit into a time budget: measured on the run itself before it begins."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from statistics import median
from time import perf_counter
from typing import Any

from andrea.accounting import count, training_bytes
from andrea.config import RunConfig
from andrea.kernels.attention import CHUNK
from andrea.presets import PRESETS
from andrea.show import size

PROGRAM = 400 * 2**20  # bytes: Python, torch and a model of next to nothing, which were measured to take 360 MiB
SPARE = 1 / 3  # of what is counted: freed memory is kept, and not every new piece fits into it
PROBE_SHARE = 0.03  # of the time budget, at most
PROBE_STEPS = 40  # at most
TOKENS_PER_PARAMETER = 20.0  # compute-optimal: Hoffmann et al. 2022, arXiv:2203.15556
PASSES = 4.0  # over the text that teach almost as new text does: Muennighoff et al. 2023, arXiv:2305.16264


class TooLittleMemory(MemoryError):
    """Not even the least that can be done at a time fits into the memory."""


class TooLittleDisk(OSError):
    """The checkpoints of a run would not find room."""


def micro_batch_rows(c: RunConfig, device: str, dtype: str, memory: int | None, kernels: str = "torch", recompute: bool = False) -> int:
    """Sequences per pass: the most that divide the batch evenly within what the device digests well and its memory holds.

    config.train.micro_batch where it is given. Raises TooLittleMemory where that, or one sequence, needs more than `memory` bytes.
    """
    most = max(1, tokens_per_pass(c, device) // c.model.context)
    given = c.train.micro_batch
    choices = [given] if given else [rows for rows in range(1, min(most, c.rows) + 1) if c.rows % rows == 0]
    needed = lambda rows, dtype=dtype: sum(memory_needed(c, rows, device, dtype, kernels, recompute).values())
    fitting = [rows for rows in choices if memory is None or needed(rows) <= memory]
    if not fitting and memory is not None:
        least, items = choices[0], memory_needed(c, choices[0], device, dtype, kernels, recompute)
        total = sum(items.values())
        fits = largest_that_fits(c, device, dtype, memory, kernels)
        ways = ["a smaller preset" + f" ({fits} fits)" * bool(fits), "a shorter context", *["micro_batch=1"] * (least > 1)]
        ways += ["bfloat16"] * (needed(least, "bfloat16") < total)
        raise TooLittleMemory(
            f"too little memory: {least} of {c.model.context} tokens at a time takes {size(total)} ({told(items)}) "
            f"and there is {size(memory)}; take {', '.join(ways)}"
        )
    return max(fitting)


def told(items: Mapping[str, int]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {size(n)}" for name, n in items.items() if n)


def largest_that_fits(c: RunConfig, device: str, dtype: str, memory: int, kernels: str) -> str:
    """The preset with the most parameters, but fewer than this run's, of which one sequence at a time fits; nothing if none does."""
    fitting = ""
    for name, preset in PRESETS.items():
        smaller = count(preset.model).total < count(c.model).total
        if smaller and sum(memory_needed(preset, 1, device, dtype, kernels, recompute=True).values()) <= memory:
            fitting = name
    return fitting


def tokens_per_pass(c: RunConfig, device: str) -> int:
    """What a device digests best, as measured (LOG.md, 2026-11-29): a CPU's caches hold a pass of a wide model while it is small."""
    return 65_536 if device != "cpu" else 2048 if c.model.d_model >= 512 else 4096


def memory_needed(c: RunConfig, rows: int, device: str, dtype: str, kernels: str = "torch", recompute: bool = False) -> dict[str, int]:
    """Bytes that a run takes at its peak, by item: accounting's sums, the twin that measures the speed, the allowances.

    The kernels for a CPU keep attention's weights, half of T^2 for a head; they and Triton's keep of the logits only their gradient.
    Muon has one moment for AdamW's two, and its products take the room of the other. To recompute, a block keeps what it read, float32,
    and one block at a time has all the rest.
    """
    m, T, value = c.model, c.model.context, 2 if dtype == "bfloat16" else 4
    items = training_bytes(m, rows, T, "bfloat16" if dtype == "bfloat16" else "float32")
    del items["total"]
    at_once = 1 if recompute else m.n_layer
    if recompute:
        one = training_bytes(replace(m, n_layer=1), rows, T, "bfloat16" if dtype == "bfloat16" else "float32")
        items["activations"] = one["activations"] + rows * T * m.n_layer * 4 * m.d_model
    if kernels == "cpu":
        items["attention_weights"] = rows * at_once * m.n_head * T * (T + min(T, CHUNK)) // 2 * value
    if kernels != "torch":
        items["logits"] = rows * T * m.vocab_size * value
    total = sum(items.values())
    twin = 0 if c.train.steps else items["weights"]
    return {**items, "twin": twin, "spare": int(SPARE * (total + twin)), "program": PROGRAM if device == "cpu" else 0}


def memory_of(c: RunConfig, resolved: Mapping[str, Any]) -> dict[str, int]:
    """memory_needed of what was settled."""
    names = ("micro_batch", "device", "dtype", "kernels", "recompute")
    return memory_needed(c, *(resolved[name] for name in names))


def disk_needed(c: RunConfig) -> int:
    """Bytes of the most checkpoints that stand side by side: the newest, the best, the sound one, those kept for good, one half made."""
    for_good = (c.train.steps or 0) // c.train.keep_every if c.train.keep_every else 0
    return (c.train.keep + 3 + for_good) * snapshot_bytes(c)


def check_disk(c: RunConfig, free: int) -> None:
    """Raises TooLittleDisk where the checkpoints would not find room."""
    needed = disk_needed(c)
    if needed > free:
        ways = ["keep=1"] * (c.train.keep > 1) + ["a larger keep_every"] * bool(c.train.keep_every) + ["another place by --out"]
        each = f"{needed // snapshot_bytes(c):,} checkpoints of {size(snapshot_bytes(c))}"
        raise TooLittleDisk(f"too little room on the disk: {each} take {size(needed)} and {size(free)} are free; take {', '.join(ways)}")


def snapshot_bytes(c: RunConfig) -> int:
    """What a copy of all that is saved takes, at most."""
    items = training_bytes(c.model, 1, 1)
    return items["weights"] + items["adamw_moments"]


def probe(step: Callable[[], object], budget_seconds: float) -> float:
    """Median seconds of one step, over as many as fit into a small share of the budget; the first, which warms up, does not count."""
    step()
    seconds: list[float] = []
    began = perf_counter()
    while len(seconds) < 3 or (len(seconds) < PROBE_STEPS and perf_counter() - began < PROBE_SHARE * budget_seconds):
        start = perf_counter()
        step()
        seconds.append(perf_counter() - start)
    return median(seconds)


def steps_in(budget_seconds: float, step_seconds: float, overhead_seconds: float) -> int:
    """Steps that fit into the budget beside the overhead; at least 1, and at least half of the budget goes to steps."""
    return max(1, int(max(budget_seconds - overhead_seconds, budget_seconds / 2) / step_seconds))
