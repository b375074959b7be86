"""VaN, value norm: how much can a token contribute to an answer?

InfiniPot-V (arXiv 2506.15745v2): s_VaN(x) = |v_x|_2, average-pooled in the plane (i, j) of its own
step, with a kernel per layer of 7, 5, 3 or 1: large where the value norms vary little over the
picture, none where they vary much.

Where the paper is silent:

- Its thresholds are unpublished. Layers are ranked by the coefficient of variation (standard
  deviation over mean) of their unpooled norms, and each quartile of the ranking gets its kernel.
  The coefficient is taken per head and averaged over the heads of a layer: tokens compete within a
  head, so a difference in scale between heads says nothing about locality.
- After a compression planes have holes. A mean is taken over the tokens that exist in that head:
  evicted neighbours and the outside of the picture do not count as zeros.
- A value that is not finite is a hole to its neighbours, and its own token scores -inf.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

from .base import VideoTokens
from .topk import finite_or_last

KERNELS = (7, 5, 3, 1)
"""Pooling kernels by quartile of the layers' coefficient of variation, lowest first."""

# Patches, stored or not, of the planes that are laid out at a time: 4 MB for a float64 map.
_PLANE_ELEMENTS = 1 << 19


def value_norms(tokens: VideoTokens) -> Tensor:
    """Return |v|_2 of every token, float32 [L, H, N], not finite where the value is not."""
    return torch.stack(
        [torch.linalg.vector_norm(v, dim=-1, dtype=torch.float32) for v in tokens.values]
    )


def coefficients_of_variation(norms: Tensor) -> Tensor:
    """Return std / mean over the finite norms of a head, averaged over heads: float64 [L]."""
    finite = norms.isfinite()
    count = finite.sum(-1).clamp_min(1)
    norms = torch.where(finite, norms, 0.0).double()
    mean = norms.sum(-1, keepdim=True) / count.unsqueeze(-1)
    variance = torch.where(finite, norms - mean, 0.0).square().sum(-1) / count
    mean = mean.squeeze(-1)
    return torch.where(mean > 0, variance.sqrt() / mean, 0.0).mean(-1)


def choose_kernels(norms: Tensor) -> tuple[int, ...]:
    """Return a pooling kernel per layer from its unpooled value norms [L, H, N].

    Rank q = 0 .. L - 1 by variation, ascending, gets KERNELS[4 q // L]; equals rank by layer.
    """
    ranking = coefficients_of_variation(norms).argsort(stable=True).tolist()
    kernels = [1] * len(ranking)
    for rank, layer in enumerate(ranking):
        kernels[layer] = KERNELS[rank * len(KERNELS) // len(ranking)]
    return tuple(kernels)


def _band(size: int, kernel: int, device: torch.device) -> Tensor:
    """Return the 0/1 matrix [size, size] that sums over a window of `kernel` around each place."""
    place = torch.arange(size, device=device)
    return ((place.unsqueeze(0) - place.unsqueeze(1)).abs() <= kernel // 2).double()


def pool_planes(
    scores: Tensor, steps: Tensor, patches: Tensor, *, grid: tuple[int, int], kernel: int
) -> Tensor:
    """Average scores over the existing tokens of the same head and step in a square window.

    The tokens of one step of one head, a plane, are neighbours in memory. Each plane is laid out
    as one dense picture of sums and one of counts, both are filtered by a separable window (two
    products with band matrices), and the quotient is read back at the tokens. Sums are in float64,
    so that tokens that see the same window tie, whatever the order of summation.

    Planes are handled in groups of bounded size: the time grows with the number of planes, but the
    temporaries beside O(tokens) stay below some 30 MB, also for 3,072 survivors of 3,000 steps.

    Args:
        scores: float32 [..., N]; values that are not finite are holes.
        steps: int64 [..., N], non-decreasing along N.
        patches: int64 [..., N], row * grid columns + column.
        grid: (rows, columns) that hold every patch.
        kernel: odd width of the window.

    Returns:
        float32 [..., N]: the mean; NaN where the window holds nothing but holes.
    """
    rows, cols = grid
    n_patches = rows * cols
    begins = torch.ones_like(steps, dtype=torch.bool)
    begins[..., 1:] = steps[..., 1:] != steps[..., :-1]
    plane = begins.flatten().cumsum(0) - 1
    firsts = begins.flatten().nonzero().squeeze(-1)
    place = plane * n_patches + patches.flatten()

    flat = scores.flatten()
    finite = flat.isfinite()
    pairs = torch.stack([flat.where(finite, 0.0).double(), finite.double()])
    across, down = _band(cols, kernel, scores.device), _band(rows, kernel, scores.device)

    group = max(1, _PLANE_ELEMENTS // n_patches)
    bounds = [*firsts[::group].tolist(), flat.numel()]
    pooled = torch.empty_like(flat)
    for number, (start, stop) in enumerate(pairwise(bounds)):
        first_plane = number * group
        n_planes = min(group, firsts.numel() - first_plane)
        here = place[start:stop] - first_plane * n_patches
        maps = pairs.new_zeros(2, n_planes * n_patches)
        maps[:, here] = pairs[:, start:stop]
        maps = (down @ (maps.view(2, n_planes, rows, cols) @ across)).view(2, -1)
        total, count = maps[:, here]
        pooled[start:stop] = total / count
    return pooled.view_as(scores)


def pool_layers(
    norms: Tensor,
    steps: Tensor,
    patches: Tensor,
    *,
    grid: tuple[int, int],
    kernels: tuple[int, ...],
) -> Tensor:
    """Return pooled VaN scores: the norms [L, H, N] pooled with the kernel of their layer."""
    pooled = norms.clone()
    # A window that spans the grid from any patch is not widened by a larger kernel.
    widest = 2 * max(grid) - 1
    kernels = tuple(min(kernel, widest) for kernel in kernels)
    for kernel in sorted(set(kernels) - {1}):
        layers = torch.tensor([n for n, k in enumerate(kernels) if k == kernel]).to(norms.device)
        pooled[layers] = pool_planes(
            norms[layers], steps[layers], patches[layers], grid=grid, kernel=kernel
        )
    return pooled.where(norms.isfinite(), -torch.inf)


def unpooled(norms: Tensor) -> Tensor:
    """Return VaN scores without pooling: the norms, -inf where a value is not finite."""
    return finite_or_last(norms)
