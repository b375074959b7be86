"""Novelty: how new was a token when it was first seen? Scored once, remembered for life.

With f the descriptors of `sketch.py`, of a token x of step t,

    s(x) = min over stored y of steps <= t - gap of |f_x - f_y|^2,

at the first compression that x takes part in. Compared is the whole memory, not the same patch: a
room that is visited again is not new, an object that turns up in a known place is. Tokens so early
that nothing is older are compared with what is newer: to have been first is no merit of its own.

`gap` lets an event count as new for that many steps, so that of an object more than its first look,
which may have caught half of it, is new.

Scores for life let those who came early stay for ever. `buckets` shares a part of the room evenly
among ages of 1, 2, 4, ... steps, so that neither an early nor a restless hour takes it all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from .joint import Described, JointPolicy, Signal
from .parameters import MOST, check_integer, check_ratio
from .similarity import ALONE, nearest, on_grid
from .topk import top_mask

MOST_BUCKETS = 32
"""The last of so many holds what is older than 2**31 steps, and that is nothing."""


class FirstSight(Signal):
    """Frozen novelty, as above."""

    def __init__(self, gap: int) -> None:
        self._gap = gap
        self._known: Tensor | None = None

    def scores(self, tokens: Described) -> Tensor:
        """Return novelty, float32 [N]."""
        older, newer = nearest(tokens.features, tokens.steps, tokens.n_known, self._gap)
        fresh = on_grid(older.where(older.isfinite(), newer[tokens.n_known :]))
        fresh = fresh.where(fresh.isfinite(), ALONE)
        self._known = fresh if self._known is None else torch.cat([self._known, fresh])
        return self._known

    def follow(self, slots: Tensor) -> None:
        """See the base class."""
        if self._known is not None:
            self._known = self._known[slots]


@dataclass
class Novelty(JointPolicy):
    """Keep the recent steps, then what was newest when it was first seen.

    Attributes:
        gap: steps, at least 1; a token is compared with what is at least so much older.
        buckets: age buckets that share `bucket_share` of the room evenly; 0 for none.
        bucket_share: in [0, 1], of the room beside the recent steps.
    """

    name: ClassVar[str] = "novelty"
    gap: int = 1
    buckets: int = 0
    bucket_share: float = 0.5

    def __post_init__(self) -> None:
        """Validate the parameters."""
        super().__post_init__()
        check_integer("gap", self.gap, low=1, high=MOST)
        check_integer("buckets", self.buckets, low=0, high=MOST_BUCKETS)
        check_ratio("bucket_share", self.bucket_share, closed=True)

    def _make_signals(self) -> tuple[Signal, ...]:
        return (FirstSight(self.gap),)

    def _choose(self, scores: list[Tensor], protected: Tensor, steps: Tensor, keep: int) -> Tensor:
        """Mark the best of each age first, then the best of all; see the base class."""
        chosen = protected
        if self.buckets:
            room = keep - int(protected.sum())
            each = int(room * self.bucket_share / self.buckets)
            chosen = best_of_each_age(scores[0], protected, steps, self.buckets, each)
        return top_mask(scores[0].masked_fill(chosen, torch.inf), keep)


def best_of_each_age(
    scores: Tensor, chosen: Tensor, steps: Tensor, buckets: int, each: int
) -> Tensor:
    """Mark what is chosen already and the best others of each age: bool [N].

    Bucket b holds ages 2**b .. 2**(b + 1) - 1 in steps, the newest step being of age 1, and the
    last bucket all that are older.

    Args:
        scores: [N], without NaN; -inf where a token is broken, which is never marked.
        chosen: bool [N].
        steps: int64 [N].
        buckets: how many, at least 1.
        each: tokens marked in each bucket, fewer where it has fewer.
    """
    age = steps[-1] - steps + 1
    for bucket in range(buckets if each else 0):
        inside = (age >= 1 << bucket) & ~chosen & (scores > -torch.inf)
        if bucket < buckets - 1:
            inside &= age < 2 << bucket
        best = top_mask(scores.where(inside, -torch.inf), min(each, scores.shape[-1]))
        chosen = chosen | (best & inside)
    return chosen
