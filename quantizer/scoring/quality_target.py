"""The quality target of a tuning: how much the score may drop, and what is then made as good as possible."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...profiles.base.errors import ConfigError, nearest
from ...profiles.base.numbers import check_finite
from ...profiles.runtime.machine import cores

MOST_PARALLEL = 256

OBJECTIVES: Mapping[str, str] = {
    "latency": "times as fast as float",
    "size": "times smaller than float",
    "int8-share": "of the arithmetic in int8",
}
"""Objectives that can be chosen, and the unit of each one's value. A larger value is better."""


@dataclass(frozen=True)
class QualityTarget:
    """The quality that a tuned model has to keep, and how the search for it is run.

    Attributes:
        max_drop: how much worse the score of the quantized model may be than the float model's, in the unit
            that the metric counts a drop in (`MetricKind.drop`), such as percentage points.
        objective: a key of `OBJECTIVES`; of the plans that meet the target, the one with the best value of
            it is chosen.
        budget: seconds after which no new trial starts; None for no limit. A running trial is finished.
        seed: of the random split into tuning and held-out samples.
        threads: inside an operator, for the latency measurement.
        parallel: trials, or samples of one, that run side by side on one thread each; 0 for as many as there
            are cores. The result does not depend on it.
        provider: execution provider of onnxruntime that runs all models, in full or short.

    Raises:
        ConfigError: a value is outside its range, or not finite.
    """

    max_drop: float = 0.5
    objective: str = "latency"
    budget: float | None = None
    seed: int = 0
    threads: int = 1
    parallel: int = 0
    provider: str = "cpu"

    def __post_init__(self) -> None:
        check_finite(self)
        if self.objective not in OBJECTIVES:
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
        if not 0 <= self.parallel <= MOST_PARALLEL:
            raise ConfigError(
                f"parallel: {self.parallel} is not 0 to {MOST_PARALLEL}; give the number of trials that run "
                "side by side"
            )

    @property
    def side_by_side(self) -> int:
        """How many trials run side by side."""
        return self.parallel or cores()
