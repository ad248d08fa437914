"""Find the plan that meets a quality target with the best objective, and verify it on held-out samples."""

from __future__ import annotations

import hashlib
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir
import onnxruntime

from ...profiles.base.atomic_files import read_text, replacing_together
from ...profiles.base.errors import ConfigError, ProfileError
from ...profiles.base.json_values import to_jsonable
from ...profiles.base.tool import tool_name
from ...profiles.records.profile import Profile
from ...profiles.records.store import dumps
from ..model.files import model_bytes
from ..model.outputs import FilesRead, check_outputs
from ..model.saving import save_model
from ..plan.provenance import plan_digest
from ..plan.store import save_plan
from ..planning.plan_model import check_without_samples
from ..prepare.opening import ProfileLike, open_prepared, read_profile
from ..ranges.calibrators import CALIBRATORS
from ..runtime.sessions import open_session
from ..targets.loading import load_recipe
from ..targets.target import Recipe
from .quality_target import QualityTarget
from .result import TuneResult, target_met
from .scores import Score
from .search import TIE, Base, Candidate, RankNodes, Request, Trial, best_of, search
from .sensitivity import LIMIT, sensitivity_of
from .state import State, load_state, save_state
from .trial import TuningTask, lowered_for, plan_of, score_model, try_candidate
from .tuning_data import ScoringSamples, Split, TuningData, read_split

OTHER_CALIBRATORS = ("minmax", "percentile", "mse")
OTHER_SQNR = (15.0, 25.0)
"""SQNR limits (dB) that are tried when the recipe has none."""

OnTrial = Callable[[int, Trial, bool], None]
"""Called after each trial with its number, the trial, and whether it came from the state file."""


@dataclass(frozen=True)
class TuneFiles:
    """TuneFiles that a tuning writes; None for those that are not wanted.

    Attributes:
        model: the quantized model, written only when the target is met.
        plan: the best plan, whether it meets the target or not.
        state: trials and rankings; an interrupted tuning is resumed from it.
    """

    model: Path | None = None
    plan: Path | None = None
    state: Path | None = None


def tune(
    model_path: str | Path,
    profile_path: ProfileLike,
    data: TuningData,
    target: QualityTarget,
    *,
    recipe: Recipe | None = None,
    files: TuneFiles | None = None,
    on_trial: OnTrial | None = None,
) -> TuneResult:
    """Find the best plan that meets a quality target, and verify it on held-out samples.

    All samples, and the float model's outputs on them, are held in memory.

    Args:
        model_path: float ONNX model.
        profile_path: its profile.
        data: the samples, and the metric that plans are scored with.
        target: the quality that has to be kept, and the objective.
        recipe: settings and target to start from; None for the default target's.
        files: what to write.
        on_trial: called after each trial.

    Raises:
        ConfigError, ModelError, ProfileError, DataError: what is wrong, where, and what to do.
    """
    begin = time.monotonic()
    files, recipe = files or TuneFiles(), recipe or load_recipe()
    check_without_samples(recipe.config)
    read = read_by(model_path, profile_path, data)
    check_outputs([files.model, files.plan, files.state], read)
    task = _opened_task(Path(model_path), profile_path, recipe, target)
    split = read_split(task.float_session, task.prepared.model, data, target.seed)
    overlaps = split.overlaps(task.profile.data)
    state = _opened_state(files.state, _key(task, split, profile_path))
    deadline = None if target.budget is None else begin + target.budget
    trials, finished = _search(_Search(task, split.tuning, files.state, deadline, on_trial), state)
    best = best_of(trials, target.max_drop, TIE if target.objective == "latency" else 0.0)
    holdout, size = (None, None) if best is None else _verify(task, best, split.holdout, files)
    return TuneResult(
        model=task.prepared.identity.file,
        metric=split.tuning.metric_name,
        target=target,
        split=split.description,
        separate_holdout=not overlaps,
        overlaps=overlaps,
        trials=trials,
        finished=finished,
        chosen=None if best is None else trials.index(best),
        holdout=holdout,
        float_bytes=model_bytes(task.float_path),
        quantized_bytes=size,
        seconds=time.monotonic() - begin,
    )


def read_by(model: object, profile: object, data: TuningData) -> FilesRead:
    """Return what a tuning reads."""
    files = (profile, data.labels, data.holdout_labels)
    return FilesRead((model,), files, (data.data, data.holdout_data, data.metric))


def _opened_task(path: Path, profile_path: ProfileLike, recipe: Recipe, target: QualityTarget) -> TuningTask:
    prepared = open_prepared(path)
    return TuningTask(
        prepared=prepared,
        profile=read_profile(profile_path, prepared.model, prepared.identity),
        recipe=recipe,
        target=target,
        float_path=path,
        float_session=open_session(str(path), str(path), target.threads),
    )


def _opened_state(path: Path | None, key: dict[str, Any]) -> State:
    return State(key) if path is None else load_state(path, key)


