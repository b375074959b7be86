"""Teach the language model to answer over pooled vision tokens, by a gated curriculum of lengths.

Auxiliary losses were decisive in trials. The answer is also predicted at the referent word and
at the end of the question, which gives the look-up a short path to learn (colour questions stuck at
0.60 without it). Object tokens of the third layer predict which kinds came before them and in which
other room the same object was, those of the fourth how many kinds came, which makes order, number
and moves available to later layers (order questions stuck at chance without it). After the first
layer the last word of a name ("red cup", "cup in the kitchen") carries the words before it, so that
the layers behind it find what has all of these properties.
"""

from __future__ import annotations

import math
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from infinipot_ros.roomworld.training.architecture import TOKENS_PER_STEP, aim_heads
from infinipot_ros.roomworld.training.batches import Batch, BatchBuilder, even_weights
from infinipot_ros.roomworld.training.config import LanguagePlan, TrainConfig
from infinipot_ros.roomworld.training.forward import run_language_model
from infinipot_ros.roomworld.training.journal import Journal
from infinipot_ros.roomworld.training.plans import BRANCH_LENGTH, BatchPlan
from infinipot_ros.roomworld.training.pool import ScenePool
from infinipot_ros.roomworld.training.side_tasks import (
    FactsTask,
    HistoryTask,
    naming_loss,
    state_at,
)
from infinipot_ros.roomworld.vocabulary import KINDS, QUESTION_KINDS

_BATCH_STREAM, _LENGTH_STREAM, _VALIDATION_STREAM = 30, 31, 32
_PREFETCHED = 3
_AIM = 1.2
_SLOW_KINDS = ("first", "last", "before", "after", "count", "where_before")
_TYPICAL_PREFIX = 11
_QUESTIONS_AT_LENGTH = {1: 8, 2: 8, 4: 12, 8: 16}
_THIN_FROM = 12
_DILUTE_FROM = 3


class _Scores(NamedTuple):
    loss: Tensor
    correct: Tensor
    """int64 [question kinds], right answers."""
    asked: Tensor
    """int64 [question kinds]"""


