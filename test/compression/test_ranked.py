"""Policies that score what they have seen: what they keep, and that their memory follows it."""

from __future__ import annotations

import pytest
import torch

from infinipot_ros.compression import PolicyError, make_policy
from infinipot_ros.compression.blend import SIGNALS
from infinipot_ros.compression.similarity import ranks
from infinipot_ros.compression.sketch import Sketch

RANKED = ("multi_tar", "leverage", "novelty", "coreset", "blend", "quota")

JOINT = RANKED[1:]

every_joint = pytest.mark.parametrize("name", JOINT)
every_ranked = pytest.mark.parametrize("name", RANKED)


def stream(store, policy, blocks=6, keep=60):
    """Stream blocks of two steps of 12 tokens through a store of at most 84."""
    for _ in range(blocks):
        store.append(3, 4, 2)
        if store.n_tokens > keep:
            slots = policy.select(store.view(84), keep)
            store.retain(slots)


@every_ranked
def test_recent_steps_survive_whole(make_store, name):
    store = make_store(layers=2, heads=3)
    policy = make_policy(name, {"recent_ratio": 0.3}, 0)  # round(0.3 * 84 / 12) = 2 steps
    stream(store, policy)
    assert (store.steps[..., -24:-12] == store.n_steps - 2).all()
    assert (store.steps[..., -12:] == store.n_steps - 1).all()


@every_joint
def test_all_heads_hold_the_same(make_store, name):
    store = make_store(layers=3, heads=2)
    stream(store, make_policy(name, {}, 0))
    for kind in (store.steps, store.rows, store.cols):
        assert (kind == kind[:1, :1]).all()


@every_joint
def test_a_policy_that_is_given_another_stream_says_so(make_store, name):
    store, policy = make_store(layers=2, heads=2), make_policy(name, {}, 0)
    stream(store, policy)
    noise = torch.rand(store.steps.shape, generator=store.rng)
    store.retain(noise.topk(50).indices.sort().values)
    with pytest.raises(PolicyError, match="keeps the same tokens in all layers and heads"):
        policy.select(store.view(84), 40)


@pytest.mark.parametrize("smoothing", [0.0, 1.0])
def test_heads_of_multi_tar_agree_when_smoothed_all_the_way(make_store, smoothing):
    store = make_store(layers=3, heads=2)
    stream(store, make_policy("multi_tar", {"smoothing": smoothing}, 0))
    agree = (store.steps == store.steps[:1, :1]) & (store.cols == store.cols[:1, :1])
    assert bool(agree.all()) is (smoothing == 1.0)


@every_ranked
def test_constant_picture_is_decided_for_the_lower_slot(make_store, name):
    """Equal tokens tie at the first compression, whatever the order of summation."""
    store = make_store(layers=2, heads=2, dim=32)
    store.append(4, 4, 8)
    for kind in ("content", "rotated", "values"):
        picture = getattr(store, kind)[:, :, :1].clone()
        getattr(store, kind)[:] = picture
    params = {"buckets": 0} if name == "quota" else {}
    slots = make_policy(name, params, 0).select(store.view(), 96)
    expected = torch.tensor([*range(80), *range(112, 128)])
    assert (slots == expected).all()


@every_ranked
def test_nothing_is_kept_and_the_stream_goes_on(make_store, name):
    store, policy = make_store(layers=2, heads=2), make_policy(name, {}, 0)
    stream(store, policy, blocks=4)
    store.retain(policy.select(store.view(84), 0))
    stream(store, policy, blocks=4)
    assert store.n_tokens == 60


@every_ranked
def test_repeats_to_the_bit(make_store, name):
    runs = []
    for _ in range(2):
        store = make_store(layers=2, heads=2, dim=32)
        stream(store, make_policy(name, {}, 0))
        runs.append(store.steps * 12 + store.rows * 4 + store.cols)
    assert torch.equal(*runs)


def scene(store, place):
    """Append a step of a place: one direction per patch and place, and a little noise."""
    store.append(2, 2)
    generator = torch.Generator().manual_seed(place)
    for kind in ("content", "values"):
        shape = (store.layers, store.heads, 4, store.dim)
        view = torch.randn(shape, generator=generator)
        noise = torch.randn(shape, generator=store.rng)
        getattr(store, kind)[:, :, -4:] = view + 0.05 * noise


@pytest.mark.parametrize(
    "name, params",
    [
        ("multi_tar", {}),
        ("leverage", {}),
        ("novelty", {}),
        ("coreset", {}),
        ("blend", {}),
        ("quota", {}),
    ],
)
def test_an_event_outlives_a_long_patrol(make_store, name, params):
    """Three rooms in turn, one short event, ninety more visits: the event is still there."""
    store, policy = make_store(layers=2, heads=2, dim=16), make_policy(name, params, 0)
    for visit in range(100):
        scene(store, place=99 if visit == 10 else visit % 3)
        if store.n_tokens > 36:
            store.retain(policy.select(store.view(40), 36))
    assert ((store.steps == 10).sum(-1) >= 2).all()


def test_coreset_keeps_the_first_and_the_last_sighting(make_store):
    store, policy = make_store(layers=1, heads=1, dim=16), make_policy("coreset", {}, 0)
    for step in range(40):
        scene(store, place=7 if step in (6, 12, 18, 24) else step % 2)
        if store.n_tokens > 24:
            store.retain(policy.select(store.view(28), 24))
    steps = set(store.steps.flatten().tolist())
    assert {6, 24} <= steps
    assert not {12, 18} & steps


