"""What the tests share: an account of a world gathered by looking, and a tiny training."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pytest
import torch

from infinipot_ros.roomworld import Question, RoomWorld
from infinipot_ros.roomworld.phrasings import PHRASINGS
from infinipot_ros.roomworld.training.architecture import build_model, build_tokenizer
from infinipot_ros.roomworld.training.config import ModelShape
from infinipot_ros.roomworld.training.plans import BatchPlan
from infinipot_ros.roomworld.training.pool import encode_pool
from infinipot_ros.roomworld.vocabulary import COLORS, KINDS, NUMBERS, QUESTION_KINDS, ROOMS

MS = 1_000_000
LOOK_EVERY_MS = 5


@dataclass(frozen=True)
class Appearance:
    """An object as somebody standing there saw it come into view, and stay in it."""

    kind: str
    color: str
    side: str
    room: str
    time_ms: int
    last_ms: int

    @property
    def identity(self) -> tuple[str, str]:
        return self.kind, self.color


@dataclass(frozen=True)
class Account:
    """What an observer who looks every 5 ms has seen until a moment, without reading the plan."""

    appearances: tuple[Appearance, ...]
    in_view: tuple[Appearance, ...]

    def of(self, identity: tuple[str, str]) -> list[Appearance]:
        return [a for a in self.appearances if a.identity == identity]


def look(world: RoomWorld, time_ms: int) -> tuple[str, tuple]:
    """Return the room and the objects that are in view; the public `visible` names kinds only."""
    visit = world._visit(time_ms)
    return visit.scene.room, visit.visible(time_ms)


def watch(world: RoomWorld, until_ms: int) -> Account:
    """Look at the world until a moment."""
    times = range(0, until_ms + 1, LOOK_EVERY_MS)
    looks = ((time, look(world, time)) for time in times)
    return account_of(
        (time, [(thing.kind, thing.color, thing.side, room) for thing in things])
        for time, (room, things) in looks
    )


def account_of(looks: Iterable[tuple[int, list[tuple[str, str, str, str]]]]) -> Account:
    """Sum up what was looked at: (time, [(kind, color, side, room)]).

    An object that was out of view appears anew.
    """
    open_now: dict[tuple[str, ...], Appearance] = {}
    over: list[Appearance] = []
    for time, things in looks:
        before, open_now = open_now, {}
        for key in things:
            seen = before.pop(key, Appearance(*key, time, time))
            open_now[key] = replace(seen, last_ms=time)
        over.extend(before.values())
    appearances = sorted((*over, *open_now.values()), key=lambda a: a.time_ms)
    return Account(tuple(appearances), tuple(open_now.values()))


@pytest.fixture(scope="session")
def observer() -> Callable[[RoomWorld, int], Account]:
    return watch


_FORMS = {"now": ("now_what", "now_seen")}
_THING = rf"(?:(?:{'|'.join(COLORS)}) )?(?:{'|'.join(KINDS)})(?: in the (?:{'|'.join(ROOMS)}))?"


@cache
def _pattern(form: str, phrasing: int) -> re.Pattern[str]:
    text = re.escape(PHRASINGS[form][phrasing])
    for letter in "ab":
        text = text.replace(re.escape(f"{{{letter}}}"), f"(?P<{letter}>{_THING})")
    return re.compile(text)


def _read(question: Question) -> tuple[str, list[str]]:
    """Return the form of a question and the things that it names."""
    for form in _FORMS.get(question.kind, (question.kind,)):
        found = _pattern(form, question.phrasing).fullmatch(question.text)
        if found is not None:
            return form, [found.group(letter) for letter in sorted(found.groupdict())]
    raise AssertionError(f"{question} is not said as phrasing {question.phrasing}")


def _fitting(name: str, appearances) -> set[tuple[str, str]]:
    """Return the objects that a name fits, as an observer would understand it."""
    words = name.split()
    return {
        a.identity
        for a in appearances
        if a.kind in words
        and (words[0] not in COLORS or a.color == words[0])
        and (words[-1] not in ROOMS or a.room == words[-1])
    }


def _the_only_one(name: str, account):
    identities = _fitting(name, account.appearances)
    assert len(identities) == 1, f"{name!r} is ambiguous: {identities}"
    return account.of(identities.pop())


def _the_same(values) -> str:
    assert len(set(values)) == 1, f"not always the same: {values}"
    return values[0]


def _truth(question: Question, account) -> str:
    """Work the answer out from what was observed."""
    form, things = _read(question)
    if form == "seen":
        return "yes" if _fitting(things[0], account.appearances) else "no"
    if form == "now_seen":
        return "yes" if _fitting(things[0], account.in_view) else "no"
    if form == "now_what":
        assert len(account.in_view) <= 1
        return account.in_view[0].kind if account.in_view else "nothing"
    if form == "count":
        return NUMBERS[len({a.kind for a in account.appearances})]
    if form in ("first", "last"):
        times = [a.time_ms for a in account.appearances]
        extreme = min(times) if form == "first" else max(times)
        return _the_same([a.kind for a in account.appearances if a.time_ms == extreme])
    seen = [_the_only_one(name, account) for name in things]
    if form in ("before", "after"):
        assert all(name in KINDS for name in things), "it takes more than the kind"
        assert all(len(each) == 1 for each in seen), "it was met again"
        (one,), (other,) = seen
        early = one.last_ms < other.time_ms
        assert early or other.last_ms < one.time_ms, "they overlap in time"
        return "yes" if early == (form == "before") else "no"
    rooms = [a.room for a in seen[0]]
    if form == "where_now":
        return rooms[-1]
    if form == "where_before":
        stops = [room for i, room in enumerate(rooms) if not i or room != rooms[i - 1]]
        assert len(stops) == 2, f"it was in {stops}"
        return stops[0]
    return _the_same([getattr(a, form) for a in seen[0]])


@pytest.fixture(scope="session")
def summed_up():
    return account_of


@pytest.fixture(scope="session")
def read() -> Callable[[Question], tuple[str, list[str]]]:
    return _read


@pytest.fixture(scope="session")
def truth() -> Callable[[Question, Account], str]:
    return _truth


@pytest.fixture(scope="session")
def tokenizer():
    return build_tokenizer()


@pytest.fixture(scope="session")
def model(tokenizer):
    torch.set_num_threads(1)
    made = build_model(ModelShape(layers=3, vision_depth=2), tokenizer, seed=3)
    with torch.no_grad():  # far from the near-zero start, so that every part matters
        for parameter in made.parameters():
            parameter.mul_(3.0 if parameter.ndim > 1 else 1.0)
    return made.eval()


@pytest.fixture(scope="session")
def pool(model):
    return encode_pool(model.model.visual, (1, 2), n_scenes=120, processes=1)


@pytest.fixture(scope="session")
def plan() -> Callable[..., BatchPlan]:
    """Make a plan of small training batches with the given changes."""

    def make(**changes: object) -> BatchPlan:
        values = {
            "seed": (5,), "n_streams": 2, "n_steps": 6, "n_questions": 8,
            "kind_weights": (1.0,) * len(QUESTION_KINDS), "gap_share": 0.5,
            "max_position_span": 1150, "evicted_share": 0.5, "thinned": 1.0, "longest": 6,
            "training": True, **changes,
        }  # fmt: skip
        return BatchPlan(**values)

    return make


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
