"""Functions of files: `file.py:function`, beside `module:function`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from qprof_onnx.profiles.base.errors import DataError
from qprof_onnx.profiles.samples.functions import is_function, load_function, module_file
from qprof_onnx.profiles.samples.samples import open_samples
from qprof_onnx.profiles.samples.values import InputSpec

X = InputSpec("x", np.dtype(np.float32), ("N", 3))
SAMPLES = """
import numpy as np

class Data:
    @staticmethod
    def samples():
        yield {"x": np.ones((1, 3), np.float32)}

samples = Data.samples
"""


@pytest.fixture(autouse=True)
def _modules_are_forgotten() -> Iterator[None]:
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.parametrize("name", ["samples", "Data.samples"])
@pytest.mark.parametrize("there", ["data.py", "./data.py", "my dir/data.py", "my-data.v2.py"])
def test_a_function_of_a_file_gives_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: str, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(there).parent.mkdir(exist_ok=True)
    Path(there).write_text(SAMPLES)
    (sample,) = open_samples(f"{there}:{name}", (X,))
    assert sample.name == f"{there}:{name}[0]"


def test_a_file_finds_the_modules_beside_it_while_it_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "beside_me.py").write_text("VALUE = 3\n")
    (tmp_path / "data.py").write_text("import beside_me\ndef value(): return beside_me.VALUE\n")
    path = list(sys.path)
    assert load_function(f"{tmp_path}/data.py:value")() == 3
    assert sys.path == path


def test_a_file_is_run_once_until_it_is_changed(tmp_path: Path) -> None:
    text = "CALLS = []\ndef value():\n    CALLS.append({})\n    return CALLS\n"
    for number in (1, 2):
        (tmp_path / "data.py").write_text(text.format(number))
        first, second = (load_function(f"{tmp_path}/data.py:value")() for _ in range(2))
        assert first is second
        assert second == [number, number]
    (tmp_path / "b").mkdir()  # files of one name in two folders are two
    (tmp_path / "b" / "data.py").write_text(text.format(2))
    assert load_function(f"{tmp_path}/b/data.py:value")() == [2]


def test_a_file_may_define_a_dataclass(tmp_path: Path) -> None:
    head = "from __future__ import annotations\nfrom dataclasses import dataclass\n"
    (tmp_path / "data.py").write_text(f"{head}@dataclass\nclass A:\n    x: int\n")
    assert load_function(f"{tmp_path}/data.py:A") is not None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1 / 0", "running '.*data.py': raised ZeroDivisionError: division by zero; repair the file"),
        ("def (", "running '.*data.py': raised SyntaxError"),
        ("import no_such_thing", "needs the Python package 'no_such_thing'"),
        ("def value(): ...", "'.*data.py' has no function 'valeu'; define it. Did you mean 'value'"),
    ],
)
def test_a_file_that_cannot_be_loaded_is_refused_each_time(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "data.py").write_text(text)
    for _ in range(2):
        with pytest.raises(DataError, match=said):
            load_function(f"{tmp_path}/data.py:valeu")


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(DataError, match=r"there is no file 'nowhere/data\.py'; check the path"):
        load_function("nowhere/data.py:samples")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("data.py:samples", True),
        ("module:function", True),
        ("photos", False),
        ("s3://bucket/photos", False),
        ("random:8", False),
        ("C:/data/photos", False),
        ("data.py", False),
    ],
)
def test_what_names_a_function(source: str, expected: bool) -> None:
    assert is_function(source) is expected


def test_the_file_of_a_function_is_known_without_running_it() -> None:
    assert module_file("nowhere/data.py:samples") == Path("nowhere/data.py")
