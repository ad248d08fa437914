"""The profiling function and where its nodes are put; what it counts is judged by exact counting in numpy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator
from qprof_onnx.profiles.base.errors import ModelError
from qprof_onnx.profiles.instrumentation.subgraphs import float_activations, typed_activations
from qprof_onnx.profiles.records.histogram import Histogram
from qprof_onnx.profiles.records.profile import TensorProfile
from qprof_onnx.profiles.runtime.providers import RUNTIME_ERRORS
from qprof_onnx.quantizer.plugins.instrument.instrument import (
    MIN_OPSET,
    profiling_function,
)
from qprof_onnx.quantizer.plugins.instrument.instrument import (
    with_profiling_nodes as instrument,
)

from ....reference.profiling_outputs import profile_from_outputs


def runtime_opset() -> int:
    """The newest opset that this onnxruntime has."""
    opset = MIN_OPSET
    for newer in range(MIN_OPSET + 1, onnx.defs.onnx_opset_version() + 1):
        model = onnx.parser.parse_model(
            f'<ir_version: 8, opset_import: ["": {newer}]> g (float[N] x) => (float[N] y) {{ y = Neg(x) }}'
        )
        try:
            ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        except RUNTIME_ERRORS:
            break
        opset = newer
    return opset


RUNTIME_OPSET = runtime_opset()

SMALL = """<ir_version: 7, opset_import: ["": 13]>
    small (float[N, 4] x) => (float[N, 4] z) { [log] y = Log(x)  [relu] z = Relu(y) }"""


def model_of(text: str, infer: bool = True) -> ir.Model:
    proto = onnx.parser.parse_model(text)
    return ir.from_proto(onnx.shape_inference.infer_shapes(proto) if infer else proto)


def session_of(
    model: ir.Model, level: Any = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.graph_optimization_level = level
    return ort.InferenceSession(
        ir.to_proto(model).SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def run(
    model: ir.Model, level: Any = ort.GraphOptimizationLevel.ORT_DISABLE_ALL, **feed: Any
) -> dict[str, Any]:
    session = session_of(model, level)
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, feed), strict=True))


def run_reference(model: ir.Model, **feed: Any) -> dict[str, Any]:
    evaluator = ReferenceEvaluator(ir.to_proto(model))
    with np.errstate(all="ignore"):  # candidates that overflow are meant to
        return dict(zip(evaluator.output_names, evaluator.run(None, feed), strict=True))


def profiled(values: np.ndarray, dtype: str, shape: tuple[int | None, ...]) -> TensorProfile:
    """What counting in numpy gives."""
    wide = values.astype(np.float64).reshape(-1)
    finite = wide[np.isfinite(wide)]
    return TensorProfile(
        dtype=dtype,
        shape=shape,
        minimum=float(finite.min()) if finite.size else 0.0,
        maximum=float(finite.max()) if finite.size else 0.0,
        count=finite.size,
        zeros=int((finite == 0).sum()),
        nan=int(np.isnan(wide).sum()),
        inf=int(np.isinf(wide).sum()),
        histogram=Histogram.of(finite),
    )


@pytest.mark.parametrize("opset", range(MIN_OPSET, onnx.defs.onnx_opset_version() + 1))
def test_the_function_counts_exactly_at_every_opset(opset: int) -> None:
    ir_version = onnx.helper.find_min_ir_version_for([onnx.helper.make_opsetid("", opset)])
    model = model_of(
        f"""<ir_version: {ir_version}, opset_import: ["": {opset}]>
        g (float[N, 2] x) => (float[N, 2] y) {{ y = Neg(x) }}"""
    )
    instrumented = instrument(model)
    onnx.checker.check_model(ir.to_proto(instrumented), full_check=True)
    x = np.array([[1.5, -2.25], [0.0, np.nan], [3e-39, -np.inf]], np.float32)
    expected = {"x": profiled(x, "float", (None, 2)), "y": profiled(-x, "float", (None, 2))}
    assert profile_from_outputs(instrumented, run_reference(instrumented, x=x)) == expected
    if opset <= RUNTIME_OPSET:
        assert profile_from_outputs(instrumented, run(instrumented, x=x)) == expected


def test_onnxruntime_is_tried_at_several_opsets() -> None:
    assert RUNTIME_OPSET >= 20


def floats(width: int) -> st.SearchStrategy[list[float]]:
    return st.lists(st.floats(width=width) | st.sampled_from([0.0, -0.0, 1.0]), max_size=20)


DTYPES = {"double": (64, np.float64), "float": (32, np.float32), "float16": (16, np.float16)}
FUNCTIONS = {
    name: instrument(
        model_of(
            f'<ir_version: 8, opset_import: ["": 13]> g ({name}[N] x) => (int64[R] y) {{ y = Shape(x) }}'
        )
    )
    for name in DTYPES
}
SESSIONS = {name: session_of(model) for name, model in FUNCTIONS.items()}


@pytest.mark.slow
@settings(deadline=None)
@given(data=st.data(), dtype=st.sampled_from(sorted(DTYPES)))
def test_the_function_counts_any_values_exactly(data: st.DataObject, dtype: str) -> None:
    width, numpy_dtype = DTYPES[dtype]
    check_counting(np.array(data.draw(floats(width)), numpy_dtype), dtype)


@pytest.mark.parametrize(
    "values",
    [
        [],
        [np.nan],
        [np.inf, -np.inf],
        [0.0, -0.0],
        [-0.0],
        [5.0],
        [-5e-324, 1.7e308],
        [-1e-300, 1.7e308],
        [-5e-324, 1999.5 * 2.0**900],
        [-1999.5 * 2.0**900, 5e-324],
        [-1.7976931348623157e308, 1.7976931348623157e308],
        [5e-324, -5e-324],
        [1e10, 1e10 + 1e-3],
        list(range(2000)),
        list(range(2001)),
    ],
)
def test_the_function_counts_extreme_values_exactly(values: list[float]) -> None:
    check_counting(np.array(values, np.float64), "double")


def check_counting(values: np.ndarray, dtype: str) -> None:
    expected = {"x": profiled(values, dtype, (None,))}
    session = SESSIONS[dtype]
    names = [output.name for output in session.get_outputs()]
    found = dict(zip(names, session.run(None, {"x": values}), strict=True))
    assert profile_from_outputs(FUNCTIONS[dtype], found) == expected
    assert profile_from_outputs(FUNCTIONS[dtype], run_reference(FUNCTIONS[dtype], x=values)) == expected
    assert str(float(found["qprof:minimum:x"])) != "-0.0"


def test_bfloat16_is_counted_exactly() -> None:
    model = model_of(
        """<ir_version: 8, opset_import: ["": 13]> g (float[N] x) => (float[N] y) {
        b = Cast<to = 16>(x)  y = Cast<to = 1>(b) }"""
    )
    instrumented = instrument(model)
    x = np.array([1.0, 2.3, -0.007, 0.0], np.float32)
    expected = profiled(x.astype(ml_dtypes.bfloat16), "bfloat16", (None,))
    assert profile_from_outputs(instrumented, run(instrumented, x=x))["b"] == expected


def test_a_scalar_has_the_shape_of_a_scalar() -> None:
    instrumented = instrument(
        model_of('<ir_version: 8, opset_import: ["": 13]> g (float x) => (float y) { y = Exp(x) }')
    )
    profile = profile_from_outputs(instrumented, run(instrumented, x=np.array(1, np.float32)))["x"]
    assert (profile.shape, profile.count) == ((), 1)


def test_fixed_dimensions_are_recorded_and_free_ones_not() -> None:
    instrumented = instrument(model_of(SMALL))
    profile = profile_from_outputs(instrumented, run(instrumented, x=np.ones((3, 4), np.float32)))
    assert {p.shape for p in profile.values()} == {(None, 4)}


BRANCHY = """<ir_version: 8, opset_import: ["": 13, "com.microsoft": 1]>
    branchy (float[N, 2] x, int64[N] n, double[2] w, float16[N] h) => (float[N, 2] z, int64[N] m)
    <double[2] w = {1.0, 2.0}>
    {
        one = Constant <value = float {1.0}> ()
        y, mask = Dropout (x)
        k = com.microsoft.Gelu (y)
        z = Add (k, one)
        m = Identity (n)
        v = Identity (w)
        g = Cast <to = 10> (z)
    }"""


def test_floating_point_activations_are_observed_in_graph_order() -> None:
    model = model_of(BRANCHY)
    assert [v.name for v in float_activations(model)] == ["x", "h", "y", "k", "z", "v", "g"]


def test_an_unknown_type_is_flagged_and_found_by_onnxruntime() -> None:
    model = model_of(BRANCHY)
    assert [v.name for v in float_activations(model) if v.dtype is None] == ["k"]
    assert {v.name: dtype for v, dtype in typed_activations(model)}["k"] == ir.DataType.FLOAT


def test_values_of_unknown_type_that_are_not_float_are_left_out() -> None:
    model = model_of(
        """<ir_version: 8, opset_import: ["": 13]>
        g (float[N] x) => (float[N] y) { s = SequenceConstruct(x)  i = Cast<to = 7>(x)  y = Neg(x) }""",
        infer=False,
    )
    assert [v.name for v in float_activations(model)] == ["x", "s", "i", "y"]
    assert [v.name for v, _ in typed_activations(model)] == ["x", "y"]
    assert set(profile_from_outputs(instrument(model), run(instrument(model), x=np.ones(2, np.float32)))) == {
        "x",
        "y",
    }


def test_the_model_itself_is_not_changed() -> None:
    model = model_of(SMALL)
    before = ir.to_proto(model).SerializeToString()
    instrument(model)
    assert ir.to_proto(model).SerializeToString() == before


def test_instrumenting_twice_gives_the_same_bytes() -> None:
    one, other = (ir.to_proto(instrument(model_of(BRANCHY))) for _ in range(2))
    assert one.SerializeToString(deterministic=True) == other.SerializeToString(deterministic=True)


def test_nodes_say_which_node_and_output_they_profile() -> None:
    model = model_of(
        """<ir_version: 8, opset_import: ["": 13]> g (float[4] x) => (float[2] b) {
        [cut] a, b = Split(x) }"""
    )
    nodes = [n for n in instrument(model).graph if n.domain == "qprof"]
    said = [
        (
            n.name,
            n.attributes["profiled_node_name"].as_string(),
            n.attributes["profiled_output_number"].as_int(),
        )
        for n in nodes
    ]
    assert said == [
        ("QuantizationProfile/x", "x", 0),
        ("QuantizationProfile/a", "cut", 0),
        ("QuantizationProfile/b", "cut", 1),
    ]


def test_names_are_escaped_and_collide_with_nothing() -> None:
    proto = onnx.parser.parse_model(SMALL)
    proto.graph.input[0].name = proto.graph.node[0].input[0] = "qprof:count:y"
    proto.graph.node[0].output[0] = proto.graph.node[1].input[0] = "y z%é"
    proto.graph.node[0].name = "QuantizationProfile/y%20z%25%C3%A9"
    instrumented = instrument(ir.from_proto(onnx.shape_inference.infer_shapes(proto)))
    onnx.checker.check_model(ir.to_proto(instrumented), full_check=True)
    assert [n.name for n in instrumented.graph if n.domain == "qprof"] == [
        "QuantizationProfile/qprof:count:y",
        "QuantizationProfile/y%20z%25%C3%A9#1",
        "QuantizationProfile/z",
    ]
    outputs = [v.name for v in instrumented.graph.outputs]
    assert "qprof_:count:y z%é" in outputs
    assert len(set(outputs)) == len(outputs)
    found = profile_from_outputs(
        instrumented, run(instrumented, **{"qprof:count:y": np.ones((1, 4), np.float32)})
    )
    assert list(found) == ["qprof:count:y", "y z%é", "z"]


def test_original_outputs_stay_bit_identical_without_fusions() -> None:
    model = conv_net()
    x = np.random.default_rng(1).random((5, 1, 8, 8), np.float32)
    plain, instrumented = run(model, x=x)["scores"], run(instrument(model), x=x)["scores"]
    assert plain.tobytes() == instrumented.tobytes()


def test_original_outputs_differ_by_rounding_at_most_with_fusions() -> None:
    model = conv_net()
    x = np.random.default_rng(1).random((5, 1, 8, 8), np.float32)
    level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    plain, instrumented = run(model, level, x=x)["scores"], run(instrument(model), level, x=x)["scores"]
    # Softmax scores of about 0.1: some float32 roundings (6e-8 relative each) of sums over up to 128 terms.
    np.testing.assert_allclose(instrumented, plain, rtol=1e-5, atol=0)


def conv_net() -> ir.Model:
    proto = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 13]>
        net (float[N, 1, 8, 8] x) => (float[N, 10] scores) {
            c = Conv <pads = [1, 1, 1, 1]> (x, w1, b1)
            r = Relu (c)
            p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (r)
            f = Flatten (p)
            g = Gemm (f, w2, b2)
            scores = Softmax (g)
        }"""
    )
    rng = np.random.default_rng(0)
    for name, shape in (("w1", (8, 1, 3, 3)), ("b1", (8,)), ("w2", (128, 10)), ("b2", (10,))):
        weight = rng.standard_normal(shape).astype(np.float32) / 4
        proto.graph.initializer.append(onnx.numpy_helper.from_array(weight, name))
    return ir.from_proto(onnx.shape_inference.infer_shapes(proto))


def test_an_old_opset_is_refused() -> None:
    model = model_of(
        '<ir_version: 7, opset_import: ["": 12]> old (float[N] x) => (float[N] y) { y = Relu(x) }'
    )
    with pytest.raises(
        ModelError, match="model 'old': has opset 12, profiling needs 13 or newer; convert it"
    ):
        instrument(model)


def test_an_instrumented_model_is_refused() -> None:
    with pytest.raises(ModelError, match=r"model 'small': .* instrumented already; give the original model"):
        instrument(instrument(model_of(SMALL)))


def test_the_function_declares_what_it_uses() -> None:
    function = profiling_function(17)
    assert function.opset_imports == {"": 17}
    proto = ir.serde.serialize_function(function)
    assert list(proto.attribute) == ["profiled_node_name", "profiled_output_number"]
