"""Compute seeded jobs in other processes, in order."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")


def ordered_map(
    function: Callable[[Job], Result], jobs: Iterable[Job], processes: int
) -> Iterator[Result]:
    """Yield function(job) for every job in order, computed by `processes` spawned workers.

    Spawned, not forked: torch's thread pools do not survive a fork.
    """
    if processes <= 1:
        yield from map(function, jobs)
        return
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield from pool.imap(function, jobs)
