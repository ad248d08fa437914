"""The requests of a search, answered: from the state of an interrupted tuning, or by running models."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...profiles.base.errors import ConfigError
from ..metrics.score import Score
from ..model.saving import save_model
from ..plan.provenance import plan_digest
from ..planning.plan_model import PlannedModel
from ..scoring.scored_models import score_model
from ..scoring.tuning_data import Split
from .candidates import Candidate, Foresee, Measure, RankNodes, Request, Result, Trial, Try, Verify
from .ranking import ranked_nodes
from .search import Outcome, Search
from .state import State, save_state
from .trial import (
    TuningTask,
    forecast,
    lowered_for,
    measured_speedup,
    plan_of,
    runnable_plan_of,
    try_candidates,
)

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
