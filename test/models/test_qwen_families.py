"""Qwen2-VL, Qwen2.5-VL and Qwen3-VL: prompt, positions and visual features are the library's.

What the weights were trained with is transformers 4.57: golden numbers below come from its
``get_rope_index`` and its ``Qwen3VLProcessor``.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from infinipot_ros.compression import POLICIES
from infinipot_ros.core import EngineConfig, StreamEngine
from infinipot_ros.core.numbering import BlockLayout, Cursor
from infinipot_ros.models import load_adapter
from infinipot_ros.models.families import FAMILIES
from infinipot_ros.models.scaled import write_scaled

ALL = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")
QUESTION = "what is there ?"
TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def load(tmp_path_factory):
    """Return a loader of (library's model, adapter) by family."""
    import transformers

    made = {}

    def load_family(family):
        if family not in made:
            folder = write_scaled(family, tmp_path_factory.mktemp(family), layers=3)
            library = getattr(transformers, FAMILIES[family].library)
            model = library.from_pretrained(folder, dtype=torch.float32).eval()
            made[family] = model, load_adapter(str(folder), device="cpu")
        return made[family]

    return load_family


def _frames(count, height=60, width=90, seed=0):
    rng = np.random.default_rng(seed)
    still = rng.integers(0, 256, (1, height, width, 3))
    moved = still + rng.integers(-60, 60, (count, height, width, 3))
    return np.clip(moved, 0, 255).astype(np.uint8)


def _stamps(count, start=0, fps=2.0):
    return [7 + int(1e9 * (start + number) / fps) for number in range(count)]


def _question_logits(engine):
    ids = torch.tensor(engine.adapter.question_ids(QUESTION))
    first = engine._timeline.next_text_position()
    positions = torch.arange(first, first + len(ids)).expand(3, -1)
    with torch.inference_mode():
        hidden = engine.adapter.prefill(engine.adapter.embed(ids), positions, engine.cache)
        return engine.adapter.logits(hidden)


def _library_prompt(model, adapter, seconds, patches):
    """Token ids of the whole prompt, expanded as the library expands it."""
    tokenizer, config = adapter._tokenizer, model.config
    start, pad, end = tokenizer.convert_ids_to_tokens(
        [config.vision_start_token_id, config.video_token_id, config.vision_end_token_id]
    )
    content = [{"type": "video"}, {"type": "text", "text": QUESTION}]
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": content}], tokenize=False, add_generation_prompt=True
    )
    if config.model_type == "qwen3_vl":
        video = "".join(f"<{s:.1f} seconds>{start}{pad * patches}{end}" for s in seconds)
        text = text.replace(start + pad + end, video)
    else:
        text = text.replace(pad, pad * patches * len(seconds))
    return tokenizer(text, add_special_tokens=False).input_ids


def _our_prompt(adapter, video_id, seconds, patches):
    ids = adapter.prefix_ids(None)
    for number, second in enumerate(seconds):
        before, after = adapter.step_text(number, second)
        ids += [*before, *[video_id] * patches, *after]
    return ids + adapter.question_ids(QUESTION)


# -- prompt --------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ALL)
def test_the_prompt_is_the_librarys(load, family):
    model, adapter = load(family)
    seconds = [0.25, 1.25, 2.0, 9.95, 10.5, 99.9, 12345.67, 6_000_000.0]
    ours = _our_prompt(adapter, model.config.video_token_id, seconds, 6)
    assert ours == _library_prompt(model, adapter, seconds, 6)


