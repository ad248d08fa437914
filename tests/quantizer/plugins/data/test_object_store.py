"""Samples from an S3-compatible server on this machine: streamed, with faults, a run that is resumed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx.parser
import pytest
from qprof_onnx.profiles.base.errors import DataError
from qprof_onnx.profiles.runner.settings import RunSettings
from qprof_onnx.profiles.samples.objects import PreprocessedData
from qprof_onnx.profiles.samples.samples import open_samples
from qprof_onnx.profiles.samples.values import InputSpec
from qprof_onnx.quantizer.api.profiling import profile_model
from qprof_onnx.quantizer.plugins.data import remote_storage as remote

pytest.importorskip("moto", reason="of the extra test-all")

from .object_store import BUCKET, KEY, SECRET, ObjectStore, object_store

URL = f"s3://{BUCKET}/set"
COUNT = 12
X = InputSpec("x", np.dtype(np.float32), ("N", 3))


@pytest.fixture(scope="module")
def shared() -> Iterator[ObjectStore]:
    with pytest.MonkeyPatch.context() as patched, object_store(patched) as store:
        yield store


@pytest.fixture
def store(shared: ObjectStore, folder: Path) -> ObjectStore:
    shared.fault = lambda name, before: ""
    shared.put(folder)
    shared.requests.clear()
    return shared


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "set").mkdir()
    for number in range(COUNT):
        array = np.random.default_rng(number).normal(size=(1, 3)).astype(np.float32)
        np.savez(tmp_path / "set" / f"{number}.npz", x=array)
    return tmp_path / "set"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]>'
        "m (float[N, 3] x) => (float[N, 3] y) { a = Relu(x)  y = Add(a, x) }"
    )
    onnx.save(model, tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def test_samples_of_a_store_are_those_of_its_local_copy_and_are_read_one_at_a_time(
    store: ObjectStore, folder: Path
) -> None:
    here = list(open_samples(str(folder), (X,)))
    samples = open_samples(URL, (X,))
    assert samples.total == COUNT
    store.requests.clear()
    there = list(samples.part(3, 5))
    objects = {request for request in store.requests if request.startswith("GET") and "npz" in request}
    assert objects == {"GET set/3.npz", "GET set/4.npz"}
    assert [sample.name for sample in there] == [sample.name for sample in here[3:5]]
    np.testing.assert_array_equal(there[0].arrays["x"], here[3].arrays["x"])


@pytest.mark.parametrize("fault", ["503", "drop"])
def test_a_connection_that_fails_for_a_while_changes_nothing(store: ObjectStore, fault: str) -> None:
    store.fault = lambda name, before: fault if name == "set/1.npz" and before < 1 else ""
    assert len(list(open_samples(URL, (X,)).part(0, 3))) == 3
    assert store.requests["GET set/1.npz"] > 1


def test_an_object_that_disappears_is_named(store: ObjectStore) -> None:
    samples = iter(open_samples(URL, (X,)))
    next(samples)
    store.client.delete_object(Bucket=BUCKET, Key="set/1.npz")
    with pytest.raises(DataError) as caught:
        next(samples)
    assert f"{URL}/1.npz: is not there, or not any more" in str(caught.value)


def test_a_run_that_broke_off_is_resumed_and_gives_the_bytes_of_a_local_run(
    store: ObjectStore, folder: Path, model: Path, tmp_path: Path
) -> None:
    profile_model(model, str(folder), tmp_path / "here.yaml")
    run = RunSettings(threads=1)
    store.fault = lambda name, before: "404" if name == "set/9.npz" else ""
    with pytest.raises(DataError, match=r"set/9.npz: is not there"):
        profile_model(model, URL, tmp_path / "there.yaml", run)
    store.fault = lambda name, before: "503" if name == "set/5.npz" and before == 0 else ""
    store.requests.clear()
    profile_model(model, URL, tmp_path / "there.yaml", run)
    assert (tmp_path / "there.yaml").read_bytes() == (tmp_path / "here.yaml").read_bytes()


def test_credentials_are_in_no_message_and_no_file(
    store: ObjectStore, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "ATTEMPTS", 1)
    store.fault = lambda name, before: "404" if name == "set/3.npz" else ""
    with pytest.raises(DataError) as caught:
        profile_model(model, f"s3://{KEY}:{SECRET}@{BUCKET}/set")
    assert SECRET not in str(caught.value)


def test_a_folder_of_rows_in_a_store_is_streamed(store: ObjectStore, tmp_path: Path) -> None:
    (tmp_path / "csv").mkdir()
    (tmp_path / "csv" / "t.csv").write_text("a,b,c\n1,2,3\n4,5,6\n")
    store.client.put_object(Bucket=BUCKET, Key="rows/t.csv", Body=(tmp_path / "csv" / "t.csv").read_bytes())
    source = PreprocessedData(f"s3://{BUCKET}/rows")
    assert [s.name for s in open_samples(source, (X,))] == ["t.csv:2", "t.csv:3"]
