"""The trials of a tuning: candidates are planned, run, scored and measured, or taken from its state file."""

from __future__ import annotations

import math
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import onnxruntime as ort

from ...profiles.base.errors import ConfigError
from ...profiles.base.improvement import improved
from ...profiles.runtime.providers import CPU, check_provider
from ..evaluation.compare import ClassAxis, class_axes
from ..evaluation.latency import measure
from ..evaluation.metrics.relative import noise_share
from ..evaluation.metrics.score import Score
from ..evaluation.options import QUICK
from ..evaluation.runtimes import as_programs_run, open_session, run
from ..model.files import model_bytes
from ..model.saving import save_model
from ..plan.plan import Kind
from ..plan.provenance import plan_digest
from ..planning.plan_model import PlannedModel
from .candidates import Candidate, Forecast, OnTrial, RankedNode, Trial
from .engine import Engine
from .integer_share import int8_share
from .loop import CANDIDATE_ERRORS
from .options import QualityTarget
from .ranking import ranked_nodes
from .state import State, result_of, save_state
from .tuning_data import ScoringSamples, Split, outputs_of

FIRST_SHARE, MIN_FIRST_SAMPLES = 3, 8
"""The first third of the samples are scored first, and at least 8."""

NOISE_SAMPLES = 8
"""Samples, from the first, on which the noise of the outputs is measured: it differs little between them."""

_ONE_METRIC = threading.Lock()
"""A metric of the user's own is called by one thread at a time."""


class TimeUpError(Exception):
    """The time budget is over: nothing new is begun."""


