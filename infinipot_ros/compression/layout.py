"""Where the stored tokens lie: patch numbers and recent steps, read once per compression."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .base import VideoTokens


def recent_step_count(recent_ratio: float, *, max_tokens: int, tokens_per_step: int) -> int:
    """Return r = max(1, round(recent_ratio * f)), the number of recent steps, f = M / step size."""
    return max(1, round(recent_ratio * max_tokens / tokens_per_step))


@dataclass(frozen=True)
class Layout:
    """Hold the provenance of the stored tokens in the form that the scores need.

    Attributes:
        patches: int64 [L, H, N], row * grid columns + column: equal where row and column are.
        recent: bool [L, H, N], whether the token belongs to the last r steps of the stream.
        grid: (rows, columns) of the smallest grid that holds every stored patch.
        most_recent: recent tokens in the head that has most; they are the last of its slots.
        fewest_recent: recent tokens in the head that has fewest.
    """

    patches: Tensor
    recent: Tensor
    grid: tuple[int, int]
    most_recent: int
    fewest_recent: int

    @classmethod
    def of(cls, tokens: VideoTokens, recent_steps: int) -> Layout:
        """Read the layout of at least one token; four numbers leave the device, in one transfer."""
        newest = tokens.steps[..., -1].amax()
        recent = tokens.steps > newest - recent_steps
        counts = recent.sum(-1)
        numbers = (tokens.rows.amax() + 1, tokens.cols.amax() + 1, counts.amax(), counts.amin())
        rows, cols, most, fewest = torch.stack(numbers).tolist()
        return cls(tokens.rows * cols + tokens.cols, recent, (rows, cols), most, fewest)
