"""The order of the steps, and nothing else: each command of `qprof` is one function here."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import onnx_ir as ir

from ...profiles.base.errors import ConfigError
from ...profiles.base.json_values import to_jsonable
from ...profiles.base.output_files import replacing_together
from ...profiles.base.presentation import Presentation, Presented, Table, is_report, size_text
from ...profiles.base.tool import Progress
from ...profiles.records.profile import DataId, Profile
from ...profiles.samples.objects import DataLike
from ...profiles.samples.samples import input_specs, open_samples
from ...profiles.samples.values import Sample, Samples
from ..adjustments.checkpoint import remove_checkpoint
from ..evaluation.evaluate import measured_sqnr
from ..evaluation.written_model import check_target, write_checked
from ..exchange.profiles import missing_notes, read_profile
from ..lowering.lower import lower
from ..model.files import model_bytes
from ..model.output_paths import FilesRead, check_outputs
from ..model.saving import has_external_data, save_model
from ..noise.estimate_check import EstimateCheck, ExpectedSqnr, check_estimates, expected_sqnr, too_good_texts
from ..plan.plan import Kind, QuantPlan
from ..plan.reasons import FloatReason, ReasonCode, summary
from ..plan.store import PlanLike, plan_name, read_plan, save_plan
from ..planning.facts import PlanningFacts
from ..planning.plan_model import PlannedModel, model_facts, open_plan, plan_from, rounded_with_samples
from ..prepare.float16 import narrow_constants
from ..prepare.prepare import PreparedModel, ProfileLike, open_prepared, profile_name
from ..search.fallback_nodes import blamed_on_nodes, plan_that_runs, with_fallback_nodes
from ..search.float_fallback import SpeedCheck, SpeedDemand, Subject, check_speed
from ..search.verdict import Judged, Verdict
from ..targets.config import DATA_FREE, WITH_SAMPLES
from ..targets.loading import load_recipe
from ..targets.target import Recipe

# What `quantize` returns: the model, its plan, what became of the nodes, and what was measured.


@dataclass(frozen=True)
class FloatGroup:
    """Nodes that stay float for reasons of one code.

    Attributes:
        code: the code.
        nodes: how many there are.
        reason: what is said of all of them: names, and figures with their range.
    """

    code: ReasonCode
    nodes: int
    reason: str


@dataclass(frozen=True)
class Summary:
    """What became of the nodes.

    Attributes:
        counts: number of nodes of each kind ("quantized", "lookup-table", "float", ...), zeros left out.
        floats: those that stay float by the code of their reason, most frequent first.
    """

    counts: Mapping[str, int]
    floats: tuple[FloatGroup, ...]


@dataclass(frozen=True, eq=False)
class Made:
    """What a quantized model was written from.

    Attributes:
        planned: the plan with the model that its names are those of.
        facts: what the plan was made from; None for a plan that was read.
    """

    planned: PlannedModel
    facts: PlanningFacts | None


@dataclass(frozen=True, repr=False)
class QuantizeResult(Presented):
    """What `quantize` did.

    Attributes:
        plan: the plan that was applied.
        model_path: the file that was written; None where the model was only returned.
        summary: what became of the nodes.
        notes: remarks for the user, such as an opset that was raised.
        float_bytes, quantized_bytes: sizes of the two model files, external data included.
        speed: what was found where speed was asked about.
        estimates: SQNR of the outputs as it was estimated and as measured, where there are samples.
        model: the quantized model; `onnx_ir.to_proto` makes an `onnx.ModelProto` of it.
        read: what it was made from, which `save` does not write over.
        made: what it was written from.
        judged: what was found on samples that were held out, where `data` was given; None elsewhere.
    """

    plan: QuantPlan
    model_path: Path | None
    summary: Summary
    notes: tuple[str, ...]
    float_bytes: int
    quantized_bytes: int
    speed: SpeedCheck | None = None
    estimates: tuple[EstimateCheck, ...] = ()
    model: ir.Model = field(kw_only=True, compare=False)
    read: FilesRead = field(default=FilesRead(), kw_only=True, compare=False)
    made: Made | None = field(default=None, kw_only=True, compare=False)
    judged: Judged | None = field(default=None, kw_only=True)

    @property
    def verdict(self) -> Verdict | None:
        """How good the model is, and what to try; None where there were no samples to see it on."""
        return None if self.judged is None else self.judged.verdict

    @property
    def passed(self) -> bool:
        """Whether every limit that was asked for is met."""
        fast = self.speed is None or self.speed.passed
        return fast and (self.judged is None or self.judged.evaluation.passed)

    @property
    def expected(self) -> tuple[ExpectedSqnr, ...]:
        """SQNR that is expected of each output, with a band; empty where nothing is known of it."""
        return expected_sqnr(self.plan.origin.estimated_sqnr, self.plan.origin.sqnr_bands)

    def headline(self) -> str:
        """Return the model, its size, and how many nodes are of each kind."""
        sizes = f"{size_text(self.quantized_bytes)} of {size_text(self.float_bytes)}"
        return f"{self.model_path or self.plan.model.file}, {sizes}, {self.plan.headline().split(', ', 1)[1]}"

    def presentation(self) -> Presentation:
        """Return sizes, settings and notes; how many nodes are of each kind, and why some stay float."""
        smaller = f"{self.float_bytes / max(1, self.quantized_bytes):.2f} times smaller"
        facts = [
            ("size", f"{size_text(self.float_bytes)} float, {size_text(self.quantized_bytes)}: {smaller}"),
            *self.plan.presentation().facts,
        ]
        if self.verdict is not None:
            facts.insert(0, ("verdict", self.verdict.sentence))
        if self.speed is not None:
            facts.append(("speed", f"{self.speed.after.speedup:.2f} times as fast as float"))
        kinds = tuple((str(count), kind) for kind, count in self.summary.counts.items())
        reasons = tuple((str(group.nodes), group.reason) for group in self.summary.floats)
        tables = [Table(("nodes", "kind"), kinds, left=2)]
        tables += [Table(("nodes", "why float"), reasons, left=2)] if reasons else []
        return Presentation(tuple(facts), tuple(tables))

    def to_dict(self) -> dict[str, Any]:
        """Return sizes, counts of nodes, reasons and notes; the plan has a `to_dict` of its own."""
        return {
            "model": None if self.model_path is None else str(self.model_path),
            "float_bytes": self.float_bytes,
            "quantized_bytes": self.quantized_bytes,
            "nodes": dict(self.summary.counts),
            "floats": [to_jsonable(group) for group in self.summary.floats],
            "notes": list(self.notes),
            "speedup": None if self.speed is None else self.speed.after.speedup,
            "expected": [to_jsonable(output) for output in self.expected],
            "estimates": [to_jsonable(check) for check in self.estimates],
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model; a name that ends in .html, .md or .json asks for a report.

        Raises:
            ConfigError: the file cannot be written, or is one that the model was made from or refers to.
        """
        read = replace(self.read, models=(*self.read.models, self.model))
        check_outputs([path], read)
        if is_report(path):
            super().save(path)
        else:
            with replacing_together(read.weights) as batch:
                save_model(self.model, path, batch=batch)


