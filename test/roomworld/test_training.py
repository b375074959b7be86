"""The training: right labels, right forward passes, exact resumption, a loadable result."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from infinipot_ros.roomworld.questions import Knowledge
from infinipot_ros.roomworld.scenes import Scene, SceneObject, random_scene
from infinipot_ros.roomworld.training.architecture import build_model, build_tokenizer
from infinipot_ros.roomworld.training.batches import BRANCH_LENGTH, BatchBuilder, BatchPlan
from infinipot_ros.roomworld.training.config import ModelShape, smoke_config
from infinipot_ros.roomworld.training.forward import encode_steps, patchify, run_language_model
from infinipot_ros.roomworld.training.pool import encode_pool, load_pool, save_pool
from infinipot_ros.roomworld.training.streams import draw_stream, kinds_before
from infinipot_ros.roomworld.training.trainer import Trainer
from infinipot_ros.roomworld.training.views import NO_KIND, Photographer, View
from infinipot_ros.roomworld.training.workers import ordered_map
from infinipot_ros.roomworld.vocabulary import KINDS, NUMBERS, QUESTION_KINDS

SHAPE = ModelShape(layers=3, vision_depth=2)


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer()


@pytest.fixture(scope="module")
def model(tokenizer):
    made = build_model(SHAPE, tokenizer, seed=3)
    with torch.no_grad():  # far from the near-zero start, so that every part matters
        for parameter in made.parameters():
            parameter.mul_(3.0 if parameter.ndim > 1 else 1.0)
    return made.eval()


@pytest.fixture(scope="module")
def pool(model):
    return encode_pool(model.model.visual, (1, 2), n_scenes=120, processes=1)


def plan(**changes) -> BatchPlan:
    values = {
        "seed": (5,), "n_streams": 2, "n_steps": 6, "n_questions": 8,
        "kind_weights": (1.0,) * len(QUESTION_KINDS), "gap_share": 0.5, "max_position_span": 450,
        "evicted_share": 0.5, "training": True, **changes,
    }  # fmt: skip
    return BatchPlan(**values)


def test_vision_equals_the_library(model) -> None:
    frames = torch.from_numpy(
        np.random.default_rng(0).integers(0, 256, (3, 2, 84, 84, 3), dtype=np.uint8)
    )
    with torch.no_grad():
        ours = encode_steps(model.model.visual, frames).flatten(0, 1)
        theirs = model.model.visual(patchify(frames), grid_thw=torch.tensor([[3, 6, 6]]))
    theirs = theirs.pooler_output if hasattr(theirs, "pooler_output") else theirs
    assert torch.allclose(ours, theirs, atol=1e-5)


def test_language_model_equals_the_library_on_every_branch(model, pool, tokenizer) -> None:
    batch = BatchBuilder(pool, tokenizer.get_vocab()).draw(plan(evicted_share=0.0))
    words = model.get_input_embeddings().weight
    shared = batch.prefix + batch.video.shape[1]
    embedded = words[batch.ids]
    embedded[:, batch.prefix : shared] = batch.video.float()
    with torch.no_grad():
        ours, _ = run_language_model(
            model.model.language_model, embedded, batch.positions, shared, batch.branch_mask, 1
        )
        for row in range(len(batch.ids)):
            for question in range(batch.answer_ids.shape[1]):
                start = shared + question * BRANCH_LENGTH
                allowed = batch.branch_mask[row, 0, question * BRANCH_LENGTH, :shared] == 0
                own = torch.arange(start, start + BRANCH_LENGTH)
                tokens = torch.cat([allowed.nonzero()[:, 0], own])
                alone = model.model.language_model(
                    inputs_embeds=embedded[row : row + 1, tokens],
                    position_ids=batch.positions[:, row : row + 1, tokens],
                    attention_mask=torch.ones(1, len(tokens), dtype=torch.long),
                    use_cache=False,
                ).last_hidden_state[0]
                assert torch.allclose(ours[row, own], alone[-BRANCH_LENGTH:], atol=2e-4)


def test_batches_point_at_the_right_tokens(pool, tokenizer) -> None:
    batch = BatchBuilder(pool, tokenizer.get_vocab()).draw(plan())
    for row in range(len(batch.ids)):
        tokens = tokenizer.convert_ids_to_tokens(batch.ids[row].tolist())
        for column, answer in enumerate(batch.answer_ids[row].tolist()):
            if answer < 0:
                continue
            at = int(batch.answer_at[row, column])
            assert tokens[at - 2 : at + 1] == ["<|im_end|>", "<|im_start|>", "assistant"]
            assert batch.ids[row, at + 1] == answer
            end = int(batch.question_end_at[row, column])
            assert tokens[end + 1] == "<|im_end|>"
            referent = tokens[int(batch.referent_at[row, column])]
            assert referent in (*KINDS, "see", "first", "last")


def test_positions_follow_the_convention_of_the_engine(pool, tokenizer) -> None:
    batch = BatchBuilder(pool, tokenizer.get_vocab()).draw(plan(gap_share=0.0, training=False))
    prefix, shared = batch.prefix, batch.prefix + 6 * 9
    for row in range(len(batch.ids)):
        time, height, width = batch.positions[:, row, prefix:shared].reshape(3, 6, 3, 3)
        assert torch.equal(time[:, 0, 0], prefix + torch.arange(6))
        assert torch.equal(height[2, :, 1], prefix + torch.arange(3))
        assert torch.equal(width[4, 0], prefix + torch.arange(3))
        text = batch.positions[:, row, shared : shared + BRANCH_LENGTH]
        assert torch.equal(text, (prefix + 6 + torch.arange(BRANCH_LENGTH)).expand(3, -1))


def test_gaps_keep_the_order_and_the_trained_span(pool, tokenizer) -> None:
    builder = BatchBuilder(pool, tokenizer.get_vocab())
    largest = 0
    for seed in range(20):
        batch = builder.draw(plan(seed=(seed,), gap_share=1.0))
        times = batch.positions[0, :, batch.prefix : batch.prefix + 54 : 9]
        assert (times.diff() >= 1).all()
        largest = max(largest, int(batch.positions.max()))
    assert 200 < largest < ModelShape().max_positions


def test_a_batch_follows_from_its_plan(pool, tokenizer) -> None:
    one, other = (BatchBuilder(pool, tokenizer.get_vocab()).draw(plan()) for _ in range(2))
    for a, b in zip(one[:-1], other[:-1], strict=True):
        assert torch.equal(a, b)
    different = BatchBuilder(pool, tokenizer.get_vocab()).draw(plan(seed=(6,)))
    assert not torch.equal(one.video, different.video)


def test_eviction_leaves_every_object_a_token(pool, tokenizer) -> None:
    batch = BatchBuilder(pool, tokenizer.get_vocab()).draw(plan(evicted_share=1.0))
    shared = batch.prefix + batch.video.shape[1]
    for row in range(len(batch.ids)):
        kept = (batch.branch_mask[row, 0, :, batch.prefix : shared] == 0).any(0)
        assert 0.2 < kept.float().mean() < 1.0


def test_streams_know_what_their_tokens_show(pool) -> None:
    """Kinds labelled at the tokens until a step are exactly those that can be asked about."""
    rng = np.random.default_rng(4)
    for _ in range(30):
        stream = draw_stream(rng, pool, 16)
        labels = pool.kinds[stream.scenes, stream.views]
        for step in range(16):
            shown = {KINDS[k] for k in np.unique(labels[: step + 1]) if 0 <= k < NO_KIND}
            known: Knowledge = stream.knowledge(step)
            assert shown == {sighting.kind for sighting in known.sightings}
            assert len(known.sightings) < len(NUMBERS)
            if known.visible is not None:
                now = {KINDS[k] for k in np.unique(labels[step]) if 0 <= k < NO_KIND}
                assert now == set(known.visible)


def test_history_labels_are_the_kinds_at_earlier_tokens(pool) -> None:
    stream = draw_stream(np.random.default_rng(9), pool, 12)
    labels = kinds_before(pool, stream)
    at_token = pool.kinds[stream.scenes, stream.views].reshape(-1)
    for token, row in enumerate(labels):
        own = at_token[token]
        if not 0 <= own < NO_KIND:
            assert (row == -1).all()
            continue
        for kind in range(len(KINDS)):
            expected = -1 if kind == own else int(kind in at_token[:token])
            assert row[kind] == expected


def test_photographs_label_the_cell_of_an_object() -> None:
    cup = SceneObject("cup", "red", "right", 31, x=70, y=63)
    photographer = Photographer(Scene("office", (cup,), look=1), np.random.default_rng(0))
    taken = photographer.take(View.DWELL_A)
    assert taken.kinds.reshape(3, 3)[2, 2] == KINDS.index("cup")
    assert taken.colors.reshape(3, 3)[2, 2] == 0
    assert taken.kinds.reshape(3, 3)[0, 0] == NO_KIND
    gone = photographer.take(View.WITHOUT_A)
    assert (gone.kinds == NO_KIND).all()


def test_a_vanishing_object_is_in_the_first_frame_only() -> None:
    scene = random_scene(np.random.default_rng(2), "garage", 1)
    first, second = Photographer(scene, np.random.default_rng(1)).take(View.VANISH).frames
    still = Photographer(scene, np.random.default_rng(1)).take(View.DWELL_A).frames
    difference = np.abs(first.astype(int) - second).mean()
    assert difference > 2 * np.abs(still[0].astype(int) - still[1]).mean()


def test_a_pool_survives_its_file(pool, tmp_path) -> None:
    save_pool(pool, tmp_path / "pool.pt")
    again = load_pool(tmp_path / "pool.pt")
    assert again.scenes == pool.scenes
    assert np.array_equal(again.tokens, pool.tokens)
    assert np.array_equal(again.kinds, pool.kinds)


def train(folder: Path, *options: str) -> int:
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "infinipot_ros.roomworld.train",
            "--out",
            folder,
            "--smoke",
            *options,
        ],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    ).returncode


def test_a_resumed_training_ends_as_an_uninterrupted_one(smoke_training, tmp_path) -> None:
    folder = tmp_path / "interrupted"
    for number, steps in enumerate((3, 2, 3, None)):
        options = ["--resume"] if number else []
        stop = [] if steps is None else ["--stop-after", str(steps)]
        assert train(folder, *options, *stop) == (0 if steps is None else 1)
    whole, parts = (
        torch.load(f / "checkpoint.pt", weights_only=True) for f in (smoke_training, folder)
    )
    assert whole["language"]["step"] == parts["language"]["step"] > 0
    for name, tensor in whole["model"].items():
        assert torch.equal(tensor, parts["model"][name]), name
    assert str(whole["language"]["optimizer"]) == str(parts["language"]["optimizer"])


def test_a_checkpoint_is_neither_overwritten_nor_misused(smoke_training) -> None:
    assert train(smoke_training) == 2  # refused: --resume was not given
    with pytest.raises(ValueError, match="another configuration"):
        Trainer(smoke_config(seed=99), smoke_training)


def test_the_exported_folder_loads_and_answers(smoke_training) -> None:
    from infinipot_ros.core import EngineConfig, StreamEngine

    engine = StreamEngine.from_pretrained(
        str(smoke_training / "model"), EngineConfig(policy="full", max_new_tokens=2)
    )
    engine.observe(np.zeros((4, 84, 84, 3), np.uint8), [0, 1, 2, 3])
    assert engine.stats().tokens_retained == 2 * 9
    assert engine.ask("did you see a cup ?").n_tokens >= 1


def test_worker_processes_change_nothing() -> None:
    jobs = [-3, 1, -2, 5, -8, 0, 4]
    assert list(ordered_map(abs, jobs, processes=2)) == list(ordered_map(abs, jobs, processes=1))
