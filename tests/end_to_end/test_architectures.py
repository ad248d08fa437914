"""Networks in the spelling of PyTorch's two exporters, with random weights, under settings that bind.

Each is a network of torch.nn, timm or transformers as they export it, cut down and written by hand, so that
no torch is needed. Each is quantized with a limit that no int8 plan meets, so that the noise budget has to
look at every node, and in one other way; none is to end in an error, and the result is to run as expected.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import numpy_helper, parser
from qprof_onnx.quantizer.api.from_profile import write_quantized
from qprof_onnx.quantizer.api.profiling import profile_model
from qprof_onnx.quantizer.targets.loading import load_recipe

Feed = Mapping[str, np.ndarray]

RECURRENT = {
    "an LSTM of which only the last hidden state is used": """(float[6, 2, 12] x) => (float[2, 5] y)
    <float[1, 64, 12] w, float[1, 64, 16] r, float[1, 128] b, float[5, 16] u, float[5] c,
    int64[1] zero = {0}> {
        all, h = LSTM <hidden_size = 16> (x, w, r, b)
        last = Squeeze (h, zero)
        y = Gemm <transB = 1> (last, u, c)
    }""",
    "a packed LSTM in both directions": """(float[6, 2, 12] x, int64[2] lengths) => (float[2, 5] y)
    <float[2, 64, 12] w, float[2, 64, 16] r, float[2, 128] b, float[5, 32] u, float[5] c, int64 zero = {0},
    int64 one = {1}> {
        long = Cast <to = 6> (lengths)
        all, h = LSTM <hidden_size = 16, direction = "bidirectional"> (x, w, r, b, long)
        there = Gather (h, zero)
        back = Gather (h, one)
        both = Concat <axis = -1> (there, back)
        y = Gemm <transB = 1> (both, u, c)
    }""",
    "a GRU with its output and its states as outputs": """(float[6, 2, 12] x)
    => (float[6, 2, 5] y, float[2, 2, 16] h)
    <float[2, 48, 12] w, float[2, 48, 16] r, float[2, 96] b, float[32, 5] u, float[5] c,
    int64[3] shape = {6, 2, 32}> {
        all, h = GRU <hidden_size = 16, direction = "bidirectional", linear_before_reset = 1> (x, w, r, b)
        t = Transpose <perm = [0, 2, 1, 3]> (all)
        s = Reshape (t, shape)
        m = MatMul (s, u)
        y = Add (c, m)
    }""",
    "an RNN read by its mean over time": """(float[6, 2, 12] x) => (float[2, 5] y)
    <float[1, 16, 12] w, float[1, 16, 16] r, float[1, 32] b, float[5, 16] u, float[5] c,
    int64[1] axis = {1}> {
        all, h = RNN <hidden_size = 16> (x, w, r, b)
        t = Squeeze (all, axis)
        m = ReduceMean <axes = [0], keepdims = 0> (t)
        y = Gemm <transB = 1> (m, u, c)
    }""",
    "convolutions before an LSTM, as speech is read": """(float[1, 12, 32] x) => (float[15, 1, 7] y)
    <float[16, 12, 3] k, float[16] kb, float[2, 64, 16] w, float[2, 64, 16] r, float[2, 128] b, float[32,
    7] u,
    int64[3] shape = {15, 1, 32}> {
        conv = Conv <strides = [2]> (x, k, kb)
        relu = Relu (conv)
        t = Transpose <perm = [2, 0, 1]> (relu)
        all, h, c = LSTM <hidden_size = 16, direction = "bidirectional"> (t, w, r, b)
        o = Transpose <perm = [0, 2, 1, 3]> (all)
        s = Reshape (o, shape)
        m = MatMul (s, u)
        y = LogSoftmax <axis = -1> (m)
    }""",
}

ATTENTION = """({inputs}) => (float[1, 8, 9] y)
    <float[40, 16] table, float[16] n, float[16] nb, float[16, 48] wqkv, float[48] bqkv, float[16, 16] wo,
    float[16, 32] wu, float[32] bu, float[32, 16] wd, float[16, 9] wh, int64[5] split = {{1, 8, 3, 2, 8}},
    int64[3] joined = {{1, 8, 16}}, int64[1] zero = {{0}}, int64[1] one = {{1}}, int64[1] two = {{2}},
    int64[2] middle = {{1, 2}}, float root = {{2.828427}}, float unit = {{1.0}}, float half = {{0.5}},
    float sqrt2 = {{1.41421354}}, float filler = {{{filler}}}, bool[1, 1, 8, 8] causal = {{{causal}}}> {{
        e = Gather (table, x)
        ln = LayerNormalization <axis = -1> (e, n, nb)
        qkv = MatMul (ln, wqkv)
        qkvb = Add (bqkv, qkv)
        parts = Reshape (qkvb, split)
        turned = Transpose <perm = [2, 0, 3, 1, 4]> (parts)
        q5, k5, v5 = Split <axis = 0> (turned)
        q = Squeeze (q5, zero)
        k = Squeeze (k5, zero)
        v = Squeeze (v5, zero)
        kt = Transpose <perm = [0, 1, 3, 2]> (k)
        qk = MatMul (q, kt)
        scores = Div (qk, root)
        {mask}
        p = Softmax <axis = -1> (masked)
        pv = MatMul (p, v)
        back = Transpose <perm = [0, 2, 1, 3]> (pv)
        flat = Reshape (back, joined)
        o = MatMul (flat, wo)
        r = Add (e, o)
        up = MatMul (r, wu)
        upb = Add (bu, up)
        scaled = Div (upb, sqrt2)
        erf = Erf (scaled)
        shifted = Add (erf, unit)
        product = Mul (upb, shifted)
        gelu = Mul (product, half)
        down = MatMul (gelu, wd)
        r2 = Add (r, down)
        y = MatMul (r2, wh)
    }}"""
CAUSAL = ", ".join("0" if column > row else "1" for row in range(8) for column in range(8))
FILLED = "unseen = Not (causal) masked = Where (unseen, filler, scores)"
ADDED = """given = Cast <to = 1> (mask) wide = Unsqueeze (given, middle) gaps = Sub (unit, wide)
        fill = Mul (gaps, filler) masked = Add (scores, fill)"""
TOKENS = "int64[1, 8] x"
LOWEST = "-3.4028234663852886e+38"

MASKED = {
    "attention with a causal mask of float32's lowest": (TOKENS, LOWEST, FILLED),
    "attention with a mask of padding of float32's lowest": (f"{TOKENS}, int64[1, 8] mask", LOWEST, ADDED),
}

OTHERS = {
    "a decoder layer with RMS norms, rotated positions and a gate": """(float[1, 8, 16] x)
    => (float[1, 8, 16] y)
    <float[16] g, float[16, 16] wq, float[16, 16] wk, float[16, 16] wv, float[16, 32] wg, float[16, 32] wu,
    float[32, 16] wd, float[8, 16] cos, float[8, 16] sin, float two = {2.0}, float tiny = {0.00001},
    int64[1] zero = {0}, int64[1] eight = {8}, int64[1] end = {9223372036854775807}, int64[1] last = {-1}> {
        sq = Pow (x, two)
        ms = ReduceMean <axes = [-1]> (sq)
        me = Add (ms, tiny)
        rms = Sqrt (me)
        inv = Reciprocal (rms)
        xn = Mul (x, inv)
        xg = Mul (g, xn)
        q = MatMul (xg, wq)
        k = MatMul (xg, wk)
        v = MatMul (xg, wv)
        qa = Slice (q, zero, eight, last)
        qb = Slice (q, eight, end, last)
        qn = Neg (qb)
        qr = Concat <axis = -1> (qn, qa)
        qc = Mul (q, cos)
        qs = Mul (qr, sin)
        qe = Add (qc, qs)
        kt = Transpose <perm = [0, 2, 1]> (k)
        s = MatMul (qe, kt)
        p = Softmax (s)
        a = MatMul (p, v)
        r = Add (x, a)
        gate = MatMul (r, wg)
        sig = Sigmoid (gate)
        silu = Mul (gate, sig)
        up = MatMul (r, wu)
        h = Mul (silu, up)
        d = MatMul (h, wd)
        y = Add (r, d)
    }""",
    "a recommender with bags of embeddings": """(float[4, 7] x, int64[4, 6] ids) => (float[4, 1] y)
    <float[16, 7] w, float[16] b, float[30, 16] t1, float[50, 16] t2, float[20, 19] u, float[20] ub,
    float[1, 20] v,
    float[1] vb, int64[1] zero = {0}, int64[1] three = {3}, int64[1] six = {6}, int64[1] one = {1},
    int64[3] pairs = {1, 2, 5}, int64[2] flat = {4, 9}> {
        lin = Gemm <transB = 1> (x, w, b)
        dense = Relu (lin)
        i1 = Slice (ids, zero, three, one)
        i2 = Slice (ids, three, six, one)
        e1 = Gather (t1, i1)
        e2 = Gather (t2, i2)
        s1 = ReduceSum <keepdims = 0> (e1, one)
        s2 = ReduceMean <keepdims = 0, axes = [1]> (e2)
        d3 = Unsqueeze (dense, one)
        s13 = Unsqueeze (s1, one)
        s23 = Unsqueeze (s2, one)
        rows = Concat <axis = 1> (d3, s13, s23)
        rt = Transpose <perm = [0, 2, 1]> (rows)
        dots = MatMul (rows, rt)
        all = Reshape (dots, flat)
        some = Gather <axis = 1> (all, pairs)
        joined = Concat <axis = 1> (dense, some)
        hid = Gemm <transB = 1> (joined, u, ub)
        act = Relu (hid)
        out = Gemm <transB = 1> (act, v, vb)
        y = Sigmoid (out)
    }""",
    "a U-net": """(float[1, 3, 16, 16] x) => (float[1, 2, 16, 16] y)
    <float[8, 3, 3, 3] a, float[8] ab, float[16, 8, 3, 3] b, float[16] bb, float[16, 8, 2, 2] u, float[8] ub,
    float[8, 16, 3, 3] d, float[8] db, float[2, 8, 1, 1] e, float[2] eb> {
        ca = Conv <pads = [1, 1, 1, 1]> (x, a, ab)
        ra = Relu (ca)
        pool = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (ra)
        cb = Conv <pads = [1, 1, 1, 1]> (pool, b, bb)
        rb = Relu (cb)
        up = ConvTranspose <strides = [2, 2]> (rb, u, ub)
        both = Concat <axis = 1> (ra, up)
        cd = Conv <pads = [1, 1, 1, 1]> (both, d, db)
        rd = Relu (cd)
        ce = Conv (rd, e, eb)
        y = Sigmoid (ce)
    }""",
    "group normalisation and SiLU": """(float[1, 3, 12, 12] x) => (float[1, 8, 12, 12] y)
    <float[8, 3, 3, 3] w, float[8] b, float[2] ones = {1, 1}, float[2] none = {0, 0}, float[8, 1, 1] g,
    float[8, 1, 1] gb, float[8, 8, 3, 3] v, int64[3] groups = {0, 2, -1}, int64[4] shape = {1, 8, 12, 12}> {
        c = Conv <pads = [1, 1, 1, 1]> (x, w, b)
        r = Reshape (c, groups)
        i = InstanceNormalization (r, ones, none)
        back = Reshape (i, shape)
        s = Mul (back, g)
        n = Add (s, gb)
        sig = Sigmoid (n)
        silu = Mul (n, sig)
        y = Conv <pads = [1, 1, 1, 1]> (silu, v)
    }""",
    "paddings of every mode and an upsampling": """(float[1, 3, 10, 10] x) => (float[1, 3, 20, 20] y)
    <float[8, 3, 3, 3] w, float[8] b, float[8, 8, 3, 3] v, float[3, 8, 3, 3] u,
    int64[8] pads = {0, 0, 1, 1, 0, 0, 1, 1}, int64[1] last = {-1}, int64[1] end = {9223372036854775807},
    int64[1] zero = {0}, int64[1] one = {1}, int64[1] high = {2}, int64[1] wide = {3},
    float[4] scales = {1, 1, 2, 2}> {
        p = Pad <mode = "reflect"> (x, pads)
        c = Conv (p, w, b)
        r = Relu (c)
        top = Slice (r, last, end, high)
        low = Slice (r, zero, one, high)
        tall = Concat <axis = 2> (top, r, low)
        left = Slice (tall, last, end, wide)
        right = Slice (tall, zero, one, wide)
        round = Concat <axis = 3> (left, tall, right)
        d = Conv (round, v)
        s = Softplus (d)
        t = Tanh (s)
        mish = Mul (d, t)
        big = Resize <mode = "linear", coordinate_transformation_mode = "half_pixel"> (mish, , scales)
        e = Pad <mode = "edge"> (big, pads)
        y = Conv (e, u)
    }""",
    "dilated convolutions of one dimension whose weights are computed": """(float[1, 6, 24] x)
    => (float[1, 4, 24] y)
    <float[8, 1, 1] g, float[8, 6, 3] v, float[8] b, float[4, 8, 3] w> {
        n = ReduceL2 <axes = [1, 2]> (v)
        d = Div (v, n)
        k = Mul (g, d)
        c = Conv <dilations = [2], pads = [2, 2]> (x, k, b)
        r = LeakyRelu (c)
        y = Conv <dilations = [4], pads = [4, 4]> (r, w)
    }""",
}


def texts() -> Mapping[str, str]:
    masked = {
        name: ATTENTION.format(inputs=inputs, filler=filler, mask=mask, causal=CAUSAL)
        for name, (inputs, filler, mask) in MASKED.items()
    }
    return {**RECURRENT, **masked, **OTHERS}


NETWORKS = texts()
WAYS: tuple[Mapping[str, Any], ...] = (
    {},
    {"mode": "weight-only", "weight_type": "int4", "block_size": 16},
    {"mode": "dynamic"},
    {"schema": "symmetric-uint8"},
    {"activation_type": "uint16"},
    {"cost_model": "off", "form": "primitives", "equalization": "off", "min_output_sqnr": 38.0},
)


def built(text: str) -> onnx.ModelProto:
    """Return a model whose weights that have no value yet are random ones of a usual size."""
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]>\nnetwork {text}')
    given = {tensor.name for tensor in model.graph.initializer}
    rng = np.random.default_rng(3)
    for value in model.graph.value_info:
        if value.name not in given:
            shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
            fan_in = math.prod(shape[1:]) if len(shape) != 2 else min(shape)
            array = rng.standard_normal(shape) / math.sqrt(max(1, fan_in))
            model.graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), value.name))
    del model.graph.value_info[:]
    return model


def drawn(model: onnx.ModelProto) -> list[Feed]:
    """Return eight samples."""
    rng = np.random.default_rng(4)
    found: list[Feed] = []
    for _ in range(8):
        feed = {}
        for value in model.graph.input:
            shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
            if value.name == "mask":
                feed["mask"] = np.arange(8)[None] < rng.integers(4, 9)
            elif value.type.tensor_type.elem_type == onnx.TensorProto.INT64:
                feed[value.name] = rng.integers(1, 7, shape)
            else:
                feed[value.name] = rng.standard_normal(shape).astype(np.float32)
        found.append({k: v.astype(np.int64) if v.dtype.kind == "b" else v for k, v in feed.items()})
    return found


def outputs(path: Path, feeds: list[Feed]) -> list[list[np.ndarray]]:
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return [session.run(None, dict(feed)) for feed in feeds]


FEW_BITS_REFUSED = "dilated convolutions of one dimension whose weights are computed"
"""The network none of whose weights can have the 4 bits that its turn would give them."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "way"),
    [
        (name, {**way, "weight_type": "int8"} if name == FEW_BITS_REFUSED else way)
        for name, way in zip(NETWORKS, cycle(WAYS), strict=False)
    ],
)
def test_a_network_as_it_is_exported_is_quantized_as_well_as_was_expected(
    name: str, way: Mapping[str, Any], tmp_path: Path
) -> None:
    model = built(NETWORKS[name])
    feeds = drawn(model)
    onnx.save(model, tmp_path / "model.onnx")
    profile_model(tmp_path / "model.onnx", feeds, tmp_path / "profile.yaml")
    floats = outputs(tmp_path / "model.onnx", feeds)
    for settings in ({"min_output_sqnr": 60.0}, way):
        result = write_quantized(
            tmp_path / "model.onnx",
            tmp_path / "profile.yaml",
            tmp_path / "q.onnx",
            recipe=load_recipe("onnxruntime-x86", settings),
        )
        onnx.checker.check_model(tmp_path / "q.onnx")
        quantized = outputs(tmp_path / "q.onnx", feeds)
        names = [value.name for value in model.graph.output]
        expected = {output.output: output for output in result.expected}
        for number, output in enumerate(names):
            f = np.stack([sample[number] for sample in floats]).astype(np.float64)
            q = np.stack([sample[number] for sample in quantized]).astype(np.float64)
            assert np.isfinite(q).all()
            sqnr = 10 * np.log10(np.sum(f**2) / max(np.sum((f - q) ** 2), 1e-30))
            assert sqnr > 8.0
            if output in expected:
                assert sqnr > expected[output].low, (settings, output)
