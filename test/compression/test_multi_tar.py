"""Multi-reference TaR equals a plain, slow loop; smoothing finds partners by provenance."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from infinipot_ros.compression.layout import Layout
from infinipot_ros.compression.multi_tar import MultiTar, multi_tar_scores
from infinipot_ros.compression.smoothing import smooth_over_heads
from infinipot_ros.compression.tar import tar_scores

RECENT_STEPS = 2
CLOSE = 4e-4  # float32 against float64, and the grid that scores are rounded to


@st.composite
def streams(draw):
    """Blocks of steps with a part to keep after each; the grid changes now and then."""
    grids = st.tuples(st.integers(1, 3), st.integers(1, 4))
    grid = draw(grids)
    blocks = []
    for _ in range(draw(st.integers(2, 5))):
        if draw(st.booleans()) and blocks:
            grid = draw(grids)
        part = draw(st.floats(0.3, 0.9) | st.sampled_from([0.0, 1.0]))
        blocks.append((grid, draw(st.integers(1, 3)), part))
    return blocks


@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    blocks=streams(),
    seed=st.integers(0, 1000),
    reach=st.integers(0, 2),
    lasting=st.booleans(),
)
def test_multi_tar_equals_naive_loop(make_store, blocks, seed, reach, lasting):
    store = make_store(layers=2, heads=2, dim=4, seed=seed)
    policy, lowest = MultiTar(recent_ratio=0.5, reach=reach, lasting=lasting), {}
    for (rows, cols), count, part in blocks:
        store.append(rows, cols, count)
        view = store.view(2 * RECENT_STEPS * rows * cols)  # 0.5 of it is the recent steps
        scores = policy._update(view, Layout.of(view, RECENT_STEPS))
        newest = view.steps.max().item()
        for n in range(2):
            for h in range(2):
                tokens = head(view, n, h)
                recent = [t for t in tokens if t[0][0] > newest - RECENT_STEPS]
                for slot, (place, key) in enumerate(tokens):
                    score = 1.0
                    if place[0] <= newest - RECENT_STEPS:
                        score = naive_change(place, key, recent, reach)
                    if lasting:
                        score = lowest[n, h, place] = min(score, lowest.get((n, h, place), 1.0))
                    assert scores[n, h, slot].item() == pytest.approx(score, abs=CLOSE)
        store.retain(policy.select(view, round(part * store.n_tokens)))


def head(view, layer, number):
    columns = (view.steps, view.rows, view.cols, view.keys(slice(None), "content"))
    steps, rows, cols, keys = (column[layer, number].tolist() for column in columns)
    return list(zip(zip(steps, rows, cols, strict=True), keys, strict=True))


def naive_change(place, key, recent, reach):
    by_patch = {}
    for (_, row, col), other in recent:
        if abs(row - place[1]) <= reach and abs(col - place[2]) <= reach:
            product = sum(x * y for x, y in zip(key, other, strict=True))
            cosine = product / (math.hypot(*key) * math.hypot(*other))
            by_patch.setdefault((row, col), []).append(cosine)
    return -max((sum(c) / len(c) for c in by_patch.values()), default=-1.0)


def test_multi_tar_without_reach_is_tar(make_store):
    store = make_store(layers=2, heads=2)
    store.append(3, 4, 6)
    noise = torch.rand(store.steps.shape, generator=store.rng)
    store.retain(noise.topk(50).indices.sort().values)
    view = store.view()
    layout = Layout.of(view, RECENT_STEPS)
    expected = tar_scores(view, layout, key_space="content", reference="recent")
    scores = multi_tar_scores(view, layout, reach=0, key_space="content")
    assert torch.allclose(scores[~layout.recent], expected[~layout.recent], atol=1e-5)


@pytest.mark.parametrize("weight", [0.0, 0.4, 1.0])
def test_smoothing_averages_over_those_who_store_the_token(make_store, weight):
    store = make_store(layers=2, heads=3)
    store.append(2, 3, 5)
    noise = torch.rand(store.steps.shape, generator=store.rng)
    store.retain(noise.topk(14).indices.sort().values)
    scores = torch.rand(store.steps.shape, generator=store.rng)
    scores[0, 0, 3] = -torch.inf
    layout = Layout.of(store.view(), 1)
    smoothed = smooth_over_heads(scores, store.steps, layout, weight)
    own = (scores.unsqueeze(-1) > scores.unsqueeze(-2)).sum(-1)
    by_place = {}
    places = (store.steps * 6 + store.rows * 3 + store.cols).flatten().tolist()
    for place, rank in zip(places, own.flatten().tolist(), strict=True):
        by_place.setdefault(place, []).append(rank)
    mean = torch.tensor([sum(by_place[p]) / len(by_place[p]) for p in places]).view_as(own)
    expected = ((1 - weight) * own + weight * mean).double()
    expected[0, 0, 3] = -torch.inf
    assert torch.allclose(smoothed, expected)
