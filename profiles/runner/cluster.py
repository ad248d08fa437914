"""The calibration runner over the workers of a Dask cluster, on this machine or others.

The samples are divided into shards. A task runs one shard with the same runner as a single process and
returns its profile. Profiles are merged as a tree, exactly, so the result has the same bytes as that of one
process. The model goes to each worker once. Shards of a worker that is lost are run again by the others.
"""

from __future__ import annotations

import atexit
import json
import logging
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import astuple, dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import onnx_ir as ir
from google.protobuf.message import DecodeError

from ..base.errors import ConfigError, DataError, ModelError, QprofError
from ..base.extras import library
from ..base.tool import Progress
from ..records.non_finite import dumps_run, loads_run
from ..records.profile import ModelId, Profile
from ..runtime.external_weights import save_with_weights
from ..runtime.providers import profiled_by
from ..runtime.states import model_samples
from ..samples.objects import PreprocessedData, source_name
from ..samples.smallest import SamplePlace, SmallestSamples
from .calibrate import NoSamplesError, profile_samples
from .sample_pass import ProfilingModel, profiling_model
from .settings import RunSettings

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
    """Return the profile of all samples, made by the workers of a cluster: that of `calibrate`, to the byte.

    On machines with other kinds of processors the values themselves may differ in the last bits.

    Args:
        model: the prepared model.
        source: folder of the samples, with its recipe, or "module:function".
        model_id: identity of the model.
        settings: of the run, with a scheduler. 0 threads mean one for a task.
        progress: called after each shard, with numbers of samples.
        smallest: keeps the places of the samples with the smallest digests; None for nothing.

    Raises:
        ConfigError: a setting is not allowed, the scheduler cannot be reached, or Dask is not installed.
        ModelError, DataError: see `calibrate`; or workers were lost again and again.
    """
    settings = settings.checked()
    if settings.scheduler is None:
        raise ConfigError("scheduler: is missing; give the address of a Dask scheduler, or call calibrate")
    total = model_samples(source, model, settings.limit).total
    job = Job(model_id, source, settings.of_worker())
    with tempfile.TemporaryDirectory(prefix="qprof-", ignore_cleanup_errors=True) as folder:
        save_with_weights(model, Path(folder) / "model.onnx")
        files = {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}
    merged = _on_cluster(settings.scheduler, files, job, total, progress)
    if not merged:
        raise DataError(f"{source_name(source)}: there are no samples; give at least one")
    profile, places = loads_shard(merged)
    if smallest is not None:
        smallest.add(places)
    return profile


# Shards, and the texts of their profiles ------------------------------------------------------------------


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
    samples = model_samples(
        job.source, model.model, job.settings.limit, by_row=job.settings.by_row, notes=False
    )
    part = samples.part(shard.start, shard.stop, shard.step)
    smallest = SmallestSamples(job.settings.noise_samples, model.specs, hold=False)
    try:
        profile = profile_samples(model, part, job.model_id, smallest=smallest)
    except NoSamplesError:
        return ""
    places = (replace(place, number=shard.start + place.number * shard.step) for place in smallest.places())
    return dumps_shard(profile, places)


def shard_of_files(files: Mapping[str, bytes], key: str, job: Job, shard: Shard) -> str:
    """Run a shard of a model that came over the network; `key` tells one model from another."""

    def unpacked(stack: ExitStack) -> Path:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="qprof-")))
        for name, content in files.items():
            (folder / name).write_bytes(content)
        return folder

    with _models.use((key, job), unpacked, job.settings) as model:
        return _shard_text(model, job, shard)


# The client -----------------------------------------------------------------------------------------------


def _on_cluster(
    address: str, files: Mapping[str, bytes], job: Job, total: int | None, progress: Progress | None
) -> str:
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
                        "they may have run out of memory: use --memory-limit, or workers with more memory"
                    ) from error
    own = profiled_by(job.settings.provider)
    tool = loads_shard(text)[0].tool if text else own
    if tool != own:
        raise ConfigError(
            f"scheduler {address}: a worker has {tool}, this machine {own}; "
            "install the same version everywhere"
        )
    return text


def _text_of_all(
    client: Any,
    files: Mapping[str, bytes],
    job: Job,
    parts: Sequence[Shard],
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
        _report(completed(tasks, loop=client.loop), shard_of, total, progress)
    kept = list(tasks)  # the scheduler drops results without a reference, and cannot recompute them then

    while len(tasks) > 1:  # a tree: neighbours are joined until one is left
        pairs = zip_longest(tasks[0::2], tasks[1::2])
        tasks = [a if b is None else client.submit(merged_texts, a, b, pure=False) for a, b in pairs]
        kept += tasks
    return str(tasks[0].result())


@contextmanager
def _quiet_logs() -> Iterator[None]:
    """Keep Dask's log off the terminal: what goes wrong is an error of the run."""
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
    """Turn what Dask raises when the scheduler is gone into one error."""
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


def _report(
    done: Iterable[Any], shard_of: Mapping[str, Shard], total: int | None, progress: Progress
) -> None:
    """Report each task as it is done."""
    finished: list[Shard] = []
    for task in done:
        if task.status != "finished":
            return  # its error is raised when the results are merged
        finished.append(shard_of[task.key])
        progress(samples_done(finished, total), total)


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


def samples_done(done: Iterable[Shard], total: int | None) -> int:
    """Return how many samples these shards hold; the number of shards where the total is unknown."""
    sizes = [1 if total is None else (shard.stop or total) - shard.start for shard in done]
    return sum(sizes)
