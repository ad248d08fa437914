"""The functions of the gates of GRU and RNN, and which of them can be written as operators of their own."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from ...operators.graph import Node

DEFAULT_FUNCTIONS: Mapping[str, tuple[str, ...]] = {"GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}
"""Operator -> the functions of one direction where the node names none: of gates, and of the new state."""

_OPERATORS: Mapping[str, Mapping[str, float]] = {
    "Sigmoid": {},
    "Tanh": {},
    "Relu": {},
    "Softsign": {},
    "Softplus": {},
    "LeakyRelu": {"alpha": 0.01},
    "ThresholdedRelu": {"alpha": 1.0},
    "Elu": {"alpha": 1.0},
    "HardSigmoid": {"alpha": 0.2, "beta": 0.5},
}
"""Functions that are an operator by the same name -> its attributes, with their defaults."""


CellFunction = tuple[str, Mapping[str, float]]
"""A function of a gate, as an operator and its attributes."""


def directions_of(node: ir.Node | Node) -> tuple[bool, ...]:
    """Return for each direction of a recurrent node whether it starts at the last step."""
    direction = node.attributes.get_string("direction", "forward")
    return (False, True) if direction == "bidirectional" else (direction == "reverse",)


def cell_functions(node: ir.Node | Node) -> tuple[CellFunction, ...] | None:
    """Return the functions of a GRU or RNN; None if they differ by direction, or one has no operator.

    Names are read in any case, and each function takes the next of `activation_alpha` and `activation_beta`
    that it has as an attribute, as in onnxruntime.
    """
    usual, directions = DEFAULT_FUNCTIONS[node.op_type], len(directions_of(node))
    names = tuple(node.attributes.get_strings("activations", ()) or usual * directions)
    given = {
        "alpha": list(node.attributes.get_floats("activation_alpha", ()) or ()),
        "beta": list(node.attributes.get_floats("activation_beta", ()) or ()),
    }
    operators = {name.lower(): name for name in _OPERATORS}
    functions = []
    for name in names:
        operator = operators.get(name.lower())
        if operator is None:
            return None
        attributes = {
            key: given[key].pop(0) if given[key] else usual for key, usual in _OPERATORS[operator].items()
        }
        functions.append((operator, attributes))
    each = len(usual)
    first, *others = (tuple(functions[start : start + each]) for start in range(0, len(functions), each))
    return first if len(first) == each and all(other == first for other in others) else None


def cell_refusal(node: Node, _: bool) -> str:
    """Return why a GRU or RNN is not written as a Scan, or ""."""
    if node.input(3) and not node.has_constant(3):
        return f"the bias of {node.op_type} is not a constant"
    names = ", ".join(node.attributes.get_strings("activations", ()) or ())
    return "" if cell_functions(node) else f"{node.op_type} with activations {names} has no integer form"
