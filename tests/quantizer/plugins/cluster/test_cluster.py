"""Several processes, here and in a Dask cluster: the bytes of one, whoever is lost on the way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from qprof_onnx.profiles.base.errors import ConfigError, DataError
from qprof_onnx.profiles.records.store import dumps, loads
from qprof_onnx.profiles.runner.settings import RunSettings
from qprof_onnx.quantizer.api.profiling import profile_model
from qprof_onnx.quantizer.plugins.cluster import cluster as cluster_module
from qprof_onnx.quantizer.plugins.cluster.cluster import (
    dumps_shard,
    loads_shard,
    merged_texts,
    shards,
)

from ....profiles.runner.dask_processes import dask_cluster, wait_for_workers

DIGITS = Path(__file__).parents[4] / "examples" / "digits"
MODEL, DATA = DIGITS / "model.onnx", DIGITS / "calibration"

SLOW = """
import os, pathlib, time
import numpy as np

def feeds():
    rng = np.random.default_rng(0)
    for number in range(24):
        if os.environ.get("QPROF_TEST_PIDS"):  # says which process has begun
            (pathlib.Path(os.environ["QPROF_TEST_PIDS"]) / str(os.getpid())).touch()
            time.sleep(0.05)
        yield {"image": rng.random((2, 1, 8, 8), np.float32)}
"""


@pytest.fixture
def slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A source of 24 feeds that takes over a second in a worker; every process finds its module."""
    (tmp_path / "slow_digits.py").write_text(SLOW)
    monkeypatch.syspath_prepend(str(tmp_path))
    found = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    monkeypatch.setenv("PYTHONPATH", found)
    (tmp_path / "pids").mkdir()
    return "slow_digits:feeds"


def profile_bytes(
    path: Path, data: str | Path = DATA, limit: int | None = None, progress: Any = None, **settings: Any
) -> bytes:
    profile_model(
        MODEL,
        data,
        path,
        RunSettings(limit=limit, **settings),
        stage=None if progress is None else lambda _: progress,
    )
    return path.read_bytes()


# ------------------------------------------------------------------------------------------------- shards


@pytest.mark.parametrize(("total", "workers"), [(1, 4), (8, 2), (17, 2), (1000, 3)])
def test_shards_hold_every_sample_once(total: int, workers: int) -> None:
    parts = shards(total, workers)
    assert [n for part in parts for n in range(part.start, part.stop or 0)] == list(range(total))


def test_samples_of_unknown_number_are_dealt_out() -> None:
    assert shards(None, 3) == (slice(0, None, 3), slice(1, None, 3), slice(2, None, 3))


def test_an_empty_shard_changes_nothing() -> None:
    text = "profile"
    assert merged_texts("", text) == merged_texts(text, "") == text
    assert merged_texts("", "") == ""


def test_channels_of_a_trained_model_are_the_same_bytes_for_any_threads_and_shards(tmp_path: Path) -> None:
    none: Any = {"keep_samples": 0}  # which are chosen after the shards are merged
    expected = profile_bytes(tmp_path / "one", threads=1, **none)
    assert b"channels:" in expected
    assert profile_bytes(tmp_path / "three", threads=3, **none) == expected
    files = sorted(DATA.glob("*.npz"))
    for part in range(3):
        folder = tmp_path / f"data-{part}"
        folder.mkdir()
        for file in files[part::3]:
            (folder / file.name).write_bytes(file.read_bytes())
    parts = [
        profile_bytes(tmp_path / f"{part}", tmp_path / f"data-{part}", **none).decode() for part in (2, 0, 1)
    ]
    texts = [dumps_shard(loads(part), []) for part in parts]
    assert dumps(loads_shard(reduce(merged_texts, texts))[0]).encode() == expected


def kill_one_after_it_began(pids: Path) -> tuple[threading.Thread, list[int]]:
    """Kill the first process that has begun with a shard, with SIGKILL; the list will hold its number."""
    killed: list[int] = []

    def kill() -> None:
        for _ in range(3000):  # half a minute
            begun = [int(path.name) for path in pids.iterdir() if int(path.name) != os.getpid()]
            if begun:
                os.kill(begun[0], signal.SIGKILL)
                killed.append(begun[0])
                return
            time.sleep(0.01)

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    return thread, killed


# ------------------------------------------------------------------------------------------------- Dask


def test_a_dask_cluster_gives_the_bytes_of_one_machine(tmp_path: Path) -> None:
    with dask_cluster(2) as address:
        wait_for_workers(address, 2)
        seen: list[tuple[int, int | None]] = []
        shared = profile_bytes(tmp_path / "b", scheduler=address, progress=lambda *done: seen.append(done))
        assert shared == profile_bytes(tmp_path / "a")
        assert sorted(seen) == [(n, 8) for n in range(1, 9)]


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system has no SIGKILL")
def test_shards_of_a_killed_dask_worker_are_run_again(
    tmp_path: Path, slow: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = profile_bytes(tmp_path / "a", slow)
    monkeypatch.setenv("QPROF_TEST_PIDS", str(tmp_path / "pids"))
    with dask_cluster(2) as address:
        wait_for_workers(address, 2)
        killer, killed = kill_one_after_it_began(tmp_path / "pids")
        assert profile_bytes(tmp_path / "b", slow, scheduler=address) == expected
        killer.join()
        assert len(killed) == 1
        begun = {int(path.name) for path in (tmp_path / "pids").iterdir()} - {os.getpid()}
        assert len(begun) == 2  # the other one did it all


def test_a_scheduler_that_dies_is_one_error_without_a_log(
    tmp_path: Path, slow: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("QPROF_TEST_PIDS", str(tmp_path / "pids"))
    monkeypatch.setattr(cluster_module, "CONNECT_SECONDS", 5.0)
    started: list[subprocess.Popen[str]] = []

    def kill_when_it_began() -> None:
        while not list((tmp_path / "pids").iterdir()):
            time.sleep(0.01)
        started[0].kill()

    with dask_cluster(1, started) as address:
        threading.Thread(target=kill_when_it_began, daemon=True).start()
        wait_for_workers(address, 1)
        with pytest.raises(ConfigError, match=r"scheduler tcp:.*: the connection was lost .*; start the"):
            profile_model(MODEL, slow, run=RunSettings(scheduler=address))
    assert capfd.readouterr().err == ""


def test_when_all_who_had_the_model_are_lost_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    distributed = pytest.importorskip("distributed")

    def text(*args: Any, **named: Any) -> str:
        raise distributed.CancelledError("already forgotten")

    monkeypatch.setattr(cluster_module, "_text_of_all", text)
    with dask_cluster(1) as address:
        wait_for_workers(address, 1)
        with pytest.raises(ConfigError, match="or all workers that had the model"):
            profile_bytes(tmp_path / "b", scheduler=address)


def test_a_scheduler_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr(cluster_module, "CONNECT_SECONDS", 0.2)
    with pytest.raises(ConfigError, match=r"scheduler tcp://127\.0\.0\.1:9: cannot be reached"):
        profile_model(MODEL, DATA, run=RunSettings(scheduler="tcp://127.0.0.1:9"))


def test_without_dask_the_command_that_installs_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ConfigError, match=r"Python package 'distributed', .* pip install 'distributed"):
        profile_model(MODEL, DATA, run=RunSettings(scheduler="tcp://127.0.0.1:9"))


def test_a_function_is_shared_among_workers_and_the_error_of_one_is_that_of_the_run(
    tmp_path: Path, slow: str
) -> None:
    wrong = tmp_path / "wrong"
    wrong.mkdir()
    for number in range(3):
        np.savez(wrong / f"{number}.npz", image=np.full((1, 1, 8, 8), number / number if number else 0.0))
    with dask_cluster(3) as address:
        wait_for_workers(address, 3)
        shared = profile_bytes(tmp_path / "b", slow, scheduler=address)
        assert shared == profile_bytes(tmp_path / "a", slow)
        with pytest.raises(DataError, match=r"[0-2]\.npz: input 'image': has type float64"):
            profile_model(MODEL, wrong, run=RunSettings(scheduler=address))
