"""What docs/method.md promises of exactness, for every family: streaming, eviction, policies."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from infinipot_ros.core import EngineConfig, StreamEngine
from infinipot_ros.models.families import FAMILIES

TOLERANCE = 1e-4
CLOSE = 1e-5  # scores that rounding may order either way
QUESTION = "Where is the red mug?"
SECOND = 1_000_000_000

every_family = pytest.mark.parametrize("family", FAMILIES)


def _engine(adapter: Any, **config: Any) -> StreamEngine:
    return StreamEngine(adapter, EngineConfig(**{"policy": "full", "block_steps": 2, **config}))


def _frames(count: int, seed: int = 0) -> np.ndarray:
    """Something still, something moving, and noise: uint8 [n, 96, 128, 3]."""
    rng = np.random.default_rng(seed)
    frames = np.repeat(rng.integers(0, 256, (1, 96, 128, 3)), count, 0)
    for number, frame in enumerate(frames):
        left = 5 * number % 100
        frame[30:60, left : left + 25] = rng.integers(0, 256, 3)
    return np.clip(frames + rng.integers(-9, 10, frames.shape), 0, 255).astype(np.uint8)


def _stamps(start: int, count: int) -> list[int]:
    return [SECOND // 2 * number for number in range(start, start + count)]


def _observe(engine: StreamEngine, frames: np.ndarray, sizes: list[int]) -> None:
    start = 0
    for size in sizes:
        engine.observe(frames[start : start + size], _stamps(start, size))
        start += size
    assert start == len(frames)


def _smallest_cap(adapter: Any, steps: int) -> int:
    """Return a cap for so many steps of the largest size that a family makes of a frame."""
    return steps * (adapter.preprocessor(0, 0).max_tokens_per_step() + adapter.max_step_text())


def _question_logits(engine: StreamEngine) -> Tensor:
    """Logits of every token of a question over the engine's memory."""
    with torch.inference_mode():
        embeddings = engine._embed_question(QUESTION, ())
        first = engine._timeline.next_text_position()
        positions = torch.arange(first, first + len(embeddings)).expand(
            engine.adapter.shape.axes, -1
        )
        hidden = engine.adapter.prefill(embeddings, positions, engine.cache)
        return engine.adapter.logits(hidden)


