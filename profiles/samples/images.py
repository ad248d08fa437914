"""Samples from pictures: each file is one sample."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..base.errors import ConfigError, DataError, natural_key, nearest
from ..base.extras import library
from ..base.tool import note
from .batches import in_batches, of_one_row
from .constants import exact_array
from .data_yaml import is_data_yaml, pictures_of
from .image_recipes import ImageRecipe, image_recipe, pair
from .preprocessing import BUILT_IN, Preprocessing
from .storage import DataFile, data_files, entries_of, is_file, is_folder, joined, place_of, shown_location
from .values import InputSpec, Sample, Samples, shape_text, type_text

if TYPE_CHECKING:
    from PIL.Image import Image

# Which files of a folder are pictures.

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff")
NAMES = "classes.txt"
"""File of the names of the classes beside their folders, one a line, in the order of the model's."""


def image_files(source: str) -> tuple[DataFile, ...]:
    """Return the pictures of a folder and of the folders in it, in natural order, but for hidden ones.

    Args:
        source: the folder, or one picture, or its URL; or a `data.yaml` and its split.

    Raises:
        DataError: it holds none, or a folder cannot be read.
    """
    found, _ = image_and_other_files(source)
    return found


def image_and_other_files(source: str) -> tuple[tuple[DataFile, ...], int]:
    """Return the pictures as `image_files` does, and how many other files but `classes.txt`."""
    if is_data_yaml(source):
        return pictures_of(source, SUFFIXES), 0
    files = data_files(source, deep=True)
    found = tuple(file for file in files if file.suffix in SUFFIXES)
    if not found:
        raise DataError(
            f"{shown_location(source)}: holds no pictures; give a folder with {', '.join(SUFFIXES)} files"
        )
    return found, sum(file.name != NAMES for file in files) - len(found)


# Classes of pictures that lie in a folder for each class.

SHOWN = 8
"""Classes that a note names."""


@dataclass(frozen=True, eq=False)
class FolderClasses:
    """The classes of the pictures of a folder.

    Attributes:
        names: of the classes by number; "" for one without a folder.
        labels: class of each picture, int64, in the order in which `image_files` has them.
        rule: where the numbers come from, in words.
        is_order: whether the numbers are the order of the folders, and so right only where there is a folder
            for each class of the model.
    """

    names: tuple[str, ...]
    labels: npt.NDArray[np.int64]
    rule: str
    is_order: bool


def noted_classes(source: str | os.PathLike[str]) -> FolderClasses:
    """Return the classes of the pictures of a folder, and note them.

    Args:
        source: folder with a folder for each class.

    Raises:
        DataError: see `folder_classes`.
    """
    found = folder_classes(source)
    named = [f"{number} '{name}'" for number, name in enumerate(found.names) if name]
    more = f" and {len(named) - SHOWN} more" if len(named) > SHOWN else ""
    note(
        f"{shown_location(os.fspath(source))}: the folders are {len(named)} classes, numbered {found.rule}: "
        f"{', '.join(named[:SHOWN])}{more}; if the model has others, write them into {NAMES} in that folder"
    )
    return found


def folder_classes(source: str | os.PathLike[str]) -> FolderClasses:
    """Return the classes of the pictures of a folder.

    The number of a class is the line of its folder's name in `classes.txt`, counted from 0; without that file
    the name itself where all names are exactly the numbers from 0 on, with or without leading zeros, else its
    place in order: of the numbers where all names are some, else alphabetical, as in torchvision and Keras.

    Raises:
        DataError: there are no pictures; one lies in no folder, or in one that `classes.txt` has not.
    """
    root = os.fspath(source)
    folders = [file.name.split("/") for file in image_files(root)]
    outside = next((parts for parts in folders if len(parts) < 2), None)
    if outside is not None:
        raise DataError(
            f"{joined(root, outside[0])}: lies in no folder of a class; put each picture into the folder of "
            "its class, or give a file of labels"
        )
    names, rule, is_order = _names(root)
    number_of = {name: number for number, name in enumerate(names) if name}
    for parts in folders:
        if parts[0] not in number_of:
            raise DataError(
                f"{joined(root, parts[0])}: is no class of {joined(root, NAMES)}; add its line."
                f"{nearest(parts[0], number_of)}"
            )
    labels = np.array([number_of[parts[0]] for parts in folders], np.int64)
    return FolderClasses(names, labels, rule, is_order)


