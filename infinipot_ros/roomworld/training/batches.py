"""Lay streams and their questions out as tensors: one video prefix, many question branches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from infinipot_ros.roomworld.knowledge import Knowledge
from infinipot_ros.roomworld.phrasings import TRAINED
from infinipot_ros.roomworld.questions import Question, make_question
from infinipot_ros.roomworld.training.architecture import TOKEN_GRID, TOKENS_PER_STEP
from infinipot_ros.roomworld.training.facts import N_FACTS, facts_about, naming_of
from infinipot_ros.roomworld.training.masks import (
    branch_mask,
    shared_mask,
    step_positions,
    video_positions,
)
from infinipot_ros.roomworld.training.plans import BRANCH_LENGTH, BatchPlan
from infinipot_ros.roomworld.training.pool import ScenePool
from infinipot_ros.roomworld.training.streams import Stream, draw_stream, history_labels
from infinipot_ros.roomworld.training.thinning import shows_object, survivors, thinned
from infinipot_ros.roomworld.vocabulary import KINDS, QUESTION_KINDS, SYSTEM_PROMPT

_NO_MARK_SHARE = 0.1
_OTHER_SYSTEM_SHARE = 0.15


class Batch(NamedTuple):
    """Streams of one length; q questions each, most of them about an earlier moment."""

    video: Tensor
    """float16 [b, n, hidden], vision tokens."""
    ids: Tensor
    """int64 [b, prefix + n + q * BRANCH_LENGTH]; unused at video tokens."""
    positions: Tensor
    """int64 [3, b, s]"""
    shared_mask: Tensor
    """float32 [b, 1, prefix + n, prefix + n], additive."""
    branch_mask: Tensor
    """float32 [b, g, m, prefix + n + m], additive: questions attend in g groups of m tokens."""
    answer_ids: Tensor
    """int64 [b, q], -1 where a stream has fewer questions."""
    answer_at: Tensor
    """int64 [b, q], index of the token that predicts the answer; the next one predicts the end."""
    referent_at: Tensor
    """int64 [b, q], index of the word that the question is about."""
    question_end_at: Tensor
    """int64 [b, q], index of the question's last token."""
    named: Tensor
    """int64 [b, q, 3], ids of the words for kind, colour and room by which the question names its
    last thing, -1 where it does without."""
    facts: Tensor
    """int64 [b, q, 4 + kinds], what was seen of that thing, see `facts_about`."""
    kinds: Tensor
    """int64 [b, q], index into QUESTION_KINDS."""
    history: Tensor
    """int8 [b, n, kinds + 2], see `history_labels`."""
    prefix: int
    """Number of tokens before the video."""


