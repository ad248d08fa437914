"""Excerpts of the samples on which the models differ most: the input as a person knows it, and both
answers."""

from __future__ import annotations

import math
import struct
import zlib
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ....profiles.base.errors import QprofError
from ....profiles.samples.token_inputs import usual_role
from ....profiles.samples.values import Box, InputSpec, Original, Sample, batch_size, of_batches
from ...evaluation.compare import common_part, is_float
from ...evaluation.metrics.metric import Found, class_word
from ...noise.class_axes import ClassAxis
from .class_names import ClassNames

MAX_PICTURE_SIDE = 96
"""Pixels of a side of a picture that is made of an array, at most."""
MAX_ORIGINAL_SIDE = 256
"""Pixels of a side of a picture as its file has it, at most."""
MIN_PICTURE_SIDE = 8
"""Pixels of a side from which on an input is shown as a picture."""
MAX_CHARACTERS = 240
"""Characters of a text that are shown."""
MAX_NUMBERS = 12
"""Numbers of an input that are shown as text."""


@dataclass(frozen=True, eq=False)
class Reading:
    """How a person reads the inputs and the answers of a model."""

    names: ClassNames | None = None  # of its classes; None for none
    decode: Callable[[Sequence[int]], str] | None = None  # returns the text of token ids, "" where nobody can

    def class_axis(self, classes: ClassAxis, shape: tuple[int, ...]) -> int | None:
        """Return the axis of the classes in an output, or None if the largest value is no answer."""
        axis = classes.axis_in(shape)
        if axis is None or classes.is_answer:
            return axis
        return axis if self.names is not None and self.names.of(shape[axis]) else None

    def names_of(self, count: int, specs: Sequence[InputSpec], numbers: Sequence[int]) -> Mapping[int, str]:
        """Return the names of some of `count` classes, if known; for tokens, their text."""
        if self.decode is not None and count in {spec.rows for spec in specs}:
            return {number: f"'{self.decode([number])}'" for number in numbers}
        return {} if self.names is None else self.names.of(count)


@dataclass(frozen=True)
class Excerpt:
    """One row of a sample as a person sees it."""

    sample: str
    row: int | None  # of it, from 0; None where it is one row
    output: str  # the output whose answers are shown
    float_answer: str  # of both models
    quantized_answer: str
    answered: bool = False  # whether its answers are classes, texts or objects, and no numbers alone
    changed: bool = False  # whether these differ
    share: str = ""  # of the answers that changed, in words, where a row has several
    truth: str = ""  # what is right, in words; "" where nobody says
    input: str = ""  # name of the input that is shown; "" for none, or several
    picture: str = ""  # of that input, base64; "" for what is no picture
    media_type: str = "image/png"  # of the picture; width goes before height
    size: tuple[int, int] = (1, 1)
    frame: Box | None = None  # the part of the input that the picture shows, as x0, y0, x1, y1 in its pixels
    text: str = ""  # of that input: a text, the fields of a row, strings, or the first of its numbers
    found: tuple[Found, ...] = ()  # objects in the picture, the surest first; () for a model that finds none
    original: Original | None = None  # what the row was made of, where its picture is still to be read

    @property
    def with_picture(self) -> Excerpt:
        """The excerpt with the picture of its file, read now; unchanged without one."""
        if self.original is None or self.original.picture is None:
            return self
        try:
            picture = self.original.picture(MAX_ORIGINAL_SIDE)
        except QprofError:
            return replace(self, original=None, text="(the picture can no longer be read)")
        encoded = b64encode(picture.content).decode()
        return replace(
            self,
            original=None,
            picture=encoded,
            media_type=picture.media_type,
            size=picture.size,
            frame=picture.box,
        )


