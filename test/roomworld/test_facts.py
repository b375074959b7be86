"""What a question's last thing is called, and what is known of it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest

from infinipot_ros.roomworld import QUESTION_KINDS, Knowledge, Question, Sighting
from infinipot_ros.roomworld.phrasings import ALL, phrase
from infinipot_ros.roomworld.questions import make_question
from infinipot_ros.roomworld.training.batches import BatchBuilder
from infinipot_ros.roomworld.training.facts import N_FACTS, PROPERTIES, facts_about, naming_of
from infinipot_ros.roomworld.training.plans import BRANCH_LENGTH
from infinipot_ros.roomworld.training.streams import draw_stream
from infinipot_ros.roomworld.vocabulary import COLORS, KINDS, ROOMS, SIDES

NOT_ASKED = [-1] * len(KINDS)
THING = rf"\b(?:(?:{'|'.join(COLORS)}) )?(?:{'|'.join(KINDS)})(?: in the (?:{'|'.join(ROOMS)}))?\b"


def thing(kind: str, visit: int, color: str = "red", room: str = "office", side: str = "left"):
    return Sighting(kind, color, side, room, visit, 1000 * visit)


def facts(known: Knowledge, kind: str, color: str = "", room: str = ""):
    """Return colour, side, first room, last room in words, and the rest as it is."""
    found = facts_about((kind, color, room), known).tolist()
    values = zip(found, PROPERTIES, strict=False)
    return [words[n] if n >= 0 else "" for n, words in values], found[len(PROPERTIES) :]


def came(*kinds: str, own: str) -> list[int]:
    return [-1 if kind == own else int(kind in kinds) for kind in KINDS]


@pytest.mark.parametrize("number", ALL)
@pytest.mark.parametrize(
    "said, name",
    [
        ("cup", ("cup", "", "")),
        ("red cup", ("cup", "red", "")),
        ("cup in the kitchen", ("cup", "", "kitchen")),
        ("red cup in the kitchen", ("cup", "red", "kitchen")),
    ],
)
def test_a_name_is_read_off_every_phrasing(said: str, name: tuple[str, ...], number: int) -> None:
    for form in ("seen", "color", "side", "room", "now_seen", "where_now", "where_before"):
        text, referent = phrase(form, number, said)
        assert naming_of(Question(form, text, "", number, referent)) == name
    for form in ("before", "after"):  # the last of the two things
        text, referent = phrase(form, number, "blue hat", said)
        assert naming_of(Question(form, text, "", number, referent)) == name


@pytest.mark.parametrize("number", ALL)
@pytest.mark.parametrize("form", ["count", "first", "last", "now_what"])
def test_questions_that_name_no_thing_have_no_name(form: str, number: int) -> None:
    text, referent = phrase(form, number)
    question = Question(form, text, "", number, referent)
    assert naming_of(question) == ("", "", "")
    known = Knowledge([thing("cup", 1)], None)
    assert (facts_about(naming_of(question), known) == -1).all()


def test_facts_are_numbers_of_properties_and_of_kinds() -> None:
    assert (tuple(COLORS), SIDES, ROOMS, ROOMS) == PROPERTIES
    found = facts_about(("cup", "", ""), Knowledge([thing("cup", 1)], None))
    assert found.shape == (N_FACTS,) == (4 + len(KINDS),)
    assert found.dtype == np.int64


def test_all_is_known_of_a_thing_that_was_seen_once() -> None:
    seen = [
        thing("hat", 1), thing("key", 2), thing("cup", 3, "blue", "garage", "right"),
        thing("ball", 3), thing("lamp", 4),
    ]  # fmt: skip
    # What shared its visit did not come before it, nor did what came later.
    expected = ["blue", "right", "garage", "garage"], came("hat", "key", own="cup")
    known = Knowledge(seen, None)
    for name in (("cup",), ("cup", "blue"), ("cup", "", "garage"), ("cup", "blue", "garage")):
        assert facts(known, *name) == expected
    assert facts(known, "hat") == (["red", "left", "office", "office"], came(own="hat"))


def test_one_of_its_own_kind_before_it_is_not_asked_for() -> None:
    known = Knowledge([thing("cup", 1), thing("hat", 2), thing("cup", 3, "blue")], None)
    assert facts(known, "cup", "blue")[1] == came("hat", own="cup")
    assert facts(known, "hat")[1] == came("cup", own="hat")


@pytest.mark.parametrize("name", [("hat",), ("cup", "blue"), ("cup", "", "garage")])
def test_nothing_is_known_of_what_was_not_seen(name: tuple[str, ...]) -> None:
    known = Knowledge([thing("cup", 1)], None, upcoming=[("hat", "red")])
    assert facts(known, *name) == ([""] * 4, NOT_ASKED)


def test_nothing_is_known_of_what_a_name_does_not_tell_apart() -> None:
    known = Knowledge([thing("cup", 1), thing("cup", 2, "blue", "garage")], None)
    assert facts(known, "cup") == ([""] * 4, NOT_ASKED)
    assert facts(known, "cup", "blue")[0] == ["blue", "left", "garage", "garage"]
    assert facts(known, "cup", "", "office")[0] == ["red", "left", "office", "office"]
    # The blue one is put next to the red one.
    joined = Knowledge([*known.sightings, thing("cup", 3, "blue")], None)
    assert facts(joined, "cup", "", "office") == ([""] * 4, NOT_ASKED)
    assert facts(joined, "cup", "", "garage")[0] == ["blue", "left", "garage", "office"]


def test_of_a_moved_thing_both_rooms_are_known_but_not_what_came_before() -> None:
    seen = [thing("hat", 1), thing("cup", 2), thing("cup", 3, room="garage")]
    known = Knowledge(seen, None)
    assert facts(known, "cup") == (["red", "left", "office", "garage"], NOT_ASKED)
    # A room in its name tells which thing is meant: all its sightings count, elsewhere too.
    for room in ("office", "garage"):
        assert facts(known, "cup", "", room) == facts(known, "cup")


def test_a_thing_seen_on_two_sides_has_none() -> None:
    turned = Knowledge([thing("cup", 1), thing("cup", 2, side="right")], None)
    assert facts(turned, "cup") == (["red", "", "office", "office"], NOT_ASKED)
    stayed = Knowledge([thing("cup", 1), thing("cup", 2)], None)
    assert facts(stayed, "cup") == (["red", "left", "office", "office"], NOT_ASKED)


def test_facts_of_streams_are_what_their_sightings_say(pool) -> None:
    """Against a recomputation per fact, for all questions that streams are asked."""
    rng = np.random.default_rng(4)
    known_of, unknown = 0, 0
    for _ in range(60):
        stream = draw_stream(rng, pool, 24)
        for step in (7, 23):
            known = stream.knowledge(step)
            for kind in QUESTION_KINDS:
                question = make_question(kind, rng, known)
                if question is None:
                    continue
                name = naming_of(question)
                found = facts_about(name, known)
                fitting = {s.identity for s in known.sightings if fits(name, s)}
                if len(fitting) != 1:
                    assert (found == -1).all()
                    unknown += 1
                    continue
                known_of += 1
                mine = [s for s in known.sightings if s.identity in fitting]
                for number, (values, words) in enumerate(
                    zip(
                        (
                            {s.color for s in mine},
                            {s.side for s in mine},
                            {mine[0].room},
                            {mine[-1].room},
                        ),
                        PROPERTIES,
                        strict=True,
                    )
                ):
                    expected = words.index(*values) if len(values) == 1 else -1
                    assert found[number] == expected
                for number, other in enumerate(KINDS):
                    earlier = any(
                        s.kind == other and s.visit < mine[0].visit for s in known.sightings
                    )
                    asked = len(mine) == 1 and other != name[0]
                    assert found[len(PROPERTIES) + number] == (earlier if asked else -1)
    assert known_of > 200
    assert unknown > 100


@pytest.fixture(scope="module")
def batches(pool, tokenizer, plan) -> list:
    """Batches of training and of evaluation; colours are asked for the most."""
    builder = BatchBuilder(pool, tokenizer.get_vocab())
    weights = tuple(4.0 if kind == "color" else 1.0 for kind in QUESTION_KINDS)
    settings = {"n_steps": 24, "n_questions": 24, "kind_weights": weights}
    return [
        builder.draw(plan(seed=(seed,), training=seed % 2 == 0, **settings)) for seed in range(60)
    ]


def asked(batch, tokenizer) -> Iterator[tuple[int, int, str]]:
    """Yield row, column and words of every question that a batch asks."""
    shared = batch.shared_mask.shape[-1]
    for row, column in (batch.answer_ids >= 0).nonzero().tolist():
        start = shared + column * BRANCH_LENGTH
        end = int(batch.question_end_at[row, column])
        words = tokenizer.convert_ids_to_tokens(batch.ids[row, start + 1 : end + 1].tolist())
        yield row, column, " ".join(words)


def test_batches_know_by_which_words_the_last_thing_is_named(batches, tokenizer) -> None:
    named: Counter[str] = Counter()
    for batch in batches:
        for row, column, text in asked(batch, tokenizer):
            things = re.findall(THING, text)
            words = things[-1].split() if things else []
            said = tokenizer.convert_ids_to_tokens(batch.named[row, column].clamp(min=0).tolist())
            for number, word, group in zip(
                batch.named[row, column].tolist(), said, (KINDS, COLORS, ROOMS), strict=True
            ):
                assert [word] * (number >= 0) == [each for each in words if each in group]
            named["nothing"] += not words
            named["color"] += any(word in COLORS for word in words)
            named["room"] += any(word in ROOMS for word in words)
        unasked = batch.answer_ids < 0
        assert (batch.named[unasked] == -1).all()
        assert (batch.facts[unasked] == -1).all()
    assert min(named["nothing"], named["color"], named["room"]) > 20


def test_facts_of_a_batch_agree_with_its_answers(batches, tokenizer) -> None:
    """What a question asks for is among all that is known of the thing that it names last."""
    column_of = {"color": 0, "side": 1, "where_before": 2, "where_now": 3}
    compared = dict.fromkeys((*column_of, "room", "before", "after"), 0)
    for batch in batches:
        for row, column, text in asked(batch, tokenizer):
            kind = QUESTION_KINDS[batch.kinds[row, column]]
            answer = tokenizer.convert_ids_to_tokens(int(batch.answer_ids[row, column]))
            found = batch.facts[row, column].tolist()
            values = [
                words[n] if n >= 0 else "" for n, words in zip(found, PROPERTIES, strict=False)
            ]
            if kind in column_of:
                assert values[column_of[kind]] == answer
            elif kind == "room":
                assert values[2:] == [answer] * 2
            elif kind in ("before", "after"):
                one, other = (KINDS.index(word) for word in text.split() if word in KINDS)
                earlier = found[len(PROPERTIES) :]
                assert earlier[one] == ((answer == "yes") == (kind == "before"))
                assert earlier[other] == -1
            else:
                continue
            compared[kind] += 1
    assert min(compared.values()) > 10


def fits(name: tuple[str, str, str], sighting: Sighting) -> bool:
    kind, color, room = name
    return (
        sighting.kind == kind
        and (not color or sighting.color == color)
        and (not room or sighting.room == room)
    )
