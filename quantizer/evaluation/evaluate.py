"""Float against quantized: SQNR, agreement, accuracy, size and latency on the same samples."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import tee
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...profiles.base.errors import ConfigError, DataError, ModelError
from ...profiles.base.extras import OptionalModule
from ...profiles.base.findings import Code, Finding, Severity, gravest_first, of_severity
from ...profiles.base.json_values import NOT_IN_JSON
from ...profiles.base.presentation import Presentation, Presented, Table, counted, decibels
from ...profiles.base.progress import Shown, stages
from ...profiles.base.seconds import clocked
from ...profiles.runtime.providers import CPU
from ...profiles.runtime.states import model_samples, rows_stand_alone
from ...profiles.samples.objects import DataLike, source_name
from ...profiles.samples.picture_files import for_evaluation
from ...profiles.samples.random_samples import check_not_random
from ...profiles.samples.samples import check_same_again, digest_text, has_rows, input_specs, sample_digests
from ...profiles.samples.states import follows, runs_with_own_state
from ...profiles.samples.values import Sample, Samples
from ..model.identity import model_id
from ..noise.class_axes import class_axes
from ..noise.output_limits import NoiseLimits
from ..plan.provenance import Provenance, model_fingerprint, read_provenance
from ..prepare.prepare import file_of
from ..targets.machine import int8_kernels_saturate, runs_here
from .compare import OutputResult, OutputSums, SampleDifference
from .cost import Cost
from .doubts import check_not_instrumented, clip_doubts, doubts, other_graph, saturation_doubts
from .gates import (
    MIN_REFUSED_ROWS,
    GateFailure,
    check_gate,
    failures_of,
    gate_finding,
    timed_where_it_runs,
    truth_doubts,
)
from .grades import Decision, decision_of, output_grades
from .latency import Clock, Latency, Run, Seconds, measure, run_clock
from .metrics.metric import Metric
from .metrics.score import Score, ScoreRun, check_output, open_metric, reads_truth, score_text
from .metrics.truth import Labels, load_labels
from .options import Gate, Judge
from .output_shift import JudgedSamples, OutputShift
from .runtimes import ExecutionPlace, Inputs, Session, as_programs_run, open_session, place_of, run

WORST_SAMPLES = OptionalModule("the samples that differ most", "quantizer.plugins.report.worst_samples")
"""Ranks samples and keeps excerpts of them."""

NAMED_SAMPLES = 3
"""Samples that are named of those that differ most; JSON and reports have a few more."""

ACCURACY = "accuracy"
"""What the metric of labels is called if none is named."""

MIN_RIGHT_PERCENT = 50.0
"""Percent from which on a score at chance is no sign of a wrong truth."""

VOID = (Code.EQUAL_SAMPLES, Code.CONSTANT_INPUT, Code.SWAPPED_MODELS)
"""Findings on data and models that leave nothing to judge."""


@dataclass(frozen=True, repr=False)
class Evaluation(Presented, document="evaluation"):
    """A float and a quantized model, compared.

    Attributes:
        float_model, quantized_model: file names.
        samples: number of samples; one may have several rows.
        rows: number of rows; a sample that is not a batch counts as one.
        outputs: results of the outputs, in the order of the float model.
        float_bytes, quantized_bytes: size of the model files, external data included.
        latency: latency of both models; None if it was not measured.
        gate: the limits.
        failures: the limits that were not met; empty is success.
        findings: notes and warnings, the gravest first: an alarm for each failure; doubts whether the models
            are a float model and its quantized form (`doubts`), which fail a gate with a limit; labels that
            do not seem to fit, an estimate that was too good.
        provenance: origin stored in the quantized model; None for a model of another tool.
        metric: name of the metric, such as "map50"; "accuracy" with labels and no metric; else "".
        metric_title: the metric for people.
        score: score of both models by that metric; None without one.
        scored: the output that labels or metric are about; "" for any. Not in JSON.
        worst_samples: samples with the largest differences, the worst first; empty for a single sample.
        excerpts: parts of these samples for a report; not in JSON.
        runtime: runtime of both models, such as "onnxruntime".
        provider: its execution provider, or device.
        subject: digests of "float_model" (graph and weights), "data" (samples in any order) and "metric"
            (with its options and truth; "" without one).
        input_ranges: least and greatest finite value of each float input; not in JSON.
        states: outputs that the next step reads, if samples are steps; not in JSON.
        grades: grades of the outputs on the first samples, by their noise limits, the worst first; () without
            limits. Not in JSON.
        judged: these samples, with the outputs of both models; not in JSON.
        digests: digests of the rows of each sample (`sample_digests`); not in JSON.
        sequences: number of the sequence of each sample, if samples are steps of sequences; not in JSON.
    """

    float_model: str
    quantized_model: str
    samples: int
    outputs: tuple[OutputResult, ...]
    float_bytes: int
    quantized_bytes: int
    latency: Latency | None
    gate: Gate
    failures: tuple[GateFailure, ...]
    findings: tuple[Finding, ...] = ()
    provenance: Provenance | None = None
    metric: str = ""
    metric_title: str = ""
    score: Score | None = None
    worst_samples: tuple[SampleDifference, ...] = ()
    excerpts: tuple[Any, ...] = field(default=(), metadata=NOT_IN_JSON)
    runtime: str = "onnxruntime"
    provider: str = "CPUExecutionProvider"
    subject: Mapping[str, str] = field(default_factory=dict)
    input_ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict, metadata=NOT_IN_JSON)
    states: frozenset[str] = field(default=frozenset(), metadata=NOT_IN_JSON)
    grades: tuple[OutputShift, ...] = field(default=(), metadata=NOT_IN_JSON)
    judged: JudgedSamples = field(default_factory=JudgedSamples, metadata=NOT_IN_JSON)
    digests: tuple[tuple[int, ...], ...] = field(default=(), metadata=NOT_IN_JSON)
    sequences: tuple[int, ...] = field(default=(), metadata=NOT_IN_JSON)
    rows: int = 0
    scored: str = field(default="", metadata=NOT_IN_JSON)

    @property
    def doubts(self) -> tuple[Finding, ...]:
        """The findings that speak against all figures."""
        return of_severity(self.findings, Severity.DOUBT)

    @property
    def decision(self) -> Decision:
        """The grade of the quantized model, by its score and its outputs."""
        return decision_of(self.grades, self.score, self.scored)

    @property
    def simulated(self) -> str:
        """The target, in words, if float arithmetic stood in for its kernels; "" if not."""
        place, made_for = ExecutionPlace(self.runtime, self.provider), self.provenance
        if made_for is None or not is_as_written(made_for, place):
            return ""
        return "your runtime" if made_for.target == "onnx" else made_for.target

    @property
    def void(self) -> tuple[Finding, ...]:
        """The findings that prevent a verdict: constant data, swapped models, labels right by chance."""
        score = self.score
        unfit = score is not None and score.is_at_chance and score.rows >= MIN_REFUSED_ROWS
        if score is not None and score.unit == "%":  # rows of one class fit the truth of each other
            unfit = (unfit and score.float_score < MIN_RIGHT_PERCENT) or not score.has_something_right
        codes = (*VOID, *((Code.DOUBTFUL_TRUTH,) if unfit else ()))
        return tuple(finding for finding in self.findings if finding.code in codes)

    @property
    def passed(self) -> bool:
        """Whether every limit of the gate was met, nothing doubts one, and there was something to judge."""
        return not self.failures and not self.void and not (self.doubts and self.gate.has_limit)

    @property
    def worst_sqnr(self) -> float | None:
        """The lowest SQNR of an output in dB, or None if none is float."""
        known = (output.difference.sqnr for output in self.outputs if output.difference is not None)
        return min(known, default=None)

    def headline(self) -> str:
        """Return the scores of both models, and the worst SQNR of an output."""
        figures = [] if self.score is None else [f"{self.metric} {score_text(self.score)}"]
        if self.worst_sqnr is not None:
            figures.append(f"{decibels(self.worst_sqnr)} dB")
        pair = f"{self.quantized_model} against {self.float_model}"
        return f"{pair}: {', '.join(figures)}" if figures else pair

    @property
    def has_floats_speed(self) -> bool:
        """Whether the quantized model is known to compute in float."""
        return False

    def presentation(self) -> Presentation:
        """Return score, size, latency, samples and findings; and a table of the outputs, the worst first."""
        cost = Cost(self.float_bytes, self.quantized_bytes, self.latency)
        facts = [*([] if self.score is None else [self._score_fact(self.score)]), ("size", cost.size)]
        if self.latency is not None:
            speed = cost.speed_line(floats_speed=self.has_floats_speed)
            facts.append(("latency", f"{self.latency.milliseconds}: {speed}"))
        for output in self.outputs:
            if count := output.shape_mismatches:
                facts.append(("shape", f"output '{output.name}': another than float's in {count} samples"))
        if worst := [f"{one.sample} {decibels(one.sqnr)} dB" for one in self.worst_samples[:NAMED_SAMPLES]]:
            facts.append(("worst", ", ".join(worst)))
        place = ExecutionPlace(self.runtime, self.provider)
        elsewhere = "" if place == HERE else f", {self.runtime} with {self.provider}"
        pair = f"{self.quantized_model} against {self.float_model}"
        facts.append(("compared", f"{pair} on {counted(self.samples, self.rows)}{elsewhere}"))
        if self.gate.has_limit and (self.passed or not self.failures):
            facts.append(("gate", "passed" if self.passed else "not proven: doubts speak against it"))
        rows = []
        for output in self.outputs:
            known, same = output.difference, output.agreement
            sqnr = math.inf if known is None else known.sqnr
            agreement = "-" if same is None else f"{same.kind} {100 * same.ratio:.2f} % of {same.total}"
            row = (output.name, "-" if known is None else decibels(sqnr), agreement)
            rows.append((output.name in self.states, sqnr, row))
        ordered = tuple(row for _, _, row in sorted(rows, key=lambda one: one[:2]))
        tables = (Table(("output", "SQNR dB", "agreement"), ordered),)
        return Presentation(tuple(facts), tables, self.findings)

    def _score_fact(self, score: Score) -> tuple[str, str]:
        """Return the metric, and the scores of both models with the drop."""
        is_titled = self.metric_title not in (self.metric, f"metric {self.metric}")
        name = "metric" if self.metric_title == f"metric {self.metric}" else self.metric.partition(":")[0]
        rows = "texts" if self.metric.startswith("perplexity") else "rows"
        parts = [f"{score_text(score)} of {score.rows} {rows}", self.metric_title if is_titled else ""]
        better = "" if score.higher_is_better else ", lower is better"
        if score.drop_unit == "points":
            better = ", in the unit of the function"
        text = ": ".join(filter(None, parts))
        return name, f"{text}{better}; drop {score.drop:.2f} {score.drop_unit}, {score.interval}"

    def to_dict(self) -> dict[str, Any]:
        """Return the fields, and `passed`."""
        return {**super().to_dict(), "passed": self.passed}


# Two models that run on the same samples -----------------------------------------------------------------


@dataclass(frozen=True)
class Pair:
    """A float and a quantized model, ready to run on the same samples."""

    float_name: str  # what errors call it
    quantized_name: str
    float_session: Session
    quantized_session: Session
    outputs: tuple[str, ...]  # tensors, in the order of the float model
    float_outputs: tuple[str, ...]  # those that are floating-point
    uncompared: Mapping[str, str] = field(default_factory=dict)  # types of the others, by name

    def run_float(self, inputs: Inputs, sample: str) -> dict[str, Any]:
        """Return the float model's outputs by name."""
        values = run(self.float_session, self.outputs, inputs, f"{self.float_name}, sample {sample}")
        return dict(zip(self.outputs, values, strict=True))

    def run_quantized(self, inputs: Inputs, sample: str) -> dict[str, Any]:
        """Return the quantized model's outputs by name."""
        values = run(self.quantized_session, self.outputs, inputs, f"{self.quantized_name}, sample {sample}")
        return dict(zip(self.outputs, values, strict=True))

    def runs(self, source: Samples, clock: Clock) -> Iterator[tuple[Sample, Inputs, Inputs, Seconds]]:
        """Yield samples, the outputs of both models, and the seconds that these take.

        If a model has a state, the quantized model uses its own, so errors accumulate as in production.
        """

        def run_quantized(sample: Sample) -> Inputs:
            return self.run_quantized(sample.arrays, sample.name)

        samples, again = tee(source)
        quantized = runs_with_own_state(again, source.state, run_quantized)
        for sample in samples:
            start = clock()
            floats = self.run_float(sample.arrays, sample.name)
            middle = clock()
            yield sample, floats, next(quantized), (middle - start, clock() - middle)

    def programs(self, samples: Sequence[Sample]) -> tuple[Run, Run]:
        """Return functions that time each model on a sample by number, with integers as a program has."""
        arrays = [sample.arrays for sample in samples]
        session, quantized_inputs = as_programs_run(self.quantized_session, arrays)

        def run_float(number: int) -> object:
            return self.run_float(samples[number].arrays, samples[number].name)

        def run_quantized(number: int) -> object:
            where = f"{self.quantized_name}, sample {samples[number].name}"
            return run(session, self.outputs, quantized_inputs[number], where)

        return run_float, run_quantized


