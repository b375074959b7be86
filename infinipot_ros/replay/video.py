"""Read frames from a video file with OpenCV."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

FALLBACK_FPS = 25.0
"""Rate of a file that does not state one, frames per second."""


class VideoError(ValueError):
    """A file that cannot be read as a video."""


class VideoFile:
    """The frames of a video file, in order, as often as it is iterated.

    Args:
        path: file in any format that OpenCV reads.

    Raises:
        VideoError: the file is missing or no video.
    """

    def __init__(self, path: str | Path) -> None:
        import cv2

        self.path = Path(path)
        if not self.path.is_file():
            raise VideoError(f"{self.path} does not exist")
        capture = cv2.VideoCapture(str(self.path))
        try:
            if not capture.isOpened():
                raise VideoError(f"{self.path} cannot be read as a video by OpenCV")
            fps = float(capture.get(cv2.CAP_PROP_FPS))
        finally:
            capture.release()
        self.fps = fps if math.isfinite(fps) and fps > 0 else FALLBACK_FPS

    def __iter__(self) -> Iterator[NDArray[np.uint8]]:
        """Yield frames, uint8 RGB ``[height, width, 3]``."""
        import cv2

        capture = cv2.VideoCapture(str(self.path))
        try:
            while True:
                ok, frame = capture.read()
                if not ok:
                    return
                yield np.ascontiguousarray(frame[..., ::-1])
        finally:
            capture.release()
