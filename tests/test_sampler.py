from collections import Counter

import numpy as np
import pytest

from andrea.data.sampler import Sampler, permute
from andrea.data.shards import ShardWriter, Tokens


@pytest.fixture
def counting(tmp_path):
    """n tokens that are their own positions, over several shards."""

    def make(n: int) -> Tokens:
        with ShardWriter(tmp_path, f"n{n}", max(n, 1), shard_tokens=1_000) as writer:
            writer.write(np.arange(n))
        return Tokens(sorted(tmp_path.glob(f"n{n}-*.tok")))

    return make


@pytest.mark.parametrize(("n", "context"), [(17, 16), (18, 16), (33, 16), (123, 6), (1_500, 1_024), (2_003, 7), (4_097, 1), (9_999, 42)])
def test_an_epoch_is_every_disjoint_window_once(counting, n, context):
    sampler = Sampler(counting(n), context, seed=3)
    W = sampler.windows_per_epoch
    for epoch in (0, 1, 5):
        starts = np.sort(sampler.starts(epoch * W, W))
        offset = starts[0]
        assert (starts == offset + np.arange(W) * context).all()
        assert 0 <= offset <= sampler.left_out == n - 1 - W * context
        assert starts[-1] + context + 1 <= n


def test_rows_are_windows_of_consecutive_tokens(counting):
    sampler = Sampler(counting(2_003), 42, seed=1)
    batch = sampler.batch(40, 123)
    assert batch.shape == (123, 43) and batch.dtype == np.int64
    assert (np.diff(batch) == 1).all() and (batch[:, 0] == sampler.starts(40, 123)).all()


def test_a_batch_depends_only_on_seed_and_position(counting):
    tokens = counting(2_003)
    whole = Sampler(tokens, 6, seed=7).batch(0, 1_000)  # about three epochs
    resumed = Sampler(tokens, 6, seed=7)
    for position, rows in ((990, 10), (0, 1), (331, 5), (42, 123)):
        assert (resumed.batch(position, rows) == whole[position : position + rows]).all()
    assert (Sampler(tokens, 6, seed=8).batch(0, 1_000) != whole).any(axis=1).mean() > 0.9


def test_epochs_differ_in_order_and_offset(counting):
    sampler = Sampler(counting(2_003), 42, seed=0)
    W = sampler.windows_per_epoch
    epochs = sampler.starts(0, 60 * W).reshape(60, W)
    assert len({tuple(epoch // 42) for epoch in epochs}) == 60
    assert len({int(epoch.min()) for epoch in epochs}) > 25
    assert len(set(Counter(np.diff(epochs[0]).tolist()))) > W // 3


def test_every_offset_is_drawn(counting):
    sampler = Sampler(counting(29), 10, seed=0)  # one window, start 0 to 18
    assert sampler.left_out == 18
    drawn = Counter(sampler.starts(0, 19 * 200).tolist())
    assert drawn.keys() == set(range(19)) and 140 < min(drawn.values()) <= max(drawn.values()) < 260  # 200 +- 4.3 standard deviations


def test_as_many_tokens_as_the_context_are_refused_by_number(counting):
    with pytest.raises(ValueError, match=r"16 tokens do not fill one window of context \+ 1 = 17"):
        Sampler(counting(16), 16, seed=0)
    with pytest.raises(ValueError, match=r"500 tokens .* = 1025"):
        Sampler(counting(500), 1_024, seed=0)


def test_one_window_more_than_the_context_is_one_start_and_two_more_are_two(counting):
    assert set(Sampler(counting(17), 16, seed=0).starts(0, 100).tolist()) == {0}
    assert set(Sampler(counting(18), 16, seed=0).starts(0, 100).tolist()) == {0, 1}


def test_what_an_epoch_leaves_out_is_told(counting):
    sampler = Sampler(counting(1_500), 1_024, seed=0)
    assert sampler.windows_per_epoch == 1 and sampler.left_out == 1_500 - 1_025


def test_a_position_before_the_start_and_no_rows_are_refused(counting):
    sampler = Sampler(counting(17), 16, seed=0)
    for position, rows in ((-1, 1), (0, 0)):
        with pytest.raises(ValueError, match="a batch begins at 0 or later"):
            sampler.batch(position, rows)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 16, 17, 97, 256, 1_009, 4_095, 65_537])
def test_the_keyed_order_is_a_permutation(count):
    index = np.arange(count, dtype=np.uint64)
    for key in (0, 1, 2**64 - 1):
        assert sorted(permute(index, np.full(count, key, np.uint64), count).tolist()) == list(range(count))


def test_every_place_of_the_order_is_equally_likely_for_every_window():
    count, keys = 5, np.arange(20_000, dtype=np.uint64)
    seen = np.array([np.bincount(permute(np.full_like(keys, i), keys, count).astype(int), minlength=count) for i in range(count)])
    assert abs(seen - 4_000).max() < 260  # 4.6 standard deviations of a fair draw, 56.6


def test_huge_positions_and_seeds_are_only_numbers(counting):
    sampler = Sampler(counting(123), 6, seed=2**63 - 1)
    assert sampler.batch(2**60, 3).shape == (3, 7)