LimitsOnSamples = Callable[[Samples], NoiseLimits]
"""All samples -> noise limits."""

HERE = ExecutionPlace("onnxruntime", CPU)
"""Where models are compared if nobody says otherwise."""


def is_as_written(made_for: Provenance | None, place: ExecutionPlace) -> bool:
    """Whether a model is for another runtime, and so run in float arithmetic on its rounded values."""
    if made_for is None or place.runtime != HERE.runtime:
        return False
    return not runs_here(made_for.target, provider=place.provider)


def open_pair(
    float_path: str | os.PathLike[str],
    quantized_path: str | os.PathLike[str],
    made_for: Provenance | None,
    threads: int = 1,
    place: ExecutionPlace = HERE,
    *,
    timed: bool = False,
) -> Pair:
    """Return both models; one `made_for` another runtime computes in float arithmetic on rounded values."""
    a, b = str(float_path), str(quantized_path)
    floats = place.open(os.fspath(float_path), a, threads, timed=timed)
    quantized: Session
    if is_as_written(made_for, place):
        quantized = open_session(
            os.fspath(quantized_path), b, threads, provider=place.provider, dequantized=True
        )
    else:
        quantized = place.open(os.fspath(quantized_path), b, threads, timed=timed)
    advice = "compare a model with its own quantized form"
    for what, float_values, quantized_values in (
        ("input", floats.get_inputs(), quantized.get_inputs()),
        ("output", floats.get_outputs(), quantized.get_outputs()),
    ):
        float_types = {value.name: value.type for value in float_values}
        quantized_types = {value.name: value.type for value in quantized_values}
        for name in float_types:
            if name not in quantized_types:
                raise ModelError(f"{b}: has no {what} '{name}', which {a} has; {advice}")
        for name in quantized_types:
            if name not in float_types:
                raise ModelError(f"{b}: has {what} '{name}', which {a} has not; {advice}")
        has_tensor = any(kind.startswith("tensor(") for kind in float_types.values())
        for name, kind in float_types.items():
            other = quantized_types[name]
            if not kind.startswith("tensor(") and (what == "input" or not has_tensor):
                raise ModelError(f"{a}: {what} '{name}' is a {kind}; only tensors can be compared")
            both_float = what == "output" and _element_kind(kind) == _element_kind(other)
            if kind != other and not both_float:
                raise ModelError(f"{b}: {what} '{name}' is a {other}, in {a} it is a {kind}; {advice}")
    outputs = [output for output in floats.get_outputs() if output.type.startswith("tensor(")]
    names = {output.name for output in outputs}
    return Pair(
        float_name=a,
        quantized_name=b,
        float_session=floats,
        quantized_session=quantized,
        outputs=tuple(output.name for output in outputs),
        float_outputs=tuple(output.name for output in outputs if _element_kind(output.type) == "float"),
        uncompared={o.name: o.type for o in floats.get_outputs() if o.name not in names},
    )


