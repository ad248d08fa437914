"""The steps of a recipe on one picture, by Pillow; the arithmetic is that of torchvision or transformers."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from .recipe import ImageRecipe, pair

if TYPE_CHECKING:
    from PIL.Image import Image

MODES = {"rgb": "RGB", "bgr": "RGB", "gray": "L", "rgba": "RGBA"}
"""Pillow's names of the colour orders."""


@dataclass(frozen=True)
class Arithmetic:
    """What becomes of pixel values.

    Attributes:
        dtype: of the result; the pixels stay as they are where it is uint8.
        channels_first: whether channels go before rows.
    """

    dtype: np.dtype[Any]
    channels_first: bool


def upright(image: Image, color: str) -> Image:
    """Return a picture turned as its EXIF data says, in a colour order; bgr is still rgb."""
    from PIL import ImageOps

    turned = ImageOps.exif_transpose(image)
    if turned.mode == "P" and "transparency" in turned.info:  # Pillow warns of the direct way
        turned = turned.convert("RGBA")
    return turned if turned.mode == MODES[color] else turned.convert(MODES[color])


def fitted(image: Image, recipe: ImageRecipe, size: tuple[int, int] | None) -> Image:
    """Return a picture of the size that the recipe gives it.

    Args:
        image: the picture.
        recipe: how it is resized and cropped.
        size: height and width, for the words `shorter`, `exact`, `letterbox` and `center`; None where none of
            them is used.
    """
    resized = _resized_as(image, recipe, size)
    if recipe.crop == "none":
        return resized
    return _cropped(resized, _pixels_of(recipe.crop, size), recipe)


def _resized_as(image: Image, recipe: ImageRecipe, size: tuple[int, int] | None) -> Image:
    if recipe.resize == "none":
        return image
    if recipe.resize == "letterbox":
        return _letterboxed(image, _pixels_of(recipe.resize, size), recipe)
    if recipe.resize == "shorter":
        height, width = (int(side / recipe.crop_share) for side in _pixels_of(recipe.resize, size))
        return _resized(image, _covering(image, height, width), recipe)
    if isinstance(recipe.resize, int):
        return _resized(image, _with_shorter_side(image, recipe.resize), recipe)
    return _resized(image, _pixels_of(recipe.resize, size), recipe)


def _pixels_of(step: object, size: tuple[int, int] | None) -> tuple[int, int]:
    """Return the height and width of a step: its own, or those that the model has."""
    if isinstance(step, str):
        assert size is not None
        return size
    return pair(step)  # type: ignore[arg-type]


def _with_shorter_side(image: Image, length: int) -> tuple[int, int]:
    """Return height and width in proportion; the longer side is rounded down, as torchvision does."""
    width, height = image.size
    if width <= height:
        return int(length * height / width), length
    return length, int(length * width / height)


def _covering(image: Image, height: int, width: int) -> tuple[int, int]:
    """Return the least height and width in proportion that are at least those wanted."""
    if height == width:
        return _with_shorter_side(image, height)
    ratio = max(height / image.height, width / image.width)
    return max(height, int(image.height * ratio)), max(width, int(image.width * ratio))


def _resized(image: Image, size: tuple[int, int], recipe: ImageRecipe) -> Image:
    from PIL.Image import Resampling, Transform

    height, width = size
    if (width, height) == image.size:
        return image
    method = Resampling[recipe.interpolation.upper()]
    if recipe.antialias or method not in (Resampling.NEAREST, Resampling.BILINEAR, Resampling.BICUBIC):
        return image.resize((width, height), method)
    steps = (image.width / width, 0.0, 0.0, 0.0, image.height / height, 0.0)
    return image.transform((width, height), Transform.AFFINE, steps, method)


def _letterboxed(image: Image, size: tuple[int, int], recipe: ImageRecipe) -> Image:
    """Return the whole picture amid borders, as ultralytics' LetterBox does."""
    height, width = size
    ratio = min(height / image.height, width / image.width)
    inner = max(1, round(image.height * ratio)), max(1, round(image.width * ratio))
    resized = _resized(image, inner, recipe)
    top, left = (height - inner[0]) / 2, (width - inner[1]) / 2
    corner = (0, 0) if recipe.place == "top-left" else (round(left - 0.1), round(top - 0.1))
    return _on_canvas(resized, size, corner, recipe.fill)


def _cropped(image: Image, size: tuple[int, int], recipe: ImageRecipe) -> Image:
    """Return the middle of a picture; where it is too small, the rest is filled."""
    offsets = [(have - want) / 2 for have, want in zip((image.height, image.width), size, strict=True)]
    top, left = (int(offset // 1) if recipe.crop_offset == "floor" else round(offset) for offset in offsets)
    if top >= 0 and left >= 0:
        return image.crop((left, top, left + size[1], top + size[0]))
    return _on_canvas(image, size, (-left, -top), recipe.fill)


def _on_canvas(image: Image, size: tuple[int, int], corner: tuple[int, int], fill: int) -> Image:
    from PIL import Image as PillowImage

    canvas = PillowImage.new(image.mode, (size[1], size[0]), (fill,) * len(image.getbands()))
    canvas.paste(image, corner)
    return canvas


def values_of(image: Image, recipe: ImageRecipe, color: str, arithmetic: Arithmetic) -> npt.NDArray[Any]:
    """Return the pixels as the model takes them, without a batch axis.

    Args:
        image: of the size of the input.
        recipe: scale, mean and std.
        color: order of the channels.
        arithmetic: what is done to them.

    Returns:
        Array of shape (C, H, W) or (H, W, C).
    """
    pixels: npt.NDArray[np.uint8] = np.asarray(image)
    pixels = pixels[:, :, None] if pixels.ndim == 2 else pixels
    pixels = pixels[:, :, ::-1] if color == "bgr" else pixels
    values = pixels if arithmetic.dtype == np.uint8 else _normalised(pixels, recipe)
    ordered = values.transpose(2, 0, 1) if arithmetic.channels_first else values
    return np.ascontiguousarray(ordered).astype(arithmetic.dtype, copy=False)


def whole_values(recipe: ImageRecipe, channels: int, dtype: np.dtype[Any]) -> bool:
    """Return whether a type holds what a recipe makes of pixels: always but for integers.

    Args:
        recipe: scale, mean and std.
        channels: of a picture.
        dtype: of the result.
    """
    if dtype.kind not in "iu" or dtype == np.uint8:
        return True
    every = np.repeat(np.arange(256, dtype=np.uint8)[:, None], channels, axis=1)
    values, limits = _normalised(every, recipe), np.iinfo(dtype)
    return bool(((values == np.rint(values)) & (values >= limits.min) & (values <= limits.max)).all())


def _normalised(pixels: npt.NDArray[np.uint8], recipe: ImageRecipe) -> npt.NDArray[Any]:
    """Return the values in float32."""
    factor = recipe.factor
    values: npt.NDArray[Any]
    if isinstance(factor, Fraction):  # as torchvision: divided by 255 in float32
        values = pixels.astype(np.float32) * np.float32(factor.numerator) / np.float32(factor.denominator)
    else:  # as transformers: multiplied in float64
        values = (pixels.astype(np.float64) * factor).astype(np.float32)
    return (values - np.asarray(recipe.mean or 0, np.float32)) / np.asarray(recipe.std or 1, np.float32)
