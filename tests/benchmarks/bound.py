"""The time of a model whose products each run at the speed of their int8 kernel, and the rest as in float.

Of the nodes that onnxruntime executes of the float model the products are counted with the share of float's
time that their int8 kernels take at sizes that suit them (one thread, x86 with VNNI, onnxruntime 1.32). A
model can be below its bound: where int8 moves less memory the rest is faster too.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import onnx
import onnxruntime as ort
from record import Feed

SHARES = {
    "convolution": 0.28,
    "depthwise": 1.05,
    "transposed": 0.25,
    "product": 0.26,
    "two activations": 0.50,
    "LSTM": 0.40,
    "GRU": 1.0,
}
"""Time of the int8 kernel over that of the float kernel, by kind of product."""

RUNS = 8


def bound(path: Path, feeds: Sequence[Feed]) -> float:
    """Return the bound of a float model on samples, over its time; 1 where it has no product."""
    with tempfile.TemporaryDirectory() as folder:
        options = ort.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = 1, 4
        options.enable_profiling, options.profile_file_prefix = True, str(Path(folder, "run"))
        options.optimized_model_filepath = str(Path(folder, "optimised.onnx"))
        key = "session.optimized_model_external_initializers"
        options.add_session_config_entry(f"{key}_file_name", "optimised.data")
        options.add_session_config_entry(f"{key}_min_size_in_bytes", "1024")
        opened = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        for feed in feeds:
            for _ in range(RUNS):
                opened.run(None, feed)
        events = json.loads(Path(opened.end_profiling()).read_text(encoding="utf-8"))
        graph = onnx.load(options.optimized_model_filepath, load_external_data=False).graph
    kinds = {node.name: kind for node, kind in products(graph, frozenset())}
    whole, saved = 0.0, 0.0
    for event in events:
        name, suffix = str(event["name"]), "_kernel_time"
        if name == "model_run":  # with what lies between the nodes
            whole += event["dur"]
        elif name.endswith(suffix) and (kind := kinds.get(name.removesuffix(suffix))):
            saved += (1.0 - SHARES[kind]) * event["dur"]
    return 1.0 - saved / whole


def products(graph: onnx.GraphProto, outer: frozenset[str]) -> Iterator[tuple[onnx.NodeProto, str]]:
    """Yield the products of a graph and of the bodies of its nodes, with their kinds."""
    sizes = {value.name: value.dims for value in graph.initializer}
    constants = outer | sizes.keys()
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from products(attribute.g, constants)
        if kind := kind_of(node, constants):
            yield node, kind


def kind_of(node: onnx.NodeProto, constants: frozenset[str]) -> str:
    """Return the kind of a product; "" for other nodes."""
    if node.op_type in ("LSTM", "GRU"):
        return str(node.op_type)
    if node.op_type == "ConvTranspose":
        return "transposed"
    if node.op_type in ("Conv", "FusedConv"):
        groups = next((each.i for each in node.attribute if each.name == "group"), 1)
        return "depthwise" if groups > 1 else "convolution"
    if node.op_type in ("MatMul", "FusedMatMul", "Gemm", "FusedGemm"):
        return "product" if node.input[1] in constants else "two activations"
    return ""
