"""LLaVA-NeXT-Video, scaled down from LLaVA-NeXT-Video-7B (CLIP and Vicuna)."""

from __future__ import annotations

from infinipot_ros.models.scaled.folders import ScaledModel
from infinipot_ros.models.scaled.text import byte_tokenizer

_SPECIAL = ("<unk>", "<s>", "</s>", "<video>", "<image>")
_TEMPLATE = (
    "{% for turn in messages %}"
    "{% if turn.role != 'system' %}{{ turn.role | upper }}: {% endif %}"
    "{% for part in turn.content if part.type == 'video' %}<video>\n{% endfor %}"
    "{% for part in turn.content if part.type == 'text' %}{{ part.text }} {% endfor %}"
    "{% endfor %}{% if add_generation_prompt %}ASSISTANT:{% endif %}"
)
_HEADS, _HEAD_DIM = 4, 16
_HIDDEN = _HEADS * _HEAD_DIM


def scaled(*, layers: int = 2, max_positions: int = 4096) -> ScaledModel:
    """Return the model: a 6 x 6 grid of patches, pooled to 3 x 3 (published: 24 and 12).

    Args:
        layers: of the language model.
        max_positions: of the language model.
    """
    from tokenizers.processors import TemplateProcessing
    from transformers import CLIPVisionConfig, LlamaConfig, LlavaNextVideoConfig

    tokenizer = byte_tokenizer(_SPECIAL, eos="</s>", chat_template=_TEMPLATE)
    ids = dict(zip(_SPECIAL, tokenizer.convert_tokens_to_ids(list(_SPECIAL)), strict=True))
    # The template leaves the first token to the tokenizer, as the published one does.
    tokenizer.bos_token = "<s>"
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", ids["<s>"])]
    )
    vision = CLIPVisionConfig(
        hidden_size=32,
        intermediate_size=128,
        num_hidden_layers=3,
        num_attention_heads=2,
        image_size=84,
        patch_size=14,
        projection_dim=24,
        initializer_factor=5.0,
    )
    text = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=_HIDDEN,
        intermediate_size=2 * _HIDDEN,
        num_hidden_layers=layers,
        num_attention_heads=_HEADS,
        num_key_value_heads=_HEADS,
        max_position_embeddings=max_positions,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 1e4},
        initializer_range=0.1,  # more than the usual, so that attention is far from uniform
        bos_token_id=ids["<s>"],
        eos_token_id=ids["</s>"],
    )
    config = LlavaNextVideoConfig(
        vision_config=vision,
        text_config=text,
        image_token_index=ids["<image>"],
        video_token_index=ids["<video>"],
    )
    preprocessor = {
        "image_processor_type": "LlavaNextVideoImageProcessor",
        "crop_size": {"height": 84, "width": 84},
        "do_center_crop": True,
        "do_convert_rgb": True,
        "do_normalize": True,
        "do_rescale": True,
        "do_resize": True,
        "image_mean": [0.48145466, 0.4578275, 0.40821073],
        "image_std": [0.26862954, 0.26130258, 0.27577711],
        "resample": 3,
        "rescale_factor": 1 / 255,
        "size": {"shortest_edge": 84},
    }
    return ScaledModel(config, tokenizer, preprocessor)
