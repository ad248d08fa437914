"""Graphs as onnxruntime writes them, read without the types that onnx_ir does not have."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx_ir as ir


def read_graph(path: Path) -> ir.Model:
    """Read a model that onnxruntime wrote; values that are maps, or hold them, get no type."""
    proto = onnx.load_model(path, load_external_data=False)
    for value in (*proto.graph.input, *proto.graph.output, *proto.graph.value_info):
        if has_map(value.type):
            value.ClearField("type")
    model = ir.from_proto(proto)
    ir.external_data.set_base_dir(model.graph, path.parent)
    return model


def has_map(kind: onnx.TypeProto) -> bool:
    """Tell whether a type is a map, or holds one; onnx_ir does not have them."""
    match kind.WhichOneof("value"):
        case "sequence_type":
            return has_map(kind.sequence_type.elem_type)
        case "optional_type":
            return has_map(kind.optional_type.elem_type)
        case name:
            return bool(name == "map_type")
