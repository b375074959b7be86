"""The slab behind the library's cache: on whose device, and under whose attention kernel."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from infinipot_ros.core import EngineConfig, StreamEngine
from infinipot_ros.core.cache import CacheShape, SlabCache
from infinipot_ros.models.cache_bridge import as_library_cache


def _slab():
    shape = CacheShape(2, 2, 4, 1, torch.float32, torch.device("cpu"))
    return SlabCache(shape, prefix_tokens=1, max_tokens=4, reserve_tokens=2)


def test_on_its_own_device_a_layer_gets_views():
    slab = _slab()
    slab.commit_text(1)
    new = torch.ones(1, 2, 3, 4)
    keys, values = as_library_cache(slab).layers[1].update(new, 2 * new)
    assert keys.shape == (1, 2, 4, 4)
    assert keys.data_ptr() == slab.keys[1].data_ptr()
    assert values.data_ptr() == slab.values[1].data_ptr()
    assert bool((keys[0, :, 1:] == 1).all())
    assert bool((values[0, :, 1:] == 2).all())


def test_a_layer_elsewhere_gets_keys_and_values_on_its_device(monkeypatch):
    # `meta` stands for the second device: what is there has no numbers, but it has a device.
    slab = _slab()
    written = []

    def write(layer, keys, values):
        written.append((layer, keys.device.type, values.device.type))
        return slab.keys[layer, :, :3], slab.values[layer, :, :3]

    monkeypatch.setattr(slab, "write", write)
    new = torch.empty(1, 2, 3, 4, device="meta")
    keys, values = as_library_cache(slab).layers[0].update(new, new)
    assert written == [(0, "meta", "meta")]
    assert keys.device == values.device == new.device
    assert keys.shape == values.shape == (1, 2, 3, 4)


def _causal(query, key, value, scaling):
    """Attend ``[1, n, H, D]`` as the flash kernels do: causal, aligned at the last token."""
    query, key, value = (x.transpose(1, 2) for x in (query, key, value))
    groups = query.shape[1] // key.shape[1]
    key, value = (x.repeat_interleave(groups, 1) for x in (key, value))
    n, m = query.shape[2], key.shape[2]
    hidden = torch.ones(n, m, dtype=torch.bool).triu(m - n + 1)
    scores = (query @ key.transpose(-1, -2) * scaling).masked_fill(hidden, -torch.inf)
    return (scores.softmax(-1) @ value).transpose(1, 2)


@pytest.mark.parametrize("axes", [3, 1], ids=["three axes", "one axis"])
def test_flash_attention_sees_the_memory_as_sdpa_does(tiny_model, scaled_folder, monkeypatch, axes):
    """The kernel needs a GPU, what the library hands to it does not: no mask, one sequence."""
    from transformers import modeling_flash_attention_utils as flash
    from transformers.integrations import flash_attention

    folder = tiny_model() if axes == 3 else scaled_folder("llava_onevision")
    calls = []

    def forward(query, key, value, mask, query_length, is_causal, **settings):
        assert mask is None
        assert is_causal
        assert not flash._is_packed_sequence(settings.get("position_ids"), batch_size=1)
        assert settings.get("sliding_window") is None
        assert settings.get("softcap") is None
        calls.append((query_length, key.shape[1]))
        return _causal(query, key, value, settings["softmax_scale"])

    monkeypatch.setattr(flash_attention, "_flash_attention_forward", forward)
    keys, answers = [], []
    for kernel in ("sdpa", "flash_attention_2"):
        engine = StreamEngine.from_pretrained(
            str(folder),
            EngineConfig(
                max_tokens=96, max_new_tokens=4, policy="sliding_window", block_steps=1, fps=5.0
            ),
            device="cpu",
        )
        engine.adapter._decoder.config._attn_implementation = kernel
        engine.reset()
        frames = np.random.default_rng(0).integers(0, 256, (40, 56, 84, 3), np.uint8)
        engine.observe(list(frames), [n * 2 * 10**8 for n in range(40)])
        assert engine.stats().compressions > 0
        answers.append(engine.ask("where is the mug ?"))
        keys.append(engine.cache.video_keys.clone())
    assert any(new > 1 and old > new for new, old in calls)
    assert any(new == 1 for new, _ in calls)
    torch.testing.assert_close(keys[0], keys[1], atol=1e-4, rtol=1e-4)
    assert answers[0].text == answers[1].text
    assert answers[0].confidence == pytest.approx(answers[1].confidence, abs=1e-4)
