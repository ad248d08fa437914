"""Float against quantized: SQNR, agreement, accuracy, size and latency on the same samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ...profiles.base.errors import ConfigError, DataError, ModelError, nearest
from ...profiles.base.presentation import Presentation, Presented, Table, decibels, percent, size_text
from ...profiles.base.tool import Progress
from ...profiles.readers.values import Sample
from ...profiles.samples.objects import DataLike
from ...profiles.samples.samples import input_specs, open_samples
from ..noise.estimate_check import EstimateCheck, check_estimates, expected_sqnr, too_good_texts
from ..plan.provenance import Provenance
from ..runtime.latency import Latency, measure
from .accuracy import Accuracy, Labels, RowCounts, accuracy_of, load_labels
from .gates import Gate, GateFailure, check_gate, failures_of
from .measuring import Measuring
from .model_pair import Pair, open_pair
from .order import ModelFile, check_not_instrumented, doubts, other_graph, speed_doubts
from .outputs import ClassAxis, OutputResult, OutputSums, class_axes, class_count, classes_of


@dataclass(frozen=True, repr=False)
class Evaluation(Presented):
    """A float and a quantized model, compared.

    Attributes:
        float_model, quantized_model: file names.
        samples: how many samples were run; one may hold several rows.
        outputs: in the order of the float model.
        accuracy: None without labels.
        float_bytes, quantized_bytes: size of the model files, external data included.
        latency: None when it was not measured.
        gate: the limits that were given.
        failures: the limits that were not met; empty is success.
        doubts: signs that the models are not a float one and its quantized form: nothing quantized, a larger
            file, arguments swapped, made from a float model of other weights (`doubts`), and, where a speedup
            is asked for, quantized for another runtime. Any of them fails a gate with a limit.
        remarks: what else to know of the figures, such as an estimate that was too good, or a quantized model
            that was made from another graph.
        provenance: where the quantized model says that it comes from; None for one of another tool.
        estimates: SQNR as it was estimated when the model was quantized, and as measured here, by output.
    """

    float_model: str
    quantized_model: str
    samples: int
    outputs: tuple[OutputResult, ...]
    accuracy: Accuracy | None
    float_bytes: int
    quantized_bytes: int
    latency: Latency | None
    gate: Gate
    failures: tuple[GateFailure, ...]
    doubts: tuple[str, ...]
    remarks: tuple[str, ...] = ()
    provenance: Provenance | None = None
    estimates: tuple[EstimateCheck, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether every limit of the gate was met, and where there is one, that nothing is doubtful."""
        return not self.failures and not (self.doubts and self.gate.has_limit)

    def headline(self) -> str:
        """Return both models, and the worst SQNR of an output."""
        known = [output.difference.sqnr for output in self.outputs if output.difference is not None]
        worst = f", {decibels(min(known))} dB" if known else ""
        return f"{self.quantized_model} against {self.float_model}{worst}"

    def presentation(self) -> Presentation:
        """Return samples, size, latency, accuracy and failures of the gate; and a table of the outputs."""
        facts = [
            ("samples", str(self.samples)),
            ("size", f"{size_text(self.float_bytes)} float, {size_text(self.quantized_bytes)} quantized"),
        ]
        if self.latency is not None:
            facts.append(("speedup", f"{self.latency.speedup:.2f}"))
        if self.accuracy is not None:
            a = self.accuracy
            facts.append(
                ("accuracy", f"{a.float_percent:.2f} % float, {a.quantized_percent:.2f} % quantized")
            )
        for failure in self.failures:
            words = (f"{failure.demand} {failure.limit:g}", failure.where, failure.reason)
            facts.append(("failed", " ".join(filter(None, words))))
        facts += [("failed" if self.gate.has_limit else "remark", doubt) for doubt in self.doubts]
        facts += [("remark", remark) for remark in self.remarks]
        rows = tuple(
            (
                output.name,
                "-" if output.difference is None else decibels(output.difference.sqnr),
                "-" if output.difference is None else f"{output.difference.cosine:.6f}",
                percent(None if output.agreement is None else output.agreement.ratio),
            )
            for output in self.outputs
        )
        return Presentation(tuple(facts), (Table(("output", "SQNR dB", "cosine", "agreement"), rows),))

    def to_dict(self) -> dict[str, Any]:
        """Return the fields, and `passed`."""
        return {**super().to_dict(), "passed": self.passed}


@dataclass(frozen=True, eq=False)
class _Labels:
    """The labels, the output that they are compared with, and where that has its classes."""

    output: str
    labels: Labels
    axis: ClassAxis


