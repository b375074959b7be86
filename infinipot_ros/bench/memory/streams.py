"""The streams of the benchmark: a tour with events, then quiet, and questions about them."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from infinipot_ros.roomworld import (
    QUESTION_KINDS,
    REGIMES,
    Question,
    RoomWorld,
    frame_time_ns,
)

FPS = 2.0
STEP_S = 1
"""Seconds of a temporal step: two frames of two a second."""
NOW = "now"
TOUR_KINDS = tuple(kind for kind in QUESTION_KINDS if kind != NOW)
"""Kinds whose answers stay true when the tour is over; "now" depends on the moment."""

_FIRST_WORLD = 950_000_000
"""World seeds of this benchmark start here: neither training nor evaluation has seen them."""
MOST_STREAMS = 10_000
"""Streams of a regime that have a world of their own."""
_WORLDS_PER_SEED, _WORLDS_PER_REGIME = 100_000, MOST_STREAMS
_TOUR_STREAM, _NOW_STREAM = 1, 2
_ATTEMPTS = 4


def regimes() -> tuple[str, ...]:
    """Return the regimes that the benchmark compares; "tour" is what the model was trained on."""
    return tuple(regime for regime in REGIMES if regime != "tour")


@dataclass(frozen=True)
class StreamSpec:
    """One stream: [prelude, quiet | tour with events | quiet], in steps of a second.

    Attributes:
        regime: how the camera moves and what else happens.
        number: of the stream within its regime.
        seed: of the run; with `number` it chooses the world.
        tour_steps: steps of the tour, in which all events lie.
        prelude_steps: steps of the same world's quiet phase that are shown before the tour, so
            that a stream can be longer without another question, event or delay.
        quiet_steps: steps after the tour.
    """

    regime: str
    number: int
    seed: int
    tour_steps: int
    quiet_steps: int
    prelude_steps: int = 0

    @property
    def steps(self) -> int:
        """Return the length of the whole stream, steps."""
        return self.prelude_steps + self.tour_steps + self.quiet_steps

    @property
    def world_seed(self) -> int:
        """Return the seed of the world; also that of policies that draw at random."""
        regime = regimes().index(self.regime)
        return (
            _FIRST_WORLD + _WORLDS_PER_SEED * self.seed + _WORLDS_PER_REGIME * regime + self.number
        )

    def world(self) -> RoomWorld:
        """Make the world; its clock starts with the tour."""
        # A step is asked about at its last frame, half a second before it ends: what happened
        # later would be true but unseen.
        tour_s = float(self.tour_steps - STEP_S)
        return RoomWorld(self.world_seed, tour_s, regime=self.regime)

    def rng(self, *stream: int) -> np.random.Generator:
        """Return a generator that depends on this stream and the numbers given, nothing else."""
        return np.random.default_rng(
            (self.seed, zlib.crc32(self.regime.encode()), self.number, *stream)
        )


def images(spec: StreamSpec, world: RoomWorld) -> Iterator[NDArray[np.uint8]]:
    """Yield the frames of the stream, uint8 RGB [h, w, 3], two a step.

    The prelude is what the quiet phase will look like behind the end of the stream.
    """
    per_step = round(STEP_S * FPS)
    live = (spec.tour_steps + spec.quiet_steps) * per_step
    for start, count in ((live, spec.prelude_steps * per_step), (0, live)):
        yield from (frame.image for frame in islice(world.frames(FPS, start), count))


def moment_ns(spec: StreamSpec, step: int) -> int:
    """Return the world's time of the last frame of the first `step` steps of the stream, ns."""
    return frame_time_ns(round((step - spec.prelude_steps) * STEP_S * FPS) - 1, FPS)


def tour_questions(spec: StreamSpec, world: RoomWorld, per_kind: int) -> list[Question]:
    """Draw the questions about the tour, up to `per_kind` of each kind; they stay true for ever."""
    time_ns = moment_ns(spec, spec.prelude_steps + spec.tour_steps)
    rng = spec.rng(_TOUR_STREAM)
    return [
        question for kind in TOUR_KINDS for question in _draw(world, kind, time_ns, rng, per_kind)
    ]


def now_questions(spec: StreamSpec, world: RoomWorld, step: int, count: int) -> list[Question]:
    """Draw up to `count` questions about the present after `step` steps of the stream."""
    live = step - spec.prelude_steps
    return _draw(world, NOW, moment_ns(spec, step), spec.rng(_NOW_STREAM, live), count)


def _draw(
    world: RoomWorld, kind: str, time_ns: int, rng: np.random.Generator, count: int
) -> list[Question]:
    """Draw up to `count` questions about different facts; none where nothing can be asked."""
    drawn = (world.ask(kind, time_ns, rng) for _ in range(_ATTEMPTS * count))
    distinct = {question.fact: question for question in drawn if question}
    return list(islice(distinct.values(), count))
