"""Raising the opset to 14: every breaking change since opset 7, and the same numbers before and after."""

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import onnxruntime as ort
import pytest
from qprof_onnx import quantize
from qprof_onnx.profiles.base.errors import ModelError
from qprof_onnx.quantizer.prepare.opset import CHANGES, TARGET
from qprof_onnx.quantizer.prepare.prepare import prepare


def parse(opset, text):
    return onnx.parser.parse_model(f'<ir_version: 7, opset_import: ["" : {opset}]>\n{text}')


def run(proto, feeds):
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def raised(opset, text, *feeds):
    """Prepare the model, check every output against the original bit for bit, and return the nodes."""
    proto = parse(opset, text) if isinstance(text, str) else text
    result = prepare(ir.from_proto(proto))
    after = ir.to_proto(result.model)
    onnx.checker.check_model(after, full_check=True)
    assert after.opset_import[0].version == TARGET
    assert f"opset raised from {opset} to {TARGET}, which per-channel quantization needs" in map(
        str, result.findings
    )
    named = {value.name: feed for value, feed in zip(proto.graph.input, feeds, strict=True)}
    for mine, theirs in zip(run(after, named), run(proto, named), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    return list(result.model.graph)


def f32(*shape):
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(
    ("opset", "node", "shape"),
    [
        (9, "Slice<starts=[1,0], ends=[2,-1], axes=[0,2]>", (2, 3, 4)),
        (9, "Slice<starts=[0,1], ends=[1,3]>", (2, 3, 4)),
        (10, "Clip<min=-0.5, max=0.25>", (2, 3)),
        (10, "Clip<min=0.0>", (2, 3)),
        (7, "Clip", (2, 3)),
        (10, "Pad<pads=[0,1,0,2], value=1.5>", (2, 3)),
        (8, 'Pad<pads=[0,1,0,2], mode="reflect">', (2, 3)),
        (11, "Dropout<ratio=0.3>", (2, 3)),
        (7, "Dropout", (2, 3)),
        (11, "ReduceSum<axes=[1], keepdims=0>", (2, 3)),
        (12, "ReduceSum", (2, 3)),
        (12, "Squeeze<axes=[-3]>", (1, 2, 1)),
        (9, "Squeeze", (1, 2, 1)),
        (11, "Unsqueeze<axes=[0,-1]>", (2, 3)),
        (12, "Softmax", (2, 3)),
        (12, "Softmax<axis=2>", (2, 3, 4)),
        (12, "Softmax<axis=-1>", (2, 3, 4)),
        (12, "Softmax<axis=1>", (2, 3, 4)),
        (11, "Softmax<axis=0>", (2, 3, 4)),
        (11, "Softmax<axis=1>", (2, 3, 1, 1)),
        (12, "LogSoftmax", (2, 3, 4)),
        (12, "Hardmax<axis=-2>", (2, 3, 4)),
        (9, 'Upsample<mode="nearest">', (1, 1, 3, 4)),
        (9, 'Upsample<mode="linear">', (1, 1, 3, 4)),
        (10, 'Resize<mode="nearest">', (1, 1, 3, 4)),
        (10, 'Resize<mode="linear">', (1, 1, 3, 4)),
    ],
)
def test_numbers_stay_and_so_does_the_name(opset, node, shape):
    resizes = node.startswith(("Upsample", "Resize"))
    inputs, constants = ("x, s", "<float[4] s = {1.0, 1.0, 2.0, 1.5}>") if resizes else ("x", "")
    dims = ",".join(map(str, shape))
    proto = parse(
        opset, f"g (float[{dims}] x) => (float[] y) {constants} {{ [name] t = {node}({inputs})  y = Neg(t) }}"
    )
    (y,) = run(proto, {"x": f32(*shape)})
    for size in y.shape:
        proto.graph.output[0].type.tensor_type.shape.dim.add().dim_value = size
    nodes = raised(opset, proto, f32(*shape))
    assert node.startswith("Dropout") or "name" in [n.name for n in nodes]


def test_resize_of_opset_10_that_shrinks_rounds_up():
    text = (
        "g (float[1,1,7,9] x) => (float[A,B,C,D] y) <float[4] s = {1.0, 1.0, 0.6, 0.3}> { y = Resize(x, s) }"
    )
    raised(10, text, f32(1, 1, 7, 9))


def test_a_resize_of_opset_10_that_grows_and_shrinks_is_refused():
    text = "g (float[1,1,7] x) => (float[A,B,C] y) <float[3] s = {1.0, 2.0, 0.3}> { [r] y = Resize(x, s) }"
    with pytest.raises(ModelError, match=r"node 'r' \(Resize\): cannot be raised to opset 14"):
        prepare(ir.from_proto(parse(10, text)))


def test_split_takes_its_sizes_as_input():
    raised(
        11,
        "g (float[2,5] x) => (float[2,2] y, float[2,3] z) { y, z = Split<axis=1, split=[2,3]>(x) }",
        f32(2, 5),
    )


def test_top_k_takes_k_as_input():
    raised(9, "g (float[2,5] x) => (float[2,2] y, int64[2,2] z) { y, z = TopK<k=2>(x) }", f32(2, 5))


def test_scatter_is_called_scatter_elements():
    text = "g (float[3,3] x, int64[1,3] i, float[1,3] u) => (float[3,3] y) { [s] y = Scatter(x, i, u) }"
    (node,) = raised(10, text, f32(3, 3), np.array([[0, 2, 1]]), f32(1, 3))
    assert (node.name, node.op_type) == ("s", "ScatterElements")


def test_batch_normalization_loses_its_spatial_flag():
    text = (
        "g (float[2,3] x, float[3] a) => (float[2,3] y) { y = BatchNormalization<spatial=1>(x, a, a, a, a) }"
    )
    (node,) = raised(8, text, f32(2, 3), np.abs(f32(3)))
    assert "spatial" not in node.attributes


def test_the_softmax_of_an_unknown_rank_is_taken_of_a_matrix():
    text = (
        "g (float[2,3,4] x, int64[R] s) => (float[A,B,C] y) { t = Reshape(x, s)  [m] y = Softmax<axis=1>(t) }"
    )
    nodes = raised(12, text, f32(2, 3, 4), np.array([2, 3, 4]))
    assert [(node.op_type, node.name) for node in nodes[1:]] == [
        ("Shape", "m_shape"),
        ("Flatten", "m_matrix"),
        ("Softmax", "m"),
        ("Reshape", "m_back"),
    ]


def test_nodes_of_branches_are_raised_too():
    text = (
        "g (float[1,2] x, bool c) => (float[A] y) { [i] y = If(c)<"
        "then_branch = t () => (float[A] p) { p = Squeeze<axes=[0]>(x) },"
        "else_branch = e () => (float[A] q) { q = ReduceSum<axes=[0], keepdims=0>(x) }> }"
    )
    for condition in (True, False):
        raised(11, text, f32(1, 2), np.array(condition))


@pytest.mark.parametrize(
    ("opset", "text", "sentence"),
    [
        (
            7,
            "g (float[2,3,4] x, float[3,4] a) => (float[2,3,4] y)"
            "{ [n] y = BatchNormalization<spatial=0>(x, a, a, a, a) }",
            r"node 'n' \(BatchNormalization\): cannot be raised to opset 14: spatial=0 is gone",
        ),
        (
            9,
            "g (float[2] x) => (float[2] y, float[2] m) { [n] y, m = Dropout(x) }",
            r"node 'n' \(Dropout\): cannot be raised to opset 14: its mask is used",
        ),
        (
            12,
            "g (float[2,3] x, float[3] a) => (float[2,3] y, float[3] z)"
            "{ [n] y, z, v = BatchNormalization(x, a, a, a, a) }",
            r"node 'n' \(BatchNormalization\): .* to opset 14: it trains, and its other outputs are read",
        ),
        (
            6,
            "g (float[2] x) => (float[2] y) { y = Relu(x) }",
            r"the model has opset 6, and 7 is the oldest that is read; export it with opset 14 or later",
        ),
        (
            8,
            "g (int64[1] l, float[1,2] a, float[1,3,2] x) => (float[1,2] y)"
            "{ [n] y = Scan<num_scan_inputs = 1,"
            "body = step (float[2] s, float[2] e) => (float[2] t) { t = Add(s, e) }>(l, a, x) }",
            r"node 'n' \(Scan\): cannot be raised to opset 14: before opset 9 it had an axis of the batch",
        ),
        (
            9,
            "g (float[2] x) => (float[2] y) { [n] y = NoSuchThing(x) }",
            r"node 'n' \(NoSuchThing\): cannot be raised to opset 14: there is no such operator",
        ),
        (
            10,
            "g (float[2] x) => (float[2] y) { [n] y = Relu<alpha=1.0>(x) }",
            r"node 'n' \(Relu\): .* its attribute 'alpha' is gone; export the model with opset 14",
        ),
    ],
)
def test_what_cannot_be_raised_is_named(opset, text, sentence):
    with pytest.raises(ModelError, match=sentence):
        prepare(ir.from_proto(parse(opset, text)))


def test_opset_13_and_later_stay():
    proto = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 19]>\ng (float[2] x) => (float[2] y) { y = Relu(x) }'
    )
    result = prepare(ir.from_proto(proto))
    assert result.findings == ()
    assert result.model.opset_imports == {"": 19}


