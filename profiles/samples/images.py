"""Samples from pictures: each file is one sample, prepared by the steps of a recipe."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from dataclasses import field as of_field
from fractions import Fraction
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from msgspec import Meta

from ..base.errors import ConfigError, DataError
from ..base.extras import library
from ..base.findings import Code, Finding
from .batches import in_batches, of_one_row
from .constants import Constants, constant_arrays
from .picture_files import image_and_other_files, small_picture
from .preprocessing import BUILT_IN, PREPROCESSOR_CONFIG, Preprocessing, recipe_of
from .states import values_advice
from .storage import shown_location
from .values import Box, InputSpec, Original, OriginalPicture, Sample, Samples, shape_text, type_text

if TYPE_CHECKING:
    from PIL.Image import Image

# The keys of a recipe for pictures.

Size = int | tuple[int, int]
"""Pixels: one number for height and width, or both."""


@dataclass(frozen=True)
class ImageRecipe:
    """How a picture becomes the input of a model, in the order of the steps.

    The picture is rotated by its EXIF data, put on `background`, converted to `color`, resized, cropped and
    multiplied by `scale`; `mean` is subtracted, and the result divided by `std`. Height and width, layout and
    type are those of the model's input. An input of type uint8 gets the unchanged pixels, without scale, mean
    and std.

    Attributes:
        size: N or [H, W]: pixels, if the model's input has free sizes
        resize: shorter (the shorter side gets the size), exact (both sides do, regardless of proportions),
            letterbox (the whole picture fits, the rest is filled), none, N (the shorter side gets N pixels)
            or [H, W] (exactly these)
        crop: center (the middle, of the size), none, or N or [H, W] (the middle, with this size)
        crop_share: with resize shorter: the size as a fraction of the shorter side
        crop_offset: round (as torchvision) or floor (as transformers): a middle at half a pixel; of a border
            of an odd number of pixels the lesser half goes before the picture, or the greater
        fill: 0 to 255: pixels around a picture
        place: center or top-left: position of the picture in a letterbox
        interpolation: nearest, bilinear, bicubic, lanczos, box or hamming
        antialias: true (as Pillow and torchvision) or false (as OpenCV), for smaller pictures
        color: rgb, bgr, gray or rgba; else as many channels as the model's input has
        background: 0 to 255: pixels behind transparent pictures (white is 255); else transparency is dropped,
            which may show hidden colours
        scale: factor for pixels of 0 to 255: a number, or a fraction as 1/255
        mean: a list of one number, or one for each channel, to subtract
        std: a list of one number, or one for each channel, to divide by
        layout: nchw or nhwc, if the model's input does not determine it
        dtype: type of the elements; else that of the model's input
        input: name of the input for the picture, if there are several
        column: the column with the picture, if rows of a data set have several
    """

    size: Size | None = None
    resize: Literal["shorter", "exact", "letterbox", "none"] | Size = "exact"
    crop: Literal["center", "none"] | Size = "none"
    crop_share: Annotated[float, Meta(gt=0, le=1)] = 1.0
    crop_offset: Literal["round", "floor"] = "round"
    fill: Annotated[int, Meta(ge=0, le=255)] = 0
    place: Literal["center", "top-left"] = "center"
    interpolation: Literal["nearest", "bilinear", "bicubic", "lanczos", "box", "hamming"] = "bilinear"
    antialias: bool = True
    color: Literal["rgb", "bgr", "gray", "rgba"] | None = None
    background: Annotated[int, Meta(ge=0, le=255)] | None = None
    scale: float | str = "1/255"
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    layout: Literal["nchw", "nhwc"] | None = None
    dtype: str | None = None
    input: str | None = None
    column: str = ""
    constants: Constants = of_field(default_factory=dict)

    @property
    def factor(self) -> Fraction | float:
        """The number that pixels are multiplied by: exact if it is given as a fraction."""
        return Fraction(self.scale) if isinstance(self.scale, str) else self.scale


def pair(size: Size) -> tuple[int, int]:
    """Return height and width."""
    return (size, size) if isinstance(size, int) else size


def _image_recipe(preprocessing: Preprocessing) -> ImageRecipe:
    """Return the recipe for pictures that `--preprocess` names."""
    if preprocessing.kind == PREPROCESSOR_CONFIG:
        return ImageRecipe(**_settings_of_config(preprocessing.name, preprocessing.settings))
    recipe = recipe_of(preprocessing, ImageRecipe)
    where = preprocessing.name
    try:
        factor = recipe.factor
    except (ValueError, ZeroDivisionError):
        raise ConfigError(
            f"{where}: scale '{recipe.scale}': is not a number; give one, as in 1/255"
        ) from None
    if not factor:
        raise ConfigError(f"{where}: scale 0: makes every picture the same; give 1/255, or 1 for none")
    if any(not value for value in recipe.std):
        raise ConfigError(f"{where}: std {list(recipe.std)}: nothing can be divided by 0; correct it")
    sizes = (recipe.size, recipe.resize, recipe.crop)
    if any(side < 1 for size in sizes if not isinstance(size, str | None) for side in pair(size)):
        raise ConfigError(f"{where}: size, resize and crop: take pixels from 1; correct them")
    return recipe


# A `preprocessor_config.json` of Hugging Face's transformers, in the words of a recipe.
#
# What each step does is that of the image processors that resize, crop, rescale and normalise. Steps that
# there are not are refused by name, as is a processor that does something else in these steps.

RESAMPLE = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")
"""By the numbers that Pillow has for them."""
STEPS = (
    *("do_resize", "do_center_crop", "do_rescale", "do_normalize", "do_convert_rgb"),
    "do_flip_channel_order",
)
UNSUPPORTED_PROCESSORS = {
    "Levit": "resizes to 256/224 of the size",
    "ConvNext": "resizes by crop_pct below 384 pixels",
    "PoolFormer": "resizes by crop_pct",
}
"""Processors that do something else under the same names."""
SHORTER_SIDE_PROCESSORS = ("CLIP", "MobileNet", "MobileViT", "VideoMAE", "Vivit", "Bit", "Blip2")
"""Processors for which one number is the length of the shorter side; it is both sides for others."""
BICUBIC_PROCESSORS = ("CLIP", "Siglip", "Blip", "Bit", "EfficientFormer", "ChineseCLIP")
"""Processors and their default interpolation."""
UNSUPPORTED_KEYS = (
    *("longest_edge", "max_height", "max_width", "size_divisor", "crop_pct", "include_top"),
    *("rescale_offset", "keep_aspect_ratio"),
)


def _settings_of_config(where: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a `preprocessor_config.json`, as the fields of `ImageRecipe`."""
    processor = str(config.get("image_processor_type") or config.get("feature_extractor_type") or "")
    advice = "write a recipe, or samples as FILE.py:FUNCTION"
    for name, does in UNSUPPORTED_PROCESSORS.items():
        if processor.startswith(name):
            raise ConfigError(f"{where}: {processor} {does}, which is not supported; {advice}")
    sizes = [value for value in (config.get("size"), config.get("crop_size")) if isinstance(value, Mapping)]
    keys = {key: value for mapping in (config, *sizes) for key, value in mapping.items()}
    for key, value in keys.items():
        if value and (key in UNSUPPORTED_KEYS or (key.startswith("do_") and key not in STEPS)):
            raise ConfigError(f"{where}: {key}: {value!r} is not supported; {advice}")

    settings: dict[str, Any] = {"resize": "none", "scale": 1.0, "crop_offset": "floor"}
    if config.get("do_resize", "size" in config):
        size = config.get("size")
        if isinstance(size, int) and not processor:
            raise ConfigError(
                f"{where}: size {size}: the side is unknown, because the file names no processor; write "
                f'"size": {{"shortest_edge": {size}}} or {{"height": {size}, "width": {size}}}'
            )
        settings["resize"] = _config_sides(where, "size", size)
        if isinstance(size, Mapping) and "shortest_edge" in size:
            settings["resize"] = settings["resize"][0]
        elif isinstance(size, int) and processor.startswith(SHORTER_SIDE_PROCESSORS):
            settings["resize"] = size
        number = config.get("resample", 3 if processor.startswith(BICUBIC_PROCESSORS) else 2)
        if not isinstance(number, int) or not 0 <= number < len(RESAMPLE):
            raise ConfigError(
                f"{where}: resample {number!r}: is not a filter of Pillow; give 0 to {len(RESAMPLE) - 1}"
            )
        settings["interpolation"] = RESAMPLE[number]
    if config.get("do_center_crop", "crop_size" in config):
        settings["crop"] = _config_sides(where, "crop_size", config.get("crop_size", config.get("size")))
    if config.get("do_rescale", True):
        (settings["scale"],) = _config_numbers(where, "rescale_factor", config.get("rescale_factor", 1 / 255))
    if config.get("do_normalize", "image_mean" in config):
        settings["mean"] = _config_numbers(where, "image_mean", config.get("image_mean"))
        settings["std"] = _config_numbers(where, "image_std", config.get("image_std"))
    if config.get("do_flip_channel_order"):
        settings["color"] = "bgr"
    if config.get("do_convert_rgb"):
        settings["background"] = 255  # `convert_to_rgb` of transformers 5; older ones dropped transparency
    return settings


