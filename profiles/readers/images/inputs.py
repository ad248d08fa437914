"""Where a picture goes: which input of a model takes it, its size, its channels, and what the others get."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ...base.errors import ConfigError, DataError
from ..constants import exact_array
from ..values import InputSpec, type_text
from .pixels import whole_values
from .recipe import ImageRecipe, pair

CHANNELS = {"rgb": 3, "bgr": 3, "gray": 1, "rgba": 4}
COLORS = {3: "rgb", 1: "gray", 4: "rgba"}


@dataclass(frozen=True)
class ImageInput:
    """How pictures become arrays for one model.

    Attributes:
        spec: the input that takes the picture.
        size: height and width of it; None where they are free and nothing gives them.
        channels_first: whether channels go before rows.
        color: order of the channels.
        has_batch: whether the input has an axis of rows before them.
        dtype: of the array.
        constants: of the other inputs, each with one row where it has an axis of rows.
    """

    spec: InputSpec
    size: tuple[int, int] | None
    channels_first: bool
    color: str
    has_batch: bool
    dtype: np.dtype[Any]
    constants: Mapping[str, npt.NDArray[Any]]

    def arrays(self, values: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
        """Return the sample of a picture, of shape (C, H, W) or (H, W, C)."""
        return {self.spec.name: values[None] if self.has_batch else values, **self.constants}


def image_input(where: str, inputs: Sequence[InputSpec], recipe: ImageRecipe) -> ImageInput:
    """Return where pictures go.

    Args:
        where: the recipe, for messages.
        inputs: of the model.
        recipe: how they are prepared.

    Raises:
        ConfigError: the recipe has to say more: the input, its size, layout or the values of other inputs.
        DataError: no input of the model can take a picture.
    """
    spec = _input_of(where, inputs, recipe)
    shape = spec.shape
    if shape is None or len(shape) not in (3, 4):
        raise DataError(
            f"input '{spec.name}': is {spec}, and a picture needs 3 or 4 dimensions; name another "
            "input in the recipe (input: NAME), or give samples as FILE.py:FUNCTION"
        )
    first = _channels_first(where, spec, shape, recipe)
    axes = shape[-3:]
    channels, sides = (axes[0], axes[1:]) if first else (axes[2], axes[:2])
    size = _size_of(where, spec, (sides[0], sides[1]), recipe)
    color = recipe.color or COLORS.get(channels if isinstance(channels, int) else 3)
    if color is None:
        raise DataError(
            f"input '{spec.name}': is {spec}, with {channels} channels, and pictures have 1, 3 or 4; "
            "give samples as FILE.py:FUNCTION"
        )
    _check_channels(where, recipe, CHANNELS[color])
    dtype = _dtype(where, recipe.dtype) if recipe.dtype else spec.dtype
    if not whole_values(recipe, CHANNELS[color], dtype):
        raise ConfigError(
            f"{where}: input '{spec.name}' takes {type_text(dtype)}, and scale, mean and std make numbers of "
            "pixels that it cannot hold; write a recipe that makes whole ones, as scale: 1, mean: [128]"
        )
    constants = _constants(where, [other for other in inputs if other is not spec], recipe)
    return ImageInput(spec, size, first, color, len(shape) == 4, dtype, constants)


def _input_of(where: str, inputs: Sequence[InputSpec], recipe: ImageRecipe) -> InputSpec:
    names = ", ".join(f"'{spec.name}'" for spec in inputs)
    if recipe.input is not None:
        named = [spec for spec in inputs if spec.name == recipe.input]
        if not named:
            raise ConfigError(f"{where}: input '{recipe.input}': the model has none; its inputs are {names}")
        return named[0]
    fitting = [spec for spec in inputs if spec.shape is not None and len(spec.shape) == 4]
    if len(inputs) > 1 and len(fitting) != 1:
        raise ConfigError(
            f"{where}: does not say which input takes the picture; write a recipe with input: NAME and "
            f"constants: {{OTHER: VALUES}}; the model's inputs are {names}"
        )
    return fitting[0] if fitting else inputs[0]


def _channels_first(
    where: str, spec: InputSpec, shape: Sequence[int | str | None], recipe: ImageRecipe
) -> bool:
    if recipe.layout is not None:
        return recipe.layout == "nchw"
    wanted = (CHANNELS[recipe.color],) if recipe.color else tuple(COLORS)
    first, last = shape[-3] in wanted, shape[-1] in wanted
    if first == last:
        raise ConfigError(
            f"{where}: input '{spec.name}' is {spec}, which does not say where its channels are; write a "
            f"recipe with layout: nchw or layout: nhwc{_base_of(where)}"
        )
    return first


def _size_of(
    where: str, spec: InputSpec, sides: tuple[int | str | None, int | str | None], recipe: ImageRecipe
) -> tuple[int, int] | None:
    given = None if recipe.size is None else pair(recipe.size)
    height, width = (
        side if isinstance(side, int) else given[axis] if given else None for axis, side in enumerate(sides)
    )
    if given and given != (height, width):
        raise ConfigError(
            f"{where}: size {given[0]} x {given[1]}: input '{spec.name}' is {spec}; leave the size out"
        )
    if height is not None and width is not None:
        return height, width
    words = recipe.resize in ("shorter", "exact", "letterbox") or recipe.crop == "center"
    if words:
        built_in, usual = where.isidentifier(), 640 if where == "yolo" else 224
        advice = f"write the pixels: --preprocess {where}:{usual}, or {where}:192x256 for height and width"
        raise ConfigError(
            f"{where}: the size is not known: input '{spec.name}' is {spec}; "
            f"{advice if built_in else 'write size: 224, or size: [192, 256] for height and width'}"
        )
    return None


def _base_of(where: str) -> str:
    """Return what makes a recipe of a built-in one."""
    name = where.partition(":")[0]
    return f" below the line base: {name}" if name.isidentifier() else ""


def _check_channels(where: str, recipe: ImageRecipe, channels: int) -> None:
    for name, values in (("mean", recipe.mean), ("std", recipe.std)):
        if len(values) not in (0, 1, channels):
            raise ConfigError(
                f"{where}: {name}: has {len(values)} numbers, and the model's input {channels} channels; "
                "give one number, or one for each channel"
            )


def _dtype(where: str, name: str) -> np.dtype[Any]:
    try:
        return np.dtype(name)
    except TypeError:
        raise ConfigError(f"{where}: dtype '{name}': is no type of numpy's; give float32 or uint8") from None


def _constants(where: str, others: Sequence[InputSpec], recipe: ImageRecipe) -> dict[str, npt.NDArray[Any]]:
    given = dict(recipe.constants or {})
    arrays = {}
    for spec in others:
        if spec.name not in given:
            raise ConfigError(
                f"{where}: says nothing of input '{spec.name}', {spec}; write a recipe with constants: "
                f"{{{spec.name}: VALUES}}{_base_of(where)}"
            )
        arrays[spec.name] = _constant(where, spec, given.pop(spec.name))
    if given:
        raise ConfigError(
            f"{where}: constants: the model has no other input '{next(iter(given))}'; remove it"
        )
    return arrays


def _constant(where: str, spec: InputSpec, value: object) -> npt.NDArray[Any]:
    """Return the value of an input: with axes of 1 before it as need be, or everywhere the same number."""
    array = exact_array(f"{where}: constants: {spec.name}", value, spec.dtype)
    shape = spec.shape
    if shape is None:
        return array
    if array.ndim == 0:
        return np.full([side if isinstance(side, int) else 1 for side in shape], array)
    return array.reshape([1] * (len(shape) - array.ndim) + list(array.shape))
