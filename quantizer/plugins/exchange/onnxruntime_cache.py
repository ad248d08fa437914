"""onnxruntime's calibration table as text, calibration.cache: a line "NAME NUMBER" for each tensor.

onnxruntime writes the larger end of the range for the number. Its TensorRT execution provider, for which the
table is made, takes it for the largest magnitude.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import numpy as np
import onnx_ir as ir

from ....profiles.base.errors import MalformedError, ProfileError
from ....profiles.base.output_files import text_of
from ....profiles.records.profile import Profile
from .foreign import ForeignRanges, assumption, omission, some_of, symmetric_ranges, unique

TOOL = "onnxruntime (calibration table)"
LINE = re.compile(r"(.*[^:\s]) ([-+]?(?:[0-9.]+(?:e[-+]?[0-9]+)?|inf|nan))")
ADVICE = "give the table as onnxruntime.quantization wrote it, or its calibration.json"


def recognises(data: bytes) -> bool:
    """Return whether every line of a file is a name and a number."""
    try:
        lines = text_of(data, "", ProfileError).splitlines()
    except ProfileError:
        return False
    written = [line for line in lines if line.strip()]
    return bool(written) and all(LINE.fullmatch(line) for line in written)


def read(data: bytes, where: str) -> ForeignRanges:
    """Return the symmetric ranges of a table."""
    return ranges_of(unique(_entries(text_of(data, where, ProfileError).splitlines())))


def ranges_of(limits: Mapping[str, float]) -> ForeignRanges:
    """Return the symmetric ranges of a table; raise MalformedError if a number is not finite."""
    below = [name for name, limit in limits.items() if limit <= 0.0]
    sentence = (
        "the table has one number for each tensor, the larger end of its range: ranges are taken to be "
        "symmetric, and are too small for tensors that reach further below 0 than above"
    )
    findings = [assumption(sentence, remedy="calibration.json, beside it, has both ends")]
    if below:
        sentence = f"left out {len(below)} tensors whose larger end is not above 0: {some_of(below)}"
        findings.append(omission(sentence, tensors=len(below)))
    kept = {name: limit for name, limit in limits.items() if not limit <= 0.0}
    return ForeignRanges(symmetric_ranges(kept), TOOL, tuple(findings))


def number_at(text: str, where: str) -> float:
    """Return a number in a table; raise MalformedError if it is none."""
    try:
        return float(text)
    except ValueError:
        raise MalformedError(f"{where}: '{text}' is not a number", ADVICE) from None


def _entries(lines: list[str]) -> Iterator[tuple[str, float]]:
    for number, line in enumerate(lines, 1):
        if line.strip():
            name, _, value = line.rpartition(" ")
            yield name, number_at(value, f"line {number}")


def written_limits(profile: Profile) -> dict[str, str]:
    """Return the largest magnitudes of tensors that are not always 0, in onnxruntime's digits, by name."""
    largest = {name: max(abs(tensor.minimum), abs(tensor.maximum)) for name, tensor in profile.items()}
    limits = {name: float(np.float32(limit)) for name, limit in largest.items()}
    return {name: str(limits[name]) for name in sorted(limits) if limits[name] > 0.0}


def write(profile: Profile, model: ir.Model) -> str:
    """Return a table of the tensors' largest magnitudes; raise ProfileError if a name has an end of line."""
    for name in profile:
        if len(name.splitlines()) > 1:
            raise ProfileError(f"tensor '{name}': its name holds an end of line; rename the tensor")
    return "".join(f"{name} {limit}\n" for name, limit in written_limits(profile).items())
