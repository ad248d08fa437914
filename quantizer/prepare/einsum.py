"""Einsum is written as MatMul, with Transpose and Reshape around it, or as Mul, ReduceSum and Transpose.

An index of a product of two operands is of one of four kinds: it is in both and the result (a stack of
matrices), in the left or in the right and the result (rows, columns), or in both alone (summed). An index of
one operand alone is summed first. All rows but the last stand before the stack, where MatMul broadcasts, so
that no size needs to be known; so do all columns but the last, unless they are one axis of known size. More
than two operands are multiplied from left to right, as onnxruntime does it.
"""

from __future__ import annotations

import math
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import onnx_ir as ir

from ..model.editing import rank
from ..model.graph import is_constant
from .replacement import Replacement, Results

NONE = "."
"""In place of an index: an axis of size 1 that MatMul needs."""


@dataclass(frozen=True)
class Operand:
    """A factor: a tensor and the index of each of its axes."""

    value: ir.Value
    indices: str


Equation: TypeAlias = tuple[Sequence[str], str, Mapping[str, int]]
"""The indices of each operand and of the result, "..." replaced, and index -> its size where it is known."""


def einsum(new: Replacement) -> Results:
    """Return the result of an Einsum; none for a diagonal, or an equation that cannot be read."""
    values = [value for value in new.node.inputs if value is not None]
    equation = _equation(new.node.attributes.get_string("equation", "") or "", values)
    if equation is None:
        return ()
    terms, result, sizes = equation
    factors = [Operand(value, term) for value, term in zip(values, terms, strict=True)]
    product = factors[0]
    for place, factor in enumerate(factors[1:], 2):
        later = "".join([result, *terms[place:]])
        product = _product(new, product, factor, later, sizes)
    value = _ordered(new, _summed(new, product, result), result)
    return (new.one("Identity", value) if value in values else value,)


def _equation(text: str, values: Sequence[ir.Value]) -> Equation | None:
    """Read an equation, or return None if it is not one of products and sums of tensors of these ranks."""
    left, arrow, result = text.replace(" ", "").partition("->")
    terms = left.split(",")
    letters = left.replace(",", "").replace("...", "")
    if len(terms) != len(values) or not set(letters) <= set(string.ascii_letters):
        return None
    # Axes that "..." stands for are the same index counted from the last one.
    free = [letter for letter in string.ascii_letters if letter not in letters]
    spelled = []
    for term, value in zip(terms, values, strict=True):
        dims, named = rank(value), len(term.replace("...", ""))
        if dims is None and "..." in term:
            return None
        count = 0 if dims is None else dims - named
        if not 0 <= count <= len(free) or (count and "..." not in term):
            return None
        spelled.append(term.replace("...", "".join(free[:count][::-1])))
    rest = "".join(letter for letter in reversed(free) if any(letter in term for term in spelled))
    if not arrow:
        if letters not in (letters.lower(), letters.upper()):
            return None  # numpy and onnxruntime do not agree which comes first
        result = "..." + "".join(sorted(letter for letter in letters if letters.count(letter) == 1))
    if rest and "..." not in result:
        return None
    result = result.replace("...", rest)
    is_diagonal = any(len(set(term)) < len(term) for term in (*spelled, result))
    sizes = _sizes(spelled, values, result)
    return None if is_diagonal or sizes is None else (spelled, result, sizes)


def _sizes(terms: Sequence[str], values: Sequence[ir.Value], result: str) -> dict[str, int] | None:
    """Return the known sizes of indices, or None if size 1 meets another without broadcasting."""
    sizes: dict[str, int] = {}
    for term, value in zip(terms, values, strict=True):
        for letter, dim in zip(term, value.shape or (), strict=False):
            if isinstance(dim, int) and sizes.setdefault(letter, dim) != dim:
                if len(terms) > 2 or letter not in result:
                    return None
                sizes[letter] = max(sizes[letter], dim)
    return sizes


def _product(
    new: Replacement, left: Operand, right: Operand, later: str, sizes: Mapping[str, int]
) -> Operand:
    """Multiply two factors, and add up the indices that are not read later."""
    left, right = _summed(new, left, later + right.indices), _summed(new, right, later + left.indices)
    if is_constant(left.value) and not is_constant(right.value):
        left, right = right, left
    own = dict.fromkeys(left.indices + right.indices)
    summed = "".join(letter for letter in own if letter not in later)
    order = "".join(letter for letter in dict.fromkeys(later) if letter in own)
    if not summed:
        factors = (_ordered(new, factor, order) for factor in (left, right))
        return Operand(new.one("Mul", *factors), order)
    stack = "".join(letter for letter in order if letter in left.indices and letter in right.indices)
    rows = "".join(letter for letter in order if letter not in right.indices)
    columns = "".join(letter for letter in order if letter not in left.indices)
    outer, last = columns[:-1], columns[-1:]
    joined = [sizes[letter] for letter in columns if letter in sizes]
    if len(joined) == len(columns):  # one axis is made of them
        outer, last = "", columns
    inner = [sizes.get(letter, 0) for letter in summed]
    size = math.prod(inner) if all(inner) else -1

    before = rows[:-1] + NONE * len(outer) + stack
    a = _ordered(new, left, before + (rows[-1:] or NONE) + summed)
    if len(summed) > 1:
        a = new.one("Reshape", a, new.integers(*[0] * (len(before) + 1), size))
    b = _ordered(new, right, outer + stack + (last or NONE) + summed)
    if len(summed) > 1 or len(last) > 1:
        width = math.prod(joined) if len(last) > 1 else 0
        b = new.one("Reshape", b, new.integers(*[0] * len(outer + stack), width, size))
    swapped = [*range(len(outer + stack)), len(outer + stack) + 1, len(outer + stack)]
    b = new.one("Transpose", b, perm=swapped)

    value = new.one("MatMul", a, b)
    indices = rows[:-1] + outer + stack + (rows[-1:] or NONE) + (last or NONE)
    if len(last) > 1:
        value = new.one("Reshape", value, new.integers(*[0] * (len(indices) - len(last)), *joined))
    lone = [axis for axis, letter in enumerate(indices) if letter == NONE]
    if lone:
        value = new.one("Squeeze", value, new.integers(*lone))
    return Operand(value, indices.replace(NONE, ""))


def _summed(new: Replacement, factor: Operand, kept: str) -> Operand:
    """Add up a factor along the indices that are not kept."""
    lone = [axis for axis, letter in enumerate(factor.indices) if letter not in kept]
    if not lone:
        return factor
    value = new.one("ReduceSum", factor.value, new.integers(*lone), keepdims=0)
    return Operand(value, "".join(letter for letter in factor.indices if letter in kept))


def _ordered(new: Replacement, factor: Operand, indices: str) -> ir.Value:
    """Return a factor with its axes in an order; those that it does not have are new, of size 1."""
    order = [factor.indices.index(letter) for letter in indices if letter in factor.indices]
    value = factor.value
    if order != sorted(order):
        value = new.one("Transpose", value, perm=order)
    missing = [axis for axis, letter in enumerate(indices) if letter not in factor.indices]
    return new.one("Unsqueeze", value, new.integers(*missing)) if missing else value