class BatchBuilder:
    """Draw batches from a pool."""

    def __init__(self, pool: ScenePool, word_ids: Mapping[str, int]) -> None:
        self._pool = pool
        self._ids = word_ids
        self._system_words = [word_ids[w] for w in (*SYSTEM_PROMPT.split(), "what", "is", "see")]

    def draw(self, plan: BatchPlan) -> Batch:
        """Draw the batch of `plan`."""
        rng = np.random.default_rng(plan.seed)
        opening = self._opening(rng, plan.training)
        prefix, n_video = len(opening), plan.n_tokens
        shared = prefix + n_video
        size = shared + plan.n_questions * BRANCH_LENGTH
        b, q = plan.n_streams, plan.n_questions
        video = np.empty((b, n_video, self._pool.tokens.shape[-1]), np.float16)
        ids = np.zeros((b, size), np.int64)
        ids[:, :prefix] = opening
        positions = np.zeros((3, b, size), np.int64)
        positions[:, :, :prefix] = np.arange(prefix)
        answer_ids = np.full((b, q), -1, np.int64)
        answer_at, referent_at, end_at, kinds, visible_to = np.zeros((5, b, q), np.int64)
        named = np.full((b, q, 3), -1, np.int64)
        facts = np.full((b, q, N_FACTS), -1, np.int64)
        history = np.empty((b, n_video, len(KINDS) + 2), np.int8)
        kept = np.ones((b, shared), bool)
        log_weights = np.zeros((b, shared), np.float32)
        for row in range(b):
            stream = self._stream(rng, plan)
            tokens, log_weights[row, prefix:] = thinned(rng, self._pool, stream, plan)
            video[row] = self._pool.tokens[stream.scenes, stream.views].reshape(
                -1, video.shape[-1]
            )[tokens]
            history[row] = history_labels(self._pool, stream)[tokens]
            times = prefix + step_positions(rng, plan)
            positions[:, row, prefix:shared] = video_positions(times, prefix)[:, tokens]
            if rng.random() < plan.evicted_share:
                kept[row, prefix:] = survivors(rng, self._pool, stream)[tokens]
            for column, (step, question, known) in enumerate(self._questions(rng, stream, plan)):
                start = shared + column * BRANCH_LENGTH
                branch, about, end = self._branch(rng, question, plan.training)
                ids[row, start : start + len(branch)] = branch
                ids[row, start + len(branch)] = self._ids[question.answer]
                answer_ids[row, column] = self._ids[question.answer]
                answer_at[row, column] = start + len(branch) - 1
                referent_at[row, column] = start + about
                end_at[row, column] = start + end
                name = naming_of(question)
                named[row, column] = [self._ids.get(word, -1) for word in name]
                facts[row, column] = facts_about(name, known)
                kinds[row, column] = QUESTION_KINDS.index(question.kind)
                visible_to[row, column] = prefix + int(
                    np.searchsorted(tokens, (step + 1) * TOKENS_PER_STEP)
                )
                text_from = max(int(times[step]), prefix + TOKEN_GRID - 1) + 1
                positions[:, row, start : start + BRANCH_LENGTH] = text_from + np.arange(
                    BRANCH_LENGTH
                )
        as_tensor = torch.from_numpy
        return Batch(
            video=as_tensor(video),
            ids=as_tensor(ids),
            positions=as_tensor(positions),
            shared_mask=shared_mask(log_weights),
            branch_mask=branch_mask(visible_to, kept, log_weights, q),
            answer_ids=as_tensor(answer_ids),
            answer_at=as_tensor(answer_at),
            referent_at=as_tensor(referent_at),
            question_end_at=as_tensor(end_at),
            named=as_tensor(named),
            facts=as_tensor(facts),
            kinds=as_tensor(kinds),
            history=as_tensor(history),
            prefix=prefix,
        )

    def _stream(self, rng: np.random.Generator, plan: BatchPlan) -> Stream:
        """Draw a stream whose object tokens find room; a stream that is not thinned always does."""
        stream = draw_stream(rng, self._pool, plan.n_steps)
        while np.count_nonzero(shows_object(self._pool, stream)) > plan.n_tokens:
            stream = draw_stream(rng, self._pool, plan.n_steps)
        return stream

    def _opening(self, rng: np.random.Generator, training: bool) -> list[int]:
        system = [self._ids[word] for word in SYSTEM_PROMPT.split()]
        if training and rng.random() < _OTHER_SYSTEM_SHARE:
            system = [
                self._system_words[int(rng.integers(len(self._system_words)))]
                for _ in range(int(rng.integers(1, 13)))
            ]
        i = self._ids
        return [
            i["<|im_start|>"], i["system"], *system, i["<|im_end|>"],
            i["<|im_start|>"], i["user"], i["<|vision_start|>"],
        ]  # fmt: skip

    def _branch(
        self, rng: np.random.Generator, question: Question, training: bool
    ) -> tuple[list[int], int, int]:
        """Return a question's tokens, and the places of its referent and of its last token."""
        words = question.text.split()
        if training and rng.random() < _NO_MARK_SHARE:
            words = words[:-1]
        i = self._ids
        branch = [
            i["<|vision_end|>"], *(i[word] for word in words), i["<|im_end|>"],
            i["<|im_start|>"], i["assistant"],
        ]  # fmt: skip
        return branch, 1 + question.referent, len(words)

    def _questions(
        self, rng: np.random.Generator, stream: Stream, plan: BatchPlan
    ) -> list[tuple[int, Question, Knowledge]]:
        weights = np.asarray(plan.kind_weights)
        last = plan.n_steps - 1
        moments = [last, *rng.integers(0, plan.n_steps, 5)] if plan.training else [last]
        known = {step: stream.knowledge(int(step)) for step in moments}
        asked: list[tuple[int, Question, Knowledge]] = []
        for kind in rng.choice(
            len(QUESTION_KINDS), 4 * plan.n_questions, p=weights / weights.sum()
        ):
            step = int(moments[int(rng.integers(len(moments)))])
            question = make_question(QUESTION_KINDS[kind], rng, known[step], TRAINED)
            if question is not None:
                asked.append((step, question, known[step]))
            if len(asked) == plan.n_questions:
                break
        return asked


def even_weights() -> Sequence[float]:
    """Return equal weights for all question kinds."""
    return (1.0,) * len(QUESTION_KINDS)
