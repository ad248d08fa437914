"""The keys of a recipe for pictures, and the settings of a `preprocessor_config.json` in these words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any, Literal

from msgspec import Meta

from ..base.errors import ConfigError
from .preprocessing import PREPROCESSOR_CONFIG, Preprocessing, recipe_of

# A `preprocessor_config.json` of Hugging Face's transformers, in the words of a recipe.
#
# What each step does is that of the image processors that resize, crop, rescale and normalise. Steps that
# there are not are refused by name, as is a processor that does something else in these steps.

RESAMPLE = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")
"""By the numbers that Pillow has for them."""
STEPS = (
    "do_resize",
    "do_center_crop",
    "do_rescale",
    "do_normalize",
    "do_convert_rgb",
    "do_flip_channel_order",
)
OTHERS = {
    "Levit": "resizes to 256/224 of the size",
    "ConvNext": "resizes by crop_pct below 384 pixels",
    "PoolFormer": "resizes by crop_pct",
}
"""Processors that do something else under the same names."""
SHORTER = ("CLIP", "MobileNetV1", "MobileNetV2", "MobileViT", "VideoMAE", "Vivit", "Bit", "Blip2")
"""Processors for which one number is the length of the shorter side; it is both sides for others."""
BICUBIC = ("CLIP", "Siglip", "Blip", "Bit", "EfficientFormer", "ChineseCLIP")
"""Processors that interpolate so where the file does not say."""
REFUSED = (
    "longest_edge",
    "max_height",
    "max_width",
    "size_divisor",
    "crop_pct",
    "include_top",
    "rescale_offset",
    "keep_aspect_ratio",
)


def settings_of(where: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a `preprocessor_config.json` says, as the fields of `ImageRecipe`.

    Args:
        where: the file, for messages.
        config: its content.

    Raises:
        ConfigError: a step or key that a recipe has not, named.
    """
    kind = str(config.get("image_processor_type") or config.get("feature_extractor_type") or "")
    _check(where, config, kind)
    found: dict[str, Any] = {"resize": "none", "scale": 1.0, "crop_offset": "floor"}
    if config.get("do_resize", "size" in config):
        found |= _resized(where, config, kind)
    if config.get("do_center_crop", "crop_size" in config):
        found["crop"] = _pixels(where, "crop_size", config.get("crop_size", config.get("size")))
    if config.get("do_rescale", True):
        found["scale"] = float(config.get("rescale_factor", 1 / 255))
    if config.get("do_normalize", "image_mean" in config):
        for name, key in (("mean", "image_mean"), ("std", "image_std")):
            found[name] = _numbers(where, key, config.get(key))
    if config.get("do_flip_channel_order"):
        found["color"] = "bgr"
    if config.get("do_convert_rgb"):
        found["background"] = 255  # `convert_to_rgb` of transformers 5; older ones dropped transparency
    return found


def _check(where: str, config: Mapping[str, Any], kind: str) -> None:
    """Refuse what a recipe cannot do."""
    advice = "write a recipe, or samples as FILE.py:FUNCTION"
    for name, does in OTHERS.items():
        if kind.startswith(name):
            raise ConfigError(f"{where}: {kind} {does}, which is not supported; {advice}")
    sizes = [value for value in (config.get("size"), config.get("crop_size")) if isinstance(value, Mapping)]
    keys = {key: value for mapping in (config, *sizes) for key, value in mapping.items()}
    for key, value in keys.items():
        if value and (key in REFUSED or (key.startswith("do_") and key not in STEPS)):
            raise ConfigError(f"{where}: {key}: {value!r} is not supported; {advice}")


def _resized(where: str, config: Mapping[str, Any], kind: str) -> dict[str, Any]:
    size = config.get("size")
    if isinstance(size, Mapping) and "shortest_edge" in size:
        size = _whole(where, "size", size["shortest_edge"])
    elif isinstance(size, int) and not kind:
        raise ConfigError(
            f"{where}: size {size}: does not say of which side, and the file names no processor; write "
            f'"size": {{"shortest_edge": {size}}} or {{"height": {size}, "width": {size}}}'
        )
    elif not (isinstance(size, int) and kind.startswith(SHORTER)):
        size = _pixels(where, "size", size)
    number = config.get("resample", 3 if kind.startswith(BICUBIC) else 2)
    if not isinstance(number, int) or not 0 <= number < len(RESAMPLE):
        raise ConfigError(f"{where}: resample {number!r}: is none of Pillow's; give 0 to {len(RESAMPLE) - 1}")
    return {"resize": size, "interpolation": RESAMPLE[number]}


def _pixels(where: str, key: str, value: object) -> tuple[int, int]:
    if isinstance(value, Mapping) and {"height", "width"} <= value.keys():
        return _whole(where, key, value["height"]), _whole(where, key, value["width"])
    if isinstance(value, Mapping) and "shortest_edge" in value:
        value = value["shortest_edge"]
    return _whole(where, key, value), _whole(where, key, value)


def _whole(where: str, key: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"{where}: {key}: is {value!r}; give height and width, or shortest_edge, in pixels")
    return value


def _numbers(where: str, key: str, value: object) -> tuple[float, ...]:
    values = value if isinstance(value, list) else [value]
    if not values or not all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
        raise ConfigError(f"{where}: {key}: is {value!r}; give a number for each channel")
    return tuple(map(float, values))


Size = int | tuple[int, int]
"""Pixels: one number for height and width, or both."""


@dataclass(frozen=True)
class ImageRecipe:
    """How a picture becomes the input of a model, in the order of the steps.

    The picture is turned as its EXIF data says, put on `background`, converted to `color`, resized, cropped,
    multiplied by `scale`, lessened by `mean` and divided by `std`. Height and width, layout and type are
    those of the model's input; an input of type uint8 takes the pixels as they are, without scale, mean and
    std.
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
        Meta(
            description="round (as torchvision) or floor (as transformers): a middle at half a pixel; of a "
            "border of an odd number of pixels the lesser half goes before the picture, or the greater"
        ),
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
    background: Annotated[
        Annotated[int, Meta(ge=0, le=255)] | None,
        Meta(
            description="0 to 255: pixels behind transparent pictures (white is 255); else they lose their "
            "transparency, which shows colours that were hidden",
        ),
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
