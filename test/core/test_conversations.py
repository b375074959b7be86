"""Conversations: the store, its bounds, and what it forgets."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infinipot_ros.core import Answer, ConfigError
from infinipot_ros.core.conversations import Conversations
from infinipot_ros.core.types import Turn


def said(text, finish_reason="stop"):
    return Answer(text, 1.0, 0, 0, 0.0, 0.0, 1, finish_reason)


def store(max_conversations=4, timeout_s=100.0, max_turns=3):
    return Conversations(max_conversations, timeout_s, max_turns)


def talk(kept, conversation_id, text, at, camera="front"):
    """Ask and answer; return the history that the question had."""
    history = kept.history(camera, conversation_id, at)
    kept.add(camera, conversation_id, f"{text} ?", said(text), at)
    return history


def test_turns_come_back_in_order_and_the_newest_win():
    kept = store()
    assert talk(kept, "a", "one", 0.0) == ()
    assert talk(kept, "a", "two", 1.0) == (Turn("one ?", "one"),)
    for text in ("three", "four"):
        talk(kept, "a", text, 2.0)
    assert [turn.answer for turn in kept.history("front", "a", 3.0)] == ["two", "three", "four"]


def test_an_empty_id_has_no_history_and_leaves_none():
    kept = store()
    assert talk(kept, "", "one", 0.0) == talk(kept, "", "two", 1.0) == ()
    assert len(kept) == 0


def test_ids_and_cameras_are_kept_apart():
    kept = store()
    talk(kept, "a", "one", 0.0)
    assert kept.history("front", "b", 1.0) == kept.history("rear", "a", 1.0) == ()
    talk(kept, "a", "two", 2.0, camera="rear")
    kept.forget("front")
    assert kept.history("front", "a", 3.0) == ()
    assert kept.history("rear", "a", 3.0) == (Turn("two ?", "two"),)


def test_the_least_recently_used_goes_first_and_a_question_counts_as_use():
    kept = store(max_conversations=2)
    talk(kept, "a", "one", 0.0)
    talk(kept, "b", "two", 1.0)
    assert kept.history("front", "a", 2.0)  # its answer may be cancelled; the client is there
    talk(kept, "c", "three", 3.0)
    assert len(kept) == 2
    assert kept.history("front", "b", 4.0) == ()
    assert kept.history("front", "a", 4.0)
    assert kept.history("front", "c", 4.0)


def test_idle_conversations_expire_and_free_their_place():
    kept = store(timeout_s=100.0)
    talk(kept, "a", "one", 0.0)
    talk(kept, "b", "two", 50.0)
    assert kept.history("front", "a", 100.0)  # just in time, which keeps it for another 100 s
    assert kept.history("front", "b", 150.1) == ()
    assert len(kept) == 1
    assert kept.history("front", "a", 200.0)
    kept.history("front", "", 301.0)  # whoever asks, all that are idle go
    assert len(kept) == 0


def test_a_question_that_waited_counts_from_when_it_was_asked():
    kept = store(timeout_s=10.0)
    kept.add("front", "a", "one ?", said("one"), 0.0)
    kept.add("front", "b", "two ?", said("two"), 15.0)  # answered while the next one waited
    assert kept.history("front", "a", 9.0) == (Turn("one ?", "one"),)
    assert kept.history("front", "b", 24.0)  # asked earlier or not, use never moves back
    assert kept.history("front", "a", 24.0) == ()


def test_an_answer_that_takes_longer_than_the_timeout_keeps_its_conversation():
    kept = store(timeout_s=10.0)
    talk(kept, "a", "one", 0.0)
    assert kept.history("front", "a", 5.0)
    kept.add("front", "a", "two ?", said("two"), 30.0)
    assert len(kept.history("front", "a", 39.0)) == 2


@pytest.mark.parametrize(
    "reason, kept_turns", [("stop", 1), ("length", 1), ("cancelled", 0), ("timeout", 0)]
)
def test_only_finished_answers_are_kept(reason, kept_turns):
    kept = store()
    kept.add("front", "a", "mug ?", said("red", reason), 0.0)
    assert len(kept.history("front", "a", 0.0)) == kept_turns
    assert len(kept) == kept_turns


@pytest.mark.parametrize(
    "bounds, message",
    [
        ((0, 1.0, 1), "max_conversations is 0; it must be at least 1"),
        ((1, 0.0, 1), "conversation_timeout_s is 0.0; it must be above 0 s"),
        ((1, float("nan"), 1), "conversation_timeout_s is nan"),
        ((1, 1.0, 0), "max_turns is 0; it must be at least 1"),
    ],
)
def test_bounds_that_cannot_work_are_refused(bounds, message):
    with pytest.raises(ConfigError, match=message):
        Conversations(*bounds)


IDS = st.sampled_from(["", "a", "b", "c", "d"])
CAMERAS = st.sampled_from(["front", "rear"])
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["history", "stop", "length", "cancelled", "timeout", "forget"]),
        CAMERAS,
        IDS,
        st.integers(0, 6),  # seconds since the event before
    ),
    max_size=40,
)


@settings(max_examples=200, deadline=None)
@given(EVENTS, st.integers(1, 4), st.integers(1, 10), st.integers(1, 3))
def test_the_store_equals_a_naive_list(events, max_conversations, timeout_s, max_turns):
    """A list of [key, last use, turns], least recently used first, rebuilt at each event."""
    kept = Conversations(max_conversations, timeout_s, max_turns)
    naive, now = [], 0
    for number, (kind, camera, conversation_id, pause) in enumerate(events):
        now += pause
        key = (camera, conversation_id)
        mine = [item for item in naive if item[0] == key]
        others = [item for item in naive if item[0] != key]
        if kind == "forget":
            kept.forget(camera)
            naive = [item for item in naive if item[0][0] != camera]
        elif kind == "history":
            history = kept.history(camera, conversation_id, now)
            naive = [item for item in [*others, *mine] if now - item[1] <= timeout_s]
            expected = naive[-1][2] if naive and naive[-1][0] == key else ()
            if expected:
                naive[-1] = (key, now, expected)
            else:  # a conversation that is not there is not made by asking in it
                order = {item[0]: place for place, item in enumerate(others)}
                naive.sort(key=lambda item: order[item[0]])
            assert history == expected
            assert all(turn.question.startswith(f"{camera} {conversation_id} ") for turn in history)
        else:
            turn = Turn(f"{camera} {conversation_id} {number}", f"{number}")
            kept.add(camera, conversation_id, turn.question, said(turn.answer, kind), now)
            if conversation_id and kind in ("stop", "length"):
                turns = (*(mine[0][2] if mine else ()), turn)[-max_turns:]
                naive = [*others, (key, now, turns)][-max_conversations:]
        assert len(kept) == len(naive) <= max_conversations
