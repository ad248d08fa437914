"""What other settings would bring: plans that are made and estimated, with a command for each. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ...profiles.base.errors import QprofError
from ..costs.predicted import CostModel, total_microseconds
from ..model.folders import quantized_name
from ..noise.activation_ranges import RangeCache
from ..operators.graph import Graph
from ..plan.plan import Kind, QuantPlan
from ..plan.reasons import FloatReasons, ReasonCode, because
from ..planning.chains import expanded
from ..planning.coarse_steps import too_coarse
from ..planning.facts import PlanningFacts
from ..planning.hybrid import with_int8_weights
from ..planning.planner import decide
from ..search.candidates import Settings
from ..search.engine import OTHER_CALIBRATORS, with_settings
from ..search.integer_share import saved_bytes
from ..search.verdict import Verdict
from ..targets.config import QuantConfig, settings, with_limit
from ..targets.loading import load_recipe
from .content import NoiseBudget, WhatIf
from .estimates import Analysis, NoiseAnalysis

MIN_GAIN_DB = 0.5
"""Gain in dB from which a change is worth a line."""

MUCH_FASTER = 1.1
"""Times as fast from which a change is worth a line although it costs quality."""

NODES_KEPT_FLOAT = (1, 2, 4, 8)
"""How many of the noisiest nodes are kept float, in turn."""

MAX_RECALIBRATED = 600
"""Quantized tensors of a model up to which other calibrators are tried: each is calibrated anew."""


@dataclass(frozen=True)
class FileNames:
    """How files are named in titles and commands.

    Attributes:
        model, profile, output: of the files of `qprof quantize`; "" for a file that there is not.
        command_line: words of the command line that quantized the model and gave it a verdict. Commands to
            try repeat them, so that what they make gets a verdict as well; () for commands that take the
            profile.
    """

    model: str = ""
    profile: str = ""
    output: str = ""
    command_line: tuple[str, ...] = ()


NOT_REPEATED = ("-o", "--output", "--report", "--save-plan", "--checkpoint", "--fix")
"""Options with a value that commands to try do not repeat: the files of the first model stay as they are."""

REPEATABLE = ("--keep-float", "--keep-16bit", "--set")
"""Options that add names to those that the command line has already."""


QUALITY_REASONS = (
    ReasonCode.NOISE_BUDGET,
    ReasonCode.NOISE_LIMIT,
    ReasonCode.MEASURED_NOISE,
    ReasonCode.CHEAP_FIRST_LAYER,
)
"""Reasons of nodes that stay float for the quality of the outputs."""


@dataclass(frozen=True)
class Estimate:
    """What is expected of a plan before it is run.

    Attributes:
        sqnr: of the output that is asked about, in dB.
        microseconds: of all its nodes; None for a target without a table of times.
        saved: bytes that its constants need less than in float.
    """

    sqnr: float
    microseconds: float | None
    saved: float


class PlanEstimates:
    """Estimates of an existing plan, which a person may have edited, and of changes to it. Nothing is run.

    Where a search plans everything anew (`search.engine`), here each node stays what it is in the plan,
    unless the change is about it.

    Args:
        noise: the plan with a node in the place of each chain, what it was made from, and its estimator.
        graph: the prepared model, chains and all: times and sizes are those of its nodes.
        output: whose SQNR is estimated.
    """

    def __init__(self, noise: NoiseAnalysis, graph: Graph, output: str) -> None:
        self._noise, self._graph, self._output = noise, graph, output
        table, nodes = noise.facts.recipe.costs, noise.plan.nodes
        self._costs = None if table is None else CostModel(graph, noise.measured, table)
        self._float_reasons: FloatReasons = {n: e.float_reason for n, e in nodes.items() if e.stays_float}
        self.wholly_float = {name for name, entry in nodes.items() if entry.kind is Kind.FLOAT}
        self.now = self._estimate(noise.facts, noise.plan)

    @property
    def float_for_quality(self) -> tuple[str, ...]:
        """The nodes that stay float for the quality of the outputs: those that no limit would quantize."""
        codes = {code.value for code in QUALITY_REASONS}
        return tuple(name for name, reason in self._float_reasons.items() if reason.code.value in codes)

    def changed(self, changes: Settings) -> Estimate | None:
        """Return the estimate of the plan with other settings; None where there is no such plan.

        Args:
            changes: "keep_float" leaves nodes float, weights and all; "min_output_sqnr" 0 quantizes what is
                float for quality; all else calibrates the tensors anew.
        """
        reasons, wholly_float, facts = dict(self._float_reasons), set(self.wholly_float), self._noise.facts
        others = dict(changes)
        kept_float = others.pop("keep_float", ())
        if isinstance(kept_float, tuple):
            reasons |= {name: because(ReasonCode.BY_REQUEST, pattern=name) for name in kept_float}
            wholly_float.update(kept_float)
        if others.pop("min_output_sqnr", None) == 0.0:
            reasons = {name: reasons[name] for name in reasons if name not in self.float_for_quality}
        try:
            if others:
                recipe = with_settings(facts.recipe, others, "change")
                config = with_limit(recipe.config)
                changed = replace(facts, recipe=recipe, config=config, range_cache=RangeCache())
                facts = changed.with_derived_of(facts)
            return self._estimate(
                facts, with_int8_weights(facts, decide(facts, reasons, [too_coarse]), without=wholly_float)
            )
        except QprofError:
            return None

    def _estimate(self, facts: PlanningFacts, plan: QuantPlan) -> Estimate | None:
        """Return the estimate of a plan of the contracted model; None where it has no noise."""
        estimator = replace(self._noise.estimator, activations=facts.activations)
        sqnr = estimator.estimated_sqnr(plan).get(self._output)
        if sqnr is None:
            return None
        expanded_plan = expanded(plan, replace(self._noise.facts, graph=self._graph))
        microseconds = None
        if self._costs is not None:
            microseconds = total_microseconds(self._costs.costs(expanded_plan), self._graph, expanded_plan)
        return Estimate(sqnr, microseconds, saved_bytes(expanded_plan, self._graph))


def suggestions(analysis: Analysis, budget: NoiseBudget | None) -> tuple[WhatIf, ...]:
    """Return changes that would bring something, each planned and estimated as `qprof quantize` does it.

    More and more of the noisiest nodes in float; the plan in which nothing stays float for the quality of the
    outputs; and other calibrators, where they are estimated to be better.

    Args:
        analysis: of the plan.
        budget: of the output with the lowest SQNR; None for no estimate.
    """
    noise = analysis.noise
    if noise is None or budget is None:
        return ()
    plans = PlanEstimates(noise, analysis.prepared.graph, budget.output)
    now = plans.now
    if now is None:
        return ()

    def what_if(title: str, options: Sequence[str], found: Estimate, nodes: tuple[str, ...] = ()) -> WhatIf:
        added = speedup = None
        if found.microseconds is not None and now.microseconds is not None and analysis.costs:
            _, costs = analysis.costs
            planned = total_microseconds(costs, analysis.graph, analysis.plan)
            added = found.microseconds - now.microseconds
            speedup = analysis.file_us / max(planned + added, 1e-3)
        return WhatIf(
            title=title,
            command="",
            output=budget.output,
            sqnr=found.sqnr,
            gained=round(found.sqnr - now.sqnr, 2),
            speedup=speedup,
            added_us=added,
            added_bytes=round(now.saved - found.saved),
            nodes=nodes,
            options=tuple(options),
        )

    changes: list[WhatIf] = []
    noisiest, best = [part.node for part in budget.parts if part.node not in plans.wholly_float], 0.0
    for count in NODES_KEPT_FLOAT:
        if count > len(noisiest) or (count > 1 and count > len(noisiest) // 2):
            break
        kept = tuple(noisiest[:count])
        found = plans.changed({"keep_float": kept})
        if found is not None and found.sqnr - now.sqnr >= best + MIN_GAIN_DB:
            best = found.sqnr - now.sqnr
            title = "Keep the noisiest node float" if count == 1 else f"Keep the {count} noisiest nodes float"
            options = [word for name in kept for word in ("--keep-float", name)]
            changes.append(what_if(title, options, found, kept))

    quantized = plans.float_for_quality
    found = plans.changed({"min_output_sqnr": 0.0}) if quantized else None
    if found is not None:
        title = "Quantize what stays float for quality"
        change = what_if(title, ["--min-output-sqnr", "0"], found, quantized)
        before, after = now.microseconds, found.microseconds
        much_faster = before is not None and after is not None and before >= MUCH_FASTER * after
        if much_faster or (change.gained or 0.0) >= 0.0:
            changes.append(change)

    if len(noise.plan.tensors) <= MAX_RECALIBRATED:
        for name in OTHER_CALIBRATORS:
            if name == noise.facts.config.calibrator.partition(":")[0]:
                continue
            found = plans.changed({"calibrator": name})
            if found is not None and found.sqnr - now.sqnr >= MIN_GAIN_DB:
                changes.append(what_if(f"Calibrate with {name}", ["--calibrator", name], found))
    return tuple(changes)


def tried_changes(verdict: Verdict) -> Iterator[WhatIf]:
    """Yield the fixes of a verdict: those that were tried on samples have what they brought."""
    worst = verdict.worst
    for fix in verdict.fixes:
        gained = None if fix.sqnr is None or verdict.sqnr is None else round(fix.sqnr - verdict.sqnr, 2)
        is_much_faster = (
            fix.speedup is not None
            and verdict.latency is not None
            and fix.speedup >= MUCH_FASTER * verdict.latency.speedup
        )
        if gained is not None and gained < 0.0 and not is_much_faster:
            continue
        kept = fix.settings.get("keep_float", ())
        nodes = kept if isinstance(kept, tuple) else ()
        if nodes:
            title = "Keep one node float" if len(nodes) == 1 else f"Keep {len(nodes)} nodes float"
        elif fix.check_speed:
            title = "Measure speed, and keep float what is slower"
        else:
            title = "; ".join(_setting_words(name, value) for name, value in fix.settings.items())
        yield WhatIf(
            title=title,
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


def _setting_words(name: str, value: str | float | tuple[str, ...]) -> str:
    """Return a setting in words."""
    if name == "min_output_sqnr":
        return f"Limit of {value:g} dB for outputs"
    if name == "calibrator":
        return f"Calibrate with {value}"
    if name == "keep_16bit" and isinstance(value, tuple):
        return f"Activations of {'one node' if len(value) == 1 else f'{len(value)} nodes'} in 16 bits"
    return f"Setting {name}: {value}"


def with_commands(plan: QuantPlan, names: FileNames, changes: Sequence[WhatIf]) -> tuple[WhatIf, ...]:
    """Return changes with the commands that make them, each into files of its own."""
    return tuple(
        replace(change, command=command(plan, names, change.options, number))
        for number, change in enumerate(changes, 1)
    )


def command(plan: QuantPlan, names: FileNames, added_options: Sequence[str], number: int) -> str:
    """Return the command that makes a plan again with more options, into another file.

    Its name is as in model.try1.int8.onnx, beside model.int8.onnx.
    """
    path = Path(names.output or quantized_name(names.model))
    stem, ending = path.stem, path.suffix
    if stem.endswith(".int8"):
        stem, ending = stem.removesuffix(".int8"), f".int8{ending}"
    output = str(path.with_name(f"{stem}.try{number}{ending}"))
    overruled = {word for word in added_options if word.startswith("--")}
    overruled |= {f"{word.partition('=')[0]}=" for word in added_options if "=" in word}  # of --set
    if names.command_line:
        left_out = {*overruled.difference(REPEATABLE), *NOT_REPEATED}
        repeated = _without_options(names.command_line, left_out)
        return shlex.join(["qprof", "quantize", *repeated, "-o", output, *added_options])
    words = ["qprof", "quantize", names.model, "--profile", names.profile, "-o", output]
    return shlex.join([*words, *_setting_options(plan, overruled), *added_options])


def _without_options(command_line: Sequence[str], left_out: Collection[str]) -> Iterator[str]:
    """Yield the words of a command line without some of its options and their values, and without --json."""
    words = iter(command_line)
    for word in words:
        name, equals, _ = word.partition("=")
        if name == "--check-speed" and name in left_out:  # a flag, which has no value
            continue
        if name in left_out:
            if not equals:
                next(words, None)
        elif name != "--json" and not (word.startswith("-o") and "-o" in left_out):
            yield word


def _setting_options(plan: QuantPlan, overruled: set[str]) -> list[str]:
    """Return the options for the settings of a plan that differ from those of its target."""
    try:
        usual = load_recipe(plan.config.target).config
    except QprofError:
        return []
    words = [] if plan.config.target == QuantConfig.target else ["--target", plan.config.target]
    for name, setting in settings().items():
        value = getattr(plan.config, name)
        if name == "target" or value == getattr(usual, name) or value is None:
            continue
        if setting.kind is tuple:
            words += [word for item in value for word in setting.given(str(item))]
        elif overruled.isdisjoint((setting.flag, f"{name}=")):
            words += setting.given(format(value, "g") if isinstance(value, float) else str(value))
    return words
