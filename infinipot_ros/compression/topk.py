"""Exact, repeatable top-k along the last axis, as masks and as ascending slots."""

from __future__ import annotations

import torch
from torch import Tensor

from .base import PolicyError


def check_keep(keep: int, n_tokens: int) -> None:
    """Refuse a number of tokens to keep that is negative or exceeds what is stored."""
    if not 0 <= keep <= n_tokens:
        raise PolicyError(f"cannot keep {keep} of {n_tokens} stored tokens: choose 0 to {n_tokens}")


def top_mask(scores: Tensor, k: int) -> Tensor:
    """Mark the k largest scores of every row, ties decided for the lower index.

    `torch.topk` promises nothing about ties, but its k-th *value* is well defined, and the marks
    follow from it.

    Args:
        scores: [..., N] of any ordered dtype, without NaN.
        k: 0 <= k <= N.

    Returns:
        bool [..., N] with exactly k true entries in each row.
    """
    if k == 0:
        return torch.zeros_like(scores, dtype=torch.bool)
    threshold = scores.topk(k, dim=-1, sorted=False).values.amin(-1, keepdim=True)
    above = scores > threshold
    tied = scores == threshold
    room = k - above.sum(-1, keepdim=True, dtype=torch.int32)
    return above | (tied & (tied.cumsum(-1, dtype=torch.int32) <= room))


def mask_to_slots(mask: Tensor, keep: int) -> Tensor:
    """Turn a mask [..., N] of `keep` true entries a row into ascending slots, int64 [..., keep]."""
    slots = mask.flatten().nonzero().squeeze(-1) % max(1, mask.shape[-1])
    return slots.view(*mask.shape[:-1], keep)


def top_slots(scores: Tensor, keep: int) -> Tensor:
    """Return the slots of the `keep` largest scores per row, ascending: int64 [..., keep]."""
    return mask_to_slots(top_mask(scores, keep), keep)


def finite_or_last(scores: Tensor) -> Tensor:
    """Replace scores that are not finite by -inf, so that broken tokens are the first to go."""
    return torch.where(scores.isfinite(), scores, -torch.inf)
