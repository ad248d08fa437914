"""Operators of onnxruntime that stand for several compute the same as these, held against its own kernels."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper
from qprof_onnx.profiles.base.errors import ModelError
from qprof_onnx.quantizer.api.from_profile import write_quantized
from qprof_onnx.quantizer.api.profiling import profile_model
from qprof_onnx.quantizer.plan.plan import Kind
from qprof_onnx.quantizer.prepare.prepare import prepare
from qprof_onnx.quantizer.targets.loading import load_recipe

RNG = np.random.default_rng(0)
ROWS, MASK = (2, 6, 16), np.array([[1] * 6, [1] * 4 + [0] * 2], np.int32)
INPUTS: Mapping[str, np.ndarray] = {
    **{name: RNG.standard_normal(ROWS).astype(np.float32) for name in ("x", "z")},
    "row": RNG.standard_normal(ROWS[1:]).astype(np.float32),
    "ids": RNG.integers(0, 50, (2, 6)).astype(np.int32),
    "kind": RNG.integers(0, 2, (2, 6)).astype(np.int32),
    "at": RNG.integers(0, 12, (2, 6)).astype(np.int32),
    "mask": MASK,
    "ends": np.array([6, 4], np.int32),
    "pairs": np.tril(np.ones((2, 6, 6), np.int32)),
    "longer": np.ones((2, 9), np.int32),
    "scores": RNG.standard_normal((2, 2, 6, 6)).astype(np.float32),
    "past": RNG.standard_normal((2, 2, 2, 3, 8)).astype(np.float32),
}
WEIGHTS = {
    name: (RNG.standard_normal(shape) / 2).astype(np.float32)
    for name, shape in {
        **{"w": (16, 48), "b": (48,), "narrow": (16, 40), "c": (40,), "square": (16, 16)},
        **{"kernel": (6, 6, 3), "shift": (6,)},
        **{"g": (16,), "h": (16,), "bias": (16,), "words": (50, 16), "places": (12, 16), "kinds": (2, 16)},
    }.items()
}


def model_of(nodes: str, outputs: tuple[str, ...], opset: int = 17) -> onnx.ModelProto:
    """Return a model of these nodes, which read what they name of `INPUTS` and `WEIGHTS`."""
    text = f'<ir_version: 8, opset_import: ["": {opset}, "com.microsoft": 1]> g () => () {{ {nodes} }}'
    graph = (model := onnx.parser.parse_model(text)).graph
    read = {name for node in graph.node for name in node.input}
    for name in sorted(read & INPUTS.keys()):
        kind = helper.np_dtype_to_tensor_dtype(INPUTS[name].dtype)
        graph.input.append(helper.make_tensor_value_info(name, kind, [None] * INPUTS[name].ndim))
    for name in sorted(read & WEIGHTS.keys()):
        graph.initializer.append(numpy_helper.from_array(WEIGHTS[name], name))
    for name in outputs:
        kind = onnx.TensorProto.INT32 if name == "count" else onnx.TensorProto.FLOAT
        graph.output.append(helper.make_tensor_value_info(name, kind, None))
    return model


def run(model: onnx.ModelProto) -> list[np.ndarray]:
    session = ort.InferenceSession(model.SerializeToString())
    names = [value.name for value in session.get_inputs()]
    return [np.asarray(array) for array in session.run(None, {name: INPUTS[name] for name in names})]


FUSED_CONV = "com.microsoft.FusedConv<kernel_shape = [3], pads = [1, 1]"
ATTENTION = "com.microsoft.Attention<num_heads = 2"
CASES = {
    "attention": (f"y = {ATTENTION}>(x, w, b)", ("y",)),
    "without a bias": (f"y = {ATTENTION}>(x, w)", ("y",)),
    "of other sizes": (f"y = {ATTENTION}, qkv_hidden_sizes = [16, 16, 8]>(x, narrow, c)", ("y",)),
    "causal, scaled": (f"y = {ATTENTION}, unidirectional = 1, scale = 0.1>(x, w, b)", ("y",)),
    "with a mask of zeros and ones": (f"y = {ATTENTION}>(x, w, b, mask)", ("y",)),
    "with lengths": (f"y = {ATTENTION}, mask_filter_value = -3.0>(x, w, b, ends)", ("y",)),
    "with a mask for each query": (f"y = {ATTENTION}>(x, w, b, pairs)", ("y",)),
    "with scores": (f"y = {ATTENTION}>(x, w, b, , , scores)", ("y",)),
    "with a cache": (f"y, keys = {ATTENTION}, unidirectional = 1>(x, w, b, longer, past)", ("y", "keys")),
    "that begins a cache": (f"y, keys = {ATTENTION}, unidirectional = 1>(x, w, b)", ("y", "keys")),
    "skip": ("y = com.microsoft.SkipLayerNormalization(x, z, g, h)", ("y",)),
    "skip, bias": ("y = com.microsoft.SkipLayerNormalization<epsilon = 0.1>(x, z, g, h, bias)", ("y",)),
    "skip, one row, no shift": ("y = com.microsoft.SkipLayerNormalization(x, row, g)", ("y",)),
    "skip, sum": ("y, , , sum = com.microsoft.SkipLayerNormalization(x, z, g, h, bias)", ("y", "sum")),
    "RMS": ("y, , , sum = com.microsoft.SkipSimplifiedLayerNormalization(x, z, g)", ("y", "sum")),
    "RMS, bias": ("y = com.microsoft.SkipSimplifiedLayerNormalization(x, z, g, bias)", ("y",)),
    "embedding": ("y, count = com.microsoft.EmbedLayerNormalization(ids, , words, places, , g, h)", ("y",)),
    "three tables": (
        "y, count, sum = com.microsoft.EmbedLayerNormalization<epsilon = 0.1>"
        "(ids, kind, words, places, kinds, g, h, mask)",
        ("y", "count", "sum"),
    ),
    "given places": (
        "y, count = com.microsoft.EmbedLayerNormalization(ids, kind, words, places, kinds, g, h, , at)",
        ("y",),
    ),
    "Gelu": ("y = com.microsoft.Gelu(x)", ("y",)),
    "BiasGelu": ("y = com.microsoft.BiasGelu(x, bias)", ("y",)),
    "FastGelu with a bias": ("y = com.microsoft.FastGelu(x, bias)", ("y",)),
    "QuickGelu": ("y = com.microsoft.QuickGelu(x)", ("y",)),
    "SiLU": ("y = com.microsoft.QuickGelu<alpha = 1.0>(x)", ("y",)),
    **{
        f"convolution, {name}": (
            f'y = {FUSED_CONV}, activation = "{name}", activation_params = {parameters}>(x, kernel, shift)',
            ("y",),
        )
        for name, parameters in {
            "LeakyRelu": [0.2],
            "HardSigmoid": [0.3, 0.4],
            "Clip": [-0.5, 0.7],
        }.items()
    },
    **{
        f"convolution, {name}": (f'y = {FUSED_CONV}, activation = "{name}">(x, kernel, shift)', ("y",))
        for name in ("Relu", "Sigmoid", "Tanh")
    },
    "convolution with a sum": (f'y = {FUSED_CONV}, activation = "Relu">(x, kernel, shift, z)', ("y",)),
    "convolution without a bias": (f'y = {FUSED_CONV}, activation = "Relu">(x, kernel)', ("y",)),
    **{
        f"Gemm, {name}": (
            f'y = com.microsoft.FusedGemm<transB = 1, alpha = 0.5, beta = 2.0, activation = "{name}"{also}>'
            "(row, square, bias)",
            ("y",),
        )
        for name, also in {
            **dict.fromkeys(("Relu", "Sigmoid", "Softplus", "Softsign", "Tanh"), ""),
            "LeakyRelu": ", activation_alpha = 0.2",
            "Elu": ", activation_alpha = 0.7",
            "ThresholdedRelu": ", activation_alpha = 0.3",
            "HardSigmoid": ", activation_alpha = 0.3, activation_beta = 0.4",
            "Selu": ", activation_alpha = 1.5, activation_gamma = 1.1",
        }.items()
    },
    **{
        f"matrices {attributes}": (f"y = com.microsoft.FusedMatMul<{attributes}>(x, {other})", ("y",))
        for attributes, other in {
            "alpha = 0.5": "square",
            "transB = 1": "z",
            "transA = 1, alpha = 2.0": "z",
            "transBatchA = 1, transBatchB = 1, transB = 1": "z",
            "transBatchA = 1, transA = 1, transBatchB = 1": "z",
        }.items()
    },
    "matrices in batches": (
        "y = com.microsoft.FusedMatMul<transBatchA = 1, transBatchB = 1, transB = 1>(scores, scores)",
        ("y",),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_operators_that_one_stands_for_compute_the_same(case: str) -> None:
    for opset in (14, 17, 20):
        model = model_of(*CASES[case], opset)
        prepared = prepare(ir.from_proto(model)).model
        (fused,) = model.graph.node
        left = {(node.domain, node.op_type) for node in prepared.graph}
        assert (fused.domain, fused.op_type) not in left or (
            case.startswith("FastGelu") and len(prepared.graph) == 2
        )
        assert [value.name for value in prepared.graph.outputs] == list(CASES[case][1])
        for mine, theirs in zip(run(ir.to_proto(prepared)), run(model), strict=True):
            assert mine.dtype == theirs.dtype
            np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)  # sums in another order


@pytest.mark.parametrize(
    "nodes",
    [
        "y = com.microsoft.Attention<num_heads = 2, do_rotary = 1>(x, w, b)",
        "q = Neg(w)  y = com.microsoft.Attention<num_heads = 2>(x, x, b)",
        "y = com.microsoft.FastGelu(x)",
    ],
    ids=["turned", "computed weight", "FastGelu"],
)
def test_what_the_other_operators_do_not_compute_stays(nodes: str) -> None:
    prepared = prepare(ir.from_proto(model_of(nodes, ("y",)))).model
    assert "com.microsoft" in {node.domain for node in prepared.graph}
    assert "MultiHeadAttention" not in {node.op_type for node in prepared.graph}


@pytest.mark.parametrize("level", ["ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL"])
def test_a_model_that_onnxruntime_optimised_is_quantized_as_the_exported_one_or_refused(
    tmp_path: Path, level: str
) -> None:
    rng, options, path = np.random.default_rng(2), ort.SessionOptions(), tmp_path / "optimised.onnx"
    exported = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]> g (float[1, 32, 8, 8] x) => (float[1, 10] y)
        { a = Conv<pads = [1, 1, 1, 1]>(x, w, b) r = Relu(a) c = Conv<pads = [1, 1, 1, 1]>(r, w, b)
        s = LeakyRelu(c) p = GlobalAveragePool(s) f = Flatten(p) g = Gemm(f, v, d) y = Tanh(g) }"""
    )
    for name, shape in {"w": (32, 32, 3, 3), "b": (32,), "v": (32, 10), "d": (10,)}.items():
        array = (rng.standard_normal(shape) / 16).astype(np.float32)
        exported.graph.initializer.append(numpy_helper.from_array(array, name))
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    options.optimized_model_filepath, options.log_severity_level = str(path), 3
    ort.InferenceSession(exported.SerializeToString(), options, providers=["CPUExecutionProvider"])
    if any("nchwc" in node.domain for node in onnx.load(path).graph.node):
        with pytest.raises(ModelError, match="optimised by onnxruntime for this machine"):
            prepare(ir.load(path))
        return
    assert "FusedConv" in {node.op_type for node in onnx.load(path).graph.node}
    operators = [
        [n.op_type for n in prepare(model).model.graph] for model in (ir.load(path), ir.from_proto(exported))
    ]
    assert operators[0] == operators[1]