def _config_sides(where: str, key: str, value: Any) -> tuple[int, int]:
    """Return height and width; of a shortest edge both are that."""
    sides = [value, value]
    if isinstance(value, Mapping):
        sides = [value.get("height"), value.get("width")]
        sides = sides if "height" in value else [value.get("shortest_edge")] * 2
    if not all(type(side) is int and side >= 1 for side in sides):
        raise ConfigError(f"{where}: {key}: is {value!r}; give height and width, or shortest_edge, in pixels")
    return sides[0], sides[1]


def _config_numbers(where: str, key: str, value: Any) -> tuple[float, ...]:
    numbers = value if isinstance(value, list) else [value]
    with suppress(OverflowError):
        if numbers and all(type(one) in (int, float) and math.isfinite(one) for one in numbers):
            return tuple(map(float, numbers))
    raise ConfigError(f"{where}: {key}: is {value!r:.60}; give a number for each channel")


# Which input of a model takes a picture, its size and channels, and what the other inputs get.

CHANNELS = {"rgb": 3, "bgr": 3, "gray": 1, "rgba": 4}
COLORS = {3: "rgb", 1: "gray", 4: "rgba"}


@dataclass(eq=False)
class ImageEncoder:
    """Makes samples of pictures, wherever they come from."""

    recipe: ImageRecipe
    spec: InputSpec  # as if the model took one row at a time
    size: tuple[int, int] | None  # height, width; None if they are free and nothing gives them
    channels_first: bool
    color: str
    dtype: np.dtype[Any]
    constants: Mapping[str, npt.NDArray[Any]]

    @property
    def has_batch(self) -> bool:
        """Whether the input has an axis of rows."""
        return len(self.spec.shape or ()) == 4

    def arrays(self, file: IO[bytes], where: str) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays of the sample of one picture; DataError if it is broken or deeper than 8 bits."""
        recipe, image = self.recipe, _loaded(file, where)
        try:
            fitting = _fitted(_upright(image, self.color, recipe.background), recipe, self.size)
        except (ValueError, OverflowError, MemoryError, OSError) as error:  # a size that Pillow cannot make
            raise DataError(
                f"{where}: {image.width} x {image.height} pixels cannot be resized ({error}); remove it"
            ) from error
        pixels: npt.NDArray[np.uint8] = np.asarray(fitting)
        pixels = pixels[:, :, None] if pixels.ndim == 2 else pixels
        pixels = pixels[:, :, ::-1] if self.color == "bgr" else pixels
        values = pixels if self.dtype == np.uint8 else _normalised(pixels, recipe)
        ordered = values.transpose(2, 0, 1) if self.channels_first else values
        array = np.ascontiguousarray(ordered).astype(self.dtype, copy=False)
        return {self.spec.name: array[None] if self.has_batch else array, **self.constants}

    def original(self, read: Callable[[], bytes], where: str) -> Original:
        """Return a picture as the original of its input; `read` returns the file's content when needed."""

        def picture(longest: int) -> OriginalPicture:
            image = _upright(_loaded(io.BytesIO(read()), where), "rgb", self.recipe.background)
            place = placement(image.height, image.width, self.recipe, self.size)
            return small_picture(image, longest, place.box)

        return Original(self.spec.name, picture=picture)

    def description(self) -> str:
        """Return type, shape and colours of the array of a picture."""
        return f"{type_text(self.dtype)} {shape_text(self.spec.shape)}, {self.color.upper()}"


