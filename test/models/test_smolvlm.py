"""What is SmolVLM's own: timestamps, the wording before the video, squares in two steps."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from infinipot_ros.core.errors import ModelError
from infinipot_ros.models.scaled.smolvlm import scaled
from infinipot_ros.models.smolvlm import SmolVLMAdapter


@pytest.fixture(scope="module")
def parts():
    """Return config, tokenizer and preprocessor file of a scaled-down model."""
    return scaled(layers=1, side=64)


@pytest.fixture(scope="module")
def network(parts):
    """Return such a model."""
    from transformers import SmolVLMForConditionalGeneration

    return SmolVLMForConditionalGeneration(parts.config).eval()


def _adapter(network, parts, template=None, **changes):
    tokenizer = scaled(layers=1, side=64).tokenizer
    tokenizer.chat_template = template or tokenizer.chat_template
    return SmolVLMAdapter(
        "tiny", model=network, tokenizer=tokenizer, processor_config=parts.preprocessor | changes
    )


@pytest.mark.parametrize(
    "seconds, time",
    [(0.0, "00:00"), (0.99, "00:00"), (59.999, "00:59"), (60.0, "01:00"), (5999.5, "99:59"),
     (6000.0, "100:00"), (28 * 86400.0 + 61, "40321:01"), (1e12, "9999999:40")],
)  # fmt: skip
def test_timestamps(network, parts, seconds, time):
    adapter = _adapter(network, parts)
    before, after = adapter.step_text(0, seconds)
    decoded = adapter._tokenizer.decode([*before, *after])
    fake = "<fake_token_around_image>"
    assert decoded == f"\nFrame from {time}:{fake}<global-img>{fake}"
    assert len(after) == 1
    assert len(before) + len(after) <= adapter.max_step_text()


def test_the_wording_around_the_video(network, parts):
    adapter = _adapter(network, parts)
    assert adapter._tokenizer.decode(adapter.prefix_ids(None)) == (
        "<|im_start|>User: You are provided the following series of frames from a video.\n"
    )
    assert adapter._tokenizer.decode(adapter.prefix_ids("Be brief.")) == (
        "<|im_start|>System: Be brief.<end_of_utterance>\n"
        "User: You are provided the following series of frames from a video.\n"
    )
    assert adapter._tokenizer.decode(adapter.question_ids("Who?")) == (
        "\n\nWho?<end_of_utterance>\nAssistant:"
    )


def test_a_template_need_not_know_videos(network, parts):
    """Templates that write nothing for a video item give the same prompt."""
    known = parts.tokenizer.chat_template
    unknown = known.replace("{% if c.type == 'video' %}<video>{% else %}", "{% if c.text %}")
    assert unknown != known
    assert "<video>" not in unknown
    one, other = _adapter(network, parts), _adapter(network, parts, unknown)
    assert one.prefix_ids("Be brief.") == other.prefix_ids("Be brief.")
    assert one.question_ids("Who?") == other.question_ids("Who?")


@pytest.mark.parametrize("shape", [(90, 160), (160, 90), (64, 64), (31, 200), (1, 300)])
def test_frames_are_resized_in_two_steps(network, parts, shape):
    frame = np.random.default_rng(0).integers(0, 256, (*shape, 3), dtype=np.uint8)
    adapter = _adapter(network, parts, video_sampling={"video_size": {"longest_edge": 96}})
    pixels, grid = adapter.preprocessor(0, 0)([frame])
    assert grid == (1, 1, 1)
    longest = 96 / max(shape)
    high, wide = (max(2, int(side * longest + 1e-9)) for side in shape)
    high, wide = high + high % 2, wide + wide % 2
    resample = Image.Resampling.LANCZOS
    image = Image.fromarray(frame).resize((wide, high), resample).resize((64, 64), resample)
    expected = np.asarray(image).transpose(2, 0, 1) / 127.5 - 1
    if shape[0] > 1:
        np.testing.assert_allclose(pixels[0], expected, atol=1e-5)
    assert pixels.shape == (1, 3, 64, 64)


def test_a_black_or_grey_frame_is_a_frame(network, parts):
    """The library takes an image whose pixels are all zero for padding and drops it."""
    import torch

    adapter = _adapter(network, parts, image_mean=[0.0] * 3, image_std=[1.0] * 3)
    pixels, grid = adapter.preprocessor(0, 0)([np.zeros((64, 64, 3), np.uint8)] * 2)
    assert not pixels.any()
    with torch.inference_mode():
        assert adapter.encode(torch.from_numpy(pixels), grid).embeddings.shape == (2, 96)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"max_image_size": {"longest_edge": 80}}, "80 pixels, 5 patches of 16.*scale_factor 4"),
        ({"max_image_size": {"longest_edge": 48}}, "48 pixels, 3 patches of 16.*scale_factor 4"),
        ({"do_resize": False}, "do_resize"),
        ({"do_normalize": False}, "do_normalize"),
    ],
)
def test_files_that_do_not_fit_are_refused(network, parts, changes, message):
    with pytest.raises(ModelError, match=message):
        _adapter(network, parts, **changes)


def test_what_the_file_leaves_out_is_the_librarys(network, parts):
    names = ("image_mean", "image_std", "resample", "max_image_size", "video_sampling")
    silent = dict.fromkeys(parts.preprocessor.keys() - names)
    adapter = SmolVLMAdapter(
        "tiny", model=network, tokenizer=parts.tokenizer, processor_config=silent
    )
    images = adapter.preprocessor(0, 0)
    assert (images.height, images.width, images.longest_edge) == (64, 64, 64)
    assert images.mean == images.std == (0.5, 0.5, 0.5)
    assert images.resample == Image.Resampling.LANCZOS
