"""The keys of a recipe for pictures, and the settings of a `preprocessor_config.json` in these words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any, Literal

from msgspec import Meta

from ...base.errors import ConfigError
from ..preprocessing import PREPROCESSOR_CONFIG, Preprocessing, recipe_of
from .hugging_face import settings_of

Size = int | tuple[int, int]
"""Pixels: one number for height and width, or both."""


@dataclass(frozen=True)
class ImageRecipe:
    """How a picture becomes the input of a model, in the order of the steps.

    The picture is turned as its EXIF data says, converted to `color`, resized, cropped, multiplied by
    `scale`, lessened by `mean` and divided by `std`. Height and width, layout and type are those of the
    model's input; an input of type uint8 takes the pixels as they are, without scale, mean and std.
    """

    size: Annotated[
        Size | None,
        Meta(description="N or [H, W]: pixels, where the model's input has free sizes"),
    ] = None
    resize: Annotated[
        Literal["shorter", "exact", "letterbox", "none"] | Size,
        Meta(
            description="shorter (the shorter side gets the size), exact (both sides do, whatever the "
            "proportions), letterbox (the whole picture fits, the rest is filled), none, N (the shorter side "
            "gets N pixels) or [H, W] (exactly these)"
        ),
    ] = "exact"
    crop: Annotated[
        Literal["center", "none"] | Size,
        Meta(description="center (the middle, of the size), none, or N or [H, W] (the middle, so large)"),
    ] = "none"
    crop_share: Annotated[
        float, Meta(gt=0, le=1, description="with resize shorter: share of the shorter side that the size is")
    ] = 1.0
    crop_offset: Annotated[
        Literal["round", "floor"],
        Meta(description="round (as torchvision) or floor (as transformers): a middle at half a pixel"),
    ] = "round"
    fill: Annotated[int, Meta(ge=0, le=255, description="0 to 255: pixels around a picture")] = 0
    place: Annotated[
        Literal["center", "top-left"],
        Meta(description="center or top-left: where letterbox puts it"),
    ] = "center"
    interpolation: Annotated[
        Literal["nearest", "bilinear", "bicubic", "lanczos", "box", "hamming"],
        Meta(description="nearest, bilinear, bicubic, lanczos, box or hamming"),
    ] = "bilinear"
    antialias: Annotated[
        bool, Meta(description="true (as Pillow and torchvision) or false (as OpenCV), for smaller pictures")
    ] = True
    color: Annotated[
        Literal["rgb", "bgr", "gray", "rgba"] | None,
        Meta(description="rgb, bgr, gray or rgba; else as many channels as the model's input has"),
    ] = None
    scale: Annotated[
        float | str,
        Meta(description="what pixels of 0 to 255 are multiplied by: a number, or a fraction as 1/255"),
    ] = "1/255"
    mean: Annotated[
        tuple[float, ...],
        Meta(description="a list of one number, or one for each channel: subtracted"),
    ] = ()
    std: Annotated[
        tuple[float, ...],
        Meta(description="a list of one number, or one for each channel: divided by"),
    ] = ()
    layout: Annotated[
        Literal["nchw", "nhwc"] | None,
        Meta(description="nchw or nhwc, where the model's input does not say which"),
    ] = None
    dtype: Annotated[str | None, Meta(description="type of the elements; else that of the model's input")] = (
        None
    )
    input: Annotated[
        str | None, Meta(description="name of the input that takes the picture, where there are several")
    ] = None
    column: Annotated[
        str, Meta(description="the column that holds the picture, where rows of a data set have several")
    ] = ""
    constants: Annotated[
        Mapping[str, Any] | None, Meta(description="values of the other inputs, by name: numbers or lists")
    ] = None

    @property
    def factor(self) -> Fraction | float:
        """The number that pixels are multiplied by: exactly, where it is given as a fraction."""
        return Fraction(self.scale) if isinstance(self.scale, str) else self.scale


def image_recipe(preprocessing: Preprocessing) -> ImageRecipe:
    """Return the recipe for pictures that `--preprocess` names.

    Raises:
        ConfigError: an unknown key, a value that is not allowed; a `preprocessor_config.json` asks for a step
            that there is not.
    """
    if preprocessing.kind == PREPROCESSOR_CONFIG:
        return ImageRecipe(**settings_of(preprocessing.name, preprocessing.settings))
    recipe = recipe_of(preprocessing, ImageRecipe)
    where = preprocessing.name
    try:
        factor = recipe.factor
    except (ValueError, ZeroDivisionError):
        raise ConfigError(f"{where}: scale '{recipe.scale}': is no number; give one, as in 1/255") from None
    if not factor:
        raise ConfigError(f"{where}: scale 0: makes every picture the same; give 1/255, or 1 for none")
    if any(not value for value in recipe.std):
        raise ConfigError(f"{where}: std {list(recipe.std)}: nothing can be divided by 0; correct it")
    sizes = (recipe.size, recipe.resize, recipe.crop)
    if any(side < 1 for size in sizes if not isinstance(size, str | None) for side in pair(size)):
        raise ConfigError(f"{where}: size, resize and crop: take pixels from 1; correct them")
    return recipe


def pair(size: Size) -> tuple[int, int]:
    """Return height and width."""
    return (size, size) if isinstance(size, int) else size
