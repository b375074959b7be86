"""Qwen2.5-VL, scaled down from the 3B model: 16 heads share 2 KV heads."""

from __future__ import annotations

from infinipot_ros.models.scaled.folders import ScaledModel
from infinipot_ros.models.scaled.qwen import (
    outer_ids,
    qwen2_preprocessor,
    qwen2_text,
    tokenizer,
)

_HEADS_PER_KV_HEAD = 8


def scaled(*, layers: int = 2, kv_heads: int = 2, max_positions: int = 128_000) -> ScaledModel:
    """Return a model of that size.

    Args:
        layers: decoder layers.
        kv_heads: KV heads of a layer; heads and hidden size grow with them.
        max_positions: first position that the model is not for.
    """
    from transformers import Qwen2_5_VLConfig

    text = qwen2_text(
        layers=layers,
        heads=_HEADS_PER_KV_HEAD * kv_heads,
        kv_heads=kv_heads,
        max_positions=max_positions,
    )
    config = Qwen2_5_VLConfig(
        text_config=text,
        vision_config={
            "depth": 2,
            "hidden_size": 32,
            "intermediate_size": 86,
            "num_heads": 2,
            "out_hidden_size": text["hidden_size"],
            "patch_size": 14,
            "window_size": 112,
            "fullatt_block_indexes": [1],
            "tokens_per_second": 2,
            "initializer_range": text["initializer_range"],
        },
        tie_word_embeddings=True,
        **outer_ids(),
    )
    return ScaledModel(config, tokenizer(system_prompt=True), qwen2_preprocessor())
