"""Work for samples on several threads, its results in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from ..records.profile import DataId
from ..samples.samples import Sample


def side_by_side(
    work: Callable[[Sample], DataId], samples: Iterable[Sample], threads: int, pause: Callable[[], bool]
) -> Iterator[tuple[DataId, bool]]:
    """Do the work for samples side by side and yield what it gives, in their order.

    With each comes whether nothing else is under way. While `pause` says so, nothing new is begun before.
    The first sample in order that fails raises, whichever failed first.
    """
    pending: deque[Future[DataId]] = deque()
    pool = ThreadPoolExecutor(threads)
    try:
        for sample in samples:
            pending.append(pool.submit(work, sample))
            while pending and (len(pending) > threads or pause()):
                result = pending.popleft().result()
                yield result, not pending
        while pending:
            result = pending.popleft().result()
            yield result, not pending
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