def image_encoder(preprocessing: Preprocessing, inputs: Sequence[InputSpec]) -> ImageEncoder:
    """Return an encoder that makes samples of pictures; ConfigError if the recipe leaves something open."""
    where = preprocessing.name
    library("PIL", where, "images")
    recipe = _image_recipe(preprocessing)
    inputs = of_one_row(inputs) if any(len(spec.shape or ()) == 4 for spec in inputs) else inputs
    constants = constant_arrays(where, recipe.constants, inputs)
    open_inputs = [one for one in inputs if one.name not in constants]
    spec = _picture_input(where, open_inputs, recipe)
    others = [one for one in open_inputs if one is not spec]
    if others:
        raise ConfigError(
            f"{where}: does not describe input '{others[0].name}', {others[0]}; write a recipe with "
            f"{values_advice(others)}{_base_advice(where)}"
        )
    shape = spec.shape
    if shape is None or len(shape) not in (3, 4):
        raise DataError(
            f"input '{spec.name}': is {spec}, and a picture needs 3 or 4 dimensions; name another "
            "input in the recipe (input: NAME), or give samples as FILE.py:FUNCTION"
        )
    if recipe.layout is not None:
        channels_first = recipe.layout == "nchw"
    else:
        wanted = (CHANNELS[recipe.color],) if recipe.color else tuple(COLORS)
        channels_first = shape[-3] in wanted
        if channels_first == (shape[-1] in wanted):
            raise ConfigError(
                f"{where}: input '{spec.name}' is {spec}, so the axis of its channels is unknown; write a "
                f"recipe with layout: nchw or layout: nhwc{_base_advice(where)}"
            )
    axes = shape[-3:]
    channels, sides = (axes[0], axes[1:]) if channels_first else (axes[2], axes[:2])
    size = _picture_size(where, spec, (sides[0], sides[1]), recipe)
    color = recipe.color or COLORS.get(channels if isinstance(channels, int) else 3)
    if color is None:
        raise DataError(
            f"input '{spec.name}': is {spec}, with {channels} channels, and pictures have 1, 3 or 4; "
            "give samples as FILE.py:FUNCTION"
        )
    for name, values in (("mean", recipe.mean), ("std", recipe.std)):
        if len(values) not in (0, 1, CHANNELS[color]):
            raise ConfigError(
                f"{where}: {name}: has {len(values)} numbers, and the model's input {CHANNELS[color]} "
                "channels; give one number, or one for each channel"
            )
    try:
        dtype = np.dtype(recipe.dtype) if recipe.dtype else spec.dtype
    except TypeError:
        raise ConfigError(
            f"{where}: dtype '{recipe.dtype}': is not a type of numpy; give float32 or uint8"
        ) from None
    if dtype.kind in "iu" and dtype != np.uint8:
        every_pixel = np.repeat(np.arange(256, dtype=np.uint8)[:, None], CHANNELS[color], axis=1)
        numbers, limits = _normalised(every_pixel, recipe), np.iinfo(dtype)
        if not ((numbers == np.rint(numbers)) & (numbers >= limits.min) & (numbers <= limits.max)).all():
            raise ConfigError(
                f"{where}: input '{spec.name}' takes {type_text(dtype)}, and scale, mean and std make "
                "numbers of pixels that it cannot hold; write a recipe that makes whole ones, as scale: 1, "
                "mean: [128]"
            )

    return ImageEncoder(recipe, spec, size, channels_first, color, dtype, constants)


