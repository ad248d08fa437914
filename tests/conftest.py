"""What holds for all tests: an example may take as long as a busy machine lets it, Ctrl-C is heard, and no
step that fails is left out."""

import gc
import os
import signal
import threading
from collections.abc import Generator, Iterator
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest

if "PYTEST_XDIST_WORKER" in os.environ:
    # Workers share the processor; numpy's BLAS reads this when it is loaded.
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")

from hypothesis import settings
from qprof_onnx.profiles.base.improvement import STRICT
from qprof_onnx.quantizer.api.profiling import profile_model
from qprof_onnx.quantizer.targets import target

if threading.current_thread() is threading.main_thread():
    # A shell lets what it starts in the background ignore Ctrl-C, and a supervisor perhaps SIGTERM; that is
    # inherited by what tests start. SIGHUP stays ignored under nohup.
    for number, handler in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGTERM, signal.SIG_DFL),
    ):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)

os.environ[STRICT] = "1"  # here and in the processes that tests start

settings.register_profile("unhurried", parent=settings(), deadline=None)
settings.load_profile("unhurried")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Let a process that is done take tests from the other, where -n alone is given."""
    if config.getoption("dist") != "load":
        return None
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the thousands of tests out of what Python looks through for garbage, then and while they run."""
    gc.disable()
    found = yield
    gc.freeze()
    gc.enable()
    return found


NEEDS_MORE = ("of the extra", ".openvino()", "dask_processes")
"""What stands in a test module that skips tests where a library is missing."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of modules that skip what needs further libraries as `extra`."""

    @cache
    def needs_more(path: Path) -> bool:
        text = path.read_text(encoding="utf-8")
        return any(sign in text for sign in NEEDS_MORE)

    for item in items:
        if needs_more(item.path):
            item.add_marker("extra")


@pytest.fixture(scope="session", autouse=True)
def _no_measured_times() -> Iterator[None]:
    """Networks of a few elements are never faster in int8: they are planned as if no times were measured.

    What starts a process of its own has the times; tests of the cost model give a table.
    """
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(target, "costs_of", lambda name: None)
        yield


@pytest.fixture(scope="session")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file of a profile of examples/digits; not to be changed."""
    digits, path = (
        Path(__file__).parent.parent / "examples" / "digits",
        tmp_path_factory.mktemp("profile") / "p.yaml",
    )
    profile_model(digits / "model.onnx", digits / "calibration", path)
    return path


@pytest.fixture(autouse=True)
def numbers_are_the_same_in_any_order(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Give each test the generator of its module as it was at first: a process takes tests in any order."""
    if (rng := getattr(request.module, "RNG", None)) is not None:
        monkeypatch.setattr(request.module, "RNG", deepcopy(rng))
