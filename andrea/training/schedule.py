"""The learning rate at every step: a pure function of the step, the number of steps and the configuration."""

import math

from andrea.config import OptimConfig

SHORTEST_WARMUP = 10  # steps: AdamW's second moments are not worth much before


def learning_rate(step: int, steps: int, c: OptimConfig) -> float:
    """Learning rate of step 0 .. steps - 1.

    wsd: linear warm-up to the peak, stable, linear decay to floor * lr at the last step (Hu et al. 2024, arXiv:2404.06395).
    cosine: linear warm-up, then half a cosine down to floor * lr (Loshchilov & Hutter 2017, arXiv:1608.03983).
    """
    warmup = max(1, round(c.warmup * steps), min(SHORTEST_WARMUP, steps // 2) if c.warmup else 0)
    if step < warmup:
        return c.lr * (step + 1) / warmup
    if c.schedule == "cosine":
        done = (step - warmup) / (steps - warmup)
        return c.lr * (c.floor + (1 - c.floor) * (1 + math.cos(math.pi * done)) / 2)
    decay = min(max(1, round(c.decay * steps)), steps - warmup) if c.decay else 0
    left = steps - step  # 1 at the last step
    return c.lr if left > decay else c.lr * (c.floor + (1 - c.floor) * left / (decay + 1))
