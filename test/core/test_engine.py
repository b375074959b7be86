"""StreamEngine: the cap, what the memory holds, what a failure leaves."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from infinipot_ros.compression import POLICIES, make_policy
from infinipot_ros.core import EngineConfig, StreamEngine
from infinipot_ros.core.cache import SlabCache

QUESTION = "what color is the mug ?"

CAPPED = sorted(set(POLICIES) - {"full"})


@pytest.mark.parametrize("policy", CAPPED)
def test_the_cap_holds_at_every_moment(adapter, stream, policy, monkeypatch):
    """Also inside a forward pass: every write of every layer is watched."""
    engine = StreamEngine(adapter, EngineConfig(policy=policy, max_tokens=96, block_steps=4))
    cache, seen = engine.cache, []
    write = SlabCache.write

    def watched(self, layer, keys, values):
        out = write(self, layer, keys, values)
        seen.append((out[0].shape[1], keys.shape[1]))
        return out

    monkeypatch.setattr(SlabCache, "write", watched)
    before = cache.bytes_allocated
    for block in range(40):
        stream(engine, 8 if block % 3 else 5, seed=block)  # partial blocks and half steps too
        stats = engine.stats()
        assert stats.tokens_retained <= 96
        assert stats.bytes_used <= stats.bytes_cap == before
    assert cache.bytes_allocated == before
    assert engine.stats().compressions > 5
    assert max(slots - cache.prefix_tokens for slots, _ in seen) <= 96
    seen.clear()
    engine.ask(QUESTION)
    assert max(slots for slots, _ in seen) <= cache.capacity


def test_full_keeps_everything(adapter, stream):
    engine = StreamEngine(adapter, EngineConfig(policy="full", max_tokens=96))
    stream(engine, 400)
    stats = engine.stats()
    assert stats.tokens_retained == 200 * 6
    assert stats.tokens_cap is None
    assert stats.bytes_cap is None
    assert stats.compressions == 0
    assert torch.equal(engine.cache.steps[0, 0], torch.arange(200).repeat_interleave(6).int())


def test_growing_keeps_what_was_there(adapter, stream):
    grown = StreamEngine(adapter, EngineConfig(policy="full"))
    for start in range(0, 160, 8):  # passes the first 256 slots of the growing cache
        stream(grown, 8, start=start, seed=start)
    kept = StreamEngine(adapter, EngineConfig(max_tokens=1000))
    for start in range(0, 160, 8):
        stream(kept, 8, start=start, seed=start)
    assert torch.equal(grown.cache.video_keys, kept.cache.video_keys)
    assert grown.ask(QUESTION).text == kept.ask(QUESTION).text


def test_provenance_is_true_after_many_compressions(adapter, stream):
    engine = StreamEngine(adapter, EngineConfig(max_tokens=96))
    for block in range(30):
        stream(engine, 8, start=8 * block, seed=block)
    cache = engine.cache
    steps = cache.steps.long()
    assert (steps[..., 1:] >= steps[..., :-1]).all()
    # A step's stamp is that of its second frame: frames 2t and 2t + 1 make step t.
    assert torch.equal(cache.stamps, 1_000_000_000 + 2 * steps + 1)
    assert cache.rows.max() == 1
    assert cache.cols.max() == 2
    identity = (steps * 2 + cache.rows) * 3 + cache.cols
    assert (identity.diff(dim=-1) > 0).all()  # distinct, in stream order
    assert len({tuple(head.tolist()) for head in identity.flatten(0, 1)}) > 1  # heads differ


def test_a_grid_that_changes_in_mid_stream(tiny_model):
    engine = StreamEngine.from_pretrained(
        str(tiny_model(frame_size=(56, 84))),
        EngineConfig(max_tokens=200, max_pixels=8 * 784, block_steps=2),
        device="cpu",
    )
    rng = np.random.default_rng(0)
    for block in range(40):
        high, wide = ((60, 100), (100, 60), (80, 80))[block % 3]
        images = rng.integers(0, 256, (4, high, wide, 3), dtype=np.uint8)
        engine.observe(images, [4 * block + i for i in range(4)])
        assert engine.stats().tokens_retained <= 200
    assert engine.stats().compressions > 3
    engine.ask(QUESTION)


def test_reset_starts_anew(adapter, stream):
    engine = StreamEngine(adapter, EngineConfig(max_tokens=96))
    stream(engine, 60, seed=1)
    engine.reset()
    assert engine.stats().tokens_retained == 0
    assert engine.stats().oldest_stamp_ns is None
    fresh = StreamEngine(adapter, EngineConfig(max_tokens=96))
    for one in (engine, fresh):
        stream(one, 60, seed=2)
    assert torch.equal(engine.cache.video_keys, fresh.cache.video_keys)
    assert engine.ask(QUESTION).text == fresh.ask(QUESTION).text


@pytest.mark.parametrize("before", [24, 32], ids=["room left", "compression due"])
def test_a_failed_block_leaves_no_half_of_itself(adapter, stream, monkeypatch, before):
    """What a failure leaves is the memory as it was, but for the compression that made room."""
    engine = StreamEngine(adapter, EngineConfig(max_tokens=96))
    twin = StreamEngine(adapter, EngineConfig(max_tokens=96))
    stream(engine, before)
    stream(twin, before)
    layer = adapter._decoder.layers[1]
    forward = layer.forward

    def broken(*args, **kwargs):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(layer, "forward", broken)
    for attempt in (lambda: stream(engine, 8, start=before), lambda: engine.ask(QUESTION)):
        with pytest.raises(RuntimeError, match="out of memory"):
            attempt()
    monkeypatch.setattr(layer, "forward", forward)
    assert engine.stats().blocks == twin.stats().blocks
    assert engine.stats().compressions == (before == 32)
    # The block that follows would have asked for the same compression: nothing else differs.
    stream(engine, 8, start=before)
    stream(twin, 8, start=before)
    assert torch.equal(engine.cache.video_keys, twin.cache.video_keys)
    assert engine.ask(QUESTION).text == twin.ask(QUESTION).text


@pytest.mark.parametrize("failing", ["retain", "select"])
@pytest.mark.parametrize("policy", sorted(set(CAPPED) - {"recent"}))  # keeps fewer, knows nothing
def test_a_compression_that_fails_leaves_no_wrong_memory(
    adapter, stream, policy, failing, monkeypatch
):
    """What a policy remembers of tokens must fit the tokens that are stored."""
    engine = StreamEngine(adapter, EngineConfig(policy=policy, max_tokens=96))
    stream(engine, 40)
    owner = engine.cache if failing == "retain" else engine._policy
    genuine = getattr(owner, failing)

    def broken(*args):
        if failing == "select":
            genuine(*args)
        raise RuntimeError("out of memory")

    monkeypatch.setattr(owner, failing, broken)
    before = engine.cache.video_keys.clone()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="out of memory"):
            stream(engine, 8, start=40)
    monkeypatch.setattr(owner, failing, genuine)
    assert torch.equal(engine.cache.video_keys, before)
    fresh = make_policy(policy, {}, engine.config.seed)
    expected = fresh.select(engine._view(6), 72)
    kept = engine.cache.steps.long().gather(-1, expected)
    stream(engine, 8, start=40)
    assert torch.equal(engine.cache.steps[..., :72].long(), kept)
    stream(engine, 40, start=48)


def test_a_cache_that_cannot_grow_stays_whole(adapter, stream, monkeypatch):
    engine = StreamEngine(adapter, EngineConfig(policy="full"))
    stream(engine, 80)  # 240 of the first 256 slots
    before, answer = engine.cache.video_keys.clone(), engine.ask(QUESTION)
    zeros, calls = torch.zeros, []

    def failing(*args, **kwargs):
        calls.append(args)
        if len(calls) == 3:
            raise RuntimeError("out of memory")
        return zeros(*args, **kwargs)

    monkeypatch.setattr(torch, "zeros", failing)
    with pytest.raises(RuntimeError, match="out of memory"):
        stream(engine, 8, start=80)
    monkeypatch.setattr(torch, "zeros", zeros)
    assert torch.equal(engine.cache.video_keys, before)
    assert engine.ask(QUESTION).text == answer.text
    stream(engine, 8, start=80)
    assert engine.stats().tokens_retained == 264
