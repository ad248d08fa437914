"""Bodies of If, Loop and Scan are quantized as the graph around them, in every form."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort
import pytest
from qprof_onnx.quantizer.api.from_profile import write_quantized
from qprof_onnx.quantizer.api.profiling import profile_model
from qprof_onnx.quantizer.api.results import QuantizeResult
from qprof_onnx.quantizer.plan.plan import Kind
from qprof_onnx.quantizer.targets.forms import FORMS
from qprof_onnx.quantizer.targets.loading import load_recipe

Feed = Mapping[str, Any]

BRANCHES = """net (float[N, 3, 8, 8] x, bool c) => (float[N, 32, 8, 8] y)
<float[32, 3, 3, 3] w, float[32, 32, 3, 3] v, float[32] b> {
    h = Conv<pads = [1, 1, 1, 1]>(x, w, b)
    r = Relu(h)
    y = If (c) <
        then_branch = yes () => (o) { a = Conv<pads = [1, 1, 1, 1]>(r, v)  o = Relu(a) },
        else_branch = no () => (o) {
            a = Conv<pads = [1, 1, 1, 1]>(r, v, b)  e = Relu(a)  d = Add(e, r)
            o = Conv<pads = [1, 1, 1, 1]>(d, v) }>
}"""

LOOP = """net (float[N, 3, 8, 8] x, int64 n) => (float[N, 32, 8, 8] y, float[M, N, 32, 8, 8] all)
<float[32, 3, 3, 3] w, float[32, 32, 3, 3] v, float[32] b, bool go = {1}> {
    h = Conv<pads = [1, 1, 1, 1]>(x, w, b)
    r = Relu(h)
    y, all = Loop (n, go, r) <
        body = step (int64 i, bool k, float[N, 32, 8, 8] s)
            => (bool l, float[N, 32, 8, 8] o, float[N, 32, 8, 8] e) {
            l = Identity(k)
            p = Conv<pads = [1, 1, 1, 1]>(r, v)
            a = Conv<pads = [1, 1, 1, 1]>(s, v, b)  e = Relu(a)  d = Add(e, p)
            o = Conv<pads = [1, 1, 1, 1]>(d, v) }>
}"""

SCAN = """net (float[T, 16] x) => (float[64] y, float[T, 64] all)
<float[16, 64] w, float[64, 64] v, float[64] b, int64[1] size = {64}> {
    zero = ConstantOfShape<value = float[1] {0.0}>(size)
    y, all = Scan (zero, x) <num_scan_inputs = 1,
        body = step (float[64] s, float[16] e) => (float[64] o, float[64] f) {
            p = MatMul(e, w)  q = MatMul(s, v)  u = Add(p, q)  z = Add(u, b)  o = Tanh(z)  f = Relu(o) }>
}"""

TEXTS = {"if": BRANCHES, "loop": LOOP, "scan": SCAN}


def model_of(text: str) -> onnx.ModelProto:
    """Return a model; tensors that are declared and not made become weights."""
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]>\n{text}')
    rng = np.random.default_rng(3)
    given = {tensor.name for tensor in model.graph.initializer}
    for value in model.graph.value_info:
        if value.name not in given:
            shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
            array = (rng.standard_normal(shape) / np.sqrt(max(1, np.prod(shape[1:])))).astype(np.float32)
            model.graph.initializer.append(onnx.numpy_helper.from_array(array, value.name))
    del model.graph.value_info[:]
    onnx.checker.check_model(model)
    return model


def feeds_of(kind: str) -> list[Feed]:
    rng = np.random.default_rng(4)

    def normal(*shape: int) -> Any:
        return rng.standard_normal(shape).astype(np.float32)

    if kind == "if":
        return [{"x": normal(2, 3, 8, 8), "c": np.array(c)} for c in (True, False, True)]
    if kind == "loop":
        return [{"x": normal(2, 3, 8, 8), "n": np.array(n)} for n in (1, 3, 0)]
    return [{"x": normal(n, 16)} for n in (5, 3)]


def profiled(folder: Path, kind: str, feeds: list[Feed] | None = None) -> None:
    (folder / "data").mkdir()
    onnx.save(model_of(TEXTS.get(kind, kind)), folder / "model.onnx")
    for number, feed in enumerate(feeds or feeds_of(kind)):
        np.savez(folder / "data" / f"{number}.npz", **feed)
    profile_model(folder / "model.onnx", folder / "data", folder / "profile.yaml")


def quantized(folder: Path, form: str = "qdq", **settings: Any) -> QuantizeResult:
    recipe = load_recipe("onnxruntime-x86")
    recipe = replace(recipe, config=replace(recipe.config, form=form, **settings))
    return write_quantized(
        folder / "model.onnx", folder / "profile.yaml", folder / f"{form}.onnx", recipe=recipe
    )


def run(path: Path, feed: Feed) -> list[Any]:
    return list(ort.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, feed))


def sqnr(wanted: Any, got: Any) -> float:
    noise = float(np.sum((wanted - got) ** 2))
    return float("inf") if noise == 0.0 else 10 * math.log10(float(np.sum(wanted**2)) / noise)


def bodies_of(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield attribute.g
                yield from bodies_of(attribute.g)


def fused(path: Path) -> list[Counter[str]]:
    """Return what onnxruntime runs in the main graph, then in each body."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.optimized_model_filepath = str(path.with_suffix(".optimized"))
    ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    graph = onnx.load(path.with_suffix(".optimized")).graph
    return [Counter(node.op_type for node in g.node) for g in (graph, *bodies_of(graph))]


