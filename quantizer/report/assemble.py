"""Puts a report together: of estimates, of results, or of both. Pure but for the sizes of files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from ...profiles.base.tool import tool_name
from ..costs.predicted import total_microseconds
from ..model.files import model_bytes
from ..outputs.limits import NoiseLimits
from ..plan.plan import Kind, QuantPlan
from ..plan.provenance import model_fingerprint, plan_digest, profile_digest
from ..scoring.objectives import saved_bytes
from .analysis import Analysis
from .content import Fact, GateResult, OutputQuality, Report, SampleRecord, Size, Speed, Verdict, WhatIf
from .measured import (
    Results,
    drift_gates,
    drift_record,
    evaluation_gates,
    facts_of,
    measured_speed,
    notes_of,
    outputs_of,
    speed_gates,
    trials_of,
    tuning_gates,
)
from .nodes import float_groups, int8_share, node_records
from .noise import noise_budgets, tensor_noise
from .records import NoiseBudget
from .tensors import sample_records, shared_groups, tensor_records
from .verdicts import judged_verdict, measured_grade, verdict_of
from .what_ifs import Files, tried_changes, what_ifs, with_commands


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
    plan = _plan(analysis, results)
    noise = None if analysis is None else analysis.noise
    budgets = () if noise is None else noise_budgets(noise)
    worst = budgets[0] if budgets else None
    nodes = () if analysis is None else node_records(analysis, worst)
    limits = None if noise is None else noise.limits
    outputs, gates = outputs_of(plan, results.evaluation, limits), tuple(_gates(results))
    speed = measured_speed(results) or _predicted_speed(analysis)
    files = Files(names.model, names.profile, names.output or _named_output(names.model), names.given)
    return Report(
        title=_title(names, results),
        tool=tool_name(),
        verdict=_verdict(results, limits, (outputs, gates, speed, budgets)),
        size=_size(analysis, results),
        speed=speed,
        int8_share=int8_share(nodes),
        kinds={} if plan is None else _kinds(plan),
        outputs=outputs,
        facts=() if results.evaluation is None else tuple(facts_of(results.evaluation)),
        gates=gates,
        what_ifs=() if analysis is None else _changes(analysis, worst, results, files),
        noise=budgets,
        tensor_noise=tensor_noise(analysis, results.layers),
        tensors=() if analysis is None else tensor_records(analysis),
        nodes=nodes,
        float_groups=() if plan is None else float_groups(plan, nodes),
        samples=_samples(analysis, results),
        shared=() if plan is None else shared_groups(plan),
        drift=tuple(map(drift_record, results.drift)),
        trials=() if results.tuning is None else tuple(trials_of(results.tuning)),
        notes=tuple(dict.fromkeys([*(() if plan is None else plan.notes), *notes_of(results)])),
        provenance=tuple(_provenance(plan, analysis, results)),
    )


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
    doubts = () if results.evaluation is None else results.evaluation.doubts
    return verdict_of(*known, grade, doubts=doubts)


def _samples(analysis: Analysis | None, results: Results) -> tuple[SampleRecord, ...]:
    """Return the samples on which the models differ most, then those that make the extremes."""
    measured = () if results.evaluation is None else results.evaluation.worst_samples
    lowest = {one.sample: one.sqnr for one in measured}
    extreme = () if analysis is None else sample_records(analysis)
    ends = {record.sample: record for record in extreme}
    first = (replace(ends.get(name, SampleRecord(name, 0, 0)), sqnr=sqnr) for name, sqnr in lowest.items())
    return (*first, *(record for record in extreme if record.sample not in lowest))


def _changes(
    analysis: Analysis, worst: NoiseBudget | None, results: Results, files: Files
) -> tuple[WhatIf, ...]:
    """Return what to try: what was tried on samples first, then what is estimated."""
    found = what_ifs(analysis, worst)
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
    model, costs = analysis.costs
    before = sum(model.floating.values())
    after = total_microseconds(costs, analysis.graph, analysis.plan)
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
