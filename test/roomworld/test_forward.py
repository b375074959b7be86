"""The lean forward passes compute what the library's modules compute, on every branch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from infinipot_ros.roomworld.scenes import IMAGE_SIZE
from infinipot_ros.roomworld.training.architecture import (
    PATCH_GRID,
    aim_heads,
    build_model,
    build_tokenizer,
)
from infinipot_ros.roomworld.training.batches import Batch, BatchBuilder
from infinipot_ros.roomworld.training.config import ModelShape
from infinipot_ros.roomworld.training.forward import encode_steps, patchify, run_language_model
from infinipot_ros.roomworld.training.plans import BRANCH_LENGTH
from infinipot_ros.roomworld.vocabulary import KINDS

SEEN = -1e8
"""Additive masks block by less than this."""


def embed(model, batch: Batch) -> torch.Tensor:
    embedded = model.get_input_embeddings().weight[batch.ids]
    embedded[:, batch.prefix : batch.shared_mask.shape[-1]] = batch.video.float()
    return embedded


def ours(model, batch: Batch) -> torch.Tensor:
    hidden, _ = run_language_model(
        model.model.language_model,
        embed(model, batch),
        batch.positions,
        batch.shared_mask,
        batch.branch_mask,
        (1,),
    )
    return hidden


def theirs(model, batch: Batch, row: int, question: int, copies: torch.Tensor) -> torch.Tensor:
    """Run one branch through the library, with as many copies of every shared token as given.

    Copies stand at one position and see one another: together they are one heavy token.
    """
    shared = batch.shared_mask.shape[-1]
    group, within = divmod(question, batch.branch_mask.shape[2] // BRANCH_LENGTH)
    seen = batch.branch_mask[row, group, within * BRANCH_LENGTH, :shared] > SEEN
    start = shared + question * BRANCH_LENGTH
    tokens = torch.cat(
        [
            torch.arange(shared)[seen].repeat_interleave(copies[seen]),
            torch.arange(start, start + BRANCH_LENGTH),
        ]
    )
    mask = torch.where(tokens[None] <= tokens[:, None], 0.0, -torch.inf)[None, None]
    return (
        model.model.language_model(
            inputs_embeds=embed(model, batch)[row : row + 1, tokens],
            position_ids=batch.positions[:, row : row + 1, tokens],
            attention_mask=mask,
            use_cache=False,
        )
        .last_hidden_state[0, -BRANCH_LENGTH:]
        .detach()
    )


def weighted(batch: Batch, copies: torch.Tensor) -> Batch:
    """Give every shared token the weight of so many copies; copies is int64 [b, shared]."""
    log_weights, shared = copies.float().log(), copies.shape[1]
    shared_mask, branch_mask = batch.shared_mask.clone(), batch.branch_mask.clone()
    for mask in (shared_mask, branch_mask[..., :shared]):
        mask.copy_(torch.where(mask > SEEN, log_weights[:, None, None], mask))
    return batch._replace(shared_mask=shared_mask, branch_mask=branch_mask)


def test_vision_equals_the_library(model) -> None:
    frames = torch.from_numpy(
        np.random.default_rng(0).integers(0, 256, (3, 2, IMAGE_SIZE, IMAGE_SIZE, 3), dtype=np.uint8)
    )
    with torch.no_grad():
        lean = encode_steps(model.model.visual, frames).flatten(0, 1)
        grid = torch.tensor([[3, PATCH_GRID, PATCH_GRID]])
        library = model.model.visual(patchify(frames), grid_thw=grid)
    library = library.pooler_output if hasattr(library, "pooler_output") else library
    assert torch.allclose(lean, library, atol=1e-5)


@pytest.mark.parametrize("heaviest", [1, 4])
@torch.no_grad()
def test_language_model_equals_the_library_on_every_branch(
    model, pool, tokenizer, plan, heaviest: int
) -> None:
    """Twelve questions attend in three groups; a key of weight w is w copies of it."""
    builder = BatchBuilder(pool, tokenizer.get_vocab())
    batch = builder.draw(plan(evicted_share=0.0, n_questions=12))
    assert batch.branch_mask.shape[1:3] == (3, 4 * BRANCH_LENGTH)
    generator = torch.Generator().manual_seed(0)
    size = batch.shared_mask[:, 0, 0].shape
    copies = torch.randint(1, heaviest + 1, size, generator=generator)
    batch = weighted(batch, copies)
    lean = ours(model, batch)
    shared = size[1]
    for row in range(len(batch.ids)):
        for question in range(batch.answer_ids.shape[1]):
            start = shared + question * BRANCH_LENGTH
            library = theirs(model, batch, row, question, copies[row])
            assert torch.allclose(lean[row, start : start + BRANCH_LENGTH], library, atol=3e-4)


@torch.no_grad()
def test_weights_matter(model, pool, tokenizer, plan) -> None:
    batch = BatchBuilder(pool, tokenizer.get_vocab()).draw(plan(evicted_share=0.0))
    ones = torch.ones(batch.shared_mask[:, 0, 0].shape, dtype=torch.int64)
    heavy = ones.clone()
    heavy[:, 20] = 50
    light, other = (ours(model, weighted(batch, copies)) for copies in (ones, heavy))
    assert not torch.allclose(light[:, -1], other[:, -1], atol=1e-2)
    # What comes before the heavy token does not see it.
    assert torch.equal(light[:, :20], other[:, :20])


@torch.no_grad()
def test_the_states_of_the_asked_layers_come_back(model, pool, tokenizer, plan) -> None:
    batch = BatchBuilder(pool, tokenizer.get_vocab()).draw(plan())
    hidden, tapped = run_language_model(
        model.model.language_model,
        embed(model, batch),
        batch.positions,
        batch.shared_mask,
        batch.branch_mask,
        (0, 2),
    )
    norm = model.model.language_model.norm
    assert [states.shape for states in tapped] == [hidden.shape] * 2
    assert torch.allclose(norm(tapped[1]), hidden, atol=1e-4)
    assert not torch.allclose(norm(tapped[0]), hidden, atol=1e-1)


def test_an_aimed_head_attends_to_the_same_word_at_any_distance() -> None:
    """Rotated by any difference of positions, a key of the same word scores higher than others."""
    tokenizer = build_tokenizer()
    model = build_model(ModelShape(layers=2), tokenizer, seed=5)
    words = (
        model.get_input_embeddings()
        .weight[[tokenizer.get_vocab()[kind] for kind in KINDS]]
        .detach()
    )
    aim_heads(model, words, layer=1, strength=1.2)
    attention = model.model.language_model.layers[1].self_attn
    states = torch.nn.functional.rms_norm(words, (words.shape[1],))
    inv_freq = model.model.language_model.rotary_emb.inv_freq
    with torch.no_grad():
        queries, keys = (
            projected(states)[:, :32] for projected in (attention.q_proj, attention.k_proj)
        )
        for distance in (0, 3, 90, 800):
            angles = (distance * inv_freq).repeat(2)
            swapped = torch.cat([-queries[:, 16:], queries[:, :16]], -1)
            turned = queries * angles.cos() + swapped * angles.sin()
            assert torch.equal((turned @ keys.T).argmax(-1), torch.arange(len(KINDS)))
