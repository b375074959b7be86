"""What the camera can look at: panoramas, objects in cells, covers, people, camera motions."""

from __future__ import annotations

import numpy as np
import pytest

from infinipot_ros.roomworld.camera import MOTIONS, CameraMotion, expose
from infinipot_ros.roomworld.objects import SIZES, sprite
from infinipot_ros.roomworld.people import Person, draw_person
from infinipot_ros.roomworld.scenes import (
    CELLS,
    IMAGE_SIZE,
    MARGIN,
    MAX_PER_SCENE,
    Scene,
    SceneObject,
    panorama,
    place_objects,
    random_identity,
    random_scene,
)
from infinipot_ros.roomworld.vocabulary import COLORS, CORRIDOR, KINDS, ROOMS, SIDES

CELL = IMAGE_SIZE // CELLS


def some_scenes(n: int = 60) -> list[Scene]:
    rng = np.random.default_rng(0)
    return [random_scene(rng, ROOMS[i % 5], i % (MAX_PER_SCENE + 1)) for i in range(n)]


def changed_by_hiding(scene: Scene, thing: SceneObject) -> tuple[np.ndarray, np.ndarray]:
    difference = np.abs(panorama(scene) - panorama(scene, (thing,))).max(-1)
    return np.nonzero(difference > 1)


def test_a_panorama_has_margins_and_camera_values() -> None:
    for room in (*ROOMS, CORRIDOR):
        image = panorama(Scene(room, (), look=3))
        assert image.shape == (IMAGE_SIZE + 2 * MARGIN, IMAGE_SIZE + 2 * MARGIN, 3)
        assert image.dtype == np.float32
        assert 0 <= image.min() < image.max() < 400


def test_objects_stand_apart_each_in_its_cell_on_its_side() -> None:
    for scene in some_scenes():
        cells = [(thing.y // CELL, thing.x // CELL) for thing in scene.objects]
        assert len(set(cells)) == len(cells)
        assert len({thing.identity for thing in scene.objects}) == len(scene.objects)
        for thing, (_, column) in zip(scene.objects, cells, strict=True):
            assert thing.side == SIDES[column]
            # The whole object is in the centred image or in its margin.
            assert thing.x - thing.size // 2 > -MARGIN
            assert thing.x + thing.size // 2 < IMAGE_SIZE + MARGIN


def test_there_are_small_objects_and_partly_covered_ones() -> None:
    things = [thing for scene in some_scenes(200) for thing in scene.objects]
    sizes = np.bincount([SIZES.index(thing.size) for thing in things]) / len(things)
    assert (sizes > 0.15).all()
    covered = [thing for thing in things if thing.cover]
    assert 0.1 < len(covered) / len(things) < 0.3
    for thing in covered:
        assert 0.2 <= thing.cover <= 0.35
        assert thing.size > SIZES[0]  # what is far away and half hidden could not be told


def test_what_a_cover_leaves_tells_the_color() -> None:
    things = [thing for scene in some_scenes(400) for thing in scene.objects if thing.cover]
    assert {thing.kind for thing in things} == set(KINDS) - {"plant"}  # all of its pot would go
    for thing in things:
        drawn = sprite(thing.kind, thing.color, thing.size)
        plain = np.abs(drawn.premultiplied - np.array(COLORS[thing.color])).max(-1) < 12
        left = plain[: thing.size - round(thing.cover * thing.size)]
        assert left.sum() > max(40, 0.2 * plain.sum()), thing


@pytest.mark.parametrize("seed", range(12))
def test_hiding_an_object_changes_only_its_place(seed: int) -> None:
    scene = random_scene(np.random.default_rng(seed), "office", 4)
    for thing in scene.objects:
        rows, columns = changed_by_hiding(scene, thing)
        assert len(rows) > 50
        assert abs(rows - MARGIN - thing.y).max() <= thing.size // 2 + 1
        assert abs(columns - MARGIN - thing.x).max() <= thing.size // 2 + 1


def test_furniture_hides_the_lower_part_and_stays_when_the_object_goes() -> None:
    bare = SceneObject("box", "red", "middle", 39, x=60, y=60)
    behind = SceneObject("box", "red", "middle", 39, x=60, y=60, cover=0.3)
    lowest_bare = changed_by_hiding(Scene("kitchen", (bare,), 5), bare)[0].max()
    lowest = changed_by_hiding(Scene("kitchen", (behind,), 5), behind)[0].max()
    assert lowest_bare - lowest == pytest.approx(0.3 * 39, abs=3)
    empty = panorama(Scene("kitchen", (), 5))
    gone = panorama(Scene("kitchen", (behind,), 5), (behind,))
    assert (np.abs(empty - gone).max(-1) > 1).sum() > 100


def test_the_same_look_is_the_same_place() -> None:
    assert np.array_equal(panorama(Scene("garage", (), 8)), panorama(Scene("garage", (), 8)))
    assert not np.array_equal(panorama(Scene("garage", (), 8)), panorama(Scene("garage", (), 9)))


@pytest.mark.parametrize("kind", MOTIONS)
def test_the_window_never_leaves_the_panorama(kind: str) -> None:
    rng = np.random.default_rng(1)
    painted = panorama(Scene("kitchen", (), 1))
    reached = 0.0
    for _ in range(60):
        motion = CameraMotion.draw(rng, kind)
        for time in range(0, 4000, 130):
            pose = motion.pose(time, 4000 - time)
            reached = max(reached, abs(pose.x), abs(pose.y))
            assert 0.87 < motion.light(time) < 1.13
        image = expose(painted, motion, 10, 3990, rng)
        assert image.shape == (IMAGE_SIZE, IMAGE_SIZE, 3)
        assert image.dtype == np.uint8
        assert motion.steady == (kind == "still")
    assert reached < MARGIN
    assert {"walk": reached > 8, "hand": reached > 5, "still": reached == 0}[kind]


def test_somebody_hides_a_strip_of_the_image_and_nothing_else() -> None:
    image = np.full((IMAGE_SIZE, IMAGE_SIZE, 3), 250.0, np.float32)
    draw_person(image, Person(x=40, width=22, clothes=0, skin=0))
    rows, columns = np.nonzero((image < 249).any(-1))
    assert len(rows) > 1000
    assert 28 <= columns.min() < columns.max() <= 52
    rng = np.random.default_rng(0)
    for _ in range(100):  # half outside, or wholly: never an error
        draw_person(image, Person.draw(rng, IMAGE_SIZE))


@pytest.mark.parametrize(
    "make, error, said",
    [
        (lambda rng: random_scene(rng, "office", 7), ValueError, "n_objects is 7"),
        (lambda rng: panorama(Scene("attic", (), 0)), KeyError, "attic"),
        (lambda rng: CameraMotion.draw(rng, "fly"), ValueError, "'fly' is unknown"),
        (
            lambda rng: random_identity(rng, "office", [(k, c) for k in KINDS for c in COLORS]),
            ValueError,
            "no object is left for the office: 72 are taken",
        ),
        (lambda rng: place_objects(rng, [("cup", "red")] * 10), ValueError, "larger sample"),
    ],
)
def test_impossible_scenes_are_refused(make, error, said: str) -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(error, match=said):
        make(rng)
