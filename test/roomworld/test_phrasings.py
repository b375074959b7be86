"""Eight ways to say every question, two of them never trained."""

from __future__ import annotations

import re

import numpy as np
import pytest

from infinipot_ros.roomworld import QUESTION_KINDS, REGIMES, RoomWorld
from infinipot_ros.roomworld.phrasings import (
    ALL,
    HELD_OUT,
    N_PHRASINGS,
    PHRASINGS,
    PLAIN,
    TRAINED,
    phrase,
)
from infinipot_ros.roomworld.training.plans import BRANCH_LENGTH
from infinipot_ros.roomworld.vocabulary import COLORS, KINDS, ROOMS, words

S = 1_000_000_000
THINGS = ("red cup in the kitchen", "blue hat")


def said(form: str, number: int) -> set[str]:
    return set(re.sub(r"\{\w\}", "", PHRASINGS[form][number]).split())


def test_there_are_eight_of_each_in_two_parts() -> None:
    assert N_PHRASINGS == 8
    assert sorted([*TRAINED, *HELD_OUT]) == list(ALL) == list(range(8))
    assert len(HELD_OUT) == 2
    assert list(PLAIN) == [0]
    forms = (set(QUESTION_KINDS) - {"now"}) | {"now_what", "now_seen"}
    assert set(PHRASINGS) == forms
    everything = [template for templates in PHRASINGS.values() for template in templates]
    assert all(len(templates) == 8 for templates in PHRASINGS.values())
    assert len(set(everything)) == len(everything)


def test_every_word_is_in_the_vocabulary_and_known_from_training() -> None:
    vocabulary = set(words())
    trained = set().union(*(said(form, n) for form in PHRASINGS for n in TRAINED))
    for form in PHRASINGS:
        for number in ALL:
            assert said(form, number) <= vocabulary
            assert said(form, number) <= trained, (form, number)


@pytest.mark.parametrize("form", PHRASINGS)
def test_the_referent_is_the_last_word_of_the_last_thing(form: str) -> None:
    template = PHRASINGS[form]
    for number in ALL:
        text, referent = phrase(form, number, *THINGS)
        tokens = text.split()
        assert "{" not in text
        assert tokens[-1] in ("?", ".")
        if "{b}" in template[number]:
            assert tokens[referent] == "hat"
        elif "{a}" in template[number]:
            assert tokens[referent] == "kitchen"
            assert tokens[referent - 4 : referent + 1] == THINGS[0].split()
        else:
            assert referent == len(tokens) - 2
    assert len({"{a}" in t for t in template}) == 1  # all of them name things, or none does
    assert len({"{b}" in t for t in template}) == 1


def test_a_phrasing_that_does_not_exist_is_refused() -> None:
    with pytest.raises(KeyError):
        phrase("why", 0)
    with pytest.raises(IndexError):
        phrase("count", 8)


@pytest.mark.parametrize("numbers", [ALL, TRAINED, HELD_OUT, PLAIN, [3]])
def test_only_the_given_phrasings_are_used_and_all_of_them(numbers) -> None:
    rng = np.random.default_rng(0)
    used: dict[str, set[int]] = {kind: set() for kind in QUESTION_KINDS}
    for seed in range(60):
        world = RoomWorld(seed, tour_s=40, regime=REGIMES[seed % 6])
        for kind in QUESTION_KINDS:
            for _ in range(6):
                question = world.ask(kind, 41 * S, rng, numbers)
                if question is not None:
                    used[kind].add(question.phrasing)
    for kind in QUESTION_KINDS:
        assert used[kind] == set(numbers), kind


def test_the_wording_does_not_decide_what_is_asked_about() -> None:
    """One generator draws the same thing in other words: accuracies can be compared."""
    world = RoomWorld(3, tour_s=60)
    for kind in QUESTION_KINDS:
        asked = [world.ask(kind, 61 * S, np.random.default_rng(1), [n]) for n in ALL]
        if asked[0] is not None:
            assert len({(q.answer, q.about) for q in asked}) == 1
            assert len({q.text for q in asked}) == len(ALL)


def test_asked_questions_point_at_a_thing_and_fit_a_branch() -> None:
    rng = np.random.default_rng(0)
    longest = 0
    for seed in range(90):
        world = RoomWorld(seed, tour_s=40, regime=REGIMES[seed % 6])
        for kind in QUESTION_KINDS:
            for number in ALL:
                question = world.ask(kind, 41 * S, rng, [number])
                if question is None:
                    continue
                tokens = question.text.split()
                # <|vision_end|>, the question, <|im_end|>, <|im_start|>, assistant, the answer
                longest = max(longest, len(tokens) + 5)
                word = tokens[question.referent]
                if any(w in KINDS for w in tokens):
                    assert word in (*KINDS, *ROOMS)
                    assert not any(w in (*KINDS, *COLORS) for w in tokens[question.referent + 1 :])
                else:
                    assert question.referent == len(tokens) - 2
    assert BRANCH_LENGTH - 3 <= longest <= BRANCH_LENGTH
