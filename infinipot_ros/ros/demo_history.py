"""What the demo's status messages said over time, and what a memory without a cap would hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

_NS = 1_000_000_000


@dataclass(frozen=True)
class Reading:
    """What one status message said.

    Attributes:
        stamp_ns: when the state was read, integer nanoseconds.
        tokens: video tokens per layer and head in memory.
        cap: most that may be; 0 where there is no cap.
        frames: frames encoded since activation.
        blocks: blocks prefilled since the memory was last empty.
        compressions: compressions since the memory was last empty.
    """

    stamp_ns: int
    tokens: int
    cap: int
    frames: int
    blocks: int
    compressions: int


@dataclass(frozen=True)
class History:
    """The memory from the first image on.

    Attributes:
        times_s: seconds after the first image, ascending.
        kept: tokens in memory at these times.
        uncapped: tokens that a memory without a cap would hold at these times; empty where the
            readings do not tell.
        cap: most tokens that may be kept; 0 where there is no cap.
        asked_s: when questions were asked, seconds after the first image.
    """

    times_s: tuple[float, ...]
    kept: tuple[int, ...]
    uncapped: tuple[float, ...]
    cap: int
    asked_s: tuple[float, ...] = ()

    @property
    def drawable(self) -> bool:
        """Whether there is a course to draw: two readings at different times."""
        return len(self.times_s) > 1 and self.times_s[-1] > self.times_s[0]

    @property
    def end_s(self) -> float:
        """Time of the last reading, seconds after the first image."""
        return self.times_s[-1]

    @classmethod
    def of(cls, readings: Sequence[Reading], first_ns: int, asked_s: Sequence[float]) -> History:
        """Arrange readings by the time since the first image.

        Args:
            readings: in the order of their arrival.
            first_ns: stamp of the first image; what was read before is left out.
            asked_s: when questions were asked, seconds after the first image.
        """
        totals = _without_cap(readings)
        shown = [i for i, reading in enumerate(readings) if reading.stamp_ns >= first_ns]
        return cls(
            times_s=tuple((readings[i].stamp_ns - first_ns) / _NS for i in shown),
            kept=tuple(readings[i].tokens for i in shown),
            uncapped=tuple(totals[i] for i in shown) if totals else (),
            cap=readings[-1].cap if readings else 0,
            asked_s=tuple(asked_s),
        )


def about(tokens: float) -> str:
    """Return an estimate in words, with the digits that it deserves."""
    return f"about {float(f'{tokens:.3g}'):,.0f}"


def _without_cap(readings: Sequence[Reading]) -> list[float]:
    """Return the tokens that have gone into the memory at each reading, empty if unknown.

    Between two readings without a compression the memory's growth tells exactly. Where there was
    one, the frames tell, at the tokens a frame that were measured between the others.
    """
    course = [Reading(0, 0, 0, 0, 0, 0), *readings]
    plain = [
        (now.tokens - before.tokens, now.frames - before.frames)
        for before, now in pairwise(course)
        if now.compressions == before.compressions and now.blocks > before.blocks
    ]
    frames = sum(count for _, count in plain)
    if not frames:
        return []
    tokens_per_frame = sum(growth for growth, _ in plain) / frames
    totals, total = [], 0.0
    for before, now in pairwise(course):
        if now.blocks < before.blocks:  # the memory was reset, and so would the other have been
            total = float(now.tokens)
        elif now.compressions == before.compressions:
            total += now.tokens - before.tokens
        else:
            total += tokens_per_frame * (now.frames - before.frames)
        totals.append(total)
    return totals
