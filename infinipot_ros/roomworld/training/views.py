"""Photograph a scene the ways a sampled stream can show it, and label every vision token.

A temporal step holds two frames half a second apart. It can show a steady scene, the moment of
arriving or leaving, or an object that comes or goes in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from infinipot_ros.roomworld.camera import CameraMotion, expose
from infinipot_ros.roomworld.people import Person
from infinipot_ros.roomworld.scenes import (
    IMAGE_SIZE,
    Scene,
    SceneObject,
    panorama,
    random_look,
)
from infinipot_ros.roomworld.training.architecture import TOKEN_GRID, TOKENS_PER_STEP
from infinipot_ros.roomworld.vocabulary import COLORS, CORRIDOR, KINDS

FRAME_INTERVAL_MS = 500
NO_KIND = len(KINDS)
"""Kind label of a token that shows no object."""
IGNORE = -1
"""Label of a token that shows a part of an object which belongs to another token."""
_REPEATED_SHARE = 0.15
_MOTION_SHARES = {"walk": 0.55, "still": 0.15, "hand": 0.3}
_CROWDED = 3
_PEOPLE_SHARE, _CROWDED_PEOPLE_SHARE = 0.06, 0.25


class View(IntEnum):
    """The ways to show a scene; the first object is absent in those named WITHOUT."""

    ARRIVE = 0
    SETTLE = 1
    DWELL_A = 2
    DWELL_B = 3
    DWELL_C = 4
    LEAVE = 5
    WITHOUT_A = 6
    WITHOUT_B = 7
    APPEAR = 8
    VANISH = 9
    ARRIVE_WITHOUT = 10
    LEAVE_WITHOUT = 11


DWELLS = (View.DWELL_A, View.DWELL_B, View.DWELL_C)
WITHOUTS = (View.WITHOUT_A, View.WITHOUT_B)
LEAVING = (View.LEAVE, View.LEAVE_WITHOUT)
CLEAR = (View.SETTLE, *DWELLS)
"""Views that show the whole scene in both frames."""
_LACKING = (*WITHOUTS, View.ARRIVE_WITHOUT, View.LEAVE_WITHOUT)


class Photograph(NamedTuple):
    """One step of a scene and its labels."""

    frames: NDArray[np.uint8]
    """[2, 120, 120, 3]"""
    kinds: NDArray[np.int8]
    """[9], index into KINDS, NO_KIND or IGNORE."""
    colors: NDArray[np.int8]
    """[9], index into COLORS at object tokens, else IGNORE."""


class Photographer:
    """Take views of one scene with one camera motion."""

    def __init__(self, scene: Scene, rng: np.random.Generator) -> None:
        self._scene = scene
        self._rng = rng
        style = rng.choice(list(_MOTION_SHARES), p=list(_MOTION_SHARES.values()))
        self._motion = CameraMotion.draw(rng, str(style))
        self._length = int(rng.integers(3000, 6001))
        self._full = panorama(scene)
        self._without = panorama(scene, scene.objects[:1]) if scene.objects else self._full
        self._corridor = panorama(Scene(CORRIDOR, (), random_look(rng)))
        crowded = len(scene.objects) >= _CROWDED
        self._people_share = _CROWDED_PEOPLE_SHARE if crowded else _PEOPLE_SHARE

    def take(self, view: View) -> Photograph:
        """Take one view at a random moment that fits it."""
        time = self._moment(view)
        second = time + FRAME_INTERVAL_MS
        may_repeat = view in CLEAR or view in WITHOUTS
        if may_repeat and self._rng.random() < _REPEATED_SHARE:
            second = time  # a flushed step repeats its only frame
        here = self._without if view in _LACKING else self._full
        if view in (View.ARRIVE, View.ARRIVE_WITHOUT):
            pair = [self._shoot(self._corridor, 400), self._shoot(here, time)]
        elif view in (View.LEAVE, View.LEAVE_WITHOUT):
            pair = [self._shoot(here, time), self._shoot(self._corridor, 400)]
        elif second == time:
            pair = [self._shoot(here, time)] * 2
        else:
            first_image = self._without if view == View.APPEAR else here
            second_image = self._without if view == View.VANISH else here
            pair = [self._shoot(first_image, time), self._shoot(second_image, second)]
        shown = self._scene.objects[1:] if view in _LACKING else self._scene.objects
        kinds, colors = _label(shown)
        return Photograph(np.stack(pair), kinds, colors)

    def _moment(self, view: View) -> int:
        last = self._length - FRAME_INTERVAL_MS
        if view in (View.ARRIVE, View.ARRIVE_WITHOUT, View.SETTLE):
            return int(self._rng.integers(0, FRAME_INTERVAL_MS))
        if view in (View.LEAVE, View.LEAVE_WITHOUT):
            return int(self._rng.integers(last, self._length))
        if view in WITHOUTS:
            return int(self._rng.integers(0, last))
        return int(self._rng.integers(FRAME_INTERVAL_MS, last))

    def _shoot(self, painted: NDArray[np.float32], time: int) -> NDArray[np.uint8]:
        passing = self._rng.random() < self._people_share
        person = Person.draw(self._rng, IMAGE_SIZE) if passing else None
        until = self._length - time
        return expose(painted, self._motion, time, until, self._rng, person)


def _label(things: Sequence[SceneObject]) -> tuple[NDArray[np.int8], NDArray[np.int8]]:
    """Label the tokens: an object belongs to the token under its centre in the centred image.

    Tokens that its edge reaches far into belong to nobody.
    """
    cell = IMAGE_SIZE // TOKEN_GRID
    kinds = np.full((TOKEN_GRID, TOKEN_GRID), NO_KIND, np.int8)
    colors = np.full((TOKEN_GRID, TOKEN_GRID), IGNORE, np.int8)
    edges = np.arange(TOKEN_GRID) * cell
    for thing in things:
        half = thing.size / 2
        wide = np.minimum(thing.x + half, edges + cell) - np.maximum(thing.x - half, edges)
        high = np.minimum(thing.y + half, edges + cell) - np.maximum(thing.y - half, edges)
        overlap = np.maximum(high, 0)[:, None] * np.maximum(wide, 0)[None]
        kinds[overlap > 0.08 * thing.size**2] = IGNORE
    for thing in things:
        row, column = (min(TOKEN_GRID - 1, max(0, at // cell)) for at in (thing.y, thing.x))
        kinds[row, column] = KINDS.index(thing.kind)
        colors[row, column] = list(COLORS).index(thing.color)
    return kinds.reshape(TOKENS_PER_STEP), colors.reshape(TOKENS_PER_STEP)
