"""What the inputs of a model were given: their records in a profile, and how these merge and are written."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..base.strict_yaml import MalformedError, text_at

if TYPE_CHECKING:
    from ..records.profile import TensorProfile

Sizes = tuple[tuple[int, int], ...]
"""The smallest and the largest size of each dimension."""


@dataclass(frozen=True)
class InputProfile:
    """What a graph input was given, over all samples.

    Attributes:
        tensor: its elements, of whatever numeric type: integers are counted as floats of the same value (from
            2**53 on, of the nearest). Of strings nothing is counted.
        sizes: of the arrays; None where their ranks differ.
        normalised: whether the model itself begins by scaling or shifting it by constants.
        transposed: whether the model begins by moving its axes.
    """

    tensor: TensorProfile
    sizes: Sizes | None
    normalised: bool = False
    transposed: bool = False

    def merged(self, other: InputProfile) -> InputProfile:
        """Return the record of both sets of samples together."""
        return InputProfile(
            self.tensor.merged(other.tensor),
            merged_sizes(self.sizes, other.sizes),
            self.normalised or other.normalised,
            self.transposed or other.transposed,
        )


def merged_inputs(a: Mapping[str, InputProfile], b: Mapping[str, InputProfile]) -> dict[str, InputProfile]:
    """Return the records of both sets of samples; none where one of them has none of these inputs."""
    return {name: a[name].merged(b[name]) for name in a} if a.keys() == b.keys() else {}


def sizes_of(shape: tuple[int, ...]) -> Sizes:
    """Return the sizes of one array."""
    return tuple((size, size) for size in shape)


def merged_sizes(a: Sizes | None, b: Sizes | None) -> Sizes | None:
    """Return the sizes of both sets of arrays."""
    if a is None or b is None or len(a) != len(b):
        return None
    return tuple((min(x[0], y[0]), max(x[1], y[1])) for x, y in zip(a, b, strict=True))


def sizes_text(sizes: Sizes | None) -> str | None:
    """Return sizes as in "1 3 32-128"; None for none."""
    if sizes is None:
        return None
    return " ".join(str(low) if low == high else f"{low}-{high}" for low, high in sizes)


def sizes_at(value: object, where: str) -> Sizes | None:
    """Return the sizes that a text describes, or raise MalformedError."""
    if value is None:
        return None
    words = text_at(value, where).split()
    found = [re.fullmatch("([0-9]{1,18})(?:-([0-9]{1,18}))?", word) for word in words]
    sizes = tuple((int(size[1]), int(size[2] or size[1])) for size in found if size)
    if len(sizes) < len(words) or any(low > high for low, high in sizes):
        raise MalformedError(f"{where}: is not a text of sizes such as '1 3 32-128'")
    return sizes
