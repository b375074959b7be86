"""Timeline: which step and which position ids come next in a stream."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from infinipot_ros.core.cache import Provenance, SlabCache
from infinipot_ros.core.numbering import BlockLayout, Cursor, Numbering, Stored
from infinipot_ros.core.positions import RotarySpec


@dataclass
class Timeline:
    """Counts the steps of a stream and places them on the position axes.

    Attributes:
        start: first position after the prefix.
        numbering: how positions are counted.
        frames_per_step: frames of one temporal step.
        device: where provenance lives.
        next_step: index of the next step since the start of the stream.
        first_stamp: capture stamp of the stream's first frame, nanoseconds; None before it.
    """

    start: int
    numbering: Numbering
    frames_per_step: int
    device: torch.device
    next_step: int = 0
    first_stamp: int | None = None
    cursor: Cursor = field(init=False)

    def __post_init__(self) -> None:
        self.cursor = Cursor.at(self.start)

    def seconds(self, stamps: list[int]) -> list[float]:
        """Return for each step of a block to come its middle, seconds since the stream's start.

        Never below 0, whatever a camera's clock does.
        """
        zero = stamps[0] if self.first_stamp is None else self.first_stamp
        n = self.frames_per_step
        ends = zip(stamps[::n], stamps[n - 1 :: n], strict=True)
        return [max(0.0, ((first + last) / 2 - zero) / 1e9) for first, last in ends]

    def place(self, layout: BlockLayout, stamps: list[int]) -> Provenance:
        """Return provenance of a block to come, positions as the library gives them to one video.

        Args:
            layout: what the block consists of.
            stamps: capture stamps of the block's frames, integer nanoseconds.
        """
        # A step carries the stamp of its last frame: what it shows is not older than that.
        last = stamps[self.frames_per_step - 1 :: self.frames_per_step]
        row, col = (
            torch.cartesian_prod(torch.arange(layout.rows), torch.arange(layout.cols))
            .view(-1, 2)
            .unbind(-1)
        )
        steps, rows, cols = [], [], []
        for number, (before, after) in enumerate(layout.texts):
            text = torch.arange(before + after)
            steps.append(torch.full((len(text) + len(row),), number))
            rows += [torch.full((before,), -1), row, torch.full((after,), -1)]
            cols += [text[:before], col, text[before:]]
        step = torch.cat(steps).to(self.device)
        positions, _ = self.numbering.place(layout, self.cursor)
        return Provenance(
            steps=step + self.next_step,
            rows=torch.cat(rows).to(self.device),
            cols=torch.cat(cols).to(self.device),
            stamps=torch.tensor(last, dtype=torch.int64, device=self.device)[step],
            positions=positions.to(self.device),
        )

    def advance(self, layout: BlockLayout, stamps: list[int]) -> None:
        """Count a block that was placed and has become part of the stream."""
        _, self.cursor = self.numbering.place(layout, self.cursor)
        self.next_step += layout.steps
        if self.first_stamp is None:
            self.first_stamp = stamps[0]

    def compact(self, cache: SlabCache, rotary: RotarySpec, limit: int) -> None:
        """Re-index what the cache holds, so that its positions end below `limit`."""
        if cache.video_tokens == 0:
            self.cursor = Cursor.at(self.start)
            return
        stored = Stored(cache.steps, cache.rows < 0, cache.positions, self.next_step - 1)
        positions, self.cursor = self.numbering.renumber(stored, self.cursor, limit)
        cache.move(rotary, positions)

    def next_text_position(self) -> int:
        """Return the first position of text after the video."""
        return self.cursor.end
