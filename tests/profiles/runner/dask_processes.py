"""A Dask scheduler with workers, each a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def dask_cluster(workers: int, started: list[subprocess.Popen[str]] | None = None) -> Iterator[str]:
    """Run a scheduler and workers as processes of their own; yields the scheduler's address.

    Args:
        workers: how many.
        started: will hold the processes, the scheduler's first.
    """
    pytest.importorskip("distributed")
    code = (
        "import asyncio, sys\n"
        "from distributed import Scheduler\n"
        "async def main():\n"
        "    async with Scheduler(port=0, dashboard=False) as scheduler:\n"
        "        print(scheduler.address, flush=True)\n"
        "        await scheduler.finished()\n"
        "asyncio.run(main())"
    )
    worker = (
        "import asyncio, sys\n"
        "from distributed import Worker\n"
        "async def main():\n"
        "    async with Worker(sys.argv[1], nthreads=1, dashboard=False) as worker:\n"
        "        await worker.finished()\n"
        "asyncio.run(main())"
    )
    started = [] if started is None else started
    started.append(
        subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
    )
    try:
        assert started[0].stdout is not None
        address = started[0].stdout.readline().strip()
        for _ in range(workers):
            started.append(
                subprocess.Popen(
                    [sys.executable, "-c", worker, address], stderr=subprocess.DEVNULL, text=True
                )
            )
        yield address
    finally:
        for process in started:
            process.kill()
            process.wait()
        if started[0].stdout is not None:
            started[0].stdout.close()


def wait_for_workers(address: str, number: int) -> None:
    from distributed import Client

    with Client(address, set_as_default=False) as client:
        client.wait_for_workers(number, timeout=30)
