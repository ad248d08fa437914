"""What a person can ask of `quantize` and `diff`: records whose fields are the options of the commands too.

The other verbs have theirs where they work: `targets.config.QuantConfig` (settings), `RunSettings` of
`profiles.runner.settings`, `EvaluationOptions` and `Gate` of `evaluation.options`. Imports are quick, for
`--help` is made of these records.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Literal

from ...profiles.base.errors import ConfigError, check_finite
from ...profiles.base.options import option
from ..evaluation.options import QUICK, EvaluationOptions, Gate, LatencySettings

if TYPE_CHECKING:
    from ...profiles.base.progress import Shown, Stage
    from ...profiles.samples.objects import DataSource
    from ..search.options import SpeedCheckOptions
    from .sources import LabelsLike, Transform


@dataclass(frozen=True, kw_only=True)
class QuantizeOptions(EvaluationOptions):
    """What `quantize` takes besides model, profile, samples, and the settings of `QuantConfig`.

    Attributes:
        labels: the truth that the metric reads, as in `evaluate`: of the data, or of `holdout_data`.
        transform: makes a sample of an item of the data.
        gate: limits that the model must keep.
        speed: measures the model against float when planning, and keeps float what int8 slows down; on the
            data where it has none of its own.
        latency: how speed is measured where the result is judged; None leaves it out.
        progress: True for a bar, as a notebook has one unless told False; or called after each sample.
        stage: called when a stage begins, with its name; returns what is called after each of its units.
        note: called with remarks on what is done.

    Raises:
        ConfigError: a number that makes no sense.
    """

    latency: LatencySettings | None = QUICK
    limit: Annotated[
        int | None,
        option(
            "Basic",
            "Use N samples, spread over all of them.  [default: all]",
            metavar="N",
            least=1,
        ),
    ] = None
    scored_output: Annotated[
        str | None,
        option("Quality", "Output that the labels belong to.  [default: the first]", metavar="NAME"),
    ] = None
    threads: Annotated[
        int,
        option(
            "Speed",
            "Threads of onnxruntime, where latency is measured.",
            metavar="N",
            least=1,
        ),
    ] = 1
    labels: Annotated[
        LabelsLike | None,
        option(
            "Quality",
            "Truth that the metric reads; without one the class of each row: one integer a line, .npy, "
            "FILE:COLUMN of a table, or a folder with a folder of pictures for each class (order: its "
            "classes.txt).",
            metavar="FILE",
            takes="truth",
        ),
    ] = None
    holdout_data: Annotated[
        DataSource | None,
        option(
            "Basic",
            "Samples to judge the result on.  [default: a quarter of --data, drawn by content]",
            metavar="DATA",
            takes="data",
        ),
    ] = None
    preprocess: Annotated[
        str | os.PathLike[str] | None,
        option(
            "Basic",
            "How files become samples: imagenet, clip, yolo, raw, or FILE (recipe, "
            "preprocessor_config.json, tokenizer.json).",
            metavar="RECIPE",
            takes="recipe",
        ),
    ] = None
    fix: Annotated[
        Literal["off", "auto"],
        option("Quality", "auto: apply the best fix that was tried, where the result is not good."),
    ] = "off"
    budget: Annotated[
        float,
        option(
            "Quality",
            "Time for trying fixes, where the result is not good; 0 tries none.",
            metavar="SECONDS",
        ),
    ] = 20.0
    check_outputs: Annotated[
        Literal["auto", "off"],
        option(
            "Quality",
            "auto: run the model on 16 calibration samples before it is written, and leave more nodes float "
            "where an output moves too far.",
        ),
    ] = "auto"
    checkpoint: Annotated[
        str | os.PathLike[str] | None,
        option(
            "Files",
            "Keep progress of --rounding gptq or gptaq here; the same command resumes after a kill.",
            metavar="FILE",
            takes="new file",
        ),
    ] = None
    save_plan: Annotated[
        str | os.PathLike[str] | None,
        option("Files", "Write the plan: every decision.", metavar="PLAN.yaml", takes="new file"),
    ] = None
    accept_retrained: Annotated[bool, option("Files", "Accept a profile of other weights.")] = False
    transform: Transform | None = None
    gate: Gate = field(default_factory=Gate)
    speed: SpeedCheckOptions | None = None
    progress: Shown = None
    stage: Stage | None = None
    note: Callable[[str], None] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_finite(self)
        if self.budget < 0.0:
            raise ConfigError(f"budget: {self.budget:g} is no number of seconds; give 0 or more")


OF_JUDGING = frozenset(
    {"labels", "metric", "holdout_data", "scored_output", "class_axis", "gate", "latency", "runtime"}
    | {"provider", "threads", "fix", "budget"}
)
"""Options of `quantize` that are for samples, on which the result is judged."""


@dataclass(frozen=True)
class DriftLimits:
    """Limits for every tensor; None for no limit. The measures: see `profiles.records.drift`.

    They are held against the measures themselves: the elements of a sample depend on each other, so that a
    profile has no interval for them. Of few samples the distances are too large, by chance, and clipping,
    range growth and the share of non-finite elements too small: compare profiles of about as many samples,
    and of enough of them that two halves of the old data keep the limits.

    Attributes:
        max_clipping: clipping rate of NEW's elements above the baseline of OLD's own, 0 to 1.
        max_range_growth: factor, at least 1.
        max_js_distance: Jensen-Shannon distance, 0 to 1.
        max_wasserstein: share of OLD's range.
        max_non_finite: share of the elements, 0 to 1.
    """

    max_clipping: Annotated[
        float | None,
        option("Quality", "Gate: clipping rate above the baseline.", metavar="SHARE"),
    ] = None
    max_range_growth: Annotated[float | None, option("Quality", "Gate: range growth.", metavar="FACTOR")] = (
        None
    )
    max_js_distance: Annotated[
        float | None, option("Quality", "Gate: Jensen-Shannon distance, 0 to 1.", metavar="D")
    ] = None
    max_wasserstein: Annotated[
        float | None, option("Quality", "Gate: Wasserstein distance.", metavar="SHARE")
    ] = None
    max_non_finite: Annotated[
        float | None, option("Quality", "Gate: share of NaN and Inf.", metavar="SHARE")
    ] = None
