"""Timeline: what a stream's clock says, whatever the camera's does."""

from __future__ import annotations

import pytest
import torch

from infinipot_ros.core.numbering import BlockLayout, VideoGrid
from infinipot_ros.core.timeline import Timeline

SECOND = 1_000_000_000
LAYOUT = BlockLayout(1, 1, ((0, 0),))


def _timeline(frames_per_step=1):
    return Timeline(
        start=0, numbering=VideoGrid(1), frames_per_step=frames_per_step,
        device=torch.device("cpu"), interval_ns=SECOND // 2,
    )  # fmt: skip


def _run(stamps):
    timeline, seconds = _timeline(), []
    for stamp in stamps:
        seconds += timeline.seconds([stamp])
        timeline.advance(LAYOUT, [stamp])
    return seconds


def test_seconds_count_from_the_first_frame():
    assert _run([7 * SECOND, 8 * SECOND, 8 * SECOND, 11 * SECOND]) == [0.0, 1.0, 1.0, 4.0]


def test_a_step_says_its_middle():
    stamps = [0, SECOND // 2, SECOND, SECOND * 3 // 2]
    assert _timeline(2).seconds(stamps) == [0.25, 1.25]


def test_asking_for_seconds_changes_nothing():
    timeline = _timeline()
    assert timeline.seconds([5 * SECOND]) == timeline.seconds([5 * SECOND]) == [0.0]


@pytest.mark.parametrize(
    "set_to",
    [
        1_790_000_000 * SECOND,  # a board without a clock of its own learns the time
        -(10**18),
        0,
    ],
)
def test_a_clock_that_is_set_counts_as_one_frame(set_to):
    before = [100 * SECOND, 101 * SECOND]
    after = [set_to, set_to + SECOND, set_to + 3 * SECOND]
    assert _run(before + after) == [0.0, 1.0, 1.5, 2.5, 4.5]


def test_a_bag_that_loops_goes_on():
    lap = [n * SECOND for n in range(3)]
    assert _run(lap + lap + lap) == [0.0, 1.0, 2.0, 2.5, 3.5, 4.5, 5.0, 6.0, 7.0]


def test_a_long_pause_is_told():
    assert _run([0, 3600 * SECOND]) == [0.0, 3600.0]
