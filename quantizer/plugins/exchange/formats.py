"""The file formats of other tools, one entry and one module each.

A module has
    recognises(data: bytes) -> bool            whether a file is of this format, by its content
    read(data: bytes, where: str)              -> ForeignRanges or ForeignParams, see `read_as`
    write(profile: Profile, model: ir.Model)   of a format of ranges, -> str | bytes
    write(plan: QuantPlan, model: ir.Model)    of a format of parameters, -> str | bytes
A format without `read` is only written. `model` is the prepared model. If a file uses other names for the
tensors of a model, the module of a format of ranges also has
    names_in_file(model: ir.Model) -> Mapping[str, str]                      the file's names by the model's
    certain_names(profile: Profile, model: ir.Model) -> Mapping[str, str]    those whose entry is certain
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Literal

from ....profiles.base.errors import ConfigError, QprofError, nearest
from ....profiles.base.extras import OptionalModule

if TYPE_CHECKING:
    from .foreign import ForeignParams, ForeignRanges

Holds = Literal["ranges", "parameters"]


@dataclass(frozen=True)
class ExchangeFormat:
    """One file format of another tool."""

    name: str  # as written in options
    title: str  # for people, with the versions that were read
    holds: Holds  # ranges, which become a profile, or parameters, which become a plan
    module: str  # its module, below this room
    lost_reading: str  # what the file cannot tell, one sentence; "" of a format that is not read
    lost_writing: str  # what of a profile or plan it cannot hold, one sentence
    evidence: str  # "run" or "not run", with what and its version
    is_symmetric: bool = False

    @property
    def place(self) -> OptionalModule:
        """The module that reads and writes the format."""
        return OptionalModule(f"format '{self.name}'", f"quantizer.plugins.exchange.{self.module}")

    def load(self) -> ModuleType:
        """Return the format's module; raise ConfigError if it is not installed."""
        return self.place.load()

    @property
    def is_read(self) -> bool:
        """Whether files of it are read."""
        return self.place.is_installed and hasattr(self.load(), "read")


RANGES: tuple[ExchangeFormat, ...] = (
    ExchangeFormat(
        "onnxruntime",
        "onnxruntime's calibration data as JSON (calibration.json; 1.31, and plain ranges of old versions)",
        "ranges",
        "onnxruntime_json",
        "both ends of each range, and histograms of the calibrators Entropy and Distribution only; neither "
        "channels nor noise",
        "histograms, channels and noise; ends are float32",
        "run: onnxruntime 1.31.1 wrote the files of the tests",
    ),
    ExchangeFormat(
        "onnxruntime-flatbuffers",
        "onnxruntime's calibration table for its TensorRT provider (calibration.flatbuffers; 1.31)",
        "ranges",
        "onnxruntime_flatbuffers",
        "",
        "the smaller end of each range, histograms, channels and noise; tensors that are always 0",
        "run: the same bytes as of onnxruntime 1.31.1",
    ),
    ExchangeFormat(
        "tensorrt-cache",
        "TensorRT's calibration cache (7 to 10)",
        "ranges",
        "tensorrt",
        "one number for each tensor, so ranges are symmetric, cut to the possible results of their "
        "operators; neither histograms, channels nor noise",
        "the smaller end of each range, histograms, channels and noise; tensors that are always 0, and "
        "tensors that the prepared model no longer has",
        "not run: a file of TensorRT 7 in NVIDIA's documentation",
        is_symmetric=True,
    ),
    ExchangeFormat(
        "glow",
        "Glow's profile as YAML",
        "ranges",
        "glow",
        "equal bins instead of exact ones, and no number of zeros; neither channels nor noise",
        "types, shapes, zeros, channels, noise, and digits of counts above 999999; Glow's hash of its graph",
        "not run: Glow's source, which has no releases",
    ),
)

_PLAN_LOST = "the kinds of nodes (look-up tables, roundings, shared scales), corrected biases"

PARAMETERS: tuple[ExchangeFormat, ...] = (
    ExchangeFormat(
        "aimet-1.0",
        "AIMET encodings 1.0 (aimet-onnx 2.42)",
        "parameters",
        "aimet_1_0",
        "the axis of channels (it comes from the model), blocks, fractional zero points, float types",
        f"{_PLAN_LOST}, scales of biases, blocks, parameters of single uses; a type is signed only with zero "
        "point 0",
        "run: aimet-onnx 2.42 wrote the files of the tests",
    ),
    ExchangeFormat(
        "aimet-2.0",
        "AIMET encodings 2.0 and 2.1 (aimet-onnx 2.42)",
        "parameters",
        "aimet_2_0",
        "quantized scales of 2.1, fractional zero points, float types",
        f"{_PLAN_LOST}, parameters of single uses; int7 is int8",
        "run: aimet-onnx 2.42 wrote the files of the tests",
    ),
    ExchangeFormat(
        "qnn",
        "quantization_overrides.json of Qualcomm's converters (QAIRT, by its documentation)",
        "parameters",
        "qnn",
        "the axis of channels (it comes from the model), float types, bare bit widths",
        f"{_PLAN_LOST}, float tensors (use the converter's --float_fallback), scales of "
        "biases, blocks, channels with zero points, parameters of single uses; a type is signed only with "
        "zero point 0",
        "not run: Qualcomm's documentation of QAIRT; aimet-onnx 2.42 reads these files",
    ),
    ExchangeFormat(
        "tensor-quant-overrides",
        "TensorQuantOverrides of onnxruntime's quantize_static (1.31), as JSON",
        "parameters",
        "tensor_quant_overrides",
        "",
        f"{_PLAN_LOST}, float nodes (use nodes_to_quantize), scales of biases, blocks, "
        "parameters of single uses; int7 is int8",
        "run: quantize_static of onnxruntime 1.31.1 read these files",
    ),
)

FORMATS: Mapping[str, ExchangeFormat] = {entry.name: entry for entry in (*RANGES, *PARAMETERS)}
"""The formats by their names."""


def format_named(name: str) -> ExchangeFormat:
    """Return the format of a name; for an unknown name, ConfigError with the nearest name."""
    if name not in FORMATS:
        raise ConfigError(
            f"format '{name}': no such format; use one of {', '.join(FORMATS)}.{nearest(name, FORMATS)}"
        )
    return FORMATS[name]


def read_as(
    entry: ExchangeFormat, data: bytes, where: str, error: type[QprofError]
) -> ForeignRanges | ForeignParams:
    """Return the ranges or parameters in a file of a format; raise `error` if the file is malformed."""
    from ....profiles.base.errors import MalformedError

    try:
        content: ForeignRanges | ForeignParams = entry.load().read(data, where)
    except MalformedError as problem:
        advice = f"give a file of {entry.title} as it was written"
        raise error(problem.message(where, advice)) from None
    return content


def recognised(data: bytes, holds: Holds | None = None) -> ExchangeFormat | None:
    """Return the format that a file's content matches, of one kind or any, or None if no format does."""
    entries = (one for one in FORMATS.values() if one.is_read and holds in (None, one.holds))
    return next((entry for entry in entries if entry.load().recognises(data)), None)
