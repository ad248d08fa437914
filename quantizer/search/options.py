"""What a person can ask of `tune`, and of the check of speed: records whose fields are the options too.

Imports are quick, for `--help` is made of these records.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from ...profiles.base.errors import ConfigError, check_finite, nearest
from ...profiles.base.options import option

if TYPE_CHECKING:
    from ...profiles.samples.objects import DataLike
    from ..evaluation.metrics.user_functions import MetricFunction

Objective = Literal["latency", "size", "int8-share"]

OBJECTIVES: Mapping[Objective, str] = {
    "latency": "times as fast as float",
    "size": "times smaller than float",
    "int8-share": "of the arithmetic in int8",
}
"""Objectives that can be chosen, and the unit of each one's value. A larger value is better."""


@dataclass(frozen=True)
class QualityTarget:
    """The quality that a tuned model has to keep, and how the search for it is run.

    Attributes:
        max_drop: Quality target: points that may be lost; dB, or % of float's, where the metric has them. In
            Python: in the unit that the metric counts a drop in (`MetricKind.drop`).
        objective: What is optimised while the quality target is met. [default: latency; int8-share for a
            target that is not run here] In Python: a key of `OBJECTIVES`; None for `optimised`.
        budget: Processor seconds after which no new trial starts. In Python: None for no limit.
        threads: Threads of onnxruntime, for the latency.
        provider: Its execution provider or device, such as cuda or cuda:1.

    Raises:
        ConfigError: a value is outside its range, or not finite.
    """

    max_drop: Annotated[float, option("Quality", metavar="POINTS", takes="points")] = 0.5
    objective: Annotated[Objective | None, option("Basic")] = None
    budget: Annotated[float | None, option("Speed", metavar="SECONDS")] = None
    threads: Annotated[int, option("Speed", metavar="N", least=1)] = 1
    provider: Annotated[str, option("Speed", metavar="NAME")] = "cpu"

    @property
    def optimised(self) -> Objective:
        """The objective in effect: latency where none was given."""
        return self.objective or "latency"

    def __post_init__(self) -> None:
        check_finite(self)
        if self.objective is not None and self.objective not in OBJECTIVES:
            raise ConfigError(
                f"objective '{self.objective}': no such objective; use one of {', '.join(OBJECTIVES)}."
                f"{nearest(self.objective, OBJECTIVES)}"
            )
        if not 0.0 <= self.max_drop <= 100.0:
            raise ConfigError(
                f"max_drop: {self.max_drop:g} is not a number of percentage points; give 0 to 100"
            )
        if self.budget is not None and not self.budget > 0.0:
            raise ConfigError(f"budget: {self.budget:g} is not a time; give a number of seconds above 0")
        if self.threads < 1:
            raise ConfigError(f"threads: {self.threads} is below 1; give the number of threads to measure on")


@dataclass(frozen=True)
class TuningData:
    """The samples that plans are scored on, and the metric."""

    data: DataLike  # folder of samples, "module:function", or an object of Python (`model_samples`)
    labels: str | Path | None = None  # the truth that the metric reads; without one the class of every row
    output: str | None = None  # name of the output that the metric and `class_axis` belong to
    class_axis: int | None = None  # axis of its classes; None for what its operator says (`class_axes`)
    metric: str | MetricFunction | None = None  # None: accuracy by labels, else agreement or correlation
    holdout_data: DataLike | None = None  # other samples that the chosen plan is verified on
    holdout_labels: str | Path | None = None
    limit: int | None = None  # number of samples used of each source, drawn from all of them; None for all


@dataclass(frozen=True)
class TuneFiles:
    """Files that a tuning writes; None for those that are not wanted."""

    model: Path | None = None  # the quantized model, written only when the target is met
    save_plan: Path | None = None  # the best plan, whether it meets the target or not


@dataclass(frozen=True)
class SpeedCheckOptions:
    """The samples and limits of the check of a quantized model's speed (`--check-speed`).

    Attributes:
        data: folder of samples, "module:function", or an object of Python (`model_samples`); None for samples
            made up from the profile.
        limit: number of samples used, drawn from all of them; None for those of `QUICK`.
        threads: threads inside an operator.
        min_speedup: float latency over quantized latency that must be reached; None for no demand.
    """

    data: DataLike | None = None
    limit: int | None = None
    threads: int = 1
    min_speedup: float | None = None

    def __post_init__(self) -> None:
        """Raise ConfigError for a number that is not finite."""
        check_finite(self)
