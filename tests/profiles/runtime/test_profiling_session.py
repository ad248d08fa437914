"""What the profiler's sessions say of a model that they refuse, and what they do not print."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
from click.testing import CliRunner
from qprof_onnx.cli.main import main
from qprof_onnx.profiles.runtime import session as profiling_session

UNKNOWN = """<ir_version: 8, opset_import: ["": 17, "nowhere": 1]>
pictures (float[N, 4] x) => (float[N, 4] y) { h = Relu(x) y = nowhere.Twice(h) }"""


def test_a_model_that_onnxruntime_refuses_is_called_by_its_file(tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model(UNKNOWN), tmp_path / "net.onnx")
    (tmp_path / "cal").mkdir()
    np.save(tmp_path / "cal" / "0.npy", np.ones((1, 4), np.float32))
    command = ["dump-profile", str(tmp_path / "net.onnx"), "--data", str(tmp_path / "cal")]
    result = CliRunner().invoke(main, [*command, "-o", str(tmp_path / "p.yaml")], prog_name="qprof")
    assert result.exit_code == 2
    assert f"error: {tmp_path / 'net.onnx'}: " in result.stderr
    assert "nowhere" in result.stderr


def test_log_lines_of_onnx_ir_reach_no_terminal() -> None:
    assert profiling_session.CPU
    handlers = logging.getLogger("onnx_ir").handlers
    assert any(isinstance(handler, logging.NullHandler) for handler in handlers)
