"""Intervals and significance for answers of which those to one stream hang together.

Streams are drawn independently, questions of one stream are not: they are about the same few events
in the same memory. So the stream is the unit of everything here. Counts are whole numbers, right
answers out of those asked, one pair for each stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from infinipot_ros.roomworld.evaluate import wilson

RESAMPLES = 2000
_SEED = 20_250_615
_TAIL = (2.5, 97.5)

Counts = NDArray[np.int64]


class Estimate(NamedTuple):
    """A share or a difference of shares with its 95 % interval."""

    value: float
    low: float
    high: float


@lru_cache(maxsize=64)
def _resamples(strata: tuple[int, ...]) -> NDArray[np.float64]:
    """Return how often each stream is drawn, [RESAMPLES, streams].

    Streams are drawn with replacement within their stratum, since the regimes are given and not
    drawn. `strata` holds the number of streams of each, which lie next to each other.
    """
    rng = np.random.default_rng((_SEED, *strata))
    parts = [rng.multinomial(n, np.full(n, 1.0 / n), size=RESAMPLES) for n in strata]
    return np.concatenate(parts, axis=1).astype(np.float64)


def share(right: Counts, asked: Counts, strata: Sequence[int], repeats: int = 1) -> Estimate:
    """Return right answers over questions with a bootstrap interval over streams.

    Where every answer is right, or none is, resampling shows no spread; then the interval is
    Wilson's over questions, a lower bound of the true width.

    Args:
        right: right answers of each stream.
        asked: questions of each stream.
        strata: streams of each stratum, which lie next to each other.
        repeats: how often each question was asked, at several delays; repeats are no evidence.

    Raises:
        ValueError: nothing was asked.
    """
    total, of = int(right.sum()), int(asked.sum())
    if total in (0, of):
        return Estimate(*wilson(total // repeats, of // repeats))
    low, high = _percentiles(right, asked, strata)
    return Estimate(total / of, low, high)


def difference(ours: Counts, theirs: Counts, asked: Counts, strata: Sequence[int]) -> Estimate:
    """Return the paired difference of two shares with a bootstrap interval over streams.

    Args:
        ours: right answers of each stream by the one, to the same questions as
        theirs: by the other.
        asked: questions of each stream.
        strata: as in `share`.
    """
    gained = ours - theirs
    low, high = _percentiles(gained, asked, strata)
    return Estimate(int(gained.sum()) / int(asked.sum()), low, high)


def _percentiles(parts: Counts, asked: Counts, strata: Sequence[int]) -> tuple[float, float]:
    drawn = _resamples(tuple(strata))
    of = drawn @ asked
    shares = (drawn @ parts)[of > 0] / of[of > 0]
    low, high = np.percentile(shares, _TAIL)
    return float(low), float(high)


def sign_flip_p(differences: Sequence[int] | Counts) -> float:
    """Return the two-sided p value of the paired sign-flip permutation test, exactly.

    Where two policies are alike, the difference of each stream is as likely to have the other sign.
    Of all 2**n ways to choose the signs, p is the share whose sum is as far from zero as the one
    that was seen. Sums of whole numbers take few values, so their distribution follows by adding
    one stream at a time: no way is left out, however many streams there are.

    Args:
        differences: right answers of the one less those of the other, of each stream.
    """
    sizes = [abs(int(d)) for d in differences if d]
    reach = sum(sizes)
    chances = np.zeros(2 * reach + 1)
    chances[reach] = 1.0
    for size in sizes:
        up, down = np.zeros_like(chances), np.zeros_like(chances)
        up[size:] = chances[:-size]
        down[:-size] = chances[size:]
        chances = (up + down) / 2
    seen = abs(int(sum(int(d) for d in differences)))
    far = np.abs(np.arange(-reach, reach + 1)) >= seen
    return min(1.0, float(chances[far].sum()))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p values adjusted for their number by Holm's step-down method (S. Holm, 1979)."""
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    adjusted = [1.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted
