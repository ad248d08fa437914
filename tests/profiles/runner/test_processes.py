"""Workers of this machine: they never outlive their parent, import nothing by accident, and share models."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from qprof_onnx.profiles.base.errors import ModelError
from qprof_onnx.profiles.runner import processes as processes_module
from qprof_onnx.profiles.runner.processes import ModelCache
from qprof_onnx.profiles.runner.settings import RunSettings

DIGITS = Path(__file__).parents[3] / "examples" / "digits"
WORKERS = 2
CODE = "from qprof_onnx.cli.main import main; main(prog_name='qprof')"

FEEDS = """
import os, pathlib, sys, time
import numpy as np

def feeds():
    (pathlib.Path(os.environ["QPROF_TEST_PIDS"]) / str(os.getpid())).touch()
    for number in range(int(os.environ.get("QPROF_TEST_FEEDS", "100000"))):
        time.sleep(0.01)
        yield {"image": np.full((1, 1, 8, 8), number, np.float32)}
"""


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def children(pid: int) -> list[int]:
    """Return the processes that a process has started."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def await_that(condition: Any, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.01)


class Run:
    """A run with workers, in a group of its own, as a terminal starts it.

    Attributes:
        temporary: its TMPDIR.
        pids: files named after the processes that have begun.
    """

    def __init__(self, place: Path, *before: str, **environment: str) -> None:
        self.temporary, self.pids = place / "tmp", place / "pids"
        for folder in (self.temporary, self.pids):
            folder.mkdir(exist_ok=True)
        (place / "endless.py").write_text(FEEDS)
        options = ["--data", "endless:feeds", "-o", "p.yaml", "--workers", str(WORKERS)]
        self.process = subprocess.Popen(
            [
                sys.executable,
                *(before or ("-P", "-c", CODE)),
                "dump-profile",
                DIGITS / "model.onnx",
                *options,
            ],
            cwd=place,
            env=os.environ | {"TMPDIR": str(self.temporary), "QPROF_TEST_PIDS": str(self.pids)} | environment,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def begun(self) -> list[int]:
        return [int(path.name) for path in self.pids.iterdir()]

    def left(self) -> list[str]:
        """Return what is left of the run in TMPDIR; `.ses` is onnxruntime's own."""
        return [path.name for path in self.temporary.iterdir() if path.name != ".ses"]


@pytest.fixture
def begun(tmp_path: Path) -> Iterator[Run]:
    """A run whose workers have begun."""
    run = Run(tmp_path)
    try:
        await_that(lambda: len(run.begun()) == WORKERS or run.process.poll() is not None)
        yield run
    finally:
        if run.process.poll() is None:
            os.killpg(run.process.pid, signal.SIGKILL)
        run.process.communicate()


LINUX = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked up in /proc")


@LINUX
def test_sigterm_ends_a_run_and_its_workers_and_leaves_nothing(begun: Run) -> None:
    begun.process.terminate()
    _, errors = begun.process.communicate(timeout=60)
    assert (begun.process.returncode, errors) == (143, "ended by SIGTERM\n")
    assert not any(map(alive, begun.begun()))
    assert begun.left() == []


@LINUX
def test_a_closed_terminal_ends_all_with_one_line(begun: Run) -> None:
    """It sends SIGHUP to the process that keeps track of locks, too."""
    os.killpg(begun.process.pid, signal.SIGHUP)
    _, errors = begun.process.communicate(timeout=60)
    assert (begun.process.returncode, errors) == (129, "ended by SIGHUP\n")
    assert begun.left() == []


@LINUX
def test_after_sigkill_workers_end_and_remove_what_is_left(begun: Run) -> None:
    begun.process.kill()
    begun.process.wait()
    await_that(lambda: not any(map(alive, begun.begun())))
    await_that(lambda: begun.left() == [])


@LINUX
def test_ctrl_c_while_workers_start_is_one_line(tmp_path: Path) -> None:
    run = Run(tmp_path)
    await_that(lambda: children(run.process.pid))
    os.killpg(run.process.pid, signal.SIGINT)
    _, errors = run.process.communicate(timeout=60)
    assert (run.process.returncode, errors) == (130, "interrupted\n")
    assert run.left() == []


def test_workers_import_nothing_of_their_own_from_the_current_folder(tmp_path: Path) -> None:
    """But what the user names is found there, as without workers."""
    for name in ("pickle", "struct", "random", "signal", "tempfile"):
        (tmp_path / f"{name}.py").write_text("import os\nos.mkdir(f'ran-{os.getpid()}')\n")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "start.py").write_text(f"if __name__ == '__main__':\n    {CODE}\n")
    run = Run(tmp_path, str(tmp_path / "bin" / "start.py"), QPROF_TEST_FEEDS="4")
    _, errors = run.process.communicate(timeout=60)
    assert run.process.returncode == 0, errors
    assert not list(tmp_path.glob("ran-*"))


