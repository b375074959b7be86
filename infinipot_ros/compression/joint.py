"""Policies that decide once for all layers and heads, from one descriptor per token.

What a model knows of an event is spread over its layers. Where every head chooses alone, a token
may be gone in those that would have read it; here a token is stored everywhere or nowhere. And a
choice that is made once may compare each new token with everything that is stored.

A subclass names signals, each of which gives every token a number. This class keeps the last r
steps whole, fills up to C by score, and lets what is remembered of the tokens follow them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import torch
from torch import Tensor

from .base import CompressionPolicy, PolicyError, VideoTokens
from .layout import check_recent_steps, recent_step_count
from .parameters import check_integer, check_ratio
from .sketch import Sketch
from .topk import check_keep, mask_to_slots, top_mask

_MOST_NUMBERS = 4096  # of a descriptor: more costs memory and tells nothing more


@dataclass(frozen=True)
class Described:
    """Show a signal the stored tokens, the same in every layer and head, in stream order.

    Attributes:
        features: float32 [N, d], see `sketch.py`; not finite where a token is broken.
        norms: float32 [N], mean over heads of |v| in units of its spread.
        steps: int64 [N], non-decreasing.
        places: int64 [N], equal where row and column are.
        recent: bool [N], whether a token belongs to the last r steps.
        n_known: slots from here on hold tokens that are new.
    """

    features: Tensor
    norms: Tensor
    steps: Tensor
    places: Tensor
    recent: Tensor
    n_known: int


class Signal(ABC):
    """Give every token a number, high where it is worth keeping."""

    @abstractmethod
    def scores(self, tokens: Described) -> Tensor:
        """Return finite float32 [N]; called once a compression, for broken tokens anything."""

    def follow(self, slots: Tensor) -> None:  # noqa: B027 (a signal without memory has nothing)
        """Keep what is remembered of the tokens at `slots`, int64 [keep], in that order."""


@dataclass
class JointPolicy(CompressionPolicy):
    """Keep the recent steps, then the tokens of highest score, the same in all layers and heads.

    Attributes:
        recent_ratio: in (0, 1), the share of M whose steps are kept whole.
        value_share: beta in [0, 1], weight of the values in the descriptors.
        sketch_dim: d, numbers in a descriptor.
    """

    recent_ratio: float = 0.125
    value_share: float = 0.5
    sketch_dim: int = 64
    _sketch: Sketch | None = field(default=None, init=False, repr=False, compare=False)
    _signals: tuple[Signal, ...] = field(default=(), init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Validate the parameters."""
        check_ratio("recent_ratio", self.recent_ratio, closed=False)
        check_ratio("value_share", self.value_share, closed=True)
        check_integer("sketch_dim", self.sketch_dim, low=1, high=_MOST_NUMBERS)

    def check(self, *, max_tokens: int, target_tokens: int, tokens_per_step: int) -> None:
        """Refuse recent steps that alone exceed what a compression keeps; see the base class."""
        check_recent_steps(
            self.recent_ratio,
            max_tokens=max_tokens,
            target_tokens=target_tokens,
            tokens_per_step=tokens_per_step,
        )

    def choose(self, tokens: VideoTokens, keep: int) -> Tensor:
        """Return the surviving slots, int64 [L, H, keep]; see the base class."""
        n_layers, n_heads, n_tokens = tokens.shape
        check_keep(keep, n_tokens)
        if n_tokens == 0:
            return tokens.steps.clone()
        if self._sketch is None:
            self._sketch = Sketch(self.value_share, self.sketch_dim, n_layers * n_heads)
            self._signals = self._make_signals()
        described = self._describe(tokens, self._sketch)
        sound = described.features.isfinite().all(-1)
        scores = [s.scores(described).where(sound, -torch.inf) for s in self._signals]
        # The recent tokens are the last: of more than can stay, the newest stay.
        protected = described.recent.clone()
        protected[: n_tokens - keep] = False
        slots = mask_to_slots(self._choose(scores, protected, described.steps, keep), keep)
        return slots.expand(n_layers, n_heads, -1).contiguous()

    def settle(self, slots: Tensor) -> None:
        """Keep the descriptors and scores of what stays; see the base class."""
        if self._sketch is None:
            return
        same = slots[0, 0]
        self._sketch.follow(same)
        for signal in self._signals:
            signal.follow(same)

    def reset(self) -> None:
        """Forget the stream."""
        self._sketch, self._signals = None, ()

    @abstractmethod
    def _make_signals(self) -> tuple[Signal, ...]:
        """Return fresh signals for a stream, one or more."""

    def _choose(
        self,
        scores: list[Tensor],
        protected: Tensor,
        steps: Tensor,  # noqa: ARG002 (for policies that also count ages)
        keep: int,
    ) -> Tensor:
        """Mark `keep` tokens, the protected ones among them: bool [N].

        Args:
            scores: of each signal, float32 [N], -inf where a token is broken.
            protected: bool [N], at most `keep`.
            steps: int64 [N].
            keep: how many.
        """
        return top_mask(scores[0].masked_fill(protected, torch.inf), keep)

    def _describe(self, tokens: VideoTokens, sketch: Sketch) -> Described:
        """Read what the signals need; provenance is that of any head."""
        steps = tokens.steps[0, 0].contiguous()
        rows, cols = tokens.rows[0, 0], tokens.cols[0, 0]
        recent_steps = recent_step_count(
            self.recent_ratio, max_tokens=tokens.max_tokens, tokens_per_step=tokens.tokens_per_step
        )
        if not torch.equal(tokens.steps[-1, -1], steps):
            raise PolicyError(
                f"policy {self.name!r} keeps the same tokens in all layers and heads, but finds "
                "others in the last than in the first: give each stream its own policy"
            )
        features, norms, n_known = sketch.update(tokens)
        return Described(
            features=features,
            norms=norms,
            steps=steps,
            places=rows * (cols.amax() + 1) + cols,
            recent=steps > steps[-1] - recent_steps,
            n_known=n_known,
        )
