"""The node's executor: callbacks in a pool of threads, each handed over once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rclpy.executors import (
    Executor,
    ExternalShutdownException,
    ShutdownException,
    TimeoutException,
)


class PoolExecutor(Executor):
    """Run callbacks in threads, as rclpy's MultiThreadedExecutor does, without its stalls.

    That one hands a callback to the pool again on every wake-up until a thread has begun with it,
    and walks a list of all of them each time. Where the model's thread keeps the pool waiting for
    the interpreter, the two feed each other: calls then take seconds.

    Args:
        threads: threads of the pool.
        on_fault: told, from a thread of the pool, what a callback raised; the others go on.
        context: ROS context; None takes the default one.
    """

    def __init__(
        self, threads: int, on_fault: Callable[[Exception], None], *, context: Any = None
    ) -> None:
        super().__init__(context=context)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="infinipot-callback")
        self._on_fault = on_fault
        self._lock = threading.Lock()
        self._handed_over: set[Any] = set()

    def spin_once(self, timeout_sec: float | None = None) -> None:
        """Wait for a callback and hand it to the pool.

        Args:
            timeout_sec: longest wait, seconds; None waits for ever.
        """
        try:
            task, _, _ = self.wait_for_ready_callbacks(timeout_sec)
        except (ExternalShutdownException, ShutdownException, TimeoutException):
            return
        with self._lock:
            if task in self._handed_over:
                return
            self._handed_over.add(task)
        try:
            self._pool.submit(self._run, task)
        except RuntimeError:  # the pool is closed
            if not self._is_shutdown:
                raise

    def shutdown(self, timeout_sec: float | None = None) -> bool:
        """Stop handing over callbacks; those that run are not waited for.

        Args:
            timeout_sec: as for rclpy's executors.
        """
        done = bool(super().shutdown(timeout_sec))
        self._pool.shutdown(wait=False, cancel_futures=True)
        return done

    def _run(self, task: Any) -> None:
        try:
            task()
        finally:
            with self._lock:
                self._handed_over.discard(task)
        fault = task.exception() if task.done() else None
        if fault is not None:
            self._on_fault(fault)
