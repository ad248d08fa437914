"""Samples made up from a profile's ranges and shapes, for measuring time where there is no data. Pure.

Time depends on shapes, and hardly on values. Float values are drawn uniformly from the observed range. An
integer input that selects rows of a constant is drawn from their indices; any other is 1 everywhere, as
in an attention mask. Free dimensions have the size that the profile's counts of elements tell, their mean
over the samples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from ....profiles.base.errors import DataError
from ....profiles.records.profile import Profile
from ....profiles.samples.random_samples import random_array
from ....profiles.samples.values import InputSpec
from ...evaluation.runtimes import Inputs
from ...operators.graph import Graph


def synthetic_samples(
    specs: Sequence[InputSpec], graph: Graph, profile: Profile, count: int
) -> tuple[Inputs, ...]:
    """Return `count` samples, the same ones each time."""
    sizes = _sizes(specs, graph, profile)
    shapes = {spec.name: _shape(spec, profile, sizes) for spec in specs}
    ranges = {
        spec.name: (profile[spec.name].minimum, profile[spec.name].maximum)
        if spec.name in profile
        else (-1.0, 1.0)
        for spec in specs
    }
    generator = np.random.default_rng(0)
    return tuple(
        {spec.name: random_array(spec, shapes[spec.name], generator, ranges[spec.name]) for spec in specs}
        for _ in range(count)
    )


def _shape(spec: InputSpec, profile: Profile, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Return the shape of an input; raises DataError if the size of a dimension is unknown."""
    dims = [dim if isinstance(dim, int) else sizes.get(str(dim), 0) for dim in spec.shape or ()]
    if dims.count(0) > 1 and not dims[0]:
        dims[0] = 1
    if spec.name in profile and dims.count(0) == 1:
        dims[dims.index(0)] = _left_over(spec.name, profile, prod(d for d in dims if d))
    if spec.shape is None or 0 in dims:
        raise DataError(
            f"input '{spec.name}': {spec}, and the profile does not say how large its free dimensions are; "
            "give samples with --data DIR"
        )
    return tuple(dims)


def _sizes(specs: Sequence[InputSpec], graph: Graph, profile: Profile) -> dict[str, int]:
    """Return the sizes of named free dimensions, as far as counts of activations show; the batch is 1."""
    shapes = {name: graph.values[name].shape for name in profile if name in graph.values}
    dims_of = {
        name: tuple(dim if isinstance(dim, int) else dim.value or "" for dim in shape)
        for name, shape in shapes.items()
        if shape is not None
    }
    batch = next((dim for spec in specs for dim in (spec.shape or ())[:1] if isinstance(dim, str)), None)
    sizes: dict[str, int] = {}
    for assumed in ({}, {} if batch is None else {batch: 1}):
        sizes = {**assumed, **sizes}
        for name, dims in dims_of.items():
            unknown = [dim for dim in dims if not isinstance(dim, int) and dim not in sizes]
            if len(unknown) == 1 and unknown[0] and profile[name].count:
                rest = prod(dim if isinstance(dim, int) else sizes.get(dim, 1) for dim in dims)
                sizes[unknown[0]] = _left_over(name, profile, rest)
    return sizes


def _left_over(name: str, profile: Profile, known: int) -> int:
    """Return the mean size of the one dimension of a tensor that is not among the known ones."""
    elements = profile[name].count / max(1, profile.data.samples)
    return max(1, round(elements / max(1, known)))
