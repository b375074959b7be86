"""Plan the robot's tour: which scene is in front of the camera when, what comes and goes there.

The plan is separate from the painting, so that training can run the same plans over scenes that
were encoded beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from infinipot_ros.roomworld.camera import CameraMotion
from infinipot_ros.roomworld.scenes import Scene, SceneObject
from infinipot_ros.roomworld.vocabulary import MAX_OBJECTS

ROOM_MS = (1500, 6000)
"""Shortest and longest visit to a room."""
CORRIDOR_MS = (700, 1500)
"""Shortest and longest way between two rooms; longer than a sampling interval of 500 ms, so that
no temporal step shows two rooms."""
MAX_PER_SCENE = 3
_TRANSIENT_ROOM_MS = 3000
_TRANSIENT_SHARE = 0.25


@dataclass(frozen=True)
class Slot:
    """A stretch of the tour in one place, before it is decided what stands there."""

    start_ms: int
    end_ms: int
    corridor: bool
    n_objects: int = 0
    change_ms: int | None = None
    """When the first object of the scene comes or goes; None: nothing changes."""
    comes: bool = False
    """Whether that object comes (True) or goes (False) at `change_ms`."""


@dataclass(frozen=True)
class Visit:
    """A slot with the scene that fills it."""

    slot: Slot
    scene: Scene
    motion: CameraMotion

    def hidden(self, time_ms: int) -> tuple[SceneObject, ...]:
        """Return the objects of the scene that are not there at `time_ms`."""
        change = self.slot.change_ms
        if change is None or (time_ms >= change) == self.slot.comes:
            return ()
        return self.scene.objects[:1]

    def visible(self, time_ms: int) -> tuple[SceneObject, ...]:
        """Return the objects in view at `time_ms`."""
        hidden = self.hidden(time_ms)
        return tuple(thing for thing in self.scene.objects if thing not in hidden)

    def first_seen_ms(self, thing: SceneObject) -> int:
        """Return when `thing` first comes into view."""
        slot = self.slot
        late = slot.comes and slot.change_ms is not None and thing == self.scene.objects[0]
        return slot.change_ms if late and slot.change_ms is not None else slot.start_ms


def plan_slots(
    rng: np.random.Generator,
    duration_ms: int,
    n_objects: int,
    *,
    room_ms: tuple[int, int] = ROOM_MS,
    last_object_ms: int | None = None,
) -> list[Slot]:
    """Plan rooms and corridors that cover [0, duration_ms) and spread `n_objects` over the rooms.

    `last_object_ms`: rooms that start later stay empty. Fewer objects are placed when there are too
    few rooms for them. Raises ValueError for a duration below 1 ms or a count outside 0..5.
    """
    if duration_ms < 1:
        raise ValueError(f"duration_ms is {duration_ms}; a tour takes at least 1 ms")
    if not 0 <= n_objects <= MAX_OBJECTS:
        raise ValueError(f"n_objects is {n_objects}; a tour has 0 to {MAX_OBJECTS} objects")
    slots = _empty_slots(rng, duration_ms, room_ms)
    latest = duration_ms if last_object_ms is None else last_object_ms
    rooms = [i for i, slot in enumerate(slots) if not slot.corridor and slot.start_ms < latest]
    rng.shuffle(rooms)
    left = n_objects
    for rank, index in enumerate(rooms):
        if left == 0:
            break
        size = _scene_size(rng, left, rooms_left=len(rooms) - rank)
        slots[index] = _filled(rng, slots[index], size)
        left -= size
    return slots


def fill_slots(
    rng: np.random.Generator, slots: Sequence[Slot], scene_for: Callable[[Slot], Scene]
) -> list[Visit]:
    """Put a scene into every slot and draw how the camera moves in it."""
    return [Visit(slot, scene_for(slot), CameraMotion.draw(rng)) for slot in slots]


def _empty_slots(
    rng: np.random.Generator, duration_ms: int, room_ms: tuple[int, int]
) -> list[Slot]:
    slots: list[Slot] = []
    time = 0
    corridor = bool(rng.random() < 0.2)
    while time < duration_ms:
        shortest, longest = CORRIDOR_MS if corridor else room_ms
        end = time + int(rng.integers(shortest, longest + 1))
        slots.append(Slot(time, end, corridor))
        time, corridor = end, not corridor
    return slots


def _scene_size(rng: np.random.Generator, left: int, rooms_left: int) -> int:
    """Draw how many of the `left` objects stand in one room."""
    crowded = left > rooms_left
    if left == 1 or not (crowded or rng.random() < 0.35):
        return 1
    return int(rng.integers(2, min(MAX_PER_SCENE, left) + 1))


def _filled(rng: np.random.Generator, slot: Slot, n_objects: int) -> Slot:
    length = slot.end_ms - slot.start_ms
    if length < _TRANSIENT_ROOM_MS or rng.random() >= _TRANSIENT_SHARE:
        return Slot(slot.start_ms, slot.end_ms, False, n_objects)
    change = slot.start_ms + int(length * rng.uniform(0.4, 0.6))
    return Slot(slot.start_ms, slot.end_ms, False, n_objects, change, bool(rng.random() < 0.5))
