"""Float against quantized: SQNR, agreement, accuracy, size and latency on the same samples."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...profiles.base.errors import ConfigError, DataError, ModelError, nearest
from ...profiles.base.presentation import Presentation, Presented, Table, decibels, kilobytes, percent
from ...profiles.base.tool import Progress
from ...profiles.samples.objects import DataLike
from ...profiles.samples.samples import Sample, input_specs, open_samples
from ..model.files import load_model, model_bytes
from ..runtime.latency import Latency, measure
from .accuracy import Accuracy, RowCounts, accuracy_of, load_labels
from .gates import Gate, GateFailure, check_gate, failures_of
from .measuring import Measuring
from .model_pair import Pair, open_pair
from .order import doubts, has_quantized_nodes
from .outputs import OutputResult, OutputSums, answers, class_outputs


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
            file, arguments swapped (`doubts`). Any of them fails a gate with a limit.
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
            ("size", f"{kilobytes(self.float_bytes)} float, {kilobytes(self.quantized_bytes)} quantized"),
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
    """The true class of every row, and the output that it is compared with."""

    output: str
    classes: npt.NDArray[np.int64]


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
    original = load_model(float_path)
    pair = open_pair(float_path, quantized_path, measuring.threads)
    truth = _labels(pair, gate, labels, measuring.output)
    sums = _Sums(tuple(OutputSums() for _ in pair.outputs))
    source = open_samples(data, input_specs(original), measuring.limit)
    for sample in source:
        sums = _added(sums, pair, sample, truth, measuring)
        if progress is not None:
            progress(sums.samples, source.total)
    if not sums.samples:
        raise DataError(f"{source.source}: no samples; there is nothing to evaluate on")
    if truth is not None:
        cut = sums.samples == measuring.limit
        _check_rows(str(labels), truth.classes.size, sums.rows.rows, cut=cut)
    meaningful = class_outputs(original) | (set() if truth is None else {truth.output})
    results = (s.result(name) for name, s in zip(pair.outputs, sums.outputs, strict=True))
    outputs = tuple(
        r if r.name in meaningful or not r.is_float else replace(r, agreement=None) for r in results
    )
    accuracy = None if truth is None else accuracy_of(truth.output, sums.rows)
    latency = _latency(pair, sums.first, measuring)
    names = (Path(float_path).name, Path(quantized_path).name)
    size = (model_bytes(float_path), model_bytes(quantized_path))
    quantized = (has_quantized_nodes(original), has_quantized_nodes(load_model(quantized_path)))
    return Evaluation(
        float_model=names[0],
        quantized_model=names[1],
        samples=sums.samples,
        outputs=outputs,
        accuracy=accuracy,
        float_bytes=size[0],
        quantized_bytes=size[1],
        latency=latency,
        gate=gate,
        failures=failures_of(gate, outputs, accuracy, latency, sums.samples),
        doubts=doubts(names, quantized, size),
    )


def _labels(pair: Pair, gate: Gate, labels: str | Path | None, output: str | None) -> _Labels | None:
    """Return the labels and their output; refuse a gate on SQNR for a model without float outputs."""
    if output is not None and output not in pair.outputs:
        raise ModelError(
            f"{pair.float_name}: has no output '{output}'; name another.{nearest(output, pair.outputs)}"
        )
    needs_sqnr = gate.min_sqnr is not None or gate.min_group_sqnr is not None
    if needs_sqnr and not pair.float_outputs:
        raise ConfigError(
            f"{pair.float_name}: has no float output and so no SQNR; ask for max_accuracy_drop instead"
        )
    if labels is None:
        return None
    return _Labels(pair.outputs[0] if output is None else output, load_labels(labels))


def _added(sums: _Sums, pair: Pair, sample: Sample, truth: _Labels | None, measuring: Measuring) -> _Sums:
    """Return the sums with one sample more: run both models on it and compare."""
    floats = pair.run_float(sample.arrays, sample.name)
    quantized = pair.run_quantized(sample.arrays, sample.name)
    rows = sums.rows
    if truth is not None:
        where = f"{pair.float_name}, sample {sample.name}: output '{truth.output}'"
        classes = [_classes(values[truth.output], where) for values in (floats, quantized)]
        rows = rows.added(truth.classes, *classes)
    timed = 0 if measuring.latency is None else measuring.latency.samples
    pairs = zip(pair.outputs, sums.outputs, strict=True)
    return replace(
        sums,
        outputs=tuple(s.added(floats[name], quantized[name]) for name, s in pairs),
        rows=rows,
        samples=sums.samples + 1,
        first=(*sums.first, sample) if len(sums.first) < timed else sums.first,
    )


def _classes(values: npt.NDArray[Any], where: str) -> npt.NDArray[np.int64]:
    """Return the class of every row."""
    classes = answers(values)[1]
    if classes is None or classes.dtype.kind not in "iub":
        raise ModelError(
            f"{where}: {values.dtype} of shape {list(values.shape)} has no class axis to compare with "
            "labels; choose another output"
        )
    return classes.astype(np.int64)


def _check_rows(file: str, labels: int, rows: int, *, cut: bool) -> None:
    if not rows:
        raise DataError(f"{file}: the samples have 0 rows to compare with labels; check the data")
    if rows > labels or (rows < labels and not cut):
        raise DataError(
            f"{file}: {labels} labels, but the samples have {rows} rows; give one label for each row"
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
