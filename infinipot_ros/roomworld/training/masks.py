"""Positions and attention masks of a batch."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from infinipot_ros.roomworld.training.architecture import TOKEN_GRID, TOKENS_PER_STEP
from infinipot_ros.roomworld.training.plans import BRANCH_LENGTH, BatchPlan

_BLOCKED = -1e9
_GROUPED = 8
"""Questions that attend together: what they compute for one another is blocked and wasted."""


def step_positions(rng: np.random.Generator, plan: BatchPlan) -> NDArray[np.int64]:
    """Return increasing temporal positions of the steps, with random gaps in some streams."""
    n = plan.n_steps
    if rng.random() >= plan.gap_share:
        return np.arange(n)
    widest = max(n + 1, plan.max_position_span)
    span = np.exp(rng.uniform(np.log(n + 1), np.log(widest)))
    shares = rng.gamma(float(rng.choice((0.3, 1.0, 10.0))), 1.0, n) + 0.02
    intervals = np.maximum(1, np.round(shares / shares.sum() * span)).astype(np.int64)
    start = int(rng.integers(20)) if rng.random() < 0.3 else 0
    return start + np.concatenate([[0], np.cumsum(intervals[:-1])])


def video_positions(times: NDArray[np.int64], prefix: int) -> NDArray[np.int64]:
    """Return the positions of all video tokens on three axes, [3, T * 9], for steps at `times`."""
    rows, columns = np.divmod(np.arange(TOKENS_PER_STEP), TOKEN_GRID)
    return np.stack(
        [
            np.repeat(times, TOKENS_PER_STEP),
            np.tile(prefix + rows, len(times)),
            np.tile(prefix + columns, len(times)),
        ]
    )


def shared_mask(log_weights: NDArray[np.float32]) -> Tensor:
    """Let shared tokens see those before them by their weights: [b, 1, shared, shared]."""
    n = log_weights.shape[1]
    mask = torch.from_numpy(log_weights)[:, None, None].expand(-1, 1, n, n).clone()
    return mask.masked_fill_(torch.ones(n, n, dtype=torch.bool).triu(1), _BLOCKED)


def branch_mask(
    visible_to: NDArray[np.int64],
    kept: NDArray[np.bool_],
    log_weights: NDArray[np.float32],
    n_questions: int,
) -> Tensor:
    """Let branch tokens see surviving tokens up to their moment, and their own branch so far."""
    b, shared = kept.shape
    each = math.gcd(n_questions, _GROUPED)
    groups = n_questions // each
    before = np.arange(shared)[None, None] < visible_to[:, :, None]
    seen = np.where(before & kept[:, None], log_weights[:, None], np.float32(_BLOCKED))
    shape = (b, groups, each, BRANCH_LENGTH, shared + each * BRANCH_LENGTH)
    mask = np.full(shape, _BLOCKED, np.float32)
    mask[..., :shared] = seen.reshape(b, groups, each, 1, shared)
    causal = np.where(np.tril(np.ones((BRANCH_LENGTH, BRANCH_LENGTH), bool)), 0.0, _BLOCKED)
    for number in range(each):
        start = shared + number * BRANCH_LENGTH
        mask[:, :, number, :, start : start + BRANCH_LENGTH] = causal
    return torch.from_numpy(mask.reshape(b, groups, each * BRANCH_LENGTH, -1))
