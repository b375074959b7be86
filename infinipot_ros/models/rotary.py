"""What a language model must have for its keys to be moved: one rotation of all channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from infinipot_ros.core.errors import ModelError


def check_rotary(name: str, decoder: Any, text: Any) -> None:
    """Refuse a language model whose keys cannot be moved to other positions.

    Args:
        name: the model's name, for the message.
        decoder: its language model.
        text: its config.

    Raises:
        ModelError: saying what it has instead of one rotation of all channels.
    """
    frequencies = getattr(getattr(decoder, "rotary_emb", None), "inv_freq", None)
    if not isinstance(frequencies, torch.Tensor):
        raise ModelError(
            f"the language model of {name!r} ({text.model_type}) has no rotary positions that are "
            "the same in all layers, so its keys cannot be moved; Qwen2, Llama and Mistral have"
        )
    head_dim = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    rope_type = _rope_type(text)
    if 2 * len(frequencies) != head_dim or rope_type == "longrope":
        raise ModelError(
            f"the language model of {name!r} ({text.model_type}) rotates {2 * len(frequencies)} of "
            f"{head_dim} channels, rope_type {rope_type!r}; its keys cannot be moved, which needs "
            "all channels and frequencies that stay the same below the limit"
        )


def is_dynamic(text: Any) -> bool:
    """Return whether positions beyond the model's limit change the frequencies of all others.

    Args:
        text: config of the language model.
    """
    return "dynamic" in str(_rope_type(text))


def _rope_type(text: Any) -> str | None:
    return (getattr(text, "rope_parameters", None) or {}).get("rope_type")


def rotary_axis(sections: Sequence[int], frequencies: int, device: torch.device) -> Tensor:
    """Return the position axis of each frequency for sectioned multimodal RoPE.

    Args:
        sections: frequencies of time, row and column, in this order.
        frequencies: D / 2, half the head dimension.
        device: where the result lives.

    Raises:
        ModelError: the sections do not add up.
    """
    if len(sections) != 3 or sum(sections) != frequencies:
        raise ModelError(
            f"mrope_section is {list(sections)}; three numbers with sum {frequencies} are needed"
        )
    return torch.repeat_interleave(torch.arange(3), torch.tensor(list(sections))).to(device)
