"""Operator by operator: which of them a runtime computes on integers, and how far from the reference.

    python tests/benchmarks/run.py provider-operators qnn qnn:uint16 --work DIR

A subject is a runtime, with another integer type of activations than the target's behind a colon.

Each operator of the table stands alone in a model, with the vectors of tests/quantizer/operators, between
QuantizeLinear and DequantizeLinear in the types of the target. What a runtime computes in is read from
the graph that it made: QNN's own (onnxruntime-qnn writes it as JSON), the optimised one of onnxruntime, or
OpenVINO's.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
import tempfile
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
from frame import HERE, Row, Rows, Stage, table
from oracles import run_plan
from qprof_onnx.profiles.base.errors import QprofError
from qprof_onnx.profiles.runner.calibrate import calibrate
from qprof_onnx.quantizer.lowering.lower import lower
from qprof_onnx.quantizer.model.identity import model_id
from qprof_onnx.quantizer.operators.table import RULES
from qprof_onnx.quantizer.prepare.prepare import prepare
from qprof_onnx.quantizer.targets.loading import load_recipe
from qprof_onnx.quantizer.targets.target import QUANTIZED, Recipe
from record import Feed, Outputs
from record import session as plain_session

from stages.providers import REFUSALS, assigned, qnn_options, session

INTEGERS, FLOAT, MERGED = "integers", "float", "merged"
ELSEWHERE, REFUSED, NO_FORM = "left to the CPU", "fails", "not written"
MOVES = {"Transpose", "Reshape", "Convert", "Cast", "Quantize", "Dequantize"}
"""What QNN's graph has for conversions and layouts, besides operators."""


Runner = Callable[[onnx.ModelProto, str, Feed], tuple[Outputs, str]]
"""A model, the name of its one operator, a sample -> the outputs, and what the operator is computed in."""


def run_in_qnn(proto: onnx.ModelProto, operator: str, feed: Feed) -> tuple[Outputs, str]:
    """Run a model in the HTP simulator; what it computes in is what the tensors of QNN's graph hold."""
    with tempfile.TemporaryDirectory() as folder:
        options = qnn_options(dump_json_qnn_graph="1", json_qnn_graph_dir=folder)
        opened = session(proto, options)
        taken, left = assigned(opened)
        found = opened.run(None, dict(feed))
        kernels = [k for file in Path(folder).glob("*.json") for k in _qnn_kernels(file)]
    if operator in left:
        return found, ELSEWHERE
    if operator not in taken:
        return found, MERGED
    computing = [types for kind, types in kernels if kind not in MOVES] or [types for _, types in kernels]
    return found, INTEGERS if all(INTEGERS in types for types in computing) else FLOAT


def _qnn_kernels(file: Path) -> Iterator[tuple[str, set[str]]]:
    """Yield the type of each node of QNN's graph, and what its inputs hold."""
    graph = json.loads(file.read_text(encoding="utf-8")).get("graph")
    for node in graph["nodes"].values() if graph else ():
        types = {_QNN_TYPES.get(graph["tensors"][name]["data_type"] >> 8, "") for name in node["input_names"]}
        yield node["type"], types


_QNN_TYPES = {0x2: FLOAT, 0x3: INTEGERS, 0x4: INTEGERS}
"""QnnTypes.h: the second byte of a Qnn_DataType_t is 2 for floats, 3 and 4 for fixed point."""


def run_in_openvino(proto: onnx.ModelProto, operator: str, feed: Feed) -> tuple[Outputs, str]:
    """Run a model in OpenVINO on the CPU; it computes in the runtimePrecision of its compiled node."""
    import openvino as ov

    settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1}
    core = ov.Core()
    compiled = core.compile_model(core.read_model(proto.SerializeToString()), "CPU", settings)
    found = compiled(dict(feed))
    name = next(node.name for node in proto.graph.node if node.op_type == operator)
    precisions = []
    for node in compiled.get_runtime_model().get_ordered_ops():
        facts = {key: node.rt_info[key].astype(str) for key in _OPENVINO_KEYS if key in node.rt_info}
        if name in facts.get("originalLayersNames", "").split(",") or node.friendly_name == name:
            precisions.append(facts.get("runtimePrecision", ""))
    what = MERGED if not precisions else INTEGERS if {"i8", "u8"} & set(precisions) else FLOAT
    return [found[i] for i in range(len(proto.graph.output))], what


_OPENVINO_KEYS = ("originalLayersNames", "runtimePrecision")


def run_in_onnxruntime(proto: onnx.ModelProto, operator: str, feed: Feed) -> tuple[Outputs, str]:
    """Run a model on the CPU; it is computed in integers where no conversion is left between its nodes."""
    with tempfile.TemporaryDirectory() as folder:
        options = ort.SessionOptions()
        options.optimized_model_filepath = f"{folder}/optimised.onnx"
        options.log_severity_level = 4
        found = ort.InferenceSession(proto.SerializeToString(), options).run(None, dict(feed))
        nodes = onnx.load(options.optimized_model_filepath).graph.node
    rescaled = {name for node in nodes if node.op_type == "QuantizeLinear" for name in node.input}
    last = {output.name for output in proto.graph.output} | rescaled
    inner = [n for n in nodes if n.op_type == "DequantizeLinear" and n.output[0] not in last]
    return found, FLOAT if inner else INTEGERS


