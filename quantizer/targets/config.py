"""What the user asked for: the frozen settings of one quantization.

The YAML reader, the plan reader, the options of the command line and the JSON Schema are made from
`QuantConfig` (`profiles.base.options`); so it imports nothing that is slow to start.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, Literal, get_args

from msgspec import Meta

from ...profiles.base.conversion import OutputKind, read_fields
from ...profiles.base.errors import MalformedError
from ...profiles.base.options import Option, option, options_of, setting
from ..numerics.calibrators import CALIBRATORS, parse_calibrator
from .forms import FORMS, FormName

Mode = Literal["static", "dynamic", "weight-only", "auto"]
FloatType = Literal["float8e4m3fn", "float8e5m2", "float8e4m3fnuz", "float8e5m2fnuz"]
"""Floating-point types of the data and weights of products."""
IntegerType = Literal["uint8", "int8", "uint16", "int16"]
ActivationType = Literal[IntegerType, FloatType]
BlockFormat = Literal["mxfp4", "mxfp8", "nvfp4"]
"""Formats of weights in mode weight-only: floating-point numbers of few bits in blocks of a fixed size."""
BLOCK_FORMATS: tuple[BlockFormat, ...] = get_args(BlockFormat)
WeightType = Literal["int8", "uint8", "int7", "int4", "uint4", "int2", "uint2", FloatType, BlockFormat]
FLOAT_TYPES: tuple[FloatType, ...] = get_args(FloatType)
Granularity = Literal["per-tensor", "per-channel"]
RestType = Literal["float32", "float16"]
SchemaName = Literal["asymmetric", "symmetric", "symmetric-uint8", "symmetric-power2"]
"""The keys of `SCHEMAS`, which `--help` lists without numpy."""

OUTPUT_KINDS: tuple[OutputKind, ...] = get_args(OutputKind)

DATA_FREE = ("dynamic", "weight-only")
"""Modes that need no profile."""

OF_ACTIVATIONS = ("schema", "calibrator", "activation_type", "equalization", "bias_correction")
"""Settings of activations that are calibrated: nothing reads them in the modes without."""

FEW_BITS = ("int4", "uint4", "int2", "uint2", "mxfp4", "nvfp4")
"""Types of weights in mode weight-only that pack several elements into a byte."""

WEIGHT_ONLY_TYPES = (*FEW_BITS, *BLOCK_FORMATS)
"""Types of weights only for mode weight-only."""


def _check_block_size(value: int) -> None:
    if value and (value < FEWEST_IN_BLOCK or value & (value - 1)):
        raise MalformedError(f"block_size {value} must be 0 or a power of two from {FEWEST_IN_BLOCK}")


def _check_decibels(name: str, value: float | None) -> None:
    if value is not None and not 0.0 <= value <= MOST_DECIBELS:
        raise MalformedError(
            f"{name} {value:g} is not a number of decibels", f"give 0 (for no limit) to {MOST_DECIBELS:g}"
        )


def _check_tolerance(value: float | None) -> None:
    if value is not None and not 0.0 < value < 1.0:
        raise MalformedError(f"tolerance {value:g} is not an error", "give a fraction such as 0.01")


LEAST = "least"
"""As `fit_size`: the size of a model whose weights all have the chosen type."""

_UNITS = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def size_in_bytes(text: str) -> int:
    """Return the bytes of a size such as 900MB or 1.5GiB, or 0 for `LEAST`."""
    if text == LEAST:
        return 0
    size = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?) ?([A-Za-z]*)", text)
    if size is None or size[2] not in _UNITS or float(size[1]) == 0.0:
        raise MalformedError(
            f"fit_size '{text}' is not a size", f"write it as 900MB, or {LEAST}; units: {', '.join(_UNITS)}"
        )
    return int(float(size[1]) * _UNITS[size[2]])


def split_kinds(texts: Collection[str]) -> dict[str, OutputKind]:
    """Return the kinds of a setting such as `wave=signal`, by the name of the output."""
    kinds: dict[str, OutputKind] = {}
    for text in texts:
        name, _, word = text.rpartition("=")
        kind = next((known for known in OUTPUT_KINDS if known == word), None)
        if not name or kind is None:
            raise MalformedError(
                f"output_kind '{text}' is not an output and its kind",
                f"write it as NAME=KIND with one of {', '.join(OUTPUT_KINDS)}",
            )
        kinds[name] = kind
    return kinds


MOST_DECIBELS = 300.0
"""Largest SQNR limit; float64 itself, with 53 bits, has 319 dB."""

FEWEST_IN_BLOCK = 16
"""Elements of a block; the smallest and the powers of two are those of onnxruntime's MatMulNBits."""


