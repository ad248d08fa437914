"""Scan of opset 8, whose inputs and outputs have a batch axis in front, as a Scan inside a Scan."""

from __future__ import annotations

import onnx_ir as ir

from ...model.editing import free_name


def scan_over_batch(node: ir.Node, names: set[str]) -> None:
    """Let a Scan of opset 8 without lengths of sequences run over the batch, and one inside over a sequence.

    The outer one has no states: it slices the states and the sequences of each element of the batch, and
    stacks what the inner one returns. The names of outputs stay.

    Args:
        node: is changed in place; its first input is left out.
        names: all names of values; new ones are added.
    """
    outputs = [_like(value, f"{node.name}_{index}", names) for index, value in enumerate(node.outputs)]
    sources = [value for value in node.inputs[1:] if value is not None]
    inputs = [_like(value, f"{value.name}_element", names) for value in sources]
    attributes = [attribute for attribute in node.attributes.values() if attribute.name != "directions"]
    directions = node.attributes.get("directions")
    if directions is not None:
        attributes.append(ir.AttrInt64s("scan_input_directions", directions.as_ints()))
    node.attributes.clear()
    inner = ir.Node("", "Scan", inputs, attributes, outputs=outputs, name=f"{node.name}_sequence")
    assert node.graph is not None
    graph = ir.Graph(inputs, outputs, nodes=[inner], name=f"{node.name}_element")
    node.attributes["body"] = ir.AttrGraph("body", graph)
    node.attributes["num_scan_inputs"] = ir.AttrInt64("num_scan_inputs", len(inputs))
    node.resize_inputs(len(sources))
    for index, value in enumerate(sources):
        node.replace_input_with(index, value)


def _like(value: ir.Value, name: str, names: set[str]) -> ir.Value:
    """Return a new value for one element of the batch of another."""
    shape = None if value.shape is None else ir.Shape(list(value.shape)[1:])
    return ir.Value(name=free_name(name, names), type=value.type, shape=shape)
