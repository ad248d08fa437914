"""What a noise model has besides its copies of the graph: nodes that sum squares, and nodes that round by a
step that follows from the sample alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ...profiles.records.profile import INJECTED
from .mask_fillers import FILLER_DEPTH

MAGIC = {ir.DataType.FLOAT: 1.5 * 2.0**23, ir.DataType.DOUBLE: 1.5 * 2.0**52}
"""Adding and subtracting it rounds to whole numbers, halves to even: the last bit of such numbers is 1. These
are two vectorised operations; onnxruntime's Round takes longer."""

LARGEST = {ir.DataType.FLOAT: 3e38, ir.DataType.DOUBLE: 1e308}
"""A mean square above it has overflowed."""

SMALLEST_STEP = 1e-30
"""Of rounding; a tensor whose mean square vanishes in float32 stays as it is."""

KEEPS_SIZE = ("Add", "Sub", "Mul", "Max", "Where", "Less")
"""Operators of these nodes whose output is as large as the largest of their inputs."""

CHANGED = -1.0
"""What stands for a sum of squares where the shapes differ."""


class NodeMaker:
    """Makes nodes and constants with names of their own.

    Attributes:
        nodes: those made since they were last taken.
        constants: initialisers for the graph.
    """

    def __init__(self, prefix: str) -> None:
        """Begin with nothing; `prefix` begins every name, and no name of the model begins so."""
        self.nodes: list[ir.Node] = []
        self.constants: dict[tuple[str, object], ir.Value] = {}
        self._prefix, self._count = prefix, 0

    def name(self) -> str:
        """Return a name that is not taken."""
        self._count += 1
        return f"{self._prefix}{self._count}"

    def add(
        self, op_type: str, *inputs: ir.Value, dtype: ir.DataType | None = None, **attributes: int
    ) -> ir.Value:
        """Add a node and return its output, of type `dtype` where it has not that of the first input."""
        attrs = [ir.AttrInt64(key, value) for key, value in attributes.items()]
        node = ir.Node("", op_type, inputs, attrs, name=self.name())
        node.outputs[0].name = self.name()
        chosen = inputs[0].dtype if dtype is None else dtype
        if chosen is not None:
            node.outputs[0].dtype = chosen
        self.nodes.append(node)
        return node.outputs[0]

    def number(self, value: float, dtype: ir.DataType) -> ir.Value:
        """Return a constant."""
        key = (dtype.name, value)
        if key not in self.constants:
            self.constants[key] = self.constant(np.asarray(value, dtype.numpy()))
        return self.constants[key]

    def constant(self, array: npt.NDArray[Any]) -> ir.Value:
        """Return an array as an initialiser, which the caller registers."""
        name = self.name()
        tensor = ir.Tensor(array, name=name)
        return ir.Value(
            name=name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(array.shape), const_value=tensor
        )

    def taken(self) -> list[ir.Node]:
        """Return the nodes made since the last call."""
        nodes, self.nodes = self.nodes, []
        return nodes


@dataclass(frozen=True, eq=False)
class FloatValue:
    """An activation of the float copy.

    Attributes:
        value: the tensor.
        ignored: bool, true for the fillers of masks; None where they do not vanish.
        total: the sum of squares, a number.
        count: elements: a number where the shape is declared, else a value of int64.
    """

    value: ir.Value
    ignored: ir.Value | None
    total: ir.Value
    count: ir.Value | int

    @property
    def dtype(self) -> ir.DataType:
        """Element type: float or double."""
        assert self.value.dtype is not None
        return self.value.dtype


def float_value(make: NodeMaker, value: ir.Value, fillers_vanish: bool) -> FloatValue:
    """Add the nodes that measure the signal of an activation."""
    ignored = _fillers(make, value) if fillers_vanish else None
    total = make.add("ReduceSumSquare", _counted(make, value, ignored), keepdims=0)
    known = math.prod(value.shape.numpy()) if value.shape is not None and value.shape.is_static() else 0
    return FloatValue(value, ignored, total, known or make.add("Size", value, dtype=ir.DataType.INT64))


def _fillers(make: NodeMaker, value: ir.Value) -> ir.Value:
    assert value.dtype is not None
    least = make.add("Sub", make.add("ReduceMax", value, keepdims=0), make.number(FILLER_DEPTH, value.dtype))
    return make.add("Less", value, least, dtype=ir.DataType.BOOL)


def _counted(make: NodeMaker, value: ir.Value, ignored: ir.Value | None) -> ir.Value:
    if ignored is None:
        return value
    assert value.dtype is not None
    return make.add("Where", ignored, make.number(0.0, value.dtype), value, dtype=value.dtype)


