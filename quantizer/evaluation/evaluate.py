"""Float against quantized: SQNR, agreement, accuracy, size and latency on the same samples."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ...profiles.base.errors import ConfigError, DataError, ModelError, nearest
from ...profiles.base.tool import Progress
from ...profiles.readers.batches import fixed_batch
from ...profiles.readers.random_samples import check_not_random
from ...profiles.readers.values import InputSpec, Sample, Samples
from ...profiles.records.profile import DataId
from ...profiles.samples.digest import data_id
from ...profiles.samples.objects import DataLike, source_name
from ...profiles.samples.samples import input_specs, open_samples
from ..differences.outputs import ClassAxis, OutputResult, OutputSums, class_axes, class_count, classes_of
from ..differences.samples import SampleDifference, most_different, sample_difference
from ..metrics.labels import Labels, load_labels
from ..metrics.opening import MetricRequest, open_metric, reads_truth
from ..metrics.score import with_chance
from ..metrics.score_run import ScoreRun
from ..metrics.table import named_metric
from ..model.identity import model_id
from ..noise.estimate_check import EstimateCheck, check_estimates, expected_sqnr, too_good_texts
from ..plan.provenance import Provenance, model_fingerprint
from ..runtime.latency import Latency, measure
from ..runtime.runtimes import place_of
from .accuracy import Accuracy, RowCounts, accuracy_of
from .gates import Gate, check_gate, failures_of, truth_doubts
from .measuring import Measuring
from .model_pair import Pair, open_pair
from .order import ModelFile, check_not_instrumented, doubts, other_graph, speed_doubts
from .result import Evaluation, Subject


@dataclass(frozen=True, eq=False)
class _Labels:
    """The labels, the output that they are compared with, and where that has its classes."""

    output: str
    labels: Labels
    axis: ClassAxis

    @property
    def digest(self) -> str:
        """Of the labels and what they belong to."""
        digest = hashlib.sha256(repr((self.output, self.axis)).encode())
        digest.update(self.labels.classes.tobytes())
        return digest.hexdigest()[:16]


@dataclass(frozen=True, eq=False)
class _Task:
    """What is done with each sample.

    Attributes:
        pair: both models.
        specs: their inputs.
        labels: for top-1 accuracy; None without labels.
        scoring: by a metric; None without one.
        timed: how many samples latency is measured on.
        truth_of: the output that truth belongs to, and
        class_axis: where that has its classes.
    """

    pair: Pair
    specs: tuple[InputSpec, ...]
    labels: _Labels | None
    scoring: ScoreRun | None
    timed: int
    truth_of: str
    class_axis: ClassAxis


@dataclass(frozen=True, eq=False)
class _Sums:
    """What is kept while the samples stream by.

    Attributes:
        outputs: sums of each output.
        rows: counts of rows with the right class.
        samples: how many were run.
        digest: identity of the samples.
        first: the samples that latency is measured on.
        worst: the samples on which the models differ most.
        classes: of the output that truth belongs to; 0 for unknown.
    """

    outputs: tuple[OutputSums, ...]
    rows: RowCounts = field(default_factory=RowCounts)
    samples: int = 0
    digest: DataId = field(default_factory=DataId)
    first: tuple[Sample, ...] = ()
    worst: tuple[SampleDifference, ...] = ()
    classes: int = 0

    @property
    def chance(self) -> float:
        """Percentage of rows that are right by chance; 0 where the number of classes is not known."""
        return 100.0 / self.classes if self.classes else 0.0


def evaluate(
    float_path: str | Path,
    quantized_path: str | Path,
    data: DataLike,
    *,
    labels: str | Path | Labels | None = None,
    gate: Gate | None = None,
    measuring: Measuring | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Run both models on the same samples and return how they compare.

    Args:
        float_path, quantized_path: the two ONNX files.
        data: folder of samples, "module:function", or an object of Python (`open_samples`).
        labels: file or folder with the truth that the metric reads, in the order of the samples and, inside
            a sample, of its rows; without a metric the true class of every row (`load_labels`). It may go on
            beyond samples that `measuring.limit` cuts off.
        gate: limits that the quantized model must keep; None for none.
        measuring: samples, metric, output, runtime, threads, latency; None for the defaults.
        progress: called after each sample with how many are done and, where known, how many there are.

    Raises:
        ConfigError: the gate has a limit on something that is not measured, a number makes no sense, or there
            is no such metric, runtime or provider.
        ModelError: a model cannot be loaded or run, or their inputs or outputs differ in name or type.
        DataError: a sample does not fit, there is none, or the labels do not match the rows.
    """
    gate, measuring = gate or Gate(), measuring or Measuring()
    labelled = labels is not None and not reads_truth(measuring.metric)
    by_metric = measuring.metric is not None
    check_gate(gate, labels=labelled, latency=measuring.latency is not None, metric=by_metric)
    if gate != Gate():
        check_not_random(source_name(data), "a gate")
    place = place_of(measuring.runtime, measuring.provider)
    floats, quantized = ModelFile(Path(float_path)), ModelFile(Path(quantized_path))
    check_not_instrumented(floats, quantized)
    original = floats.model
    pair = open_pair(float_path, quantized_path, measuring.threads, place)
    output = _checked_output(pair, gate, measuring)
    axes = class_axes(
        original, output if labelled or measuring.class_axis is not None else None, measuring.class_axis
    )
    truth = None if labelled else labels
    request = MetricRequest(measuring.metric, truth, measuring.output, measuring.class_axis, data)
    task = _Task(
        pair,
        input_specs(original),
        _Labels(output, load_labels(labels), axes[output]) if labels is not None and labelled else None,
        ScoreRun(lambda sample, outputs: open_metric(request, original, sample.arrays, outputs))
        if by_metric
        else None,
        0 if measuring.latency is None else measuring.latency.samples,
        output,
        axes[output],
    )
    none = _Sums(tuple(OutputSums(axes[name]) for name in pair.outputs))
    sums = _all_added(none, task, open_samples(data, task.specs, measuring.limit), progress)
    cut = sums.samples == measuring.limit
    accuracy = _accuracy(task, sums, cut=cut)
    metric, score = (None, None) if task.scoring is None else task.scoring.result(cut)
    outputs = tuple(s.result(name) for name, s in zip(pair.outputs, sums.outputs, strict=True))
    counted = None if metric is None or metric.kind.name != "top-K" else named_metric(metric.name)
    if score is not None and counted is not None:
        score = with_chance(score, min(100.0, sums.chance * counted.number))
    latency = _latency(pair, sums.first, measuring)
    estimates = _estimates(quantized.provenance, outputs)
    elsewhere = () if latency is None else speed_doubts(quantized, runtime=place.runtime)
    wanted = gate.min_speedup is not None
    assumed = () if metric is None else metric.assumed
    return Evaluation(
        float_model=floats.name,
        quantized_model=quantized.name,
        samples=sums.samples,
        outputs=outputs,
        accuracy=accuracy,
        float_bytes=floats.bytes,
        quantized_bytes=quantized.bytes,
        latency=latency,
        gate=gate,
        failures=failures_of(
            gate, outputs, accuracy, latency, sums.samples, score=score, size=quantized.bytes
        ),
        doubts=doubts(floats, quantized) + (elsewhere if wanted else ()),
        remarks=(
            *truth_doubts(accuracy, score, counts_rows=counted is not None),
            *other_graph(floats, quantized),
            *(() if wanted else elsewhere),
            *too_good_texts(estimates),
            *assumed,
        ),
        provenance=quantized.provenance,
        estimates=estimates,
        metric="" if metric is None else metric.name,
        metric_title="" if metric is None else metric.title,
        score=score,
        worst_samples=sums.worst if sums.samples > 1 else (),
        runtime=place.runtime,
        provider=place.provider,
        subject=Subject(
            model_fingerprint(model_id(original, "")),
            sums.digest.digest,
            (task.labels.digest if task.labels else "") if metric is None else metric.digest,
        ),
    )


