"""Build training streams: the world's own tours, played over pooled scenes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from infinipot_ros.roomworld.questions import Knowledge, Sighting
from infinipot_ros.roomworld.scenes import Scene
from infinipot_ros.roomworld.tour import ROOM_MS, Slot, Visit, fill_slots, plan_slots
from infinipot_ros.roomworld.training.pool import ScenePool
from infinipot_ros.roomworld.training.views import DWELLS, FRAME_INTERVAL_MS, WITHOUTS, View
from infinipot_ros.roomworld.vocabulary import KINDS, MAX_OBJECTS

STEP_MS = 2 * FRAME_INTERVAL_MS
_SHORT_ROOM_MS = (1000, 2000)
_MAX_SCENE_DRAWS = 200


@dataclass(frozen=True)
class Stream:
    """One stream of T temporal steps."""

    scenes: NDArray[np.int64]
    """[T], index into the pool."""
    views: NDArray[np.int64]
    """[T]"""
    sightings: list[Sighting]
    """Everything the stream shows, in order."""
    first_steps: list[int]
    """The step in which each sighting is first seen."""
    visible: list[tuple[str, ...] | None]
    """Kinds in view at the end of each step; None in a step that changes."""

    def knowledge(self, step: int) -> Knowledge:
        """Return what can be asked after `step`."""
        seen = sum(first <= step for first in self.first_steps)
        upcoming = {sighting.kind for sighting in self.sightings[seen:]}
        return Knowledge(self.sightings[:seen], self.visible[step], upcoming)


def draw_stream(rng: np.random.Generator, pool: ScenePool, n_steps: int) -> Stream:
    """Draw a stream of `n_steps` steps, sampled at a random phase and sometimes flushed."""
    phase = 0 if rng.random() < 0.3 else int(rng.integers(STEP_MS))
    frames = _frame_times(rng, n_steps, phase)
    duration = frames[-1][1] + 1
    n_objects = 0 if rng.random() < 0.04 else int(rng.integers(1, MAX_OBJECTS + 1))
    early = n_steps >= 8 and rng.random() < 0.25
    slots = plan_slots(
        rng,
        duration,
        n_objects,
        room_ms=_SHORT_ROOM_MS if n_steps <= 4 else ROOM_MS,
        last_object_ms=int(duration * rng.uniform(0.2, 0.6)) if early else None,
    )
    chosen: list[int] = []
    taken: set[str] = set()

    def from_pool(slot: Slot) -> Scene:
        index = _draw_scene(rng, pool, -1 if slot.corridor else slot.n_objects, taken)
        chosen.append(index)
        taken.update(thing.kind for thing in pool.scenes[index].objects)
        return pool.scenes[index]

    visits = fill_slots(rng, slots, from_pool)
    return _play(rng, visits, chosen, frames)


def _frame_times(rng: np.random.Generator, n_steps: int, phase: int) -> list[tuple[int, int]]:
    """Return the times of the two frames of each step; a flushed step has one frame twice."""
    flush_share = 0.15 if rng.random() < 0.3 else 0.0
    times: list[tuple[int, int]] = []
    time = phase
    for _ in range(n_steps):
        if rng.random() < flush_share:
            times.append((time, time))
            time += FRAME_INTERVAL_MS
        else:
            times.append((time, time + FRAME_INTERVAL_MS))
            time += STEP_MS
    return times


def _draw_scene(rng: np.random.Generator, pool: ScenePool, size: int, taken: set[str]) -> int:
    for _ in range(_MAX_SCENE_DRAWS):
        index = pool.draw(rng, size)
        if not any(thing.kind in taken for thing in pool.scenes[index].objects):
            return index
    raise RuntimeError(
        f"no scene with {size} objects avoids {sorted(taken)}; the pool of {len(pool.scenes)} "
        "scenes is too small"
    )


def _play(
    rng: np.random.Generator,
    visits: list[Visit],
    chosen: list[int],
    frames: list[tuple[int, int]],
) -> Stream:
    scenes = np.empty(len(frames), np.int64)
    views = np.empty(len(frames), np.int64)
    visible: list[tuple[str, ...] | None] = []
    first_step: dict[str, int] = {}
    current = 0
    for step, (first, second) in enumerate(frames):
        while visits[current].slot.end_ms <= first:
            current += 1
        after = current
        while visits[after].slot.end_ms <= second:
            after += 1
        shown, view = _view(rng, visits, current, after, first, second)
        scenes[step], views[step] = chosen[shown], view
        before = visits[current].visible(first)
        now = visits[after].visible(second)
        for thing in (*before, *now):
            first_step.setdefault(thing.kind, step)
        visible.append(tuple(t.kind for t in now) if current == after and before == now else None)
    sightings = sorted(
        (
            Sighting(
                thing.kind,
                thing.color,
                thing.side,
                visit.scene.room,
                index,
                visit.first_seen_ms(thing),
            )
            for index, visit in enumerate(visits)
            for thing in visit.scene.objects
            if thing.kind in first_step
        ),
        key=lambda sighting: sighting.time_ms,
    )
    return Stream(scenes, views, sightings, [first_step[s.kind] for s in sightings], visible)


def _view(
    rng: np.random.Generator, visits: list[Visit], one: int, other: int, first: int, second: int
) -> tuple[int, View]:
    """Return which visit a step shows, and how."""
    if one != other:
        # Corridors outlast the interval between the frames: one of the two frames shows a corridor.
        if visits[one].slot.corridor:
            return other, View.ARRIVE_WITHOUT if visits[other].hidden(second) else View.ARRIVE
        return one, View.LEAVE_WITHOUT if visits[one].hidden(first) else View.LEAVE
    lacking_first, lacking_second = (
        bool(visits[one].hidden(first)),
        bool(visits[one].hidden(second)),
    )
    if lacking_first and lacking_second:
        return one, WITHOUTS[int(rng.integers(len(WITHOUTS)))]
    if lacking_first:
        return one, View.APPEAR
    if lacking_second:
        return one, View.VANISH
    if first - visits[one].slot.start_ms < FRAME_INTERVAL_MS:
        return one, View.SETTLE
    return one, DWELLS[int(rng.integers(len(DWELLS)))]


def kinds_before(pool: ScenePool, stream: Stream) -> NDArray[np.int8]:
    """Label object tokens with the kinds that occur at earlier tokens: int8 [T * 9, kinds].

    1: occurred, 0: did not, -1: not asked (the token's own kind, and tokens without an object).
    """
    at_token = pool.kinds[stream.scenes, stream.views].reshape(-1)
    shows = at_token[:, None] == np.arange(len(KINDS), dtype=np.int8)
    earlier = (np.cumsum(shows, 0) - shows) > 0
    labels = np.full(shows.shape, -1, np.int8)
    things = shows.any(1)
    labels[things] = earlier[things]
    labels[shows] = -1
    return labels
