"""TaR, temporal-axis redundancy: how unlike the present view of its patch is an older token?

InfiniPot-V (arXiv 2506.15745v2): with R the recent steps and R_p their tokens at patch p,

    s_TaR(x) = -(1 / |R_p|) * sum over y in R_p of cos(k_x, k_y)      for an older token x at p.

A mean of cosines is one dot product with the mean of the unit keys, so that a token costs one pass
over its key instead of one per recent step:

    s_TaR(x) = -<k_x / |k_x|, u_p>,      u_p = (1 / |R_p|) * sum over y in R_p of k_y / |k_y|

Where the paper is silent:

- A patch at which a head holds no recent token shows nothing that makes x redundant: x scores +1,
  as if the present view were opposite.
- A key of length zero has cosine 0 with every other.
- A recent key that is not finite is left out of the mean; an older one scores -inf.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from .base import VideoTokens
from .blocks import cut
from .layout import Layout
from .topk import finite_or_last

UNLIKE = 1.0
"""Score of a token that has nothing to be compared with."""

TAR_REFERENCES = ("recent", "previous")
"""What TaR compares with: the mean of the recent steps, or the step before the token's own."""

_TINY = 1e-12
# Elements of the largest temporary. On a CPU a block should still be in the second-level cache at
# the second pass over it; on an accelerator it should keep every unit busy.
_BLOCK_CPU = 1 << 19
_BLOCK_ACCELERATOR = 1 << 24


def _blocks(n_items: int, item_size: int, device: torch.device) -> Iterator[slice]:
    return cut(n_items, item_size, _BLOCK_CPU if device.type == "cpu" else _BLOCK_ACCELERATOR)


def key_lengths(keys: Tensor) -> Tensor:
    """Return |k| over the last axis in float32, never zero, not finite where the key is not."""
    lengths: Tensor = torch.linalg.vector_norm(keys, dim=-1, dtype=torch.float32)
    return lengths.clamp_min(_TINY)


def mean_unit_keys(
    keys: Tensor, ages: Tensor, patches: Tensor, *, n_steps: int, n_patches: int
) -> tuple[Tensor, Tensor]:
    """Average the unit keys of each patch over the recent steps.

    A table first says which slot holds (step, patch), and the sum is taken along it, step by step.
    A scatter-add would do with less, but its order, and with it the rounding and the last
    survivors, would change from run to run on a GPU.

    Args:
        keys: [B, n, D], of B heads; those that are not finite do not count.
        ages: int64 [B, n], recent step 0 .. n_steps - 1, negative where the key is older and does
            not count. A patch occurs at most once per step.
        patches: int64 [B, n], 0 .. n_patches - 1.
        n_steps: r.
        n_patches: P.

    Returns:
        Means, float32 [B, P, D], zero where no key counts; whether one does, bool [B, P].
    """
    n_rows, n_keys, _ = keys.shape
    lengths = key_lengths(keys)
    valid = lengths.isfinite() & (ages >= 0)
    # One more key per head, of zero, stands for what is not stored; one more place for what is
    # stored but does not count.
    units = F.pad(keys / lengths.unsqueeze(-1), (0, 0, 0, 1))
    places = (ages * n_patches + patches).where(valid, n_steps * n_patches)
    slots = torch.arange(n_keys, device=keys.device).expand(n_rows, -1)
    table = torch.full((n_rows, n_steps * n_patches + 1), n_keys, device=keys.device)
    table = table.scatter_(1, places, slots)[:, :-1].reshape(n_rows, n_steps, n_patches)
    counts = (table < n_keys).sum(1)
    offsets = torch.arange(n_rows, device=keys.device).view(-1, 1, 1) * (n_keys + 1)
    bags = (table + offsets).transpose(1, 2).reshape(-1, n_steps)
    sums = F.embedding_bag(bags, units.flatten(0, 1), mode="sum").view(n_rows, n_patches, -1)
    return sums / counts.clamp_min(1).unsqueeze(-1), counts > 0


def predecessors(steps: Tensor, patches: Tensor, n_patches: int) -> tuple[Tensor, Tensor]:
    """Find, for each token of B heads, the slot that holds its patch one step earlier.

    Args:
        steps: int64 [B, n].
        patches: int64 [B, n].
        n_patches: above every patch number.

    Returns:
        Slots, int64 [B, n], and whether there is one, bool [B, n] (else the slot means nothing).
    """
    code = steps * n_patches + patches
    ordered, order = code.sort(dim=-1)
    wanted = code - n_patches
    place = torch.searchsorted(ordered, wanted).clamp_max(code.shape[-1] - 1)
    return order.gather(-1, place), ordered.gather(-1, place) == wanted


