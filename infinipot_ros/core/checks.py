"""Checks of what callers hand in."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from infinipot_ros.core.errors import FrameError

_STAMPS = 2**63  # provenance holds them as int64


def check_frames(
    frames: NDArray[np.uint8] | Sequence[NDArray[np.uint8]], stamps: Sequence[int]
) -> list[NDArray[np.uint8]]:
    """Return the frames as a list of images of one size, each with a stamp.

    Args:
        frames: uint8 RGB, ``[n, h, w, 3]`` or n images ``[h, w, 3]``.
        stamps: n capture stamps, integer nanoseconds.

    Raises:
        FrameError: a wrong number, shape or dtype.
    """
    if isinstance(frames, np.ndarray) and frames.ndim == 3:
        raise FrameError(
            f"frames has shape {frames.shape}, one image; give [n, h, w, 3] or a list of images"
        )
    images = list(frames)
    if len(images) != len(stamps):
        raise FrameError(f"{len(images)} frames but {len(stamps)} stamps; give one stamp a frame")
    for index, image in enumerate(images):
        if not isinstance(image, np.ndarray) or image.dtype != np.uint8:
            kind = image.dtype if isinstance(image, np.ndarray) else type(image).__name__
            raise FrameError(f"frame {index} is of {kind}; it must be a uint8 array")
        if image.ndim != 3 or image.shape[2] != 3 or 0 in image.shape:
            raise FrameError(f"frame {index} has shape {image.shape}; it must be [h, w, 3] RGB")
        if image.shape != images[0].shape:
            raise FrameError(
                f"frame {index} has shape {image.shape}, frame 0 {images[0].shape}; "
                "observe frames of one size together"
            )
    for index, stamp in enumerate(stamps):
        if not isinstance(stamp, (int, np.integer)) or isinstance(stamp, bool):
            raise FrameError(
                f"stamp {index} is {stamp!r}; stamps are integer nanoseconds, never seconds"
            )
        if not -_STAMPS <= stamp < _STAMPS:
            raise FrameError(f"stamp {index} is {stamp}; nanoseconds of 64 bits are needed")
    return images
