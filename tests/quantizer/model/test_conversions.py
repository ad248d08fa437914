"""Models are read, written and converted in a few named functions: nothing turns one into a message and back
elsewhere, where external data would lose its folder."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]

CALLS: dict[str, set[str]] = {
    "ir.from_proto": {
        "profiles/runtime: read_graph",
        "quantizer/evaluation: _read",
        "quantizer/model: converted",
        "quantizer/model: in_opset",
        "quantizer/plugins: _node_times",
        "quantizer/plugins: measured_overheads",
        "quantizer/plugins: product_times",
        "quantizer/plugins: recurrent_times",
    },
    "ir.to_proto": {
        "quantizer/model: _serialized",
        "quantizer/model: in_opset",
        "quantizer/model: written_bytes",
        "quantizer/noise: _session_of",
        "quantizer/plugins: _estimated_size",
    },
    "ir.load": {
        "quantizer/evaluation: _read",
        "quantizer/model: _runtime_outputs",
        "quantizer/plugins: shard_of_files",
    },
    "ir.save": {"profiles/runtime: save_beside", "profiles/runtime: save_with_weights"},
    "ir.external_data.load_to_model": set(),  # closes maps that others read, see `load_weights`
    "ir.external_data.unload_from_model": {
        "profiles/runtime: move_weights",
        "quantizer/model: _write_with_data",
    },
    "onnx.load": {
        "quantizer/plugins: node_times",
        "quantizer/plugins: open_model",
        "quantizer/plugins: stored_caches",
    },
    "onnx.load_model": {"profiles/runtime: read_graph", "quantizer/model: read_proto"},
    "onnx.ModelProto.FromString": {"quantizer/model: has_few_bit_floats"},
    "onnx.save": set(),
    "onnx.save_model": set(),
    "onnx.version_converter.convert_version": {"quantizer/model: in_opset"},
}
"""Each call, and the functions that may make it: room and name."""


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
    found: dict[str, set[str]] = {call: set() for call in CALLS}
    for top in ("quantizer", "profiles", "cli"):
        for path in (ROOT / top).rglob("*.py"):
            room = "/".join(path.relative_to(ROOT).parts[:2])
            text = path.read_text(encoding="utf-8")
            if any(call in text for call in CALLS):  # most files have none
                for function, call in calls(ast.parse(text)):
                    found[call].add(f"{room}: {function}")
    assert found == CALLS
