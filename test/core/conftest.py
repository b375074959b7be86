"""A small engine's parts, shared by the tests of the engine."""

from __future__ import annotations

import numpy as np
import pytest

from infinipot_ros.models import load_adapter


@pytest.fixture(scope="module")
def adapter(tiny_model):
    """Return the adapter of a tiny model of 3 layers: 6 tokens a step."""
    return load_adapter(str(tiny_model(layers=3)), device="cpu")


@pytest.fixture(scope="session")
def stream():
    """Return a function that shows an engine some frames of noise, a nanosecond apart."""

    def show(engine, count, *, start=0, seed=0):
        images = np.random.default_rng(seed).integers(0, 256, (count, 56, 84, 3), dtype=np.uint8)
        engine.observe(images, [1_000_000_000 + i for i in range(start, start + count)])

    return show
