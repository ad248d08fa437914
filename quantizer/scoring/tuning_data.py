"""The samples of a tuning: the metric that they are scored with, and which of them are held out."""

from __future__ import annotations

import hashlib
import inspect
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial, reduce
from pathlib import Path
from types import CodeType
from typing import TypeAlias

import onnx_ir as ir
import onnxruntime as ort

from ...profiles.base.errors import ConfigError, DataError, ModelError, nearest
from ...profiles.readers.values import Sample
from ...profiles.records.profile import DataId
from ...profiles.runner.thread_pool import map_in_threads
from ...profiles.samples.digest import data_id, rows_of
from ...profiles.samples.functions import load_function, user_code
from ...profiles.samples.objects import DataLike, source_name
from ...profiles.samples.samples import input_specs, open_samples
from ..evaluation.accuracy import Labels, load_labels
from ..evaluation.outputs import ClassAxis, class_axes, class_count, classes_of
from ..runtime.sessions import run
from .scores import (
    Metric,
    Outputs,
    accuracy_metric,
    agreement_metric,
    are_answers,
    correlation_metric,
    score_outputs,
    user_metric,
)

MetricFunction: TypeAlias = Callable[[Sequence[Outputs], Sequence[int]], object]
"""Takes the outputs of a model (a dict by name for each sample) and the indices of the samples in the data;
returns a score from 0 to 100 for each."""


@dataclass(frozen=True)
class TuningData:
    """The samples that plans are scored on, and the metric.

    Attributes:
        data: folder of samples, "module:function", or an object of Python (`open_samples`).
        labels: file with the class of every row; the metric is then top-1 accuracy.
        output: name of the output that the labels and `class_axis` belong to; the first when None.
        class_axis: axis of its classes; None for what its operator says (`class_axes`).
        metric: "module:function" or the function itself, see `scores.user_metric`.
        holdout_data: other samples that the chosen plan is verified on; None holds out half of `data`.
        holdout_labels: their labels.
        limit: number of samples used of each source, from the first; None for all.
    """

    data: DataLike
    labels: str | Path | None = None
    output: str | None = None
    class_axis: int | None = None
    metric: str | MetricFunction | None = None
    holdout_data: DataLike | None = None
    holdout_labels: str | Path | None = None
    limit: int | None = None


@dataclass(frozen=True, eq=False)
class ScoringSamples:
    """Samples with the float model's outputs on them, all in memory, and the metric to score them with.

    Attributes:
        samples: inputs of the model.
        indices: of each sample in the data.
        float_outputs: of the float model, in the order of the samples.
        metric: gives the scores.
        metric_name: what the metric is, for people.
        rows: digests of the rows of each sample; a sample whose inputs are no batch is one row.
        metric_digest: of what the scores follow from besides the outputs: labels, axis, code of a metric.
    """

    samples: tuple[Sample, ...]
    indices: tuple[int, ...]
    float_outputs: tuple[Outputs, ...]
    metric: Metric
    metric_name: str
    rows: tuple[tuple[str, ...], ...]
    metric_digest: str

    @property
    def data(self) -> DataId:
        """The identity of the samples, as a profile has it."""
        return reduce(DataId.merged, (DataId(1, row) for rows in self.rows for row in rows), DataId())

    def subset(self, positions: Sequence[int]) -> ScoringSamples:
        """Return the samples at some positions."""
        return replace(
            self,
            samples=tuple(self.samples[i] for i in positions),
            indices=tuple(self.indices[i] for i in positions),
            float_outputs=tuple(self.float_outputs[i] for i in positions),
            rows=tuple(self.rows[i] for i in positions),
        )


@dataclass(frozen=True, eq=False)
class Split:
    """The samples for tuning, and the held-out ones that the chosen plan is verified on.

    Attributes:
        tuning, holdout: both with the same metric.
        description: how they were separated, as a sentence.
    """

    tuning: ScoringSamples
    holdout: ScoringSamples
    description: str

    def overlaps(self, profiled: DataId | None) -> tuple[str, ...]:
        """Return, as sentences, what was done with held-out samples that they should show the effect of.

        Args:
            profiled: the data that the profile was made from, where that is known.
        """
        rows = [row for rows in self.holdout.rows for row in rows]
        tuned = {row for rows in self.tuning.rows for row in rows}
        shared = sum(row in tuned for row in rows)
        sentences = []
        if shared:
            sentences.append(
                f"{shared} of {len(rows)} rows are in both sets: the plan was chosen on them; give other "
                "samples with --holdout-data"
            )
        if profiled in (self.holdout.data, self.holdout.data.merged(self.tuning.data)):
            sentences.append(
                "the profile was made from the held-out samples: the ranges were chosen on them; give other "
                "samples with --holdout-data"
            )
        return tuple(sentences)


