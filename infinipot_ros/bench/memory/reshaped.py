"""What research code does: after a compression, reshape the survivors as if they were whole frames.

Survivors of a compression are other patches of other steps in every head. Code that forgets where
they come from reshapes the cache to [frames, patches] all the same, so that "same patch" and
"neighbour" compare whatever happens to stand there. This wrapper puts such numbers in place of a
policy's provenance, to measure what the mistake costs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from infinipot_ros.compression import CompressionPolicy, VideoTokens


def reshape_provenance(tokens: VideoTokens, cols: int) -> VideoTokens:
    """Return the tokens renumbered in cache order as whole frames of the newest step's size.

    Frames are counted from the end: the newest, which are whole, keep their patches. Where the
    number of tokens is a multiple of a frame's, and that is what research code sees to, this is the
    plain reshape from the start.

    Args:
        tokens: of a grid that does not change in mid-stream.
        cols: patch columns of the grid.
    """
    per_step = tokens.tokens_per_step
    count = tokens.shape[-1]
    n_frames = -(-count // per_step)
    place = torch.arange(count, device=tokens.steps.device) + n_frames * per_step - count
    patch = place % per_step
    return replace(
        tokens,
        steps=(place // per_step).expand_as(tokens.steps).contiguous(),
        rows=(patch // cols).expand_as(tokens.rows).contiguous(),
        cols=(patch % cols).expand_as(tokens.cols).contiguous(),
    )


@dataclass
class Reshaped(CompressionPolicy):
    """A policy that is shown reshaped tokens instead of the true provenance.

    Attributes:
        policy: what decides.
        cols: patch columns of the grid.
    """

    name: ClassVar[str] = "reshaped"
    policy: CompressionPolicy
    cols: int

    def check(self, *, max_tokens: int, target_tokens: int, tokens_per_step: int) -> None:
        """Refuse what the policy refuses; see the base class."""
        self.policy.check(
            max_tokens=max_tokens, target_tokens=target_tokens, tokens_per_step=tokens_per_step
        )

    def target(
        self,
        *,
        stored: int,
        incoming: int,
        max_tokens: int,
        target_tokens: int,
        tokens_per_step: int,
    ) -> int | None:
        """Return what the policy wants to keep; see the base class."""
        return self.policy.target(
            stored=stored,
            incoming=incoming,
            max_tokens=max_tokens,
            target_tokens=target_tokens,
            tokens_per_step=tokens_per_step,
        )

    def choose(self, tokens: VideoTokens, keep: int) -> Tensor:
        """Return the slots that the policy chooses of the reshaped tokens; see the base class."""
        return self.policy.choose(reshape_provenance(tokens, self.cols), keep)

    def settle(self, slots: Tensor) -> None:
        """See the base class."""
        self.policy.settle(slots)

    def reset(self) -> None:
        """Forget the stream."""
        self.policy.reset()
