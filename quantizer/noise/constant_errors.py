"""Tensors that bear no constant error, though it is small beside their mean: a logarithm reads them. Pure.

Rounding a weight makes an error e of a result y that is small if y is small: e is about r y, with a mean of r
m if the mean of y is m. Bias correction subtracts the mean and leaves r (y - m), so quiet samples get an
error of -r m. A sum of squares may then be below 0, and its logarithm or root NaN; a divisor may change the
sign of the quotient, and the quotient is only error. If a square keeps the value on its side of 0, the
following operators see the error relative to y. The correction reduces that if the mean of (1 - m / y)^2 is
less than 1, that is, if m mean(1 / y^2) < 2 mean(1 / y): if the values are similar.
"""

from __future__ import annotations

import numpy as np

from ...profiles.base.errors import PlanError
from ...profiles.records.profile import Profile, TensorProfile
from ..numerics.density import density, mean_of
from ..operators.facts import Arithmetic, KernelSizes, Values
from ..operators.functions import chain_nodes, function_of
from ..operators.graph import Graph, Node, node_view
from ..operators.noise_gains import octaves_near_zero
from ..operators.table import Constraint, is_clip
from .value_paths import maker_of


def without_constant_errors(graph: Graph, profile: Profile, opset: int) -> frozenset[str]:
    """Return the tensors of the main graph that tolerate no added constant, not even a small one."""
    strict, relative = set[str](), set[str]()
    parts = (node_view(part) for node in graph.nodes for part in chain_nodes(node.ir_node))
    for node in reversed(list(parts)):
        for index, name in enumerate(node.inputs):
            if not name or graph.is_constant(name):
                continue
            if node.facts.breaks_at_zero(node.ir_node, index):
                strict.add(name)
                if not _are_alike(profile.get(name)):
                    relative.add(name)
            divisor = _divisor(node, index, graph)
            if divisor and not _are_alike(profile.get(divisor)):
                relative.add(name)
            reached = {s for s, names in (("strict", strict), ("relative", relative)) if node.output in names}
            if reached and _stays_small(node, index, opset):
                if "strict" in reached and not node.facts.folds_signs(node.ir_node):
                    strict.add(name)
                if "relative" in reached:
                    relative.add(name)
    return frozenset(strict | relative)


def _divisor(node: Node, index: int, graph: Graph) -> str:
    """Return the tensor that divides an input, which makes its error grow; "" for none or a constant."""
    if node.facts.arithmetic is Arithmetic.QUOTIENT and index == 0:
        name = node.input(1)
    elif node.facts.arithmetic is Arithmetic.PRODUCT:
        inverse = maker_of(graph, node.input(1 - index))
        is_inverse = inverse is not None and inverse.facts.singular(inverse.ir_node, 0)
        name = inverse.input(0) if inverse is not None and is_inverse else ""
    else:
        name = ""
    return "" if graph.is_constant(name) else name


def _are_alike(tensor: TensorProfile | None) -> bool:
    """Whether a constant error is less, relative to single values, than one in proportion to them."""
    if tensor is None or not tensor.histogram.total or tensor.zeros:
        return False
    if tensor.minimum <= 0.0 <= tensor.maximum:
        return False
    values = density(tensor)
    if tensor.minimum > 0.0:
        values = octaves_near_zero(values)
    inverse = mean_of(values, lambda x: 1.0 / np.abs(x))
    return mean_of(values, np.abs) * mean_of(values, lambda x: 1.0 / np.square(x)) < 2.0 * inverse


def _stays_small(node: Node, index: int, opset: int) -> bool:
    """Whether a small input makes a node's output small, so that a constant error is large beside it."""
    rule, facts = node.rule, node.facts
    if facts.picks_by_condition:
        return index > 0
    if facts.arithmetic is not None or facts.joins_inputs or is_clip(node):
        return True
    if facts.values is not Values.COMPUTED:
        return index == 0
    if rule is None:
        return False
    if rule.weight is not None:
        weight = node.constant(rule.weight.index)
        products = rule.weight.is_product
        return products and (weight is None or bool((weight >= 0.0).all() or (weight <= 0.0).all()))
    if rule.unary:
        try:
            return not function_of(node.ir_node, opset)(np.zeros(1)).any()
        except PlanError:
            return False
    reduces = facts.kernel in (KernelSizes.REDUCTION, KernelSizes.WINDOW) or rule.is_mean
    return reduces or rule.constraint is Constraint.ALL_SAME
