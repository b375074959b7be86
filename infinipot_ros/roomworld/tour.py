"""Plan the robot's tour: which scene is in front of the camera when, what comes and goes there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from infinipot_ros.roomworld.camera import CameraMotion
from infinipot_ros.roomworld.knowledge import Identity, Sighting
from infinipot_ros.roomworld.regimes import Regime
from infinipot_ros.roomworld.scenes import (
    Allowed,
    Scene,
    SceneObject,
    place_objects,
    random_look,
    random_room,
    varied_identity,
)
from infinipot_ros.roomworld.vocabulary import CORRIDOR, ROOMS

_SECOND_MS = 1000
_TRANSIENT_STAY_MS = 3000
_TRANSIENT_SHARE = 0.25
_STAYS_IN_PLACE = 2


@dataclass(frozen=True)
class Slot:
    """A stretch of the tour in one place."""

    start_ms: int
    end_ms: int
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


def sightings_of(visits: Sequence[Visit]) -> list[Sighting]:
    """Return what comes into view in these visits, in order of appearance."""
    found = [
        Sighting(
            thing.kind, thing.color, thing.side, visit.scene.room, index, visit.first_seen_ms(thing)
        )
        for index, visit in enumerate(visits)
        for thing in visit.scene.objects
    ]
    return sorted(found, key=lambda sighting: sighting.time_ms)


@dataclass(frozen=True)
class Place:
    """Somewhere to look at: a room, and what it looks like from there."""

    room: str
    look: int


def draw_places(rng: np.random.Generator, regime: Regime) -> tuple[Place, ...]:
    """Draw the places of a regime that has a fixed number of them, in different rooms first."""
    rooms = [ROOMS[int(i)] for i in rng.permutation(len(ROOMS))]
    return tuple(Place(rooms[i % len(rooms)], random_look(rng)) for i in range(regime.places or 0))


def plan_tour(
    rng: np.random.Generator,
    regime: Regime,
    places: Sequence[Place],
    duration_ms: int,
    n_objects: int,
    allowed: Allowed,
) -> list[Visit]:
    """Plan the visits that cover [0, duration_ms), within which all objects come into view.

    Fewer objects are met when the tour is too short for them, or when no more are allowed. Raises
    ValueError for a duration below 1 ms.
    """
    if duration_ms < 1:
        raise ValueError(f"duration_ms is {duration_ms}; a tour takes at least 1 ms")
    stays = _draw_stays(rng, regime, places, duration_ms, 0)
    rooms = [i for i, (_, place) in enumerate(stays) if place.room != CORRIDOR]
    if n_objects and regime.quiet_ms is not None:
        stays, rooms = _with_events(rng, regime, stays, n_objects, duration_ms)
    standing = _furnish(rng, regime, stays, rooms, n_objects, allowed)
    return [
        _visit(rng, regime, slot, place, standing.get(i, ()), duration_ms)
        for i, (slot, place) in enumerate(stays)
    ]


def plan_quiet(
    rng: np.random.Generator,
    regime: Regime,
    places: Sequence[Place],
    last: Visit,
    duration_ms: int,
) -> list[Visit]:
    """Plan visits without objects that go on after visit `last` for at least `duration_ms`."""
    begin_ms = last.slot.end_ms
    stays = _draw_stays(rng, regime, places, duration_ms, begin_ms, last.scene.room)
    return [_visit(rng, regime, slot, place, (), begin_ms) for slot, place in stays]


_Stay = tuple[Slot, Place]


def _draw_stays(
    rng: np.random.Generator,
    regime: Regime,
    places: Sequence[Place],
    duration_ms: int,
    begin_ms: int,
    after: str | None = None,
) -> list[_Stay]:
    stays: list[_Stay] = []
    known: list[Place] = []
    time, end = begin_ms, begin_ms + duration_ms
    turn = int(rng.integers(len(places))) if places else 0
    corridor = regime.corridor_ms is not None
    if corridor:
        corridor = bool(rng.random() < 0.2) if after is None else after != CORRIDOR
    while time < end:
        if corridor and regime.corridor_ms is not None:
            place, bounds = Place(CORRIDOR, random_look(rng)), regime.corridor_ms
        else:
            bounds = regime.quiet_ms or regime.stay_ms
            if places:
                place, turn = places[turn % len(places)], turn + 1
            elif known and rng.random() < regime.revisit_share:
                place = known[int(rng.integers(len(known)))]
            else:
                place = Place(random_room(rng), random_look(rng))
                known.append(place)
        stays.append((Slot(time, time + _length(rng, regime, bounds)), place))
        time = stays[-1][0].end_ms
        corridor = regime.corridor_ms is not None and not corridor
    return stays


def _length(rng: np.random.Generator, regime: Regime, bounds: tuple[int, int]) -> int:
    length = int(rng.integers(bounds[0], bounds[1] + 1))
    if regime.corridor_ms is not None:
        return length
    return max(1, round(length / _SECOND_MS)) * _SECOND_MS  # cuts lie between two steps


def _with_events(
    rng: np.random.Generator, regime: Regime, stays: list[_Stay], n_objects: int, duration_ms: int
) -> tuple[list[_Stay], list[int]]:
    """Put a short stay into as many of the long quiet ones as there may be objects."""
    split = set(rng.permutation(len(stays))[:n_objects].tolist())
    found: list[_Stay] = []
    events: list[int] = []
    for i, (slot, place) in enumerate(stays):
        event = _length(rng, regime, regime.stay_ms)
        end = min(slot.end_ms, duration_ms - duration_ms % _SECOND_MS)
        start = end - event
        if i not in split or start <= slot.start_ms:
            found.append((slot, place))
            continue
        found.append((Slot(slot.start_ms, start), place))
        events.append(len(found))
        found.append((Slot(start, end), place))
        if end < slot.end_ms:
            found.append((Slot(end, slot.end_ms), place))
    return found, events


def _furnish(
    rng: np.random.Generator,
    regime: Regime,
    stays: Sequence[_Stay],
    rooms: Sequence[int],
    n_objects: int,
    allowed: Allowed,
) -> dict[int, tuple[SceneObject, ...]]:
    """Decide what stands where in which stay: the stay's number and its objects."""
    standing: dict[int, tuple[SceneObject, ...]] = {}
    taken: set[Identity] = set()
    left = n_objects
    free = [int(i) for i in rng.permutation(np.asarray(rooms, np.int64))]
    sizes = np.arange(1, len(regime.per_scene) + 1)
    shares = np.asarray(regime.per_scene) / sum(regime.per_scene)
    while left and free:
        stay = free.pop()
        if stay in standing:
            continue
        size = min(left, int(rng.choice(sizes, p=shares)))
        place = stays[stay][1]
        chosen: list[Identity] = []
        for _ in range(size):
            try:
                chosen.append(varied_identity(rng, place.room, taken, allowed))
            except ValueError:
                break  # all that may stand in this room have been met
            taken.add(chosen[-1])
        if not chosen:
            continue
        things = place_objects(rng, chosen)
        left -= len(chosen)
        # Where the robot comes by again and again, things stand there for a while.
        later = [number for number in rooms if number > stay and stays[number][1] == place]
        again = later[: int(rng.integers(_STAYS_IN_PLACE))]
        for number in (stay, *(again if regime.places else ())):
            if number not in standing:
                standing[number] = things
        _move(rng, regime, stays, rooms, max((stay, *again)), things, standing, allowed)
    return standing


