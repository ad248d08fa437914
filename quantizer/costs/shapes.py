"""The shapes that tensors have in one run on one sample, free dimensions filled from the profile. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from ...profiles.records.profile import Profile
from ..operators.graph import Graph
from ..plan.channel_groups import CHANNELS, ChannelGroup

Shape = tuple[int, ...]

_Sizes = list[int | str]
"""Dimensions: sizes, and names of free ones."""


def shapes_of(graph: Graph, profile: Profile) -> Mapping[str, Shape]:
    """Return the shape of each tensor whose rank is known.

    What the model leaves free is read off the profile: dimensions that all samples had alike, and the number
    of elements of a sample where one dimension is left. Free dimensions of one name have one size. Where two
    are left in a tensor they are taken for equal, which those of pictures often are; a leading one is the
    batch, and 1.
    """
    open_shapes = {
        name: sizes for name in graph.values if (sizes := _sizes(name, graph, profile)) is not None
    }
    known: dict[str, int] = {}
    while _solve(open_shapes, _elements(profile), known):
        pass
    shapes = {
        name: _filled(name, sizes, known, profile)
        for name, sizes in open_shapes.items()
        if name in profile or all(isinstance(dim, int) or dim in known for dim in sizes)
    }
    for node in graph.nodes:  # of what is left the shape is taken for that of the largest operand
        read = [shapes[name] for name in node.inputs if name in shapes]
        for name in node.outputs:
            if name and name not in shapes:
                largest = max(read, key=math.prod, default=None)
                alike = largest is not None and graph.is_float(name)
                sizes = open_shapes.get(name)
                if largest is not None and alike:
                    shapes[name] = largest
                elif sizes is not None:
                    shapes[name] = _filled(name, sizes, known, profile)
    return shapes


def padded_shapes(
    shapes: Mapping[str, Shape], graph: Graph, channels: Mapping[ChannelGroup, int]
) -> dict[str, Shape]:
    """Return shapes with as many channels as given in groups of activations, and in their constants."""
    padded = dict(shapes)
    nodes = {node.name: node for node in graph.nodes}
    for group, size in channels.items():
        axes = [(name, CHANNELS) for name in group.tensors]
        axes += [(nodes[c.node].input(c.index), c.axis) for c in group.constants]
        for name, axis in axes:
            shape = padded.get(name, ())
            padded[name] = tuple(size if place == axis else dim for place, dim in enumerate(shape))
    return padded


def _sizes(name: str, graph: Graph, profile: Profile) -> _Sizes | None:
    shape = graph.values[name].shape
    observed = profile[name].shape if name in profile else None
    if shape is None and observed is None:
        return None
    declared: list[int | str] = []
    for axis, dim in enumerate(shape if shape is not None else [None] * len(observed or ())):
        text = getattr(dim, "value", None)
        declared.append(dim if isinstance(dim, int) else str(text) if text else f"{name}:{axis}")
    if observed is not None and len(observed) == len(declared):
        declared = [dim if seen is None else seen for dim, seen in zip(declared, observed, strict=True)]
    return declared


def _elements(profile: Profile) -> dict[str, float]:
    """Return the mean number of elements of each tensor in one sample."""
    samples = max(profile.data.samples, 1)
    return {name: (t.count + t.nan + t.inf) / samples for name, t in profile.tensors.items()}


def _solve(shapes: dict[str, _Sizes], elements: Mapping[str, float], known: dict[str, int]) -> bool:
    """Note the sizes of names that stand alone in a tensor; tell whether there were new ones."""
    before = len(known)
    for name, count in elements.items():
        sizes = shapes.get(name, [])
        free = [dim for dim in sizes if isinstance(dim, str) and dim not in known]
        if len(free) == 1 and count > 0:
            known[free[0]] = max(1, round(count / math.prod(_numbers(sizes, known))))
    return len(known) > before


def _numbers(sizes: _Sizes, known: Mapping[str, int]) -> Iterator[int]:
    for dim in sizes:
        size = known.get(dim) if isinstance(dim, str) else dim
        if size is not None:
            yield max(size, 1)


def _filled(name: str, sizes: _Sizes, known: Mapping[str, int], profile: Profile) -> Shape:
    free = [axis for axis, dim in enumerate(sizes) if isinstance(dim, str) and dim not in known]
    filled = [known.get(dim, 1) if isinstance(dim, str) else dim for dim in sizes]
    spread = [axis for axis in free if axis > 0] or free
    if spread and name in profile:
        rest = _elements_of(name, profile) / max(math.prod(filled), 1)
        for axis in spread:
            filled[axis] = max(1, round(rest ** (1.0 / len(spread))))
    return tuple(filled)


def _elements_of(name: str, profile: Profile) -> float:
    tensor = profile[name]
    return (tensor.count + tensor.nan + tensor.inf) / max(profile.data.samples, 1)
