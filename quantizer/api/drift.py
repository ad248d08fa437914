"""New data against the parameters that come from an older profile: `qprof diff`, for nightly jobs.

Tensors that no plan can need, such as the arithmetic of shapes, are left out. With the model they are known;
otherwise these are the tensors of few elements without a batch axis.
"""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, fields, replace
from itertools import groupby
from typing import Any

from ...profiles.base.arguments import checks_arguments
from ...profiles.base.errors import ConfigError, check_finite
from ...profiles.base.findings import Code, Figure, Finding, gravest_first, listed
from ...profiles.base.presentation import Presentation, Presented, Table
from ...profiles.instrumentation.subgraphs import hidden_tensors
from ...profiles.records.drift import (
    BRIGHTNESS,
    Cover,
    Drift,
    PartDrift,
    TensorDrift,
    band_drifts,
    check_comparable,
    compare,
    folder_drifts,
    has_parts,
    part_drifts,
)
from ...profiles.records.profile import Dim, Profile, TensorProfile, check_data_not_random
from ...profiles.records.store import with_samples_of_file
from ..evaluation.gates import GateFailure, gate_finding, limit_failures
from ..model.files import ModelLike
from ..model.identity import check_model
from ..numerics.affine import TYPES, QuantParams
from ..numerics.calibrators import calibrate
from ..numerics.schemas import HEADROOM, SCHEMAS, choose_params
from ..plan.documents import read_at
from ..planning.needed_tensors import needed_tensors
from ..prepare.prepare import ProfileLike, open_prepared, opened, profile_name
from ..targets.config import QuantConfig
from ..targets.loading import load_recipe
from ..targets.target import Recipe
from .keywords import SETTINGS, ConfigLike, recipe_of, split_settings, with_keywords
from .options import DriftLimits

MEASURES = {
    "max_clipping": "added_clipping",
    "max_range_growth": "range_growth",
    "max_js_distance": "js_distance",
    "max_wasserstein": "wasserstein",
    "max_non_finite": "non_finite",
}
"""Each limit, and the attribute of `TensorDrift` that it bounds."""

FEW = 3
"""Names that are listed where there may be many."""

SHAPE_ELEMENTS = 8
"""Most elements of a tensor of rank 0 or 1 that is taken for shape arithmetic: shapes have few dimensions."""


@dataclass(frozen=True, repr=False)
class DriftReport(Presented):
    """How one profile drifted from another.

    Attributes:
        old_profile, new_profile: the files, as they were named.
        old_samples, new_samples: number of samples that each was made from.
        calibrator: the one that chose OLD's ranges.
        limits: the gates.
        drift: the measures of the tensors in OLD's order, and what else differs.
        failures: each tensor that exceeds a limit, the worst first within a limit; the parts
            of the data are one failure.
        left_out: measures of the tensors that are not in `drift`, in OLD's order. With a model: those that no
            plan can need, which no limit applies to. Without: those that look like shape arithmetic (see
            `is_shape_arithmetic`) and exceed no limit.
        model: name of the model file; None without a model.
        findings: what is to be known of the pair, the gravest first: limits that are not kept; other
            weights, tensors of one of them, NaN and Inf of NEW.
    """

    old_profile: str
    new_profile: str
    old_samples: int
    new_samples: int
    calibrator: str
    limits: DriftLimits
    drift: Drift
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
        """Return both profiles, and how many limits were broken."""
        failed = f", {len(self.failures)} failures" if self.failures else ""
        return f"{self.new_profile} against {self.old_profile}, {len(self.drift.tensors)} tensors{failed}"

    def presentation(self) -> Presentation:
        """Return a table of the tensors, those that drifted most first."""
        broken = {failure.where for failure in self.failures}
        rows = tuple(
            (
                t.tensor,
                f"{t.range_growth:.4g}",
                "-" if t.clipping_rate is None else f"{t.clipping_rate:.4g}",
                "-" if t.js_distance is None else f"{t.js_distance:.4g}",
                "failed" if t.tensor in broken else "",
            )
            for t in self.worst()
        )
        header = ("tensor", "range growth", "clipping rate", "JS distance", "limits")
        facts = [("samples", f"{self.new_samples} against {self.old_samples}")]
        facts += listed(self.findings)
        return Presentation(tuple(facts), (Table(header, rows),))

    def to_dict(self) -> dict[str, Any]:
        """Return the fields, and `passed`."""
        return {**super().to_dict(), "passed": self.passed}

    def worst(self, count: int | None = None) -> tuple[TensorDrift, ...]:
        """Return the tensors that drifted most, or all: those that exceed a limit first, then by JS distance.

        A distance that could not be measured counts as the largest. Equal distances are ordered by range
        growth, then as in OLD.
        """
        failing = {failure.where for failure in self.failures}

        def key(t: TensorDrift) -> tuple[bool, float, float]:
            distance = math.inf if t.js_distance is None else t.js_distance
            return t.tensor not in failing, -distance, -t.range_growth

        return tuple(sorted(self.drift.tensors, key=key)[:count])


