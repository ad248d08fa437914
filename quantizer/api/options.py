"""The records of options that the functions take, whose fields are the options of the commands too.

Each verb has one: `Judge` (`evaluate`, `card`, `compare_layers`, `sensitivity`), `QuantizeOptions`, and
`RunSettings` of `profiles.runner.settings` (`profile`); plug-ins have their own. What becomes of a model is a
`QuantConfig`, or in one word a `Precision`, which stands for settings of it and brings none of its own.

    qprof.quantize(model, data, config=WeightOnly(bits=4), options=QuantizeOptions(limit=100))
    qprof quantize model.onnx --data samples/ --as weight-only-4 --limit 100 -o model.int4.onnx

Imports are quick, for `--help` is made of these records.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, get_args

from ...profiles.base.errors import ConfigError, check_finite, nearest
from ...profiles.base.findings import Finding
from ...profiles.base.options import option, options_of
from ...profiles.runner.settings import KEPT_SAMPLES
from ..evaluation.options import QUICK, EvaluationOptions, Gate, LatencySettings
from ..targets.config import BLOCK_FORMATS, BlockFormat, FloatType, QuantConfig, RestType, SchemaName

if TYPE_CHECKING:
    from ...profiles.base.progress import Shown, Stage
    from ...profiles.samples.objects import DataSource
    from ..search.options import SpeedCheckOptions
    from .sources import LabelsLike


@dataclass(frozen=True, kw_only=True)
class _Precision:
    """What all precisions have."""

    target: str | None = None
    keep_float: Collection[str] = ()

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that it stands for."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Int8(_Precision):
    """Activations and weights in 8 bits, with parameters of activations from samples or a profile.

    Attributes:
        schema: how the range of an activation becomes scale and zero point; None for the target's.
        calibrator: from histogram to range; None for the target's.
        target: runtime that the model is for; None for the default target, or that of the call.
        keep_float: nodes that stay float: names, operator types or globs of names.
    """

    schema: SchemaName | None = None
    calibrator: str | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that it stands for."""
        return {"mode": "static", "schema": self.schema, "calibrator": self.calibrator}


@dataclass(frozen=True, kw_only=True)
class Float8(_Precision):
    """Data and weights of products in floating-point numbers of 8 bits, for GPUs that have such kernels.

    Scales are those of samples or of a profile. It is no more exact than 8-bit integers with equalized
    channels.

    Attributes:
        type: "float8e4m3fn", or another that the target has.
        mixed: whether each product has this type or integers, in whichever what it reads has less noise.
        target, keep_float: as in `Int8`.
    """

    type: FloatType = "float8e4m3fn"
    mixed: bool = False

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that it stands for."""
        if self.mixed:
            return {"mode": "static", "second_type": self.type}
        return {"mode": "static", "activation_type": self.type, "weight_type": self.type}


@dataclass(frozen=True, kw_only=True)
class Int8Dynamic(_Precision):
    """Weights in 8 bits; parameters of activations are computed at run time. Needs no samples.

    Attributes:
        target, keep_float: as in `Int8`.
    """

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that it stands for."""
        return {"mode": "dynamic"}


@dataclass(frozen=True, kw_only=True)
class WeightOnly(_Precision):
    """Weights in 2, 4 or 8 bits, arithmetic in float. Needs no samples.

    Attributes:
        bits: 2, 4 or 8, of a weight; with 2 and 4, tables and the last product of a language model have 8.
        block_size: weights along the input axis that share a scale, a power of two; None for 32 with 2 and 4
            bits, and with 8 for a scale for each output channel.
        type: of floating-point numbers, in place of integers of so many bits: "float8e4m3fn", or a format
            with blocks of its own, such as "mxfp8" or "nvfp4".
        target, keep_float: as in `Int8`.

    Raises:
        ConfigError: another number of bits.
    """

    bits: Literal[2, 4, 8] = 8
    block_size: int | None = None
    type: FloatType | BlockFormat | None = None

    def __post_init__(self) -> None:
        if self.bits not in (2, 4, 8):
            raise ConfigError(f"WeightOnly: bits {self.bits!r} is none of 2, 4 and 8; give one of them")

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that it stands for."""
        weight_type = self.type or f"int{self.bits}"
        return {"mode": "weight-only", "weight_type": weight_type, "block_size": self.block_size}


@dataclass(frozen=True, kw_only=True)
class Mixed(_Precision):
    """Weights in the formats of the target that lose least for a size; arithmetic in float.

    Attributes:
        max_size: most that the model may take, such as "900MB".
        target, keep_float: as in `Int8`.
    """

    max_size: str

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that it stands for."""
        return {"mode": "weight-only", "fit_size": self.max_size}


