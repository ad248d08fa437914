"""What other settings would bring: plans that are made and estimated, with a command for each. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ...profiles.base.errors import QprofError
from ..costs.predicted import CostModel, total_microseconds
from ..noise.sources import NoiseEstimator
from ..plan.plan import QuantPlan
from ..plan.reasons import FloatReasons, ReasonCode, because
from ..planning.chains import expanded
from ..planning.facts import PlanningFacts
from ..planning.planner import decide
from ..ranges.activation_ranges import RangeCache
from ..scoring.objectives import saved_bytes
from ..targets.config import settings
from ..targets.loading import load_recipe
from ..verdict.fixes import Fix
from ..verdict.verdict import Verdict
from .analysis import Analysis, NoiseAnalysis
from .content import WhatIf
from .records import NoiseBudget

LEAST_GAIN = 0.5
"""Gain in dB from which a change is worth a line."""

SETS = (1, 2, 4, 8)
"""How many of the noisiest nodes are kept float, in turn."""

NOISE_CODES = (ReasonCode.NOISE_BUDGET, ReasonCode.NOISE_LIMIT, ReasonCode.CHEAP_FIRST_LAYER)
"""Reasons of nodes that stay float for the quality of the outputs."""

MOST_RECALIBRATED = 600
"""Quantized tensors of a model up to which other calibrators are tried: each is calibrated anew."""

OTHER_CALIBRATORS = ("minmax", "percentile", "mse")
"""Calibrators that are tried in place of the plan's; kl takes its time, and is better by chance alone."""


@dataclass(frozen=True)
class Files:
    """Names for commands.

    Attributes:
        model, profile, output: of the files of `qprof quantize`.
    """

    model: str
    profile: str
    output: str


@dataclass(frozen=True, eq=False)
class _Trial:
    """What a plan is estimated to be: SQNR of one output (dB), microseconds (None: unknown), bytes saved."""

    sqnr: float
    microseconds: float | None
    saved: float


def what_ifs(analysis: Analysis, budget: NoiseBudget | None, files: Files) -> tuple[WhatIf, ...]:
    """Return changes that would bring something, each planned and estimated as `qprof quantize` does it.

    Args:
        analysis: of the plan.
        budget: of the output with the lowest SQNR; None for no estimate.
        files: names for the commands.
    """
    noise = analysis.noise
    if noise is None or budget is None:
        return ()
    trials = _Trials(analysis, noise, budget.output, files)
    return (*_kept_float(trials, budget), *_all_quantized(trials), *_calibrators(trials))


class _Trials:
    """Makes plans and what-ifs of them, against the plan as it is."""

    def __init__(self, analysis: Analysis, noise: NoiseAnalysis, output: str, files: Files) -> None:
        self.analysis, self.noise, self.output, self.files = analysis, noise, output, files
        self.floats: FloatReasons = {
            name: entry.float_reason for name, entry in noise.plan.nodes.items() if entry.stays_float
        }
        table = noise.facts.recipe.costs
        graph = analysis.prepared.graph
        self.costs = None if table is None else CostModel(graph, noise.measured, table)
        self.now = self.of(noise.facts, noise.plan)

    def of(self, facts: PlanningFacts, plan: QuantPlan) -> _Trial | None:
        """Return what a plan of the contracted model is estimated to be; None where it has no noise."""
        known = self.noise.estimator
        estimator = NoiseEstimator(facts.activations, known.gains, known.errors)
        sqnr = estimator.estimated_sqnr(plan).get(self.output)
        if sqnr is None:
            return None
        graph = self.analysis.prepared.graph
        whole = expanded(plan, replace(self.noise.facts, graph=graph))
        microseconds = None
        if self.costs is not None:
            microseconds = total_microseconds(self.costs.costs(whole), graph, whole)
        return _Trial(sqnr, microseconds, saved_bytes(whole, graph))

    def made(self, floats: FloatReasons, facts: PlanningFacts | None = None) -> _Trial | None:
        """Return what a plan with these nodes in float is estimated to be; None where there is none."""
        facts = facts or self.noise.facts
        try:
            return self.of(facts, decide(facts, floats))
        except QprofError:
            return None

    def what_if(
        self, title: str, options: Sequence[str], trial: _Trial, nodes: tuple[str, ...] = ()
    ) -> WhatIf:
        """Return a trial as a record, with the command that does it."""
        assert self.now is not None
        added = speedup = None
        if trial.microseconds is not None and self.now.microseconds is not None and self.analysis.costs:
            model, costs = self.analysis.costs
            planned = total_microseconds(costs, self.analysis.graph, self.analysis.plan)
            added = trial.microseconds - self.now.microseconds
            speedup = sum(model.floating.values()) / max(planned + added, 1e-3)
        return WhatIf(
            title=title,
            command=command(self.analysis.plan, self.files, options),
            output=self.output,
            sqnr=trial.sqnr,
            gained=trial.sqnr - self.now.sqnr,
            speedup=speedup,
            added_us=added,
            added_bytes=round(self.now.saved - trial.saved),
            nodes=nodes,
        )


