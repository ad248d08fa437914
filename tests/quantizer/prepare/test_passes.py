"""Every step of prepare on tiny models: what must change, what must stay, and the outputs the same."""

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import onnxruntime as ort
import pytest
from qprof_onnx.profiles.base.findings import Code
from qprof_onnx.quantizer.prepare.prepare import prepare, quantized_operators

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'


def parse(text, head=HEAD):
    return onnx.parser.parse_model(head + text)


def with_constants(proto, **arrays):
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(a, name) for name, a in arrays.items())
    return proto


def run(proto, feeds):
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {i.name: feeds[i.name] for i in session.get_inputs()})


def random_feeds(proto):
    rng = np.random.default_rng(0)
    constants = {t.name for t in proto.graph.initializer}
    feeds = {}
    for value in proto.graph.input:
        kind = value.type.tensor_type
        shape = [dim.dim_value or 2 for dim in kind.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        data = rng.standard_normal(shape) if dtype.kind == "f" else rng.integers(0, 2, shape)
        if value.name not in constants:
            feeds[value.name] = data.astype(dtype)
    return feeds


def prepared(proto, rtol=0.0, atol=0.0):
    """Prepare, check outputs against the original, and return (model, operators in order)."""
    result = prepare(ir.from_proto(proto))
    after = ir.to_proto(result.model)
    onnx.checker.check_model(after, full_check=True)
    feeds = random_feeds(proto)
    for mine, theirs in zip(run(after, feeds), run(proto, feeds), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=rtol, atol=atol)
    return result, [node.op_type for node in result.model.graph]


def f32(*shape, seed=1):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def batch_norm_constants(channels):
    return {"g": f32(channels, seed=2), "b": f32(channels, seed=3), "m": f32(channels, seed=4)} | {
        "v": np.abs(f32(channels, seed=5)) + 0.1
    }


# one way to write a graph


def test_a_constant_that_is_an_output_stays():
    _, operators = prepared(
        parse(
            "g (float[2] x) => (float[2] y, float[2] k) "
            "{ k = Constant<value_floats = [1.0, 2.0]>() y = Add(x, k) }"
        )
    )
    assert operators == ["Constant", "Add"]


BRANCH = (
    "[i] y = If(c)<"
    "then_branch = a () => (float[2] p) { k = Constant<value_float = 2.0>() m = Mul(x, k)  p = Neg(m) },"
    " else_branch = e () => (float[2] q) { q = Abs(u) }> }"
)


def test_the_branch_of_a_constant_condition_takes_the_place_of_the_if():
    proto = parse(
        "g (float[2] x) => (float[2] y, float[2] t) <bool c = {1}> { t = Relu(x)  u = Exp(x)  " + BRANCH
    )
    _, operators = prepared(proto)
    assert operators == ["Relu", "Mul", "Neg"]  # u was for the other branch only


def test_an_if_of_computed_condition_keeps_its_inside():
    _, operators = prepared(parse("g (float[2] x, bool c) => (float[2] y) { u = Exp(x)  " + BRANCH))
    assert operators == ["Exp", "If"]


# folding


@pytest.mark.parametrize(
    "taken",
    [
        "Concat<axis=1>(c, c)",
        "Concat<axis=-1>(c, c, c)",
        "Gather<axis=1>(c, both)",
        "Gather<axis=-1>(c, last)",
        "Reshape(c, sizes)",
        "Slice(c, from, to)",
        "Slice(c, both, far, both)",
        "Slice(c, last, far_back, last, last)",
        "Slice(c, both, far, both, steps)",
        "Transpose(c)",
        "Transpose<perm=[1,2,0]>(c)",
        "Unsqueeze(c, both)",
    ],
)
def test_values_are_moved_as_onnxruntime_moves_them(taken):
    proto = parse(f"g (int64[1] x) => (int64[K] y) {{ t = {taken}  r = Reshape(t, all)  y = Add(r, x) }}")
    numbers = {
        "from": [0, 1],
        "to": [1, -1],
        "both": [-1, 0],
        "last": [-1],
        "far": [1 << 62, 2],
        "far_back": [-(1 << 62)],
        "steps": [2, 1],
        "sizes": [0, -1, 2],
        "all": [-1],
    }
    arrays = {name: np.array(value, np.int64) for name, value in numbers.items() if name in f"{taken} all"}
    with_constants(proto, c=np.arange(24).reshape(2, 3, 4), **arrays)
    assert prepared(proto)[1] == ["Add"]


@pytest.mark.parametrize("to", [1, 3, 6, 7, 9, 11])
def test_whole_numbers_are_cast_as_onnxruntime_casts_them(to):
    proto = parse(
        f"g (float[4] x) => (float[4] y) {{ t = Cast<to={to}>(c)  f = Cast<to=1>(t)  y = Add(f, x) }}"
    )
    with_constants(proto, c=np.array([0, -3, 300, (1 << 24) + 1], np.int64))
    assert prepared(proto)[1] == ["Add"]


def test_float_folding_is_rounded_once():
    proto = parse(
        "g (float[1] x) => (float[1] y) "
        "<float[2] a = {1.0, 3.0}, float b = {0.1}> { d = Div(b, a)  e = ReduceSum(d)  y = Add(x, e) }"
    )
    proto.graph.node[1].attribute.append(onnx.helper.make_attribute("keepdims", 0))
    result = prepare(ir.from_proto(proto))
    tenth = np.float64(np.float32(0.1))
    terms = np.array([tenth, tenth / 3], np.float32).astype(np.float64)
    assert result.model.graph.initializers["e"].const_value.numpy() == np.float32(terms.sum())


def test_the_shape_of_a_static_value_folds_and_of_a_free_one_does_not():
    text = (
        "g (float[%s,3] x) => (float[K] y)"
        "{ s = Shape(x)  f = Cast<to=1>(s)  r = ReduceMax<keepdims=0>(x)  y = Add(f, r) }"
    )
    assert "Shape" not in prepared(parse(text % "2"))[1]
    assert "Shape" in prepared(parse(text % "N"))[1]


SIZES = """g (float[N,3,4] x) => (float[K] y)
<int64[1] i = {%s}, int64[1] from = {1}, int64[1] to = {3}>
{ s = Shape(x)  t = %s  f = Cast<to=1>(t)  r = ReduceMax<keepdims=0>(x)  y = Add(f, r) }"""


@pytest.mark.parametrize("taken", ["Gather(s, i)", "Slice(s, from, to)"])
def test_known_sizes_fold_beside_a_free_one(taken):
    _, types = prepared(parse(SIZES % (2, taken)))
    assert types == ["ReduceMax", "Add"]


def test_a_free_size_that_is_taken_out_of_a_shape_does_not_fold():
    assert "Shape" in prepared(parse(SIZES % (0, "Gather(s, i)")))[1]
    assert "Shape" in prepared(parse(SIZES % (-3, "Gather(s, i)")))[1]


def test_a_resized_position_embedding_is_computed_once():
    """Its target is computed from the sizes of a picture, beside a free batch."""
    proto = parse("""g (float[N,2,6,8] x) => (float[N,2,6,8] y)
        <float[1,2,5,5] embedding, int64[2] which = {2, 3}, int64[2] first = {1, 2}>
        { s = Shape(x)  size = Gather(s, which)  target = Concat<axis=0>(first, size)
          e = Resize<mode="cubic">(embedding, , , target)  y = Add(x, e) }""")
    embedding = np.random.default_rng(3).standard_normal((1, 2, 5, 5)).astype(np.float32)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(embedding, "embedding"))
    _, types = prepared(proto, atol=1e-5)  # float32 sums of 16 products in onnxruntime
    assert types == ["Add"]


