"""RoomWorld: a robot's camera on a tour through rooms, and what can be asked about it.

Everything follows from the seed and the time: two processes with the same seed see the same images
and know the same answers without speaking to each other.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from infinipot_ros.roomworld.camera import expose
from infinipot_ros.roomworld.questions import Knowledge, Question, Sighting, make_question
from infinipot_ros.roomworld.scenes import Scene, panorama, random_scene
from infinipot_ros.roomworld.tour import ROOM_MS, Slot, fill_slots, plan_slots
from infinipot_ros.roomworld.vocabulary import CORRIDOR, MAX_OBJECTS

_NS_PER_MS = 1_000_000
_PATROL_MS = 60_000
_PATROL_STREAM = 1
_FRAME_STREAM = 2


class WorldFrame(NamedTuple):
    """One camera image: uint8 RGB [84, 84, 3], and its time since the tour began in nanoseconds."""

    image: NDArray[np.uint8]
    stamp_ns: int


class RoomWorld:
    """An endless camera stream with exact knowledge of what it has shown.

    A tour of `tour_s` seconds meets `n_objects` distinct objects, each of another kind, so that
    questions have one answer. Afterwards the robot patrols empty rooms for ever: the answers about
    the tour stay true while they recede into the past.
    """

    def __init__(
        self,
        seed: int = 0,
        tour_s: float = 120.0,
        n_objects: int | None = None,
        room_ms: tuple[int, int] = ROOM_MS,
    ) -> None:
        """Plan the tour. `n_objects` None draws 2..5. Raises ValueError for values out of range."""
        if tour_s <= 0:
            raise ValueError(f"tour_s is {tour_s}; a tour takes more than 0 seconds")
        rng = np.random.default_rng(seed)
        if n_objects is None:
            n_objects = int(rng.integers(2, MAX_OBJECTS + 1))
        self.seed = seed
        self.tour_ms = round(tour_s * 1000)
        self._room_ms = room_ms
        slots = plan_slots(rng, self.tour_ms, n_objects, room_ms=room_ms)
        taken: set[str] = set()

        def furnish(slot: Slot) -> Scene:
            room = CORRIDOR if slot.corridor else None
            scene = random_scene(rng, room, slot.n_objects, taken)
            taken.update(thing.kind for thing in scene.objects)
            return scene

        self._visits = fill_slots(rng, slots, furnish)
        self._starts = [visit.slot.start_ms for visit in self._visits]
        self._patrols = 0
        self._tour_visits = len(self._visits)
        self._painted = lru_cache(maxsize=4)(self._paint)

    def image(self, time_ns: int) -> NDArray[np.uint8]:
        """Return what the camera sees at `time_ns` since the start: uint8 RGB [84, 84, 3]."""
        time_ms = self._checked_ms(time_ns)
        index = self._visit_index(time_ms)
        visit = self._visits[index]
        since, until = time_ms - visit.slot.start_ms, visit.slot.end_ms - time_ms
        painted = self._painted(index, bool(visit.hidden(time_ms)))
        noise = np.random.default_rng((self.seed, _FRAME_STREAM, time_ms))
        return expose(painted, visit.motion.pan(since, until), visit.motion.light(since), noise)

    def frames(self, fps: float = 10.0, start: int = 0) -> Iterator[WorldFrame]:
        """Yield frame `start`, `start` + 1, ... for ever; frame i is taken at i / fps seconds."""
        if fps <= 0:
            raise ValueError(f"fps is {fps}; frames come at more than 0 per second")
        index = start
        while True:
            stamp_ns = frame_time_ns(index, fps)
            yield WorldFrame(self.image(stamp_ns), stamp_ns)
            index += 1

    def room(self, time_ns: int) -> str:
        """Return the room (or "corridor") in which the camera is at `time_ns`."""
        return self._visits[self._visit_index(self._checked_ms(time_ns))].scene.room

    def visible(self, time_ns: int) -> tuple[str, ...]:
        """Return the kinds of the objects in view at `time_ns`."""
        time_ms = self._checked_ms(time_ns)
        things = self._visits[self._visit_index(time_ms)].visible(time_ms)
        return tuple(thing.kind for thing in things)

    def sightings(self, time_ns: int) -> list[Sighting]:
        """Return everything that came into view until `time_ns`, in order of appearance."""
        now = self._checked_ms(time_ns)
        return [sighting for sighting in self._tour_sightings() if sighting.time_ms <= now]

    def settled(self, time_ns: int, for_ns: int = 1_500_000_000) -> bool:
        """Tell whether the view has shown the same things for the last `for_ns` nanoseconds.

        A memory that samples the camera twice a second has then certainly seen what is in view.
        """
        now = self._checked_ms(time_ns)
        slot = self._visits[self._visit_index(now)].slot
        begun = slot.start_ms
        if slot.change_ms is not None and slot.change_ms <= now:
            begun = slot.change_ms
        return begun == 0 or now - begun >= for_ns // _NS_PER_MS

    def knowledge(self, time_ns: int) -> Knowledge:
        """Return what can be asked of somebody who has watched until `time_ns`."""
        seen = self.sightings(time_ns)
        later = {sighting.kind for sighting in self._tour_sightings()[len(seen) :]}
        visible = self.visible(time_ns) if self.settled(time_ns) else None
        return Knowledge(seen, visible, later)

    def ask(self, kind: str, time_ns: int, rng: np.random.Generator) -> Question | None:
        """Draw a question of `kind` for somebody who has watched until `time_ns`.

        None when nothing unambiguous of that kind can be asked yet.
        """
        return make_question(kind, rng, self.knowledge(time_ns))

    def _tour_sightings(self) -> list[Sighting]:
        found = [
            Sighting(
                thing.kind,
                thing.color,
                thing.side,
                visit.scene.room,
                index,
                visit.first_seen_ms(thing),
            )
            for index, visit in enumerate(self._visits[: self._tour_visits])
            for thing in visit.scene.objects
        ]
        return sorted(found, key=lambda sighting: sighting.time_ms)

    def _checked_ms(self, time_ns: int) -> int:
        if time_ns < 0:
            raise ValueError(f"time_ns is {time_ns}; the world begins at 0")
        return int(time_ns) // _NS_PER_MS

    def _visit_index(self, time_ms: int) -> int:
        while time_ms >= self._visits[-1].slot.end_ms:
            self._extend()
        return bisect_right(self._starts, time_ms) - 1

    def _extend(self) -> None:
        """Append a minute of patrol; its content depends on the seed and its number only."""
        begin = self._visits[-1].slot.end_ms
        rng = np.random.default_rng((self.seed, _PATROL_STREAM, self._patrols))
        self._patrols += 1
        slots = [
            Slot(begin + slot.start_ms, begin + slot.end_ms, slot.corridor)
            for slot in plan_slots(rng, _PATROL_MS, 0, room_ms=self._room_ms)
        ]
        patrol = fill_slots(
            rng, slots, lambda slot: random_scene(rng, CORRIDOR if slot.corridor else None, 0)
        )
        self._visits.extend(patrol)
        self._starts.extend(visit.slot.start_ms for visit in patrol)

    def _paint(self, index: int, something_hidden: bool) -> NDArray[np.float32]:
        scene = self._visits[index].scene
        return panorama(scene, scene.objects[:1] if something_hidden else ())


def frame_time_ns(index: int, fps: float) -> int:
    """Return when frame `index` is taken, in nanoseconds since the start."""
    return round(index * 1_000_000_000 / fps)
