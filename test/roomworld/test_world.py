"""The world is a function of seed and time, and its account of itself is what the camera shows."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from itertools import islice, pairwise

import numpy as np
import pytest

from infinipot_ros.roomworld import QUESTION_KINDS, REGIMES, RoomWorld, frame_time_ns
from infinipot_ros.roomworld.camera import ARRIVAL_MS
from infinipot_ros.roomworld.regimes import REGIME
from infinipot_ros.roomworld.scenes import CELLS, IMAGE_SIZE, anywhere
from infinipot_ros.roomworld.tour import plan_tour
from infinipot_ros.roomworld.vocabulary import COLORS, CORRIDOR, ROOMS, SIDES

S = 1_000_000_000
MS = 1_000_000


def test_images_have_the_documented_form() -> None:
    frame = next(RoomWorld(1).frames(10.0))
    assert frame.image.shape == (IMAGE_SIZE, IMAGE_SIZE, 3)
    assert frame.image.dtype == np.uint8
    assert frame.stamp_ns == 0


@pytest.mark.parametrize("regime", REGIMES)
def test_an_image_depends_on_seed_and_time_only(regime: str) -> None:
    in_order = [f.image for f in islice(RoomWorld(5, 20, regime=regime).frames(4.0), 100)]
    world = RoomWorld(5, tour_s=20, regime=regime)
    for index in (99, 3, 57, 3, 80):
        assert np.array_equal(world.image(frame_time_ns(index, 4.0)), in_order[index])
    other = RoomWorld(6, tour_s=20, regime=regime)
    assert not np.array_equal(other.image(10 * S), world.image(10 * S))


def test_another_process_sees_the_same_world() -> None:
    program = (
        "import hashlib, numpy as np\n"
        "from infinipot_ros.roomworld import *\n"
        "w = RoomWorld(11, tour_s=30, regime='crowd')\n"
        "h = hashlib.sha256(b''.join(w.image(i * 700_000_000).tobytes() for i in range(60)))\n"
        "rng = np.random.default_rng(2)\n"
        "asked = [w.ask(k, 29 * 10**9, rng) for k in QUESTION_KINDS]\n"
        "print(h.hexdigest(), asked)"
    )
    there = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=os.environ
    ).stdout.strip()
    world = RoomWorld(11, tour_s=30, regime="crowd")
    images = b"".join(world.image(i * 700 * MS).tobytes() for i in range(60))
    rng = np.random.default_rng(2)
    asked = [world.ask(kind, 29 * S, rng) for kind in QUESTION_KINDS]
    assert there == f"{hashlib.sha256(images).hexdigest()} {asked}"


def test_frames_can_start_anywhere() -> None:
    world = RoomWorld(2)
    whole = list(islice(world.frames(10.0), 30))
    tail = list(islice(world.frames(10.0, start=20), 10))
    for one, other in zip(whole[20:], tail, strict=True):
        assert one.stamp_ns == other.stamp_ns
        assert np.array_equal(one.image, other.image)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("regime", REGIMES)
def test_sightings_are_what_an_observer_sees(regime: str, seed: int, observer) -> None:
    world = RoomWorld(seed, tour_s=40, regime=regime)
    account = observer(world, 40_000)
    listed = world.sightings(40 * S)
    assert len(listed) == len(account.appearances)
    seen_at = {(a.kind, a.color, a.side, a.room, a.time_ms) for a in account.appearances}
    for s in listed:
        looked = -(-s.time_ms // 5) * 5  # the observer looks every 5 ms
        assert (s.kind, s.color, s.side, s.room, looked) in seen_at
    assert [s.time_ms for s in listed] == sorted(s.time_ms for s in listed)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("regime", ["tour", "patrol", "watch", "cuts"])
def test_the_camera_shows_a_sighting_in_its_color_on_its_side(regime: str, seed: int) -> None:
    world = RoomWorld(seed, tour_s=30, regime=regime)
    shown = 0
    for sighting in world.sightings(30 * S):
        # Once the camera has swung in, the object is near its place, give or take a few pixels.
        # Somebody may walk by in one image; three will not.
        times = [(sighting.time_ms + ARRIVAL_MS + more) * MS for more in (0, 150, 300)]
        if any(sighting.kind not in world.visible(time) for time in times):
            continue
        column = IMAGE_SIZE // CELLS * SIDES.index(sighting.side)
        most = 0
        for time in times:
            part = world.image(time)[:, max(0, column - 8) : column + 48].astype(float)
            near = np.array(COLORS[sighting.color], float)
            direction = near / np.linalg.norm(near)
            unit = part / np.maximum(np.linalg.norm(part, axis=-1, keepdims=True), 1.0)
            dark = part.max(-1) < 60
            alike = dark if sighting.color == "black" else unit @ direction > 0.97
            most = max(most, int(alike.sum()))
        assert most > 40, sighting
        shown += 1
    assert shown


def test_objects_come_and_go_within_a_visit() -> None:
    came = went = 0
    for seed in range(30):
        world = RoomWorld(seed, tour_s=60, n_objects=5)
        looks = [(world.room(t * MS), world.visible(t * MS)) for t in range(0, 60_000, 50)]
        for (room, before), (next_room, after) in pairwise(looks):
            if room == next_room and before != after:
                came += len(after) > len(before)
                went += len(after) < len(before)
    assert came > 0
    assert went > 0


@pytest.mark.parametrize("regime", REGIMES)
def test_after_the_tour_nothing_new_is_seen(regime: str) -> None:
    for seed in range(8):
        world = RoomWorld(seed, tour_s=20, regime=regime)
        before = world.sightings(20 * S)
        rng = np.random.default_rng(seed)
        assert world.sightings(400 * S) == before
        # The last stay of the tour may outlast it, with what it shows.
        assert all(world.visible(second * S) == () for second in range(40, 400))
        knowledge = world.knowledge(400 * S)
        assert not knowledge.upcoming
        assert not knowledge.visible
        for kind in QUESTION_KINDS:
            one, other = (world.ask(kind, t * S, np.random.default_rng(3)) for t in (60, 399))
            if kind != "now":
                assert one == other
        assert world.ask("seen", 400 * S, rng) is not None


def test_the_rooms_of_the_quiet_phase_are_those_of_the_tour() -> None:
    rooms = {RoomWorld(3, tour_s=20).room(second * S) for second in range(27, 400)}
    assert rooms == {*ROOMS, CORRIDOR}


@pytest.mark.parametrize("regime", REGIMES)
def test_a_jump_far_ahead_sees_what_walking_there_sees(regime: str) -> None:
    walked, jumped = (RoomWorld(4, tour_s=10, regime=regime) for _ in range(2))
    for second in range(300):
        walked.room(second * S)
    assert np.array_equal(walked.image(299 * S), jumped.image(299 * S))


@pytest.mark.parametrize("regime", REGIMES)
def test_a_world_that_runs_for_long_keeps_few_visits_and_forgets_none(monkeypatch, regime) -> None:
    fresh = RoomWorld(4, tour_s=10, regime=regime)
    times = [t * S for t in (0, 5, 12, 500, 899, 60, 13, 7, 700)]
    images, rooms = [fresh.image(t) for t in times], [fresh.room(t) for t in times]
    monkeypatch.setattr("infinipot_ros.roomworld.world._QUIET_VISITS", 8)
    world = RoomWorld(4, tour_s=10, regime=regime)
    most = len(world._visits) + max(8, 60)  # at least the minute that was planned last
    for second in range(900):
        world.room(second * S)
        assert len(world._visits) == len(world._starts) <= most
    assert len(fresh._visits) > len(world._visits)
    assert [world.room(t) for t in times] == rooms
    assert all(np.array_equal(world.image(t), i) for t, i in zip(times, images, strict=True))


def test_the_number_of_objects_can_be_given() -> None:
    for n_objects in (0, 1, 5, 20):
        world = RoomWorld(2, tour_s=300, n_objects=n_objects)
        assert len(world.knowledge(300 * S).objects) == n_objects
    # More than may stand anywhere, or than a tour has room for: as many as there can be.
    assert 0 < len(RoomWorld(2, tour_s=600, n_objects=100).knowledge(600 * S).objects) <= 72
    assert len(RoomWorld(2, tour_s=3, n_objects=8).knowledge(3 * S).objects) < 8


@pytest.mark.parametrize("regime", ["tour", "watch", "crowd"])
def test_settled_means_that_the_view_has_not_changed(regime: str) -> None:
    world = RoomWorld(9, tour_s=60, regime=regime)
    for time in range(2_000, 60_000, 330):
        until = time if world.settled(time * MS) else time + 1
        views = {(world.room(t * MS), world.visible(t * MS)) for t in range(time - 1500, until, 1)}
        if world.settled(time * MS):
            assert len(views) == 1
            assert world.knowledge(time * MS).visible is not None
        else:
            assert world.knowledge(time * MS).visible is None
            # From one place of the same room to another nothing is told apart by words alone.
            assert len(views) > 1 or regime == "watch"


@pytest.mark.parametrize(
    "make, said",
    [
        (lambda: RoomWorld(tour_s=0), "tour_s is 0"),
        (lambda: RoomWorld(tour_s=float("nan")), "tour_s is nan; .* more than 0 seconds"),
        (lambda: RoomWorld(tour_s=float("inf")), "tour_s is inf; .* 1,000,000 at most"),
        (lambda: RoomWorld(seed=-1), "seed is -1; it must be 0 or more"),
        (lambda: next(RoomWorld().frames(float("nan"))), "fps is nan"),
        (lambda: RoomWorld(n_objects=-1), "n_objects is -1"),
        (lambda: RoomWorld(regime="flight"), "regime 'flight' is unknown: choose one of tour, "),
        (lambda: RoomWorld().image(-1), "time_ns is -1"),
        (lambda: next(RoomWorld().frames(0.0)), "fps is 0.0"),
        (
            lambda: plan_tour(np.random.default_rng(), REGIME["tour"], (), 0, 1, anywhere),
            "duration_ms is 0",
        ),
    ],
)
def test_impossible_worlds_are_refused(make, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make()
