"""One stream, encoded once, observed and asked by every engine of a job."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import NamedTuple

import torch

from infinipot_ros.bench.memory.encoded import EncodedStream, encode_stream, reading_tickets
from infinipot_ros.bench.memory.plan import NOW_QUESTIONS, Job, Pass
from infinipot_ros.bench.memory.streams import FPS, images, now_questions, tour_questions
from infinipot_ros.core.adapter import ModelAdapter
from infinipot_ros.models import load_adapter
from infinipot_ros.roomworld import Question, RoomWorld, frame_time_ns


class Record(NamedTuple):
    """One answer.

    Attributes:
        regime: of the stream.
        stream: its number within the regime.
        policy: name of the variant.
        cap: label of the cap.
        delay: since the tour's end, in times the steps that the cap can hold.
        kind: of the question.
        question: its text.
        truth: the right answer.
        answer: what the model said.
    """

    regime: str
    stream: int
    policy: str
    cap: str
    delay: int
    kind: str
    question: str
    truth: str
    answer: str

    @property
    def right(self) -> bool:
        """Whether the answer equals the truth to the letter."""
        return self.answer == self.truth


@lru_cache(maxsize=1)
def the_adapter(model: str, device: str) -> ModelAdapter:
    """Load the model once a process."""
    return load_adapter(model, device=device)


def run_job(job: Job) -> list[Record]:
    """Return every answer of a stream; the same whatever ran before and in which process."""
    torch.set_num_threads(1)  # sums of several threads are rounded otherwise than those of one
    adapter = the_adapter(job.model, job.device)
    world = job.stream.world()
    encoded = encode_stream(adapter, images(job.stream, world))
    reader = reading_tickets(adapter, encoded)
    about_tour = tour_questions(job.stream, world, job.per_kind)
    with _no_warnings(logging.getLogger("infinipot_ros.core")):
        return [
            record
            for one in job.passes
            for record in _run_pass(job, one, reader, encoded, world, about_tour)
        ]


@contextmanager
def _no_warnings(logger: logging.Logger) -> Iterator[None]:
    """Say nothing of passed limits: the study of length passes them on purpose, time and again."""
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _run_pass(
    job: Job,
    one: Pass,
    reader: ModelAdapter,
    encoded: EncodedStream,
    world: RoomWorld,
    about_tour: list[Question],
) -> Iterator[Record]:
    stream = job.stream
    config = one.variant.config(
        max_tokens=one.max_tokens, block_steps=one.block_steps, seed=stream.world_seed
    )
    engine = one.variant.start(reader, config, encoded.cols)
    seen = 0
    for moment in one.moments:
        tickets = encoded.tickets(seen, moment.step)
        first = seen * encoded.frames_per_step
        stamps = [frame_time_ns(first + index, FPS) for index in range(len(tickets))]
        engine.observe(tickets, stamps)
        seen = moment.step
        questions = about_tour + now_questions(stream, world, seen, NOW_QUESTIONS)
        for question in questions:
            answer = engine.ask(question.text).text
            for cap, delay in moment.cells:
                yield Record(
                    stream.regime,
                    stream.number,
                    one.variant.name,
                    cap,
                    delay,
                    question.kind,
                    question.text,
                    question.answer,
                    answer,
                )
