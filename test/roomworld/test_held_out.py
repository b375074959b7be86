"""Combinations that only evaluations show: which they are, and that training never shows one."""

from __future__ import annotations

import numpy as np
import pytest

from infinipot_ros.roomworld import REGIMES, RoomWorld
from infinipot_ros.roomworld.scenes import anywhere, random_scene, trained
from infinipot_ros.roomworld.training.streams import draw_stream
from infinipot_ros.roomworld.training.views import NO_KIND
from infinipot_ros.roomworld.training.vision import draw_steps
from infinipot_ros.roomworld.vocabulary import COLORS, CORRIDOR, KINDS, ROOMS, held_out

S = 1_000_000_000
EVERY = [(kind, color, room) for kind in KINDS for color in COLORS for room in ROOMS]


def test_one_combination_in_nine_is_held_out_evenly() -> None:
    kept_back = [each for each in EVERY if held_out(*each)]
    assert len(kept_back) == pytest.approx(len(EVERY) / 9, abs=1)
    for column, values in enumerate((KINDS, tuple(COLORS), ROOMS)):
        counts = [sum(each[column] == value for each in kept_back) for value in values]
        assert min(counts) >= 2
        assert max(counts) <= 3 * min(counts)
    for kind in KINDS:
        for color in COLORS:
            assert sum(trained(kind, color, room) for room in ROOMS) >= 4
    assert all(trained(*each) != held_out(*each) for each in EVERY)
    assert all(anywhere(*each) for each in EVERY)


def test_words_that_are_not_listed_are_refused() -> None:
    for wrong in (("dragon", "red", "office"), ("cup", "red", "attic")):
        with pytest.raises(ValueError, match=r"not in tuple|not in list"):
            held_out(*wrong)


@pytest.mark.parametrize("allowed", [trained, held_out])
@pytest.mark.parametrize("regime", REGIMES)
def test_a_world_shows_what_is_allowed_only(regime: str, allowed) -> None:
    moved = total = 0
    for seed in range(40):
        world = RoomWorld(seed, tour_s=45, regime=regime, allowed=allowed)
        for identity, sightings in world.knowledge(45 * S).objects.items():
            assert all(allowed(*identity, s.room) for s in sightings)
            moved += len({s.room for s in sightings}) > 1
            total += 1
    assert total > 60
    # What is held out in one room is trained in the others, so it cannot be moved there.
    assert (moved > 0) == (allowed is trained and regime != "watch")


def test_by_default_a_world_shows_both() -> None:
    seen = [s for seed in range(60) for s in RoomWorld(seed, tour_s=45).sightings(45 * S)]
    share = np.mean([held_out(s.kind, s.color, s.room) for s in seen])
    assert 0.03 < share < 0.25


def test_a_world_that_runs_out_of_objects_shows_fewer() -> None:
    """Eight may stand in a room: a crowd that stays in few rooms has no more to show."""
    for seed in range(100):
        world = RoomWorld(seed, tour_s=12, regime="crowd", allowed=held_out)
        assert len(world.knowledge(60 * S).objects) <= 14
    nobody = RoomWorld(1, tour_s=30, allowed=lambda kind, color, room: False)
    assert nobody.sightings(30 * S) == []


def test_scenes_honour_what_is_allowed() -> None:
    rng = np.random.default_rng(0)
    for room in ROOMS:
        for allowed in (trained, held_out):
            for _ in range(20):
                scene = random_scene(rng, room, 5, allowed=allowed)
                assert all(allowed(*thing.identity, room) for thing in scene.objects)


def test_no_pool_holds_a_combination_that_is_held_out(pool) -> None:
    things = [(*t.identity, scene.room) for scene in pool.scenes for t in scene.objects]
    assert len(set(things)) > 100
    assert all(trained(*each) for each in things)
    assert all(not scene.objects for scene in pool.scenes if scene.room == CORRIDOR)


def test_no_training_stream_shows_one_not_even_by_a_move(pool) -> None:
    rng = np.random.default_rng(0)
    moves = 0
    for _ in range(150):
        stream = draw_stream(rng, pool, 32)
        rooms: dict[tuple[str, str], set[str]] = {}
        for sighting in stream.sightings:
            assert trained(sighting.kind, sighting.color, sighting.room)
            rooms.setdefault(sighting.identity, set()).add(sighting.room)
        moves += sum(len(each) > 1 for each in rooms.values())
    assert moves > 10


def test_no_step_of_the_vision_stage_shows_one() -> None:
    steps = draw_steps((3,), 60, 2, processes=1)
    places = (*ROOMS, CORRIDOR)
    n = 0
    for kinds, colors, place in zip(steps.kinds, steps.colors, steps.places, strict=True):
        for kind, color in zip(kinds.tolist(), colors.tolist(), strict=True):
            if 0 <= kind < NO_KIND:
                assert trained(KINDS[kind], list(COLORS)[color], places[int(place)])
                n += 1
    assert n > 100