Precision: TypeAlias = Int8 | Float8 | Int8Dynamic | WeightOnly | Mixed
"""What becomes of a model."""

MIXED = "mixed"
PRECISIONS: Mapping[str, Precision] = {
    "int8": Int8(),
    "float8": Float8(),
    "int8-float8": Float8(mixed=True),
    "int8-dynamic": Int8Dynamic(),
    "weight-only-8": WeightOnly(bits=8),
    "weight-only-4": WeightOnly(bits=4),
    "weight-only-2": WeightOnly(bits=2),
    "weight-only-float8": WeightOnly(type="float8e4m3fn", block_size=128),
    **{f"weight-only-{name}": WeightOnly(type=name) for name in BLOCK_FORMATS},
}
"""The words that need nothing else; `MIXED` needs a size."""

PRECISION_NAMES = (*PRECISIONS, MIXED)
"""All words of `--as`."""


def precision_named(name: str, max_size: str | None, where: str) -> Precision:
    """Return the precision of a word in `PRECISION_NAMES`; `where` is "--as" or "config", for messages."""
    if name == MIXED:
        if max_size is None:
            size = "Mixed(max_size=...)" if where == "config" else "--max-size"
            raise ConfigError(f"{where} mixed: needs the size that the model may have; give {size}, as 900MB")
        return Mixed(max_size=max_size)
    if name not in PRECISIONS:
        if name in get_args(RestType):
            option_name = "float_type" if where == "config" else "--set float_type"
            raise ConfigError(
                f"{where} {name}: is a type of what stays float; give {option_name}={name}, with or without "
                f"{where}"
            )
        words = ", ".join(PRECISION_NAMES)
        meant = nearest(name, PRECISION_NAMES)
        raise ConfigError(f"{where} {name}: is not known; give one of {words}.{meant}")
    return PRECISIONS[name]


def settings_of(config: Precision | QuantConfig) -> dict[str, Any]:
    """Return the settings of a precision, or of a record if not the default; with `target` if it has one."""
    if isinstance(config, QuantConfig):
        own = {field.name: (getattr(config, field.name), field.default) for field in fields(config)}
        return {name: value for name, (value, default) in own.items() if value != default}
    meant = {**config.settings, "target": config.target, "keep_float": tuple(config.keep_float) or None}
    return {key: value for key, value in meant.items() if value is not None}


