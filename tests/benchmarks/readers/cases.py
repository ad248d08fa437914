"""What the readers read: models of one operator and whole ones, in every form, with the outputs to expect.

A case is a folder with model.onnx, inputs.npz, expected.npz (arrays numbered in the order of the model) and
case.json. The outputs to expect are those of onnx's reference evaluator for the same file.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx.inliner
import onnx.parser
import onnx_ir as ir
from oracles import run_plan
from qprof_onnx.profiles.base.errors import QprofError
from qprof_onnx.profiles.runner.calibrate import calibrate
from qprof_onnx.profiles.samples.samples import input_specs, open_samples
from qprof_onnx.profiles.samples.values import Sample
from qprof_onnx.quantizer.lowering.lower import lower
from qprof_onnx.quantizer.model.identity import model_id
from qprof_onnx.quantizer.operators.graph import index
from qprof_onnx.quantizer.operators.table import RULES
from qprof_onnx.quantizer.plan.plan import Kind, QuantPlan
from qprof_onnx.quantizer.planning.facts import planning_facts
from qprof_onnx.quantizer.planning.noise_budget import make_plan
from qprof_onnx.quantizer.prepare.prepare import PreparedModel, prepare
from qprof_onnx.quantizer.targets.config import QuantConfig
from qprof_onnx.quantizer.targets.forms import FORMS
from qprof_onnx.quantizer.targets.target import QUANTIZED, Recipe, Target
from stages import differential

TESTS = Path(__file__).resolve().parents[2]
SAMPLES = 8

NEUTRAL = Target(
    "everything",
    activation_types=("int8", "uint8"),
    weight_types=("int8", "uint8", "int4", "uint4"),
    operators={op: (QUANTIZED,) for (_, op), rule in RULES.items() if not rule.unary},
    lookup_tables={"*": "portable"},
    dynamic=("MatMul", "Gemm"),
    weight_only=dict.fromkeys(("MatMul", "Gemm", "Conv", "ConvTranspose"), ("int8", "int4")),
    weight_kernels=("MatMul", "Gemm", "Conv", "ConvTranspose"),
)
"""A runtime that takes whatever the standard allows: nothing is written for one reader.

Target `onnx` would show less of one operator: results of Conv, Gemm and MatMul that no other node reads stay
float there, form qoperator has two QLinear operators only, and its own type int8 is read by fewer readers.
"""

FLOAT, INLINED = "float", "regions, inlined"
COLUMNS: Mapping[str, Mapping[str, object]] = {
    FLOAT: {},
    **{form: {"form": form} for form in FORMS},
    INLINED: {"form": "regions"},
    "qdq int8": {"activation_type": "int8"},
    "dynamic": {"mode": "dynamic"},
    "dynamic primitives": {"mode": "dynamic", "form": "primitives"},
    "weight-only": {"mode": "weight-only"},
    "int4": {"mode": "weight-only", "weight_type": "int4", "block_size": 32},
}
"""Columns of the table, and the settings of each."""


@dataclass(frozen=True)
class Case:
    """One file that readers are given.

    Attributes:
        subject: an operator or a model.
        column: of `COLUMNS`.
        inputs: names of the inputs, in order.
        steps: for each output that the plan quantizes the scale, else 0.
        nodes: how many nodes are quantized, and how many there are.
    """

    subject: str
    column: str
    inputs: tuple[str, ...] = ()
    steps: tuple[float, ...] = ()
    nodes: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Subject:
    """A float model with samples of its inputs, of fixed sizes."""

    name: str
    model: onnx.ModelProto
    samples: Sequence[Sample]


EXPLICIT: Mapping[str, Mapping[str, object]] = {
    "AveragePool": {"strides": [2, 2]},
    "MaxPool": {"strides": [2, 2]},
    "Resize": {"mode": "nearest", "nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"},
}
"""Attributes that every exporter writes, and that some readers cannot do without."""


def operators() -> Iterator[Subject]:
    """Yield a model of one node for each operator of the table, as its own test has it."""
    sys.path.insert(0, str(TESTS))
    vectors: Any = importlib.import_module("quantizer.operators.test_table")
    for op_type in vectors.VECTORS:
        model = vectors.one_node_model(op_type)
        known = {attribute.name for attribute in model.graph.node[0].attribute}
        for name, value in EXPLICIT.get(op_type, {}).items():
            if name not in known:
                model.graph.node[0].attribute.append(onnx.helper.make_attribute(name, value))
        model = onnx.shape_inference.infer_shapes(with_open_outputs(model), data_prop=True)
        yield Subject(op_type, model, vectors.samples_for(op_type, model))


LARGE: Mapping[str, tuple[tuple[int, ...], str, dict[str, tuple[int, ...]]]] = {
    "MatMul, large": ((4, 64), "y = MatMul (x, w)", {"w": (64, 64)}),
    "Gemm, large": ((4, 64), "y = Gemm <transB = 1> (x, w, b)", {"w": (48, 64), "b": (48,)}),
    "Conv, large": ((1, 32, 6, 6), "y = Conv (x, w, b)", {"w": (64, 32, 3, 3), "b": (64,)}),
}
"""Shape of the input, node, and shapes of the constants: weights of a size that mode weight-only takes."""


def large_products() -> Iterator[Subject]:
    """Yield the models of `LARGE`."""
    rng = np.random.default_rng(5)
    for name, (shape, node, constants) in LARGE.items():
        sizes = ", ".join(map(str, shape))
        text = f'<ir_version: 9, opset_import: ["": 20]> g (float[{sizes}] x) => (float[] y) {{ {node} }}'
        model = onnx.parser.parse_model(text)
        for constant, size in constants.items():
            array = rng.standard_normal(size).astype(np.float32)
            model.graph.initializer.append(onnx.numpy_helper.from_array(array, constant))
        samples = [Sample("0", {"x": rng.standard_normal(shape).astype(np.float32)})]
        yield Subject(name, onnx.shape_inference.infer_shapes(model), samples)


def trained(work: Path, names: list[str]) -> Iterator[Subject]:
    """Yield models of the benchmarks, with the sizes of their first sample."""
    for name in names:
        path, data = differential.subject(name, work)
        model = onnx.load(path)
        specs = input_specs(prepare(ir.serde.deserialize_model(model)).model)
        samples = list(open_samples(str(data), specs, SAMPLES))
        shapes = {n: a.shape for n, a in samples[0].arrays.items()}
        alike = [s for s in samples if {n: a.shape for n, a in s.arrays.items()} == shapes]
        yield Subject(name, with_sizes(model, shapes), alike)


def with_sizes(model: onnx.ModelProto, shapes: Mapping[str, tuple[int, ...]]) -> onnx.ModelProto:
    """Return the model with inputs of fixed sizes, which most compilers want."""
    fixed = onnx.ModelProto()
    fixed.CopyFrom(model)
    constants = {tensor.name for tensor in fixed.graph.initializer}
    inputs = [value for value in fixed.graph.input if value.name not in constants]
    del fixed.graph.input[:]
    for value in inputs:
        element = value.type.tensor_type.elem_type
        fixed.graph.input.append(onnx.helper.make_tensor_value_info(value.name, element, shapes[value.name]))
    return onnx.shape_inference.infer_shapes(with_open_outputs(fixed), data_prop=True)


def with_open_outputs(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model without the inferred shapes."""
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    del model.graph.value_info[:]
    return model