def _names(root: str) -> tuple[tuple[str, ...], str, bool]:
    """Return the names of the classes by number, where the numbers come from, and whether from an order."""
    names = joined(root, NAMES)
    if is_file(names.location):
        return tuple(line.strip() for line in names.text().splitlines()), f"by {NAMES}", False
    entries = (name for name in entries_of(root) if not name.startswith("."))
    folders = sorted(name for name in entries if is_folder(joined(root, name).location))
    if all(name.isascii() and name.isdigit() and len(name) < 7 for name in folders):
        folders.sort(key=natural_key)
        if [int(name) for name in folders] == list(range(len(folders))):
            return tuple(folders), "as they are named", False
        return tuple(folders), "in the order of the numbers", True
    return tuple(folders), "in alphabetical order", True


# The steps of a recipe on one picture, by Pillow; the arithmetic is that of torchvision or transformers.

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


def upright(image: Image, color: str, background: int | None = None) -> Image:
    """Return a picture turned as its EXIF data says, in a colour order; bgr is still rgb.

    Args:
        image: the picture.
        color: order of the channels; rgba keeps transparency.
        background: 0 to 255: pixels behind a transparent picture, as in `convert_to_rgb` of transformers 5;
            None to drop transparency.
    """
    from PIL import Image as PillowImage
    from PIL import ImageOps

    turned = ImageOps.exif_transpose(image)
    if turned.mode == "P" and "transparency" in turned.info:  # Pillow warns of the direct way
        turned = turned.convert("RGBA")
    if background is not None and color != "rgba" and is_transparent(turned):
        behind = PillowImage.new("RGBA", turned.size, (background, background, background, 255))
        turned = PillowImage.alpha_composite(behind, turned.convert("RGBA")).convert("RGB")
    return turned if turned.mode == MODES[color] else turned.convert(MODES[color])


