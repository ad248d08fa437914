"""Operators of onnxruntime's own domain: types and shapes of their outputs are known, so others quantize."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest
from onnx import numpy_helper
from qprof_onnx.quantizer.api.from_profile import write_quantized
from qprof_onnx.quantizer.api.profiling import profile_model
from qprof_onnx.quantizer.plan.plan import Kind
from qprof_onnx.quantizer.prepare.prepare import open_prepared, prepare
from qprof_onnx.quantizer.targets.loading import load_recipe

HEAD = '<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]> '


def saved(folder: Path, text: str, **constants: tuple[int, ...]) -> Path:
    """Write a model with constants of these shapes."""
    proto, rng = onnx.parser.parse_model(HEAD + text), np.random.default_rng(0)
    for name, shape in constants.items():
        array = rng.standard_normal(shape).astype(np.float32)
        proto.graph.initializer.append(numpy_helper.from_array(array, name))
    onnx.save(proto, folder / "m.onnx")
    return folder / "m.onnx"


@pytest.mark.parametrize(
    "call",
    [
        "FastGelu(x)",
        "BiasGelu(x, s)",
        "Gelu(x)",
        "QuickGelu(x)",
        "SkipLayerNormalization(x, x, s, s)",
        "SkipSimplifiedLayerNormalization(x, x, s)",
    ],
)
def test_an_output_is_like_the_first_input(tmp_path: Path, call: str) -> None:
    text = f"g (float[N, 6, 8] x) => (float[A, B, C] y) {{ h = com.microsoft.{call}  y = Relu(h) }}"
    graph = open_prepared(saved(tmp_path, text, s=(8,))).graph
    assert graph.dtype("h") == ir.DataType.FLOAT
    assert graph.shape("h") == (None, 6, 8)


@pytest.mark.parametrize(
    ("call", "shape"),
    [
        ("FusedMatMul<transB = 1>(x, w)", (None, 6, 4)),
        ("FusedMatMul<transA = 1>(x, x)", (None, 8, 8)),
        ("Attention<num_heads = 2>(x, q, b)", (None, 6, 8)),
        ("Attention<num_heads = 2, qkv_hidden_sizes = [10, 10, 4]>(x, q, b)", (None, 6, 4)),
        ("MultiHeadAttention<num_heads = 2>(x, x, x)", (None, 6, 8)),
        ("MultiHeadAttention<num_heads = 2>(p)", (None, 6, 8)),
        ("GroupQueryAttention<num_heads = 2, kv_num_heads = 1>(x, , , , , s, t)", (None, 6, 4)),
        ("MatMulNBits<K = 8, N = 5, bits = 4, block_size = 32>(x, w, v)", (None, 6, 5)),
        ("FusedGemm<transB = 1>(f, w, v)", (None, 4)),
        ('FusedConv<activation = "Relu", kernel_shape = [3], pads = [1, 1]>(x, k)', (None, 5, 8)),
        ("EmbedLayerNormalization(i, , e, e, , r, r)", (None, 6, 8)),
        ("Trilu(x)", (None, 6, 8)),
    ],
)
def test_shapes_of_outputs_of_onnxruntimes_operators_are_known(
    tmp_path: Path, call: str, shape: tuple[int | None, ...]
) -> None:
    text = (
        "g (float[N, 6, 8] x, float[N, 6, 2, 3, 4] p, float[N, 8] f, int32[N, 6] i, int32[N] s, int32 t)"
        " => (y)"
        f"{{ h = com.microsoft.{call}  y = Relu(h) }}"
    )
    constants = {"w": (4, 8), "q": (8, 24), "b": (24,), "v": (4,), "k": (5, 6, 3), "e": (9, 8), "r": (8,)}
    graph = prepare(ir.from_proto(onnx.load(saved(tmp_path, text, **constants)))).model.graph
    (h,) = (value for node in graph for value in node.outputs if value.name == "h")
    assert h.dtype == ir.DataType.FLOAT
    assert h.shape is not None
    assert tuple(dim if isinstance(dim, int) else None for dim in h.shape) == shape


def test_the_type_of_any_other_output_is_asked_of_onnxruntime(tmp_path: Path) -> None:
    text = "g (float[N, 6, 8] x) => (y) <int32 a = {0}> { h = com.microsoft.ExpandDims(x, a)  y = Relu(h) }"
    graph = open_prepared(saved(tmp_path, text)).graph
    assert graph.dtype("h") == ir.DataType.FLOAT


@pytest.mark.parametrize("operator", ["LayerNormalization", "SimplifiedLayerNormalization"])
@pytest.mark.parametrize("opset", [11, 14, 17])
def test_layers_after_an_operator_that_only_onnxruntime_has_in_the_default_domain_have_types(
    tmp_path: Path, opset: int, operator: str
) -> None:
    calls = f"h = {operator}(x, s)  y = MatMul(h, w)"
    text = f"g (float[N, 6, 8] x) => (float[N, 6, 4] y) {{ {calls} }}"
    path = saved(tmp_path, text, s=(8,), w=(8, 4))
    proto = onnx.load(path)
    proto.opset_import[0].version = opset
    onnx.save(proto, path)
    graph = open_prepared(path).graph
    assert (graph.dtype("h"), graph.shape("h")) == (ir.DataType.FLOAT, (None, 6, 8))


def test_the_output_of_an_operator_that_nobody_knows_stays_of_no_known_type(tmp_path: Path) -> None:
    text = "g (float[N, 8] x) => (float[N, 8] y) { h = own.Mystery(x)  y = Relu(h) }"
    proto = onnx.parser.parse_model(HEAD.replace("1]", '1, "own": 1]') + text)
    onnx.save(proto, tmp_path / "m.onnx")
    assert open_prepared(tmp_path / "m.onnx").graph.dtype("h") is None


def test_layers_around_an_operator_of_onnxruntime_are_quantized(tmp_path: Path) -> None:
    text = (
        "g (float[N, 16, 24, 24] x) => (float[N, 16, 24, 24] y) {"
        "[c1] a = Conv<pads = [1, 1, 1, 1]>(x, w)"
        "[c] b = com.microsoft.Trilu(a)"
        "[c2] y = Conv<pads = [1, 1, 1, 1]>(b, v) }"
    )
    path = saved(tmp_path, text, w=(16, 16, 3, 3), v=(16, 16, 3, 3))
    (tmp_path / "data").mkdir()
    x = np.random.default_rng(1).standard_normal((1, 16, 24, 24)).astype(np.float32)
    np.savez(tmp_path / "data" / "0.npz", x=x)
    profile = profile_model(path, tmp_path / "data")
    recipe = load_recipe(None, {"min_output_sqnr": 0.0})
    nodes = write_quantized(path, profile, tmp_path / "q.onnx", recipe=recipe).plan.nodes
    assert (nodes["c1"].kind, nodes["c2"].kind) == (Kind.QUANTIZED, Kind.QUANTIZED)
    assert nodes["c"].reason == "operator com.microsoft.Trilu is not supported for int8"


def test_no_shape_is_given_to_a_value_of_unknown_type(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """onnx_ir cannot write one, and says so on the terminal."""
    calls = "h = own.Mystery(x)  r = Reshape(h, s)  y = Relu(r)"
    text = f"g (float[N, 8] x) => (float[A, B] y) <int64[2] s = {{-1, 4}}> {{ {calls} }}"
    proto = onnx.parser.parse_model(HEAD.replace("1]", '1, "own": 1]') + text)
    onnx.save(proto, tmp_path / "m.onnx")
    open_prepared(tmp_path / "m.onnx")
    assert caplog.messages == []
