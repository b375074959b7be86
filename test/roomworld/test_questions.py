"""Questions against an observer who reads only the text and what was in view."""

from __future__ import annotations

import re

import numpy as np
import pytest

from infinipot_ros.roomworld import QUESTION_KINDS, Knowledge, Question, RoomWorld, Sighting
from infinipot_ros.roomworld.questions import make_question
from infinipot_ros.roomworld.vocabulary import COLORS, KINDS, NUMBERS, ROOMS, SIDES

S = 1_000_000_000

FORMS = {
    "seen": (r"did you see a (\w+) \?", ("yes", "no")),
    "color": (r"what color was the (\w+) \?", tuple(COLORS)),
    "side": (r"which side was the (\w+) on \?", SIDES),
    "room": (r"which room was the (\w+) in \?", ROOMS),
    "count": (r"how many objects did you see \?", NUMBERS),
    "first": (r"what did you see first \?", KINDS),
    "last": (r"what did you see last \?", KINDS),
    "before": (r"was the (\w+) before the (\w+) \?", ("yes", "no")),
    "after": (r"was the (\w+) after the (\w+) \?", ("yes", "no")),
    "now": (
        r"(?:what do you see|do you see a (\w+)) now \?",
        ("yes", "no", "nothing", *KINDS),
    ),
}


def truth(question: Question, account) -> str | None:
    """Work the answer out from what was observed; None: the observation does not tell."""
    about = re.fullmatch(FORMS[question.kind][0], question.text).groups()
    if question.kind == "seen":
        return "yes" if about[0] in account.kinds else "no"
    if question.kind == "room":
        return account.of(about[0]).room
    if question.kind == "count":
        return NUMBERS[len(account.kinds)]
    if question.kind == "first":
        return account.kinds[0]
    if question.kind == "last":
        return account.kinds[-1]
    if question.kind in ("before", "after"):
        one, other = (account.of(kind).time_ms for kind in about)
        return "yes" if (one < other) == (question.kind == "before") else "no"
    if question.kind == "now":
        if about[0] is not None:
            return "yes" if about[0] in account.in_view else "no"
        return account.in_view[0] if account.in_view else "nothing"
    return None


@pytest.mark.parametrize("seed", range(8))
def test_answers_are_what_an_observer_would_say(seed: int, observer) -> None:
    world = RoomWorld(seed, tour_s=30)
    rng = np.random.default_rng(seed)
    asked = 0
    for second in (3, 11, 18, 24, 33):
        account = observer(world, second * 1000)
        for kind in QUESTION_KINDS:
            for _ in range(6):
                question = world.ask(kind, second * S, rng)
                if question is None:
                    continue
                expected = truth(question, account)
                if expected is not None:
                    assert question.answer == expected, (question, account)
                    asked += 1
    assert asked > 50


def test_every_kind_is_asked_in_its_form_with_every_answer() -> None:
    answers: dict[str, set[str]] = {kind: set() for kind in QUESTION_KINDS}
    rng = np.random.default_rng(0)
    for seed in range(150):
        world = RoomWorld(seed, tour_s=25, n_objects=seed % 6)
        for second in (4, 15, 26):
            for kind in QUESTION_KINDS:
                question = world.ask(kind, second * S, rng)
                if question is not None:
                    assert question.kind == kind
                    assert re.fullmatch(FORMS[kind][0], question.text)
                    answers[kind].add(question.answer)
    for kind, (_, possible) in FORMS.items():
        assert answers[kind] <= set(possible), kind
        # Objects are many and "now" is rarely about a given one; other answers must all have come.
        assert set(possible) - answers[kind] <= set(KINDS), kind
        assert len(answers[kind]) >= 0.8 * len(possible), kind


def test_yes_and_no_are_balanced() -> None:
    """A model that always says the same must not look good."""
    rng = np.random.default_rng(1)
    for kind in ("seen", "before", "after"):
        answers = [
            question.answer
            for seed in range(300)
            if (question := RoomWorld(seed, 20, n_objects=4).ask(kind, 20 * S, rng))
        ]
        assert len(answers) > 200
        assert 0.4 < answers.count("yes") / len(answers) < 0.6


def thing(kind: str, visit: int, time_ms: int) -> Sighting:
    return Sighting(kind, "red", "left", "office", visit, time_ms)


def test_what_is_ambiguous_is_not_asked() -> None:
    rng = np.random.default_rng(0)
    nothing = Knowledge([], visible=None)
    together = Knowledge([thing("cup", 1, 0), thing("hat", 1, 0)], visible=("cup", "hat"))
    for kind in ("color", "side", "room", "first", "last", "before", "after", "now"):
        assert make_question(kind, rng, nothing) is None
    for kind in ("first", "last", "before", "after"):
        assert make_question(kind, rng, together) is None
    for _ in range(50):
        now = make_question("now", rng, together)
        assert now is not None
        assert now.answer in ("yes", "no")


def test_an_unknown_kind_of_question_is_refused() -> None:
    with pytest.raises(KeyError):
        make_question("why", np.random.default_rng(0), Knowledge([], visible=()))
