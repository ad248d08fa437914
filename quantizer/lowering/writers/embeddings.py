"""A constant table in codes, from which entries are read: the codes are gathered, not the real numbers.

Were the table made float first, as `weight_only` does it, all of it would be made float in every run.
"""

from __future__ import annotations

import onnx_ir as ir

from .graph_writer import constant_array, integer_type, new_value
from .products import as_float, become
from .task import Task


def look_up_codes(task: Task) -> bool:
    """Write Gather of codes and of a scale for each entry, and their product in float32.

    Raises:
        PlanError: the node is no Gather from a constant, or the scales are not one for each of its entries.
    """
    node, emitter = task.node, task.emitter
    table = node.inputs[0] if node.inputs else None
    params = None if table is None or node.op_type != "Gather" else task.params(0)
    if table is None or params is None:
        raise task.error("a table in codes is for Gather from a constant; plan this node otherwise")
    array = constant_array(table)
    shape = (
        array.shape if array is not None else tuple(table.shape.numpy()) if table.shape is not None else ()
    )
    axis = node.attributes.get_int("axis", 0) % max(len(shape), 1)
    if params.axis != axis or params.block_size is not None or any(params.zero_point):
        raise task.error(
            f"a table in codes needs a scale for each entry (axis {axis}) and zero_point 0; change the "
            "parameters of the table"
        )
    output, indices = node.outputs[0], node.inputs[1]
    name, attributes = emitter.name(output), dict(node.attributes)
    codes = new_value(f"{name}_quantized", integer_type(params), output)
    emitter.add("Gather", [emitter.quantized(table, params, node), indices], codes, node, attributes)
    beside = tuple(size if i == axis else 1 for i, size in enumerate(shape))
    scales = emitter.constant(f"{emitter.name(table)}_scale", params.scale_array.reshape(beside))
    chosen = ir.Value(name=f"{name}_scale", type=ir.TensorType(ir.DataType.FLOAT))
    emitter.add("Gather", [scales, indices], chosen, node, attributes)
    become(node, "Mul", as_float(emitter, codes, node), chosen)
    return False
