"""Small models as ONNX text, plans for them without the planner, and three ways to run the result."""

from __future__ import annotations

import hashlib
import pickle
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.inliner
import onnx_ir as ir
import onnxruntime as ort
import pytest
import yaml
from onnx.reference import ReferenceEvaluator
from qprof_onnx.profiles.records.profile import ModelId
from qprof_onnx.quantizer.lowering.lowered import LoweredModel
from qprof_onnx.quantizer.numerics.affine import INT8, TYPES, QuantParams
from qprof_onnx.quantizer.numerics.schemas import SCHEMAS, bias_params, channel_params, choose_params
from qprof_onnx.quantizer.operators.pair_sums import unsaturated
from qprof_onnx.quantizer.operators.saturating import slope_params
from qprof_onnx.quantizer.operators.table import product_layout
from qprof_onnx.quantizer.plan.plan import Kind, NodePlan, QuantPlan
from qprof_onnx.quantizer.targets.config import QuantConfig

from ..reference.contrib_operators import CONTRIB
from ..reference.onnx_fixes import FIXED_OPERATORS
from ..reference.plan_interpreter import Tensor, run_plan

Feed = dict[str, np.ndarray]
MOVES = {"Relu", "Clip", "MaxPool", "Reshape", "Transpose", "Flatten", "Slice", "Pad", "Split"}
TABLES = {"Sigmoid", "Tanh", "LeakyRelu", "HardSwish", "HardSigmoid"}
# operator: index and channel axis of the weight
WEIGHT_AXIS = {"Conv": 0, "ConvTranspose": 1, "MatMul": -1}


@dataclass(frozen=True)
class Net:
    """A net of nets.yaml."""

    name: str
    text: str
    opset: int = 17
    how: dict[str, Any] = field(default_factory=dict)
    fused: dict[str, int] = field(default_factory=dict)


NETS = [
    Net(name, **fields)
    for name, fields in yaml.safe_load(Path(__file__).with_name("nets.yaml").read_text()).items()
]


def parse(text: str, opset: int = 17) -> ir.Model:
    """Return a model from the body of a graph; tensors that are declared and not made become weights."""
    model = ir.from_proto(onnx.ModelProto.FromString(_parsed(text, opset)))
    for index, node in enumerate(node for body in model.graph.subgraphs() for node in body):
        node.name = f"inner_{index}"
    return model


@lru_cache(32)
def _parsed(text: str, opset: int) -> bytes:
    """Return a model as bytes, checked and with shapes; its nodes have names."""
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
    return onnx.shape_inference.infer_shapes(proto).SerializeToString()


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
    return dict(_ranges(ir.to_proto(model).SerializeToString(deterministic=True), pickle.dumps(feed)))


@lru_cache(32)
def _ranges(model: bytes, feed_bytes: bytes) -> dict[str, tuple[float, float]]:
    """Return the range of every activation; a net is lowered in many forms and run by several evaluators."""
    proto, feed = onnx.ModelProto.FromString(model), pickle.loads(feed_bytes)
    names = [name for node in proto.graph.node for name in node.output if name]
    del proto.graph.output[:]
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    found = (
        dict(zip(names, ReferenceEvaluator(proto, new_ops=FIXED_OPERATORS).run(None, feed), strict=True))
        | feed
    )
    return {k: (float(v.min()), float(v.max())) for k, v in found.items() if v.dtype == np.float32}


