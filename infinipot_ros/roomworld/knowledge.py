"""What somebody who watches knows: which objects were seen, where and when.

An object is known by its kind and colour: whoever meets a red cup twice has met one red cup, which
may have been moved in between.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

Identity = tuple[str, str]
"""Kind and colour of an object."""


class Sighting(NamedTuple):
    """An object in one visit: what it is, where, in which visit of the tour, and since when."""

    kind: str
    color: str
    side: str
    room: str
    visit: int
    time_ms: int

    @property
    def identity(self) -> Identity:
        """Return what makes the object itself."""
        return self.kind, self.color


@dataclass(frozen=True)
class Knowledge:
    """What can be asked at one moment: everything seen so far and what is in view now."""

    sightings: Sequence[Sighting]
    """In order of appearance."""
    visible: Sequence[Identity] | None
    """Objects in view, in any order; None while the view is changing, when "now" is not asked."""
    upcoming: Collection[Identity] = ()
    """Objects that come later: the hardest to deny."""

    @cached_property
    def objects(self) -> dict[Identity, tuple[Sighting, ...]]:
        """The objects in order of first appearance, each with all its sightings."""
        found: dict[Identity, list[Sighting]] = {}
        for sighting in self.sightings:
            found.setdefault(sighting.identity, []).append(sighting)
        return {identity: tuple(sightings) for identity, sightings in found.items()}

    def name(self, identity: Identity) -> str:
        """Return the shortest name that fits one object only: "cup" or "red cup"."""
        kind, color = identity
        alike = sum(other == kind for other, _ in self.objects)
        return kind if alike == 1 else f"{color} {kind}"