def test_qwen3_prompt_equals_that_of_its_processor_in_4_57(load):
    """Golden: five frames at 2 fps, grid 3 x 4 x 6, through Qwen3VLProcessor of 4.57.1."""
    golden = "<|im_start|>user\n"
    for seconds in ("0.2", "1.2", "2.0"):
        patches = 6 * "<|video_pad|>"
        golden += f"<{seconds} seconds><|vision_start|>{patches}<|vision_end|>"
    golden += f"{QUESTION}<|im_end|>\n<|im_start|>assistant\n"
    model, adapter = load("qwen3_vl")
    engine = StreamEngine(adapter, EngineConfig(policy="full"))
    texts, step_text = [], adapter.step_text

    def record(step, seconds):
        texts.append((step, seconds))
        return step_text(step, seconds)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(adapter, "step_text", record)
        engine.observe(_frames(5), _stamps(5))  # the last is repeated to make a step
    assert [step for step, _ in texts] == [0, 1, 2]
    ids = _our_prompt(adapter, model.config.video_token_id, [second for _, second in texts], 6)
    assert adapter._tokenizer.decode(ids) == golden


def test_timestamps_equal_the_installed_processor(load):
    from transformers.models.qwen3_vl.processing_qwen3_vl import Qwen3VLProcessor

    model, adapter = load("qwen3_vl")
    for fps, count in ((1.0, 9), (2.0, 48), (4.0, 30), (0.5, 7)):
        stub = SimpleNamespace(
            video_processor=SimpleNamespace(merge_size=2, temporal_patch_size=2),
            vision_start_token="<|vision_start|>",
            vision_end_token="<|vision_end|>",
            video_token="<|video_pad|>",
            _calculate_timestamps=lambda *a: Qwen3VLProcessor._calculate_timestamps(None, *a),
        )
        inputs = {
            "video_grid_thw": torch.tensor([[-(-count // 2), 4, 6]]),
            "video_metadata": [SimpleNamespace(fps=fps, frames_indices=list(range(count)))],
        }
        expected = Qwen3VLProcessor.replace_video_token(stub, inputs, 0)
        engine = StreamEngine(adapter, EngineConfig(policy="full"))
        stamps = _stamps(count, fps=fps) + _stamps(count, fps=fps)[-1:] * (count % 2)
        seconds = engine._timeline.seconds(stamps)
        ids = _our_prompt(adapter, model.config.video_token_id, seconds, 6)
        text = adapter._tokenizer.decode(ids)
        assert text == f"<|im_start|>user\n{expected}{QUESTION}<|im_end|>\n<|im_start|>assistant\n"


def test_text_of_a_step_is_bounded_for_years(load):
    _, adapter = load("qwen3_vl")
    most = adapter.max_step_text()
    assert most == 15  # <, eight digits and a point and one more, seconds, >, start and end
    for seconds in (0.0, 9.96, 604_800.0, 99_999_999.94, 1e12):
        before, after = adapter.step_text(0, seconds)
        assert len(before) + len(after) <= most
    assert load("qwen2_vl")[1].max_step_text() == load("qwen2_5_vl")[1].max_step_text() == 0


# -- positions -----------------------------------------------------------------------------

# (family, fps, (steps, rows, cols)): times of the steps and first position of the text, counted
# from the end of the prefix. From get_rope_index of transformers 4.57.1, tokens_per_second 2.
GOLDEN = {
    ("qwen2_vl", 2.0, (4, 2, 3)): ([0, 1, 2, 3], 4),
    ("qwen2_vl", 1.0, (4, 2, 3)): ([0, 1, 2, 3], 4),
    ("qwen2_vl", 2.0, (1, 2, 5)): ([0], 5),
    ("qwen2_vl", 2.0, (2, 5, 2)): ([0, 1], 5),
    ("qwen2_vl", 2.0, (12, 3, 3)): (list(range(12)), 12),
    ("qwen2_vl", 2.0, (3, 3, 3)): ([0, 1, 2], 3),
    ("qwen2_5_vl", 2.0, (4, 2, 3)): ([0, 2, 4, 6], 7),
    ("qwen2_5_vl", 1.0, (4, 2, 3)): ([0, 4, 8, 12], 13),
    ("qwen2_5_vl", 2.0, (1, 2, 5)): ([0], 5),
    ("qwen2_5_vl", 2.0, (2, 5, 2)): ([0, 2], 5),
    ("qwen2_5_vl", 1.0, (2, 5, 2)): ([0, 4], 5),
    ("qwen2_5_vl", 2.0, (12, 3, 3)): (list(range(0, 24, 2)), 23),
    ("qwen2_5_vl", 1.0, (12, 3, 3)): (list(range(0, 48, 4)), 45),
}


@pytest.mark.parametrize("case", GOLDEN, ids=str)
def test_positions_equal_those_of_4_57(load, case):
    family, fps, (steps, rows, cols) = case
    times, text = GOLDEN[case]
    _, adapter = load(family)
    engine = StreamEngine(adapter, EngineConfig(policy="full", fps=fps, block_steps=3))
    engine.observe(_frames(2 * steps, 28 * rows, 28 * cols), _stamps(2 * steps))
    start = len(adapter.prefix_ids(None))
    positions = engine.cache.positions[:, 0, 0].view(3, steps, rows, cols) - start
    assert torch.equal(positions[0], torch.tensor(times).view(-1, 1, 1).expand(-1, rows, cols))
    assert torch.equal(positions[1], torch.arange(rows).view(-1, 1).expand(steps, -1, cols))
    assert torch.equal(positions[2], torch.arange(cols).expand(steps, rows, -1))
    assert engine._timeline.next_text_position() - start == text


def _rope_index(model, ids, steps, rows, cols):
    """The installed library's positions of a whole Qwen3-VL prompt, int64 [3, n]."""
    ids = torch.tensor([ids])
    return model.model.get_rope_index(
        ids,
        mm_token_type_ids=2 * (ids == model.config.video_token_id).int(),
        video_grid_thw=torch.tensor([[steps, 2 * rows, 2 * cols]]),
    )[0][:, 0]


@pytest.mark.parametrize("size", [(2, 3), (3, 3), (5, 2)], ids=str)
def test_qwen3_positions_equal_get_rope_index(load, size):
    rows, cols = size
    model, adapter = load("qwen3_vl")
    engine = StreamEngine(adapter, EngineConfig(policy="full", block_steps=3))
    frames, stamps = _frames(26, 32 * rows, 32 * cols), _stamps(26)
    for start, end in ((0, 6), (6, 8), (8, 20), (20, 26)):
        engine.observe(frames[start:end], stamps[start:end])
    seconds = [second / 2 + 0.25 for second in range(0, 26, 2)]  # past 10: one digit more
    ids = _library_prompt(model, adapter, seconds, rows * cols)
    expected = _rope_index(model, ids, 13, rows, cols)
    first = len(adapter.prefix_ids(None))
    last = first + engine.cache.video_tokens
    assert last + len(adapter.question_ids(QUESTION)) == len(ids)
    assert torch.equal(engine.cache.positions[:, 0, 0].long(), expected[:, first:last])
    assert (expected[:, last] == engine._timeline.next_text_position()).all()
    patches = torch.tensor(ids[first:last]) == model.config.video_token_id
    assert torch.equal(engine.cache.rows[0, 0] >= 0, patches)


def test_qwen3_positions_equal_those_of_4_57(load):
    """Golden: steps with two and three tokens before, a grid of 2 x 3; the text starts at 17."""
    _, adapter = load("qwen3_vl")
    layout = BlockLayout(2, 3, ((3, 1), (4, 1)))
    positions, cursor = adapter.numbering(2.0).place(layout, Cursor.at(3))
    assert positions.tolist() == [
        [3, 4, 5, 6, 6, 6, 6, 6, 6, 9, 10, 11, 12, 13, 14, 14, 14, 14, 14, 14, 17],
        [3, 4, 5, 6, 6, 6, 7, 7, 7, 9, 10, 11, 12, 13, 14, 14, 14, 15, 15, 15, 17],
        [3, 4, 5, 6, 7, 8, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 14, 15, 16, 17],
    ]
    assert cursor.end == 18


@pytest.mark.parametrize("family", ALL)
def test_keys_turn_as_the_library_turns_them(load, family):
    """Also where an axis has its frequencies in no even order, and beyond the table."""
    model, adapter = load(family)
    rotary, generator = model.model.language_model.rotary_emb, torch.Generator().manual_seed(0)
    keys = torch.randn(50, adapter.shape.head_dim, generator=generator)
    half = keys.shape[-1] // 2

    def turned(positions):
        cos, sin = (part[0] for part in rotary(keys, positions.unsqueeze(1)))
        return keys * cos + torch.cat((-keys[:, half:], keys[:, :half]), -1) * sin

    for largest in (1_000, 100_000):
        old, new = torch.randint(0, largest, (2, 3, 50), generator=generator).unbind()
        content = adapter.rotary.unrotate(turned(old), old)
        torch.testing.assert_close(content, keys, atol=1e-5, rtol=0)
        moved = adapter.rotary.move(turned(old), old, new)
        torch.testing.assert_close(moved, turned(new), atol=1e-5, rtol=0)


def test_interleaved_axes_of_the_published_sections(load):
    _, adapter = load("qwen3_vl")
    axis = adapter._rotary_axis([24, 20, 20], 64, torch.device("cpu")).tolist()
    assert axis == [0, 1, 2] * 20 + [0] * 4


# -- visual features -----------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [[24], [2] * 12, [7, 1, 8, 8]], ids=str)
def test_qwen3_streaming_equals_one_shot_with_deepstack(load, sizes):
    """Against the library's whole forward pass: pixels in, logits out, its own positions."""
    model, adapter = load("qwen3_vl")
    engine = StreamEngine(adapter, EngineConfig(policy="full", block_steps=5))
    frames, stamps = _frames(24), _stamps(24)
    seen, seconds, start = [], [], 0
    for size in sizes:
        end = start + size
        engine.observe(frames[start:end], stamps[start:end])
        numbers = [*range(start, end), *[end - 1] * (size % 2)]
        seen += numbers
        seconds += [
            (first + last) / 4 for first, last in zip(numbers[::2], numbers[1::2], strict=True)
        ]
        start = end
    pixels, grid = engine._preprocess([frames[number] for number in seen])
    ids = _library_prompt(model, adapter, seconds, 6)
    with torch.inference_mode():
        expected = model(
            input_ids=torch.tensor([ids]),
            pixel_values_videos=torch.from_numpy(pixels),
            video_grid_thw=torch.tensor([grid]),
            position_ids=_rope_index(model, ids, len(seconds), 2, 3)[:, None],
            use_cache=False,
        ).logits[0, -len(adapter.question_ids(QUESTION)) :]
    torch.testing.assert_close(_question_logits(engine), expected, atol=TOLERANCE, rtol=0)
    assert len(adapter.encode(torch.from_numpy(pixels), grid).deepstack) == 3
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(adapter, "_deepstack_inputs", lambda deepstack: {})
        blind = StreamEngine(adapter, EngineConfig(policy="full", block_steps=5))
        blind.observe(frames, stamps)
        assert (_question_logits(blind) - expected).abs().max() > 100 * TOLERANCE


# -- eviction ------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", sorted(set(POLICIES) - {"full"}))
def test_text_of_a_step_is_kept_while_a_patch_of_it_is(load, policy):
    _, adapter = load("qwen3_vl")
    cap = 220
    engine = StreamEngine(adapter, EngineConfig(policy=policy, max_tokens=cap, block_steps=2))
    size = engine.cache.bytes_allocated
    lengths = {}
    for block in range(12):
        engine.observe(_frames(4, seed=block % 7), _stamps(4, start=4 * block))
        for step in (2 * block, 2 * block + 1):
            lengths[step] = sum(map(len, adapter.step_text(step, step + 0.25)))
        cache = engine.cache
        assert cache.video_tokens <= cap
        assert cache.bytes_allocated == size
        for steps, rows, cols in zip(
            cache.steps.flatten(0, 1), cache.rows.flatten(0, 1), cache.cols.flatten(0, 1),
            strict=True,
        ):  # fmt: skip
            for step in steps[rows >= 0].unique().tolist():
                text = sorted(cols[(steps == step) & (rows < 0)].tolist())
                assert text == list(range(lengths[step]))
    assert engine.stats().compressions > 3
    assert lengths[2] < lengths[23]
