"""The side tasks: who knows everything has no loss, and what is not asked teaches nothing."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from infinipot_ros.roomworld.training.batches import Batch, BatchBuilder
from infinipot_ros.roomworld.training.facts import N_FACTS, PROPERTIES
from infinipot_ros.roomworld.training.side_tasks import (
    FactsTask,
    HistoryTask,
    naming_loss,
    state_at,
)
from infinipot_ros.roomworld.vocabulary import COLORS, KINDS, MAX_COUNT, QUESTION_KINDS, ROOMS

SIZES = [*map(len, PROPERTIES), len(KINDS)]
SURE = 60.0


@pytest.fixture(scope="module")
def batch(pool, tokenizer, plan) -> Batch:
    """A batch in which things are named in all ways, for colours are asked for the most."""
    weights = tuple(6.0 if kind == "color" else 1.0 for kind in QUESTION_KINDS)
    settings = {"n_streams": 6, "n_steps": 24, "n_questions": 24, "kind_weights": weights}
    drawn = BatchBuilder(pool, tokenizer.get_vocab()).draw(plan(**settings))
    assert (drawn.named >= 0).any(1).any(0).all()
    return drawn


def one_hot(labels: Tensor, size: int) -> Tensor:
    """Return float32 [..., size], all zero where the label is -1."""
    encoded = torch.nn.functional.one_hot(labels.long() + 1, size + 1)[..., 1:]
    return encoded.float()


def signs(came: Tensor) -> Tensor:
    """Return 1 for yes, -1 for no, 0 for what is not asked."""
    return came.float().mul(2).sub(1).masked_fill(came < 0, 0.0)


def read_out(head: torch.nn.Linear, first: int) -> None:
    """Let a head read its outputs off the states, one by one from dimension `first` on."""
    n = head.out_features
    with torch.no_grad():
        head.weight.zero_()
        head.weight[:, first : first + n] = SURE * torch.eye(n)


def scattered(batch: Batch, states: Tensor) -> Tensor:
    """Put states [b, q, hidden] at the referents of their questions: [b, s, hidden]."""
    hidden = torch.zeros(*batch.ids.shape, states.shape[-1])
    index = batch.referent_at[..., None].expand_as(states)
    asked = (batch.answer_ids >= 0)[..., None]
    return hidden.scatter_add(1, index, states * asked)


def test_states_are_picked_where_they_are_asked_for() -> None:
    hidden = torch.arange(24, dtype=torch.float16).view(2, 4, 3)
    index = torch.tensor([[0, 3], [2, 2]])
    picked = state_at(hidden, index, torch.tensor([[True, True], [False, True]]))
    assert picked.dtype == torch.float32
    assert torch.equal(picked, torch.stack([hidden[0, 0], hidden[0, 3], hidden[1, 2]]).float())


class TestHistory:
    def loss(self, task: HistoryTask, history: Tensor, states: Tensor) -> Tensor:
        return task(states, states, history)

    def knowing(self, history: Tensor) -> tuple[HistoryTask, Tensor]:
        """Return a task and states that hold the history as it is."""
        n = len(KINDS)
        states = torch.cat(
            [
                signs(history[..., :n]),
                one_hot(history[..., n], len(ROOMS) + 1),
                one_hot(history[..., n + 1], MAX_COUNT + 1),
            ],
            -1,
        )
        task = HistoryTask(states.shape[-1])
        read_out(task.kinds_head, 0)
        read_out(task.room_head, n)
        read_out(task.count_head, n + len(ROOMS) + 1)
        return task, states

    @torch.no_grad()
    def test_who_knows_all_has_no_loss(self, batch) -> None:
        task, states = self.knowing(batch.history)
        assert float(self.loss(task, batch.history, states)) < 1e-3
        assert float(self.loss(task, batch.history, -states)) > 10.0

    def test_every_head_is_taught_from_the_start(self, batch) -> None:
        task = HistoryTask(8)
        loss = self.loss(task, batch.history, torch.randn(*batch.history.shape[:2], 8))
        torch.autograd.backward(loss)
        assert torch.isfinite(loss)
        assert float(loss.detach()) > 1.0
        for head in (task.kinds_head, task.room_head, task.count_head):
            assert torch.isfinite(head.weight.grad).all()
            assert (head.weight.grad != 0).any(-1).all()

    @torch.no_grad()
    def test_the_number_is_read_off_the_later_layer(self, batch) -> None:
        task, states = self.knowing(batch.history)
        blind = torch.randn_like(states)
        assert float(task(states, blind, batch.history)) > 1.0
        early = torch.zeros_like(states)
        early[..., : len(KINDS) + len(ROOMS) + 1] = states[..., : len(KINDS) + len(ROOMS) + 1]
        assert float(task(early, states, batch.history)) < 1e-3

    def test_only_object_tokens_teach(self, batch) -> None:
        task = HistoryTask(8)
        for head in (task.kinds_head, task.room_head, task.count_head):
            torch.nn.init.normal_(head.weight)
        early, late = (torch.randn(*batch.history.shape[:2], 8, requires_grad=True) for _ in "ab")
        torch.autograd.backward(task(early, late, batch.history))
        things = batch.history[..., -1] >= 0
        for states in (early, late):
            assert (states.grad[~things] == 0).all()
            assert (states.grad[things] != 0).any(-1).all()

    def test_the_own_kind_teaches_nothing(self) -> None:
        history = torch.tensor([[[-1, *[0] * (len(KINDS) - 1), len(ROOMS), 0]]], dtype=torch.int8)
        task = HistoryTask(8)
        torch.autograd.backward(self.loss(task, history, torch.randn(1, 1, 8)))
        taught = (task.kinds_head.weight.grad != 0).any(-1)
        assert taught.tolist() == [False, *[True] * (len(KINDS) - 1)]

    @torch.no_grad()
    def test_streams_without_objects_have_no_loss(self) -> None:
        history = torch.full((2, 9, len(KINDS) + 2), -1, dtype=torch.int8)
        assert float(self.loss(HistoryTask(8), history, torch.randn(2, 9, 8))) == 0.0


class TestFacts:
    def knowing(self, batch: Batch) -> tuple[FactsTask, Tensor]:
        """Return a task and states that hold the facts as they are."""
        n = len(PROPERTIES)
        columns = [one_hot(batch.facts[..., i], size) for i, size in enumerate(SIZES[:n])]
        states = torch.cat([*columns, signs(batch.facts[..., n:])], -1)
        task = FactsTask(states.shape[-1])
        read_out(task.head, 0)
        return task, scattered(batch, states)

    def only(self, batch: Batch, facts: list[int]) -> Batch:
        """Return the batch with one question that knows these facts."""
        known = torch.full_like(batch.facts, -1)
        known[0, 0] = torch.tensor(facts)
        return batch._replace(facts=known)

    @torch.no_grad()
    def test_who_knows_all_has_no_loss(self, batch) -> None:
        assert int((batch.facts >= 0).any(-1).sum()) > 20
        task, hidden = self.knowing(batch)
        assert float(task(hidden, batch)) < 1e-3
        assert float(task(-hidden, batch)) > 10.0

    def test_all_of_the_head_is_taught_from_the_start(self, batch) -> None:
        task = FactsTask(8)
        loss = task(torch.randn(*batch.ids.shape, 8), batch)
        torch.autograd.backward(loss)
        assert torch.isfinite(loss)
        assert float(loss.detach()) > 1.0
        assert torch.isfinite(task.head.weight.grad).all()
        assert (task.head.weight.grad != 0).any(-1).all()

    def test_only_the_last_words_of_known_things_teach(self, batch) -> None:
        task = FactsTask(8)
        torch.nn.init.normal_(task.head.weight)
        hidden = torch.randn(*batch.ids.shape, 8, requires_grad=True)
        torch.autograd.backward(task(hidden, batch))
        known = (batch.facts >= 0).any(-1)
        expected = {
            (row, int(batch.referent_at[row, column])) for row, column in known.nonzero().tolist()
        }
        assert set(map(tuple, (hidden.grad != 0).any(-1).nonzero().tolist())) == expected

    def test_what_is_not_asked_teaches_nothing(self, batch) -> None:
        some = self.only(batch, [2, 1, 0, 4, -1, *[0] * 5, -1, *[1] * 5])
        task = FactsTask(8)
        torch.autograd.backward(task(torch.randn(*batch.ids.shape, 8), some))
        *_, kinds = (task.head.weight.grad != 0).any(-1).split(SIZES)
        assert kinds.tolist() == [False, *[True] * 5, False, *[True] * 5]

    @torch.no_grad()
    def test_questions_without_a_known_thing_have_no_loss(self, batch) -> None:
        none = self.only(batch, [-1] * N_FACTS)
        assert float(FactsTask(8)(torch.randn(*batch.ids.shape, 8), none)) == 0.0

    @pytest.mark.parametrize(
        "facts",
        [[2, -1, 0, 4, *[-1] * len(KINDS)], [2, 1, 0, 4, *[-1] * len(KINDS)]],
        ids=["no side", "nothing before"],
    )
    def test_a_batch_of_things_that_were_met_again_has_a_loss(self, batch, facts) -> None:
        """A property may be asked of no question of a batch at all."""
        again = self.only(batch, facts)
        task, hidden = self.knowing(again)
        assert float(task(hidden, again).detach()) < 1e-3
        task = FactsTask(8)
        loss = task(torch.randn(*batch.ids.shape, 8), again)
        torch.autograd.backward(loss)
        assert torch.isfinite(loss)
        assert torch.isfinite(task.head.weight.grad).all()


class TestNaming:
    def words_of(self, batch: Batch, embeddings: Tensor) -> Tensor:
        """Return the sum of the words of every name: [b, q, hidden]."""
        there = (batch.named >= 0)[..., None]
        return (embeddings[batch.named.clamp(min=0)] * there).sum(-2)

    @torch.no_grad()
    def test_a_name_carries_its_words_in_its_last_one(self, batch, tokenizer) -> None:
        ids = tokenizer.get_vocab()
        embeddings = 3.0 * torch.eye(len(ids))  # how long they are does not matter
        named = 0.2 * self.words_of(batch, embeddings)
        assert float(naming_loss(embeddings, scattered(batch, named), batch, ids)) < 0.05
        blind = torch.randn(*batch.ids.shape, len(ids))
        even = sum(math.log(len(group)) for group in (KINDS, COLORS, ROOMS))
        assert float(naming_loss(embeddings, blind, batch, ids)) > 0.8 * even
        wrong = scattered(batch, -named)
        assert float(naming_loss(embeddings, wrong, batch, ids)) > even

    def test_only_the_last_words_of_names_teach(self, batch, tokenizer) -> None:
        ids = tokenizer.get_vocab()
        hidden = torch.randn(*batch.ids.shape, 16, requires_grad=True)
        embeddings = torch.randn(len(ids), 16, requires_grad=True)
        torch.autograd.backward(naming_loss(embeddings, hidden, batch, ids))
        named = (batch.named >= 0).any(-1)
        expected = {
            (row, int(batch.referent_at[row, column])) for row, column in named.nonzero().tolist()
        }
        assert set(map(tuple, (hidden.grad != 0).any(-1).nonzero().tolist())) == expected
        # The words themselves move as well, those of the three groups only.
        moved = {number for number, row in enumerate(embeddings.grad) if bool((row != 0).any())}
        assert moved == {ids[word] for group in (KINDS, COLORS, ROOMS) for word in group}

    @torch.no_grad()
    def test_questions_that_name_nothing_have_no_loss(self, batch, tokenizer) -> None:
        ids = tokenizer.get_vocab()
        nameless = batch._replace(named=torch.full_like(batch.named, -1))
        hidden = torch.randn(*batch.ids.shape, 16)
        assert float(naming_loss(torch.randn(len(ids), 16), hidden, nameless, ids)) == 0.0