class _Recorder:
    """Everything that went through an adapter's decoder, in order."""

    def __init__(self, adapter: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.embeddings: list[Tensor] = []
        self.positions: list[Tensor] = []
        self.masks: list[Tensor] = []
        self.features: list[tuple[Tensor, ...]] = []
        run = adapter.prefill

        def prefill(embeddings, positions, cache, deepstack=None):
            self.embeddings.append(embeddings)
            self.positions.append(positions)
            if deepstack is None:
                self.masks.append(torch.zeros(len(embeddings), dtype=torch.bool))
            else:
                self.masks.append(deepstack.video)
                self.features.append(deepstack.features)
            return run(embeddings, positions, cache, deepstack)

        monkeypatch.setattr(adapter, "prefill", prefill)

    def one_shot(self, adapter: Any) -> Tensor:
        """Logits of all recorded tokens by one plain forward of the library, without a cache."""
        embeddings, positions = torch.cat(self.embeddings)[None], torch.cat(self.positions, 1)
        n = embeddings.shape[1]
        # A mask of its own: with gaps in the positions the library would guess packed sequences.
        mask = torch.full((n, n), torch.finfo(torch.float32).min).triu(1)[None, None]
        extra = {}
        if self.features:
            extra = {
                "visual_pos_masks": torch.cat(self.masks)[None],
                "deepstack_visual_embeds": [
                    torch.cat(layer) for layer in zip(*self.features, strict=True)
                ],
            }
        with torch.inference_mode():
            hidden = adapter._decoder(
                inputs_embeds=embeddings,
                position_ids=positions if len(positions) == 1 else positions[:, None],
                attention_mask=mask,
                use_cache=False,
                **extra,
            ).last_hidden_state[0]
            return adapter.logits(hidden)


@every_family
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("sizes", [[12], [2] * 6, [6, 2, 4]], ids=str)
def test_streaming_equals_one_shot(scaled_adapter, monkeypatch, family, attention, sizes):
    adapter = scaled_adapter(family, attn_implementation=attention)
    recorder = _Recorder(adapter, monkeypatch)
    engine = _engine(adapter, block_steps=3)
    _observe(engine, _frames(12), sizes)
    logits = _question_logits(engine)
    expected = recorder.one_shot(adapter)[-len(logits) :]
    assert expected.std() > 0.1  # logits that are all alike would agree by themselves
    torch.testing.assert_close(logits, expected, atol=TOLERANCE, rtol=0)


@contextmanager
def _masked(adapter: Any, visible: Tensor) -> Iterator[None]:
    """Let the library attend to the visible slots only: bool [L, H, slots before the question]."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import eager_mask

    def attend(module, query, key, value, attention_mask, scaling, **_):
        seen = visible[module.layer_idx].repeat_interleave(query.shape[1] // key.shape[1], 0)
        groups = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
        n, before = query.shape[2], seen.shape[1]
        causal = torch.ones(n, n, dtype=torch.bool).tril()
        mask = torch.cat((seen[:, None].expand(-1, n, -1), causal.expand(len(seen), -1, -1)), -1)
        assert key.shape[2] == before + n
        scores = (query @ key.mT * scaling).masked_fill(~mask, -torch.inf)
        return (scores.softmax(-1) @ value).transpose(1, 2), None

    AttentionInterface.register("hidden_slots", attend)
    AttentionMaskInterface.register("hidden_slots", eager_mask)
    config = adapter._decoder.config
    before, config._attn_implementation = config._attn_implementation, "hidden_slots"
    try:
        yield
    finally:
        config._attn_implementation = before


@every_family
@pytest.mark.parametrize("policy", ["infinipot_v", "multi_tar", "reservoir"])
def test_eviction_equals_masking_per_head(scaled_adapter, family, policy):
    """Evicted tokens are as if a full cache hid them, head by head."""
    adapter = scaled_adapter(family)
    frames = _frames(16)
    cap = _smallest_cap(adapter, 16)
    capped, full = _engine(adapter, policy=policy, max_tokens=cap), _engine(adapter)
    _observe(capped, frames, [16])
    _observe(full, frames, [16])
    # Compressed by hand, so that both hold the keys and values of the same past.
    assert capped.stats().compressions == 0
    n_tokens = capped.cache.video_tokens
    slots = capped._policy.select(capped._view(n_tokens // 8), n_tokens // 2)
    capped.cache.retain(slots)
    kept = torch.zeros(*slots.shape[:2], n_tokens, dtype=torch.bool).scatter_(2, slots, True)
    assert not torch.equal(kept[0, 0], kept[-1, -1])
    prefix = torch.ones(*slots.shape[:2], full.cache.prefix_tokens, dtype=torch.bool)
    with _masked(adapter, torch.cat((prefix, kept), -1)):
        expected = _question_logits(full)
    assert (expected - _question_logits(full)).abs().max() > 1e-3
    torch.testing.assert_close(_question_logits(capped), expected, atol=TOLERANCE, rtol=0)


@every_family
def test_content_keys_are_keys_without_rotation(scaled_adapter, family):
    """The first layer's keys depend on its input alone: at position 0 they are not turned."""
    adapter = scaled_adapter(family)
    engine, still = _engine(adapter), _engine(adapter)
    _observe(engine, _frames(8), [8])
    place = still._timeline.place
    still._timeline.place = lambda *a: replace(  # type: ignore[method-assign]
        place(*a), positions=torch.zeros_like(place(*a).positions)
    )
    _observe(still, _frames(8), [8])
    content = engine.cache.unrotated_keys(slice(0, 1), adapter.rotary)[0]
    torch.testing.assert_close(content, still.cache.video_keys[0], atol=TOLERANCE, rtol=0)
    assert (content - engine.cache.video_keys[0]).abs().max() > 0.01


@every_family
@pytest.mark.parametrize("reference", ["recent", "previous"])
def test_a_policy_equals_the_naive_loop(scaled_adapter, family, reference):
    """TaR and VaN, written out, over the cache of a real model that was compressed before.

    What the engine keeps are the same slots, with the text of their steps where there is any.
    """
    adapter = scaled_adapter(family)
    params = {"tar_reference": reference, "pooling": False}
    cap = _smallest_cap(adapter, 12)
    engine = _engine(adapter, policy="infinipot_v", policy_params=params, max_tokens=cap)
    _observe(engine, _frames(60), [60])
    assert engine.stats().compressions >= 1
    view = engine._view(engine.cache.video_tokens // 10)
    keep = engine.cache.video_tokens * 3 // 4
    found, kept_by_engine = engine._policy.choose(view, keep), engine._policy.select(view, keep)
    assert (view.text is None) == (adapter.max_step_text() == 0)
    for layer in range(view.shape[0]):
        keys = view.keys(slice(layer, layer + 1), "content")[0]
        for head in range(view.shape[1]):
            provenance = list(
                zip(
                    *(plane[layer, head].tolist() for plane in (view.steps, view.rows, view.cols)),
                    strict=True,
                )
            )
            kept = found[layer, head].tolist()
            expected = _naive(
                provenance, keys[head], view.values[layer, head], kept, view, reference
            )
            assert kept == expected
            if view.text is not None:
                text = view.text[layer, head].tolist()
                expected = _with_text([step for step, _, _ in provenance], text, set(expected))
            assert kept_by_engine[layer, head].tolist() == expected
    if view.text is not None:  # else nothing would have been shown
        assert not torch.equal(found, kept_by_engine)


def _naive(tokens, keys, values, kept, view, reference):
    """Algorithm 1 of the paper with alpha one half, slot by slot.

    Text that is the same at every step has the same keys in the first layer. Which of equal scores
    TaR takes is then decided by rounding: as the policy under test did.
    """
    keep = len(kept)
    n_recent = max(1, round(0.125 * view.max_tokens / view.tokens_per_step))
    oldest_recent = tokens[-1][0] - n_recent + 1
    recent = [slot for slot, (step, _, _) in enumerate(tokens) if step >= oldest_recent]
    scores = {}
    for slot, (step, row, col) in enumerate(tokens):
        if step >= oldest_recent:
            continue
        if reference == "previous":
            others = [y for y, token in enumerate(tokens) if token == (step - 1, row, col)]
        else:
            others = [y for y in recent if tokens[y][1:] == (row, col)]
        cosines = [
            float(torch.cosine_similarity(keys[slot].double(), keys[y].double(), dim=0))
            for y in others
        ]
        scores[slot] = -sum(cosines) / len(cosines) if cosines else 1.0
    chosen = set(recent)
    norms = values.double().norm(dim=-1).tolist()
    share = max(0, round(0.5 * keep) - len(recent))
    if share:
        cut = sorted(scores.values(), reverse=True)[share - 1]
        chosen |= {slot for slot, score in scores.items() if score > cut + CLOSE}
        tied = [slot for slot, score in scores.items() if abs(score - cut) <= CLOSE]
        tied.sort(key=lambda slot: (slot not in kept, norms[slot]))
        chosen |= set(tied[: len(recent) + share - len(chosen)])
    by_van = sorted(set(scores) - chosen, key=lambda slot: (-norms[slot], slot))
    return sorted(chosen | set(by_van[: keep - len(chosen)]))


def _with_text(steps, text, chosen):
    """The rule of compression/step_text.py for one head: steps one by one, best first.

    First the newest of which every patch was chosen, back to the first that misses one; then by
    the number of chosen patches. Room that is left goes to their other patches, then to others.
    """
    patches = {
        step: [i for i, s in enumerate(steps) if s == step and not text[i]] for step in steps
    }
    words = {step: [i for i, s in enumerate(steps) if s == step and text[i]] for step in steps}
    newest_first = sorted(patches, reverse=True)
    picked = {step: [i for i in patches[step] if i in chosen] for step in newest_first}
    whole = list(itertools.takewhile(lambda step: picked[step] == patches[step], newest_first))
    ranked = sorted(newest_first, key=lambda step: -len(picked[step]))
    best = [step for step in whole if picked[step]]
    best += [step for step in ranked if picked[step] and step not in best]
    order = [slot for step in best for slot in (*words[step], *picked[step])]
    in_time = [step for step in newest_first if picked[step]]
    order += [i for step in in_time for i in patches[step] if i not in chosen]
    others = [step for step in newest_first if not picked[step]]
    order += [slot for step in others for slot in (*words[step], *patches[step])]
    return sorted(order[: len(chosen)])


@every_family
def test_two_engines_on_one_set_of_weights_do_not_mix(scaled_adapter, family):
    adapter = scaled_adapter(family)
    config = {"policy": "multi_tar", "max_tokens": _smallest_cap(adapter, 12)}
    alone, first = _engine(adapter, **config), _engine(adapter, **config)
    second = _engine(adapter, policy="sliding_window", max_tokens=_smallest_cap(adapter, 9))
    frames, other = _frames(48), _frames(48, seed=1)
    answers = []
    for start in range(0, 48, 6):
        stamps = _stamps(start, 6)
        first.observe(frames[start : start + 6], stamps)
        second.observe(other[start : start + 6], stamps)
        second.ask(QUESTION, max_new_tokens=3)
        answers.append(first.ask(QUESTION, max_new_tokens=3))
    for start in range(0, 48, 6):
        alone.observe(frames[start : start + 6], _stamps(start, 6))
        own = alone.ask(QUESTION, max_new_tokens=3)
        there = answers[start // 6]
        assert (own.text, own.confidence) == (there.text, there.confidence)
    assert first.stats().compressions >= 1
    assert torch.equal(first.cache.video_keys, alone.cache.video_keys)
    assert torch.equal(first.cache.video_values, alone.cache.video_values)
    assert torch.equal(first.cache.positions, alone.cache.positions)


@every_family
def test_text_of_a_step_stays_with_its_patches(scaled_adapter, family):
    adapter = scaled_adapter(family)
    if adapter.max_step_text() == 0:
        assert adapter.step_text(5, 2.5) == ((), ())
        return
    cap = _smallest_cap(adapter, 8)
    engine = _engine(adapter, policy="reservoir", max_tokens=cap, block_steps=1)
    whole = {}
    for block in range(24):
        start = adapter.frames_per_step * block
        engine.observe(_frames(adapter.frames_per_step), _stamps(start, adapter.frames_per_step))
        cache = engine.cache
        assert cache.video_tokens <= cap
        assert cache.length == cache.prefix_tokens + cache.video_tokens
        whole[block] = int(((cache.steps[0, 0] == block) & (cache.rows[0, 0] < 0)).sum())
        for layer in range(cache.shape.layers):
            for head in range(cache.shape.kv_heads):
                steps, rows = cache.steps[layer, head], cache.rows[layer, head]
                for step in steps[rows >= 0].unique().tolist():
                    assert int(((steps == step) & (rows < 0)).sum()) == whole[step] > 0
    assert engine.stats().compressions > 5


@pytest.mark.parametrize("family", ["qwen3_vl", "smolvlm", "internvl"])  # they write text
@pytest.mark.parametrize("policy", ["multi_tar", "reservoir"])
def test_frames_may_change_their_size(scaled_adapter, family, policy):
    """Large, small and large again, through compressions and re-indexing of positions."""
    adapter = scaled_adapter(family)
    patches, text = adapter.preprocessor(0, 0).max_tokens_per_step(), adapter.max_step_text()
    cap, numbering = _smallest_cap(adapter, 8), adapter.numbering(2.0)
    # Low enough to be passed; high enough that no two steps share positions, with sides up to 4.
    limit = 150 + numbering.most(1, patches, text) + 4 * numbering.held(cap, 4, text) // 3
    room = {"block_steps": 1, "max_question_tokens": 32, "max_new_tokens": 4}
    engine = _engine(adapter, policy=policy, max_tokens=cap, position_limit=limit, **room)
    sizes, n_frames = [(96, 128), (48, 64), (32, 96), (96, 128)], adapter.frames_per_step
    whole, seen, ends = {}, set(), []
    for block in range(48):
        high, wide = sizes[block // 12]
        images = _frames(n_frames, seed=block)[:, :high, :wide]
        engine.observe(list(images), _stamps(n_frames * block, n_frames))
        cache = engine.cache
        steps, rows = cache.steps, cache.rows
        assert cache.video_tokens <= cap
        assert int(cache.positions.max()) < limit
        assert (steps.diff(dim=-1) >= 0).all()
        assert (cache.positions[0].diff(dim=-1)[steps.diff(dim=-1) > 0] > 0).all()
        assert max(int(rows.max()), int(cache.cols[rows >= 0].max())) < 4
        of_newest = steps[0, 0] == block
        whole[block] = int((of_newest & (rows[0, 0] < 0)).sum())
        seen.add(int((of_newest & (rows[0, 0] >= 0)).sum()))
        for head_steps, head_rows in zip(steps.flatten(0, 1), rows.flatten(0, 1), strict=True):
            for step in head_steps[head_rows >= 0].unique().tolist():
                assert int(((head_steps == step) & (head_rows < 0)).sum()) == whole[step] > 0
        ends.append(engine._timeline.next_text_position())
        if block % 12 == 11:
            assert engine.ask(QUESTION).n_tokens > 0
    assert engine.stats().compressions > 5
    assert any(after < before for before, after in itertools.pairwise(ends))
    # The two others bring every frame to one size.
    assert (len(seen) > 1) == (family == "qwen3_vl")