@dataclass(frozen=True)
class DataDrift:
    """The parts of the data that changed by more than chance and much, see `profiles.records.drift`.

    Attributes:
        parts: columns of a table, colours of pictures and the like, the largest shift first.
        folders: folders of samples with both shares, the worst first.
        bands: bands of signals with both levels, the largest change first.
    """

    parts: tuple[PartDrift, ...]
    folders: tuple[tuple[str, float, float], ...]
    bands: tuple[tuple[str, float, float, float, float], ...]

    @property
    def names(self) -> tuple[str, ...]:
        """All of them, in words."""
        return (
            *(part.where for part in self.parts),
            *(f"folder '{folder}'" for folder, _, _ in self.folders),
            *(f"input '{name}', {low:g} to {high:g} Hz" for name, low, high, _, _ in self.bands),
        )

    def failures_of(self, limit: int | None, *, is_known: bool) -> tuple[GateFailure, ...]:
        """Return the failure of the limit on their number; unknown parts keep none."""
        if limit is None:
            return ()
        more = ", ..." if len(self.names) > FEW else ""
        doubt = "" if is_known else "no columns, colours, folders or bands are in both profiles"
        named = "" if doubt else "; ".join(self.names[:FEW]) + more
        return tuple(
            limit_failures("max_drifted_parts", limit, float(len(self.names)), doubt=doubt, reason=named)
        )

    def findings(self) -> Iterator[Finding]:
        """Yield the first few of each kind, and where to look next."""
        for number, part in enumerate(self.parts[:FEW], 1):
            by = f"{part.shift:.3g} of OLD's deviations" if math.isfinite(part.shift) else "constant in OLD"
            more = f"; so have {len(self.parts) - FEW} others" if number == FEW < len(self.parts) else ""
            sentence = (
                f"{part.where}: mean {part.old_mean:.4g} in OLD and {part.new_mean:.4g} in NEW ({by}), "
                f"deviation {part.old_deviation:.3g} and {part.new_deviation:.3g}{more}"
            )
            of_part: dict[str, Figure] = {"part": part.part.strip("'"), "shift": part.shift}
            light = "look at light and exposure first: red, green and blue moved alike"
            remedy = light if part.part == BRIGHTNESS else "look at its unit and source first"
            yield Finding(Code.PART_DRIFT, sentence, part.input, of_part, remedy)
        for folder, before, after in self.folders[:FEW]:
            shares = f"{100 * before:.3g} % of the samples in OLD, {100 * after:.3g} % in NEW"
            of_folder: dict[str, Figure] = {"old": before, "new": after}
            remedy = "look at how the samples were chosen"
            yield Finding(Code.FOLDER_DRIFT, f"folder '{folder}': {shares}", folder, of_folder, remedy)
        for name, low, high, before, after in self.bands[:FEW]:
            sentence = (
                f"input '{name}', {low:g} to {high:g} Hz: {before:.0f} dB in OLD, {after:.0f} dB in NEW, of "
                "the samples that are kept"
            )
            of_band: dict[str, Figure] = {"low": low, "high": high, "old": before, "new": after}
            yield Finding(Code.BAND_DRIFT, sentence, name, of_band, "look at the source of the recordings")


@checks_arguments
def diff(
    old: ProfileLike,
    new: ProfileLike,
    *,
    model: ModelLike | None = None,
    config: ConfigLike | None = None,
    limits: DriftLimits | None = None,
    allow_different: bool = False,
    **keywords: Any,
) -> DriftReport:
    """Compare new data with the data that a model was quantized for: which tensors drifted, and how far.

    Args:
        old: the profile that a model was quantized with: path or object.
        new: a profile of newer data.
        model: the float model: leaves out tensors that no plan needs.
        config: as in `quantize`: it chooses the parameters that `old` led to.
        limits: for every tensor.
        allow_different: compare tensors of the same name in models of different structure.
        keywords: settings as in `quantize`, and fields of `DriftLimits`.

    Raises:
        ProfileError: a profile cannot be read, or the two cannot be compared.
        ConfigError: a keyword or its value is not allowed.
    """
    settings, others = split_settings(keywords)
    besides = SETTINGS | {"allow_different"}
    limits = with_keywords("diff", limits or DriftLimits(), others, besides=besides)
    with nullcontext() if model is None else opened(model) as file:
        return compare_profiles(
            old,
            new,
            limits=limits,
            recipe=recipe_of(config, settings),
            model_path=file,
            allow_different=allow_different,
        )