def test_every_change_of_a_schema_between_opset_7_and_the_target_has_a_rule():
    history = [
        s for s in onnx.defs.get_all_schemas_with_history() if not s.domain and s.since_version <= TARGET
    ]
    changed = set()
    for old in history:
        later = sorted((s for s in history if s.name == old.name), key=lambda s: s.since_version)
        later = [s for s in later if s.since_version > old.since_version]
        if not later or later[0].since_version <= 7:
            continue  # the newest, or out of force at opset 7
        new = later[-1].attributes
        same = all(
            name in new and new[name].default_value == a.default_value for name, a in old.attributes.items()
        )
        if not same or later[-1].deprecated:
            changed.add(old.name)
    assert {"Clip", "Softmax", "Upsample"} < changed  # the question is asked rightly
    assert changed <= set(CHANGES)


def normalised(opset: int, nodes: str) -> onnx.ModelProto:
    """Return a convolution and what normalises it. No two of its constants are equal: onnxruntime shares
    such, and then overwrites one when it trains."""
    proto = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : {opset}]> g (float[4,3,5,5] x) => (float[4,4,3,3] y) '
        f"{{ c = Conv(x, w) {nodes} }}"
    )
    rng = np.random.default_rng(5)
    for name, shape in {"w": (4, 3, 3, 3), "a": (4,), "b": (4,), "d": (4,), "e": (4,)}.items():
        array = rng.uniform(0.5, 2.0, shape) if name in "ae" else rng.normal(size=shape)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array.astype(np.float32), name))
    return proto


