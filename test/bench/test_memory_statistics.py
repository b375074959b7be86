"""Intervals and p values against what can be worked out by hand or by trying everything."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from infinipot_ros.bench.memory.statistics import difference, holm, share, sign_flip_p
from infinipot_ros.roomworld.evaluate import wilson


def counts(*numbers):
    return np.array(numbers, dtype=np.int64)


@pytest.mark.parametrize(
    "differences, p",
    [
        ([1, 1, 1], 2 / 8),  # only +++ and --- sum to 3
        ([2, -1], 1.0),  # every choice of signs sums to 1 or more
        ([3, 1, 0], 2 / 4),  # a stream without a difference says nothing
        ([5, 1, -1], 6 / 8),  # all but +5 -1 -1 and its mirror, which sum to 3
        ([0, 0], 1.0),
        ([], 1.0),
    ],
)
def test_sign_flips_by_hand(differences, p):
    assert sign_flip_p(differences) == pytest.approx(p)


def test_sign_flips_equal_trying_every_choice():
    rng = np.random.default_rng(0)
    for _ in range(20):
        found = rng.integers(-4, 5, size=9)
        flips = np.array(list(product((1, -1), repeat=9))) @ found
        assert sign_flip_p(found) == pytest.approx(np.mean(np.abs(flips) >= abs(found.sum())))


def test_many_streams_give_a_small_p_at_once():
    assert sign_flip_p([1] * 60) == pytest.approx(2 / 2**60)


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == pytest.approx([1.0, 1.0])
    assert holm([]) == []


def test_streams_that_agree_leave_no_doubt_about_streams():
    estimate = share(counts(3, 3, 3), counts(4, 4, 4), (3,))
    assert estimate == (0.75, 0.75, 0.75)


def test_two_streams_that_contradict_leave_every_doubt():
    assert share(counts(0, 10), counts(10, 10), (2,)) == (0.5, 0.0, 1.0)


def test_every_stratum_is_always_there():
    """Two regimes, in each of which all streams agree: nothing is left to chance."""
    right, asked = counts(0, 0, 10, 10), counts(10, 10, 10, 10)
    assert share(right, asked, (2, 2)) == (0.5, 0.5, 0.5)
    assert share(right, asked, (4,)).low < 0.2


def test_the_interval_is_wider_when_questions_of_a_stream_hang_together():
    rng = np.random.default_rng(1)
    asked = np.full(100, 20)
    apart = share(rng.binomial(20, 0.5, size=100), asked, (100,))
    together = share(20 * rng.binomial(1, 0.5, size=100), asked, (100,))
    width = apart.high - apart.low
    assert width == pytest.approx(2 * 1.96 * (0.25 / 2000) ** 0.5, rel=0.2)
    assert together.high - together.low == pytest.approx(width * 20**0.5, rel=0.25)


def test_where_all_is_right_the_interval_is_that_of_the_questions():
    assert share(counts(5, 5), counts(5, 5), (2,)) == tuple(wilson(10, 10))
    assert share(counts(0, 0), counts(5, 5), (2,)) == tuple(wilson(0, 10))
    assert share(counts(5, 5), counts(5, 5), (2,), repeats=2) == tuple(wilson(5, 5))


def test_a_difference_is_paired():
    """Streams differ a lot, policies always by one answer."""
    ours, theirs = counts(1, 5, 9), counts(0, 4, 8)
    assert difference(ours, theirs, counts(10, 10, 10), (3,)) == pytest.approx((0.1, 0.1, 0.1))


def test_the_same_counts_give_the_same_interval():
    right, asked = counts(1, 4, 2, 7), counts(8, 8, 8, 8)
    assert share(right, asked, (4,)) == share(right.copy(), asked.copy(), (4,))
