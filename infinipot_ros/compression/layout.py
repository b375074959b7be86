"""Where the stored tokens lie: patch numbers and recent steps, read once per compression."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .base import PolicyError, VideoTokens


def recent_step_count(recent_ratio: float, *, max_tokens: int, tokens_per_step: int) -> int:
    """Return r = max(1, round(recent_ratio * f)), the number of recent steps, f = M / step size."""
    return max(1, round(recent_ratio * max_tokens / tokens_per_step))


def check_recent_steps(
    recent_ratio: float, *, max_tokens: int, target_tokens: int, tokens_per_step: int
) -> None:
    """Refuse recent steps that alone exceed what a compression keeps.

    Raises:
        PolicyError: naming the clashing numbers and the remedy.
    """
    steps = recent_step_count(recent_ratio, max_tokens=max_tokens, tokens_per_step=tokens_per_step)
    if steps * tokens_per_step <= target_tokens:
        return
    clash = (
        f"recent_ratio={recent_ratio} keeps {steps} recent steps of {tokens_per_step} "
        f"tokens whole, {steps * tokens_per_step} tokens, but a compression leaves only "
        f"{target_tokens} of max_tokens={max_tokens}"
    )
    most = target_tokens // tokens_per_step
    if most == 0:
        raise PolicyError(f"{clash}: raise max_tokens or lower the resolution of the frames")
    ratio = most * tokens_per_step / max_tokens
    raise PolicyError(
        f"{clash}: choose recent_ratio={ratio:.3g} or less, or raise max_tokens or retain_ratio"
    )


@dataclass(frozen=True)
class Layout:
    """Hold the provenance of the stored tokens in the form that the scores need.

    Attributes:
        patches: int64 [L, H, N], row * grid columns + column: equal where row and column are.
        recent: bool [L, H, N], whether the token belongs to the last r steps of the stream.
        grid: (rows, columns) of the smallest grid that holds every stored patch.
        recent_steps: r.
        oldest_recent: the first of the last r steps of the stream.
        most_recent: recent tokens in the head that has most; they are the last of its slots.
        fewest_recent: recent tokens in the head that has fewest.
    """

    patches: Tensor
    recent: Tensor
    grid: tuple[int, int]
    recent_steps: int
    oldest_recent: int
    most_recent: int
    fewest_recent: int

    @classmethod
    def of(cls, tokens: VideoTokens, recent_steps: int) -> Layout:
        """Read the layout of at least one token; five numbers leave the device, in one transfer."""
        oldest_recent = tokens.steps[..., -1].amax() - recent_steps + 1
        recent = tokens.steps >= oldest_recent
        counts = recent.sum(-1)
        numbers = torch.stack(
            [
                oldest_recent,
                tokens.rows.amax() + 1,
                tokens.cols.amax() + 1,
                counts.amax(),
                counts.amin(),
            ]
        )
        oldest, rows, cols, most, fewest = numbers.tolist()
        patches = tokens.rows * cols + tokens.cols
        return cls(patches, recent, (rows, cols), recent_steps, oldest, most, fewest)

    @property
    def n_patches(self) -> int:
        """Return P, a number above every patch number."""
        return self.grid[0] * self.grid[1]

    def protected(self, keep: int) -> Tensor:
        """Mark the recent tokens of each head, of more than `keep` the newest: bool [L, H, N]."""
        protected = self.recent.clone()  # the recent tokens are the last of each head
        protected[..., : protected.shape[-1] - keep] = False
        return protected
