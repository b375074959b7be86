"""SmolVLM2-500M scaled down."""

from __future__ import annotations

from infinipot_ros.models.scaled.folders import ScaledModel
from infinipot_ros.models.scaled.text import byte_tokenizer

_SPECIAL = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<fake_token_around_image>",
    "<image>",
    "<global-img>",
    "<end_of_utterance>",
)
# As in the published prompts: one start token for all turns, and names of roles in words.
_TEMPLATE = (
    "<|im_start|>{% for m in messages %}{{ m.role | capitalize }}: "
    "{% for c in m.content %}{% if c.type == 'video' %}<video>{% else %}{{ c.text }}{% endif %}"
    "{% endfor %}<end_of_utterance>\n{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{% endif %}"
)


def scaled(*, layers: int = 2, side: int = 192, max_positions: int = 8192) -> ScaledModel:
    """Return the parts of a scaled-down model.

    Args:
        layers: decoder layers.
        side: of a frame, pixels, a multiple of 64.
        max_positions: positions that the model is said to be made for.
    """
    from transformers import SmolVLMConfig

    tokenizer = byte_tokenizer(_SPECIAL, eos="<end_of_utterance>", chat_template=_TEMPLATE)
    ids = tokenizer.get_added_vocab()
    config = SmolVLMConfig(
        image_token_id=ids["<image>"],
        scale_factor=4,
        tie_word_embeddings=False,
        text_config={
            "model_type": "llama",
            "vocab_size": len(tokenizer),
            "hidden_size": 96,
            "intermediate_size": 256,
            "num_hidden_layers": layers,
            "num_attention_heads": 6,  # 15 : 5 published
            "num_key_value_heads": 2,
            "max_position_embeddings": max_positions,
            "initializer_range": 0.1,  # more than the usual, so that attention is not uniform
            "rms_norm_eps": 1e-5,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e5},
            "bos_token_id": ids["<|im_start|>"],
            "eos_token_id": ids["<end_of_utterance>"],
            "pad_token_id": ids["<|im_end|>"],
        },
        vision_config={
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "image_size": side,
            "initializer_range": 0.1,
            "patch_size": 16,
        },
    )
    preprocessor = {
        "image_processor_type": "SmolVLMImageProcessor",
        "do_convert_rgb": True,
        "do_image_splitting": True,
        "do_normalize": True,
        "do_pad": True,
        "do_rescale": True,
        "do_resize": True,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
        "max_image_size": {"longest_edge": side},
        "resample": 1,
        "rescale_factor": 1 / 255,
        "size": {"longest_edge": 4 * side},
        "video_sampling": {"fps": 1, "max_frames": 64, "video_size": {"longest_edge": side}},
    }
    return ScaledModel(config, tokenizer, preprocessor)
