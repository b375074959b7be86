"""Every family on a stream that runs on: positions, bytes and numbers stay in bounds."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from infinipot_ros.core import EngineConfig, StreamEngine
from infinipot_ros.models.families import FAMILIES

QUESTION = "Where is the red mug?"

every_family = pytest.mark.parametrize("family", FAMILIES)


def _engine(adapter: Any, limit: int = 0, steps: int = 8, **config: Any) -> StreamEngine:
    per_step = adapter.preprocessor(0, 0).max_tokens_per_step() + adapter.max_step_text()
    options = {
        "block_steps": 1,
        "max_tokens": steps * per_step,
        "position_limit": limit,
        "max_question_tokens": 32,
        "max_new_tokens": 4,
    }
    return StreamEngine(adapter, EngineConfig(**{**options, **config}))


def _observe(engine: StreamEngine, block: int) -> None:
    """Show one step: a scene that changes every fifth block, and noise."""
    count = engine.adapter.frames_per_step
    scene = np.random.default_rng(block // 5).integers(0, 256, (96, 128, 3))
    noise = np.random.default_rng(block).integers(-9, 10, (count, 96, 128, 3))
    frames = np.clip(scene + noise, 0, 255).astype(np.uint8)
    first = count * block
    engine.observe(frames, [500_000_000 * (first + number) for number in range(count)])


def _tight_limit(adapter: Any) -> int:
    """Return a position limit that a stream passes soon, and that the memory fits below."""
    try:
        _engine(adapter, limit=1)
    except ValueError as error:
        least = int(str(error).split("at least ")[1].split(" ")[0])
    patches, text = adapter.preprocessor(0, 0).max_tokens_per_step(), adapter.max_step_text()
    return least + 4 * adapter.numbering(2.0).most(8, patches, text) // 3


@every_family
@pytest.mark.parametrize("policy", ["multi_tar", "reservoir"])
def test_compact_positions_stay_below_the_limit(scaled_adapter, monkeypatch, family, policy):
    adapter = scaled_adapter(family)
    limit = _tight_limit(adapter)
    engine = _engine(adapter, limit=limit, policy=policy)
    seen, run = [0], adapter.prefill

    def prefill(embeddings, positions, *rest):
        seen.append(int(positions.max()))
        return run(embeddings, positions, *rest)

    monkeypatch.setattr(adapter, "prefill", prefill)
    n_bytes = engine.stats().bytes_cap
    ends = []
    for block in range(160):
        _observe(engine, block)
        positions, steps = engine.cache.positions, engine.cache.steps
        assert engine.cache.prefix_tokens <= int(positions.min())
        assert int(positions.max()) < limit
        forward = positions[0].diff(dim=-1) * steps.diff(dim=-1).sign()
        assert (forward >= 0).all()
        if block % 20 == 0:
            engine.ask(QUESTION)
        ends.append(engine._timeline.next_text_position())
    assert max(seen) < limit
    assert engine.stats().bytes_cap == n_bytes == engine.cache.bytes_allocated
    # It was re-indexed, or nothing would have been shown.
    assert any(after < before for before, after in pairwise(ends))


@every_family
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_runs_end_to_end(scaled_adapter, family, dtype):
    adapter = scaled_adapter(family, dtype=dtype)
    engine = _engine(adapter, policy="infinipot_v")
    for block in range(24):
        _observe(engine, block)
    assert engine.stats().compressions >= 2
    assert engine.cache.keys.dtype == getattr(torch, dtype)
    assert engine.cache.video_keys.isfinite().all()
    assert engine.cache.video_values.isfinite().all()
    answer = engine.ask(QUESTION)
    assert 0.0 < answer.confidence <= 1.0


@every_family
def test_keys_in_half_precision_do_not_wear_off(scaled_adapter, family):
    """However often a memory is re-indexed, what stays is what was stored, to its rounding."""
    adapter = scaled_adapter(family, dtype="bfloat16")
    engine = _engine(adapter, limit=_tight_limit(adapter), policy="reservoir")
    first: dict[tuple[int, int, int], torch.Tensor] = {}
    ends = []
    for block in range(200):
        _observe(engine, block)
        cache = engine.cache
        planes = (cache.steps[0, 0], cache.rows[0, 0], cache.cols[0, 0])
        tokens = list(zip(*(plane.tolist() for plane in planes), strict=True))
        content = cache.unrotated_keys(slice(0, 1), adapter.rotary)[0, 0]
        for token, key in zip(tokens, content, strict=True):
            first.setdefault(token, key.clone())
        ends.append(engine._timeline.next_text_position())
    lived = [i for i, (step, _, _) in enumerate(tokens) if step < 150]
    assert len(lived) > 10
    assert sum(after < before for before, after in pairwise(ends)) >= 3
    stored = torch.stack([first[tokens[i]] for i in lived])
    worn = (content[lived] - stored).norm(dim=-1) / stored.norm(dim=-1)
    assert float(worn.max()) < 0.02  # a rotation rounds by a quarter of a percent
