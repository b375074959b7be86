"""InternVL3-1B scaled down."""

from __future__ import annotations

from infinipot_ros.models.scaled.folders import ScaledModel
from infinipot_ros.models.scaled.text import byte_tokenizer

_SPECIAL = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<img>",
    "</img>",
    "<IMG_CONTEXT>",
    "<video>",
)
_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% for c in m.content %}{% if c.type == 'video' %}<video>\n{% else %}{{ c.text }}{% endif %}"
    "{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def scaled(*, layers: int = 2, side: int = 84, max_positions: int = 32768) -> ScaledModel:
    """Return the parts of a scaled-down model.

    Args:
        layers: decoder layers.
        side: of a frame, pixels, a multiple of 28.
        max_positions: positions that the model is said to be made for.
    """
    from transformers import InternVLConfig

    tokenizer = byte_tokenizer(_SPECIAL, eos="<|im_end|>", chat_template=_TEMPLATE)
    ids = tokenizer.get_added_vocab()
    config = InternVLConfig(
        image_token_id=ids["<IMG_CONTEXT>"],
        image_seq_length=(side // 28) ** 2,
        downsample_ratio=0.5,
        tie_word_embeddings=False,
        text_config={
            "model_type": "qwen2",
            "vocab_size": len(tokenizer),
            "hidden_size": 112,
            "intermediate_size": 256,
            "num_hidden_layers": layers,
            "num_attention_heads": 14,
            "num_key_value_heads": 2,
            "max_position_embeddings": max_positions,
            "initializer_range": 0.1,  # more than the usual, so that attention is not uniform
            "rms_norm_eps": 1e-6,
            "rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e6, "factor": 2.0},
            "bos_token_id": ids["<|endoftext|>"],
            "eos_token_id": ids["<|im_end|>"],
            "pad_token_id": ids["<|endoftext|>"],
        },
        vision_config={
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "image_size": side,
            "initializer_range": 0.1,
            "patch_size": 14,
            "attention_bias": True,
        },
    )
    preprocessor = {
        "image_processor_type": "GotOcr2ImageProcessorFast",
        "crop_to_patches": False,
        "do_center_crop": None,
        "do_convert_rgb": True,
        "do_normalize": True,
        "do_rescale": True,
        "do_resize": True,
        "image_mean": [0.485, 0.456, 0.406],
        "image_std": [0.229, 0.224, 0.225],
        "max_patches": 12,
        "min_patches": 1,
        "resample": 3,
        "rescale_factor": 1 / 255,
        "size": {"height": side, "width": side},
    }
    return ScaledModel(config, tokenizer, preprocessor)
