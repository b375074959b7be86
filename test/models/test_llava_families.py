"""LLaVA-OneVision and LLaVA-NeXT-Video: exact against the library, with scaled-down models."""

from __future__ import annotations

from contextlib import contextmanager
from importlib import import_module

import numpy as np
import pytest
import torch

from infinipot_ros.core import ConfigError, EngineConfig, StreamEngine
from infinipot_ros.models import llava
from infinipot_ros.models.families import FAMILIES

TOLERANCE = 1e-4
NAMES = ["llava_onevision", "llava_next_video"]
TOKENS = {"llava_onevision": 16, "llava_next_video": 9}
NEWLINES = {"llava_onevision": 1, "llava_next_video": 0}
both = pytest.mark.parametrize("family", NAMES)


@pytest.fixture(scope="module")
def load(scaled_folder, scaled_adapter):
    """Return a maker of (adapter, the library's model); `change` edits the model's config."""
    import transformers

    loaded = {}

    def make(family, change=None):
        known = FAMILIES[family]
        library = getattr(transformers, known.library)
        if change is None:
            if family not in loaded:
                loaded[family] = library.from_pretrained(scaled_folder(family)).eval()
            return scaled_adapter(family), loaded[family]
        made = import_module(f"infinipot_ros.models.scaled.{family}").scaled()
        change(made.config)
        torch.manual_seed(0)
        model = library(made.config).eval()
        adapter = getattr(llava, known.adapter)(
            family, model=model, tokenizer=made.tokenizer, processor_config=made.preprocessor
        )
        return adapter, model

    return make


def _scene(count, height=60, width=90, seed=0):
    """Frames with edges, smooth light, texture and something that moves."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width] / min(height, width)
    frames = []
    for time in range(count):
        light = 128 + 100 * np.sin(3 * x + time / 3)[..., None] * np.cos(
            2 * y + np.arange(3)[:, None, None]
        ).transpose(1, 2, 0)
        light[(x - 0.2 - 0.08 * time) ** 2 + (y - 0.5) ** 2 < 0.04] = (230, 40, 20)
        light[:, width // 2 : width // 2 + 2] = 0
        frames.append(light + rng.normal(0, 12, light.shape))
    return np.clip(frames, 0, 255).astype(np.uint8)


def _observe(engine, frames, sizes):
    start = 0
    for size in sizes:
        engine.observe(frames[start : start + size], list(range(start, start + size)))
        start += size
    assert start == len(frames)


def _library_prompt(adapter, question, video_tokens):
    """Ids of the whole prompt as the library's processor makes them: one text, tokenised once."""
    content = [{"type": "video"}, {"type": "text", "text": question}]
    messages = [{"role": "user", "content": content}]
    tokenizer = adapter._tokenizer
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    head, tail = text.split("<video>")
    return tokenizer(head + "<video>" * video_tokens + tail, return_tensors="pt").input_ids


def _question_logits(engine, question):
    """Logits of every token from the video's end on, and the ids of the question."""
    adapter = engine.adapter
    first = engine._timeline.next_text_position()
    with torch.inference_mode():
        words = engine._embed_question(question, ())
        positions = torch.arange(first, first + len(words)).unsqueeze(0)
        return adapter.logits(adapter.prefill(words, positions, engine.cache))


def _one_shot(family, adapter, model, frames, question, count):
    """The library's own forward over the whole prompt; logits of its last `count` tokens."""
    pixels, (steps, rows, cols) = adapter.preprocessor(0, 0)(list(frames))
    ids = _library_prompt(adapter, question, steps * rows * cols + NEWLINES[family])
    with torch.inference_mode():
        output = model(
            input_ids=ids, pixel_values_videos=torch.from_numpy(pixels)[None], use_cache=False
        )
    return output.logits[0, -count:], ids


def _mistral(**changes):
    def change(config):
        from transformers import MistralConfig

        old = config.text_config
        config.text_config = MistralConfig(
            vocab_size=old.vocab_size,
            hidden_size=64,
            intermediate_size=96,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=1,
            initializer_range=0.1,
            **changes,
        )

    return change


def _vision(layer):
    def change(config):
        config.vision_feature_layer = layer

    return change


# -- the library's results -----------------------------------------------------------------------