@dataclass(frozen=True)
class QuantConfig:
    """Settings of one quantization; every field has one name in YAML, in a plan, as an option and here.

    Attributes:
        target: Runtime of the quantized model; it also sets the defaults of other settings. Default: the
            target of this machine's processor.
        mode: How nodes are quantized: static (activations with parameters from the profile), dynamic
            (parameters of activations computed at run time), weight-only (quantized weights, float
            arithmetic), auto (for each node the first of these within the noise budget). Large embedding
            tables are quantized in every mode.
        schema: Quantization schema of activations, which turns a range into scale and zero point.
        activation_type: Type of activations. A floating-point type (float8e4m3fn, ...) applies only to the
            inputs and weights of products (MatMul, Gemm, Conv); nothing else is quantized.
        weight_schema: Quantization schema of weights.
        weight_type: Type of weights. If activations are floating-point, weights have the same type. int7 is
            int8 within -64..63. int4 and uint4 are for mode weight-only (8 bits if the target has no 4-bit
            kernel).
        block_size: Elements along the input axis of a weight that share a scale, in mode weight-only; 0 for
            the granularity.
        fit_size: Size limit of the model, such as 900MB, in mode weight-only. qprof chooses a format for each
            weight, with the least noise at the outputs (measured, if there is a profile), and float if a run
            shows that the others lose too much. least, with a type of few bits: all weights have that type;
            by default embedding tables and the last product have 8 bits.
        kv_cache: Type of the keys and values that a decoder passes from step to step (past_key_values,
            present): float, or int8 if the target supports it, with a calibrated scale for each tensor, or
            for each element of a head. These inputs and outputs of the model are then int8.
        float_type: Type of float nodes: float32, or float16 if its range and its 11 bits are enough, in form
            qdq (the plan gives the reason for each float32 node); inputs and outputs of the model do not
            change. For GPUs: on a CPU it is slower.
        io: Type of the model's inputs and outputs: float, or uint8 or int8 for a camera or a chip, with scale
            and zero point in the metadata (qprof.borders).
        granularity: Scales of a weight: one, or one for each output channel.
        min_tensor_sqnr: Estimated SQNR in dB below which an activation stays float.
        min_output_sqnr: Minimum estimated SQNR of every output in dB: nodes stay float until it is met; in
            mode weight-only, weights of 4 bits get 8 until it is met. 0: no limit. By default the limit
            depends on the kind of the output (see output_kind), and there is no limit if fit_size is a size
            or weights have 4 bits.
        tolerance: Limit of the typical error of outputs that are values, such as 0.01: divided by the
            variation of a column, or relative to each value if the model computes magnitudes. The limit of
            the worst column is five times that, 25% at most. Default: 2%, for maps, sequences and vectors
            10%.
        equalization: Cross-layer equalization of activation channels: auto (adds a Mul if no weight can
            absorb the scales), free (never adds a Mul), off.
        bias_correction: Correct biases for the mean error of quantized weights.
        rounding: Rounding of weights: nearest, or gptq (least error at the output of each product), which
            needs samples (--data).
        cost_model: auto: nodes stay float if int8 is predicted to be slower, conversions included, by the
            target's table of measured kernel times, or if their dynamic kernel is slower; channels are padded
            if that is faster. off: quantize every node that the target can run in int8, regardless of time.
        keep_float: Nodes that stay float: names, operator types or globs of names.
    """

    target: Annotated[str, option("Basic")] = "onnxruntime-x86"
    mode: Annotated[Mode, setting()] = "static"
    form: Annotated[
        FormName,
        option(
            "Output format",
            f"Output format: {', '.join(f'{name} ({form.summary})' for name, form in FORMS.items())}.",
        ),
    ] = "qdq"
    schema: Annotated[SchemaName, option("Calibration and precision")] = "asymmetric"
    calibrator: Annotated[
        str,
        option(
            "Calibration and precision",
            "Calibration method, from histogram to range: "
            + ", ".join(f"{name} ({c.summary})" if c.summary else name for name, c in CALIBRATORS.items())
            + ".",
            words=tuple(CALIBRATORS),
            check=parse_calibrator,
        ),
    ] = "mse"
    activation_type: Annotated[ActivationType, setting()] = "uint8"
    weight_schema: Annotated[SchemaName, setting()] = "symmetric"
    weight_type: Annotated[WeightType, setting()] = "int8"
    block_size: Annotated[int, Meta(ge=0), setting(check=_check_block_size)] = 0
    fit_size: Annotated[str, setting(check=lambda text: size_in_bytes(text) if text else None)] = ""
    kv_cache: Annotated[Literal["float", "int8", "int8-per-channel"], setting()] = "float"
    float_type: Annotated[RestType, setting()] = "float32"
    io: Annotated[Literal["float", "uint8", "int8"], setting()] = "float"
    granularity: Annotated[Granularity, setting()] = "per-channel"
    min_tensor_sqnr: Annotated[float, setting(check=partial(_check_decibels, "min_tensor_sqnr"))] = 0.0
    min_output_sqnr: Annotated[float | None, setting(check=partial(_check_decibels, "min_output_sqnr"))] = (
        None
    )
    tolerance: Annotated[float | None, setting(check=_check_tolerance)] = None
    output_kind: Annotated[
        tuple[str, ...],
        setting(
            "Kind of an output, if qprof derives a wrong one from the graph, such as [wave=signal]: "
            f"{', '.join(OUTPUT_KINDS)}. It determines the noise limit.",
            check=split_kinds,
        ),
    ] = ()
    equalization: Annotated[Literal["auto", "free", "off"], setting()] = "auto"
    bias_correction: Annotated[Literal["auto", "off"], setting()] = "auto"
    rounding: Annotated[Literal["nearest", "gptq"], setting()] = "nearest"
    cost_model: Annotated[Literal["auto", "off"], setting()] = "auto"
    keep_float: Annotated[tuple[str, ...], option("Quality", metavar="NAME|TYPE|GLOB")] = ()

    @property
    def regards_time(self) -> bool:
        """Whether a node may stay float for the time that it takes: not with `cost_model` off."""
        return self.cost_model != "off"

    @property
    def has_size(self) -> bool:
        """Whether `fit_size` says how many bytes the model may take, and chooses the formats of weights."""
        return self.fit_size not in ("", LEAST)

    @property
    def weight_words(self) -> str:
        """Type and scales of weights, in words."""
        return (
            f"in formats that fit {self.fit_size}"
            if self.has_size
            else f"{self.weight_type} {self.granularity}"
        )

    @property
    def has_few_bits(self) -> bool:
        """Whether weights must have the chosen few bits."""
        return self.mode == "weight-only" and self.weight_type in FEW_BITS and not self.has_size

    @property
    def is_float16(self) -> bool:
        """Whether float nodes are float16 if they can be."""
        return self.float_type == "float16"

    @property
    def asks_quality(self) -> bool:
        """Whether the user says how far outputs may be from float."""
        return bool(self.min_output_sqnr) or self.tolerance is not None

    @property
    def reads_profile(self) -> bool:
        """Whether the plan depends on a profile; in modes without one, only if outputs have a limit."""
        return self.mode not in DATA_FREE or self.asks_quality


