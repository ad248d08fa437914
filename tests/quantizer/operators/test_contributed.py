"""The operator that CONTRIBUTING adds as an example: its entry and its vector, run as they stand there."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import numpy_helper, parser
from qprof_onnx.profiles.runner.calibrate import calibrate
from qprof_onnx.profiles.samples.values import Sample
from qprof_onnx.quantizer.lowering.lower import lower
from qprof_onnx.quantizer.model.identity import model_id
from qprof_onnx.quantizer.operators import table
from qprof_onnx.quantizer.plan.plan import Kind
from qprof_onnx.quantizer.prepare.prepare import prepare
from qprof_onnx.quantizer.targets.config import QuantConfig
from qprof_onnx.quantizer.targets.target import QUANTIZED, Recipe, Target

from ..networks import plan_alone

PAGE = (Path(__file__).parents[3] / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_the_entry_on_the_page_makes_a_contrib_operator_quantized(monkeypatch: pytest.MonkeyPatch) -> None:
    (text,) = re.findall(r"^```python\n(Rule\(.*?\),?)\n```$", PAGE, re.DOTALL | re.MULTILINE)
    rule = eval(text, vars(table))
    (vector,) = re.findall(r"its vector, `(.*?)`\.", PAGE)
    ((name, (inputs, node, constants)),) = eval(f"{{{vector}}}").items()
    assert (rule.domain, rule.op_type) == ("com.microsoft", name)
    for entries in (table.RULES, table.OPERATORS):
        monkeypatch.setitem(entries, (rule.domain, name), rule)

    head = '<ir_version: 9, opset_import: ["": 20, "com.microsoft": 1]> g'
    proto = parser.parse_model(f"{head} ({inputs}) => (float[] y) {{ {node} }}")
    rng = np.random.default_rng(7)
    for constant, shape in constants.items():
        values = rng.uniform(-0.9, 0.9, shape).astype(np.float32)
        proto.graph.initializer.append(numpy_helper.from_array(values, constant))
    shape = [dim.dim_value for dim in proto.graph.input[0].type.tensor_type.shape.dim]
    feed = {"x": rng.standard_normal(shape).astype(np.float32)}

    model = prepare(ir.serde.deserialize_model(proto)).model
    profile = calibrate(model, [Sample("0", feed)], model_id(model, "contributed.onnx"))
    target = Target("mine", activation_types=("int8",), operators={name: (QUANTIZED,)})
    recipe = Recipe(QuantConfig(target="mine", activation_type="int8", min_output_sqnr=0.0), target)
    plan = plan_alone(model, profile, recipe, start_everywhere=True)
    assert [entry.kind for entry in plan.nodes.values()] == [Kind.QUANTIZED]
    quantized = ir.serde.serialize_model(lower(model, plan).model)
    (expected,), (got,) = (
        ort.InferenceSession(one.SerializeToString()).run(None, feed) for one in (proto, quantized)
    )
    assert np.mean((got - expected) ** 2) <= 10**-2.5 * np.mean(expected**2)  # 8 bits leave 38 dB
