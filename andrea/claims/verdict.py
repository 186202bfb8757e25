"""From the figures of seeds to a verdict in four words: t intervals of paired differences, Holm's correction, equivalence by a margin.

Of one question, n seeds, difference x (what the claim says is below 0), in this order:
    n < 3                                          undecided
    the 95 % interval lies within +-margin         no difference found
    Holm's p over the claim's questions <= 0.05    supported here (mean < 0) or reversed here (mean > 0)
    otherwise                                      undecided

Holm 1979: the chance that any of a claim's questions gets a verdict of its own by luck is 5 % at most, half of it "supported".
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from statistics import fmean, stdev
from typing import Any

from andrea.claims.claim import SEEDS_NEEDED, Claim, Figures, Question

SUPPORTED, REVERSED, NO_DIFFERENCE, UNDECIDED = "supported here", "reversed here", "no difference found", "undecided"
VERDICTS = (SUPPORTED, REVERSED, NO_DIFFERENCE, UNDECIDED)
ALPHA, POWER = 0.05, 0.8
MOST_SEEDS = 200  # looked at when asking how many would do


def t_inside(t: float, df: int) -> float:
    """P(|T| <= t) of Student's t, a finite sum for whole degrees of freedom. Abramowitz & Stegun 1964, 26.7.3 and 26.7.4."""
    angle = math.atan(t / math.sqrt(df))
    s, c = math.sin(angle), math.cos(angle)
    if df == 1:
        return 2 * angle / math.pi
    term = total = c if df % 2 else 1.0
    for k in range(2 if df % 2 else 1, df - 1 if df % 2 else df - 2, 2):
        term *= c * c * k / (k + 1)
        total += term
    return 2 / math.pi * (angle + s * total) if df % 2 else s * total


@cache
def t_quantile(p: float, df: int) -> float:
    """The t below which a share p of Student's distribution lies, 0.5 <= p < 1."""
    return bisect(lambda t: (1 + t_inside(t, df)) / 2 >= p, 0.0, 1e9)


def bisect(is_enough: Any, low: float, high: float) -> float:
    """Where a condition that is false at `low` becomes true."""
    while (middle := (low + high) / 2) not in (low, high):
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


def sign_test(one: int, other: int) -> float:
    """Two-sided p of so many seeds that went one way and the other, if both were equally likely; exact. Ties do not count."""
    n = one + other
    return min(1.0, 2 * sum(math.comb(n, k) for k in range(min(one, other) + 1)) / 2**n)


def share_interval(k: int, n: int, alpha: float = ALPHA) -> tuple[float, float]:
    """The interval of a share, k of n: exact. Clopper & Pearson 1934."""
    up_to = lambda k, p: sum(math.comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(k + 1))
    low = 0.0 if k == 0 else bisect(lambda p: 1 - up_to(k - 1, p) >= alpha / 2, 0.0, 1.0)
    return low, 1.0 if k == n else bisect(lambda p: up_to(k, p) <= alpha / 2, 0.0, 1.0)


def holm(ps: Sequence[float]) -> list[float]:
    """Each p, corrected for all of them. Holm 1979, Scandinavian Journal of Statistics 6(2)."""
    adjusted, last = [1.0] * len(ps), 0.0
    for rank, i in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
        adjusted[i] = last = max(last, min(1.0, (len(ps) - rank) * ps[i]))
    return adjusted


@dataclass(frozen=True)
class Estimate:
    """What the seeds say, before other questions are looked at."""

    mean: float
    low: float | None  # of the 95 % interval; None for one seed
    high: float | None
    sd: float | None  # of one seed's difference
    p: float  # two-sided, that it is 0


def estimate(question: Question, values: Sequence[float]) -> Estimate:
    """Raises ValueError for values that the question's kind cannot have."""
    n, mean = len(values), fmean(values)
    if question.kind == "exact":
        if len(set(values)) > 1:
            raise ValueError(
                f"question {question.name!r} is said to be exact, and its value changes with the seed: {min(values)} to {max(values)}"
            )
        return Estimate(mean, mean, mean, 0.0, 0.0)
    sd = stdev(values) if n > 1 else None
    if question.kind == "share":
        if not set(values) <= {-1, 0, 1}:
            raise ValueError(f"question {question.name!r} is of shares, so that a seed's value is -1, 0 or 1; given {values}")
        one, other = values.count(-1), values.count(1)
        below, above = share_interval(one, n, ALPHA / 2), share_interval(other, n, ALPHA / 2)  # together right 95 times in 100
        return Estimate(mean, above[0] - below[1], above[1] - below[0], sd, sign_test(one, other))
    if sd is None:
        return Estimate(mean, None, None, None, 1.0)
    if sd == 0:  # differences that do not vary at all are no sample of a normal distribution: their signs alone count
        return Estimate(mean, mean, mean, sd, 1.0 if mean == 0 else sign_test(n, 0))
    half, t = t_quantile(1 - ALPHA / 2, n - 1) * sd / math.sqrt(n), abs(mean) / sd * math.sqrt(n)
    return Estimate(mean, mean - half, mean + half, sd, max(0.0, 1 - t_inside(t, n - 1)))


def decide(question: Question, found: Estimate, n: int, p: float) -> str:
    """The verdict of one question; p is Holm's."""
    if question.kind != "exact" and n < SEEDS_NEEDED:
        return UNDECIDED
    assert found.low is not None and found.high is not None
    if -question.margin <= found.low and found.high <= question.margin:
        return NO_DIFFERENCE
    if p <= ALPHA:
        return SUPPORTED if found.mean < 0 else REVERSED
    return UNDECIDED