def unread_settings(config: QuantConfig) -> dict[str, str]:
    """Return the settings that have no effect together with the others, each with the reason."""
    if config.mode not in DATA_FREE:
        is_float = config.activation_type in FLOAT_TYPES
        return {"min_tensor_sqnr": "activations are floating-point numbers"} if is_float else {}
    why = {
        "dynamic": "mode dynamic takes the ranges of activations while the model runs",
        "weight-only": "activations are float in mode weight-only",
    }[config.mode]
    names = list(OF_ACTIVATIONS)
    if config.io != "float" or config.kv_cache != "float":  # whose scales are calibrated
        names.remove("calibrator")
    return dict.fromkeys(names, why)


def settings() -> Mapping[str, Option]:
    """Return the options of all fields of `QuantConfig`, in its order."""
    return options_of(QuantConfig)


def config_from_mapping(value: object, where: str = "") -> QuantConfig:
    """Return the settings of a mapping, called `where` in messages; a missing setting has its default."""
    return QuantConfig(**settings_from_mapping(value, where))


def settings_from_mapping(value: object, where: str = "") -> dict[str, Any]:
    """Return the settings that a mapping holds, as the fields of `QuantConfig`; see `config_from_mapping`."""
    values = read_fields(value, QuantConfig, where)
    for name, item in values.items():
        check = settings()[name].check
        if check is not None:
            try:
                check(item)
            except MalformedError as problem:
                prefix = f"{where}: " if where else ""
                named = str(problem) if str(problem).startswith(name) else f"{name}: {problem}"
                raise MalformedError(f"{prefix}{named}", problem.advice) from None
    return values


AUTO_SQNR = 20.0
"""SQNR (dB) of activations below which mode auto leaves static quantization, if no limit is given, and that
the quantized values of an LSTM have in mode static."""


def with_limit(config: QuantConfig) -> QuantConfig:
    """Return the settings with the limit of noise that mode auto has when none was given."""
    if config.mode == "auto" and not config.min_tensor_sqnr:
        return replace(config, min_tensor_sqnr=AUTO_SQNR)
    return config