def settings_with(meant: Mapping[str, Any], given: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return given settings merged with those of a configuration; their names of float nodes add up."""
    meant = dict(meant)
    if "keep_float" in meant:
        meant["keep_float"] = (*given.get("keep_float", ()), *meant["keep_float"])
    for key, value in meant.items():
        if key != "keep_float" and given.get(key, value) != value:
            raise ConfigError(f"{name}: means {key} {value}, and {key} {given[key]} was given; leave one out")
    return {**given, **meant}


@dataclass(frozen=True, kw_only=True)
class Judge(EvaluationOptions):
    """The means of judging a quantized model: samples, truth, metric, limits, and runs of the models.

    Attributes:
        labels: Truth that the metric reads; without one the class of each row: one integer a line, .npy,
            FILE:COLUMN of a table, or a folder with a folder of pictures for each class (order: its
            classes.txt). In Python: a file, a folder, or integers.
        preprocess: How files become samples: imagenet, clip, yolo, raw, or FILE (recipe,
            preprocessor_config.json, tokenizer.json).
        held_out: Only the samples that quantize holds out of DATA, with the same --limit: its profile was
            made from the others.
        transform: makes a sample of an item of the data.
        gate: limits that the quantized model must keep.
        progress: True for a bar, as a notebook has one unless told False; or called after each sample.
        latency: how speed is measured; None leaves it out.

    Raises:
        ConfigError: a number that makes no sense.
    """

    labels: Annotated[LabelsLike | None, option("Quality", metavar="FILE", takes="truth")] = None
    preprocess: Annotated[
        str | os.PathLike[str] | None, option("Basic", metavar="RECIPE", takes="recipe")
    ] = None
    held_out: Annotated[bool, option("Basic")] = False
    transform: Callable[[Any], object] | None = None
    gate: Gate = field(default_factory=Gate)
    progress: Shown = None


@dataclass(frozen=True, kw_only=True)
class QuantizeOptions(Judge):
    """The options of `quantize` besides model, profile, samples, and the settings of `QuantConfig`.

    Attributes:
        latency: how speed is measured where the result is judged; None leaves it out.
        holdout_data: Samples to judge the result on. [default: a quarter of --data, of few up to half]
        budget: Processor seconds for trying fixes, where the result is not good. If it is poor, one fix is
            tried in any case; 0 tries none.
        check_outputs: auto: run the model on 16 calibration samples, up to 128 of small models, or those kept
            beside the profile, before it is written, and leave more nodes float where an output moves too
            far.
        keep_samples: Samples kept as they are beside the profile, on which a model is run before it is
            written; 0: none, and none shown in a report.
        save_plan: Write the plan: every decision.
        speed: measures the model against float when planning, and keeps float what int8 slows down; on the
            data where it has none of its own.
        stage: called when a stage begins, with its name; returns what is called after each of its units.
        note: called with findings on what is done.
        transform: makes a sample of an item of the data.
        gate: limits that the model must keep.
        progress: True for a bar, as a notebook has one unless told False; or called after each sample.

    Raises:
        ConfigError: a number that makes no sense.
    """

    latency: LatencySettings | None = QUICK
    holdout_data: Annotated[DataSource | None, option("Basic", metavar="DATA", takes="data")] = None
    fix: Annotated[
        Literal["off", "auto"],
        option(
            "Quality",
            "auto: apply the best fix that was tried, where the result is not good; off: only one that makes "
            "a poor model good at nearly its size.",
        ),
    ] = "off"
    budget: Annotated[float, option("Quality", metavar="SECONDS")] = 20.0
    check_outputs: Annotated[Literal["auto", "off"], option("Quality")] = "auto"
    keep_samples: Annotated[int, option("Quality", metavar="N", least=0)] = KEPT_SAMPLES
    save_plan: Annotated[
        str | os.PathLike[str] | None, option("Files", metavar="PLAN.yaml", takes="new file")
    ] = None
    speed: SpeedCheckOptions | None = None
    stage: Stage | None = None
    note: Callable[[Finding], None] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_finite(self)
        if self.budget < 0.0:
            raise ConfigError(f"budget: {self.budget:g} is no number of seconds; give 0 or more")
        known = options_of(QuantizeOptions)
        for name in ("fix", "check_outputs"):
            value, words = getattr(self, name), known[name].words
            if value not in words:
                raise ConfigError(f"{name}: '{value}' is not known; give {' or '.join(words)}")


OF_RUNS = frozenset({"limit", "threads", "provider", "transform", "preprocess", "progress"})
"""Fields of `Judge` that say how a model is run."""

OF_JUDGING = frozenset(
    {"labels", "metric", "holdout_data", "scored_output", "class_axis", "gate", "latency", "runtime"}
    | {"provider", "threads", "fix", "budget", "keep_samples", "preprocess", "transform"}
)
"""Options of `quantize` that are for samples, on which the result is judged."""
