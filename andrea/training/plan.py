"""How much to do at a time, and how many steps fit into a time budget: measured on the run itself before it begins."""

from collections.abc import Callable
from statistics import median
from time import perf_counter

from andrea.config import RunConfig

PROBE_SHARE = 0.03  # of the time budget, at most
PROBE_STEPS = 40  # at most


def micro_batch_rows(c: RunConfig, device: str) -> int:
    """Sequences per pass: the most that divide the batch evenly within what the device digests well (at least one)."""
    most = max(1, (16_384 if device == "cpu" else 65_536) // c.model.context)
    return max(rows for rows in range(1, min(most, c.rows) + 1) if c.rows % rows == 0)


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
