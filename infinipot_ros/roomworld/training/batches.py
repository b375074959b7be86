"""Lay streams and their questions out as tensors: one video prefix, many question branches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from infinipot_ros.roomworld.questions import Question, make_question
from infinipot_ros.roomworld.training.architecture import TOKEN_GRID, TOKENS_PER_STEP
from infinipot_ros.roomworld.training.pool import ScenePool
from infinipot_ros.roomworld.training.streams import Stream, draw_stream, kinds_before
from infinipot_ros.roomworld.vocabulary import KINDS, QUESTION_KINDS, SYSTEM_PROMPT

BRANCH_LENGTH = 12
"""Tokens of the longest question with its answer."""
_NO_MARK_SHARE = 0.1
_OTHER_SYSTEM_SHARE = 0.15
_TRAILING = {"in", "on", "now"}
_BLOCKED = -1e9


class Batch(NamedTuple):
    """Streams of one length; q questions each, most of them about an earlier moment."""

    video: Tensor
    """float16 [b, T * 9, hidden], vision tokens."""
    ids: Tensor
    """int64 [b, prefix + T * 9 + q * BRANCH_LENGTH]; unused at video tokens."""
    positions: Tensor
    """int64 [3, b, s]"""
    branch_mask: Tensor
    """float32 [b, 1, q * BRANCH_LENGTH, s], additive."""
    answer_ids: Tensor
    """int64 [b, q], -1 where a stream has fewer questions."""
    answer_at: Tensor
    """int64 [b, q], index of the token that predicts the answer; the next one predicts the end."""
    referent_at: Tensor
    """int64 [b, q], index of the word that the question is about."""
    question_end_at: Tensor
    """int64 [b, q], index of the question's last token."""
    kinds: Tensor
    """int64 [b, q], index into QUESTION_KINDS."""
    history: Tensor
    """int8 [b, T * 9, kinds], see `kinds_before`."""
    prefix: int
    """Number of tokens before the video."""


class BatchPlan(NamedTuple):
    """What one batch is drawn from; together with the pool it decides the batch entirely."""

    seed: tuple[int, ...]
    n_streams: int
    n_steps: int
    n_questions: int
    kind_weights: tuple[float, ...]
    gap_share: float
    max_position_span: int
    evicted_share: float
    training: bool
    """False: the default system prompt, every question with its mark, asked at the stream's end."""


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
        prefix, n_video = len(opening), plan.n_steps * TOKENS_PER_STEP
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
        history = np.empty((b, n_video, len(KINDS)), np.int8)
        kept = np.ones((b, shared), bool)
        for row in range(b):
            stream = draw_stream(rng, self._pool, plan.n_steps)
            video[row] = self._pool.tokens[stream.scenes, stream.views].reshape(n_video, -1)
            history[row] = kinds_before(self._pool, stream)
            times = prefix + _step_positions(rng, plan)
            positions[:, row, prefix:shared] = _video_positions(times, prefix)
            if rng.random() < plan.evicted_share:
                kept[row, prefix:] = _survivors(rng, self._pool, stream)
            for column, (step, question) in enumerate(self._questions(rng, stream, plan)):
                start = shared + column * BRANCH_LENGTH
                branch, about, end = self._branch(rng, question, plan.training)
                ids[row, start : start + len(branch)] = branch
                ids[row, start + len(branch)] = self._ids[question.answer]
                answer_ids[row, column] = self._ids[question.answer]
                answer_at[row, column] = start + len(branch) - 1
                referent_at[row, column] = start + about
                end_at[row, column] = start + end
                kinds[row, column] = QUESTION_KINDS.index(question.kind)
                visible_to[row, column] = prefix + (step + 1) * TOKENS_PER_STEP
                text_from = max(int(times[step]), prefix + TOKEN_GRID - 1) + 1
                positions[:, row, start : start + BRANCH_LENGTH] = text_from + np.arange(
                    BRANCH_LENGTH
                )
        as_tensor = torch.from_numpy
        return Batch(
            video=as_tensor(video),
            ids=as_tensor(ids),
            positions=as_tensor(positions),
            branch_mask=_branch_mask(visible_to, kept, q),
            answer_ids=as_tensor(answer_ids),
            answer_at=as_tensor(answer_at),
            referent_at=as_tensor(referent_at),
            question_end_at=as_tensor(end_at),
            kinds=as_tensor(kinds),
            history=as_tensor(history),
            prefix=prefix,
        )

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
        about = len(words) - 2
        if words[about] in _TRAILING:
            about -= 1
        if training and rng.random() < _NO_MARK_SHARE:
            words = words[:-1]
        i = self._ids
        branch = [
            i["<|vision_end|>"], *(i[word] for word in words), i["<|im_end|>"],
            i["<|im_start|>"], i["assistant"],
        ]  # fmt: skip
        return branch, 1 + about, len(words)

    def _questions(
        self, rng: np.random.Generator, stream: Stream, plan: BatchPlan
    ) -> list[tuple[int, Question]]:
        weights = np.asarray(plan.kind_weights)
        last = plan.n_steps - 1
        moments = [last, *rng.integers(0, plan.n_steps, 5)] if plan.training else [last]
        asked: list[tuple[int, Question]] = []
        for kind in rng.choice(
            len(QUESTION_KINDS), 4 * plan.n_questions, p=weights / weights.sum()
        ):
            step = int(moments[int(rng.integers(len(moments)))])
            question = make_question(QUESTION_KINDS[kind], rng, stream.knowledge(step))
            if question is not None:
                asked.append((step, question))
            if len(asked) == plan.n_questions:
                break
        return asked


