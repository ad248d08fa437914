"""Where the time goes: the nodes that onnxruntime executes, their products in integers and in float, the
plan's word on each, and what the target's cost table predicts of the whole.
"""

from __future__ import annotations

import json
import math
import re
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import onnxruntime as ort
from qprof_onnx.quantizer.costs.predicted import CostModel, total_microseconds
from qprof_onnx.quantizer.exchange.profiles import read_profile
from qprof_onnx.quantizer.plan.plan import NodePlan, QuantPlan
from qprof_onnx.quantizer.planning.plan_model import model_facts, plan_from
from qprof_onnx.quantizer.prepare.prepare import open_prepared
from qprof_onnx.quantizer.targets.cost_table import costs_of
from qprof_onnx.quantizer.targets.loading import load_recipe
from record import Feed

RUNS = 12
SHOWN = 10
INTEGER = re.compile(
    r"^(QLinear(Conv|MatMul)|QGemm|ConvInteger\w*|(Dynamic\w*)?MatMulInteger\w*|DynamicQuantize\w+)$"
)
"""Executed operators whose products are of integers."""
CONVOLUTIONS = {"Conv", "FusedConv", "QLinearConv", "ConvInteger", "NhwcFusedConv"}
MATRICES = {"MatMul", "FusedMatMul", "Gemm", "FusedGemm", "QLinearMatMul", "QGemm", "MatMulInteger"} | {
    "MatMulIntegerToFloat",
    "DynamicQuantizeMatMul",
    "MatMulNBits",
}
RECURRENT = {"LSTM", "GRU", "RNN", "DynamicQuantizeLSTM"}
CONVERSIONS = {"QuantizeLinear", "DequantizeLinear", "ReorderInput", "ReorderOutput"}
_KERNEL, _ADDED = "_kernel_time", re.compile(r"(_token_\d+|_nchwc|_quant|/duplicated|/\w*Fusion\w*/?)$")


@dataclass(frozen=True)
class Ran:
    """A node as onnxruntime executed it.

    Attributes:
        name, op_type: of the optimised graph; some nodes that onnxruntime adds have no name.
        inputs, outputs: names of tensors, constants included.
        microseconds: the least of the runs.
        products: multiply-adds of one run.
    """

    name: str
    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    microseconds: float
    products: float

    @property
    def in_integers(self) -> bool:
        """Whether its products are of integers."""
        return bool(INTEGER.match(self.op_type))


def executed(path: Path, feed: Feed, runs: int = RUNS) -> list[Ran]:
    """Run a model with one thread and return what onnxruntime executed, in its order."""
    with tempfile.TemporaryDirectory() as folder:
        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        options.enable_profiling = True
        options.profile_file_prefix = f"{folder}/events"
        options.optimized_model_filepath = f"{folder}/optimised.onnx"
        opened = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        for _ in range(runs):
            opened.run(None, dict(feed))
        events = json.loads(Path(opened.end_profiling()).read_text(encoding="utf-8"))
        graph = onnx.load(f"{folder}/optimised.onnx").graph
    return list(_joined(graph, events))


def _joined(graph: onnx.GraphProto, events: Sequence[Mapping[str, Any]]) -> Iterator[Ran]:
    """Yield the nodes of the optimised graph with what the events say of them."""
    spent, shapes, nameless = defaultdict(list), {}, defaultdict(list)
    for event in events:
        name = str(event["name"])
        if event.get("cat") != "Node" or not name.endswith(_KERNEL):
            continue
        name, facts = name.removesuffix(_KERNEL), event["args"]
        if name not in spent and name == f"{facts['op_name']}_{facts['node_index']}":
            nameless[facts["op_name"]].append(name)
        spent[name].append(float(event["dur"]))
        shapes[name] = (_dims(facts["input_type_shape"]), _dims(facts["output_type_shape"]))
    waiting = {op: iter(names) for op, names in nameless.items()}
    constants = {constant.name: list(constant.dims) for constant in graph.initializer}
    for node in graph.node:
        name = node.name or next(waiting.get(node.op_type, iter(())), "")
        products = _products(node, shapes[name], constants) if name in shapes else 0.0
        time = min(spent[name]) if name in spent else 0.0
        yield Ran(node.name, node.op_type, tuple(node.input), tuple(node.output), time, products)


