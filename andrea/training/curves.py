"""Is this loss normal? Runs of the presets that were recorded, on text that is known by its fingerprint, to compare a run with."""

from dataclasses import dataclass
from itertools import pairwise
from math import log

from andrea.config import RunConfig
from andrea.presets import PRESETS

NORMAL, FAR = 0.06, 0.12  # of a recorded figure: as far apart as seeds and numbers of steps made them, at the end and on the way
BEYOND = 1.3  # times as many tokens as the longest, or so few as the shortest: what no recorded run tells of

Points = tuple[tuple[int, float], ...]  # tokens seen, bits per byte of validation text


@dataclass(frozen=True)
class Curve:
    """One preset on one text: whole validation splits at the ends of runs of several lengths, and the longest on its way to its decay."""

    preset: str
    text: str
    corpus_sha256: str
    ends: Points
    way: Points

    def at_end(self, tokens: int) -> float | None:
        """Bits per byte to expect of a run that ends after so many tokens; None far beyond what was recorded."""
        return between(self.ends, tokens)

    def on_the_way(self, tokens: int) -> float | None:
        """The same, of a run whose learning rate has not begun to fall."""
        return between(self.way, tokens)


# `python benchmarks/curves.py` makes them
RECORDED: tuple[Curve, ...] = ()


def between(points: Points, tokens: int) -> float | None:
    """Straight from point to point over log(tokens); the nearest a little beyond them, None farther away."""
    if not points or not points[0][0] / BEYOND <= tokens <= points[-1][0] * BEYOND:
        return None
    for (a, at_a), (b, at_b) in pairwise(points):
        if a <= tokens <= b:
            return at_a + (at_b - at_a) * log(tokens / a) / log(b / a)
    return points[0][1] if tokens < points[0][0] else points[-1][1]


def preset_of(c: RunConfig) -> str | None:
    """The preset whose model, optimizer and batch a run has, whatever its text, length and machine; None where one was changed."""
    of = lambda c: (c.model, c.optim, c.train.batch_tokens)
    return next((name for name, p in PRESETS.items() if of(p) == of(c)), None)


def curve_of(c: RunConfig, corpus_sha256: str) -> Curve | None:
    """What was recorded of a run's preset on its text."""
    name = preset_of(c)
    return next((curve for curve in RECORDED if (curve.preset, curve.corpus_sha256) == (name, corpus_sha256)), None)


def verdict(curve: Curve | None, tokens: int, bits_per_byte: float) -> tuple[str, ...]:
    """A sentence on how a run ended, where something recorded tells."""
    wanted = curve.at_end(tokens) if curve else None
    if curve is None or wanted is None:
        return ()
    apart = bits_per_byte / wanted - 1
    told = "this is normal" if abs(apart) <= NORMAL else f"this is {abs(apart):.0%} {'more' if apart > 0 else 'less'} than normal"
    return (f"{curve.preset} on {curve.text} ends near {wanted:.3f} bits/byte after as many tokens: {told}",)


def warning(curve: Curve | None, tokens: int, bits_per_byte: float) -> tuple[str, ...]:
    """What to say on the way, before the learning rate falls: only of a loss that is far from the recorded one."""
    wanted = curve.on_the_way(tokens) if curve else None
    if curve is None or wanted is None or bits_per_byte <= wanted * (1 + FAR):
        return ()
    return (f"{bits_per_byte:.3f} bits/byte is much for {tokens:,} tokens: {curve.preset} on {curve.text} was at {wanted:.3f} by then",)
