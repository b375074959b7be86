"""Build training streams out of pooled scenes: stays, ways between them, returns and moves.

The plan is made in whole steps, so that it needs no clock: what a step can show (arriving, leaving,
an object that comes or goes) are the views of the pool.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from infinipot_ros.roomworld.knowledge import Identity, Knowledge, Sighting
from infinipot_ros.roomworld.scenes import Scene, SceneObject
from infinipot_ros.roomworld.training.architecture import TOKENS_PER_STEP
from infinipot_ros.roomworld.training.pool import ScenePool
from infinipot_ros.roomworld.training.views import DWELLS, LEAVING, NO_KIND, WITHOUTS, View
from infinipot_ros.roomworld.vocabulary import CORRIDOR, KINDS, MAX_COUNT, ROOMS

_MAX_SCENE_DRAWS = 60
_MOST_OBJECTS, _MOST_IN_CROWD = 8, 14
_TRANSIENT_SHARE = 0.3
_REPEATED_KIND_SHARE = 0.35


class _Style(Enum):
    """How a stream runs: share of it, objects in a scene (weights of 1, 2, ...)."""

    WALK = (0.5, (0.6, 0.25, 0.15))
    CUTS = (0.2, (0.7, 0.3))
    ROUNDS = (0.15, (0.7, 0.3))
    CROWD = (0.15, (0.1, 0.2, 0.3, 0.25, 0.15))

    @property
    def share(self) -> float:
        return float(self.value[0])

    @property
    def per_scene(self) -> tuple[float, ...]:
        weights: tuple[float, ...] = self.value[1]
        return weights


@dataclass
class Stream:
    """One stream of T temporal steps."""

    scenes: NDArray[np.int64]
    """[T], index into the pool."""
    views: NDArray[np.int64]
    """[T]"""
    visits: NDArray[np.int64]
    """[T], number of the stay or way that the step belongs to."""
    sightings: list[Sighting] = field(default_factory=list)
    """Everything the stream shows, in order; its time is the step in milliseconds / 1000."""
    visible: list[tuple[Identity, ...] | None] = field(default_factory=list)
    """Objects in view at the end of each step; None in a step that changes."""

    def knowledge(self, step: int) -> Knowledge:
        """Return what can be asked after `step`."""
        seen = sum(sighting.time_ms <= 1000 * step for sighting in self.sightings)
        upcoming = {sighting.identity for sighting in self.sightings[seen:]}
        return Knowledge(self.sightings[:seen], self.visible[step], upcoming)


@dataclass(frozen=True)
class _Stay:
    """A stay of `length` steps in one scene of the pool; corridors are stays too.

    change: step at which the first object comes (`comes`) or goes; 0 with comes False: it is never
    there; None: it is there throughout.
    """

    scene: int
    length: int
    arrives: bool = False
    leaves: bool = False
    change: int | None = None
    comes: bool = False


def draw_stream(rng: np.random.Generator, pool: ScenePool, n_steps: int) -> Stream:
    """Draw a stream of `n_steps` steps."""
    stays = _Planner(rng, pool, n_steps).plan()
    return _play(rng, pool, stays, n_steps)


class _Planner:
    """Draw the stays of one stream."""

    def __init__(self, rng: np.random.Generator, pool: ScenePool, n_steps: int) -> None:
        self._rng = rng
        self._pool = pool
        self._n_steps = n_steps
        styles = list(_Style)
        self._style = styles[int(rng.choice(len(styles), p=[style.share for style in styles]))]
        most = _MOST_IN_CROWD if self._style is _Style.CROWD else _MOST_OBJECTS
        self._left = 0 if rng.random() < 0.04 else int(rng.integers(1, most + 1))
        self._longest = 2 if n_steps <= 4 else 4 if self._style is _Style.CUTS else 6
        # Where objects are met: anywhere, or early only, so that all of it is long ago in the end.
        early = n_steps >= 8 and rng.random() < 0.4
        self._until = n_steps * (rng.uniform(0.15, 0.6) if early else 1.0)
        stays = max(1.0, self._until / (1.0 + self._longest / 2.0))
        per_stay = np.arange(1, len(self._style.per_scene) + 1) @ np.asarray(self._style.per_scene)
        self._density = min(0.95, 2.2 * self._left / per_stay / stays)
        self._taken: set[Identity] = set()
        self._past: list[int] = []
        self._moved: set[Identity] = set()

    def plan(self) -> list[_Stay]:
        rng, stays, steps = self._rng, [], 0
        walks = self._style is not _Style.CUTS
        corridor = walks and rng.random() < 0.2
        while steps < self._n_steps:
            stay = _Stay(self._pool.draw(rng, -1), 1) if corridor else self._next(steps)
            stays.append(stay)
            steps += stay.length
            corridor = walks and not corridor and rng.random() < 0.6
        return stays

    def _next(self, step: int) -> _Stay:
        rng, pool = self._rng, self._pool
        length = int(rng.integers(1 if self._longest == 2 else 2, self._longest + 1))
        scene, lacking = self._scene(step)
        walks = self._style is not _Style.CUTS
        things = pool.scenes[scene].objects
        change, comes = (0, False) if lacking else (None, False)
        if not lacking and things and length >= 3 and rng.random() < _TRANSIENT_SHARE:
            change, comes = int(rng.integers(1, length)), bool(rng.random() < 0.5)
        return _Stay(
            scene, length, walks and rng.random() < 0.4, walks and rng.random() < 0.3, change, comes
        )

    def _scene(self, step: int) -> tuple[int, bool]:
        """Choose where to stay next, and whether what stood there alone is gone."""
        rng, pool = self._rng, self._pool
        again = 0.6 if self._style is _Style.ROUNDS else 0.12
        if self._past and rng.random() < again:
            scene = self._past[int(rng.integers(len(self._past)))]
            alone = len(pool.scenes[scene].objects) == 1
            gone = any(thing.identity in self._moved for thing in pool.scenes[scene].objects)
            # What was moved must not stand in its old place again.
            if not gone or alone:
                return scene, alone and (gone or step > self._until or rng.random() < 0.4)
        if step <= self._until and self._past and rng.random() < 0.3 * self._density:
            moved = self._move()
            if moved is not None:
                return moved, False
        if self._left and step <= self._until and rng.random() < self._density:
            shares = np.asarray(self._style.per_scene)
            size = min(self._left, 1 + int(rng.choice(len(shares), p=shares / shares.sum())))
            fresh = self._fresh(size)
            if fresh is not None:
                self._left -= size
                self._past.append(fresh)
                return fresh, False
        return pool.draw(rng, 0), False

    def _move(self) -> int | None:
        """Find an object that was seen alone, alone in another room."""
        rng, pool = self._rng, self._pool
        scene = pool.scenes[self._past[int(rng.integers(len(self._past)))]]
        thing = scene.objects[int(rng.integers(len(scene.objects)))]
        if len(scene.objects) > 1 or thing.identity in self._moved:
            return None
        found = pool.draw_alone(rng, thing.identity, scene.room)
        if found is not None:
            self._moved.add(thing.identity)
        return found

    def _fresh(self, size: int) -> int | None:
        """Draw a scene of objects not seen yet, often with one of a kind that was, to mix up."""
        kinds = {kind for kind, _ in self._taken}
        alike = bool(kinds) and self._rng.random() < _REPEATED_KIND_SHARE
        for _ in range(_MAX_SCENE_DRAWS):
            index = self._pool.draw(self._rng, size)
            identities = {thing.identity for thing in self._pool.scenes[index].objects}
            if alike and kinds.isdisjoint(kind for kind, _ in identities):
                continue
            if not identities & self._taken:
                self._taken |= identities
                return index
        return None


def _play(
    rng: np.random.Generator, pool: ScenePool, stays: Sequence[_Stay], n_steps: int
) -> Stream:
    scenes, views, visits = np.empty((3, n_steps), np.int64)
    stream = Stream(scenes, views, visits)
    step = 0
    for visit, stay in enumerate(stays):
        scene = pool.scenes[stay.scene]
        seen: set[SceneObject] = set()
        for k in range(min(stay.length, n_steps - step)):
            view = _view(rng, scene, stay, k)
            stream.scenes[step], stream.views[step], stream.visits[step] = stay.scene, view, visit
            shown, steady = _shown(scene, stay, k)
            stream.visible.append(
                tuple(t.identity for t in shown) if steady and view not in LEAVING else None
            )
            if view == View.VANISH:
                shown = scene.objects
            for thing in scene.objects:
                if thing in shown and thing not in seen:
                    seen.add(thing)
                    stream.sightings.append(
                        Sighting(
                            thing.kind, thing.color, thing.side, scene.room, visit, 1000 * step
                        )
                    )
            step += 1
    return stream


def _shown(scene: Scene, stay: _Stay, k: int) -> tuple[tuple[SceneObject, ...], bool]:
    """Return what is in view at the end of step `k` of a stay, and whether it was so throughout."""
    if stay.change is None:
        return scene.objects, k > 0 or not stay.arrives
    there = (k >= stay.change) == stay.comes
    steady = k != stay.change if k else not stay.arrives
    return (scene.objects if there else scene.objects[1:]), steady


def _view(rng: np.random.Generator, scene: Scene, stay: _Stay, k: int) -> View:
    if scene.room == CORRIDOR:
        return DWELLS[int(rng.integers(len(DWELLS)))]
    lacks = bool(scene.objects) and stay.change is not None and (k >= stay.change) != stay.comes
    if stay.change == k and k > 0:
        # The change falls between the two frames of the step, or between this step and the last.
        if rng.random() < 0.6:
            return View.APPEAR if stay.comes else View.VANISH
    elif k == 0 and stay.arrives:
        return View.ARRIVE_WITHOUT if lacks else View.ARRIVE
    elif k == stay.length - 1 and k > 0 and stay.leaves:
        return View.LEAVE_WITHOUT if lacks else View.LEAVE
    elif k == 0 and not lacks:
        return View.SETTLE
    choices = WITHOUTS if lacks else DWELLS
    return choices[int(rng.integers(len(choices)))]


def history_labels(pool: ScenePool, stream: Stream) -> NDArray[np.int8]:
    """Label object tokens with what occurs at earlier tokens: int8 [T * 9, kinds + 2].

    First one column per kind but the token's own: 1 occurred, 0 did not, -1 not asked. Then the
    number of the other room in which the same object was seen last, len(ROOMS) for none; last, how
    many other kinds occurred, up to MAX_COUNT. All are -1 at tokens without an object.
    """
    kinds, colors = pool.labels[:, stream.scenes, stream.views].reshape(2, -1).astype(np.int64)
    rooms = np.repeat([pool.scenes[i].room for i in stream.scenes], TOKENS_PER_STEP)
    labels = np.full((len(kinds), len(KINDS) + 2), -1, np.int8)
    came = np.zeros(len(KINDS), bool)
    seen_in: dict[tuple[int, int], list[str]] = {}
    for token in np.flatnonzero((kinds >= 0) & (kinds < NO_KIND)):
        kind, room = int(kinds[token]), str(rooms[token])
        labels[token, : len(KINDS)] = came
        labels[token, kind] = -1
        before = seen_in.setdefault((kind, int(colors[token])), [])
        elsewhere = [other for other in before if other != room]
        labels[token, len(KINDS)] = ROOMS.index(elsewhere[-1]) if elsewhere else len(ROOMS)
        labels[token, len(KINDS) + 1] = min(MAX_COUNT, int(came.sum() - came[kind]))
        before.append(room)
        came[kind] = True
    return labels
