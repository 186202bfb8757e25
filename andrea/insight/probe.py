"""Linear probes: what can be read off a state of the stream by a linear map, and whether that says anything of the model.

A probe can learn by heart which label each word has. So each is asked twice, the second time with labels drawn at random for each
type of word (a control task, Hewitt & Liang 2019, arXiv:1909.03368): what it reads beyond that is selectivity. And the same probes of an
untrained model tell what random features have anyway (Zhang & Bowman 2018, arXiv:1809.10040).
"""

import math
from collections.abc import Sequence
from itertools import permutations
from typing import NamedTuple

import torch
from torch import Tensor

L2 = (1e-3, 1e-2, 1e-1, 1.0, 10.0)  # of the mean square of a feature; chosen on dev


class Examples(NamedTuple):
    """What probes are learned from and measured on: n words."""

    states: Tensor  # (S, n, D): the same words at every station
    labels: Tensor  # (n,) int64
    types: Tensor  # (n,) int64: equal words have equal numbers
    units: Tensor  # (n,) int64: the document of each; the split is by it


class Read(NamedTuple):
    """Of one station, on test words: shares of labels that are right. `majority` is what always the commonest label has."""

    accuracy: float
    control: float
    majority: float

    @property
    def selectivity(self) -> float:
        return self.accuracy - self.control


def parts(examples: Examples, by_type: bool, seed: int) -> list[Tensor]:
    """Indices of train, dev and test: 60, 20 and 20 % of the documents; with `by_type` of the types as well, so that no word of the test
    has been seen."""
    of_unit = fold(examples.units, seed)
    if not by_type:
        return [(of_unit == part).nonzero()[:, 0] for part in range(3)]
    of_type = fold(examples.types, seed + 1)
    return [((of_unit == part) & (of_type == part)).nonzero()[:, 0] for part in range(3)]


def fold(values: Tensor, seed: int) -> Tensor:
    """0, 1 or 2 for each, the same for equal values, in the shares 60, 20, 20 of the distinct ones."""
    _, place = values.unique(return_inverse=True)
    n = int(place.max()) + 1
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    cut = torch.zeros(n, dtype=torch.long)
    cut[order[math.ceil(0.6 * n) :]] = 1
    cut[order[math.ceil(0.8 * n) :]] = 2
    return cut[place]


def probe(examples: Examples, by_type: bool = False, seed: int = 0) -> list[Read]:
    """Each station's reading. Raises ValueError where a part of the split has no words, or all of training's have one label."""
    train, dev, test = parts(examples, by_type, seed)
    if not min(len(train), len(dev), len(test)) or len(examples.labels[train].unique()) < 2:
        raise ValueError(
            f"{len(examples.labels)} words of {len(examples.units.unique())} documents are too few to split into train, dev and test "
            "with two labels in train; give more"
        )
    control = at_random(examples, seed)
    majority = (examples.labels[test] == examples.labels[train].mode().values).double().mean().item()
    found = []
    for state in examples.states:
        accuracy, by_chance = (best(state, labels, train, dev, test) for labels in (examples.labels, control))
        found.append(Read(accuracy, by_chance, majority))
    return found


def at_random(examples: Examples, seed: int) -> Tensor:
    """For each type of word a label, drawn as often as it occurs; (n,)."""
    _, place = examples.types.unique(return_inverse=True)
    drawn = torch.randint(len(examples.labels), (int(place.max()) + 1,), generator=torch.Generator().manual_seed(seed))
    return examples.labels[drawn][place]


def best(x: Tensor, labels: Tensor, train: Tensor, dev: Tensor, test: Tensor) -> float:
    """The share of test labels that ridge regression on one-hot labels has right, its L2 the best of dev's."""
    x = x.double()
    mean = x[train].mean(0)
    spread = x[train].std(0).clamp_min(1e-6)
    x = (x - mean) / spread
    one_hot = torch.nn.functional.one_hot(labels, int(labels.max()) + 1).double()
    middle = one_hot[train].mean(0)
    gram, cross = x[train].T @ x[train] / len(train), x[train].T @ (one_hot[train] - middle) / len(train)
    maps = [torch.linalg.solve(gram + l2 * torch.eye(len(gram), dtype=gram.dtype), cross) for l2 in L2]
    right = lambda w, part: ((x[part] @ w + middle).argmax(1) == labels[part]).double().mean().item()
    return right(max(maps, key=lambda w: right(w, dev)), test)


def centre(scores: Sequence[float], least: float = 0.02) -> float | None:
    """The depth at which what can be read is gained, by mass: sum of k (M_k - M_(k-1)) over sum of (M_k - M_(k-1)), k = 0, 1, ..., "
    "where M_k
    is the best of the scores up to k, and M_(-1) = 0. None where the best is below `least`.

    After Tenney et al. 2019, arXiv:1905.05950, who take scalar mixes of the layers up to k, and leave out what the embedding has.
    """
    reached, mass = 0.0, 0.0
    for k, score in enumerate(scores):
        mass += k * max(0.0, score - reached)
        reached = max(reached, score)
    return mass / reached if reached >= least else None


def page(rows: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Page's L, and its p: the chance of as large an L where every row's order is as likely as any other. Exact. Page 1963.

    Each row has the values of k treatments in the order of the alternative, smallest first; equal ones share their ranks. Raises ValueError
    for rows that are of different length, or more than 6 long.
    """
    k = len(rows[0]) if rows else 0
    if not 2 <= k <= 6 or any(len(row) != k for row in rows):
        raise ValueError(f"Page's test takes rows of one length, 2 to 6; given {[len(row) for row in rows]}")
    orders = [ranks(row) for row in rows]
    found = sum(map(weigh, orders))
    return found, chance(found, orders)


def chance(least: float, orders: Sequence[Sequence[float]]) -> float:
    """The chance of an L of `least` or more, if each row's ranks come in any order alike."""
    chances = {0.0: 1.0}
    for order in orders:
        each, after = [weigh(other) for other in permutations(order)], dict[float, float]()
        for total, p in chances.items():
            for value in each:
                after[total + value] = after.get(total + value, 0.0) + p / len(each)
        chances = after
    return sum(p for total, p in chances.items() if total >= least - 1e-9)


def weigh(order: Sequence[float]) -> float:
    return sum(place * rank for place, rank in enumerate(order, 1))


def ranks(values: Sequence[float]) -> list[float]:
    """1 for the smallest; equal values share the mean of theirs."""
    return [sum(other < value for other in values) + (sum(other == value for other in values) + 1) / 2 for value in values]
