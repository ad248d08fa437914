"""The calibration runner over the workers of a Dask cluster, on this machine or others.

The samples are divided into shards. A task runs one shard with the same runner as a single process and
returns its profile. Profiles are merged as a tree, exactly, so the result has the same bytes as that of one
process. The model goes to each worker once. Shards of a worker that is lost are run again by the others.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple, replace
from functools import partial
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
from ....profiles.records.profile import FirstNonFinite, ModelId, Profile
from ....profiles.records.store import dumps, loads
from ....profiles.runner.calibrate import NoSamplesError, profile_samples
from ....profiles.runner.sample_pass import profiling_model
from ....profiles.runner.settings import RunSettings
from ....profiles.runtime.external_weights import save_with_weights
from ....profiles.runtime.providers import loaded_libraries, profiled_by
from ....profiles.runtime.states import model_samples, rows_stand_alone
from ....profiles.samples.objects import PreprocessedData, source_name
from ....profiles.samples.smallest import SamplePlace, SmallestSamples

CONNECT_SECONDS = 10.0
"""Seconds to wait for a scheduler."""

SHARDS_PER_WORKER = 4
"""Tasks for each worker: few, because each loads the model; enough to share the work evenly."""


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
    work = partial(shard_of_files, model_id, source, worker_settings)
    with temporary_folder() as folder:
        save_with_weights(model, folder / "model.onnx")
        files = {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}
    address = settings.scheduler
    with _quiet_logs(), _client(address) as client, _until_lost(address, client), _replicas_kept(client):
        workers = len(client.scheduler_info(n_workers=-1)["workers"])
        if workers == 0:
            raise ConfigError(f"scheduler {address}: has no workers; start some with 'dask worker {address}'")
        text = _text_of_all(client, files, work, shards(total, workers), total=total, progress=progress)
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
        "non_finite": msgspec.to_builtins(profile.non_finite),
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
    first = msgspec.convert(entries["non_finite"], FirstNonFinite | None)
    return replace(loads(profile), non_finite=first), places


def merged_texts(a: str, b: str) -> str:
    """Return the text of two shards together; "" stands for no samples."""
    if not (a and b):
        return a or b
    (one, places), (other, others) = loads_shard(a), loads_shard(b)
    return dumps_shard(one.merged(other), [*places, *others])


# In a worker ------------------------------------------------------------------------------------------------


def shard_of_files(
    model_id: ModelId,
    source: str | PreprocessedData,  # that every worker can read
    settings: RunSettings,
    files: Mapping[str, bytes],
    shard: slice,
) -> str:
    """Return the text of a shard for a model whose files came over the network; "" if it has no samples."""
    with temporary_folder() as folder:
        try:
            for name, content in files.items():
                (folder / name).write_bytes(content)
            loaded = ir.load(folder / "model.onnx")
        except (OSError, DecodeError) as error:
            raise ModelError(
                f"a worker cannot read the model that it was sent: {error}; make room in its temporary folder"
            ) from error
        with profiling_model(loaded, settings) as model:
            samples = model_samples(source, model.model, settings.limit, by_row=settings.by_row, notes=False)
            part = samples.part(shard.start, shard.stop, shard.step)
            alone = partial(rows_stand_alone, model.model)
            smallest = SmallestSamples(model.specs, settings.keep_samples, alone, hold=False)
            try:
                profile = profile_samples(model, part, model_id, smallest=smallest)
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
    work: Callable[[Mapping[str, bytes], slice], str],
    parts: Sequence[slice],
    *,
    total: int | None,
    progress: Progress | None,
) -> str:
    """Return the text of the profile of all shards."""
    from distributed import as_completed as completed

    (sent,) = client.scatter([files], broadcast=True, hash=False)
    tasks = [client.submit(work, sent, part, pure=False) for part in parts]
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
    """Turn the exceptions of Dask for a scheduler or all workers that are gone into one error."""
    from distributed import CancelledError

    try:
        yield
    except QprofError:
        raise
    except Exception as error:  # Dask has many for this; the state of the connection tells
        if not isinstance(error, OSError | CancelledError) and client.status == "running":
            raise
        raise ConfigError(
            f"scheduler {address}: the connection was lost during the run, or all workers that had the model "
            "(they may have run out of memory); start the scheduler and its workers again, then the run"
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
