"""A stateless random priority per token: the same token always draws the same number."""

from __future__ import annotations

import torch
from torch import Tensor

_LOW_32 = 0xFFFFFFFF
# Odd 32-bit multipliers of the MurmurHash3 finaliser, written as negative numbers: the product with
# a 32-bit value then stays within int64, and its low 32 bits are the same.
_MULTIPLIERS = (0x85EBCA6B - (1 << 32), 0xC2B2AE35 - (1 << 32))


def _mix(x: Tensor) -> Tensor:
    """Scramble 32-bit values held in int64 (MurmurHash3's public-domain finaliser), bijectively."""
    for shift, multiplier in zip((16, 13), _MULTIPLIERS, strict=True):
        x = ((x ^ (x >> shift)) * multiplier) & _LOW_32
    return x ^ (x >> 16)


def _hash_32(seed: int, steps: Tensor, patches: Tensor) -> Tensor:
    n_layers, n_heads, _ = steps.shape
    layers = torch.arange(n_layers, device=steps.device).view(-1, 1, 1)
    heads = torch.arange(n_heads, device=steps.device).view(1, -1, 1)
    state = torch.full((1, 1, 1), seed & _LOW_32, dtype=torch.int64, device=steps.device)
    for part in (torch.full_like(state, (seed >> 32) & _LOW_32), layers, heads, steps, patches):
        state = _mix((state + 0x9E3779B9 ^ (part & _LOW_32)) & _LOW_32)
    return state


def token_priority(seed: int, steps: Tensor, rows: Tensor, cols: Tensor) -> Tensor:
    """Return a uniform 62-bit priority per token, independent between layers, heads, steps and patches.

    Nothing is remembered between calls: the number is a hash of (seed, layer, head, step, row,
    column), so a token that is seen again at a later compression has the priority that it had
    before.

    Args:
        seed: any integer; its low 64 bits count.
        steps, rows, cols: int64 [L, H, N] provenance; rows and columns below 65,536.

    Returns:
        int64 [L, H, N], 0 <= priority < 2**62.
    """
    patches = (rows << 16) | cols
    high = _hash_32(seed, steps, patches)
    low = _hash_32(~seed, steps, patches)
    return ((high >> 1) << 31) | (low >> 1)
