"""The replacement of a decomposed node: nodes and constants in front of it, and their results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ..model.editing import add_initializer, free_name, has_input


class Replacement:
    """Puts nodes and constants in front of the node that they stand for."""

    def __init__(self, node: ir.Node, taken: set[str], opset: int) -> None:
        """Begin with nothing; `taken` are the names that there are, `opset` that of the default domain."""
        assert node.graph is not None
        self.node, self.opset, self._graph, self._taken = node, opset, node.graph, taken

    def input(self, index: int) -> ir.Value | None:
        """Return an input, or None if it is left out."""
        return self.node.inputs[index] if has_input(self.node, index) else None

    def add(
        self,
        op_type: str,
        *inputs: ir.Value | None,
        domain: str = "",
        outputs: int = 1,
        dtype: ir.DataType | None = None,
        attributes: Sequence[ir.Attr | None] = (),
        **further: int | float | str | Sequence[int],
    ) -> tuple[ir.Value, ...]:
        """Add a node; return its outputs, of the type of the node's first unless another is named."""
        name, kind = self.node.outputs[0].name, self.node.outputs[0].type
        given = {attribute.name: attribute for attribute in attributes if attribute is not None}
        node = ir.node(op_type, inputs, {**given, **further}, domain=domain, num_outputs=outputs)
        node.name = free_name(f"{self.node.name}_{op_type}", self._taken)
        for output in node.outputs:
            output.name = free_name(f"{name}_{op_type}", self._taken)
            output.type = kind if dtype is None else ir.TensorType(dtype)
        self._graph.insert_before(self.node, node)
        return tuple(node.outputs)

    def one(self, op_type: str, *inputs: ir.Value | None, **settings: Any) -> ir.Value:
        """Add a node with one output, and return it; see `add`."""
        return self.add(op_type, *inputs, **settings)[0]

    def constant(self, array: npt.NDArray[np.generic]) -> ir.Value:
        """Return a new constant."""
        return add_initializer(self._graph, free_name(f"{self.node.name}_constant", self._taken), array)

    def integers(self, *numbers: int) -> ir.Value:
        """Return a new constant, a vector of int64."""
        return self.constant(np.array(numbers, np.int64))

    def number(self, number: float) -> ir.Value:
        """Return a constant number of the type that the node computes in."""
        dtype = self.node.outputs[0].dtype or ir.DataType.FLOAT
        return self.constant(np.array(number, dtype.numpy()))

    def attribute(self, name: str, default: ir.Attr | None = None) -> ir.Attr | None:
        """Return an attribute of the node, or the default."""
        return self.node.attributes.get(name, default)


Results = Sequence[ir.Value]
"""Replacements of a node's outputs; empty if it must stay."""
