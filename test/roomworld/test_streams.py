"""Training streams: what is asked about them is what their tokens show, no more and no less."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np

from infinipot_ros.roomworld import QUESTION_KINDS
from infinipot_ros.roomworld.questions import make_question
from infinipot_ros.roomworld.scenes import Scene
from infinipot_ros.roomworld.training.pool import ScenePool
from infinipot_ros.roomworld.training.streams import Stream, draw_stream, history_labels
from infinipot_ros.roomworld.training.views import IGNORE, NO_KIND, View
from infinipot_ros.roomworld.vocabulary import COLORS, CORRIDOR, KINDS, MAX_COUNT, ROOMS, SIDES


def streams(pool, n: int, n_steps: int, seed: int = 0) -> list[Stream]:
    rng = np.random.default_rng(seed)
    return [draw_stream(rng, pool, n_steps) for _ in range(n)]


def things_at(pool, stream: Stream, step: int) -> list[tuple[str, str, str, str]]:
    """Read (kind, color, side, room) off the labels of a step's tokens."""
    room = pool.scenes[stream.scenes[step]].room
    kinds, colors = pool.labels[:, stream.scenes[step], stream.views[step]]
    return [
        (KINDS[kind], list(COLORS)[color], SIDES[token % 3], room)
        for token, (kind, color) in enumerate(zip(kinds, colors, strict=True))
        if 0 <= kind < NO_KIND
    ]


def test_streams_know_what_their_tokens_show(pool) -> None:
    for stream in streams(pool, 60, 16):
        shown: set[tuple[str, str, str, str]] = set()
        for step in range(16):
            now = things_at(pool, stream, step)
            shown |= set(now)
            known = stream.knowledge(step)
            assert shown == {(s.kind, s.color, s.side, s.room) for s in known.sightings}
            if known.visible is not None:
                assert {key[:2] for key in now} == set(known.visible)
            later = {s.identity for s in stream.sightings if s.time_ms > 1000 * step}
            assert set(known.upcoming) == later


def test_answers_are_what_the_tokens_show(pool, summed_up, truth) -> None:
    """The observer of the worlds, looking at the labels of tokens instead."""
    rng = np.random.default_rng(5)
    asked: Counter[str] = Counter()
    for stream in streams(pool, 150, 24):
        looks = [(1000 * step, things_at(pool, stream, step)) for step in range(24)]
        for step in (3, 9, 16, 23):
            account = summed_up(looks[: step + 1])
            known = stream.knowledge(step)
            for kind in QUESTION_KINDS:
                question = make_question(kind, rng, known)
                if question is not None:
                    assert question.answer == truth(question, account), (question, account)
                    asked[kind] += 1
    assert set(asked) == set(QUESTION_KINDS)
    assert min(asked.values()) > 10


def test_now_is_not_asked_while_the_view_changes(pool) -> None:
    changing = {
        View.ARRIVE, View.ARRIVE_WITHOUT, View.LEAVE, View.LEAVE_WITHOUT, View.APPEAR, View.VANISH,
    }  # fmt: skip
    met = set()
    for stream in streams(pool, 120, 24):
        for step, view in enumerate(stream.views):
            if View(view) in changing:
                met.add(View(view))
                assert (
                    stream.visible[step] is None or pool.scenes[stream.scenes[step]].objects == ()
                )
    assert met == changing


def test_every_step_belongs_to_one_stay(pool) -> None:
    for stream in streams(pool, 60, 20):
        assert stream.visits[0] == 0
        assert set(np.diff(stream.visits)) <= {0, 1}
        for visit in range(stream.visits[-1] + 1):
            assert len(set(stream.scenes[stream.visits == visit])) == 1
        for sighting in stream.sightings:
            step = sighting.time_ms // 1000
            assert stream.visits[step] == sighting.visit
            assert pool.scenes[stream.scenes[step]].room == sighting.room