def compare_profiles(
    old: ProfileLike,
    new: ProfileLike,
    *,
    limits: DriftLimits | None = None,
    recipe: Recipe | None = None,
    model_path: str | os.PathLike[str] | None = None,
    allow_different: bool = False,
) -> DriftReport:
    """Return how far two profiles differ, and how OLD's parameters would clip NEW's data.

    A recipe chooses OLD's parameters; None is that of the default target. With the float model of OLD,
    tensors that no plan of it needs are left out. Errors are those of `diff`.
    """
    limits = limits or DriftLimits()
    check_limits(limits)
    config = (recipe or load_recipe(QuantConfig.target)).config
    before, after = (one if isinstance(one, Profile) else read_at(one) for one in (old, new))
    if any(record.rate for record in after.inputs.values()):  # of signals the samples tell the bands
        before, after = (
            profile if isinstance(one, Profile) else with_samples_of_file(profile, one)[0]
            for one, profile in ((old, before), (new, after))
        )
    names = (
        "the old profile" if isinstance(old, Profile) else profile_name(old),
        "the new profile" if isinstance(new, Profile) else profile_name(new),
    )
    if limits != DriftLimits():
        check_data_not_random(before.data, names[0], "a gate")
        check_data_not_random(after.data, names[1], "a gate")
    of_pair = check_comparable(before, after, names, allow_different=allow_different)
    every = drift = compare(before, after, covers_of(before, config))
    if model_path is not None:
        prepared = open_prepared(model_path)
        check_model(before.model, prepared.identity, names[0], same_weights=False)
        drift = _drift_of(every, needed_tensors(prepared.graph, hidden_tensors(prepared.model)))
    data = DataDrift(part_drifts(before, after), folder_drifts(before, after), band_drifts(before, after))
    failures = failures_of(limits, drift, vanished_fails=not allow_different)
    # Data without any parts keep a limit on their number; parts that one profile alone has prove nothing.
    are_comparable = has_parts(before, after) or not any(has_parts(one, one) for one in (before, after))
    failures += data.failures_of(limits.max_drifted_parts, is_known=are_comparable)
    if model_path is None:
        failing = {failure.where for failure in failures}
        shapes = {n for n in before if n in after and is_shape_arithmetic(before[n], after[n])}
        drift = _drift_of(every, {*before, *after} - (shapes - failing))
    compared = {tensor.tensor for tensor in drift.tensors}
    return DriftReport(
        old_profile=names[0],
        new_profile=names[1],
        old_samples=before.data.samples,
        new_samples=after.data.samples,
        calibrator=config.calibrator,
        limits=limits,
        drift=drift,
        failures=failures,
        left_out=tuple(tensor for tensor in every.tensors if tensor.tensor not in compared),
        model=None if model_path is None else os.path.basename(model_path),
        findings=gravest_first(
            [
                *_of_limits(failures),
                *of_pair,
                *_of_tensors(drift),
                *data.findings(),
                *_of_samples(before, after),
            ]
        ),
    )


def _of_limits(failures: Sequence[GateFailure]) -> Iterator[Finding]:
    """Yield an alarm for each limit that is not kept, or not proven, with its worst tensor."""
    for (_, limit, _), group in groupby(failures, lambda f: (f.demand, f.limit, f.result)):
        first, *others = group
        value = "" if first.measured is None else f"{first.measured:.4g}"
        value = ": ".join(filter(None, (value, first.reason)))
        many = f"{1 + len(others)} tensors, the worst " if others else "tensor "
        where = f"{many}'{first.where}': " if first.where else ""
        alarm = gate_finding(first)
        sentence = f"--{first.demand.replace('_', '-')} {limit:g}: {where}{value}"
        tensors = {"tensors": 1 + len(others)} if first.where else {}
        yield replace(alarm, sentence=sentence, figures={**alarm.figures, **tensors})


def _of_tensors(drift: Drift) -> Iterator[Finding]:
    """Yield which tensors only one profile has, and that NEW has NaN or Inf."""
    for profile, names in (("NEW", drift.appeared), ("OLD", drift.vanished)):
        if names:
            few = ", ".join(names[:FEW]) + (", ..." if len(names) > FEW else "")
            sentence = f"{profile} alone holds {len(names)} tensors: {few}"
            yield Finding(Code.TENSORS_OF_ONE_PROFILE, sentence, profile, {"tensors": len(names)})
    if non_finite := [tensor for tensor in drift.tensors if tensor.non_finite]:
        most = max(non_finite, key=lambda tensor: tensor.non_finite)
        sentence = (
            f"NaN or Inf in {len(non_finite)} tensors of NEW; worst '{most.tensor}': "
            f"{100 * most.non_finite:.3g} % of its elements"
        )
        figures = {"tensors": len(non_finite), "share": most.non_finite}
        yield Finding(Code.NON_FINITE, sentence, most.tensor, figures)