def excerpt_of(
    sample: Sample,
    specs: Sequence[InputSpec],
    output: str,
    values: tuple[npt.NDArray[Any], npt.NDArray[Any]],
    classes: ClassAxis,
    *,
    reading: Reading | None = None,
    true_classes: Sequence[int] = (),
) -> Excerpt:
    """Return the excerpt of a sample: the row of it on which an answer changes, or an output differs most."""
    reading = reading or Reading()
    common = common_part(*values) or values
    floats, quantized = (np.asarray(array, np.float64) for array in common)
    with np.errstate(invalid="ignore"):
        distances = np.nan_to_num(np.abs(floats - quantized), nan=math.inf, posinf=math.inf)
    rows = batch_size(sample.arrays, of_batches(specs))
    row, answers, changes, share, truth = 0, ("", ""), 0, "", ""
    axis = reading.class_axis(classes, floats.shape)
    if distances.size:
        if axis is not None:
            chosen = [np.argmax(array, axis, keepdims=True) for array in (floats, quantized)]
            differ = chosen[0] != chosen[1]
            changes = int(differ.sum())
            distances = np.where(differ, distances, -1.0) if changes else distances
            if differ.size > (rows or 1):  # pixels or tokens
                share = f"{changes:,} of {differ.size:,} answers changed"
        place = np.unravel_index(int(np.argmax(distances)), distances.shape)
        if place and rows is not None and rows == distances.shape[0]:
            row = int(place[0])
        if place and axis is not None:
            along = tuple(slice(None) if at == axis else index for at, index in enumerate(place))
            at_place = tuple(0 if at == axis else index for at, index in enumerate(place))
            numbers = [int(of_model[at_place]) for of_model in chosen]
            names = reading.names_of(floats.shape[axis], specs, numbers)
            words = (
                f"{class_word(names, number)} ({array[along][number]:.4g})"
                for number, array in zip(numbers, (floats, quantized), strict=True)
            )
            answers = next(words), next(words)
            if len(true_classes) == differ.size and row < len(true_classes):
                truth = class_word(names, int(true_classes[row]))
        elif place:
            share = _cosine_text(floats, quantized)
            where = f" at [{', '.join(str(int(at)) for at in place)}]" if floats.size > 1 else ""
            if not (share and floats.size >= FEWEST_OF_A_DIRECTION):  # of whose numbers none says anything
                answers = (f"{floats[place]:.4g}{where}", f"{quantized[place]:.4g}{where}")
    return Excerpt(
        sample.name,
        row if (rows or 1) > 1 else None,
        output,
        *answers,
        answered=answers != ("", "") and axis is not None,
        changed=changes > 0,
        share=share,
        truth=truth,
        **_input_excerpt(sample, row, rows, reading),
    )


FEWEST_OF_A_DIRECTION = 64
"""Numbers of an answer whose direction tells more than any one of them: an embedding."""

MIN_VECTOR = 8
"""Numbers of an answer from which on both are compared as vectors."""


def _cosine_text(floats: npt.NDArray[np.float64], quantized: npt.NDArray[np.float64]) -> str:
    """Return the cosine similarity of two answers in words; "" for few numbers, and without a direction."""
    lengths = float(np.linalg.norm(floats)) * float(np.linalg.norm(quantized))
    if floats.size < MIN_VECTOR or not 0.0 < lengths < math.inf:
        return ""
    return f"cosine of both {float(floats.reshape(-1) @ quantized.reshape(-1)) / lengths:.4f}"