def _move(
    rng: np.random.Generator,
    regime: Regime,
    stays: Sequence[_Stay],
    rooms: Sequence[int],
    last: int,
    things: Sequence[SceneObject],
    standing: dict[int, tuple[SceneObject, ...]],
    allowed: Allowed,
) -> None:
    """Let one of `things` turn up alone in another room after stay `last`, now and then."""
    if rng.random() >= regime.move_share:
        return
    thing = things[int(rng.integers(len(things)))]
    room = stays[last][1].room
    elsewhere = [
        number
        for number in rooms
        if number > last
        and number not in standing
        and stays[number][1].room != room
        and allowed(*thing.identity, stays[number][1].room)
    ]
    if elsewhere:
        where = elsewhere[int(rng.integers(len(elsewhere)))]
        standing[where] = place_objects(rng, [thing.identity])


def _visit(
    rng: np.random.Generator,
    regime: Regime,
    slot: Slot,
    place: Place,
    things: tuple[SceneObject, ...],
    tour_end_ms: int,
) -> Visit:
    length = slot.end_ms - slot.start_ms
    may_change = bool(things) and regime.corridor_ms is not None and length >= _TRANSIENT_STAY_MS
    if may_change and rng.random() < _TRANSIENT_SHARE:
        change = slot.start_ms + int(length * rng.uniform(0.4, 0.6))
        comes = bool(rng.random() < 0.5) and change < tour_end_ms
        slot = replace(slot, change_ms=change, comes=comes)
    return Visit(slot, Scene(place.room, things, place.look), CameraMotion.draw(rng, regime.motion))
