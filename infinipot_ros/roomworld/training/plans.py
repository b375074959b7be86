"""What one batch is drawn from."""

from __future__ import annotations

from typing import NamedTuple

from infinipot_ros.roomworld.training.architecture import TOKENS_PER_STEP

BRANCH_LENGTH = 18
"""Tokens of the longest question with its answer."""


class BatchPlan(NamedTuple):
    """What one batch is drawn from; together with the pool it decides the batch entirely."""

    seed: tuple[int, ...]
    n_streams: int
    n_steps: int
    n_questions: int
    kind_weights: tuple[float, ...]
    gap_share: float
    max_position_span: int
    evicted_share: float
    thinned: float
    """Share of the video tokens that a stream is thinned to, 1 keeps all. The missing ones weigh on
    in the attention to those that are left; tokens that show an object all stay."""
    longest: int
    """Steps up to which a stream is made to look longer by such weights."""
    training: bool
    """False: the default system prompt, every question with its mark,
    asked at the stream's end, on streams as they are."""

    @property
    def n_tokens(self) -> int:
        """Return the number of video tokens of a stream."""
        return max(1, round(self.thinned * self.n_steps * TOKENS_PER_STEP))
