"""Guesses of what comes next: what followed the same ids the last time. Saxena 2023, "prompt lookup decoding"."""

N = 2  # ids that have to be the same; 3 and 4 found less (LOG.md)


class Lookup:
    """Of one answer's ids, which only grow at their end: what followed every N of them."""

    def __init__(self) -> None:
        self.after: dict[tuple[int, ...], int] = {}  # N ids -> where the latest of what followed them stands
        self.noted = N

    def guess(self, ids: list[int], most: int) -> list[int]:
        """`most` ids; none where the last N have not been there before."""
        for at in range(self.noted, len(ids)):
            self.after[tuple(ids[at - N : at])] = at
        self.noted = max(N, len(ids))
        if (found := self.after.get(tuple(ids[-N:]))) is None:
            return []
        period = len(ids) - found  # where the ids end, what was copied goes on, as in a repetition
        return [ids[found + i % period] for i in range(most)]
