"""Qwen2-VL, scaled down from the 2B model: 12 heads share 2 KV heads."""

from __future__ import annotations

from infinipot_ros.models.scaled.folders import ScaledModel
from infinipot_ros.models.scaled.qwen import (
    outer_ids,
    qwen2_preprocessor,
    qwen2_text,
    tokenizer,
)

_HEADS_PER_KV_HEAD = 6


def scaled(*, layers: int = 2, kv_heads: int = 2, max_positions: int = 32_768) -> ScaledModel:
    """Return a model of that size.

    Args:
        layers: decoder layers.
        kv_heads: KV heads of a layer; heads and hidden size grow with them.
        max_positions: first position that the model is not for.
    """
    from transformers import Qwen2VLConfig

    text = qwen2_text(
        layers=layers,
        heads=_HEADS_PER_KV_HEAD * kv_heads,
        kv_heads=kv_heads,
        max_positions=max_positions,
    )
    config = Qwen2VLConfig(
        text_config=text,
        vision_config={
            "depth": 2,
            "embed_dim": 32,
            "hidden_size": text["hidden_size"],
            "num_heads": 2,
            "mlp_ratio": 4,
            "patch_size": 14,
            "initializer_range": text["initializer_range"],
        },
        tie_word_embeddings=True,
        **outer_ids(),
    )
    return ScaledModel(config, tokenizer(system_prompt=True), qwen2_preprocessor())