def is_transparent(image: Image) -> bool:
    """Whether something of a picture is transparent: by an alpha channel, a palette or a shade of gray."""
    if "transparency" in image.info and image.mode in ("P", "L", "1"):
        image = image.convert("RGBA")
    has_alpha = image.mode in ("RGBA", "LA", "PA")
    return has_alpha and image.getchannel("A").histogram()[255] < image.width * image.height


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
    top, left = (
        (have - want) // 2  # as `center_crop` of transformers: a border's greater half goes before
        if recipe.crop_offset == "floor"
        else round((have - want) / 2)  # as `center_crop` of torchvision, and its lesser half
        if have >= want
        else -((want - have) // 2)
        for have, want in zip((image.height, image.width), size, strict=True)
    )
    if image.height >= size[0] and image.width >= size[1]:
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


# Where a picture goes: which input of a model takes it, its size, its channels, and what the others get.

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


DEEP = ("I;16", "I;16B", "I;16L", "I;16N", "I", "F")
"""Modes of Pillow with more than 8 bits for a pixel's channel, which it would clip."""


def open(source: str, inputs: Sequence[InputSpec], preprocessing: Preprocessing) -> Samples:
    """Return the pictures of a folder, and of the folders in it, as samples; or one picture.

    Args:
        source: the folder or picture, or its URL.
        inputs: what a sample must hold.
        preprocessing: a recipe for pictures; there must be one.

    Raises:
        ConfigError: there is no recipe, or it has to say more.
        DataError: there are no pictures. While iterating: one is broken.
    """
    if not preprocessing.reader:
        raise DataError(
            f"{source}: holds pictures, and a model takes them resized and normalised as it was trained; say "
            f"how with --preprocess {', '.join(BUILT_IN)}, or FILE (a recipe, or the model's own "
            f"preprocessor_config.json): --data {source} --preprocess imagenet"
        )
    make = ImageSamples(inputs, preprocessing)
    (files, others), shown = image_and_other_files(source), shown_location(source)

    def iterate(part: slice) -> Iterator[Sample]:
        for file in files[part]:
            yield Sample(file.name, make.arrays(io.BytesIO(file.read()), str(file)))

    noted = f"{shown}: {len(files)} pictures, each as {make.description()}"
    if others:
        noted += f"; {others} other {'file' if others == 1 else 'files'} passed over"
    return make.batched(Samples(shown, len(files), iterate, place_of(source), (noted,)))


class ImageSamples:
    """Makes samples of pictures, wherever they come from."""

    def __init__(self, inputs: Sequence[InputSpec], preprocessing: Preprocessing) -> None:
        """Read the recipe.

        Args:
            inputs: of the model.
            preprocessing: a recipe for pictures.

        Raises:
            ConfigError: the recipe is wrong, or has to say more; Pillow is not installed. DataError: no input
                takes a picture.
        """
        library("PIL", preprocessing.name, "images")
        self.recipe, self._inputs = image_recipe(preprocessing), inputs
        rows = of_one_row(inputs) if any(len(spec.shape or ()) == 4 for spec in inputs) else inputs
        self._where = image_input(preprocessing.name, rows, self.recipe)
        self._arithmetic = Arithmetic(self._where.dtype, self._where.channels_first)
        self._transparency_noted = False

    def batched(self, samples: Samples) -> Samples:
        """Return samples of one picture each as the batches that the model takes."""
        return in_batches(samples, self._inputs) if self._where.has_batch else samples

    def arrays(self, file: IO[bytes], where: str) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays of the sample of one picture.

        Args:
            file: the picture, opened.
            where: the picture, for messages.

        Raises:
            DataError: it is broken, no picture, has more than 8 bits for a channel, or cannot be resized.
        """
        color, image = self._where.color, _image(file, where)
        background = self.recipe.background
        if background is None and color != "rgba" and not self._transparency_noted and is_transparent(image):
            self._transparency_noted = True
            note(
                f"{where}: is transparent in places, and its hidden colours are shown, as of others like it; "
                "write background: 255 into a recipe to have such pictures on white"
            )
        try:
            fitting = fitted(upright(image, color, background), self.recipe, self._where.size)
        except (ValueError, MemoryError, OSError) as error:  # of a size that Pillow cannot make
            raise DataError(
                f"{where}: {image.width} x {image.height} pixels cannot be resized ({error}); remove it"
            ) from error
        return self._where.arrays(values_of(fitting, self.recipe, color, self._arithmetic))

    def description(self) -> str:
        """Return what becomes of a picture, in words."""
        recipe, where = self.recipe, self._where
        behind = [] if recipe.background is None else [f"transparent ones on {recipe.background}"]
        steps = [*behind, *_shape_steps(recipe, where.size), where.color.upper()]
        if where.dtype == np.uint8:
            steps.append("pixels 0 to 255")
        else:
            factor = recipe.factor
            text = str(factor) if isinstance(factor, Fraction) else f"{factor:.6g}"
            steps += [] if factor == 1 else [f"times {text}"]
            steps += [f"less {_numbers(recipe.mean)}"] if recipe.mean else []
            steps += [f"divided by {_numbers(recipe.std)}"] if recipe.std else []
        shape = shape_text(where.spec.shape)
        layout = "channels first" if where.channels_first else "channels last"
        return f"{type_text(where.dtype)} {shape}, {layout}: {', '.join(steps)}"


def _shape_steps(recipe: ImageRecipe, size: tuple[int, int] | None) -> Iterator[str]:
    if recipe.resize == "shorter" and size is not None:
        sides = [int(side / recipe.crop_share) for side in size]
        yield f"shorter side to {sides[0]}" if sides[0] == sides[1] else f"to at least {_sides(sides)}"
    elif isinstance(recipe.resize, int):
        yield f"shorter side to {recipe.resize}"
    elif recipe.resize == "letterbox":
        yield f"letterbox {_sides(size or ())} filled with {recipe.fill}"
    elif recipe.resize == "exact":
        yield f"to {_sides(size or ())}"
    elif not isinstance(recipe.resize, str):
        yield f"to {_sides(pair(recipe.resize))}"
    if recipe.crop != "none":
        yield f"middle {_sides(size or () if recipe.crop == 'center' else pair(recipe.crop))}"


def _sides(sides: Sequence[int]) -> str:
    return " x ".join(map(str, sides))


def _numbers(values: Sequence[float]) -> str:
    return " ".join(f"{value:.4g}" for value in values)


def picture_of(file: DataFile) -> Image:
    """Return a picture in RGB as loaders of torchvision give it to transforms: not turned, on no background.

    Raises:
        ConfigError: Pillow is not installed. DataError: it is broken, or no picture.
    """
    library("PIL", str(file), "images")
    return _image(io.BytesIO(file.read()), str(file)).convert("RGB")


def _image(file: IO[bytes], where: str) -> Image:
    """Return a picture that is whole.

    Raises:
        DataError: see `ImageSamples.arrays`.
    """
    from PIL import Image as PillowImage

    try:
        with PillowImage.open(file) as image:
            pages = getattr(image, "n_frames", 1) if image.format != "MPO" else 1  # a photo and its preview
            image.load()
    except OSError as error:
        reason = error.strerror or str(error)
        raise DataError(f"{where}: cannot be read as a picture ({reason}); replace or remove it") from error
    except Exception as error:  # Pillow's decoders raise anything on damaged files
        text = str(error) or type(error).__name__
        raise DataError(f"{where}: cannot be read as a picture ({text}); replace or remove it") from error
    if image.mode in DEEP:
        raise DataError(
            f"{where}: has more than 8 bits for a channel ({image.mode}), which would be cut; save it with 8 "
            "bits, or give samples as FILE.py:FUNCTION"
        )
    if pages > 1:
        note(f"{where}: has {pages} pages or frames, of which the first is taken; save others as files")
    return image
