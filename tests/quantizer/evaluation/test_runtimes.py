import os
import subprocess
import sys
from pathlib import Path
from typing import get_args

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from qprof_onnx.profiles.base.errors import ConfigError, ModelError
from qprof_onnx.profiles.runtime import providers as custom_operators
from qprof_onnx.quantizer.evaluation import runtimes
from qprof_onnx.quantizer.evaluation.options import Judge, RuntimeName
from qprof_onnx.quantizer.evaluation.runtimes import RUNTIMES, place_of, run

MODEL = """<ir_version: 8, opset_import: ["": 17]>
g (float[N, 3] x, int64[N, 1] i) => (float[N, 3] y, int64[N, 1] j) { y = Exp (x) j = Neg (i) }"""


@pytest.fixture
def model(tmp_path: Path) -> str:
    onnx.save(onnx.parser.parse_model(MODEL), tmp_path / "m.onnx")
    return str(tmp_path / "m.onnx")


def test_the_names_are_those_of_the_table() -> None:
    assert set(get_args(RuntimeName)) == set(RUNTIMES)


@pytest.mark.parametrize("name", RUNTIMES)
def test_every_runtime_runs_a_model_as_onnxruntime_describes_it(model: str, name: str) -> None:
    pytest.importorskip(name, reason="of the extra openvino")
    session = place_of(name, "cpu").open(model, "m.onnx", 1)
    assert [(v.name, v.type) for v in session.get_inputs()] == [
        ("x", "tensor(float)"),
        ("i", "tensor(int64)"),
    ]
    assert [(v.name, v.type) for v in session.get_outputs()] == [
        ("y", "tensor(float)"),
        ("j", "tensor(int64)"),
    ]
    sample = {"x": np.arange(6, dtype=np.float32).reshape(2, 3), "i": np.array([[1], [2]])}
    j, y = run(session, ["j", "y"], sample, "m.onnx")
    assert np.array_equal(j, [[-1], [-2]])
    assert np.allclose(y, np.exp(sample["x"]), rtol=1e-6)  # float32


@pytest.mark.parametrize("name", RUNTIMES)
def test_a_runtime_writes_nothing_below_the_home_folder(tmp_path: Path, name: str) -> None:
    pytest.importorskip(name, reason="of the extra openvino")
    environment = {name: text for name, text in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    environment |= {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    code = f"from qprof_onnx.quantizer.evaluation.runtimes import place_of; place_of({name!r}, 'cpu')"
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    assert not list(tmp_path.rglob("*"))


@pytest.mark.parametrize(("name", "title"), [("onnxruntime", "onnxruntime"), ("openvino", "OpenVINO")])
def test_a_runtime_that_refuses_a_model_or_a_sample_is_named(tmp_path, model, name, title) -> None:
    pytest.importorskip(name, reason="of the extra openvino")
    odd = MODEL.replace('"": 17', '"": 17, "a.b": 1').replace("Exp (x)", "a.b.Odd (x)")
    onnx.save(onnx.parser.parse_model(odd), tmp_path / "odd.onnx")
    with pytest.raises(ModelError, match=f"odd.onnx: {title}"):
        place_of(name, "cpu").open(str(tmp_path / "odd.onnx"), "odd.onnx", 1)
    session = place_of(name, "cpu").open(model, "m.onnx", 1)
    with pytest.raises(ModelError, match=f"m.onnx: {title} cannot run it"):
        run(session, ["y"], {"z": np.zeros((2, 3), np.float32)}, "m.onnx")


def test_what_is_not_there_is_refused_with_what_is() -> None:
    with pytest.raises(ConfigError, match="runtime: is 'tensorrt'; give 'onnxruntime' or 'openvino'"):
        Judge(runtime="tensorrt")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"provider 'cuda'.* it has .*CPUExecutionProvider"):
        place_of("onnxruntime", "cuda")


def test_a_device_that_openvino_has_not_is_refused_with_those_that_it_has() -> None:
    pytest.importorskip("openvino", reason="of the extra openvino")
    with pytest.raises(ConfigError, match=r"provider 'npu7': OpenVINO has no such device here; it has .*CPU"):
        place_of("openvino", "npu7")


def test_a_missing_openvino_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(ConfigError, match=r"pip install 'openvino"):
        place_of("openvino", "cpu")


def test_a_session_that_runs_elsewhere_is_refused(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Fallen:
        def __init__(self, *given: object, **named: object) -> None:
            pass

        def get_providers(self) -> list[str]:
            return ["CPUExecutionProvider"]

    monkeypatch.setattr(custom_operators.ort, "InferenceSession", Fallen)
    place = runtimes.ExecutionPlace("onnxruntime", "CUDAExecutionProvider")
    cause = "does not start here: onnxruntime would run the model with CPUExecutionProvider instead"
    with pytest.raises(ConfigError, match=cause):
        place.open(model, "m.onnx", 1)


def test_a_signal_after_two_models_ran_in_openvino_is_no_crash(model: str) -> None:
    pytest.importorskip("openvino", reason="of the extra openvino")
    script = (
        "import signal\n"
        "from qprof_onnx.quantizer.evaluation.runtimes import place_of\n"
        "place = place_of('openvino', 'cpu')\n"
        f"sessions = [place.open({model!r}, 'm.onnx', 1) for _ in range(2)]\n"
        "del sessions[0], sessions[0]\n"
        "signal.signal(signal.SIGINT, lambda *_: print('alive'))\n"
        "signal.raise_signal(signal.SIGINT)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr


@pytest.mark.parametrize("timed", [False, True])
def test_large_float_weights_stay_in_their_file_unless_runs_are_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, timed: bool
) -> None:
    product = "g (float[N, 64] x) => (float[N, 64] y) { y = MatMul (x, w) }"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {product}')
    weight = np.eye(64, dtype=np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="w", size_threshold=0)
    stays: list[bool] = []
    new_session = runtimes.new_session

    def noted(path: str, options: onnxruntime.SessionOptions, provider: str) -> onnxruntime.InferenceSession:
        try:
            stays.append(options.get_session_config_entry("session.disable_prepacking") == "1")
        except RuntimeError:  # there is no such entry
            stays.append(False)
        return new_session(path, options, provider)

    monkeypatch.setattr(runtimes, "new_session", noted)
    for most, expected in ((4 * 64 * 64 - 1, not timed), (4 * 64 * 64, False)):
        monkeypatch.setattr(custom_operators, "MAX_COPIED_BYTES", most)
        session = place_of("onnxruntime", "cpu").open(str(tmp_path / "m.onnx"), "m.onnx", 1, timed=timed)
        (y,) = run(session, ["y"], {"x": 2.0 * weight}, "m.onnx")
        assert np.array_equal(y, 2.0 * weight)
        assert stays.pop() is expected