@pytest.mark.parametrize("opset", [7, 8, 9, 12, 13])
@pytest.mark.parametrize("settings", [{"mode": "weight-only", "weight_type": "int8"}, {"mode": "dynamic"}])
def test_a_normalisation_that_trains_goes_on_to_in_later_opsets(
    opset: int, settings: dict[str, str], tmp_path: Path
) -> None:
    """It normalises by the batch, and onnxruntime is the reference."""
    nodes = "y, mean, variance, m, v = BatchNormalization(c, a, b, d, e)"
    proto = normalised(opset, nodes)
    (expected,) = run(proto, {"x": (x := f32(4, 3, 5, 5))})
    prepared = prepare(ir.from_proto(proto)).model
    assert np.allclose(run(ir.to_proto(prepared), {"x": x})[0], expected, atol=1e-5)
    onnx.save(proto, tmp_path / "m.onnx")
    quantize(tmp_path / "m.onnx", output=tmp_path / "q.onnx", **settings)
    (quantized,) = run(onnx.load(tmp_path / "q.onnx"), {"x": x})
    assert np.abs(quantized - expected).max() < 0.1 * np.abs(expected).max()


@pytest.mark.parametrize("opset", [7, 12, 13])
def test_outputs_without_names_do_not_make_a_normalisation_train(opset: int) -> None:
    nodes = "y = BatchNormalization(c, a, b, d, e)"
    proto = normalised(opset, nodes)
    (expected,) = run(proto, {"x": (x := f32(4, 3, 5, 5))})
    proto.graph.node[1].output.extend(["", ""])
    model = prepare(ir.from_proto(proto)).model
    assert [node.op_type for node in model.graph] == ["Conv"]
    assert np.allclose(run(ir.to_proto(model), {"x": x})[0], expected, atol=1e-4)
