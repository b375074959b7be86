"""Every policy keeps the promises of the interface: one table, the same assertions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
import torch

from infinipot_ros.compression import (
    POLICIES,
    CompressionPolicy,
    PolicyError,
    VideoTokens,
    make_policy,
)
from infinipot_ros.compression.topk import finite_or_last, top_slots

BOUNDED = [
    ("infinipot_v", {}),
    ("infinipot_v", {"tar_ratio": 0.9, "recent_ratio": 0.3, "key_space": "rotated"}),
    ("infinipot_v", {"tar_reference": "previous", "pooling": False}),
    ("tar", {}),
    ("tar", {"tar_reference": "previous"}),
    ("van", {}),
    ("van", {"pooling": False}),
    ("multi_tar", {}),
    ("multi_tar", {"reach": 0, "key_space": "rotated", "smoothing": 0.5}),
    ("leverage", {}),
    ("leverage", {"value_share": 1.0, "ridge": 1.0}),
    ("novelty", {}),
    ("novelty", {"gap": 3, "buckets": 4, "value_share": 0.0}),
    ("coreset", {}),
    ("blend", {}),
    ("blend", {"novel": 1.0, "cover": 0.5, "rare": 0.3, "value": 0.2, "sketch_dim": 7}),
    ("quota", {}),
    ("quota", {"change": 0.0, "novel": 0.5, "cover": 0.3, "buckets": 0}),
    ("uniform", {}),
    ("reservoir", {}),
    ("sliding_window", {}),
    ("recent", {"steps": 2}),
]
SHAPES = [(1, 1), (3, 4), (5, 2)]

every_policy = pytest.mark.parametrize(
    "name, params", BOUNDED, ids=[f"{n}-{i}" for i, (n, _) in enumerate(BOUNDED)]
)


def assert_slots(slots, store, keep):
    """Exactly `keep` distinct slots per layer and head, ascending, in range."""
    assert slots.dtype == torch.int64
    assert slots.shape == (store.layers, store.heads, keep)
    assert (slots[..., 1:] > slots[..., :-1]).all()
    assert ((slots >= 0) & (slots < store.n_tokens)).all()


def test_table_covers_every_policy():
    assert {name for name, _ in BOUNDED} | {"full"} == set(POLICIES)


@every_policy
@pytest.mark.parametrize("layers, heads", SHAPES)
def test_keeps_exactly_what_is_asked_at_every_compression(make_store, name, params, layers, heads):
    store = make_store(layers=layers, heads=heads)
    policy, twin = make_policy(name, params, 7), make_policy(name, params, 7)
    for rows, cols, count in [(4, 4, 8), (4, 4, 1), (3, 5, 4), (4, 4, 3)]:
        store.append(rows, cols, count)
        store.append(1, cols)  # a partial last step
        keep = store.n_tokens * 3 // 4
        slots = policy.select(store.view(), keep)
        assert_slots(slots, store, keep)
        assert torch.equal(slots, twin.select(store.view(), keep))
        store.retain(slots)


@every_policy
def test_keeps_none_one_or_all(make_store, name, params):
    store = make_store(layers=2, heads=3)
    store.append(4, 5, 6)
    policy = make_policy(name, params, 0)
    for keep in (0, 1, store.n_tokens - 1, store.n_tokens):
        assert_slots(policy.select(store.view(), keep), store, keep)


@every_policy
def test_empty_store(make_store, name, params):
    store = make_store(layers=2, heads=3)
    assert make_policy(name, params, 0).select(store.view(), 0).shape == (2, 3, 0)


@every_policy
@pytest.mark.parametrize("keep", [-1, 81])
def test_refuses_to_keep_what_is_not_there(make_store, name, params, keep):
    store = make_store(layers=1, heads=1)
    store.append(4, 4, 5)
    with pytest.raises(PolicyError, match=f"cannot keep {keep} of 80 stored tokens"):
        make_policy(name, params, 0).select(store.view(), keep)


@every_policy
def test_never_writes_to_the_store(make_store, name, params):
    store = make_store(layers=3, heads=2)
    store.append(4, 4, 6)
    names = ("values", "content", "rotated", "steps", "rows", "cols")
    before = {n: getattr(store, n).clone() for n in names}
    make_policy(name, params, 0).select(store.view(), 60)
    assert all(torch.equal(before[n], getattr(store, n)) for n in names)


@every_policy
def test_reset_makes_it_like_new(make_store, name, params):
    used, new = make_policy(name, params, 3), make_policy(name, params, 3)
    for seed in (1, 2):
        store = make_store(layers=4, heads=2, seed=seed)
        store.append(4, 4, 8)
        slots = used.select(store.view(), 96)
        used.reset()
    assert torch.equal(slots, new.select(store.view(), 96))


@every_policy
def test_works_on_strided_views_and_half_precision(make_store, name, params):
    store = make_store(layers=3, heads=2)
    store.append(4, 4, 8)
    for kind in ("values", "content", "rotated"):
        setattr(store, kind, getattr(store, kind).bfloat16().float())
    expected = make_policy(name, params, 0).select(store.view(), 96)
    for kind in ("values", "content", "rotated"):
        slab = torch.zeros(3, 2, 2, 200, store.dim, dtype=torch.bfloat16)
        slab[:, 1, :, 40:168] = getattr(store, kind)
        setattr(store, kind, slab[:, 1, :, 40:168])
    assert torch.equal(make_policy(name, params, 0).select(store.view(), 96), expected)


@every_policy
def test_what_is_not_finite_goes_first(make_store, name, params):
    """Broken keys and values break neither the promise nor the choice among the sound."""
    store = make_store(layers=3, heads=2)
    store.append(4, 4, 8)
    for kind, bad in (("content", torch.nan), ("rotated", torch.inf), ("values", -torch.inf)):
        getattr(store, kind)[:, :, 3:60:7] = bad
    store.content[:, :, -5] = torch.nan  # a recent key
    store.values[:, :, -3] = torch.nan
    slots = make_policy(name, params, 0).select(store.view(), 96)
    assert_slots(slots, store, 96)
    if name not in ("uniform", "reservoir", "sliding_window", "recent"):  # these look at nothing
        assert not set(range(3, 60, 7)) & set(slots.flatten().tolist())


@every_policy
def test_all_broken_still_keeps_exactly_what_is_asked(make_store, name, params):
    store = make_store(layers=2, heads=2)
    store.append(4, 4, 8)
    store.content[:], store.rotated[:], store.values[:] = torch.nan, torch.nan, torch.nan
    assert_slots(make_policy(name, params, 0).select(store.view(), 96), store, 96)


@every_policy
def test_constant_picture_is_decided_for_the_lower_slot(make_store, name, params):
    """All scores tie: the oldest stay beside the recent steps, wherever scores decide at all."""
    store = make_store(layers=2, heads=2)
    store.append(4, 4, 8)
    store.content[:], store.rotated[:], store.values[:] = 1.0, 1.0, 1.0
    slots = make_policy(name, params, 0).select(store.view(), 96)
    assert_slots(slots, store, 96)
    if name in ("infinipot_v", "tar", "van"):
        recent = 16 * max(1, round(params.get("recent_ratio", 0.125) * 8))
        expected = [*range(96 - recent), *range(128 - recent, 128)]
        assert (slots == torch.tensor(expected)).all()


def test_full_is_never_due_and_evicts_nothing(make_store):
    store = make_store(layers=2, heads=2)
    store.append(3, 3, 4)
    full = make_policy("full", {}, 0)
    sizes = {"max_tokens": 10, "target_tokens": 8, "tokens_per_step": 9}
    assert full.target(stored=36, incoming=900, **sizes) is None
    assert_slots(full.select(store.view(), 36), store, 36)
    with pytest.raises(PolicyError, match="cannot keep 30 of 36 tokens: choose a bounded policy"):
        full.select(store.view(), 30)


@pytest.mark.parametrize("name", [n for n in POLICIES if n not in ("full", "recent")])
@pytest.mark.parametrize(
    "stored, incoming, expected",
    [(0, 100, None), (60, 40, None), (61, 40, 60), (100, 40, 60), (100, 70, 30), (90, 100, 0)],
)
def test_compresses_to_the_target_when_a_block_would_pass_the_cap(name, stored, incoming, expected):
    sizes = {"max_tokens": 100, "target_tokens": 60, "tokens_per_step": 10}
    assert make_policy(name, {}, 0).target(stored=stored, incoming=incoming, **sizes) == expected


@pytest.mark.parametrize(
    "stored, incoming, expected",
    [(0, 100, None), (30, 10, None), (40, 10, 30), (35, 10, 30), (40, 40, 0), (40, 60, 0)],
)
def test_recent_keeps_its_steps_after_the_append(stored, incoming, expected):
    sizes = {"max_tokens": 100, "target_tokens": 60, "tokens_per_step": 10}
    policy = make_policy("recent", {"steps": 4}, 0)
    assert policy.target(stored=stored, incoming=incoming, **sizes) == expected


def test_recent_stores_exactly_its_steps(make_store):
    store = make_store(layers=2, heads=2)
    policy = make_policy("recent", {"steps": 3}, 0)
    sizes = {"max_tokens": 100, "target_tokens": 60, "tokens_per_step": 9}
    for count in (1, 2, 2, 3, 1, 1):
        keep = policy.target(stored=store.n_tokens, incoming=9 * count, **sizes)
        if keep is not None:
            store.retain(policy.select(store.view(), keep))
        store.append(3, 3, count)
        wanted = torch.arange(max(0, store.n_steps - 3), store.n_steps).repeat_interleave(9)
        assert (store.steps == wanted).all()


def test_uniform_is_an_even_stride(make_store):
    store = make_store(layers=2, heads=1)
    store.append(1, 8)
    slots = make_policy("uniform", {}, 0).select(store.view(), 6)
    assert slots.tolist() == [[[0, 1, 2, 4, 5, 6]]] * 2


def test_recent_steps_survive_whole_in_every_head(make_store):
    for name in ("infinipot_v", "tar", "van"):
        store = make_store(layers=3, heads=4)
        policy = make_policy(name, {"recent_ratio": 0.25}, 0)
        for _ in range(4):
            store.append(4, 4, 8 - store.n_tokens // 16)
            store.retain(policy.select(store.view(128), 96))
            assert (store.steps[..., -32:-16] == store.n_steps - 2).all()
            assert (store.steps[..., -16:] == store.n_steps - 1).all()


def test_newest_stay_when_a_smaller_grid_makes_the_recent_steps_too_many(make_store):
    store = make_store(layers=2, heads=2)
    store.append(6, 6, 3)
    store.append(2, 2)
    slots = make_policy("infinipot_v", {"recent_ratio": 0.5}, 0).select(store.view(), 30)
    assert (slots == torch.arange(store.n_tokens - 30, store.n_tokens)).all()


def test_a_policy_with_state_per_token_fits_the_interface(make_store):
    """State gathered with the returned slots stays beside its token, as the base class promises."""

    class FirstSeen(CompressionPolicy):
        name = "first_seen"

        def __init__(self):
            self.seen = None

        def choose(self, tokens, keep):
            new = tokens.steps if self.seen is None else tokens.steps[..., self.seen.shape[-1] :]
            seen = new.clone() if self.seen is None else torch.cat([self.seen, new], -1)
            assert torch.equal(seen, tokens.steps)
            noise = torch.rand(seen.shape, generator=torch.Generator().manual_seed(seen.numel()))
            self.seen = seen
            return noise.topk(keep).indices.sort().values

        def settle(self, slots):
            self.seen = self.seen.gather(-1, slots)

    store, policy = make_store(layers=2, heads=2), FirstSeen()
    for _ in range(4):
        store.append(3, 3, 4)
        store.retain(policy.select(store.view(), store.n_tokens * 2 // 3))


def test_the_policy_in_the_documentation_keeps_the_promises(make_store):
    page = (Path(__file__).parents[2] / "docs" / "method.md").read_text(encoding="utf-8")
    code = page.split("```python\n")[1].split("```")[0]
    names = {
        "dataclass": dataclass,
        "ClassVar": ClassVar,
        "torch": torch,
        "Tensor": torch.Tensor,
        "CompressionPolicy": CompressionPolicy,
        "VideoTokens": VideoTokens,
        "top_slots": top_slots,
        "finite_or_last": finite_or_last,
    }
    exec(compile(code, "docs/method.md", "exec"), names)
    store = make_store(layers=3, heads=2)
    store.append(4, 4, 8)
    slots = names["KeyNorm"]().select(store.view(), 100)
    assert_slots(slots, store, 100)
    shortest = store.content.norm(dim=-1).topk(100, largest=False).indices.sort().values
    assert torch.equal(slots, shortest)
