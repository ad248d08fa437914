"""Samples from pictures: each file is one sample."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import IO, TYPE_CHECKING

import numpy as np

from ...base.errors import DataError
from ...base.tool import note
from ...storage.files import place_of, shown_location
from ..batches import in_batches, of_one_row
from ..preprocessing import BUILT_IN, Preprocessing
from ..values import InputSpec, Sample, Samples, shape_text, type_text
from .folders import image_and_other_files
from .inputs import image_input
from .pixels import Arithmetic, fitted, upright, values_of
from .recipe import ImageRecipe, image_recipe, pair

if TYPE_CHECKING:
    from PIL.Image import Image

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
            yield make.sample(file.name, io.BytesIO(file.read()), str(file))

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
            ConfigError: the recipe is wrong, or has to say more. DataError: no input takes a picture.
        """
        self._recipe, self._inputs = image_recipe(preprocessing), inputs
        rows = of_one_row(inputs) if any(len(spec.shape or ()) == 4 for spec in inputs) else inputs
        self._where = image_input(preprocessing.name, rows, self._recipe)
        self._arithmetic = Arithmetic(self._where.dtype, self._where.channels_first)

    def batched(self, samples: Samples) -> Samples:
        """Return samples of one picture each as the batches that the model takes."""
        return in_batches(samples, self._inputs) if self._where.has_batch else samples

    def sample(self, name: str, file: IO[bytes], where: str) -> Sample:
        """Return the sample of one picture.

        Args:
            name: of the sample.
            file: the picture, opened.
            where: the picture, for messages.

        Raises:
            DataError: it is broken, no picture, has more than 8 bits for a channel, or cannot be resized.
        """
        color, image = self._where.color, _image(file, where)
        try:
            fitting = fitted(upright(image, color), self._recipe, self._where.size)
        except (ValueError, MemoryError, OSError) as error:  # of a size that Pillow cannot make
            raise DataError(
                f"{where}: {image.width} x {image.height} pixels cannot be resized ({error}); remove it"
            ) from error
        return Sample(name, self._where.arrays(values_of(fitting, self._recipe, color, self._arithmetic)))

    def description(self) -> str:
        """Return what becomes of a picture, in words."""
        recipe, where = self._recipe, self._where
        steps = [*_shape_steps(recipe, where.size), where.color.upper()]
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


def _image(file: IO[bytes], where: str) -> Image:
    """Return a picture that is whole.

    Raises:
        DataError: see `ImageSamples.sample`.
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
