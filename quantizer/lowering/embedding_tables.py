"""Quantized embedding tables, and one initialiser for a table and an output layer with the same weights.

A table of 8 bits with a scale for each row is a Gather of the rows and one of the scales; those in blocks are
GatherBlockQuantized. The last product of a language model, which reads the table transposed, shares it,
through operators on a constant that runtimes compute when they load the model: GatherBlockQuantized reads a
Reshape of the weight of MatMulNBits, also in the place of Gather if the scales of a row are equal (both are
(q - 128) * scale); a folded weight is the Cast of a Transpose of the table. The weight of a DequantizeLinear
stays a separate constant, because compilers expect one there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import onnx_ir as ir

from ..model.graph import constant_of, name_of
from ..operators.table import MICROSOFT
from ..plan.plan import Implementation, Kind, NodePlan
from .emitter import Array, Emitter, become, constant_shape, integer_type, new_value
from .products import as_float
from .writers import Task


def gather_quantized(task: Task) -> bool:
    """Write an embedding table as Gather of quantized rows and of their scales, and their product."""
    node, emitter = task.node, task.emitter
    table = node.inputs[0] if node.inputs else None
    params = None if table is None or node.op_type != "Gather" else task.params(0)
    if table is None or params is None:
        raise task.error(
            "a quantized embedding table is for Gather from a constant; change this node in the plan"
        )
    shape = constant_shape(table)
    if shape is None:  # an input of a function of form regions
        shape = () if table.shape is None else tuple(table.shape.numpy())
    axis = node.attributes.get_int("axis", 0) % max(len(shape), 1)
    if params.axis != axis or params.block_size is not None or params.zero_point.any():
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
    become(node, "Mul", [as_float(emitter, rows, node), row_scales])
    return False


def share_tied_tables(graph: ir.Graph, entries: Mapping[str, NodePlan], emitter: Emitter) -> None:
    """Let a written embedding table and a product share an initialiser if their values are the same."""
    products = [node for node in graph if (node.domain, node.op_type) == (MICROSOFT, "MatMulNBits")]
    for node in list(graph):
        entry = entries.get(name_of(node))
        if (node.domain, node.op_type) == (MICROSOFT, "GatherBlockQuantized"):
            _share_packed(node, products, emitter)
        elif entry is not None and (entry.kind, entry.implementation) == (
            Kind.WEIGHT_ONLY,
            Implementation.INTEGER,
        ):
            _share_rows(node, products, emitter)
    emitter.drop_unused()


def _share_packed(node: ir.Node, products: list[ir.Node], emitter: Emitter) -> None:
    """Let a GatherBlockQuantized read the weight of a product that has the same bytes."""
    table = node.inputs[0]
    array = constant_of(table)
    if table is None or array is None:
        return
    for weight, packed, product in _weights(products, array.nbytes):
        if weight.dtype == table.dtype and np.array_equal(packed.reshape(array.shape), array):
            node.replace_input_with(0, _reshaped(weight, array.shape, node, emitter))
            for index in (2, 3):  # scales and zero points
                ours, theirs = (
                    constant_of(n.inputs[index]) if index < len(n.inputs) else None for n in (node, product)
                )
                if ours is not None and theirs is not None and np.array_equal(ours, theirs):
                    node.replace_input_with(index, product.inputs[index])
            return


def _share_rows(node: ir.Node, products: list[ir.Node], emitter: Emitter) -> None:
    """Make the Mul of rows and scales, which `gather_quantized` wrote, the runtime's operator."""
    graph = node.graph
    cast, scale_rows = (None if value is None else value.producer() for value in node.inputs)
    rows = None if cast is None or cast.inputs[0] is None else cast.inputs[0].producer()
    if cast is None or scale_rows is None or rows is None or rows.attributes.get_int("axis", 0) != 0:
        return
    table = rows.inputs[0]
    array, scale = constant_of(table), constant_of(scale_rows.inputs[0])
    if graph is None or table is None or array is None or scale is None:
        return
    if array.ndim != 2 or array.dtype != np.int8:
        return

    # Folded weights that are the transposed table: the Cast nodes that read them read a Transpose of it.
    for weight in list(graph.initializers.values()):
        if weight.dtype != ir.DataType.INT8 or constant_shape(weight) != array.shape[::-1]:
            continue
        other = constant_of(weight)
        if other is None or not np.array_equal(other.T, array):
            continue
        for reader in [use.node for use in weight.uses()]:
            if reader.op_type == "Cast" and reader.graph is table.graph:
                turned = ir.Value(name=f"{table.name}_transposed", type=table.type, shape=weight.shape)
                emitter.add("Transpose", [table], turned, reader, {"perm": [1, 0]})
                reader.replace_input_with(0, turned)

    unsigned = (array.astype(np.int16) + 128).astype(np.uint8)
    for weight, packed, product in _weights(products, array.nbytes):
        scales = product.inputs[2]
        scales_array = constant_of(scales)
        has_points = len(product.inputs) > 3 and product.inputs[3] is not None
        if scales_array is None or has_points or product.attributes.get_int("bits", 4) != 8:
            continue
        if np.all(scales_array == scale) and np.array_equal(packed.reshape(array.shape), unsigned):
            data, indices = _reshaped(weight, array.shape, node, emitter), rows.inputs[1]
            block = product.attributes.get_int("block_size", 0)
            attributes = {"gather_axis": 0, "quantize_axis": 1, "block_size": block, "bits": 8}
            become(node, "GatherBlockQuantized", [data, indices, scales], attributes, MICROSOFT)
            for unread in (cast, rows, scale_rows):
                graph.remove(unread, safe=True)
            return


def _weights(products: list[ir.Node], nbytes: int) -> Iterator[tuple[ir.Value, Array, ir.Node]]:
    """Yield the weights of `nbytes` bytes, each with its elements and the product that reads it."""
    for product in products:
        weight = product.inputs[1]
        tensor = None if weight is None else weight.const_value
        packed = constant_of(weight) if weight is not None and tensor and tensor.nbytes == nbytes else None
        if weight is not None and packed is not None:
            yield weight, packed, product


def _reshaped(weight: ir.Value, shape: tuple[int, ...], before: ir.Node, emitter: Emitter) -> ir.Value:
    """Return a weight in the shape of a table."""
    target = emitter.constant(f"{weight.name}_rows_shape", np.array(shape, np.int64))
    table = ir.Value(name=f"{weight.name}_rows", type=weight.type, shape=ir.Shape(shape))
    return emitter.add("Reshape", [weight, target], table, before)
