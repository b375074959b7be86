"""Temporaries stay bounded, and the pieces in which the work is done do not change the result."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from infinipot_ros.compression import make_policy, tar, van


def storages(tree):
    return [t.untyped_storage() for t in tree_leaves(tree) if isinstance(t, torch.Tensor)]


class LargestResult(TorchDispatchMode):
    """Record the bytes of the largest new tensor that any operation returns."""

    def __init__(self):
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        known = {storage.data_ptr() for storage in storages((args, kwargs))}
        result = func(*args, **(kwargs or {}))
        new = [s.nbytes() for s in storages(result) if s.data_ptr() not in known]
        self.bytes = max([self.bytes, *new])
        return result


def scattered(make_store, layers=4, heads=2, tokens=3072, grid=14, dim=16):
    """A store whose tokens all come from different steps, as after a very long stream."""
    store = make_store(layers=layers, heads=heads, dim=dim)
    store.append(grid, grid)
    store.append(1, tokens - grid * grid)
    shape = (layers, heads, tokens)
    store.steps = torch.arange(tokens).expand(shape)
    store.rows = torch.randint(0, grid, shape, generator=store.rng)
    store.cols = torch.randint(0, grid, shape, generator=store.rng)
    store.tokens_per_step = grid * grid
    return store


def test_survivors_of_thousands_of_steps_need_no_more_memory(make_store):
    store = scattered(make_store)
    view, policy = store.view(), make_policy("infinipot_v", {}, 0)
    with LargestResult() as largest:
        policy.select(view, 2304)
    provenance = view.steps.numel() * 8
    assert largest.bytes <= max(2 * 8 * van._PLANE_ELEMENTS, 2 * provenance)
    # All planes at once would take 4 x 2 x 3072 x 196 x 2 x 8 bytes = 77 MB.
    assert largest.bytes < 10e6


def test_scoring_builds_no_product_of_recent_and_older_tokens(make_store):
    store = make_store(layers=6, heads=2, dim=64)
    store.append(8, 8, 64)
    view, policy = store.view(), make_policy("tar", {}, 0)
    with LargestResult() as largest:
        policy.select(view, 3072)
    assert largest.bytes <= 2 * 4096 * 64 * 4  # the keys of a layer; the product has 4 times that


@pytest.mark.parametrize("reference", ["recent", "previous"])
def test_blocks_and_groups_do_not_change_the_result(make_store, monkeypatch, reference):
    store = make_store(layers=5, heads=3)
    store.append(4, 5, 9)
    expected = make_policy("infinipot_v", {"tar_reference": reference}, 0).select(store.view(), 120)
    for block, plane in ((1, 1), (1500, 47), (5000, 20 * 9 * 4)):
        monkeypatch.setattr(tar, "_BLOCK_CPU", block)
        monkeypatch.setattr(van, "_PLANE_ELEMENTS", plane)
        policy = make_policy("infinipot_v", {"tar_reference": reference}, 0)
        assert torch.equal(policy.select(store.view(), 120), expected)


@pytest.mark.parametrize("threads", [1, 2])
def test_repeats_to_the_bit(make_store, threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        store = make_store(layers=3, heads=2, dim=32)
        store.append(8, 8, 24)
        runs = [make_policy("infinipot_v", {}, 0).select(store.view(), 900) for _ in range(3)]
        assert all(torch.equal(runs[0], run) for run in runs)
    finally:
        torch.set_num_threads(before)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", ["infinipot_v", "tar", "van", "reservoir", "uniform"])
def test_selects_the_same_on_an_accelerator(make_store, name):
    store = make_store(layers=3, heads=2, dim=32)
    store.append(8, 8, 24)
    expected = make_policy(name, {}, 0).select(store.view(), 900)
    for kind in ("content", "rotated", "values", "steps", "rows", "cols"):
        setattr(store, kind, getattr(store, kind).cuda())
    slots = make_policy(name, {}, 0).select(store.view(), 900)
    assert slots.is_cuda
    assert torch.equal(slots.cpu(), expected)
    assert torch.equal(slots, make_policy(name, {}, 0).select(store.view(), 900))
