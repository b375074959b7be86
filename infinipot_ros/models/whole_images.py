"""Frames to whole images of one size, for vision encoders that cut them up themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from infinipot_ros.core.adapter import FramePreprocessor
from infinipot_ros.core.errors import ConfigError, FrameError, ModelError

_MAX_ASPECT = 200  # the side that a crop throws away must not fill the memory first


@dataclass(frozen=True)
class ImagePreprocessor(FramePreprocessor):
    """Bring every frame to one size, whatever its aspect, and normalise it.

    Attributes:
        height: pixels.
        width: pixels.
        rows: rows of video tokens that the family makes of such a frame.
        cols: columns of video tokens.
        mean: per channel, of pixels in 0..1.
        std: per channel, of pixels in 0..1.
        resample: PIL's number of the interpolation, as in ``preprocessor_config.json``.
        shortest_edge: pixels to which the shorter side is resized, the aspect kept, before the
            middle is cut out; 0 resizes both sides to the frame size, and nothing is cut.
    """

    height: int
    width: int
    rows: int
    cols: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    resample: int = Image.Resampling.BICUBIC.value
    shortest_edge: int = 0

    def __post_init__(self) -> None:
        if self.shortest_edge < 0:
            raise ConfigError(f"shortest_edge is {self.shortest_edge} pixels; 0 is for none")
        if min(self.height, self.width, self.rows, self.cols) < 1:
            raise ConfigError(
                f"a frame size of {self.height}x{self.width} pixels and {self.rows}x{self.cols} "
                "tokens is none; each must be at least 1"
            )
        if 0 < self.shortest_edge < max(self.height, self.width):
            raise ConfigError(
                f"shortest_edge is {self.shortest_edge} pixels, too small to cut "
                f"{self.height}x{self.width} out of it"
            )

    def max_tokens_per_step(self) -> int:
        """Return the number of video tokens of one frame."""
        return self.rows * self.cols

    def __call__(
        self, frames: Sequence[NDArray[np.uint8]]
    ) -> tuple[NDArray[np.float32], tuple[int, int, int]]:
        """Resize and normalise; float32 ``[n, 3, height, width]`` and the grid of tokens.

        Raises:
            FrameError: a frame is too elongated for its middle to be cut out.
        """
        pixels = np.stack([self._resize(frame) for frame in frames]).transpose(0, 3, 1, 2)
        mean = np.asarray(self.mean, np.float32) * 255.0
        scale = 1.0 / (np.asarray(self.std, np.float32) * 255.0)
        out = np.subtract(pixels, mean[:, None, None], dtype=np.float32)
        out *= scale[:, None, None]
        return np.ascontiguousarray(out), (len(frames), self.rows, self.cols)

    def _resize(self, frame: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return the frame at its final size, uint8 ``[height, width, 3]``."""
        high, wide = self._size_before_cut(*frame.shape[:2])
        if frame.shape[:2] != (high, wide):
            image = Image.fromarray(np.ascontiguousarray(frame))
            frame = np.asarray(image.resize((wide, high), Image.Resampling(self.resample)))
        top, left = (high - self.height) // 2, (wide - self.width) // 2
        return frame[top : top + self.height, left : left + self.width]

    def _size_before_cut(self, height: int, width: int) -> tuple[int, int]:
        short = self.shortest_edge
        if not short:
            return self.height, self.width
        if max(height, width) > _MAX_ASPECT * min(height, width):
            raise FrameError(
                f"a frame of {height}x{width} pixels is too elongated; the aspect ratio must not "
                f"pass {_MAX_ASPECT}"
            )
        if height <= width:
            return short, short * width // height
        return short * height // width, short


def image_preprocessor(
    config: dict[str, Any], *, image_size: int, rows: int, cols: int
) -> ImagePreprocessor:
    """Return the preprocessor that a folder's files describe.

    Args:
        config: content of ``preprocessor_config.json``; what it leaves out is that of CLIP.
        image_size: pixels of the side of the square images that the vision encoder takes.
        rows: rows of video tokens of such an image.
        cols: columns of video tokens.

    Raises:
        ModelError: the file asks for something else than such images.
    """
    for step in ("do_resize", "do_rescale", "do_normalize"):
        if config.get(step) is False:
            raise ModelError(
                f"preprocessor_config.json sets {step} to false; frames of a camera need it, set "
                "it to true"
            )
    size: dict[str, int] = _sides(config.get("size"), image_size, whole=False)
    final = size
    if config.get("do_center_crop"):
        final = _sides(config.get("crop_size"), image_size, whole=True)
    short = size.get("shortest_edge", 0)
    if not short and final != size:
        raise ModelError(
            f"preprocessor_config.json resizes frames to {size} and cuts out {final}; only a "
            "shortest_edge can be cut"
        )
    if (final.get("height"), final.get("width")) != (image_size, image_size):
        raise ModelError(
            f"preprocessor_config.json makes images of {final}, the vision encoder takes "
            f"{image_size}x{image_size} pixels (image_size in config.json); the two must agree"
        )
    return ImagePreprocessor(
        height=image_size,
        width=image_size,
        rows=rows,
        cols=cols,
        mean=tuple(config.get("image_mean", (0.48145466, 0.4578275, 0.40821073))),
        std=tuple(config.get("image_std", (0.26862954, 0.26130258, 0.27577711))),
        resample=int(config.get("resample", Image.Resampling.BICUBIC.value)),
        shortest_edge=short,
    )


def refuse_other_sizes(
    min_pixels: int, max_pixels: int, *, model: str, height: int, width: int
) -> None:
    """Refuse bounds that a model of one frame size cannot keep.

    Raises:
        ConfigError: the frame size lies outside the bounds; 0 is no bound.
    """
    pixels = height * width
    for name, bound, kept in (
        ("min_pixels", min_pixels, pixels >= min_pixels),
        ("max_pixels", max_pixels, not max_pixels or pixels <= max_pixels),
    ):
        if not kept:
            raise ConfigError(
                f"{name} is {bound}, but {model!r} takes frames of one size only, {height}x{width} "
                f"= {pixels} pixels; set {name} to 0"
            )


def _sides(value: Any, default: int, *, whole: bool) -> dict[str, int]:
    """Return a size of the file as a dictionary; older files give one number.

    Args:
        value: what the file says; None for nothing.
        default: pixels, where it says nothing.
        whole: one number means both sides (a crop), else the shorter one (a size).
    """
    if isinstance(value, dict):
        return {name: int(side) for name, side in value.items() if side is not None}
    side = default if value is None else int(value)
    if whole or value is None:
        return {"height": side, "width": side}
    return {"shortest_edge": side}
