"""The calibration runner over the workers of a Dask cluster, on this machine or others.

The samples are divided into shards. A task runs one shard with the same runner as a single process and
returns its profile. Profiles are merged as a tree, exactly, so the result has the same bytes as that of one
process. The model goes to each worker once. Shards of a worker that is lost are run again by the others.
"""

from __future__ import annotations

import atexit
import json
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import astuple, dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import msgspec
import onnx_ir as ir
from google.protobuf.message import DecodeError

from ....profiles.base.errors import ConfigError, DataError, ModelError, QprofError
from ....profiles.base.extras import library
from ....profiles.base.output_files import temporary_folder
from ....profiles.base.tool import Progress
from ....profiles.records.check_samples import SampleSize
from ....profiles.records.profile import ModelId, NonFinite, Profile
from ....profiles.records.store import dumps, loads
from ....profiles.runner.calibrate import NoSamplesError, profile_samples
from ....profiles.runner.sample_pass import ProfilingModel, profiling_model
from ....profiles.runner.settings import RunSettings
from ....profiles.runtime.external_weights import save_with_weights
from ....profiles.runtime.providers import loaded_libraries, profiled_by
from ....profiles.runtime.states import model_samples
from ....profiles.samples.objects import PreprocessedData, source_name
from ....profiles.samples.smallest import SamplePlace, SmallestSamples

CONNECT_SECONDS = 10.0
"""Seconds to wait for a scheduler."""

SHARDS_PER_WORKER = 4
"""Tasks for each worker: few, because each has a cost to start; enough to share the work evenly."""

IDLE_SECONDS = 30.0
"""How long a worker keeps a model that no shard uses."""

ATTEMPTS = 3
"""How often all workers that had the model may be lost."""


def calibrate_sharded(
    model: ir.Model,
    source: str | PreprocessedData,
    model_id: ModelId,
    settings: RunSettings,
    progress: Progress | None = None,
    *,
    smallest: SmallestSamples | None = None,
) -> Profile:
    """Return the profile of all samples, by the workers of a cluster: that of `calibrate`, to the byte."""
    settings = settings.checked()
    if settings.scheduler is None:
        raise ConfigError("scheduler: is missing; give the address of a Dask scheduler, or call calibrate")
    total = model_samples(source, model, settings.limit).total
    worker_settings = replace(
        settings, threads=settings.threads or 1, scheduler=None, custom_ops=loaded_libraries()
    )
    job = Job(model_id, source, worker_settings)
    with temporary_folder() as folder:
        save_with_weights(model, folder / "model.onnx")
        files = {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}
    address = settings.scheduler
    with _quiet_logs(), _client(address) as client, _until_lost(address, client), _replicas_kept(client):
        from distributed import CancelledError

        workers = len(client.scheduler_info(n_workers=-1)["workers"])
        if workers == 0:
            raise ConfigError(f"scheduler {address}: has no workers; start some with 'dask worker {address}'")
        for attempt in range(ATTEMPTS):
            try:
                text = _text_of_all(
                    client, files, job, shards(total, workers), total=total, progress=progress
                )
                break
            except CancelledError as error:  # all workers that held the model were lost
                if attempt == ATTEMPTS - 1:
                    raise ModelError(
                        f"scheduler {address}: {ATTEMPTS} times all workers that had the model were lost; "
                        "they may have run out of memory: use workers with more memory"
                    ) from error
    if not text:
        raise DataError(f"{source_name(source)}: there are no samples; give at least one")
    profile, places = loads_shard(text)
    own = profiled_by(settings.provider)
    if profile.tool != own:
        raise ConfigError(
            f"scheduler {address}: a worker has {profile.tool}, this machine {own}; "
            "install the same version everywhere"
        )
    if smallest is not None:
        smallest.add(places)
    return profile


# Shards, and the texts that workers send of them -----------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """The part of a job that is the same for all shards."""

    model_id: ModelId
    source: str | PreprocessedData  # every worker must be able to read it
    settings: RunSettings