@pytest.mark.parametrize(("training", "is_told"), [("bool t = {1}", True), ("bool t = {0}", False)])
def test_a_dropout_in_training_mode_is_told_by_its_name(training, is_told):
    proto = parse(
        f"g (float[2] x) => (float[2] y) <float r = {{0.5}}, {training}> {{ [drop] y = Dropout(x, r, t) }}"
    )
    findings = [str(finding) for finding in prepare(ir.from_proto(proto)).findings]
    assert any("'drop' in training mode" in text for text in findings) == is_told


def test_a_node_that_draws_numbers_is_told_by_its_name_in_a_branch_too():
    proto = parse(
        "g (float[2] x, bool b) => (float[2] y) { y = If (b) <"
        "then_branch = g1 () => (float[2] u) { [dice] u = RandomNormalLike(x) }, "
        "else_branch = g2 () => (float[2] v) { v = Abs(x) }> }"
    )
    (finding,) = prepare(ir.from_proto(proto)).findings
    assert (finding.code, finding.subject) == (Code.UNCOMPARED_OUTPUT, "dice")


def test_a_constant_too_large_to_store_stays_a_node():
    proto = parse(
        "g (float[1] x) => (float[N,M] y) "
        "<int64[2] s = {8192, 4096}> { z = ConstantOfShape(s)  y = Add(x, z) }"
    )
    result = prepare(ir.from_proto(proto))
    assert [node.op_type for node in result.model.graph] == ["ConstantOfShape", "Add"]


