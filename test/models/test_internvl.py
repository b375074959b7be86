"""What is InternVL's own: numbered frames on lines of their own, one tile a frame."""

from __future__ import annotations

import pytest
import torch

from infinipot_ros.core.errors import ModelError
from infinipot_ros.models.internvl import InternVLAdapter
from infinipot_ros.models.scaled.internvl import scaled


@pytest.fixture(scope="module")
def parts():
    """Return config, tokenizer and preprocessor file of a scaled-down model."""
    return scaled(layers=1, side=56)


@pytest.fixture(scope="module")
def network(parts):
    """Return such a model."""
    return _network(parts.config)


def _network(config):
    from transformers import InternVLForConditionalGeneration

    return InternVLForConditionalGeneration(config).eval()


def _adapter(network, parts, **changes):
    return InternVLAdapter(
        "tiny",
        model=network,
        tokenizer=parts.tokenizer,
        processor_config=parts.preprocessor | changes,
    )


@pytest.mark.parametrize(
    "step, text",
    [(0, "Frame1: <img></img>"), (1, "\nFrame2: <img></img>"), (9, "\nFrame10: <img></img>"),
     (72_576_000, "\nFrame72576001: <img></img>"), (10**15, "\nFrame99999999999: <img></img>")],
)  # fmt: skip
def test_frames_are_numbered(network, parts, step, text):
    adapter = _adapter(network, parts)
    before, after = adapter.step_text(step, 0.0)
    assert adapter._tokenizer.decode([*before, *after]) == text
    assert len(after) == 1
    assert len(before) + len(after) <= adapter.max_step_text()


def test_the_wording_around_the_video(network, parts):
    adapter = _adapter(network, parts)
    assert adapter._tokenizer.decode(adapter.prefix_ids(None)) == "<|im_start|>user\n"
    assert adapter._tokenizer.decode(adapter.prefix_ids("Be brief.")) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n"
    )
    assert adapter._tokenizer.decode(adapter.question_ids("Who?")) == (
        "\nWho?<|im_end|>\n<|im_start|>assistant\n"
    )


def test_a_template_that_writes_no_video_is_refused(network, parts):
    tokenizer = scaled(layers=1, side=56).tokenizer
    tokenizer.chat_template = tokenizer.chat_template.replace("<video>", "")
    with pytest.raises(ModelError, match="shows no <video>"):
        InternVLAdapter(
            "tiny", model=network, tokenizer=tokenizer, processor_config=parts.preprocessor
        )


def test_qwen3_text_with_heads_of_their_own_size(parts):
    """InternVL3.5: Qwen3, whose heads are wider than hidden / heads."""
    from transformers import InternVLConfig

    content = parts.config.to_dict()
    text = content["text_config"] | {"model_type": "qwen3", "head_dim": 16}
    for name in ("layer_types", "sliding_window", "max_window_layers", "use_sliding_window"):
        text.pop(name, None)
    config = InternVLConfig(**content | {"text_config": text})
    adapter = _adapter(_network(config), parts)
    assert (adapter.shape.head_dim, adapter.shape.kv_heads) == (16, 2)
    assert len(adapter.rotary.inv_freq) == 8


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"size": {"height": 84, "width": 84}}, "56x56 pixels"),
        ({"size": {"height": 56, "width": 112}}, "56x56 pixels"),
        ({"do_resize": False}, "do_resize"),
        ({"do_rescale": False}, "do_rescale"),
    ],
)
def test_files_that_do_not_fit_are_refused(network, parts, changes, message):
    with pytest.raises(ModelError, match=message):
        _adapter(network, parts, **changes)


def test_patches_that_cannot_be_shuffled_are_refused(parts):
    config = scaled(layers=1, side=56).config
    config.vision_config.image_size = [70, 70]
    with pytest.raises(ModelError, match=r"5x5 patches.*multiple of 2"):
        _adapter(_network(config), parts, size={"height": 70, "width": 70})


def test_half_precision_pixels(parts):
    """Pixels come in float32 whatever the weights are."""
    network = _network(scaled(layers=1, side=56).config).to(torch.bfloat16)
    adapter = _adapter(network, parts)
    with torch.inference_mode():
        encoded = adapter.encode(torch.randn(2, 3, 56, 56), (2, 2, 2))
    assert encoded.embeddings.dtype == torch.bfloat16
    assert adapter.shape.dtype == torch.bfloat16
