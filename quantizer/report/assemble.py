"""Puts a report together: of estimates, of results, or of both. Pure but for the sizes of files."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Literal, TypeVar

from ...profiles.base.improvement import improvement, left_out_steps
from ...profiles.base.options import options_of
from ...profiles.base.tool import tool_name
from ..api.drift import DriftReport
from ..api.options import DriftLimits
from ..api.results import QuantizeResult
from ..costs.predicted import total_microseconds
from ..evaluation.evaluate import Evaluation
from ..evaluation.gates import GATES, GateFailure
from ..evaluation.layers import LayerReport
from ..evaluation.metrics.score import score_text
from ..evaluation.options import Gate
from ..model.files import model_bytes
from ..noise.estimate_check import expected_sqnr
from ..noise.output_limits import WORDS, NoiseLimits
from ..plan.plan import Kind, QuantPlan
from ..plan.provenance import model_fingerprint, plan_digest, profile_digest
from ..search.grades import FAIR_DB, ORDER, Grade, grade_of, needed_sqnr, output_grades
from ..search.node_costs import TimedNodes
from ..search.quality import saved_bytes
from ..search.speed_check import SpeedCheck
from ..search.tune import TuneResult
from ..search.verdict import Verdict as Judgement
from .content import (
    DriftRecord,
    Fact,
    GateResult,
    NoiseBudget,
    OutputQuality,
    Report,
    SampleRecord,
    Size,
    Speed,
    TaskScore,
    TensorDriftRecord,
    TrialRecord,
    Verdict,
    WhatIf,
)
from .estimates import (
    Analysis,
    float_groups,
    int8_share,
    node_records,
    noise_budgets,
    run_times,
    sample_records,
    shared_groups,
    tensor_noise,
    tensor_records,
)
from .figures import decibel_text
from .suggestions import Files, suggestions, tried_changes, with_commands

T = TypeVar("T")


@dataclass(frozen=True)
class Results:
    """Results of commands that a report is made of; None, or empty, for what was not run.

    Attributes:
        evaluation: of the quantized model on samples.
        layers: tensor by tensor, on samples.
        quantization: the files that were written.
        tuning: the trials.
        drift: newer profiles, in the order of time.
        timed: measured times of the nodes of both models.
    """

    evaluation: Evaluation | None = None
    layers: LayerReport | None = None
    quantization: QuantizeResult | None = None
    tuning: TuneResult | None = None
    drift: tuple[DriftReport, ...] = ()
    timed: TimedNodes | None = None


@dataclass(frozen=True)
class Names:
    """How files are named in titles and commands.

    Attributes:
        model, profile, output: of the files of `qprof quantize`; "" for one that there is not.
        given: words of the command line that quantized and judged a model; () for another report.
    """

    model: str = ""
    profile: str = ""
    output: str = ""
    given: tuple[str, ...] = ()


def make_report(analysis: Analysis | None, results: Results, names: Names) -> Report:
    """Return what a report says.

    Args:
        analysis: of a plan; None for a report of results alone.
        results: of commands.
        names: of the files.
    """
    plan, timed = _plan(analysis, results), results.timed
    check = None if results.quantization is None else results.quantization.speed
    if timed is None and check is not None:
        timed = check.timed
    noise, speed = None, measured_speed(results)
    files = Files(names.model, names.profile, names.output or _named_output(names.model), names.given)
    with left_out_steps() as left_out:
        with improvement("report: noise"):
            noise = None if analysis is None else analysis.noise
        budgets = section("noise of the outputs", lambda: () if noise is None else noise_budgets(noise))
        worst = budgets[0] if budgets else None
        nodes = section("nodes", lambda: () if analysis is None else node_records(analysis, worst, timed))
        times = section("times", lambda: () if analysis is None else tuple(run_times(analysis, timed)))
        with improvement("report: predicted speed"):
            speed = speed or _predicted_speed(analysis)
        changes = section(
            "what to try", lambda: () if analysis is None else _changes(analysis, worst, results, files)
        )
        at_tensors = section("noise of tensors", lambda: tensor_noise(analysis, results.layers))
        tensors = section("tensors", lambda: () if analysis is None else tensor_records(analysis))
        groups = section("float nodes", lambda: () if plan is None else float_groups(plan, nodes))
        samples = section("samples", lambda: _samples(analysis, results))
        shared = section("shared scales", lambda: () if plan is None else shared_groups(plan))
    limits = None if noise is None else noise.limits
    outputs, gates = outputs_of(plan, results.evaluation, limits), tuple(_gates(results))
    notes = [*(() if plan is None else plan.notes), *notes_of(results), *left_out]
    return Report(
        title=_title(names, results),
        tool=tool_name(),
        verdict=_verdict(results, limits, (outputs, gates, speed, budgets)),
        task=None if results.evaluation is None else task_of(results.evaluation),
        size=_size(analysis, results),
        speed=speed,
        int8_share=int8_share(nodes),
        kinds={} if plan is None else _kinds(plan),
        outputs=outputs,
        facts=() if results.evaluation is None else tuple(facts_of(results.evaluation)),
        gates=gates,
        what_ifs=changes,
        noise=budgets,
        tensor_noise=at_tensors,
        tensors=tensors,
        nodes=nodes,
        run_times=times,
        float_groups=groups,
        samples=samples,
        shared=shared,
        drift=tuple(map(drift_record, results.drift)),
        trials=() if results.tuning is None else tuple(trials_of(results.tuning)),
        notes=tuple(dict.fromkeys(notes)),
        provenance=tuple(_provenance(plan, analysis, results)),
    )


def section(name: str, make: Callable[[], tuple[T, ...]]) -> tuple[T, ...]:
    """Return a section of a report; an empty one, and a note, where it fails by a fault of qprof."""
    with improvement(f"report: {name}"):
        return make()
    return ()


def _verdict(
    results: Results,
    limits: NoiseLimits | None,
    known: tuple[tuple[OutputQuality, ...], tuple[GateResult, ...], Speed | None, tuple[NoiseBudget, ...]],
) -> Verdict:
    if results.quantization is not None and results.quantization.verdict is not None:
        return judged_verdict(results.quantization.verdict, known[1])
    grade = None
    if results.evaluation is not None and limits is not None:
        grade = measured_grade(results.evaluation, limits)
    if results.evaluation is None:
        return verdict_of(*known, grade)
    return verdict_of(*known, grade, task=task_of(results.evaluation), doubts=results.evaluation.doubts)


def _samples(analysis: Analysis | None, results: Results) -> tuple[SampleRecord, ...]:
    """Return the samples on which the models differ most, then those that make the extremes."""
    measured = () if results.evaluation is None else results.evaluation.worst_samples
    shown = {} if results.evaluation is None else {one.sample: one for one in results.evaluation.excerpts}
    lowest = {one.sample: one.sqnr for one in measured}
    extreme = () if analysis is None else sample_records(analysis)
    ends = {record.sample: record for record in extreme}
    first = (
        replace(ends.get(name, SampleRecord(name, 0, 0)), sqnr=sqnr, excerpt=shown.get(name))
        for name, sqnr in lowest.items()
    )
    return (*first, *(record for record in extreme if record.sample not in lowest))


def _changes(
    analysis: Analysis, worst: NoiseBudget | None, results: Results, files: Files
) -> tuple[WhatIf, ...]:
    """Return what to try: what was tried on samples first, then what is estimated."""
    found = suggestions(analysis, worst)
    verdict = None if results.quantization is None else results.quantization.verdict
    tried = () if verdict is None else tuple(tried_changes(verdict))
    known = {frozenset(change.options) for change in tried}
    if verdict is not None and verdict.applied is not None and files.given:
        files = replace(files, given=(*files.given, *verdict.applied.options))
    changes = (*tried, *(change for change in found if frozenset(change.options) not in known))
    return with_commands(analysis.plan, files, changes)


def _plan(analysis: Analysis | None, results: Results) -> QuantPlan | None:
    if analysis is not None:
        return analysis.plan
    return None if results.quantization is None else results.quantization.plan


def _title(names: Names, results: Results) -> str:
    if results.evaluation is not None:
        return f"{results.evaluation.float_model} → {results.evaluation.quantized_model}"
    if names.model:
        model = Path(names.model).name
        return f"{model} → {Path(names.output).name}" if names.output else model
    if results.drift:
        return f"{results.drift[-1].new_profile} against {results.drift[-1].old_profile}"
    return "model" if results.tuning is None else results.tuning.model


def _named_output(model: str) -> str:
    return f"{Path(model).stem}.int8.onnx" if model else "model.int8.onnx"


def _kinds(plan: QuantPlan) -> dict[str, int]:
    counts = Counter(node.kind for node in plan.nodes.values())
    return {kind.value: counts[kind] for kind in Kind if counts[kind]}


def _gates(results: Results) -> Iterator[GateResult]:
    if results.evaluation is not None:
        yield from evaluation_gates(results.evaluation)
    if results.quantization is not None and results.quantization.speed is not None:
        yield from speed_gates(results.quantization.speed)
    if results.tuning is not None:
        yield from tuning_gates(results.tuning)
    for report in results.drift:
        yield from drift_gates(report)


def _size(analysis: Analysis | None, results: Results) -> Size | None:
    for found in (results.evaluation, results.quantization):
        if found is not None:
            return Size(found.float_bytes, found.quantized_bytes)
    if results.tuning is not None and results.tuning.quantized_bytes is not None:
        return Size(results.tuning.float_bytes, results.tuning.quantized_bytes)
    if analysis is None:
        return None
    whole = model_bytes(analysis.model_file)
    return Size(whole, max(0, whole - round(saved_bytes(analysis.plan, analysis.graph))), True)


def _predicted_speed(analysis: Analysis | None) -> Speed | None:
    if analysis is None or analysis.costs is None:
        return None
    _, costs = analysis.costs
    before, after = analysis.file_us, total_microseconds(costs, analysis.graph, analysis.plan)
    where = f"table of kernels of {analysis.plan.config.target}"
    return Speed(before / 1e3, after / 1e3, before / max(after, 1e-3), None, None, "predicted", where)


def _provenance(plan: QuantPlan | None, analysis: Analysis | None, results: Results) -> Iterator[Fact]:
    yield Fact("written by", tool_name())
    if plan is not None:
        config = plan.config
        yield Fact("plan made by", plan.tool or "unknown")
        yield Fact("target", config.target)
        yield Fact("mode, form", f"{config.mode}, {config.form}")
        yield Fact("schema, calibrator", f"{config.schema}, {config.calibrator}")
        yield Fact(
            "activations, weights", f"{config.activation_type}, {config.weight_type} {config.granularity}"
        )
        yield Fact("float model", model_fingerprint(plan.model))
        yield Fact("plan", plan_digest(plan))
    if analysis is not None:
        data = analysis.measured.data
        yield Fact("profile", profile_digest(analysis.measured))
        yield Fact("calibration data", f"{data.samples} samples, digest {data.digest}")
        made = plan is not None and plan.origin.profile not in ("", profile_digest(analysis.measured))
        if made:
            yield Fact("remark", "the plan was made from another profile than the one shown here")
    if results.evaluation is not None and results.evaluation.provenance is not None:
        found = results.evaluation.provenance
        yield Fact("quantized model made by", found.tool)
        yield Fact("quantized model's plan", found.plan)


# What a report takes over from the results of commands: outputs, gates, drift, trials --------------------

MOST_DRIFT = 200
"""Tensors of a newer profile that a report lists, the worst first."""


def outputs_of(
    plan: QuantPlan | None, evaluation: Evaluation | None, limits: NoiseLimits | None
) -> tuple[OutputQuality, ...]:
    """Return how near the outputs are, as estimated and as measured; the lowest SQNR first."""
    needed = {} if limits is None else needed_sqnr(limits)
    provenance = None if evaluation is None else evaluation.provenance
    origin = provenance if plan is None else plan.origin
    expected = (
        {}
        if origin is None
        else {e.output: e for e in expected_sqnr(origin.estimated_sqnr, origin.sqnr_bands)}
    )
    measured = {} if evaluation is None else {o.name: o for o in evaluation.outputs}
    found = []
    for name in dict.fromkeys([*measured, *expected]):
        e, m = expected.get(name), measured.get(name)
        difference = None if m is None else m.difference
        found.append(
            OutputQuality(
                name=name,
                estimated=None if e is None else e.estimated,
                low=None if e is None else e.low,
                high=None if e is None else e.high,
                measured=None if difference is None else difference.sqnr,
                cosine=None if difference is None else difference.cosine,
                agreement=None if m is None or m.agreement is None else m.agreement.ratio,
                kind="" if limits is None or name not in limits.kinds else WORDS[limits.kinds[name]],
                needed=float(needed[name]) if name in needed else None,
            )
        )
    return tuple(sorted(found, key=lambda output: output.sqnr))


def facts_of(evaluation: Evaluation) -> Iterator[Fact]:
    """Yield what an evaluation says besides outputs, sizes and latency."""
    yield Fact("samples", str(evaluation.samples))
    a = evaluation.accuracy
    if a is not None:
        yield Fact(
            "accuracy",
            f"{a.float_percent:.2f} % float, {a.quantized_percent:.2f} % quantized of {a.rows} rows: "
            f"{_signed(-a.drop)} points, 95 % interval {_signed(-a.drop_high)} to {_signed(-a.drop_low)}",
        )
    if evaluation.score is not None:
        yield Fact(evaluation.metric_title or evaluation.metric, score_text(evaluation.score))
    yield Fact("run by", f"{evaluation.runtime}, {evaluation.provider}")


def task_of(evaluation: Evaluation) -> TaskScore | None:
    """Return what labels or a metric say of both models; None without either."""
    a, score = evaluation.accuracy, evaluation.score
    if score is not None:
        sign = -1.0 if score.higher_is_better else 1.0
        low, high = sorted((sign * score.drop_low, sign * score.drop_high))
        unit = {"percentage points": "points"}.get(score.drop_unit, score.drop_unit)
        change = f"{_signed(sign * score.drop)} {unit}, {_signed(low)} to {_signed(high)}"
        name = evaluation.metric_title or evaluation.metric
        return TaskScore(name, score.float_score, score.quantized_score, score.unit, change, score.rows)
    if a is None:
        return None
    change = f"{_signed(-a.drop)} points, {_signed(-a.drop_high)} to {_signed(-a.drop_low)}"
    return TaskScore("accuracy", a.float_percent, a.quantized_percent, "%", change, a.rows)


def _signed(change: float) -> str:
    return f"{round(change, 2) + 0.0:+.2f}"  # no change has no minus


def evaluation_gates(evaluation: Evaluation) -> Iterator[GateResult]:
    """Yield the limits of an evaluation, kept or not, and the baseline."""
    gate, known = evaluation.gate, set()
    for field in fields(gate):
        limit = getattr(gate, field.name)
        known.add(field.name)
        if limit is not None:
            failed = [f for f in evaluation.failures if f.demand == field.name]
            yield gate_result(field.name, limit, failed)
    others = [f for f in evaluation.failures if f.demand not in known]
    if evaluation.baseline:
        name = f"--baseline {evaluation.baseline}"
        yield GateResult(name, None, "", _result_of(others), tuple(map(failure_text, others)))
    if evaluation.doubts and evaluation.gated:
        yield GateResult("doubts about the models", None, "", "not proven", evaluation.doubts)


def gate_result(demand: str, limit: float, failures: list[GateFailure]) -> GateResult:
    """Return one limit with where it is not kept."""
    unit = next((f.unit for f in failures if f.unit), GATES[demand].unit)
    texts = tuple(map(failure_text, failures))
    return GateResult(option_of(demand), limit, unit, _result_of(failures), texts)


def _result_of(failures: list[GateFailure]) -> Literal["passed", "failed", "not proven"]:
    """Return what one gate comes to: an output that was measured to be worse decides over what was not."""
    if any(failure.result == "failed" for failure in failures):
        return "failed"
    return "not proven" if failures else "passed"


def option_of(demand: str) -> str:
    """Return the option of a limit."""
    return {**options_of(Gate), **options_of(DriftLimits)}[demand].flag


def failure_text(failure: GateFailure) -> str:
    """Return where a limit is not kept, and by how much."""
    where = f"{failure.where}: " if failure.where else ""
    if failure.measured is None:
        return f"{where}{failure.reason or 'nothing could be compared'}"
    if failure.result == "not proven" and failure.reason:
        return f"{where}{failure.reason}"
    reason = f" ({failure.reason})" if failure.reason else ""
    measured = f"{failure.measured:.4g} {failure.unit}".strip()
    return f"{where}{measured}, the limit is {failure.limit:g}{reason}"


def tuning_gates(result: TuneResult) -> Iterator[GateResult]:
    """Yield the quality target of a tuning."""
    why = () if result.target_met else tuple(result.limits) or ("no plan met it",)
    yield GateResult("--max-drop", result.target.max_drop, "percentage points", result.gate, why)


def speed_gates(check: SpeedCheck) -> Iterator[GateResult]:
    """Yield the limit on speed of a quantization."""
    if check.options.min_speedup is not None:
        yield gate_result("min_speedup", check.options.min_speedup, list(check.failures))


def drift_gates(report: DriftReport) -> Iterator[GateResult]:
    """Yield the limits on the drift of one newer profile."""
    for field in fields(DriftLimits):
        limit = getattr(report.limits, field.name)
        if limit is not None:
            failed = [f for f in report.failures if f.demand == field.name]
            yield replace(gate_result(field.name, limit, failed), subject=report.new_profile)


def drift_record(report: DriftReport) -> DriftRecord:
    """Return a newer profile as a record, the tensors that drifted most first."""
    failing = {failure.where for failure in report.failures}
    return DriftRecord(
        profile=report.new_profile,
        samples=report.new_samples,
        passed=report.passed,
        gated=report.gated,
        tensors=tuple(
            TensorDriftRecord(t.tensor, t.clipping_rate, t.range_growth, t.js_distance, t.tensor in failing)
            for t in report.worst(MOST_DRIFT)
        ),
        notes=report.drift.notes,
    )


def trials_of(result: TuneResult) -> Iterator[TrialRecord]:
    """Yield the trials of a tuning, in order."""
    for at, trial in enumerate(result.trials):
        yield TrialRecord(
            settings=trial.candidate.base.name,
            kept_float=len(trial.candidate.keep_float),
            quantized=trial.quantized_nodes,
            drop=None if trial.score is None else trial.score.drop,
            value=trial.value,
            chosen=at == result.chosen,
            error=trial.error,
        )


def measured_speed(results: Results) -> Speed | None:
    """Return the time of both models where it was measured."""
    latency, where = None, ""
    if results.evaluation is not None and results.evaluation.latency is not None:
        latency = results.evaluation.latency
    elif results.quantization is not None and results.quantization.speed is not None:
        latency = results.quantization.speed.after
    if latency is None:
        return None
    where = f"{latency.threads} thread{'s' if latency.threads > 1 else ''}, {latency.samples} samples"
    return Speed(
        latency.float_ms,
        latency.quantized_ms,
        latency.speedup,
        latency.speedup_low,
        latency.speedup_high,
        "measured",
        where,
    )


def notes_of(results: Results) -> tuple[str, ...]:
    """Return the remarks of all results, each once."""
    found: list[str] = []
    if results.quantization is not None:
        found += results.quantization.notes
    if results.evaluation is not None:
        found += [*results.evaluation.doubts, *results.evaluation.remarks]
    if results.layers is not None:
        found += results.layers.remarks
    return tuple(dict.fromkeys(found))


# What to think of a model, in one word and one sentence --------------------------------------------------

GOOD_DB = 30.0
"""SQNR from which an output is good where nothing says what it needs."""

DOMINANT = 0.2
"""Share of all noise from which one node is named as its cause."""


def judged_verdict(found: Judgement, gates: tuple[GateResult, ...]) -> Verdict:
    """Return the verdict of `quantize --data` as the report has it."""
    words = found.sentence.partition(": ")[2]
    causes = [*found.alarms, *([found.cause] if found.cause else []), *found.remarks]
    sentence = "; ".join([*_failed(gates), words])
    return Verdict(_level(found.grade, gates), sentence, tuple(causes), found.grade)


def measured_grade(evaluation: Evaluation, limits: NoiseLimits) -> Grade:
    """Return the grade of a model by an evaluation."""
    drop = evaluation.score or evaluation.accuracy
    return grade_of(output_grades(evaluation.outputs, limits), drop)


def verdict_of(
    outputs: tuple[OutputQuality, ...],
    gates: tuple[GateResult, ...],
    speed: Speed | None,
    budgets: tuple[NoiseBudget, ...],
    measured: Grade | None,
    *,
    task: TaskScore | None = None,
    doubts: tuple[str, ...] = (),
) -> Verdict:
    """Return the verdict of a report.

    Where it was judged on held-out samples that verdict stands. Elsewhere the outputs are graded by what was
    measured and, where nothing was, by what is estimated, with the same limits. A gate that failed is told
    before the grade, and does not change it.

    Args:
        outputs: the one with the lowest SQNR first.
        gates: limits, kept or not.
        speed: of both models; None where it is not known.
        budgets: where the noise comes from, in the same order.
        measured: the grade by an evaluation; None without one, or without limits to grade by.
        task: the score of both models, which is told before the outputs; None for none.
        doubts: signs that something is wrong with the models.
    """
    grade = _estimated_grade(outputs) if measured is None else measured
    causes = list(doubts)
    if budgets and grade != "good":
        part = budgets[0].parts[0]
        if part.share >= DOMINANT:
            causes.append(f"{part.node} makes {100 * part.share:.0f} % of the noise in '{budgets[0].output}'")
    if speed is not None and speed.is_slower:
        causes.append(f"the quantized model is slower than the float one ({speed.how})")
        grade = "fair" if grade == "good" else grade
    words = [*_failed(gates), *([] if task is None else [task.words]), *_quality(outputs)]
    if speed is not None and not speed.is_unclear:
        words.append(f"{speed.speedup:.2f} times as fast as float, {speed.how}")
    sentence = "; ".join(words) or "nothing was measured or estimated"
    return Verdict(_level(grade, gates), sentence, tuple(causes), grade)


def _level(grade: Grade, gates: tuple[GateResult, ...]) -> str:
    for result in ("failed", "not proven"):
        if any(gate.result == result for gate in gates):
            return result
    if grade == "none":
        return "passed" if gates else "unknown"
    return grade


def _failed(gates: tuple[GateResult, ...]) -> list[str]:
    words = []
    for result in ("failed", "not proven"):
        missed = [gate for gate in gates if gate.result == result]
        if len(missed) == 1 and len(missed[0].failures) == 1:
            words.append(missed[0].failures[0])
        elif missed:
            words.append(f"{len(missed)} of {len(gates)} gates {result}")
    return words


def _estimated_grade(outputs: tuple[OutputQuality, ...]) -> Grade:
    """Return the grade of the worst output by its SQNR alone."""
    grades = [_by_sqnr(output) for output in outputs if output.sqnr < math.inf or output.measured]
    return max(grades, key=lambda grade: ORDER[grade], default="none")


def _by_sqnr(output: OutputQuality) -> Grade:
    needed, sqnr = GOOD_DB if output.needed is None else output.needed, output.sqnr
    return "good" if sqnr >= needed else "fair" if sqnr >= needed - FAIR_DB else "poor"


def _quality(outputs: tuple[OutputQuality, ...]) -> list[str]:
    """Return the lowest SQNR of an output in words, with what it needs."""
    if not outputs:
        return []
    worst = outputs[0]
    verb = "needs" if worst.kind.startswith("a") else "need"
    needs = "" if worst.needed is None else f", {worst.kind} {verb} {worst.needed:.0f}"
    if worst.measured is not None:
        return [f"output '{worst.name}' keeps {decibel_text(worst.measured)} dB{needs}"]
    if worst.estimated is None:
        return []
    return [f"output '{worst.name}' is expected to keep {worst.estimated:.1f} dB{needs}"]
