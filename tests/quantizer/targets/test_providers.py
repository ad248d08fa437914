"""Execution providers that run without their hardware, where they are installed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from qprof_onnx.profiles.runner.settings import RunSettings
from qprof_onnx.quantizer.api.from_profile import write_quantized
from qprof_onnx.quantizer.api.profiling import profile_model
from qprof_onnx.quantizer.targets.loading import load_recipe

DIGITS = Path(__file__).parents[3] / "examples" / "digits"
PROVIDER = "QNNExecutionProvider"
SNAPDRAGON_8_GEN_3 = "57"


def qnn_options() -> ort.SessionOptions:
    qnn = pytest.importorskip("onnxruntime_qnn", reason="the HTP simulator is in onnxruntime-qnn (100 MB)")
    if not any(device.ep_name == PROVIDER for device in ort.get_ep_devices()):
        ort.register_execution_provider_library(PROVIDER, qnn.get_library_path())
    options = ort.SessionOptions()
    devices = [device for device in ort.get_ep_devices() if device.ep_name == PROVIDER]
    if not devices:
        pytest.skip("onnxruntime-qnn finds no device here")
    backend = {"backend_path": qnn.get_qnn_htp_path(), "soc_model": SNAPDRAGON_8_GEN_3}
    options.add_provider_for_devices(devices, backend)
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    options.log_severity_level = 4
    return options


def test_the_simulator_of_qnn_computes_a_model_written_for_it_within_two_steps(tmp_path: Path) -> None:
    options = qnn_options()
    profile, path = tmp_path / "p.yaml", tmp_path / "q.onnx"
    profile_model(DIGITS / "model.onnx", DIGITS / "calibration", profile, RunSettings(limit=50))
    result = write_quantized(DIGITS / "model.onnx", profile, path, recipe=load_recipe("qnn"))
    model = onnx.load(path)
    images = np.load(sorted((DIGITS / "heldout").glob("*.npz"))[0])["image"][:8]
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = len(images)
    session = ort.InferenceSession(model.SerializeToString(), options)
    left = [
        node.op_type
        for subgraph in session.get_provider_graph_assignment_info()
        if subgraph.ep_name == "CPUExecutionProvider"
        for node in subgraph.get_nodes()
    ]
    assert set(left) <= {"QuantizeLinear", "DequantizeLinear"}  # of inputs and outputs
    (got,) = session.run(None, {"image": images})
    (expected,) = ort.InferenceSession(path).run(None, {"image": images})
    step = result.plan.tensors["logits"].tensor_scale
    # HTP rescales by integers: each layer may differ by one step, and digits has six.
    assert np.abs(got - expected).max() <= 2.001 * step
    assert (got.argmax(1) == expected.argmax(1)).all()
