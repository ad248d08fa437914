"""How to add each operator to a graph: those that plans and forms tell apart in many variants, others once.

A recipe takes a builder and an activation of float32, and returns the activations that it added; None where
it does not suit the opset or the shapes. Operators without a recipe of their own are added as the vector that
`quantizer/operators/test_table.py` has of each.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1]))

import numpy as np
import onnx
from graph_builder import SAMPLES, Builder, free_names, onnx_type
from onnx import TensorProto, helper
from quantizer.operators.test_table import VECTORS

Made = list[str] | str | None
LARGEST_FOR_A_VECTOR = 600
"""Elements of an activation that becomes the input of a vector by a product."""
Recipe = Callable[[Builder, str], Made]
RECIPES: dict[str, Callable[[Builder, str], list[str]]] = {}
"""Operator, or a name of several, -> how to add it."""


def recipe(*names: str, ranks: Sequence[int] = ()) -> Callable[[Recipe], Recipe]:
    """Enter a recipe under names, for an activation of any rank or of one of some."""

    def enter(function: Recipe) -> Recipe:
        def add(b: Builder, x: str) -> list[str]:
            v = of_rank(b, x, b.pick(ranks)) if ranks else x
            made = function(b, v) if v else None
            return [made] if isinstance(made, str) else made or []

        RECIPES.update(dict.fromkeys(names, add))
        return function

    return enter


def of_rank(b: Builder, x: str, rank: int) -> str | None:
    """Return an activation of a rank: one that is there, or `x` in another shape."""
    if len(b.shape(x)) == rank:
        return x
    there = b.floats(rank)
    if there and b.chance(0.7):
        return str(b.pick(there))
    shape, size = b.shape(x), b.array(x).size
    batch = shape[0]
    rest = size // batch
    dims, left = [], rest
    for _ in range(rank - 2):
        divisors = [d for d in range(1, min(left, 8) + 1) if left % d == 0]
        dims.append(b.pick(divisors))
        left //= dims[-1]
    dims = [left, *dims] if rank > 1 else []
    target = [0 if b.chance(0.5) else batch, *dims] if rank > 1 else [-1]
    return b.one("Reshape", [x, b.integers(*target)])


# Products


def _padding(b: Builder, dims: int) -> dict[str, Any]:
    kind = b.number(0, 5)
    if kind == 0:
        return {"auto_pad": b.pick(["SAME_UPPER", "SAME_LOWER", "VALID"])}
    return {"pads": [b.number(0, 2) for _ in range(2 * dims)]} if kind < 4 else {}


def _bias(b: Builder, columns: int) -> list[str]:
    kind = b.number(0, 9)
    if kind < 3:
        return []
    if kind == 3:
        return [b.weight(columns, scale=b.pick([0.0, 1e-9, 1e4]))]
    if kind == 4:
        computed = b.one("Neg", [b.weight(columns)])
        return [] if computed is None else [computed]
    return [b.weight(columns, scale=0.5)]


@recipe("Conv", "ConvTranspose", ranks=(3, 4, 4, 4, 4, 5))
def _conv(b: Builder, v: str) -> Made:
    transposed = b.chance(0.3)
    channels, dims = b.shape(v)[1], len(b.shape(v)) - 2
    group = b.pick([1, 1, 1, channels, 2 if channels % 2 == 0 else 1])
    each = b.number(1, 12 if group == 1 else 3)
    kernel, strides = ([b.number(1, most) for _ in range(dims)] for most in (3, 2))
    shape = (channels, each) if transposed else (group * each, channels // group)
    weight = b.weight(*shape, *kernel, scale=(channels * np.prod(kernel) / group) ** -0.5)
    if b.chance(0.06):
        weight = b.one("Abs", [weight]) or weight
    attributes = {
        "group": group if group > 1 or b.chance(0.3) else None,
        "kernel_shape": kernel if b.chance(0.6) else None,
        "strides": strides if b.chance(0.5) else None,
        "dilations": [b.number(1, 2) for _ in kernel] if b.chance(0.2) else None,
        "output_padding": [s - 1 for s in strides] if transposed and b.chance(0.2) else None,
        **_padding(b, dims),
    }
    return b.add("ConvTranspose" if transposed else "Conv", [v, weight, *_bias(b, group * each)], attributes)


@recipe("Gemm", ranks=(2,))
def _gemm(b: Builder, v: str) -> Made:
    rows, columns, out = *b.shape(v), b.pick([1, 3, 8, 16, 24])
    trans_a, trans_b = int(b.chance(0.1)), int(b.chance(0.5))
    inner, rows = (rows, columns) if trans_a else (columns, rows)
    shape = (out, inner) if trans_b else (inner, out)
    weight = b.weight(*shape, scale=inner**-0.5)
    if b.chance(0.06):
        weight = b.one("Abs", [weight]) or weight
    kind = b.number(0, 11)
    shapes = {0: (), 1: (1,), 2: (1, 1), 3: (rows, 1), 4: (rows, out), 5: (1, out)}
    bias = _bias(b, out) if kind > 5 else [b.weight(*shapes[kind], shared=False)]
    attributes = {
        "transA": trans_a or None,
        "transB": trans_b or None,
        "alpha": 0.5 if b.chance(0.1) else None,
        "beta": 2.0 if b.chance(0.1) else None,
    }
    return b.add("Gemm", [v, weight, *bias], attributes)


@recipe("MatMul")
def _matmul(b: Builder, x: str) -> Made:
    inner, out, kind = b.shape(x)[-1], b.pick([1, 4, 8, 16, 24]), b.number(0, 11)
    if kind == 0 and len(b.shape(x)) >= 2:
        perm = list(range(len(b.shape(x))))
        perm[-1], perm[-2] = perm[-2], perm[-1]
        other = b.one("Transpose", [x], perm=perm)
        return other and b.one("MatMul", [x, other])
    if kind == 1:
        return b.one("MatMul", [b.weight(3, b.shape(x)[-2] if len(b.shape(x)) > 1 else inner), x])
    shape: tuple[int, ...] = (inner, out)
    if kind == 2:
        shape = (inner,)
    elif kind in (3, 4) and len(b.shape(x)) >= 3:
        shape = (*b.shape(x)[:-2], inner, out) if kind == 3 else (b.pick([1, 2]), inner, out)
    weight = b.weight(*shape, scale=inner**-0.5)
    if b.chance(0.06):
        weight = b.one("Neg", [weight]) or weight
    made = b.one("MatMul", [x, weight])
    if made is None:
        return None
    if b.chance(0.5):
        made = b.one("Add", b.pick([[made, b.weight(out)], [b.weight(out), made]])) or made
    return [made]


@recipe("LSTM", "GRU", "RNN", ranks=(3,))
def _recurrent(b: Builder, v: str) -> Made:
    op_type, gates = b.pick([("LSTM", 4), ("GRU", 3), ("RNN", 1)])
    length, batch, width = b.shape(v)
    direction = b.pick(["forward", "reverse", "bidirectional"])
    hidden, directions = b.number(1, 9), 2 if direction == "bidirectional" else 1

    def state() -> str:
        return b.weight(directions, batch, hidden)

    inputs = [
        v,
        b.weight(directions, gates * hidden, width, scale=width**-0.5),
        b.weight(directions, gates * hidden, hidden, scale=hidden**-0.5),
        b.weight(directions, 2 * gates * hidden, scale=0.2) if b.chance(0.7) else "",
        b.constant(np.array([b.number(1, length) for _ in range(batch)], np.int32)) if b.chance(0.15) else "",
        state() if b.chance(0.3) else "",
        *(
            [state(), b.weight(directions, 3 * hidden)][: b.number(1, 2)]
            if op_type == "LSTM" and b.chance(0.25)
            else []
        ),
    ]
    outputs = [b.fresh(), *([b.fresh()] if b.chance(0.5) else [])]
    attributes = {
        "hidden_size": hidden,
        "direction": direction,
        "linear_before_reset": int(b.chance(0.5)) if op_type == "GRU" else None,
        "clip": 1.5 if b.chance(0.1) else None,
    }
    return b.add(op_type, inputs, attributes, outputs)


# Arithmetic and functions of elements


def _operand(b: Builder, x: str) -> str:
    """Return a second operand: a constant of some shape, an activation of the same shape, or x itself."""
    shape, kind = b.shape(x), b.number(0, 9)
    same = [n for n in b.floats() if b.shape(n) == shape]
    if kind < 4 and same:
        return str(b.pick(same))
    if kind == 4:
        return b.weight()
    if kind == 5:
        return b.weight(*([1] * (len(shape) + b.number(0, 1))))
    if kind == 6:
        return b.weight(*shape)
    if kind == 7 and len(shape) > 2:
        return b.weight(shape[1], *([1] * (len(shape) - 2)))
    return b.weight(shape[-1])


@recipe("Add", "Sub", "Mul", "PRelu")
def _binary(b: Builder, x: str) -> Made:
    op_type = b.pick(["Add", "Sub", "Mul", "Add", "Mul", "PRelu"])
    if op_type == "PRelu":  # the slope is broadcast to the input, not the other way round
        shape = b.shape(x)
        slope = b.weight(shape[1], *([1] * (len(shape) - 2))) if len(shape) > 2 else b.weight(shape[-1])
        return b.one(op_type, [x, slope])
    pair = [x, _operand(b, x)]
    return b.one(op_type, pair if b.chance(0.7) else pair[::-1])


@recipe("Concat")
def _concat(b: Builder, x: str) -> Made:
    shape = b.shape(x)
    axis = b.number(0, len(shape) - 1) if b.chance(0.3) else min(1, len(shape) - 1)
    others = [n for n in b.floats(len(shape)) if n != x]
    fits = [
        x,
        *(n for n in others if np.delete(b.shape(n), axis).tolist() == np.delete(shape, axis).tolist()),
    ]
    parts = [x, *(b.pick(fits) for _ in range(b.number(0, 2)))]
    if b.chance(0.25):
        parts.insert(b.number(0, len(parts)), b.weight(*[2 if i == axis else d for i, d in enumerate(shape)]))
    return b.one("Concat", parts, axis=axis - len(shape) if b.chance(0.2) else axis)


PLAIN = ["Sigmoid", "Tanh", "Erf", "Sin", "Softsign", "Softplus", "Mish", "Abs", "Neg", "HardSwish", "Elu"]
UNARY: Mapping[str, Mapping[str, Any]] = {
    **{op_type: {} for op_type in ("Relu", *PLAIN)},
    "HardSigmoid": {"alpha": 0.3},
    "LeakyRelu": {"alpha": 0.1},
    "ThresholdedRelu": {"alpha": 0.5},
    "Celu": {"alpha": 1.5},
    "Gelu": {"approximate": "tanh"},
    "Shrink": {"lambd": 0.3, "bias": 0.1},
}


def _unary(op_type: str) -> Recipe:
    return lambda b, x: b.one(op_type, [x], **UNARY[op_type] if b.chance(0.6) else {})


for _op_type in UNARY:
    recipe(_op_type)(_unary(_op_type))


@recipe("Clip")
def _clip(b: Builder, x: str) -> Made:
    low, high = b.pick([(0.0, 6.0), (-1.0, 1.0), (0.1, 0.4), (-0.3, 9.0), (-100.0, 100.0)])
    if b.opset < 11:
        return b.one("Clip", [x], min=low, max=high if b.chance(0.7) else None)
    kind = b.number(0, 5)
    if kind == 0:
        bound = b.one("ReduceMax", [x], keepdims=0)
        return bound and b.one("Clip", [x, "", bound])
    if kind == 1:
        bound = b.one("ReduceMin", [x], keepdims=0)
        return bound and b.one("Clip", [x, bound, b.constant(np.float32(high))])
    bounds = [b.constant(np.float32(low)) if b.chance(0.8) else "", b.constant(np.float32(high))]
    return b.one("Clip", [x, *(bounds if b.chance(0.8) else bounds[:1])])


# Pools and reductions


@recipe("MaxPool", "AveragePool", "LpPool", ranks=(3, 4, 4, 4))
def _pool(b: Builder, v: str) -> Made:
    op_type = b.pick(["MaxPool", "MaxPool", "AveragePool", "AveragePool", "LpPool"])
    kernel = [b.number(1, 3) for _ in b.shape(v)[2:]]
    attributes = {
        "kernel_shape": kernel,
        "strides": [b.number(1, 2) for _ in kernel] if b.chance(0.6) else None,
        "dilations": [b.number(1, 2) for _ in kernel] if b.chance(0.2) else None,
        "ceil_mode": 1 if b.chance(0.3) else None,
        "count_include_pad": 1 if op_type == "AveragePool" and b.chance(0.5) else None,
        **_padding(b, len(kernel)),
    }
    made = b.add(op_type, [v], attributes, 2 if op_type == "MaxPool" and b.chance(0.1) else 1)
    return made and made[0]


REDUCES = ["ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin"]


@recipe(*REDUCES)
def _reduce(b: Builder, x: str) -> Made:
    op_type, rank = b.pick(REDUCES), len(b.shape(x))
    axes = sorted({b.number(0, rank - 1) for _ in range(b.number(1, 2))})
    axes = [axis - rank for axis in axes] if b.chance(0.3) else axes
    keep = b.pick([0, 1, None])
    if b.chance(0.1):
        return b.one(op_type, [x], keepdims=keep)
    if b.opset < (13 if op_type == "ReduceSum" else 18):
        return b.one(op_type, [x], axes=axes, keepdims=keep)
    return b.one(op_type, [x, b.integers(*axes)], keepdims=keep)


@recipe("Reshape", "Flatten")
def _reshape(b: Builder, x: str) -> Made:
    if b.chance(0.3):
        return b.one("Flatten", [x], axis=b.pick([None, 1, len(b.shape(x)) - 1]))
    if b.chance(0.15):
        shape = b.one("Shape", [x])
        return shape and b.one("Reshape", [x, shape])
    made = of_rank(b, x, b.pick([r for r in (1, 2, 3, 4) if r != len(b.shape(x))]))
    return None if made == x else made


@recipe("Transpose")
def _transpose(b: Builder, x: str) -> Made:
    perm = [int(i) for i in b.rng.permutation(len(b.shape(x)))]
    return b.one("Transpose", [x], perm=perm if b.chance(0.9) else None)


@recipe("Gather")
def _gather(b: Builder, x: str) -> Made:
    axis = b.number(0, len(b.shape(x)) - 1)
    size = b.shape(x)[axis]
    if b.chance(0.7):
        numbers = b.rng.integers(-size, size, b.pick([(), (2,), (2, 2)]))
        return b.one("Gather", [x, b.constant(np.asarray(numbers))], axis=axis)
    table = b.weight(b.pick([7, 300]), b.pick([1, 8]))
    index = b.one("ArgMax", [x], axis=-1, keepdims=0) or b.integers(0)
    index = b.one("Clip", [index, b.constant(np.int64(0)), b.constant(np.int64(6))]) or index
    return b.one("Gather", [table, index], axis=0)


@recipe("Slice")
def _slice(b: Builder, x: str) -> Made:
    rank = len(b.shape(x))
    axis = b.number(0, rank - 1)
    size = b.shape(x)[axis]
    start, stop, step = (
        (0, size, 1) if size < 2 else (b.number(0, size - 2), b.pick([size, size - 1, 1 << 40]), 1)
    )
    if b.chance(0.2):
        start, stop, step = size - 1, -(1 << 40), -1
    if b.opset < 10:
        return (b.one("Slice", [x], starts=[start], ends=[stop], axes=[axis])) if step > 0 else None
    return b.one("Slice", [x, *(b.integers(v) for v in (start, stop, axis, step))])


@recipe("Split")
def _split(b: Builder, x: str) -> Made:
    axis = b.number(0, len(b.shape(x)) - 1)
    total = b.shape(x)[axis]
    first = b.number(1, max(1, total - 1))
    sizes = [first, total - first] if total > 1 else [total]
    if b.opset < 13:
        return b.add("Split", [x], {"axis": axis, "split": sizes}, len(sizes))
    if b.opset >= 18 and b.chance(0.3):
        return b.add("Split", [x], {"axis": axis, "num_outputs": 2}, 2)
    return b.add("Split", [x, b.integers(*sizes)], {"axis": axis}, len(sizes))


COORDINATES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize")


@recipe("Resize", ranks=(4,))
def _resize(b: Builder, v: str) -> Made:
    shape, mode = b.shape(v), b.pick(["nearest", "nearest", "linear", "cubic"])
    scales = np.array([1, 1, *(b.pick([0.5, 1.0, 1.5, 2.0, 3.0]) for _ in shape[2:])], np.float32)
    if b.opset < 11:
        op_type = "Upsample" if b.opset == 9 else "Resize"
        return b.one(op_type, [v, b.constant(np.maximum(scales, 1.0))], mode=mode)
    coordinates = b.pick(COORDINATES)
    attributes: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": coordinates}
    roi = b.constant(np.zeros(0, np.float32), plain=True) if b.opset < 13 else ""
    if coordinates == "tf_crop_and_resize":
        roi = b.constant(np.array([0.0, 0.0, -0.2, 0.1, 1.0, 1.0, 1.1, 0.9], np.float32))
        attributes["extrapolation_value"] = b.pick([None, 2.5, -1.0])
    if mode == "nearest":
        attributes["nearest_mode"] = b.pick([None, "floor", "ceil", "round_prefer_ceil"])
    if mode == "cubic":
        attributes |= {"cubic_coeff_a": b.pick([None, -0.5]), "exclude_outside": b.pick([None, 1])}
    if b.chance(0.4) and b.opset >= 13:
        sizes = [*shape[:2], *(max(1, int(d * s)) for d, s in zip(shape[2:], scales[2:], strict=True))]
        return b.one("Resize", [v, roi, "", b.integers(*sizes)], **attributes)
    return b.one("Resize", [v, roi, b.constant(scales)], **attributes)


@recipe("Pad")
def _pad(b: Builder, x: str) -> Made:
    shape, rank = b.shape(x), len(b.shape(x))
    mode = b.pick(
        ["constant", "constant", "constant", "reflect", "edge", *(["wrap"] if b.opset >= 19 else [])]
    )
    value = b.pick([None, 0.0, 0.0, 1.5, -3.0]) if mode == "constant" else None
    most = [min(2, d - 1) if mode == "reflect" else 2 for d in shape]
    amounts = [b.number(0, most[i]) if i >= 2 or b.chance(0.3) else 0 for i in (*range(rank), *range(rank))]
    if b.chance(0.1):
        amounts[-1] = -1 if shape[-1] > 1 else 0
    if b.opset < 11:
        return b.one("Pad", [x], pads=amounts, mode=mode, value=value)
    fill = b.constant(np.float32(value)) if value is not None else ""
    if value is not None and b.chance(0.1):
        fill = b.one("ReduceMax", [x], keepdims=0) or fill
    if b.opset >= 18 and b.chance(0.4):
        axes = [rank - 1] if rank < 4 or b.chance(0.5) else [2, -1]
        amounts = [amounts[a % rank] for a in axes] + [amounts[rank + a % rank] for a in axes]
        return b.one("Pad", [x, b.integers(*amounts), fill, b.integers(*axes)], mode=mode)
    return b.one("Pad", [x, b.integers(*amounts), *([fill] if fill else [])], mode=mode)


@recipe("LayerNormalization")
def _layer_norm(b: Builder, x: str) -> Made:
    shape = b.shape(x)
    axis = b.number(1, len(shape) - 1) if len(shape) > 1 and b.chance(0.3) else -1
    scale, bias = b.weight(*shape[axis:]), [b.weight(*shape[axis:])] if b.chance(0.7) else []
    scale = scale if b.chance(0.9) else b.one("Neg", [scale]) or scale
    return b.one("LayerNormalization", [x, scale, *bias], axis=axis if b.chance(0.8) else None)


@recipe("BatchNormalization", "Dropout", "Identity")
def _inference(b: Builder, x: str) -> Made:
    if b.chance(0.3):
        return b.one(b.pick(["Identity", "Dropout"]), [x])
    channels = b.shape(x)[1] if len(b.shape(x)) > 1 else 0
    variance = b.constant((0.5 + b.rng.random(channels)).astype(np.float32))
    parts = [b.weight(channels), b.weight(channels), b.weight(channels), variance]
    return (b.one("BatchNormalization", [x, *parts])) if channels else None


def _vector(op_type: str) -> Recipe:
    """Return the recipe of an operator's vector, whose input is a product of the activation."""

    def add(b: Builder, x: str) -> Made:
        declared, text, constants = VECTORS[op_type]
        dims, size = [int(n) for n in re.findall(r"\d+", declared)], b.array(x).size
        if size > LARGEST_FOR_A_VECTOR:
            return None
        node = onnx.parser.parse_node(text)
        flat = b.one("Reshape", [x, b.integers(1, -1)])
        v = flat and b.one("MatMul", [flat, b.weight(size, math.prod(dims), scale=size**-0.5)])
        v = v and b.one("Reshape", [v, b.integers(*dims)])
        named = {
            n: b.weight(*c) if isinstance(c, tuple) else b.constant(np.asarray(c))
            for n, c in constants.items()
        }
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        for front in ("", "Sigmoid", "Exp"):  # functions of numbers from 0 to 1, and from 1 on
            v = b.one(front, [v]) if v and front else v
            inputs = [v if n == "x" else named.get(n, "") for n in node.input]
            made = b.add(op_type, inputs, attributes, len(node.output), node.domain) if v else None
            if made:
                return made[0]
        return None

    return add


