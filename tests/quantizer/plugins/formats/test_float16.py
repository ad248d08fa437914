"""float16 for what stays float: what is written, and what stays float32 and why, held against float.

What float16 loses is measured in a model that rounds to float16 after each node, since onnxruntime does not
(`emulated`), and for small models by onnx's reference evaluator, which computes in numpy's float16.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import TensorProto, numpy_helper, parser
from onnx.reference import ReferenceEvaluator
from qprof_onnx import quantize
from qprof_onnx.profiles.base.errors import ConfigError
from qprof_onnx.profiles.base.findings import Code
from qprof_onnx.quantizer.api.profiling import profile_model
from qprof_onnx.quantizer.evaluation.runtimes import open_session
from qprof_onnx.quantizer.model import saving
from qprof_onnx.quantizer.plan.plan import QuantPlan
from qprof_onnx.quantizer.plan.store import dumps, load_plan, loads
from qprof_onnx.quantizer.plugins.formats.float16_writer import emulated
from qprof_onnx.quantizer.prepare.prepare import open_prepared
from qprof_onnx.quantizer.targets.loading import load_recipe

HEADER = '<ir_version: 8, opset_import: ["" : 17]>\n'
Arrays = dict[str, np.ndarray]


class Written:
    """A model that was quantized with float16: its file, its plan, and how far it is from float."""

    def __init__(
        self, folder: Path, text: str, constants: Arrays, feeds: list[Arrays], **settings: Any
    ) -> None:
        model = parser.parse_model(HEADER + text)
        for name, array in constants.items():
            model.graph.initializer.append(numpy_helper.from_array(array, name))
        onnx.checker.check_model(model)
        source = folder / "model.onnx"
        onnx.save(model, source)
        data = folder / "data"
        data.mkdir()
        for number, feed in enumerate(feeds):
            np.savez(data / f"{number:02}.npz", **feed)
        profile = folder / "p.yaml"
        profile_model(source, data, profile)
        self.file, self.plan_file = folder / "q.onnx", folder / "plan.yaml"
        settings = {"target": "tensorrt", **settings}
        quantize(source, profile=profile, output=self.file, save_plan=self.plan_file, **settings)
        self.model = onnx.load(self.file)
        onnx.checker.check_model(self.model, full_check=True)
        self.source, self.feeds = source, feeds

    @property
    def plan(self) -> QuantPlan:
        return load_plan(self.plan_file)

    def reasons(self) -> dict[str, str]:
        """Why nodes are float32, by operator type."""
        types = {node.name: node.op_type for node in open_prepared(self.source).graph.nodes}
        entries = self.plan.nodes.items()
        return {types[name]: str(entry.float32) for name, entry in entries if entry.float32}

    def type_of(self, op_type: str) -> str:
        """The type of the result of the first node of a type."""
        inferred = onnx.shape_inference.infer_shapes(self.model, strict_mode=True).graph
        types = {v.name: v.type.tensor_type.elem_type for v in (*inferred.value_info, *inferred.output)}
        node = next(node for node in inferred.node if node.op_type == op_type)
        return TensorProto.DataType.Name(types[node.output[0]])

    def decibels(self) -> float:
        """SQNR of the first output with every node rounded to float16, -inf where it is not finite."""
        rounded = ir.to_proto(emulated(ir.from_proto(self.model))).SerializeToString()
        options = ort.SessionOptions()  # another runtime multiplies: integer kernels of this processor do not
        options.add_session_config_entry("session.disable_quant_qdq", "1")
        sessions = (
            ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])
            for content in (self.source.read_bytes(), rounded)
        )
        exact, other = (
            np.concatenate([one.run(None, feed)[0].ravel() for feed in self.feeds]).astype(np.float64)
            for one in sessions
        )
        if not np.isfinite(other).all():
            return -np.inf
        return float(10.0 * np.log10(np.square(exact).sum() / max(np.square(exact - other).sum(), 1e-300)))


def normal(shape: tuple[int, ...], scale: float = 1.0, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)


def feeds(shape: tuple[int, ...], scale: float = 1.0, count: int = 8, **others: Any) -> list[Arrays]:
    return [
        {"x": normal(shape, scale, seed), **{n: f(seed) for n, f in others.items()}} for seed in range(count)
    ]


TWO = {"w": normal((64, 64), 0.1), "v": normal((64, 64), 0.1)}
NORM = """
agraph (float[1, 8, 64] x) => (float[1, 8, 64] y) {
    two = Constant <value = float {2.0}> ()
    s = Pow (x, two)
    m = ReduceMean <axes = [-1]> (s)
    e = Add (m, eps)
    r = Sqrt (e)
    y = Div (x, r)
}"""


def test_all_is_float16_between_casts_at_the_inputs_and_outputs(tmp_path: Path) -> None:
    text = """
    agraph (float[1, 8, 64] x) => (float[1, 8, 64] y) {
        a = MatMul (x, w)
        b = Erf (a)
        c = MatMul (b, v)
        y = Softmax (c)
    }"""
    written = Written(tmp_path, text, TWO, feeds((1, 8, 64)))
    floats = [i.name for i in written.model.graph.initializer if i.data_type == TensorProto.FLOAT]
    readers = [node for node in written.model.graph.node if floats and floats[0] in node.input]
    assert [node.op_type for node in readers] == ["QuantizeLinear"]  # of the input, which is float32
    assert len(floats) == 1
    assert {
        v.type.tensor_type.elem_type for v in (*written.model.graph.input, *written.model.graph.output)
    } == {1}
    casts = [node for node in written.model.graph.node if node.op_type == "Cast"]
    assert len(casts) <= 2
    assert written.reasons() == {}
    assert written.decibels() > 30.0
    (reference,) = ReferenceEvaluator(written.model).run(None, written.feeds[0])
    (exact,) = ort.InferenceSession(written.source.read_bytes()).run(None, written.feeds[0])
    # 30 dB: int8, of which float16 takes nothing
    assert np.square(exact - reference).sum() < 1e-3 * np.square(exact).sum()


def test_the_reference_evaluator_computes_the_file_in_float16(tmp_path: Path) -> None:
    text = """
    agraph (float[1, 8, 64] x) => (float[1, 8, 64] y) {
        a = MatMul (x, w)
        b = Sigmoid (a)
        y = MatMul (b, v)
    }"""
    written = Written(
        tmp_path, text, {"w": normal((64, 64), 0.1), "v": normal((64, 64), 0.1)}, feeds((1, 8, 64))
    )
    feed = written.feeds[0]
    (reference,) = ReferenceEvaluator(written.model).run(None, feed)
    (exact,) = ort.InferenceSession(written.source.read_bytes()).run(None, feed)
    noise = np.square(exact - reference).sum() / np.square(exact).sum()
    assert noise < 1e-3  # 30 dB: int8, of which float16 takes nothing


def test_a_model_that_is_too_large_for_the_memory_of_a_session_is_rounded_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "agraph (float[1, 8, 64] x) => (float[1, 8, 64] y) { a = MatMul (x, w) y = MatMul (a, v) }"
    written = Written(tmp_path, text, TWO, feeds((1, 8, 64)))
    file, feed = str(tmp_path / "large.onnx"), written.feeds[0]
    onnx.save(written.model, file, save_as_external_data=True, location="large.data", size_threshold=0)
    whole = open_session(str(written.file), "q").run(None, feed)[0]
    monkeypatch.setattr(saving, "MAX_IN_MEMORY", 0)
    assert np.array_equal(open_session(file, "q").run(None, feed)[0], whole)
    options = ort.SessionOptions()
    unrounded = ort.InferenceSession(file, options, providers=["CPUExecutionProvider"]).run(None, feed)[0]
    assert not np.array_equal(unrounded, whole)


def test_a_model_that_gives_a_sequence_is_run_in_float16_too(tmp_path: Path) -> None:
    text = """
    agraph (float[4, 64] x) => (seq(float[4, 1]) s, float[4, 64] y) {
        a = MatMul (x, w)
        y = Relu (a)
        s = SplitToSequence <axis = 1> (y)
    }"""
    written = Written(tmp_path, text, {"w": normal((64, 64), 0.1)}, feeds((4, 64)))
    assert Code.STEP_LEFT_OUT not in {finding.code for finding in written.plan.findings}


def test_a_size_counts_what_a_run_on_samples_makes_float32(tmp_path: Path) -> None:
    text = """
    agraph (int64[8] ids) => (float[8, 64] y) {
        e = Gather (table, ids)
        d = Sub (e, level)
        y = MatMul (d, w)
    }"""
    table = 1000.0 + normal((300, 96), 0.05)  # float16 has steps of 0.5 there
    weights = {"table": table, "level": np.float32(1000.0), "w": normal((96, 64), 0.1)}
    samples = [{"ids": np.arange(first, first + 8)} for first in range(0, 160, 10)]
    with pytest.raises(ConfigError, match=r"max_size='80kB' \(fit_size\): .* the model has 12\d\.\d kB"):
        Written(tmp_path, text, weights, samples, mode="weight-only", fit_size="80kB")
    assert not (tmp_path / "q.onnx").exists()


def test_a_square_beyond_float16_and_what_reads_it_are_float32(tmp_path: Path) -> None:
    written = Written(tmp_path, NORM, {"eps": np.float32(1e-3)}, feeds((1, 8, 64), 300.0))
    reasons = written.reasons()
    assert "recorded range of 's' reaches" in reasons["Pow"]
    assert "ReduceMean" in reasons
    assert "Div" not in reasons  # the root is small again
    assert written.decibels() > 30.0
    assert loads(dumps(written.plan)) == written.plan
    assert "float32: {code: beyond-float16, tensor: s" in written.plan_file.read_text()


def test_an_epsilon_that_float16_has_not_keeps_the_root_in_float32(tmp_path: Path) -> None:
    data = feeds((1, 8, 64))
    data[3]["x"][:] = 0.0
    written = Written(tmp_path, NORM, {"eps": np.float32(1e-12)}, data)
    reasons = written.reasons()
    assert "constant 'eps' is 1e-12" in reasons["Add"]
    assert {"Sqrt", "Div"} <= reasons.keys()
    assert written.decibels() > 30.0


def kept(seed: int) -> np.ndarray:
    return (np.arange(8) < 4 + seed % 4)[None]


@pytest.mark.parametrize(
    ("given", "masked", "mask", "in_float32"),
    [
        (
            "float[1, 8] mask",
            "no = Sub (one, mask) low = Mul (no, lowest) masked = Add (scores, low)",
            lambda seed: kept(seed).astype(np.float32),
            set(),
        ),
        ("bool[1, 8] mask", "masked = Where (mask, scores, lowest)", kept, set()),
        (
            "float[1, 8] mask",
            "masked = Add (scores, mask)",
            lambda seed: np.where(kept(seed), 0.0, -3.4e38).astype(np.float32),
            {"Add", "Softmax"},
        ),
    ],
    ids=["computed", "chosen", "of an input"],
)
def test_fillers_are_clamped_where_they_vanish_and_float32_where_an_input_brings_them(
    given: str, masked: str, mask: Callable[[int], np.ndarray], in_float32: set[str], tmp_path: Path
) -> None:
    text = f"""
    agraph (float[1, 8, 64] x, {given}) => (float[1, 8, 64] y) {{
        q = MatMul (x, w)
        t = Transpose <perm = [0, 2, 1]> (x)
        scores = MatMul (q, t)
        {masked}
        p = Softmax (masked)
        y = MatMul (p, x)
    }}"""
    constants = {"w": normal((64, 64), 0.02), "one": np.float32(1), "lowest": np.float32(-3.4028235e38)}
    used = {name: array for name, array in constants.items() if f"{name}," in text or f", {name})" in text}
    written = Written(tmp_path, text, used, feeds((1, 8, 64), mask=mask))
    assert written.reasons().keys() == in_float32
    assert written.type_of("Softmax") == ("FLOAT" if in_float32 else "FLOAT16")
    assert written.decibels() > 25.0


def test_a_long_sum_is_float32(tmp_path: Path) -> None:
    text = """
    agraph (float[1, 4096] x) => (float[1, 1] y) {
        a = Sigmoid (x)
        axes = Constant <value = int64[1] {1}> ()
        y = ReduceSum (a, axes)
    }"""
    written = Written(tmp_path, text, {}, feeds((1, 4096)))
    assert "ReduceSum adds 4096 elements" in written.reasons()["ReduceSum"]


def test_large_angles_are_found_by_running_them(tmp_path: Path) -> None:
    text = """
    agraph (int64[1, 16] x) => (float[1, 16, 8] y) {
        f = Cast <to = 1> (x)
        last = Constant <value = int64[1] {2}> ()
        p = Unsqueeze (f, last)
        a = Mul (p, rates)
        y = Sin (a)
    }"""
    rates = (1e4 ** -np.linspace(0, 1, 8)).astype(np.float32)
    data = [{"x": np.arange(s * 331, s * 331 + 16)[None]} for s in range(12)]
    written = Written(tmp_path, text, {"rates": rates}, data)
    assert "in float16, and the inputs of its node" in written.reasons()["Sin"]
    assert written.decibels() > 30.0


def test_a_bias_beyond_float16_is_float32(tmp_path: Path) -> None:
    text = """
    agraph (float[4, 64] x) => (float[4, 8] y) {
        y = Gemm (x, w, b)
    }"""
    constants = {"w": normal((64, 8), 1e4), "b": normal((8,), 2e5)}
    written = Written(tmp_path, text, constants, feeds((4, 64)))
    assert "Gemm" in written.reasons()
    assert written.decibels() > 25.0


def test_small_scales_are_normal_numbers_or_float32(tmp_path: Path) -> None:
    text = """
    agraph (float[4, 64] x) => (float[4, 64] y) {
        a = MatMul (x, w)
        r = Relu (a)
        b = MatMul (r, v)
        y = Mul (b, large)
    }"""
    constants = {"w": normal((64, 64), 1e-3), "v": normal((64, 64), 1e-2), "large": np.float32(1e4)}
    written = Written(tmp_path, text, constants, feeds((4, 64), 0.05))
    for node in written.model.graph.node:
        if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            scale = next(i for i in written.model.graph.initializer if i.name == node.input[1])
            if scale.data_type == TensorProto.FLOAT16:
                assert numpy_helper.to_array(scale).min() >= 2.0**-14
    assert written.decibels() > 25.0


def test_what_cancels_is_found_by_running_it(tmp_path: Path) -> None:
    text = """
    agraph (float[4, 64] x) => (float[4, 64] y) {
        a = Add (x, far)
        b = Sigmoid (x)
        c = Mul (a, b)
        d = Mul (far, b)
        y = Sub (c, d)
    }"""
    written = Written(tmp_path, text, {"far": np.float32(3e3)}, feeds((4, 64)))
    assert "in float16, and the inputs of its node" in written.reasons()["Sub"]
    assert written.decibels() > 40.0


LOOP = """
agraph (float[1, 64] x) => (float[1, 64] y, float[4, 1, 64] all) {
    a = MatMul (x, w)
    n = Constant <value = int64 {4}> ()
    t = Constant <value = bool {1}> ()
    y, all = Loop <body = step (int64 i, bool c, float[1, 64] h) =>
            (bool co, float[1, 64] hn, float[1, 64] e) {
        co = Identity (c)
        g = MatMul (h, w)
        k = Add (g, a)
        hn = Tanh (k)
        e = Mul (hn, x)
    }> (n, t, x)
}"""
BRANCHES = """
agraph (float[4, 64] x) => (float[4, 64] y) {
    m = ReduceMean <axes = [0, 1], keepdims = 0> (x)
    z = Constant <value = float {0.0}> ()
    c = Greater (m, z)
    h = MatMul (x, w)
    y = If <
        then_branch = one () => (float[4, 64] o) { o = MatMul (h, w) },
        else_branch = other () => (float[4, 64] o) { o = Identity (h) }
    > (c)
}"""
SCAN = """
agraph (float[8, 64] x, float[64] h0) => (float[64] y, float[8, 64] all) {
    y, all = Scan <num_scan_inputs = 1, body = step (float[64] s, float[64] e) =>
            (float[64] sn, float[64] o) {
        a = MatMul (s, w)
        b = Add (a, e)
        sn = Tanh (b)
        o = Mul (sn, e)
    }> (h0, x)
}"""


@pytest.mark.parametrize(
    ("text", "data"),
    [
        (LOOP, feeds((1, 64))),
        (BRANCHES, feeds((4, 64))),
        (SCAN, feeds((8, 64), h0=lambda seed: normal((64,), 1.0, seed + 100))),
    ],
    ids=["loop", "if", "scan"],
)
def test_bodies_have_the_type_of_the_node_that_runs_them(
    text: str, data: list[Arrays], tmp_path: Path
) -> None:
    written = Written(tmp_path, text, {"w": normal((64, 64), 0.1)}, data)
    assert written.decibels() > 30.0
    node = next(node for node in written.model.graph.node if node.op_type in ("Loop", "If", "Scan"))
    body = next(attribute.g for attribute in node.attribute if attribute.HasField("g"))
    assert body.output[-1].type.tensor_type.elem_type == TensorProto.FLOAT16


def test_sizes_stay_float32_and_the_picture_is_float16(tmp_path: Path) -> None:
    text = """
    agraph (float[1, 3, 16, 16] x) => (float[1, 8, 32, 32] y) {
        c = Conv <pads = [1, 1, 1, 1]> (x, w)
        scales = Constant <value = float[4] {1.0, 1.0, 2.0, 2.0}> ()
        y = Resize <mode = "linear"> (c, , scales)
    }"""
    written = Written(tmp_path, text, {"w": normal((8, 3, 3, 3), 0.3)}, feeds((1, 3, 16, 16)))
    assert written.type_of("Resize") == "FLOAT16"
    assert written.decibels() > 30.0


def test_a_model_in_float16_is_float16_again_without_a_cast(tmp_path: Path) -> None:
    text = """
    agraph (float16[4, 64] x) => (float16[4, 64] y) {
        a = MatMul (x, w)
        r = Relu (a)
        y = MatMul (r, v)
    }"""
    constants = {"w": normal((64, 64), 0.1).astype(np.float16), "v": normal((64, 64), 0.1).astype(np.float16)}
    data = [{"x": feed["x"].astype(np.float16)} for feed in feeds((4, 64))]
    written = Written(tmp_path, text, constants, data)
    assert "Cast" not in {node.op_type for node in written.model.graph.node}
    assert TensorProto.FLOAT not in {i.data_type for i in written.model.graph.initializer}
    assert not any("computes in float32" in finding.sentence for finding in written.plan.findings)


@pytest.mark.parametrize(
    ("target", "op_type"), [("onnxruntime-x86", "MatMulNBits"), ("onnx", "DequantizeLinear")]
)
def test_weights_of_4_bits_have_scales_in_float16(target: str, op_type: str, tmp_path: Path) -> None:
    text = "agraph (float[4, 128] x) => (float[4, 128] y) { a = MatMul (x, w) y = Erf (a) }"
    model = parser.parse_model(HEADER + text)
    model.graph.initializer.append(numpy_helper.from_array(normal((128, 128), 0.1), "w"))
    settings = {"mode": "weight-only", "weight_type": "int4", "target": target, "float_type": "float16"}
    quantize(model, **settings).save(tmp_path / "q.onnx")
    written = onnx.load(tmp_path / "q.onnx")
    node = next(node for node in written.graph.node if node.op_type == op_type)
    kinds = {i.name: i.data_type for i in written.graph.initializer}
    assert TensorProto.FLOAT16 in {kinds.get(name) for name in node.input}
    assert TensorProto.FLOAT not in kinds.values()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"target": "qnn", "float_type": "float16"}, "qnn does not accept it in a file.*float32"),
        ({"target": "onnx", "form": "integer", "float_type": "float16"}, "use form qdq"),
    ],
)
def test_what_takes_no_float16_is_refused_before_work_begins(settings: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_recipe(settings["target"], {k: v for k, v in settings.items() if k != "target"})


def test_sequences_of_float16_tensors_are_emulated() -> None:
    text = (
        "g (float16[4, 8] x) => (float16[4, 8] y, seq(float16[4, 8]) s) <int64 first = {0}> "
        "{ a = Neg(x) s = SequenceConstruct(a, x) b = SequenceAt(s, first) y = Exp(b) }"
    )
    model = parser.parse_model(HEADER + text)
    source = ir.from_proto(onnx.shape_inference.infer_shapes(model, strict_mode=True))
    rounded = ir.to_proto(emulated(source))
    onnx.checker.check_model(rounded, full_check=True)
    feed = {"x": normal((4, 8)).astype(np.float16)}
    found = ort.InferenceSession(rounded.SerializeToString()).run(["y"], feed)[0]
    np.testing.assert_allclose(found, np.exp(-feed["x"]), rtol=2e-3)


def test_four_bits_that_a_loop_reads_from_around_it_are_judged_in_float16(tmp_path: Path) -> None:
    text = (
        "g (float[4, 64] x) => (float[4, 64] y) <int64 n = {3}, bool t = {1}> { h = MatMul(x, v) "
        "y = Loop(n, t, h) <body = b (int64 i, bool c, float[4, 64] s) => (bool d, float[4, 64] o) "
        "{ d = Identity(c) p = MatMul(s, w) z = Add(p, h) o = Tanh(z) }> }"
    )
    model = parser.parse_model(HEADER + text)
    for seed, name in enumerate("vw"):
        model.graph.initializer.append(numpy_helper.from_array(normal((64, 64), 0.1, seed), name))
    path, out = tmp_path / "m.onnx", tmp_path / "q.onnx"
    onnx.save(model, path)
    quantize(path, output=out, config="weight-only-4", target="onnx", float_type="float16")
    feed = {"x": normal((4, 64))}
    expected = ReferenceEvaluator(str(out)).run(None, feed)[0]
    found = open_session(str(out), "q", dequantized=True).run(None, feed)[0]
    np.testing.assert_allclose(found, expected, rtol=0, atol=5e-3)