class LanguageStage:
    """Train everything but the vision tower; resumable at any step."""

    def __init__(self, model: Any, word_ids: dict[str, int], config: TrainConfig) -> None:
        self._plan: LanguagePlan = config.language
        self._config = config
        self._word_ids = word_ids
        self._model = model
        self._words = model.get_input_embeddings().weight
        hidden = self._words.shape[1]
        self._history, self._facts = HistoryTask(hidden), FactsTask(hidden)
        # The word embeddings belong to the language model; its head is tied to them.
        trained = [
            *model.model.language_model.parameters(),
            *self._history.parameters(),
            *self._facts.parameters(),
        ]
        self._trained = trained
        self._optimizer = torch.optim.AdamW(
            [
                {
                    "params": [p for p in trained if p.ndim > 1],
                    "weight_decay": self._plan.weight_decay,
                },
                {"params": [p for p in trained if p.ndim < 2], "weight_decay": 0.0},
            ],
            lr=self._plan.learning_rate,
            betas=(0.9, 0.98),
        )
        self.step = 0
        self.done = False
        self.passed = False
        self.final_accuracy: dict[str, float] = {}
        self._length_index = 0
        self._since = 0
        self._cycle = 0
        self._decay_from: int | None = None
        self._weights = tuple(even_weights())
        self._correct = torch.zeros(len(QUESTION_KINDS), dtype=torch.int64)
        self._asked = torch.zeros(len(QUESTION_KINDS), dtype=torch.int64)
        self._losses: list[float] = []
        self._ahead: deque[Future[Batch]] = deque()
        self._drawer = ThreadPoolExecutor(max_workers=1)

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint must hold beside the model."""
        return {
            "optimizer": self._optimizer.state_dict(),
            "history": self._history.state_dict(),
            "facts": self._facts.state_dict(),
            "step": self.step,
            "done": self.done,
            "passed": self.passed,
            "final_accuracy": dict(self.final_accuracy),
            "length_index": self._length_index,
            "since": self._since,
            "cycle": self._cycle,
            "decay_from": self._decay_from,
            "weights": self._weights,
            "correct": self._correct.clone(),
            "asked": self._asked.clone(),
            "losses": list(self._losses),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""
        self._optimizer.load_state_dict(state["optimizer"])
        self._history.load_state_dict(state["history"])
        self._facts.load_state_dict(state["facts"])
        self.step, self.done, self.passed = state["step"], state["done"], state["passed"]
        self.final_accuracy = state["final_accuracy"]
        self._length_index, self._since = state["length_index"], state["since"]
        self._cycle, self._decay_from = state["cycle"], state["decay_from"]
        self._weights, self._losses = tuple(state["weights"]), list(state["losses"])
        self._correct, self._asked = state["correct"].clone(), state["asked"].clone()

    def prepare(self, pool: ScenePool, held_out: ScenePool) -> None:
        """Take the scenes to train on and those to be judged on."""
        if self.step == 0:
            kinds = self._words[[self._word_ids[kind] for kind in KINDS]].detach()
            aim_heads(self._model, kinds, self._plan.history_layer + 1, _AIM)
        self._builder = BatchBuilder(pool, self._word_ids)
        self._judge = BatchBuilder(held_out, self._word_ids)

    def train_step(self) -> None:
        """Take one optimiser step."""
        batch, n_steps = self._next_batch()
        rate = self._rate()
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        scores = self._score(batch, torch.bfloat16, training=True)
        self._optimizer.zero_grad()
        torch.autograd.backward(scores.loss)
        torch.nn.utils.clip_grad_norm_(self._trained, 1.0)
        self._optimizer.step()
        self.step += 1
        self._since += 1
        longest = self._plan.lengths[self._length_index]
        if n_steps > longest // 2 or longest == 1:
            self._correct += scores.correct
            self._asked += scores.asked
        self._losses.append(float(scores.loss.detach()))

    def advance(self, journal: Journal) -> None:
        """At every report, weigh the kinds anew and open the next length or phase when earned."""
        plan = self._plan
        finishing = self._decay_from is not None and self._since >= self._decay_steps()
        if self.step % plan.report_every and not finishing:
            return
        accuracy = _by_kind(self._correct, self._asked)
        journal.write(
            "language",
            step=self.step,
            longest=plan.lengths[self._length_index],
            phase="curriculum" if self._decay_from is None else f"decay {self._cycle}",
            loss=round(float(np.mean(self._losses)), 4),
            **accuracy,
        )
        self._weights = tuple(0.5 + 2.5 * (1.0 - accuracy.get(k, 0.0)) for k in QUESTION_KINDS)
        self._correct.zero_()
        self._asked.zero_()
        self._losses.clear()
        if finishing:
            self._finish_cycle(journal)
        elif self._decay_from is None and accuracy:
            self._open_next(accuracy)

    @torch.no_grad()
    def evaluate(self, n_steps: int, n_streams: int) -> dict[str, float]:
        """Return accuracy per kind over held-out streams, asked at their end, and over all."""
        correct = torch.zeros_like(self._correct)
        asked = torch.zeros_like(self._asked)
        for number in range(n_streams):
            plan = BatchPlan(
                seed=(self._config.seed, _VALIDATION_STREAM, n_steps, number),
                n_streams=1,
                n_steps=n_steps,
                n_questions=self._plan.questions_per_stream,
                kind_weights=tuple(even_weights()),
                gap_share=0.0,
                max_position_span=self._plan.max_position_span,
                evicted_share=0.0,
                thinned=1.0,
                longest=n_steps,
                training=False,
            )
            scores = self._score(self._judge.draw(plan), torch.float32, training=False)
            correct += scores.correct
            asked += scores.asked
        result = _by_kind(correct, asked)
        result["all"] = round(float(correct.sum() / asked.sum()), 4)
        return result

    def _open_next(self, accuracy: dict[str, float]) -> None:
        plan = self._plan
        last = self._length_index == len(plan.lengths) - 1
        unordered = [value for kind, value in accuracy.items() if kind not in _SLOW_KINDS]
        if last:
            # The rate falls only when every kind, those about order too, is learnt.
            ready = float(np.mean(list(accuracy.values()))) >= plan.steady_accuracy
            if ready or self._since >= plan.max_steady_steps:
                self._decay_from, self._since = self.step, 0
            return
        good = float(np.mean(unordered)) >= plan.stage_accuracy
        ready = good and min(accuracy.values()) >= plan.stage_floor
        if ready or self._since >= plan.max_stage_steps:
            self._length_index += 1
            self._since = 0

    def _finish_cycle(self, journal: Journal) -> None:
        plan = self._plan
        self.final_accuracy = self.evaluate(plan.validation_steps, plan.validation_streams)
        worst = min(self.final_accuracy.values())
        self.passed = (
            self.final_accuracy["all"] >= plan.final_accuracy and worst >= plan.final_floor
        )
        journal.write("validation", step=self.step, passed=self.passed, **self.final_accuracy)
        self._cycle += 1
        self._decay_from, self._since = self.step, 0
        self.done = self.passed or self._cycle >= plan.max_cycles

    def _decay_steps(self) -> int:
        return self._plan.decay_steps if self._cycle == 0 else self._plan.later_decay_steps

    def _rate(self) -> float:
        plan = self._plan
        rate = plan.learning_rate * min(1.0, (self.step + 1) / plan.warmup_steps)
        if self._decay_from is None:
            return rate
        progress = min(1.0, self._since / self._decay_steps())
        fall = 0.5 * (1.0 + math.cos(math.pi * progress))
        return rate * 0.5**self._cycle * (plan.min_decay + (1.0 - plan.min_decay) * fall)

    def _next_batch(self) -> tuple[Batch, int]:
        """Return the batch of the current step, while the next ones are drawn in the background.

        Plans change only at reports; no batch beyond the next report is drawn ahead of it.
        """
        boundary = self.step - self.step % self._plan.report_every + self._plan.report_every
        if self._decay_from is not None:
            boundary = min(boundary, self._decay_from + self._decay_steps())
        until = min(boundary, self.step + _PREFETCHED)
        for step in range(self.step + len(self._ahead), max(until, self.step + 1)):
            self._ahead.append(self._drawer.submit(self._builder.draw, self._batch_plan(step)))
        return self._ahead.popleft().result(), self._batch_plan(self.step).n_steps

    def _batch_plan(self, step: int) -> BatchPlan:
        plan = self._plan
        rng = np.random.default_rng((self._config.seed, _LENGTH_STREAM, step))
        n_steps = self._draw_length(rng)
        n_questions = min(
            plan.questions_per_stream,
            next((n for most, n in _QUESTIONS_AT_LENGTH.items() if n_steps <= most), 10**9),
        )
        thin = n_steps >= _THIN_FROM and rng.random() < plan.thinned_share
        thinned = plan.thinned_to if thin else 1.0
        thinned = min(thinned, plan.most_tokens / (n_steps * TOKENS_PER_STEP))
        video = round(thinned * n_steps * TOKENS_PER_STEP)
        tokens = _TYPICAL_PREFIX + video + n_questions * BRANCH_LENGTH
        full_length = self._length_index == len(plan.lengths) - 1
        return BatchPlan(
            seed=(self._config.seed, _BATCH_STREAM, step),
            n_streams=max(1, plan.tokens_per_batch // tokens),
            n_steps=n_steps,
            n_questions=n_questions,
            kind_weights=self._weights,
            gap_share=plan.gap_share,
            max_position_span=plan.max_position_span,
            evicted_share=plan.evicted_share if full_length else 0.0,
            thinned=thinned,
            longest=plan.longest if self._length_index >= _DILUTE_FROM else n_steps,
            training=True,
        )

    def _draw_length(self, rng: np.random.Generator) -> int:
        """Draw a stream length: mostly the longest open one, sometimes a shorter one."""
        lengths = self._plan.lengths
        newest = self._length_index
        if newest == len(lengths) - 1 and newest >= 2:
            shares = np.array([0.1] * (newest - 3) + [0.2, 0.5, 1.0, 0.6])[-newest - 1 :]
        else:
            shares = np.array([1.0 if i == newest else 0.5 if i >= newest - 2 else 0.12
                               for i in range(newest + 1)])  # fmt: skip
        n = lengths[int(rng.choice(newest + 1, p=shares / shares.sum()))]
        return n if n <= 2 else 2 * int(rng.integers(3 * n // 8, n // 2 + 1))

    def _score(self, batch: Batch, dtype: torch.dtype, *, training: bool) -> _Scores:
        plan, words = self._plan, self._words
        n_video = batch.video.shape[1]
        shared = batch.prefix + n_video
        embedded = words[batch.ids].to(dtype)
        embedded = torch.cat(
            [embedded[:, : batch.prefix], batch.video.to(dtype), embedded[:, shared:]], 1
        )
        hidden, tapped = run_language_model(
            self._model.model.language_model,
            embedded,
            batch.positions,
            batch.shared_mask,
            batch.branch_mask,
            (plan.naming_layer, plan.history_layer, plan.history_layer + 1),
        )
        asked = batch.answer_ids >= 0
        answers = batch.answer_ids[asked]
        logits = F.linear(state_at(hidden, batch.answer_at, asked), words)
        ends = F.linear(state_at(hidden, batch.answer_at + 1, asked), words)
        end_ids = torch.full_like(answers, self._word_ids["<|im_end|>"])
        loss = 0.5 * (F.cross_entropy(logits, answers) + F.cross_entropy(ends, end_ids))
        if training:
            early = F.cross_entropy(
                F.linear(state_at(hidden, batch.referent_at, asked), words), answers
            ) + F.cross_entropy(
                F.linear(state_at(hidden, batch.question_end_at, asked), words), answers
            )
            loss = loss + plan.referent_weight * early
            video = slice(batch.prefix, shared)
            history = self._history(tapped[1][:, video], tapped[2][:, video], batch.history)
            loss = loss + plan.history_weight * history
            naming = naming_loss(words, tapped[0], batch, self._word_ids)
            loss = loss + plan.naming_weight * naming
            loss = loss + plan.facts_weight * self._facts(tapped[2], batch)
        right = (logits.argmax(-1) == answers) & (ends.argmax(-1) == end_ids)
        kinds = batch.kinds[asked]
        n = len(QUESTION_KINDS)
        return _Scores(
            loss, torch.bincount(kinds[right], minlength=n), torch.bincount(kinds, minlength=n)
        )


def _by_kind(correct: Tensor, asked: Tensor) -> dict[str, float]:
    return {
        kind: round(int(correct[i]) / int(asked[i]), 4)
        for i, kind in enumerate(QUESTION_KINDS)
        if int(asked[i])
    }