def _input_excerpt(sample: Sample, row: int, rows: int | None, reading: Reading) -> dict[str, Any]:
    """Return the fields of the input that a person reads best."""
    arrays = sample.arrays
    of_row = {name: array[row] if rows is not None else array for name, array in arrays.items() if array.size}
    if row < len(sample.originals):
        original = sample.originals[row]
        fields = {"input": original.input or next(iter(arrays), ""), "original": original}
        if original.text:
            return {**fields, "text": _cut(original.text)}
        if original.picture is not None:
            return fields
    for name, array in of_row.items():
        if (pixels := _pixels(array)) is not None:
            size, picture = (pixels.shape[1], pixels.shape[0]), b64encode(png(pixels)).decode()
            return {"input": name, "picture": picture, "size": size, "frame": _frame(array)}
    for name, array in of_row.items():
        if array.dtype.kind in "iu" and usual_role(name) == "ids":
            text = "" if reading.decode is None else reading.decode(array.reshape(-1).tolist())
            if text:
                return {"input": name, "text": _cut(text)}
    ordered = sorted(of_row.items(), key=lambda item: item[1].dtype.kind not in "OU")
    for name, array in ordered:
        if array.dtype.kind in "OU":
            return {"input": name, "text": _cut(" ".join(map(str, array.reshape(-1))))}
        more = f" ... ({array.size} numbers)" if array.size > MAX_NUMBERS else ""
        spelt = "d" if array.dtype.kind in "iu" else ".4g"
        return {
            "input": name,
            "text": " ".join(f"{n:{spelt}}" for n in array.reshape(-1)[:MAX_NUMBERS]) + more,
        }
    return {}


def _cut(text: str) -> str:
    return text if len(text) <= MAX_CHARACTERS else f"{text[: MAX_CHARACTERS - 1]}\N{HORIZONTAL ELLIPSIS}"


def _picture_of(array: npt.NDArray[Any]) -> npt.NDArray[Any] | None:
    """Return an array as [height, width, channels], 1, 3 or 4 of them, or None if it is no picture."""
    shape = tuple(size for size in array.shape[:-3] if size != 1) + array.shape[-3:]
    if not (is_float(array) or array.dtype == np.uint8) or len(shape) not in (2, 3):
        return None
    picture = array.reshape(shape)
    if picture.ndim == 2:
        picture = picture[:, :, None]
    elif shape[0] in (1, 3, 4):
        picture = np.moveaxis(picture, 0, -1)
    elif shape[-1] not in (1, 3, 4):
        return None
    return picture if min(picture.shape[:2]) >= MIN_PICTURE_SIDE else None


def _frame(array: npt.NDArray[Any]) -> Box | None:
    """Return all of an input that is a picture, as x0, y0, x1, y1 in its pixels."""
    picture = _picture_of(array)
    return None if picture is None else (0.0, 0.0, float(picture.shape[1]), float(picture.shape[0]))


def _pixels(array: npt.NDArray[Any]) -> npt.NDArray[np.uint8] | None:
    """Return an array as a picture [height, width] or [height, width, 3], or None.

    Its values are stretched over all channels.
    """
    picture = _picture_of(array)
    if picture is None:
        return None
    small = _made_smaller(picture)
    low, high = float(small.min()), float(small.max())
    scale = 255.0 / (high - low) if high > low else 0.0
    return _as_bytes(small if array.dtype == np.uint8 else (small - low) * scale)


def _made_smaller(picture: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return some of the pixels of [height, width, channels], at most `MAX_PICTURE_SIDE` of a side."""
    height, width = picture.shape[:2]
    ratio = max(1.0, max(height, width) / MAX_PICTURE_SIDE)
    at_rows, at_columns = (
        np.linspace(0, size - 1, max(1, round(size / ratio))).round().astype(int) for size in (height, width)
    )
    some: npt.NDArray[np.float64] = picture[at_rows][:, at_columns, :3].astype(np.float64)
    return np.nan_to_num(some)


def _as_bytes(pixels: npt.NDArray[np.float64]) -> npt.NDArray[np.uint8]:
    """Return pixels from 0 to 255 of [height, width, channels] as whole ones; one channel has no axis."""
    whole: npt.NDArray[np.uint8] = np.clip(np.rint(pixels), 0, 255).astype(np.uint8)
    return whole if whole.shape[2] > 1 else whole[..., 0]


def png(pixels: npt.NDArray[np.uint8]) -> bytes:
    """Return uint8 pixels [height, width] or [height, width, 3] as PNG, grey or RGB."""
    height, width = pixels.shape[:2]
    rows = b"".join(b"\0" + row.tobytes() for row in np.ascontiguousarray(pixels))
    header = struct.pack(">IIBBBBB", width, height, 8, 2 if pixels.ndim == 3 else 0, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )
