"""How to add each operator to a graph, in every variant that the operator table tells apart.

A recipe takes a builder and an activation of float32, and returns the activations that it added; None where
it does not suit the opset or the shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from graph_builder import SAMPLES, Builder, free_names, onnx_type
from onnx import TensorProto, helper

Made = list[str] | None
Recipe = Callable[[Builder, str], Made]
RECIPES: dict[str, Recipe] = {}
"""Operator, or a name of several, -> how to add it."""


def recipe(*names: str) -> Callable[[Recipe], Recipe]:
    """Enter a recipe under names."""

    def enter(function: Recipe) -> Recipe:
        for name in names:
            RECIPES[name] = function
        return function

    return enter


def listed(name: str | None) -> Made:
    """Return a list of one output."""
    return None if name is None else [name]


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


def split(total: int, b: Builder) -> list[int]:
    """Return sizes that add up."""
    if total < 2:
        return [total]
    first = b.number(1, total - 1)
    return [first, total - first]


# Products


def _padding(b: Builder, dims: int) -> dict[str, Any]:
    kind = b.number(0, 5)
    if kind == 0:
        return {"auto_pad": b.pick(["SAME_UPPER", "SAME_LOWER", "VALID"])}
    return {"pads": [b.number(0, 2) for _ in range(2 * dims)]} if kind < 4 else {}


def _bias(b: Builder, columns: int, x: str) -> list[str]:
    kind = b.number(0, 9)
    if kind < 3:
        return []
    if kind == 3:
        return [b.weight(columns, scale=b.pick([0.0, 1e-9, 1e4]))]
    if kind == 4:
        computed = b.one("Neg", [b.weight(columns)])
        return [] if computed is None else [computed]
    return [b.weight(columns, scale=0.5)]


@recipe("Conv")
def _conv(b: Builder, x: str) -> Made:
    v = of_rank(b, x, b.pick([3, 4, 4, 4, 4, 5]))
    if v is None:
        return None
    channels, dims = b.shape(v)[1], len(b.shape(v)) - 2
    group = b.pick([1, 1, 1, channels, 2 if channels % 2 == 0 else 1])
    out = group * b.number(1, 12 if group == 1 else 3)
    kernel = [b.number(1, 3) for _ in range(dims)]
    weight = b.weight(out, channels // group, *kernel, scale=(channels * np.prod(kernel) / group) ** -0.5)
    if b.chance(0.06):
        weight = b.one("Abs", [weight]) or weight
    attributes = {
        "group": group if group > 1 or b.chance(0.3) else None,
        "kernel_shape": kernel if b.chance(0.6) else None,
        "strides": [b.number(1, 2) for _ in kernel] if b.chance(0.4) else None,
        "dilations": [b.number(1, 2) for _ in kernel] if b.chance(0.2) else None,
    }
    return b.add("Conv", [v, weight, *_bias(b, out, x)], attributes | _padding(b, dims))


@recipe("ConvTranspose")
def _conv_transpose(b: Builder, x: str) -> Made:
    v = of_rank(b, x, b.pick([3, 4, 4]))
    if v is None:
        return None
    channels, dims = b.shape(v)[1], len(b.shape(v)) - 2
    group = b.pick([1, 1, 1, channels, 2 if channels % 2 == 0 else 1])
    per_group = b.number(1, 6)
    kernel = [b.number(1, 3) for _ in range(dims)]
    weight = b.weight(channels, per_group, *kernel, scale=channels**-0.5)
    strides = [b.number(1, 2) for _ in kernel]
    attributes = {
        "group": group,
        "strides": strides,
        "pads": [b.number(0, 1) for _ in range(2 * dims)] if b.chance(0.5) else None,
        "output_padding": [s - 1 for s in strides] if b.chance(0.2) else None,
        "dilations": [b.number(1, 2) for _ in kernel] if b.chance(0.15) else None,
        "auto_pad": b.pick(["SAME_UPPER", "SAME_LOWER", "VALID"]) if b.chance(0.15) else None,
    }
    return b.add("ConvTranspose", [v, weight, *_bias(b, per_group * group, x)], attributes)


@recipe("Gemm")
def _gemm(b: Builder, x: str) -> Made:
    v = of_rank(b, x, 2)
    if v is None:
        return None
    rows, columns, out = *b.shape(v), b.pick([1, 3, 8, 16, 24])
    trans_a, trans_b = int(b.chance(0.1)), int(b.chance(0.5))
    inner, rows = (rows, columns) if trans_a else (columns, rows)
    shape = (out, inner) if trans_b else (inner, out)
    weight = b.weight(*shape, scale=inner**-0.5)
    if b.chance(0.06):
        weight = b.one("Abs", [weight]) or weight
    kind = b.number(0, 11)
    shapes = {0: (), 1: (1,), 2: (1, 1), 3: (rows, 1), 4: (rows, out), 5: (1, out)}
    bias = _bias(b, out, x) if kind > 5 else [b.weight(*shapes[kind], shared=False)]
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
        return None if other is None else listed(b.one("MatMul", [x, other]))
    if kind == 1:
        return listed(b.one("MatMul", [b.weight(3, b.shape(x)[-2] if len(b.shape(x)) > 1 else inner), x]))
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


@recipe("LSTM", "GRU", "RNN")
def _recurrent(b: Builder, x: str) -> Made:
    op_type, gates = b.pick([("LSTM", 4), ("GRU", 3), ("RNN", 1)])
    v = of_rank(b, x, 3)
    if v is None:
        return None
    layout = int(b.chance(0.08))
    length, batch, width = b.shape(v) if not layout else (b.shape(v)[1], b.shape(v)[0], b.shape(v)[2])
    directions = 1 if b.chance(0.6) else 2
    direction = b.pick(["forward", "reverse"]) if directions == 1 else "bidirectional"
    hidden = b.number(1, 9)
    inputs = [
        v,
        b.weight(directions, gates * hidden, width, scale=width**-0.5),
        b.weight(directions, gates * hidden, hidden, scale=hidden**-0.5),
        b.weight(directions, 2 * gates * hidden, scale=0.2) if b.chance(0.7) else "",
        b.constant(np.array([b.number(1, length) for _ in range(batch)], np.int32)) if b.chance(0.15) else "",
        b.weight(*((batch, directions) if layout else (directions, batch)), hidden) if b.chance(0.3) else "",
    ]
    if op_type == "LSTM" and b.chance(0.25):
        inputs.append(b.weight(directions, batch, hidden))
        if b.chance(0.3):
            inputs.append(b.weight(directions, 3 * hidden))
    while inputs[-1] == "":
        inputs.pop()
    outputs = [b.fresh(), b.fresh() if b.chance(0.5) else ""]
    if op_type == "LSTM":
        outputs.append(b.fresh() if b.chance(0.4) else "")
    attributes = {
        "hidden_size": hidden,
        "direction": direction,
        "layout": layout or None,
        "linear_before_reset": int(b.chance(0.5)) if op_type == "GRU" else None,
        "clip": 1.5 if b.chance(0.1) else None,
    }
    return b.add(op_type, inputs, attributes, [n for n in outputs if n] if outputs[-1] else outputs[:1])


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
        return listed(b.one(op_type, [x, slope]))
    pair = [x, _operand(b, x)]
    return listed(b.one(op_type, pair if b.chance(0.7) else pair[::-1]))


@recipe("Div")
def _div(b: Builder, x: str) -> Made:
    below = b.one("Abs", [_operand(b, x)])
    below = None if below is None else b.one("Add", [below, b.constant(np.float32(0.5))])
    return None if below is None else listed(b.one("Div", [x, below]))


@recipe("Sum", "Mean", "Max", "Min")
def _several(b: Builder, x: str) -> Made:
    op_type = b.pick(["Sum", "Mean", "Max", "Min", "Max", "Min"])
    return listed(b.one(op_type, [x, *(_operand(b, x) for _ in range(b.number(0, 2)))]))


@recipe("Where")
def _where(b: Builder, x: str) -> Made:
    other = _operand(b, x)
    if b.chance(0.3):
        condition = b.constant(b.rng.random(b.shape(x)[-1]) < 0.5)
    else:
        condition = b.one("Greater", [x, b.constant(np.float32(0.1))]) or ""
    pair = [x, other] if b.chance(0.6) else [other, x]
    return listed(b.one("Where", [condition, *pair])) if condition else None


@recipe("Concat")
def _concat(b: Builder, x: str) -> Made:
    shape = b.shape(x)
    axis = b.number(0, len(shape) - 1) if b.chance(0.3) else min(1, len(shape) - 1)
    fits = [n for n in b.floats(len(shape)) if _beside(b.shape(n), axis) == _beside(shape, axis)]
    parts = [x, *(b.pick(fits) for _ in range(b.number(0, 2)))]
    if b.chance(0.25):
        parts.insert(b.number(0, len(parts)), b.weight(*[2 if i == axis else d for i, d in enumerate(shape)]))
    return listed(b.one("Concat", parts, axis=axis - len(shape) if b.chance(0.2) else axis))


def _beside(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return tuple(d for i, d in enumerate(shape) if i != axis)


PLAIN = ["Sigmoid", "Tanh", "Erf", "Sin", "Cos", "Softsign", "Atan", "Softplus", "Mish", "Abs", "Neg"]
PLAIN += ["HardSwish", "Sinh", "Asinh", "Exp", "Relu", "Swish", "Selu", "Elu"]
UNARY: Mapping[str, Mapping[str, Any]] = {
    **{op_type: {} for op_type in PLAIN},
    "HardSigmoid": {"alpha": 0.3},
    "LeakyRelu": {"alpha": 0.1},
    "ThresholdedRelu": {"alpha": 0.5},
    "Celu": {"alpha": 1.5},
    "Gelu": {"approximate": "tanh"},
    "Shrink": {"lambd": 0.3, "bias": 0.1},
}


def _unary_recipe(op_type: str, attributes: Mapping[str, Any]) -> Recipe:
    def add(b: Builder, x: str) -> Made:
        given = attributes if b.chance(0.6) else {}
        if op_type in ("Exp", "Sinh", "Cosh"):
            x = b.one("Tanh", [x]) or x
        return listed(b.one(op_type, [x], **given))

    return add


RECIPES.update({op_type: _unary_recipe(op_type, attributes) for op_type, attributes in UNARY.items()})


@recipe("Log", "Sqrt", "Reciprocal", "Pow", "Cosh")
def _of_positive(b: Builder, x: str) -> Made:
    above = b.one("Abs", [x])
    above = None if above is None else b.one("Add", [above, b.constant(np.float32(b.pick([0.1, 1.0])))])
    if above is None:
        return None
    op_type = b.pick(["Log", "Sqrt", "Reciprocal", "Pow", "Pow", "Cosh"])
    if op_type == "Pow":
        exponents = [np.float32(2.0), np.float32([0.5]), np.int64(2), np.float32([1.5] * b.shape(x)[-1])]
        return listed(b.one("Pow", [above, b.constant(b.pick(exponents))]))
    return listed(b.one(op_type, [above]))


@recipe("Asin", "Acos", "Tan", "Acosh", "Atanh")
def _of_small(b: Builder, x: str) -> Made:
    inside = b.one("Sigmoid", [x])
    op_type = b.pick(["Asin", "Acos", "Tan", "Acosh", "Atanh"])
    if inside is not None:
        step = 1.5 if op_type == "Acosh" else -0.5
        inside = b.one("Add", [inside, b.constant(np.float32(step))])
    return None if inside is None else listed(b.one(op_type, [inside]))


@recipe("Clip")
def _clip(b: Builder, x: str) -> Made:
    low, high = b.pick([(0.0, 6.0), (-1.0, 1.0), (0.1, 0.4), (-0.3, 9.0), (-100.0, 100.0)])
    if b.opset < 11:
        return listed(b.one("Clip", [x], min=low, max=high if b.chance(0.7) else None))
    kind = b.number(0, 5)
    if kind == 0:
        bound = b.one("ReduceMax", [x], keepdims=0)
        return None if bound is None else listed(b.one("Clip", [x, "", bound]))
    if kind == 1:
        bound = b.one("ReduceMin", [x], keepdims=0)
        return None if bound is None else listed(b.one("Clip", [x, bound, b.constant(np.float32(high))]))
    bounds = [b.constant(np.float32(low)) if b.chance(0.8) else "", b.constant(np.float32(high))]
    return listed(b.one("Clip", [x, *(bounds if b.chance(0.8) else bounds[:1])]))


# Pools and reductions


@recipe("MaxPool", "AveragePool", "LpPool")
def _pool(b: Builder, x: str) -> Made:
    op_type = b.pick(["MaxPool", "MaxPool", "AveragePool", "AveragePool", "LpPool"])
    v = of_rank(b, x, b.pick([3, 4, 4, 4]))
    if v is None:
        return None
    dims = len(b.shape(v)) - 2
    kernel = [b.number(1, 3) for _ in range(dims)]
    attributes = {
        "kernel_shape": kernel,
        "strides": [b.number(1, 2) for _ in kernel] if b.chance(0.6) else None,
        "dilations": [b.number(1, 2) for _ in kernel] if b.chance(0.2) else None,
        "ceil_mode": 1 if b.chance(0.3) else None,
        "count_include_pad": 1 if op_type == "AveragePool" and b.chance(0.5) else None,
        "storage_order": 1 if op_type == "MaxPool" and b.chance(0.1) else None,
    }
    if b.chance(0.2):
        attributes["auto_pad"] = b.pick(["SAME_UPPER", "SAME_LOWER", "VALID"])
    elif b.chance(0.6):
        attributes["pads"] = [b.number(0, k - 1) for k in [*kernel, *kernel]]
    made = b.add(op_type, [v], attributes, 2 if op_type == "MaxPool" and b.chance(0.1) else 1)
    return None if made is None else made[:1]


@recipe("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def _global_pool(b: Builder, x: str) -> Made:
    v = of_rank(b, x, b.pick([3, 4]))
    op_type = b.pick(["GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool", "GlobalAveragePool"])
    return None if v is None else listed(b.one(op_type, [v]))


REDUCES = ["ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceSumSquare"]
REDUCES += ["ReduceLogSumExp", "ReduceProd", "ReduceLogSum"]


@recipe(*REDUCES)
def _reduce(b: Builder, x: str) -> Made:
    op_type = b.pick(REDUCES)
    rank = len(b.shape(x))
    axes = sorted({b.number(-rank if b.chance(0.2) else 0, rank - 1) % rank for _ in range(b.number(1, 2))})
    if b.chance(0.3):
        axes = [axis - rank for axis in axes]
    keep = b.pick([0, 1, None])
    if op_type == "ReduceLogSum":
        x = b.one("Softplus", [x]) or x
    if b.chance(0.1):
        return _no_scalar(b, b.one(op_type, [x], keepdims=keep))
    if b.opset >= (13 if op_type == "ReduceSum" else 18):
        empty = 1 if b.chance(0.1) else None
        return _no_scalar(
            b, b.one(op_type, [x, b.integers(*axes)], keepdims=keep, noop_with_empty_axes=empty)
        )
    return _no_scalar(b, b.one(op_type, [x], axes=axes, keepdims=keep))


def _no_scalar(b: Builder, name: str | None) -> Made:
    return listed(name)


@recipe("CumSum", "Trilu")
def _running(b: Builder, x: str) -> Made:
    if b.chance(0.5):
        axis = b.constant(np.int32(b.number(0, len(b.shape(x)) - 1)))
        return listed(b.one("CumSum", [x, axis], reverse=int(b.chance(0.5)), exclusive=int(b.chance(0.5))))
    return listed(b.one("Trilu", [x, b.constant(np.int64(b.number(-1, 1)))], upper=int(b.chance(0.5))))


# Moves


@recipe("Reshape", "Flatten")
def _reshape(b: Builder, x: str) -> Made:
    if b.chance(0.3):
        return listed(b.one("Flatten", [x], axis=b.pick([None, 1, len(b.shape(x)) - 1])))
    if b.chance(0.15):
        shape = b.one("Shape", [x])
        return None if shape is None else listed(b.one("Reshape", [x, shape]))
    made = of_rank(b, x, b.pick([r for r in (1, 2, 3, 4) if r != len(b.shape(x))]))
    return None if made is None or made == x else [made]


@recipe("Squeeze", "Unsqueeze")
def _dims(b: Builder, x: str) -> Made:
    rank = len(b.shape(x))
    ones = [i for i, d in enumerate(b.shape(x)) if d == 1]
    op_type = "Squeeze" if ones and b.chance(0.6) else "Unsqueeze"
    if op_type == "Unsqueeze" and rank > 4:
        return None
    axis = b.pick(ones) if op_type == "Squeeze" else b.number(0, rank)
    if b.opset < 13:
        return listed(b.one(op_type, [x], axes=[axis]))
    return listed(b.one(op_type, [x, b.integers(axis)]))


@recipe("Transpose")
def _transpose(b: Builder, x: str) -> Made:
    perm = [int(i) for i in b.rng.permutation(len(b.shape(x)))]
    return listed(b.one("Transpose", [x], perm=perm if b.chance(0.9) else None))


@recipe("Expand", "Tile")
def _repeat(b: Builder, x: str) -> Made:
    shape = b.shape(x)
    if b.chance(0.5):
        return listed(b.one("Tile", [x, b.integers(*[2 if b.chance(0.3) else 1 for _ in shape])]))
    target = [b.number(2, 3) if d == 1 and b.chance(0.5) else d for d in shape]
    return listed(b.one("Expand", [x, b.integers(*target)]))


@recipe("Gather", "GatherElements", "GatherND")
def _gather(b: Builder, x: str) -> Made:
    shape, kind = b.shape(x), b.number(0, 4)
    axis = b.number(0, len(shape) - 1)
    if kind == 0:
        index = b.constant(b.rng.integers(0, shape[axis], shape))
        return listed(b.one("GatherElements", [x, index], axis=axis))
    if kind == 1:
        return listed(b.one("GatherND", [x, b.constant(b.rng.integers(0, shape[0], (2, 1)))]))
    if kind == 2:
        table = b.weight(b.pick([7, 300]), b.pick([1, 8]))
        index = b.constant(b.rng.integers(0, 7, (b.shape(x)[0], 3)))
        if b.chance(0.5):
            index = b.one("ArgMax", [x], axis=-1, keepdims=0) or index
        index = b.one("Clip", [index, b.constant(np.int64(0)), b.constant(np.int64(6))]) or index
        return listed(b.one("Gather", [table, index], axis=0))
    numbers = b.rng.integers(-shape[axis], shape[axis], b.pick([(), (2,), (2, 2)]))
    return listed(b.one("Gather", [x, b.constant(np.asarray(numbers))], axis=axis))


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
        return listed(b.one("Slice", [x], starts=[start], ends=[stop], axes=[axis])) if step > 0 else None
    return listed(b.one("Slice", [x, *(b.integers(v) for v in (start, stop, axis, step))]))


@recipe("Split")
def _split(b: Builder, x: str) -> Made:
    axis = b.number(0, len(b.shape(x)) - 1)
    sizes = split(b.shape(x)[axis], b)
    if b.opset < 13:
        return b.add("Split", [x], {"axis": axis, "split": sizes}, len(sizes))
    if b.opset >= 18 and b.chance(0.3):
        return b.add("Split", [x], {"axis": axis, "num_outputs": 2}, 2)
    return b.add("Split", [x, b.integers(*sizes)], {"axis": axis}, len(sizes))


@recipe("DepthToSpace", "SpaceToDepth")
def _blocks(b: Builder, x: str) -> Made:
    v = of_rank(b, x, 4)
    if v is None:
        return None
    if b.chance(0.5):
        mode = b.pick([None, "CRD", "DCR"]) if b.opset >= 11 else None
        return listed(b.one("DepthToSpace", [v], blocksize=2, mode=mode))
    return listed(b.one("SpaceToDepth", [v], blocksize=2))


@recipe("Compress", "ReverseSequence", "TopK", "NonZero")
def _select(b: Builder, x: str) -> Made:
    shape, kind = b.shape(x), b.number(0, 2)
    axis = b.number(0, len(shape) - 1)
    if kind == 0:
        keep = b.rng.random(shape[axis]) < 0.6
        keep[0] = True
        return listed(b.one("Compress", [x, b.constant(keep)], axis=axis))
    if kind == 1:
        if len(shape) < 2:
            return None
        lengths = b.constant(b.rng.integers(1, shape[1] + 1, shape[0]))
        return listed(b.one("ReverseSequence", [x, lengths], batch_axis=0, time_axis=1))
    attributes = {"axis": axis}
    if b.opset >= 11:
        attributes |= {"largest": int(b.chance(0.5)), "sorted": 1}
    if b.opset < 10:
        made = b.add("TopK", [x], attributes | {"k": min(2, shape[axis])}, 2)
    else:
        made = b.add("TopK", [x, b.integers(min(2, shape[axis]))], attributes, 2)
    return None if made is None else made[:1]


RESIZE_MODES = ("nearest", "nearest", "linear", "cubic")
COORDINATES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize")


@recipe("Resize", "Upsample")
def _resize(b: Builder, x: str) -> Made:
    v = of_rank(b, x, 4)
    if v is None:
        return None
    shape, mode = b.shape(v), b.pick(RESIZE_MODES)
    scales = np.array([1, 1, *(b.pick([0.5, 1.0, 1.5, 2.0, 3.0]) for _ in shape[2:])], np.float32)
    if b.opset < 11:
        mode = "linear" if mode == "cubic" else mode
        op_type = "Upsample" if b.opset == 9 else b.pick(["Resize"])
        return listed(b.one(op_type, [v, b.constant(np.maximum(scales, 1.0))], mode=mode))
    coordinates = b.pick(COORDINATES)
    if b.opset >= 19 and b.chance(0.1):
        coordinates = "half_pixel_symmetric"
    attributes: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": coordinates}
    roi = ""
    if coordinates == "tf_crop_and_resize":
        corners = [0.0, 0.0, -0.2, 0.1, 1.0, 1.0, 1.1, 0.9] if b.chance(0.7) else [0, 0, 0, 0, 1, 1, 1, 1]
        roi = b.constant(np.array(corners, np.float32))
        attributes["extrapolation_value"] = b.pick([None, 2.5, -1.0])
    elif b.opset < 13:
        roi = b.constant(np.zeros(0, np.float32), plain=True)
    if mode == "nearest":
        attributes["nearest_mode"] = b.pick([None, "floor", "ceil", "round_prefer_ceil"])
    if mode == "cubic":
        attributes |= {"cubic_coeff_a": b.pick([None, -0.5]), "exclude_outside": b.pick([None, 1])}
    if b.opset >= 18 and b.chance(0.2):
        attributes["antialias"] = 1 if mode != "nearest" else None
    if b.chance(0.4) and b.opset >= 13:
        sizes = [*shape[:2], *(max(1, int(d * s)) for d, s in zip(shape[2:], scales[2:], strict=True))]
        return listed(b.one("Resize", [v, roi, "", b.integers(*sizes)], **attributes))
    if b.opset >= 18 and b.chance(0.3) and not roi:
        return listed(b.one("Resize", [v, "", b.constant(scales[2:])], axes=[2, 3], **attributes))
    return listed(b.one("Resize", [v, roi, b.constant(scales)], **attributes))


@recipe("Pad")
def _pad(b: Builder, x: str) -> Made:
    shape, rank = b.shape(x), len(b.shape(x))
    modes = ["constant", "constant", "constant", "reflect", "edge", *(["wrap"] if b.opset >= 19 else [])]
    mode = b.pick(modes)
    value = b.pick([None, 0.0, 0.0, 1.5, -3.0])
    most = [min(2, d - 1) if mode == "reflect" else 2 for d in shape]
    amounts = [
        b.number(0, m) if i >= 2 or b.chance(0.3) else 0 for i, m in [*enumerate(most), *enumerate(most)]
    ]
    if b.chance(0.1):
        amounts[-1] = -1 if shape[-1] > 1 else 0
    if b.opset < 11:
        return listed(b.one("Pad", [x], pads=amounts, mode=mode, value=value))
    if b.opset >= 18 and b.chance(0.4):
        axes = [rank - 1] if rank < 4 or b.chance(0.5) else [2, -1]
        amounts = [amounts[a % rank] for a in axes] + [amounts[rank + a % rank] for a in axes]
        fill = b.constant(np.float32(value)) if value is not None and mode == "constant" else ""
        return listed(b.one("Pad", [x, b.integers(*amounts), fill, b.integers(*axes)], mode=mode))
    fills = []
    if mode == "constant" and value is not None:
        fills = [b.constant(np.float32(value))]
        if b.chance(0.1):
            computed = b.one("ReduceMax", [x], keepdims=0)
            fills = [] if computed is None else [computed]
    return listed(b.one("Pad", [x, b.integers(*amounts), *fills], mode=mode))


@recipe("ScatterND", "ScatterElements")
def _scatter(b: Builder, x: str) -> Made:
    shape = b.shape(x)
    reduction = b.pick([None, None, None, "add"]) if b.opset >= 16 else None
    if b.chance(0.5):
        index = b.constant(np.array([[0]], np.int64))
        updates = b.weight(1, *shape[1:])
        return listed(b.one("ScatterND", [x, index, updates], reduction=reduction))
    index = b.constant(np.zeros([1] * len(shape), np.int64))
    return listed(
        b.one("ScatterElements", [x, index, b.weight(*[1] * len(shape))], axis=0, reduction=reduction)
    )


@recipe("GridSample", "RoiAlign", "LRN", "MaxUnpool")
def _images(b: Builder, x: str) -> Made:
    v = of_rank(b, x, 4)
    if v is None:
        return None
    kind = b.number(0, 2)
    if kind == 0:
        grid = b.constant(b.rng.uniform(-1.3, 1.3, (b.shape(v)[0], 3, 2, 2)).astype(np.float32))
        padding = b.pick(["zeros", "border", "reflection"])
        mode = b.pick(["nearest", "bilinear" if b.opset < 20 else "linear"])
        return listed(b.one("GridSample", [v, grid], mode=mode, padding_mode=padding))
    if kind == 1:
        rois = b.constant(np.array([[0, 0, 2, 2], [-1, 0, 3, 1]], np.float32))
        batch = b.constant(np.zeros(2, np.int64))
        return listed(b.one("RoiAlign", [v, rois, batch], output_height=2, output_width=2))
    return listed(b.one("LRN", [v], size=3))


# Normalisation


@recipe("Softmax", "LogSoftmax", "Hardmax")
def _softmax(b: Builder, x: str) -> Made:
    axis = b.pick([None, -1, b.number(0, len(b.shape(x)) - 1)])
    return listed(b.one(b.pick(["Softmax", "Softmax", "LogSoftmax"]), [x], axis=axis))


@recipe("LayerNormalization", "InstanceNormalization", "GroupNormalization", "LpNormalization")
def _normalise(b: Builder, x: str) -> Made:
    shape, kind = b.shape(x), b.number(0, 4)
    if kind < 2:
        axis = b.number(1, len(shape) - 1) if len(shape) > 1 and b.chance(0.3) else -1
        dims = shape[axis:]
        bias = [b.weight(*dims)] if b.chance(0.7) else []
        scale = b.weight(*dims) if b.chance(0.9) else (b.one("Neg", [b.weight(*dims)]) or "")
        return listed(b.one("LayerNormalization", [x, scale, *bias], axis=axis if b.chance(0.8) else None))
    if kind == 2:
        v = of_rank(b, x, b.pick([3, 4]))
        channels = 0 if v is None else b.shape(v)[1]
        return (
            listed(b.one("InstanceNormalization", [v, b.weight(channels), b.weight(channels)])) if v else None
        )
    if kind == 3:
        v = of_rank(b, x, 4)
        channels = 0 if v is None else b.shape(v)[1]
        if v is None or b.opset < 18:
            return None
        groups = 2 if channels % 2 == 0 else 1
        size = channels if b.opset >= 21 else groups
        return listed(b.one("GroupNormalization", [v, b.weight(size), b.weight(size)], num_groups=groups))
    return listed(b.one("LpNormalization", [x], axis=-1, p=2))


@recipe("SimplifiedLayerNormalization")
def _root_mean_square(b: Builder, x: str) -> Made:
    shape = b.shape(x)
    return listed(b.one("SimplifiedLayerNormalization", [x, b.weight(shape[-1])], axis=-1)) if shape else None


@recipe("BatchNormalization", "Dropout", "Identity")
def _inference(b: Builder, x: str) -> Made:
    if b.chance(0.3):
        return listed(b.one(b.pick(["Identity", "Dropout"]), [x]))
    channels = b.shape(x)[1] if len(b.shape(x)) > 1 else 0
    variance = b.constant((0.5 + b.rng.random(channels)).astype(np.float32))
    parts = [b.weight(channels), b.weight(channels), b.weight(channels), variance]
    return listed(b.one("BatchNormalization", [x, *parts])) if channels else None


# Several nodes


@recipe("attention")
def _attention(b: Builder, x: str) -> Made:
    v = of_rank(b, x, 3)
    if v is None:
        return None
    _, length, width = b.shape(v)
    heads, size = 2, b.pick([2, 4])
    parts = []
    for _ in range(3):
        made = b.one("MatMul", [v, b.weight(width, heads * size, scale=width**-0.5)])
        if made is not None and b.chance(0.7):
            made = b.one("Add", [made, b.weight(heads * size)])
        made = made and b.one("Reshape", [made, b.integers(0, -1 if b.chance(0.5) else length, heads, size)])
        made = made and b.one("Transpose", [made], perm=[0, 2, 1, 3])
        if not made:
            return None
        parts.append(made)
    keys = b.one("Transpose", [parts[1]], perm=[0, 1, 3, 2])
    scores = keys and b.one("MatMul", [parts[0], keys])
    scores = scores and b.one("Mul", [scores, b.constant(np.float32(size**-0.5))])
    if scores and b.chance(0.4):
        mask = b.constant(np.where(b.rng.random((length, length)) < 0.3, -1e4, 0.0).astype(np.float32))
        scores = b.one("Add", [scores, mask])
    scores = scores and b.one("Softmax", [scores], axis=-1)
    mixed = scores and b.one("MatMul", [scores, parts[2]])
    mixed = mixed and b.one("Transpose", [mixed], perm=[0, 2, 1, 3])
    mixed = mixed and b.one("Reshape", [mixed, b.integers(0, 0, -1)])
    mixed = mixed and b.one("MatMul", [mixed, b.weight(heads * size, width, scale=0.4)])
    return listed(mixed and b.one("Add", [mixed, v])) if mixed else None


@recipe("swish", "gelu", "hard swish")
def _decomposed(b: Builder, x: str) -> Made:
    kind = b.number(0, 3)
    if kind == 0:
        gate = b.one("Sigmoid", [x])
        return None if gate is None else listed(b.one("Mul", [x, gate]))
    if kind == 1:
        scaled = b.one("Div", [x, b.constant(np.float32(2**0.5))])
        erf = scaled and b.one("Erf", [scaled])
        more = erf and b.one("Add", [erf, b.constant(np.float32(1.0))])
        product = more and b.one("Mul", [x, more])
        return listed(b.one("Mul", [product, b.constant(np.float32(0.5))])) if product else None
    if kind == 2 and b.opset >= 11:
        above = b.one("Add", [x, b.constant(np.float32(3.0))])
        clipped = above and b.one("Clip", [above, b.constant(np.float32(0.0)), b.constant(np.float32(6.0))])
        product = clipped and b.one("Mul", [x, clipped])
        below = b.constant(np.full(b.pick([(), (1,), (1, 1, 1)]), 6.0, np.float32))
        return listed(b.one("Div", [product, below])) if product else None
    gate = b.one("HardSigmoid", [x])
    return None if gate is None else listed(b.one("Mul", [gate, x]))


@recipe("float16 part")
def _narrow(b: Builder, x: str) -> Made:
    kind = b.pick([TensorProto.FLOAT16, TensorProto.DOUBLE])
    inside = b.one("Cast", [x], to=kind)
    inside = inside and b.one(b.pick(["Relu", "Neg", "Sigmoid", "Tanh"]), [inside])
    if inside and kind == TensorProto.FLOAT16 and b.chance(0.5):
        other = b.constant(b.rng.standard_normal((b.shape(x)[-1], 4)).astype(np.float16))
        inside = b.one("MatMul", [inside, other])
    return listed(b.one("Cast", [inside], to=TensorProto.FLOAT)) if inside else None


@recipe("unknown")
def _unknown(b: Builder, x: str) -> Made:
    kind = b.number(0, 7)
    if kind == 0:
        return listed(
            b.one(b.pick(["Gelu", "FastGelu", "QuickGelu", "BiasGelu"]), [x], domain="com.microsoft")
        )
    if kind == 1:
        return listed(
            b.one("FusedMatMul", [x, b.weight(b.shape(x)[-1], 5)], domain="com.microsoft", alpha=0.5)
        )
    if kind == 2:
        return listed(b.one("Normalizer", [x], domain="ai.onnx.ml", norm="L2"))
    if kind == 3:
        return listed(b.one(b.pick(["Sign", "Round", "Floor", "Ceil"]), [x]))
    if kind == 4:
        return listed(b.one("Mod", [x, b.constant(np.float32(0.7))], fmod=1))
    if kind == 5:
        rank = len(b.shape(x))
        letters = "abcdef"[:rank]
        return (
            listed(b.one("Einsum", [x, x], equation=f"{letters},{letters}->{letters[:-1]}"))
            if rank > 1
            else None
        )
    if kind == 6:
        size = b.one("Shape", [x])
        value = helper.make_tensor("v", TensorProto.FLOAT, [1], [0.7])
        filled = size and b.one("ConstantOfShape", [size], value=value)
        return listed(b.one("Add", [x, filled])) if filled else None
    index = b.one("ArgMax", [x], axis=-1, keepdims=0)
    values = b.constant(np.array([0.0, 1.0], np.float32))
    depth = b.constant(np.int64(b.shape(x)[-1]))
    return listed(b.one("OneHot", [index, depth, values])) if index else None


# Subgraphs

INSIDE = ["MatMul", "Relu", "Add", "Sigmoid", "Clip", "Gemm", "Conv", "Concat", "MaxPool", "Softmax", "Tanh"]
INSIDE += ["Transpose", "Pad", "Resize", "Split", "attention", "LeakyRelu"]


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


@recipe("Scan")
def _scan(b: Builder, x: str) -> Made:
    shape = b.shape(x)
    if len(shape) < 2:
        return None
    state, part = b.fresh("state"), b.fresh("part")
    first = b.one("ReduceMean", [x], axes=[0], keepdims=0) if b.opset < 18 else None
    if first is None:
        first = b.constant(np.zeros(shape[1:], np.float32))
    inner = _inner(b, {state: b.lookup(first), part: [a[0] for a in b.lookup(x)]})
    inputs = tuple(
        helper.make_tensor_value_info(n, TensorProto.FLOAT, [None] * (len(shape) - 1)) for n in (state, part)
    )
    mixed = inner.one("Add", [state, part])
    mixed = mixed and inner.one("Tanh", [mixed])
    if not mixed:
        return None
    last = _as_constant_shape(b, inner, _grown(b, inner, mixed, b.number(1, 2)))
    if last == mixed:
        last = inner.one("Identity", [mixed]) or mixed
    body = _output(inner, mixed, last, inputs=inputs)
    made = b.add("Scan", [first, x], {"body": body, "num_scan_inputs": 1}, 2)
    return None if made is None else made


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