def test_a_lasting_score_remembers_a_room_that_is_out_of_view(make_store):
    """Room 1 was seen again: its older visit goes, though the robot is in room 0 by now."""
    kept = {}
    for lasting in (False, True):
        store = make_store(layers=1, heads=1, dim=16)
        policy = make_policy("multi_tar", {"lasting": lasting, "reach": 0}, 0)
        for place in (1, 5, 0, 1, 0, 6, 0):
            scene(store, place)
            policy.select(store.view(8), store.n_tokens)
        slots = policy.select(store.view(8), 16)
        kept[lasting] = store.steps.gather(2, slots).flatten().tolist()
    assert kept[True] == [step for step in (1, 3, 5, 6) for _ in range(4)]
    assert kept[False] != kept[True]


@pytest.mark.parametrize("buckets", [0, 4])
def test_age_buckets_leave_room_for_what_is_young(make_store, buckets):
    """A stream that gets duller: without buckets the early steps take everything."""
    store = make_store(layers=1, heads=2, dim=16)
    policy = make_policy("novelty", {"buckets": buckets, "bucket_share": 0.8}, 0)
    for step in range(60):
        store.append(2, 2)
        if step > 12:
            for kind in (store.content, store.values):
                kind[:, :, -4:] = 1.0 + 0.05 * kind[:, :, -4:]
        if store.n_tokens > 36:
            store.retain(policy.select(store.view(40), 36))
    middle = ((store.steps > 13) & (store.steps < 58)).sum()
    assert (middle >= 8) if buckets else (middle == 0)


@pytest.mark.parametrize(
    "signal, name", [("rare", "leverage"), ("cover", "coreset"), ("novel", "novelty")]
)
@pytest.mark.parametrize("mixture", ["blend", "quota"])
def test_a_mixture_of_one_signal_is_that_signal(make_store, mixture, signal, name):
    weights = {**dict.fromkeys(SIGNALS, 0.0), signal: 1.0}
    if mixture == "quota":
        weights["buckets"] = 0
    store, policy = make_store(layers=2, heads=2), make_policy(mixture, weights, 0)
    twin = make_policy(name, {}, 0)
    for _ in range(6):
        store.append(3, 4, 2)
        if store.n_tokens > 60:
            slots = policy.select(store.view(84), 60)
            assert torch.equal(slots, twin.select(store.view(84), 60))
            store.retain(slots)


def signal_scores(policy, view):
    """Return the scores of a policy's signals at a first compression, by name."""
    described = policy._describe(view, Sketch(0.5, 64, 4))
    signals = policy._make_signals()
    names = policy._weights
    return {n: s.scores(described) for n, s in zip(names, signals, strict=True)}


def test_blend_adds_weighted_ranks(make_store):
    store = make_store(layers=2, heads=2)
    store.append(3, 4, 7)
    view, policy = store.view(84), make_policy("blend", {"value": 0.25}, 0)
    found = signal_scores(policy, view)
    total = ranks(found["cover"]) + ranks(found["change"]) + 0.25 * ranks(found["value"])
    total[72:] = 1000  # the recent step
    best = sorted(range(84), key=lambda x: (-total[x].item(), x))[:60]
    assert (policy.select(view, 60) == torch.tensor(sorted(best))).all()


def test_quota_gives_each_signal_its_share(make_store):
    store = make_store(layers=2, heads=2)
    store.append(3, 4, 7)
    params = {**dict.fromkeys(SIGNALS, 0.0), "change": 0.5, "value": 0.5}
    view, policy = store.view(84), make_policy("quota", params, 0)
    found = signal_scores(policy, view)
    kept = set(range(72, 84))
    for name in ("change", "value"):
        score = found[name].tolist()
        order = sorted(set(range(84)) - kept, key=lambda x, s=score: (-s[x], x))
        kept |= set(order[:20])
    assert (policy.select(view, 52) == torch.tensor(sorted(kept))).all()


@pytest.mark.parametrize(
    "name, params, message",
    [
        ("novelty", {"gap": 0}, "gap=0 is refused: choose a whole number, 1 to 1,000,000"),
        ("novelty", {"buckets": -1}, "buckets=-1 is refused"),
        ("novelty", {"bucket_share": 1.1}, r"bucket_share=1.1 is refused: .* in \[0, 1\]"),
        ("multi_tar", {"smoothing": 2}, "smoothing=2 is refused"),
        (
            "coreset",
            {"sketch_dim": 0},
            "sketch_dim=0 is refused: choose a whole number, 1 to 4,096",
        ),
        ("coreset", {"value_share": -0.1}, "value_share=-0.1 is refused"),
        ("coreset", {"recent_ratio": 0.0}, "recent_ratio=0.0 is refused"),
        ("leverage", {"ridge": 0}, "ridge=0 is refused: choose a finite number above 0"),
        ("leverage", {"ridge": float("inf")}, "ridge=inf is refused"),
        ("multi_tar", {"reach": 1.5}, "reach=1.5 is refused"),
        ("multi_tar", {"lasting": 1}, "lasting=1 is refused: choose true or false"),
        ("multi_tar", {"key_space": "raw"}, "key_space='raw' is refused"),
        ("blend", {"novel": 3}, r"novel=3 is refused: choose a number in \[0, 1\]"),
        ("blend", {"change": 0, "cover": 0}, "blend has no signal: choose at least one above 0 of"),
        ("quota", {"change": 0.9}, "the shares of quota add up to 1.6: choose cover, change, "),
        ("quota", {"buckets": True}, "buckets=True is refused"),
    ],
)
def test_refused_parameters(name, params, message):
    with pytest.raises(PolicyError, match=message):
        make_policy(name, params, 0)


@every_ranked
def test_recent_steps_that_exceed_the_target_are_refused(name):
    policy = make_policy(name, {"recent_ratio": 0.9}, 0)
    with pytest.raises(PolicyError, match=r"recent_ratio=0.9 keeps 14 recent steps"):
        policy.check(max_tokens=1024, target_tokens=768, tokens_per_step=64)