for _op_type in VECTORS.keys() - RECIPES.keys():
    recipe(_op_type)(_vector(_op_type))


# Several nodes


def _chain(b: Builder, x: str, *steps: tuple[str, Callable[[str], list[str]]], **more: Any) -> str | None:
    """Add nodes one behind the other, each with inputs that follow from the last output."""
    now: str | None = x
    for op_type, inputs in steps:
        now = b.one(op_type, inputs(now), **more) if now else None
    return now


@recipe("swish", "gelu", "hard swish")
def _decomposed(b: Builder, x: str) -> Made:
    def number(value: float) -> str:
        return b.constant(np.full(b.pick([(), (1,), (1, 1, 1)]), value, np.float32))

    swish = (b.pick(["Sigmoid", "HardSigmoid"]), lambda v: [v]), ("Mul", lambda v: [x, v])
    erf = ("Div", lambda v: [v, number(2**0.5)]), ("Erf", lambda v: [v]), ("Add", lambda v: [v, number(1.0)])
    gelu = (*erf, ("Mul", lambda v: [x, v]), ("Mul", lambda v: [v, number(0.5)]))
    clip = ("Clip", lambda v: [v, b.constant(np.float32(0.0)), b.constant(np.float32(6.0))])
    times = ("Mul", lambda v: [x, v]), ("Div", lambda v: [v, number(6.0)])
    hard = (("Add", lambda v: [v, b.constant(np.float32(3.0))]), clip, *times)
    return _chain(b, x, *b.pick([swish, gelu, hard]))


