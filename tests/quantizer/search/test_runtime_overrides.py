"""What onnxruntime executes otherwise than planned, found in the graph that it executes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from qprof_onnx.quantizer.evaluation.node_times import node_times
from qprof_onnx.quantizer.lowering.lower import lower
from qprof_onnx.quantizer.model.saving import save_model
from qprof_onnx.quantizer.operators.graph import index
from qprof_onnx.quantizer.plan.plan import Kind
from qprof_onnx.quantizer.search.node_costs import RuntimeOverride, find_runtime_overrides

from ..lowered import parse, plan_of

POOLED = """
net (float[1,4,16,16] x) => (float[1,4,8,8] y)
<float[4,4,1,1] w>
{
    e = Elu(x)
    m = MaxPool<kernel_shape=[2,2],strides=[2,2]>(e)
    y = Conv(m, w)
}"""
TANH = "net (float[1,4,16,16] x) => (float[1,4,16,16] y) <float[4,4,1,1] w> { t = Tanh(x) \n y = Conv(t, w) }"


def found(text: str, folder: Path, **how: object) -> tuple[RuntimeOverride, ...]:
    model = parse(text)
    plan = plan_of(model, **how)  # type: ignore[arg-type]
    lowered = lower(model, plan)
    path = folder / "q.onnx"
    save_model(lowered.model, path)
    sample = {"x": np.zeros((1, 4, 16, 16), np.float32)}
    (executed,) = node_times({"model": path}, [sample], seconds=0.0)
    return find_runtime_overrides(index(model), plan, executed, lowered.names)


def test_a_float_node_past_which_a_conversion_was_moved_is_found(tmp_path: Path) -> None:
    (override,) = found(POOLED, tmp_path, floats=["elu_0", "maxpool_1"])
    assert (override.node, override.kind, override.executed) == ("maxpool_1", Kind.FLOAT, "MaxPool")
    assert "computes it on integers" in str(override)


def test_nothing_is_found_where_the_plan_is_executed(tmp_path: Path) -> None:
    floats = ["elu_0", "maxpool_1"]
    assert found(POOLED, tmp_path, floats=floats, implementations={"maxpool_1": "clip"}) == ()


def test_a_table_that_onnxruntime_computes_in_float_is_found(tmp_path: Path) -> None:
    (override,) = found(TANH, tmp_path, implementations={"tanh_0": "runtime"})
    assert (override.node, override.planned_float) == ("tanh_0", False)
    assert "computes it in float" in str(override)
