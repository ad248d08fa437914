"""Shards of the samples as tasks: what a worker does with one, and processes of this machine as workers."""

from __future__ import annotations

import atexit
import multiprocessing
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

from ..base.errors import ModelError
from ..base.tool import Progress
from ..records.profile import ModelId
from ..records.store import dumps, loads
from ..samples.samples import open_samples
from .calibrate import NoSamplesError, profile_samples
from .settings import Loaded, Settings, loaded

SHARDS_PER_WORKER = 4
"""So many tasks for each worker: few enough to be worth their start, enough to share the work evenly."""

ATTEMPTS = 3
"""How often a pool of processes that broke is begun anew without a shard done in between."""


@dataclass(frozen=True)
class Data:
    """Where all samples are; every worker must be able to read them there.

    Attributes:
        source: folder, or "module:function". A function is called by each worker, which keeps its share
            of what it yields.
        limit: the first so many samples only; None for all.
    """

    source: str
    limit: int | None = None


@dataclass(frozen=True)
class Shard:
    """Every `step`-th sample from `start` to before `stop`."""

    start: int
    stop: int | None
    step: int = 1


@dataclass(frozen=True)
class Job:
    """What a worker has to know once.

    Attributes:
        model_id: of the prepared model.
        data: where the samples are.
        settings: how to run it.
    """

    model_id: ModelId
    data: Data
    settings: Settings


def shards(total: int | None, workers: int) -> tuple[Shard, ...]:
    """Divide samples into shards: runs of neighbours, or every so many-th where their number is not known."""
    if total is None:
        return tuple(Shard(first, None, workers) for first in range(workers))
    size = max(1, -(-total // (workers * SHARDS_PER_WORKER)))
    return tuple(Shard(start, min(start + size, total)) for start in range(0, total, size))


def merged_texts(a: str, b: str) -> str:
    """Return the text of two profiles merged; "" stands for no samples."""
    return dumps(loads(a).merged(loads(b))) if a and b else a or b


# In a worker ------------------------------------------------------------------------------------------------


class _Model:
    """The model that this process has loaded last, for any number of shards."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._key: object = None
        self._stack = ExitStack()
        self._run: Loaded | None = None
        atexit.register(self._stack.close)

    def loaded(self, key: object, folder: Callable[[ExitStack], Path], settings: Settings) -> Loaded:
        with self._lock:
            if self._run is None or self._key != key:
                self._stack.close()
                place = folder(self._stack)
                self._run = self._stack.enter_context(loaded(ir.load(place / "model.onnx"), settings))
                self._key = key
            return self._run


_model = _Model()


def _shard_text(run: Loaded, job: Job, shard: Shard) -> str:
    samples = open_samples(job.data.source, run.specs, job.data.limit)
    try:
        profile = profile_samples(run, samples.part(shard.start, shard.stop, shard.step), job.model_id)
    except NoSamplesError:
        return ""
    return dumps(profile)


def _shard_of_folder(folder: str, job: Job, shard: Shard) -> str:
    """Run a shard of a model that lies in a folder of this machine."""
    return _shard_text(_model.loaded((folder, job), lambda _: Path(folder), job.settings), job, shard)


def shard_of_files(files: Mapping[str, bytes], key: str, job: Job, shard: Shard) -> str:
    """Run a shard of a model that came over the network; `key` tells one model from another."""

    def unpacked(stack: ExitStack) -> Path:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="qprof-")))
        for name, content in files.items():
            (folder / name).write_bytes(content)
        return folder

    return _shard_text(_model.loaded((key, job), unpacked, job.settings), job, shard)


# Processes on this machine ----------------------------------------------------------------------------------


def on_processes(
    workers: int, folder: str, job: Job, total: int | None, progress: Progress | None = None
) -> list[str]:
    """Return the texts of the profiles of all shards, run by processes of this machine.

    Args:
        workers: how many processes.
        folder: where the model lies.
        job: what to run.
        total: number of samples, None where it is not known.
        progress: called after each shard.

    Raises:
        ModelError: processes were lost again and again.
    """
    parts = shards(total, workers)
    found: dict[Shard, str] = {}
    failures = 0
    while len(found) < len(parts):
        before = len(found)
        left = [part for part in parts if part not in found]
        # A fresh interpreter for each: the runtime's threads do not survive a fork.
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(min(workers, len(left)), context) as pool:
            tasks = {pool.submit(_shard_of_folder, folder, job, part): part for part in left}
            try:
                _collect(tasks, found, total, progress)
            except BrokenProcessPool:
                failures = failures + 1 if len(found) == before else 0
            finally:
                pool.shutdown(wait=True, cancel_futures=True)
        if failures == ATTEMPTS:
            raise ModelError(
                f"workers: {ATTEMPTS} times in a row a process was lost before it had finished a shard; "
                "it may have run out of memory: use fewer workers, or --memory-limit"
            )
    return [found[part] for part in parts]


def _collect(
    tasks: Mapping[Future[str], Shard], found: dict[Shard, str], total: int | None, progress: Progress | None
) -> None:
    """Put results into `found` as they come; of the shards that fail the first in order raises."""
    for task in as_completed(tasks):
        if task.exception() is not None:
            for earlier in tasks:
                earlier.result()
        found[tasks[task]] = task.result()
        if progress is not None:
            progress(samples_done(found, total), total)


def samples_done(found: Iterable[Shard], total: int | None) -> int:
    """Return how many samples these shards hold; how many shards they are where the total is not known."""
    sizes = [1 if total is None else (shard.stop or total) - shard.start for shard in found]
    return sum(sizes)
