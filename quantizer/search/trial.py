"""The requests of a search, answered: from the state of an interrupted tuning, or by running models."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import onnxruntime as ort

from ...profiles.base.errors import ConfigError
from ...profiles.base.improvement import improvement
from ...profiles.runtime.providers import check_provider
from ..evaluation.compare import class_axes
from ..evaluation.latency import measure
from ..evaluation.metrics.score import Score
from ..evaluation.options import QUICK
from ..evaluation.runtimes import as_programs_run, open_session, run
from ..model.files import model_bytes
from ..model.saving import save_model
from ..plan.plan import Kind
from ..plan.provenance import plan_digest
from ..planning.plan_model import PlannedModel
from .candidates import Candidate, Forecast, Foresee, Measure, RankNodes, Request, Result, Trial, Try, Verify
from .engine import CANNOT, Engine
from .options import QualityTarget
from .quality import int8_share, score_model, screen_model
from .ranking import ranked_nodes
from .search import Outcome, Search
from .state import State, save_state
from .tuning_data import ScoringSamples, Split

OnTrial = Callable[[int, Trial, bool], None]
"""Called after each trial with its number, the trial, and whether it came from the state file."""


@dataclass(frozen=True, eq=False)
class TuningTask:
    """What is tuned: the same for all trials.

    Attributes:
        engine: makes plans and models of the float model.
        target: the quality target and the objective.
        float_session: a session of the float model, on `target.threads` threads.
    """

    engine: Engine
    target: QualityTarget
    float_session: ort.InferenceSession

    @property
    def provider(self) -> str:
        """Full name of the execution provider that runs all models."""
        return check_provider(self.target.provider)

    def predicted(self, planned: PlannedModel) -> float:
        """Return the value of the objective as it is predicted of a plan."""
        return round(self.engine.predicted(planned, self.target.objective), 4)


def forecast(task: TuningTask, candidate: Candidate) -> Forecast:
    """Return what is known of a candidate before it is run."""
    with improvement(f"forecast of '{candidate.base.name}'"), suppress(*CANNOT):
        planned = task.engine.planned(candidate)
        return Forecast(plan_digest(planned.plan), task.predicted(planned))
    return Forecast("", 0.0)


def try_candidates(
    task: TuningTask,
    candidates: Sequence[Candidate],
    samples: ScoringSamples,
    earlier: Sequence[Trial] = (),
) -> Iterator[Trial]:
    """Plan, write, run and score candidates, several side by side; yield their trials in this order.

    A plan that cannot be made or run gives a trial with an error. A plan that equals one of the `earlier`
    trials, or an earlier one of these, is not run again: it takes their score.

    Raises:
        WritingError: a model cannot be written; that says nothing about the candidate.
        DataError: the outputs cannot be scored.
    """
    engine, target = task.engine, task.target
    parallel = max(1, min(target.side_by_side, len(candidates)))
    within = max(1, target.side_by_side // parallel)  # samples of each that run at the same time
    axes = class_axes(engine.prepared.model, None, None)

    def scored(candidate: Candidate, planned: PlannedModel, path: Path) -> Trial:
        screened = screen_model(path, samples, axes, target.max_drop, within, provider=task.provider)
        value = None  # of latency: measured later, of the best, with nothing running beside it
        if target.objective == "size":
            value = size_ratio(engine.path, path)
        elif target.objective == "int8-share":
            value = int8_share(planned.plan, planned.graph, engine.profile)
        return Trial(
            candidate,
            screened.score,
            value,
            sum(entry.kind is not Kind.FLOAT for entry in planned.plan.nodes.values()),
            task.predicted(planned),
            screened.sqnr,
            plan_digest(planned.plan),
        )

    known = {trial.plan_digest: trial for trial in reversed(earlier) if trial.score is not None}
    for attempt in engine.attempts(candidates, scored, known, parallel):
        if attempt.result is None:
            yield Trial(attempt.candidate, None, None, 0, None, None, error=str(attempt.error))
        else:
            yield replace(attempt.result, candidate=attempt.candidate)


def size_ratio(float_path: Path, quantized: Path) -> float:
    """Return how many times smaller a quantized model is than the float one."""
    return model_bytes(float_path) / model_bytes(quantized)


def measured_speedup(task: TuningTask, candidate: Candidate, samples: ScoringSamples) -> float:
    """Return how many times as fast as the float model a candidate's model is, measured in turns.

    Raises:
        ConfigError, PlanError, ModelError: it cannot be made or run.
    """
    engine, threads = task.engine, task.target.threads
    with tempfile.TemporaryDirectory(prefix="qprof-", ignore_cleanup_errors=True) as folder:
        path = Path(folder) / "measured.onnx"
        engine.write(candidate, engine.planned(candidate), path)
        session = open_session(str(path), "quantized model", threads, provider=task.provider)
    feeds = [sample.arrays for sample in samples.samples[: QUICK.samples]]
    names = [output.name for output in session.get_outputs()]
    timed, given = as_programs_run(session, feeds)
    return measure(
        lambda index: run(task.float_session, names, feeds[index], "float model"),
        lambda index: run(timed, names, given[index], "quantized model"),
        len(feeds),
        replace(QUICK, threads=threads),
    ).speedup


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
        task, tuning = self.task, self.split.tuning
        answer: Any = None
        match request:
            case Foresee(candidates):
                answer = tuple(forecast(task, candidate) for candidate in candidates)
            case RankNodes(candidate):
                planned = self.plan_of_trial(candidate)
                with improvement("ranking of the nodes by their noise"):
                    answer = ranked_nodes(planned, tuning, task.target.side_by_side, task.provider)
                if answer is None:  # not to be remembered
                    return ()
            case Measure(candidate):
                self.plan_of_trial(candidate)
                answer = measured_speedup(task, candidate, tuning)
            case Verify(candidate):
                answer = self._verified(self.plan_of_trial(candidate))
        self._remember(self.state.with_answer(request, answer))
        result: Result = answer
        return result

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
        trials = (self.state.trial(candidate) for candidate in request.candidates)
        return tuple(trial for trial in trials if trial is not None)

    def plan_of_trial(self, candidate: Candidate) -> PlannedModel:
        """Return the plan that a candidate was tried with.

        Raises:
            ConfigError: its settings give another one, as a state file may say.
        """
        trial, engine = self.state.trial(candidate), self.task.engine
        planned = engine.planned(candidate)
        if trial is not None and plan_digest(planned.plan) != trial.plan_digest:
            planned = engine.planned_to_run(candidate)
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
            save_model(self.task.engine.lowered(planned).model, path)
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
