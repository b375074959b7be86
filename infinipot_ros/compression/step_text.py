"""Text that belongs to a step stays as long as anything else of the step does.

Some models write text between the steps: when a frame was taken, its number. Without it what is
kept of a step could not be placed in time, so it is kept in every layer and head that keeps a patch
of the step, within the same number of tokens. Where that takes too many, the steps of which least
was chosen give way.
"""

from __future__ import annotations

import torch
from torch import Tensor


def with_step_text(slots: Tensor, steps: Tensor, text: Tensor) -> Tensor:
    """Return as many slots, such that no patch is kept without all the stored text of its step.

    First come the newest steps, as far back as every patch was chosen: what a policy keeps whole
    stays whole. Then steps rank by the number of their patches that were chosen, the newer of two
    first. In this order each gives its text and then its chosen patches, until the room is full.
    Room that is left goes to more patches of the chosen steps, the newest first, then to other
    steps, the newest first, text before patches.

    Args:
        slots: int64 [L, H, keep], what a policy chose, ascending.
        steps: int64 [L, H, N], non-decreasing along N.
        text: bool [L, H, N].

    Returns:
        int64 [L, H, keep], distinct and ascending.
    """
    keep, n_tokens = slots.shape[-1], steps.shape[-1]
    if keep in (0, n_tokens):
        return slots
    chosen = torch.zeros_like(text).scatter_(-1, slots, True) & ~text
    fresh = torch.zeros_like(steps)
    fresh[..., 1:] = steps[..., 1:] != steps[..., :-1]
    rank = fresh.cumsum(-1)  # of the token's step within its head, the oldest 0
    counts = torch.zeros_like(steps).scatter_add_(-1, rank, chosen.long()).gather(-1, rank)
    broken = torch.where(chosen | text, -1, rank).amax(-1, keepdim=True)
    whole = rank > broken
    # 0: text and chosen patches of chosen steps. 1: their other patches. 2: other steps.
    group = torch.where(counts == 0, 2, (~(chosen | text)).long())
    base = n_tokens + 1
    by_count = torch.where(group == 0, base - counts, 0).where(~whole, 0)
    place = torch.arange(n_tokens, device=steps.device)
    order = (group * (base + 1) + by_count) * base + (n_tokens - rank)
    order = (order * 2 + (~text).long()) * base + place
    return order.argsort(-1)[..., :keep].sort(-1).values
