"""Einsum of two tensors written as MatMul, with Transpose and Reshape around it.

An index has one of four kinds: it is in both operands and the result (a stack of matrices), in one operand
and the result (rows, columns), or only in both operands (summed). With a stack there is one index each of
rows, columns and sums, as in attention; without a stack there may be several, as in a layer whose weight has
more axes.
"""

from __future__ import annotations

import math

import onnx_ir as ir

from ..model.editing import static_shape
from ..model.graph import is_constant
from .replacement import Replacement, Results


def einsum(new: Replacement) -> Results:
    """Return the result of an Einsum; none for other equations, which stay."""
    left, _, result = (new.node.attributes.get_string("equation", "") or "").replace(" ", "").partition("->")
    operands = list(zip(left.split(","), map(new.input, range(len(new.node.inputs))), strict=False))
    if len(operands) != 2 or len(new.node.inputs) != 2:
        return ()
    if is_constant(operands[0][1]) and not is_constant(operands[1][1]):
        operands.reverse()  # a weight is on the right
    (mine, x), (its, w) = operands
    is_diagonal = any(len(set(term)) < len(term) for term in (mine, its, result))
    if x is None or w is None or is_diagonal or not (mine + its).isalpha():
        return ()
    stack = "".join(letter for letter in mine if letter in its and letter in result)
    rows = "".join(letter for letter in mine if letter not in its)
    columns = "".join(letter for letter in its if letter not in mine)
    summed = "".join(letter for letter in mine if letter in its and letter not in result)
    if not summed or set(stack + rows + columns) != set(result):
        return ()
    if stack and not len(rows) == len(columns) == len(summed) == 1:
        return ()
    is_matrix = len(summed) == len(columns) == 1
    shapes = [dict(zip(term, value.shape or (), strict=False)) for term, value in ((mine, x), (its, w))]
    known = [(shapes[0].get(letter), shapes[1].get(letter)) for letter in summed]
    if any(isinstance(n, int) and isinstance(m, int) and n != m for n, m in known):
        return ()  # one of them is repeated
    if not is_matrix and static_shape(w) is None:
        return ()
    size = {letter: dim for letter, dim in shapes[1].items() if isinstance(dim, int)}
    depth = math.prod(size[letter] for letter in summed) if not is_matrix else 0

    a, b = _ordered(new, x, mine, stack + rows + summed), _ordered(new, w, its, stack + summed + columns)
    if len(summed) > 1:
        a = new.one("Reshape", a, new.integers(*[0] * len(rows), depth))
    if not is_matrix:
        b = new.one("Reshape", b, new.integers(depth, math.prod(size[letter] for letter in columns)))
    value = new.one("MatMul", a, b)
    if len(columns) != 1:
        value = new.one("Reshape", value, new.integers(*[0] * len(rows), *(size[one] for one in columns)))
    return (_ordered(new, value, stack + rows + columns, result),)


def _ordered(new: Replacement, value: ir.Value, indices: str, wanted: str) -> ir.Value:
    """Return a tensor with its axes in another order."""
    order = [indices.index(letter) for letter in wanted]
    return value if order == sorted(order) else new.one("Transpose", value, perm=order)