@recipe("float16 part")
def _narrow(b: Builder, x: str) -> Made:
    inside = b.one("Cast", [x], to=b.pick([TensorProto.FLOAT16, TensorProto.DOUBLE]))
    inside = inside and b.one(b.pick(["Relu", "Neg", "Sigmoid", "Tanh"]), [inside])
    return (b.one("Cast", [inside], to=TensorProto.FLOAT)) if inside else None


@recipe("unknown")
def _unknown(b: Builder, x: str) -> Made:
    match b.number(0, 4):
        case 0:
            return b.one(b.pick(["FastGelu", "QuickGelu"]), [x], domain="com.microsoft")
        case 1:
            return b.one("Normalizer", [x], domain="ai.onnx.ml", norm="L2")
        case 2:
            return b.one(b.pick(["Sign", "Round", "Floor", "Ceil"]), [x])
        case 3:
            return b.one("Mod", [x, b.constant(np.float32(0.7))], fmod=1)
    size, value = b.one("Shape", [x]), helper.make_tensor("v", TensorProto.FLOAT, [1], [0.7])
    filled = size and b.one("ConstantOfShape", [size], value=value)
    return (b.one("Add", [x, filled])) if filled else None


# Subgraphs

INSIDE = ["MatMul", "Relu", "Add", "Sigmoid", "Clip", "Gemm", "Conv", "Concat", "MaxPool", "Softmax", "Tanh"]
INSIDE += ["Transpose", "Pad", "Resize", "Split", "LeakyRelu"]


