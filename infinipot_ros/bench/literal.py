"""InfiniPot-V as its equations read, on whole frames: what the fast selection is timed against.

Plain tensor code, one layer at a time, all heads together, as a patched attention layer would do
it. Unit keys are computed once per key. It can serve a first compression only: the reshape to
frames x patches holds while every frame is whole.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def tar_scores(keys: Tensor, recent_steps: int) -> Tensor:
    """Return -mean cosine with the recent steps through the product [recent, older, patch, dim].

    Args:
        keys: [H, F, P, D], whole frames of one layer.
        recent_steps: r < F.

    Returns:
        float32 [H, F - r, P].
    """
    units = F.normalize(keys.float(), dim=-1)
    older, recent = units[:, :-recent_steps], units[:, -recent_steps:]
    product = recent.unsqueeze(2) * older.unsqueeze(1)
    return -product.sum(-1).mean(1)


def van_scores(values: Tensor, grid: tuple[int, int], kernel: int) -> Tensor:
    """Return value norms, average-pooled in the picture without counting its outside.

    Args:
        values: [H, F, P, D], whole frames of one layer.
        grid: rows and columns, P in all.
        kernel: odd width of the window.

    Returns:
        float32 [H, F, P].
    """
    norms = torch.linalg.vector_norm(values, dim=-1, dtype=torch.float32)
    pooled = F.avg_pool2d(
        norms.unflatten(-1, grid), kernel, 1, kernel // 2, count_include_pad=False
    )
    return pooled.flatten(-2)


def choose(tar: Tensor, van: Tensor, share: int, keep: int) -> Tensor:
    """Return the slots of the recent steps, of the best by TaR up to `share`, of the best by VaN.

    Stable sorts, so that ties go to the older token as they do in ours.

    Args:
        tar: [H, F - r, P].
        van: [H, F, P].
        share: tokens that are recent or chosen by TaR, at least those that are recent.
        keep: C.

    Returns:
        int64 [H, keep], ascending.
    """
    n_older, n_all = tar[0].numel(), van[0].numel()
    recent = torch.arange(n_older, n_all, device=tar.device).expand(tar.shape[0], -1)
    by_tar = _best(tar.flatten(1), share - recent.shape[1])
    rest = van.flatten(1).clone()
    rest.scatter_(1, torch.cat([recent, by_tar], 1), -torch.inf)
    by_van = _best(rest, keep - share)
    return torch.cat([recent, by_tar, by_van], 1).sort(1).values


def _best(scores: Tensor, count: int) -> Tensor:
    return scores.argsort(dim=1, descending=True, stable=True)[:, :count]
