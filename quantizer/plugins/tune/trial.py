"""The trials of a tuning: a candidate's settings become a plan, and the plan a model that is run and scored.

candidate ─► predicted     its objective, before anything is run
    └─────► make ─► judge  its plan; the score, the noise and the objective of its model
                      └──► look    its score on the held-out samples
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import onnxruntime as ort

from ....profiles.base.errors import PlanError, WritingError
from ....profiles.base.improvement import improved, leave_out
from ....profiles.base.output_files import temporary_folder
from ....profiles.records.profile import Profile
from ....profiles.runtime.providers import CPU, check_provider, cores
from ...costs.predicted import CostModel, total_microseconds
from ...evaluation.latency import measure
from ...evaluation.metrics.relative import noise_share
from ...evaluation.metrics.score import Score
from ...evaluation.options import QUICK
from ...evaluation.runtimes import as_programs_run, open_session, run
from ...lowering.lower import lower
from ...lowering.lowered import LoweredModel
from ...model.files import model_bytes
from ...model.saving import save_model
from ...noise.activation_ranges import RangeCache
from ...noise.class_axes import ClassAxis, class_axes
from ...plan.plan import Kind
from ...plan.provenance import plan_digest
from ...planning.facts import PlanningFacts
from ...planning.known import NOTHING, Known
from ...planning.plan_model import PlannedModel, model_facts, plan_from
from ...prepare.prepare import PreparedModel
from ...search.fallback_nodes import plan_that_runs
from ...search.integer_share import int8_share, saved_bytes
from ...search.loop import CANDIDATE_ERRORS
from ...search.ranking import RankedNode, ranked_nodes
from ...search.run_samples import outputs_of
from ...targets.config import DATA_FREE
from ...targets.conformance import check_conformity
from ...targets.loading import Settings, with_settings
from ...targets.machine import runs_here
from ...targets.target import Recipe
from .tune_options import QualityTarget
from .tuning_data import ScoringSamples, Split

FIRST_SHARE, MIN_FIRST_SAMPLES = 3, 8  # the first third of the samples are scored first, and at least 8

NOISE_SAMPLES = 8
"""Samples, from the first, on which the noise of the outputs is measured: it differs little between them."""

KEPT_PLANS = 4  # plans that are kept between prediction and trial, the last ones


@dataclass(frozen=True)
class Candidate:
    """One plan to try."""

    name: str  # of its settings, for people
    settings: Settings = field(default_factory=dict)  # those that differ from the recipe's
    keep_float: tuple[str, ...] = ()  # nodes that are left float besides those of the recipe

    @property
    def key(self) -> tuple[str, tuple[str, ...]]:
        """Which plan it is."""
        return self.name, self.keep_float

    def __str__(self) -> str:
        """Return it in a few words."""
        count = len(self.keep_float)
        return self.name + (f", {count} node{'s' if count > 1 else ''} float" if count else "")


@dataclass(frozen=True)
class Trial:
    """The result of one candidate."""

    candidate: Candidate
    # On the tuning samples, or the first of them if these show that the target is missed; None if it failed.
    score: Score | None
    value: float | None  # of the objective, larger is better
    quantized_nodes: int  # number of nodes that compute in integers or have quantized weights
    predicted: float | None  # the objective as it is predicted, before anything is run
    sqnr: float | None  # dB, of the worst group of channels of the worst output; None if nothing differs
    plan_digest: str = ""  # identifies the plan; equal plans are run once
    error: str = ""  # why there is no score; "" otherwise

    @property
    def drop(self) -> float:
        """Drop of the score in percentage points; inf for a plan that could not be tried."""
        return math.inf if self.score is None else self.score.drop

    @property
    def noise(self) -> float:
        """Noise over signal in the worst group of channels; 0 if nothing differs."""
        return 0.0 if self.sqnr is None else 10.0 ** (-self.sqnr / 10.0)

    def meets(self, max_drop: float) -> bool:
        """Return whether it meets the target: its drop is at most `max_drop`, and some node is quantized."""
        return self.drop <= max_drop and self.quantized_nodes > 0


OnTrial = Callable[[int, Trial], None]
"""Called after each trial with its number and the trial."""


@dataclass(eq=False)
class TuningRun:
    """Plans of one float model that are made, run, scored and measured."""

    path: Path
    prepared: PreparedModel  # what plans are made from; the settings of candidates change the recipe's
    profile: Profile
    recipe: Recipe
    target: QualityTarget
    float_session: ort.InferenceSession  # a session of the float model, on `target.threads` threads
    split: Split
    deadline: float | None = None  # time of `time.process_time` after which no trial starts; None for none
    on_trial: OnTrial | None = None
    trials: list[Trial] = field(default_factory=list)  # all of them, in order, failed ones too
    finished: bool = True  # whether nothing was left out as the time was up
    _facts: dict[tuple[object, ...], PlanningFacts] = field(default_factory=dict, init=False)
    _ranges: dict[tuple[str, str], RangeCache] = field(default_factory=dict, init=False)
    _plans: dict[tuple[str, tuple[str, ...]], PlannedModel] = field(default_factory=dict, init=False)
    _known: dict[tuple[str, tuple[str, ...]], Known] = field(default_factory=dict, init=False)

    @property
    def provider(self) -> str:
        """Full name of the execution provider that runs all models."""
        return check_provider(self.target.provider)

    @property
    def is_elsewhere(self) -> bool:
        """Whether the target is another runtime than that which runs models here (`runs_here`)."""
        return not runs_here(self.recipe.target.name, provider=self.provider)

    def goes_on(self) -> bool:
        """Return whether there is time for something new; the first trial is run in any case."""
        if self.trials and self.deadline is not None and time.process_time() >= self.deadline:
            self.finished = False
        return self.finished

    # Plans.

    def facts(self, candidate: Candidate) -> PlanningFacts:
        """Return the facts of a candidate's plan; ConfigError if its settings contradict each other."""
        floats = {"keep_float": candidate.keep_float} if candidate.keep_float else {}
        recipe = with_settings(self.recipe, {**candidate.settings, **floats}, candidate.name)
        config = recipe.config
        # What is said of limits, and which chains are planned as one node, depends on these alone.
        key = (
            config.mode in DATA_FREE,
            config.min_output_sqnr,
            config.tolerance,
            config.form,
            config.cost_model,
        )
        if key not in self._facts:
            self._facts[key] = model_facts(self.prepared, self.profile, recipe, self.prepared.findings)
        shared = next(iter(self._facts.values())).range_cache
        ranges = self._ranges.setdefault(
            (config.calibrator, config.schema),
            RangeCache(shared.profiles, shared.densities, {}, shared.functions),
        )
        facts = self._facts[key]
        return replace(facts, recipe=recipe, range_cache=ranges)

    def planned(self, candidate: Candidate) -> PlannedModel:
        """Return the verified plan of a candidate, with the model that it is lowered from."""
        key = candidate.key
        if key not in self._plans:
            self._plans[key] = plan_from(self.facts(candidate), self._known.get(key, NOTHING))
            for old in list(self._plans)[:-KEPT_PLANS]:
                del self._plans[old]
        return self._plans[key]

    def digest(self, planned: PlannedModel) -> str:
        """Return the digest of a plan, the same for equal plans."""
        return plan_digest(planned.plan)

    def prediction(self, candidate: Candidate) -> float | None:
        """Return the predicted objective of a candidate, larger is better, or None if no plan can be made."""
        try:
            return self._predicted(self.planned(candidate))
        except CANDIDATE_ERRORS:
            return None

    def _predicted(self, planned: PlannedModel) -> float:
        """Return the predicted value of the objective for a plan; larger is better."""
        plan, graph, facts = planned.plan, planned.graph, planned.facts
        if self.target.optimised == "size":
            float_bytes = model_bytes(self.path)
            return round(float_bytes / max(1.0, float_bytes - saved_bytes(plan, graph)), 4)
        table = None if facts is None or self.target.optimised == "int8-share" else facts.recipe.costs
        if facts is None or planned.file_costs is None or table is None:
            return round(int8_share(plan, graph, self.profile), 4)
        model = CostModel(graph, facts.profile, table)
        total = total_microseconds(model.costs(plan), graph, plan)
        return round(planned.file_costs.float_time_of_run / max(total, 1e-3), 4)

    def ranking(self, candidate: Candidate) -> tuple[RankedNode, ...]:
        """Return the quantized nodes of a candidate's plan, those first whose noise is worth most time."""
        ranked = partial(ranked_nodes, self.planned(candidate), self.split.tuning, provider=self.provider)
        return improved("ranking of the nodes by their noise", ranked, ())[0]

    def lowered(self, planned: PlannedModel) -> LoweredModel:
        """Return the quantized model of a plan, with findings on parts that its target does not support."""
        lowered = lower(planned.model, planned.plan)
        findings = check_conformity(lowered.model, self.recipe.target, "quantized model")
        return replace(lowered, findings=(*lowered.findings, *findings))

    # Trials: the functions of `Loop`.

    def make(self, candidate: Candidate) -> PlannedModel:
        """Return the plan of a candidate; see `Loop.make`."""
        with self._failures_told(candidate):
            return self.planned(candidate)

    def judge(self, candidate: Candidate, planned: PlannedModel, best: Trial) -> Trial:
        """Return the trial of a plan; see `Loop.judge`."""
        with self._failures_told(candidate):
            try:
                trial = self._trial(candidate, planned)
            except WritingError:
                raise
            except CANDIDATE_ERRORS:
                self._known[candidate.key] = plan_that_runs(self.facts(candidate), self.path).known
                self._plans.pop(candidate.key, None)
                trial = self._trial(candidate, self.planned(candidate))
        self._tell(trial)
        return trial

    def look(self, candidate: Candidate) -> Score:
        """Return the score of a candidate's model on the held-out samples."""
        planned, holdout = self.planned(candidate), self.split.holdout
        with temporary_folder() as folder:
            path = self._written(planned, folder)
            session = open_session(
                str(path), "quantized model", provider=self.provider, dequantized=self.is_elsewhere
            )
            return holdout.score(outputs_of(session, holdout.samples, "quantized model", cores()))

    def _trial(self, candidate: Candidate, planned: PlannedModel) -> Trial:
        tuning, target = self.split.tuning, self.target
        quantized = sum(entry.kind is not Kind.FLOAT for entry in planned.plan.nodes.values())
        value = None
        with temporary_folder() as folder:
            path = self._written(planned, folder)
            axes = class_axes(self.prepared.model)
            score, sqnr = screen_model(
                path, tuning, axes, target.max_drop, provider=self.provider, dequantized=self.is_elsewhere
            )
            if target.optimised == "size":
                value = size_ratio(self.path, path)
            elif target.optimised == "int8-share":
                value = int8_share(planned.plan, planned.graph, self.profile)
            elif score.drop <= target.max_drop and quantized:
                value = self._speedup(path)
        predicted, digest = self._predicted(planned), self.digest(planned)
        return Trial(candidate, score, value, quantized, predicted, sqnr, digest)

    def _speedup(self, path: Path) -> float:
        """Return how many times as fast as the float model a model is, measured in turns."""
        threads = self.target.threads
        session = open_session(str(path), "quantized model", threads, provider=self.provider, timed=True)
        feeds = [sample.arrays for sample in self.split.tuning.samples[: QUICK.samples]]
        names = [output.name for output in session.get_outputs()]
        timed, arrays = as_programs_run(session, feeds)
        return measure(
            lambda index: run(self.float_session, names, feeds[index], "float model"),
            lambda index: run(timed, names, arrays[index], "quantized model"),
            len(feeds),
            replace(QUICK, threads=threads),
        ).speedup

    def _written(self, planned: PlannedModel, folder: Path) -> Path:
        """Write the model of a plan; return its file."""
        path = folder / "trial.onnx"
        save_model(self.lowered(planned).model, path)
        return path

    @contextmanager
    def _failures_told(self, candidate: Candidate) -> Iterator[None]:
        """Record the failure of a candidate as its trial; a bug in qprof only loses this candidate."""
        try:
            yield
        except WritingError:
            raise
        except CANDIDATE_ERRORS as error:
            self._tell(_failed(candidate, str(error)))
            raise
        except Exception as error:
            text = str(leave_out(f"candidate '{candidate.name}'", error))
            self._tell(_failed(candidate, text))
            raise PlanError(text) from error

    def _tell(self, trial: Trial) -> None:
        self.trials.append(trial)
        if self.on_trial is not None:
            self.on_trial(len(self.trials), trial)