def _picture_input(where: str, inputs: Sequence[InputSpec], recipe: ImageRecipe) -> InputSpec:
    """Return the input that takes the picture: the one of the recipe, or the only one, or of rank 4."""
    names = ", ".join(f"'{spec.name}'" for spec in inputs)
    if recipe.input is not None:
        named = [spec for spec in inputs if spec.name == recipe.input]
        if not named:
            raise ConfigError(
                f"{where}: input '{recipe.input}': is not an input of the model; its inputs are {names}"
            )
        return named[0]
    fitting = [spec for spec in inputs if spec.shape is not None and len(spec.shape) == 4]
    if len(inputs) > 1 and len(fitting) != 1:
        raise ConfigError(
            f"{where}: does not name the input for the picture; write a recipe with input: NAME and "
            f"constants: {{OTHER: VALUES}}; the model's inputs are {names}"
        )
    return fitting[0] if fitting else inputs[0]


def _picture_size(
    where: str, spec: InputSpec, sides: tuple[int | str | None, int | str | None], recipe: ImageRecipe
) -> tuple[int, int] | None:
    """Return height and width of the input, from the model or the recipe; None if no step needs them."""
    given = None if recipe.size is None else pair(recipe.size)
    name, _, own = spec.recipe.partition(":")  # the metadata's, for the free sides of a model
    stated = [int(side) for side in own.split("x")] if own and name == where else [None]
    wanted = given or (stated[0], stated[-1])
    height, width = (side if isinstance(side, int) else wanted[axis] for axis, side in enumerate(sides))
    if given and given != (height, width):
        raise ConfigError(
            f"{where}: size {given[0]} x {given[1]}: input '{spec.name}' is {spec}; leave the size out"
        )
    if height is not None and width is not None:
        return height, width
    if recipe.resize in ("shorter", "exact", "letterbox") or recipe.crop == "center":
        advice = "write that of training, as size: 224, or size: [192, 256] for height and width"
        if where.isidentifier():  # a built-in recipe
            advice = f"write that of training, as --preprocess {where}:224, or :192x256 for height and width"
        raise ConfigError(f"{where}: the size is not known: input '{spec.name}' is {spec}; {advice}")
    return None


