"""How many positions a stream takes at most: the part of numbering that is plain arithmetic.

Nothing here needs torch, so that a plan can be made where none is installed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod


class Spans(ABC):
    """How far one way of counting reaches at most."""

    @abstractmethod
    def most(self, steps: int, patches: int, text: int) -> int:
        """Return how far so many steps move the cursor at most, whatever their grids.

        Args:
            steps: how many.
            patches: most patches of one.
            text: most text tokens of one.
        """

    @abstractmethod
    def held(self, tokens: int, patches: int, text: int) -> int:
        """Return how many positions a re-indexed memory takes at most.

        Args:
            tokens: how many it holds in each head.
            patches: most patches of a step.
            text: most text tokens of a step.
        """


class VideoGridSpans(Spans):
    """Time, row and column of one endless video (Qwen2-VL, Qwen2.5-VL).

    Args:
        interval: distance of two successive steps.
    """

    def __init__(self, interval: int) -> None:
        self.interval = interval

    def most(self, steps: int, patches: int, text: int) -> int:  # noqa: ARG002 (there is none)
        """See the base class; a grid of one row or column is the longest."""
        return max(steps * self.interval, patches)

    def held(self, tokens: int, patches: int, text: int) -> int:  # noqa: ARG002 (there is none)
        """See the base class; every token may be the last of its step."""
        return max(tokens * self.interval, patches)


class StepGridsSpans(Spans):
    """Text, then rows and columns of one image, then text: step behind step (Qwen3-VL)."""

    def most(self, steps: int, patches: int, text: int) -> int:
        """See the base class; a grid of one row or column is the longest."""
        return steps * (patches + text)

    def held(self, tokens: int, patches: int, text: int) -> int:
        """See the base class; every patch may be the last of its step."""
        return tokens // (1 + text) * (patches + text)


class TokenByTokenSpans(Spans):
    """One token behind the other on one axis: ordinary RoPE (LLaVA, SmolVLM, InternVL)."""

    def most(self, steps: int, patches: int, text: int) -> int:
        """See the base class."""
        return steps * (patches + text)

    def held(self, tokens: int, patches: int, text: int) -> int:  # noqa: ARG002 (all count alike)
        """See the base class."""
        return tokens


def step_interval(*, tokens_per_second: float, frames_per_step: int, fps: float) -> int:
    """Return the distance of two steps on the temporal axis of Qwen2.5-VL.

    The library truncates ``step * seconds_per_step * tokens_per_second``; a whole interval is the
    same where that product is whole (2 fps: 2 for the published models) and keeps steps evenly
    spaced, and re-indexing exact, where it is not.
    """
    # Positions are stored as int32; a limit that allows steps so far apart there is not.
    interval = min(tokens_per_second * frames_per_step / fps, float(2**31 - 1))
    return max(1, round(interval))