@pytest.mark.slow
@pytest.mark.parametrize("kind", TEXTS)
def test_every_form_runs_and_stays_near_the_float_model(tmp_path: Path, kind: str) -> None:
    profiled(tmp_path, kind)
    for form in FORMS:
        result = quantized(tmp_path, form, min_output_sqnr=0.0)  # else a scan keeps a product in float
        assert result.kinds["quantized"] >= 2
        for feed in feeds_of(kind):
            for wanted, got in zip(
                run(tmp_path / "model.onnx", feed), run(tmp_path / f"{form}.onnx", feed), strict=True
            ):
                assert wanted.shape == got.shape
                # 30 dB: several rounds of 8-bit convolutions, each of which costs about 40 on normal data
                assert wanted.size == 0 or sqnr(wanted, got) > 30


def test_the_forms_agree_inside_a_loop(tmp_path: Path) -> None:
    profiled(tmp_path, "loop")
    feed = {**feeds_of("loop")[0], "n": np.array(3)}
    for form in ("qdq", *FORMS):
        quantized(tmp_path, form)
        wanted, got = (run(tmp_path / f"{name}.onnx", feed)[0] for name in ("qdq", form))
        # 60 dB: single codes may differ where one form rounds a product on the other side of a tie
        assert np.array_equal(wanted, got) or sqnr(wanted, got) > 60


def test_onnxruntime_has_integer_kernels_in_the_branches(tmp_path: Path) -> None:
    profiled(tmp_path, "if")
    quantized(tmp_path)
    main, *branches = fused(tmp_path / "qdq.onnx")
    assert main["QLinearConv"] == 1
    assert sorted(branch["QLinearConv"] for branch in branches) == [1, 2]
    assert all(branch["Conv"] == 0 for branch in branches)


def test_branches_read_the_codes_of_a_tensor_from_outside(tmp_path: Path) -> None:
    profiled(tmp_path, "if")
    quantized(tmp_path)
    graph = onnx.load(tmp_path / "qdq.onnx").graph
    codes = {name for node in graph.node if node.op_type == "QuantizeLinear" for name in node.output}
    for body in bodies_of(graph):
        assert codes & {name for node in body.node for name in node.input}


def test_what_a_loop_reads_from_outside_is_quantized_once_outside(tmp_path: Path) -> None:
    profiled(tmp_path, "loop")
    quantized(tmp_path)
    graph = onnx.load(tmp_path / "qdq.onnx").graph
    (body,) = bodies_of(graph)
    assert "r_quantized" in {name for node in graph.node for name in node.output}
    assert "r_quantized" not in {name for node in body.node for name in node.output}


def test_a_weight_that_bodies_share_is_stored_once(tmp_path: Path) -> None:
    profiled(tmp_path, "if")
    quantized(tmp_path)
    graph = onnx.load(tmp_path / "qdq.onnx").graph
    stored = [t for g in (graph, *bodies_of(graph)) for t in g.initializer if list(t.dims) == [32, 32, 3, 3]]
    assert [(t.name, t.data_type) for t in stored] == [("v_quantized", onnx.TensorProto.INT8)]


