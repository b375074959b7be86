"""Coverage: a token can go when something like it is stored that is older, and something newer.

With f the descriptors of `sketch.py`, older(x) the least |f_x - f_y|^2 over what was stored and at
least `gap` steps older when x was first seen, and newer(x) the least over everything that has come
since, at least `gap` steps newer,

    s(x) = max(older(x), newer(x)).

Of a view that is seen time and again the first and the last sighting are covered from one side only
and stay; those in the middle go. Exact k-centre or pairwise dropping would compare all with all at
each compression. Here new tokens are compared with what is stored, once: the least distance of each
row is older(x) of a new token, that of each column lowers newer(x) of a stored one.

The first of a view never loses its place: nothing older will ever come. So it does not matter that
newer(x) may have been set by a token that has been evicted since. Where nothing is older, or
nothing newer, the other side decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from .joint import Described, JointPolicy, Signal
from .parameters import MOST, check_integer
from .similarity import ALONE, nearest, on_grid


class Coverage(Signal):
    """Covered from both sides, as above."""

    def __init__(self, gap: int) -> None:
        self._gap = gap
        self._older: Tensor | None = None
        self._newer: Tensor | None = None

    def scores(self, tokens: Described) -> Tensor:
        """Return max(older, newer), float32 [N]."""
        older, newer = nearest(tokens.features, tokens.steps, tokens.n_known, self._gap)
        older, newer = on_grid(older), on_grid(newer)
        if self._older is not None and self._newer is not None:
            older = torch.cat([self._older, older])
            newer[: tokens.n_known] = newer[: tokens.n_known].minimum(self._newer)
        self._older, self._newer = older, newer
        # Where one side has nothing yet, the other decides.
        before, after = older.where(older.isfinite(), newer), newer.where(newer.isfinite(), older)
        scores = before.maximum(after)
        return scores.where(scores.isfinite(), ALONE)

    def follow(self, slots: Tensor) -> None:
        """See the base class."""
        if self._older is not None and self._newer is not None:
            self._older, self._newer = self._older[slots], self._newer[slots]


@dataclass
class Coreset(JointPolicy):
    """Keep the recent steps, then what nothing else stands for, first and last sightings.

    Attributes:
        gap: steps, at least 1; tokens closer in time are not compared.
    """

    name: ClassVar[str] = "coreset"
    gap: int = 1

    def __post_init__(self) -> None:
        """Validate the parameters."""
        super().__post_init__()
        check_integer("gap", self.gap, low=1, high=MOST)

    def _make_signals(self) -> tuple[Signal, ...]:
        return (Coverage(self.gap),)
