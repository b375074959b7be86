"""From a camera's frames to blocks: sampling by stamp, then grouping."""

from __future__ import annotations

from collections import deque

from infinipot_ros.core.errors import ConfigError
from infinipot_ros.core.types import Frame

_NS = 1_000_000_000
_STUCK = 10


class StampSampler:
    """Choose frames at a steady rate by their stamps.

    Due times lie on a grid, so that the mean rate is kept whatever the camera's own rate is.  Of
    the frames around a due time the nearest is taken, as far as the last frame distance foretells
    the next: a camera that runs at the sampling rate itself, with jitter, must not lose every other
    frame.

    A jump forward by more than one period starts a new grid at that frame.  A frame older than the
    one before it is late, or comes from a second publisher, and is not taken; two of them in a row,
    in order, mean that time was set back (a bag that loops), and the grid starts anew at the
    second.  Stamps that fall for long are followed all the same.  So nothing stops the sampling for
    ever, and nothing makes it take every frame.

    Args:
        fps: rate, frames per second.

    Raises:
        ConfigError: fps is not above zero.
    """

    def __init__(self, fps: float) -> None:
        if not fps > 0:
            raise ConfigError(f"fps is {fps!r}; it must be above 0 frames per second")
        self._period_ns = max(1, round(_NS / fps))
        self._due_ns: int | None = None
        self._last_ns = 0
        self._refused = 0  # frames in a row that were older than the last one in order
        self._older_ns: int | None = None  # the frame before, if it was older than its predecessor

    def accept(self, stamp_ns: int) -> bool:
        """Say whether the frame with this stamp (integer nanoseconds) is to be taken."""
        older, self._older_ns = self._older_ns, None
        distance = stamp_ns - self._last_ns
        stuck = self._refused >= _STUCK
        in_order = older is not None and stamp_ns >= older
        if self._due_ns is not None and distance < 0 and not (in_order or stuck):
            self._older_ns = stamp_ns
            self._refused += 1
            return False
        self._refused = 0
        self._last_ns = stamp_ns
        due = self._due_ns
        if due is None or distance < 0 or stamp_ns >= due + self._period_ns:
            self._due_ns = stamp_ns + self._period_ns
            return True
        if stamp_ns + min(distance, self._period_ns) // 2 < due:
            return False
        self._due_ns = due + self._period_ns
        return True


class FrameBatcher:
    """A bounded queue of frames that gives them back as blocks; the newest frames win.

    Args:
        block_frames: frames of a full block.
        max_frames: most frames that wait; one more drops the oldest.

    Raises:
        ConfigError: the queue cannot hold one block.
    """

    def __init__(self, block_frames: int, max_frames: int) -> None:
        if max_frames < block_frames:
            raise ConfigError(
                f"max_pending_frames is {max_frames}; a block has {block_frames} frames, "
                "so at least that many must be able to wait"
            )
        self._block_frames = block_frames
        self._max_frames = max_frames
        self._frames: deque[Frame] = deque()

    def __len__(self) -> int:
        """Frames that wait."""
        return len(self._frames)

    def add(self, frame: Frame) -> int:
        """Add a frame; return how many old ones were dropped for it (0 or 1)."""
        self._frames.append(frame)
        if len(self._frames) <= self._max_frames:
            return 0
        self._frames.popleft()
        return 1

    def ready(self) -> bool:
        """Say whether a block is complete: full, or ended by a frame of another size."""
        if len(self._frames) >= self._block_frames:
            return True
        # One block has one patch grid, so frames of another size can only start the next block.
        return bool(self._frames) and self._frames[0].image.shape != self._frames[-1].image.shape

    def take(self) -> list[Frame]:
        """Remove and return the oldest frames of one size, at most a full block of them."""
        block: list[Frame] = []
        while self._frames and len(block) < self._block_frames:
            if block and self._frames[0].image.shape != block[0].image.shape:
                break
            block.append(self._frames.popleft())
        return block

    def clear(self) -> int:
        """Drop every waiting frame; return how many there were."""
        dropped = len(self._frames)
        self._frames.clear()
        return dropped