@both
@pytest.mark.parametrize("sizes", [[11], [1] * 11, [3, 1, 5, 2]], ids=str)
def test_streaming_equals_the_librarys_one_shot(load, family, sizes):
    adapter, model = load(family)
    engine = StreamEngine(adapter, EngineConfig(policy="full", block_steps=3))
    frames = _scene(11)
    _observe(engine, frames, sizes)
    question = "where is the mug ?"
    logits = _question_logits(engine, question)
    expected, ids = _one_shot(family, adapter, model, frames, question, len(logits))
    assert expected.abs().max() > 0.5  # logits that are all near zero would agree by themselves
    torch.testing.assert_close(logits, expected, atol=TOLERANCE, rtol=0)
    other, _ = _one_shot(family, adapter, model, _scene(11, seed=1)[::-1], question, len(logits))
    assert (other - expected).abs().max() > 1e-2  # the video matters
    assert ids.shape[1] == (
        len(adapter.prefix_ids(None))
        + 11 * TOKENS[family]
        + NEWLINES[family]
        + len(adapter.question_ids(question))
    )


@pytest.mark.parametrize(
    "family, change",
    [
        ("llava_next_video", _mistral(sliding_window=None)),
        ("llava_onevision", _mistral(sliding_window=None, head_dim=32)),
        ("llava_onevision", _vision([-2, -1])),
        ("llava_next_video", _vision([0, -2])),
        ("llava_next_video", lambda config: setattr(config, "spatial_pool_mode", "max")),
        ("llava_next_video", lambda config: setattr(config, "spatial_pool_stride", 3)),
    ],
    ids=["mistral", "mistral-heads", "layers", "next-layers", "max", "stride"],
)
def test_streaming_equals_one_shot_whatever_is_inside(load, family, change):
    adapter, model = load(family, change=change)
    engine = StreamEngine(adapter, EngineConfig(policy="full", block_steps=2))
    frames = _scene(5)
    _observe(engine, frames, [5])
    logits = _question_logits(engine, "where is it ?")
    expected, _ = _one_shot(family, adapter, model, frames, "where is it ?", len(logits))
    torch.testing.assert_close(logits, expected, atol=TOLERANCE, rtol=0)


@both
def test_encoding_block_by_block_equals_encoding_at_once(load, family):
    adapter, _ = load(family)
    preprocess, frames = adapter.preprocessor(0, 0), list(_scene(7))
    with torch.inference_mode():
        parts = []
        for start, end in ((0, 7), (0, 1), (1, 4), (4, 7)):
            pixels, grid = preprocess(frames[start:end])
            encoded = adapter.encode(torch.from_numpy(pixels), grid)
            side = round(TOKENS[family] ** 0.5)
            assert (encoded.steps, encoded.rows, encoded.cols) == (end - start, side, side)
            assert encoded.embeddings.shape[0] == (end - start) * TOKENS[family]
            parts.append(encoded.embeddings)
    torch.testing.assert_close(torch.cat(parts[1:]), parts[0], atol=1e-6, rtol=1e-5)


@both
def test_a_frame_equals_tower_projector_and_pooling_written_out(load, family):
    adapter, model = load(family, change=_vision([-2, -1]))
    pixels, grid = adapter.preprocessor(0, 0)(list(_scene(2)))
    inner = model.model
    with torch.inference_mode():
        ours = adapter.encode(torch.from_numpy(pixels), grid).embeddings
        states = inner.vision_tower(torch.from_numpy(pixels), output_hidden_states=True)
        features = torch.cat(states.hidden_states[-2:], -1)
        if family == "llava_onevision":
            projected = inner.multi_modal_projector(features).view(2, 7, 7, -1)
            # Token i lies at (i + 1/2) 7/4 - 1/2 of the grid, between its two neighbours.
            at = (torch.arange(4) + 0.5) * 7 / 4 - 0.5
            mix = torch.clamp(1 - (at[:, None] - torch.arange(7)).abs(), min=0)
            pooled = torch.einsum("ir,js,frsd->fijd", mix, mix, projected)
        else:
            pools = features[:, 1:].view(2, 3, 2, 3, 2, -1).mean((2, 4))
            pooled = inner.multi_modal_projector(pools)
    torch.testing.assert_close(ours, pooled.reshape(len(ours), -1), atol=1e-5, rtol=1e-5)


# -- positions and the newline -------------------------------------------------------------------


@contextmanager
def _positions_seen(*decoders):
    """Give the list of position ids that reach the language models' rotary embeddings."""
    seen = []

    def hook(module, args, kwargs):
        seen.append(kwargs.get("position_ids", args[1] if len(args) > 1 else None).flatten())

    handles = [
        decoder.rotary_emb.register_forward_pre_hook(hook, with_kwargs=True) for decoder in decoders
    ]
    yield seen
    for handle in handles:
        handle.remove()


