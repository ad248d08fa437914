"""A quantized embedding table: its rows are gathered first and dequantized then.

`weight_only` would dequantize the whole table in every run.
"""

from __future__ import annotations

import onnx_ir as ir

from .graph_writer import constant_array, integer_type, new_value
from .products import as_float, become
from .task import Task


def gather_quantized(task: Task) -> bool:
    """Write Gather of quantized rows and of a scale for each, and their product in float32.

    Raises:
        PlanError: the node is no Gather from a constant, or the scales are not one for each of its entries.
    """
    node, emitter = task.node, task.emitter
    table = node.inputs[0] if node.inputs else None
    params = None if table is None or node.op_type != "Gather" else task.params(0)
    if table is None or params is None:
        raise task.error(
            "a quantized embedding table is for Gather from a constant; plan this node otherwise"
        )
    array = constant_array(table)
    shape = (
        array.shape if array is not None else tuple(table.shape.numpy()) if table.shape is not None else ()
    )
    axis = node.attributes.get_int("axis", 0) % max(len(shape), 1)
    if params.axis != axis or params.block_size is not None or any(params.zero_point):
        raise task.error(
            f"a quantized embedding table needs a scale for each entry (axis {axis}) and zero_point 0; "
            "change the parameters of the table"
        )
    output, indices = node.outputs[0], node.inputs[1]
    name, attributes = emitter.name(output), dict(node.attributes)
    rows = new_value(f"{name}_quantized", integer_type(params), output)
    emitter.add("Gather", [emitter.quantized(table, params, node), indices], rows, node, attributes)
    per_row = tuple(size if i == axis else 1 for i, size in enumerate(shape))
    scales = emitter.constant(f"{emitter.name(table)}_scale", params.scale_array.reshape(per_row))
    row_scales = ir.Value(name=f"{name}_scale", type=ir.TensorType(ir.DataType.FLOAT))
    emitter.add("Gather", [scales, indices], row_scales, node, attributes)
    become(node, "Mul", as_float(emitter, rows, node), row_scales)
    return False
