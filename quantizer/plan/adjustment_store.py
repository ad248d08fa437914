"""Adjustments as lines of a plan file, and back. The layout is told in `plan_store`."""

from __future__ import annotations

import base64
import binascii
import math
import re
import zlib

import numpy as np

from ...profiles.base.strict_yaml import MalformedError, entry, fields, integer_at, mapping_at, text, text_at
from .adjustments import Adjustments, ChannelFactors, WeightMoves

EXPONENT = 60
"""Largest magnitude of the exponent of a divisor."""


def adjustments_text(adjustments: Adjustments) -> str:
    """Return the lines of adjustments, "" when there are none: each vector is one text."""
    if not adjustments:
        return ""
    lines = ["adjustments:\n"]
    lines += ["  factors:\n"] if adjustments.factors else []
    for name, factors in adjustments.factors.items():
        exponents = " ".join(str(math.frexp(divisor)[1] - 1) for divisor in factors.divisors)
        inserted = "true" if factors.inserted else "false"
        value = f"{{axis: {factors.axis}, inserted: {inserted}, exponents: {text(exponents)}}}"
        lines.append(entry(name, value, 4))
    lines += ["  biases:\n"] if adjustments.biases else []
    for name, delta in adjustments.biases.items():
        lines.append(entry(name, text(" ".join(str(np.float32(number)) for number in delta)), 4))
    lines += ["  roundings:\n"] if adjustments.roundings else []
    for name, rounding in adjustments.roundings.items():
        packed = base64.b64encode(zlib.compress(rounding.moves, 9)).decode()
        lines.append(entry(name, f"{{params: {text(rounding.params)}, moves: {text(packed)}}}", 4))
    return "".join(lines)


def adjustments_at(value: object) -> Adjustments:
    """Return the adjustments that the value of their key describes.

    Raises:
        MalformedError: saying where.
    """
    found = fields({} if value is None else value, "adjustments", (), ("factors", "biases", "roundings"))
    factors = mapping_at(found.get("factors", {}), "adjustments: factors")
    biases = mapping_at(found.get("biases", {}), "adjustments: biases")
    roundings = mapping_at(found.get("roundings", {}), "adjustments: roundings")
    return Adjustments(
        {name: _factors(item, f"adjustments: factors of '{name}'") for name, item in factors.items()},
        {name: _numbers(item, f"adjustments: bias of '{name}'") for name, item in biases.items()},
        {name: _moves(item, f"adjustments: rounding of '{name}'") for name, item in roundings.items()},
    )


def _factors(value: object, where: str) -> ChannelFactors:
    found = fields(value, where, ("axis", "inserted", "exponents"))
    words = str(found["exponents"]).split()
    if not words or not all(re.fullmatch("-?[0-9]{1,3}", w) and abs(int(w)) <= EXPONENT for w in words):
        raise MalformedError(f"{where}: exponents must be whole numbers from -{EXPONENT} to {EXPONENT}")
    if not isinstance(found["inserted"], bool):
        raise MalformedError(f"{where}: inserted must be true or false")
    divisors = tuple(math.ldexp(1.0, int(word)) for word in words)
    return ChannelFactors(integer_at(found["axis"], f"{where}: axis", 0), divisors, found["inserted"])


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


def _moves(value: object, where: str) -> WeightMoves:
    found = fields(value, where, ("params", "moves"))
    packed = text_at(found["moves"], f"{where}: moves")
    try:
        moves = zlib.decompress(base64.b64decode(packed, validate=True))
    except (binascii.Error, zlib.error, ValueError):
        raise MalformedError(f"{where}: moves must be int8 numbers, deflated and in base 64") from None
    return WeightMoves(moves, text_at(found["params"], f"{where}: params"))