def summarize(plan: QuantPlan) -> Summary:
    """Count what became of the nodes, and why those that stay float do."""
    counts = Counter(node.kind.value for node in plan.nodes.values())
    found: dict[tuple[ReasonCode, str], list[FloatReason]] = {}
    for node in plan.nodes.values():
        if node.stays_float:
            reason = node.float_reason
            words = str(reason) if reason.code is ReasonCode.UNKNOWN else ""
            found.setdefault((reason.code, words), []).append(reason)
    groups = [FloatGroup(code, len(reasons), summary(reasons)) for (code, _), reasons in found.items()]
    return Summary(
        {kind.value: counts[kind.value] for kind in Kind if counts[kind.value]},
        tuple(sorted(groups, key=lambda group: -group.nodes)),
    )


@dataclass(frozen=True)
class OutputFiles:
    """Where a quantization writes.

    Attributes:
        model: the quantized model.
        plan: the plan that was applied; None for nowhere.
    """

    model: str | Path
    plan: str | Path | None = None


@dataclass(frozen=True)
class SampleSteps:
    """The steps of a quantization that run samples; all others need none.

    Attributes:
        speed: measure the plan that is made against float, and leave float what is slower in int8; None does
            not. A plan that is given stays as it is.
        data: samples for rounding "gptq" or "gptaq": a folder, "module:function", or an object of Python
            (`open_samples`).
        limit: number of them, from the first; None for all.
        progress: called while the model runs on them.
        checkpoint: file that keeps the weights that are rounded; the same call resumes after a kill. None
            for nowhere.
    """

    speed: SpeedDemand | None = None
    data: DataLike | None = None
    limit: int | None = None
    progress: Progress | None = None
    checkpoint: str | os.PathLike[str] | None = None


