"""Batches: every index points at the right token, and masks, weights and positions are right."""

from __future__ import annotations

import re

import pytest
import torch

from infinipot_ros.roomworld.phrasings import ALL, PHRASINGS, TRAINED
from infinipot_ros.roomworld.training.batches import Batch, BatchBuilder
from infinipot_ros.roomworld.training.config import ModelShape
from infinipot_ros.roomworld.training.plans import BRANCH_LENGTH
from infinipot_ros.roomworld.vocabulary import COLORS, KINDS, QUESTION_KINDS, ROOMS

SEEN = -1e8
"""Additive masks block by less than this."""
THING = rf"\b(?:(?:{'|'.join(COLORS)}) )?(?:{'|'.join(KINDS)})(?: in the (?:{'|'.join(ROOMS)}))?\b"
HELD_BACK = set(ALL) - set(TRAINED)


@pytest.fixture(scope="module")
def builder(pool, tokenizer) -> BatchBuilder:
    return BatchBuilder(pool, tokenizer.get_vocab())


def branches(batch: Batch, tokenizer):
    """Yield row, column and the tokens of every question that was asked."""
    shared = batch.shared_mask.shape[-1]
    for row in range(len(batch.ids)):
        for column, answer in enumerate(batch.answer_ids[row].tolist()):
            if answer >= 0:
                start = shared + column * BRANCH_LENGTH
                ids = batch.ids[row, start : start + BRANCH_LENGTH].tolist()
                yield row, column, tokenizer.convert_ids_to_tokens(ids)


