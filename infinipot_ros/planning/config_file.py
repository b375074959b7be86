"""Read the figures of a model from the content of its ``config.json``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from infinipot_ros.core.errors import ModelError
from infinipot_ros.planning.figures import ModelFigures, TextFigures, VisionFigures

Config = Mapping[str, Any]

FAMILIES = (
    "qwen2_vl",
    "qwen2_5_vl",
    "qwen3_vl",
    "llava_onevision",
    "llava_next_video",
    "smolvlm",
    "internvl",
)
QWEN = FAMILIES[:3]
_LARGEST = 2**31
"""No figure of a model is beyond."""

# What a config need not say, because the library's class says it.
_TEXT_DEFAULTS: dict[str, dict[str, int]] = {
    "llama": {
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "intermediate_size": 11008,
        "vocab_size": 32000,
        "max_position_embeddings": 2048,
    },
    "qwen2": {
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "intermediate_size": 22016,
        "vocab_size": 151936,
        "max_position_embeddings": 32768,
    },
}
_VISION_DEFAULTS: dict[str, dict[str, int]] = {
    "qwen2_vl": {"depth": 32, "embed_dim": 1280, "num_heads": 16, "patch_size": 14},
    "qwen2_5_vl": {
        "depth": 32,
        "hidden_size": 3584,
        "num_heads": 16,
        "intermediate_size": 3420,
        "patch_size": 14,
    },
    "qwen3_vl": {
        "depth": 27,
        "hidden_size": 1152,
        "num_heads": 16,
        "intermediate_size": 4304,
        "patch_size": 16,
        "num_position_embeddings": 2304,
    },
    "llava_onevision": {
        "hidden_size": 1152,
        "intermediate_size": 4304,
        "patch_size": 14,
        "image_size": 384,
        "num_hidden_layers": 26,
        "num_attention_heads": 16,
    },
    "llava_next_video": {
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "patch_size": 14,
        "image_size": 336,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
    },
    "smolvlm": {
        "hidden_size": 1152,
        "intermediate_size": 3072,
        "patch_size": 32,
        "image_size": 224,
        "num_hidden_layers": 12,
        "num_attention_heads": 16,
    },
    "internvl": {
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "patch_size": 14,
        "image_size": 448,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
    },
}


def read_config(config: Config, *, name: str) -> ModelFigures:
    """Return the figures of a model.

    Args:
        config: content of ``config.json``, as published or as the library saves it.
        name: the model's name, for messages.

    Raises:
        ModelError: the family is not known, or a figure is missing or no number above 0.
    """
    family = config.get("model_type")
    if family not in FAMILIES:
        raise ModelError(
            f"model {name!r} is of family {family!r}, which has no plan; there is one for "
            + ", ".join(FAMILIES)
        )
    vision = config.get("vision_config")
    if not isinstance(vision, Mapping):
        raise ModelError(f"the config.json of {name!r} has no vision_config")
    # The older Qwen configs hold the decoder's figures at the top.
    own = config.get("text_config")
    own = own if isinstance(own, Mapping) else {}
    text = {**config, **own} if family in QWEN else dict(own)
    try:
        figures = ModelFigures(
            family=family,
            text=_text(family, text, tied=_tied(config, own)),
            vision=_vision(family, config, vision),
        )
        _check_sides(figures.vision)
        return figures
    except (LookupError, TypeError, ValueError, ArithmeticError) as error:
        raise ModelError(
            f"the config.json of {name!r} cannot be planned with: {error.args[0]!r} is missing or "
            "wrong"
        ) from error


def _tied(config: Config, text: Config) -> bool:
    return bool(config.get("tie_word_embeddings", text.get("tie_word_embeddings", False)))


def _text(family: str, config: Config, *, tied: bool) -> TextFigures:
    kind = str(config.get("model_type", "qwen2"))
    qwen3 = kind.startswith("qwen3") or family == "qwen3_vl"
    llama = kind == "llama"
    known = {**_TEXT_DEFAULTS.get("llama" if llama else "qwen2", {}), **config}
    heads = _number(known, "num_attention_heads")
    hidden = _number(known, "hidden_size")
    # A class that knows head_dim may hold None; Qwen3 has 128 whatever its width.
    head_dim = known.get("head_dim") or (128 if qwen3 else hidden // heads)
    return TextFigures(
        layers=_number(known, "num_hidden_layers"),
        hidden=hidden,
        heads=heads,
        kv_heads=_number({"num_key_value_heads": heads, **_given(known)}, "num_key_value_heads"),
        head_dim=_number({"head_dim": head_dim}, "head_dim"),
        intermediate=_number(known, "intermediate_size"),
        vocabulary=_number(known, "vocab_size"),
        positions=_number(known, "max_position_embeddings"),
        axes=3 if family in QWEN else 1,
        tied=tied,
        qkv_bias=bool(known.get("attention_bias", False)) if llama or qwen3 else True,
        qk_norm=qwen3,
    )


def _vision(family: str, config: Config, vision: Config) -> VisionFigures:
    known: dict[str, Any] = {"temporal_patch_size": 2, "spatial_merge_size": 2}
    known |= {**_VISION_DEFAULTS[family], **vision}
    patch = _side(known, "patch_size")
    if family in QWEN:
        hidden = _number(known, "embed_dim" if family == "qwen2_vl" else "hidden_size")
        return VisionFigures(
            depth=_number(known, "depth"),
            hidden=hidden,
            heads=_number(known, "num_heads"),
            intermediate=int(hidden * _ratio(known, "mlp_ratio", 4))
            if family == "qwen2_vl"
            else _number(known, "intermediate_size"),
            patch=patch,
            frames=_number(known, "temporal_patch_size"),
            merge=_number(known, "spatial_merge_size"),
            image=0,
            deepstack=len(known.get("deepstack_visual_indexes", (8, 16, 24)))
            if family == "qwen3_vl"
            else 0,
            grid=_number(known, "num_position_embeddings") if family == "qwen3_vl" else 0,
            per_second=_ratio(known, "tokens_per_second", 4) if family == "qwen2_5_vl" else 0.0,
        )
    image = _side(known, "image_size")
    side = image // patch
    pooled = {"spatial_pool_stride": 2, "scale_factor": 2, **config}
    class_token = family in ("internvl", "llava_next_video")
    merge = {
        "llava_onevision": side / -(-side // 2),
        "llava_next_video": side / (side // _number(pooled, "spatial_pool_stride")),
        "smolvlm": _number(pooled, "scale_factor"),
        "internvl": 1 / _ratio(config, "downsample_ratio", 0.5),
    }[family]
    return VisionFigures(
        depth=_number(known, "num_hidden_layers"),
        hidden=_number(known, "hidden_size"),
        heads=_number(known, "num_attention_heads"),
        intermediate=_number(known, "intermediate_size"),
        patch=patch,
        frames=1,
        merge=merge,
        image=image,
        grid=side * side,
        class_token=class_token,
    )


def _given(config: Config) -> Config:
    """Return the entries that hold something: a null stands for the default."""
    return {key: value for key, value in config.items() if value is not None}


def _number(config: Config, key: str) -> int:
    value = config[key]
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _LARGEST:
        raise ValueError(key)
    return value


def _ratio(config: Config, key: str, default: float) -> float:
    value = config.get(key, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= _LARGEST:
        raise ValueError(key)
    return float(value)


def _side(config: Config, key: str) -> int:
    value = config[key]
    return _number({key: value[0] if isinstance(value, list) and value else value}, key)


def _check_sides(vision: VisionFigures) -> None:
    """Refuse an image that gives no token.

    Raises:
        ValueError: naming the figure to blame.
    """
    if vision.image and round(vision.image // vision.patch / vision.merge) < 1:
        raise ValueError("image_size")