CHECKED = 16
"""Samples on which the outputs of a model that was written are held against their estimate."""

NO_SAMPLES = SampleSteps()
"""No step runs samples."""


def quantize(
    model_path: str | Path,
    profile_path: ProfileLike | None,
    output: str | Path | OutputFiles,
    *,
    recipe: Recipe | None = None,
    plan_path: PlanLike | None = None,
    accept_retrained: bool = False,
    samples: SampleSteps = NO_SAMPLES,
) -> QuantizeResult:
    """Write a quantized model from a float model and its profile, or from a plan.

    Args:
        model_path: float ONNX model.
        profile_path: its profile (qprof's or Glow's); not needed with `plan_path`, nor in the modes of
            `config.DATA_FREE`.
        output: where to write the quantized model, and the plan.
        recipe: settings and target; None for the default target's.
        plan_path: apply this plan, which a person may have edited, instead of making one.
        accept_retrained: take a profile of the same graph with other weights.
        samples: the steps that run samples.

    Raises:
        ModelError, ProfileError, PlanError, ConfigError, DataError: what is wrong, where, and what to do.
    """
    files = output if isinstance(output, OutputFiles) else OutputFiles(output)
    data = (samples.data, None if samples.speed is None else samples.speed.data)
    read = FilesRead((model_path,), (profile_path, plan_path), data)
    check_outputs([files.model, files.plan, samples.checkpoint], read)
    prepared = open_prepared(model_path)
    if plan_path is not None:
        made = _Made(open_plan(prepared, read_plan(plan_path), plan_name(plan_path)))
        done = _written(prepared, made, Path(model_path), files, recipe)
    else:
        recipe = recipe or load_recipe()
        profile, notes = _profile_for(prepared, profile_path, recipe, model_path, accept_retrained)

        def attempt(facts: PlanningFacts) -> _Written:
            made = replace(_made(Path(model_path), facts, samples), facts=facts)
            return _written(prepared, made, Path(model_path), files, recipe)

        facts = model_facts(prepared, profile, recipe, notes)
        if samples.speed is not None or samples.data is not None:  # before steps that take their time
            _, facts = plan_that_runs(facts, Path(model_path))
        done = with_fallback_nodes(facts, attempt)
        if samples.checkpoint is not None:
            remove_checkpoint(Path(samples.checkpoint))
    return QuantizeResult(
        done.plan,
        Path(files.model),
        summarize(done.plan),
        (*done.plan.notes, *too_good_texts(done.estimates)),
        model_bytes(Path(model_path)),
        done.size,
        done.check,
        done.estimates,
        model=done.model,
        read=read,
        made=done.made,
    )


@dataclass(frozen=True)
class _Made:
    """A planned model, what its speed check found, the elements of each tensor in a sample, samples, and the
    facts that the plan was made from, if it was."""

    planned: PlannedModel
    check: SpeedCheck | None = None
    elements: Mapping[str, float] = field(default_factory=dict)
    samples: Iterable[Sample] = ()
    facts: PlanningFacts | None = None