def _inner(b: Builder, values: Mapping[str, Any]) -> Builder:
    inner = Builder(b.rng, b.opset, outer=b, counter=b.counter)
    inner.values.update(values)
    return inner


def _grown(b: Builder, inner: Builder, start: str, steps: int) -> str:
    """Add nodes to a subgraph, which may read the graph around it; return what the last one made."""
    now = start
    for _ in range(steps):
        source = now
        if b.chance(0.3) and b.floats():
            source = str(b.pick(b.floats()))
            inner.values.setdefault(source, b.lookup(source))
        made = RECIPES[b.pick(INSIDE)](inner, source)
        now = made[0] if made else now
    return now


def _as_constant_shape(b: Builder, inner: Builder, name: str) -> str:
    """Return a tensor of the subgraph that is made in it."""
    made = {n for node in inner.nodes for n in node.output}
    return name if name in made else inner.one("Identity", [name]) or name


@recipe("If")
def _if(b: Builder, x: str) -> Made:
    total = b.one("ReduceSum", [x], keepdims=0)
    condition = total and b.one("Greater", [total, b.constant(np.float32(0.0))])
    if not condition:
        return None
    if b.chance(0.2):
        condition = b.constant(np.array(True))
    branches = []
    for _ in range(2):
        inner = _inner(b, {x: b.lookup(x)})
        last = _as_constant_shape(b, inner, _grown(b, inner, x, b.number(1, 3)))
        branches.append(_output(inner, last))
    return b.add("If", [condition], {"then_branch": branches[0], "else_branch": branches[1]})


