"""Trials of a tuning: candidates become plans and models, which are run, scored and measured."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import onnxruntime as ort

from ...profiles.base.errors import ConfigError, ModelError, PlanError, WritingError
from ...profiles.records.profile import Profile
from ...profiles.runner.sample_pass import map_in_threads
from ...profiles.runtime.providers import check_provider
from ..evaluation.compare import class_axes
from ..evaluation.latency import measure
from ..evaluation.metrics.score import Score
from ..evaluation.options import QUICK
from ..evaluation.runtimes import open_session, run
from ..lowering.lower import lower
from ..lowering.written import Lowered
from ..model.files import model_bytes
from ..model.saving import save_model
from ..noise.activation_ranges import RangeCache
from ..plan.plan import Kind, QuantPlan
from ..plan.provenance import plan_digest
from ..planning.facts import PlanningFacts
from ..planning.plan_model import PlannedModel, model_facts, plan_from
from ..prepare.prepare import PreparedModel
from ..targets.config import DATA_FREE, with_limit
from ..targets.conformance import check_config, check_conformity
from ..targets.target import Recipe
from .candidates import Candidate, Forecast, Foresee, Measure, RankNodes, Request, Result, Trial, Try, Verify
from .fallback_nodes import plan_that_runs
from .quality import QualityTarget, Screened, int8_share, predicted_objective, score_model, screen_model
from .ranking import ranked_nodes
from .search import Outcome, Search
from .state import State, save_state
from .tuning_data import ScoringSamples, Split

KEPT_PLANS = 12
"""Plans that are kept between forecast and trial, the last ones."""

_CANNOT = (ConfigError, PlanError, ModelError)
"""What says of a candidate that it cannot be made or run."""


@dataclass(frozen=True, eq=False)
class TuningTask:
    """What is tuned: the same for all trials.

    Attributes:
        prepared: the prepared float model.
        profile, recipe: what plans are made from.
        target: the quality target and the objective.
        float_path: the float model's file.
        float_session: a session of it, on `target.threads` threads.
        plans: that were made last, by base name and nodes left float.
        facts: with which plans were made, by the settings that they depend on: what was calibrated and
            what else is known of tensors is kept from plan to plan.
    """

    prepared: PreparedModel
    profile: Profile
    recipe: Recipe
    target: QualityTarget
    float_path: Path
    float_session: ort.InferenceSession
    plans: dict[tuple[str, tuple[str, ...]], PlannedModel] = field(default_factory=dict)
    facts: dict[tuple[object, ...], PlanningFacts] = field(default_factory=dict)

    @property
    def provider(self) -> str:
        """Full name of the execution provider that runs all models."""
        return check_provider(self.target.provider)


def facts_of(task: TuningTask, candidate: Candidate) -> PlanningFacts:
    """Return what the plan of a candidate is made from.

    Raises:
        ConfigError: its settings do not go together.
    """
    config = task.recipe.config
    keep_float = (*config.keep_float, *candidate.keep_float)
    config = replace(config, **{**candidate.base.settings, "keep_float": keep_float})  # type: ignore[arg-type]
    if task.target.objective == "int8-share":  # integers are asked for, whatever time they take
        config = replace(config, cost_model="off")
    recipe = replace(task.recipe, config=check_config(config, task.recipe.target, candidate.base.name))
    usual = (config.mode in DATA_FREE, config.min_output_sqnr)
    if usual not in task.facts:
        task.facts[usual] = model_facts(task.prepared, task.profile, recipe, task.prepared.notes)
    known = task.facts[usual]
    ranges = (*usual, config.calibrator, config.schema)
    if ranges not in task.facts:
        shared = known.cache
        cache = RangeCache(shared.profiles, shared.densities, {}, shared.functions)
        task.facts[ranges] = replace(known, cache=cache)
    return replace(task.facts[ranges], recipe=recipe, config=with_limit(recipe.config))


def plan_of(task: TuningTask, candidate: Candidate) -> PlannedModel:
    """Return the verified plan of a candidate, with the model that it is lowered from, before it is run.

    Raises:
        ConfigError, PlanError: it cannot be made.
    """
    key = (candidate.base.name, candidate.keep_float)
    if key not in task.plans:
        _keep(task, candidate, plan_from(facts_of(task, candidate)))
    return task.plans[key]


def runnable_plan_of(task: TuningTask, candidate: Candidate) -> PlannedModel:
    """Return the plan of a candidate with the nodes in float that cannot be written or run.

    Raises:
        ConfigError, PlanError, ModelError: it cannot be made or run.
    """
    planned = plan_that_runs(facts_of(task, candidate), task.float_path)[0]
    _keep(task, candidate, planned)
    return planned


def _keep(task: TuningTask, candidate: Candidate, planned: PlannedModel) -> None:
    task.plans[candidate.base.name, candidate.keep_float] = planned
    for key in list(task.plans)[:-KEPT_PLANS]:
        del task.plans[key]


def forecast(task: TuningTask, candidate: Candidate) -> Forecast:
    """Return what is known of a candidate before it is run."""
    try:
        planned = plan_of(task, candidate)
    except _CANNOT:
        return Forecast("", 0.0)
    return Forecast(plan_digest(planned.plan), _predicted(task, planned))


def _predicted(task: TuningTask, planned: PlannedModel) -> float:
    size = model_bytes(task.float_path)
    return round(predicted_objective(planned, task.target.objective, task.profile, size), 4)


def try_candidates(
    task: TuningTask,
    candidates: Sequence[Candidate],
    samples: ScoringSamples,
    earlier: Sequence[Trial] = (),
) -> Iterator[Trial]:
    """Plan, lower, run and score candidates, several side by side; yield their trials in this order.

    A plan that cannot be made or run gives a trial with an error. A plan that equals one of the `earlier`
    trials, or an earlier one of these, is not run again: it takes their score. While one model runs, the
    next is planned and written.

    Raises:
        WritingError: a model cannot be written; that says nothing about the candidate.
        DataError: the outputs cannot be scored.
    """
    known = {trial.plan_digest: trial for trial in reversed(earlier)}
    parallel, within = _shares(task.target.side_by_side, len(candidates))
    with tempfile.TemporaryDirectory(prefix="qprof-", ignore_cleanup_errors=True) as folder:
        bench = _Bench(task, samples, Path(folder), within)
        begun = set(known)
        written = (_written(bench, candidate, place, begun) for place, candidate in enumerate(candidates))
        for ready, _ in map_in_threads(bench.screened, written, parallel, lambda: False):
            trial = _trial_of(bench, ready, known)
            known.setdefault(trial.plan_digest, trial)
            yield trial


def _shares(cores: int, candidates: int) -> tuple[int, int]:
    """Return how many trials run side by side, and how many samples of each."""
    parallel = max(1, min(cores, candidates))
    return parallel, max(1, cores // parallel)


@dataclass(frozen=True, eq=False)
class _Ready:
    """A candidate on its way: its plan, where its model is written, and what became of it."""

    candidate: Candidate
    planned: PlannedModel | None = None
    path: Path | None = None
    screened: Screened | None = None
    error: Exception | None = None


@dataclass(frozen=True, eq=False)
class _Bench:
    """Where candidates are run."""

    task: TuningTask
    samples: ScoringSamples
    folder: Path
    within: int

    def screened(self, ready: _Ready) -> _Ready:
        """Return a candidate with its score; called in a thread of its own."""
        if ready.path is None:
            return ready
        try:
            return replace(ready, screened=self.screen(ready.path))
        except ModelError as error:
            return replace(ready, error=error)

    def screen(self, path: Path) -> Screened:
        axes = class_axes(self.task.prepared.model, None, None)
        drop, provider = self.task.target.max_drop, self.task.provider
        return screen_model(path, self.samples, axes, drop, self.within, provider=provider)


def _written(bench: _Bench, candidate: Candidate, place: int, begun: set[str]) -> _Ready:
    """Return a candidate with its plan and the file of its model, where no equal plan was begun before."""
    path = bench.folder / f"trial-{place}.onnx"
    try:
        planned = plan_of(bench.task, candidate)
        digest = plan_digest(planned.plan)
        if digest in begun:
            return _Ready(candidate, planned)
        begun.add(digest)
        _write(bench.task, candidate, planned, path)
    except WritingError:
        raise
    except _CANNOT as error:
        return _Ready(candidate, error=error)
    return _Ready(candidate, planned, path)


def _write(task: TuningTask, candidate: Candidate, planned: PlannedModel, path: Path) -> None:
    try:
        save_model(lowered_for(task, planned).model, path)
    except WritingError as error:
        raise WritingError(
            f"trial '{candidate.base.name}': {error} for temporary files with TMPDIR, or make room; "
            "with a state file the tuning is resumed"
        ) from error


def _trial_of(bench: _Bench, ready: _Ready, known: dict[str, Trial]) -> Trial:
    """Return the trial of a candidate; one that failed is planned again with unfit nodes in float."""
    candidate, digest = ready.candidate, ""
    try:
        if ready.planned is not None and ready.error is None:
            digest = plan_digest(ready.planned.plan)
        if ready.screened is None and digest in known:
            return replace(known[digest], candidate=candidate)
        if ready.screened is None:
            planned = runnable_plan_of(bench.task, candidate)
            path = bench.folder / "again.onnx"
            _write(bench.task, candidate, planned, path)
            digest = plan_digest(planned.plan)
            ready = _Ready(candidate, planned, path, bench.screen(path))
        return _complete(bench.task, ready, digest)
    except WritingError:
        raise
    except _CANNOT as error:
        return Trial(candidate, None, None, 0, None, None, digest, str(error))


def _complete(task: TuningTask, ready: _Ready, digest: str) -> Trial:
    """Return the trial of a candidate whose model was run."""
    assert ready.planned is not None
    assert ready.screened is not None
    assert ready.path is not None
    value = None
    if task.target.objective == "size":
        value = size_ratio(task.float_path, ready.path)
    elif task.target.objective == "int8-share":
        value = int8_share(ready.planned.plan, ready.planned.graph, task.profile)
    return Trial(
        ready.candidate,
        ready.screened.score,
        value,
        quantized_nodes(ready.planned.plan),
        _predicted(task, ready.planned),
        ready.screened.sqnr,
        digest,
    )


def size_ratio(float_path: Path, quantized: Path) -> float:
    """Return how many times smaller a quantized model is than the float one."""
    return model_bytes(float_path) / model_bytes(quantized)


def lowered_for(task: TuningTask, planned: PlannedModel) -> Lowered:
    """Return the quantized model of a plan, with notes on what its target does not support as it stands.

    Raises:
        PlanError: the form cannot write it. ConfigError: its runtime would refuse it.
    """
    lowered = lower(planned.model, planned.plan)
    notes = check_conformity(lowered.model, task.recipe.target, "quantized model")
    return replace(lowered, notes=(*lowered.notes, *notes))


def quantized_nodes(plan: QuantPlan) -> int:
    """Return how many nodes compute in integers or have quantized weights."""
    return sum(entry.kind is not Kind.FLOAT for entry in plan.nodes.values())


def measured_speedup(task: TuningTask, candidate: Candidate, samples: ScoringSamples) -> float:
    """Return how many times as fast as the float model a candidate's model is, measured in turns.

    Raises:
        ConfigError, PlanError, ModelError: it cannot be made or run.
    """
    with tempfile.TemporaryDirectory(prefix="qprof-", ignore_cleanup_errors=True) as folder:
        path = Path(folder) / "measured.onnx"
        _write(task, candidate, plan_of(task, candidate), path)
        session = open_session(str(path), "quantized model", task.target.threads, provider=task.provider)
    feeds = [sample.arrays for sample in samples.samples[: QUICK.samples]]
    names = [output.name for output in session.get_outputs()]
    return measure(
        lambda index: run(task.float_session, names, feeds[index], "float model"),
        lambda index: run(session, names, feeds[index], "quantized model"),
        len(feeds),
        replace(QUICK, threads=task.target.threads),
    ).speedup


# The requests of a search, answered: from the state of an interrupted tuning, or by running models.

OnTrial = Callable[[int, Trial, bool], None]
"""Called after each trial with its number, the trial, and whether it came from the state file."""


@dataclass(eq=False)
class Runner:
    """What answers requests.

    Attributes:
        task: what is tuned.
        split: the samples.
        state: what was answered so far.
        state_path: where that is kept.
        deadline: time of `time.monotonic` after which no trial starts.
        on_trial: called after each trial.
        seen: how many trials the search has been sent.
        finished: whether no request came too late.
    """

    task: TuningTask
    split: Split
    state: State
    state_path: Path | None
    deadline: float | None
    on_trial: OnTrial | None = None
    seen: int = 0
    finished: bool = True

    def outcome(self, search: Search) -> Outcome:
        """Answer all requests of a search and return what it ends with."""
        try:
            request = next(search)
            while True:
                request = search.send(self._answer(request))
        except StopIteration as end:
            outcome: Outcome = end.value
            return outcome

    def _answer(self, request: Request) -> Result:
        if isinstance(request, Try):
            return self._trials(request)
        known: Result = self.state.answer(request)
        if known is not None:
            return known
        if isinstance(request, Foresee | RankNodes) and self.seen and self._is_late():
            return None
        answer: Result = self._found(request)
        self._remember(self.state.with_answer(request, answer))
        return answer

    def _found(self, request: Foresee | RankNodes | Measure | Verify) -> Any:
        tuning = self.split.tuning
        if isinstance(request, Foresee):
            return tuple(forecast(self.task, candidate) for candidate in request.candidates)
        planned = self.plan_of_trial(request.candidate)
        if isinstance(request, RankNodes):
            return ranked_nodes(planned, tuning, self.task.target.side_by_side, self.task.provider)
        if isinstance(request, Measure):
            return measured_speedup(self.task, request.candidate, tuning)
        return self._verified(planned)

    def _trials(self, request: Try) -> tuple[Trial, ...] | None:
        """Return the trials of candidates, those from the state first in being told of."""
        new = [c for c in request.candidates if self.state.trial(c) is None]
        for candidate in request.candidates:
            trial = self.state.trial(candidate)
            if trial is not None:
                self._tell(trial, is_resumed=True)
        if new and self.seen and self._is_late():
            return None
        for trial in try_candidates(self.task, new, self.split.tuning, self.state.trials) if new else ():
            self._remember(self.state.with_trial(trial))
            self._tell(trial, is_resumed=False)
        found = (self.state.trial(candidate) for candidate in request.candidates)
        return tuple(trial for trial in found if trial is not None)

    def plan_of_trial(self, candidate: Candidate) -> PlannedModel:
        """Return the plan that a candidate was tried with.

        Raises:
            ConfigError: its settings give another one, as a state file may say.
        """
        trial = self.state.trial(candidate)
        planned = plan_of(self.task, candidate)
        if trial is not None and plan_digest(planned.plan) != trial.plan_digest:
            planned = runnable_plan_of(self.task, candidate)
        if trial is not None and plan_digest(planned.plan) != trial.plan_digest:
            where = "the best trial" if self.state_path is None else str(self.state_path)
            raise ConfigError(
                f"{where}: was scored with another plan than its settings give now; delete the state and "
                "tune again"
            )
        return planned

    def _verified(self, planned: PlannedModel) -> Score:
        with tempfile.TemporaryDirectory(prefix="qprof-", ignore_cleanup_errors=True) as folder:
            path = Path(folder) / "held-out.onnx"
            save_model(lowered_for(self.task, planned).model, path)
            task, holdout = self.task, self.split.holdout
            return score_model(path, holdout, 1, task.target.side_by_side, provider=task.provider)

    def _is_late(self) -> bool:
        late = self.deadline is not None and time.monotonic() >= self.deadline
        self.finished = self.finished and not late
        return late

    def _remember(self, state: State) -> None:
        self.state = state
        if self.state_path is not None:
            save_state(state, self.state_path)

    def _tell(self, trial: Trial, *, is_resumed: bool) -> None:
        self.seen += 1
        if self.on_trial is not None:
            self.on_trial(self.seen, trial, is_resumed)
