"""What other settings would bring: plans that are made and estimated, with a command for each. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ...profiles.base.errors import QprofError
from ..costs.predicted import CostModel, total_microseconds
from ..noise.activation_ranges import RangeCache
from ..noise.sources import NoiseEstimator
from ..plan.plan import Kind, QuantPlan
from ..plan.reasons import FloatReasons, ReasonCode, because
from ..planning.chains import expanded
from ..planning.facts import PlanningFacts
from ..planning.hybrid import with_int8_weights
from ..planning.planner import decide
from ..search.quality import saved_bytes
from ..search.verdict import Fix, Verdict
from ..targets.config import QuantConfig, settings
from ..targets.loading import load_recipe
from .content import NoiseBudget, WhatIf
from .estimates import Analysis, NoiseAnalysis

LEAST_GAIN = 0.5
"""Gain in dB from which a change is worth a line."""

MUCH_FASTER = 1.1
"""Times as fast from which a change is worth a line although it costs quality."""

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
        given: words of the command line that quantized and judged the model, which commands repeat, so that
            what they make is judged as well; () for commands that take the profile.
    """

    model: str
    profile: str
    output: str
    given: tuple[str, ...] = ()


NOT_REPEATED = ("-o", "--output", "--report", "--save-plan", "--checkpoint", "--fix")
"""Options with a value that commands to try do not repeat: the files of the judged model stay as they are."""

ADDED = ("--keep-float", "--keep-16bit")
"""Options that add names to those that are given."""


@dataclass(frozen=True, eq=False)
class _Trial:
    """What a plan is estimated to be: SQNR of one output (dB), microseconds (None: unknown), bytes saved."""

    sqnr: float
    microseconds: float | None
    saved: float


def suggestions(analysis: Analysis, budget: NoiseBudget | None) -> tuple[WhatIf, ...]:
    """Return changes that would bring something, each planned and estimated as `qprof quantize` does it.

    Args:
        analysis: of the plan.
        budget: of the output with the lowest SQNR; None for no estimate.
    """
    noise = analysis.noise
    if noise is None or budget is None:
        return ()
    trials = _Trials(analysis, noise, budget.output)
    return (*_kept_float(trials, budget), *_all_quantized(trials), *_calibrators(trials))


class _Trials:
    """Makes plans and what-ifs of them, against the plan as it is."""

    def __init__(self, analysis: Analysis, noise: NoiseAnalysis, output: str) -> None:
        self.analysis, self.noise, self.output = analysis, noise, output
        self.floats: FloatReasons = {
            name: entry.float_reason for name, entry in noise.plan.nodes.items() if entry.stays_float
        }
        self.whole = {name for name, entry in noise.plan.nodes.items() if entry.kind is Kind.FLOAT}
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

    def made(
        self, floats: FloatReasons, facts: PlanningFacts | None = None, *, whole: Collection[str] = ()
    ) -> _Trial | None:
        """Return what a plan with these nodes in float is estimated to be; None where there is none.

        Args:
            floats: the nodes, each with its reason; as in the plan, their weights are int8 where they can be.
            facts: other facts than those of the plan.
            whole: nodes whose weights are float too, besides those of the plan.
        """
        facts = facts or self.noise.facts
        try:
            plan = decide(facts, floats)
            return self.of(facts, with_int8_weights(facts, plan, without=self.whole.union(whole)))
        except QprofError:
            return None

    def what_if(
        self, title: str, options: Sequence[str], trial: _Trial, nodes: tuple[str, ...] = ()
    ) -> WhatIf:
        """Return a trial as a record, without a command."""
        assert self.now is not None
        added = speedup = None
        if trial.microseconds is not None and self.now.microseconds is not None and self.analysis.costs:
            model, costs = self.analysis.costs
            planned = total_microseconds(costs, self.analysis.graph, self.analysis.plan)
            added = trial.microseconds - self.now.microseconds
            speedup = sum(model.floating.values()) / max(planned + added, 1e-3)
        return WhatIf(
            title=title,
            command="",
            output=self.output,
            sqnr=trial.sqnr,
            gained=round(trial.sqnr - self.now.sqnr, 2),
            speedup=speedup,
            added_us=added,
            added_bytes=round(self.now.saved - trial.saved),
            nodes=nodes,
            options=tuple(options),
        )