def _output(inner: Builder, *names: str, inputs: tuple[Any, ...] = ()) -> Any:
    infos = [
        helper.make_tensor_value_info(n, onnx_type(inner.lookup(n)[0]), [None] * inner.lookup(n)[0].ndim)
        for n in names
    ]
    return helper.make_graph(inner.nodes, inner.fresh("branch"), list(inputs), infos)


@recipe("Loop")
def _loop(b: Builder, x: str) -> Made:
    state, step, going = b.fresh("state"), b.fresh("step"), b.fresh("going")
    inner = _inner(b, {state: b.lookup(x), step: [np.array(0)] * SAMPLES, going: [np.array(True)] * SAMPLES})
    inputs = (
        helper.make_tensor_value_info(step, TensorProto.INT64, []),
        helper.make_tensor_value_info(going, TensorProto.BOOL, []),
        helper.make_tensor_value_info(state, TensorProto.FLOAT, [None] * len(b.shape(x))),
    )
    last = _grown(b, inner, state, b.number(1, 2))
    mixed = inner.one("Tanh", [state])
    if mixed is None:
        return None
    if inner.shape(last) == b.shape(x):
        mixed = inner.one("Mul", [mixed, inner.one("Sigmoid", [last]) or mixed]) or mixed
    carried = inner.one("Identity", [going])
    scanned = inner.one("ReduceMean", [mixed], keepdims=0)
    if carried is None or scanned is None:
        return None
    body = _output(inner, carried, mixed, *([scanned] if b.chance(0.5) else []), inputs=inputs)
    count = b.constant(np.int64(b.number(1, 3)))
    made = b.add("Loop", [count, "", x], {"body": body}, len(body.output) - 1)
    return None if made is None else made[:1]