@dataclass(eq=False)
class TuningRun:
    """What makes, runs and measures the plans of one tuning.

    What is in its state is not done again; what is new is added to it, and written.

    Attributes:
        engine: makes plans and models of the float model.
        target: the quality target and the objective.
        float_session: a session of the float model, on `target.threads` threads.
        split: the samples.
        state: the results so far.
        state_path: where they are kept; None for nowhere.
        deadline: time of `time.monotonic` after which no trial starts; None for none.
        on_trial: called after each trial.
        trials_told: how many trials `on_trial` was called with.
        finished: whether nothing was left out as the time was up.
    """

    engine: Engine
    target: QualityTarget
    float_session: ort.InferenceSession
    split: Split
    state: State
    state_path: Path | None
    deadline: float | None
    on_trial: OnTrial | None = None
    trials_told: int = 0
    finished: bool = True

    @property
    def provider(self) -> str:
        """Full name of the execution provider that runs all models."""
        return check_provider(self.target.provider)

    def forecasts(self, candidates: Sequence[Candidate]) -> list[Forecast]:
        """Return what is known of candidates before they are run.

        Raises:
            TimeUpError: the time is up, and they are not in the state.
        """
        remembered = [result_of(self.state.forecasts, candidate) for candidate in candidates]
        forecasts = [forecast for forecast in remembered if forecast is not None]
        if len(forecasts) == len(candidates):
            return forecasts
        self._check_time()
        forecasts = [self._forecast(candidate) for candidate in candidates]
        self.state.forecasts += zip(candidates, forecasts, strict=True)
        self._save()
        return forecasts

    def _forecast(self, candidate: Candidate) -> Forecast:
        with suppress(*CANDIDATE_ERRORS):
            planned = self.engine.planned(candidate)
            return Forecast(plan_digest(planned.plan), self._predicted(planned))
        return Forecast("", 0.0)

    def _predicted(self, planned: PlannedModel) -> float:
        """Return the value of the objective as it is predicted of a plan."""
        return round(self.engine.predicted(planned, self.target.objective), 4)

    def try_candidates(self, candidates: Sequence[Candidate]) -> list[Trial]:
        """Plan, write, run and score candidates, several side by side; return their trials in this order.

        A plan that cannot be made or run gives a trial with an error. A plan that equals one that was tried
        is not run again: it takes its score.

        Raises:
            TimeUpError: the time is up, and not all are in the state.
            WritingError: a model cannot be written; that says nothing about the candidate.
            DataError: the outputs cannot be scored.
        """
        new = []
        for candidate in candidates:
            remembered = self.state.trial(candidate)
            if remembered is None:
                new.append(candidate)
            else:
                self._tell(remembered, is_resumed=True)
        if new:
            self._check_time()
            self._run_trials(new)
        trials = (self.state.trial(candidate) for candidate in candidates)
        return [trial for trial in trials if trial is not None]

    def _run_trials(self, candidates: Sequence[Candidate]) -> None:
        engine, target = self.engine, self.target
        parallel = max(1, min(target.side_by_side, len(candidates)))
        within = max(1, target.side_by_side // parallel)  # samples of each that run at the same time
        axes = class_axes(engine.prepared.model)

        def scored(candidate: Candidate, planned: PlannedModel, path: Path) -> Trial:
            tuning = self.split.tuning
            score, sqnr = screen_model(path, tuning, axes, target.max_drop, within, provider=self.provider)
            value = None  # of latency: measured later, of the best, with nothing running beside it
            if target.objective == "size":
                value = size_ratio(engine.path, path)
            elif target.objective == "int8-share":
                value = int8_share(planned.plan, planned.graph, engine.profile)
            return Trial(
                candidate,
                score,
                value,
                sum(entry.kind is not Kind.FLOAT for entry in planned.plan.nodes.values()),
                self._predicted(planned),
                sqnr,
                plan_digest(planned.plan),
            )

        known = {trial.plan_digest: trial for trial in reversed(self.state.trials) if trial.score is not None}
        for attempt in engine.attempts(candidates, scored, known, parallel):
            if attempt.result is None:
                trial = Trial(attempt.candidate, None, None, 0, None, None, error=str(attempt.error))
            else:
                trial = replace(attempt.result, candidate=attempt.candidate)
            self.state.trials.append(trial)
            self._save()
            self._tell(trial, is_resumed=False)

    def ranking(self, candidate: Candidate) -> tuple[RankedNode, ...]:
        """Return the quantized nodes of a candidate's plan, those first whose noise is worth most time.

        Raises:
            TimeUpError: the time is up, and they are not in the state.
        """
        remembered = result_of(self.state.rankings, candidate)
        if remembered is not None:
            return remembered
        self._check_time()
        planned = self.plan_of_trial(candidate)
        ranked = partial(ranked_nodes, planned, self.split.tuning, provider=self.provider)
        ranking, left_out = improved("ranking of the nodes by their noise", ranked, ())
        if not left_out:  # what was left out is not to be remembered
            self.state.rankings.append((candidate, ranking))
            self._save()
        return ranking

    def measured_objective(self, candidate: Candidate) -> float:
        """Return how many times as fast as the float model a candidate's model is, measured in turns, with
        nothing running beside them.

        Raises:
            ConfigError, PlanError, ModelError: it cannot be made or run.
        """
        remembered = result_of(self.state.values, candidate)
        if remembered is not None:
            return remembered
        planned, threads = self.plan_of_trial(candidate), self.target.threads
        with tempfile.TemporaryDirectory(prefix="qprof-", ignore_cleanup_errors=True) as folder:
            path = Path(folder) / "measured.onnx"
            self.engine.write(candidate, planned, path)
            session = open_session(str(path), "quantized model", threads, provider=self.provider, timed=True)
        feeds = [sample.arrays for sample in self.split.tuning.samples[: QUICK.samples]]
        names = [output.name for output in session.get_outputs()]
        timed, arrays = as_programs_run(session, feeds)
        speedup = measure(
            lambda index: run(self.float_session, names, feeds[index], "float model"),
            lambda index: run(timed, names, arrays[index], "quantized model"),
            len(feeds),
            replace(QUICK, threads=threads),
        ).speedup
        self.state.values.append((candidate, speedup))
        self._save()
        return speedup

    def held_out_score(self, candidate: Candidate) -> Score:
        """Return the score of a candidate on the held-out samples."""
        remembered = result_of(self.state.verified, candidate)
        if remembered is not None:
            return remembered
        planned = self.plan_of_trial(candidate)
        with tempfile.TemporaryDirectory(prefix="qprof-", ignore_cleanup_errors=True) as folder:
            path = Path(folder) / "held-out.onnx"
            save_model(self.engine.lowered(planned).model, path)
            session = open_session(str(path), "quantized model", provider=self.provider)
            holdout = self.split.holdout
            outputs = outputs_of(session, holdout.samples, "quantized model", self.target.side_by_side)
            score = holdout.score(outputs)
        self.state.verified.append((candidate, score))
        self._save()
        return score

    def plan_of_trial(self, candidate: Candidate) -> PlannedModel:
        """Return the plan that a candidate was tried with.

        Raises:
            ConfigError: its settings give another one, as a state file may say.
        """
        trial = self.state.trial(candidate)
        planned = self.engine.planned(candidate)
        if trial is not None and plan_digest(planned.plan) != trial.plan_digest:
            planned = self.engine.planned_to_run(candidate)
        if trial is not None and plan_digest(planned.plan) != trial.plan_digest:
            where = "the best trial" if self.state_path is None else str(self.state_path)
            raise ConfigError(
                f"{where}: was scored with another plan than its settings give now; delete the state and "
                "tune again"
            )
        return planned

    def _check_time(self) -> None:
        """Raise TimeUpError where the time is up; the first trial is run in any case."""
        if self.trials_told and self.deadline is not None and time.monotonic() >= self.deadline:
            self.finished = False
            raise TimeUpError

    def _save(self) -> None:
        if self.state_path is not None:
            save_state(self.state, self.state_path)

    def _tell(self, trial: Trial, *, is_resumed: bool) -> None:
        self.trials_told += 1
        if self.on_trial is not None:
            self.on_trial(self.trials_told, trial, is_resumed)


def size_ratio(float_path: Path, quantized: Path) -> float:
    """Return how many times smaller a quantized model is than the float one."""
    return model_bytes(float_path) / model_bytes(quantized)


def screen_model(
    path: Path,
    samples: ScoringSamples,
    axes: Mapping[str, ClassAxis],
    max_drop: float,
    side_by_side: int = 1,
    *,
    provider: str = CPU,
) -> tuple[Score, float | None]:
    """Return the score of a quantized model, and the SQNR of the worst group of channels of its worst output.

    When the first third of the samples shows a drop whose whole 95 % interval is above `max_drop`, the others
    are not run: a plan that is to be chosen is never scored on fewer than all.

    Args:
        path: of the model; it runs on one thread, so that its sums do not depend on the cores that there are.
        samples: to score it on.
        axes: where each output has its classes.
        max_drop: percentage points.
        side_by_side: samples that run at the same time.
        provider: full name of the execution provider.

    Returns:
        The score, on all samples, or on the first where these leave no doubt; and the SQNR in dB, None where
        nothing differs.

    Raises:
        ModelError: it cannot be run. DataError: it cannot be scored.
    """
    session, count = open_session(str(path), "quantized model", provider=provider), len(samples.samples)
    first = max(MIN_FIRST_SAMPLES, -(-count // FIRST_SHARE))
    places = range(min(first, count))
    outputs = outputs_of(session, samples.samples[: len(places)], "quantized model", side_by_side)
    few = min(NOISE_SAMPLES, count)
    noise = noise_share(samples.float_outputs[:few], outputs[:few], axes)
    part = samples.subset(places)
    with _ONE_METRIC:
        score = part.score(outputs)
    if len(places) < count and score.drop_low <= max_drop:
        outputs += outputs_of(session, samples.samples[len(places) :], "quantized model", side_by_side)
        with _ONE_METRIC:
            score = samples.score(outputs)
    return score, rounded_sqnr(noise)


def rounded_sqnr(noise: float) -> float | None:
    """Return the SQNR in dB, to hundredths and within 300, of noise over signal; None for no noise."""
    return round(max(-300.0, -10.0 * math.log10(min(noise, 1e300))), 2) if noise > 0.0 else None
