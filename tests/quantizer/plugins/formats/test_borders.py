"""Integers at the border of a model: the same bits as a float border with conversions around it."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import onnx
import onnx_ir
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper
from qprof_onnx import evaluate, quantize
from qprof_onnx import profile as profile_samples
from qprof_onnx.profiles.base.errors import ConfigError, PlanError
from qprof_onnx.quantizer.plan.provenance import borders_in
from qprof_onnx.quantizer.plan.store import dumps, loads

DIGITS = Path(__file__).parents[4] / "examples" / "digits"
MODEL, DATA = DIGITS / "model.onnx", DIGITS / "heldout"


def metadata(model: onnx.ModelProto) -> dict[str, str]:
    return {entry.key: entry.value for entry in model.metadata_props}


def with_conversions(model: onnx.ModelProto, borders: dict) -> onnx.ModelProto:
    """Return a model with a float border as one that takes and gives integers, by conversions around it."""
    outer = onnx.ModelProto()
    outer.CopyFrom(model)
    graph, before, after = outer.graph, [], []
    for name, border in borders.items():
        kind = {"uint8": TensorProto.UINT8, "int8": TensorProto.INT8}[border.qtype.name]
        graph.initializer.append(helper.make_tensor(f"{name}.s", TensorProto.FLOAT, (), border.scale))
        graph.initializer.append(helper.make_tensor(f"{name}.z", kind, (), border.zero_point))
        for values, is_input in ((graph.input, True), (graph.output, False)):
            for value in values:
                if value.name != name:
                    continue
                value.type.tensor_type.elem_type = kind
                value.name = f"{name}.integers"
                ends = (value.name, name) if is_input else (name, value.name)
                op = "DequantizeLinear" if is_input else "QuantizeLinear"
                node = helper.make_node(op, [ends[0], f"{name}.s", f"{name}.z"], [ends[1]])
                (before if is_input else after).append(node)
    nodes = [*before, *graph.node, *after]
    del graph.node[:]
    graph.node.extend(nodes)
    onnx.checker.check_model(outer)
    return outer


def run(model: onnx.ModelProto, given: dict[str, np.ndarray]) -> list[np.ndarray]:
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    return session.run(None, dict(zip(names, given.values(), strict=True)))


@pytest.mark.parametrize(
    "form",
    ["qdq", *(pytest.param(form, marks=pytest.mark.slow) for form in ("qoperator", "integer", "regions"))],
)
@pytest.mark.parametrize("io", ["uint8", "int8"])
def test_integers_at_the_border_are_the_bits_of_conversions_around_a_float_one(
    profile: Path, tmp_path: Path, io: str, form: str
) -> None:
    settings = {"form": form, "cost_model": "off"}
    quantize(MODEL, profile, output=tmp_path / "f.onnx", **settings)
    quantize(MODEL, profile, output=tmp_path / "i.onnx", io=io, **settings)
    floats, integers = onnx.load(tmp_path / "f.onnx"), onnx.load(tmp_path / "i.onnx")
    borders = borders_in(metadata(integers))
    assert set(borders) == {"image", "logits"}
    assert {border.qtype.name for border in borders.values()} == {io}
    kinds = {value.type.tensor_type.elem_type for value in (*integers.graph.input, *integers.graph.output)}
    assert kinds == {TensorProto.UINT8 if io == "uint8" else TensorProto.INT8}
    ends = np.iinfo(io)
    for file in sorted(DATA.glob("*.npz"))[:3]:
        image = np.load(file)["image"]
        border = borders["image"]
        codes = np.rint(image / border.scale) + border.zero_point
        given = {"image": np.clip(codes, ends.min, ends.max).astype(io)}
        (expected,), (found,) = run(with_conversions(floats, borders), given), run(integers, given)
        assert found.dtype == io
        assert np.array_equal(found, expected)


def test_no_conversion_is_left_where_the_integers_inside_are_those_outside(
    profile: Path, tmp_path: Path
) -> None:
    quantize(MODEL, profile, output=tmp_path / "i.onnx", io="uint8")
    graph = onnx.load(tmp_path / "i.onnx").graph
    readers = [node.op_type for node in graph.node if "image" in node.input]
    assert readers == ["DequantizeLinear"]


def test_such_a_model_is_judged_on_the_samples_of_the_float_one(profile: Path, tmp_path: Path) -> None:
    quantize(MODEL, profile, output=tmp_path / "i.onnx", io="int8")
    found = evaluate(MODEL, tmp_path / "i.onnx", DATA, labels=DATA / "labels.txt", latency=False)
    assert found.score is not None
    assert found.provenance is not None
    assert found.provenance.borders["image"].qtype.name == "int8"
    assert (found.worst_sqnr or 0.0) > 34.0
    assert abs(found.score.drop) <= 0.5


def test_quantize_with_samples_judges_it_too(tmp_path: Path) -> None:
    data = DIGITS / "calibration"
    found = quantize(MODEL, data=data, output=tmp_path / "i.onnx", io="uint8", latency=False)
    assert found.judged is not None


def test_a_plan_keeps_its_borders_and_its_digest_says_so(profile: Path) -> None:
    plan = quantize(MODEL, profile, io="uint8").plan
    assert loads(dumps(plan)).borders == plan.borders
    without = quantize(MODEL, profile).plan
    assert "borders:" not in dumps(without)
    assert without.borders == {}


def test_a_plan_with_a_border_that_the_model_has_not_is_refused(profile: Path, tmp_path: Path) -> None:
    text = dumps(quantize(MODEL, profile, io="uint8").plan)
    head, mark, tail = text.partition("borders:\n")
    (tmp_path / "plan.yaml").write_text(head + mark + tail.replace("  logits:", "  nothing:"))
    with pytest.raises(PlanError, match="border 'nothing'"):
        quantize(MODEL, plan=tmp_path / "plan.yaml")


def test_a_form_without_conversions_says_so(profile: Path) -> None:
    with pytest.raises(
        ConfigError, match="onnxruntime-x86 has no integer inputs and outputs in form primitives"
    ):
        quantize(MODEL, profile, io="uint8", form="primitives")


def test_weights_alone_need_a_profile_of_the_border(profile: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no profile has 'image'"):
        quantize(MODEL, mode="weight-only", io="uint8")
    quantize(MODEL, profile, mode="weight-only", io="uint8", output=tmp_path / "i.onnx")
    found = evaluate(MODEL, tmp_path / "i.onnx", DATA, latency=False)
    assert (found.worst_sqnr or 0.0) > 30.0


def test_an_output_that_is_the_input_of_a_node_too_keeps_both(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[4, 8] x) => (float[4, 8] y, float[4, 8] z) {
      y = Relu (x) z = Neg (y) }"""
    model = onnx.parser.parse_model(text)
    values = np.random.default_rng(0).normal(size=(16, 4, 8)).astype(np.float32)
    made = quantize(
        model, profile_samples(model, [{"x": v} for v in values]), io="int8", output=tmp_path / "i.onnx"
    )
    assert set(made.plan.borders) == {"x", "y", "z"}
    found = evaluate(model, tmp_path / "i.onnx", [{"x": v} for v in values], latency=False)
    assert (found.worst_sqnr or 0.0) > 30.0


