"""Inputs with the same value in every sample: a sample rate, the state of a recurrent model at its start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from msgspec import Meta

from ..base.errors import ConfigError, nearest
from .values import InputSpec, type_text, with_leading_axes

Constants = Annotated[
    Mapping[str, Any],
    Meta(description="for other inputs, NAME: zeros, ones, a number, a list, or {value: N, shape: [N, ...]}"),
]
"""The values of inputs that are the same in every sample, by name."""


def constant_arrays(
    where: str, constants: Mapping[str, Any], specs: Sequence[InputSpec]
) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of the inputs that a recipe gives a value; a free leading dimension is 1."""
    checked_names(f"{where}: constants", constants, [spec.name for spec in specs])
    by_name = {spec.name: spec for spec in specs}
    return {
        name: _array(f"{where}: constants: {name}", constant, by_name[name])
        for name, constant in constants.items()
    }


def _array(where: str, constant: Any, spec: InputSpec) -> npt.NDArray[Any]:
    value, shape = constant, spec.shape
    if isinstance(constant, dict):
        if not constant.keys() <= {"value", "shape"} or "value" not in constant:
            raise ConfigError(f"{where}: contains {', '.join(constant)}; give the keys value and shape")
        value, shape = constant["value"], constant.get("shape", spec.shape or ())
        shape = tuple(shape) if isinstance(shape, list | tuple) else (-1,)
        if any(isinstance(size, int) and size < 0 for size in shape):
            raise ConfigError(f"{where}: shape: is {constant['shape']!r}; give a list of sizes from 0")
    if spec.dtype.kind != "O":
        value = {"zeros": 0, "ones": 1}.get(value, value) if isinstance(value, str) else value
    values = _exact_array(where, value, spec.dtype)
    if isinstance(value, list):
        return values if len(spec.shape or ()) <= values.ndim else with_leading_axes(values, spec)
    if shape is None or any(not isinstance(dim, int) for dim in shape[1:]):
        if spec.fed_by:
            raise ConfigError(
                f"{where}: looks like the state that output '{spec.fed_by}' gives to the next step; leave it "
                f"out there, and add the line 'state: {{{spec.fed_by}: {spec.name}}}'"
            )
        known = "..." if shape is None else ", ".join(str(d if isinstance(d, int) else 1) for d in shape)
        raise ConfigError(
            f"{where}: the model leaves sizes of {spec} open; write {{value: {value}, shape: [{known}]}}, "
            "with the sizes that it is used with"
        )
    sizes = [dim if isinstance(dim, int) else 1 for dim in shape]
    return np.full(sizes, values)


def _exact_array(where: str, value: object, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return a value as an array of a type, if no number changes except by rounding to a float type."""
    problem = "the type cannot represent these values"
    try:
        array = np.asarray(value, dtype)
        if dtype.kind not in "biu" or np.array_equal(array, np.asarray(value)):
            return array
    except (TypeError, ValueError, OverflowError) as error:
        problem = str(error)
    raise ConfigError(
        f"{where}: cannot be {type_text(dtype)} ({problem}); give zeros, ones, a number or a list"
    )


def checked_names(where: str, names: Mapping[str, Any], known: list[str]) -> None:
    """Refuse names that are not inputs of the model."""
    for name in names:
        if name not in known:
            inputs = ", ".join(f"'{name}'" for name in known) or "none"
            raise ConfigError(
                f"{where}: '{name}' is not an input of the model; its inputs are {inputs}."
                f"{nearest(name, known)}"
            )