def plan_of(
    model: ir.Model,
    *,
    activation: str = "uint8",
    schema: str = "asymmetric",
    floats: Sequence[str] = (),
    returns_float: Sequence[str] = (),
    ties: Mapping[str, str] | None = None,
    implementations: Mapping[str, str] | None = None,
    kinds: Mapping[str, str] | None = None,
    overrides: Mapping[str, Mapping[int, QuantParams]] | None = None,
    per_channel: bool = True,
    weight: str = "int8",
    form: str = "qdq",
    tensors: Mapping[str, QuantParams] | None = None,
) -> QuantPlan:
    """Return a plan that quantizes everything but the nodes in `floats`.

    `ties` gives a tensor the parameters of another; outputs of moves have those of their input anyway, and a
    Relu or Clip gives its own to its input.
    """
    qtype = TYPES[activation]
    config = QuantConfig(schema=schema, activation_type=activation, weight_type=weight, form=form)
    ranges = ranges_of(model, feed_of(model))
    own = {name: choose_params(*span, SCHEMAS[schema], qtype) for name, span in ranges.items()}
    # onnxruntime's Softmax wraps around where the scale is below 1/256
    probability = QuantParams((1 / 256,), (qtype.low,), qtype)
    own |= {_name(node.outputs[0]): probability for node in model.graph if node.op_type == "Softmax"}
    own |= {name: own[source] for name, source in (ties or {}).items()}
    for node in reversed(list(model.graph)):
        if node.op_type in ("Relu", "Clip") and node.name not in floats:
            own[_name(node.inputs[0])] = own[_name(node.outputs[0])]
    given, tensors = tensors or {}, dict[str, QuantParams]()
    nodes: dict[str, NodePlan] = {}
    for node in model.graph:
        name = node.name or ""
        implementation = (implementations or {}).get(name, "")
        if name in floats:
            nodes[name] = NodePlan(Kind.FLOAT, "kept float by request", implementation=implementation)
            continue
        kind = (
            Kind.PASS_THROUGH
            if node.op_type in MOVES
            else Kind.LOOKUP_TABLE
            if node.op_type in TABLES
            else Kind.QUANTIZED
        )
        kind = Kind((kinds or {}).get(name, kind))
        data = node.inputs[:1] if kind is Kind.PASS_THROUGH else node.inputs
        if kind in (Kind.DYNAMIC, Kind.WEIGHT_ONLY):
            data = ()
        for value in data:
            if _name(value) in own:
                tensors.setdefault(_name(value), own[_name(value)])
        special = dict((overrides or {}).get(name, {}))
        for index, params in _constants(
            node, kind, tensors, config, per_channel, implementation=implementation
        ).items():
            if tensors.setdefault(_name(node.inputs[index]), params) != params:
                special[index] = params
        for value in node.outputs if kind not in (Kind.DYNAMIC, Kind.WEIGHT_ONLY) else ():
            if value.name in own and value.name not in returns_float:
                moved = kind is Kind.PASS_THROUGH and node.op_type not in ("Relu", "Clip")
                own[value.name] = own[_name(node.inputs[0])] if moved else own[value.name]
                fixed = QuantParams((1 / 128,), (qtype.low + 128,), qtype)
                tensors[value.name] = fixed if implementation == "sigmoid" else own[value.name]
        nodes[name] = NodePlan(kind, "", special, implementation)
    inner = (node.name or "" for body in model.graph.subgraphs() for node in body)
    nodes |= {name: NodePlan(Kind.FLOAT, "inside a body") for name in inner}
    return QuantPlan(ModelId("s", "w", 17), config, {**tensors, **given}, nodes)


def _name(value: ir.Value | None) -> str:
    return "" if value is None else value.name or ""


def _constants(
    node: ir.Node,
    kind: Kind,
    tensors: Mapping[str, QuantParams],
    config: QuantConfig,
    per_channel: bool,
    *,
    implementation: str,
) -> dict[int, QuantParams]:
    symmetric, weights = SCHEMAS["symmetric"], TYPES[config.weight_type]
    if not weights.signed:
        symmetric = SCHEMAS["asymmetric"]
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
            found[1] = channel_params(array, channel, symmetric, weights)
            layout = product_layout(node)
            if layout is not None and weights == INT8 and kind is not Kind.WEIGHT_ONLY:
                axes = layout.axes(node, array.shape)
                found[1] = unsaturated(found[1], array, axes, layout, symmetric)
        elif axis is not None and index == 2 and kind is Kind.QUANTIZED:
            found[2] = bias_params(tensors[_name(node.inputs[0])], found[1])
        elif implementation == "saturating":
            powers = SCHEMAS[config.schema].power_of_two
            found[index] = slope_params(array, TYPES[config.activation_type], power_of_two=powers)
        elif node.op_type in ("Add", "Mul", "Concat"):
            bounds = float(array.min()), float(array.max())
            found[index] = choose_params(*bounds, SCHEMAS[config.schema], TYPES[config.activation_type])
    return found


