"""Is this loss normal? Runs of the presets that were recorded, on text that is known by its fingerprint, to compare a run with."""

from dataclasses import dataclass
from itertools import pairwise
from math import log

from andrea.config import RunConfig
from andrea.presets import PRESETS

NORMAL, FAR = 0.06, 0.12  # of a recorded figure: at the end, and on the way, where seeds and lengths make more of a difference
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
RECORDED: tuple[Curve, ...] = (
    Curve(
        "andrea-1m",
        "the library of Python 3.11.7",
        "0a96501a674d32a4786306b338de2a8c4db569c9a99bfc40b5a96649fa8bf032",
        ((944_128, 1.5487), (2_048_000, 1.2757), (6_602_752, 1.1385), (17_821_696, 1.085)),
        (
            (102_400, 2.3804),
            (204_800, 2.0885),
            (307_200, 1.9597),
            (329_728, 1.9871),
            (659_456, 1.7992),
            (890_880, 1.7484),
            (1_781_760, 1.5098),
            (2_672_640, 1.4838),
            (3_563_520, 1.4638),
            (4_454_400, 1.4549),
            (5_345_280, 1.4794),
            (6_236_160, 1.4541),
            (7_127_040, 1.4437),
            (8_017_920, 1.4419),
            (8_908_800, 1.4433),
            (9_799_680, 1.4438),
            (10_690_560, 1.4445),
        ),
    ),
    Curve(
        "andrea-4m",
        "the library of Python 3.11.7",
        "0a96501a674d32a4786306b338de2a8c4db569c9a99bfc40b5a96649fa8bf032",
        ((3_072_000, 1.1187), (9_216_000, 1.0147)),
        (
            (153_600, 2.147),
            (307_200, 1.8949),
            (460_800, 1.8036),
            (921_600, 1.6315),
            (1_382_400, 1.5285),
            (1_843_200, 1.4117),
            (2_304_000, 1.3748),
            (2_764_800, 1.3712),
            (3_225_600, 1.3615),
            (3_686_400, 1.3454),
            (4_147_200, 1.3374),
            (4_608_000, 1.3544),
            (5_068_800, 1.3466),
            (5_529_600, 1.3374),
        ),
    ),
    Curve(
        "andrea-1m",
        "Tiny Shakespeare",
        "429326d2095bbff3be8cd8f4a901a2ee3e67d4c90f25f96dddf7e0b65d61a869",
        ((1_024_000, 1.9065), (5_120_000, 2.0396)),
        (
            (102_400, 2.4703),
            (204_800, 2.2879),
            (256_000, 2.2891),
            (512_000, 2.127),
            (768_000, 2.1004),
            (1_024_000, 2.0803),
            (1_280_000, 2.0453),
            (1_536_000, 2.0293),
            (1_792_000, 2.0526),
            (2_048_000, 2.0292),
            (2_304_000, 2.01),
            (2_560_000, 2.0311),
            (2_816_000, 2.0191),
            (3_072_000, 2.0252),
        ),
    ),
    Curve(
        "andrea-4m",
        "Tiny Shakespeare",
        "429326d2095bbff3be8cd8f4a901a2ee3e67d4c90f25f96dddf7e0b65d61a869",
        ((3_072_000, 2.3854),),
        (
            (153_600, 2.3016),
            (307_200, 2.1411),
            (460_800, 2.0629),
            (614_400, 2.0345),
            (768_000, 1.9984),
            (921_600, 1.9863),
            (1_075_200, 1.9696),
            (1_228_800, 1.9881),
            (1_382_400, 1.9781),
            (1_536_000, 2.0062),
            (1_689_600, 1.995),
            (1_843_200, 2.0333),
        ),
    ),
)


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
