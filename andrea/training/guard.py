"""Whether a step is sound, by those before it.

A loss or a gradient that is no finite number: the step is left out, and its batch passed over. A spike: a loss above

    median + max(WIDTH * 1.4826 MAD, LEAST)       of the last WINDOW sound losses (1.4826 MAD is a normal distribution's sigma)

or above the lowest median of FEW there ever was by RISE and as much. PATIENCE unsound steps on end, and the run goes back to its
last sound save and passes over every batch since (Chowdhery et al. 2022, arXiv:2204.02311, section 5.1); loop.py does that.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from math import inf, isfinite, nan
from statistics import median
from typing import Any

WINDOW, FEW = 100, 20  # steps
WIDTH = 6.0
LEAST, EARLY = 0.2, 1.0  # nats: a spike's least height; and above the highest, while less than FEW losses are known
RISE = 1.0  # nats
PATIENCE = 3  # steps


class Guard:
    """Judges one step after another. It knows no more than metrics.jsonl does, so that a resumed run judges as the first one."""

    def __init__(self) -> None:
        self.sound: deque[float] = deque(maxlen=WINDOW)
        self.lowest = inf  # of the medians of FEW
        self.streak = 0  # unsound steps on end

    @classmethod
    def after(cls, metrics: Iterable[Mapping[str, Any]]) -> "Guard":
        """As it was when these events had happened."""
        guard = cls()
        for event in metrics:
            if event["event"] == "StepDone":
                guard.judge(event["loss"], event["grad_norm"])
            elif event["event"] == "Skipped":
                guard.judge(nan, nan)
        return guard

    def judge(self, loss: float, grad_norm: float) -> str | None:
        """Why this step is not sound; None where it is."""
        why = None
        if not (isfinite(loss) and isfinite(grad_norm)):
            why = f"loss {loss}, gradient norm {grad_norm}"
        elif loss > (most := self.most()):
            why = f"loss {loss:.3f} above {most:.3f}"
        self.streak = self.streak + 1 if why else 0
        if not why:
            self.sound.append(loss)
            if len(self.sound) >= FEW:
                self.lowest = min(self.lowest, median(list(self.sound)[-FEW:]))
        return why

    def most(self) -> float:
        """The highest loss that is no spike."""
        if len(self.sound) < FEW:
            return max(self.sound) + EARLY if self.sound else inf
        middle = median(self.sound)
        sigma = 1.4826 * median(abs(loss - middle) for loss in self.sound)
        return min(middle + max(WIDTH * sigma, LEAST), self.lowest + RISE + WIDTH * sigma)
