"""Compose what the camera can look at: one room with a few objects in it.

A scene is painted once as a panorama larger than the camera's image; the camera moves a window over
it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from infinipot_ros.roomworld.backgrounds import paint_background
from infinipot_ros.roomworld.knowledge import Identity
from infinipot_ros.roomworld.objects import SIZES, sprite
from infinipot_ros.roomworld.vocabulary import COLORS, KINDS, ROOMS, SIDES, held_out

IMAGE_SIZE = 120
"""Height and width of a camera image, in pixels."""
MARGIN = 16
"""Pixels of the panorama beyond each edge of the centred camera image."""
CELLS = 3
"""Rows and columns of cells; each holds one object at most."""
MAX_PER_SCENE = 6

_CELL = IMAGE_SIZE // CELLS
_JITTER = 4
_ROW_SHARES = (0.2, 0.4, 0.4)
_COVERED_SHARE = 0.25
_COVER = (0.2, 0.35)
_NEVER_COVERED = ("plant",)
"""Kinds whose colour is all in the part that furniture would hide."""
_REPEATED_KIND_SHARE = 0.3
_FURNITURE = ((150, 112, 78), (128, 96, 70), (176, 150, 120), (140, 140, 138))


@dataclass(frozen=True)
class SceneObject:
    """One object standing in a scene.

    `x`, `y` is its centre in the centred image, in pixels; `cover` the share of its height that
    furniture in front of it hides, from below.
    """

    kind: str
    color: str
    side: str
    size: int
    x: int
    y: int
    cover: float = 0.0

    @property
    def identity(self) -> Identity:
        """Return what makes the object itself."""
        return self.kind, self.color


@dataclass(frozen=True)
class Scene:
    """A room and its objects; `look` seeds textures, clutter and lighting."""

    room: str
    objects: tuple[SceneObject, ...]
    look: int


Allowed = Callable[[str, str, str], bool]
"""Whether an object of this kind and colour may stand in this room."""


def anywhere(kind: str, color: str, room: str) -> bool:  # noqa: ARG001
    """Allow every combination."""
    return True


def trained(kind: str, color: str, room: str) -> bool:
    """Allow the combinations that training uses."""
    return not held_out(kind, color, room)


def random_room(rng: np.random.Generator) -> str:
    """Draw one of the rooms."""
    return ROOMS[int(rng.integers(len(ROOMS)))]


def random_look(rng: np.random.Generator) -> int:
    """Draw a look."""
    return int(rng.integers(2**31))


def random_scene(
    rng: np.random.Generator,
    room: str,
    n_objects: int,
    taken: Collection[Identity] = (),
    allowed: Allowed = anywhere,
) -> Scene:
    """Draw a scene with `n_objects` that are not in `taken`, in different cells.

    Raises ValueError for more objects than a scene holds, or when none is left to choose.
    """
    if not 0 <= n_objects <= MAX_PER_SCENE:
        raise ValueError(f"n_objects is {n_objects}; a scene has 0 to {MAX_PER_SCENE} objects")
    chosen: list[Identity] = []
    for _ in range(n_objects):
        chosen.append(random_identity(rng, room, {*taken, *chosen}, allowed))
    return Scene(room, place_objects(rng, chosen), random_look(rng))


def random_identity(
    rng: np.random.Generator, room: str, taken: Collection[Identity], allowed: Allowed = anywhere
) -> Identity:
    """Draw an object for `room` that is not in `taken`. Raises ValueError when none is left."""
    free = [
        (kind, color)
        for kind in KINDS
        for color in COLORS
        if (kind, color) not in taken and allowed(kind, color, room)
    ]
    if not free:
        raise ValueError(f"no object is left for the {room}: {len(taken)} are taken")
    return free[int(rng.integers(len(free)))]


def varied_identity(
    rng: np.random.Generator, room: str, taken: Collection[Identity], allowed: Allowed = anywhere
) -> Identity:
    """Draw as `random_identity` does, now and then a kind that is taken in another colour."""
    if taken and rng.random() < _REPEATED_KIND_SHARE:
        kinds = sorted({kind for kind, _ in taken}, key=KINDS.index)
        kind = kinds[int(rng.integers(len(kinds)))]

        def alike(other: str, color: str, where: str) -> bool:
            return other == kind and allowed(other, color, where)

        try:
            return random_identity(rng, room, taken, alike)
        except ValueError:
            pass  # every colour of it is taken
    return random_identity(rng, room, taken, allowed)


def place_objects(
    rng: np.random.Generator, identities: Collection[Identity]
) -> tuple[SceneObject, ...]:
    """Put objects into different cells, larger or smaller, some of them partly hidden."""
    shares = np.repeat(_ROW_SHARES, CELLS) / CELLS
    cells = rng.choice(CELLS * CELLS, size=len(identities), replace=False, p=shares)
    return tuple(
        _placed(rng, identity, int(cell)) for identity, cell in zip(identities, cells, strict=True)
    )


def _placed(rng: np.random.Generator, identity: Identity, cell: int) -> SceneObject:
    row, column = divmod(cell, CELLS)
    x, y = (
        _CELL // 2 + _CELL * index + int(rng.integers(-_JITTER, _JITTER + 1))
        for index in (column, row)
    )
    size = SIZES[int(rng.integers(len(SIZES)))]
    may_be_covered = size > SIZES[0] and identity[0] not in _NEVER_COVERED
    covered = may_be_covered and rng.random() < _COVERED_SHARE
    cover = round(float(rng.uniform(*_COVER)), 3) if covered else 0.0
    return SceneObject(*identity, SIDES[column], size, x, y, cover)


def panorama(scene: Scene, hidden: Collection[SceneObject] = ()) -> NDArray[np.float32]:
    """Paint a scene without its `hidden` objects: float32 RGB [152, 152, 3], about 0..255.

    Furniture that covers an object stays when the object is gone.
    """
    rng = np.random.default_rng(scene.look)
    image = paint_background(rng, scene.room, IMAGE_SIZE + 2 * MARGIN)
    for thing in scene.objects:
        if thing not in hidden:
            _paste(image, thing)
        if thing.cover:
            _cover(image, thing)
    image *= rng.uniform(0.78, 1.12) * rng.uniform(0.96, 1.04, 3).astype(np.float32)
    return image


def _paste(image: NDArray[np.float32], thing: SceneObject) -> None:
    drawn = sprite(thing.kind, thing.color, thing.size)
    top, left = (centre + MARGIN - thing.size // 2 for centre in (thing.y, thing.x))
    window = image[top : top + thing.size, left : left + thing.size]
    window *= drawn.transparency
    window += drawn.premultiplied


def _cover(image: NDArray[np.float32], thing: SceneObject) -> None:
    """Put a piece of furniture before the lower part of an object."""
    bottom = thing.y + MARGIN - thing.size // 2 + thing.size
    top = bottom - round(thing.cover * thing.size)
    left = thing.x + MARGIN - thing.size // 2 - 3
    color = _FURNITURE[(thing.x + thing.y) % len(_FURNITURE)]
    board = image[top : bottom + 2, left : left + thing.size + 6]
    board[:] = color
    board[:2] *= 0.8