def outputs_of(
    session: ort.InferenceSession, samples: Sequence[Sample], name: str, side_by_side: int = 1
) -> list[Outputs]:
    """Return the outputs of a model on samples; `name` says in errors which model it is.

    Args:
        session: of the model.
        samples: its inputs.
        name: what errors call it.
        side_by_side: samples that run at the same time.

    Raises:
        ModelError: onnxruntime fails.
    """
    names = [output.name for output in session.get_outputs()]

    def outputs(sample: Sample) -> Outputs:
        values = run(session, names, sample.arrays, f"{name}, sample {sample.name}")
        return dict(zip(names, values, strict=True))

    if side_by_side == 1:
        return [outputs(sample) for sample in samples]
    return [found for found, _ in map_in_threads(outputs, samples, side_by_side, lambda: False)]


def read_split(
    session: ort.InferenceSession, model: ir.Model, data: TuningData, seed: int, side_by_side: int = 1
) -> Split:
    """Read the samples for tuning and the held-out ones.

    Args:
        session: of the float model.
        model: the same.
        data: the samples and the metric.
        seed: of the random split, where half of the samples are held out.
        side_by_side: samples that run at the same time.

    Raises:
        ConfigError, DataError, ModelError: what is wrong with the samples, labels or metric.
    """
    if (data.holdout_labels is not None) != (data.holdout_data is not None and data.labels is not None):
        raise ConfigError("--holdout-labels: goes with --holdout-data and --labels; give all three")
    every = read_samples(session, model, data, side_by_side)
    if data.holdout_data is None:
        tuning, holdout = halves(every, seed)
        return Split(
            tuning,
            holdout,
            f"of each two consecutive samples one is held out, drawn with seed {seed}",
        )
    other = replace(data, data=data.holdout_data, labels=data.holdout_labels)
    holdout = read_samples(session, model, other, side_by_side)
    return Split(every, holdout, f"held-out samples: {source_name(data.holdout_data)}")


def read_samples(
    session: ort.InferenceSession, model: ir.Model, data: TuningData, side_by_side: int = 1
) -> ScoringSamples:
    """Read samples, run the float model on them and choose the metric.

    Args:
        session: of the float model.
        model: the same.
        data: the samples and the metric; `holdout_data` is ignored.
        side_by_side: samples that run at the same time.

    Raises:
        ConfigError: both labels and a metric. DataError: the data, the labels or the metric are wrong.
        ModelError: there is no such output, or it has no classes.
    """
    labels, limit = data.labels, data.limit
    if labels is not None and data.metric is not None:
        raise ConfigError("--labels and --metric: they exclude each other; a metric reads its own labels")
    specs = input_specs(model)
    samples = tuple(open_samples(data.data, specs, limit))
    if not samples:
        raise DataError(f"{source_name(data.data)}: no samples; there is nothing to tune on")
    float_outputs = tuple(outputs_of(session, samples, "float model", side_by_side))
    metric, name = _metric(float_outputs, data, _class_axes(model, data), cut=len(samples) == limit)
    indices = tuple(range(len(samples)))
    score_outputs(metric, indices, float_outputs, float_outputs)  # fails now, not after the first trial
    rows = tuple(
        tuple(data_id(row.arrays, specs).digest for row in rows_of(sample, specs)) for sample in samples
    )
    return ScoringSamples(samples, indices, float_outputs, metric, name, rows, _metric_digest(data))


def _metric_digest(data: TuningData) -> str:
    parts = [] if data.class_axis is None else [str(data.class_axis).encode()]
    if data.labels is not None:
        parts.append(load_labels(data.labels).classes.tobytes())
    elif data.metric is not None:
        parts.append(_code(load_function(data.metric) if isinstance(data.metric, str) else data.metric))
    return hashlib.sha256(b" ".join(parts)).hexdigest()[:16] if parts else ""


