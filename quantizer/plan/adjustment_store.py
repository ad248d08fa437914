"""Adjustments as lines of a plan file, and back. The layout is described in `store`."""

from __future__ import annotations

import base64
import binascii
import math
import re
import zlib

import numpy as np

from ...profiles.base.strict_yaml import MalformedError, entry, fields, integer_at, mapping_at, text, text_at
from .adjustments import Adjustments, EqualizationScales, RoundingOffsets

EXPONENT = 60
"""Largest magnitude of the exponent of a scale."""

SECTIONS = ("equalization", "biases", "roundings", "padded_channels")


def adjustments_text(adjustments: Adjustments) -> str:
    """Return the lines of adjustments, "" when there are none: each vector is one text."""
    if not adjustments:
        return ""
    lines = ["adjustments:\n"]
    lines += ["  equalization:\n"] if adjustments.equalization else []
    for name, scales in adjustments.equalization.items():
        exponents = " ".join(str(math.frexp(scale)[1] - 1) for scale in scales.scales)
        inserted = "true" if scales.inserted else "false"
        value = f"{{axis: {scales.axis}, inserted: {inserted}, log2_scales: {text(exponents)}}}"
        lines.append(entry(name, value, 4))
    lines += ["  biases:\n"] if adjustments.biases else []
    for name, delta in adjustments.biases.items():
        lines.append(entry(name, text(" ".join(str(np.float32(number)) for number in delta)), 4))
    lines += ["  roundings:\n"] if adjustments.roundings else []
    for name, rounding in adjustments.roundings.items():
        packed = base64.b64encode(zlib.compress(rounding.offsets, 9)).decode()
        lines.append(entry(name, f"{{params: {text(rounding.params)}, offsets: {text(packed)}}}", 4))
    lines += ["  padded_channels:\n"] if adjustments.padded_channels else []
    lines += [entry(name, str(channels), 4) for name, channels in adjustments.padded_channels.items()]
    return "".join(lines)


def adjustments_at(value: object) -> Adjustments:
    """Return the adjustments that the value of their key describes.

    Raises:
        MalformedError: saying where.
    """
    sections = fields({} if value is None else value, "adjustments", (), SECTIONS)
    scales, biases, roundings, padded = (
        mapping_at(sections.get(s, {}), f"adjustments: {s}") for s in SECTIONS
    )
    return Adjustments(
        {name: _scales(item, f"adjustments: equalization of '{name}'") for name, item in scales.items()},
        {name: _numbers(item, f"adjustments: bias of '{name}'") for name, item in biases.items()},
        {name: _offsets(item, f"adjustments: rounding of '{name}'") for name, item in roundings.items()},
        {
            name: integer_at(item, f"adjustments: padded_channels of '{name}'", 1)
            for name, item in padded.items()
        },
    )


def _scales(value: object, where: str) -> EqualizationScales:
    found = fields(value, where, ("axis", "inserted", "log2_scales"))
    words = str(found["log2_scales"]).split()
    if not words or not all(re.fullmatch("-?[0-9]{1,3}", w) and abs(int(w)) <= EXPONENT for w in words):
        raise MalformedError(f"{where}: log2_scales must be whole numbers from -{EXPONENT} to {EXPONENT}")
    if not isinstance(found["inserted"], bool):
        raise MalformedError(f"{where}: inserted must be true or false")
    scales = tuple(math.ldexp(1.0, int(word)) for word in words)
    return EqualizationScales(integer_at(found["axis"], f"{where}: axis", 0), scales, found["inserted"])


def _numbers(value: object, where: str) -> tuple[float, ...]:
    """Return the float32 numbers of a text."""
    try:
        with np.errstate(over="ignore"):
            numbers = [float(np.float32(word)) for word in str(value).split()]
    except ValueError:
        numbers = []
    if not numbers or not all(map(math.isfinite, numbers)):
        raise MalformedError(f"{where}: must be finite numbers with spaces between them")
    return tuple(numbers)


def _offsets(value: object, where: str) -> RoundingOffsets:
    found = fields(value, where, ("params", "offsets"))
    packed = text_at(found["offsets"], f"{where}: offsets")
    try:
        offsets = zlib.decompress(base64.b64decode(packed, validate=True))
    except (binascii.Error, zlib.error, ValueError):
        raise MalformedError(f"{where}: offsets must be int8 numbers, deflated and in base 64") from None
    return RoundingOffsets(offsets, text_at(found["params"], f"{where}: params"))