def _element_kind(type_text: str) -> str:
    """Return "float" for every floating-point tensor, and the type itself for others."""
    floats = ("tensor(float)", "tensor(float16)", "tensor(double)", "tensor(bfloat16)")
    return "float" if type_text in floats else type_text


def _non_finite_finding(output: OutputResult) -> Finding:
    """Return the finding on an output with NaN or Inf in one of the models."""
    count = 0 if output.difference is None else output.difference.non_finite
    sentence = (
        f"output '{output.name}': {count} elements are NaN or Inf in one model only: they are excluded "
        "from all figures except its SQNR"
    )
    remedy = "look for samples with NaN, or for a division or a logarithm of 0"
    return Finding(Code.NON_FINITE, sentence, output.name, {"elements": count}, remedy)


@clocked("judge")
def evaluate(
    float_path: str | os.PathLike[str],
    quantized_path: str | os.PathLike[str],
    data: DataLike,
    *,
    labels: str | Path | Labels | None = None,
    gate: Gate | None = None,
    measuring: Judge | None = None,
    limits: NoiseLimits | LimitsOnSamples | None = None,
    progress: Shown = None,
) -> Evaluation:
    """Run both models on the same samples and compare them; arguments as in `api.evaluate.evaluate`."""
    gate, measuring, data = gate or Gate(), measuring or Judge(), for_evaluation(data)
    metric_name = measuring.metric
    check_gate(gate, labels=labels is not None, latency=measuring.latency is not None, metric=metric_name)
    if labels is not None and metric_name is not None and not reads_truth(metric_name):
        raise ConfigError("--labels and --metric: they exclude each other; a metric of yours reads its own")
    of_classes = labels is not None and metric_name in (None, ACCURACY)
    if gate != Gate():
        check_not_random(source_name(data), "a gate")
    place = place_of(measuring.runtime, measuring.provider)
    floats, quantized = file_of(float_path), file_of(quantized_path)
    check_not_instrumented(floats, quantized)
    made_for = read_provenance(quantized.model)
    if made_for is not None:
        measuring = timed_where_it_runs(measuring, gate, made_for.target)
    original = floats.model
    pair = open_pair(floats, quantized, made_for, measuring.threads, place, timed=bool(measuring.latency))
    uncompared = [
        Finding(Code.UNCOMPARED_OUTPUT, f"output '{name}' is a {kind}: it is not compared{way}", name)
        for name, kind in pair.uncompared.items()
        for way in ["; zipmap=False of skl2onnx exports an array" * ("map(" in kind)]
    ]
    check_output(measuring.scored_output, pair.outputs)
    output = measuring.scored_output or pair.outputs[0]
    if gate.min_sqnr is not None and not pair.float_outputs:
        raise ConfigError(f"{pair.float_name}: has no float output and so no SQNR; ask for max_drop instead")
    names_output = of_classes or measuring.class_axis is not None
    if callable(limits):
        limits = limits(model_samples(data, original, measuring.limit))
    named = output if names_output else None
    axes = class_axes(original, named, measuring.class_axis)
    if limits is not None:
        axes |= {name: one for name, one in limits.classes.items() if name in axes and name != named}
    specs = input_specs(original)
    truth, names = labels, tuple[str, ...]()
    if labels is not None and of_classes:
        truth = load_labels(labels)
        names = truth.names
    scoring = None
    if labels is not None or metric_name is not None:

        def opened(sample: Sample, values: Mapping[str, Any]) -> Metric:
            return open_metric(
                original,
                sample.arrays,
                values,
                metric_name,
                truth,
                output=measuring.scored_output,
                class_axis=measuring.class_axis,
                data=data,
            )

        scoring = ScoreRun(opened)

    # Both models run on every sample. Of the outputs only sums are kept: any amount of data can be compared.
    sums = {name: OutputSums(axes[name]) for name in pair.outputs}
    digests, sequence_of = list[tuple[int, ...]](), list[int]()
    judged = JudgedSamples()
    counts_rows, judged_rows = has_rows(original), 0
    worst = None
    if WORST_SAMPLES.is_installed:
        worst = WORST_SAMPLES.load().WorstSamples(original, data, axes, names)
    input_ranges: dict[str, tuple[float, float]] = {}
    has_other_inputs = False  # besides those of floats
    timed, max_timed = list[Sample](), 0 if measuring.latency is None else measuring.latency.samples
    show_progress = stages(progress)("evaluating")
    samples, per_round = 0, list[Seconds]()
    source = model_samples(data, original, measuring.limit)
    if labels is not None:
        check_same_again(data, source)

    before: Sample | None = None
    clock = run_clock(measuring.threads if place == HERE else 0)
    for samples, (sample, float_values, quantized_values, took) in enumerate(pair.runs(source, clock), 1):
        per_round.append(took)
        sequence_of.append((sequence_of[-1] if sequence_of else -1) + (not follows(sample, before)))
        before = sample
        true_classes: dict[str, npt.NDArray[np.int64]] = {}
        if scoring is not None:
            true = scoring.add(sample, float_values, quantized_values)
            true_classes = {output: true} if of_classes else {}
        changed = {name: one.add(float_values[name], quantized_values[name]) for name, one in sums.items()}
        digests.append(tuple(sample_digests(sample.arrays, specs)))
        if counts_rows and judged_rows == samples - 1 and len(digests[-1]) > 1:
            counts_rows = rows_stand_alone(original, sample)
        if limits is not None:
            judged.add(sample.arrays, float_values, quantized_values)
        judged_rows += len(digests[-1]) if counts_rows else 1
        for name, array in sample.arrays.items():
            has_other_inputs |= array.dtype.kind != "f"
            if array.dtype.kind == "f" and (finite := array[np.isfinite(array)]).size:
                low, high = input_ranges.get(name, (math.inf, -math.inf))
                input_ranges[name] = min(low, float(finite.min())), max(high, float(finite.max()))
        if worst is not None:
            metric = None if scoring is None else scoring.metric
            both = float_values, quantized_values
            worst.add(sample, both, changed, metric=metric, true_classes=true_classes)
        if len(timed) < max_timed:
            timed.append(sample)
        show_progress(samples, source.total)
    if not samples:
        raise DataError(f"{source.source}: no samples; there is nothing to evaluate on")

    # What the outputs amount to.
    outputs = tuple(one.result(name) for name, one in sums.items())
    grades = tuple[OutputShift, ...]()
    if limits is not None:
        grades = output_grades(outputs, limits, judged.shifts(limits))
    cut = samples == measuring.limit or (before is not None and before.position is not None)
    metric, score = (None, None) if scoring is None else scoring.result(cut)
    latency = None
    if measuring.latency is not None:
        precision = measuring.latency.precision if gate.min_speedup is None else 0.0
        settings = replace(measuring.latency, threads=measuring.threads, precision=precision)
        # The runs that judge convert what a program hands over as integers: then they are no rounds.
        is_program = as_programs_run(pair.quantized_session, ())[0] is pair.quantized_session
        rounds = per_round[1:] if precision and is_program else ()
        latency = measure(*pair.programs(timed), len(timed), settings, rounds, clock=clock)
    del pair  # what follows reads the files of both models, which takes memory too

    # What else there is to know of the figures.
    size = quantized.bytes
    scored = "" if metric is None else metric.reads
    decision = decision_of(grades, score, scored)
    failures = failures_of(gate, outputs, score, latency, samples, size=size, decision=decision)
    saturates = place == HERE and not is_as_written(made_for, place) and int8_kernels_saturate()
    saturated = saturation_doubts(quantized.model) if saturates else ()
    ranges = {} if has_other_inputs else input_ranges
    two_values = all(spec.dtype == np.bool_ for spec in specs)  # a few samples may be equal by chance
    findings = [
        *saturated,
        *map(gate_finding, failures),
        *([] if two_values else _that_do_not_vary(digests, ranges, outputs)),
        *doubts(floats, quantized),
        *truth_doubts(score),
        *other_graph(floats, quantized),
        *clip_doubts(quantized.model),
        *map(_non_finite_finding, (o for o in outputs if o.difference and o.difference.non_finite)),
        *(() if scoring is None else scoring.findings),
        *uncompared,
    ]
    return Evaluation(
        float_model=floats.name,
        quantized_model=quantized.name,
        samples=samples,
        rows=judged_rows,
        outputs=outputs,
        float_bytes=floats.bytes,
        quantized_bytes=quantized.bytes,
        latency=latency,
        gate=gate,
        failures=failures,
        findings=gravest_first(findings),
        provenance=made_for,
        metric=ACCURACY if of_classes else "" if metric is None else metric.name,
        metric_title=ACCURACY if of_classes else "" if metric is None else metric.title,
        score=score,
        worst_samples=worst.differences if worst is not None and samples > 1 else (),
        excerpts=() if worst is None else worst.excerpts,
        runtime=place.runtime,
        provider=place.provider,
        subject={
            "float_model": model_fingerprint(model_id(original, "")),
            "data": digest_text(sum(map(sum, digests))),
            "metric": metric.digest if metric else "",
        },
        input_ranges=input_ranges,
        states=frozenset(source.state.values()),
        grades=grades,
        judged=judged,
        digests=tuple(digests),
        sequences=tuple(sequence_of) if source.state else (),
        scored=scored,
    )


