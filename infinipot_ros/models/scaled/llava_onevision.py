"""LLaVA-OneVision, scaled down from llava-onevision-qwen2-0.5b."""

from __future__ import annotations

from infinipot_ros.models.scaled.folders import ScaledModel
from infinipot_ros.models.scaled.text import byte_tokenizer

_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<image>", "<video>")
_TEMPLATE = (
    "{% for turn in messages %}<|im_start|>{{ turn.role }}\n"
    "{% for part in turn.content if part.type == 'video' %}<video>\n{% endfor %}"
    "{% for part in turn.content if part.type == 'text' %}{{ part.text }}{% endfor %}"
    "<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_HEAD_DIM, _HEADS, _KV_HEADS = 8, 14, 2
_HIDDEN = _HEAD_DIM * _HEADS


def scaled(*, layers: int = 2, max_positions: int = 32768) -> ScaledModel:
    """Return the model: a 7 x 7 grid of patches, pooled to 4 x 4 (published: 27 and 14).

    Args:
        layers: of the language model.
        max_positions: of the language model.
    """
    from transformers import LlavaOnevisionConfig, Qwen2Config, SiglipVisionConfig

    tokenizer = byte_tokenizer(_SPECIAL, eos="<|im_end|>", chat_template=_TEMPLATE)
    ids = dict(zip(_SPECIAL, tokenizer.convert_tokens_to_ids(list(_SPECIAL)), strict=True))
    vision = SiglipVisionConfig(
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        image_size=98,
        patch_size=14,
        vision_use_head=False,
    )
    text = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=_HIDDEN,
        intermediate_size=2 * _HIDDEN,
        num_hidden_layers=layers,
        num_attention_heads=_HEADS,
        num_key_value_heads=_KV_HEADS,
        max_position_embeddings=max_positions,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6},
        initializer_range=0.1,  # more than the usual, so that attention is far from uniform
        tie_word_embeddings=True,
        bos_token_id=ids["<|endoftext|>"],
        eos_token_id=ids["<|im_end|>"],
    )
    config = LlavaOnevisionConfig(
        vision_config=vision,
        text_config=text,
        image_token_index=ids["<image>"],
        video_token_index=ids["<video>"],
        tie_word_embeddings=True,
    )
    preprocessor = {
        "image_processor_type": "LlavaOnevisionImageProcessor",
        "do_convert_rgb": True,
        "do_normalize": True,
        "do_pad": True,
        "do_rescale": True,
        "do_resize": True,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
        "resample": 3,
        "rescale_factor": 1 / 255,
        "size": {"height": 98, "width": 98},
    }
    return ScaledModel(config, tokenizer, preprocessor)