def seeds_for_a_verdict(question: Question, values: Sequence[float], n_questions: int) -> int | None:
    """About how many seeds would decide in four cases of five, if mean and spread are what they were; None for more than MOST_SEEDS.

    The usual approximation: (t of the level + t of the power) sd / sqrt(n) is at most the mean's distance from 0, or from the margin.
    """
    n, found = len(values), estimate(question, values)
    if question.kind == "exact":
        return 1
    if n < 2 or found.sd is None:
        return None
    if question.kind == "share" or found.sd == 0:
        one, other = (sum(x < 0 for x in values) / n, sum(x > 0 for x in values) / n)
        fits = lambda m: sign_test(round(one * m), round(other * m)) <= ALPHA / n_questions
    else:
        sd, mean = found.sd, abs(found.mean)

        def fits(m: int) -> bool:
            per, power = sd / math.sqrt(m), t_quantile(POWER, m - 1)
            differs = (t_quantile(1 - ALPHA / n_questions / 2, m - 1) + power) * per <= mean
            return differs or (t_quantile(1 - ALPHA / 2, m - 1) + power) * per <= question.margin - mean

    low, high = SEEDS_NEEDED - 1, MOST_SEEDS
    if not fits(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


@dataclass(frozen=True)
class Answer:
    """One question, answered."""

    question: str
    unit: str
    margin: float
    kind: str
    needed: bool
    values: dict[int, float]  # by seed
    mean: float
    low: float | None
    high: float | None
    sd: float | None
    p: float
    p_holm: float
    verdict: str
    seeds_for_a_verdict: int | None


@dataclass(frozen=True)
class Judgement:
    """A claim, decided as far as its seeds go. No answers where no seed is complete."""

    claim: str
    verdict: str
    answers: tuple[Answer, ...]
    seeds: tuple[int, ...]  # complete: every arm was run
    planned: int  # seeds of the design
    noise: float | None  # standard deviation of the baseline's figure over seeds
    diverged: dict[str, tuple[int, int]]  # by arm, where runs can diverge: how many of how many

    @property
    def seeds_to_go(self) -> int | None:
        """How many more seeds the undecided questions would take; None where that cannot be said."""
        wanted = [a.seeds_for_a_verdict for a in self.answers if a.verdict == UNDECIDED and a.needed]
        return max(0, max(w or 0 for w in wanted) - len(self.seeds)) if wanted and all(wanted) else None

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "seeds_to_go": self.seeds_to_go}


def judge(claim: Claim, by_seed: Mapping[int, Mapping[str, Figures]]) -> Judgement:
    """Judge by the figures of each seed's arms; seeds with an arm missing do not count. Raises ValueError for a value that is no number."""
    whole = {seed: by_seed[seed] for seed in claim.seeds if seed in by_seed and claim.arms.keys() <= by_seed[seed].keys()}
    if not whole:
        return Judgement(claim.name, UNDECIDED, (), (), len(claim.seeds), None, {})
    table = [{seed: value_of(q, seed, figures) for seed, figures in whole.items()} for q in claim.questions]
    found = [estimate(q, list(values.values())) for q, values in zip(claim.questions, table, strict=True)]
    by_chance = [i for i, q in enumerate(claim.questions) if q.kind != "exact"]
    corrected = dict(zip(by_chance, holm([found[i].p for i in by_chance]), strict=True))
    answers = []
    for i, (q, values, e) in enumerate(zip(claim.questions, table, found, strict=True)):
        p = corrected.get(i, 0.0)
        verdict, enough = decide(q, e, len(values), p), seeds_for_a_verdict(q, list(values.values()), len(by_chance))
        answers.append(
            Answer(q.name, q.unit, q.margin, q.kind, q.needed, values, **asdict(e), p_holm=p, verdict=verdict, seeds_for_a_verdict=enough)
        )
    noise = [f[claim.base_arm][claim.tune_by] for f in whole.values() if claim.tune_by in f[claim.base_arm]]
    diverged = {
        arm: (sum(f[arm]["diverged"] for f in whole.values()), len(whole))
        for arm in claim.arms
        if all("diverged" in f[arm] for f in whole.values())
    }
    spread = stdev(noise) if len(noise) > 1 else None
    return Judgement(claim.name, together(answers), tuple(answers), tuple(whole), len(claim.seeds), spread, diverged)


def value_of(question: Question, seed: int, figures: Mapping[str, Figures]) -> float:
    try:
        value = float(question.value(figures))
    except Exception as error:  # the claim's own code
        reason = f"{type(error).__name__}: {error}"
        raise ValueError(f"question {question.name!r} cannot be answered from the figures of seed {seed}: {reason}") from error
    if not math.isfinite(value):
        raise ValueError(f"question {question.name!r} gives {value} for seed {seed}; a question's value is a finite number")
    return value


def together(answers: Sequence[Answer]) -> str:
    """The claim's verdict: of the questions that it needs, reversed if one is, else undecided if one is, else no difference found if one
    found none, else supported. Where none is needed, of all."""
    verdicts = {a.verdict for a in answers if a.needed} or {a.verdict for a in answers}
    return next(v for v in (REVERSED, UNDECIDED, NO_DIFFERENCE, SUPPORTED) if v in verdicts)