@dataclass(frozen=True, eq=False)
class RoundingStep:
    """Three numbers: (x * inverse + shift - shift) * step is x rounded; 1, 0 and 1 leave any x as it is."""

    inverse: ir.Value
    shift: ir.Value
    step: ir.Value


def rounding_step(make: NodeMaker, signal: FloatValue) -> RoundingStep:
    """Add the nodes that compute the step whose noise is `INJECTED` times the signal.

    The mean square of rounding to multiples of s is s**2 / 12.
    """
    kind = signal.dtype
    one, none = make.number(1.0, kind), make.number(0.0, kind)
    if isinstance(signal.count, int):
        power = make.add("Mul", signal.total, make.number(12.0 * INJECTED / signal.count, kind))
    else:
        share = make.add("Mul", signal.total, make.number(12.0 * INJECTED, kind))
        power = make.add("Div", share, make.add("Cast", signal.count, dtype=kind, to=int(kind)))
    finite = make.add("Less", power, make.number(LARGEST[kind], kind), dtype=ir.DataType.BOOL)
    wanted = make.add("Max", make.add("Sqrt", power), make.number(SMALLEST_STEP, kind))
    step = make.add("Where", finite, wanted, one, dtype=kind)
    shift = make.add("Where", finite, make.number(MAGIC[kind], kind), none, dtype=kind)
    return RoundingStep(make.add("Reciprocal", step), shift, step)


def rounded(
    make: NodeMaker, value: ir.Value, by: RoundingStep, *, signs: ir.Value | None, fillers_vanish: bool
) -> ir.Value:
    """Add the nodes that round a value.

    Args:
        make: takes the nodes.
        value: to be rounded.
        by: the step.
        signs: half a step of the sign of this stands for what would become 0: the logarithm or inverse of a 0
            that is none in float would leave nothing to be measured after it. None where a 0 does no harm.
        fillers_vanish: a filler stays finite, whose steps are too many for the type: where it is -inf, a row
            of fillers alone is NaN after Softmax.
    """
    dtype = by.step.dtype
    assert dtype is not None
    shifted = make.add("Add", make.add("Mul", value, by.inverse), by.shift)
    steps = make.add("Sub", shifted, by.shift)
    if signs is not None:
        is_zero = make.add("Equal", steps, make.number(0.0, dtype), dtype=ir.DataType.BOOL)
        half = make.add("Mul", make.add("Sign", signs), make.number(0.5, dtype))
        steps = make.add("Where", is_zero, half, steps, dtype=dtype)
    made = make.add("Mul", steps, by.step)
    return make.add("Max", made, make.number(-LARGEST[dtype], dtype)) if fillers_vanish else made


def error_total(make: NodeMaker, value: ir.Value, signal: FloatValue, at_risk: bool) -> ir.Value:
    """Add the nodes that compute the sum of squares of an error; `CHANGED` where the shapes differ.

    Args:
        make: takes the nodes.
        value: of another copy.
        signal: of the float copy.
        at_risk: whether their shapes may differ.
    """
    if not at_risk:
        return _error_total(make, value, signal)
    ours, theirs = (make.add("Shape", v, dtype=ir.DataType.INT64) for v in (signal.value, value))
    equal = make.add("Equal", ours, theirs, dtype=ir.DataType.BOOL)
    whole, truth = ir.DataType.INT64, ir.DataType.BOOL
    numbers = make.add("Cast", equal, dtype=whole, to=int(whole))
    same = make.add("Cast", make.add("ReduceMin", numbers, keepdims=0), dtype=truth, to=int(truth))
    outer, make.nodes = make.nodes, []
    total = _error_total(make, value, signal)
    then = ir.Graph([], [total], nodes=make.taken(), name=make.name())
    constant = ir.Node(
        "",
        "Constant",
        [],
        [ir.AttrTensor("value", ir.Tensor(np.asarray(CHANGED, signal.dtype.numpy())))],
        name=make.name(),
    )
    constant.outputs[0].name, constant.outputs[0].dtype = make.name(), signal.dtype
    otherwise = ir.Graph([], constant.outputs, nodes=[constant], name=make.name())
    make.nodes = outer
    branches = [ir.AttrGraph("then_branch", then), ir.AttrGraph("else_branch", otherwise)]
    node = ir.Node("", "If", [same], branches, name=make.name())
    node.outputs[0].name, node.outputs[0].dtype = make.name(), signal.dtype
    make.nodes.append(node)
    return node.outputs[0]


def _error_total(make: NodeMaker, value: ir.Value, signal: FloatValue) -> ir.Value:
    error = make.add("Sub", value, signal.value)
    return make.add("ReduceSumSquare", _counted(make, error, signal.ignored), keepdims=0)
