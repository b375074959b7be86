"""The pool of photographed scenes: labels at the right tokens, views that show what they say."""

from __future__ import annotations

import numpy as np
import pytest

from infinipot_ros.roomworld.scenes import Scene, SceneObject, random_scene
from infinipot_ros.roomworld.training.architecture import TOKEN_GRID, TOKENS_PER_STEP
from infinipot_ros.roomworld.training.pool import load_pool, save_pool
from infinipot_ros.roomworld.training.views import CLEAR, IGNORE, NO_KIND, Photographer, View
from infinipot_ros.roomworld.training.workers import ordered_map
from infinipot_ros.roomworld.vocabulary import COLORS, CORRIDOR, KINDS

CUP = SceneObject("cup", "red", "right", 35, x=100, y=102)
HAT = SceneObject("hat", "blue", "left", 30, x=20, y=20)


def take(scene: Scene, view: View, seed: int = 0):
    return Photographer(scene, np.random.default_rng(seed)).take(view)


def test_photographs_label_the_cell_of_an_object() -> None:
    taken = take(Scene("office", (CUP,), look=1), View.DWELL_A)
    assert taken.frames.shape == (2, 120, 120, 3)
    kinds, colors = (labels.reshape(TOKEN_GRID, TOKEN_GRID) for labels in taken[1:])
    assert kinds[2, 2] == KINDS.index("cup")
    assert colors[2, 2] == list(COLORS).index("red")
    assert kinds[0, 0] == NO_KIND
    assert (colors.reshape(-1)[:-1] == IGNORE).all()


@pytest.mark.parametrize("view", View)
def test_every_view_labels_what_it_shows(view: View) -> None:
    """The first object is missing in views without it, the second is always there."""
    taken = take(Scene("office", (CUP, HAT), look=1), view)
    found = {KINDS[k] for k in taken.kinds if 0 <= k < NO_KIND}
    assert found == ({"hat"} if "WITHOUT" in view.name else {"cup", "hat"})
    assert ((taken.colors >= 0) == ((taken.kinds >= 0) & (taken.kinds < NO_KIND))).all()


def test_tokens_that_a_large_part_of_an_object_reaches_belong_to_nobody() -> None:
    large = SceneObject("box", "red", "middle", 39, x=64, y=60)
    kinds = take(Scene("office", (large,), 1), View.DWELL_B).kinds.reshape(3, 3)
    assert kinds[1, 1] == KINDS.index("box")
    assert kinds[1, 2] == IGNORE
    assert kinds[1, 0] == kinds[0, 1] == NO_KIND
    # Another object's own token stays its own.
    beside = SceneObject("cup", "blue", "right", 30, x=100, y=60)
    both = take(Scene("office", (large, beside), 1), View.DWELL_B).kinds.reshape(3, 3)
    assert both[1, 2] == KINDS.index("cup")


def test_a_vanishing_object_is_in_the_first_frame_only() -> None:
    scene = random_scene(np.random.default_rng(2), "garage", 1)

    def at_object(frame: np.ndarray) -> np.ndarray:
        thing = scene.objects[0]
        near = slice(max(0, thing.y - 12), thing.y + 12), slice(max(0, thing.x - 12), thing.x + 12)
        return frame[near].astype(float)

    def change(view: View) -> float:
        return float(
            np.median(
                [
                    np.abs(at_object(first) - at_object(second)).mean()
                    for first, second in (take(scene, view, seed).frames for seed in range(9))
                ]
            )
        )

    still = change(View.WITHOUT_A)
    assert change(View.VANISH) > 1.5 * still
    assert change(View.APPEAR) > 1.5 * still


def test_arriving_and_leaving_show_the_corridor_in_one_frame() -> None:
    scene = Scene("bathroom", (CUP,), look=4)
    inside = take(scene, View.DWELL_A).frames[0].astype(float).mean((0, 1))
    for view, frame in ((View.ARRIVE, 1), (View.LEAVE, 0)):
        frames = take(scene, view).frames.astype(float).mean((1, 2))
        # The bathroom is blue, the corridor is not.
        blueness = frames[:, 2] / frames[:, 0]
        assert blueness[frame] == pytest.approx(inside[2] / inside[0], abs=0.15)
        assert blueness[1 - frame] < blueness[frame] - 0.1


def test_the_pool_holds_scenes_of_every_size(pool) -> None:
    assert pool.tokens.shape[:3] == (120, len(View), TOKENS_PER_STEP)
    assert pool.tokens.dtype == np.float16
    assert pool.labels.shape == (2, 120, len(View), TOKENS_PER_STEP)
    assert np.isfinite(pool.tokens).all()
    rng = np.random.default_rng(0)
    for size in range(-1, 6):
        scene = pool.scenes[pool.draw(rng, size)]
        assert len(scene.objects) == max(0, size)
        assert (scene.room == CORRIDOR) == (size < 0)
    for index, scene in enumerate(pool.scenes):
        expected = {thing.identity for thing in scene.objects}
        kinds, colors = pool.labels[:, index, CLEAR[0]]
        thing = (kinds >= 0) & (kinds < NO_KIND)
        labelled = zip(kinds[thing], colors[thing], strict=True)
        assert {(KINDS[k], list(COLORS)[c]) for k, c in labelled} == expected


def test_the_pool_finds_an_object_alone_in_another_room(pool) -> None:
    rng = np.random.default_rng(0)
    found = 0
    for scene in pool.scenes:
        for thing in scene.objects:
            index = pool.draw_alone(rng, thing.identity, scene.room)
            if index is not None:
                other = pool.scenes[index]
                assert [t.identity for t in other.objects] == [thing.identity]
                assert other.room != scene.room
                found += 1
    assert found > 20
    assert pool.draw_alone(rng, ("dragon", "red"), "office") is None


def test_a_pool_survives_its_file(pool, tmp_path) -> None:
    save_pool(pool, tmp_path / "pool.pt")
    again = load_pool(tmp_path / "pool.pt")
    assert again.scenes == pool.scenes
    assert np.array_equal(again.tokens, pool.tokens)
    assert np.array_equal(again.labels, pool.labels)


def test_worker_processes_change_nothing() -> None:
    jobs = [-3, 1, -2, 5, -8, 0, 4]
    assert list(ordered_map(abs, jobs, processes=2)) == list(ordered_map(abs, jobs, processes=1))
