"""TensorRT's calibration cache: a line with version and calibrator, then "NAME: SCALE" for each tensor.

The scale is a float32, written as the hexadecimal digits of its bits; it is the largest magnitude that the
calibrator keeps, over 127. TensorRT documents the file in its sample "sampleINT8"; onnxruntime's TensorRT
execution provider reads it (`ReadDynamicRange`), and so does NVIDIA's TAO, whose exporter writes it.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

import onnx_ir as ir

from ....profiles.base.errors import MalformedError, ProfileError
from ....profiles.base.findings import Code, Finding
from ....profiles.base.output_files import text_of
from ....profiles.base.tool import note
from ....profiles.records.profile import Profile
from .foreign import ForeignRanges, assumption, omission, some_of, symmetric_ranges, unique

MAX_LEVEL = 127
"""The largest quantized value, which stands for the largest magnitude."""

HEADER = re.compile(r"TRT-([0-9A-Za-z]+)-([0-9A-Za-z]+)\s*")
ADVICE = "give the cache as TensorRT wrote it, or calibrate again"

FIRST_LINE = "TRT-100300-EntropyCalibration2"
"""First line of the files written here."""


def recognises(data: bytes) -> bool:
    """Return whether a file begins as TensorRT's caches do."""
    return data.removeprefix(b"\xef\xbb\xbf").startswith(b"TRT-")


def read(data: bytes, where: str) -> ForeignRanges:
    """Return the symmetric ranges of a cache."""
    lines = text_of(data, where, ProfileError).split("\n")
    header = HEADER.fullmatch(lines[0])
    if header is None:
        raise MalformedError(f"line 1: '{lines[0]}' is not TRT-VERSION-CALIBRATOR", ADVICE)
    scales = unique(_scales(lines))
    empty = [name for name, scale in scales.items() if scale == 0.0]
    findings = [
        assumption(
            "ranges are symmetric: half of a range is unused if a tensor is never negative and its operator "
            "does not imply it"
        )
    ]
    if empty:
        sentence = f"left out {len(empty)} tensors whose scale is 0: {some_of(empty)}"
        findings.append(omission(sentence, tensors=len(empty)))
    limits = {name: scale * MAX_LEVEL for name, scale in scales.items() if scale != 0.0}
    return ForeignRanges(symmetric_ranges(limits), f"TensorRT {header[1]} ({header[2]})", tuple(findings))


def _scales(lines: list[str]) -> Iterator[tuple[str, float]]:
    for number, line in enumerate(lines[1:], 2):
        if not line.strip():
            continue
        name, colon, digits = line.rpartition(":")
        if not colon or not name or not re.fullmatch("0+|[0-9a-fA-F]{8}", digits.strip()):
            what = f"line {number}: '{line}' is not NAME: SCALE, of eight hexadecimal digits"
            raise MalformedError(what, ADVICE)
        (scale,) = struct.unpack(">f", bytes.fromhex(digits.strip().zfill(8)))
        yield name, scale


def write(profile: Profile, model: ir.Model) -> str:
    """Return a cache with an entry for each tensor of a profile that is not always 0, in graph order."""
    lines, empty = [FIRST_LINE], []
    for name, tensor in profile.items():
        if "\n" in name or "\r" in name:
            raise ProfileError(f"tensor '{name}': its name contains an end of line; rename the tensor")
        digits = struct.pack(">f", max(abs(tensor.minimum), abs(tensor.maximum)) / MAX_LEVEL).hex()
        if digits == "00000000":
            empty.append(name)
        else:
            lines.append(f"{name}: {digits}")
    if empty:
        sentence = f"left out {len(empty)} tensors that are always 0: {some_of(empty)}"
        note(Finding(Code.EXPORT_LOSES, sentence, figures={"tensors": len(empty)}))
    sentence = f"the first line is {FIRST_LINE}: TensorRT only accepts its own version and calibrator"
    note(Finding(Code.EXPORT_LOSES, sentence, remedy="write your version there (8.6.1 is TRT-8601)"))
    return "\n".join(lines) + "\n"