def _step_positions(rng: np.random.Generator, plan: BatchPlan) -> NDArray[np.int64]:
    """Return increasing temporal positions of the steps, with random gaps in some streams."""
    n = plan.n_steps
    if rng.random() >= plan.gap_share:
        return np.arange(n)
    widest = max(n + 1, plan.max_position_span)
    span = np.exp(rng.uniform(np.log(n + 1), np.log(widest)))
    shares = rng.gamma(float(rng.choice((0.3, 1.0, 10.0))), 1.0, n) + 0.02
    intervals = np.maximum(1, np.round(shares / shares.sum() * span)).astype(np.int64)
    start = int(rng.integers(20)) if rng.random() < 0.3 else 0
    return start + np.concatenate([[0], np.cumsum(intervals[:-1])])


def _video_positions(times: NDArray[np.int64], prefix: int) -> NDArray[np.int64]:
    rows, columns = np.divmod(np.arange(TOKENS_PER_STEP), TOKEN_GRID)
    return np.stack(
        [
            np.repeat(times, TOKENS_PER_STEP),
            np.tile(prefix + rows, len(times)),
            np.tile(prefix + columns, len(times)),
        ]
    )


def _survivors(rng: np.random.Generator, pool: ScenePool, stream: Stream) -> NDArray[np.bool_]:
    """Draw which video tokens survive an eviction: bool [T * 9].

    One token of every object always survives, or the question would have no answer.
    """
    at_token = pool.kinds[stream.scenes, stream.views].reshape(-1)
    kept = rng.random(at_token.shape) < rng.uniform(0.3, 0.9)
    for sighting in stream.sightings:
        tokens = np.flatnonzero(at_token == KINDS.index(sighting.kind))
        kept[tokens[:1]] = True
    return kept


def _branch_mask(
    visible_to: NDArray[np.int64], kept: NDArray[np.bool_], n_questions: int
) -> Tensor:
    """Let branch tokens see surviving tokens up to their moment, and their own branch so far."""
    b, shared = kept.shape
    size = shared + n_questions * BRANCH_LENGTH
    before = np.arange(shared)[None, None] < visible_to[:, :, None]
    allowed = np.zeros((b, n_questions, BRANCH_LENGTH, size), bool)
    allowed[..., :shared] = (before & kept[:, None])[:, :, None]
    causal = np.tril(np.ones((BRANCH_LENGTH, BRANCH_LENGTH), bool))
    for column in range(n_questions):
        start = shared + column * BRANCH_LENGTH
        allowed[:, column, :, start : start + BRANCH_LENGTH] = causal
    blocked = torch.from_numpy(~allowed.reshape(b, 1, n_questions * BRANCH_LENGTH, size))
    return torch.zeros(blocked.shape).masked_fill_(blocked, _BLOCKED)


def even_weights() -> Sequence[float]:
    """Return equal weights for all question kinds."""
    return (1.0,) * len(QUESTION_KINDS)
