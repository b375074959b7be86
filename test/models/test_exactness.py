"""The three exactness promises of docs/method.md that concern the model, for random weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from infinipot_ros.core import EngineConfig, StreamEngine

TOLERANCE = 1e-4

SHAPES = [
    {"layers": 1, "heads": 4, "kv_heads": 1, "head_dim": 16},
    {"layers": 3, "heads": 4, "kv_heads": 4, "head_dim": 16},
    {"layers": 2, "heads": 8, "kv_heads": 4, "head_dim": 32, "frame_size": (84, 84)},
    {"layers": 5, "heads": 4, "kv_heads": 1, "head_dim": 32, "frame_size": (112, 56)},
]


@dataclass
class Streamed:
    """An engine with a memory, and all that the library needs to see the same stream at once."""

    engine: StreamEngine
    model: object
    frames: np.ndarray


def _engine(folder, attention, **config):
    return StreamEngine.from_pretrained(
        str(folder), EngineConfig(**config), device="cpu", attn_implementation=attention
    )


def _library(folder, attention):
    from transformers import Qwen2_5_VLForConditionalGeneration

    return Qwen2_5_VLForConditionalGeneration.from_pretrained(
        folder, attn_implementation=attention, dtype=torch.float32
    ).eval()


def _frames(count, seed=0):
    rng = np.random.default_rng(seed)
    still = rng.integers(0, 256, (1, 60, 80, 3))
    return np.clip(still + rng.integers(-60, 60, (count, 60, 80, 3)), 0, 255).astype(np.uint8)


def _observe(engine, frames, sizes):
    start = 0
    for size in sizes:
        engine.observe(frames[start : start + size], list(range(start, start + size)))
        start += size
    assert start == len(frames)


def _question_logits(engine, question):
    """Logits of every question token over the engine's memory, and their positions."""
    ids = torch.tensor(engine.adapter.question_ids(question))
    first = engine._timeline.next_text_position()
    positions = torch.arange(first, first + len(ids)).expand(3, -1)
    with torch.inference_mode():
        hidden = engine.adapter.prefill(engine.adapter.embed(ids), positions, engine.cache)
        return engine.adapter.logits(hidden), ids, positions


def _one_shot_inputs(engine, model, frames):
    """Embeddings and positions of prefix + whole video, made by the library's own encoder."""
    adapter, config = engine.adapter, model.config
    pixels, grid = engine._preprocess(list(frames))
    with torch.inference_mode():
        features = model.get_video_features(
            torch.from_numpy(pixels), torch.tensor([grid])
        ).pooler_output[0]
        prefix = torch.tensor(adapter.prefix_ids(None))
        embeddings = torch.cat((model.get_input_embeddings()(prefix), features))
    interval = config.vision_config.tokens_per_second * 2 / engine.config.fps
    assert interval == int(interval)
    video = model.model.get_vision_position_ids(
        len(prefix), torch.tensor(grid), 1, config.vision_config.spatial_merge_size, interval
    )
    text = torch.arange(len(prefix)).expand(3, -1)
    return embeddings, torch.cat((text, video), 1)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: "L{layers}-KV{kv_heads}".format(**s))
@pytest.mark.parametrize("sizes", [[24], [2] * 12, [10, 8, 6], [7, 1, 8, 8]], ids=str)
def test_streaming_equals_one_shot(tiny_model, shape, attention, sizes):
    folder = tiny_model(**shape)
    engine = _engine(folder, attention, policy="full", block_steps=5)
    frames = _frames(24)
    _observe(engine, frames, sizes)
    # Where a call ends in the middle of a step, the last frame is repeated; so the library sees it.
    ends = np.cumsum(sizes)
    seen = np.concatenate(
        [
            frames[end - size : end]
            if size % 2 == 0
            else np.concatenate((frames[end - size : end], frames[end - 1 : end]))
            for end, size in zip(ends, sizes, strict=True)
        ]
    )
    model = _library(folder, attention)
    logits, ids, positions = _question_logits(engine, "what color is the mug ?")
    embeddings, before = _one_shot_inputs(engine, model, seen)
    with torch.inference_mode():
        expected = model(
            inputs_embeds=torch.cat((embeddings, model.get_input_embeddings()(ids)))[None],
            position_ids=torch.cat((before, positions), 1)[:, None],
            use_cache=False,
        ).logits[0, -len(ids) :]
    assert positions[0, 0] == before.max() + 1
    assert expected.abs().max() > 0.5  # logits that are all near zero would agree by themselves
    torch.testing.assert_close(logits, expected, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: "L{layers}-KV{kv_heads}".format(**s))
