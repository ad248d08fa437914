"""The result of `quantize`: the model, its plan, the kinds of its nodes, and the measured figures.

Other functions accept this result, or any model: `quantized_file`.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, TypeAlias, runtime_checkable

import onnx_ir as ir

from ...profiles.base.arguments import checks_arguments
from ...profiles.base.errors import ModelError
from ...profiles.base.findings import Code, Finding
from ...profiles.base.json_values import to_jsonable
from ...profiles.base.output_files import replacing_together
from ...profiles.base.presentation import Presentation, Presented, Table, is_report, size_text
from ...profiles.records.profile import Profile, has_histograms
from ..evaluation.cost import Cost
from ..evaluation.latency import times_as_fast
from ..model.files import ModelLike
from ..model.folders import quantized_name
from ..model.output_paths import FilesRead, check_outputs
from ..model.saving import save_model
from ..noise.estimate_check import Estimate, estimates_of
from ..plan.plan import Kind, OutputCheck, PredictedTime, QuantPlan
from ..planning.facts import PlanningFacts
from ..planning.plan_model import PlannedModel, predicted_on
from ..prepare.prepare import ModelFile, ProfileLike, opened
from ..search.speed import SpeedCheck
from ..search.verdict import Composition, FloatNodes, Judged, Verdict, composition_of, float_nodes
from ..targets.machine import how_to_time, processor

SHOWN = 2
"""Outputs whose quality is printed without `every`; JSON has all."""


def output_alarms(plan: QuantPlan) -> tuple[Finding, ...]:
    """Return an alarm for each output that is beyond doubt worth nothing, as measured on check samples."""
    return tuple(
        Finding(
            Code.OUTPUT_DESTROYED,
            f"{check.text}: the model is of no use",
            check.output,
            {"value": check.value, "limit": check.limit, "samples": check.samples},
            "keep the float model, or quantize less",
        )
        for check in plan.origin.checks
        if check.is_destroyed
    )


@runtime_checkable
class QuantizedResult(Protocol):
    """A result that has a quantized model, of `quantize` or of another search for a plan."""

    @property
    def plan(self) -> QuantPlan | None:
        """Its plan, or None if no plan could be run."""

    @property
    def profile(self) -> ProfileLike | None:
        """The profile that the plan was made from, or its file; None if it is not known."""

    def quantized_model(self) -> tuple[ModelLike, str]:
        """Return the model, or its file, and a usual file name; raises ConfigError if there is no model."""


@dataclass(frozen=True, repr=False)
class QuantizeResult(Presented, document="quantization"):
    """The result of `quantize`.

    Attributes:
        plan: the plan that was applied.
        model_path: the written file; None if the model was only returned.
        findings: notes and warnings, the gravest first; alarms are for outputs that check samples show to be
            useless.
        float_bytes, quantized_bytes: sizes of the two model files, external data included.
        speed: result of the speed check; None without one.
        model: the quantized model; `onnx_ir.to_proto` makes an `onnx.ModelProto` of it.
        read: its input files, which `save` does not overwrite.
        planned: the plan with the model that its names are those of.
        facts: the facts behind the plan; None for a plan that was read.
        judged: the result on held-out samples; None without `data`.
    """

    plan: QuantPlan
    model_path: Path | None
    findings: tuple[Finding, ...]
    float_bytes: int
    quantized_bytes: int
    speed: SpeedCheck | None = None
    model: ir.Model = field(kw_only=True, compare=False)
    read: FilesRead = field(default=FilesRead(), kw_only=True, compare=False)
    planned: PlannedModel = field(kw_only=True, compare=False)
    facts: PlanningFacts | None = field(default=None, kw_only=True, compare=False)
    judged: Judged | None = field(default=None, kw_only=True)

    @property
    def profile(self) -> ProfileLike | None:
        """The profile that the plan was made from, or its file; None if it is not known."""
        return (None if self.judged is None else self.judged.profile) or self._measured

    @property
    def _measured(self) -> Profile | None:
        return None if self.facts is None or not len(self.facts.measured) else self.facts.measured

    @property
    def verdict(self) -> Verdict | None:
        """The grade of the model, and fixes to try, or None if there were no samples."""
        return None if self.judged is None else self.judged.verdict

    @property
    def kinds(self) -> Mapping[str, int]:
        """The number of nodes of each kind."""
        counts = Counter(node.kind.value for node in self.plan.nodes.values())
        return {kind.value: counts[kind.value] for kind in Kind if counts[kind.value]}

    @property
    def floats(self) -> tuple[FloatNodes, ...]:
        """The nodes that stay float by the code of their reason, the most first."""
        return float_nodes(self.plan)

    @property
    def checks(self) -> tuple[OutputCheck, ...]:
        """The figures of the outputs on check samples before the model was written, the worst first, or () if
        it was not run."""
        return tuple(
            sorted(
                self.plan.origin.checks,
                key=lambda check: (not check.is_destroyed, -check.value / check.limit),
            )
        )

    @property
    def passed(self) -> bool:
        """Whether every requested limit is met, and no output is worth nothing."""
        fast = self.speed is None or self.speed.passed
        destroyed = any(check.is_destroyed for check in self.checks)
        return fast and not destroyed and (self.judged is None or self.judged.evaluation.passed)

    @property
    def expected(self) -> tuple[Estimate, ...]:
        """Estimated SQNR of each output, with a band; empty if unknown."""
        return estimates_of(self.plan.origin)

    @cached_property
    def _prediction(self) -> PredictedTime | str:
        return predicted_on(processor(), self.planned)

    @property
    def predicted(self) -> PredictedTime | None:
        """The predicted time of a run on this processor, or None if it is not known."""
        return None if isinstance(self._prediction, str) else self._prediction

    @property
    def predicted_speedup(self) -> float | None:
        """The predicted speedup over float on this processor, or None if it is not known."""
        return None if self.predicted is None else self.predicted.speedup

    @property
    def composition(self) -> Composition:
        """The nodes that compute in integers, and why the others do not."""
        return composition_of(self.plan, self.planned.graph, self._measured)

    @property
    def prediction(self) -> str:
        """The predicted time of a run on this processor, in words, or why it is not predicted."""
        predicted = self._prediction
        if isinstance(predicted, str):
            return predicted
        return f"{predicted.text}{self.composition.source_of(predicted.speedup)}"

    def quantized_model(self) -> tuple[ModelLike, str]:
        """Return the file of the model, or the model if it was not written, and the file's usual name."""
        path, name = self.model_path, quantized_name(self.plan.model.file)
        return (self.model if path is None or not path.is_file() else path), name

    def headline(self) -> str:
        """Return the verdict if there is one, the model, its size, and how many nodes are of each kind."""
        sizes = f"{size_text(self.quantized_bytes)} of {size_text(self.float_bytes)}"
        verdict = "" if self.verdict is None else f"{self.verdict.sentence}; "
        name, nodes = self.model_path or self.plan.model.file, self.plan.headline().split(", ", 1)[1]
        return f"{verdict}{name}, {sizes}, {nodes}"

    def presentation(self) -> Presentation:
        """Return sizes, settings and findings; how many nodes are of each kind, and why some stay float."""
        of_plan = self.plan.presentation()
        facts = (*self.figures(), *of_plan.facts)
        kinds = tuple((str(count), kind) for kind, count in self.kinds.items())
        reasons = tuple((str(group.nodes), group.reason) for group in self.floats)
        tables = [Table(("nodes", "kind"), kinds, left=2)]
        tables += [Table(("nodes", "why float"), reasons, left=2)] if reasons else []
        return Presentation(facts, tuple(tables), of_plan.findings)

    def figures(self, *, every: bool = False) -> Iterator[tuple[str, str]]:
        """Yield name and text of size, quality, speed and fraction of int8; `every` adds all outputs."""
        if self.verdict is not None:
            yield from self.verdict.figures()
            return
        yield "size", Cost(self.float_bytes, self.quantized_bytes).size
        outputs = self._quality
        shown = outputs if every else outputs[:SHOWN]
        yield from (("quality", text) for text in shown)
        if len(outputs) > len(shown):
            yield "quality", f"{len(outputs) - len(shown)} more outputs, each with less noise"
        if self.speed is not None:
            yield from self.speed.lines(self.predicted_speedup, every=every)
        else:
            yield "speed", self._speed_text
        yield "int8", self.composition.text

    @property
    def _quality(self) -> list[str]:
        """The error of each output, measured or else expected, the worst first; or why it is not known."""
        if texts := [check.text for check in self.checks]:
            return texts
        if self.expected:
            return [f"{one.text}; not run" for one in sorted(self.expected, key=lambda one: one.estimated)]
        measured = None if self.facts is None else self.facts.measured
        if measured is not None and not has_histograms(measured):
            return ["not known: the profile has ranges only, and no samples; measure with qprof evaluate"]
        if not measured:
            return ["not known: made without samples; give --data, or measure with qprof evaluate"]
        return []

    @property
    def _speed_text(self) -> str:
        """The predicted speed on this processor, or why it is not predicted."""
        if (time := self.predicted) is not None:
            basis = f"predicted ({time.error_text})" if time.error_text else "predicted"
            slower = ": slower" if round(time.speedup, 2) < 1.0 else ""
            source = self.composition.source_of(time.speedup)
            return f"{times_as_fast(time.speedup)} as float, {basis}{slower}{source}"
        if self.prediction:
            return self.prediction
        facts, target = self.facts, self.plan.config.target
        if facts is not None and not facts.config.regards_time:
            return f"not predicted (--set cost_model=off); {how_to_time(target)}"
        unknown = "the plan has no times" if facts is None else "times of this target's kernels are not known"
        if facts is not None and not facts.measured:
            unknown = "made without samples"
        elif facts is not None and not facts.knows_sizes:
            unknown = "the model has free sizes, which ranges do not determine"
        return f"not predicted: {unknown}; {how_to_time(target)}"

    def to_dict(self) -> dict[str, Any]:
        """Return sizes, nodes, findings, figures and the verdict; the plan has a separate `to_dict`."""
        names = ("findings", "predicted", "speed", "checks", "expected", "judged", "passed")
        document: dict[str, Any] = to_jsonable(
            {
                "model": None if self.model_path is None else str(self.model_path),
                "float_bytes": self.float_bytes,
                "quantized_bytes": self.quantized_bytes,
                "nodes": self.kinds,
                "floats": self.floats,
                **{name: getattr(self, name) for name in names},
            }
        )
        return document

    @checks_arguments
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model; a name that ends in .html, .md or .json asks for a report."""
        read = replace(self.read, models=(*self.read.models, self.model))
        check_outputs([path], read)
        if is_report(path):
            super().save(path)
        else:
            with replacing_together(read.weights) as batch:
                save_model(self.model, path, batch=batch)


QuantizedLike: TypeAlias = ModelLike | QuantizedResult
"""A quantized model: a path, a model, or the result that has one."""


@contextmanager
def quantized_file(quantized: QuantizedLike) -> Iterator[ModelFile]:
    """Yield the file of a quantized model, which may be temporary."""
    model, name = quantized.quantized_model() if isinstance(quantized, QuantizedResult) else (quantized, "")
    with opened(model, name) as file:
        if not file.path.is_file():
            raise ModelError(f"{file}: no such file; check the path of the model")
        yield file