def _estimates(provenance: Provenance | None, outputs: Sequence[OutputResult]) -> tuple[EstimateCheck, ...]:
    """Return the SQNR of each output as it was estimated and as it was measured."""
    measured = {o.name: o.difference.sqnr for o in outputs if o.difference and not o.shape_mismatches}
    if provenance is None:
        return ()
    return check_estimates(expected_sqnr(provenance.estimated_sqnr, provenance.sqnr_bands), measured)


def _checked_output(pair: Pair, gate: Gate, measuring: Measuring) -> str:
    """Return the output that labels belong to; refuse a gate on SQNR for a model without float outputs."""
    output = measuring.output
    if output is not None and output not in pair.outputs:
        raise ModelError(
            f"{pair.float_name}: has no output '{output}'; name another.{nearest(output, pair.outputs)}"
        )
    needs_sqnr = gate.min_sqnr is not None or gate.min_group_sqnr is not None
    if needs_sqnr and not pair.float_outputs:
        raise ConfigError(
            f"{pair.float_name}: has no float output and so no SQNR; ask for max_accuracy_drop instead"
        )
    return pair.outputs[0] if output is None else output


def _accuracy(task: _Task, sums: _Sums, *, cut: bool) -> Accuracy | None:
    """Return the accuracy on labels, None without any; refuse labels that are not those of the rows."""
    if task.labels is None:
        return None
    unused = task.labels.labels.classes.size - sums.rows.rows  # of rows that fill no batch of the model
    task.labels.labels.check_rows(sums.rows.rows, cut=cut or 0 < unused < fixed_batch(task.specs))
    return accuracy_of(task.labels.output, sums.rows, sums.chance)


