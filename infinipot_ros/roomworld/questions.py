"""Ask questions about what was seen, with the exact answers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from infinipot_ros.roomworld.vocabulary import KINDS, NUMBERS, QUESTION_KINDS


class Question(NamedTuple):
    """One question with its only right answer (one word)."""

    kind: str
    text: str
    answer: str


class Sighting(NamedTuple):
    """An object that came into view: what it is, where, in which visit of the tour, and when."""

    kind: str
    color: str
    side: str
    room: str
    visit: int
    time_ms: int


@dataclass(frozen=True)
class Knowledge:
    """What can be asked at one moment: everything seen so far and what is in view now."""

    sightings: Sequence[Sighting]
    """In order of appearance; the kinds are distinct."""
    visible: Sequence[str] | None
    """Kinds in view, in any order; None while the view is changing, when "now" is not asked."""
    upcoming: Collection[str] = ()
    """Kinds that come later in the tour: the hardest to deny."""


_Asker = Callable[[np.random.Generator, Knowledge], "tuple[str, str] | None"]


def make_question(kind: str, rng: np.random.Generator, known: Knowledge) -> Question | None:
    """Draw a question of `kind`; None when nothing unambiguous of that kind can be asked.

    Raises KeyError for a kind that QUESTION_KINDS does not list.
    """
    drawn = _ASKERS[kind](rng, known)
    return None if drawn is None else Question(kind, *drawn)


def _pick(rng: np.random.Generator, sightings: Sequence[Sighting]) -> Sighting:
    return sightings[int(rng.integers(len(sightings)))]


def _absent(rng: np.random.Generator, present: Collection[str], upcoming: Collection[str]) -> str:
    likely = [kind for kind in KINDS if kind in upcoming and kind not in present]
    if likely and rng.random() < 0.3:
        return likely[int(rng.integers(len(likely)))]
    others = [kind for kind in KINDS if kind not in present]
    return others[int(rng.integers(len(others)))]


def _seen(rng: np.random.Generator, known: Knowledge) -> tuple[str, str]:
    if known.sightings and rng.random() < 0.5:
        return f"did you see a {_pick(rng, known.sightings).kind} ?", "yes"
    kinds = {sighting.kind for sighting in known.sightings}
    return f"did you see a {_absent(rng, kinds, known.upcoming)} ?", "no"


def _color(rng: np.random.Generator, known: Knowledge) -> tuple[str, str] | None:
    if not known.sightings:
        return None
    thing = _pick(rng, known.sightings)
    return f"what color was the {thing.kind} ?", thing.color


def _side(rng: np.random.Generator, known: Knowledge) -> tuple[str, str] | None:
    if not known.sightings:
        return None
    thing = _pick(rng, known.sightings)
    return f"which side was the {thing.kind} on ?", thing.side


def _room(rng: np.random.Generator, known: Knowledge) -> tuple[str, str] | None:
    if not known.sightings:
        return None
    thing = _pick(rng, known.sightings)
    return f"which room was the {thing.kind} in ?", thing.room


def _count(_: np.random.Generator, known: Knowledge) -> tuple[str, str]:
    return "how many objects did you see ?", NUMBERS[len(known.sightings)]


def _extreme(known: Knowledge, index: int, word: str) -> tuple[str, str] | None:
    """Ask for the first or last object, where its scene showed no other."""
    if not known.sightings:
        return None
    visit = known.sightings[index].visit
    together = [sighting for sighting in known.sightings if sighting.visit == visit]
    return (f"what did you see {word} ?", together[0].kind) if len(together) == 1 else None


def _first(_: np.random.Generator, known: Knowledge) -> tuple[str, str] | None:
    return _extreme(known, 0, "first")


def _last(_: np.random.Generator, known: Knowledge) -> tuple[str, str] | None:
    return _extreme(known, -1, "last")


def _ordered(rng: np.random.Generator, known: Knowledge, word: str) -> tuple[str, str] | None:
    """Ask for the order of two objects of different scenes."""
    pairs = [(a, b) for a in known.sightings for b in known.sightings if a.visit != b.visit]
    if not pairs:
        return None
    one, other = pairs[int(rng.integers(len(pairs)))]
    holds = one.visit < other.visit if word == "before" else one.visit > other.visit
    return f"was the {one.kind} {word} the {other.kind} ?", "yes" if holds else "no"


def _before(rng: np.random.Generator, known: Knowledge) -> tuple[str, str] | None:
    return _ordered(rng, known, "before")


def _after(rng: np.random.Generator, known: Knowledge) -> tuple[str, str] | None:
    return _ordered(rng, known, "after")


def _now(rng: np.random.Generator, known: Knowledge) -> tuple[str, str] | None:
    visible = known.visible
    if visible is None:
        return None
    if len(visible) <= 1 and rng.random() < 0.5:
        return "what do you see now ?", visible[0] if visible else "nothing"
    if visible and rng.random() < 0.5:
        return f"do you see a {visible[int(rng.integers(len(visible)))]} now ?", "yes"
    # An object seen earlier and gone now is the likeliest confusion.
    gone = [sighting.kind for sighting in known.sightings if sighting.kind not in visible]
    if gone and rng.random() < 0.7:
        return f"do you see a {gone[int(rng.integers(len(gone)))]} now ?", "no"
    return f"do you see a {_absent(rng, visible, known.upcoming)} now ?", "no"


_ASKERS: dict[str, _Asker] = dict(
    zip(
        QUESTION_KINDS,
        (_seen, _color, _side, _room, _count, _first, _last, _before, _after, _now),
        strict=True,
    )
)
