"""Where the stored tokens lie: patch numbers and the recent steps, read once per compression."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .base import VideoTokens


def recent_step_count(recent_ratio: float, *, max_tokens: int, tokens_per_step: int) -> int:
    """Return r = max(1, round(recent_ratio * f)) with f = M / tokens_per_step, the number of recent steps."""
    return max(1, round(recent_ratio * max_tokens / tokens_per_step))


@dataclass(frozen=True)
class Layout:
    """Provenance of the stored tokens in the form that the scores need.

    Attributes: patches: int64 [L, H, N], row * grid_cols + col: equal exactly where row and column
        are equal. recent: bool [L, H, N], token belongs to one of the last r steps. grid: rows and
        columns of the smallest grid that holds every stored patch. most_recent: largest number of
        recent tokens that a head holds; they are a suffix of its slots. fewest_recent: smallest
        such number (equal to the largest unless the grid changed).
    """

    patches: Tensor
    recent: Tensor
    grid: tuple[int, int]
    most_recent: int
    fewest_recent: int

    @classmethod
    def of(cls, tokens: VideoTokens, recent_steps: int) -> Layout:
        """Read the layout of a store with at least one token, moving five numbers off the device at once."""
        newest = tokens.steps[..., -1].amax()
        recent = tokens.steps > newest - recent_steps
        counts = recent.sum(-1)
        numbers = [tokens.rows.amax() + 1, tokens.cols.amax() + 1, counts.amax(), counts.amin()]
        rows, cols, most, fewest = torch.stack(numbers).tolist()
        return cls(tokens.rows * cols + tokens.cols, recent, (rows, cols), most, fewest)
