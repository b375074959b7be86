"""What the demo asks and when, with the true answers where there are any."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from infinipot_ros.roomworld import QUESTION_KINDS, RoomWorld

_NS = 1_000_000_000

REAL_VIDEO_QUESTIONS = (
    "What do you see now?",
    "What did you see first?",
    "Is anything moving?",
    "What colours did you see?",
    "Did you see a person?",
    "What changed since the beginning?",
)
"""Asked of a model that knows real video."""

ROOMWORLD_QUESTIONS = (
    "Did you see a ball?",
    "How many kinds of objects did you see?",
    "What did you see first?",
    "What did you see last?",
    "What color was the ball?",
    "Which room was the ball in?",
)
"""Asked of the embedded model about real video: words it knows; its answers mean nothing there."""


@dataclass(frozen=True)
class PlannedQuestion:
    """A question, the time at which it is asked, and the truth.

    Attributes:
        time_s: seconds after the first image.
        text: the question.
        truth: the right answer; empty where nobody knows.
    """

    time_s: float
    text: str
    truth: str = ""


def plan_for_world(world: RoomWorld, times_s: Sequence[float], seed: int) -> list[PlannedQuestion]:
    """Choose questions whose answers do not hang on a fraction of a second.

    Every kind of question gets its turn. A question is moved on until the view has been the same
    for a while and stays so for a second, so that sampling and latency cannot change its answer.

    Args:
        world: what the camera shows.
        times_s: wanted times, seconds after the first image, ascending.
        seed: of the choice.
    """
    rng = np.random.default_rng(seed)
    waiting = list(QUESTION_KINDS)
    planned: list[PlannedQuestion] = []
    for wanted_s in times_s:
        moment_ns = _calm_moment(world, round(wanted_s * _NS))
        if moment_ns is None:
            continue
        # A kind that cannot be asked yet waits; where none of the waiting can, one comes again.
        for kind in [*waiting, *QUESTION_KINDS]:
            question = world.ask(kind, moment_ns, rng)
            if question is not None:
                break
        else:
            continue
        planned.append(PlannedQuestion(moment_ns / _NS, question.typed, question.answer))
        waiting = [kind for kind in waiting if kind != question.kind] or list(QUESTION_KINDS)
    return planned


def plan_without_truth(texts: Sequence[str], times_s: Sequence[float]) -> list[PlannedQuestion]:
    """Spread the questions over the times, one each, from the first again where there are more."""
    return [
        PlannedQuestion(time_s, texts[index % len(texts)]) for index, time_s in enumerate(times_s)
    ]


def _calm_moment(world: RoomWorld, time_ns: int, patience_s: int = 12) -> int | None:
    """Return the first moment from `time_ns` on with a settled view that lasts another second.

    None if there is none within `patience_s` seconds.
    """
    step_ns = _NS // 4
    for index in range(4 * patience_s):
        moment_ns = time_ns + index * step_ns
        if world.settled(moment_ns) and world.settled(moment_ns + _NS, for_ns=5 * _NS // 2):
            return moment_ns
    return None