RUNNERS: Mapping[str, Runner] = {
    "qnn": run_in_qnn,
    "openvino": run_in_openvino,
    "onnxruntime-x86": run_in_onnxruntime,
}
OWN_FORMS = ("onnxruntime-x86",)
"""Targets that say how an operator is written for them: what they do not list is not tried."""


def rows(subject: str, given: Namespace) -> Iterator[Row]:
    """Yield what becomes of each operator in a runtime.

    `listed`: whether the target's file says that it has an integer kernel. `what`: INTEGERS, FLOAT
    (conversions around it are computed by themselves), MERGED (with its neighbours, or with the conversion
    after it that saturates likewise), ELSEWHERE, REFUSED (loading or running fails) or NO_FORM. `steps`:
    largest difference from the reference, in quantized steps of the output. `note`: what the runtime says of
    it.
    """
    target, _, activations = subject.partition(":")
    recipe = load_recipe(target, {"min_output_sqnr": 0.0, "activation_type": activations or None})
    facts = recipe.target
    everything = facts
    if target not in OWN_FORMS:
        operators = {op: (QUANTIZED,) for (_, op), rule in RULES.items() if not rule.unary}
        tables = {"*": "runtime"}
        everything = replace(
            facts, operators=operators, lookup_tables=tables, weight_only={}, known_operators=()
        )
    for operator in sorted(_test_module("test_operators").VECTORS):
        what, steps, note = _tried(operator, Recipe(recipe.config, everything), RUNNERS[target])
        listed = operator in facts.operators or operator in facts.lookup_tables
        print(f"{operator:24}{'listed' if listed else '':8}{what:20}{steps} {note}", flush=True)
        yield {"operator": operator, "listed": listed, "what": what, "steps": steps, "note": note}


def _tried(operator: str, recipe: Recipe, runner: Runner) -> tuple[str, float | None, str]:
    vectors, networks = _test_module("test_operators"), _test_module("networks")
    proto = vectors.one_node_model(operator)
    sample = vectors.samples_for(operator, proto)[0]
    model = prepare(ir.serde.deserialize_model(proto)).model
    profile = calibrate(model, [sample], model_id(model, "vector.onnx"))
    try:
        plan = networks.plan_alone(model, profile, recipe, start_everywhere=True)
        written = ir.serde.serialize_model(lower(model, plan).model)
    except QprofError as error:
        return NO_FORM, None, str(error)[:120]
    if not any(entry.kind.reads_quantized for entry in plan.nodes.values()):
        return NO_FORM, None, ""
    if operator not in {node.op_type for node in written.graph.node}:
        return MERGED, None, ""
    feed = dict(sample.arrays)
    try:
        got, what = runner(written, operator, feed)
    except REFUSALS as error:
        return REFUSED, None, " ".join(str(error).split())[-120:]
    expected = plain_session(written.SerializeToString(), 1, optimised=False).run(None, feed)[0]
    scale = 1.0
    with contextlib.suppress(NotImplementedError, RuntimeError):  # what the evaluator of onnx does not have
        tensor = run_plan(model, plan, feed)["y"]
        expected, scale = tensor.values, 1.0 if tensor.params is None else float(tensor.params.tensor_scale)
    return what, float(np.rint(np.abs(np.asarray(got[0], np.float64) - expected).max() / scale)), ""


def _test_module(name: str) -> Any:
    """Return a module of the tests: it holds one vector for each operator."""
    root = str(HERE.parents[1])
    if root not in sys.path:
        sys.path.insert(0, root)
    place = {"test_operators": "tests.quantizer.operators.test_table", "networks": "tests.quantizer.networks"}
    return importlib.import_module(place[name])


def page(rows: Rows) -> str:
    """Return a line for each operator that a target lists or a runtime computes on integers."""
    found = {subject: {row["operator"]: row for row in some} for subject, some in rows.items()}
    head = ["operator"]
    for subject in found:
        head += [] if ":" in subject else [f"listed: {subject}"]
        head.append(TITLES.get(subject, subject))
    lines = []
    for operator in dict.fromkeys(operator for some in found.values() for operator in some):
        known = {subject: some[operator] for subject, some in found.items()}
        cells: list[str] = []
        for subject, row in known.items():
            cells += [] if ":" in subject else ["yes" if row["listed"] else ""]
            cells.append(row["what"] if row["steps"] is None else f"{row['what']}, {row['steps']:g}")
        if any(
            row["listed"] or row["what"] == INTEGERS for subject, row in known.items() if ":" not in subject
        ):
            lines.append([operator, *cells])
    return table(head, lines)


TITLES = {"qnn": "QNN, uint8", "qnn:uint16": "QNN, uint16", "openvino": "OpenVINO, uint8"}
STAGE = Stage(rows, {"PROVIDERS.md": page}, tuple(TITLES))
