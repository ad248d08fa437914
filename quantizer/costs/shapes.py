"""The shapes of all tensors in one run on one sample: symbolic dimensions are solved by unification. Pure.

A free dimension is a symbol: dimensions with the same name have the same size, and one without a name is a
separate symbol. The profile has the number of elements of each tensor in a sample, which is an equation
between the sizes of its dimensions. An equation with one unknown symbol determines it, which may leave one
unknown in others, and so on. Symbols that are then still unknown are guessed, see `shapes_of`.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping

from ...profiles.records.profile import Profile
from ..model.graph import subgraphs
from ..operators.graph import Graph
from ..plan.channel_groups import CHANNELS, ChannelGroup

Shape = tuple[int, ...]

SymbolicShape = list[int | str]
"""Sizes, and symbols of free dimensions."""


def shapes_of(graph: Graph, profile: Profile) -> Mapping[str, Shape]:
    """Return the shape of each tensor whose rank is known.

    Several symbols that no equation distinguishes are assumed to be equal, as the sides of pictures often
    are; a leading symbol is the batch, and 1. A tensor without profile takes unknown sizes from the largest
    activation with as many dimensions that its node reads, else from the largest operand.
    """
    runs = runs_of(graph, profile)
    elements = {name: _elements(name, profile) / (runs.get(name) or 1.0) for name in profile.tensors}
    symbolic = {
        name: shape for name in graph.values if (shape := _symbolic_shape(name, graph, profile)) is not None
    }
    sizes = _solve(symbolic, elements)
    shapes = {
        name: _substitute(shape, sizes, elements.get(name))
        for name, shape in symbolic.items()
        if name in profile or all(isinstance(dim, int) or dim in sizes for dim in shape)
    }
    for node in graph.nodes:
        operands = [shapes[name] for name in node.inputs if name in shapes]
        data = [shapes[name] for name in node.inputs if name in shapes and not graph.is_constant(name)]
        for name in node.outputs:
            if not name or name in shapes:
                continue
            if operands and graph.is_float(name):
                known = [sizes.get(dim) if isinstance(dim, str) else dim for dim in symbolic.get(name, ())]
                alike = max((s for s in data if len(s) == len(known)), key=math.prod, default=None)
                if alike is None:
                    shapes[name] = max(operands, key=math.prod)
                else:
                    sized = zip(known, alike, strict=True)
                    shapes[name] = tuple(other if size is None else size for size, other in sized)
            elif name in symbolic:
                shapes[name] = _substitute(symbolic[name], sizes, None)
    return shapes


def runs_of(graph: Graph, profile: Profile) -> Mapping[str, float]:
    """Return how often the tensors of inner graphs (of a Loop, Scan or If) are computed in one run, by name.

    The profile counts the elements of all passes together: of a tensor whose shape is known they tell how
    many there were; without one, it counts as run once.
    """
    runs: dict[str, float] = {}
    for body in (body for node in graph.nodes for body in subgraphs(node.ir_node)):
        passes, names = [], [str(value.name) for value in body.inputs]
        for value in (value for node in body for value in node.outputs if value.name):
            names.append(str(value.name))
            dims = [0] if value.shape is None else list(value.shape)
            each = math.prod(dim if isinstance(dim, int) else 0 for dim in dims)
            if value.name in profile and each:
                passes.append(_elements(str(value.name), profile) / each)
        if passes:
            runs |= dict.fromkeys(names, statistics.median(passes))
    return runs


def _elements(name: str, profile: Profile) -> float:
    """Return how many elements of a tensor a sample has."""
    tensor = profile[name]
    return (tensor.count + tensor.nan + tensor.inf) / max(profile.data.samples, 1)


def padded_shapes(
    shapes: Mapping[str, Shape], graph: Graph, channels: Mapping[ChannelGroup, int]
) -> dict[str, Shape]:
    """Return the shapes of groups of activations, and their constants, with as many channels as given."""
    padded: dict[str, Shape] = {}
    for group, size in channels.items():
        axes = [(name, CHANNELS) for name in group.tensors]
        axes += [(graph.node(node).input(index), axis) for node, index, axis in group.constants]
        for name, axis in axes:
            shape = padded.get(name) or shapes.get(name, ())
            padded[name] = tuple(size if place == axis else dim for place, dim in enumerate(shape))
    return padded


def _symbolic_shape(name: str, graph: Graph, profile: Profile) -> SymbolicShape | None:
    """Return the declared shape, with sizes that all samples had alike, or None if the rank is unknown."""
    declared = graph.values[name].shape
    observed = profile[name].shape if name in profile else None
    if declared is None and observed is None:
        return None
    dims: SymbolicShape = []
    for axis, dim in enumerate(declared if declared is not None else [None] * len(observed or ())):
        text = getattr(dim, "value", None)
        dims.append(dim if isinstance(dim, int) else str(text) if text else f"{name}:{axis}")
    if observed is not None and len(observed) == len(dims):
        return [dim if size is None else size for dim, size in zip(dims, observed, strict=True)]
    return dims


def _solve(shapes: Mapping[str, SymbolicShape], elements: Mapping[str, float]) -> dict[str, int]:
    """Return the sizes of the symbols that follow from the numbers of elements of tensors."""
    sizes: dict[str, int] = {}
    solved_before = -1
    while solved_before < len(sizes):
        solved_before = len(sizes)
        for name, count in elements.items():
            shape = shapes.get(name, [])
            unknown = [dim for dim in shape if isinstance(dim, str) and dim not in sizes]
            if len(unknown) == 1 and count > 0:
                dims = (sizes.get(dim) if isinstance(dim, str) else dim for dim in shape)
                sizes[unknown[0]] = max(1, round(count / math.prod(max(n, 1) for n in dims if n is not None)))
    return sizes


def _substitute(shape: SymbolicShape, sizes: Mapping[str, int], elements: float | None) -> Shape:
    """Replace symbols by their sizes; unknown ones share the remaining elements, else they are 1."""
    unknown = [axis for axis, dim in enumerate(shape) if isinstance(dim, str) and dim not in sizes]
    filled = [sizes.get(dim, 1) if isinstance(dim, str) else dim for dim in shape]
    shared = [axis for axis in unknown if axis > 0] or unknown
    if shared and elements is not None:
        rest = elements / max(math.prod(filled), 1)
        for axis in shared:
            filled[axis] = max(1, round(rest ** (1.0 / len(shared))))
    return tuple(filled)
