"""What a node with one varying input computes, as a function of one variable.

Neutral ground: the planner asks how steep it is, a lowering what stands in a look-up table.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ..profiles.errors import PlanError

Floats = npt.NDArray[np.float64]
Curve = Callable[[Floats], Floats]
"""A function of one variable, element by element in float64."""


def function_of(node: ir.Node, opset: int) -> Curve:
    """Return what a node computes from its first input, the others being constants.

    The operator's own definition is evaluated (onnx's reference implementation), so that every attribute
    counts and any operator that works element by element will do.

    Args:
        node: the node; all inputs but the first are missing or constants.
        opset: version of the default domain that the node is written in.

    Raises:
        PlanError: an input is not a constant, or onnx has no definition of the operator.
    """
    import onnx
    from onnx import helper, numpy_helper
    from onnx.reference import ReferenceEvaluator

    where = f"node '{node.name}': {node.op_type} as a table"
    names, constants = ["x"], []
    for index, value in enumerate(node.inputs[1:], start=1):
        names.append("" if value is None else f"c{index}")
        if value is None:
            continue
        if value.const_value is None:
            raise PlanError(f"{where}: input '{value.name}' is not a constant; keep this node float")
        array = value.const_value.numpy()
        wide = array.astype(np.float64) if array.dtype.kind == "f" else array
        constants.append(numpy_helper.from_array(wide, f"c{index}"))
    proto = ir.serde.serialize_node(node)
    del proto.input[:], proto.output[:]
    proto.input.extend(names)
    proto.output.append("y")
    x = helper.make_tensor_value_info("x", onnx.TensorProto.DOUBLE, [None])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.DOUBLE, [None])
    graph = helper.make_graph([proto], "curve", [x], [y], constants)
    opsets = [helper.make_opsetid("", opset)]
    if node.domain not in ("", "ai.onnx"):
        opsets.append(helper.make_opsetid(node.domain, 1))
    try:
        evaluator = ReferenceEvaluator(helper.make_model(graph, opset_imports=opsets))
    except (NotImplementedError, KeyError, RuntimeError) as error:
        raise PlanError(f"{where}: onnx has no definition of it ({error}); keep this node float") from error

    def curve(values: Floats) -> Floats:
        (result,) = evaluator.run(None, {"x": values})
        return np.asarray(result, np.float64)

    return curve