def write_cases(subject: Subject, columns: Sequence[str], folder: Path) -> Iterator[Case]:
    """Write a subject in each column, and yield what was written; nothing where nothing is quantized."""
    model = prepare(ir.serde.deserialize_model(subject.model)).model
    identity = model_id(model, f"{subject.name}.onnx")
    profile = calibrate(model, subject.samples, identity)
    feed = dict(subject.samples[0].arrays)
    if FLOAT in columns:
        proto = ir.to_proto(model)
        yield stored(proto, feed, folder / subject.name / FLOAT, Case(subject.name, FLOAT))
    for column in columns:
        if column == FLOAT:
            continue
        config = QuantConfig(target=NEUTRAL.name, min_output_sqnr=0.0, **dict(COLUMNS[column]))  # type: ignore[arg-type]
        facts = planning_facts(
            PreparedModel(model, index(model), identity, ()), profile, Recipe(config, NEUTRAL)
        )
        plan = make_plan(facts, start_everywhere=True)
        if all(entry.kind is Kind.FLOAT for entry in plan.nodes.values()):
            continue
        try:
            yield _written(model, plan, feed, folder / subject.name / column, (subject.name, column))
        except QprofError as error:
            print(f"{subject.name}, {column}: not written: {error}")


def _written(
    model: ir.Model,
    plan: QuantPlan,
    feed: Mapping[str, npt.NDArray[Any]],
    folder: Path,
    names: tuple[str, str],
) -> Case:
    quantized = run_plan(model, plan, feed)
    last = differential.last_quantized(index(model), plan, quantized)
    proto = differential.with_outputs(ir.to_proto(lower(model, plan).model), last)
    if names[1] == INLINED:
        proto = onnx.inliner.inline_local_functions(proto)
    scales = {name: plan.tensors[name].tensor_scale for name in last}
    count = sum(entry.kind is not Kind.FLOAT for entry in plan.nodes.values())
    return stored(proto, feed, folder, Case(*names, nodes=(count, len(plan.nodes))), scales)


def stored(
    proto: onnx.ModelProto,
    feed: Mapping[str, npt.NDArray[Any]],
    folder: Path,
    case: Case,
    scales: Mapping[str, float] | None = None,
) -> Case:
    """Write the folder of a case, and return the case with its inputs and the scales of its outputs."""
    folder.mkdir(parents=True, exist_ok=True)
    shapes = onnx.shape_inference.infer_shapes(proto, data_prop=True)
    del proto.graph.output[:]
    proto.graph.output.extend(shapes.graph.output)
    onnx.save(proto, folder / "model.onnx")
    inputs = tuple(value.name for value in proto.graph.input)
    np.savez(folder / "inputs.npz", **{str(i): feed[name] for i, name in enumerate(inputs)})
    expected = reference(proto, feed)
    np.savez(folder / "expected.npz", **{str(i): np.asarray(a) for i, a in enumerate(expected)})
    steps = tuple(float((scales or {}).get(output.name, 0.0)) for output in proto.graph.output)
    case = replace(case, inputs=inputs, steps=steps)
    (folder / "case.json").write_text(json.dumps(asdict(case)), encoding="utf-8")
    return case


def reference(proto: onnx.ModelProto, feed: Mapping[str, npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
    """Return the outputs to expect; where onnx's evaluator has no such operator, those of onnxruntime."""
    try:
        return differential.reference_evaluator(proto, feed)
    except (RuntimeError, NotImplementedError):
        return differential.RUNTIMES["onnxruntime, plain"](proto, feed)


def read_cases(folder: Path) -> dict[tuple[str, str], tuple[Case, Path]]:
    """Return the cases that were written into a folder, by subject and column."""
    cases = {}
    for path in sorted(folder.glob("*/*/case.json")):
        known = json.loads(path.read_text(encoding="utf-8"))
        case = Case(**known)
        case = replace(case, steps=tuple(case.steps), inputs=tuple(case.inputs), nodes=tuple(case.nodes))
        cases[case.subject, case.column] = case, path.parent
    return cases