@dataclass(frozen=True, eq=False)
class _Sums:
    """What is kept while the samples stream by.

    Attributes:
        outputs: sums of each output.
        rows: counts of rows with the right class.
        samples: how many were run.
        first: the samples that latency is measured on.
    """

    outputs: tuple[OutputSums, ...]
    rows: RowCounts = field(default_factory=RowCounts)
    samples: int = 0
    first: tuple[Sample, ...] = ()


def evaluate(
    float_path: str | Path,
    quantized_path: str | Path,
    data: DataLike,
    *,
    labels: str | Path | None = None,
    gate: Gate | None = None,
    measuring: Measuring | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Run both models on the same samples and return how they compare.

    Args:
        float_path, quantized_path: the two ONNX files.
        data: folder of samples, "module:function", or an object of Python (`open_samples`).
        labels: file with the true class of every row (`load_labels`), in the order of the samples and, inside
            a sample, of its rows. Labels may go on beyond samples that `measuring.limit` cuts off.
        gate: limits that the quantized model must keep; None for none.
        measuring: samples, output of the labels, threads, latency; None for the defaults.
        progress: called after each sample with how many are done and, where known, how many there are.

    Raises:
        ConfigError: the gate has a limit on something that is not measured, or a number makes no sense.
        ModelError: a model cannot be loaded or run, or their inputs or outputs differ in name or type.
        DataError: a sample does not fit, there is none, or the labels do not match the rows.
    """
    gate, measuring = gate or Gate(), measuring or Measuring()
    check_gate(gate, labels=labels is not None, latency=measuring.latency is not None)
    floats, quantized = ModelFile(Path(float_path)), ModelFile(Path(quantized_path))
    check_not_instrumented(floats, quantized)
    original = floats.model
    pair = open_pair(float_path, quantized_path, measuring.threads)
    output = _checked_output(pair, gate, measuring)
    chosen = labels is not None or measuring.class_axis is not None
    axes = class_axes(original, output if chosen else None, measuring.class_axis)
    truth = None if labels is None else _Labels(output, load_labels(labels), axes[output])
    sums = _Sums(tuple(OutputSums(axes[name]) for name in pair.outputs))
    source = open_samples(data, input_specs(original), measuring.limit)
    for sample in source:
        sums = _added(sums, pair, sample, truth, measuring)
        if progress is not None:
            progress(sums.samples, source.total)
    if not sums.samples:
        raise DataError(f"{source.source}: no samples; there is nothing to evaluate on")
    if truth is not None:
        cut = sums.samples == measuring.limit
        truth.labels.check_rows(sums.rows.rows, cut=cut)
    outputs = tuple(s.result(name) for name, s in zip(pair.outputs, sums.outputs, strict=True))
    accuracy = None if truth is None else accuracy_of(truth.output, sums.rows)
    latency = _latency(pair, sums.first, measuring)
    estimates = _estimates(quantized.provenance, outputs)
    elsewhere = () if latency is None else speed_doubts(quantized)
    wanted = gate.min_speedup is not None
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
        failures=failures_of(gate, outputs, accuracy, latency, sums.samples),
        doubts=doubts(floats, quantized) + (elsewhere if wanted else ()),
        remarks=other_graph(floats, quantized) + (() if wanted else elsewhere) + too_good_texts(estimates),
        provenance=quantized.provenance,
        estimates=estimates,
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


def _added(sums: _Sums, pair: Pair, sample: Sample, truth: _Labels | None, measuring: Measuring) -> _Sums:
    """Return the sums with one sample more: run both models on it and compare."""
    floats = pair.run_float(sample.arrays, sample.name)
    quantized = pair.run_quantized(sample.arrays, sample.name)
    rows = sums.rows
    if truth is not None:
        where = f"{pair.float_name}, sample {sample.name}: output '{truth.output}'"
        classes = [classes_of(values[truth.output], truth.axis, where) for values in (floats, quantized)]
        truth.labels.check_classes(class_count(floats[truth.output], truth.axis))
        rows = rows.added(truth.labels.classes, *classes)
    timed = 0 if measuring.latency is None else measuring.latency.samples
    pairs = zip(pair.outputs, sums.outputs, strict=True)
    return replace(
        sums,
        outputs=tuple(s.added(floats[name], quantized[name]) for name, s in pairs),
        rows=rows,
        samples=sums.samples + 1,
        first=(*sums.first, sample) if len(sums.first) < timed else sums.first,
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
