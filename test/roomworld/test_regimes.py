"""The six kinds of life: where the camera is when, what it meets there, and how it moves."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from infinipot_ros.roomworld import QUESTION_KINDS, REGIMES, RoomWorld
from infinipot_ros.roomworld.camera import Pose
from infinipot_ros.roomworld.regimes import REGIME
from infinipot_ros.roomworld.scenes import IMAGE_SIZE, Scene, anywhere, panorama
from infinipot_ros.roomworld.tour import Visit, draw_places, plan_quiet, plan_tour, sightings_of
from infinipot_ros.roomworld.vocabulary import CORRIDOR

S = 1_000_000_000
CUTTING = ("watch", "cuts")
MEETING = {"tour": 1, "patrol": 3, "watch": 2, "handheld": 3, "cuts": 3, "crowd": 6}
"""Objects that a minute shows at least, on average."""


def plan(name: str, seed: int, tour_ms: int = 60_000) -> tuple[list[Visit], list[Visit]]:
    """Return the visits of a tour, and those of the quiet minute after it."""
    rng, regime = np.random.default_rng(seed), REGIME[name]
    places = draw_places(rng, regime)
    n_objects = int(rng.integers(regime.objects[0], regime.objects[1] + 1))
    tour = plan_tour(rng, regime, places, tour_ms, n_objects, anywhere)
    return tour, plan_quiet(rng, regime, places, tour[-1], 60_000)


def test_there_are_six_regimes() -> None:
    assert REGIMES == ("tour", "patrol", "watch", "handheld", "cuts", "crowd")


@pytest.mark.parametrize("name", REGIMES)
def test_visits_cover_the_time_without_gaps_from_zero(name: str) -> None:
    for seed in range(30):
        tour, quiet = plan(name, seed)
        assert tour[0].slot.start_ms == 0
        assert tour[-1].slot.end_ms >= 60_000
        for one, other in pairwise([*tour, *quiet]):
            assert one.slot.start_ms < one.slot.end_ms == other.slot.start_ms
            if name in CUTTING:
                assert one.slot.end_ms % 1000 == 0
                assert one.slot.change_ms is None
            else:
                assert (one.scene.room == CORRIDOR) != (other.scene.room == CORRIDOR)
                if one.scene.room == CORRIDOR:
                    # Longer than the half second between two samples: no step shows two rooms.
                    assert one.slot.end_ms - one.slot.start_ms > 500


@pytest.mark.parametrize("tour_ms", [3_000, 8_000, 20_500, 60_000])
@pytest.mark.parametrize("name", REGIMES)
def test_objects_come_into_view_within_the_tour_only(name: str, tour_ms: int) -> None:
    met = 0
    for seed in range(40):
        tour, quiet = plan(name, seed, tour_ms)
        times = [sighting.time_ms for sighting in sightings_of(tour)]
        assert all(0 <= time < tour_ms for time in times)
        assert not sightings_of(quiet)
        met += len({s.identity for s in sightings_of(tour)})
    if tour_ms == 60_000:
        assert met / 40 >= MEETING[name]


@pytest.mark.parametrize("name", REGIMES)
def test_no_object_is_met_that_is_not_its_own(name: str) -> None:
    """A visit never shows one object twice, nor a place two sets of things at one time."""
    fewest, most = REGIME[name].objects
    for seed in range(40):
        tour, _ = plan(name, seed)
        for visit in tour:
            identities = [thing.identity for thing in visit.scene.objects]
            assert len(set(identities)) == len(identities)
            assert visit.scene.room != CORRIDOR or not identities
        assert len({s.identity for s in sightings_of(tour)}) <= most
    assert fewest <= most


def test_a_patrol_comes_by_the_same_places_in_turn() -> None:
    for seed in range(10):
        tour, quiet = plan("patrol", seed)
        for phase in (tour, quiet):
            places = [(v.scene.room, v.scene.look) for v in phase if v.scene.room != CORRIDOR]
            assert len(set(places)) == len({room for room, _ in places}) == 5
            assert all(a == b for a, b in zip(places, places[5:], strict=False))
    stands = [v.scene.objects for v in plan("patrol", 0)[0]]
    assert any(things and things in stands[i + 1 :] for i, things in enumerate(stands))


def test_a_tour_comes_back_to_some_places() -> None:
    for name in ("tour", "handheld"):
        looks = [
            [v.scene.look for v in plan(name, seed)[0] if v.scene.room != CORRIDOR]
            for seed in range(20)
        ]
        share = 1 - sum(len(set(each)) for each in looks) / sum(len(each) for each in looks)
        assert 0.05 < share < 0.25


def test_a_watching_camera_never_moves_and_its_quiet_stays_show_one_place() -> None:
    for seed in range(10):
        tour, quiet = plan("watch", seed)
        assert len({(v.scene.room, v.scene.look) for v in (*tour, *quiet)}) == 1
        for visit in (*tour, *quiet):
            assert visit.motion.steady
            for time in range(0, 3000, 70):
                assert visit.motion.pose(time, 3000 - time) == Pose(0.0, 0.0)
        filled = [v.slot.end_ms - v.slot.start_ms for v in tour if v.scene.objects]
        assert all(2000 <= length <= 3000 for length in filled)
        assert sum(filled) < 0.5 * tour[-1].slot.end_ms


def test_quiet_images_of_a_watching_camera_differ_by_light_and_noise_only() -> None:
    world = RoomWorld(3, tour_s=10, regime="watch")
    room = world.room(0)
    shots = [world.image(second * S).astype(float) for second in range(40, 240, 7)]
    assert {world.room(second * S) for second in range(240)} == {room}
    usual = np.median([shot / shot.mean() for shot in shots], 0)
    alike = [np.abs(shot / shot.mean() - usual).mean() < 0.06 for shot in shots]
    assert np.mean(alike) > 0.85  # the others show somebody passing


def test_a_hand_moves_every_patch_where_a_wall_moves_none() -> None:
    def change(name: str) -> float:
        world = RoomWorld(1, tour_s=4, n_objects=0, regime=name)
        pairs = [(world.image(t * S), world.image(t * S + S // 2)) for t in range(4, 60)]
        cells = [
            np.abs(a.astype(int) - b).reshape(3, 40, 3, 40, 3).mean((1, 3, 4)).min()
            for a, b in pairs
        ]
        return float(np.median(cells))

    assert change("handheld") > 1.3 * change("watch")


def test_a_crowd_shows_many_objects_at_once_and_people() -> None:
    sizes: list[int] = []
    met = []
    most_elsewhere = max(REGIME[name].objects[1] for name in REGIMES if name != "crowd")
    for seed in range(20):
        tour, _ = plan("crowd", seed)
        sizes.extend(len(v.scene.objects) for v in tour if v.scene.objects)
        met.append(len({s.identity for s in sightings_of(tour)}))
    # Alone stands only what was moved, or was left over.
    assert np.mean(np.array(sizes) >= 2) > 0.65
    assert max(sizes) == 5
    assert np.mean(np.array(met) > most_elsewhere) > 0.7


@pytest.mark.parametrize("name", REGIMES)
def test_people_pass(name: str, monkeypatch) -> None:
    passed: list[object] = []
    monkeypatch.setattr(
        "infinipot_ros.roomworld.camera.draw_person",
        lambda image, person: passed.append((image.shape, person)),
    )
    world = RoomWorld(2, tour_s=20, regime=name)
    n = 400
    for i in range(n):
        world.image(i * S // 10)
    expected = REGIME[name].people_share
    assert abs(len(passed) / n - expected) < 4 * (expected * (1 - expected) / n) ** 0.5
    assert {shape for shape, _ in passed} == {(IMAGE_SIZE, IMAGE_SIZE, 3)}


@pytest.mark.parametrize("name", REGIMES)
def test_nearly_every_question_can_be_asked_of_every_life(name: str) -> None:
    rng = np.random.default_rng(0)
    asked: dict[str, int] = dict.fromkeys(QUESTION_KINDS, 0)
    for seed in range(60):
        world = RoomWorld(seed, tour_s=48, regime=name)
        for second in (9, 30, 49):
            for kind in QUESTION_KINDS:
                asked[kind] += world.ask(kind, second * S, rng) is not None
    never = {kind for kind, n in asked.items() if not n}
    # A camera on a wall sees one room: nothing was elsewhere before.
    assert never == ({"where_before"} if name == "watch" else set())
    often = {kind for kind, n in asked.items() if n > 40}
    rare = {"where_before"} | ({"first", "last"} if name == "crowd" else set())
    assert often >= set(QUESTION_KINDS) - rare


def test_the_same_seed_and_place_is_painted_alike_in_every_visit() -> None:
    tour, quiet = plan("patrol", 4)
    by_look: dict[int, list[np.ndarray]] = {}
    for visit in (*tour[:24], *quiet[:12]):
        bare = Scene(visit.scene.room, (), visit.scene.look)
        by_look.setdefault(bare.look, []).append(panorama(bare))
    for painted in by_look.values():
        assert all(np.array_equal(painted[0], other) for other in painted)
