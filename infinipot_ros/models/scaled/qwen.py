"""What the scaled-down Qwen models share: special tokens, chat template, preprocessor."""

from __future__ import annotations

from typing import Any

from infinipot_ros.models.scaled.text import byte_tokenizer

INITIAL = 0.1
"""Spread of initial weights: larger than usual, so that attention is far from uniform."""

_HEAD_DIM = 16  # of Qwen2-VL and Qwen2.5-VL, where 128 are published

# In the order of the published ids.
_SPECIAL = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|object_ref_start|>",
    "<|object_ref_end|>",
    "<|box_start|>",
    "<|box_end|>",
    "<|quad_start|>",
    "<|quad_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
_TURNS = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.content is string %}{{ m.content }}{% else %}{% for c in m.content %}"
    "{% if c.type == 'video' %}<|vision_start|><|video_pad|><|vision_end|>"
    "{% elif c.type == 'text' %}{{ c.text }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_SYSTEM = (
    "{% if messages[0].role != 'system' %}<|im_start|>system\nBe helpful.<|im_end|>\n{% endif %}"
)


def token_id(token: str) -> int:
    """Return the id of a special token."""
    return 256 + _SPECIAL.index(token)


def tokenizer(*, system_prompt: bool) -> Any:
    """Return a byte tokenizer that writes prompts of the published shape.

    Args:
        system_prompt: whether the template puts in one where none is given.
    """
    template = (_SYSTEM if system_prompt else "") + _TURNS
    return byte_tokenizer(_SPECIAL, eos="<|im_end|>", chat_template=template)


def outer_ids() -> dict[str, int]:
    """Return the token ids that a model's config names."""
    return {
        "image_token_id": token_id("<|image_pad|>"),
        "video_token_id": token_id("<|video_pad|>"),
        "vision_start_token_id": token_id("<|vision_start|>"),
        "vision_end_token_id": token_id("<|vision_end|>"),
    }


def text_ids() -> dict[str, Any]:
    """Return the token ids that the config of a language model names, and their number."""
    return {
        "vocab_size": 256 + len(_SPECIAL),
        "bos_token_id": None,
        "eos_token_id": token_id("<|im_end|>"),
        "pad_token_id": token_id("<|endoftext|>"),
    }


def qwen2_text(*, layers: int, heads: int, kv_heads: int, max_positions: int) -> dict[str, Any]:
    """Return the config of a language model of Qwen2-VL and Qwen2.5-VL: 16 channels a head."""
    hidden = _HEAD_DIM * heads
    return {
        "hidden_size": hidden,
        "intermediate_size": 2 * hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "max_position_embeddings": max_positions,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 1e6,
            "mrope_section": [2, 3, 3],
        },
        "initializer_range": INITIAL,
        **text_ids(),
    }


def qwen2_preprocessor() -> dict[str, Any]:
    """Return the preprocessor of Qwen2-VL and Qwen2.5-VL, bounded to 4 .. 12 tokens a step."""
    return {
        "image_processor_type": "Qwen2VLImageProcessor",
        "min_pixels": 4 * 28 * 28,
        "max_pixels": 12 * 28 * 28,
        "patch_size": 14,
        "temporal_patch_size": 2,
        "merge_size": 2,
        "image_mean": [0.48145466, 0.4578275, 0.40821073],
        "image_std": [0.26862954, 0.26130258, 0.27577711],
    }
