"""Models are read, written and converted in a few named functions: nothing turns one into a message and back
elsewhere, where external data would lose its folder."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]

CALLS = {
    "ir.from_proto",
    "ir.to_proto",
    "ir.load",
    "ir.save",
    "ir.external_data.load_to_model",  # closes maps that others read, see `load_weights`
    "ir.external_data.unload_from_model",
    "onnx.load",
    "onnx.load_model",
    "onnx.ModelProto.FromString",
    "onnx.save",
    "onnx.save_model",
    "onnx.version_converter.convert_version",
}

ALLOWED = {
    ("quantizer/model", "read_proto", "onnx.load_model"): "a file to its message",
    ("quantizer/model", "converted", "ir.from_proto"): "the message to a model, where errors are translated",
    ("quantizer/model", "_runtime_outputs", "ir.load"): "without constants that lack a kernel",
    ("quantizer/model", "_serialized", "ir.to_proto"): "a model to the bytes of its file",
    ("quantizer/model", "written_bytes", "ir.to_proto"): "for its size, without large values",
    (
        "quantizer/model",
        "has_few_bit_floats",
        "onnx.ModelProto.FromString",
    ): "types of bytes that are to be run",
    ("quantizer/model", "in_opset", "ir.to_proto"): "into the version converter, without large values",
    ("quantizer/model", "in_opset", "ir.from_proto"): "out of it; tensors are those of the argument",
    ("quantizer/model", "in_opset", "onnx.version_converter.convert_version"): "the one use of the converter",
    ("quantizer/prepare", "skeleton", "ir.to_proto"): "for shape inference, without large constants",
    ("quantizer/prepare", "_evaluate", "ir.to_proto"): "one node, for the evaluator",
    ("quantizer/plugins", "_node_times", "ir.from_proto"): "networks that targets --measure builds",
    ("quantizer/plugins", "measured_overheads", "ir.from_proto"): "the same",
    ("quantizer/plugins", "product_times", "ir.from_proto"): "the same",
    ("quantizer/plugins", "recurrent_times", "ir.from_proto"): "the same",
    (
        "quantizer/plugins",
        "_estimated_size",
        "ir.to_proto",
    ): "a graph without constants, whose bytes are counted",
    ("quantizer/noise", "_session_of", "ir.to_proto"): "a recurrent node by itself, which onnxruntime runs",
    ("quantizer/plugins", "stored_caches", "onnx.load"): "types of inputs, before they are fed",
    ("quantizer/plugins", "node_times", "onnx.load"): "names of nodes of onnxruntime's optimised graph",
    ("quantizer/evaluation", "_read", "ir.from_proto"): "for float32 values of what has no kernel",
    ("quantizer/evaluation", "_read", "ir.load"): "the same, of a file",
    ("quantizer/plugins", "open_model", "onnx.load"): "names of outputs, which OpenVINO may lose",
    (
        "profiles/runtime",
        "read_graph",
        "onnx.load_model",
    ): "onnxruntime's optimised graph to its message, from a temporary folder",
    (
        "profiles/runtime",
        "read_graph",
        "ir.from_proto",
    ): "the message to a model, without the types that are maps; weights keep the folder",
    ("profiles/runtime", "save_with_weights", "ir.save"): "a model to a temporary folder, or one for workers",
    ("profiles/runtime", "save_beside", "ir.save"): "the same, beside weights that are in files already",
    (
        "profiles/runtime",
        "move_weights",
        "ir.external_data.unload_from_model",
    ): "large weights to such a file; small ones are loaded before",
    (
        "quantizer/model",
        "_write_with_data",
        "ir.external_data.unload_from_model",
    ): "large weights to their file; it would close the maps of small ones, which are loaded before",
    ("quantizer/plugins", "shard_of_files", "ir.load"): "and out of it, in the worker",
}


def dotted(node: ast.expr) -> str:
    """Return a name with its dots, "" for any other expression."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}".lstrip(".")
    return node.id if isinstance(node, ast.Name) else ""


def calls(tree: ast.AST, function: str = "") -> Iterator[tuple[str, str]]:
    """Yield each call of `CALLS` with the innermost function around it."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Call) and dotted(node.func) in CALLS:
            yield function, dotted(node.func)
        yield from calls(node, node.name if isinstance(node, ast.FunctionDef) else function)


def test_models_are_converted_in_the_named_functions_only() -> None:
    found = set()
    for top in ("quantizer", "profiles", "cli"):
        for path in (ROOT / top).rglob("*.py"):
            room = "/".join(path.relative_to(ROOT).parts[:2])
            text = path.read_text(encoding="utf-8")
            if any(call in text for call in CALLS):  # most files have none
                found |= {(room, function, call) for function, call in calls(ast.parse(text))}
    assert found == set(ALLOWED)
