"""Reservoir: every token ever seen is equally likely to be still there."""

from __future__ import annotations

import torch

from infinipot_ros.compression import make_policy
from infinipot_ros.compression.hashing import token_priority

STEPS, GRID, KEEP = 120, (3, 4), 96


def survivors(store, seed):
    """Stream 120 steps of 12 tokens through a store of at most 144."""
    policy = make_policy("reservoir", {}, seed)
    for _ in range(STEPS):
        if store.n_tokens + 12 > 144:
            store.retain(policy.select(store.view(), KEEP))
        store.append(*GRID)
    store.retain(policy.select(store.view(), KEEP))
    return store


def chi_square(counts):
    """Return the statistic against equal counts, in standard deviations of its distribution."""
    expected = counts.sum() / counts.numel()
    statistic = ((counts - expected) ** 2 / expected).sum().item()
    freedom = counts.numel() - 1
    return (statistic - freedom) / (2 * freedom) ** 0.5


def test_every_token_is_equally_likely_to_stay(make_store):
    # 128 heads are 128 independent samples; with 16 seeds, 196,608 survivors of 1,440 tokens.
    counts = torch.zeros(STEPS * 12, dtype=torch.float64)
    for seed in range(16):
        store = survivors(make_store(layers=8, heads=16, dim=1), seed)
        token = store.steps * 12 + store.rows * 4 + store.cols
        counts += torch.bincount(token.flatten(), minlength=STEPS * 12)
    # Sampling without replacement makes the statistic a little smaller than chi-square.
    assert abs(chi_square(counts)) < 4
    assert abs(chi_square(counts.view(STEPS, 12).sum(0))) < 4
    assert abs(chi_square(counts.view(12, -1).sum(1))) < 4


def test_survivors_are_the_highest_priorities_of_the_whole_stream(make_store):
    store = survivors(make_store(layers=2, heads=3, dim=1), 5)
    place = torch.arange(12).repeat(STEPS).expand(2, 3, -1)
    steps = torch.arange(STEPS).repeat_interleave(12).expand(2, 3, -1)
    priority = token_priority(5, steps, place // 4, place % 4)
    expected = priority.topk(KEEP).indices.sort().values
    assert torch.equal(store.steps * 12 + store.rows * 4 + store.cols, expected)


def test_layers_heads_and_seeds_draw_different_samples(make_store):
    stores = [survivors(make_store(layers=2, heads=2, dim=1), seed) for seed in (0, 1, 1 << 32)]
    samples = [
        tuple(h) for s in stores for h in (s.steps * 12 + s.rows * 4 + s.cols).view(4, -1).tolist()
    ]
    assert len(set(samples)) == 12


def test_priority_is_uniform_in_every_bit_and_within_62_bits():
    steps = torch.arange(1 << 30, (1 << 30) + 4096).expand(2, 2, -1)
    zero = torch.zeros_like(steps)
    priority = token_priority(0, steps, zero, zero)
    assert priority.min() >= 0
    assert priority.max() < 1 << 62
    bits = (priority.flatten()[:, None] >> torch.arange(62)) & 1
    assert (bits.double().mean(0) - 0.5).abs().max() < 5 * 0.5 / priority.numel() ** 0.5
    halves = torch.stack([priority >> 31, priority & 0x7FFFFFFF]).flatten(1).double()
    assert abs(torch.corrcoef(halves)[0, 1]) < 5 / priority.numel() ** 0.5


def test_seed_may_be_given_as_a_parameter():
    assert make_policy("reservoir", {"seed": 4}, 9) == make_policy("reservoir", {}, 4)
