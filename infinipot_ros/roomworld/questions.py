"""Ask questions about what was seen, with the exact answers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import numpy as np

from infinipot_ros.roomworld.knowledge import Identity, Knowledge, Sighting
from infinipot_ros.roomworld.phrasings import ALL, phrase
from infinipot_ros.roomworld.vocabulary import COLORS, KINDS, MAX_COUNT, NUMBERS, QUESTION_KINDS

_ATTEMPTS = 12


class Question(NamedTuple):
    """One question with its only right answer (one word)."""

    kind: str
    text: str
    answer: str
    phrasing: int = 0
    """Number of the phrasing, see `phrasings`."""
    referent: int = 0
    """Index of the word by which it is clear what is asked about."""
    about: tuple[Sighting, ...] = ()
    """The sightings of the objects that it is about: the evidence, oldest first."""

    @property
    def fact(self) -> tuple[object, ...]:
        """Return what it asks for, whatever its words; where nothing was seen, its words."""
        return self.kind, self.answer, self.about or self.text

    @property
    def typed(self) -> str:
        """Return the text as people type it."""
        text = self.text.capitalize()
        for mark in "?.,":
            text = text.replace(f" {mark}", mark)
        return text


class _Draft(NamedTuple):
    """A question before it is put into words."""

    form: str
    answer: str
    things: tuple[str, ...] = ()
    about: tuple[Sighting, ...] = ()


_Asker = Callable[[np.random.Generator, Knowledge], "_Draft | None"]


def make_question(
    kind: str, rng: np.random.Generator, known: Knowledge, phrasings: Sequence[int] = ALL
) -> Question | None:
    """Draw a question of `kind`; None when nothing unambiguous of that kind can be asked.

    Raises KeyError for a kind that QUESTION_KINDS does not list.
    """
    draft = _ASKERS[kind](rng, known)
    number = phrasings[int(rng.integers(len(phrasings)))]
    if draft is None:
        return None
    text, referent = phrase(draft.form, number, *draft.things)
    return Question(kind, text, draft.answer, number, referent, draft.about)


def _pick(rng: np.random.Generator, members: Sequence[Identity]) -> Identity:
    return members[int(rng.integers(len(members)))]


def _seen(rng: np.random.Generator, known: Knowledge) -> _Draft:
    objects = list(known.objects)
    if objects and rng.random() < 0.5:
        kind, color = identity = _pick(rng, objects)
        thing = f"{color} {kind}" if rng.random() < 0.5 else kind
        return _Draft("seen", "yes", (thing,), known.objects[identity])
    return _Draft("seen", "no", (_absent(rng, objects, known.upcoming),))


def _absent(
    rng: np.random.Generator, present: Sequence[Identity], upcoming: Collection[Identity]
) -> str:
    """Name something that is not among `present`, mostly something close to it."""
    kinds = {kind for kind, _ in present}
    colors = list(COLORS)
    if kinds and rng.random() < 0.5:
        # A kind that was there in another colour: knowing the kind alone is not enough.
        kind = sorted(kinds)[int(rng.integers(len(kinds)))]
        others = [color for color in colors if (kind, color) not in present]
        if others:
            return f"{others[int(rng.integers(len(others)))]} {kind}"
    later = sorted({kind for kind, _ in upcoming} - kinds)
    pool = later if later and rng.random() < 0.3 else [kind for kind in KINDS if kind not in kinds]
    if not pool:
        free = [(k, c) for k in KINDS for c in colors if (k, c) not in present]
        kind, color = free[int(rng.integers(len(free)))]
        return f"{color} {kind}"
    kind = pool[int(rng.integers(len(pool)))]
    return kind if rng.random() < 0.7 else f"{colors[int(rng.integers(len(colors)))]} {kind}"


def _color(rng: np.random.Generator, known: Knowledge) -> _Draft | None:
    """Ask for the colour of the only one of its kind, or of the only one of its kind in a room."""
    if not known.objects:
        return None
    for _ in range(_ATTEMPTS):
        kind, color = identity = _pick(rng, list(known.objects))
        alike = [other for other in known.objects if other[0] == kind]
        sightings = known.objects[identity]
        if len(alike) == 1:
            return _Draft("color", color, (kind,), sightings)
        room = sightings[int(rng.integers(len(sightings)))].room
        there = {s.identity for s in known.sightings if s.kind == kind and s.room == room}
        if len(there) == 1:
            here = tuple(sighting for sighting in sightings if sighting.room == room)
            return _Draft("color", color, (f"{kind} in the {room}",), here)
    return None


def _constant(
    rng: np.random.Generator, known: Knowledge, form: str, field: Callable[[Sighting], str]
) -> _Draft | None:
    """Ask for a property of an object that was the same whenever it was seen."""
    fitting = [
        identity
        for identity, sightings in known.objects.items()
        if len({(field(s), s.room) for s in sightings}) == 1
    ]
    if not fitting:
        return None
    identity = _pick(rng, fitting)
    sightings = known.objects[identity]
    return _Draft(form, field(sightings[0]), (known.name(identity),), sightings)


def _side(rng: np.random.Generator, known: Knowledge) -> _Draft | None:
    return _constant(rng, known, "side", lambda sighting: sighting.side)


def _room(rng: np.random.Generator, known: Knowledge) -> _Draft | None:
    return _constant(rng, known, "room", lambda sighting: sighting.room)


def _count(_: np.random.Generator, known: Knowledge) -> _Draft | None:
    kinds = {kind for kind, _ in known.objects}
    if len(kinds) > MAX_COUNT:
        return None
    return _Draft("count", NUMBERS[len(kinds)], (), tuple(known.sightings))


def _first(_: np.random.Generator, known: Knowledge) -> _Draft | None:
    return _extreme(known, known.sightings[:1], "first")


def _last(_: np.random.Generator, known: Knowledge) -> _Draft | None:
    return _extreme(known, known.sightings[-1:], "last")


def _extreme(known: Knowledge, ends: Sequence[Sighting], form: str) -> _Draft | None:
    """Ask for the first or last object, where its visit showed no other."""
    if not ends:
        return None
    together = [sighting for sighting in known.sightings if sighting.visit == ends[0].visit]
    return _Draft(form, together[0].kind, (), tuple(together)) if len(together) == 1 else None


def _ordered(rng: np.random.Generator, known: Knowledge, word: str) -> _Draft | None:
    """Ask for the order of two visits, by objects that were seen in no other one.

    Each is the only one of its kind.
    """
    visits = {
        identity: sightings[0].visit
        for identity, sightings in known.objects.items()
        if len(sightings) == 1 and known.name(identity) == identity[0]
    }
    pairs = [(a, b) for a in visits for b in visits if visits[a] < visits[b]]
    if not pairs:
        return None
    pair = pairs[int(rng.integers(len(pairs)))]
    early_first = bool(rng.random() < 0.5)
    one, other = pair if early_first else pair[::-1]
    holds = early_first == (word == "before")
    about = (*known.objects[pair[0]], *known.objects[pair[1]])
    return _Draft(word, "yes" if holds else "no", (one[0], other[0]), about)


def _before(rng: np.random.Generator, known: Knowledge) -> _Draft | None:
    return _ordered(rng, known, "before")


def _after(rng: np.random.Generator, known: Knowledge) -> _Draft | None:
    return _ordered(rng, known, "after")


def _now(rng: np.random.Generator, known: Knowledge) -> _Draft | None:
    visible = known.visible
    if visible is None:
        return None
    in_view = tuple(s for s in known.sightings if s.identity in visible)
    if len(visible) <= 1 and rng.random() < 0.5:
        return _Draft("now_what", visible[0][0] if visible else "nothing", (), in_view)
    if visible and rng.random() < 0.5:
        kind, color = _pick(rng, visible)
        thing = f"{color} {kind}" if rng.random() < 0.3 else kind
        return _Draft("now_seen", "yes", (thing,), in_view)
    # An object seen earlier and gone now is the likeliest confusion.
    kinds = {kind for kind, _ in visible}
    gone = sorted({kind for kind, _ in known.objects} - kinds)
    if gone and rng.random() < 0.7:
        return _Draft("now_seen", "no", (gone[int(rng.integers(len(gone)))],))
    others = [kind for kind in KINDS if kind not in kinds]
    return _Draft("now_seen", "no", (others[int(rng.integers(len(others)))],))


def _where_now(rng: np.random.Generator, known: Knowledge) -> _Draft | None:
    """Ask where an object was seen last, mostly one that was moved."""
    moved = _moved(known)
    if not known.objects:
        return None
    identity = _pick(rng, moved if moved and rng.random() < 0.8 else list(known.objects))
    sightings = known.objects[identity]
    return _Draft("where_now", sightings[-1].room, (known.name(identity),), sightings)


def _where_before(rng: np.random.Generator, known: Knowledge) -> _Draft | None:
    """Ask where an object was before it was moved."""
    moved = _moved(known)
    if not moved:
        return None
    identity = _pick(rng, moved)
    sightings = known.objects[identity]
    return _Draft("where_before", sightings[0].room, (known.name(identity),), sightings)


def _moved(known: Knowledge) -> list[Identity]:
    """Return the objects that were in one room and then in another."""
    found = []
    for identity, sightings in known.objects.items():
        rooms = [s.room for s in sightings]
        stops = [room for i, room in enumerate(rooms) if i == 0 or room != rooms[i - 1]]
        if len(stops) == 2:
            found.append(identity)
    return found


_ASKERS: dict[str, _Asker] = dict(
    zip(
        QUESTION_KINDS,
        (
            _seen, _color, _side, _room, _count, _first, _last, _before, _after, _now,
            _where_now, _where_before,
        ),
        strict=True,
    )
)  # fmt: skip
