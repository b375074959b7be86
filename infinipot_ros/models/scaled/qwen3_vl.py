"""Qwen3-VL, scaled down from the 4B model: 32 heads share 8 KV heads, wider than the model."""

from __future__ import annotations

from infinipot_ros.models.scaled.folders import ScaledModel
from infinipot_ros.models.scaled.qwen import INITIAL, outer_ids, text_ids, tokenizer

_HEADS_PER_KV_HEAD, _HEAD_DIM = 4, 32


def scaled(*, layers: int = 2, kv_heads: int = 2, max_positions: int = 262_144) -> ScaledModel:
    """Return a model of that size.

    Args:
        layers: decoder layers; the first three take visual features.
        kv_heads: KV heads of a layer; heads and hidden size grow with them.
        max_positions: first position that the model is not for.
    """
    from transformers import Qwen3VLConfig

    words = tokenizer(system_prompt=False)
    words.add_tokens([" seconds"])  # one token, as published: a timestamp is as long as there
    heads = _HEADS_PER_KV_HEAD * kv_heads
    hidden = 5 * heads * _HEAD_DIM // 8
    config = Qwen3VLConfig(
        text_config={
            "hidden_size": hidden,
            "intermediate_size": 2 * hidden,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "head_dim": _HEAD_DIM,
            "max_position_embeddings": max_positions,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 5e6,
                "mrope_section": [6, 5, 5],
                "mrope_interleaved": True,
            },
            "initializer_range": INITIAL,
            **text_ids(),
            "vocab_size": len(words),
        },
        vision_config={
            "depth": 3,
            "hidden_size": 32,
            "intermediate_size": 120,
            "num_heads": 2,
            "out_hidden_size": hidden,
            "patch_size": 16,
            "num_position_embeddings": 2304,
            "deepstack_visual_indexes": list(range(min(3, layers))),
            "initializer_range": INITIAL,
        },
        tie_word_embeddings=True,
        **outer_ids(),
    )
    preprocessor = {
        "image_processor_type": "Qwen2VLImageProcessorFast",
        "processor_class": "Qwen3VLProcessor",
        "size": {"shortest_edge": 4 * 32 * 32, "longest_edge": 12 * 32 * 32},
        "patch_size": 16,
        "temporal_patch_size": 2,
        "merge_size": 2,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
    }
    return ScaledModel(config, words, preprocessor)
