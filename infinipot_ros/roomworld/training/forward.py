"""Run the model's own weights through leaner forward passes, for training on a CPU.

They compute what the library's modules compute (a test compares them) but batch streams of equal
length, keep attention in float32 (the bfloat16 backward is four times slower on a CPU) and let many
question branches share one video prefix.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers.models.qwen2_5_vl import modeling_qwen2_5_vl as library

from infinipot_ros.roomworld.training.architecture import (
    FRAMES_PER_STEP,
    MERGE_SIZE,
    PATCH_GRID,
    PATCH_SIZE,
    TOKEN_GRID,
    TOKENS_PER_STEP,
)

_PATCHES = PATCH_GRID**2


def patchify(frames: Tensor) -> Tensor:
    """Turn steps [n, 2, 120, 120, 3] uint8 into patches [n * 36, 2400] float32 in -1..1.

    Patches of one merged token follow one another: rows, columns, then rows and columns within it.
    """
    n = frames.shape[0]
    x = frames.float().mul_(1.0 / 127.5).sub_(1.0)
    x = x.view(
        n,
        FRAMES_PER_STEP,
        TOKEN_GRID,
        MERGE_SIZE,
        PATCH_SIZE,
        TOKEN_GRID,
        MERGE_SIZE,
        PATCH_SIZE,
        3,
    )
    x = x.permute(0, 2, 5, 3, 6, 8, 1, 4, 7)
    return x.reshape(n * _PATCHES, 3 * FRAMES_PER_STEP * PATCH_SIZE**2)


def encode_steps(visual: Any, frames: Tensor) -> Tensor:
    """Encode steps [n, 2, 120, 120, 3] uint8 with the vision tower: [n, 9, hidden]."""
    n = frames.shape[0]
    kernel = visual.patch_embed.proj.weight
    x = F.linear(patchify(frames), kernel.view(kernel.shape[0], -1)).view(n, _PATCHES, -1)
    with torch.no_grad():
        grid = torch.tensor([[1, PATCH_GRID, PATCH_GRID]])
        ids = library.get_vision_position_ids(grid, MERGE_SIZE)
        cos, sin = visual.rotary_pos_emb(x.detach()[0].float(), ids)
        cos, sin = cos[None, :, None], sin[None, :, None]
    for block in visual.blocks:
        attention = block.attn
        qkv = attention.qkv(block.norm1(x)).view(n, _PATCHES, 3, attention.num_heads, -1)
        q, k, v = qkv.unbind(2)
        q, k = (t.float() * cos + _rotate_half(t.float()) * sin for t in (q, k))
        mixed = F.scaled_dot_product_attention(
            q.to(v.dtype).transpose(1, 2), k.to(v.dtype).transpose(1, 2), v.transpose(1, 2)
        )
        x = x + attention.proj(mixed.transpose(1, 2).reshape(n, _PATCHES, -1))
        x = x + block.mlp(block.norm2(x))
    tokens: Tensor = visual.merger(x.reshape(n * _PATCHES, -1)).view(n, TOKENS_PER_STEP, -1)
    return tokens


def run_language_model(
    language_model: Any,
    embeddings: Tensor,
    positions: Tensor,
    shared_mask: Tensor,
    branch_mask: Tensor,
    tap_layers: Sequence[int],
) -> tuple[Tensor, list[Tensor]]:
    """Run shared video tokens and question branches together.

    embeddings [b, s, hidden] in the dtype to compute in; positions int64 [3, b, s]; the first n
    tokens are shared and attend by the additive float32 mask `shared_mask` [b, 1, n, n], the others
    by `branch_mask` [b, g, m, n + m]: in g groups of m, which see the shared tokens and themselves,
    but no other group. Returns the final hidden states [b, s, hidden] and those
    after each of `tap_layers`, of the same shape.
    """
    n_shared = shared_mask.shape[-1]
    x = embeddings
    b, s = x.shape[:2]
    dtype = x.dtype
    cos, sin = _rotary(language_model.rotary_emb, positions)
    tapped = []
    for index, layer in enumerate(language_model.layers):
        a = layer.self_attn
        heads, kv_heads = a.config.num_attention_heads, a.config.num_key_value_heads
        h = _rms_norm(x, layer.input_layernorm)
        weight = torch.cat([a.q_proj.weight, a.k_proj.weight, a.v_proj.weight]).to(dtype)
        bias = torch.cat([a.q_proj.bias, a.k_proj.bias, a.v_proj.bias]).to(dtype)
        qkv = F.linear(h, weight, bias).float().view(b, s, heads + 2 * kv_heads, -1).transpose(1, 2)
        rotated = qkv[:, : heads + kv_heads]
        rotated = rotated * cos + _rotate_half(rotated) * sin
        q, k, v = rotated[:, :heads], rotated[:, heads:], qkv[:, heads + kv_heads :]
        k = k.repeat_interleave(heads // kv_heads, 1)
        v = v.repeat_interleave(heads // kv_heads, 1)
        shared = F.scaled_dot_product_attention(
            q[:, :, :n_shared], k[:, :, :n_shared], v[:, :, :n_shared], attn_mask=shared_mask
        )
        branches = _attend_in_groups(q, k, v, n_shared, branch_mask)
        mixed = torch.cat([shared, branches], 2).transpose(1, 2).reshape(b, s, -1).to(dtype)
        x = x + F.linear(mixed, a.o_proj.weight.to(dtype))
        h = _rms_norm(x, layer.post_attention_layernorm)
        mlp = layer.mlp
        gate_up = torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight]).to(dtype)
        gate, up = F.linear(h, gate_up).chunk(2, -1)
        x = x + F.linear(F.silu(gate) * up, mlp.down_proj.weight.to(dtype))
        if index in tap_layers:
            tapped.append(x)
    return _rms_norm(x, language_model.norm), tapped


def _attend_in_groups(q: Tensor, k: Tensor, v: Tensor, n_shared: int, mask: Tensor) -> Tensor:
    """Let the tokens behind the shared ones attend: [b, h, g * m, d]. See `run_language_model`."""
    b, heads, _, dim = q.shape
    groups, m = mask.shape[1:3]

    def grouped(x: Tensor) -> Tensor:
        own = x[:, :, n_shared:].view(b, heads, groups, m, dim).transpose(1, 2)
        return own.reshape(b * groups, heads, m, dim)

    def with_shared(x: Tensor) -> Tensor:
        shared = x[:, None, :, :n_shared].expand(-1, groups, -1, -1, -1)
        return torch.cat([shared.flatten(0, 1), grouped(x)], 2)

    mixed = F.scaled_dot_product_attention(
        grouped(q), with_shared(k), with_shared(v), attn_mask=mask.flatten(0, 1)[:, None]
    )
    return mixed.view(b, groups, heads, m, dim).transpose(1, 2).reshape(b, heads, groups * m, dim)


def _rms_norm(x: Tensor, module: Any) -> Tensor:
    return F.rms_norm(x, (x.shape[-1],), module.weight.to(x.dtype), module.variance_epsilon)


def _rotary(module: Any, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Return cosine and sine [b, 1, s, head_dim] of M-RoPE for positions [3, b, s]."""
    angles = positions.float()[..., None] * module.inv_freq.float()
    parts = angles.split(list(module.mrope_section), dim=-1)
    chosen = torch.cat([part[axis % 3] for axis, part in enumerate(parts)], -1)
    doubled = torch.cat([chosen, chosen], -1)[:, None]
    return doubled.cos(), doubled.sin()


def _rotate_half(x: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), -1)
