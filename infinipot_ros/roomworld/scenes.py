"""Compose what the camera can look at: one room with a few objects in it.

A scene is painted once as a panorama wider than the camera's image; panning moves a window over it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from infinipot_ros.roomworld.objects import SIZES, sprite
from infinipot_ros.roomworld.vocabulary import COLORS, CORRIDOR, KINDS, ROOMS, SIDES

IMAGE_SIZE = 84
"""Height and width of a camera image, in pixels."""
MARGIN = 14
"""Pixels of the panorama beyond each side of the centred camera image."""

_COLUMN = IMAGE_SIZE // len(SIDES)
_ROW_CENTRES = (41, 63)
_GROOVE = 0.86


@dataclass(frozen=True)
class SceneObject:
    """One object standing in a scene; `x`, `y` is its centre in the centred image, in pixels."""

    kind: str
    color: str
    side: str
    size: int
    x: int
    y: int


@dataclass(frozen=True)
class Scene:
    """A room and its objects; `look` seeds textures and lighting."""

    room: str
    objects: tuple[SceneObject, ...]
    look: int


@dataclass(frozen=True)
class _Decor:
    wall: tuple[int, int, int]
    floor: tuple[int, int, int]
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


def random_scene(
    rng: np.random.Generator, room: str | None, n_objects: int, taken: Collection[str] = ()
) -> Scene:
    """Draw a scene with `n_objects` of kinds that are not in `taken`, at most one a side.

    `room` None draws one of the rooms. Raises ValueError when more objects are asked for than there
    are sides or free kinds.
    """
    free = [kind for kind in KINDS if kind not in taken]
    if n_objects > min(len(SIDES), len(free)):
        raise ValueError(
            f"n_objects is {n_objects}, but a scene has {len(SIDES)} sides "
            f"and {len(free)} kinds are free"
        )
    if room is None:
        room = ROOMS[int(rng.integers(len(ROOMS)))]
    colors = tuple(COLORS)
    kinds = rng.permutation(len(free))[:n_objects]
    columns = rng.permutation(len(SIDES))[:n_objects]
    objects = tuple(
        SceneObject(
            kind=free[int(kind)],
            color=colors[int(rng.integers(len(colors)))],
            side=SIDES[int(column)],
            size=SIZES[int(rng.integers(len(SIZES)))],
            x=_COLUMN // 2 + _COLUMN * int(column) + int(rng.integers(-3, 4)),
            y=_ROW_CENTRES[int(rng.integers(2))] + int(rng.integers(-3, 4)),
        )
        for kind, column in zip(kinds, columns, strict=True)
    )
    return Scene(room, objects, look=int(rng.integers(2**31)))


def panorama(scene: Scene, hidden: Collection[SceneObject] = ()) -> NDArray[np.float32]:
    """Paint a scene without its `hidden` objects: float32 RGB [84, 112, 3], about 0..255."""
    rng = np.random.default_rng(scene.look)
    image = _background(rng, _DECOR[scene.room], bare=scene.room == CORRIDOR)
    brightness = rng.uniform(0.85, 1.12)
    for thing in scene.objects:
        if thing not in hidden:
            _paste(image, thing)
    image *= brightness
    return image


def _paste(image: NDArray[np.float32], thing: SceneObject) -> None:
    drawn = sprite(thing.kind, thing.color, thing.size)
    left = thing.x + MARGIN - thing.size // 2
    top = thing.y - thing.size // 2
    rows = min(IMAGE_SIZE - top, thing.size)
    window = image[top : top + rows, left : left + thing.size]
    window *= drawn.transparency[:rows]
    window += drawn.premultiplied[:rows]


def _background(rng: np.random.Generator, decor: _Decor, bare: bool) -> NDArray[np.float32]:
    width = IMAGE_SIZE + 2 * MARGIN
    horizon = int(rng.integers(50, 62))
    wall = _textured(rng, decor.wall_texture, horizon, width, decor.wall)
    floor = _textured(rng, decor.floor_texture, IMAGE_SIZE - horizon, width, decor.floor)
    image = np.concatenate([wall, floor])
    if not bare and rng.random() < 0.4:
        _hang_picture(rng, image)
    return image


def _hang_picture(rng: np.random.Generator, image: NDArray[np.float32]) -> None:
    """Hang a pale framed picture on the wall: clutter that is no object."""
    left = int(rng.integers(0, image.shape[1] - 24))
    top = int(rng.integers(2, 10))
    image[top : top + 12, left : left + 20] *= rng.uniform(0.8, 0.95)
    canvas = image[top + 2 : top + 10, left + 2 : left + 18]
    canvas *= 0.7
    canvas += 60.0


def _textured(
    rng: np.random.Generator, texture: str, height: int, width: int, color: tuple[int, int, int]
) -> NDArray[np.float32]:
    surface = np.empty((height, width, 3), np.float32)
    surface[:] = np.asarray(color, np.float32) + rng.normal(0.0, 4.0, 3).astype(np.float32)
    offset = int(rng.integers(12))
    rows = np.arange(height) + offset
    columns = np.arange(width) + offset
    if texture == "tile":
        surface[rows % 12 == 0] *= _GROOVE
        surface[:, columns % 12 == 0] *= _GROOVE
    elif texture == "stripe":
        surface[:, (columns // 7) % 2 == 0] *= _GROOVE
    elif texture == "brick":
        surface[rows % 9 == 0] *= _GROOVE
        for course in range(2):
            joints = (columns + 8 * course) % 16 == 0
            surface[np.ix_((rows // 9) % 2 == course, joints)] *= _GROOVE
    return surface
