"""The records of options that the functions take, whose fields are the options of the commands too.

Each verb has one: `Judge` (`evaluate`, `card`, `compare_layers`), `QuantizeOptions`, and
`RunSettings` of `profiles.runner.settings` (`profile`); plug-ins have their own. What becomes of a model is a
`QuantConfig`, or one word for some settings of it (`PRECISIONS`).

    qprof.quantize(model, data, config="weight-only-4", options=QuantizeOptions(limit=100))
    qprof quantize model.onnx --data samples/ --as weight-only-4 --limit 100 -o model.int4.onnx

Imports are quick, for `--help` is made of these records.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from ...profiles.base.errors import ConfigError, nearest
from ...profiles.base.findings import Finding
from ...profiles.base.options import option
from ...profiles.base.progress import Stage
from ...profiles.runner.settings import KEPT_SAMPLES
from ..evaluation.options import TOLD, Judge, LatencySettings, SpeedCheckOptions
from ..targets.config import BLOCK_FORMATS, RestType

if TYPE_CHECKING:
    from ...profiles.samples.objects import DataSource


FLOAT8 = "float8e4m3fn"
MIXED = "mixed"
PRECISIONS: Mapping[str, Mapping[str, Any]] = {
    "int8": {"mode": "static"},
    "float8": {"mode": "static", "activation_type": FLOAT8, "weight_type": FLOAT8},
    "int8-dynamic": {"mode": "dynamic"},
    "weight-only-8": {"mode": "weight-only", "weight_type": "int8"},
    "weight-only-4": {"mode": "weight-only", "weight_type": "int4"},
    "weight-only-2": {"mode": "weight-only", "weight_type": "int2"},
    "weight-only-float8": {"mode": "weight-only", "weight_type": FLOAT8, "block_size": 128},
    **{f"weight-only-{name}": {"mode": "weight-only", "weight_type": name} for name in BLOCK_FORMATS},
    MIXED: {"mode": "weight-only"},
}
"""What becomes of a model, in one word: the settings that it stands for; `MIXED` needs `fit_size` too."""


def settings_of(name: str, where: str, size: str | None = None) -> dict[str, Any]:
    """Return the settings of a word of `PRECISIONS`; `where` is "--as" or "config", for messages."""
    if name == MIXED:
        if size is None:
            missing = "fit_size='900MB'" if where == "config" else "--max-size, as 900MB"
            raise ConfigError(f"{where} mixed: needs the size of the model; give {missing}")
        return {**PRECISIONS[name], "fit_size": size}
    if name not in PRECISIONS:
        if name in get_args(RestType):
            option_name = "float_type" if where == "config" else "--set float_type"
            raise ConfigError(
                f"{where} {name}: is a type of float nodes; give {option_name}={name}, with or without "
                f"{where}"
            )
        words = f"{', '.join(PRECISIONS)}.{nearest(name, PRECISIONS)}"
        raise ConfigError(f"{where} {name}: is not known; give one of {words}")
    return dict(PRECISIONS[name])


def settings_with(meant: Mapping[str, Any], given: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return given settings merged with those of a configuration; their names of float nodes add up."""
    meant = dict(meant)
    if "keep_float" in meant:
        meant["keep_float"] = (*given.get("keep_float", ()), *meant["keep_float"])
    for key, value in meant.items():
        if key != "keep_float" and given.get(key, value) != value:
            raise ConfigError(f"{name}: means {key} {value}, but {key} {given[key]} was given; leave one out")
    return {**given, **meant}


@dataclass(frozen=True, kw_only=True)
class QuantizeOptions(Judge):
    """The options of `quantize` besides model, profile, samples, and the settings of `QuantConfig`.

    Attributes:
        latency: settings of the speed measurement of the result; None skips it.
        holdout_data: Samples to judge the result on. [default: a quarter of --data, of few up to half]
        budget: Processor seconds for trying fixes, if the result is not good. For a poor result, one fix is
            always tried; 0 tries none.
        check_outputs: auto: before writing the model, run it on 16 calibration samples (up to 128 for small
            models) or on the check samples of the profile, and leave more nodes float if an output exceeds
            its limit.
        keep_samples: Number of raw samples stored beside the profile, to test a model before it is written;
            0: none, and none shown in a report.
        save_plan: Write the plan: every decision.
        speed: compares the speed with float when planning, and keeps slower nodes in float; uses the data if
            it has no data of its own.
        stage: called when a stage begins, with its name; returns a function to call after each of its units.
        note: called with findings.
        transform: makes a sample of an item of the data.
        gate: limits that the model must keep.
        progress: True for an occasional line (the default in a notebook); or called after each sample.

    Raises:
        ConfigError: a number that makes no sense.
    """

    latency: LatencySettings | None = TOLD
    holdout_data: Annotated[DataSource | None, option("Basic", metavar="DATA", takes="data")] = None
    fix: Annotated[
        Literal["off", "auto"],
        option(
            "Quality",
            "auto: if the result is not good, apply the best fix that was tried; off: only a fix that makes "
            "a poor model good at nearly its size.",
        ),
    ] = "off"
    budget: Annotated[float, option("Quality", metavar="SECONDS", least=0)] = 20.0
    check_outputs: Annotated[Literal["auto", "off"], option("Quality")] = "auto"
    keep_samples: Annotated[int, option("Quality", metavar="N", least=0)] = KEPT_SAMPLES
    save_plan: Annotated[
        str | os.PathLike[str] | None, option("Files", metavar="PLAN.yaml", takes="new file")
    ] = None
    speed: SpeedCheckOptions | None = None
    stage: Stage | None = None
    note: Callable[[Finding], None] | None = None


OF_RUNS = frozenset({"limit", "threads", "provider", "transform", "preprocess", "progress"})
"""Fields of `Judge` that say how a model is run."""

OF_JUDGING = frozenset(
    {"labels", "metric", "holdout_data", "scored_output", "class_axis", "gate", "latency", "runtime"}
    | {"provider", "threads", "fix", "budget", "keep_samples", "preprocess", "transform"}
)
"""Options of `quantize` that are for samples, on which the result is judged."""
