"""Models as people have them: each goes through all of qprof in every form, or is refused in a sentence."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper
from qprof_onnx.profiles.base.errors import ModelError
from qprof_onnx.quantizer.api.from_profile import write_quantized
from qprof_onnx.quantizer.api.profiling import profile_model
from qprof_onnx.quantizer.api.results import QuantizeResult
from qprof_onnx.quantizer.targets.forms import FORMS
from qprof_onnx.quantizer.targets.loading import load_recipe

Feed = Mapping[str, Any]
NEWEST = 24
"""The last opset that the oldest onnxruntime which qprof is tested with runs."""


def parse(body: str, opset: int = 17, ir_version: int = 8, imports: str = "", functions: str = "") -> Any:
    """Return a model; float tensors that are declared and not made become weights."""
    text = f'<ir_version: {ir_version}, opset_import: ["": {opset}{imports}]>\n{body}\n{functions}'
    model = onnx.parser.parse_model(text)
    rng = np.random.default_rng(2)
    given = {tensor.name for tensor in model.graph.initializer}
    made = {name for node in model.graph.node for name in node.output}
    for value in model.graph.value_info:
        if value.name not in given | made:
            shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
            array = rng.standard_normal(shape) / math.sqrt(max(1, math.prod(shape[1:])))
            model.graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), value.name))
    del model.graph.value_info[:]
    return model


CHAIN = """net (float[N, 16, 8, 8] x) => (float[N, 10] y)
<float[32, 16, 3, 3] w, float[32] b, float[32, 32, 3, 3] v, float[10, 32] u, float[10] c> {
    h = Conv <pads = [1, 1, 1, 1]> (x, w, b)
    r = Relu(h)
    p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (r)
    k = Conv <pads = [1, 1, 1, 1]> (p, v)
    m = GlobalAveragePool(k)
    f = Flatten(m)
    y = Gemm <transB = 1> (f, u, c)
}"""


def weights_as_inputs() -> Any:
    model = parse(CHAIN, opset=8, ir_version=3)
    for tensor in model.graph.initializer:
        model.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    return model


def shared_weights() -> Any:
    """Weights of two nodes and a bias of three, beside a tensor with the name of a copy."""
    return parse("""net (float[N, 16, 8, 8] x) => (float[N, 16, 8, 8] y)
    <float[16, 16, 3, 3] w, float[16, 16, 3, 3] v, float[16] bias, float[16] bias2> {
        a = Conv <pads = [1, 1, 1, 1]> (x, w, bias)
        s = Relu(a)
        d = Conv <pads = [1, 1, 1, 1]> (s, w, bias)
        e = Conv <pads = [1, 1, 1, 1]> (d, v, bias2)
        g = Conv <pads = [1, 1, 1, 1]> (e, v, bias)
        y = Add(g, s)
    }""")


def bias_without_weight() -> Any:
    return parse("""net (float[N, 16, 8, 8] x, float[16, 16, 3, 3] w) => (float[N, 16, 8, 8] y)
    <float[16] b> {
        h = Conv <pads = [1, 1, 1, 1]> (x, w, b)
        y = Relu(h)
    }""")


def weights_of_nodes() -> Any:
    """Weights from Constant nodes, from a Transpose and from an Identity."""
    model = parse("""net (float[N, 64] x) => (float[N, 64] y)
    <float[64, 64] w, float[64, 64] v, float[64, 64] u> {
        t = Transpose <perm = [1, 0]> (w)
        a = MatMul(x, t)
        i = Identity(v)
        b = MatMul(a, i)
        y = MatMul(b, u)
    }""")
    (tensor,) = (t for t in model.graph.initializer if t.name == "u")
    model.graph.initializer.remove(tensor)
    model.graph.node.insert(0, helper.make_node("Constant", [], ["u"], value=tensor))
    return model


def optional_inputs_and_outputs() -> Any:
    return parse("""net (float[N, 16, 8, 8] x) => (float[N, 16, 8, 8] y, int64[N, 16, 4, 4] i)
    <float[16, 16, 3, 3] w, float[4] scales = {1, 1, 2, 2}, float top = {2}> {
        h = Conv <pads = [1, 1, 1, 1]> (x, w)
        c = Clip(h, , top)
        d, mask = Dropout(c)
        p, i = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (d)
        y = Resize <mode = "nearest"> (p, , scales)
    }""")


def nameless_and_odd_names() -> Any:
    """Node names that are missing or odd; tensor names that are odd, or that tools like to make."""
    model = parse(CHAIN)
    names = {
        "h": "a b/ü:'q' #1",
        "r": "x_quantized",
        "p": "x_scale",
        "k": "p: {y}",
        "m": "qprof:inside:m:1",
        "b": "w_zero_point",
    }
    for index, node in enumerate(model.graph.node):
        node.name = ("", "a/b: ü", "", "h_Conv", "QuantizeLinear", "#", "x")[index]
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
    for tensor in model.graph.initializer:
        tensor.name = names.get(tensor.name, tensor.name)
    return model


def function_of_its_own() -> Any:
    return parse(
        """net (float[N, 16, 8, 8] x) => (float[N, 16, 8, 8] y)
        <float[16, 16, 3, 3] w, float[16, 16, 3, 3] v> {
        h = own.block(x, w)
        y = own.block(h, v)
    }""",
        imports=', "own": 1',
        functions="""<domain: "own", opset_import: ["": 17]> block (a, b) => (c) {
            h = Conv <pads = [1, 1, 1, 1]> (a, b)
            c = Relu(h)
        }""",
    )


def constants_and_inputs_as_outputs() -> Any:
    return parse("""net (float[N, 64] x) => (float[N, 64] y, float[64, 64] w, float[N, 64] h)
    <float[64, 64] w> {
        h = MatMul(x, w)
        y = Relu(h)
    }""")


def whole_numbers_alone() -> Any:
    return parse("net (int64[N] x) => (int64[N] y) { h = Neg(x)  y = Add(h, x) }")


def doubles() -> Any:
    return parse("net (double[N, 4] x) => (double[N, 4] y) { h = Neg(x)  y = Relu(h) }")


def other_domain_alone() -> Any:
    node = helper.make_node("Scaler", ["x"], ["y"], domain="ai.onnx.ml", offset=[0.5] * 4, scale=[2.0] * 4)
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 4]) for name in "xy")
    graph = helper.make_graph([node], "net", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("ai.onnx.ml", 2)], ir_version=8)


def no_batch_and_scalars() -> Any:
    return parse("""net (float x, float[64] v) => (float y, float[64] z) <float[64, 64] w> {
        h = MatMul(v, w)
        z = Mul(h, x)
        y = ReduceMean <keepdims = 0> (z)
    }""")


MODELS: tuple[Callable[[], Any], ...] = (
    weights_as_inputs,
    shared_weights,
    bias_without_weight,
    weights_of_nodes,
    optional_inputs_and_outputs,
    nameless_and_odd_names,
    function_of_its_own,
    constants_and_inputs_as_outputs,
    whole_numbers_alone,
    doubles,
    other_domain_alone,
    no_batch_and_scalars,
)


def feeds_of(model: Any, batches: tuple[int, ...] = (2, 1)) -> list[Feed]:
    rng = np.random.default_rng(6)
    given = {tensor.name for tensor in model.graph.initializer}
    feeds = []
    for batch in batches:
        feed = {}
        for value in model.graph.input:
            kind = value.type.tensor_type
            shape = [dim.dim_value or batch for dim in kind.shape.dim]
            array = np.asarray(rng.standard_normal(shape) * 3)
            if value.name not in given:
                feed[value.name] = array.astype(helper.tensor_dtype_to_np_dtype(kind.elem_type))
        feeds.append(feed)
    return feeds


def prepared_files(folder: Path, model: Any, feeds: list[Feed]) -> None:
    onnx.checker.check_model(model)
    onnx.save(model, folder / "m.onnx")
    (folder / "data").mkdir()
    for number, feed in enumerate(feeds):
        np.savez(folder / "data" / f"{number}.npz", **feed)
    profile_model(folder / "m.onnx", folder / "data", folder / "p.yaml")


def quantized(folder: Path, form: str = "qdq") -> QuantizeResult:
    recipe = load_recipe("onnxruntime-x86")
    recipe = replace(recipe, config=replace(recipe.config, form=form))
    return write_quantized(folder / "m.onnx", folder / "p.yaml", folder / f"{form}.onnx", recipe=recipe)


def run(path: Path, feed: Feed) -> list[Any]:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    return list(ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"]).run(None, feed))


def check(folder: Path, form: str, feeds: list[Feed]) -> None:
    """Hold the quantized outputs against the float ones: 25 dB, as 8 bits keep through a few nodes.

    Each output over all feeds, as SQNR is: where it is one number, that of a single feed may be near 0.
    """
    floats, others = ([run(folder / f"{name}.onnx", feed) for feed in feeds] for name in ("m", form))
    for wanted, got in zip(zip(*floats, strict=True), zip(*others, strict=True), strict=True):
        for w, g in zip(wanted, got, strict=True):
            assert (w.dtype, w.shape) == (g.dtype, g.shape)
        noise = sum(float(np.sum((w.astype(float) - g) ** 2)) for w, g in zip(wanted, got, strict=True))
        assert noise * 10**2.5 <= sum(float(np.sum(w.astype(float) ** 2)) for w in wanted)


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS, ids=lambda make: make.__name__)
def test_an_odd_model_is_quantized_in_every_form_and_stays_near(tmp_path: Path, model: Any) -> None:
    proto = model()
    feeds = feeds_of(proto)
    prepared_files(tmp_path, proto, feeds)
    for form in FORMS:
        quantized(tmp_path, form)
        check(tmp_path, form, feeds)


@pytest.mark.slow
@pytest.mark.parametrize("opset", range(7, NEWEST + 1))
def test_every_opset_is_quantized(tmp_path: Path, opset: int) -> None:
    proto = parse(CHAIN, opset=opset, ir_version=8 if opset < 21 else 10)
    feeds = feeds_of(proto)
    prepared_files(tmp_path, proto, feeds)
    assert quantized(tmp_path).kinds["quantized"] == 4
    check(tmp_path, "qdq", feeds)


def test_a_batch_of_nothing_goes_through(tmp_path: Path) -> None:
    proto = parse(
        "net (float[N, 64] x) => (float[N, 64] y) <float[64, 64] w> { h = MatMul(x, w)  y = Relu(h) }"
    )
    feeds = feeds_of(proto, (2,))
    prepared_files(tmp_path, proto, feeds)
    for form in FORMS:
        quantized(tmp_path, form)
        (y,) = run(tmp_path / f"{form}.onnx", {"x": np.zeros((0, 64), np.float32)})
        assert y.shape == (0, 64)


def test_a_tensor_that_never_has_elements_stays_float_with_the_reason(tmp_path: Path) -> None:
    proto = parse("""net (float[N, 64] x) => (float[M, 64] y)
    <float[64, 64] w, int64[1] from = {0}, int64[1] to = {0}> {
        s = Slice(x, from, to)
        y = MatMul(s, w)
    }""")
    prepared_files(tmp_path, proto, feeds_of(proto))
    reasons = {node.reason for node in quantized(tmp_path).plan.nodes.values()}
    assert reasons == {"tensor 's' was not observed during calibration"}


def test_external_data_is_quantized_from(tmp_path: Path) -> None:
    proto = parse(CHAIN)
    feeds = feeds_of(proto)
    onnx.checker.check_model(proto)
    prepared_files(tmp_path, proto, feeds)
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True, location="m.bin", size_threshold=0)
    quantized(tmp_path)
    check(tmp_path, "qdq", feeds)


def test_a_model_without_inputs_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    onnx.save(parse("net () => (float[2] y) <float[2] w> { y = Neg(w) }"), tmp_path / "m.onnx")
    with pytest.raises(ModelError, match=r"m\.onnx: has no inputs, so it cannot be calibrated"):
        profile_model(tmp_path / "m.onnx", tmp_path / "data")


def test_a_classifier_that_ends_in_a_list_of_maps_is_quantized(tmp_path: Path) -> None:
    """scikit-learn's exporters end models in ZipMap, whose type onnx_ir does not have."""
    proto = parse("net (float[4, 8] x) => (float[4, 3] y) <float[8, 3] w> { y = MatMul(x, w) }")
    feeds = feeds_of(proto)
    labels = helper.make_attribute("classlabels_int64s", [0, 1, 2])
    proto.graph.node.add(op_type="ZipMap", domain="ai.onnx.ml", input=["y"], output=["z"]).attribute.append(
        labels
    )
    proto.opset_import.add(domain="ai.onnx.ml", version=1)
    kind = proto.graph.output.add(name="z").type.sequence_type.elem_type.map_type
    kind.key_type = TensorProto.INT64
    kind.value_type.tensor_type.elem_type = TensorProto.FLOAT
    prepared_files(tmp_path, proto, feeds)
    assert "MatMul_y" in quantized(tmp_path).plan.nodes