def test_nodes_of_a_branch_that_was_never_taken_stay_float_with_the_reason(tmp_path: Path) -> None:
    feeds = [feed for feed in feeds_of("if") if feed["c"]]
    profiled(tmp_path, "if", feeds)
    plan = quantized(tmp_path).plan
    reason = "it is in a branch of 'If_y' (If) that no sample took"
    never = [n for n in plan.nodes.values() if n.reason == reason]
    assert len(never) == 4
    assert all(node.kind is Kind.FLOAT for node in never)
    for feed in feeds_of("if"):  # and the branch computes what it did
        wanted, got = (run(tmp_path / f"{name}.onnx", feed)[0] for name in ("model", "qdq"))
        assert sqnr(wanted, got) > 30  # dB; one or two 8-bit convolutions


def test_nodes_of_bodies_can_be_kept_float_by_name(tmp_path: Path) -> None:
    profiled(tmp_path, "if")
    plan = quantized(tmp_path, keep_float=("Conv_o",)).plan
    assert plan.nodes["Conv_o"].reason == "kept float by request ('Conv_o')"


def test_a_clip_that_a_body_reads_past_does_not_narrow_the_codes_for_it(tmp_path: Path) -> None:
    """`h` has a Relu as the only reader in its own graph, and a branch that needs its negative values."""
    text = BRANCHES.replace("a = Conv<pads = [1, 1, 1, 1]>(r, v)  o = Relu(a)", "m = Neg(h)  o = Relu(m)")
    text = text.replace("float[N, 3, 8, 8]", "float[N, 32, 8, 8]").replace("[32, 3, 3, 3]", "[32, 32, 3, 3]")
    x = np.random.default_rng(5).standard_normal((2, 32, 8, 8)).astype(np.float32)
    feeds = [{"x": x, "c": np.array(c)} for c in (True, False)]
    profiled(tmp_path, text, feeds)
    assert quantized(tmp_path).plan.nodes["Conv_h"].kind is Kind.QUANTIZED
    wanted, got = (run(tmp_path / f"{name}.onnx", feeds[0])[0] for name in ("model", "qdq"))
    assert 30 < sqnr(wanted, got) < 60  # dB; one 8-bit convolution


EQUALIZED = """net (float[N, 64] x, bool c) => (float[N, 32] y)
<float[64, 32] k, float[64, 32] l, float[64, 32] m> {
    s = Softplus(x)
    b = If (c) <then_branch = yes () => (t) { t = MatMul(s, k) },
        else_branch = no () => (e) { e = MatMul(s, l) }>
    q = MatMul(s, m)
    y = Add(b, q)
}"""


def test_an_activation_that_branches_and_the_main_graph_read_is_equalized_in_the_main_graph(
    tmp_path: Path,
) -> None:
    spread = np.logspace(-2, 2, 64).astype(np.float32)
    model, rng = model_of(EQUALIZED), np.random.default_rng(6)
    for tensor in model.graph.initializer:
        array = rng.standard_normal((64, 32)).astype(np.float32) / spread[:, None]
        tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
    (tmp_path / "data").mkdir()
    onnx.save(model, tmp_path / "model.onnx")
    for number in range(6):
        feed = {
            "x": spread * rng.standard_normal((16, 64)).astype(np.float32),
            "c": np.array(number % 2 == 0),
        }
        np.savez(tmp_path / "data" / f"{number}.npz", **feed)
    profile_model(tmp_path / "model.onnx", tmp_path / "data", tmp_path / "profile.yaml")
    plan = quantized(tmp_path, min_output_sqnr=30.0).plan
    assert plan.adjustments.equalization["s"].inserted
    assert "s_scaled" in {node.name for node in onnx.load(tmp_path / "qdq.onnx").graph.node}
    wanted, got = (run(tmp_path / f"{name}.onnx", feed)[0] for name in ("model", "qdq"))
    assert sqnr(wanted, got) > 30  # dB; two 8-bit products


def test_nodes_of_a_loop_without_a_pass_stay_float_with_the_reason(tmp_path: Path) -> None:
    profiled(tmp_path, "loop", [feed for feed in feeds_of("loop") if not feed["n"]])
    nodes = quantized(tmp_path).plan.nodes
    never = {name for name, n in nodes.items() if n.reason.startswith("it is in a pass of 'Loop_")}
    assert never == {"Conv_p", "Conv_a", "Relu_e", "Add_d", "Conv_o"}
