"""Let a token's score agree between the layers and heads that store it.

Layers and heads score on different scales and, once they have evicted differently, hold different
tokens. So scores are first replaced by their rank within the head, and partners are found by
provenance (step, row, column), never by slot; a head that has evicted the token has no say.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .layout import Layout
from .similarity import ranks


def smooth_over_heads(scores: Tensor, steps: Tensor, layout: Layout, weight: float) -> Tensor:
    """Draw each token's rank to the mean rank over all layers and heads that store the token.

    Sums are over whole numbers, so that their order does not matter.

    Args:
        scores: [L, H, N] of a floating dtype, -inf where a token is broken.
        steps: int64 [L, H, N].
        layout: of the same tokens.
        weight: 0 leaves the ranks as they are, 1 takes the mean.

    Returns:
        float64 [L, H, N]: (1 - weight) * own rank + weight * mean rank; -inf where broken.
    """
    own = ranks(scores)
    places = steps * layout.n_patches + layout.patches
    if bool((places == places[:1, :1]).all()):
        mean = own.sum((0, 1), keepdim=True).double() / (own.shape[0] * own.shape[1])
    else:
        found, partner = torch.unique(places, return_inverse=True)
        totals = own.new_zeros(2, found.numel())
        flat = partner.flatten()
        totals[0].index_add_(0, flat, own.flatten())
        totals[1].index_add_(0, flat, torch.ones_like(flat))
        mean = (totals[0].double() / totals[1])[partner]
    smoothed = (1.0 - weight) * own + weight * mean
    return smoothed.where(scores > -torch.inf, -torch.inf)
