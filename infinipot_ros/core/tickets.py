"""What the worker hands out: tickets for answers, and status snapshots."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass

from infinipot_ros.core.errors import InfinipotError
from infinipot_ros.core.types import Answer, FinishReason, MemoryStats

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class CameraStatus:
    """Counters and memory figures of one camera; sampled = encoded + dropped + pending.

    Attributes:
        camera: name of the camera.
        received: image messages.
        sampled: messages chosen by the sampling rate.
        encoded: frames in the memory or compressed out of it.
        dropped: sampled frames that were lost, for whatever reason.
        pending: sampled frames that are being converted, wait, or are being encoded.
        drops_by_reason: ``dropped``, split.
        memory: figures of the memory after the last block.
        stopped: whether the worker has stopped.
    """

    camera: str
    received: int
    sampled: int
    encoded: int
    dropped: int
    pending: int
    drops_by_reason: Mapping[str, int]
    memory: MemoryStats
    stopped: bool


class Ticket:
    """A question on its way; made by :meth:`infinipot_ros.core.worker.Worker.ask`.

    Args:
        question: natural language.
        camera: name of the camera.
        conversation_id: conversation that it follows up on; empty for none.
        max_new_tokens: longest answer, tokens; None takes the engine's default.
        timeout_s: time limit from now on, seconds.
        on_text: called from the model's thread with the answer so far.
    """

    def __init__(
        self,
        question: str,
        *,
        camera: str,
        conversation_id: str,
        max_new_tokens: int | None,
        timeout_s: float,
        on_text: Callable[[str], None] | None,
    ) -> None:
        self.question = question
        self.camera = camera
        self.conversation_id = conversation_id
        self.max_new_tokens = max_new_tokens
        self.asked_at = time.monotonic()
        self._deadline = self.asked_at + timeout_s
        self._listener = on_text
        self._cancelled = False
        self._started = False
        self._settled = False
        self._lock = threading.Lock()
        self._future: Future[Answer] = Future()

    # -- for whoever asked -----------------------------------------------------------------

    def result(self, timeout: float | None = None) -> Answer:
        """Wait for the answer.

        Args:
            timeout: seconds to wait; None waits as long as it takes.

        Raises:
            InfinipotError: the question was refused or failed.
            concurrent.futures.TimeoutError: no answer within ``timeout``; the question goes on.
        """
        return self._future.result(timeout)

    def cancel(self) -> None:
        """End the question: at once if it waits, before the next token if it is being answered."""
        self._cancelled = True
        self._end_waiting("cancelled")

    def done(self) -> bool:
        """Say whether the answer, or a failure, is there."""
        return self._future.done()

    def add_done_callback(self, callback: Callable[[Ticket], None]) -> None:
        """Call back when the ticket is done, from the thread that ends it (at once if it is)."""
        self._future.add_done_callback(lambda _: callback(self))

    # -- for the worker --------------------------------------------------------------------

    def should_stop(self) -> FinishReason | None:
        """Return why decoding must stop, None if it may go on."""
        if self._cancelled:
            return "cancelled"
        return "timeout" if time.monotonic() >= self._deadline else None

    def begin(self) -> bool:
        """Say whether the question is still to be answered; from now on only the worker ends it."""
        if self.end_if_dead():
            return False
        with self._lock:
            self._started = not self._settled
            return self._started

    def end_if_dead(self) -> bool:
        """End a waiting question that was cancelled or has expired; say whether it has ended."""
        reason = self.should_stop()
        if reason is not None:
            self._end_waiting(reason)
        return self._settled

    def on_text(self, text: str) -> None:
        """Pass the answer so far to the listener; a listener's fault is not the model's."""
        if self._listener is None:
            return
        try:
            self._listener(text)
        except Exception:
            _LOG.exception("a listener of partial answers failed; it is not called again")
            self._listener = None

    def finish(self, answer: Answer) -> None:
        """Hand over the answer; nothing happens if the ticket has ended."""
        if self._settle(even_if_started=True):
            self._future.set_result(answer)

    def fail(self, error: InfinipotError) -> None:
        """Hand over a failure; nothing happens if the ticket has ended."""
        if self._settle(even_if_started=True):
            self._future.set_exception(error)

    def _end_waiting(self, reason: FinishReason) -> None:
        """End the question with an empty answer, unless the worker has begun with it."""
        if self._settle(even_if_started=False):
            waited = time.monotonic() - self.asked_at
            self._future.set_result(Answer("", 0.0, None, 0, waited, 0.0, 0, reason))

    def _settle(self, *, even_if_started: bool) -> bool:
        """Claim the right to end the ticket; only the first who asks gets it."""
        with self._lock:
            if self._settled or (self._started and not even_if_started):
                return False
            self._settled = True
            return True