def shards(total: int | None, workers: int) -> tuple[slice, ...]:
    """Divide samples into shards: runs of neighbours, or every n-th sample if their number is unknown."""
    if total is None:
        return tuple(slice(first, None, workers) for first in range(workers))
    size = max(1, -(-total // (workers * SHARDS_PER_WORKER)))
    return tuple(slice(start, min(start + size, total), 1) for start in range(0, total, size))


def dumps_shard(profile: Profile, places: Iterable[SamplePlace]) -> str:
    """Return a line of JSON with the text of a profile, and the places that its file does not have."""
    entries = {
        "places": [astuple(place) for place in places],
        "non_finite": msgspec.to_builtins(profile.non_finite, order="deterministic"),
    }
    return json.dumps(entries) + "\n" + dumps(profile)


def loads_shard(text: str) -> tuple[Profile, list[SamplePlace]]:
    """Return the arguments of `dumps_shard` again."""
    line, _, profile = text.partition("\n")
    entries = json.loads(line)
    places = [
        SamplePlace(digest, number, row, rows, SampleSize(*size))
        for digest, number, row, rows, size in entries["places"]
    ]
    return replace(loads(profile), non_finite=msgspec.convert(entries["non_finite"], NonFinite)), places


def merged_texts(a: str, b: str) -> str:
    """Return the text of two shards together; "" stands for no samples."""
    if not (a and b):
        return a or b
    (one, places), (other, others) = loads_shard(a), loads_shard(b)
    return dumps_shard(one.merged(other), [*places, *others])


# In a worker ------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class _CachedModel:
    """A profiling model of this process; `timer` closes it when it was idle for a while."""

    key: object
    model: ProfilingModel
    stack: ExitStack
    users: int = 0
    timer: threading.Timer | None = None


class ModelCache:
    """The profiling models of this process; one that no shard uses is closed after a while."""

    def __init__(self) -> None:
        """Begin with none."""
        self._lock = threading.Lock()
        self._models: list[_CachedModel] = []
        atexit.register(self.close_idle)

    @contextmanager
    def use(
        self, key: object, folder: Callable[[ExitStack], Path], settings: RunSettings
    ) -> Iterator[ProfilingModel]:
        """Yield the model of a key; load it from a folder, closed with the model, if need be."""
        with self._lock:
            cached = next((cached for cached in self._models if cached.key == key), None)
            if cached is None:
                self._close_idle()
                with ExitStack() as stack:
                    try:
                        model = ir.load(folder(stack) / "model.onnx")
                    except (OSError, DecodeError) as error:
                        raise ModelError(
                            f"a worker cannot read the model that it was sent: {error}; make room in its "
                            "temporary folder"
                        ) from error
                    ready = stack.enter_context(profiling_model(model, settings))
                    cached = _CachedModel(key, ready, stack.pop_all())
                self._models.append(cached)
            cached.users += 1
            if cached.timer is not None:
                cached.timer.cancel()
                cached.timer = None
        try:
            yield cached.model
        finally:
            with self._lock:
                cached.users -= 1
                if not cached.users:
                    cached.timer = threading.Timer(IDLE_SECONDS, self.close_idle)
                    cached.timer.daemon = True
                    cached.timer.start()

    def close_idle(self) -> None:
        """Close the models that no shard uses."""
        with self._lock:
            self._close_idle()

    def _close_idle(self) -> None:
        for idle in [cached for cached in self._models if not cached.users]:
            if idle.timer is not None:
                idle.timer.cancel()
            self._models.remove(idle)
            idle.stack.close()


_models = ModelCache()


def shard_of_files(files: Mapping[str, bytes], key: str, job: Job, shard: slice) -> str:
    """Return the text of a shard for a model whose files came over the network; "" if it has no samples."""

    def unpacked(stack: ExitStack) -> Path:
        folder = Path(stack.enter_context(temporary_folder()))
        for name, content in files.items():
            (folder / name).write_bytes(content)
        return folder

    settings = job.settings
    with _models.use((key, job), unpacked, settings) as model:
        samples = model_samples(
            job.source, model.model, settings.limit, by_row=settings.by_row, notes=False
        ).part(shard.start, shard.stop, shard.step)
        smallest = SmallestSamples(model.specs, settings.keep_samples, hold=False)
        try:
            profile = profile_samples(model, samples, job.model_id, smallest=smallest)
        except NoSamplesError:
            return ""
        places = smallest.places()
        return dumps_shard(
            profile, (replace(place, number=shard.start + place.number * shard.step) for place in places)
        )


# The client -----------------------------------------------------------------------------------------------


def _text_of_all(
    client: Any,
    files: Mapping[str, bytes],
    job: Job,
    parts: Sequence[slice],
    *,
    total: int | None,
    progress: Progress | None,
) -> str:
    """Return the text of the profile of all shards."""
    from distributed import as_completed as completed

    (sent,) = client.scatter([files], broadcast=True, hash=False)
    tasks = [client.submit(shard_of_files, sent, sent.key, job, part, pure=False) for part in parts]
    if progress is not None:
        shard_of = dict(zip((task.key for task in tasks), parts, strict=True))
        done = 0
        for task in completed(tasks, loop=client.loop):
            if task.status != "finished":
                break  # its error is raised when the results are merged
            shard = shard_of[task.key]
            # Where the number of samples is unknown, shards are counted.
            done += 1 if total is None else (shard.stop or total) - shard.start
            progress(done, total)
    kept = list(tasks)  # the scheduler drops results without a reference, and cannot recompute them then

    while len(tasks) > 1:  # a tree: neighbours are joined until one is left
        pairs = zip_longest(tasks[0::2], tasks[1::2])
        tasks = [a if b is None else client.submit(merged_texts, a, b, pure=False) for a, b in pairs]
        kept += tasks
    return str(tasks[0].result())


@contextmanager
def _quiet_logs() -> Iterator[None]:
    """Keep Dask's log off the terminal: a failure is an error of the run."""
    with suppress(ImportError):  # `_client` says so; the import sets the levels of the loggers
        import distributed  # noqa: F401
    names = [
        name for name in logging.root.manager.loggerDict if name.split(".")[0] in ("distributed", "tornado")
    ]
    levels = {name: logging.getLogger(name).level for name in names}
    for name in names:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)


@contextmanager
def _until_lost(address: str, client: Any) -> Iterator[None]:
    """Turn the exceptions of Dask for a scheduler that is gone into one error."""
    try:
        yield
    except QprofError:
        raise
    except Exception as error:  # Dask has many for this; the state of the connection tells
        if not isinstance(error, OSError) and client.status == "running":
            raise
        raise ConfigError(
            f"scheduler {address}: the connection was lost during the run; "
            "start the scheduler and its workers again, then the run"
        ) from error


@contextmanager
def _replicas_kept(client: Any) -> Iterator[None]:
    """Keep Dask from dropping all replicas of the model but one, which would be lost with its worker."""
    running = client.amm.running()
    client.amm.stop()
    try:
        yield
    finally:
        if running and client.status == "running":
            client.amm.start()


@contextmanager
def _client(address: str) -> Iterator[Any]:
    distributed = library("distributed", f"scheduler {address}", "cluster")
    try:
        client = distributed.Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:
        raise ConfigError(f"scheduler {address}: cannot be reached: {error}; check the address") from error
    try:
        yield client
    finally:
        client.close()
