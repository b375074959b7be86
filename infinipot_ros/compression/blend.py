"""Several signals at once: by their mean rank (`blend`) or by a share of the room each (`quota`).

Signals have different scales. So `blend` adds up ranks:

    s(x) = sum over signals of weight * number of tokens that the signal puts below x.

`quota` gives each signal a share of the room beside the recent steps and lets one after the other
fill it up with its best of what is not chosen yet: each has its say, whatever the others say.

Two of the signals have no policy of their own. `value` is |v|, in units of the spread of its head,
averaged over heads. `change` is TaR with descriptors: with R_p the recent tokens at the patch of x,

    s(x) = mean over y in R_p of |f_x - f_y|^2.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from .base import PolicyError
from .coreset import Coverage
from .joint import Described, JointPolicy, Signal
from .leverage import Rareness
from .novelty import MOST_BUCKETS, FirstSight, best_of_each_age
from .parameters import MOST, check_integer, check_ratio
from .similarity import blocks, on_grid, ranks
from .topk import top_mask

SIGNALS = ("cover", "change", "rare", "novel", "value")
"""Fields that weigh a signal, in the order in which `quota` fills up."""

_UNLIKE = 1e6  # score of a token at whose patch nothing recent is stored


class Change(Signal):
    """Unlike the present view of the same patch, as above."""

    def scores(self, tokens: Described) -> Tensor:
        """Return the mean squared distance from the recent tokens of the patch, float32 [N]."""
        f = tokens.features
        sound = f.isfinite().all(-1)
        f = f.where(sound.unsqueeze(-1), 0.0)
        squares = f.square().sum(-1, keepdim=True)
        recent = tokens.recent & sound
        places, present = tokens.places[recent], torch.cat([f[recent], squares[recent]], 1)
        scores = torch.empty_like(squares.squeeze(1))
        for part in blocks(len(scores), len(places), places.device):
            # A product with zeros and ones sums in the same order every time, a scatter does not.
            same = (tokens.places[part].unsqueeze(1) == places).float()
            count = same.sum(1, keepdim=True)
            mean = same @ present / count.clamp_min(1)
            distance = squares[part, 0] - 2 * (f[part] * mean[:, :-1]).sum(1) + mean[:, -1]
            found = on_grid(distance.clamp_min(0.0)).where(count.squeeze(1) > 0, _UNLIKE)
            scores[part] = found
        return scores


class ValueNorm(Signal):
    """How much can a token contribute to an answer?"""

    def scores(self, tokens: Described) -> Tensor:
        """Return the mean over heads of |v| in units of its spread, float32 [N]."""
        return on_grid(tokens.norms.where(tokens.norms.isfinite(), 0.0))


@dataclass
class Mixture(JointPolicy):
    """Hold what `blend` and `quota` have in common: a weight in [0, 1] for each signal.

    Attributes:
        cover: first or last of its kind (`coreset`).
        change: unlike the present view of its patch.
        rare: far from how the stream usually varies (`leverage`).
        novel: new when it was first seen (`novelty`).
        value: large value norm.
        gap: steps, at least 1, of `cover` and `novel`.
    """

    cover: float = 0.0
    change: float = 0.0
    rare: float = 0.0
    novel: float = 0.0
    value: float = 0.0
    gap: int = 1
    _weights: dict[str, float] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Validate the parameters."""
        super().__post_init__()
        for name in SIGNALS:
            check_ratio(name, getattr(self, name), closed=True)
        check_integer("gap", self.gap, low=1, high=MOST)
        self._weights = {name: getattr(self, name) for name in SIGNALS if getattr(self, name)}
        if not self._weights:
            named = ", ".join(SIGNALS)
            raise PolicyError(f"{self.name} has no signal: choose at least one above 0 of {named}")

    def _make_signals(self) -> tuple[Signal, ...]:
        signals: dict[str, Signal] = {
            "cover": Coverage(self.gap),
            "change": Change(),
            "rare": Rareness(),
            "novel": FirstSight(self.gap),
            "value": ValueNorm(),
        }
        return tuple(signals[name] for name in self._weights)


@dataclass
class Blend(Mixture):
    """Keep the recent steps, then the tokens of highest weighted mean rank; see `Mixture`."""

    name: ClassVar[str] = "blend"
    cover: float = 1.0
    change: float = 1.0

    def _choose(
        self,
        scores: list[Tensor],
        protected: Tensor,
        steps: Tensor,  # noqa: ARG002
        keep: int,
    ) -> Tensor:
        """Mark by weighted ranks; see the base class."""
        total = torch.zeros_like(scores[0], dtype=torch.float64)
        for weight, score in zip(self._weights.values(), scores, strict=True):
            total += weight * ranks(score)
        total = total.where(scores[0] > -torch.inf, -torch.inf)
        return top_mask(total.masked_fill(protected, torch.inf), keep)


@dataclass
class Quota(Mixture):
    """Share the room beside the recent steps between signals, one after the other.

    Attributes:
        buckets: age buckets that divide the share of `novel` evenly; 0 for none.
    """

    name: ClassVar[str] = "quota"
    cover: float = 0.4
    change: float = 0.3
    novel: float = 0.2
    value: float = 0.1
    buckets: int = 4

    def __post_init__(self) -> None:
        """Validate the parameters."""
        super().__post_init__()
        check_integer("buckets", self.buckets, low=0, high=MOST_BUCKETS)
        total = sum(self._weights.values())
        if total > 1 + 1e-6:
            raise PolicyError(
                f"the shares of quota add up to {total:.3g}: choose {', '.join(SIGNALS)} "
                "with a sum of 1 or less"
            )

    def _choose(self, scores: list[Tensor], protected: Tensor, steps: Tensor, keep: int) -> Tensor:
        """Mark by shares; what they leave goes to the first signal; see the base class."""
        filled = int(protected.sum())
        room, chosen = keep - filled, protected
        for (name, weight), score in zip(self._weights.items(), scores, strict=True):
            share = int(room * weight)
            filled += share
            if name == "novel" and self.buckets:
                each = share // self.buckets
                chosen = best_of_each_age(score, chosen, steps, self.buckets, each)
            if share:
                chosen = top_mask(score.masked_fill(chosen, torch.inf), filled)
        return top_mask(scores[0].masked_fill(chosen, torch.inf), keep)
