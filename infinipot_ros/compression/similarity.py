"""Distances between the descriptors of tokens, in blocks of bounded size."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from .blocks import cut

ALONE = 2.0
"""Squared distance to assume of a token that has nothing to be compared with: a usual one."""

_GRID = 1 << 12
# Elements of a block of distances, the largest temporary: 8 MB, or 256 MB on an accelerator.
_BLOCK_CPU = 1 << 21
_BLOCK_ACCELERATOR = 1 << 26


def on_grid(scores: Tensor) -> Tensor:
    """Round to multiples of 2**-12: what is equal but for the order of summation then ties."""
    return (scores * _GRID).round_().div_(_GRID)


def ranks(scores: Tensor) -> Tensor:
    """Return how many tokens of the same row score lower: int64 [..., N], equal where scores are.

    Args:
        scores: [..., N] of a floating dtype, without NaN.
    """
    ordered = scores.sort(dim=-1).values
    return torch.searchsorted(ordered, scores.contiguous())


def blocks(n_items: int, item_size: int, device: torch.device) -> Iterator[slice]:
    """Cut `n_items` rows of `item_size` distances into slices that fit the device."""
    return cut(n_items, item_size, _BLOCK_CPU if device.type == "cpu" else _BLOCK_ACCELERATOR)


def nearest(features: Tensor, steps: Tensor, first: int, gap: int) -> tuple[Tensor, Tensor]:
    """Return how near new tokens come to what is older, and each token to what is new and newer.

    Stored tokens are in order of steps, so what a token is compared with is a run of slots from
    the first on: only the distances near its end have to be masked.

    Args:
        features: float32 [N, D]; tokens with one that is not finite are compared with nothing.
        steps: int64 [N], non-decreasing.
        first: slots from here on hold the new tokens.
        gap: steps, at least 1; two tokens are compared where one is at least so much older.

    Returns:
        The least squared distance of each new token from an older one, float32 [N - first], and of
        each token from a newer one that is new, float32 [N]; inf where there is none.
    """
    n_tokens = features.shape[0]
    sound = features.isfinite().all(-1)
    features = features.where(sound.unsqueeze(-1), 0.0)
    halves = (0.5 * features.square().sum(-1)).where(sound, torch.inf)
    older = features.new_full((n_tokens - first,), torch.inf)
    newer = features.new_full((n_tokens,), torch.inf)
    ends = torch.searchsorted(steps, steps[first:] - gap, right=True)
    slots = torch.arange(n_tokens, device=steps.device)
    for block in blocks(n_tokens - first, n_tokens, steps.device):
        least, most = torch.stack(ends[block].aminmax()).tolist()
        if most == 0:
            continue
        distances = torch.addmm(
            halves[:most], features[first:][block], features[:most].mT, alpha=-1
        )
        distances += halves[first:][block].unsqueeze(-1)
        tail = slots[least:most] >= ends[block].unsqueeze(-1)
        distances[:, least:].masked_fill_(tail, torch.inf)
        older[block] = distances.amin(1)
        newer[:most] = newer[:most].minimum(distances.amin(0))
    return older.mul_(2.0).clamp_min_(0.0), newer.mul_(2.0).clamp_min_(0.0)
