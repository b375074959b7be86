"""Families that take every frame as one image: blocks, positions, a memory past its limits."""

from __future__ import annotations

from importlib import import_module

import numpy as np
import pytest
import torch

from infinipot_ros.core import EngineConfig, StreamEngine
from infinipot_ros.core.errors import ConfigError, ModelError
from infinipot_ros.core.types import Turn
from infinipot_ros.models.families import FAMILIES

TOLERANCE = 1e-4
SECOND = 1_000_000_000
RATE = 0.1  # frames per second: 10 frames pass a minute
QUESTION = "What is on the table?"

every_family = pytest.mark.parametrize("family", ["smolvlm", "internvl"])


def _scaled(family, **sizes):
    return import_module(f"infinipot_ros.models.scaled.{family}").scaled(**sizes)


def _frames(count, seed=0):
    """Blocks of colour, one of them moving, and noise: uint8 [n, 96, 160, 3]."""
    rng = np.random.default_rng(seed)
    frames = np.empty((count, 96, 160, 3))
    frames[:] = np.kron(rng.integers(0, 256, (6, 10, 3)), np.ones((16, 16, 1)))
    for number, frame in enumerate(frames):
        left = 7 * number % 120
        frame[30:70, left : left + 30] = rng.integers(0, 256, 3)
    return np.clip(frames + rng.normal(0, 4, frames.shape), 0, 255).astype(np.uint8)


def _stamps(start, count):
    return [round(number / RATE * SECOND) for number in range(start, start + count)]


def _engine(adapter, **config):
    return StreamEngine(adapter, EngineConfig(**{"policy": "full", "block_steps": 2, **config}))


def _observe(engine, frames, sizes):
    start = 0
    for size in sizes:
        engine.observe(frames[start : start + size], _stamps(start, size))
        start += size
    assert start == len(frames)


def _capped(adapter, **config):
    """Return an engine for five steps of the largest size."""
    step = adapter.preprocessor(0, 0).max_tokens_per_step() + adapter.max_step_text()
    return _engine(
        adapter, max_tokens=5 * step, retain_ratio=0.6, **{"policy": "reservoir", **config}
    )


@every_family
def test_encoding_block_by_block_equals_encoding_at_once(scaled_adapter, family):
    adapter = scaled_adapter(family)
    pixels, grid = adapter.preprocessor(0, 0)(list(_frames(7)))
    assert grid == (7, 3, 3)
    with torch.inference_mode():
        whole = adapter.encode(torch.from_numpy(pixels), grid)
        parts = [
            adapter.encode(torch.from_numpy(pixels[start:stop]), (stop - start, 3, 3))
            for start, stop in ((0, 1), (1, 4), (4, 7))
        ]
    assert (whole.steps, whole.rows, whole.cols) == grid
    joined = torch.cat([part.embeddings for part in parts])
    torch.testing.assert_close(joined, whole.embeddings, atol=1e-5, rtol=0)


@every_family
def test_rows_and_columns_are_where_the_frame_has_them(scaled_adapter, family):
    """A change in one corner of a frame changes that corner's token most."""
    adapter = scaled_adapter(family)
    images = adapter.preprocessor(0, 0)
    still = np.full((images.height, images.width, 3), 128, np.uint8)
    for row, col in ((0, 0), (0, 2), (2, 0), (1, 2)):
        changed, side = still.copy(), images.height // 3
        changed[side * row : side * (row + 1), side * col : side * (col + 1)] = 250
        pixels, grid = images([still, changed])
        with torch.inference_mode():
            one, other = adapter.encode(torch.from_numpy(pixels), grid).embeddings.chunk(2)
        difference = (one - other).norm(dim=-1).view(3, 3)
        assert divmod(int(difference.argmax()), 3) == (row, col)


@every_family
def test_what_is_typed_forges_no_token(scaled_adapter, family):
    adapter = scaled_adapter(family)
    added = adapter._tokenizer.get_added_vocab()
    special, forged = set(added.values()), "".join(added)
    honest = [i for i in adapter.question_ids("hello") if i in special]
    assert [i for i in adapter.question_ids(forged) if i in special] == honest
    turn = Turn("hello", forged)
    once = [i for i in adapter.question_ids("hello", [Turn("hello", "hello")]) if i in special]
    assert [i for i in adapter.question_ids("hello", [turn]) if i in special] == once


@every_family
def test_positions_are_consecutive(scaled_adapter, family):
    adapter = scaled_adapter(family)
    engine = _engine(adapter)
    _observe(engine, _frames(12), [1, 5, 6])
    prefix = engine.cache.prefix_tokens
    expected = torch.arange(prefix, prefix + engine.cache.video_tokens)
    assert torch.equal(engine.cache.positions, expected.expand_as(engine.cache.positions).int())
    assert adapter.rotary.axes == adapter.shape.axes == 1
    assert adapter.position_limit == {"smolvlm": 8192, "internvl": 32768}[family]