def _kept_float(trials: _Trials, budget: NoiseBudget) -> Iterator[WhatIf]:
    """Yield the noisiest nodes in float, more and more of them."""
    nodes = [part.node for part in budget.parts if part.node not in trials.whole]
    best = 0.0
    for count in SETS:
        if count > len(nodes) or (count > 1 and count > len(nodes) // 2):
            return
        kept = tuple(nodes[:count])
        why = {name: because(ReasonCode.BY_REQUEST, pattern=name) for name in kept}
        trial = trials.made({**trials.floats, **why}, whole=kept)
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
        change = trials.what_if(
            "Quantize what stays float for quality", ["--min-output-sqnr", "0"], trial, noisy
        )
        before, after = trials.now.microseconds, trial.microseconds
        much_faster = before is not None and after is not None and before >= MUCH_FASTER * after
        if much_faster or (change.gained or 0.0) >= 0.0:
            yield change


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


def tried_changes(verdict: Verdict) -> Iterator[WhatIf]:
    """Yield the fixes of a verdict: those that were tried on samples have what they brought."""
    worst = verdict.worst
    for fix in verdict.fixes:
        gained = None if fix.sqnr is None or verdict.sqnr is None else round(fix.sqnr - verdict.sqnr, 2)
        if gained is not None and gained < 0.0 and not _is_much_faster(fix, verdict):
            continue
        kept = fix.settings.get("keep_float", ())
        nodes = kept if isinstance(kept, tuple) else ()
        yield WhatIf(
            title=_title_of(fix, nodes),
            command="",
            output="" if worst is None else worst.output,
            sqnr=fix.sqnr,
            gained=gained,
            speedup=fix.speedup,
            added_us=None,
            added_bytes=None,
            nodes=nodes,
            is_measured=fix.is_measured,
            options=fix.options,
        )


def _is_much_faster(fix: Fix, verdict: Verdict) -> bool:
    if fix.speedup is None or verdict.latency is None:
        return False
    return fix.speedup >= MUCH_FASTER * verdict.latency.speedup


def _title_of(fix: Fix, nodes: tuple[str, ...]) -> str:
    if nodes:
        return "Keep one node float" if len(nodes) == 1 else f"Keep {len(nodes)} nodes float"
    if fix.check_speed:
        return "Measure speed, and keep float what is slower"
    return "; ".join(_setting_words(name, value) for name, value in fix.settings.items())


def _setting_words(name: str, value: str | float | tuple[str, ...]) -> str:
    """Return a setting in words."""
    if name == "min_output_sqnr":
        return f"Limit of {value:g} dB for outputs"
    if name == "calibrator":
        return f"Calibrate with {value}"
    if name == "keep_16bit" and isinstance(value, tuple):
        return f"Activations of {'one node' if len(value) == 1 else f'{len(value)} nodes'} in 16 bits"
    return f"Setting {name}: {value}"


def with_commands(plan: QuantPlan, files: Files, changes: Sequence[WhatIf]) -> tuple[WhatIf, ...]:
    """Return changes with the commands that make them, each into files of its own."""
    return tuple(
        replace(change, command=command(plan, files, change.options, number))
        for number, change in enumerate(changes, 1)
    )


def command(plan: QuantPlan, files: Files, more: Sequence[str], number: int) -> str:
    """Return the command that makes a plan again, with more options, into other files."""
    output = _tried_name(files.output, number)
    overruled = {word for word in more if word.startswith("--")}
    if files.given:
        words = _repeated(files.given, {*overruled.difference(ADDED), *NOT_REPEATED})
        return shlex.join(["qprof", "quantize", *words, "-o", output, *more])
    words = ["qprof", "quantize", files.model, "--profile", files.profile, "-o", output]
    return shlex.join([*words, *_given(plan, overruled), *more])


def _tried_name(output: str, number: int) -> str:
    """Return the name of another file beside one, as in model.try1.int8.onnx."""
    path = Path(output)
    stem, ending = path.stem, path.suffix
    if stem.endswith(".int8"):
        stem, ending = stem.removesuffix(".int8"), f".int8{ending}"
    return str(path.with_name(f"{stem}.try{number}{ending}"))


def _repeated(given: Sequence[str], left_out: Collection[str]) -> list[str]:
    """Return the words of a command line without some of its options, and --json."""
    found, words = [], iter(given)
    for word in words:
        name, equals, _ = word.partition("=")
        if name == "--check-speed" and name in left_out:  # a flag
            continue
        if name in left_out:
            if not equals:
                next(words, None)
        elif name != "--json" and not (word.startswith("-o") and "-o" in left_out):
            found.append(word)
    return found


def _given(plan: QuantPlan, overruled: set[str]) -> list[str]:
    """Return the options for the settings of a plan that are not its target's."""
    try:
        usual = load_recipe(plan.config.target).config
    except QprofError:
        return []
    words = [] if plan.config.target == QuantConfig.target else ["--target", plan.config.target]
    for name, setting in settings().items():
        value, option = getattr(plan.config, name), f"--{name.replace('_', '-')}"
        if name == "target" or value == getattr(usual, name) or value is None:
            continue
        if setting.kind is tuple:
            words += [word for item in value for word in (option, str(item))]
        elif option not in overruled:
            words += [option, format(value, "g") if isinstance(value, float) else str(value)]
    return words
