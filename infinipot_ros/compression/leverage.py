"""Leverage: how far is a token from the directions in which the stream usually varies?

With m and S the mean and covariance of the descriptors f (see `sketch.py`) of all tokens ever seen,

    s(x) = (f - m)' (S + lam I)^-1 (f - m) / d,      lam = ridge * tr(S) / d.

What is common scores about 1, however large its variation is; what is rare scores high, wherever in
the picture and whatever is in view at present. Scores are taken anew from S at each compression, S
itself never forgets, and nothing is remembered of single tokens: d * d sums, however long the
stream. A broken token counts as one of zeros.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from .base import PolicyError
from .joint import Described, JointPolicy, Signal
from .similarity import on_grid

_TINY = 1e-6  # keeps the factor of a picture defined in which nothing varies
_RIDGE = 0.1


class Rareness(Signal):
    """Leverage, as above."""

    def __init__(self, ridge: float = _RIDGE) -> None:
        self._ridge = ridge
        self._count = 0
        self._total: Tensor | float = 0.0
        self._squares: Tensor | float = 0.0

    def scores(self, tokens: Described) -> Tensor:
        """Return leverage, float32 [N]."""
        # Doubles: a difference of sums over months of stream must stay a covariance.
        f = tokens.features.double()
        f = f.where(f.isfinite().all(-1, keepdim=True), 0.0)
        new = f[tokens.n_known :]
        self._count += new.shape[0]
        self._total = self._total + new.sum(0)
        self._squares = self._squares + new.mT @ new
        mean = self._total / self._count
        covariance = self._squares / self._count - torch.outer(mean, mean)
        diagonal = covariance.diagonal()
        loading = self._ridge * diagonal.mean().clamp_min(0.0) + _TINY
        factor = torch.linalg.cholesky_ex(
            covariance + torch.diag_embed(loading.expand_as(diagonal))
        )
        whitened = torch.linalg.solve_triangular(factor.L, (f - mean).mT, upper=False)
        scores = on_grid(whitened.square().mean(0).float())
        return scores.where(scores.isfinite(), 0.0)


@dataclass
class Leverage(JointPolicy):
    """Keep the recent steps, then what is rare by the second moments of the stream.

    Attributes:
        ridge: above 0, lam in units of the mean variance of a number of the descriptor.
    """

    name: ClassVar[str] = "leverage"
    ridge: float = _RIDGE

    def __post_init__(self) -> None:
        """Validate the parameters."""
        super().__post_init__()
        number = isinstance(self.ridge, (int, float)) and not isinstance(self.ridge, bool)
        if not number or not 0 < self.ridge <= sys.float_info.max:
            raise PolicyError(f"ridge={self.ridge!r} is refused: choose a finite number above 0")

    def _make_signals(self) -> tuple[Signal, ...]:
        return (Rareness(self.ridge),)