def _kept_float(trials: _Trials, budget: NoiseBudget) -> Iterator[WhatIf]:
    """Yield the noisiest nodes in float, more and more of them."""
    nodes = [part.node for part in budget.parts if part.node not in trials.floats]
    best = 0.0
    for count in SETS:
        if count > len(nodes) or (count > 1 and count > len(nodes) // 2):
            return
        kept = tuple(nodes[:count])
        why = {name: because(ReasonCode.BY_REQUEST, pattern=name) for name in kept}
        trial = trials.made({**trials.floats, **why})
        if trials.now is None or trial is None or trial.sqnr - trials.now.sqnr < best + LEAST_GAIN:
            continue
        best = trial.sqnr - trials.now.sqnr
        title = "Keep the noisiest node float" if count == 1 else f"Keep the {count} noisiest nodes float"
        options = [word for name in kept for word in ("--keep-float", name)]
        yield trials.what_if(title, options, trial, kept)


def _all_quantized(trials: _Trials) -> Iterator[WhatIf]:
    """Yield the plan in which nothing stays float for the quality of the outputs."""
    codes = {code.value for code in NOISE_CODES}
    noisy = tuple(name for name, reason in trials.floats.items() if reason.code.value in codes)
    trial = trials.made({n: r for n, r in trials.floats.items() if n not in noisy}) if noisy else None
    if trials.now is not None and trial is not None:
        title = "Quantize what stays float for quality"
        yield trials.what_if(title, ["--min-output-sqnr", "0"], trial, noisy)


def _calibrators(trials: _Trials) -> Iterator[WhatIf]:
    """Yield other calibrators, where they are estimated to be better."""
    facts = trials.noise.facts
    if len(trials.noise.plan.tensors) > MOST_RECALIBRATED:
        return
    for name in OTHER_CALIBRATORS:
        if name == facts.config.calibrator.partition(":")[0] or trials.now is None:
            continue
        config = replace(facts.config, calibrator=name)
        recipe = replace(facts.recipe, config=config)
        trial = trials.made(trials.floats, replace(facts, config=config, recipe=recipe, cache=RangeCache()))
        if trial is not None and trial.sqnr - trials.now.sqnr >= LEAST_GAIN:
            yield trials.what_if(f"Calibrate with {name}", ["--calibrator", name], trial)


def tried_changes(analysis: Analysis, verdict: Verdict, files: Files) -> Iterator[WhatIf]:
    """Yield the fixes of a verdict: those that were tried on samples have what they brought."""
    worst = verdict.worst
    for fix in verdict.fixes:
        gained = None if fix.sqnr is None or verdict.sqnr is None else fix.sqnr - verdict.sqnr
        kept = fix.settings.get("keep_float", ())
        nodes = kept if isinstance(kept, tuple) else ()
        yield WhatIf(
            title=_title_of(fix, nodes),
            command=command(analysis.plan, files, fix.options),
            output="" if worst is None else worst.output,
            sqnr=fix.sqnr,
            gained=gained,
            speedup=fix.speedup,
            added_us=None,
            added_bytes=None,
            nodes=nodes,
            is_measured=fix.is_measured,
        )


def _title_of(fix: Fix, nodes: tuple[str, ...]) -> str:
    if nodes:
        return "Keep one node float" if len(nodes) == 1 else f"Keep {len(nodes)} nodes float"
    if fix.check_speed:
        return "Measure speed, and keep float what is slower"
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in fix.settings.items()).capitalize()


def command(plan: QuantPlan, files: Files, more: Sequence[str]) -> str:
    """Return the command that makes a plan again, with more options."""
    words = ["qprof", "quantize", files.model, "--profile", files.profile, "-o", files.output]
    return shlex.join([*words, *_given(plan, {word for word in more if word.startswith("--")}), *more])


def _given(plan: QuantPlan, overruled: set[str]) -> list[str]:
    """Return the options for the settings of a plan that are not its target's."""
    try:
        usual = load_recipe(plan.config.target).config
    except QprofError:
        return []
    standard = load_recipe().config.target
    words = [] if plan.config.target == standard else ["--target", plan.config.target]
    for name, setting in settings().items():
        value, option = getattr(plan.config, name), f"--{name.replace('_', '-')}"
        if name == "target" or value == getattr(usual, name) or value is None:
            continue
        if setting.kind is tuple:
            words += [word for item in value for word in (option, str(item))]
        elif option not in overruled:
            words += [option, format(value, "g") if isinstance(value, float) else str(value)]
    return words