def _that_do_not_vary(
    digests: Sequence[tuple[int, ...]],
    ranges: Mapping[str, tuple[float, float]],
    outputs: Sequence[OutputResult],
) -> tuple[Finding, ...]:
    """Return a finding if rows are equal, inputs (name -> least, greatest value) constant, or outputs 0."""
    if ranges and all(low == high for low, high in ranges.values()):
        name, (value, _) = next(iter(ranges.items()))
        sentence, remedy = f"input '{name}' is {value:.6g} everywhere, in every sample", "give real samples"
        return (Finding(Code.CONSTANT_INPUT, sentence, name, {"value": value}, remedy),)
    known = [one.difference for one in outputs]
    if all(one is not None and not (one.max_abs_value or one.non_finite) for one in known):
        sentence = f"output '{outputs[0].name}' is 0 everywhere, in every sample"
        return (Finding(Code.CONSTANT_INPUT, sentence, outputs[0].name, {"value": 0.0}, "give real samples"),)
    rows = [row for of_sample in digests for row in of_sample]
    if len(rows) < 2 or len(set(rows)) > 1:
        return ()
    sentence, remedy = f"all {len(rows)} samples are equal", "give samples that differ, as real data do"
    return (Finding(Code.EQUAL_SAMPLES, sentence, "", {"samples": len(rows)}, remedy),)
