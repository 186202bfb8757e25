"""The learning rate at every step: a pure function of the step, the number of steps and the configuration."""

import math
from dataclasses import replace
from functools import lru_cache

from andrea.config import OptimConfig

SHORTEST_WARMUP = 10  # steps: AdamW's second moments are not worth much before


Leg = tuple[int, int, bool]  # of a run whose end was moved: first step, the end in view, whether it begins with a warm-up


@lru_cache(1024)  # a rate depends on those of the legs before
def rate(step: int, legs: tuple[Leg, ...], c: OptimConfig) -> float:
    """Learning rate of a run in legs; one whose end was never moved has one, (0, steps, True).

    A later leg has the rates of a run that was to have its end from the start, but no more than there was where it began, or at the end
    of a warm-up that was on the way; and where that run would have less already, a straight line down to its end: the rate does not jump.
    With a warm-up it is a schedule of its own.
    """
    *earlier, (start, end, warm) = legs
    before = tuple(earlier)
    if before and step < start:
        return rate(step, before, c)
    if warm:
        return learning_rate(step - start, end - start, c)
    begun, ended, warmed = before[-1]
    risen = begun + warmup_steps(ended - begun, c) if warmed else start
    highest = rate(min(max(start, min(step, risen)), ended - 1), before, c)
    planned = replace(c, warmup=0.0)
    if (here := rate(min(start, ended - 1), before, c)) > learning_rate(start, end, planned):
        floor = min(here, c.lr * c.floor)
        return floor + (here - floor) * (end - step) / (end - start + 1)
    return min(learning_rate(step, end, planned), highest)


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
