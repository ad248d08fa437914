"""The calibrators by name, and the parameters that they take. Imports no numpy, so that help is fast.

The functions are in `numerics.calibrators`, whose table `CALIBRATORS` has these names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from ...profiles.base.errors import MalformedError, not_one_of

CalibratorName = Literal["minmax", "percentile", "kl", "mse"]
"""kl is what other tools call entropy. Adding a calibrator is a function and its entry in
`numerics.calibrators`, and its name here."""

CALIBRATOR_NAMES: tuple[CalibratorName, ...] = get_args(CalibratorName)


@dataclass(frozen=True)
class Parameter:
    """A number that may follow the name of a calibrator, after a colon.

    Attributes:
        default: its value when none is written.
        least, most: values that it may have.
        usual: those that editors offer.
    """

    default: float
    least: float
    most: float
    usual: tuple[float, ...] = ()


PARAMETERS: Mapping[str, Parameter] = {
    "percentile": Parameter(99.99, 50.0, 100.0, (99.0, 99.9, 99.95, 99.99, 99.999))
}
"""Calibrators that take a parameter: the percentage of the elements on the inner side of each end."""


def split_calibrator(text: str) -> tuple[CalibratorName, float]:
    """Return the name of a calibrator and its parameter, NaN where it takes none.

    Args:
        text: "minmax", "kl", "percentile", "percentile:99.9", ...

    Raises:
        MalformedError: no such calibrator, or a parameter that is not allowed.
    """
    name, colon, written = text.partition(":")
    if name not in CALIBRATOR_NAMES:
        raise not_one_of("calibrator", text, CALIBRATOR_NAMES)
    parameter = PARAMETERS.get(name)
    if parameter is None:
        if colon:
            raise MalformedError(f"calibrator '{text}': {name} has no parameter", f"write '{name}'")
        return name, float("nan")
    if not colon:
        return name, parameter.default
    try:
        value = float(written)
    except ValueError:
        value = float("nan")
    if not parameter.least <= value <= parameter.most:
        raise MalformedError(
            f"calibrator '{text}': '{written}' is not a number from {parameter.least:g} to "
            f"{parameter.most:g}",
            f"write for example '{name}:{parameter.default:g}'",
        )
    return name, value
