"""Guesses of what comes next: what followed the same ids the last time. Saxena 2023, "prompt lookup decoding"."""

from collections.abc import Sequence

N = 3  # ids that have to be the same


class Lookup:
    """Of one answer's ids, which only grow at their end: what followed every N of them."""

    def __init__(self) -> None:
        self.after: dict[tuple[int, ...], int] = {}  # N ids -> where the latest of what followed them stands
        self.noted = N

    def guess(self, ids: Sequence[int], most: int) -> Sequence[int]:
        """At most `most` ids; none where the last N have not been there before."""
        for at in range(self.noted, len(ids)):
            self.after[tuple(ids[at - N : at])] = at
        self.noted = max(N, len(ids))
        found = self.after.get(tuple(ids[-N:]), len(ids))
        return ids[found : found + max(0, most)]
