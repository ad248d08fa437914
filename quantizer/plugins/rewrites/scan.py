"""GRU and RNN written as a Scan over the steps.

onnxruntime has an operator with quantized weights only for LSTM. So GRU and RNN are decomposed into products
with a weight, which are dynamic like any other, and float operators between them. The columns of weights and
products are the gates update, reset, new state (GRU), or only the new state.

1. One MatMul with the input serves all steps and directions, with the first half of the bias.
2. A Scan takes the steps. Its body multiplies the state, adds the second half of the bias, and applies the
   functions of the gates. A GRU with `linear_before_reset` 0 multiplies twice, as its reset gate comes first.
3. Both directions of a bidirectional node take their steps together: all but the products is computed once
   for both. What a reverse direction reads is put into reverse order before the Scan, its states after it.

A single step needs no Scan. Tensors have the axes [steps, directions, batch, columns], those of one step
[directions, batch, columns], so that the results of the Scan are those of the node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ....profiles.base.errors import PlanError
from ...lowering.replacement import Replacement, Shape
from ...model.graph import constant_of, name_of
from ...numerics.affine import QuantParams
from ...operators.graph import Node
from ...plan.plan import Kind, NodePlan, QuantPlan

Array = npt.NDArray[Any]
GATES_AXIS = 1
"""Axis of the gates in the standard weights, [directions, gates * hidden, inputs]."""

FUNCTIONS: Mapping[str, tuple[str, ...]] = {"GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}
"""Operator to its functions: of the gates, and of the new state."""

LENGTHS = 4
"""The input with the length of each sequence."""


def scan_refusal(node: Node, _: bool) -> str:
    """Return why a GRU or RNN is not written as a Scan, or ""."""
    if node.input(3) and not node.has_constant(3):
        return f"the bias of {node.op_type} is not a constant"
    if node.input(LENGTHS):
        return f"{node.op_type} with lengths of sequences has no integer form"
    return _refused_attributes(node.ir_node)


def _refused_attributes(node: ir.Node) -> str:
    names = [name.lower() for name in node.attributes.get_strings("activations", ()) or ()]
    functions = [name.lower() for name in FUNCTIONS[node.op_type]]
    if names and names != functions * len(_directions_of(node)):
        return f"{node.op_type} with activations {', '.join(names)} has no integer form"
    clip = node.attributes.get_float("clip", 0.0)
    return f"{node.op_type} with clip={clip:g} has no integer form" if clip else ""


def _directions_of(node: ir.Node) -> tuple[bool, ...]:
    """Return for each direction of a recurrent node whether it starts at the last step."""
    direction = node.attributes.get_string("direction", "forward")
    return (False, True) if direction == "bidirectional" else (direction == "reverse",)


@dataclass(frozen=True, eq=False)
class _Product:
    """A weight [inputs, columns] that multiplies values, and a bias (columns,) of the products."""

    weight: Array
    params: QuantParams
    bias: Array

    @property
    def columns(self) -> int:
        """How many there are."""
        return int(self.weight.shape[1])

    def part(self, start: int, end: int) -> _Product:
        """Return the product of some columns only."""
        params = self.params
        if params.axis is not None:
            points = params.zero_point[start:end]
            params = QuantParams(params.scale[start:end], points, params.qtype, params.axis)
        return _Product(self.weight[:, start:end], params, self.bias[start:end])


@dataclass(frozen=True, eq=False)
class _Cell:
    """A recurrent node as products."""

    hidden: int  # elements of the state
    read: _Product  # the product with the input, the columns of all directions side by side
    returned: tuple[_Product, ...]  # the product with the state, of each direction
    is_reverse: tuple[bool, ...]  # whether each direction starts at the last step
    functions: tuple[str, ...]  # of the gates (GRU), and of the new state
    reset_after: bool  # `linear_before_reset` of a GRU: the reset gate multiplies the product

    @property
    def directions(self) -> int:
        """How many there are."""
        return len(self.is_reverse)

    @property
    def columns(self) -> int:
        """Columns of the product with the state, of one direction."""
        return self.returned[0].columns

    @property
    def has_gates(self) -> bool:
        """Whether it is a GRU."""
        return self.columns > self.hidden

    @property
    def parts(self) -> tuple[int, ...]:
        """Columns of the parts of the input product that a step reads: gates, and new state."""
        return (2 * self.hidden, self.hidden) if self.has_gates else (self.hidden,)


def _cell_of(node: ir.Node, plan: QuantPlan) -> _Cell:
    """Return the products of a recurrent node; raise PlanError if it cannot be written so."""
    arrays, params = [], []
    for index in (1, 2):
        value = node.inputs[index]
        array = None if value is None else constant_of(value)
        own = None if value is None else plan.params_read(name_of(node), index, name_of(value))
        fits = own is not None and own.axis in (None, GATES_AXIS) and own.block_size is None
        if array is not None and own is not None and fits:
            arrays.append(array)
            params.append(own)
    bias = node.inputs[3] if len(node.inputs) > 3 else None
    biases = np.zeros(0, np.float32) if bias is None else constant_of(bias)
    is_usual = node.op_type in FUNCTIONS and not (
        node.attributes.get_int("layout", 0) or any(node.inputs[LENGTHS:][:1]) or _refused_attributes(node)
    )
    if len(arrays) < 2 or biases is None or not is_usual:
        raise PlanError(
            f"node '{node.name}' ({node.op_type}): a scan is for GRU and RNN with layout 0, their usual "
            f"functions, and quantized weights with one scale or one along axis {GATES_AXIS}; change this "
            "node in the plan"
        )
    (w, r), (w_params, r_params), directions = arrays, params, _directions_of(node)
    halves = (
        biases.reshape(len(directions), 2, -1) if biases.size else np.zeros((*r.shape[:1], 2, r.shape[1]))
    )
    halves = halves.astype(np.float32)
    read = _Product(
        w.reshape(-1, w.shape[2]).T, _along_columns(w_params, len(directions)), halves[:, 0].reshape(-1)
    )
    returned = (_Product(r[d].T, _along_columns(r_params, 1), halves[d, 1]) for d in range(len(directions)))
    return _Cell(
        r.shape[2],
        read,
        tuple(returned),
        directions,
        FUNCTIONS[node.op_type],
        node.attributes.get_int("linear_before_reset", 0) != 0,
    )


def _along_columns(params: QuantParams, repeats: int) -> QuantParams:
    """Return the parameters of a weight as a matrix [inputs, columns], its columns repeated."""
    if params.axis is None:
        return params
    points = np.tile(params.zero_point, repeats)
    return QuantParams(np.tile(params.scale, repeats), points, params.qtype, 1)


class _Written(Replacement):
    """The nodes written for one, and operators among them."""

    def integers(self, *numbers: int) -> ir.Value:
        """Return an initialiser of int64."""
        return self.constant("numbers", np.array(numbers, np.int64))

    def product(self, values: ir.Value, product: _Product, shape: Shape) -> ir.Value:
        """Add a dynamic product with a weight, of a shape."""
        weight = self.constant("weight", product.weight)
        self.tensors[name_of(weight)] = product.params
        (result,) = self.add_node("MatMul", [values, weight], [shape], entry=NodePlan(Kind.DYNAMIC))
        if product.bias.any():
            bias = self.constant("bias", product.bias)
            (result,) = self.add_node("Add", [result, bias], [shape])
        return result

    def split(self, value: ir.Value, sizes: Sequence[int], axis: int) -> tuple[ir.Value, ...]:
        """Add a Split along an axis; none for a single part."""
        if len(sizes) == 1:
            return (value,)
        shapes = []
        for size in sizes:
            shape = list(_sizes(value))
            shape[axis] = size
            shapes.append(shape)
        return self.add_node("Split", [value, self.integers(*sizes)], shapes, {"axis": axis})

    def joined(self, values: Sequence[ir.Value], axis: int) -> ir.Value:
        """Add a Concat along an axis; none for a single tensor."""
        if len(values) == 1:
            return values[0]
        shape = list(_sizes(values[0]))
        sizes = [_sizes(value)[axis] for value in values]
        shape[axis] = None if None in sizes else sum(size or 0 for size in sizes)
        (result,) = self.add_node("Concat", values, [shape], {"axis": axis})
        return result

    def elementwise(self, op_type: str, *values: ir.Value) -> ir.Value:
        """Add an operator whose result has the shape of its last input."""
        (result,) = self.add_node(op_type, values, [_sizes(values[-1])])
        return result

    def view(self, op_type: str, value: ir.Value, axis: int) -> ir.Value:
        """Add a Squeeze or an Unsqueeze of an axis."""
        shape = list(_sizes(value))
        if op_type == "Squeeze":
            del shape[axis]
        else:
            shape.insert(axis, 1)
        (result,) = self.add_node(op_type, [value, self.integers(axis)], [shape])
        return result


def _sizes(value: ir.Value) -> tuple[int | None, ...]:
    assert value.shape is not None
    return tuple(size if isinstance(size, int) else None for size in value.shape)


def _reversed(written: _Written, value: ir.Value) -> ir.Value:
    """Return [steps, batch, columns] with the steps in reverse order."""
    ends = written.integers(np.iinfo(np.int64).min)
    last, steps = written.integers(-1), written.integers(0)
    return written.add_node("Slice", [value, last, ends, steps, last], [_sizes(value)])[0]


def _first_state(written: _Written, x: ir.Value, cell: _Cell, batch: int | None) -> ir.Value:
    """Return the state before the first step, zeros [directions, batch, hidden]."""
    directions, hidden = cell.directions, cell.hidden
    zeros = written.constant("zeros", np.zeros((directions, batch or 1, hidden), np.float32))
    if batch is not None:
        return zeros
    whole = ir.DataType.INT64
    (shape,) = written.add_node("Shape", [x], [(3,)], dtype=whole)
    (count,) = written.add_node("Gather", [shape, written.integers(1)], [(1,)], {"axis": 0}, dtype=whole)
    sizes = [written.integers(directions), count, written.integers(hidden)]
    (wanted,) = written.add_node("Concat", sizes, [(3,)], {"axis": 0}, dtype=whole)
    return written.add_node("Expand", [zeros, wanted], [(directions, None, hidden)])[0]


def write_scan(replacement: Replacement) -> None:
    """Write one node, which is removed; raise PlanError if it cannot be written so."""
    node = replacement.node
    written = _Written(**vars(replacement))
    cell = _cell_of(node, replacement.plan)
    x, initial = (node.inputs[i] if i < len(node.inputs) else None for i in (0, 5))
    assert x is not None
    count, batch = (None, None) if x.shape is None else _sizes(x)[:2]
    every, last = _read_outputs(node)

    # What each step reads: the product with the input, in the order of the steps.
    product = written.product(x, cell.read, (count, batch, cell.read.columns))
    products = written.split(product, (cell.columns,) * cell.directions, 2)
    ordered = (
        _reversed(written, product) if is_reverse else product
        for product, is_reverse in zip(products, cell.is_reverse, strict=True)
    )
    read = written.joined([written.view("Unsqueeze", product, 1) for product in ordered], 1)
    reads = written.split(read, cell.parts, 3)
    first = _first_state(written, x, cell, batch) if initial is None else initial

    if count == 1:
        state = _step(written, cell, first, [written.view("Squeeze", value, 0) for value in reads])
        states = None if every is None else written.view("Unsqueeze", state, 0)
    else:
        state, states = _scan(written, cell, first, reads, gives_all=every is not None)

    if every is not None and states is not None:
        _replace(every, _in_order(written, states, cell))
    if last is not None:
        _replace(last, state)
    written.graph.remove(node, safe=True)


def _read_outputs(node: ir.Node) -> tuple[ir.Value | None, ir.Value | None]:
    """Return the states of all steps, and the last one; None for one that nothing reads."""
    first, second = (*node.outputs, None)[:2]
    read = (value is not None and (value.uses() or value.is_graph_output()) for value in (first, second))
    every, last = (value if is_read else None for value, is_read in zip((first, second), read, strict=True))
    return every, last


def _replace(old: ir.Value, new: ir.Value) -> None:
    """Put a tensor in the place of another, under its name."""
    old.replace_all_uses_with(new, replace_graph_outputs=True)
    old.name, new.name, new.type = None, old.name, old.type
    new.shape = old.shape or new.shape


def _in_order(written: _Written, states: ir.Value, cell: _Cell) -> ir.Value:
    """Return the states of all steps, [steps, directions, batch, hidden], as the node gives them."""
    if not any(cell.is_reverse):
        return states
    parts = [
        written.view("Unsqueeze", _reversed(written, written.view("Squeeze", part, 1)), 1)
        if is_reverse
        else part
        for part, is_reverse in zip(
            written.split(states, (1,) * cell.directions, 1), cell.is_reverse, strict=True
        )
    ]
    return written.joined(parts, 1)


def _scan(
    written: _Written, cell: _Cell, first: ir.Value, reads: Sequence[ir.Value], *, gives_all: bool
) -> tuple[ir.Value, ir.Value | None]:
    """Add a Scan over the steps; return the state after the last one, and those of all steps."""
    state = written.value(f"{name_of(written.node)}_state", _sizes(first))
    read = [written.value(f"{name_of(written.node)}_read", _sizes(value)[1:]) for value in reads]
    body = ir.Graph([state, *read], [], nodes=[], name=f"{name_of(written.node)}_step")
    inside = replace(written, graph=body, is_inside=True)
    new = _step(inside, cell, state, read)
    shapes = [_sizes(first)]
    body.outputs.append(new)
    if gives_all:  # onnxruntime gives wrong states where one tensor is both
        body.outputs.append(inside.elementwise("Identity", new))
        shapes.append((_sizes(reads[0])[0], *_sizes(first)))
    attributes = {"body": ir.AttrGraph("body", body), "num_scan_inputs": len(reads)}
    outputs = written.add_node("Scan", [first, *reads], shapes, attributes)
    return outputs[0], outputs[1] if gives_all else None


def _step(written: _Written, cell: _Cell, state: ir.Value, read: Sequence[ir.Value]) -> ir.Value:
    """Add one step that reads parts of the input product; return the state [directions, batch, hidden]."""
    hidden = cell.hidden
    if not cell.has_gates:
        sums = written.elementwise("Add", read[0], _returned(written, cell, state, 0, hidden))
        new = _applied(written, cell, 0, sums)
    else:
        end = 3 * hidden if cell.reset_after else 2 * hidden
        returned = _returned(written, cell, state, 0, end)
        returned, *rest = written.split(returned, (2 * hidden, hidden)[: end // hidden - 1], 2)
        gates = _applied(written, cell, 0, written.elementwise("Add", read[0], returned))
        update, reset = written.split(gates, (hidden, hidden), 2)
        if rest:
            kept = written.elementwise("Mul", reset, rest[0])
        else:
            kept = _returned(written, cell, written.elementwise("Mul", reset, state), end, 3 * hidden)
        found = _applied(written, cell, 1, written.elementwise("Add", read[1], kept))
        change = written.elementwise("Mul", update, written.elementwise("Sub", state, found))
        new = written.elementwise("Add", change, found)
    return new


def _returned(written: _Written, cell: _Cell, values: ir.Value, start: int, end: int) -> ir.Value:
    """Add the product of [directions, batch, hidden] with some columns of the weight of the state."""
    products = [
        written.product(part, product.part(start, end), (1, _sizes(values)[1], end - start))
        for part, product in zip(written.split(values, (1,) * cell.directions, 0), cell.returned, strict=True)
    ]
    return written.joined(products, 0)


def _applied(written: _Written, cell: _Cell, index: int, sums: ir.Value) -> ir.Value:
    """Add one of the functions of the cell."""
    return written.elementwise(cell.functions[index], sums)