def test_streams_are_as_varied_as_the_regimes(pool) -> None:
    drawn = streams(pool, 250, 32)
    n_objects = [len(stream.knowledge(31).objects) for stream in drawn]
    assert 0.02 < np.mean(np.array(n_objects) == 0) < 0.25
    assert np.mean(np.array(n_objects) > MAX_COUNT) > 0.02  # crowds
    corridors = [
        np.mean([pool.scenes[scene].room == CORRIDOR for scene in stream.scenes])
        for stream in drawn
    ]
    assert np.mean(np.array(corridors) == 0) > 0.15  # cuts
    assert np.mean(np.array(corridors) > 0.08) > 0.3  # walks
    again = [
        len(set(stream.scenes)) < len(set(stream.visits[stream.scenes >= 0])) for stream in drawn
    ]
    assert np.mean(again) > 0.2  # rounds and returns
    kinds = [[kind for kind, _ in stream.knowledge(31).objects] for stream in drawn]
    assert np.mean([len(set(each)) < len(each) for each in kinds]) > 0.1
    ends = [max((s.time_ms for s in stream.sightings), default=0) / 32_000 for stream in drawn]
    assert np.mean(np.array(ends) < 0.6) > 0.2  # all of it long ago


def test_a_moved_object_stays_where_it_was_put(pool) -> None:
    moves = 0
    for stream in streams(pool, 300, 32):
        for sightings in stream.knowledge(31).objects.values():
            rooms = [s.room for s in sightings]
            changes = sum(a != b for a, b in pairwise(rooms))
            assert changes <= 1
            moves += changes
    assert moves > 20


def test_history_labels_are_what_occurs_at_earlier_tokens(pool) -> None:
    known_kinds, moved = 0, 0
    for stream in streams(pool, 60, 20, seed=9):
        labels = history_labels(pool, stream)
        assert labels.shape == (20 * 9, len(KINDS) + 2)
        assert labels.dtype == np.int8
        # (kind, color, side, room) of every object token, in order
        seen: list[tuple[str, str, str, str]] = []
        kinds = pool.labels[0, stream.scenes, stream.views]
        for step in range(20):
            rows = labels[9 * step : 9 * step + 9]
            shows = (kinds[step] >= 0) & (kinds[step] < NO_KIND)
            assert (rows[~shows] == -1).all()
            for row, (kind, color, side, room) in zip(
                rows[shows], things_at(pool, stream, step), strict=True
            ):
                others = {each[0] for each in seen} - {kind}
                for number, other in enumerate(KINDS):
                    assert row[number] == (-1 if other == kind else other in others)
                elsewhere = [
                    each[3] for each in seen if each[:2] == (kind, color) and each[3] != room
                ]
                assert row[-2] == (ROOMS.index(elsewhere[-1]) if elsewhere else len(ROOMS))
                assert row[-1] == len(others) <= MAX_COUNT
                known_kinds += len(others)
                moved += bool(elsewhere)
                seen.append((kind, color, side, room))
    assert known_kinds > 1000
    assert moved > 20


def gallery() -> tuple[ScenePool, Stream]:
    """Return a stream that shows one object after another: two of each kind, in two rooms."""
    shown = [(kind, color) for color in (0, 1) for kind in range(len(KINDS))]
    labels = np.full((2, len(shown), len(View), 9), NO_KIND, np.int8)
    labels[1] = IGNORE
    labels[:, :, :, 4] = np.array(shown).T[:, :, None]
    scenes = [Scene(("office", "garage")[color], (), 0) for _, color in shown]
    pool = ScenePool(np.zeros((*labels.shape[1:], 1), np.float16), labels, scenes)
    steps = np.arange(len(shown))
    return pool, Stream(steps, np.full(len(shown), View.DWELL_A), steps)


def test_history_counts_no_further_than_can_be_said() -> None:
    counts = history_labels(*gallery())[4::9, -1]
    assert counts.tolist() == [*range(MAX_COUNT + 1), *[MAX_COUNT] * (len(counts) - MAX_COUNT - 1)]


def test_another_object_of_the_kind_was_never_elsewhere() -> None:
    assert (history_labels(*gallery())[4::9, -2] == len(ROOMS)).all()


def test_history_tells_the_last_other_room() -> None:
    """One cup that is carried about: where else it was seen last, at every look."""
    pool, stream = gallery()
    pool.labels[:, :, :, 4] = 0  # one and the same object in all scenes
    rooms = ["office", "garage", "office", "kitchen", "garage"]
    pool.scenes[: len(rooms)] = [Scene(room, (), 0) for room in rooms]
    found = history_labels(pool, stream)[4::9, -2][: len(rooms)]
    elsewhere = [(*ROOMS, "nowhere")[number] for number in found]
    assert elsewhere == ["nowhere", "office", "garage", "office", "kitchen"]
