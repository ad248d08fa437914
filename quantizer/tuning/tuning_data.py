"""The samples of a tuning: the metric that they are scored with, and which of them are held out."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import onnxruntime as ort

from ...profiles.base.errors import ConfigError, DataError, ModelError, nearest
from ...profiles.records.profile import DataId
from ...profiles.samples.digest import data_id
from ...profiles.samples.functions import load_function, user_code
from ...profiles.samples.objects import DataLike, source_name
from ...profiles.samples.samples import InputSpec, Sample, open_samples
from ..evaluation.accuracy import load_labels
from ..runtime.sessions import run
from .scores import (
    Metric,
    Outputs,
    accuracy_metric,
    agreement_metric,
    classes,
    has_answers,
    noise_free_share,
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
        output: name of the output that the labels belong to; the first when None.
        metric: "module:function" or the function itself, see `scores.user_metric`.
        holdout_data: other samples that the chosen plan is verified on; None holds out half of `data`.
        holdout_labels: their labels.
        limit: number of samples used of each source, from the first; None for all.
    """

    data: DataLike
    labels: str | Path | None = None
    output: str | None = None
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
        digest: identifies the data and the metric.
    """

    samples: tuple[Sample, ...]
    indices: tuple[int, ...]
    float_outputs: tuple[Outputs, ...]
    metric: Metric
    metric_name: str
    digest: str

    def subset(self, positions: Sequence[int]) -> ScoringSamples:
        """Return the samples at some positions."""
        return replace(
            self,
            samples=tuple(self.samples[i] for i in positions),
            indices=tuple(self.indices[i] for i in positions),
            float_outputs=tuple(self.float_outputs[i] for i in positions),
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

    @property
    def is_separate(self) -> bool:
        """Whether no held-out sample is used for tuning."""
        return self.holdout.digest != self.tuning.digest


def outputs_of(session: ort.InferenceSession, samples: Sequence[Sample], name: str) -> list[Outputs]:
    """Return the outputs of a model on samples; `name` says in errors which model it is.

    Raises:
        ModelError: onnxruntime fails.
    """
    names = [output.name for output in session.get_outputs()]
    return [
        dict(zip(names, run(session, names, s.arrays, f"{name}, sample {s.name}"), strict=True))
        for s in samples
    ]


def read_split(
    session: ort.InferenceSession, specs: Sequence[InputSpec], data: TuningData, seed: int
) -> Split:
    """Read the samples for tuning and the held-out ones.

    Args:
        session: of the float model.
        specs: its inputs.
        data: the samples and the metric.
        seed: of the random split, where half of the samples are held out.

    Raises:
        ConfigError, DataError, ModelError: what is wrong with the samples, labels or metric.
    """
    if (data.holdout_labels is not None) != (data.holdout_data is not None and data.labels is not None):
        raise ConfigError("--holdout-labels: goes with --holdout-data and --labels; give all three")
    every = read_samples(session, specs, data)
    if data.holdout_data is None:
        tuning, holdout = halves(every, seed)
        return Split(
            tuning,
            replace(holdout, digest=f"{holdout.digest}, the other half"),
            f"of each two consecutive samples one is held out, drawn with seed {seed}",
        )
    other = replace(data, data=data.holdout_data, labels=data.holdout_labels)
    holdout = read_samples(session, specs, other)
    if holdout.digest == every.digest:
        return Split(every, holdout, "the held-out samples are the tuning samples")
    return Split(every, holdout, f"held-out samples: {source_name(data.holdout_data)}")


def read_samples(
    session: ort.InferenceSession, specs: Sequence[InputSpec], data: TuningData
) -> ScoringSamples:
    """Read samples, run the float model on them and choose the metric.

    Args:
        session: of the float model.
        specs: its inputs.
        data: the samples and the metric; `holdout_data` is ignored.

    Raises:
        ConfigError: both labels and a metric. DataError: the data, the labels or the metric are wrong.
        ModelError: there is no such output, or it has no classes.
    """
    labels, limit = data.labels, data.limit
    if labels is not None and data.metric is not None:
        raise ConfigError("--labels and --metric: they exclude each other; a metric reads its own labels")
    samples = tuple(open_samples(data.data, specs, limit))
    if not samples:
        raise DataError(f"{source_name(data.data)}: no samples; there is nothing to tune on")
    float_outputs = tuple(outputs_of(session, samples, "float model"))
    metric, name = _metric(float_outputs, data, cut=len(samples) == limit)
    indices = tuple(range(len(samples)))
    score_outputs(metric, indices, float_outputs, float_outputs)  # fails now, not after the first trial
    identity = DataId()
    for sample in samples:
        identity = identity.merged(data_id(sample.arrays, specs))
    truth = "" if labels is None else hashlib.sha256(load_labels(labels).tobytes()).hexdigest()[:16]
    digest = f"{identity.digest} {name} {truth}".rstrip()
    return ScoringSamples(samples, indices, float_outputs, metric, name, digest)


def _metric(float_outputs: Sequence[Outputs], data: TuningData, *, cut: bool) -> tuple[Metric, str]:
    """Return the metric and its name; `cut`: there may be more labels than the samples that were read."""
    if data.labels is not None:
        return _accuracy(float_outputs, data.labels, data.output, cut=cut)
    if data.metric is not None:
        name = metric_name(data.metric)
        return _user_metric(data.metric, name), f"metric {name}"
    if has_answers(float_outputs[0]):
        return agreement_metric, "top-1 agreement with the float model"
    return noise_free_share, "share of the outputs' energy that is not noise"


def _accuracy(
    float_outputs: Sequence[Outputs], labels: str | Path, output: str | None, *, cut: bool
) -> tuple[Metric, str]:
    names = list(float_outputs[0])
    if output is not None and output not in names:
        raise ModelError(
            f"the model: has no output '{output}'; name one of its outputs.{nearest(output, names)}"
        )
    scored = output or names[0]
    truth = load_labels(labels)
    starts, rows = [], 0
    for outputs in float_outputs:
        starts.append(rows)
        rows += classes(outputs[scored], scored).size
    if rows > truth.size or (rows < truth.size and not cut):
        raise DataError(
            f"{labels}: {truth.size} labels, but the samples have {rows} rows; give one for each row"
        )
    return accuracy_metric(scored, truth, starts), f"top-1 accuracy of output '{scored}'"


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
