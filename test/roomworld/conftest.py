"""What the tests share: an account of a world gathered by looking, and a tiny training."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import pytest

from infinipot_ros.roomworld import RoomWorld

MS = 1_000_000
LOOK_EVERY_MS = 5


@dataclass(frozen=True)
class Appearance:
    """An object as somebody standing there saw it come into view."""

    kind: str
    room: str
    place: int
    time_ms: int


@dataclass(frozen=True)
class Account:
    """What an observer who looks every 5 ms has seen until a moment, without reading the plan."""

    appearances: tuple[Appearance, ...]
    in_view: tuple[str, ...]

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(appearance.kind for appearance in self.appearances)

    def of(self, kind: str) -> Appearance:
        return next(a for a in self.appearances if a.kind == kind)


def watch(world: RoomWorld, until_ms: int) -> Account:
    """Look at the world until a moment, and number the places between changes of room."""
    looks = [
        (time, world.room(time * MS), world.visible(time * MS))
        for time in range(0, until_ms + 1, LOOK_EVERY_MS)
    ]
    appearances: dict[str, Appearance] = {}
    for place, (room, stay) in enumerate(groupby(looks, key=lambda look: look[1])):
        for time, _, visible in stay:
            for kind in visible:
                appearances.setdefault(kind, Appearance(kind, room, place, time))
    return Account(tuple(appearances.values()), looks[-1][2])


@pytest.fixture(scope="session")
def observer():
    return watch


@pytest.fixture(scope="session")
def smoke_training(tmp_path_factory) -> Path:
    """The folder of a training that ran through all stages in a few steps, as a user starts it."""
    folder = tmp_path_factory.mktemp("roomworld") / "uninterrupted"
    subprocess.run(
        [sys.executable, "-m", "infinipot_ros.roomworld.train", "--out", folder, "--smoke"],
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
    )
    return folder