def _dims(values: Sequence[Mapping[str, Sequence[int]]]) -> list[list[int]]:
    return [list(next(iter(value.values()))) if value else [] for value in values]


def _products(
    node: onnx.NodeProto, shapes: tuple[list[list[int]], list[list[int]]], constants: Mapping[str, list[int]]
) -> float:
    """Return the multiply-adds of one run of a node, from shapes of constants and of what it wrote."""
    (_, outs), op = shapes, node.op_type
    elements = math.prod(outs[0]) if outs else 0
    weights = [constants[name] for name in node.input if len(constants.get(name, ())) >= 2]
    if op in CONVOLUTIONS and weights:
        return float(elements * math.prod(weights[0][1:]))
    if op == "ConvTranspose" and weights:
        return float(math.prod(shapes[0][0]) * math.prod(weights[0][1:]))
    if op in MATRICES:
        turned = any(a.name == "transA" and a.i for a in node.attribute)
        first = constants.get(node.input[0]) or shapes[0][0]
        return float(elements * (first[0 if turned else -1] if first else 0))
    if op in RECURRENT:
        steps_of_batch = shapes[0][0][0] * shapes[0][0][1]
        return float(steps_of_batch * sum(math.prod(w) for w in weights if len(w) == 3))
    return 0.0


def integer_share(nodes: Sequence[Ran]) -> float:
    """Return the share of the multiply-adds whose products are of integers."""
    whole = sum(node.products for node in nodes)
    return sum(node.products for node in nodes if node.in_integers) / whole if whole else 0.0


def slowest(quantized: Sequence[Ran], floats: Sequence[Ran], plan: QuantPlan) -> list[dict[str, Any]]:
    """Return the nodes that cost most, with the float model's time for the same and the plan's reason."""
    found = sorted(quantized, key=lambda node: -node.microseconds)[:SHOWN]
    whole = sum(node.microseconds for node in quantized) or 1.0
    by_name = {_base(node.name): node.microseconds for node in floats if node.name}
    return [
        {
            "op": node.op_type,
            "name": node.name or "(added)",
            "us": round(node.microseconds, 1),
            "share": round(node.microseconds / whole, 4),
            "float_us": round(by_name[key], 1) if (key := _planned_name(node, plan)) in by_name else None,
            "why": _why(node, plan),
        }
        for node in found
    ]


def _base(name: str) -> str:
    while (shorter := _ADDED.sub("", name)) != name:
        name = shorter
    return name


def _planned_name(node: Ran, plan: QuantPlan) -> str:
    """Return the plan's node whose name the executed node carries; "" without one."""
    name = _base(node.name)
    return name if name in plan.nodes else ""


def _why(node: Ran, plan: QuantPlan) -> str:
    """Return the kind of the plan's node and, where it is float, the reason."""
    if node.op_type in CONVERSIONS:
        return "conversion"
    found: NodePlan | None = plan.nodes.get(_planned_name(node, plan))
    if found is None:
        return "written by the lowering or the runtime"
    return f"{found.kind}: {found.reason}" if found.reason else str(found.kind)


def slowest_in_openvino(path: Path, feed: Feed) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Return the slowest nodes that OpenVINO executes, and microseconds by precision of all."""
    from openvino_runs import steps

    found = steps(path, feed, RUNS)
    totals: dict[str, float] = defaultdict(float)
    for step in found:
        totals[step["precision"]] += step["us"]
    whole = sum(totals.values()) or 1.0
    return [{**step, "share": round(step["us"] / whole, 4)} for step in found[:SHOWN]], dict(totals)


def predicted_ms(model: Path, plan: QuantPlan, profile: Path) -> float | None:
    """Return the predicted milliseconds of one run of the quantized model; None without a cost table.

    The sizes are those of a sample of the profile.
    """
    table = costs_of(plan.config.target)
    if table is None or not profile.exists():
        return None
    prepared = open_prepared(model)
    known = read_profile(profile, prepared.model, prepared.identity, False)
    planned = plan_from(model_facts(prepared, known, load_recipe()))
    assert planned.facts is not None
    costs = CostModel(planned.graph, planned.facts.profile, table).costs(planned.plan)
    return total_microseconds(costs, planned.graph, planned.plan) / 1e3