@both
def test_positions_are_those_of_the_library(load, family):
    adapter, model = load(family)
    frames = _scene(5)
    with _positions_seen(adapter._decoder) as seen:
        engine = StreamEngine(adapter, EngineConfig(policy="full", block_steps=2, max_new_tokens=4))
        _observe(engine, frames, [3, 2])
        asked = engine.ask("where ?")
        streamed = torch.cat(seen)
    with _positions_seen(model.model.language_model) as seen:
        _, ids = _one_shot(family, adapter, model, frames, "where ?", 1)
        library = torch.cat(seen)
    assert torch.equal(library, torch.arange(ids.shape[1]))
    assert torch.equal(streamed[: len(library)], library)
    # The answer goes on behind; its last token is never run.
    assert torch.equal(streamed, torch.arange(len(streamed)))
    assert len(streamed) - len(library) in (asked.n_tokens - 1, asked.n_tokens)
    start = len(adapter.prefix_ids(None))
    expected = torch.arange(start, start + 5 * TOKENS[family])
    assert torch.equal(engine.cache.positions[0, 0, 0].long(), expected)


@both
def test_the_newline_is_part_of_each_question_and_of_no_memory(load, family, monkeypatch):
    adapter, model = load(family)
    end = adapter.video_end()
    if NEWLINES[family]:
        assert torch.equal(end, model.model.image_newline[None])
    else:
        assert end is None
    config = EngineConfig(max_tokens=128, block_steps=2)
    engine, silent = StreamEngine(adapter, config), StreamEngine(adapter, config)
    frames = _scene(20)
    for start in range(0, 20, 5):
        stamps = list(range(start, start + 5))
        engine.observe(frames[start : start + 5], stamps)
        silent.observe(frames[start : start + 5], stamps)
        before = engine.stats()
        with _positions_seen(adapter._decoder) as seen:
            answers = {engine.ask("where is it ?").text for _ in range(3)}
        assert len(answers) == 1
        prompts = [len(positions) for positions in seen if len(positions) > 1]
        assert prompts == 3 * [NEWLINES[family] + len(adapter.question_ids("where is it ?"))]
        assert engine.stats() == before
        assert engine.cache.video_tokens == silent.cache.video_tokens
    assert engine.stats().compressions > 0
    length = engine.cache.length
    assert torch.equal(engine.cache.keys[:, :, :length], silent.cache.keys[:, :, :length])
    assert torch.equal(engine.cache.positions, silent.cache.positions)
    if not NEWLINES[family]:
        return
    # Without it the question would be answered from something else than the library answers from.
    with_newline = _question_logits(engine, "where ?")[-1]
    monkeypatch.setattr(adapter, "video_end", lambda: None)
    assert (with_newline - _question_logits(engine, "where ?")[-1]).abs().max() > 1e-3


@both
@pytest.mark.parametrize("policy", ["infinipot_v", "sliding_window"])
def test_a_stream_past_the_position_limit_goes_on_below_it(scaled_adapter, family, policy):
    adapter = scaled_adapter(family)
    limit = 400
    config = EngineConfig(
        max_tokens=128,
        block_steps=2,
        policy=policy,
        position_limit=limit,
        max_question_tokens=24,
        max_new_tokens=8,
    )
    engine = StreamEngine(adapter, config)
    sizes = set()
    with _positions_seen(adapter._decoder) as seen:
        for start in range(0, 96, 8):
            engine.observe(_scene(8, seed=start), list(range(start, start + 8)))
            assert engine.ask("where is the mug ?").n_tokens > 0
            sizes.add(engine.stats().bytes_cap)
            held = engine.cache.positions.long()
            assert held.min() >= len(adapter.prefix_ids(None))
            assert (held.diff(dim=-1) > 0).all()
    assert 96 * TOKENS[family] > 2 * limit  # without re-indexing it would be far behind it
    assert max(int(positions.max()) for positions in seen) < limit
    assert len(sizes) == 1


@both
def test_frames_have_one_size(load, family):
    adapter, model = load(family)
    pixels = model.config.vision_config.image_size**2
    for bounds in ((0, 0), (pixels, pixels)):
        assert adapter.preprocessor(*bounds).max_tokens_per_step() == TOKENS[family]
    with pytest.raises(
        ConfigError, match=r"max_pixels is 4000, but .* takes frames of one size only"
    ):
        StreamEngine(adapter, EngineConfig(max_pixels=4000))
