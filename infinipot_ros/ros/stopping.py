"""End a process within seconds, cleanly if it can, whatever it is doing when it is told to.

Imports nothing heavy: a command installs this before it imports ROS or torch.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
import time
from types import FrameType
from typing import NoReturn

GRACE_S = 2.2
"""Seconds that a clean end may take before the process is ended at once."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopRequest:
    """Turn SIGINT and SIGTERM into a request that the main thread waits for.

    Until `arm` the process holds nothing worth cleaning up, and a signal ends it on the spot.
    After `arm` a signal only makes the request; the owner cleans up and returns. If that takes
    longer than `GRACE_S` (a model load cannot be interrupted), or on a second signal, the process
    ends on the spot.

    A pipe carries the request, and the interpreter writes to it as soon as a signal comes in: the
    kernel may hand a signal to any thread, whereas Python's handler runs in the main thread only
    once that wakes up. (A handler must not set a `threading.Event` either: its own thread may hold
    the event's lock.)

    Args:
        code: exit code of an end on the spot. 0 where stopping is how the process ends at best.
    """

    def __init__(self, code: int = 0) -> None:
        self._code = code
        self._read_end, self._write_end = os.pipe()
        os.set_blocking(self._write_end, False)
        self._armed = False
        self._signals = 0

    def install(self) -> None:
        """Take over SIGINT and SIGTERM; call it from the main thread."""
        signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)
        for number in _SIGNALS:
            signal.signal(number, self._on_signal)

    def arm(self) -> None:
        """Let signals make a request from here on, and watch over the time that it takes."""
        threading.Thread(target=self._watch, name="stop-watch", daemon=True).start()
        self._armed = True

    def request(self) -> None:
        """Ask the process to stop, from any thread."""
        os.write(self._write_end, b".")

    def requested(self) -> bool:
        """Say whether the process was asked to stop."""
        return self.wait(0.0)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the request; return whether it was made.

        Args:
            timeout_s: longest wait in seconds; None waits for ever.
        """
        readable, _, _ = select.select([self._read_end], [], [], timeout_s)
        return bool(readable)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        # The request is in the pipe already.
        self._signals += 1
        if not self._armed or self._signals > 1:
            end_now(self._code)

    def _watch(self) -> None:
        self.wait()
        time.sleep(GRACE_S)
        end_now(self._code)


def end_now(code: int) -> NoReturn:
    """End the process without waiting for its threads."""
    for stream in (sys.stdout, sys.stderr):
        # It may be closed, or being written to by the code that was interrupted.
        with contextlib.suppress(OSError, ValueError, RuntimeError):
            stream.flush()
    os._exit(code)


def end(code: int) -> int:
    """Return the exit code if every thread is done, else end the process at once.

    The interpreter must not shut down under a thread that is inside torch or the middleware: it
    would abort. From here on signals are ignored: the process is ending anyway, and the interpreter
    takes its handlers down before it is gone.
    """
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    busy = [
        thread
        for thread in threading.enumerate()
        if thread is not threading.main_thread() and thread.name != "stop-watch"
    ]
    if busy:
        end_now(code)
    return code