def _key(task: TuningTask, split: Split, profile_path: ProfileLike) -> dict[str, Any]:
    """Return everything that the results of the trials depend on."""
    if isinstance(profile_path, Profile):
        profile = dumps(profile_path).encode("utf-8")
    else:
        profile = read_text(profile_path, ProfileError).encode("utf-8")
    identity = task.prepared.identity
    return {
        "tool": tool_name(),
        "libraries": {library.__name__: library.__version__ for library in (np, onnx, onnx_ir, onnxruntime)},
        "model": f"{identity.structure[:16]} {identity.weights[:16]}",
        "profile": hashlib.sha256(profile).hexdigest()[:32],
        "data": split.tuning.data.digest,
        "metric": f"{split.tuning.metric_name} {split.tuning.metric_digest}".rstrip(),
        "split": split.description,
        "target": to_jsonable(task.recipe.target),
        "settings": to_jsonable(task.recipe.config),
        "objective": task.target.objective,
        "max_drop": task.target.max_drop,
        "threads": task.target.threads,
    }


def bases_of(recipe: Recipe) -> tuple[Base, ...]:
    """Return the settings to start from: the recipe's own, other calibrators, and SQNR limits."""
    others = [c for c in OTHER_CALIBRATORS if c in CALIBRATORS and c != recipe.config.calibrator]
    limits = OTHER_SQNR if recipe.config.min_sqnr <= 0.0 else (0.0,)
    return (
        Base("default"),
        *(Base(f"calibrator {c}", {"calibrator": c}) for c in others),
        *(Base(f"min_sqnr {limit:g}", {"min_sqnr": limit}) for limit in limits),
    )


@dataclass(frozen=True, eq=False)
class _Search:
    """How the search is run.

    Attributes:
        task: what is tuned.
        samples: that candidates are scored on.
        state_path: where trials are kept.
        deadline: time of `time.monotonic` after which no trial starts.
        on_trial: called after each trial.
    """

    task: TuningTask
    samples: ScoringSamples
    state_path: Path | None
    deadline: float | None
    on_trial: OnTrial | None

    @property
    def is_late(self) -> bool:
        return self.deadline is not None and time.monotonic() >= self.deadline


def _search(run: _Search, state: State) -> tuple[tuple[Trial, ...], bool]:
    """Run what the search requests until it or the time ends; return the trials, and whether it finished."""
    requests = search(bases_of(run.task.recipe), run.task.target.max_drop)
    trials: list[Trial] = []
    request = next(requests)
    while True:
        result = _result_in(state, request)
        is_resumed = result is not None
        if result is None:
            if trials and run.is_late:
                return tuple(trials), False
            result = _run_request(run, state, request)
            state = state.with_result(request, result)
            if run.state_path is not None:
                save_state(state, run.state_path)
        if isinstance(result, Trial):
            trials.append(result)
            if run.on_trial is not None:
                run.on_trial(len(trials), result, is_resumed)
        try:
            request = requests.send(result)
        except StopIteration:
            return tuple(trials), True


def _run_request(run: _Search, state: State, request: Request) -> Trial | tuple[str, ...]:
    """Return the trial of a candidate, or the ranking of the nodes that some settings quantize."""
    if isinstance(request, Candidate):
        return try_candidate(run.task, request, run.samples, state.trials)
    planned = plan_of(run.task, Candidate(request.base))
    ranking = sensitivity_of(planned.model, planned.plan, run.samples.samples[:LIMIT])
    return tuple(node.node for node in ranking.nodes)


def _result_in(state: State, request: Request) -> Trial | tuple[str, ...] | None:
    """Return the result of a request that the state holds already."""
    if isinstance(request, RankNodes):
        return state.rankings.get(request.base.name)
    return state.trial(request)


def _verify(task: TuningTask, best: Trial, samples: ScoringSamples, files: TuneFiles) -> tuple[Score, int]:
    """Score the chosen plan on the held-out samples and write the files; return the score and the size.

    Raises:
        ConfigError: the plan is not the one that was tried, as a state file may say.
    """
    planned = plan_of(task, best.candidate)
    if plan_digest(planned.plan) != best.plan_digest:
        where = "the best trial" if files.state is None else str(files.state)
        raise ConfigError(
            f"{where}: was scored with another plan than its settings give now; delete the state and tune "
            "again"
        )
    lowered = lowered_for(task, planned)
    with tempfile.TemporaryDirectory(prefix="qprof-", ignore_cleanup_errors=True) as folder:
        path = Path(folder) / "best.onnx"
        save_model(lowered.model, path)
        score, size = score_model(path, samples), model_bytes(path)
    with replacing_together(FilesRead((task.float_path,)).weights) as batch:
        if files.model is not None and target_met(best, score, task.target):
            save_model(lowered.model, files.model, batch=batch)
        if files.plan is not None:
            notes = dict.fromkeys([*planned.plan.notes, *lowered.notes])
            save_plan(replace(planned.plan, notes=tuple(notes)), files.plan, batch)
    return score, size