def shown(batch: Batch, row: int, column: int) -> torch.Tensor:
    """Return the additive mask of a question over the shared tokens."""
    group, within = divmod(column, batch.branch_mask.shape[2] // BRANCH_LENGTH)
    shared = batch.shared_mask.shape[-1]
    return batch.branch_mask[row, group, within * BRANCH_LENGTH, :shared]


def own_kinds(history: torch.Tensor) -> torch.Tensor:
    """Return the kind at every token, the only one its history does not ask for, or -1: [n]."""
    kinds = history[:, : len(KINDS)]
    assert ((kinds == -1).sum(-1)[history[:, -1] >= 0] == 1).all()
    return (kinds == -1).long().argmax(-1).masked_fill(history[:, -1] < 0, -1)


def numbers_of(text: str) -> set[int]:
    """Return the numbers of the phrasings that a question without its mark may be."""
    bare = re.sub(THING, "{}", text)
    return {
        number
        for templates in PHRASINGS.values()
        for number, template in enumerate(templates)
        if re.sub(r"\{\w\}", "{}", template)[:-2] == bare
    }


def test_batches_point_at_the_right_tokens(builder, tokenizer, plan) -> None:
    asked = 0
    for seed in range(12):
        batch = builder.draw(plan(seed=(seed,), n_questions=12))
        shared = batch.shared_mask.shape[-1]
        for row, column, tokens in branches(batch, tokenizer):
            start = shared + column * BRANCH_LENGTH
            at, end, referent = (
                int(index[row, column]) - start
                for index in (batch.answer_at, batch.question_end_at, batch.referent_at)
            )
            assert tokens[0] == "<|vision_end|>"
            assert tokens[at - 2 : at + 1] == ["<|im_end|>", "<|im_start|>", "assistant"]
            assert batch.ids[row, start + at + 1] == batch.answer_ids[row, column]
            assert at + 1 < BRANCH_LENGTH
            assert tokens[end + 1] == "<|im_end|>"
            question = tokens[1 : end + 1]
            if any(word in KINDS for word in question):
                assert tokens[referent] in (*KINDS, *ROOMS)
            else:
                last = end - 1 if question[-1] in "?." else end
                assert referent == last
            assert 0 <= int(batch.kinds[row, column]) < len(QUESTION_KINDS)
            asked += 1
    assert asked > 150


def test_held_out_phrasings_are_neither_trained_nor_judged_by(builder, tokenizer, plan) -> None:
    for training in (True, False):
        said: set[int] = set()
        marks = 0
        texts = []
        for seed in range(30):
            batch = builder.draw(plan(seed=(seed,), n_questions=16, training=training))
            for row, column, tokens in branches(batch, tokenizer):
                end = int(batch.question_end_at[row, column]) - int(batch.answer_at[row, column])
                at = tokens.index("assistant")
                texts.append(" ".join(tokens[1 : at + end + 1]))
        for text in texts:
            marked = text.endswith((" ?", " ."))
            marks += marked
            numbers = numbers_of(text[:-2] if marked else text)
            assert numbers, text
            said |= numbers
            assert numbers - HELD_BACK, text
        assert said >= set(TRAINED)
        assert marks == len(texts) if not training else 0.8 < marks / len(texts) < 0.97


def test_positions_follow_the_convention_of_the_engine(builder, plan) -> None:
    batch = builder.draw(plan(gap_share=0.0, training=False))
    prefix, shared = batch.prefix, batch.prefix + 6 * 9
    for row in range(len(batch.ids)):
        time, height, width = batch.positions[:, row, prefix:shared].reshape(3, 6, 3, 3)
        assert torch.equal(time[:, 0, 0], prefix + torch.arange(6))
        assert torch.equal(height[2, :, 1], prefix + torch.arange(3))
        assert torch.equal(width[4, 0], prefix + torch.arange(3))
        text = batch.positions[:, row, shared : shared + BRANCH_LENGTH]
        assert torch.equal(text, (prefix + 6 + torch.arange(BRANCH_LENGTH)).expand(3, -1))


def test_gaps_keep_the_order_and_the_trained_span(builder, plan) -> None:
    largest = 0
    for seed in range(25):
        n_steps = (6, 48, 96)[seed % 3]
        batch = builder.draw(plan(seed=(seed,), gap_share=1.0, n_steps=n_steps, n_questions=1))
        times = batch.positions[0, :, batch.prefix : batch.shared_mask.shape[-1] : 9]
        assert (times.diff() >= 1).all()
        largest = max(largest, int(batch.positions.max()))
    assert 600 < largest < ModelShape().max_positions


def test_a_batch_follows_from_its_plan(builder, plan) -> None:
    one, other = (builder.draw(plan(thinned=0.4, longest=100)) for _ in range(2))
    for a, b in zip(one[:-1], other[:-1], strict=True):
        assert torch.equal(a, b)
    assert not torch.equal(one.video, builder.draw(plan(seed=(6,), thinned=0.4)).video)


def test_questions_see_whole_steps_up_to_their_moment(builder, tokenizer, plan) -> None:
    seen = set()
    for seed in range(10):
        batch = builder.draw(plan(seed=(seed,), evicted_share=0.0))
        for row, column, _ in branches(batch, tokenizer):
            visible = shown(batch, row, column) > SEEN
            n = int(visible.sum())
            assert visible[:n].all()
            assert (n - batch.prefix) % 9 == 0
            seen.add((n - batch.prefix) // 9)
            # A question's own position follows on what it has seen.
            after = int(batch.positions[0, row, n - 1])
            at = batch.answer_at[row, column]
            assert batch.positions[0, row, at] > after
    assert seen == set(range(1, 7))
    judged = builder.draw(plan(training=False, evicted_share=0.0))
    for row, column, _ in branches(judged, tokenizer):
        assert (shown(judged, row, column) > SEEN).all()


def test_shared_tokens_see_those_before_them(builder, plan) -> None:
    mask = builder.draw(plan()).shared_mask
    n = mask.shape[-1]
    assert torch.equal(mask > SEEN, torch.ones(n, n, dtype=torch.bool).tril().expand_as(mask))


def test_a_branch_sees_itself_only(builder, plan) -> None:
    batch = builder.draw(plan(n_questions=12))
    shared = batch.shared_mask.shape[-1]
    own = batch.branch_mask[..., shared:] == 0
    each = own.shape[-1] // BRANCH_LENGTH
    block = torch.ones(BRANCH_LENGTH, BRANCH_LENGTH, dtype=torch.bool).tril()
    assert torch.equal(own, torch.block_diag(*[block] * each).bool().expand_as(own))
    assert (batch.branch_mask[..., shared:][~own] < SEEN).all()


def test_eviction_leaves_every_object_a_token(builder, tokenizer, plan) -> None:
    for seed in range(12):
        batch = builder.draw(plan(seed=(seed,), evicted_share=1.0, n_steps=16))
        for row in range(len(batch.ids)):
            kept = torch.zeros(batch.video.shape[1], dtype=torch.bool)
            for column in range(batch.answer_ids.shape[1]):
                kept |= shown(batch, row, column)[batch.prefix :] > SEEN
            # One token of every kind that was met is left, or the question would have no answer.
            own = own_kinds(batch.history[row])
            until = int(kept.nonzero().max()) if kept.any() else -1
            assert set(own[kept].tolist()) - {-1} == set(own[: until + 1].tolist()) - {-1}
        assert 0.0 < kept.float().mean() < 1.0


def test_thinning_keeps_all_objects_and_the_mass_of_the_rest(builder, plan) -> None:
    for seed in range(30):
        settings = {
                "seed": (seed,), "n_streams": 1, "n_steps": 24, "gap_share": 0.0, "training": False,
            }  # fmt: skip
        whole = builder.draw(plan(**settings, thinned=1.0))
        thin = builder.draw(plan(**settings, thinned=0.33))
        assert thin.video.shape[1] == round(0.33 * 24 * 9) < whole.video.shape[1]
        things, left = whole.history[0, :, -1] >= 0, thin.history[0, :, -1] >= 0
        assert torch.equal(thin.history[0][left], whole.history[0][things])
        assert torch.equal(thin.video[0][left], whole.video[0][things])
        weights = thin.shared_mask[0, 0, -1, thin.prefix :].exp()
        assert torch.equal(weights[left], torch.ones(int(left.sum())))
        others = int((~things).sum())
        assert float(weights[~left].sum()) == pytest.approx(others, rel=1e-5)
        whole_weights = whole.shared_mask[0, 0, -1]
        assert (whole_weights == 0).all()
        positions = thin.positions[:, 0, thin.prefix : thin.shared_mask.shape[-1]]
        assert (positions[0].diff() >= 0).all()
        assert set(positions[0].tolist()) <= set(whole.positions[0, 0].tolist())


def test_streams_with_many_objects_lose_none_by_thinning(builder, plan) -> None:
    """An object token tells the kinds before it; none of their tokens may be missing."""
    crowded = 0
    for seed in range(40):
        batch = builder.draw(plan(seed=(seed,), n_streams=4, n_steps=12, thinned=0.33))
        for history in batch.history:
            met: set[int] = set()
            for row, own in zip(history, own_kinds(history).tolist(), strict=True):
                if own >= 0:
                    assert set((row[: len(KINDS)] == 1).nonzero()[:, 0].tolist()) == met - {own}
                    met.add(own)
            crowded += len(met) > 4
    assert crowded > 5


def test_questions_and_shared_tokens_attend_by_the_same_weights(builder, tokenizer, plan) -> None:
    heaviest = 0.0
    for seed in range(12):
        batch = builder.draw(plan(seed=(seed,), evicted_share=0.0, longest=1500))
        for row, column, _ in branches(batch, tokenizer):
            log_weights = batch.shared_mask[row, 0, -1]
            seen = shown(batch, row, column)
            assert torch.equal(seen[seen > SEEN], log_weights[seen > SEEN])
            assert (log_weights[: batch.prefix] == 0).all()
            # A stay lasts longer as a whole, and never shorter than it is.
            steps = log_weights[batch.prefix :].view(-1, 9)
            assert (steps == steps[:, :1]).all()
            assert (steps >= 0).all()
            heaviest = max(heaviest, float(steps.max()))
    assert heaviest > 3.0  # some stays of a six-step stream look like minutes


def test_other_system_prompts_are_trained_on(builder, plan) -> None:
    prefixes = {builder.draw(plan(seed=(seed,), n_streams=1)).prefix for seed in range(40)}
    assert len(prefixes) > 2
    judged = {builder.draw(plan(seed=(s,), n_streams=1, training=False)).prefix for s in range(10)}
    assert len(judged) == 1
