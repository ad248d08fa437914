"""Shards of the samples as tasks: what a worker does with one, and processes of this machine as workers."""

from __future__ import annotations

import atexit
import json
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from dataclasses import astuple, dataclass, replace
from pathlib import Path

import onnx_ir as ir
from google.protobuf.message import DecodeError

from ..base.errors import ModelError
from ..base.tool import Progress
from ..records.non_finite import dumps_run, loads_run
from ..records.profile import ModelId, Profile
from ..runtime.worker_pool import WorkerPool
from ..samples.objects import PreprocessedData
from ..samples.samples import open_samples
from ..samples.smallest import SamplePlace, SmallestSamples
from .calibrate import NoSamplesError, profile_samples
from .sample_pass import ProfilingModel, profiling_model
from .settings import RunSettings

SHARDS_PER_WORKER = 4
"""Tasks for each worker: few, because each has a cost to start; enough to share the work evenly."""

IDLE_SECONDS = 30.0
"""How long a process keeps a model that no shard uses."""

ATTEMPTS = 3
"""How often in a row a pool of processes may break without having finished a shard."""


@dataclass(frozen=True)
class Shard:
    """Every `step`-th sample from `start` to before `stop`."""

    start: int
    stop: int | None
    step: int = 1


@dataclass(frozen=True)
class Job:
    """What is the same for all shards.

    Attributes:
        model_id: of the prepared model.
        source: folder of the samples, with its recipe, or "module:function"; every worker must be able to
            read it. A function is called by each worker, which keeps its share of the samples.
        settings: of each worker.
    """

    model_id: ModelId
    source: str | PreprocessedData
    settings: RunSettings


