"""What objects are called: by words that fit one of them only, or not at all."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from infinipot_ros.roomworld import REGIMES, Knowledge, RoomWorld, Sighting
from infinipot_ros.roomworld.questions import make_question
from infinipot_ros.roomworld.vocabulary import COLORS

S = 1_000_000_000


def thing(kind: str, visit: int, color: str = "red", room: str = "office", side: str = "left"):
    return Sighting(kind, color, side, room, visit, 1000 * visit)


def questions(kind: str, known: Knowledge, n: int = 200):
    rng = np.random.default_rng(0)
    return [make_question(kind, rng, known, range(1)) for _ in range(n)]


def texts(kind: str, known: Knowledge) -> dict[str, str]:
    return {q.text: q.answer for q in questions(kind, known) if q is not None}


@pytest.mark.parametrize("regime", REGIMES)
def test_kind_and_color_are_one_object(regime: str) -> None:
    repeated = 0
    for seed in range(40):
        world = RoomWorld(seed, tour_s=60, regime=regime)
        objects = world.knowledge(60 * S).objects
        assert len(set(objects)) == len(objects)
        kinds = [kind for kind, _ in objects]
        repeated += len(set(kinds)) < len(kinds)
        for sightings in objects.values():
            # It may be met again, or moved to another room, but is never in two places at a time.
            assert len({s.visit for s in sightings}) == len(sightings)
            rooms = [s.room for s in sightings]
            changes = sum(a != b for a, b in pairwise(rooms))
            assert changes <= 1
    assert repeated > 5


def test_a_repeated_kind_is_called_by_its_color() -> None:
    known = Knowledge([thing("cup", 1), thing("cup", 2, "blue", "garage"), thing("hat", 3)], None)
    assert known.name(("cup", "red")) == "red cup"
    assert known.name(("cup", "blue")) == "blue cup"
    assert known.name(("hat", "red")) == "hat"
    assert texts("room", known) == {
        "which room was the red cup in ?": "office",
        "which room was the blue cup in ?": "garage",
        "which room was the hat in ?": "office",
    }
    # Order is asked only between objects that need no colour to be told apart.
    assert not texts("before", known)
    with_key = Knowledge([*known.sightings, thing("key", 4)], None)
    assert texts("before", with_key) == {
        "was the hat before the key ?": "yes",
        "was the key before the hat ?": "no",
    }


def test_meeting_an_object_again_makes_it_no_other() -> None:
    known = Knowledge([thing("cup", 1), thing("cup", 3)], None)
    assert known.name(("cup", "red")) == "cup"
    assert texts("color", known) == {"what color was the cup ?": "red"}
    assert texts("count", known) == {"how many kinds of objects did you see ?": "one"}


def test_the_color_of_a_repeated_kind_is_asked_by_its_room_where_one_was_there() -> None:
    apart = Knowledge([thing("cup", 1), thing("cup", 2, "blue", "garage")], None)
    assert texts("color", apart) == {
        "what color was the cup in the office ?": "red",
        "what color was the cup in the garage ?": "blue",
    }
    together = Knowledge([thing("cup", 1), thing("cup", 2, "blue")], None)
    assert texts("color", together) == {}
    # Two in the office, and one of them was then moved to the garage alone.
    moved = Knowledge([*together.sightings, thing("cup", 3, "red", "garage")], None)
    assert texts("color", moved) == {"what color was the cup in the garage ?": "red"}


def test_side_and_room_are_asked_only_where_they_never_changed() -> None:
    moved = Knowledge([thing("cup", 1), thing("cup", 2, room="garage", side="right")], None)
    for kind in ("side", "room"):
        assert texts(kind, moved) == {}
    assert texts("where_now", moved) == {"where is the cup now ?": "garage"}
    assert texts("where_before", moved) == {"where was the cup before ?": "office"}


def test_where_something_was_before_needs_exactly_one_move() -> None:
    stayed = [thing("cup", 1), thing("cup", 2)]
    back = [*stayed, thing("cup", 3, room="garage"), thing("cup", 4)]
    assert texts("where_before", Knowledge(stayed, None)) == {}
    assert texts("where_before", Knowledge(back, None)) == {}
    assert texts("where_now", Knowledge(back, None)) == {"where is the cup now ?": "office"}


def test_what_is_ambiguous_is_not_asked() -> None:
    nothing = Knowledge([], visible=None)
    two = [thing("cup", 1), thing("hat", 1)]
    together = Knowledge(two, visible=[t.identity for t in two])
    for kind in (
        "color", "side", "room", "first", "last", "before", "after", "now", "where_now",
        "where_before",
    ):  # fmt: skip
        assert not texts(kind, nothing)
    for kind in ("first", "last", "before", "after", "where_before"):
        assert not texts(kind, together)
    assert {q.answer for q in questions("now", together)} == {"yes", "no"}


def test_order_is_asked_only_between_objects_of_one_visit() -> None:
    around = Knowledge([thing("cup", 1), thing("hat", 2), thing("cup", 3)], None)
    assert not texts("before", around)
    assert texts("last", around) == {"what did you see last ?": "cup"}
    # Not even where the cup was over long before the key came.
    with_key = Knowledge([*around.sightings, thing("key", 4)], None)
    assert texts("after", with_key) == {
        "was the key after the hat ?": "yes",
        "was the hat after the key ?": "no",
    }
    # Nor may the two have shared their only visit.
    assert not texts("after", Knowledge([thing("hat", 2), thing("key", 2)], None))


def test_the_evidence_comes_with_the_question() -> None:
    known = Knowledge([thing("cup", 1), thing("hat", 2, "blue"), thing("cup", 3)], [])
    for kind, expected in (
        ("room", [(known.sightings[0], known.sightings[2]), (known.sightings[1],)]),
        ("first", [(known.sightings[0],)]),
        ("count", [tuple(known.sightings)]),
    ):
        assert {q.about for q in questions(kind, known)} == set(expected)
    for question in questions("seen", known):
        assert (question.answer == "yes") == bool(question.about)


def test_every_color_of_a_kind_may_have_been_met() -> None:
    rng = np.random.default_rng(0)
    every = [thing("cup", i, color) for i, color in enumerate(COLORS)]
    for _ in range(100):
        question = make_question("seen", rng, Knowledge(every, None))
        assert (question.answer == "yes") == ("cup" in question.text)