COMMON = ["Conv", "Conv", "MatMul", "MatMul", "Gemm", "Relu", "Add", "Concat", "Pad", "Resize"]


def random_graph(rng: np.random.Generator, opset: int | None = None) -> tuple[Builder, list[str]]:
    """Return a graph and its outputs."""
    b = Builder(rng, int(rng.integers(9, 22)) if opset is None else opset)
    batch = b.pick([1, 1, 2, 3])
    dynamic = b.chance(0.5)
    for _ in range(b.pick([1, 1, 2])):
        dims = b.pick([(b.pick([3, 8, 32]),), (5, b.pick([4, 16])), (b.pick([3, 8, 16]), 8, 8), (4, 5, 7)])
        name, scale = b.fresh("x"), 10.0 ** b.pick([0, 0, 0, 0, 0, 0, -3, 2, -7, 6])
        offset = b.pick([0.0, 0.0, 0.0, 2.0])
        b.values[name] = [
            ((rng.standard_normal((batch, *dims)) + offset) * scale).astype(np.float32)
            for _ in range(SAMPLES)
        ]
        b.inputs[name] = ["N" if dynamic else batch, *dims]
    names = sorted(RECIPES)
    recent: list[str] = []
    for _ in range(b.number(2, 9)):
        floats = b.floats()
        x = b.pick(recent) if recent and b.chance(0.75) else b.pick(floats)
        made = RECIPES[b.pick(COMMON) if b.chance(0.35) else b.pick(names)](b, x)
        recent = [n for n in made or () if n in b.floats()] or recent
    return b, _outputs(b)


def _outputs(b: Builder) -> list[str]:
    """Return what nothing reads, and now and then a tensor inside."""
    read = {n for node in b.nodes for n in node.input}
    for node in b.nodes:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                read.update(free_names(attribute.g))
    made = [n for node in b.nodes if node.op_type != "Constant" for n in node.output if n]
    leaves = [n for n in made if n not in read]
    inside = [n for n in made if n in read and b.chance(0.08)]
    return [*leaves, *inside]
