"""Which families of models are known, and which are refused, with the reason."""

from __future__ import annotations

from typing import Any, NamedTuple

from infinipot_ros.core.errors import ModelError


class Family(NamedTuple):
    """A family of models.

    Attributes:
        module: module of this package that has its adapter.
        adapter: name of the adapter class there.
        library: name of the transformers class that holds its weights.
    """

    module: str
    adapter: str
    library: str


FAMILIES: dict[str, Family] = {
    "qwen2_vl": Family("qwen_vl", "Qwen2VLAdapter", "Qwen2VLForConditionalGeneration"),
    "qwen2_5_vl": Family("qwen_vl", "Qwen25VLAdapter", "Qwen2_5_VLForConditionalGeneration"),
    "qwen3_vl": Family("qwen3_vl", "Qwen3VLAdapter", "Qwen3VLForConditionalGeneration"),
    "llava_onevision": Family(
        "llava", "LlavaOnevisionAdapter", "LlavaOnevisionForConditionalGeneration"
    ),
    "llava_next_video": Family(
        "llava", "LlavaNextVideoAdapter", "LlavaNextVideoForConditionalGeneration"
    ),
    "smolvlm": Family("smolvlm", "SmolVLMAdapter", "SmolVLMForConditionalGeneration"),
    "internvl": Family("internvl", "InternVLAdapter", "InternVLForConditionalGeneration"),
}
"""By ``model_type`` of the model's config."""

SLIDING = "most of its layers slide over a window and forget by themselves"
LINEAR = (
    "most of its layers fold the past into a recurrent state, from which no single token can be "
    "evicted"
)
CONVOLUTION = "layers with a convolution carry a state of their own, from which nothing is evicted"
CHUNKED = "most of its layers see the current chunk of positions only, and nothing before it"
INDEXED = "its layers choose what to attend to by a second set of keys, which no cap would hold"
CROSS = "it sees images through cross-attention layers, apart from the cache that has the cap"
BOTH_WAYS = (
    "image tokens attend to each other in both directions, later frames included, so a stream "
    "cannot be taken in as it comes"
)
ABSOLUTE = (
    "positions are learned and added to its inputs: what is remembered cannot be moved below "
    "their limit, and a stream passes it"
)

REFUSED: dict[str, str] = {
    "aya_vision": SLIDING,
    "cohere2_vision": SLIDING,
    "exaone4_5": SLIDING,
    "gemma3": f"{SLIDING}, and images attend in both directions",
    "gemma3n": SLIDING,
    "gemma4": SLIDING,
    "gemma4_unified": SLIDING,
    "muse_glimmer": SLIDING,
    "muse_spark": SLIDING,
    "minicpmv4_6": LINEAR,
    "minicpmv4_7": LINEAR,
    "nemotron_h_omni": LINEAR,
    "qwen3_5": LINEAR,
    "qwen3_5_moe": LINEAR,
    "lfm2_vl": CONVOLUTION,
    "lfm3_vl": CONVOLUTION,
    "llama4": CHUNKED,
    "glm5_next": f"{LINEAR}; the others choose by a second set of keys",
    "hy_v4_vl": INDEXED,
    "idefics": CROSS,
    "mllama": CROSS,
    "molmo2": BOTH_WAYS,
    "paligemma": BOTH_WAYS,
    "git": ABSOLUTE,
}
"""By ``model_type``: families whose memory cannot be capped honestly, and why."""

OTHER_FORMATS: dict[str, str] = {
    "internvl_chat": "its files need code of their own; take the same model from a repository "
    "whose name ends in '-hf', in the library's own format",
    "llava_qwen": "its files need code of their own; take the same model from 'llava-hf', in the "
    "library's own format",
}
"""By ``model_type``: models of a known family in a format that runs code from the download."""

_CAPPABLE = "full_attention"


def find_family(model: str, model_type: str) -> Family:
    """Return the family of a model.

    Args:
        model: the model's name, for the message.
        model_type: of its config.

    Raises:
        ModelError: the family cannot be capped, is in another format, or has no adapter (yet).
    """
    what = f"model {model!r} is of family {model_type!r}"
    if model_type in FAMILIES:
        return FAMILIES[model_type]
    if reason := REFUSED.get(model_type):
        raise ModelError(f"{what}, whose memory cannot be capped honestly: {reason}")
    if reason := OTHER_FORMATS.get(model_type):
        raise ModelError(f"{what}: {reason}")
    raise ModelError(f"{what}, which is not supported yet; supported: {', '.join(FAMILIES)}")


def refuse_forgetting_layers(model: str, config: Any) -> None:
    """Refuse a language model whose layers do not all attend to the whole cache.

    Families are named above, but some take whatever language model the config names.

    Args:
        model: the model's name, for the message.
        config: transformers config of the whole model.

    Raises:
        ModelError: naming the kinds of layers and their number.
    """
    text = config.get_text_config(decoder=True)
    kinds = list(getattr(text, "layer_types", None) or ())
    if not kinds and getattr(text, "sliding_window", None):
        kinds = ["sliding_attention"] * int(text.num_hidden_layers)
    others = {kind: kinds.count(kind) for kind in dict.fromkeys(kinds) if kind != _CAPPABLE}
    if others:
        raise ModelError(
            f"{model!r} has layers that forget by themselves or keep a state apart, and cannot be "
            "capped honestly: "
            + ", ".join(f"{number} of {kind}" for kind, number in others.items())
            + f", among {len(kinds)} (where its config has use_sliding_window or sliding_window, "
            "set that to false or null)"
        )