def _all_added(sums: _Sums, task: _Task, source: Samples, progress: Progress | None) -> _Sums:
    """Return the sums with all samples; refuse none."""
    for sample in source:
        sums = _added(sums, task, sample)
        if progress is not None:
            progress(sums.samples, source.total)
    if not sums.samples:
        raise DataError(f"{source.source}: no samples; there is nothing to evaluate on")
    return sums


def _added(sums: _Sums, task: _Task, sample: Sample) -> _Sums:
    """Return the sums with one sample more: run both models on it and compare."""
    floats = task.pair.run_float(sample.arrays, sample.name)
    quantized = task.pair.run_quantized(sample.arrays, sample.name)
    rows, truth = sums.rows, task.labels
    if truth is not None:
        where = f"{task.pair.float_name}, sample {sample.name}: output '{truth.output}'"
        classes = [classes_of(values[truth.output], truth.axis, where) for values in (floats, quantized)]
        truth.labels.check_classes(class_count(floats[truth.output], truth.axis))
        rows = rows.added(truth.labels.classes, *classes)
    if task.scoring is not None:
        task.scoring.add(sample, floats, quantized)
    pairs = zip(task.pair.outputs, sums.outputs, strict=True)
    compared = ((name, floats[name], quantized[name]) for name in task.pair.outputs)
    return replace(
        sums,
        outputs=tuple(s.added(floats[name], quantized[name]) for name, s in pairs),
        rows=rows,
        samples=sums.samples + 1,
        digest=sums.digest.merged(data_id(sample.arrays, task.specs)),
        first=(*sums.first, sample) if len(sums.first) < task.timed else sums.first,
        classes=class_count(floats[task.truth_of], task.class_axis) or sums.classes,
        worst=most_different(sums.worst, sample_difference(sample.name, compared)),
    )


def _latency(pair: Pair, samples: tuple[Sample, ...], measuring: Measuring) -> Latency | None:
    if measuring.latency is None:
        return None
    return measure(
        lambda index: pair.run_float(samples[index].arrays, samples[index].name),
        lambda index: pair.run_quantized(samples[index].arrays, samples[index].name),
        len(samples),
        replace(measuring.latency, threads=pair.threads),
    )
