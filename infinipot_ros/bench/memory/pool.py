"""Run jobs in worker processes; what is complete survives an interruption."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

from tqdm import tqdm

from infinipot_ros.core.errors import InfinipotError

Job = TypeVar("Job")
Result = TypeVar("Result")


class Terminated(KeyboardInterrupt):
    """The process was asked to end by SIGTERM."""


@dataclass(frozen=True)
class Finished(Generic[Result]):
    """What a run of jobs came to.

    Attributes:
        results: of the jobs that were completed, by the number of the job, in their order.
        stopped_by: what ended the run early; None where nothing did.
    """

    results: dict[int, Result]
    stopped_by: BaseException | None


def default_workers() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def run_jobs(
    function: Callable[[Job], Result], jobs: Sequence[Job], workers: int, unit: str
) -> Finished[Result]:
    """Compute function(job) for every job; the number of workers changes nothing but the time.

    Args:
        function: of a module, so that spawned processes can import it.
        jobs: independent of each other.
        workers: processes; 1 computes here.
        unit: what the progress bar counts (on stderr, where that is a terminal).
    """
    results: dict[int, Result] = {}
    stopped_by: BaseException | None = None
    with tqdm(total=len(jobs), unit=unit, disable=None, file=sys.stderr) as bar:
        try:
            with _sigterm_interrupts():
                if min(workers, len(jobs)) <= 1:
                    for number, job in enumerate(jobs):
                        results[number] = function(job)
                        bar.update()
                else:
                    _in_processes(function, jobs, workers, results, bar.update)
        except (Exception, KeyboardInterrupt) as error:
            stopped_by = error
    return Finished({number: results[number] for number in sorted(results)}, stopped_by)


def _in_processes(
    function: Callable[[Job], Result],
    jobs: Sequence[Job],
    workers: int,
    results: dict[int, Result],
    completed: Callable[[], object],
) -> None:
    # Spawned, not forked: torch's thread pools do not survive a fork.
    context = multiprocessing.get_context("spawn")
    others = set(multiprocessing.active_children())
    executor = ProcessPoolExecutor(workers, mp_context=context, initializer=_start_worker)
    try:
        numbers = {executor.submit(function, job): number for number, job in enumerate(jobs)}
        for future in as_completed(numbers):
            results[numbers[future]] = future.result()
            completed()
    except BrokenProcessPool as error:
        raise InfinipotError(
            "a worker process was killed, for want of memory perhaps: lower --workers"
        ) from error
    except BaseException:
        # A job takes most of a minute: who asks to stop does not want to wait for it.
        executor.shutdown(wait=False, cancel_futures=True)
        for child in set(multiprocessing.active_children()) - others:
            child.terminate()
        raise
    finally:
        executor.shutdown(cancel_futures=True)


@contextmanager
def _sigterm_interrupts() -> Iterator[None]:
    """Let SIGTERM end the work as Ctrl-C does; only a main thread may say so."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def raise_terminated(*_: object) -> None:
        raise Terminated

    before = signal.signal(signal.SIGTERM, raise_terminated)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _start_worker() -> None:
    """Leave Ctrl-C to the parent, and end with it: one that is killed sends nobody home."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