def _code(function: Callable[..., object]) -> bytes:
    """Return the source of the module that a function is defined in, or else what is known of its code.

    What it imports, and the values that it closes over, are not in it.
    """
    defined = inspect.unwrap(function)
    if isinstance(defined, partial):
        return _code(defined.func) + repr((defined.args, defined.keywords)).encode()
    kind = defined if inspect.isroutine(defined) or inspect.isclass(defined) else type(defined)
    with suppress(OSError, TypeError):
        return Path(inspect.getfile(kind)).read_bytes()
    source = ""
    with suppress(OSError, TypeError):  # Python 3.13 takes the text of `python -c` for that of what eval makes
        source = inspect.getsource(kind)
    return repr((kind.__qualname__, _instructions(getattr(defined, "__code__", None)), source)).encode()


def _instructions(code: object) -> object:
    """Return what a compiled function does; anything else as it is."""
    if not isinstance(code, CodeType):
        return code
    return (code.co_code, code.co_names, [_instructions(constant) for constant in code.co_consts])


def _class_axes(model: ir.Model, data: TuningData) -> dict[str, ClassAxis]:
    """Return where the outputs have their classes, as labels and the user say."""
    names = [str(value.name) for value in model.graph.outputs]
    if data.output is not None and data.output not in names:
        raise ModelError(
            f"output '{data.output}': the model has none of this name; its outputs are {', '.join(names)}."
            f"{nearest(data.output, names)}"
        )
    chosen = data.labels is not None or data.class_axis is not None
    return class_axes(model, (data.output or names[0]) if chosen else None, data.class_axis)


def _metric(
    float_outputs: Sequence[Outputs], data: TuningData, axes: Mapping[str, ClassAxis], *, cut: bool
) -> tuple[Metric, str]:
    """Return the metric and its name; `cut`: there may be more labels than the samples that were read."""
    if data.labels is not None:
        output = data.output or next(iter(float_outputs[0]))
        return _accuracy(float_outputs, load_labels(data.labels), output, axes[output], cut=cut)
    if data.metric is not None:
        name = metric_name(data.metric)
        return _user_metric(data.metric, name), f"metric {name}"
    if are_answers(float_outputs[0], axes):
        return agreement_metric(axes), "top-1 agreement with the float model"
    return correlation_metric(axes), "correlation with the float model's outputs (0.5 is an SQNR of 20 dB)"


def _accuracy(
    float_outputs: Sequence[Outputs], labels: Labels, output: str, axis: ClassAxis, *, cut: bool
) -> tuple[Metric, str]:
    starts, rows = [], 0
    for outputs in float_outputs:
        starts.append(rows)
        rows += classes_of(outputs[output], axis, f"output '{output}'").size
        labels.check_classes(class_count(outputs[output], axis))
    labels.check_rows(rows, cut=cut)
    return accuracy_metric(output, labels.classes, starts, axis), f"top-1 accuracy of output '{output}'"


def metric_name(metric: str | MetricFunction) -> str:
    """Return what messages call a metric: "module:function", or the name of the function."""
    return metric if isinstance(metric, str) else str(getattr(metric, "__name__", type(metric).__name__))


def _user_metric(metric: str | MetricFunction, name: str) -> Metric:
    if isinstance(metric, str) and ":" not in metric:
        raise ConfigError(f"--metric {name}: names no function; name one as module:function")
    function: Callable[..., object] = load_function(metric) if isinstance(metric, str) else metric

    def guarded(outputs: Sequence[Outputs], indices: Sequence[int]) -> object:
        with user_code(f"--metric {name}"):
            return function(outputs, indices)

    return user_metric(guarded, name)


def halves(samples: ScoringSamples, seed: int) -> tuple[ScoringSamples, ScoringSamples]:
    """Return two halves, for tuning and held out: of each two consecutive samples one goes into each.

    Which of the two is held out is drawn at random: alternating would split data in a regular order (classes
    in turn) by class.

    Raises:
        DataError: there are fewer than two samples.
    """
    count = len(samples.samples)
    if count < 2:
        raise DataError(
            "data: one sample cannot be split into tuning and held-out; give more, or --holdout-data"
        )
    draw = random.Random(seed)
    first: list[int] = []
    second: list[int] = []
    for begin in range(0, count - 1, 2):
        swap = draw.random() < 0.5
        first.append(begin + swap)
        second.append(begin + (not swap))
    if count % 2:
        second.append(count - 1)
    return samples.subset(first), samples.subset(second)
