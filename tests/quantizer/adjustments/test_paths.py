"""Equalization paths: which constants can take scales, and that the float model computes the same."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import numpy_helper, parser
from qprof_onnx.profiles.base.errors import PlanError
from qprof_onnx.quantizer.adjustments.bias_correction import apply_biases
from qprof_onnx.quantizer.adjustments.equalization import apply_equalization, inserted_nodes
from qprof_onnx.quantizer.adjustments.equalization_paths import absorbs_scales, find_path
from qprof_onnx.quantizer.operators.graph import index, node_view
from qprof_onnx.quantizer.plan.plan import EqualizationScales
from qprof_onnx.quantizer.prepare.prepare import prepare


@dataclass(frozen=True)
class Case:
    """A graph from x of `shape` to y in which t of 4 channels feeds a weight."""

    text: str
    weights: dict[str, tuple[int, ...]]
    shape: tuple[int, ...] = (1, 4, 5, 5)
    axis: int = 1


READS = "y = Conv(t, v)"
ATTENTION = (
    "n = Constant<value_ints = [0, 0, 2, 2]>() o = Constant<value_ints = [0, 0, 4]>() q = Reshape(x, n) "
    "c = Transpose<perm = [0, 2, 1, 3]>(q) k = Transpose<perm = [0, 2, 3, 1]>(q) s = MatMul(c, k) "
    "p = Softmax<axis = -1>(s) e = MatMul(x, w) f = Add(e, b) g = Reshape(f, n) "
    "i = Transpose<perm = [0, 2, 1, 3]>(g) j = MatMul(p, i) l = Transpose<perm = {}>(j) t = Reshape(l, o) "
    "y = MatMul(t, v)"
)
WEIGHTS = {"w": (4, 4), "b": (4,), "v": (4, 3)}
CASES = {
    "Conv": Case(f"t = Conv(x, w, b) {READS}", {"w": (4, 4, 1, 1), "b": (4,), "v": (3, 4, 2, 2)}),
    "a grouped reader": Case(
        "t = Conv(x, w) y = Conv<group=2>(t, v)", {"w": (4, 4, 1, 1), "v": (6, 2, 2, 2)}
    ),
    "a depthwise reader": Case(
        "t = Conv(x, w) y = Conv<group=4>(t, v)", {"w": (4, 4, 1, 1), "v": (4, 1, 2, 2)}
    ),
    "two readers": Case(
        "t = Conv(x, w) a = Conv(t, v) c = Conv(t, u) y = Mul(a, c)",
        {"w": (4, 4, 1, 1), "v": (3, 4, 2, 2), "u": (3, 4, 2, 2)},
    ),
    "a shared weight": Case("t = Conv(x, w) y = Conv(t, w)", {"w": (4, 4, 1, 1)}),
    "ConvTranspose": Case(
        "t = ConvTranspose(x, w, b) y = ConvTranspose(t, v)",
        {"w": (4, 4, 2, 2), "b": (4,), "v": (4, 3, 2, 2)},
    ),
    "Relu": Case(f"a = Conv(x, w, b) t = Relu(a) {READS}", {"w": (4, 4, 1, 1), "b": (4,), "v": (3, 4, 2, 2)}),
    "PRelu and pools": Case(
        f"a = Conv(x, w) c = PRelu(a, s) d = MaxPool<kernel_shape=[2,2]>(c) "
        f"t = AveragePool<kernel_shape=[2,2]>(d) {READS}",
        {"w": (4, 4, 1, 1), "s": (4, 1, 1), "v": (3, 4, 2, 2)},
    ),
    "a reader of the shape": Case(
        "a = Conv(x, w) t = Relu(a) c = Conv(t, v) d = Shape(a) y = Reshape(c, d)",
        {"w": (4, 4, 1, 1), "v": (4, 4, 1, 1)},
    ),
    "heads of attention": Case(ATTENTION.format([0, 2, 1, 3]), WEIGHTS, (2, 6, 4), axis=2),
    "scalar constants": Case(
        "h = HardSwish(x) a = Mul(h, m) t = Add(n, a) y = MatMul(t, v)",
        {"m": (1,), "n": (1,), "v": (4, 5)},
        (2, 6, 4),
        2,
    ),
    "Div": Case(f"h = Sigmoid(x) t = Div(h, m) {READS}", {"m": (4, 1, 1), "v": (3, 4, 2, 2)}),
    "a product": Case(
        f"h = Sigmoid(x) a = Conv(x, w) t = Mul(h, a) {READS}", {"w": (4, 4, 1, 1), "v": (3, 4, 2, 2)}
    ),
    "a sum": Case(
        f"a = Conv(x, w) c = Conv(x, u) t = Sub(a, c) {READS}",
        {"w": (4, 4, 1, 1), "u": (4, 4, 1, 1), "v": (3, 4, 2, 2)},
    ),
    "MatMul and Add": Case(
        "a = MatMul(x, w) t = Add(b, a) y = MatMul(t, v)", {"w": (3, 4), "b": (4,), "v": (4, 5)}, (2, 6, 3), 2
    ),
    "Gemm": Case(
        "t = Gemm<transB=1>(x, w, b) y = Gemm<transB=1>(t, v)",
        {"w": (4, 3), "b": (4,), "v": (5, 4)},
        (2, 3),
        1,
    ),
    "LayerNormalization": Case(
        "t = LayerNormalization(x, w, b) y = MatMul(t, v)", {"w": (4,), "b": (4,), "v": (4, 5)}, (2, 6, 4), 2
    ),
    "Transpose": Case(
        "a = Conv(x, w) t = Transpose<perm=[0,2,3,1]>(a) y = MatMul(t, v)",
        {"w": (4, 4, 1, 1), "v": (4, 5)},
        axis=3,
    ),
}
DIVISORS = (0.25, 1.0, 8.0, 0.0625)


def model_of(case: Case) -> ir.Model:
    dims = ",".join(map(str, case.shape))
    proto = parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17]> g (float[{dims}] x) => (float[] y) {{ {case.text} }}'
    )
    rng = np.random.default_rng(5)
    for name, size in case.weights.items():
        proto.graph.initializer.append(numpy_helper.from_array(rng.normal(size=size).astype("f"), name))
    return prepare(ir.serde.deserialize_model(proto)).model


def run(model: ir.Model, feed: np.ndarray) -> np.ndarray:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(ir.to_proto(model).SerializeToString(), options)
    return np.asarray(session.run(None, {"x": feed})[0])


@pytest.mark.parametrize("inserted", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_the_equalized_model_computes_the_same(name: str, inserted: bool) -> None:
    case = CASES[name]
    model = model_of(case)
    before = ir.to_proto(model).SerializeToString(deterministic=True)
    adjusted = apply_equalization(model, {"t": EqualizationScales(case.axis, DIVISORS, inserted)})
    assert ir.to_proto(model).SerializeToString(deterministic=True) == before, "the argument was changed"
    assert len(inserted_nodes(model, adjusted)) == int(inserted)
    feed = np.random.default_rng(6).normal(size=case.shape).astype("f")
    expected = run(model, feed)
    # Powers of two change no product; only kernels that order sums otherwise could, by float32 rounding.
    np.testing.assert_allclose(run(adjusted, feed), expected, rtol=0, atol=2e-6 * np.abs(expected).max())


@pytest.mark.parametrize("name", CASES)
def test_the_activation_itself_is_divided(name: str) -> None:
    case = CASES[name]
    model = model_of(case)
    adjusted = apply_equalization(model, {"t": EqualizationScales(case.axis, DIVISORS)})
    feed = np.random.default_rng(6).normal(size=case.shape).astype("f")
    found = []
    for each in (model, adjusted):
        copy = each.clone()
        name = "t" if each is model else "t_scaled"
        copy.graph.outputs[:] = [next(v for n in copy.graph for v in n.outputs if v.name == name)]
        found.append(np.moveaxis(run(copy, feed), case.axis, -1))
    np.testing.assert_allclose(found[1] * DIVISORS, found[0], rtol=0, atol=2e-6 * np.abs(found[0]).max())


@pytest.mark.parametrize("weights", ["www", "wvp"])
@pytest.mark.parametrize("between", ["t = Relu(a) b = Conv(t, {1})", "t = Relu(a) b = Conv<group=4>(t, d)"])
def test_one_activation_is_equalized_after_the_other(weights: str, between: str) -> None:
    text = f"a = Conv(x, {{0}}) {between} u = Relu(b) y = Conv(u, {{2}})".format(*weights)
    shapes = {name: (4, 4, 1, 1) for name in weights if name in text} | {"d": (4, 1, 2, 2)}
    model = model_of(Case(text, {name: shape for name, shape in shapes.items() if f"{name})" in text}))
    both = {"t": EqualizationScales(1, DIVISORS), "u": EqualizationScales(1, DIVISORS[::-1])}
    feed = np.random.default_rng(6).normal(size=(1, 4, 5, 5)).astype("f")
    expected = run(model, feed)
    np.testing.assert_allclose(
        run(apply_equalization(model, both), feed), expected, rtol=0, atol=2e-6 * np.abs(expected).max()
    )


REFUSED = {
    "a Gelu in small operators": (
        f"d = Mul (x, m) e = Erf (d) f = Add (e, n) g = Mul (x, f) t = Mul (g, k) {READS}",
        {"m": (), "n": (), "k": (), "v": (3, 4, 2, 2)},
    ),
    "a Gelu halved first": (
        f"d = Mul (x, m) e = Tanh (d) f = Add (e, n) g = Mul (x, k) t = Mul (g, f) {READS}",
        {"m": (), "n": (), "k": (), "v": (3, 4, 2, 2)},
    ),
    "a HardSwish in small operators": (
        f"d = Add (x, m) e = Clip (d, n, k) g = Mul (x, e) t = Div (g, m) {READS}",
        {"m": (), "n": (), "k": (), "v": (3, 4, 2, 2)},
    ),
    "a function that is not homogeneous": (
        "a = Conv(x, w) t = Sigmoid(a) y = Conv(t, v)",
        {"w": (4, 4, 1, 1)},
    ),
    "a second reader on the way": (
        "a = Conv(x, w) t = Relu(a) c = Conv(t, v) d = ReduceMean<keepdims=0>(a) y = Add(c, d)",
        {"w": (4, 4, 1, 1)},
    ),
    "a reader without weight": (
        "t = Conv(x, w) a = Conv(t, v) c = ReduceMean<keepdims=0>(t) y = Add(a, c)",
        {"w": (4, 4, 1, 1)},
    ),
    "an input of the model": ("y = Conv(x, v)", {}),
}


@pytest.mark.parametrize("why", REFUSED)
def test_scales_that_no_constant_can_take_are_refused(why: str) -> None:
    text, weights = REFUSED[why]
    model = model_of(Case(text, {**weights, "v": (3, 4, 2, 2)}))
    name = "t" if "t =" in text else "x"
    with pytest.raises(
        PlanError, match=f"equalization of '{name}': its producer or readers cannot take all scales"
    ):
        apply_equalization(model, {name: EqualizationScales(1, DIVISORS)})


@pytest.mark.parametrize(
    ("told", "instead"),
    [
        ("l = Transpose<perm = [0, 2, 1, 3]>(j)", "l = Transpose<perm = [0, 2, 3, 1]>(j)"),  # depth first
        ("j = MatMul(p, i)", "j = MatMul(i, p)"),  # sums over the channels of a head
        ("j = MatMul(p, i)", "z = MatMul(p, i) j = Add(z, i)"),
        ("e = MatMul(x, w) f = Add(e, b)", "e = MatMul(x, w) f = Sigmoid(e)"),
    ],
)
def test_heads_that_mix_channels_are_not_divided(told: str, instead: str) -> None:
    text = ATTENTION.format([0, 2, 1, 3]).replace(told, instead)
    model = model_of(Case(text, {k: v for k, v in WEIGHTS.items() if f"{k})" in text}, (2, 2, 4)))
    assert find_path(index(model), "t", 2, 4) is None


def test_a_graph_output_is_not_divided() -> None:
    model = model_of(CASES["Conv"])
    assert find_path(index(model), "y", 1, 3) is None


def test_the_message_names_what_does_not_fit() -> None:
    model = model_of(CASES["Conv"])
    with pytest.raises(PlanError, match="equalization of 'q': the model has no such activation"):
        apply_equalization(model, {"q": EqualizationScales(1, DIVISORS)})
    with pytest.raises(PlanError, match=r"2 divisors along axis 1 do not fit its shape \[1, 4, 5, 5\]"):
        apply_equalization(model, {"t": EqualizationScales(1, (1.0, 2.0))})
    with pytest.raises(PlanError, match="no reader has a constant weight"):
        apply_equalization(model, {"y": EqualizationScales(1, (1.0, 2.0, 4.0))})
    with pytest.raises(PlanError, match="overflows"):
        apply_equalization(model, {"t": EqualizationScales(1, (2.0**-130, 1.0, 1.0, 1.0))})


def test_biases_that_do_not_fit_are_refused() -> None:
    model = model_of(CASES["Conv"])
    node = model.graph[0].name or ""
    with pytest.raises(PlanError, match="1 numbers for 4 output channels"):
        apply_biases(model, {node: (1.0,)})
    lone = model_of(Case("y = MatMul(x, v)", {"v": (4, 5)}, (2, 4), 1))
    with pytest.raises(PlanError, match="the node has no constant bias"):
        apply_biases(lone, {lone.graph[0].name or "": (1.0,) * 5})


@pytest.mark.parametrize("name", ["Conv", "ConvTranspose", "MatMul and Add", "Gemm"])
def test_a_bias_is_added_to_each_output_channel(name: str) -> None:
    case = CASES[name]
    model = model_of(case)
    delta = np.array([1.0, -2.0, 0.5, 8.0], "f")
    changed = apply_biases(model, {model.graph[0].name or "": tuple(delta.tolist())})
    copies = []
    for each in (model, changed):
        copy = each.clone()
        copy.graph.outputs[:] = [next(v for n in copy.graph for v in n.outputs if v.name == "t")]
        copies.append(copy)
    feed = np.random.default_rng(6).normal(size=case.shape).astype("f")
    difference = np.moveaxis(run(copies[1], feed) - run(copies[0], feed), case.axis, -1)
    np.testing.assert_allclose(difference, np.broadcast_to(delta, difference.shape), rtol=0, atol=4e-6)


def test_a_convolution_without_bias_gets_one() -> None:
    model = model_of(CASES["Relu"])
    bare = model_of(Case(f"a = Conv(x, w) t = Relu(a) {READS}", {"w": (4, 4, 1, 1), "v": (3, 4, 2, 2)}))
    assert len(bare.graph[0].inputs) == 2
    changed = apply_biases(bare, {bare.graph[0].name or "": (1.0, 2.0, 3.0, 4.0)})
    assert [v is not None for v in changed.graph[0].inputs] == [v is not None for v in model.graph[0].inputs]


def test_a_path_lists_its_constants_and_the_activations_between() -> None:
    model = model_of(CASES["PRelu and pools"])
    path = find_path(index(model), "t", 1, 4)
    assert path is not None
    assert [(each.node.op_type, each.index, each.shape) for each in path.constants] == [
        ("Conv", 1, (4, 1, 1, 1))
    ]
    # Only the maximum of a pool keeps the range of what it reads.
    assert path.tensors == (("d", False), ("c", True), ("a", False))


def test_a_grouped_transposed_convolution_cannot_take_scales() -> None:
    case = Case("t = ConvTranspose<group=2>(x, w) y = Conv(t, v)", {"w": (4, 2, 2, 2), "v": (3, 4, 2, 2)})
    assert find_path(index(model_of(case)), "t", 1, 4) is None


@pytest.mark.parametrize(
    ("text", "axis", "absorbs"),
    [
        ("y = Conv(x, v)", 1, True),
        ("y = Conv(x, v)", 2, False),
        ("a = Relu(x) y = Conv(a, v)", 1, False),
    ],
)
def test_only_a_weight_along_the_channels_absorbs_scales(text: str, axis: int, absorbs: bool) -> None:
    graph = index(model_of(Case(text, {"v": (3, 4, 2, 2)})))
    (use,) = graph.consumers("x")
    assert absorbs_scales(graph, use, axis) == absorbs


def test_a_reader_whose_first_input_is_left_out_absorbs_no_scales() -> None:
    graph = index(model_of(Case("y = Clip(x)", {})))
    (reader, _) = graph.consumers("x")[0]
    reader.ir_node.replace_input_with(0, None)
    reader = node_view(reader.ir_node)
    assert not absorbs_scales(graph, (reader, 1), 1)