def _base_advice(where: str) -> str:
    """Return advice how a recipe is based on a built-in one."""
    name = where.partition(":")[0]
    return f" below the line base: {name}" if name.isidentifier() else ""


# The steps of a recipe on one picture, by Pillow; the arithmetic is that of torchvision or transformers.

MODES = {"rgb": "RGB", "bgr": "RGB", "gray": "L", "rgba": "RGBA"}
"""Pillow's names of the colour orders."""
DEEP_MODES = ("I;16", "I;16B", "I;16L", "I;16N", "I", "F")
"""Modes of Pillow with more than 8 bits for a pixel's channel, which it would clip."""


def _loaded(file: IO[bytes], where: str) -> Image:
    """Return a picture that Pillow can read completely and that has at most 8 bits for a channel."""
    from PIL import Image as PillowImage

    try:
        with warnings.catch_warnings():
            # From 89 million pixels on, which scans have, Pillow warns; it refuses twice as many.
            warnings.simplefilter("ignore", PillowImage.DecompressionBombWarning)
            opened = PillowImage.open(file)
        with opened as image:
            image.load()
    except PillowImage.DecompressionBombError:
        most = 2 * (PillowImage.MAX_IMAGE_PIXELS or 0) / 1e6
        raise DataError(
            f"{where}: has more than {most:.0f} million pixels, which Pillow does not open; scale it down"
        ) from None
    except Exception as error:  # Pillow's decoders raise anything on damaged files
        reason = getattr(error, "strerror", None) or str(error).partition(" <")[0] or type(error).__name__
        raise DataError(f"{where}: cannot be read as a picture ({reason}); replace or remove it") from error
    if image.mode in DEEP_MODES:
        raise DataError(
            f"{where}: has more than 8 bits for a channel ({image.mode}), which would be cut; save it with 8 "
            "bits, or give samples as FILE.py:FUNCTION"
        )
    return image