# ------------------------------------------------------------------------------------------------- models


class Opened:
    """Stands for a profiling model.

    Attributes:
        is_open: whether it can be used.
    """

    is_open = True


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch) -> ModelCache:
    """A cache whose models are stand-ins; the "folder" of a model may raise."""

    def loaded(key: object, folder: Any, settings: RunSettings) -> Any:
        with ExitStack() as stack:
            folder(stack)
            model = Opened()
            stack.callback(setattr, model, "is_open", False)
            return processes_module._Kept(key, model, stack.pop_all())  # type: ignore[arg-type]

    monkeypatch.setattr(processes_module, "_loaded", loaded)
    return ModelCache()


def use(cache: ModelCache, key: str, folder: Any = lambda _: Path()) -> Any:
    return cache.use(key, folder, RunSettings())


def test_a_model_is_not_closed_while_another_job_uses_it(cache: ModelCache) -> None:
    with use(cache, "a") as first:
        with use(cache, "b") as second:
            assert first.is_open
            assert second.is_open
        with use(cache, "a") as again:
            assert again is first
        assert first.is_open


def test_a_model_is_kept_for_the_next_shard_and_closed_for_another(cache: ModelCache) -> None:
    with use(cache, "a") as first:
        pass
    with use(cache, "a") as again:
        assert again is first
    assert first.is_open
    with use(cache, "b"):
        assert not first.is_open


def test_an_idle_model_is_closed_after_a_while(cache: ModelCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes_module, "IDLE_SECONDS", 0.01)
    with use(cache, "a") as model:
        time.sleep(0.05)
        assert model.is_open
    await_that(lambda: not model.is_open, 5.0)


def test_a_model_that_fails_to_load_leaves_the_others(cache: ModelCache) -> None:
    def broken(_: ExitStack) -> Path:
        raise ModelError("broken")

    with use(cache, "a"):
        pass
    with pytest.raises(ModelError, match="broken"), use(cache, "b", broken):
        pass
    with use(cache, "a") as model:
        assert model.is_open
    with pytest.raises(ModelError, match="broken"), use(cache, "b", broken):
        pass


def test_two_jobs_of_two_threads_run_all_their_shards(tmp_path: Path) -> None:
    """Sessions are opened in the model's folder for each shard, so it must not go away meanwhile."""
    files = {"model.onnx": (DIGITS / "model.onnx").read_bytes()}
    np.savez(tmp_path / "0.npz", image=np.zeros((1, 1, 8, 8), np.float32))
    identity = processes_module.ModelId("structure", "weights", 13)
    settings = RunSettings(channels="off", threads=1).checked()
    failures: list[BaseException] = []

    def job(key: str) -> None:
        try:
            for _ in range(6):
                work = processes_module.Job(identity, str(tmp_path), settings)
                assert processes_module.shard_of_files(files, key, work, processes_module.Shard(0, 1))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=job, args=(key,)) for key in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