BODIES = {
    "matmul and add, rank 2": ("a = MatMul(x, w) y = Add(a, b)", (6, 32), (6, 20)),
    "matmul and add, rank 3": ("a = MatMul(x, w) y = Add(a, b)", (2, 6, 32), (2, 6, 20)),
    "gemm": ("y = Gemm(x, w, b)", (6, 32), (6, 20)),
    "conv": ("y = Conv(x, k)", (1, 3, 8, 8), (1, 4, 6, 6)),
    "relu": ("y = Relu(x)", (2, 6, 32), (2, 6, 32)),
    "reshape": ("r = Reshape(x, s) y = MatMul(r, w)", (2, 6, 32), (12, 20)),
    "transpose": ("r = Transpose<perm = [0, 2, 1]>(x) y = MatMul(r, w)", (2, 32, 6), (2, 6, 20)),
    "several": (
        "a = MatMul(x, w) c = Add(a, b) d = Relu(x) e = MatMul(d, w) f = Mul(c, e) t = Tanh(f) "
        "y = Transpose<perm = [1, 0, 2]>(t)",
        (2, 6, 32),
        (6, 2, 20),
    ),
}


@pytest.mark.parametrize("opset", [17, *(pytest.param(n, marks=pytest.mark.slow) for n in (21, 23))])
@pytest.mark.parametrize(("body", "given", "result"), BODIES.values(), ids=BODIES)
def test_integers_at_the_border_of_what_stays_float_are_right_in_every_opset(
    body: str, given: tuple[int, ...], result: tuple[int, ...], opset: int
) -> None:
    rng = np.random.default_rng(3)
    shapes = [",".join(map(str, shape)) for shape in (given, result)]
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : {opset}]> g (float[{shapes[0]}] x) => (float[{shapes[1]}] y) '
        f"{{ {body} }}"
    )
    sizes = {"w": (32, 20), "b": (20,), "k": (4, 3, 3, 3)}
    constants = {name: rng.normal(0.0, 0.2, size) for name, size in sizes.items()}
    for name, values in constants.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(values.astype(np.float32), name))
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([12, 32]), "s"))
    feeds = [{"x": rng.normal(0.3, 1.0, given).astype(np.float32)} for _ in range(8)]
    profiled = profile_samples(model, feeds)
    for io, mode in product(("int8", "uint8"), ("static", "dynamic")):
        written = onnx_ir.to_proto(quantize(model, profiled, io=io, mode=mode).model)
        borders = borders_in(metadata(written))
        x = borders["x"]
        for feed in feeds[:2]:
            codes = np.rint(feed["x"] / x.scale) + x.zero_point
            codes = np.clip(codes, np.iinfo(io).min, np.iinfo(io).max)
            floats = (x.scale * (codes - x.zero_point)).astype(np.float32)
            (expected,), (found,) = run(model, {"x": floats}), run(written, {"x": codes.astype(io)})
            if "y" in borders:
                y, ends = borders["y"], np.array([np.iinfo(io).min, np.iinfo(io).max], np.float32)
                expected = expected.clip(*(y.scale * (ends - y.zero_point)))
                found = y.scale * (found.astype(np.float32) - y.zero_point)
            noise = float(((found - expected) ** 2).sum() / (expected**2).sum())
            assert noise < 1e-3  # 30 dB: the steps of the output, and of weights stored in 8 bits