@every_family
def test_step_text_stays_while_a_patch_of_it_does(scaled_adapter, family):
    adapter = scaled_adapter(family)
    engine = _capped(adapter)
    frames = _frames(40)
    for number in range(0, 40, 2):
        engine.observe(frames[number : number + 2], _stamps(number, 2))
        cache = engine.cache
        assert cache.video_tokens <= engine.config.max_tokens
        for layer in range(cache.shape.layers):
            for head in range(cache.shape.kv_heads):
                steps, rows = cache.steps[layer, head], cache.rows[layer, head]
                seen = steps[rows >= 0].unique().tolist()
                assert seen
                for step in seen:
                    whole = sum(map(len, adapter.step_text(step, step / RATE)))
                    assert int(((steps == step) & (rows < 0)).sum()) == whole
                assert len(steps.unique()) <= 12  # text is not kept for its own sake
    assert engine.stats().compressions > 5


@every_family
@pytest.mark.parametrize("policy", ["reservoir", "sliding_window"])
def test_a_stream_goes_on_past_the_position_limit(scaled_adapter, family, policy):
    adapter = scaled_adapter(family)
    config = {"max_question_tokens": 32, "max_new_tokens": 4, "policy": policy}
    reserve = 32 + 4 + adapter.template_tokens()
    step = adapter.preprocessor(0, 0).max_tokens_per_step() + adapter.max_step_text()
    limit = len(adapter.prefix_ids(None)) + 6 * step + 2 * reserve
    engine = _capped(adapter, position_limit=limit, **config)
    frames = _frames(10)
    bytes_used, moved, last = set(), 0, 0
    for number in range(60):
        engine.observe(frames[number % 10][None], _stamps(number, 1))
        at = engine._timeline.next_text_position()
        moved, last = moved + (at < last), at
        assert at + reserve <= limit
        positions = engine.cache.positions
        assert int(positions.max()) < at
        assert bool((positions.diff(dim=-1) >= 0).all())
        if number > 30:
            bytes_used.add(engine.stats().bytes_cap)
    assert moved > 3
    assert len(bytes_used) == 1
    answer = engine.ask(QUESTION)
    assert answer.n_tokens == 4 or answer.finish_reason != "length"
    assert np.isfinite(answer.confidence)


@every_family
def test_moved_keys_equal_keys_made_at_their_new_place(scaled_adapter, family):
    """In the first layer, where keys depend on no other token."""
    adapter = scaled_adapter(family)
    moved, fresh = _engine(adapter), _engine(adapter)
    moved.observe(_frames(3), _stamps(0, 3))
    cursor = moved._timeline.cursor
    place = moved.cache.positions[0, 0, 0, 0].item() + 500
    moved.cache.move(adapter.rotary, moved.cache.positions.long() + 500)
    fresh._timeline.cursor = cursor.at(place)
    fresh.observe(_frames(3), _stamps(0, 3))
    assert torch.equal(moved.cache.positions, fresh.cache.positions)
    torch.testing.assert_close(
        moved.cache.video_keys[0], fresh.cache.video_keys[0], atol=TOLERANCE, rtol=0
    )


@every_family
def test_published_sizes(family):
    """The frame sizes and token numbers of the published preprocessor files."""
    parts = _scaled(family)
    cases = {
        # patch, image, factor, tokens a side
        "smolvlm": [(16, 512, 4, 8), (14, 384, 3, 9)],
        "internvl": [(14, 448, 2, 16)],
    }
    for patch, side, factor, expected in cases[family]:
        config = parts.config
        vision = config.vision_config
        preprocessor = dict(parts.preprocessor)
        if family == "smolvlm":
            vision.patch_size, vision.image_size, config.scale_factor = patch, side, factor
            preprocessor["max_image_size"] = {"longest_edge": side}
            preprocessor["video_sampling"] = {"video_size": {"longest_edge": side}}
        else:
            vision.patch_size, vision.image_size = [patch] * 2, [side] * 2
            preprocessor["size"] = {"height": side, "width": side}
        module = import_module(f"infinipot_ros.models.{family}")
        images = module._images(family, config, preprocessor)
        assert (images.height, images.width) == (side, side)
        assert (images.rows, images.cols) == (expected, expected)


@every_family
@pytest.mark.parametrize(
    "bounds, words",
    [
        ((10**9, 0), "min_pixels is 1000000000, .* one size only, .* set min_pixels to 0"),
        ((0, 100), "max_pixels is 100, .* one size only, .* set max_pixels to 0"),
        ((1, 10**9), ""),
    ],
)
def test_bounds_that_would_change_the_frame_size_are_refused(scaled_adapter, family, bounds, words):
    adapter = scaled_adapter(family)
    if not words:
        assert adapter.preprocessor(*bounds) == adapter.preprocessor(0, 0)
        return
    with pytest.raises(ConfigError, match=words):
        adapter.preprocessor(*bounds)


@every_family
@pytest.mark.parametrize(
    "changes",
    [{"sliding_window": 512, "layer_types": None}, {"layer_types": ["sliding_attention"] * 2}],
    ids=["window", "layers"],
)
def test_sliding_windows_are_refused_with_a_remedy(family, changes):
    import transformers

    parts = _scaled(family, layers=1)
    network = getattr(transformers, FAMILIES[family].library)(parts.config)
    vars(network.config.text_config).update(changes)
    module = import_module(f"infinipot_ros.models.{family}")
    adapter = getattr(module, FAMILIES[family].adapter)
    with pytest.raises(ModelError, match=r"\d of sliding_attention, among \d .*sliding_window"):
        adapter(
            "tiny",
            model=network,
            tokenizer=parts.tokenizer,
            processor_config=parts.preprocessor,
        )
