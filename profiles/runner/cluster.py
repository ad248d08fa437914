"""The calibration runner over several processes: on this machine, or the workers of a Dask cluster.

The samples are divided into shards. A task runs one shard with the same runner as a single process and
returns its profile. Profiles are merged as a tree, exactly, so the result has the same bytes as that of one
process. The model goes to each worker once. Shards of a worker that is lost are run again by the others.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import zip_longest
from pathlib import Path
from typing import Any

import onnx_ir as ir

from ..base.errors import ConfigError, DataError, ModelError, QprofError
from ..base.tool import Progress
from ..records.profile import ModelId, Profile
from ..runtime.external_weights import save_with_weights
from ..runtime.providers import cores, profiled_by
from ..samples.objects import PreprocessedData, source_name
from ..samples.samples import input_specs, open_samples
from ..samples.smallest import SmallestSamples
from .processes import (
    ATTEMPTS,
    Job,
    Shard,
    loads_shard,
    merged_texts,
    on_processes,
    samples_done,
    shard_of_files,
    shards,
)
from .settings import RunSettings

CONNECT_SECONDS = 10.0
"""Seconds to wait for a scheduler."""


def calibrate_sharded(
    model: ir.Model,
    source: str | PreprocessedData,
    model_id: ModelId,
    settings: RunSettings,
    progress: Progress | None = None,
    *,
    smallest: SmallestSamples | None = None,
) -> Profile:
    """Return the profile of all samples, made by several processes; it is that of `calibrate` to the byte.

    On machines with other kinds of processors the values themselves may differ in the last bits.

    Args:
        model: the prepared model.
        source: folder of the samples, with its recipe, or "module:function".
        model_id: identity of the model.
        settings: of the run. 0 threads mean one for a Dask task, and this machine's cores divided by
            `workers` for processes on this machine.
        progress: called after each shard, with numbers of samples.
        smallest: keeps the places of the samples with the smallest digests; None for nothing.

    Raises:
        ConfigError: a setting is not allowed, the scheduler cannot be reached, or Dask is not installed.
        ModelError, DataError: see `calibrate`; or workers were lost again and again.
    """
    settings = settings.checked()
    workers, scheduler = settings.workers, settings.scheduler
    total = open_samples(source, input_specs(model), settings.limit).total
    with tempfile.TemporaryDirectory(prefix="qprof-", ignore_cleanup_errors=True) as folder:
        save_with_weights(model, Path(folder) / "model.onnx")
        if scheduler is not None:
            job = Job(model_id, source, settings.of_worker(threads=1))
            texts = _on_cluster(scheduler, Path(folder), job, total, progress)
        else:
            threads = max(1, cores() // max(workers, 1))
            job = Job(model_id, source, settings.of_worker(threads))
            texts = on_processes(max(workers, 1), folder, job, total, progress)
    merged = _tree(texts, merged_texts)
    if not merged:
        raise DataError(f"{source_name(source)}: there are no samples; give at least one")
    profile, places = loads_shard(merged)
    if smallest is not None:
        smallest.add(places)
    return profile


def _tree(items: Sequence[Any], join: Callable[[Any, Any], Any]) -> Any:
    """Join neighbours until one is left."""
    while len(items) > 1:
        items = [
            a if b is None else join(a, b) for a, b in zip_longest(items[0::2], items[1::2], fillvalue=None)
        ]
    return items[0]


# Dask -------------------------------------------------------------------------------------------------------


def _on_cluster(
    address: str, folder: Path, job: Job, total: int | None, progress: Progress | None
) -> list[str]:
    with _quiet_logs(), _client(address) as client, _until_lost(address, client), _replicas_kept(client):
        from distributed import CancelledError

        workers = len(client.scheduler_info(n_workers=-1)["workers"])
        if workers == 0:
            raise ConfigError(f"scheduler {address}: has no workers; start some with 'dask worker {address}'")
        files = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
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
    return [text]


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

    def join(a: Any, b: Any) -> Any:
        kept.append(client.submit(merged_texts, a, b, pure=False))
        return kept[-1]

    return str(_tree(tasks, join).result())


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
    try:
        from distributed import Client
    except ImportError:
        raise ConfigError(
            "scheduler: Dask is not installed; install it with: pip install 'qprof-onnx[cluster]'"
        ) from None
    try:
        client = Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:
        raise ConfigError(f"scheduler {address}: cannot be reached: {error}; check the address") from error
    try:
        yield client
    finally:
        client.close()
