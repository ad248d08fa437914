"""Work for samples on several threads, its results in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from ..records.profile import DataId
from ..samples.samples import Sample


def map_in_threads(
    work: Callable[[Sample], DataId], samples: Iterable[Sample], threads: int, pause: Callable[[], bool]
) -> Iterator[tuple[DataId, bool]]:
    """Do the work for several samples at the same time and yield its results, in the order of the samples.

    Each result comes with whether no work is under way. While `pause` returns true, no work is begun until
    that is so. Of several samples that fail, the first in order raises, whichever failed first.
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
