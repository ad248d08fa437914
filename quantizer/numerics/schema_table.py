"""The quantization schemas, by the names that options and files use. Without numpy: help is fast."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

SchemaName = Literal["asymmetric", "symmetric", "symmetric-uint8", "symmetric-power2"]
"""The names, for type checkers, help and JSON Schema; a test compares them with `SCHEMAS`."""


@dataclass(frozen=True)
class Schema:
    """A quantization schema, as orthogonal properties.

    Attributes:
        symmetric: the zero point is 0 and as much room is on either side of it.
        unsigned_when_positive: a range without negative values spends all quantized values on the positive
            side, although the schema is symmetric: the zero point is the lowest quantized value.
        power_of_two: the scale is rounded up to a power of two.
    """

    symmetric: bool = False
    unsigned_when_positive: bool = False
    power_of_two: bool = False


SCHEMAS: Mapping[str, Schema] = {
    "asymmetric": Schema(),
    "symmetric": Schema(symmetric=True),
    "symmetric-uint8": Schema(symmetric=True, unsigned_when_positive=True),
    "symmetric-power2": Schema(symmetric=True, power_of_two=True),
}
"""Adding a schema is adding an entry here, and its name above."""
