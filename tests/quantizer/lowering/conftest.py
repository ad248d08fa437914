"""Small models as ONNX text, plans for them without the planner, and three ways to run the result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx.reference import ReferenceEvaluator
from qprof_onnx.profiles.profile import ModelId
from qprof_onnx.quantizer.affine import INT8, TYPES, UINT8, QuantParams
from qprof_onnx.quantizer.config import QuantConfig
from qprof_onnx.quantizer.lowering import Lowered, lower
from qprof_onnx.quantizer.plan import Kind, NodePlan, QuantPlan
from qprof_onnx.quantizer.schemes import SCHEMES, bias_params, channel_params, choose_params

Feed = dict[str, np.ndarray]
MOVES = {"Relu", "Clip", "MaxPool", "Reshape", "Transpose", "Flatten", "Slice", "Pad"}
TABLES = {"Sigmoid", "Tanh"}
# operator: index and channel axis of the weight
WEIGHT_AXIS = {"Conv": 0, "ConvTranspose": 1, "MatMul": -1}


def parse(text: str, opset: int = 17) -> ir.Model:
    """Return a model from the body of a graph; tensors that are declared and not made become weights."""
    header = f'<ir_version: {10 if opset >= 21 else 8}, opset_import: ["" : {opset}]>\n'
    proto = onnx.parser.parse_model(header + text)
    made = {name for node in proto.graph.node for name in node.output}
    given = {t.name for t in proto.graph.initializer}
    rng = np.random.default_rng(7)
    for value in proto.graph.value_info:
        if value.name not in made | given:
            shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
            fan_in = max(1, int(np.prod(shape[1:]))) if len(shape) > 1 else 10
            array = (rng.standard_normal(shape) / np.sqrt(fan_in)).astype(np.float32)
            proto.graph.initializer.append(onnx.numpy_helper.from_array(array, value.name))
    del proto.graph.value_info[:]
    for index, node in enumerate(proto.graph.node):
        node.name = f"{node.op_type.lower()}_{index}"
    onnx.checker.check_model(proto, full_check=True)
    return ir.from_proto(onnx.shape_inference.infer_shapes(proto))


def feed_of(model: ir.Model, seed: int = 1) -> Feed:
    rng = np.random.default_rng(seed)
    feeds = {}
    for value in model.graph.inputs:
        assert value.shape is not None
        shape = [d if isinstance(d, int) else 2 for d in value.shape]
        if value.dtype == ir.DataType.BOOL:
            feeds[value.name or ""] = np.ones(shape, np.bool_)
        else:
            feeds[value.name or ""] = rng.standard_normal(shape).astype(np.float32)
    return feeds


def ranges_of(model: ir.Model, feed: Feed) -> dict[str, tuple[float, float]]:
    """Return the range of every activation, from the reference evaluator."""
    names = [v.name for n in model.graph for v in n.outputs if v.name]
    proto = ir.to_proto(model)
    del proto.graph.output[:]
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    found = dict(zip(names, ReferenceEvaluator(proto).run(None, feed), strict=True)) | feed
    return {k: (float(v.min()), float(v.max())) for k, v in found.items() if v.dtype == np.float32}


def plan_of(
    model: ir.Model,
    *,
    activation: str = "uint8",
    schema: str = "asymmetric",
    floats: Sequence[str] = (),
    returns_float: Sequence[str] = (),
    ties: Mapping[str, str] | None = None,
    spellings: Mapping[str, str] | None = None,
    kinds: Mapping[str, Kind] | None = None,
    overrides: Mapping[str, Mapping[int, QuantParams]] | None = None,
    per_channel: bool = True,
) -> QuantPlan:
    """Return a plan that quantizes everything but the nodes in `floats`.

    `ties` gives a tensor the parameters of another; outputs of moves have those of their input anyway, and a
    Relu or Clip gives its own to its input.
    """
    scheme, qtype = SCHEMES[schema], TYPES[activation]
    ranges = ranges_of(model, feed_of(model))
    own = {name: choose_params(*span, scheme, qtype) for name, span in ranges.items()}
    own |= {name: own[source] for name, source in (ties or {}).items()}
    for node in reversed(list(model.graph)):
        if node.op_type in ("Relu", "Clip") and node.name not in floats:
            own[_name(node.inputs[0])] = own[_name(node.outputs[0])]
    tensors: dict[str, QuantParams] = {}
    nodes: dict[str, NodePlan] = {}
    for node in model.graph:
        name = node.name or ""
        spelling = (spellings or {}).get(name, "")
        if name in floats:
            nodes[name] = NodePlan(Kind.FLOAT, "kept float by request")
            continue
        kind = Kind.MOVE if node.op_type in MOVES else Kind.TABLE if node.op_type in TABLES else Kind.INTEGER
        kind = (kinds or {}).get(name, kind)
        data = node.inputs[:1] if kind is Kind.MOVE else node.inputs
        for value in data:
            if _name(value) in own:
                tensors.setdefault(_name(value), own[_name(value)])
        special = dict((overrides or {}).get(name, {}))
        for index, params in _constants(node, tensors, qtype.name, schema, per_channel).items():
            if tensors.setdefault(_name(node.inputs[index]), params) != params:
                special[index] = params
        for value in node.outputs:
            if value.name in own and value.name not in returns_float:
                moved = kind is Kind.MOVE and node.op_type not in ("Relu", "Clip")
                own[value.name] = own[_name(node.inputs[0])] if moved else own[value.name]
                fixed = QuantParams((1 / 128,), (qtype.low + 128,), qtype)
                tensors[value.name] = fixed if spelling == "sigmoid" else own[value.name]
        nodes[name] = NodePlan(kind, "", special, spelling)
    config = QuantConfig(schema=schema, activation_type=activation)
    return QuantPlan(ModelId("s", "w", 17), config, tensors, nodes)


def _name(value: ir.Value | None) -> str:
    return "" if value is None else value.name or ""


def _constants(
    node: ir.Node, tensors: Mapping[str, QuantParams], activation: str, schema: str, per_channel: bool
) -> dict[int, QuantParams]:
    symmetric = SCHEMES["symmetric"]
    found: dict[int, QuantParams] = {}
    axis = WEIGHT_AXIS.get(node.op_type)
    if node.op_type == "Gemm":
        axis = 0 if "transB" in node.attributes else 1
    for index, value in enumerate(node.inputs):
        if value is None or value.const_value is None or value.dtype != ir.DataType.FLOAT:
            continue
        array = value.const_value.numpy()
        if axis is not None and index == 1:
            channel = axis % array.ndim if per_channel else None
            found[1] = channel_params(array, channel, symmetric, INT8)
        elif axis is not None and index == 2:
            found[2] = bias_params(tensors[_name(node.inputs[0])], found[1])
        elif node.op_type in ("Add", "Mul", "Concat"):
            bounds = float(array.min()), float(array.max())
            found[index] = choose_params(*bounds, SCHEMES[schema], TYPES[activation])
    return found


class Runs:
    """A lowered model, checked, with its results in three evaluators and what onnxruntime fused."""

    def __init__(self, lowered: Lowered, feed: Feed, folder: Path, options: Mapping[str, str]) -> None:
        self.lowered = lowered
        self.proto = ir.to_proto(lowered.model)
        onnx.checker.check_model(self.proto, full_check=True)
        self.feed = feed
        self._folder = folder
        self._options = options

    def reference(self) -> list[np.ndarray]:
        proto = onnx.ModelProto.FromString(self.proto.SerializeToString())
        for opset in proto.opset_import:
            opset.version = max(
                opset.version, 19
            )  # the evaluator has no older DequantizeLinear; it is the same
        return list(ReferenceEvaluator(proto).run(None, self.feed))

    def onnxruntime(self, optimized: bool = True) -> list[np.ndarray]:
        levels = ort.GraphOptimizationLevel
        options = ort.SessionOptions()
        options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimized else levels.ORT_DISABLE_ALL
        options.intra_op_num_threads = 1
        options.log_severity_level = 4
        for key, value in self._options.items():
            options.add_session_config_entry(key, value)
        options.optimized_model_filepath = str(self._folder / "optimized.onnx")
        session = ort.InferenceSession(self.proto.SerializeToString(), options)
        return list(session.run(None, self.feed))

    def openvino(self) -> list[np.ndarray]:
        import openvino

        core = openvino.Core()
        compiled = core.compile_model(core.read_model(self.proto.SerializeToString()), "CPU")
        result = compiled(self.feed)
        return [result[i] for i in range(len(self.proto.graph.output))]

    def fused(self) -> Counter[str]:
        """Return how many nodes of each operator onnxruntime runs."""
        self.onnxruntime()
        optimized = onnx.load(self._folder / "optimized.onnx")
        return Counter(node.op_type for node in optimized.graph.node)

    def operators(self) -> Counter[str]:
        return Counter(node.op_type for node in self.proto.graph.node)


Lowering = Callable[..., Runs]


@pytest.fixture
def lowered(tmp_path: Path) -> Lowering:
    """Lower the ONNX text of a graph with a plan for all of it; keyword arguments as for `plan_of`."""

    def run(text: str, *, opset: int = 17, options: Mapping[str, str] | None = None, **how: Any) -> Runs:
        model = parse(text, opset)
        before = ir.to_proto(model).SerializeToString(deterministic=True)
        result = lower(model, plan_of(model, **how))
        assert ir.to_proto(model).SerializeToString(deterministic=True) == before, "the argument was changed"
        _same_interface(model, result.model)
        return Runs(result, feed_of(model), tmp_path, options or {})

    return run


@pytest.fixture
def make_model() -> Callable[..., ir.Model]:
    return parse


@pytest.fixture
def make_plan() -> Callable[..., QuantPlan]:
    return plan_of


@pytest.fixture
def uint8_params() -> QuantParams:
    return QuantParams((0.0625,), (120,), UINT8)


def _same_interface(model: ir.Model, result: ir.Model) -> None:
    for old, new in ((model.graph.inputs, result.graph.inputs), (model.graph.outputs, result.graph.outputs)):
        assert [(v.name, v.dtype) for v in old] == [(v.name, v.dtype) for v in new]
