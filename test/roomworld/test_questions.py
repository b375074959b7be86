"""Questions against an observer who reads only the text and what was in view."""

from __future__ import annotations

import numpy as np
import pytest

from infinipot_ros.roomworld import QUESTION_KINDS, REGIMES, Knowledge, RoomWorld, Sighting
from infinipot_ros.roomworld.questions import make_question
from infinipot_ros.roomworld.vocabulary import COLORS, KINDS, MAX_COUNT, NUMBERS, ROOMS, SIDES

S = 1_000_000_000
YES_NO = ("yes", "no")
ANSWERS = {
    "seen": YES_NO, "color": tuple(COLORS), "side": SIDES, "room": ROOMS, "count": NUMBERS,
    "first": KINDS, "last": KINDS, "before": YES_NO, "after": YES_NO,
    "now": (*YES_NO, "nothing", *KINDS), "where_now": ROOMS, "where_before": ROOMS,
}  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("regime", REGIMES)
def test_answers_are_what_an_observer_would_say(regime: str, seed: int, observer, truth) -> None:
    world = RoomWorld(seed, tour_s=40, regime=regime)
    rng = np.random.default_rng(seed)
    asked: dict[str, int] = {}
    for second in (5, 14, 27, 38, 47):
        account = observer(world, second * 1000)
        for kind in QUESTION_KINDS:
            for _ in range(10):
                question = world.ask(kind, second * S, rng)
                if question is not None:
                    assert question.answer == truth(question, account), (question, account)
                    asked[kind] = asked.get(kind, 0) + 1
    assert sum(asked.values()) > 120
    assert len(asked) >= 8


def test_moved_objects_are_asked_for_where_they_are_and_where_they_were() -> None:
    """The observer of the test above says where; here: such questions are common enough."""
    rng = np.random.default_rng(0)
    moved = [
        world.ask("where_before", 60 * S, rng)
        for seed in range(80)
        for regime in ("tour", "patrol", "handheld", "cuts", "crowd")
        if (world := RoomWorld(seed, tour_s=60, regime=regime))
    ]
    found = [question for question in moved if question is not None]
    assert len(found) / len(moved) > 0.3
    for question in found:
        assert question.about[0].room == question.answer != question.about[-1].room


def test_every_kind_is_asked_with_every_answer(read) -> None:
    answers: dict[str, set[str]] = {kind: set() for kind in QUESTION_KINDS}
    rng = np.random.default_rng(0)
    for seed in range(180):
        world = RoomWorld(seed, 30, n_objects=seed % 13, regime=REGIMES[seed % len(REGIMES)])
        for second in (6, 18, 31):
            for kind in QUESTION_KINDS:
                question = world.ask(kind, second * S, rng)
                if question is not None:
                    assert question.kind == kind
                    assert read(question)
                    answers[kind].add(question.answer)
    for kind, possible in ANSWERS.items():
        assert answers[kind] <= set(possible), kind
        # Objects are many and "now" is rarely about a given one, nor are often so many kinds met;
        # other answers must all have come.
        assert set(possible) - answers[kind] <= {*KINDS, "eight", "nine", "ten"}, kind
        assert len(answers[kind]) >= 0.7 * len(possible), kind


@pytest.mark.parametrize("kind", ["seen", "before", "after"])
def test_yes_and_no_are_balanced(kind: str) -> None:
    """A model that always says the same must not look good."""
    rng = np.random.default_rng(1)
    for regime in ("tour", "watch", "crowd"):
        answers = [
            question.answer
            for seed in range(300)
            if (question := RoomWorld(seed, 40, regime=regime).ask(kind, 41 * S, rng))
        ]
        assert len(answers) > 100
        assert 0.4 < answers.count("yes") / len(answers) < 0.6


def test_things_in_view_are_affirmed_as_often_as_denied() -> None:
    rng = np.random.default_rng(2)
    seen = [Sighting(kind, "red", "left", "office", 1, 0) for kind in ("cup", "hat")]
    known = Knowledge(seen, [s.identity for s in seen])
    answers = [make_question("now", rng, known).answer for _ in range(400)]
    assert 0.42 < answers.count("yes") / 400 < 0.58


def test_what_is_denied_is_mostly_close_to_what_was_seen() -> None:
    """A cup of another colour, or a kind that comes later: knowing roughly is not enough."""
    rng = np.random.default_rng(3)
    known = Knowledge(
        [Sighting("cup", "red", "left", "office", 1, 0)], None, upcoming=[("hat", "blue")]
    )
    denied = [q for _ in range(600) if (q := make_question("seen", rng, known)).answer == "no"]
    cups = sum("cup" in q.text.split() for q in denied)
    hats = sum("hat" in q.text.split() for q in denied)
    assert 0.3 < cups / len(denied) < 0.7
    assert 0.1 < hats / len(denied) < 0.4
    assert not any("red cup" in q.text for q in denied)


def test_an_unknown_kind_of_question_is_refused() -> None:
    with pytest.raises(KeyError):
        make_question("why", np.random.default_rng(0), Knowledge([], visible=()))


def test_kinds_are_counted_up_to_ten() -> None:
    rng = np.random.default_rng(0)
    many = [Sighting(k, "red", "left", "office", i, i) for i, k in enumerate(KINDS)]
    others = [Sighting(k, "blue", "right", "garage", 20 + i, 20 + i) for i, k in enumerate(KINDS)]
    for n in range(len(many) + 1):
        question = make_question("count", rng, Knowledge(many[:n], None))
        assert (question is None) == (n > MAX_COUNT == 10)
        if question is not None:
            assert question.answer == NUMBERS[n]
            # Neither meeting them once more nor one in another colour changes the number.
            for more in (many[:n], others[:n]):
                again = make_question("count", rng, Knowledge([*many[:n], *more], None))
                assert again.answer == NUMBERS[n]
