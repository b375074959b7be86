"""VaN, value norm: how much can a token contribute to an answer?

InfiniPot-V (arXiv 2506.15745v2), VaN: s_VaN(x) = |v_x|_2, average-pooled in the plane (i, j) of its
own step with
a kernel k_l of 7, 5, 3 or 1 per layer: large where the map of value norms varies little over the
picture, none where it varies much.

Where the paper is silent:

- Its thresholds are unpublished. The layers are ranked by the coefficient of variation (standard
  deviation over mean of the unpooled norms of a head, averaged over the heads, so that heads of
  different scale count alike) and each quartile of the ranking gets its kernel.
- After a compression planes have holes. A mean is taken over the tokens that exist in that head;
  evicted neighbours and the outside of the picture do not count as zeros.
- A value that is not finite counts as a hole for its neighbours, and its own token scores -inf.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .base import VideoTokens
from .topk import finite_or_last

KERNELS = (7, 5, 3, 1)
"""Pooling kernels by quartile of the layers' coefficient of variation, lowest first."""

# Patches, present or not, of the planes that are laid out at a time: 4 MB per float32 map.
_PLANE_ELEMENTS = 1 << 20


def value_norms(tokens: VideoTokens) -> Tensor:
    """Return |v|_2 of every token, float32 [L, H, N]; not finite where the value is not."""
    norms = [
        torch.linalg.vector_norm(layer, dim=-1, dtype=torch.float32) for layer in tokens.values
    ]
    return torch.stack(norms)


def coefficients_of_variation(norms: Tensor) -> Tensor:
    """Return std / mean over the finite norms of a head, averaged over heads: [L, H, N] -> float64 [L]."""
    finite = norms.isfinite()
    count = finite.sum(-1).clamp_min(1)
    kept = torch.where(finite, norms, 0.0).double()
    mean = kept.sum(-1) / count
    variance = torch.where(finite, kept - mean.unsqueeze(-1), 0.0).square().sum(-1) / count
    return torch.where(mean > 0, variance.sqrt() / mean.clamp_min(1e-300), 0.0).mean(-1)


def choose_kernels(norms: Tensor) -> tuple[int, ...]:
    """Return a pooling kernel per layer: rank q of L by variation, ascending, gets KERNELS[4 q // L].

    Equal coefficients rank by layer number.
    """
    ranking = coefficients_of_variation(norms).argsort(stable=True).tolist()
    kernels = [1] * len(ranking)
    for rank, layer in enumerate(ranking):
        kernels[layer] = KERNELS[rank * len(KERNELS) // len(ranking)]
    return tuple(kernels)


def _band(size: int, kernel: int, device: torch.device) -> Tensor:
    """Return the 0/1 matrix [size, size] that sums over a window of `kernel` around each place."""
    place = torch.arange(size, device=device)
    return ((place.unsqueeze(0) - place.unsqueeze(1)).abs() <= kernel // 2).float()


def pool_planes(
    scores: Tensor, steps: Tensor, patches: Tensor, *, grid: tuple[int, int], kernel: int
) -> Tensor:
    """Average scores over the existing tokens of the same head and step in a kernel x kernel window.

    Tokens of one step of one head are neighbours in memory. Each such plane is laid out as a dense
    picture of sums and one of counts, both are filtered by a separable window (two products with
    band matrices), and the quotient is read back at the tokens. Planes are handled in groups of
    bounded size, so that 3,072 survivors in 3,000 different steps cost time in proportion to the
    planes, and never more than some 25 MB at once, plus O(tokens).

    Args:
        scores: float32 [..., N]; values that are not finite count as holes.
        steps: int64 [..., N], non-decreasing along N.
        patches: int64 [..., N], row * grid columns + column.
        grid: rows and columns that hold every patch.
        kernel: odd width of the window; 1 returns the scores.

    Returns:
        float32 [..., N]; NaN at a hole without neighbours, else the mean (also at holes).
    """
    if kernel == 1:
        return scores
    rows, cols = grid
    n_patches, n_tokens = rows * cols, scores.numel()
    starts_plane = torch.ones_like(steps, dtype=torch.bool)
    starts_plane[..., 1:] = steps[..., 1:] != steps[..., :-1]
    plane = starts_plane.flatten().cumsum(0) - 1
    place = plane * n_patches + patches.flatten()
    finite = scores.isfinite().flatten()
    pairs = torch.stack([torch.where(finite, scores.flatten(), 0.0), finite.float()])
    group = max(1, _PLANE_ELEMENTS // n_patches)
    firsts = starts_plane.flatten().nonzero().squeeze(-1)
    n_planes, bounds = firsts.numel(), [*firsts[::group].tolist(), n_tokens]
    column_band, row_band = _band(cols, kernel, scores.device), _band(rows, kernel, scores.device)
    pooled = torch.empty(n_tokens, dtype=torch.float32, device=scores.device)
    for number, (start, stop) in enumerate(zip(bounds, bounds[1:], strict=False)):
        n_here = min(group, n_planes - number * group)
        local = place[start:stop] - number * group * n_patches
        maps = torch.zeros(2, n_here * n_patches, dtype=torch.float32, device=scores.device)
        maps[:, local] = pairs[:, start:stop]
        sums = torch.matmul(row_band, maps.view(2, n_here, rows, cols) @ column_band)
        total, count = sums.view(2, -1)[:, local]
        pooled[start:stop] = total / count
    return pooled.view(scores.shape)


def pool_layers(
    norms: Tensor,
    steps: Tensor,
    patches: Tensor,
    *,
    grid: tuple[int, int],
    kernels: tuple[int, ...],
) -> Tensor:
    """Pool the value norms of each layer with its own kernel: float32 [L, H, N] -> the same shape."""
    pooled = norms.clone()
    for kernel in set(kernels) - {1}:
        layers = torch.tensor(
            [n for n, k in enumerate(kernels) if k == kernel], device=norms.device
        )
        pooled[layers] = pool_planes(
            norms[layers], steps[layers], patches[layers], grid=grid, kernel=kernel
        )
    return torch.where(norms.isfinite(), pooled, -torch.inf)


def van_scores(norms: Tensor) -> Tensor:
    """Return unpooled VaN scores: the norms, with -inf where the value is not finite."""
    return finite_or_last(norms)
