"""StreamEngine: configurations and frames that it refuses, and what it says then."""

from __future__ import annotations

import re

import numpy as np
import pytest

from infinipot_ros.core import ConfigError, EngineConfig, FrameError, StreamEngine


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"max_tokens": 40}, "max_tokens is 40, smaller than two blocks.*24 tokens.*at least 48"),
        ({"max_tokens": 60}, "does not fit in the 15 tokens.*raise max_tokens to at least 94"),
        ({"policy": "magic"}, "magic.*infinipot_v"),
        ({"policy_params": {"recent_ratio": 2.0}}, "recent_ratio.*2.0"),
        ({"policy_params": {"colour": 1}}, "colour"),
        ({"policy_params": None}, "policy_params is None; it must map names to values"),
        ({"policy": ["tar"]}, r"policy is \['tar'\]; it must be the name of one"),
        ({"retain_ratio": 1.0}, r"retain_ratio is 1.0; it must lie inside \(0, 1\)"),
        ({"retain_ratio": 0}, r"retain_ratio is 0"),
        ({"retain_ratio": float("nan")}, "retain_ratio is nan"),
        ({"fps": 0.0}, "fps is 0.0"),
        ({"max_tokens": True}, "max_tokens is True"),
        ({"block_steps": 0}, "block_steps is 0"),
        ({"positions": "relative"}, "positions is 'relative'.*'compact'"),
        ({"position_limit": 50}, "position_limit is 50.*at least"),
        ({"min_pixels": 10_000, "max_pixels": 5_000}, "min_pixels is 10000, above max_pixels 5000"),
        ({"policy_params": {"recent_ratio": 0.9}}, "recent"),
    ],
    ids=str,
)
def test_refused_configurations(adapter, changes, message):
    with pytest.raises(ConfigError, match=message):
        StreamEngine(adapter, EngineConfig(**{"max_tokens": 96, **changes}))


@pytest.mark.parametrize("ratio", [0.1, 0.5, 0.75, 0.9])
@pytest.mark.parametrize("block_steps", [1, 3, 4])
def test_the_remedy_that_is_named_is_the_smallest_that_works(adapter, ratio, block_steps):
    def make(max_tokens):
        return StreamEngine(
            adapter,
            EngineConfig(
                policy="sliding_window",
                max_tokens=max_tokens,
                retain_ratio=ratio,
                block_steps=block_steps,
            ),
        )

    low = 2
    while True:
        with pytest.raises(ConfigError) as refusal:
            make(low)
        named = int(re.search(r"at least (\d+)", str(refusal.value))[1])
        try:
            make(named)
        except ConfigError:
            low = named  # two blocks fit, but a block not in what a compression frees
        else:
            break
    with pytest.raises(ConfigError):
        make(named - 1)


@pytest.mark.parametrize(
    "images, stamps, message",
    [
        (np.zeros((2, 8, 8, 3), np.uint8), [1], "2 frames but 1 stamps"),
        (np.zeros((1, 8, 8, 3), np.float32), [1], "float32; it must be a uint8"),
        ([np.zeros((8, 8), np.uint8)], [1], r"shape \(8, 8\)"),
        (np.zeros((8, 8, 3), np.uint8), [1], r"one image; give \[n, h, w, 3\]"),
        (np.zeros((1, 8, 8, 4), np.uint8), [1], r"\(8, 8, 4\)"),
        ([np.zeros((8, 8, 3), np.uint8), np.zeros((8, 9, 3), np.uint8)], [1, 2], "one size"),
        (np.zeros((1, 8, 8, 3), np.uint8), [1.5], "integer nanoseconds"),
    ],
)
def test_refused_frames(adapter, images, stamps, message):
    engine = StreamEngine(adapter, EngineConfig(max_tokens=96))
    with pytest.raises(FrameError, match=message):
        engine.observe(images, stamps)
    assert engine.stats().blocks == 0


@pytest.mark.parametrize("stamp", [2**63, -(2**63) - 1, 10**30])
def test_a_stamp_beyond_64_bits_is_refused(adapter, stamp):
    engine = StreamEngine(adapter, EngineConfig(max_tokens=96))
    with pytest.raises(FrameError, match="64 bits"):
        engine.observe(np.zeros((1, 56, 84, 3), np.uint8), [stamp])
    engine.observe(np.zeros((1, 56, 84, 3), np.uint8), [2**63 - 1])


@pytest.mark.parametrize("ratio", [0.75, 0.9, 0.999999999])
def test_the_least_cap_is_named_at_once_and_does(ratio):
    with pytest.raises(ConfigError, match="at least") as refusal:
        EngineConfig(max_tokens=900, retain_ratio=ratio).check_block(100)
    least = int(str(refusal.value).split("at least ")[1].split(",")[0])
    EngineConfig(max_tokens=least, retain_ratio=ratio).check_block(100)
