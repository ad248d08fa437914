"""What a person can ask of `tune`: records whose fields are options too, quick to import for `--help`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from ....profiles.base.arguments import check_record
from ....profiles.base.errors import ConfigError
from ....profiles.base.options import option
from ...evaluation.options import Judge

if TYPE_CHECKING:
    from ....profiles.samples.objects import DataSource
    from .trial import Trial


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
        max_drop: Quality target: largest drop of the score, in points, or dB or % of float's if the metric
            has this unit. In Python: in the unit of the metric's drop (`MetricKind.drop`).
        objective: Figure to optimise while the quality target is met. [default: latency; int8-share for a
            target that does not run here] In Python: a key of `OBJECTIVES`; None for `optimised`.
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
        """The objective in effect: latency by default."""
        return self.objective or "latency"

    def __post_init__(self) -> None:
        check_record(self)
        if not 0.0 <= self.max_drop <= 100.0:
            raise ConfigError(
                f"max_drop: {self.max_drop:g} is not a number of percentage points; give 0 to 100"
            )
        if self.budget is not None and not self.budget > 0.0:
            raise ConfigError(f"budget: {self.budget:g} is not a time; give a number of seconds above 0")


@dataclass(frozen=True, kw_only=True)
class TuneOptions(QualityTarget, Judge):
    """The quality that a tuned model has to keep, how the search for it is run, and the files it writes.

    Attributes:
        holdout_data: Samples that verify the result. With --labels, half of them choose the plan, and --data
            is only profiled. [default: a quarter of --data, with --profile half]
        save_plan: Write the best plan.
        on_trial: called after each trial.
        progress: of trials: True for an occasional line, or called after each.

    Raises:
        ConfigError: a value is outside its range, or not finite.
    """

    holdout_data: Annotated[DataSource | None, option("Quality", metavar="DATA", takes="data")] = None
    save_plan: Annotated[
        str | os.PathLike[str] | None, option("Files", metavar="PLAN.yaml", takes="new file")
    ] = None
    on_trial: Callable[[int, Trial], None] | None = None
