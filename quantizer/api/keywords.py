"""The keywords of the public functions, for editors and type checkers: the one place that needs them as such.

Those of settings are printed from `QuantConfig` into `setting_keywords`.

What each is, its default and its help stand in the records that they are the fields of, and tests hold names
and types equal: `RunSettings`, `EvaluationOptions` with `SampleKeywords`,
`QuantizeOptions`, `QualityTarget` with `TuningData` and `TuneFiles`, and `DriftLimits`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict

from ...profiles.base.errors import ConfigError, nearest
from ...profiles.base.findings import Finding
from ..targets.loading import load_recipe
from ..targets.target import Recipe
from .setting_keywords import MetricName, Settings

if TYPE_CHECKING:  # a command does not wait for what others import
    from ...profiles.base.progress import Shown, Stage
    from ...profiles.samples.objects import DataSource
    from ..evaluation.metrics.user_functions import MetricFunction
    from ..evaluation.options import Gate, RuntimeName
    from ..prepare.prepare import ProfileLike
    from ..search.candidates import OnTrial
    from ..search.options import SpeedCheckOptions
    from .sources import LabelsLike, Transform

TargetLike: TypeAlias = str | os.PathLike[str] | Recipe
"""The name of a packaged target, the path of a configuration file, or a recipe that was loaded."""

PathLike: TypeAlias = str | os.PathLike[str]


class RunOptions(TypedDict, total=False):
    """How a model is profiled, see `RunSettings`."""

    tensors: Literal["all", "needed"] | Collection[str]
    channels: Literal["weighted-layers", "off"] | Mapping[str, int]
    non_finite: Literal["error", "skip"]
    limit: int | None
    by_row: bool
    noise_samples: int
    keep_samples: int
    provider: str
    threads: int
    memory_limit: int | None
    checkpoint: PathLike | None
    every: float
    scheduler: str | None
    custom_ops: Sequence[PathLike]


class SampleKeywords(TypedDict, total=False):
    """How samples are read.

    `transform` makes a sample of an item, `preprocess` of a file; `limit` of them are used; `progress` is
    True for a bar, as a notebook has one unless told False, or called after each.
    """

    transform: Transform | None
    preprocess: PathLike | None
    limit: int | None
    progress: Shown


class LayerKeywords(SampleKeywords, total=False):
    """Keywords of `compare_layers`, and of all functions that run a model: see `EvaluationOptions`."""

    threads: int
    provider: str


class EvaluateKeywords(LayerKeywords, total=False):
    """Keywords of `evaluate`, see `EvaluationOptions`.

    latency: False leaves it out.
    """

    latency: bool
    runtime: RuntimeName
    scored_output: str | None
    class_axis: int | None


class CardKeywords(EvaluateKeywords, total=False):
    """Keywords of `card`: those of `evaluate`, and what a model hub calls task and float model (`Card`)."""

    task: str
    base_model: str


class VerifyKeywords(LayerKeywords, total=False):
    """Keywords of `verify`, see `EvaluationOptions`.

    slack: how much a score, an SQNR, a size and a speed-up may differ from the card's (`Slack`).
    """

    latency: bool
    runtime: RuntimeName
    slack: Mapping[Literal["score", "sqnr", "size", "speedup"], float]


class ReportKeywords(LayerKeywords, total=False):
    """Keywords of `report`, see `EvaluationOptions` and `Gate`.

    measure_layers: whether the layers of both models are timed; history: profiles of newer data, the oldest
    first: how they drift; target: of the plan, where it is no packaged one.
    """

    latency: bool
    runtime: RuntimeName
    scored_output: str | None
    class_axis: int | None
    metric: MetricName | str | MetricFunction | None
    gate: Gate | None
    measure_layers: bool
    history: Iterable[ProfileLike]
    target: TargetLike | None


class QuantizeKeywords(Settings, LayerKeywords, total=False):
    """Keywords of `quantize`: settings, and the fields of `QuantizeOptions`."""

    latency: bool
    runtime: RuntimeName
    scored_output: str | None
    class_axis: int | None
    metric: MetricName | str | MetricFunction | None
    labels: LabelsLike | None
    holdout_data: DataSource | None
    gate: Gate
    fix: Literal["off", "auto"]
    budget: float
    check_outputs: Literal["auto", "off"]
    keep_samples: int
    checkpoint: PathLike | None
    save_plan: PathLike | None
    speed: SpeedCheckOptions | None
    stage: Stage | None
    note: Callable[[Finding], None] | None


class SensitivityKeywords(Settings, LayerKeywords, total=False):
    """Keywords of `sensitivity`: settings, and how models are run.

    class_axis: axis of the classes of the first output, what its operator says when None.
    """

    class_axis: int | None


class DiffKeywords(Settings, total=False):
    """Keywords of `diff`: settings, the limits of `DriftLimits`, and this.

    allow_different: compares tensors of the same name in models of different structure.
    """

    max_clipping: float | None
    max_range_growth: float | None
    max_js_distance: float | None
    max_wasserstein: float | None
    max_non_finite: float | None
    allow_different: bool


class TuneKeywords(Settings, LayerKeywords, total=False):
    """Keywords of `tune`: settings, from which it starts, the fields of `QualityTarget` and `TuningData`.

    state: file from which an interrupted tuning is resumed; on_trial: called after each trial; progress: of
    trials.
    """

    objective: Literal["latency", "size", "int8-share"]
    budget: float | None
    seed: int
    parallel: int
    labels: LabelsLike | None
    metric: MetricName | str | MetricFunction | None
    scored_output: str | None
    class_axis: int | None
    holdout_data: DataSource | None
    holdout_labels: LabelsLike | None
    save_plan: PathLike | None
    state: PathLike | None
    on_trial: OnTrial | None


def checked_keywords(function: str, options: Mapping[str, Any], allowed: type) -> dict[str, Any]:
    """Return the keywords of a call, in a dictionary that the caller may change.

    Args:
        function: the function that was called, for messages.
        options: its keywords.
        allowed: the TypedDict that names all of them.

    Raises:
        ConfigError: a keyword is not known; the nearest one is named.
    """
    known = allowed.__optional_keys__  # type: ignore[attr-defined]
    for name in options:
        if name not in known:
            raise ConfigError(f"{function}: there is no keyword '{name}'; see help.{nearest(name, known)}")
    return dict(options)


def take_settings(keywords: dict[str, Any]) -> dict[str, Any]:
    """Take the settings out of the keywords of a call, and return them."""
    return {name: keywords.pop(name) for name in list(keywords) if name in Settings.__optional_keys__}


def recipe_of(target: TargetLike | None, settings: Mapping[str, Any]) -> Recipe | None:
    """Return the settings of a target, overruled by keywords; None where neither was given.

    Raises:
        ConfigError: there is no such target, or a setting or a combination of settings is not allowed.
    """
    if isinstance(target, Recipe):
        if settings:
            raise ConfigError(
                f"{min(settings)}: a recipe holds its settings; give a target, or leave them out"
            )
        return target
    if target is None and not settings:
        return None
    overrides = {
        name: sorted(value)  # a set has no order that could be kept
        if isinstance(value, Collection) and not isinstance(value, str | Sequence)
        else value
        for name, value in settings.items()
    }
    return load_recipe(None if target is None else os.fspath(target), overrides)
