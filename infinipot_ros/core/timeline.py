"""Timeline: which step and which position ids come next in a stream."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from infinipot_ros.core.cache import Provenance


@dataclass
class Timeline:
    """Counts the steps of a stream and places them on the position axes.

    Attributes:
        start: first position after the prefix.
        interval: distance of two successive steps on the temporal axis.
        frames_per_step: frames of one temporal step.
        device: where provenance lives.
        next_step: index of the next step since the start of the stream.
        newest: temporal position of the newest step; None before the first.
    """

    start: int
    interval: int
    frames_per_step: int
    device: torch.device
    next_step: int = 0
    newest: int | None = None
    _spatial_end: int = 0

    def place(self, steps: int, rows: int, cols: int, stamps: list[int]) -> Provenance:
        """Return provenance of a block to come, positions as the library gives them to one video.

        Args:
            steps: temporal steps of the block.
            rows: patch rows of a step.
            cols: patch columns of a step.
            stamps: capture stamps of the block's frames, integer nanoseconds.
        """
        first = self.start if self.newest is None else self.newest + self.interval
        grid = torch.cartesian_prod(*(self._range(size) for size in (steps, rows, cols)))
        step, row, col = grid.view(-1, 3).unbind(-1)
        # A step carries the stamp of its last frame: what it shows is not older than that.
        last = stamps[self.frames_per_step - 1 :: self.frames_per_step]
        return Provenance(
            steps=step + self.next_step,
            rows=row,
            cols=col,
            stamps=torch.tensor(last, dtype=torch.int64, device=self.device)[step],
            positions=torch.stack(
                (first + step * self.interval, self.start + row, self.start + col)
            ),
        )

    def advance(self, steps: int, rows: int, cols: int) -> None:
        """Count a block that was placed and has become part of the stream."""
        first = self.start if self.newest is None else self.newest + self.interval
        self.newest = first + (steps - 1) * self.interval
        self.next_step += steps
        self._spatial_end = max(self._spatial_end, rows, cols)

    def next_text_position(self) -> int:
        """Return the first position of text after the video: one past the largest id on any axis.

        As transformers 4.57 computed it, with which the weights were trained; 5.3 and later
        place text elsewhere when left to themselves.
        """
        if self.newest is None:
            return self.start
        return max(self.newest, self.start + self._spatial_end - 1) + 1

    def _range(self, size: int) -> Tensor:
        return torch.arange(size, device=self.device)