def _dots(keys: Tensor, others: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
    """Return <keys[b, n], others[b, index[b, n]]> and |keys[b, n]|, both float32 [B, n].

    Copying the few rows needed beats a full product keys x others, and its cost does not grow with
    the number of patches.
    """
    n_rows, n_keys, dim = keys.shape
    dots = torch.empty(n_rows, n_keys, dtype=torch.float32, device=keys.device)
    lengths = torch.empty_like(dots)
    for rows in _blocks(n_rows, n_keys * dim, keys.device):
        block = keys[rows]
        source = others[rows]
        offsets = torch.arange(source.shape[0], device=keys.device).unsqueeze(-1) * source.shape[1]
        chosen = source.reshape(-1, dim).index_select(0, (index[rows] + offsets).flatten())
        dots[rows] = chosen.float().view_as(block).mul_(block).sum(-1)
        lengths[rows] = key_lengths(block)
    return dots, lengths


def finish_scores(cosines: Tensor, known: Tensor, lengths: Tensor) -> Tensor:
    """Turn cosines into scores: UNLIKE where nothing is known, -inf for keys that are broken."""
    scores = torch.where(known, -cosines, UNLIKE)
    return finite_or_last(scores.where(lengths.isfinite(), -torch.inf))


def _scores_recent(keys: Tensor, patches: Tensor, steps: Tensor, layout: Layout) -> Tensor:
    """Score the slots of B heads that are not recent in all of them: float32 [B, n]."""
    n_older = keys.shape[1] - layout.fewest_recent
    tail = slice(keys.shape[1] - layout.most_recent, None)
    means, known = mean_unit_keys(
        keys[:, tail],
        steps[:, tail] - layout.oldest_recent,
        patches[:, tail],
        n_steps=layout.recent_steps,
        n_patches=layout.n_patches,
    )
    patches = patches[:, :n_older]
    dots, lengths = _dots(keys[:, :n_older], means, patches)
    return finish_scores(dots / lengths, known.gather(1, patches), lengths)


def _scores_previous(keys: Tensor, patches: Tensor, steps: Tensor, layout: Layout) -> Tensor:
    """Score the same slots against the same patch one step earlier: float32 [B, n]."""
    n_older = keys.shape[1] - layout.fewest_recent
    keys = keys[:, :n_older]
    slots, found = predecessors(steps[:, :n_older], patches[:, :n_older], layout.n_patches)
    dots, lengths = _dots(keys, keys, slots)
    other_lengths = lengths.gather(1, slots)
    known = found & other_lengths.isfinite()
    return finish_scores(dots / lengths / other_lengths, known, lengths)


def tar_scores(tokens: VideoTokens, layout: Layout, *, key_space: str, reference: str) -> Tensor:
    """Score every token by TaR, float32 [L, H, N]: high is unlike, that is, worth keeping.

    Temporaries: the keys of one layer, or of as many layers as make a block, and some two blocks
    beside them. A block is 2 MB on a CPU and 64 MB on an accelerator, or the keys of one head where
    these are larger.

    Args:
        tokens: at least one stored token.
        layout: of the same tokens.
        key_space: "content" compares keys without RoPE, "rotated" as stored.
        reference: "recent" for the equation above; "previous" compares with the same patch of the
            step before (the adjacent-frame form), and +1 is the score where that is not stored.

    Returns:
        Scores of older tokens. A recent one is not compared: its number has no meaning.
    """
    n_layers, n_heads, n_tokens = tokens.shape
    device, dim = tokens.values.device, tokens.values.shape[-1]
    scores = torch.zeros(n_layers, n_heads, n_tokens, dtype=torch.float32, device=device)
    n_older = n_tokens - layout.fewest_recent
    for layers in _blocks(n_layers, n_heads * n_tokens * dim, device):
        keys = tokens.keys(layers, key_space).flatten(0, 1)
        patches = layout.patches[layers].flatten(0, 1)
        steps = tokens.steps[layers].flatten(0, 1)
        score = _scores_previous if reference == "previous" else _scores_recent
        older = score(keys, patches, steps, layout)
        scores[layers, :, :n_older] = older.view(*scores[layers].shape[:2], n_older)
    return scores
