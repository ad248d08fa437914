"""What is known of a quantized model while its conversions are taken out."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ...model.editing import add_initializer, free_name
from ...numerics.affine import QuantParams, dequantize
from ...operators.table import Constraint

Array = npt.NDArray[Any]
Read = QuantParams | None
"""Parameters in which a node reads an input; None for those that are computed at run time."""

MOVES = (Constraint.SAME, Constraint.CLAMP, Constraint.ALL_SAME)
"""What operators directly on integers do: the result has the parameters of what is read."""


@dataclass(frozen=True)
class StoredConstant:
    """A constant as the source stores it.

    Attributes:
        integers: its values.
        params: their parameters.
        is_packed: whether an operator of a runtime's own holds it.
    """

    integers: Array
    params: QuantParams
    is_packed: bool = False

    def transposed(self) -> StoredConstant:
        """Return the constant, a matrix, with its axes exchanged."""
        axis, block = self.params.axis, self.params.block_size
        if axis is None:
            return replace(self, integers=self.integers.T)
        params = replace(self.params, axis=1 - axis)
        if block is not None:
            counts = list(self.integers.shape)
            counts[axis] = -(-counts[axis] // block)
            scales = np.asarray(params.scale).reshape(counts).T
            points = np.asarray(params.zero_point, np.int64).reshape(counts).T
            flat = tuple(scales.reshape(-1).tolist()), tuple(points.reshape(-1).tolist())
            params = replace(params, scale=flat[0], zero_point=flat[1])
        return replace(self, integers=self.integers.T, params=params)


def digest_of(array: Array) -> str:
    """Return what tells the float values of constants apart."""
    floats = np.ascontiguousarray(array, np.float32) + np.float32(0.0)  # -0.0 is 0.0
    return hashlib.sha256(repr(floats.shape).encode() + floats.tobytes()).hexdigest()


@dataclass(frozen=True)
class Form:
    """What a tensor of the source is a form of: a float tensor, rounded."""

    value: ir.Value
    params: Read


@dataclass
class Walk:
    """What is known of the source so far."""

    model: ir.Model
    taken: set[str]
    integers: dict[ir.Value, Form] = field(default_factory=dict)
    floats: dict[ir.Value, Form] = field(default_factory=dict)
    scales: set[ir.Value] = field(default_factory=set)
    stored: dict[ir.Value, list[QuantParams]] = field(default_factory=dict)
    reads: list[tuple[ir.Node, ir.Value, Read]] = field(default_factory=list)
    constants: dict[str, StoredConstant] = field(default_factory=dict)
    names: list[tuple[str, ir.Value]] = field(default_factory=list)
    implementations: dict[ir.Node, str] = field(default_factory=dict)
    tanhs: set[ir.Node] = field(default_factory=set)
    unread: Counter[str] = field(default_factory=Counter)

    def source(self, value: ir.Value) -> ir.Value:
        """Return the float tensor that a float value stands for."""
        return self.floats[value].value if value in self.floats else value

    def store(self, value: ir.Value, params: QuantParams) -> None:
        """Note that a tensor is quantized."""
        found = self.stored.setdefault(value, [])
        if params not in found:
            found.append(params)

    def constant(
        self, name: str, integers: Array, params: QuantParams, *, is_packed: bool = False
    ) -> ir.Value:
        """Return a new float constant for one that is stored as integers."""
        array = dequantize(integers, params)
        self.constants.setdefault(digest_of(array), StoredConstant(integers, params, is_packed))
        return add_initializer(self.model.graph, free_name(f"{name}_float", self.taken), array)

    def read_floats(self, node: ir.Node) -> None:
        """Let a node read the float tensors themselves; how it read them is noted."""
        for index, value in enumerate(node.inputs):
            if value is None or value not in self.floats:
                continue
            form = self.floats[value]
            self.reads.append((node, form.value, form.params))
            node.replace_input_with(index, form.value)
