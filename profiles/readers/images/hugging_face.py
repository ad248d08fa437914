"""A `preprocessor_config.json` of Hugging Face's transformers, in the words of a recipe.

What each step does is that of the image processors that resize, crop, rescale and normalise. Steps that there
are not are refused by name, as is a processor that does something else in these steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...base.errors import ConfigError

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
