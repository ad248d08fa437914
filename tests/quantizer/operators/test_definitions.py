"""Operators in numpy: the same to the bit as in onnx's reference implementation."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator
from qprof_onnx.profiles.base.errors import PlanError
from qprof_onnx.quantizer.operators.definitions import DEFINITIONS, definition_of
from qprof_onnx.quantizer.operators.functions import function_of

EDGES = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 3.0, -3.0, 0.5, 1e-320, -1e-320, 1e300, -1e300, 710.0]
VALUES = np.concatenate(
    [np.random.default_rng(0).normal(0.0, 4.0, 4000), np.linspace(-40.0, 40.0, 1001), EDGES]
)
CASES = {
    **{name: (name, (), {}) for name, defined in DEFINITIONS.items() if defined.inputs == (1, 1)},
    **{name: (name, (1.7,), {}) for name, defined in DEFINITIONS.items() if defined.inputs == (2, 2)},
    "Pow by an integer": ("Pow", (np.int64(3),), {}),
    "Pow by a half": ("Pow", (0.5,), {}),
    "HardSigmoid with attributes": ("HardSigmoid", (), {"alpha": 1 / 3, "beta": 0.1}),
    "LeakyRelu with an attribute": ("LeakyRelu", (), {"alpha": 0.3}),
    "Clip": ("Clip", (-1.5, 2.25), {}),
    "Clip from below": ("Clip", (0.5,), {}),
    "Clip without bounds": ("Clip", (), {}),
    "Clip from above": ("Clip", (None, 0.5), {}),
}


@pytest.mark.parametrize("case", CASES)
def test_an_operator_is_computed_as_by_the_reference_implementation(case: str) -> None:
    op_type, operands, attributes = CASES[case]
    constants = {
        f"c{place}": np.asarray(operand) for place, operand in enumerate(operands) if operand is not None
    }
    inputs = ["x", *("" if operand is None else f"c{place}" for place, operand in enumerate(operands))]
    proto = onnx.helper.make_node(op_type, inputs, ["y"], **attributes)
    info = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.DOUBLE, [None]) for name in "xy"]
    weights = [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = onnx.helper.make_graph([proto], "g", info[:1], info[1:], weights)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    with np.errstate(all="ignore"):
        (expected,) = ReferenceEvaluator(model).run(None, {"x": VALUES})
        node = ir.from_proto(model).graph[0]
        compute = definition_of(node)
        assert compute is not None
        found = compute(VALUES, *(None if o is None else np.asarray(o) for o in operands))
    assert found.dtype == expected.dtype
    assert found.tobytes() == expected.tobytes()


def test_what_is_not_defined_here_is_left_to_the_reference_implementation() -> None:
    x = ir.val("x", ir.DataType.FLOAT, [3])
    assert definition_of(ir.node("Gelu", [x])) is None
    assert definition_of(ir.node("Relu", [x], domain="com.microsoft")) is None
    assert definition_of(ir.node("Relu", [x], {"slope": 1.0})) is None
    assert definition_of(ir.node("Add", [x, None])) is None


@pytest.mark.parametrize("shape", [(3,), (3, 1), (1, 3, 1)])
@pytest.mark.parametrize("op_type", ["Pow", "PRelu", "Mul"])
def test_an_operand_with_a_number_for_each_column_makes_no_function_of_one_element(
    op_type: str, shape: tuple[int, ...]
) -> None:
    x, numbers = (
        ir.val("x", ir.DataType.FLOAT),
        ir.val("c", const_value=ir.tensor(np.ones(shape, np.float32))),
    )
    with pytest.raises(PlanError, match="'c' is not one number"):
        function_of(ir.node(op_type, [x, numbers]), 17)
