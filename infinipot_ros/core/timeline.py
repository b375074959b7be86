"""Timeline: which step and which position ids come next in a stream."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from infinipot_ros.core.cache import Provenance, SlabCache
from infinipot_ros.core.numbering import BlockLayout, Cursor, Numbering, Stored
from infinipot_ros.core.positions import RotarySpec

_LONGEST_PAUSE_NS = 7 * 24 * 3600 * 1_000_000_000
"""A longer one is a clock that was set: no robot looks away for a week and goes on."""


@dataclass
class Timeline:
    """Counts the steps of a stream and places them on the position axes.

    Attributes:
        start: first position after the prefix.
        numbering: how positions are counted.
        frames_per_step: frames of one temporal step.
        device: where provenance lives.
        interval_ns: distance of two frames where their stamps do not tell, nanoseconds.
        next_step: index of the next step since the start of the stream.
    """

    start: int
    numbering: Numbering
    frames_per_step: int
    device: torch.device
    interval_ns: int
    next_step: int = 0
    cursor: Cursor = field(init=False)

    def __post_init__(self) -> None:
        self.cursor = Cursor.at(self.start)
        self._last_stamp: int | None = None
        self._elapsed_ns = 0  # of the newest frame, since the first

    def seconds(self, stamps: list[int]) -> list[float]:
        """Return for each step of a block to come its middle, seconds since the stream's start.

        Time that stands still or goes on is taken from the stamps; a clock that is set, or a bag
        that starts over, counts as one ordinary distance between frames.
        """
        times, n = self._times(stamps), self.frames_per_step
        ends = zip(times[::n], times[n - 1 :: n], strict=True)
        return [(first + last) / 2e9 for first, last in ends]

    def _times(self, stamps: list[int]) -> list[int]:
        """Return nanoseconds of stream for the frames of a block to come."""
        times, last, elapsed = [], self._last_stamp, self._elapsed_ns
        for stamp in stamps:
            if last is not None:
                passed = stamp - last
                elapsed += passed if 0 <= passed <= _LONGEST_PAUSE_NS else self.interval_ns
            times.append(elapsed)
            last = stamp
        return times

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
        self._elapsed_ns = self._times(stamps)[-1]
        self._last_stamp = stamps[-1]

    def compact(self, cache: SlabCache, rotary: RotarySpec, limit: int) -> None:
        """Re-index what the cache holds, so that its positions end below `limit`."""
        if cache.video_tokens == 0:
            self.cursor = Cursor.at(self.start)
            return
        stored = Stored(cache.steps, cache.rows < 0, cache.positions, self.next_step - 1)
        positions, cursor = self.numbering.renumber(stored, self.cursor, limit)
        cache.move(rotary, positions)
        # Last: a move that failed half-way leaves the stream where it was, and is tried again.
        self.cursor = cursor

    def next_text_position(self) -> int:
        """Return the first position of text after the video."""
        return self.cursor.end