def shards(total: int | None, workers: int) -> tuple[Shard, ...]:
    """Divide samples into shards: runs of neighbours, or every n-th sample where their number is unknown."""
    if total is None:
        return tuple(Shard(first, None, workers) for first in range(workers))
    size = max(1, -(-total // (workers * SHARDS_PER_WORKER)))
    return tuple(Shard(start, min(start + size, total)) for start in range(0, total, size))


def merged_texts(a: str, b: str) -> str:
    """Return the text of two shards together; "" stands for no samples."""
    if not (a and b):
        return a or b
    (one, places), (other, others) = loads_shard(a), loads_shard(b)
    return dumps_shard(one.merged(other), [*places, *others])


def loads_shard(text: str) -> tuple[Profile, list[SamplePlace]]:
    """Return the profile of a shard, and where its samples with the smallest digests are."""
    head, _, profile = text.partition("\n")
    return loads_run(profile), [SamplePlace(*entries) for entries in json.loads(head)]


def dumps_shard(profile: Profile, places: Iterable[SamplePlace]) -> str:
    """Return the text that `loads_shard` reads."""
    return json.dumps([astuple(place) for place in places]) + "\n" + dumps_run(profile)


# In a worker ------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class _Kept:
    """A profiling model of this process.

    Attributes:
        key: tells it from others; not hashed, since settings hold dicts.
        model: the model.
        stack: closes it, and removes its folder.
        users: shards that run now.
        closing: the timer that closes it when nobody has used it for a while.
    """

    key: object
    model: ProfilingModel
    stack: ExitStack
    users: int = 0
    closing: threading.Timer | None = None


class ModelCache:
    """The profiling models of this process, each kept for the next shards of its job.

    Several threads may use the same model, or models of several jobs: none is closed while a shard uses it.
    An idle one is closed when another is loaded, or after `IDLE_SECONDS`.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self._lock = threading.Lock()
        self._models: list[_Kept] = []
        atexit.register(self.close_idle)

    @contextmanager
    def use(
        self, key: object, folder: Callable[[ExitStack], Path], settings: RunSettings
    ) -> Iterator[ProfilingModel]:
        """Yield a model, loaded if need be.

        Args:
            key: tells one model and its settings from others.
            folder: gives the folder of the model's file; what it opens is closed with the model.
            settings: of the run.
        """
        with self._lock:
            kept = next((kept for kept in self._models if kept.key == key), None)
            if kept is None:
                self._close_idle()
                kept = _loaded(key, folder, settings)
                self._models.append(kept)
            kept.users += 1
            if kept.closing is not None:
                kept.closing.cancel()
                kept.closing = None
        try:
            yield kept.model
        finally:
            with self._lock:
                kept.users -= 1
                if not kept.users:
                    kept.closing = threading.Timer(IDLE_SECONDS, self.close_idle)
                    kept.closing.daemon = True
                    kept.closing.start()

    def close_idle(self) -> None:
        """Close the models that no shard uses."""
        with self._lock:
            self._close_idle()

    def _close_idle(self) -> None:
        for kept in [kept for kept in self._models if not kept.users]:
            if kept.closing is not None:
                kept.closing.cancel()
            self._models.remove(kept)
            kept.stack.close()


def _loaded(key: object, folder: Callable[[ExitStack], Path], settings: RunSettings) -> _Kept:
    with ExitStack() as stack:
        try:
            model = ir.load(folder(stack) / "model.onnx")
        except (OSError, DecodeError) as error:
            raise ModelError(
                f"a worker cannot read the model that it was sent: {error}; make room in its temporary folder"
            ) from error
        ready = stack.enter_context(profiling_model(model, settings))
        return _Kept(key, ready, stack.pop_all())


_models = ModelCache()


def _shard_text(model: ProfilingModel, job: Job, shard: Shard) -> str:
    samples = open_samples(
        job.source, model.specs, job.settings.limit, by_row=job.settings.by_row, notes=False
    )
    part = samples.part(shard.start, shard.stop, shard.step)
    smallest = SmallestSamples(job.settings.noise_samples, model.specs, hold=False)
    try:
        profile = profile_samples(model, part, job.model_id, smallest=smallest)
    except NoSamplesError:
        return ""
    places = (replace(place, number=shard.start + place.number * shard.step) for place in smallest.places())
    return dumps_shard(profile, places)


def _shard_of_folder(folder: str, job: Job, shard: Shard) -> str:
    """Run a shard of a model in a folder of this machine."""
    with _models.use((folder, job), lambda _: Path(folder), job.settings) as model:
        return _shard_text(model, job, shard)


def shard_of_files(files: Mapping[str, bytes], key: str, job: Job, shard: Shard) -> str:
    """Run a shard of a model that came over the network; `key` tells one model from another."""

    def unpacked(stack: ExitStack) -> Path:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="qprof-")))
        for name, content in files.items():
            (folder / name).write_bytes(content)
        return folder

    with _models.use((key, job), unpacked, job.settings) as model:
        return _shard_text(model, job, shard)


# Processes on this machine ----------------------------------------------------------------------------------


def on_processes(
    workers: int, folder: str, job: Job, total: int | None, progress: Progress | None = None
) -> list[str]:
    """Return the texts of the profiles of all shards, run by processes of this machine.

    Args:
        workers: how many processes.
        folder: where the model is.
        job: what to run.
        total: number of samples, None where it is unknown.
        progress: called after each shard.

    Raises:
        ModelError: processes were lost again and again.
    """
    parts = shards(total, workers)
    texts: dict[Shard, str] = {}
    failures = 0
    while len(texts) < len(parts):
        before = len(texts)
        left = [part for part in parts if part not in texts]
        with WorkerPool(min(workers, len(left)), folder) as pool:
            try:
                tasks = pool.submit_all(_shard_of_folder, [(folder, job, part) for part in left])
                _collect(dict(zip(tasks, left, strict=True)), texts, total, progress)
            except BrokenProcessPool:
                failures = failures + 1 if len(texts) == before else 0
        if failures == ATTEMPTS:
            raise ModelError(
                f"workers: {ATTEMPTS} times in a row a process was lost before it had finished a shard; "
                "it may have run out of memory: use fewer workers, or --memory-limit"
            )
    return [texts[part] for part in parts]


def _collect(
    tasks: Mapping[Future[str], Shard], texts: dict[Shard, str], total: int | None, progress: Progress | None
) -> None:
    """Put results into `texts` as they come; of several shards that fail, the first in order raises."""
    for task in as_completed(tasks):
        if task.exception() is not None:
            for earlier in tasks:
                earlier.result()
        texts[tasks[task]] = task.result()
        if progress is not None:
            progress(samples_done(texts, total), total)


def samples_done(done: Iterable[Shard], total: int | None) -> int:
    """Return how many samples these shards hold; the number of shards where the total is unknown."""
    sizes = [1 if total is None else (shard.stop or total) - shard.start for shard in done]
    return sum(sizes)