@pytest.mark.parametrize("policy", ["infinipot_v", "reservoir"])
def test_eviction_equals_masking_per_head(tiny_model, shape, attention, policy):
    """Evicted tokens are as if a full cache hid them, head by head.

    The full cache is filled with the keys and values that the capped engine had at the time (its
    survivors influence later blocks), so what is compared is the question's forward pass.
    """
    folder = tiny_model(**shape)
    engine = _engine(folder, attention, policy=policy, block_steps=2, max_tokens=96)
    full = _engine(folder, attention, policy="full", block_steps=2)
    frames = _frames(16)
    _observe(engine, frames, [16])
    _observe(full, frames, [16])
    if engine.stats().compressions == 0:
        # Compress by hand, so that the first 8 steps are an exact common past.
        view = engine._view(engine.cache.video_tokens // 8)
        keep = 3 * engine.cache.video_tokens // 4
        slots = engine._policy.select(view, keep)
        engine.cache.retain(slots)
    else:
        pytest.fail("the stream was meant to fit, so that both caches hold the same tokens")

    logits, ids, positions = _question_logits(engine, "what color is the mug ?")
    layers, heads, _ = slots.shape
    total, prefix = full.cache.video_tokens, full.cache.prefix_tokens
    kept = torch.zeros(layers, heads, total, dtype=torch.bool).scatter_(2, slots, True)
    assert not torch.equal(kept[0, 0], kept[-1, -1]) or layers * heads == 1
    expected = _masked_logits(full, ids, positions, prefix, kept)
    assert (expected - _question_logits(full, "what color is the mug ?")[0]).abs().max() > 1e-3
    torch.testing.assert_close(logits, expected, atol=TOLERANCE, rtol=0)


def _masked_logits(engine, ids, positions, prefix, kept):
    """Logits of a plain forward over the full cache, evicted keys masked per layer and head.

    Written out from the architecture, independent of the cache and of the library's attention.
    """
    decoder, cache = engine.adapter._decoder, engine.cache
    from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import apply_rotary_pos_emb

    with torch.inference_mode():
        hidden = engine.adapter.embed(ids)[None]
        cos, sin = decoder.rotary_emb(hidden, positions[:, None])
        count = len(ids)
        causal = torch.tril(torch.ones(count, count, dtype=torch.bool))
        for index, layer in enumerate(decoder.layers):
            attention, x = layer.self_attn, layer.input_layernorm(hidden)

            def split(projected, attention=attention):
                return projected.view(1, count, -1, attention.head_dim).transpose(1, 2)

            q, k = apply_rotary_pos_emb(
                split(attention.q_proj(x)), split(attention.k_proj(x)), cos, sin
            )
            v = split(attention.v_proj(x))
            keys = torch.cat((cache.keys[index, :, : cache.length], k[0]), 1)
            values = torch.cat((cache.values[index, :, : cache.length], v[0]), 1)
            groups = q.shape[1] // keys.shape[0]
            out = []
            for head in range(q.shape[1]):
                kv = head // groups
                visible = torch.cat((torch.ones(prefix, dtype=torch.bool), kept[index, kv]))
                mask = torch.cat((visible.expand(count, -1), causal), 1)
                scores = q[0, head] @ keys[kv].T * attention.head_dim**-0.5
                out.append(scores.masked_fill(~mask, -torch.inf).softmax(-1) @ values[kv])
            hidden = hidden + attention.o_proj(torch.cat(out, -1))[None]
            hidden = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
        return engine.adapter.logits(decoder.norm(hidden)[0])


@pytest.mark.parametrize("policy", ["infinipot_v", "full"])
def test_a_hundred_questions_leave_no_trace(tiny_model, policy):
    folder = tiny_model(layers=3)
    asked = _engine(folder, "sdpa", policy=policy, block_steps=2, max_tokens=96)
    silent = _engine(folder, "sdpa", policy=policy, block_steps=2, max_tokens=96)
    frames = _frames(120)
    for start in range(0, 120, 12):
        stamps = list(range(start, start + 12))
        asked.observe(frames[start : start + 12], stamps)
        silent.observe(frames[start : start + 12], stamps)
        answers = {asked.ask("what color is the mug ?").text for _ in range(10)}
        assert len(answers) == 1
    n = asked.cache.length
    assert asked.cache.video_tokens > 0
    assert n == silent.cache.length
    for name in ("keys", "values"):
        assert torch.equal(
            getattr(asked.cache, name)[:, :, :n], getattr(silent.cache, name)[:, :, :n]
        )
    for name in ("steps", "rows", "cols", "stamps", "positions"):
        assert torch.equal(getattr(asked.cache, name), getattr(silent.cache, name))
    last = "what is it now ?"
    assert asked.ask(last).text == silent.ask(last).text
    assert asked.ask(last).confidence == silent.ask(last).confidence


def test_two_engines_on_one_set_of_weights_do_not_mix(tiny_model):
    alone = _engine(tiny_model(), "sdpa", max_tokens=96)
    first = _engine(tiny_model(), "sdpa", max_tokens=96)
    second = StreamEngine(first.adapter, EngineConfig(max_tokens=120, policy="sliding_window"))
    frames, other = _frames(40), _frames(40, seed=1)
    for start in range(0, 40, 8):
        stamps = list(range(start, start + 8))
        first.observe(frames[start : start + 8], stamps)
        second.observe(other[start : start + 8], stamps)
        second.ask("where is it ?")
        alone.observe(frames[start : start + 8], stamps)
    assert first.ask("where is it ?").text == alone.ask("where is it ?").text
    assert torch.equal(first.cache.video_keys, alone.cache.video_keys)
