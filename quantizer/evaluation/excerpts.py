"""Excerpts of the samples on which the models differ most: the input, small, and the answers of both."""

from __future__ import annotations

import math
import struct
import zlib
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ...profiles.samples.values import InputSpec, Sample, batch_size, of_batches
from .compare import ClassAxis, common_part, is_float

MAX_PICTURE_SIDE = 96
"""Pixels of a side of a picture at most."""
MIN_PICTURE_SIDE = 8
"""Pixels of a side from which on an input is shown as a picture."""
MIN_SIGNAL_LENGTH = 200
"""Values from which on an input of one axis is shown as a signal."""
SIGNAL_PARTS = 80
"""Equal parts of a signal, of each of which the lowest and the highest value are drawn."""
MAX_CHARACTERS = 160
"""Characters of a text that are shown."""
MAX_NUMBERS = 12
"""Numbers of an input that are shown as text."""


@dataclass(frozen=True)
class Excerpt:
    """One row of a sample as a person sees it.

    Attributes:
        sample: its name.
        row: of it, from 0; None where it is one row.
        output: the output whose answers are shown.
        float_answer, quantized_answer: of both models, in words: the class with its value where the output
            has classes, else the value that differs most.
        changed_class: whether the models answer different classes; False where there are none.
        input: name of the input that is shown; "" for none.
        picture: of that input, as PNG in base64, scaled to its own range and to at most `MAX_PICTURE_SIDE`
            pixels; "" for what is no picture.
        curve: of that input, lowest and highest values of equal parts in turn; () for what is no signal.
        text: of that input: strings, or the first of its numbers; "" for a picture and a signal.
    """

    sample: str
    row: int | None
    output: str
    float_answer: str
    quantized_answer: str
    changed_class: bool = False
    input: str = ""
    picture: str = ""
    curve: tuple[float, ...] = ()
    text: str = ""


def excerpt_of(
    sample: Sample,
    specs: Sequence[InputSpec],
    output: str,
    values: tuple[npt.NDArray[Any], npt.NDArray[Any]],
    classes: ClassAxis,
) -> Excerpt:
    """Return the excerpt of a sample: the row of it on which an output differs most.

    Args:
        sample: what both models were given.
        specs: of the inputs.
        output: name of the output.
        values: of that output, of both models, float.
        classes: where it has its classes.
    """
    common = common_part(*values) or values
    floats, quantized = (np.asarray(array, np.float64) for array in common)
    with np.errstate(invalid="ignore"):
        distances = np.nan_to_num(np.abs(floats - quantized), nan=math.inf, posinf=math.inf)
    rows = batch_size(sample.arrays, of_batches(specs))
    row, answers, changed_class = 0, ("", ""), False
    if distances.size:
        place = np.unravel_index(int(np.argmax(distances)), distances.shape)
        if place and rows is not None and rows == distances.shape[0]:
            row = int(place[0])
        axis = classes.axis_in(floats.shape) if classes.is_answer else None
        if place and axis is not None:
            along = tuple(slice(None) if at == axis else index for at, index in enumerate(place))
            float_class, quantized_class = int(np.argmax(floats[along])), int(np.argmax(quantized[along]))
            answers = (
                f"class {float_class} ({floats[along][float_class]:.4g})",
                f"class {quantized_class} ({quantized[along][quantized_class]:.4g})",
            )
            changed_class = float_class != quantized_class
        elif place:
            where = f"[{', '.join(str(int(at)) for at in place)}]"
            answers = (f"{floats[place]:.4g} at {where}", f"{quantized[place]:.4g} at {where}")
    return Excerpt(
        sample.name,
        row if (rows or 1) > 1 else None,
        output,
        *answers,
        changed_class,
        **_input_excerpt(sample, row, rows),
    )


