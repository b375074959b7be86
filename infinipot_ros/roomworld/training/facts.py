"""Label the last thing that a question names: by which words, and what was seen of it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from infinipot_ros.roomworld.knowledge import Knowledge
from infinipot_ros.roomworld.questions import Question
from infinipot_ros.roomworld.vocabulary import COLORS, KINDS, ROOMS, SIDES

PROPERTIES: tuple[tuple[str, ...], ...] = (tuple(COLORS), SIDES, ROOMS, ROOMS)
"""Values of a thing's colour, side, first room and last room."""
N_FACTS = len(PROPERTIES) + len(KINDS)

Name = tuple[str, str, str]
"""Words for kind, colour and room, "" where a name does without."""


def naming_of(question: Question) -> Name:
    """Return the words for kind, colour and room that name the question's last thing, or ""."""
    words = question.text.split()[: question.referent + 1]
    room = ""
    if words[-1] in ROOMS:  # "cup in the kitchen"
        words, room = words[:-3], words[-1]
    if words[-1] not in KINDS:
        return "", "", ""
    color = words[-2] if words[-2] in COLORS else ""
    return words[-1], color, room


def facts_about(name: Name, known: Knowledge) -> NDArray[np.int64]:
    """Return what is known of the only thing of that name: int64 [4 + kinds], -1 where not asked.

    First the numbers of its PROPERTIES, then per kind whether it came before the thing, 0 or 1. The
    thing's own kind is not asked, nor its side where it was seen on several, nor what came before
    where it was seen in several visits.
    """
    facts = np.full(N_FACTS, -1, np.int64)
    kind, color, room = name
    fitting = [
        sightings
        for identity, sightings in known.objects.items()
        if identity[0] == kind
        and color in ("", identity[1])
        and (not room or any(sighting.room == room for sighting in sightings))
    ]
    if len(fitting) != 1:
        return facts
    first, last = fitting[0][0], fitting[0][-1]
    sides = {sighting.side for sighting in fitting[0]}
    values = (first.color, first.side if len(sides) == 1 else "", first.room, last.room)
    for number, (value, words) in enumerate(zip(values, PROPERTIES, strict=True)):
        facts[number] = words.index(value) if value else -1
    if len(fitting[0]) > 1:  # its later sightings know of more that came before
        return facts
    came = {sighting.kind for sighting in known.sightings if sighting.visit < first.visit}
    facts[len(PROPERTIES) :] = [other in came for other in KINDS]
    facts[len(PROPERTIES) + KINDS.index(kind)] = -1
    return facts
