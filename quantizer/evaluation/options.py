"""How a float and a quantized model are compared, and the limits that the quantized one must keep.

The fields of these records are the options of `qprof evaluate` and of the commands that compare as it does.
`--help` is made of them, so that this module imports nothing slow.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from ...profiles.base.arguments import check_record
from ...profiles.base.options import option
from ...profiles.base.progress import Shown
from .metrics.table import metric_names

if TYPE_CHECKING:
    from ...profiles.samples.objects import DataLike
    from .metrics.truth import LabelsLike

RuntimeName = Literal["onnxruntime", "openvino"]
"""The runtime of both models."""


@dataclass(frozen=True)
class LatencySettings:
    """How latency is measured.

    Attributes:
        rounds: rounds at most, at least 1.
        seconds: no new round starts after this time, once MIN_ROUNDS are done.
        samples: how many samples a round runs: the first ones.
        precision: fraction of the speedup to which it has to be known: rounds end early then. 0 for none.
        threads: threads inside an operator.
    """

    rounds: Annotated[int, option("", least=1)] = 30
    seconds: float = 20.0
    samples: int = 4
    precision: float = 0.0
    threads: Annotated[int, option("", least=1)] = 1

    def __post_init__(self) -> None:
        """Raise ConfigError for numbers that make no sense."""
        check_record(self)


QUICK = LatencySettings(rounds=25, seconds=4.0, samples=2)
"""For comparing one candidate after the other, as `tune` and `--check-speed` do."""

TOLD = replace(QUICK, rounds=20, precision=0.05)
"""For the speed of a model that `quantize` makes; of 25 rounds it is no nearer to that of another run."""


@dataclass(frozen=True)
class SpeedCheckOptions:
    """The samples and limits of the check of a quantized model's speed (`--check-speed`).

    Attributes:
        data: folder of samples, "module:function", or an object of Python (`model_samples`); None for the
            samples that the profile keeps.
        limit: number of samples used, drawn from all of them; None for those of `QUICK`.
        threads: threads inside an operator.
        min_speedup: float latency over quantized latency that must be reached; None for no demand.
    """

    data: DataLike | None = None
    limit: Annotated[int | None, option("", least=1)] = None
    threads: Annotated[int, option("", least=1)] = 1
    min_speedup: float | None = None

    def __post_init__(self) -> None:
        check_record(self)


@dataclass(frozen=True)
class Gate:
    """Limits that the quantized model must keep; None for no limit.

    Attributes:
        min_sqnr: Gate: SQNR of every float output. In Python: dB, of all the samples together.
        min_speedup: Gate: float latency over quantized latency, lower quartile.
        max_drop: Gate: drop of accuracy, or of --metric (percentage points, dB, or % of float's), upper end
            of its 95 % interval. In Python: in the unit that the metric counts a drop in (`MetricKind.drop`).
        min_score: Gate: --metric of the quantized model, 99 or 99%; an upper bound if lower is better.
        max_size: Gate: size of OUT.onnx, as in 4.5MB. In Python: bytes, external data included.
    """

    min_sqnr: Annotated[float | None, option("Quality", metavar="DB")] = None
    min_speedup: Annotated[float | None, option("Speed", metavar="X")] = None
    max_drop: Annotated[float | None, option("Quality", metavar="POINTS", takes="points", least=0)] = None
    min_score: Annotated[float | None, option("Quality", metavar="SCORE", takes="points")] = None
    max_size: Annotated[float | None, option("Files", metavar="SIZE", takes="size")] = None

    @property
    def has_limit(self) -> bool:
        """Whether any limit was given."""
        return any(getattr(self, limit.name) is not None for limit in fields(self))


@dataclass(frozen=True, kw_only=True)
class Judge:
    """The means of judging a quantized model: samples, truth, metric, limits, and runs of the models.

    Attributes:
        labels: Labels for the metric. Without a metric, the class of each row: one integer per line, .npy,
            FILE:COLUMN of a table, or a folder with a folder of pictures for each class (order: its
            classes.txt). In Python: a file, a folder, or integers.
        preprocess: Recipe that turns files into samples: imagenet, clip, yolo, raw, or FILE (recipe,
            preprocessor_config.json, tokenizer.json).
        held_out: Use only the samples that quantize held out of DATA, with the same --limit; the others made
            the profile.
        transform: makes a sample of an item of the data.
        gate: limits that the quantized model must keep.
        progress: True for an occasional line (the default in a notebook); or called after each sample.
        limit: Use N samples, spread over all of them.
        scored_output: Output that labels and metric belong to. [default: the first]
        class_axis: Axis of the classes of the output with labels, or of the first. [default: its operator's]
        threads: Threads of the runtime, for both models.
        latency: how latency is measured, on as many threads; None leaves it out, and so does False.
        metric: name in the table of metrics (`table.KINDS`), "module:function" or a function (`user_metric`);
            None for top-1 accuracy with labels.
        runtime: Runtime for both models.
        provider: Its execution provider or device, such as cuda or cuda:1.

    Raises:
        ConfigError: a number that makes no sense.
    """

    limit: Annotated[int | None, option("Basic", metavar="N", least=1)] = None
    scored_output: Annotated[str | None, option("Quality", metavar="NAME")] = None
    class_axis: Annotated[int | None, option("Quality", metavar="N")] = None
    threads: Annotated[int, option("Speed", metavar="N", least=1)] = 1
    latency: LatencySettings | None = LatencySettings()
    metric: Annotated[
        str | Callable[[Sequence[Any], Sequence[int]], object] | None,
        option(
            "Quality",
            f"Score of both models: {', '.join(metric_names())}, with options as in map50:nms=0.6; or a "
            "function of your own.",
            metavar="NAME|FILE.py:FUNCTION",
            takes="data",
        ),
    ] = None
    runtime: Annotated[RuntimeName, option("Speed")] = "onnxruntime"
    provider: Annotated[str, option("Speed", metavar="NAME")] = "cpu"
    labels: Annotated[LabelsLike | None, option("Quality", metavar="FILE", takes="truth")] = None
    preprocess: Annotated[
        str | os.PathLike[str] | None, option("Basic", metavar="RECIPE", takes="recipe")
    ] = None
    held_out: Annotated[bool, option("Basic")] = False
    transform: Callable[[Any], object] | None = None
    gate: Gate = field(default_factory=Gate)
    progress: Shown = None

    def __post_init__(self) -> None:
        latency: object = self.latency
        if isinstance(latency, bool):
            object.__setattr__(self, "latency", type(self).latency if latency else None)
        check_record(self)
