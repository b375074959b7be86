"""Paint the rooms: walls, floors, and clutter that is no object."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from infinipot_ros.roomworld.vocabulary import CORRIDOR

_GROOVE = 0.86
_MAX_CLUTTER = 5
_PICTURE_SHARE = 0.4

Rgb = tuple[int, int, int]


@dataclass(frozen=True)
class _Decor:
    wall: Rgb
    floor: Rgb
    wall_texture: str
    floor_texture: str


_DECOR: dict[str, _Decor] = {
    "kitchen": _Decor((232, 214, 170), (170, 120, 80), "tile", "plain"),
    "bedroom": _Decor((225, 185, 200), (150, 110, 110), "stripe", "plain"),
    "bathroom": _Decor((175, 215, 230), (215, 225, 230), "tile", "tile"),
    "office": _Decor((190, 205, 180), (110, 115, 125), "plain", "stripe"),
    "garage": _Decor((150, 150, 155), (90, 88, 85), "brick", "plain"),
    CORRIDOR: _Decor((226, 222, 216), (190, 170, 150), "plain", "plain"),
}


def paint_background(rng: np.random.Generator, room: str, edge: int) -> NDArray[np.float32]:
    """Paint an empty room: float32 RGB [edge, edge, 3], 0..255.

    Raises KeyError for a room that the vocabulary does not list.
    """
    decor = _DECOR[room]
    horizon = int(rng.integers(edge // 2, round(edge * 0.66)))
    wall = _textured(rng, decor.wall_texture, horizon, edge, decor.wall)
    floor = _textured(rng, decor.floor_texture, edge - horizon, edge, decor.floor)
    image = np.concatenate([wall, floor])
    if room == CORRIDOR:
        return image
    if rng.random() < _PICTURE_SHARE:
        _hang_picture(rng, image)
    for _ in range(int(rng.integers(_MAX_CLUTTER + 1))):
        _drop_clutter(rng, image)
    return image


def _hang_picture(rng: np.random.Generator, image: NDArray[np.float32]) -> None:
    left = int(rng.integers(0, image.shape[1] - 32))
    top = int(rng.integers(4, 24))
    image[top : top + 18, left : left + 28] *= rng.uniform(0.8, 0.95)
    canvas = image[top + 3 : top + 15, left + 3 : left + 25]
    canvas *= 0.7
    canvas += 60.0


def _drop_clutter(rng: np.random.Generator, image: NDArray[np.float32]) -> None:
    """Put down something without a name: a grey or brownish plate, board or cable."""
    height, width = (int(n) for n in rng.integers(6, 26, 2))
    if rng.random() < 0.3:
        height = 2
    top = int(rng.integers(0, image.shape[0] - height))
    left = int(rng.integers(0, image.shape[1] - width))
    color = rng.uniform(90, 235) + rng.uniform(-14, 14, 3)
    patch = image[top : top + height, left : left + width]
    if rng.random() < 0.5:
        y, x = np.ogrid[-1 : 1 : height * 1j, -1 : 1 : width * 1j]
        patch[x * x + y * y <= 1.0] = color
    else:
        patch[:] = color


def _textured(
    rng: np.random.Generator, texture: str, height: int, width: int, color: Rgb
) -> NDArray[np.float32]:
    surface = np.empty((height, width, 3), np.float32)
    surface[:] = np.asarray(color, np.float32) + rng.normal(0.0, 5.0, 3).astype(np.float32)
    offset = int(rng.integers(16))
    rows = np.arange(height) + offset
    columns = np.arange(width) + offset
    if texture == "tile":
        surface[rows % 16 == 0] *= _GROOVE
        surface[:, columns % 16 == 0] *= _GROOVE
    elif texture == "stripe":
        surface[:, (columns // 9) % 2 == 0] *= _GROOVE
    elif texture == "brick":
        surface[rows % 12 == 0] *= _GROOVE
        for course in range(2):
            joints = (columns + 10 * course) % 20 == 0
            surface[np.ix_((rows // 12) % 2 == course, joints)] *= _GROOVE
    return surface
