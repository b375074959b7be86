"""Sampling by stamp and grouping into blocks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infinipot_ros.core.batching import FrameBatcher, StampSampler
from infinipot_ros.core.errors import ConfigError
from infinipot_ros.core.types import Frame

SECOND = 1_000_000_000


def frame(index, size=(4, 4)):
    return Frame(np.zeros((*size, 3), np.uint8), index)


@pytest.mark.parametrize("camera_fps", [2.0, 3.0, 7.5, 10.0, 29.97, 30.0, 60.0])
def test_the_rate_is_kept(camera_fps):
    sampler = StampSampler(2.0)
    stamps = [round(i * SECOND / camera_fps) for i in range(round(60 * camera_fps))]
    taken = [s for s in stamps if sampler.accept(s)]
    assert len(taken) == pytest.approx(120, abs=1)


def test_a_camera_with_jitter_keeps_the_rate():
    rng = np.random.default_rng(0)
    stamps = np.arange(3000) * SECOND // 30 + rng.integers(-8_000_000, 8_000_000, 3000)
    sampler = StampSampler(2.0)
    taken = sum(sampler.accept(int(s)) for s in np.sort(stamps))
    assert taken == pytest.approx(200, abs=2)


def test_a_camera_at_the_sampling_rate_with_jitter_gives_every_frame():
    rng = np.random.default_rng(0)
    stamps = np.arange(500) * SECOND // 2 + rng.integers(-20_000_000, 20_000_000, 500)
    sampler = StampSampler(2.0)
    assert sum(sampler.accept(int(s)) for s in stamps) >= 495


def test_a_slow_camera_gives_every_frame():
    sampler = StampSampler(2.0)
    assert all(sampler.accept(i * SECOND) for i in range(20))


@given(st.lists(st.integers(-(10**18), 10**18), min_size=1, max_size=30))
def test_no_jump_stops_the_sampling(stamps):
    """Whatever came before, a camera that goes on from its last stamp is sampled again."""
    sampler = StampSampler(2.0)
    for stamp in stamps:
        sampler.accept(stamp)
    go_on = [sampler.accept(stamps[-1] + i * SECOND // 10) for i in range(1, 31)]
    assert 5 <= sum(go_on) <= 8


def test_a_bag_that_loops_is_sampled_on():
    sampler = StampSampler(2.0)
    lap = [sampler.accept(i * SECOND // 10) for i in range(100)]
    second = [sampler.accept(i * SECOND // 10) for i in range(100)]
    assert sum(lap) == pytest.approx(20, abs=1)
    assert sum(second) == pytest.approx(20, abs=1)
    assert any(second[:3])


def test_stamps_that_fall_for_long_are_followed():
    sampler = StampSampler(2.0)
    taken = [sampler.accept((100 - i) * SECOND) for i in range(60)]
    assert sum(taken) >= 3


def test_late_frames_are_not_taken_and_change_nothing():
    stamps = [i * SECOND // 30 for i in range(300)]
    for i in range(10, 290, 10):  # every tenth pair swapped
        stamps[i], stamps[i + 1] = stamps[i + 1], stamps[i]
    sampler = StampSampler(2.0)
    taken = [s for s in stamps if sampler.accept(s)]
    assert taken == sorted(taken)
    assert len(taken) == pytest.approx(20, abs=1)


@pytest.mark.parametrize("ahead", [-5 * SECOND, -SECOND // 10, SECOND // 10, 5 * SECOND])
def test_a_second_publisher_does_not_raise_the_rate(ahead):
    sampler = StampSampler(2.0)
    taken = 0
    for i in range(300):
        taken += sampler.accept(10 * SECOND + i * SECOND // 30)
        taken += sampler.accept(10 * SECOND + i * SECOND // 30 + ahead)
    assert 18 <= taken <= 24


def test_repeated_stamps_are_taken_once():
    sampler = StampSampler(2.0)
    assert [sampler.accept(0) for _ in range(5)] == [True, False, False, False, False]


def test_blocks_fill_and_flush():
    batcher = FrameBatcher(4, 8)
    for index in range(6):
        batcher.add(frame(index))
    assert batcher.ready()
    assert [f.stamp_ns for f in batcher.take()] == [0, 1, 2, 3]
    assert not batcher.ready()
    assert [f.stamp_ns for f in batcher.take()] == [4, 5]
    assert batcher.take() == []


def test_another_size_ends_a_block():
    batcher = FrameBatcher(4, 8)
    batcher.add(frame(0))
    batcher.add(frame(1, (6, 4)))
    assert batcher.ready()
    assert [f.stamp_ns for f in batcher.take()] == [0]
    assert not batcher.ready()
    assert [f.stamp_ns for f in batcher.take()] == [1]


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 2)), max_size=60))
def test_nothing_is_lost_without_a_count(actions):
    batcher, given_, dropped, taken = FrameBatcher(3, 5), 0, 0, []
    for add, size in actions:
        if add:
            dropped += batcher.add(frame(given_, (size, 4)))
            given_ += 1
        else:
            block = batcher.take()
            assert len({f.image.shape for f in block}) <= 1
            taken += [f.stamp_ns for f in block]
        assert len(batcher) <= 5
    assert given_ == dropped + len(taken) + len(batcher)
    assert taken == sorted(taken)
    assert batcher.clear() == given_ - dropped - len(taken)


def test_a_queue_below_a_block_is_refused():
    with pytest.raises(ConfigError, match="max_pending_frames is 3; a block has 4 frames"):
        FrameBatcher(4, 3)