ENCODER = """
e, count = com.microsoft.EmbedLayerNormalization(ids, kind, table, places, kinds, g, h, mask)
a = com.microsoft.Attention<num_heads = 4>(e, qkv, qkv_bias, count)
p = MatMul(a, projection)
s = com.microsoft.SkipLayerNormalization(p, e, g, h, bias)
[up] u = MatMul(s, wide)
v = com.microsoft.BiasGelu(u, wide_bias)
[down] d = MatMul(v, back)
y = com.microsoft.SkipLayerNormalization(d, s, g, h, bias)
"""


def test_every_weight_of_a_fused_encoder_is_quantized(tmp_path: Path) -> None:
    """It came out 1.5 times smaller, where the same model without fusions gets 3.9."""
    shapes = {
        **{"table": (2000, 64), "places": (32, 64), "kinds": (2, 64), "qkv": (64, 192), "qkv_bias": (192,)},
        **{"projection": (64, 64), "wide": (64, 256), "wide_bias": (256,), "back": (256, 64)},
        **dict.fromkeys(("g", "h", "bias"), (64,)),
    }
    rng = np.random.default_rng(0)
    model = model_of(ENCODER, ("y",))
    del model.graph.initializer[:]
    for name, shape in shapes.items():
        array = (rng.standard_normal(shape) / 8).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    onnx.save(model, tmp_path / "m.onnx")
    (tmp_path / "data").mkdir()
    for number in range(4):
        ids = rng.integers(0, 2000, (1, 12), np.int32)
        np.savez(
            tmp_path / "data" / f"{number}.npz", ids=ids, kind=np.zeros_like(ids), mask=np.ones_like(ids)
        )
    profile = profile_model(tmp_path / "m.onnx", tmp_path / "data")
    recipe = load_recipe(None, {"min_output_sqnr": 0.0, "cost_model": "off", "keep_float": ("Add",)})
    written = write_quantized(tmp_path / "m.onnx", profile, tmp_path / "q.onnx", recipe=recipe)
    weights = {"qkv", "projection", "wide", "back", "table"}
    assert weights <= written.plan.tensors.keys()
    products = [e for name, e in written.plan.nodes.items() if "MatMul" in name or name in ("up", "down")]
    assert [entry.kind for entry in products] == [Kind.QUANTIZED] * 4
    assert (tmp_path / "m.onnx").stat().st_size > 3.4 * (tmp_path / "q.onnx").stat().st_size
