"""One vector for every entry of the table: the operator is quantized, runs, and means the same."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import numpy_helper, parser
from qprof_onnx.profiles.runner.calibrate import calibrate
from qprof_onnx.profiles.samples.values import Sample
from qprof_onnx.quantizer.lowering.lower import lower
from qprof_onnx.quantizer.model.identity import model_id
from qprof_onnx.quantizer.operators.graph import index
from qprof_onnx.quantizer.operators.table import MICROSOFT, RULES, ChannelScaling, Constraint, Rule
from qprof_onnx.quantizer.plan.plan import Kind
from qprof_onnx.quantizer.plan.verify import verify_plan
from qprof_onnx.quantizer.prepare.prepare import prepare
from qprof_onnx.quantizer.prepare.unfusing import TAKEN_APART
from qprof_onnx.quantizer.targets.config import QuantConfig
from qprof_onnx.quantizer.targets.target import QUANTIZED, Recipe, Target

from ..networks import network, plan_alone

IMAGE = "float[1, 4, 8, 8] x"
ROWS = "float[2, 6] x"

# operator -> (inputs, node, constants); every number in a constant is drawn from a seeded generator
VECTORS: dict[str, tuple[str, str, dict[str, object]]] = {
    "Conv": (IMAGE, "y = Conv <pads = [1, 1, 1, 1]> (x, w, b)", {"w": (3, 4, 3, 3), "b": (3,)}),
    "ConvTranspose": (IMAGE, "y = ConvTranspose (x, w, b)", {"w": (4, 3, 3, 3), "b": (3,)}),
    "Gemm": (ROWS, "y = Gemm <transB = 1> (x, w, b)", {"w": (5, 6), "b": (5,)}),
    "MatMul": (ROWS, "y = MatMul (x, w)", {"w": (6, 5)}),
    **{
        op: (
            "float[3, 2, 6] x",
            f"y = {op} <hidden_size = 4> (x, w, r)",
            {"w": (1, gates * 4, 6), "r": (1, gates * 4, 4)},
        )
        for op, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1))
    },
    "Add": (IMAGE, "y = Add (x, c)", {"c": (4, 1, 1)}),
    "Sub": (IMAGE, "y = Sub (x, c)", {"c": (4, 1, 1)}),
    "Mul": (IMAGE, "y = Mul (x, c)", {"c": (4, 1, 1)}),
    "Div": (IMAGE, "y = Div (x, c)", {"c": np.full((4, 1, 1), 3.0, np.float32)}),
    "AveragePool": (IMAGE, "y = AveragePool <kernel_shape = [2, 2]> (x)", {}),
    "GlobalAveragePool": (IMAGE, "y = GlobalAveragePool (x)", {}),
    "ReduceMean": (IMAGE, "y = ReduceMean <axes = [2, 3]> (x)", {}),
    "ReduceSum": (IMAGE, "y = ReduceSum (x, i)", {"i": np.array([2, 3])}),
    **{
        op: (IMAGE, f"y = {op} <axes = [2, 3]> (x)", {})
        for op in ("ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp")
    },
    "ReduceProd": (ROWS, "y = ReduceProd <axes = [1]> (x)", {}),
    "Sum": (IMAGE, "y = Sum (x, c, x)", {"c": (4, 1, 1)}),
    "Mean": (IMAGE, "y = Mean (x, c, x)", {"c": (4, 1, 1)}),
    "PRelu": (IMAGE, "y = PRelu (x, c)", {"c": (4, 1, 1)}),
    "LpPool": (IMAGE, "y = LpPool <kernel_shape = [2, 2]> (x)", {}),
    "GlobalLpPool": (IMAGE, "y = GlobalLpPool (x)", {}),
    "CumSum": (ROWS, "y = CumSum (x, i)", {"i": np.array(1)}),
    "Trilu": (ROWS, "y = Trilu (x)", {}),
    "GridSample": (IMAGE, "y = GridSample (x, c)", {"c": np.full((1, 3, 3, 2), 0.3, np.float32)}),
    "RoiAlign": (
        IMAGE,
        "y = RoiAlign <output_height = 2, output_width = 2> (x, c, i)",
        {"c": np.array([[0, 0, 6, 6]], np.float32), "i": np.array([0])},
    ),
    "Compress": (ROWS, "y = Compress <axis = 1> (x, m)", {"m": np.array([True, False] * 3)}),
    "ReverseSequence": (ROWS, "y = ReverseSequence (x, i)", {"i": np.array([2, 1, 2, 1, 2, 2])}),
    "TopK": (ROWS, "y, z = TopK (x, i)", {"i": np.array([3])}),
    "ScatterND": (ROWS, "y = ScatterND (x, i, c)", {"i": np.array([[0], [1]]), "c": (2, 6)}),
    "ScatterElements": (ROWS, "y = ScatterElements (x, i, c)", {"i": np.array([[0, 1]]), "c": (1, 2)}),
    "Pow": (ROWS, "y = Pow (x, c)", {"c": np.float32(2.0)}),
    "LogSoftmax": (ROWS, "y = LogSoftmax <axis = 1> (x)", {}),
    "LRN": (IMAGE, "y = LRN <size = 3> (x)", {}),
    "LpNormalization": (ROWS, "y = LpNormalization (x)", {}),
    "InstanceNormalization": (IMAGE, "y = InstanceNormalization (x, w, b)", {"w": (4,), "b": (4,)}),
    "LayerNormalization": (ROWS, "y = LayerNormalization (x, w, b)", {"w": (6,), "b": (6,)}),
    "RMSNormalization": (ROWS, "y = RMSNormalization (x, w)", {"w": (6,)}),
    "SimplifiedLayerNormalization": (ROWS, "y = SimplifiedLayerNormalization (x, w)", {"w": (6,)}),
    "GroupNormalization": (
        IMAGE,
        "y = GroupNormalization <num_groups = 2> (x, w, b)",
        {"w": (4,), "b": (4,)},
    ),
    "MaxPool": (IMAGE, "y = MaxPool <kernel_shape = [2, 2]> (x)", {}),
    "GlobalMaxPool": (IMAGE, "y = GlobalMaxPool (x)", {}),
    "ReduceMax": (IMAGE, "y = ReduceMax <axes = [1]> (x)", {}),
    "ReduceMin": (IMAGE, "y = ReduceMin <axes = [1]> (x)", {}),
    "Reshape": (IMAGE, "y = Reshape (x, i)", {"i": np.array([1, -1])}),
    "Flatten": (IMAGE, "y = Flatten (x)", {}),
    "Squeeze": (IMAGE, "y = Squeeze (x, i)", {"i": np.array([0])}),
    "Unsqueeze": (IMAGE, "y = Unsqueeze (x, i)", {"i": np.array([0])}),
    "Transpose": (IMAGE, "y = Transpose <perm = [0, 2, 3, 1]> (x)", {}),
    "Expand": (IMAGE, "y = Expand (x, i)", {"i": np.array([2, 4, 8, 8])}),
    "Tile": (IMAGE, "y = Tile (x, i)", {"i": np.array([1, 2, 1, 1])}),
    "Slice": (IMAGE, "y = Slice (x, i, j)", {"i": np.array([0, 1]), "j": np.array([1, 3])}),
    "Split": (IMAGE, "y, z = Split <axis = 1> (x, i)", {"i": np.array([1, 3])}),
    "Gather": (IMAGE, "y = Gather <axis = 1> (x, i)", {"i": np.array([2, 0])}),
    "GatherElements": (ROWS, "y = GatherElements <axis = 1> (x, i)", {"i": np.array([[2, 0], [1, 1]])}),
    "GatherND": (ROWS, "y = GatherND (x, i)", {"i": np.array([[1, 3], [0, 0]])}),
    "DepthToSpace": (IMAGE, "y = DepthToSpace <blocksize = 2> (x)", {}),
    "SpaceToDepth": (IMAGE, "y = SpaceToDepth <blocksize = 2> (x)", {}),
    "Resize": (IMAGE, "y = Resize (x, , s)", {"s": np.array([1, 1, 2, 2], np.float32)}),
    "Pad": (IMAGE, "y = Pad (x, i)", {"i": np.array([0, 0, 1, 1, 0, 0, 1, 1])}),
    "Concat": (IMAGE, "y = Concat <axis = 1> (x, x)", {}),
    "Where": (IMAGE, "y = Where (m, x, c)", {"m": np.array([True, False] * 4), "c": (1,)}),
    "Max": (IMAGE, "y = Max (x, c)", {"c": (4, 1, 1)}),
    "Min": (IMAGE, "y = Min (x, c)", {"c": (4, 1, 1)}),
    "Relu": (IMAGE, "y = Relu (x)", {}),
    "Clip": (IMAGE, "y = Clip (x, l, h)", {"l": np.float32(-0.5), "h": np.float32(1.0)}),
    "Softmax": (ROWS, "y = Softmax <axis = 1> (x)", {}),
    "LeakyRelu": (IMAGE, "y = LeakyRelu <alpha = 0.1> (x)", {}),
    **{
        op: (IMAGE, f"y = {op} (x)", {})
        for op in (
            *("Sigmoid", "HardSigmoid", "Tanh", "Erf", "Sin", "Cos", "Softsign", "ThresholdedRelu", "Elu"),
            *("Selu", "Celu", "Softplus", "HardSwish", "Mish", "Gelu", "Exp", "Log", "Sqrt", "Reciprocal"),
            *("Abs", "Neg", "Atan", "Shrink", "Swish", "Asin", "Acos"),
            *("Tan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh"),
        )
    },
}

BY_NAME = {rule.op_type: rule for rule in RULES.values()}
"""The entries by the name of the operator; no name is in two domains."""

EVERYTHING = Target(
    "everything",
    activation_types=("int8", "uint8"),
    pairs_in_16_bits=True,
    operators={op: (QUANTIZED,) for (_, op), rule in RULES.items() if not rule.unary},
    lookup_tables={"*": "portable"},
)


def one_node_model(op_type: str) -> onnx.ModelProto:
    inputs, node, constants = VECTORS[op_type]
    outputs = {"Split": "float[] y, float[] z", "TopK": "float[] y, int64[] z"}.get(op_type, "float[] y")
    domains = '"": 20, "com.microsoft": 1'
    model = parser.parse_model(
        f"<ir_version: 9, opset_import: [{domains}]> g ({inputs}) => ({outputs}) {{ {node} }}"
    )
    if "axes = " in node:  # as an attribute, the implementation of opset 17
        model.opset_import[0].version = 17
    model.opset_import[0].version = {"GroupNormalization": 21, "RMSNormalization": 23, "Swish": 24}.get(
        op_type, model.opset_import[0].version
    )
    rng = np.random.default_rng(7)
    for name, value in constants.items():
        drawn = (
            rng.standard_normal(value).astype(np.float32) if isinstance(value, tuple) else np.asarray(value)
        )
        model.graph.initializer.append(numpy_helper.from_array(drawn, name))
    model = onnx.shape_inference.infer_shapes(model, data_prop=True)
    for output in model.graph.output:
        kind = output.type.tensor_type
        if not kind.HasField("shape") and not BY_NAME[op_type].domain:  # a function of ONNX: as its input
            kind.shape.CopyFrom(model.graph.input[0].type.tensor_type.shape)
    return model


def samples_for(op_type: str, model: onnx.ModelProto) -> list[Sample]:
    shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    x = np.random.default_rng(3).standard_normal(shape).astype(np.float32)
    if op_type in {"Log", "Sqrt", "Reciprocal", "Acosh", "ReduceLogSum", "ReduceProd"}:
        x = np.abs(x) + 1.0  # where the function is defined
    if op_type in {"Asin", "Acos", "Tan", "Atanh"}:
        x = np.clip(x / 4.0, -0.9, 0.9)
    return [Sample("0", {"x": x})]


def test_every_rule_has_a_vector() -> None:
    assert set(BY_NAME) == set(VECTORS), "add a line to VECTORS for each operator of the table"
    assert len(BY_NAME) == len(RULES), "name the vectors of an operator in two domains by domain too"


@pytest.mark.parametrize("op_type", VECTORS)
def test_the_operator_is_quantized_and_means_the_same(op_type: str) -> None:
    proto = one_node_model(op_type)
    samples = samples_for(op_type, proto)
    model = prepare(ir.serde.deserialize_model(proto)).model
    graph, identity = index(model), model_id(model, "vector.onnx")
    profile = calibrate(model, samples, identity)
    feed = dict(samples[0].arrays)
    expected = ort.InferenceSession(proto.SerializeToString()).run(None, feed)
    for activation_type in ("int8", "uint8"):
        config = QuantConfig(
            target="everything", activation_type=activation_type, weight_type="int8", min_output_sqnr=0.0
        )
        # A lone light node has no integer neighbour that would make it one: let it start by itself.
        plan = plan_alone(model, profile, Recipe(config, EVERYTHING), start_everywhere=True)
        verify_plan(plan, graph, identity)
        assert [entry.kind for entry in plan.nodes.values()] == [expected_kind(op_type, plan)]
        quantized = ir.serde.serialize_model(lower(model, plan).model)
        if op_type != "SimplifiedLayerNormalization" and not BY_NAME[op_type].domain:  # of onnxruntime alone
            onnx.checker.check_model(quantized, full_check=True)
        got = ort.InferenceSession(quantized.SerializeToString()).run(None, feed)
        for a, b in zip(expected, got, strict=True):
            assert a.shape == b.shape
            noise = float(np.mean((a - b) ** 2))
            # 8 bits over about 6 standard deviations leave 38 dB or more; operands and tables take a part.
            decibels = 10 * np.log10(np.mean(a**2) / max(noise, 1e-300))
            assert noise <= 10 ** (-2.5) * float(np.mean(a**2)), f"{decibels:.1f} dB"


def expected_kind(op_type: str, plan: object) -> Kind:
    rule = BY_NAME[op_type]
    if rule.unary:
        return Kind.LOOKUP_TABLE
    if rule.constraint is Constraint.SAME:
        return Kind.PASS_THROUGH
    # A clip whose input is a graph input has that input's range to itself, and is free.
    return Kind.PASS_THROUGH if rule.constraint is Constraint.CLAMP else Kind.QUANTIZED


def scaled_inputs(rule: Rule, inputs: list[np.ndarray], scale: float) -> list[list[np.ndarray]]:
    """Return each choice of inputs that scales the output, as `Rule.scaling` has it."""
    first = [scale * inputs[0], *inputs[1:]]
    match rule.scaling:
        case ChannelScaling.EITHER_OPERAND:
            return [first, [inputs[0], scale * inputs[1]]]
        case ChannelScaling.QUOTIENT:
            return [first, [inputs[0], inputs[1] / scale]]
        case ChannelScaling.BOTH_OPERANDS:
            return [[scale * each for each in inputs]]
    return [first]


@pytest.mark.parametrize(
    "op_type", [rule.op_type for rule in RULES.values() if rule.scaling is not ChannelScaling.NONE]
)
def test_scaling_is_handed_on_to_the_inputs_as_the_table_has_it(op_type: str) -> None:
    model = one_node_model(op_type)
    constants = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}
    (node,) = model.graph.node
    (sample,) = samples_for(op_type, model)
    feed = {"x": sample.arrays["x"], **constants}
    del model.graph.initializer[:]
    for name, array in constants.items():
        kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
        model.graph.input.append(onnx.helper.make_tensor_value_info(name, kind, array.shape))
    session = ort.InferenceSession(model.SerializeToString())
    (expected,) = session.run(None, feed)
    for inputs in scaled_inputs(BY_NAME[op_type], [feed[name] for name in node.input], 4.0):
        (scaled,) = session.run(None, dict(zip(node.input, inputs, strict=True)))
        np.testing.assert_array_equal(scaled, 4.0 * expected)  # a power of two changes no bit


def test_recurrent_operators_and_lookups_are_told_apart_by_their_stored_constants() -> None:
    assert [rule.op_type for rule in RULES.values() if rule.is_recurrent] == ["LSTM", "GRU", "RNN"]
    assert [rule.op_type for rule in RULES.values() if rule.is_lookup] == ["Gather"]


def test_a_resize_that_fills_with_a_value_of_its_own_stays_float() -> None:
    """Filled in on quantized values, the number would be taken for a quantized value."""
    net = network(
        "a = Conv (x, w) "
        'm = Resize <coordinate_transformation_mode = "tf_crop_and_resize", mode = "nearest", '
        "extrapolation_value = 2.5> (a, r, s) y = Conv (m, w)",
        {
            "w": (8, 8, 3, 3),
            "r": np.array([0, 0, -0.5, -0.5, 1, 1, 1.5, 1.5], np.float32),
            "s": np.array([1, 1, 2, 2], np.float32),
        },
    )
    plan = net.plan()
    assert plan.nodes["Resize_m"].kind is Kind.FLOAT
    assert "Resize fills with 2.5" in plan.nodes["Resize_m"].reason


def test_no_entry_is_of_an_operator_that_is_taken_apart_before_the_table_is_asked() -> None:
    dead = [op_type for domain, op_type in RULES if domain == MICROSOFT and op_type in TAKEN_APART]
    assert not dead, f"{dead}: quantizer/prepare/unfusing.py writes them as others; they need no entry"
