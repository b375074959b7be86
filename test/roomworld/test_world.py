"""The world is a function of seed and time, and its account of itself is what the camera shows."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from itertools import islice, pairwise

import numpy as np
import pytest

from infinipot_ros.roomworld import QUESTION_KINDS, RoomWorld, frame_time_ns
from infinipot_ros.roomworld.scenes import IMAGE_SIZE, panorama, random_scene
from infinipot_ros.roomworld.tour import CORRIDOR_MS, plan_slots
from infinipot_ros.roomworld.vocabulary import COLORS, CORRIDOR, ROOMS, SIDES

S = 1_000_000_000
MS = 1_000_000


def test_images_have_the_documented_form() -> None:
    frame = next(RoomWorld(1).frames(10.0))
    assert frame.image.shape == (IMAGE_SIZE, IMAGE_SIZE, 3)
    assert frame.image.dtype == np.uint8
    assert frame.stamp_ns == 0


def test_an_image_depends_on_seed_and_time_only() -> None:
    in_order = [f.image for f in islice(RoomWorld(5, tour_s=20).frames(4.0), 100)]
    world = RoomWorld(5, tour_s=20)
    for index in (99, 3, 57, 3, 80):
        assert np.array_equal(world.image(frame_time_ns(index, 4.0)), in_order[index])
    other = RoomWorld(6, tour_s=20)
    assert not np.array_equal(other.image(10 * S), world.image(10 * S))


def test_another_process_sees_the_same_world() -> None:
    program = (
        "import hashlib, numpy as np\n"
        "from infinipot_ros.roomworld import *\n"
        "w = RoomWorld(11, tour_s=30)\n"
        "h = hashlib.sha256(b''.join(w.image(i * 700_000_000).tobytes() for i in range(60)))\n"
        "rng = np.random.default_rng(2)\n"
        "asked = [w.ask(k, 29 * 10**9, rng) for k in QUESTION_KINDS]\n"
        "print(h.hexdigest(), asked)"
    )
    there = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=os.environ
    ).stdout.strip()
    world = RoomWorld(11, tour_s=30)
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


@pytest.mark.parametrize("seed", range(12))
def test_sightings_are_what_an_observer_sees(seed: int, observer) -> None:
    world = RoomWorld(seed, tour_s=40)
    account = observer(world, 40_000)
    listed = list(world.sightings(40 * S))
    assert {s.kind for s in listed} == set(account.kinds)
    for sighting in listed:
        seen = account.of(sighting.kind)
        assert sighting.room == seen.room
        assert seen.time_ms - 5 < sighting.time_ms <= seen.time_ms
    assert [s.time_ms for s in listed] == sorted(s.time_ms for s in listed)


@pytest.mark.parametrize("seed", range(8))
def test_the_camera_shows_a_sighting_in_its_color_on_its_side(seed: int) -> None:
    world = RoomWorld(seed, tour_s=30)
    for sighting in world.sightings(30 * S):
        # Once the camera has swung in, the object is near its place, give or take a few pixels.
        time = (sighting.time_ms + 1000) * MS
        if sighting.kind not in world.visible(time):
            continue
        column = 28 * SIDES.index(sighting.side)
        part = world.image(time)[:, max(0, column - 6) : column + 34].astype(float)
        near = np.array(COLORS[sighting.color], float)
        direction = near / np.linalg.norm(near)
        unit = part / np.maximum(np.linalg.norm(part, axis=-1, keepdims=True), 1.0)
        alike = part.max(-1) < 60 if sighting.color == "black" else unit @ direction > 0.97
        assert alike.sum() > 40, sighting


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


def test_after_the_tour_nothing_new_is_seen() -> None:
    world = RoomWorld(3, tour_s=20)
    before = world.sightings(25 * S)
    rooms = set()
    for second in range(27, 400):
        assert world.visible(second * S) == ()
        rooms.add(world.room(second * S))
    assert world.sightings(400 * S) == before
    assert rooms == {*ROOMS, CORRIDOR}


def test_a_jump_far_ahead_sees_what_walking_there_sees() -> None:
    walked, jumped = RoomWorld(4, tour_s=10), RoomWorld(4, tour_s=10)
    for second in range(300):
        walked.room(second * S)
    assert np.array_equal(walked.image(299 * S), jumped.image(299 * S))


def test_two_rooms_never_meet_within_one_step() -> None:
    rng = np.random.default_rng(0)
    assert CORRIDOR_MS[0] > 500
    for _ in range(50):
        slots = plan_slots(rng, 60_000, 5)
        assert slots[0].start_ms == 0
        assert slots[-1].end_ms >= 60_000
        for one, other in pairwise(slots):
            assert one.end_ms == other.start_ms
            assert one.corridor != other.corridor


def test_settled_means_that_the_view_has_not_changed() -> None:
    world = RoomWorld(9, tour_s=60)
    for time in range(2_000, 60_000, 130):
        if world.settled(time * MS):
            views = {(world.room(t * MS), world.visible(t * MS)) for t in range(time - 1500, time)}
            assert len(views) == 1
        else:
            views = {
                (world.room(t * MS), world.visible(t * MS)) for t in range(time - 1500, time + 1)
            }
            assert len(views) > 1


@pytest.mark.parametrize(
    "make, said",
    [
        (lambda: RoomWorld(tour_s=0), "tour_s is 0"),
        (lambda: RoomWorld(n_objects=6), "n_objects is 6"),
        (lambda: RoomWorld().image(-1), "time_ns is -1"),
        (lambda: next(RoomWorld().frames(0.0)), "fps is 0.0"),
        (lambda: random_scene(np.random.default_rng(), None, 4), "n_objects is 4"),
        (lambda: plan_slots(np.random.default_rng(), 0, 1), "duration_ms is 0"),
    ],
)
def test_impossible_worlds_are_refused(make, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make()


def test_hiding_an_object_changes_only_its_place() -> None:
    scene = random_scene(np.random.default_rng(8), "office", 2)
    whole, without = panorama(scene), panorama(scene, scene.objects[:1])
    changed = np.abs(whole - without).max(-1) > 1
    thing = scene.objects[0]
    rows, columns = np.nonzero(changed)
    assert len(rows) > 50
    assert abs(rows - thing.y).max() <= thing.size // 2 + 1
    assert abs(columns - 14 - thing.x).max() <= thing.size // 2 + 1