def _upright(image: Image, color: str, background: int | None) -> Image:
    """Return a picture turned by its EXIF data, on a background, in a colour order; bgr is still rgb."""
    from PIL import Image as PillowImage
    from PIL import ImageOps

    turned = ImageOps.exif_transpose(image)
    if turned.mode == "P" and "transparency" in turned.info:  # Pillow warns of the direct way
        turned = turned.convert("RGBA")
    if background is not None and color != "rgba" and _is_transparent(turned):
        behind = PillowImage.new("RGBA", turned.size, (background, background, background, 255))
        turned = PillowImage.alpha_composite(behind, turned.convert("RGBA")).convert("RGB")
    return turned if turned.mode == MODES[color] else turned.convert(MODES[color])


def _is_transparent(image: Image) -> bool:
    """Whether something of a picture is transparent: by an alpha channel, a palette or a shade of gray."""
    if "transparency" in image.info and image.mode in ("P", "L", "1"):
        image = image.convert("RGBA")
    has_alpha = image.mode in ("RGBA", "LA", "PA")
    return has_alpha and image.getchannel("A").histogram()[255] < image.width * image.height


@dataclass(frozen=True)
class Placement:
    """Where a picture goes in the input of a model, in pixels; heights go before widths."""

    resized: tuple[int, int]  # height, width of the whole picture
    size: tuple[int, int]  # of the input
    corner: tuple[int, int] = (0, 0)  # row, column of the picture's first pixel; below 0 if it is cropped

    @property
    def box(self) -> Box:
        """The whole picture as x0, y0, x1, y1 in the input."""
        (top, left), (height, width) = self.corner, self.resized
        return float(left), float(top), float(left + width), float(top + height)


def placement(height: int, width: int, recipe: ImageRecipe, size: tuple[int, int] | None) -> Placement:
    """Return the place of a picture in the input; `size` is the (height, width) that words stand for."""

    def sides_of(step: str | Size) -> tuple[int, int]:
        """Return the height and width of a step: its own, or those that the model has."""
        if isinstance(step, str):
            assert size is not None
            return size
        return pair(step)

    resized, corner = (height, width), (0, 0)
    if recipe.resize == "letterbox":  # the whole picture amid borders, as ultralytics' LetterBox does
        sides = sides_of(recipe.resize)
        ratio = min(sides[0] / height, sides[1] / width)
        resized = max(1, round(height * ratio)), max(1, round(width * ratio))
        if recipe.place != "top-left":
            corner = round((sides[0] - resized[0]) / 2 - 0.1), round((sides[1] - resized[1]) / 2 - 0.1)
        whole = Placement(resized, sides, corner)
    else:
        if recipe.resize == "shorter":
            sides = sides_of(recipe.resize)
            wanted = int(sides[0] / recipe.crop_share), int(sides[1] / recipe.crop_share)
            if wanted[0] == wanted[1]:
                resized = _with_shorter_side(height, width, wanted[0])
            else:  # the least height and width in proportion that are at least those wanted
                ratio = max(wanted[0] / height, wanted[1] / width)
                resized = max(wanted[0], int(height * ratio)), max(wanted[1], int(width * ratio))
        elif isinstance(recipe.resize, int):
            resized = _with_shorter_side(height, width, recipe.resize)
        elif recipe.resize != "none":
            resized = sides_of(recipe.resize)
        whole = Placement(resized, resized)
    if recipe.crop == "none":
        return whole
    cropped = sides_of(recipe.crop)
    corner = (
        whole.corner[0] - _crop_start(whole.size[0], cropped[0], recipe),
        whole.corner[1] - _crop_start(whole.size[1], cropped[1], recipe),
    )
    return replace(whole, size=cropped, corner=corner)


