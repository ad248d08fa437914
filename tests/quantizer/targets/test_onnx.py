"""Target `onnx`: what it writes runs in onnx's reference evaluator, and means what the plan says."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator
from qprof_onnx.profiles.runner.calibrate import calibrate
from qprof_onnx.quantizer.lowering.lower import lower
from qprof_onnx.quantizer.model.identity import model_id
from qprof_onnx.quantizer.operators.graph import index
from qprof_onnx.quantizer.operators.table import RULES
from qprof_onnx.quantizer.plan.plan import Kind
from qprof_onnx.quantizer.plan.verify import verify_plan
from qprof_onnx.quantizer.prepare.prepare import prepare
from qprof_onnx.quantizer.prepare.shapes import IN_DEFAULT_DOMAIN
from qprof_onnx.quantizer.targets.conformance import check_conformity
from qprof_onnx.quantizer.targets.loading import load_recipe

from ...reference.onnx_fixes import FIXED_OPERATORS
from ...reference.plan_interpreter import run_plan
from ..networks import network, plan_alone
from ..operators.test_table import VECTORS, one_node_model, samples_for

SOME = ("Conv", "ConvTranspose", "Gemm", "MatMul", "Add", "Concat", "Softmax", "Sigmoid", "Transpose", "Relu")
"""Operators of which onnxruntime has counterparts of its own, and others."""


def evaluated(model: ir.Model, arrays: Mapping[str, Any]) -> list[Any]:
    proto = ir.to_proto(model)
    onnx.checker.check_model(proto, full_check=True)
    for imports in (proto.opset_import, *(function.opset_import for function in proto.functions)):
        for opset in imports:
            if not opset.domain:  # the evaluator has no older DequantizeLinear; it is the same
                opset.version = max(opset.version, 19)
    return list(ReferenceEvaluator(proto, new_ops=FIXED_OPERATORS).run(None, dict(arrays)))


@pytest.mark.parametrize(
    ("form", "op_type"),
    [
        *(("qdq", op_type) for op_type in VECTORS if op_type not in IN_DEFAULT_DOMAIN),
        *(("qoperator", op_type) for op_type in SOME),
    ],
)
def test_every_operator_is_quantized_and_runs_in_the_reference_evaluator(form: str, op_type: str) -> None:
    recipe = load_recipe("onnx", {"min_output_sqnr": 0.0, "form": form})
    proto = one_node_model(op_type)
    model = prepare(ir.serde.deserialize_model(proto)).model
    (sample,) = samples_for(op_type, proto)
    plan = plan_alone(model, calibrate(model, [sample], model_id(model, "vector.onnx")), recipe)
    verify_plan(plan, index(model), model_id(model, "vector.onnx"))
    assert all(entry.kind.reads_quantized for entry in plan.nodes.values())
    lowered = lower(model, plan).model
    assert not check_conformity(lowered, recipe.target, "vector.onnx")
    expected = run_plan(model, plan, sample.arrays)
    for value, result in zip(lowered.graph.outputs, evaluated(lowered, sample.arrays), strict=True):
        tensor = expected[value.name or ""]
        assert result.shape == tensor.values.shape
        if tensor.params is None:
            step = 1e-6 * float(np.abs(tensor.values).max())  # float32 sums in another order
        else:  # the same integer; a function in float32 may be on the other side of a tie
            step = tensor.params.tensor_scale * (1.001 if RULES["", op_type].unary else 0.001)
        assert float(np.abs(result - tensor.values).max()) <= step


def test_form_qoperator_has_the_operators_of_the_standard_alone() -> None:
    text = "a = Conv (x, w) r = Relu (a) f = Flatten (r) m = MatMul (f, v) s = Sigmoid (m) y = Add (s, s)"
    net = network(text, {"w": (4, 8, 3, 3), "v": (64, 8)})
    plan = net.plan("onnx", form="qoperator", min_output_sqnr=0.0)
    written = lower(net.model, plan).model
    assert [node.domain for node in written.graph if node.domain] == []
    assert {"QLinearConv", "QLinearMatMul", "Gather"} <= {node.op_type for node in written.graph}


def test_a_star_stands_for_the_operators_that_are_not_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text('target: mine\nruntime: {operators: {"*": [quantized], Conv: [float]}}\n')
    operators = load_recipe(path).target.operators
    assert set(operators) == {rule.op_type for rule in RULES.values() if not rule.unary}
    assert (operators["Conv"], operators["MatMul"]) == (("float",), ("quantized",))


def test_a_convolution_of_few_products_is_quantized_though_that_is_not_faster() -> None:
    net = network("a = Relu (x) y = Conv (a, w)", {"w": (8, 8, 1, 1)})
    plan = net.plan("onnx", min_output_sqnr=0.0)
    assert all(entry.kind.reads_quantized for entry in plan.nodes.values())
    assert {entry.kind for entry in net.plan("glow", min_output_sqnr=0.0).nodes.values()} == {Kind.FLOAT}
