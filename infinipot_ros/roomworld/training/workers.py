"""Compute seeded jobs in other processes, in order."""

from __future__ import annotations

import multiprocessing
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from typing import TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")

_AHEAD_PER_PROCESS = 2


def ordered_map(
    function: Callable[[Job], Result], jobs: Iterable[Job], processes: int
) -> Iterator[Result]:
    """Yield function(job) for every job in order, computed by `processes` spawned workers.

    Spawned, not forked: torch's thread pools do not survive a fork. Few results are computed ahead:
    images that wait for a slower consumer would fill the memory.
    """
    if processes <= 1:
        yield from map(function, jobs)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as executor:
        waiting: deque[Future[Result]] = deque()
        for job in jobs:
            waiting.append(executor.submit(function, job))
            if len(waiting) >= _AHEAD_PER_PROCESS * processes:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