def test_integer_division_rounds_towards_zero():
    result, _ = prepared(
        parse(
            "g (int64[2] x) => (int64[2] y) "
            "<int64[2] a = {-7, 7}, int64 b = {2}> { d = Div(a, b)  y = Add(x, d) }"
        )
    )
    assert result.model.graph.initializers["d"].const_value.numpy().tolist() == [-3, 3]


def test_quantized_operators_are_named_in_order():
    proto = parse(
        "g (float[4] x) => (float[4] y) <float s = {0.1}, int8 z = {0}>"
        "{ q = QuantizeLinear(x, s, z)  y = DequantizeLinear(q, s, z) }"
    )
    assert quantized_operators(ir.from_proto(proto)) == ("DequantizeLinear", "QuantizeLinear")


def test_a_float_model_holds_no_quantized_operators():
    assert quantized_operators(ir.from_proto(parse("g (float[2] x) => (float[2] y) { y = Relu(x) }"))) == ()


# nodes that do nothing


@pytest.mark.parametrize(
    "idle",
    [
        "t = Identity(x)",
        "t = Dropout(x)",
        "t = Cast<to=1>(x)",
        "t = Transpose<perm=[0,1]>(x)",
        "s = Constant<value_ints=[2,-1]>() t = Reshape(x, s)",
        "t = Concat<axis=0>(x)",
        "t = Sum(x)",
        "p = Constant<value_ints=[0,0,0,0]>() t = Pad(x, p)",
    ],
)
def test_idle_nodes_are_taken_out(idle):
    _, operators = prepared(parse(f"g (float[2,3] x) => (float[2,3] y) {{ {idle} y = Relu(t) }}"))
    assert operators == ["Relu"]


@pytest.mark.parametrize(
    "busy",
    [
        "t = Cast<to=11>(x) u = Cast<to=1>(t)",
        "t = Transpose(x) u = Relu(t)",
        "s = Constant<value_ints=[3,2]>() u = Reshape(x, s)",
        "p = Constant<value_ints=[0,0,0,1]>() u = Pad(x, p)",
    ],
)
def test_busy_nodes_stay(busy):
    proto = parse(f"g (float[2,3] x) => (float[A,B] y) {{ {busy} y = Relu(u) }}")
    assert len(prepared(proto)[1]) > 1


def test_a_dropout_whose_mask_is_used_stays():
    _, operators = prepared(
        parse("g (float[2] x) => (float[2] y, bool[2] m) { t, m = Dropout(x)  y = Relu(t) }")
    )
    assert operators == ["Dropout", "Relu"]


def test_an_identity_that_renames_an_output_goes_and_the_name_stays():
    result, operators = prepared(parse("g (float[2] x) => (float[2] y) { t = Relu(x)  y = Identity(t) }"))
    assert operators == ["Relu"]
    assert result.model.graph[0].outputs[0].name == "y"


@pytest.mark.parametrize(
    "body",
    ["(float[2] y) { y = Identity(x) }", "(float[2] y, float[2] z) { y = Relu(x)  z = Identity(y) }"],
)
def test_an_identity_that_an_output_needs_stays(body):
    assert "Identity" in prepared(parse("g (float[2] x) => " + body))[1]


def test_names_that_a_branch_reads_stay():
    proto = parse(
        "g (float[2] x, bool c) => (float[2] y) { t = Identity(x)\n"
        "y = If(c)<then_branch = a () => (float[2] p) { p = Neg(t) },"
        "else_branch = e () => (float[2] q) { q = Abs(t) }> }"
    )
    assert prepared(proto)[1] == ["Identity", "If"]


@pytest.mark.parametrize(("inputs", "expected"), [("x", []), ("x, x", ["Add"]), ("x, x, x", ["Sum"])])
def test_a_sum_of_two_is_an_add(inputs, expected):
    _, operators = prepared(parse(f"g (float[2] x) => (float[2] y) {{ t = Sum({inputs})  y = Relu(t) }}"))
    assert operators == [*expected, "Relu"]


# linear operators


CONV = "g (float[1,%d,5,5] x) => (float[A,B,C,D] y) { t = %s  y = BatchNormalization(t, g, b, m, v) }"


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("operator", "channels", "weight"),
    [
        ("Conv<pads=[1,1,1,1]>", 3, (6, 3, 3, 3)),
        ("Conv<group=3>", 3, (6, 1, 3, 3)),
        ("ConvTranspose", 4, (4, 6, 2, 2)),
        ("ConvTranspose<group=2>", 4, (4, 3, 2, 2)),
    ],
)
def test_batch_normalization_folds_into_convolutions(operator, channels, weight, bias):
    proto = parse(CONV % (channels, operator + ("(x, w, k)" if bias else "(x, w)")))
    with_constants(proto, w=f32(*weight), **batch_norm_constants(6))
    if bias:
        with_constants(proto, k=f32(6, seed=7))
    result, operators = prepared(proto, rtol=1e-5, atol=1e-5)  # sums of up to 27 float32 products
    assert operators == [operator.split("<")[0]]
    assert result.model.graph[0].outputs[0].name == "y"


