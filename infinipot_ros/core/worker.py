"""Worker: the single thread that owns the model.

Camera callbacks only count and enqueue; questions wait in a bounded queue and are answered between
two blocks.  Everything that waits is bounded: of frames the newest win, of questions one too many
is refused.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import replace

from infinipot_ros.core.batching import FrameBatcher, StampSampler
from infinipot_ros.core.conversations import Conversations, check_conversation_id
from infinipot_ros.core.engine import StreamEngine
from infinipot_ros.core.errors import (
    BusyError,
    ConfigError,
    InfinipotError,
    ModelError,
    QuestionError,
    QueueFullError,
    StoppedError,
)
from infinipot_ros.core.tickets import CameraStatus, Ticket
from infinipot_ros.core.types import FinishReason, Frame, Turn

_LOG = logging.getLogger(__name__)


class Worker:
    """Run any number of cameras' memories, with one set of weights, in one thread.

    Args:
        engines: camera name to its engine; the first is the default camera.
        fps: sampling rate, frames per second of stamp time.
        max_pending_frames: frames that may wait per camera; 0 takes two blocks.
        max_pending_questions: questions that may wait, the one being answered not counted.
        question_timeout_s: default time limit of a question, seconds.
        max_conversations: conversations that are kept, over all cameras; the least recently used
            goes first.
        conversation_timeout_s: time without a question after which one is forgotten, seconds.
        on_error: called, from the model's thread, with a line of text for every block that failed.

    Raises:
        ConfigError: no camera, or a limit that cannot work.
    """

    def __init__(
        self,
        engines: Mapping[str, StreamEngine],
        *,
        fps: float,
        max_pending_frames: int = 0,
        max_pending_questions: int = 8,
        question_timeout_s: float = 30.0,
        max_conversations: int = 32,
        conversation_timeout_s: float = 600.0,
        on_error: Callable[[str], None] | None = None,
    ) -> None:
        if not engines:
            raise ConfigError("no camera is given; name at least one")
        if max_pending_questions < 1:
            raise ConfigError(
                f"max_pending_questions is {max_pending_questions}; it must be at least 1"
            )
        if not question_timeout_s > 0:
            raise ConfigError(f"question_timeout_s is {question_timeout_s!r}; it must be above 0 s")
        self._streams = {
            name: _Stream(name, engine, fps, max_pending_frames) for name, engine in engines.items()
        }
        self._max_questions = max_pending_questions
        self._timeout_s = float(question_timeout_s)
        self._conversations = Conversations(max_conversations, conversation_timeout_s)
        self._on_error = on_error if on_error is not None else _LOG.error
        self._changed = threading.Condition()
        self._jobs: deque[Ticket | _Reset] = deque()
        self._turn = 0
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="infinipot-model", daemon=True)

    # -- life ------------------------------------------------------------------------------

    @property
    def cameras(self) -> tuple[str, ...]:
        """Names of the cameras, the default one first."""
        return tuple(self._streams)

    def start(self) -> None:
        """Start the model's thread."""
        self._thread.start()

    def stop(self, timeout_s: float = 2.0) -> bool:
        """Stop after the current block or token.

        What waits ends at once: questions and resets with StoppedError, frames counted as dropped.

        Returns:
            Whether the model's thread ended within the time; if not, its engines are still in use.
        """
        with self._changed:
            self._stopping = True
            jobs, self._jobs = self._jobs, deque()
            for stream in self._streams.values():
                stream.drop("stopped", stream.batcher.clear())
            self._changed.notify_all()
        for job in jobs:
            job.fail(StoppedError("the worker stopped before it came to this"))
        return self.join(timeout_s)

    def join(self, timeout_s: float) -> bool:
        """Wait for the model's thread after a stop; return whether it has ended."""
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    # -- frames ----------------------------------------------------------------------------

    def accept(self, camera: str, stamp_ns: int) -> bool:
        """Count an image message and say whether sampling wants it.

        Cheap, so that a frame that nobody wants is not even converted.  An accepted frame must be
        followed by :meth:`submit` or :meth:`reject`.

        Args:
            camera: name of the camera.
            stamp_ns: capture stamp, integer nanoseconds.
        """
        stream = self._stream(camera)
        with self._changed:
            stream.received += 1
            if not stream.sampler.accept(stamp_ns):
                return False
            stream.sampled += 1
            stream.converting += 1
            return True

    def submit(self, frame: Frame) -> None:
        """Hand over an accepted frame; its image must not be changed afterwards."""
        stream = self._stream(frame.camera)
        with self._changed:
            stream.converting -= 1
            if self._stopping:
                stream.drop("stopped", 1)
                return
            stream.drop("overwritten", stream.batcher.add(frame))
            if stream.batcher.ready():
                self._changed.notify_all()

    def reject(self, camera: str, reason: str) -> None:
        """Count an accepted frame as dropped, because it cannot be used."""
        stream = self._stream(camera)
        with self._changed:
            stream.converting -= 1
            stream.drop(reason, 1)

    # -- questions -------------------------------------------------------------------------

    def ask(
        self,
        question: str,
        *,
        camera: str = "",
        conversation_id: str = "",
        max_new_tokens: int = 0,
        timeout_s: float = 0.0,
        on_text: Callable[[str], None] | None = None,
    ) -> Ticket:
        """Queue a question; the newest frames received are taken into the memory before it.

        Args:
            question: natural language.
            camera: name of the camera; empty takes the default one.
            conversation_id: questions of one id about one camera follow up on each other: each is
                answered after the turns that were finished before it; empty for a question of its
                own.
            max_new_tokens: longest answer, tokens; 0 takes the engine's default.
            timeout_s: time limit from now to the last token, seconds; 0 takes the default.
            on_text: called from the model's thread after each token with the answer so far.

        Returns:
            A ticket for the answer.

        Raises:
            QuestionError: the question cannot be asked, or cannot follow up on others.
            QueueFullError: too many questions wait.
            StoppedError: the worker has stopped.
        """
        stream = self._stream(camera)
        if not 0 <= timeout_s < threading.TIMEOUT_MAX:
            raise QuestionError(
                f"timeout_s is {timeout_s!r}; it must be 0 (default) or more seconds"
            )
        stream.engine.check_question(question, max_new_tokens or None)
        if conversation_id:
            stream.check_dialogue(conversation_id)
        ticket = Ticket(
            question,
            camera=stream.name,
            conversation_id=conversation_id,
            max_new_tokens=max_new_tokens or None,
            timeout_s=timeout_s or self._timeout_s,
            on_text=on_text,
        )
        with self._changed:
            if self._stopping:
                raise StoppedError("the worker has stopped; it takes no more questions")
            # Cancelled and expired questions must not hold a place against live ones.
            self._jobs = deque(job for job in self._jobs if not job.end_if_dead())
            waiting = sum(isinstance(job, Ticket) for job in self._jobs)
            if waiting >= self._max_questions:
                raise QueueFullError(
                    f"{waiting} questions are waiting, the most allowed "
                    "(max_pending_questions); ask again later"
                )
            self._jobs.append(ticket)
            self._changed.notify_all()
        return ticket

    def reset(self, camera: str | None = None, timeout_s: float = 10.0) -> None:
        """Forget what one camera (None: every camera) has seen; returns when it is done.

        The conversations about it are forgotten too: their answers rest on what it has seen.
        Questions asked before are answered before.

        Raises:
            QuestionError: unknown camera.
            StoppedError: the worker stopped first.
            BusyError: the model did not come to it in time; it will be carried out later.
        """
        streams = tuple(self._streams.values()) if camera is None else (self._stream(camera),)
        job = _Reset(streams)
        with self._changed:
            if self._stopping:
                raise StoppedError("the worker has stopped; there is nothing to reset")
            self._jobs.append(job)
            self._changed.notify_all()
        try:
            job.done.result(timeout_s)
        except FutureTimeoutError:
            raise BusyError(
                f"the model was busy for {timeout_s:g} s; the reset is carried out after the "
                "current block and the questions before it"
            ) from None

    def status(self, camera: str) -> CameraStatus:
        """Return a camera's counters and memory figures; never waits for the model."""
        stream = self._stream(camera)
        with self._changed:
            return stream.status(stopped=self._stopping)

    # -- the model's thread ----------------------------------------------------------------

    def _run(self) -> None:
        block_last = True
        while True:
            with self._changed:
                self._changed.wait_for(self._has_work)
                if self._stopping:
                    return
                # Blocks and questions take turns where both wait: neither starves the other.
                stream = None if block_last and self._jobs else self._next_ready()
                job = self._jobs.popleft() if stream is None else None
            if stream is not None:
                self._observe(stream)
            elif isinstance(job, Ticket):
                self._answer(job)
            elif job is not None:
                self._carry_out(job)
            block_last = stream is not None

    def _has_work(self) -> bool:
        return (
            self._stopping
            or bool(self._jobs)
            or any(stream.batcher.ready() for stream in self._streams.values())
        )

    def _next_ready(self) -> _Stream | None:
        """The next camera in turn whose block is complete."""
        streams = list(self._streams.values())
        for offset in range(len(streams)):
            index = (self._turn + offset) % len(streams)
            if streams[index].batcher.ready():
                self._turn = index + 1
                return streams[index]
        return None

    def _observe(self, stream: _Stream) -> int:
        """Encode the camera's oldest waiting block; return how many frames it had."""
        with self._changed:
            block = stream.batcher.take()
            stream.in_flight = len(block)
        problem = ""
        try:
            stream.engine.observe([f.image for f in block], [f.stamp_ns for f in block])
            stats = stream.engine.stats()
        except Exception as error:  # whatever a model does to one block, the node lives on
            problem = f"{type(error).__name__}: {error}"
            stats = stream.memory
        with self._changed:
            stream.in_flight = 0
            stream.memory = stats
            if problem:
                stream.drop("failed", len(block))
            else:
                stream.encoded += len(block)
        if problem:
            self._on_error(f"a block of {len(block)} frames of {stream.name!r} was lost: {problem}")
        return len(block)

    def _answer(self, ticket: Ticket) -> None:
        stream = self._streams[ticket.camera]
        # Only what waits now: a camera faster than the model would else keep the question waiting.
        waiting = len(stream.batcher)
        while waiting > 0 and not self._stopping and not ticket.end_if_dead():
            waiting -= self._observe(stream)
        if not ticket.begin():
            return

        def should_stop() -> FinishReason | None:
            return "cancelled" if self._stopping else ticket.should_stop()

        queued_s = time.monotonic() - ticket.asked_at
        # Read now and not when it was asked: the turn before it may have been answered since.
        camera, conversation_id = ticket.camera, ticket.conversation_id
        history = self._conversations.history(camera, conversation_id, ticket.asked_at)
        try:
            answer = stream.engine.ask(
                ticket.question,
                history=history,
                max_new_tokens=ticket.max_new_tokens,
                on_text=ticket.on_text,
                should_stop=should_stop,
            )
        except InfinipotError as error:
            ticket.fail(error)
        except Exception as error:  # out of memory, say: this question fails, the next may not
            self._on_error(f"a question failed: {type(error).__name__}: {error}")
            ticket.fail(InfinipotError(f"the model failed: {type(error).__name__}: {error}"))
        else:
            self._conversations.add(
                camera, conversation_id, ticket.question, answer, time.monotonic()
            )
            first_s = queued_s + answer.first_token_s if answer.n_tokens else 0.0
            latency_s = time.monotonic() - ticket.asked_at
            ticket.finish(replace(answer, latency_s=latency_s, first_token_s=first_s))

    def _carry_out(self, reset: _Reset) -> None:
        try:
            for stream in reset.streams:
                self._conversations.forget(stream.name)
                stream.engine.reset()
                stats = stream.engine.stats()
                with self._changed:
                    stream.drop("reset", stream.batcher.clear())
                    stream.memory = stats
        except Exception as error:
            reset.done.set_exception(error)
        else:
            reset.done.set_result(None)

    def _stream(self, camera: str) -> _Stream:
        if camera == "":
            return next(iter(self._streams.values()))
        try:
            return self._streams[camera]
        except KeyError:
            known = ", ".join(repr(name) for name in self._streams)
            raise QuestionError(f"camera {camera!r} is unknown; there is {known}") from None


