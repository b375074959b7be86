"""Thin streams out: fewer video tokens, heavier ones, evicted ones."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from infinipot_ros.roomworld.training.architecture import TOKENS_PER_STEP
from infinipot_ros.roomworld.training.plans import BatchPlan
from infinipot_ros.roomworld.training.pool import ScenePool
from infinipot_ros.roomworld.training.streams import Stream
from infinipot_ros.roomworld.training.views import NO_KIND
from infinipot_ros.roomworld.vocabulary import COLORS, KINDS

_EVICTED_SURVIVORS = (0.03, 0.9)
_DILUTED_SHARE = 0.7


def shows_object(pool: ScenePool, stream: Stream) -> NDArray[np.bool_]:
    """Tell which video tokens of a stream show an object: bool [T * 9]."""
    kinds = pool.labels[0, stream.scenes, stream.views].reshape(-1)
    shows: NDArray[np.bool_] = (kinds >= 0) & (kinds < NO_KIND)
    return shows


def thinned(
    rng: np.random.Generator, pool: ScenePool, stream: Stream, plan: BatchPlan
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Choose the video tokens of a stream, ascending, and how much each weighs: log, [n].

    A key of weight w counts in the attention as w equal ones do. So a short stream looks like one
    in which every stay without an object lasts w times as long, at the cost of the short one.
    """
    things = shows_object(pool, stream)
    tokens = np.arange(len(things))
    log_weights = np.zeros(len(things), np.float32)
    if plan.n_tokens < len(things):
        order = np.argsort(rng.random(len(things)) - 2.0 * things)
        tokens = np.sort(order[: plan.n_tokens])
        others, left = np.count_nonzero(~things), np.count_nonzero(~things[tokens])
        if left:
            log_weights[~things] += np.log(others / left)
    if plan.training and rng.random() < _DILUTED_SHARE:
        most = max(1.0, plan.longest / plan.n_steps)
        longer = np.exp(rng.uniform(0.0, np.log(most)))
        stays = int(stream.visits[-1]) + 1
        each = longer * np.exp(rng.normal(0.0, 0.5, stays))
        shows = np.zeros(stays, bool)
        shows[[sighting.visit for sighting in stream.sightings]] = True
        # What is met for two seconds among hours of nothing is the hardest to find.
        each[shows & (rng.random() < 0.6)] = 1.0
        per_step = np.log(np.maximum(each, 1.0)).astype(np.float32)[stream.visits]
        log_weights += np.repeat(per_step, TOKENS_PER_STEP)
    return tokens, log_weights[tokens]


def survivors(rng: np.random.Generator, pool: ScenePool, stream: Stream) -> NDArray[np.bool_]:
    """Draw which video tokens survive an eviction: bool [T * 9].

    One token of every sighting always survives, or the question would have no answer.
    """
    kinds, colors = pool.labels[:, stream.scenes, stream.views].reshape(2, -1)
    visits = np.repeat(stream.visits, TOKENS_PER_STEP)
    kept = rng.random(kinds.shape) < rng.uniform(*_EVICTED_SURVIVORS)
    for sighting in stream.sightings:
        tokens = np.flatnonzero(
            (visits == sighting.visit)
            & (kinds == KINDS.index(sighting.kind))
            & (colors == list(COLORS).index(sighting.color))
        )
        kept[tokens[:1]] = True
    return kept
