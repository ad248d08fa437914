"""Samples of random values, for a smoke test without data: "random:N", always the same values.

Their profile says nothing about real data, and is marked: gates refuse it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as of_field
from typing import Annotated

import numpy as np
import numpy.typing as npt
from msgspec import Meta

from ..base.errors import ConfigError, DataError
from ..base.findings import Code, Finding
from .constants import Constants, constant_arrays
from .preprocessing import Preprocessing, recipe_of
from .values import InputSpec, Sample, Samples

FORM = re.compile(r"random:([0-9]+)")


@dataclass(frozen=True)
class RandomRecipe:
    """The limits and sizes of random values.

    Attributes:
        sizes: NAME: N from 1, the sizes of free dimensions; else 1
        low: a number: the smallest float value
        high: a number: the largest float value
        seed: N from 0; another seed gives other values
    """

    sizes: Mapping[str, Annotated[int, Meta(ge=1)]] = of_field(default_factory=dict)
    low: float = -1.0
    high: float = 1.0
    seed: Annotated[int, Meta(ge=0)] = 0
    constants: Constants = of_field(default_factory=dict)


def is_random(source: str) -> bool:
    """Return whether a source is "random:N"."""
    return FORM.fullmatch(source) is not None


def check_not_random(source: str, use: str) -> None:
    """Refuse random values as samples for a use that judges quality, named in words."""
    if is_random(source):
        raise DataError(f"{source}: random values do not show quality; give samples for {use}")


def open(source: str, inputs: Sequence[InputSpec], preprocessing: Preprocessing) -> Samples:
    """Return random samples: float values uniform between limits, integers as `random_array` draws them."""
    recipe, where = recipe_of(preprocessing, RandomRecipe), preprocessing.name or "--preprocess"
    total = int(source.partition(":")[2])
    if not total:
        raise DataError(f"{source}: means no samples; give at least random:1")
    constants = constant_arrays(where, recipe.constants, inputs)
    free = {str(dim) for spec in inputs for dim in spec.shape or () if isinstance(dim, str)}
    for name in recipe.sizes:
        if name not in free:
            listed = ", ".join(sorted(free)) or "none"
            raise ConfigError(f"{where}: sizes: the model has no free dimension {name}; name one of {listed}")
    if recipe.low > recipe.high:
        raise ConfigError(f"{where}: low {recipe.low:g} is above high {recipe.high:g}; correct the recipe")
    random = [spec for spec in inputs if spec.name not in constants]
    shapes = {}
    for spec in random:
        if spec.shape is None:
            raise DataError(
                f"{source}: input '{spec.name}' has an unknown rank; give samples, or its value as a constant"
            )
        shapes[spec.name] = tuple(
            dim if isinstance(dim, int) else recipe.sizes.get(str(dim), 1) for dim in spec.shape
        )

    def iterate(part: slice) -> Iterator[Sample]:
        for number in range(total)[part]:
            generator = np.random.default_rng([recipe.seed, number])
            limits = recipe.low, recipe.high
            drawn = {spec.name: random_array(spec, shapes[spec.name], generator, limits) for spec in random}
            yield Sample(f"{source}[{number}]", {**drawn, **constants})

    sentence = f"{source}: random values: good for a smoke test; ranges and quality are meaningless"
    return Samples(source, total, iterate, True, (Finding(Code.RANDOM_DATA, sentence, source),))


def random_array(
    spec: InputSpec, shape: tuple[int, ...], generator: np.random.Generator, limits: tuple[float, float]
) -> npt.NDArray[np.generic]:
    """Return random values of an input: floats uniform between the limits.

    Integers that select rows, as token ids do, are drawn from these; all others are 1, as in a mask.
    """
    if spec.dtype.kind == "f" or spec.dtype.name == "bfloat16":
        return np.asarray(generator.uniform(*limits, shape)).astype(spec.dtype)
    if spec.dtype.kind not in "iub":
        raise DataError(f"input '{spec.name}': {spec} cannot be made up; give samples with --data DIR")
    if spec.rows is None or spec.dtype.kind == "b":
        return np.ones(shape, spec.dtype)
    return np.asarray(generator.integers(0, max(1, spec.rows), shape)).astype(spec.dtype)