def _failed(candidate: Candidate, error: str) -> Trial:
    return Trial(candidate, None, None, 0, None, None, error=error)


def size_ratio(float_path: Path, quantized: Path) -> float:
    """Return how many times smaller a quantized model is than the float one."""
    return model_bytes(float_path) / model_bytes(quantized)


def screen_model(
    path: Path,
    samples: ScoringSamples,
    axes: Mapping[str, ClassAxis],
    max_drop: float,
    *,
    provider: str = CPU,
    dequantized: bool = False,
) -> tuple[Score, float | None]:
    """Return a model's score, and the SQNR (dB) of the worst channel group of its worst output, or None.

    If the first third shows a drop whose 95 % interval is above `max_drop`, the others are not run. One
    thread runs the model, so that its sums do not depend on the number of cores.
    """
    session = open_session(str(path), "quantized model", provider=provider, dequantized=dequantized)
    count = len(samples.samples)
    first = max(MIN_FIRST_SAMPLES, -(-count // FIRST_SHARE))
    places = range(min(first, count))
    outputs = outputs_of(session, samples.samples[: len(places)], "quantized model", cores())
    few = min(NOISE_SAMPLES, count)
    noise = noise_share(samples.float_outputs[:few], outputs[:few], axes)
    score = samples.subset(places).score(outputs)
    if len(places) < count and score.drop_low <= max_drop:
        outputs += outputs_of(session, samples.samples[len(places) :], "quantized model", cores())
        score = samples.score(outputs)
    return score, rounded_sqnr(noise)


def rounded_sqnr(noise: float) -> float | None:
    """Return the SQNR in dB, to hundredths and within 300, of noise over signal; None for no noise."""
    return round(max(-300.0, -10.0 * math.log10(min(noise, 1e300))), 2) if noise > 0.0 else None
