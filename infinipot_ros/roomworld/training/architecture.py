"""Build the tokenizer and the untrained Qwen2.5-VL-class model."""

from __future__ import annotations

from typing import Any

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from transformers import (
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
)

from infinipot_ros.roomworld.scenes import IMAGE_SIZE
from infinipot_ros.roomworld.training.config import ModelShape
from infinipot_ros.roomworld.vocabulary import SPECIAL_TOKENS, SYSTEM_PROMPT, words

PATCH_SIZE = 20
MERGE_SIZE = 2
FRAMES_PER_STEP = 2
PATCH_GRID = IMAGE_SIZE // PATCH_SIZE
TOKEN_GRID = PATCH_GRID // MERGE_SIZE
TOKENS_PER_STEP = TOKEN_GRID**2

_CHAT_TEMPLATE = (
    "{% if messages[0]['role'] != 'system' %}<|im_start|>system\n" + SYSTEM_PROMPT + "<|im_end|>\n"
    "{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}"
    "{% if part['type'] == 'video' %}<|vision_start|><|video_pad|><|vision_end|>"
    "{% elif part['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% else %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Build a word-level tokenizer that accepts capitals, attached punctuation and "colour"."""
    vocabulary = {word: number for number, word in enumerate(words())}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Lowercase(), normalizers.Replace("colour", "color")]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation()]
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="<unk>",
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=[
            token
            for token in SPECIAL_TOKENS
            if token not in ("<unk>", "<|endoftext|>", "<|im_end|>")
        ],
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = _CHAT_TEMPLATE
    return fast


def build_model(
    shape: ModelShape, tokenizer: PreTrainedTokenizerFast, seed: int
) -> Qwen2_5_VLForConditionalGeneration:
    """Build the model in float32 with seeded weights, on the CPU."""
    torch.manual_seed(seed)
    model = Qwen2_5_VLForConditionalGeneration(_model_config(shape, tokenizer))
    with torch.no_grad():
        model.get_input_embeddings().weight.normal_(0.0, shape.hidden_size**-0.5)
    return model


def initialise_language_model(
    model: Qwen2_5_VLForConditionalGeneration, seed: int, tied_layers: int
) -> None:
    """Draw width-aware weights; make half of the early heads match equal content.

    In the first `tied_layers` layers the first half of the heads start with W_k = W_q, so that a
    word of the question attends to video tokens that carry the same word's direction.
    """
    generator = torch.Generator().manual_seed(seed)
    text = model.config.text_config
    head_dim = text.hidden_size // text.num_attention_heads
    group = text.num_attention_heads // text.num_key_value_heads
    residual_scale = (2.0 * text.num_hidden_layers) ** -0.5

    def draw(weight: torch.Tensor, scale: float = 1.0) -> None:
        weight.normal_(0.0, scale * weight.shape[1] ** -0.5, generator=generator)

    with torch.no_grad():
        for index, layer in enumerate(model.model.language_model.layers):
            attention, mlp = layer.self_attn, layer.mlp
            for linear in (attention.q_proj, attention.k_proj, attention.v_proj):
                draw(linear.weight)
                linear.bias.zero_()
            draw(mlp.gate_proj.weight)
            draw(mlp.up_proj.weight)
            draw(attention.o_proj.weight, residual_scale)
            draw(mlp.down_proj.weight, residual_scale)
            if index < tied_layers:
                for head in range(text.num_key_value_heads // 2):
                    rows = slice(head * head_dim, (head + 1) * head_dim)
                    first = head * group * head_dim
                    attention.k_proj.weight[rows] = attention.q_proj.weight[
                        first : first + head_dim
                    ]


def aim_heads(
    model: Qwen2_5_VLForConditionalGeneration, words: torch.Tensor, layer: int, strength: float
) -> None:
    """Make half of the heads of one layer match tokens that carry the same of `words`.

    The heads that start with equal projections find what a question names in the first layers. What
    these have written into tokens can be read by the layers behind them only, and there no head
    finds its way by itself for thousands of steps: order questions stayed at chance. Queries and
    keys get the subspace of the words, in the dimensions that the rotary embedding turns least.

    Args:
        model: in training, past the vision stage.
        words: [n, hidden], embeddings that tokens carry, n even and at most half of a head's width.
        layer: number of the layer.
        strength: scale of the projection.
    """
    text = model.config.text_config
    head_dim = text.hidden_size // text.num_attention_heads
    group = text.num_attention_heads // text.num_key_value_heads
    decoder = model.model.language_model.layers[layer]
    with torch.no_grad():
        basis = torch.linalg.qr(torch.nn.functional.normalize(words, dim=-1).T).Q
        rows = strength * basis.T / decoder.input_layernorm.weight
        half = len(rows) // 2
        slowest = [*range(head_dim // 2 - half, head_dim // 2), *range(head_dim - half, head_dim)]
        for head in range(text.num_key_value_heads // 2):
            for linear, number in (
                (decoder.self_attn.q_proj, head * group),
                (decoder.self_attn.k_proj, head),
            ):
                part = slice(number * head_dim, (number + 1) * head_dim)
                linear.weight[part] *= 0.1
                linear.bias[part] *= 0.1
                linear.weight[part][slowest] = rows


def _model_config(shape: ModelShape, tokenizer: PreTrainedTokenizerFast) -> Qwen2_5_VLConfig:
    def token(text: str) -> int:
        return int(tokenizer.convert_tokens_to_ids(text))

    text_config: dict[str, Any] = {
        "vocab_size": (len(tokenizer) + 31) // 32 * 32,
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.feed_forward,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "max_position_embeddings": shape.max_positions,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": shape.rope_theta,
            "mrope_section": list(shape.mrope_section),
        },
        "bos_token_id": None,
        "eos_token_id": token("<|im_end|>"),
        "pad_token_id": token("<|endoftext|>"),
        "tie_word_embeddings": True,
    }
    vision_config: dict[str, Any] = {
        "depth": shape.vision_depth,
        "hidden_size": shape.vision_hidden,
        "intermediate_size": shape.vision_feed_forward,
        "num_heads": shape.vision_heads,
        "out_hidden_size": shape.hidden_size,
        "patch_size": PATCH_SIZE,
        "spatial_merge_size": MERGE_SIZE,
        "temporal_patch_size": FRAMES_PER_STEP,
        "window_size": IMAGE_SIZE,
        # Every block attends over the whole image: it is smaller than one attention window.
        "fullatt_block_indexes": list(range(shape.vision_depth)),
        # One step holds two frames; at two frames per second its positions advance by one.
        "tokens_per_second": 1,
    }
    return Qwen2_5_VLConfig(
        text_config=text_config,
        vision_config=vision_config,
        image_token_id=token("<|image_pad|>"),
        video_token_id=token("<|video_pad|>"),
        vision_start_token_id=token("<|vision_start|>"),
        vision_end_token_id=token("<|vision_end|>"),
        tie_word_embeddings=True,
    )