def _crop_start(have: int, want: int, recipe: ImageRecipe) -> int:
    """Return the first pixel of the middle of a side, below 0 if the side is too short and is filled."""
    if recipe.crop_offset == "floor":  # as `center_crop` of transformers: a border's greater half goes before
        return (have - want) // 2
    # As `center_crop` of torchvision, and its lesser half.
    return round((have - want) / 2) if have >= want else -((want - have) // 2)


def _fitted(image: Image, recipe: ImageRecipe, size: tuple[int, int] | None) -> Image:
    """Return a picture of the size that the recipe gives it; see `placement`."""
    from PIL import Image as PillowImage

    place = placement(image.height, image.width, recipe, size)
    resized, (top, left), (height, width) = _resized(image, place.resized, recipe), place.corner, place.size
    if place.resized == place.size:
        return resized
    if 0 <= -top <= place.resized[0] - height and 0 <= -left <= place.resized[1] - width:
        return resized.crop((-left, -top, width - left, height - top))
    canvas = PillowImage.new(resized.mode, (width, height), (recipe.fill,) * len(resized.getbands()))
    canvas.paste(resized, (left, top))
    return canvas


def _with_shorter_side(height: int, width: int, length: int) -> tuple[int, int]:
    """Return height and width in proportion; the longer side is rounded down, as torchvision does."""
    if width <= height:
        return int(length * height / width), length
    return length, int(length * width / height)


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


def _normalised(pixels: npt.NDArray[np.uint8], recipe: ImageRecipe) -> npt.NDArray[Any]:
    """Return the values in float32."""
    factor = recipe.factor
    values: npt.NDArray[Any]
    if isinstance(factor, Fraction):  # as torchvision: divided by 255 in float32
        values = pixels.astype(np.float32) * np.float32(factor.numerator) / np.float32(factor.denominator)
    else:  # as transformers: multiplied in float64
        values = (pixels.astype(np.float64) * factor).astype(np.float32)
    return (values - np.asarray(recipe.mean or 0, np.float32)) / np.asarray(recipe.std or 1, np.float32)


def open(source: str, inputs: Sequence[InputSpec], preprocessing: Preprocessing) -> Samples:
    """Return the pictures of a folder, and of the folders in it, as samples; or one picture."""
    if not preprocessing.reader:
        is_sized = ":" in inputs[0].recipe or all(isinstance(n, int) for n in (inputs[0].shape or ("",))[1:])
        size = "" if is_sized else ":224x224, with the size of training"
        raise DataError(
            f"{source}: contains pictures, which must be resized and normalised as in training; say "
            f"how with --preprocess {', '.join(BUILT_IN)}, or FILE (a recipe, or the model's own "
            f"preprocessor_config.json), for example: --data {source} --preprocess {inputs[0].recipe}{size}"
        )
    encoder = image_encoder(preprocessing, inputs)
    (files, others), shown = image_and_other_files(source), shown_location(source)

    def iterate(part: slice) -> Iterator[Sample]:
        for file in files[part]:
            arrays = encoder.arrays(io.BytesIO(file.read()), str(file))
            yield Sample(file.name, arrays, originals=(encoder.original(file.read, str(file)),))

    sentence = f"{shown}: {len(files)} picture{'s'[: len(files) != 1]}, each as {encoder.description()}"
    if others:
        sentence += f"; {others} other {'file' if others == 1 else 'files'} passed over"
    assumed = Finding(Code.READING_ASSUMED, sentence, shown)
    samples = Samples(shown, len(files), iterate, True, (assumed,))
    return in_batches(samples, inputs) if encoder.has_batch else samples
