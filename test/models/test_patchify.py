"""Our patches equal the library's, at the same size."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from infinipot_ros.core.errors import ConfigError, FrameError
from infinipot_ros.models.patchify import QwenPreprocessor

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


def test_refusals_name_value_and_remedy():
    with pytest.raises(FrameError, match="2x4000 pixels is too elongated"):
        _preprocessor().target_size(2, 4000)
    with pytest.raises(FrameError, match="raise max_pixels"):
        _preprocessor(max_pixels=4 * 28 * 28).target_size(20, 3000)
    with pytest.raises(ConfigError, match=r"\(50, 84\).*multiples of 28"):
        _preprocessor(fixed_size=(50, 84))
    with pytest.raises(ConfigError, match="at least 784"):
        _preprocessor(min_pixels=0, max_pixels=100)
