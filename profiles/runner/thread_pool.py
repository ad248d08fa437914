"""Work for samples on several threads, its results in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_in_threads(
    work: Callable[[Item], Result], items: Iterable[Item], threads: int, pause: Callable[[], bool]
) -> Iterator[tuple[Result, bool]]:
    """Do the work for several samples at the same time and yield its results, in the order of the samples.

    Each result comes with whether no work is under way. While `pause` returns true, no work is begun until
    that is so. Of several samples that fail, the first in order raises, whichever failed first.
    """
    pending: deque[Future[Result]] = deque()
    pool = ThreadPoolExecutor(threads)
    try:
        for item in items:
            pending.append(pool.submit(work, item))
            del item  # a sample can be large: none is kept while the next one is read
            while pending and (len(pending) > threads or pause()):
                result = pending.popleft().result()
                yield result, not pending
        while pending:
            result = pending.popleft().result()
            yield result, not pending
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
