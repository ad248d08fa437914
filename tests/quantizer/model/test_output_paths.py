"""An output over what is read is refused from Python too; the command line's cases are in tests/cli."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest
import qprof_onnx as qprof
from qprof_onnx.profiles.base.errors import ConfigError
from qprof_onnx.quantizer.model.loading import load_model
from qprof_onnx.quantizer.model.output_paths import FilesRead, check_outputs
from qprof_onnx.quantizer.plugins.tune.measure_target import measure_target

REFUSED = r"which this command reads; choose another name"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]>\n'
        "net (float[1, 64] x) => (float[1, 64] y) { y = MatMul(x, w) }"
    )
    array = np.ones((64, 64), np.float32)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(array, "w"))
    path = tmp_path / "float.onnx"
    onnx.save_model(proto, path, save_as_external_data=True, location="m.onnx.data", size_threshold=0)
    (tmp_path / "cal").mkdir()
    np.savez(tmp_path / "cal" / "00.npz", x=np.ones((1, 64), np.float32))
    return path


def test_an_output_that_is_the_data_is_refused(model: Path) -> None:
    with pytest.raises(ConfigError, match=r"m\.onnx\.data: is a file of the model's weights, which this"):
        check_outputs([model.with_name("m.onnx.data")], FilesRead(models=(model,)))


def test_other_outputs_are_not(model: Path) -> None:
    read = FilesRead(models=(model, model.with_name("absent.onnx"), None), files=(None, object()))
    check_outputs([model.with_name("other.onnx"), None, model.with_name("absent.yaml")], read)


@pytest.mark.parametrize("name", ["profile.yaml", "train.csv", "00.npz", "notes", "m.onnx.gz"])
def test_a_model_replaces_no_file_of_another_kind(tmp_path: Path, model: Path, name: str) -> None:
    output = tmp_path / name
    output.write_text("text")
    check_outputs([output], FilesRead())
    with pytest.raises(ConfigError, match=r"is the name of another kind|is no ONNX model"):
        check_outputs([output], FilesRead(), model=output)
    check_outputs([model], FilesRead(), model=model)
    proto = onnx.load_model(model, load_external_data=False)
    proto.ClearField("ir_version")
    model.write_bytes(proto.SerializeToString())
    assert model.read_bytes()[:1] != b"\x08"
    check_outputs([model], FilesRead(), model=model)


def test_a_model_in_onnxruntimes_own_format_is_refused_before_the_work(tmp_path: Path) -> None:
    output = tmp_path / "model.ort"
    with pytest.raises(ConfigError, match=r"name the model OUT\.onnx"):
        check_outputs([output], FilesRead(), model=output)


def test_the_weights_of_a_model_in_memory_are_where_it_was_read(model: Path) -> None:
    loaded: ir.Model = load_model(model)
    with pytest.raises(ConfigError, match=REFUSED):
        check_outputs([model.with_name("m.onnx.data")], FilesRead(models=(loaded,)))


def test_a_folder_that_lets_no_file_be_made_is_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: object) -> None:  # root may do everything
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    with pytest.raises(ConfigError, match=r"cannot be written to \(Read-only file system\); choose another"):
        check_outputs([tmp_path / "p.yaml"], FilesRead())


def test_the_trial_of_a_folder_leaves_nothing_in_it(tmp_path: Path) -> None:
    check_outputs([tmp_path / "p.yaml", tmp_path / "new" / "q.yaml"], FilesRead())
    assert not list(tmp_path.iterdir())


def test_a_folder_of_many_samples_is_not_slow(tmp_path: Path) -> None:
    for number in range(500):
        (tmp_path / f"{number}.npz").touch()
    (tmp_path / "p.yaml").touch()
    calls = []
    real = Path.stat
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "stat", lambda self, **kw: calls.append(self) or real(self, **kw))
        check_outputs([tmp_path / "p.yaml"], FilesRead(data=(tmp_path,)))
    assert len(calls) < 10


CALLS: dict[str, Callable[[Path, Path], Any]] = {
    "profile": lambda m, out: qprof.profile(m, m.with_name("cal"), out),
    "instrument": lambda m, out: qprof.instrument(load_model(m) if out.suffix == ".data" else m, out),
    "join": lambda m, out: qprof.join([m, m], out),
    "merge": lambda m, out: qprof.merge([m, out], out),
    "quantize": lambda m, out: qprof.quantize(m, None, out, mode="dynamic", data=m.with_name("cal")),
    "import_profile": lambda m, out: qprof.import_profile(out, m, out),
    "import_plan": lambda m, out: qprof.import_plan(out, m, out),
    "export": lambda m, out: qprof.export(out, m, "glow", out),
    "tune": lambda m, out: qprof.tune(m, m, m.with_name("cal"), out, labels=m.parent / "cal" / "00.npz"),
}
"""Every public function that writes."""


def test_every_public_function_with_an_output_is_tried() -> None:
    functions = [(n, getattr(qprof, n)) for n in dir(qprof) if n.islower() and callable(getattr(qprof, n))]
    writing = {n for n, f in functions if "output" in inspect.signature(f).parameters}
    assert writing == {*CALLS}


def test_measured_times_are_not_written_over_their_target(tmp_path: Path) -> None:
    target = tmp_path / "own.yaml"
    target.write_bytes((Path(__file__).parents[3] / "configs" / "onnxruntime-x86.yaml").read_bytes())
    with pytest.raises(ConfigError, match=REFUSED):
        measure_target(target, target)


@pytest.mark.parametrize("name", ["float.onnx", "m.onnx.data", "cal/00.npz"])
@pytest.mark.parametrize("function", CALLS)
def test_a_public_function_writes_over_nothing_that_it_reads(model: Path, function: str, name: str) -> None:
    output = model.parent / name
    if function in ("instrument", "join") and name.endswith("npz"):
        return  # these read no samples
    before = output.read_bytes()
    with pytest.raises(ConfigError, match=REFUSED):
        CALLS[function](model, output)
    assert output.read_bytes() == before


@pytest.mark.parametrize("name", ["float.onnx", "m.onnx.data"])
def test_a_result_is_not_saved_over_what_it_was_made_from(model: Path, name: str) -> None:
    result = qprof.quantize(model, mode="dynamic")
    with pytest.raises(ConfigError, match=REFUSED):
        result.save(model.parent / name)
    result.save(model.with_name("q.onnx"))
    assert onnx.load(model.with_name("q.onnx")).graph.node
