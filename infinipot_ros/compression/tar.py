"""TaR, temporal-axis redundancy: how unlike the present view of its patch is an older token?

InfiniPot-V (arXiv 2506.15745v2), TaR: with R the recent steps and R_p its tokens at patch p,

    s_TaR(x) = - (1 / |R_p|) * sum over y in R_p of cos(k_x, k_y)        for an older token x at
    patch p.

The mean of cosines is one dot product with the mean of the unit keys, so that a score costs one
pass over the keys instead of one per recent step:

    s_TaR(x) = - < k_x / |k_x| ,  (1 / |R_p|) * sum over y in R_p of k_y / |k_y| >

Where the paper is silent: a patch at which a head holds no recent token has nothing that makes x
redundant, and x scores +1, the value of an opposite key. A key of length zero has cosine 0 with
everything. A recent key that is not finite is left out of the mean.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from .base import VideoTokens
from .layout import Layout
from .topk import finite_or_last

UNLIKE = 1.0
"""Score of a token with nothing to compare it with."""

_TINY = 1e-12
# Elements of the largest temporary. On a CPU a block should stay in the second-level cache between
# the passes over it; on an accelerator it should be large enough to keep every unit busy.
_BLOCK_CPU = 1 << 19
_BLOCK_ACCELERATOR = 1 << 24


def _blocks(n_items: int, item_size: int, device: torch.device) -> Iterator[slice]:
    """Cut `n_items` items of `item_size` elements into slices of at most a block, at least one item each."""
    limit = _BLOCK_CPU if device.type == "cpu" else _BLOCK_ACCELERATOR
    length = max(1, limit // max(1, item_size))
    for start in range(0, n_items, length):
        yield slice(start, min(start + length, n_items))


def _lengths(keys: Tensor) -> Tensor:
    """Return |k| over the last axis, never zero; NaN or inf where the key is not finite."""
    return torch.linalg.vector_norm(keys, dim=-1).clamp_min(_TINY)


def mean_unit_keys(
    keys: Tensor, patches: Tensor, valid: Tensor, n_patches: int
) -> tuple[Tensor, Tensor]:
    """Average the unit keys of each patch.

    The sum is a product with a 0/1 matrix rather than a scatter-add, whose order, and with it the
    rounding, changes from run to run on a GPU.

    Args:
        keys: float32 [B, n, D].
        patches: int64 [B, n].
        valid: bool [B, n], which keys count.

    Returns: Means, float32 [B, P, D] (zero where no key counts), and whether a patch has any, bool
        [B, P].
    """
    lengths = _lengths(keys)
    valid = valid & lengths.isfinite()
    units = torch.where(valid.unsqueeze(-1), keys / lengths.unsqueeze(-1), 0.0)
    numbers = torch.arange(n_patches, device=keys.device).view(1, -1, 1)
    member = ((patches.unsqueeze(1) == numbers) & valid.unsqueeze(1)).to(units.dtype)
    counts = member.sum(-1, keepdim=True)
    return torch.bmm(member, units) / counts.clamp_min(1), counts.squeeze(-1) > 0


def _dissimilarity(keys: Tensor, reference: Tensor, has_reference: Tensor) -> Tensor:
    """Return -cos-like scores -<k/|k|, reference>, or UNLIKE without a reference; all [B, n, ...]."""
    scores = -(reference * keys).sum(-1) / _lengths(keys)
    return torch.where(has_reference, scores, UNLIKE)


def _scores_recent(keys: Tensor, patches: Tensor, recent: Tensor, layout: Layout) -> Tensor:
    """Score [B, N - fewest_recent] older slots of B heads against the mean recent key of their patch."""
    n_patches = layout.grid[0] * layout.grid[1]
    tail = slice(keys.shape[1] - layout.most_recent, None)
    reference, known = mean_unit_keys(
        keys[:, tail].float(), patches[:, tail], recent[:, tail], n_patches
    )
    n_older = keys.shape[1] - layout.fewest_recent
    offsets = torch.arange(keys.shape[0], device=keys.device).unsqueeze(-1) * n_patches
    flat = (patches[:, :n_older] + offsets).flatten()
    gathered = reference.flatten(0, 1).index_select(0, flat).view(keys.shape[0], n_older, -1)
    has_reference = known.flatten().index_select(0, flat).view(-1, n_older)
    return _dissimilarity(keys[:, :n_older].float(), gathered, has_reference)


def predecessors(steps: Tensor, patches: Tensor, n_patches: int) -> tuple[Tensor, Tensor]:
    """Find, for each token of B heads, the slot of the same patch one step earlier.

    Returns: Slots, int64 [B, N], and whether there is one, bool [B, N] (elsewhere the slot means
        nothing).
    """
    code = steps * n_patches + patches
    ordered, order = code.sort(dim=-1)
    wanted = code - n_patches
    place = torch.searchsorted(ordered, wanted).clamp_max(code.shape[-1] - 1)
    return order.gather(-1, place), ordered.gather(-1, place) == wanted


def _scores_previous(keys: Tensor, steps: Tensor, patches: Tensor, layout: Layout) -> Tensor:
    """Score [B, N - fewest_recent] older slots of B heads against the same patch one step earlier."""
    n_older = keys.shape[1] - layout.fewest_recent
    slots, found = predecessors(
        steps[:, :n_older], patches[:, :n_older], layout.grid[0] * layout.grid[1]
    )
    keys = keys[:, :n_older].float()
    lengths = _lengths(keys)
    units = keys / lengths.unsqueeze(-1)
    reference = torch.take_along_dim(units, slots.unsqueeze(-1), dim=1)
    found = found & lengths.gather(1, slots).isfinite()
    return _dissimilarity(keys, reference, found)


def tar_scores(tokens: VideoTokens, layout: Layout, *, key_space: str, reference: str) -> Tensor:
    """Score every token by TaR, float32 [L, H, N]: high is unlike, that is, worth keeping.

    Peak of temporaries: the keys of one layer (or of as many as fit a block) and two blocks beside
    them; a block is one head's keys where these exceed 2 MB on a CPU, 64 MB on an accelerator.

    Args: tokens: at least one stored token. layout: of the same tokens. key_space: "content"
        compares keys without RoPE, "rotated" as stored. reference: "recent" for the equation above;
        "previous" compares with the same patch one step earlier
            (the adjacent-frame form), which scores +1 where this token is not stored.

    Returns: Scores of older tokens; recent ones, which are not compared, have 0. Not finite keys
        score -inf.
    """
    n_layers, n_heads, n_tokens = tokens.shape
    device, dim = tokens.values.device, tokens.values.shape[-1]
    scores = torch.zeros(n_layers, n_heads, n_tokens, dtype=torch.float32, device=device)
    n_older = n_tokens - layout.fewest_recent
    for layers in _blocks(n_layers, n_heads * n_tokens * dim, device):
        keys = tokens.keys(layers, key_space).flatten(0, 1)
        steps = tokens.steps[layers].flatten(0, 1)
        patches = layout.patches[layers].flatten(0, 1)
        recent = layout.recent[layers].flatten(0, 1)
        out = scores[layers].view(-1, n_tokens)
        for heads in _blocks(keys.shape[0], n_tokens * dim, device):
            if reference == "previous":
                older = _scores_previous(keys[heads], steps[heads], patches[heads], layout)
            else:
                older = _scores_recent(keys[heads], patches[heads], recent[heads], layout)
            out[heads, :n_older] = finite_or_last(older)
    return scores
