"""New data against the parameters that come from an older profile: `qprof diff`, for nightly jobs."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Collection, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, fields, replace
from itertools import groupby
from typing import Any

from ....profiles.base.arguments import checks_arguments
from ....profiles.base.findings import Code, Finding, gravest_first
from ....profiles.base.presentation import Presentation, Presented, Table
from ....profiles.instrumentation.subgraphs import hidden_tensors
from ....profiles.records.profile import Profile, TensorProfile, check_data_not_random
from ...api.keywords import SETTINGS, ConfigLike, recipe_of, split_settings, with_keywords
from ...evaluation.gates import GateFailure, gate_finding, limit_failures
from ...model.files import ModelLike
from ...model.identity import check_model
from ...numerics.affine import TYPES, QuantParams
from ...numerics.calibrators import calibrate
from ...numerics.clipping import covered
from ...numerics.schemas import HEADROOM, SCHEMAS, choose_params
from ...plan.documents import read_at
from ...planning.needed_tensors import needed_tensors
from ...prepare.prepare import ProfileLike, open_prepared, opened, profile_name
from ...targets.config import QuantConfig
from ...targets.loading import load_recipe
from .limits import DriftLimits
from .measures import TensorDrift, check_comparable, tensor_drift

MEASURES = {
    "max_clipping": "added_clipping",
    "max_range_growth": "range_growth",
    "max_js_distance": "js_distance",
    "max_non_finite": "non_finite",
}
"""Each limit, and the attribute of `TensorDrift` that it bounds."""


@dataclass(frozen=True, repr=False)
class DriftReport(Presented, document="drift"):
    """How one profile drifted from another.

    Attributes:
        old_profile, new_profile: names of the files.
        old_samples, new_samples: number of samples of each.
        calibrator: calibrator of OLD's ranges.
        limits: the gates.
        tensors: the measures of those that are in both profiles, in OLD's order.
        vanished: names of those that only OLD has.
        failures: each tensor that exceeds a limit, the worst first within a limit.
        left_out: measures of those that are not in `tensors`, in OLD's order: with a model, those that no
            plan can need. No limit applies to them.
        model: name of the model file; None without a model.
        findings: notes and warnings, the gravest first: exceeded limits; other weights, tensors of one of
            the profiles, NaN and Inf in NEW.
    """

    old_profile: str
    new_profile: str
    old_samples: int
    new_samples: int
    calibrator: str
    limits: DriftLimits
    tensors: tuple[TensorDrift, ...]
    vanished: tuple[str, ...]
    failures: tuple[GateFailure, ...]
    left_out: tuple[TensorDrift, ...] = ()
    model: str | None = None
    findings: tuple[Finding, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether no limit is exceeded."""
        return not self.failures

    @property
    def gated(self) -> bool:
        """Whether any limit was given."""
        return any(getattr(self.limits, field.name) is not None for field in fields(self.limits))

    def headline(self) -> str:
        """Return whether the data drifted, by the limits or else by usual ones, with the worst tensor."""
        usual = DriftLimits(max_clipping=0.01, max_js_distance=0.3)  # halves of ordinary data meet these
        failures = self.failures if self.gated else failures_of(usual, self.tensors, ())
        most = [f", largest JS distance {t.js_distance or 0.0:.2g} in '{t.tensor}'" for t in self.worst(1)]
        told = "no drift" + "".join(most)
        for one in failures[:1]:
            where = f"drift in {len({f.where for f in failures})} of {len(self.tensors)} tensors"
            figure = "not proven" if one.measured is None else f"{one.measured:.4g}"
            measure = MEASURES[one.demand].replace("_", " ").replace("js", "JS")
            told = f"{where}, {measure} {figure} in '{one.where}' (limit {one.limit:g})"
        return f"verdict    {told}; {self.new_profile} against {self.old_profile}"

    def presentation(self) -> Presentation:
        """Return a table of the tensors, those that drifted most first."""
        broken = {failure.where for failure in self.failures}
        rows = tuple(
            (
                t.tensor,
                f"{t.old_minimum:.4g} .. {t.old_maximum:.4g}",
                f"{t.new_minimum:.4g} .. {t.new_maximum:.4g}",
                f"{t.range_growth:.4g}",
                *("-" if x is None else f"{x:.4g}" for x in (t.clipping_rate, t.baseline_clipping)),
                ("-" if t.js_distance is None else f"{t.js_distance:.4g}") + _channel_text(t),
                "failed" if t.tensor in broken else "",
            )
            for t in self.worst()
        )
        rates = ("range growth", "clipping rate", "baseline", "JS distance")
        header = ("tensor", "OLD", "NEW", *rates, "limits")
        facts = [("samples", f"{self.new_samples} against {self.old_samples}")]
        facts.append(("calibrator", self.calibrator))
        if self.left_out:
            facts.append(("left out", f"{len(self.left_out)} tensors that no plan of {self.model} needs"))
        if self.gated:
            facts.append(("gate", "passed" if self.passed else "failed"))
        return Presentation(tuple(facts), (Table(header, rows),), self.findings)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields, and `passed`."""
        return {**super().to_dict(), "passed": self.passed}

    def worst(self, count: int | None = None) -> tuple[TensorDrift, ...]:
        """Return the tensors that exceed a limit, then by JS distance (unknown first) and range growth."""
        failing = {failure.where for failure in self.failures}

        def key(t: TensorDrift) -> tuple[bool, float, float]:
            distance = math.inf if t.js_distance is None else t.js_distance
            return t.tensor not in failing, -distance, -t.range_growth

        return tuple(sorted(self.tensors, key=key)[:count])


@checks_arguments
def diff(
    old: ProfileLike,
    new: ProfileLike,
    *,
    model: ModelLike | None = None,
    config: ConfigLike | None = None,
    limits: DriftLimits | None = None,
    **keywords: Any,
) -> DriftReport:
    """Compare new data with the data that a model was quantized for: which tensors drifted, and how far.

    Args:
        old: the profile that a model was quantized with: path or object.
        new: a profile of newer data.
        model: the float model: leaves out tensors that no plan needs, except inputs.
        config: as in `quantize`: it chooses the parameters that `old` led to.
        limits: for every tensor.
        keywords: settings as in `quantize`, and fields of `DriftLimits`.

    Raises:
        ProfileError: a profile cannot be read, or the two cannot be compared.
        ConfigError: a keyword or its value is not allowed.
    """
    settings, others = split_settings(keywords)
    limits = with_keywords("diff", limits or DriftLimits(), others, besides=SETTINGS)
    chosen = (recipe_of(config, settings) or load_recipe(QuantConfig.target)).config
    before, after = (one if isinstance(one, Profile) else read_at(one) for one in (old, new))
    names = (
        "the old profile" if isinstance(old, Profile) else profile_name(old),
        "the new profile" if isinstance(new, Profile) else profile_name(new),
    )
    if limits != DriftLimits():
        check_data_not_random(before.data, names[0], "a gate")
        check_data_not_random(after.data, names[1], "a gate")
    of_pair = check_comparable(before, after, names)
    covers = {name: covered(old_params(tensor, chosen)) for name, tensor in before.items()}
    samples = before.data.samples, after.data.samples
    every = [tensor_drift(n, before[n], after[n], covers[n], samples) for n in before if n in after]
    needed: Collection[str] = before
    with nullcontext() if model is None else opened(model) as file:
        if file is not None:
            prepared = open_prepared(file)
            check_model(before.model, prepared.identity, names[0], same_weights=False)
            needed = {*needed_tensors(prepared.graph, hidden_tensors(prepared.model)), *before.inputs}
    tensors = tuple(tensor for tensor in every if tensor.tensor in needed)
    vanished = tuple(name for name in before if name not in after and name in needed)
    failures = failures_of(limits, tensors, vanished)
    return DriftReport(
        old_profile=names[0],
        new_profile=names[1],
        old_samples=before.data.samples,
        new_samples=after.data.samples,
        calibrator=chosen.calibrator,
        limits=limits,
        tensors=tensors,
        vanished=vanished,
        failures=failures,
        left_out=tuple(tensor for tensor in every if tensor.tensor not in needed),
        model=None if file is None else os.path.basename(file),
        findings=gravest_first([*_of_limits(failures, names), *of_pair, *_of_tensors(tensors)]),
    )


def _of_limits(failures: Sequence[GateFailure], profiles: Sequence[str]) -> Iterator[Finding]:
    """Yield an alarm for each limit that is not kept, or not proven, with its worst tensor."""
    merging = f"qprof merge {shlex.join(profiles)} -o both.yaml, and quantize with --profile both.yaml"
    for (_, limit, _), group in groupby(failures, lambda f: (f.demand, f.limit, f.result)):
        first, *others = group
        value = "" if first.measured is None else f"{first.measured:.4g}"
        value = ": ".join(filter(None, (value, first.reason)))
        many = f"{1 + len(others)} tensors, the worst " if others else "tensor "
        where = f"{many}'{first.where}': " if first.where else ""
        alarm = gate_finding(first)
        sentence = f"--{first.demand.replace('_', '-')} {limit:g}: {where}{value}"
        tensors = {"tensors": 1 + len(others)} if first.where else {}
        remedy = f"if the new data are right, {merging}" if first.result == "failed" else ""
        yield replace(alarm, sentence=sentence, figures={**alarm.figures, **tensors}, remedy=remedy)


def _of_tensors(tensors: Sequence[TensorDrift]) -> Iterator[Finding]:
    """Yield that NEW has NaN or Inf."""
    if non_finite := [tensor for tensor in tensors if tensor.non_finite]:
        most = max(non_finite, key=lambda tensor: tensor.non_finite)
        sentence = (
            f"NaN or Inf in {len(non_finite)} tensors of NEW; worst '{most.tensor}': "
            f"{100 * most.non_finite:.3g} % of its elements"
        )
        figures = {"tensors": len(non_finite), "share": most.non_finite}
        yield Finding(Code.NON_FINITE, sentence, most.tensor, figures)


def _channel_text(tensor: TensorDrift) -> str:
    """Return the channel whose JS distance is that of the tensor, "" if it is that of the histograms."""
    return "" if tensor.channel is None else f" channel {tensor.channel}"


def old_params(tensor: TensorProfile, config: QuantConfig) -> QuantParams:
    """Return the parameters of a tensor by these settings, without shared scales and fixed ranges."""
    schema, qtype = SCHEMAS[config.schema], TYPES[config.activation_type]
    chosen = calibrate(tensor, config.calibrator, schema, qtype)
    headroom = HEADROOM if qtype.is_float else 1.0
    return choose_params(headroom * chosen.low, headroom * chosen.high, schema, qtype)


def failures_of(
    limits: DriftLimits, tensors: Sequence[TensorDrift], vanished: Sequence[str]
) -> tuple[GateFailure, ...]:
    """Return a failure for each tensor that is not shown to meet a limit, the worst first."""
    failures: list[GateFailure] = []
    for demand, measure in MEASURES.items():
        limit = getattr(limits, demand)
        if limit is None:
            continue
        broken: list[GateFailure] = []
        for tensor in tensors:
            # NaN and Inf are counted where nothing else of a tensor is left; no other measure is.
            empty = tensor.is_empty and not (measure == "non_finite" and tensor.non_finite)
            doubt = "NEW has no finite elements of it" if empty else ""
            reason = _channel_text(tensor).strip() if measure == "js_distance" else ""
            measured, where = getattr(tensor, measure), tensor.tensor
            broken += limit_failures(demand, limit, measured, doubt=doubt, where=where, reason=reason)
        for name in vanished:
            broken += limit_failures(demand, limit, None, doubt="NEW does not have it", where=name)
        if not tensors:
            broken += limit_failures(demand, limit, None, doubt="no tensor could be compared")
        failures += sorted(broken, key=lambda failure: -failure.missing)
    return tuple(failures)
