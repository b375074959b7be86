"""RoomWorld: a robot's camera in rooms with things in them, and what can be asked about it.

Everything follows from the seed and the time: two processes with the same seed see the same images
and know the same answers without speaking to each other.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from infinipot_ros.roomworld.camera import expose
from infinipot_ros.roomworld.knowledge import Knowledge, Sighting
from infinipot_ros.roomworld.people import Person
from infinipot_ros.roomworld.phrasings import ALL
from infinipot_ros.roomworld.questions import Question, make_question
from infinipot_ros.roomworld.regimes import REGIME
from infinipot_ros.roomworld.scenes import IMAGE_SIZE, Allowed, Scene, anywhere, panorama
from infinipot_ros.roomworld.tour import Visit, draw_places, plan_quiet, plan_tour, sightings_of

_NS_PER_MS = 1_000_000
_LONGEST_TOUR_S = 1_000_000
"""It is planned as a whole: this takes ten seconds."""
_QUIET_MS = 60_000
_QUIET_VISITS = 4096  # some hours; a world that runs for weeks must not grow
_QUIET_STREAM = 1
_FRAME_STREAM = 2


class WorldFrame(NamedTuple):
    """One camera image: uint8 RGB [120, 120, 3], and its time since the tour began in ns."""

    image: NDArray[np.uint8]
    stamp_ns: int


class RoomWorld:
    """An endless camera stream with exact knowledge of what it has shown.

    A tour of `tour_s` seconds meets objects. Afterwards the robot goes on in the same way for ever
    and meets none: the answers about the tour stay true while they recede into the past.
    """

    def __init__(
        self,
        seed: int = 0,
        tour_s: float = 120.0,
        n_objects: int | None = None,
        regime: str = "tour",
        allowed: Allowed = anywhere,
    ) -> None:
        """Plan the tour.

        Args:
            seed: decides everything.
            tour_s: seconds within which objects are met.
            n_objects: how many, each of its own kind and colour; None draws what the regime has.
            regime: what the camera's life is like, one of REGIMES.
            allowed: which object may stand in which room.

        Raises ValueError for values out of range.
        """
        if seed < 0:
            raise ValueError(f"seed is {seed}; it must be 0 or more")
        if not 0 < tour_s <= _LONGEST_TOUR_S:
            raise ValueError(
                f"tour_s is {tour_s}; a tour takes more than 0 seconds, {_LONGEST_TOUR_S:,} at most"
            )
        if regime not in REGIME:
            raise ValueError(f"regime {regime!r} is unknown: choose one of {', '.join(REGIME)}")
        if n_objects is not None and n_objects < 0:
            raise ValueError(f"n_objects is {n_objects}; it must be 0 or more")
        rng = np.random.default_rng(seed)
        self.seed = seed
        self.tour_ms = round(tour_s * 1000)
        self._regime = REGIME[regime]
        fewest, most = self._regime.objects
        drawn = int(rng.integers(fewest, most + 1))
        self._places = draw_places(rng, self._regime)
        self._visits = plan_tour(
            rng,
            self._regime,
            self._places,
            self.tour_ms,
            drawn if n_objects is None else n_objects,
            allowed,
        )
        self._starts = [visit.slot.start_ms for visit in self._visits]
        self._tour_visits = len(self._visits)
        self._tour_sightings = sightings_of(self._visits)
        self._quiet_minutes = 0
        self._painted = lru_cache(maxsize=4)(_paint)

    def image(self, time_ns: int) -> NDArray[np.uint8]:
        """Return what the camera sees at `time_ns` since the start: uint8 RGB [120, 120, 3]."""
        time_ms = self._checked_ms(time_ns)
        visit = self._visit(time_ms)
        since, until = time_ms - visit.slot.start_ms, visit.slot.end_ms - time_ms
        painted = self._painted(visit.scene, bool(visit.hidden(time_ms)))
        noise = np.random.default_rng((self.seed, _FRAME_STREAM, time_ms))
        passing = noise.random() < self._regime.people_share
        person = Person.draw(noise, IMAGE_SIZE) if passing else None
        return expose(painted, visit.motion, since, until, noise, person)

    def frames(self, fps: float = 10.0, start: int = 0) -> Iterator[WorldFrame]:
        """Yield frame `start`, `start` + 1, ... for ever; frame i is taken at i / fps seconds."""
        if not 0 < fps < float("inf"):
            raise ValueError(f"fps is {fps}; frames come at more than 0 per second")
        index = start
        while True:
            stamp_ns = frame_time_ns(index, fps)
            yield WorldFrame(self.image(stamp_ns), stamp_ns)
            index += 1

    def room(self, time_ns: int) -> str:
        """Return the room (or "corridor") in which the camera is at `time_ns`."""
        return self._visit(self._checked_ms(time_ns)).scene.room

    def visible(self, time_ns: int) -> tuple[str, ...]:
        """Return the kinds of the objects in view at `time_ns`."""
        time_ms = self._checked_ms(time_ns)
        things = self._visit(time_ms).visible(time_ms)
        return tuple(thing.kind for thing in things)

    def sightings(self, time_ns: int) -> list[Sighting]:
        """Return everything that came into view until `time_ns`, in order of appearance."""
        now = self._checked_ms(time_ns)
        return [sighting for sighting in self._tour_sightings if sighting.time_ms <= now]

    def settled(self, time_ns: int, for_ns: int = 1_500_000_000) -> bool:
        """Tell whether the view has shown the same things for the last `for_ns` nanoseconds.

        A memory that samples the camera twice a second has then certainly seen what is in view.
        """
        now = self._checked_ms(time_ns)
        slot = self._visit(now).slot
        begun = slot.start_ms
        if slot.change_ms is not None and slot.change_ms <= now:
            begun = slot.change_ms
        return begun == 0 or now - begun >= for_ns // _NS_PER_MS

    def knowledge(self, time_ns: int) -> Knowledge:
        """Return what can be asked of somebody who has watched until `time_ns`."""
        now = self._checked_ms(time_ns)
        seen = self.sightings(time_ns)
        later = {sighting.identity for sighting in self._tour_sightings[len(seen) :]}
        if not self.settled(time_ns):
            return Knowledge(seen, None, later)
        things = self._visit(now).visible(now)
        return Knowledge(seen, [thing.identity for thing in things], later)

    def ask(
        self,
        kind: str,
        time_ns: int,
        rng: np.random.Generator,
        phrasings: Sequence[int] = ALL,
    ) -> Question | None:
        """Draw a question of `kind` for somebody who has watched until `time_ns`.

        None when nothing unambiguous of that kind can be asked yet. `phrasings` are the numbers of
        the wordings to choose from.
        """
        return make_question(kind, rng, self.knowledge(time_ns), phrasings)

    def _checked_ms(self, time_ns: int) -> int:
        if time_ns < 0:
            raise ValueError(f"time_ns is {time_ns}; the world begins at 0")
        return int(time_ns) // _NS_PER_MS

    def _visit(self, time_ms: int) -> Visit:
        """Return the visit at a time: all of the tour are kept, of the quiet ones the last."""
        n_tour = self._tour_visits
        kept_from = self._starts[n_tour] if len(self._visits) > n_tour else 0
        if self._visits[n_tour - 1].slot.end_ms <= time_ms < kept_from:
            # Asked for what was dropped: the quiet phase is planned anew, and comes out the same.
            del self._visits[n_tour:], self._starts[n_tour:]
            self._quiet_minutes = 0
        while time_ms >= self._visits[-1].slot.end_ms:
            self._extend()
        return self._visits[bisect_right(self._starts, time_ms) - 1]

    def _extend(self) -> None:
        """Append a quiet minute: it follows from the seed, its number and the end of the last."""
        rng = np.random.default_rng((self.seed, _QUIET_STREAM, self._quiet_minutes))
        self._quiet_minutes += 1
        quiet = plan_quiet(rng, self._regime, self._places, self._visits[-1], _QUIET_MS)
        self._visits.extend(quiet)
        self._starts.extend(visit.slot.start_ms for visit in quiet)
        oldest = slice(self._tour_visits, len(self._visits) - max(_QUIET_VISITS, len(quiet)))
        del self._visits[oldest], self._starts[oldest]


def _paint(scene: Scene, something_hidden: bool) -> NDArray[np.float32]:
    return panorama(scene, scene.objects[:1] if something_hidden else ())


def frame_time_ns(index: int, fps: float) -> int:
    """Return when frame `index` is taken, in nanoseconds since the start."""
    return round(index * 1_000_000_000 / fps)