def _input_excerpt(sample: Sample, row: int, rows: int | None) -> dict[str, Any]:
    """Return the fields of the input that says most to a person: a picture, a signal, a text, or numbers."""
    if row < len(sample.texts):  # what its tokens were made of
        return {"input": next(iter(sample.arrays), ""), "text": sample.texts[row][:MAX_CHARACTERS]}
    arrays = sample.arrays
    of_row = {name: array[row] if rows is not None else array for name, array in arrays.items() if array.size}
    for name, array in of_row.items():
        if (pixels := _pixels(array)) is not None:
            return {"input": name, "picture": b64encode(png(pixels)).decode()}
    for name, array in of_row.items():
        flat = array.reshape(-1)
        if is_float(array) and max(array.shape, default=0) == flat.size >= MIN_SIGNAL_LENGTH:
            parts = np.array_split(np.nan_to_num(flat.astype(np.float64)), SIGNAL_PARTS)
            ends = ((float(part.min()), float(part.max())) for part in parts)
            return {"input": name, "curve": tuple(float(f"{end:.4g}") for pair in ends for end in pair)}
    ordered = sorted(of_row.items(), key=lambda item: item[1].dtype.kind not in "OU")
    for name, array in ordered:
        if array.dtype.kind in "OU":
            return {"input": name, "text": " ".join(map(str, array.reshape(-1)))[:MAX_CHARACTERS]}
        more = f" ... ({array.size} numbers)" if array.size > MAX_NUMBERS else ""
        spelt = "d" if array.dtype.kind in "iu" else ".4g"
        return {
            "input": name,
            "text": " ".join(f"{n:{spelt}}" for n in array.reshape(-1)[:MAX_NUMBERS]) + more,
        }
    return {}


def _pixels(array: npt.NDArray[Any]) -> npt.NDArray[np.uint8] | None:
    """Return an array as a picture of shape [height, width] or [height, width, 3]; None for any other.

    Channels are first or last, 1, 3 or 4 of them; a matrix, such as a spectrogram, is grey. Normalised values
    are stretched over all channels together, which keeps the colours nearly.
    """
    shape = tuple(size for size in array.shape[:-3] if size != 1) + array.shape[-3:]
    if not (is_float(array) or array.dtype == np.uint8) or len(shape) not in (2, 3):
        return None
    picture = array.reshape(shape)
    if picture.ndim == 3 and shape[0] in (1, 3, 4):
        picture = np.moveaxis(picture, 0, -1)
    elif picture.ndim == 3 and shape[-1] not in (1, 3, 4):
        return None
    if min(picture.shape[:2]) < MIN_PICTURE_SIDE:
        return None
    height, width, *channels = picture.shape
    picture = picture[..., :3] if channels and channels[0] > 1 else picture.reshape(height, width)
    ratio = max(1.0, max(height, width) / MAX_PICTURE_SIDE)
    at_rows, at_columns = (
        np.linspace(0, size - 1, max(1, round(size / ratio))).round().astype(int) for size in (height, width)
    )
    small = np.nan_to_num(picture[at_rows][:, at_columns].astype(np.float64))
    if array.dtype != np.uint8:
        low, high = float(small.min()), float(small.max())
        small = (small - low) * (255.0 / (high - low) if high > low else 0.0)
    pixels: npt.NDArray[np.uint8] = np.clip(np.rint(small), 0, 255).astype(np.uint8)
    return pixels


def png(pixels: npt.NDArray[np.uint8]) -> bytes:
    """Return a picture as PNG, grey or RGB (RFC 2083: a filter byte before each row, chunks with a checksum).

    Evaluation of a table or of sound does not need Pillow, which would do it otherwise.

    Args:
        pixels: uint8 of shape [height, width] or [height, width, 3].
    """
    height, width = pixels.shape[:2]
    rows = b"".join(b"\0" + row.tobytes() for row in np.ascontiguousarray(pixels))
    header = struct.pack(">IIBBBBB", width, height, 8, 2 if pixels.ndim == 3 else 0, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )
