"""What the profiler's sessions say of a model that they refuse, and what they do not print."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.parser
import onnx_ir as ir
import onnxruntime
import pytest
from qprof_onnx.profiles.runner.calibrate import calibrate
from qprof_onnx.profiles.runtime import session as profiling_session
from qprof_onnx.profiles.samples.values import Sample
from qprof_onnx.quantizer.model.identity import model_id

from ...cli.running import qprof

UNKNOWN = """<ir_version: 8, opset_import: ["": 17, "nowhere": 1]>
pictures (float[N, 4] x) => (float[N, 4] y) { h = Relu(x) y = nowhere.Twice(h) }"""


def test_a_model_that_onnxruntime_refuses_is_called_by_its_file(tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model(UNKNOWN), tmp_path / "net.onnx")
    (tmp_path / "cal").mkdir()
    np.save(tmp_path / "cal" / "0.npy", np.ones((1, 4), np.float32))
    command = ["dump-profile", str(tmp_path / "net.onnx"), "--data", str(tmp_path / "cal")]
    result = qprof(*command, "-o", str(tmp_path / "p.yaml"))
    assert result.exit_code == 2
    assert f"error: {tmp_path / 'net.onnx'}: " in result.stderr
    assert "nowhere" in result.stderr


BRANCHES = """<ir_version: 8, opset_import: ["": 17]>
net (float[1, 8, 6, 6] x, bool first) => (float[1, 8, 6, 6] y) <float[8, 8, 1, 1] v, float[8, 8, 1, 1] w>
{ c = Conv (x, v)
  i = If (first) <then_branch = one () => (float[1, 8, 6, 6] t) { a = Conv (c, v) t = Relu (a) },
                  else_branch = other () => (float[1, 8, 6, 6] e) { b = Conv (c, w) e = Neg (b) }>
  y = Conv (i, w) }"""


def test_a_model_with_a_convolution_in_each_branch_is_profiled() -> None:
    proto = onnx.parser.parse_model(BRANCHES)
    rng = np.random.default_rng(0)
    for name in "vw":
        array = rng.standard_normal((8, 8, 1, 1)).astype(np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    del proto.graph.value_info[:]
    x = rng.standard_normal((1, 8, 6, 6)).astype(np.float32)
    samples = [Sample(str(first), {"x": x, "first": np.array(first)}) for first in (True, False)]
    model = ir.from_proto(proto)
    profile = calibrate(model, samples, model_id(model, "net.onnx"))
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    results = [session.run(["y"], dict(sample.arrays))[0] for sample in samples]
    assert profile["y"].maximum == pytest.approx(max(array.max() for array in results), rel=1e-5)
    assert profile["t"].minimum >= 0.0
    assert profile["i"].maximum == max(profile["t"].maximum, profile["e"].maximum)


def test_log_lines_of_onnx_ir_reach_no_terminal() -> None:
    assert profiling_session.CPU
    handlers = logging.getLogger("onnx_ir").handlers
    assert any(isinstance(handler, logging.NullHandler) for handler in handlers)
