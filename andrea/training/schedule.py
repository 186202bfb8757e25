"""The learning rate at every step: a pure function of the step, the number of steps and the configuration."""

import math
from collections.abc import Sequence
from dataclasses import replace

from andrea.config import OptimConfig

SHORTEST_WARMUP = 10  # steps: AdamW's second moments are not worth much before


Leg = tuple[int, int, bool]  # of a run that was made longer: first step, the end in view, whether it begins with a warm-up


def rate(step: int, legs: Sequence[Leg], c: OptimConfig) -> float:
    """Learning rate of a run in legs; one that was never made longer has one, (0, steps, True).

    A later leg has the rates of a run that was to have its end from the start, but no more than there was where it began, or at the end
    of a warm-up that was on the way: the rate does not jump. With a warm-up it is a schedule of its own.
    """
    *before, (start, end, warm) = legs
    if before and step < start:
        return rate(step, before, c)
    if warm:
        return learning_rate(step - start, end - start, c)
    begun, ended, warmed = before[-1]
    risen = begun + warmup_steps(ended - begun, c) if warmed else start
    highest = rate(min(max(start, min(step, risen)), ended - 1), before, c)
    return min(learning_rate(step, end, replace(c, warmup=0.0)), highest)


def warmup_steps(steps: int, c: OptimConfig) -> int:
    return max(1, round(c.warmup * steps), min(SHORTEST_WARMUP, steps // 2) if c.warmup else 0)


def learning_rate(step: int, steps: int, c: OptimConfig) -> float:
    """Learning rate of step 0 .. steps - 1.

    wsd: linear warm-up to the peak, stable, linear decay to floor * lr at the last step (Hu et al. 2024, arXiv:2404.06395).
    cosine: linear warm-up, then half a cosine down to floor * lr (Loshchilov & Hutter 2017, arXiv:1608.03983).
    """
    warmup = warmup_steps(steps, c)
    if step < warmup:
        return c.lr * (step + 1) / warmup
    if c.schedule == "cosine":
        done = (step - warmup) / (steps - warmup)
        return c.lr * (c.floor + (1 - c.floor) * (1 + math.cos(math.pi * done)) / 2)
    decay = min(max(1, round(c.decay * steps)), steps - warmup) if c.decay else 0
    left = steps - step  # 1 at the last step
    return c.lr if left > decay else c.lr * (c.floor + (1 - c.floor) * left / (decay + 1))