def _of_samples(old: Profile, new: Profile) -> Iterator[Finding]:
    """Yield the samples of NEW whose values go beyond the range of an input in OLD."""
    for name in (name for name in new.inputs if name in old.inputs):
        if samples := _samples_beyond(old.inputs[name].tensor, new.inputs[name].tensor):
            sentence = f"input '{name}': values beyond OLD's range come from {' and '.join(samples)} of NEW"
            yield Finding(Code.BEYOND_RANGE, sentence, name, {"samples": len(samples)}, "look at these first")


def _samples_beyond(old: TensorProfile, new: TensorProfile) -> list[str]:
    """Return the names of NEW's samples with the smallest and the largest value, where OLD had none such."""
    if new.extremes is None:
        return []
    lowest = new.extremes.lowest[:1] if new.minimum < old.minimum else ()
    highest = new.extremes.highest[:1] if new.maximum > old.maximum else ()
    return list(dict.fromkeys(extreme.name for extreme in (*lowest, *highest)))


def _drift_of(drift: Drift, names: Collection[str]) -> Drift:
    """Return the drift of some tensors only."""
    return replace(
        drift,
        tensors=tuple(tensor for tensor in drift.tensors if tensor.tensor in names),
        appeared=tuple(name for name in drift.appeared if name in names),
        vanished=tuple(name for name in drift.vanished if name in names),
    )


def is_shape_arithmetic(*profiles: TensorProfile) -> bool:
    """Whether a tensor looks like a shape or a size in all of these profiles: small, without a batch axis."""

    def is_small(shape: tuple[Dim, ...] | None) -> bool:
        return (
            shape is not None
            and len(shape) <= 1
            and all(d is not None and d <= SHAPE_ELEMENTS for d in shape)
        )

    return all(is_small(profile.shape) for profile in profiles)


def covers_of(profile: Profile, config: QuantConfig) -> dict[str, Cover]:
    """Return, for each tensor, the range that its parameters cover, see `covered`."""
    return {name: covered(old_params(tensor, config)) for name, tensor in profile.items()}


def old_params(tensor: TensorProfile, config: QuantConfig) -> QuantParams:
    """Return the parameters of a tensor by these settings, without shared scales and fixed ranges."""
    schema, qtype = SCHEMAS[config.schema], TYPES[config.activation_type]
    chosen = calibrate(tensor, config.calibrator, schema, qtype)
    headroom = HEADROOM if qtype.is_float else 1.0
    return choose_params(headroom * chosen.low, headroom * chosen.high, schema, qtype)


def covered(params: QuantParams) -> Cover:
    """Return the range that one scale covers: the values that saturate by one step at most.

    Rounding costs half a step, so only values that saturate by more lose anything worth an alarm. (The zero
    point is rounded too: OLD's own extremes may lie half a step outside the integer range.)
    """
    scale, zero_point, qtype = params.tensor_scale, params.tensor_zero_point, params.qtype
    return scale * (qtype.low - zero_point - 1), scale * (qtype.high - zero_point + 1)


def check_limits(limits: DriftLimits) -> None:
    """Raise ConfigError for a limit that is not finite, or that every tensor would exceed."""
    check_finite(limits)
    for field in fields(limits):
        value = getattr(limits, field.name)
        least = 1.0 if field.name == "max_range_growth" else 0.0
        if value is not None and not value >= least:
            raise ConfigError(f"{field.name} {value}: must be a number of at least {least:g}; choose another")


def failures_of(limits: DriftLimits, drift: Drift, vanished_fails: bool = True) -> tuple[GateFailure, ...]:
    """Return a failure for each tensor that is not shown to meet a limit.

    Tensors without a measure come first, then the worst. A tensor that NEW lacks meets no limit if
    `vanished_fails`.
    """
    failures: list[GateFailure] = []
    for demand, measure in MEASURES.items():
        limit = getattr(limits, demand)
        if limit is None:
            continue
        broken: list[GateFailure] = []
        for tensor in drift.tensors:
            # NaN and Inf are counted where nothing else of a tensor is left; no other measure is.
            empty = tensor.is_empty and not (measure == "non_finite" and tensor.non_finite)
            doubt = "NEW has no finite elements of it" if empty else ""
            broken += limit_failures(
                demand, limit, getattr(tensor, measure), doubt=doubt, where=tensor.tensor
            )
        if vanished_fails:
            for name in drift.vanished:
                broken += limit_failures(demand, limit, None, doubt="NEW does not hold it", where=name)
        if not drift.tensors:
            broken += limit_failures(demand, limit, None, doubt="no tensor could be compared")
        failures += sorted(broken, key=lambda failure: -failure.missing)
    return tuple(failures)
