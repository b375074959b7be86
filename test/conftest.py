"""Fixtures shared by all tests."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pytest

_SPECIAL = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
    "<unk>",
]
_SENTENCES = (
    "system user assistant you are a robot what color is the was mug box red green blue where "
    "when did see it now last before left right yes no how many ? . ,"
)
_TEMPLATE = (
    "{% if messages[0].role != 'system' %}<|im_start|>system you are a robot .<|im_end|>{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }} "
    "{% if m.content is string %}{{ m.content }}{% else %}{% for c in m.content %}"
    "{% if c.type == 'video' %}<|vision_start|><|video_pad|><|vision_end|>"
    "{% else %}{{ c.text }}{% endif %}{% endfor %}{% endif %}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant {% endif %}"
)

MakeModel = Callable[..., Path]


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> MakeModel:
    """Return a maker of folders with a randomly initialised, real Qwen2.5-VL model.

    Keyword arguments: layers, heads, kv_heads, head_dim, seed, max_positions, frame_size.
    """
    made: dict[tuple[Any, ...], Path] = {}

    def make(
        *,
        layers: int = 2,
        heads: int = 4,
        kv_heads: int = 4,
        head_dim: int = 16,
        seed: int = 0,
        max_positions: int = 32768,
        frame_size: tuple[int, int] = (56, 84),
        tokens_per_second: int = 2,
    ) -> Path:
        key = (
            layers, heads, kv_heads, head_dim, seed, max_positions, frame_size, tokens_per_second
        )  # fmt: skip
        if key not in made:
            folder = tmp_path_factory.mktemp("model")
            _write_model(folder, *key)
            made[key] = folder
        return made[key]

    return make


def _write_model(
    folder: Path,
    layers: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    seed: int,
    max_positions: int,
    frame_size: tuple[int, int],
    tokens_per_second: int,
) -> None:
    import torch
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
    from transformers import (
        PreTrainedTokenizerFast,
        Qwen2_5_VLConfig,
        Qwen2_5_VLForConditionalGeneration,
    )

    vocabulary = {
        word: index for index, word in enumerate(_SPECIAL + list(dict.fromkeys(_SENTENCES.split())))
    }
    core = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    core.normalizer = normalizers.Lowercase()
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation()]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        unk_token="<unk>",
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=_SPECIAL[1:8],
    )
    tokenizer.chat_template = _TEMPLATE
    hidden = heads * head_dim
    half = head_dim // 2
    spatial = 3 * half // 8
    config = Qwen2_5_VLConfig(
        text_config={
            "vocab_size": 64,
            "hidden_size": hidden,
            "intermediate_size": 2 * hidden,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "max_position_embeddings": max_positions,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 1e4,
                "mrope_section": [half - 2 * spatial, spatial, spatial],
            },
            "bos_token_id": None,
            "eos_token_id": vocabulary["<|im_end|>"],
            "pad_token_id": vocabulary["<|endoftext|>"],
        },
        vision_config={
            "depth": 2,
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_heads": 2,
            "out_hidden_size": hidden,
            "patch_size": 14,
            "window_size": 112,
            "fullatt_block_indexes": [1],
            "tokens_per_second": tokens_per_second,
        },
        image_token_id=vocabulary["<|image_pad|>"],
        video_token_id=vocabulary["<|video_pad|>"],
        vision_start_token_id=vocabulary["<|vision_start|>"],
        vision_end_token_id=vocabulary["<|vision_end|>"],
        tie_word_embeddings=True,
    )
    torch.manual_seed(seed)
    model = Qwen2_5_VLForConditionalGeneration(config)
    with torch.no_grad():  # larger than the library's 0.02, so that attention is far from uniform
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(5.0)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    processor = {
        "image_processor_type": "Qwen2VLImageProcessor",
        "patch_size": 14,
        "temporal_patch_size": 2,
        "merge_size": 2,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
        "size": {"height": frame_size[0], "width": frame_size[1]},
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