def _made(model_path: Path, facts: PlanningFacts, steps: SampleSteps) -> _Made:
    """Plan a model, with the steps that run samples."""
    samples = _rounding_samples(facts.prepared, facts.recipe, steps.data, steps.limit)
    planned, check = plan_from(facts), None
    if steps.speed is not None:
        planned, check = check_speed(Subject(model_path, facts), planned, steps.speed)
    if samples is not None:
        kept = None if steps.checkpoint is None else Path(steps.checkpoint)
        planned = rounded_with_samples(planned, samples, steps.progress, kept)
    data = facts.measured.data.samples
    elements = {name: tensor.count / max(1, data) for name, tensor in facts.measured.items()}
    specs = input_specs(facts.prepared.model)
    if samples is None and steps.speed is not None and steps.speed.data is not None:
        samples = open_samples(steps.speed.data, specs, CHECKED)
    return _Made(planned, check, elements, samples or ())


@dataclass(frozen=True)
class _Written:
    """A written model, its plan with all remarks, the size of its files, what was measured, and from what it
    was made."""

    model: ir.Model
    plan: QuantPlan
    size: int
    check: SpeedCheck | None
    estimates: tuple[EstimateCheck, ...]
    made: Made


def _written(
    prepared: PreparedModel, made: _Made, model_path: Path, files: OutputFiles, recipe: Recipe | None
) -> _Written:
    """Lower the plan and write the files, together or not at all."""
    plan = made.planned.plan
    lowered = lower(made.planned.model, plan)
    model = lowered.model if prepared.narrow is None else narrow_constants(lowered.model, prepared.narrow)
    external = has_external_data(prepared.model)
    with (
        blamed_on_nodes(made.planned, lowered),
        replacing_together(FilesRead((model_path,)).weights) as batch,
    ):
        remarks = check_target(model, plan, recipe, str(files.model))
        written = write_checked(model, files.model, model_path, made.elements, external=external, batch=batch)
        notes = dict.fromkeys([*plan.notes, *lowered.notes, *remarks, *written.notes])
        plan = replace(plan, notes=tuple(notes))
        if files.plan is not None:
            save_plan(plan, files.plan, batch)
        estimates = _estimates(plan, made.samples, model_path, written.file)
    return _Written(model, plan, written.size, made.check, estimates, Made(made.planned, made.facts))


def _estimates(
    plan: QuantPlan, samples: Iterable[Sample], original: Path, written: Path
) -> tuple[EstimateCheck, ...]:
    """Hold the estimated SQNR of the outputs against the written model on the first samples."""
    expected = expected_sqnr(plan.origin.estimated_sqnr, plan.origin.sqnr_bands)
    if not expected or not (first := tuple(islice(samples, CHECKED))):
        return ()
    return check_estimates(expected, measured_sqnr(original, written, first))


def _rounding_samples(
    prepared: PreparedModel, recipe: Recipe, data: DataLike | None, limit: int | None
) -> Samples | None:
    """Return the samples that rounding needs; None where the settings need none.

    Raises:
        ConfigError: there must be some, and none are given. DataError: they cannot be opened.
    """
    if recipe.config.rounding not in WITH_SAMPLES:
        return None
    if data is None:
        raise ConfigError(
            f"rounding {recipe.config.rounding}: needs samples, as for calibration; give them with --data "
            "DIR, or choose rounding nearest, which needs none"
        )
    return open_samples(data, input_specs(prepared.model), limit)


def _profile_for(
    prepared: PreparedModel,
    path: ProfileLike | None,
    recipe: Recipe,
    model_path: str | Path,
    accept_retrained: bool,
) -> tuple[Profile, tuple[str, ...]]:
    """Return what a plan is made from, and remarks about it; an empty profile where the mode needs none."""
    if path is not None:
        profile = read_profile(path, prepared.model, prepared.identity, accept_retrained)
        return profile, missing_notes(profile, prepared.graph, Path(profile_name(path)).name)
    if recipe.config.mode not in DATA_FREE:
        raise ConfigError(
            f"{model_path}: mode {recipe.config.mode} needs a profile or samples: give --data DIR, which "
            "profiles, quantizes and evaluates in one command, or --profile FILE, which qprof dump-profile "
            f"makes; or use a mode without either ({', '.join(DATA_FREE)})"
        )
    return Profile(prepared.identity, DataId(), {}), ()