@pytest.mark.parametrize(
    ("body", "constants"),
    [
        ("t = Gemm(x, w)", {"w": f32(3, 4)}),
        ("t = Gemm<alpha=0.5, beta=2.0, transB=1>(x, w, k)", {"w": f32(4, 3), "k": f32(4)}),
        ("s = MatMul(x, w) t = Add(s, k)", {"w": f32(3, 4), "k": f32(4)}),
        ("s = MatMul(x, w) t = Add(k, s)", {"w": f32(3, 4), "k": f32(1, 4)}),
    ],
)
def test_batch_normalization_folds_into_matrix_products(body, constants):
    proto = parse(f"g (float[2,3] x) => (float[2,4] y) {{ {body} y = BatchNormalization(t, g, b, m, v) }}")
    with_constants(proto, **constants, **batch_norm_constants(4))
    _, operators = prepared(proto, rtol=1e-5, atol=1e-5)  # weights are rounded once more
    assert operators == ["Gemm"]


def test_a_row_of_bias_is_not_folded_over():
    proto = parse(
        "g (float[2,3] x) => (float[2,4] y) { t = Gemm(x, w, k)  y = BatchNormalization(t, g, b, m, v) }"
    )
    with_constants(proto, w=f32(3, 4), k=f32(2, 1), **batch_norm_constants(4))
    assert prepared(proto, rtol=1e-5, atol=1e-5)[1] == ["Gemm", "Mul", "Add"]  # x f + s, not (x - m) f + b


@pytest.mark.parametrize("shape", [(), (1,), (4, 1, 1), (1, 4, 1, 1)])
@pytest.mark.parametrize(
    "operator", ["Mul(t, k)", "Mul(k, t)", "Add(t, k)", "Add(k, t)", "Sub(t, k)", "Div(t, k)"]
)
def test_constants_per_channel_fold_into_a_convolution(operator, shape):
    proto = parse(f"g (float[1,3,4,4] x) => (float[1,4,4,4] y) {{ t = Conv(x, w)  y = {operator} }}")
    with_constants(proto, w=f32(4, 3, 1, 1), k=f32(*shape) + 2)
    assert prepared(proto, rtol=1e-5, atol=1e-6)[1] == ["Conv"]  # weights are rounded once more


def test_batch_normalization_then_scale_and_shift_is_one_mul_and_one_add():
    proto = parse(
        "g (float[1,3,4,4] x) => (float[1,3,4,4] y) "
        "{ t = BatchNormalization(x, g, b, m, v)  u = Mul(t, k)  y = Add(u, l) }"
    )
    with_constants(proto, k=f32(3, 1, 1), l=f32(3, 1, 1, seed=9), **batch_norm_constants(3))
    assert prepared(proto, rtol=1e-5, atol=1e-5)[1] == ["Mul", "Add"]  # x f + s, not ((x - m) f + b) k + l


# shapes


def test_every_value_has_a_shape_after_preparation():
    proto = parse("g (float[N,3,8,8] x) => (float[N,P] y) { t = Conv(x, w)  u = Relu(t)  y = Flatten(u) }")
    result, _ = prepared(with_constants(proto, w=f32(4, 3, 3, 3)))
    assert str(result.model.graph[1].outputs[0].shape) == "[N,4,6,6]"


@pytest.mark.parametrize("operator", ["AveragePool", "MaxPool", "LpPool"])
@pytest.mark.parametrize(
    ("size", "attributes", "windows", "stays"),
    [
        (2, "kernel_shape = [1], strides = [2]", 1, False),
        (7, "kernel_shape = [2], strides = [3], pads = [0, 1]", 3, True),
        (5, "kernel_shape = [2], strides = [4], pads = [1, 1]", 2, False),
        (7, "kernel_shape = [2], strides = [2]", 4, True),
        (8, "kernel_shape = [2], strides = [2]", 4, True),
    ],
)
def test_ceil_mode_goes_where_it_adds_empty_windows_alone(operator, size, attributes, windows, stays):
    pool = f"{operator} <ceil_mode = 1, {attributes}> (x)"
    text = f"g (float[1,2,{size}] x) => (float[a,b,c] y) {{ p = {pool} y = Neg (p) }}"
    result, _ = prepared(parse(text, HEAD.replace("17", "18")))
    node = next(iter(result.model.graph))
    assert ("ceil_mode" in node.attributes) == stays
    assert list(node.outputs[0].shape) == [1, 2, windows]
