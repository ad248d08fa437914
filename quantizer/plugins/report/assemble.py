"""Puts a report together: of estimates, of results, or of both. Pure but for the sizes of files."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from ....profiles.base.findings import Code, Finding, gravest_first
from ....profiles.base.improvement import improved
from ....profiles.base.options import options_of
from ....profiles.base.presentation import counted
from ....profiles.base.tool import tool_name
from ...api.evaluate import EvaluateResult
from ...api.results import QuantizeResult
from ...costs.predicted import total_microseconds
from ...evaluation.evaluate import Evaluation
from ...evaluation.gates import UNITS, GateFailure, failure_text
from ...evaluation.grades import needed_sqnr
from ...evaluation.latency import times_as_fast
from ...evaluation.options import Gate
from ...evaluation.output_shift import Grade
from ...noise.estimate_check import estimates_of
from ...noise.output_limits import WORDS, NoiseLimits
from ...numerics.affine import TYPES
from ...plan.plan import Kind, QuantPlan
from ...plan.provenance import model_fingerprint, plan_digest, profile_digest
from ...search.attribution import Attribution
from ...search.verdict import Verdict as Judgement
from ...targets.machine import processor
from .content import (
    GateResult,
    NodeRecord,
    NoiseBudget,
    OutputQuality,
    Report,
    RunTime,
    Speed,
    TaskScore,
    TensorRecord,
    Verdict,
    WhatIf,
)
from .estimates import (
    Analysis,
    budgets_as_run,
    float_groups,
    int8_share,
    node_records,
    run_time,
    tensor_records,
)
from .excerpts import Excerpt

T = TypeVar("T")


@dataclass(frozen=True)
class Results:
    """Results of commands that a report is made of; None, or empty, for those that were not run."""

    evaluation: Evaluation | None = None  # of the quantized model on samples
    seen: EvaluateResult | None = None  # on the samples that the profile keeps, without others
    attribution: Attribution | None = None  # the noise of the plan's nodes, run on samples
    layers: Any | None = None  # a `LayerReport`: tensor by tensor, on samples
    quantization: QuantizeResult | None = None  # the files that were written
    drift: Any = None  # of a newer profile, a `DriftReport`
    size: tuple[int, int] | None = None  # bytes of both files, of a report that has no other results
    left_out: tuple[Finding, ...] = ()  # findings on what was left out of these


def make_report(analysis: Analysis | None, results: Results, title: str) -> Report:
    """Return the report of an analysis, or of results only."""
    quantization, found = results.quantization, results.attribution
    evaluation = results.evaluation or results.seen
    plan = None if quantization is None else quantization.plan
    timed = None if quantization is None or quantization.speed is None else quantization.speed.costs
    left_out = list(results.left_out)

    def section(name: str, make: Callable[[], T]) -> T | None:
        made, findings = improved(f"report: {name}", make, None)
        left_out.extend(findings)
        return made

    speed = _measured_speed(results)
    float_bytes, quantized_bytes = _sizes(results)
    budgets: tuple[NoiseBudget, ...] = ()
    nodes: tuple[NodeRecord, ...] = ()
    times: RunTime | None = None
    changes: tuple[WhatIf, ...] = ()
    tensors: tuple[TensorRecord, ...] = ()
    limits = None
    if analysis is not None:
        plan, limits = analysis.plan, section("limits", lambda: analysis.limits)
    outputs = _outputs(plan, evaluation, limits)
    if analysis is not None:
        if found is not None:
            budgets = budgets_as_run(found, {output.name: output.needed for output in outputs})
        worst = budgets[0] if budgets else None
        nodes = section("nodes", lambda: node_records(analysis, worst, timed)) or ()
        times = section("times", lambda: run_time(analysis, timed))
        speed = speed or section("predicted speed", lambda: _predicted_speed(analysis))
        changes = section("changes to try", lambda: tuple(_changes(results))) or ()
        tensors = section("tensors", lambda: tensor_records(analysis)) or ()
    groups = section("float nodes", lambda: float_groups(plan, nodes) if plan else ()) or ()
    excerpts = section("samples", lambda: _excerpts(evaluation)) or ()
    judgement = None if quantization is None else quantization.verdict
    if judgement is None and isinstance(evaluation, EvaluateResult):
        judgement = evaluation.verdict
    gates = tuple(_gates(results))
    task = None if evaluation is None else _task_score(evaluation)
    doubts = () if evaluation is None else evaluation.doubts
    if judgement is not None:
        grade, head, words = judgement.grade, *judgement.sentence.split(": ", 1)
        causes = _causes(judgement, found)
        remark = head.removeprefix(grade).strip()
        verdict = _verdict(grade, words, gates, (*doubts, *judgement.findings, *causes), remark)
    elif evaluation is not None and evaluation.grades:
        grade = evaluation.decision.grade
        verdict = _verdict(grade, evaluation.grades[0].text, gates, doubts)
    else:
        words = "; ".join(_estimated_words(outputs, speed)) or "nothing was measured or estimated"
        verdict = _verdict("none", words, gates, doubts)
    counts = Counter(() if plan is None else (node.kind for node in plan.nodes.values()))
    findings = [*(() if plan is None else plan.findings)]
    if quantization is not None:
        findings += quantization.findings
    if evaluation is not None:
        findings += evaluation.findings
    if results.layers is not None:
        findings += results.layers.findings
    return Report(
        title=title,
        tool=tool_name(),
        verdict=verdict,
        task=task,
        float_bytes=float_bytes,
        quantized_bytes=quantized_bytes,
        speed=speed,
        int8_share=int8_share(nodes),
        computes_in="int8"
        if plan is None or not TYPES[plan.config.activation_type].is_float
        else plan.config.activation_type,
        kinds={kind.value: counts[kind] for kind in Kind if counts[kind]},
        outputs=outputs,
        is_of_kept_samples=results.seen is not None and results.evaluation is None,
        facts={} if evaluation is None else _facts(evaluation, seen=results.evaluation is None),
        gates=gates,
        what_ifs=changes,
        noise=budgets,
        layers=() if results.layers is None else results.layers.layers,
        tensors=tensors,
        nodes=nodes,
        run_time=times,
        float_groups=groups,
        samples=() if evaluation is None else evaluation.worst_samples,
        excerpts=excerpts,
        drift=results.drift,
        findings=gravest_first([*findings, *left_out]),
        provenance=_provenance(plan, analysis, results),
    )


def _excerpts(evaluation: Evaluation | None) -> tuple[Excerpt, ...]:
    return () if evaluation is None else tuple(one.with_picture for one in evaluation.excerpts)


def _changes(results: Results) -> Iterator[WhatIf]:
    """Yield the fixes of a quantization, which were tried on samples."""
    verdict = None if results.quantization is None else results.quantization.verdict
    if verdict is None:
        return
    output = "" if verdict.worst is None else verdict.worst.output
    for fix in verdict.fixes:
        gained = None if fix.sqnr is None or verdict.sqnr is None else round(fix.sqnr - verdict.sqnr, 2)
        yield WhatIf(shlex.join(fix.options), fix.brings, output, fix.sqnr, gained, fix.speedup)


def _sizes(results: Results) -> tuple[int | None, int | None]:
    """Return the bytes of the float and of the quantized model."""
    for found in (results.evaluation, results.quantization):
        if found is not None and found.quantized_bytes is not None:
            return found.float_bytes, found.quantized_bytes
    return results.size or (None, None)


def _predicted_speed(analysis: Analysis | None) -> Speed | None:
    """Return the predicted time of both models on this processor, None if its kernels were not measured."""
    if analysis is None or analysis.costs is None or analysis.table is None:
        return None
    before, after = analysis.file_us, total_microseconds(analysis.costs, analysis.graph, analysis.plan)
    where = analysis.table.conditions.processor
    if not processor().has_kernels_of(where):
        return None
    return Speed(before / 1e3, after / 1e3, before / max(after, 1e-3), None, None, "predicted", where)


def _provenance(plan: QuantPlan | None, analysis: Analysis | None, results: Results) -> dict[str, str]:
    found = {"written by": tool_name()}
    if plan is not None:
        config = plan.config
        found |= {
            "plan made by": plan.tool or "unknown",
            "target": config.target,
            "mode, form": f"{config.mode}, {config.form}",
            "schema, calibrator": f"{config.schema}, {config.calibrator}",
            "activations, weights": f"{config.activation_type}, {config.weight_words}",
            "float model": model_fingerprint(plan.model),
            "plan": plan_digest(plan),
        }
    if analysis is not None:
        data = analysis.measured.data
        found["profile"] = profile_digest(analysis.measured)
        found["calibration data"] = f"{data.samples} samples, digest {data.digest}"
        if plan is not None and plan.origin.profile not in ("", profile_digest(analysis.measured)):
            found["remark"] = "the plan was made from another profile than the one shown here"
    if results.evaluation is not None and results.evaluation.provenance is not None:
        provenance = results.evaluation.provenance
        found |= {"quantized model made by": provenance.tool, "quantized model's plan": provenance.plan}
    return found


# What a report takes over from the results of commands: outputs, gates, drift --------------------


def _outputs(
    plan: QuantPlan | None,
    evaluation: Evaluation | None,
    limits: NoiseLimits | None,
) -> tuple[OutputQuality, ...]:
    """Return how near the outputs are."""
    states = set[str]() if evaluation is None else set(evaluation.states)
    if limits is not None:
        kinds = limits.kinds.values()
        states |= {name for name, kind in limits.kinds.items() if kind == "state" and set(kinds) != {"state"}}
    grades = () if evaluation is None else evaluation.grades
    needed = {} if limits is None else needed_sqnr(limits)
    needed |= {grade.output: grade.needed for grade in grades if grade.deciding_sqnr is not None}
    order = {grade.output: place for place, grade in enumerate(grades)}
    provenance = None if evaluation is None else evaluation.provenance
    origin = provenance if plan is None else plan.origin
    expected = {} if origin is None else {e.output: e for e in estimates_of(origin)}
    measured = {} if evaluation is None else {o.name: o for o in evaluation.outputs}
    outputs = []
    for name in dict.fromkeys([*measured, *expected]):
        e, m = expected.get(name), measured.get(name)
        difference = None if m is None else m.difference
        outputs.append(
            OutputQuality(
                name=name,
                estimated=None if e is None else e.estimated,
                low=None if e is None else e.low,
                high=None if e is None else e.high,
                measured=None if difference is None else difference.sqnr,
                agreement=None if m is None or m.agreement is None else m.agreement.ratio,
                kind="" if limits is None or name not in limits.kinds else WORDS[limits.kinds[name]],
                needed=float(needed[name]) if name in needed else None,
            )
        )
    last = len(order)
    return tuple(sorted(outputs, key=lambda one: (one.name in states, order.get(one.name, last), one.sqnr)))


def _facts(evaluation: Evaluation, *, seen: bool) -> dict[str, str]:
    """Return the facts of an evaluation besides scores, outputs, sizes and latency."""
    on = counted(evaluation.samples, evaluation.rows) + " that the profile keeps" * seen
    return {"compared on": on, "run by": f"{evaluation.runtime}, {evaluation.provider}"}


def _task_score(evaluation: Evaluation) -> TaskScore | None:
    """Return the scores of both models by labels or a metric; None without either."""
    score = evaluation.score
    if score is None:
        return None
    sign = -1.0 if score.higher_is_better else 1.0
    low, high = sorted((sign * score.drop_low, sign * score.drop_high))
    unit = {"percentage points": "points"}.get(score.drop_unit, score.drop_unit)
    interval = f"{_signed(low)} to {_signed(high)}" if high - low < float("inf") else score.interval
    change = f"{_signed(sign * score.drop)} {unit}, {interval}"
    return TaskScore(
        evaluation.metric_title, score.float_score, score.quantized_score, score.unit, change, score.rows
    )


def _signed(change: float) -> str:
    return f"{round(change, 2) + 0.0:+.2f}"  # no change has no minus


def _gates(results: Results) -> Iterator[GateResult]:
    """Yield all limits that were given, kept or not: of an evaluation, of speed, and drift."""
    evaluation = results.evaluation
    if evaluation is not None:
        yield from _limits(evaluation.gate, evaluation.failures)
        if evaluation.void:
            yield GateResult("data, models and labels", None, "", "failed", tuple(map(str, evaluation.void)))
        elif evaluation.doubts and evaluation.gate.has_limit:
            yield GateResult(
                "doubts about the models", None, "", "not proven", tuple(map(str, evaluation.doubts))
            )
    check = None if results.quantization is None else results.quantization.speed
    if check is not None:
        yield from _limits(Gate(min_speedup=check.min_speedup), check.failures)
    if results.drift is not None:
        yield from _limits(results.drift.limits, results.drift.failures)


def _limits(limits: Any, failures: Sequence[GateFailure]) -> Iterator[GateResult]:
    """Yield the limits of a `Gate` or a `DriftLimits`, each with its violations."""
    kind: type = type(limits)
    for name, option in options_of(kind).items():
        limit = getattr(limits, name)
        if limit is not None:
            missed = [failure for failure in failures if failure.demand == name]
            unit = next((failure.unit for failure in missed if failure.unit), UNITS.get(name, ""))
            yield GateResult(option.flag, limit, unit, _gate_result(missed), tuple(map(failure_text, missed)))


def _gate_result(failures: Sequence[GateFailure]) -> Literal["passed", "failed", "not proven"]:
    """Return the result of one gate: a measured failure decides over an unproven one."""
    if any(failure.result == "failed" for failure in failures):
        return "failed"
    return "not proven" if failures else "passed"


def _measured_speed(results: Results) -> Speed | None:
    """Return the time of both models, if it was measured."""
    latency = None if results.evaluation is None else results.evaluation.latency
    if latency is None and results.quantization is not None and results.quantization.speed is not None:
        latency = results.quantization.speed.after
    if latency is None:
        return None
    where = f"{latency.threads} thread{'s' if latency.threads > 1 else ''}, {counted(latency.samples, 0)}"
    quartiles = (latency.speedup_low, latency.speedup_high)
    return Speed(latency.float_ms, latency.quantized_ms, latency.speedup, *quartiles, "measured", where)


# What to think of a model, in one word and one sentence --------------------------------------------------


def _causes(verdict: Judgement, found: Attribution | None) -> tuple[Finding, ...]:
    """Return the findings on the main causes of a fair or poor model, if its verdict lacks them."""
    if found is None or verdict.grade not in ("fair", "poor"):
        return ()
    if any(finding.code is Code.MAIN_CAUSE for finding in verdict.findings):
        return ()
    return found.cause


def _verdict(
    grade: Grade, words: str, gates: tuple[GateResult, ...], findings: Sequence[Finding], remark: str = ""
) -> Verdict:
    """Return a verdict; missed gates are named before the other words."""
    level, sentence = _level(grade, gates), "; ".join([*_missed_gates(gates), words])
    return Verdict(level, sentence, gravest_first(findings), grade, remark)


def _estimated_words(outputs: tuple[OutputQuality, ...], speed: Speed | None) -> Iterator[str]:
    """Yield texts about a model without samples: the estimate of the first output, and the speed."""
    worst = outputs[0] if outputs else None
    if worst is not None and worst.estimated is not None:
        needs = "" if worst.needed is None else f", {worst.kind} {worst.needed:.3g} dB would be good"
        yield f"output '{worst.name}' is expected to keep {worst.estimated:.1f} dB{needs}; not run"
    if speed is not None:
        yield f"{times_as_fast(speed.speedup)} as float, {speed.how}"


def _level(grade: Grade, gates: tuple[GateResult, ...]) -> str:
    for result in ("failed", "not proven"):
        if any(gate.result == result for gate in gates):
            return result
    return "passed" if gates and grade == "none" else grade


def _missed_gates(gates: tuple[GateResult, ...]) -> Iterator[str]:
    """Yield the names of failed gates, and of unproven ones; limits and figures are printed at the gates."""
    for result in ("failed", "not proven"):
        names = dict.fromkeys(gate.name for gate in gates if gate.result == result)
        if names:
            yield f"{', '.join(names)} {result}"
