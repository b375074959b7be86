"""A stateless random priority per token: the same token always draws the same number."""

from __future__ import annotations

import torch
from torch import Tensor

_LOW_32 = 0xFFFFFFFF
_GOLDEN = 0x9E3779B9
# Multipliers of the public-domain MurmurHash3 finaliser. Written as negative numbers, their
# product with a 32-bit value stays within int64 and has the same low 32 bits.
_ROUNDS = ((16, 0x85EBCA6B - (1 << 32)), (13, 0xC2B2AE35 - (1 << 32)))


def _scramble(x: Tensor) -> Tensor:
    """Permute 32-bit values, held in int64, so that every input bit reaches every output bit."""
    for shift, multiplier in _ROUNDS:
        x = ((x ^ (x >> shift)) * multiplier) & _LOW_32
    return x ^ (x >> 16)


def _hash_32(seed: int, steps: Tensor, patches: Tensor) -> Tensor:
    n_layers, n_heads, _ = steps.shape
    layers = torch.arange(n_layers, device=steps.device).view(-1, 1, 1)
    heads = torch.arange(n_heads, device=steps.device).view(1, -1, 1)
    seed_high = torch.full_like(layers[:1], (seed >> 32) & _LOW_32)
    state = torch.full_like(layers[:1], seed & _LOW_32)
    for part in (seed_high, layers, heads, steps, patches):
        state = _scramble(((state + _GOLDEN) & _LOW_32) ^ (part & _LOW_32))
    return state


def token_priority(seed: int, steps: Tensor, rows: Tensor, cols: Tensor) -> Tensor:
    """Return a uniform 62-bit priority per token, independent between layers, heads and tokens.

    Nothing is remembered between calls: the number is a hash of (seed, layer, head, step, row,
    column), so a token that is seen again at a later compression draws what it drew before. With 62
    bits, ties do not matter even after months of stream.

    Args:
        seed: any integer, of which the low 64 bits count.
        steps: int64 [L, H, N].
        rows: int64 [L, H, N], below 65,536.
        cols: int64 [L, H, N], below 65,536.

    Returns:
        int64 [L, H, N], 0 <= priority < 2**62.
    """
    patches = (rows << 16) | cols
    high = _hash_32(seed, steps, patches)
    low = _hash_32(~seed, steps, patches)
    return ((high >> 1) << 31) | (low >> 1)