_KNOWN: dict[bytes, Mapping[str, Tensor]] = {}


def oracle(model: ir.Model, plan: QuantPlan, feed: Feed) -> Mapping[str, Tensor]:
    """Return the values that a plan means; all evaluators of one form are held against one run of it."""
    proto = ir.to_proto(model).SerializeToString(deterministic=True)
    key = hashlib.sha256(pickle.dumps((proto, plan, feed))).digest()
    if key not in _KNOWN:
        if len(_KNOWN) == 32:
            del _KNOWN[next(iter(_KNOWN))]
        _KNOWN[key] = run_plan(model, plan, feed)
    return _KNOWN[key]


class Runs:
    """A lowered model, checked, with its results in three evaluators and what onnxruntime fused."""

    def __init__(
        self,
        lowered: LoweredModel,
        feed: Feed,
        folder: Path,
        options: Mapping[str, str],
        expect: Callable[[], Mapping[str, Tensor]] = dict,
    ) -> None:
        self.lowered = lowered
        self._expect = expect
        self.proto = ir.to_proto(lowered.model)
        onnx.checker.check_model(self.proto, full_check=True)
        self.arrays = feed
        self._folder = folder
        self._options = options

    def reference(self) -> list[np.ndarray]:
        proto = onnx.ModelProto.FromString(self.proto.SerializeToString())
        for imports in (proto.opset_import, *(function.opset_import for function in proto.functions)):
            for opset in imports:
                if not opset.domain:  # the evaluator has no older DequantizeLinear; it is the same
                    opset.version = max(opset.version, 19)
        return list(ReferenceEvaluator(proto, new_ops=self._contrib()).run(None, self.arrays))

    def _contrib(self) -> list[Any]:
        domains = {node.domain for node in self.proto.graph.node}
        return CONTRIB if "com.microsoft" in domains else []

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
        return list(session.run(None, self.arrays))

    def openvino(self) -> list[np.ndarray]:
        openvino = pytest.importorskip("openvino", reason="of the extra test-all")
        # It has no functions of the model, would compute in bfloat16 where the processor has it, and would
        # quantize the activations of a MatMul whose weight alone is quantized.
        proto = onnx.inliner.inline_local_functions(self.proto)
        core = openvino.Core()
        settings = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0}
        compiled = core.compile_model(core.read_model(proto.SerializeToString()), "CPU", settings)
        result = compiled(self.arrays)
        return [result[i] for i in range(len(self.proto.graph.output))]

    def off(self, results: Sequence[np.ndarray]) -> float:
        """Return the largest difference from the plain integer reference: in steps of the output's scale, or
        in millionths of the largest value for an output in float.
        """
        worst, expected = 0.0, self._expect()
        for output, result in zip(self.proto.graph.output, results, strict=True):
            tensor = expected[output.name]
            step = tensor.params.tensor_scale if tensor.params else float(np.abs(tensor.values).max()) * 1e-6
            assert result.shape == tensor.values.shape
            worst = max(worst, float(np.abs(result - tensor.values).max()) / step)
        return worst

    def fused(self) -> Counter[str]:
        """Return how many nodes of each operator onnxruntime runs."""
        self.onnxruntime()
        optimized = onnx.load(self._folder / "optimized.onnx")
        return Counter(node.op_type for node in optimized.graph.node)

    def operators(self) -> Counter[str]:
        return Counter(node.op_type for node in self.proto.graph.node)


Lowering = Callable[..., Runs]


def same_interface(model: ir.Model, result: ir.Model) -> None:
    for old, new in ((model.graph.inputs, result.graph.inputs), (model.graph.outputs, result.graph.outputs)):
        assert [(v.name, v.dtype) for v in old] == [(v.name, v.dtype) for v in new]
