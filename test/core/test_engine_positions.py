"""StreamEngine: positions stay below the limit, and keys turn with them."""

from __future__ import annotations

import pytest
import torch

from infinipot_ros.core import EngineConfig, StreamEngine
from infinipot_ros.core.positions import RotarySpec
from infinipot_ros.core.timeline import Timeline

QUESTION = "what color is the mug ?"


@pytest.mark.parametrize("policy", ["infinipot_v", "uniform", "reservoir", "recent"])
def test_compact_positions_stay_below_the_limit(adapter, stream, policy, monkeypatch):
    config = EngineConfig(policy=policy, max_tokens=96, position_limit=420, fps=2.0)
    engine = StreamEngine(adapter, config)
    origin = engine.cache.prefix_tokens
    compact, rotations = Timeline.compact, []
    monkeypatch.setattr(
        Timeline, "compact", lambda *a, **k: rotations.append(0) or compact(*a, **k)
    )
    for block in range(400):
        stream(engine, 8, start=8 * block, seed=block % 7)
        positions = engine.cache.positions
        assert int(positions[0].max()) < 420
        assert int(positions[0].min()) >= origin
        order = positions[0].diff(dim=-1) * engine.cache.steps.diff(dim=-1).sign()
        assert (order >= 0).all()
        assert engine._timeline.next_text_position() + engine._reserve <= 420
    # A quarter of some 200 positions is free after each, and a block takes eight of them.
    assert 10 < len(rotations) <= 400 / 6 + 1
    engine.ask(QUESTION)


def test_compaction_rotates_keys_as_the_library_would(adapter, stream):
    """Keys moved by compaction equal the same content rotated at the new position at once."""
    engine = StreamEngine(adapter, EngineConfig(max_tokens=96, position_limit=0))
    for block in range(12):
        stream(engine, 8, start=8 * block, seed=block)
    cache = engine.cache
    content = torch.stack(
        [cache.unrotated_keys(slice(i, i + 1), adapter.rotary)[0] for i in range(3)]
    )
    before = cache.positions.clone()
    engine._timeline.compact(cache, adapter.rotary, 10_000)
    assert not torch.equal(before, cache.positions)
    assert torch.equal(before[1:], cache.positions[1:])
    rotary = adapter._decoder.rotary_emb
    for layer in range(3):
        for head in range(cache.shape.kv_heads):
            cos, sin = rotary(content, cache.positions[:, layer, head].unsqueeze(1))
            key = content[layer, head]
            half = key.shape[-1] // 2
            turned = key * cos[0] + torch.cat((-key[:, half:], key[:, :half]), -1) * sin[0]
            torch.testing.assert_close(cache.video_keys[layer, head], turned, atol=1e-4, rtol=0)


def test_compaction_of_a_whole_stream_changes_nothing(adapter, stream):
    """Shifting nothing: with every step present, ranks are the steps and keys stay."""
    engine = StreamEngine(adapter, EngineConfig(policy="full"))
    stream(engine, 40)
    before = engine.cache.video_keys.clone()
    cursor = engine._timeline.cursor
    engine._timeline.compact(engine.cache, adapter.rotary, 10_000)
    assert engine._timeline.cursor == cursor
    assert torch.equal(before, engine.cache.video_keys)


def test_absolute_positions_warn_once(adapter, stream, caplog):
    config = EngineConfig(max_tokens=96, position_limit=420, positions="absolute")
    engine = StreamEngine(adapter, config)
    for block in range(80):
        stream(engine, 8, start=8 * block)
    assert int(engine.cache.positions.max()) > 420
    assert sum("pass the model's limit" in record.message for record in caplog.records) == 1


def test_a_move_that_fails_is_made_up_for(adapter, stream, monkeypatch):
    """Out of memory in the middle of a re-indexing: the stream goes on, still below the limit."""
    engine = StreamEngine(adapter, EngineConfig(max_tokens=96, position_limit=420))
    move, calls = RotarySpec.move, []

    def failing(self, keys, old, new):
        calls.append(0)
        if len(calls) == 2:
            raise RuntimeError("out of memory")
        return move(self, keys, old, new)

    monkeypatch.setattr(RotarySpec, "move", failing)
    failed = 0
    for block in range(120):
        try:
            stream(engine, 8, start=8 * block, seed=block % 7)
        except RuntimeError:
            failed += 1
        assert engine._timeline.next_text_position() + engine._reserve <= 420
        positions = engine.cache.positions[0]
        if not failed or len(calls) > 2 + 3:
            order = positions.diff(dim=-1) * engine.cache.steps.diff(dim=-1).sign()
            assert (order >= 0).all()
            assert int(positions.max()) < engine._timeline.next_text_position()
    assert failed == 1
    assert len(calls) > 6