class _Reset:
    """A reset on its way."""

    def __init__(self, streams: tuple[_Stream, ...]) -> None:
        self.streams = streams
        self.done: Future[None] = Future()

    def end_if_dead(self) -> bool:
        """Say whether it has ended: not while it waits."""
        return False

    def fail(self, error: InfinipotError) -> None:
        """Hand over why it will not be carried out."""
        self.done.set_exception(error)


class _Stream:
    """One camera's memory, queue and counters; counters are guarded by the worker's lock."""

    def __init__(self, name: str, engine: StreamEngine, fps: float, max_pending: int) -> None:
        block = engine.config.block_steps * engine.adapter.frames_per_step
        self.name = name
        self.engine = engine
        self.sampler = StampSampler(fps)
        self.batcher = FrameBatcher(block, max_pending or 2 * block)
        self.received = self.sampled = self.encoded = 0
        self.converting = self.in_flight = 0
        self.drops: dict[str, int] = {}
        self.memory = engine.stats()

    def check_dialogue(self, conversation_id: str) -> None:
        """Refuse a conversation that this memory or its model cannot have, at its first question.

        Raises:
            QuestionError: naming the id and what would have to change.
        """
        check_conversation_id(conversation_id)
        if self.engine.config.max_dialogue_tokens == 0:
            raise QuestionError(
                f"conversation_id is {conversation_id!r}, but max_dialogue_tokens is 0, which "
                "leaves no room for earlier turns; leave conversation_id empty, or set "
                "max_dialogue_tokens"
            )
        try:
            self.engine.adapter.question_ids("", [Turn("", "")])
        except ModelError as error:
            raise QuestionError(
                f"conversation_id is {conversation_id!r}, but {error}; leave conversation_id "
                "empty and put what the question refers to into the question"
            ) from error

    def drop(self, reason: str, count: int) -> None:
        if count:
            self.drops[reason] = self.drops.get(reason, 0) + count

    def status(self, *, stopped: bool) -> CameraStatus:
        return CameraStatus(
            camera=self.name,
            received=self.received,
            sampled=self.sampled,
            encoded=self.encoded,
            dropped=sum(self.drops.values()),
            pending=self.converting + self.in_flight + len(self.batcher),
            drops_by_reason=dict(self.drops),
            memory=self.memory,
            stopped=stopped,
        )
