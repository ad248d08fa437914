"""The samples of a tuning: the metric that they are scored with, and which of them are held out."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from pathlib import Path
from typing import Any, cast

import onnx_ir as ir
import onnxruntime as ort

from ....profiles.base.errors import DataError
from ....profiles.base.findings import Code, Finding
from ....profiles.records.profile import DataId
from ....profiles.runtime.states import model_samples
from ....profiles.samples.objects import DataLike, source_name
from ....profiles.samples.samples import check_same_again, data_id, input_specs, rows_of
from ...evaluation.metrics.metric import Figures, Metric, Outputs
from ...evaluation.metrics.score import (
    OtherRows,
    Score,
    check_output,
    figures_at_random,
    open_metric,
    reads_truth,
    score_of,
)
from ...evaluation.metrics.truth import load_labels
from ...noise.class_axes import class_axes
from ...search.run_samples import RunSamples, outputs_of, samples_in_memory
from .relative_metrics import relative_metric
from .tune_options import TuneOptions


@dataclass(frozen=True, eq=False)
class ScoringSamples(RunSamples):
    """Samples that were run, with the metric to score them with."""

    metric: Metric
    truths: tuple[Any, ...]  # what the metric reads of each sample
    float_scored: tuple[Any, ...]  # what the metric keeps of the float model's outputs on each sample
    scored_at_random: tuple[Any, ...]  # the same with the truth of other rows
    rows: tuple[tuple[str, ...], ...]  # digests of the rows of each sample

    @property
    def data(self) -> DataId:
        """The identity of the samples, as a profile has it."""
        return reduce(DataId.merged, (DataId(1, row) for rows in self.rows for row in rows), DataId())

    def subset(self, positions: Sequence[int]) -> ScoringSamples:
        """Return the samples at some positions."""
        names = ("samples", "float_outputs", "truths", "float_scored", "scored_at_random", "rows")
        chosen: dict[str, Any] = {name: tuple(getattr(self, name)[i] for i in positions) for name in names}
        return replace(self, **chosen)

    def score(self, outputs: Sequence[Outputs]) -> Score:
        """Return the score of a quantized model by its outputs on these samples."""
        pairs = zip(self.truths, outputs, strict=True)
        quantized = [self.metric.scored(truth, sample_outputs) for truth, sample_outputs in pairs]
        return score_of(
            self.metric.kind,
            len(outputs),
            self.float_figures,
            self.metric.figures(quantized),
            self.figures_at_random,
        )

    @cached_property
    def float_figures(self) -> Figures:
        """The metric's figures of the float model's outputs."""
        return self.metric.figures(self.float_scored)

    @cached_property
    def figures_at_random(self) -> tuple[Figures, Figures] | None:
        """Its figures with the truth of the rows, and with that of other rows, as `score_of` takes them."""
        return figures_at_random(self.metric, self.float_scored, self.scored_at_random)


@dataclass(frozen=True, eq=False)
class Split:
    """The samples for tuning, and the held-out ones that the chosen plan is verified on."""

    tuning: ScoringSamples  # both with the same metric
    holdout: ScoringSamples
    description: str

    def overlaps(self, profiled: DataId | None) -> tuple[Finding, ...]:
        """Return the findings on held-out samples that were used before, so that their score flatters."""
        rows = [row for rows in self.holdout.rows for row in rows]
        tuned = {row for rows in self.tuning.rows for row in rows}
        shared = sum(row in tuned for row in rows)
        remedy = "give other samples with --holdout-data"
        findings = []
        if shared:
            sentence = f"{shared} of {len(rows)} rows are in both sets: the plan was chosen on them"
            findings.append(
                Finding(Code.SEEN_SAMPLES, sentence, figures={"rows": shared, "of": len(rows)}, remedy=remedy)
            )
        if profiled in (self.holdout.data, self.holdout.data.merged(self.tuning.data)):
            sentence = "the profile was made from the held-out samples: the ranges were chosen on them"
            findings.append(Finding(Code.SEEN_SAMPLES, sentence, remedy=remedy))
        return tuple(findings)


def read_split(
    session: ort.InferenceSession, model: ir.Model, data: DataLike, how: TuneOptions, side_by_side: int = 1
) -> Split:
    """Read the samples for tuning and the held-out ones."""
    if how.labels is not None and not reads_truth(how.metric):  # refused before a model is run
        load_labels(cast("Path", how.labels))
    every = read_samples(session, model, data, how, side_by_side)
    if how.holdout_data is None:
        described = "of each two consecutive samples one is held out, drawn at random"
        return Split(*halves(every), described)
    other = cast("DataLike", how.holdout_data)
    holdout = read_samples(session, model, other, how, side_by_side)
    return Split(every, holdout, f"held-out samples: {source_name(other)}")


def read_samples(
    session: ort.InferenceSession, model: ir.Model, data: DataLike, how: TuneOptions, side_by_side: int = 1
) -> ScoringSamples:
    """Read samples, run the float model on them and choose the metric; labels of `how` are a file."""
    labels = cast("Path | None", how.labels)
    if labels is not None:
        check_same_again(data, model_samples(data, model, how.limit, notes=False))
    specs, samples = input_specs(model), samples_in_memory(model, data, how.limit)
    (first,) = outputs_of(session, samples[:1], "float model")
    if how.metric is None and labels is None:
        check_output(how.scored_output, first)
        with_classes = None if how.class_axis is None else how.scored_output or next(iter(first))
        metric = relative_metric(first, class_axes(model, with_classes, how.class_axis))
    else:
        # It fails before all of them are run.
        metric = open_metric(
            model,
            samples[0].arrays,
            first,
            how.metric,
            labels,
            output=how.scored_output,
            class_axis=how.class_axis,
            data=data,
        )
    float_outputs = tuple(outputs_of(session, samples, "float model", side_by_side))
    truths, row, others = list[Any](), 0, OtherRows()
    for index, (sample, outputs) in enumerate(zip(samples, float_outputs, strict=True)):
        truth, rows_read = metric.truth_of(sample, outputs, index, row)
        truths.append(truth)
        row += rows_read
    metric.finish(row, len(samples) == how.limit or samples[-1].position is not None)
    both = list(zip(truths, float_outputs, strict=True))
    read = ScoringSamples(
        samples,
        float_outputs,
        metric=metric,
        truths=tuple(truths),
        float_scored=tuple(metric.scored(truth, outputs) for truth, outputs in both),
        scored_at_random=tuple(others.scored(metric, truth, outputs) for truth, outputs in both),
        rows=tuple(
            tuple(data_id(row.arrays, specs).digest for row in rows_of(sample, specs)) for sample in samples
        ),
    )
    # A metric that fails does so now, not after a trial.
    score_of(metric.kind, len(samples), read.float_figures, read.float_figures)
    return read


def halves(samples: ScoringSamples) -> tuple[ScoringSamples, ScoringSamples]:
    """Return two halves: of each two consecutive samples one, drawn the same way each time; sequences stay
    whole."""
    units: list[list[int]] = []
    for number, sample in enumerate(samples.samples):
        if sample.step and units:
            units[-1].append(number)
        else:
            units.append([number])
    count = len(units)
    if count < 2:
        raise DataError(
            "data: one sample cannot be split into tuning and held-out; give more, or --holdout-data"
        )
    draw = random.Random(0)
    first: list[int] = []
    second: list[int] = []
    for begin in range(0, count - 1, 2):
        swap = draw.random() < 0.5
        first += units[begin + swap]
        second += units[begin + (not swap)]
    if count % 2:
        second += units[-1]
    return samples.subset(first), samples.subset(second)
