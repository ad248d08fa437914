"""Find the plan that keeps a promise about quality at the best objective, and prove it on other samples."""

from __future__ import annotations

import hashlib
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...profiles.base.atomic_files import read_text
from ...profiles.base.errors import ConfigError, ProfileError
from ...profiles.base.json_values import to_jsonable
from ...profiles.base.tool import tool_name
from ...profiles.samples.samples import input_specs
from ..model.files import model_bytes, save_model
from ..plan.store import save_plan
from ..planning.plan_model import check_without_samples
from ..prepare.opening import open_prepared, read_profile
from ..ranges.calibrators import CALIBRATORS
from ..runtime.sessions import open_session
from ..targets.loading import load_recipe
from ..targets.target import Recipe
from .evidence import Evidence, JudgedSet, read_evidence
from .result import Promise, TuneResult, limits_of
from .search import TIE, Asked, Base, Candidate, Rank, Trial, best_of, kept, search
from .sensitivity import LIMIT, sensitivity_of
from .state import State, load_state, save_state
from .trial import Subject, judged, lowered_for, plan_of, try_candidate

OTHER_CALIBRATORS = ("minmax", "percentile", "mse")
OTHER_SQNR = (15.0, 25.0)
"""Limits of noise that are tried when the recipe has none."""

OnTrial = Callable[[int, Trial, bool], None]
"""Called after each trial with its number, the trial, and whether it came from the state file."""


@dataclass(frozen=True)
class Files:
    """Files that a tuning writes; None for those that are not wanted.

    Attributes:
        model: the quantized model, written only when the promise is kept.
        plan: the best plan, kept or not.
        state: trials and rankings; a tuning that was interrupted goes on from there.
    """

    model: Path | None = None
    plan: Path | None = None
    state: Path | None = None


def tune(
    model_path: str | Path,
    profile_path: str | Path,
    evidence: Evidence,
    promise: Promise,
    *,
    recipe: Recipe | None = None,
    files: Files | None = None,
    on_trial: OnTrial | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> TuneResult:
    """Find the best plan that keeps a promise, and prove it on samples held out.

    All samples, and the float model's outputs on them, are held in memory.

    Args:
        model_path: float ONNX model.
        profile_path: its profile.
        evidence: the samples, and what plans are judged by.
        promise: what has to be kept, and what is made as large as possible.
        recipe: settings and target to start from; None for the default target's.
        files: what to write.
        on_trial: called after each trial.
        clock: seconds.

    Raises:
        ConfigError, ModelError, ProfileError, DataError: what is wrong, where, and what to do.
    """
    begin = clock()
    files, recipe = files or Files(), recipe or load_recipe()
    check_without_samples(recipe.config)
    _check_folders(files)
    prepared = open_prepared(model_path)
    profile = read_profile(profile_path, prepared.model, prepared.identity)
    session = open_session(str(model_path), str(model_path), promise.threads)
    subject = Subject(
        prepared.model,
        prepared.graph,
        prepared.identity,
        prepared.notes,
        profile,
        recipe,
        Path(model_path),
        session,
        promise.objective,
        promise.max_drop,
        promise.threads,
    )
    tuning, proof, split = read_evidence(session, input_specs(prepared.model), evidence, promise.seed)
    state = State(_key(subject, tuning, split, profile_path))
    state = state if files.state is None else load_state(files.state, state.key)
    deadline = None if promise.budget is None else begin + promise.budget
    search_run = _Run(subject, tuning, files.state, lambda: deadline is not None and clock() >= deadline)
    trials, ended = _run(search_run, state, on_trial)
    best = best_of(trials, promise.max_drop, TIE if promise.objective == "latency" else 0.0)
    result = TuneResult(
        model=prepared.identity.file,
        measured=tuning.measured,
        promise=promise,
        held_out=proof.digest != tuning.digest,
        split=split,
        trials=trials,
        chosen=None if best is None else trials.index(best),
        proof=None,
        kept=False,
        proven=False,
        limits=(),
        float_nodes=() if best is None else best.candidate.keep_float,
        float_bytes=model_bytes(model_path),
        quantized_bytes=None,
        seconds=0.0,
    )
    if best is not None:
        result = _proved(subject, result, best, proof, files)
    late = () if ended else (f"the time budget of {promise.budget:g} s ended after {len(trials)} trials",)
    return replace(result, limits=(*limits_of(result), *late), seconds=clock() - begin)


def _check_folders(files: Files) -> None:
    """Tell before the work what would be told after it."""
    for path in (files.model, files.plan, files.state):
        if path is not None and not path.resolve().parent.is_dir():
            raise ConfigError(f"{path}: there is no folder '{path.parent}'; make it first")


def _key(subject: Subject, tuning: JudgedSet, split: str, profile_path: str | Path) -> dict[str, Any]:
    """Return what the trials of a tuning depend on."""
    profile = read_text(profile_path, ProfileError).encode("utf-8")
    return {
        "tool": tool_name(),
        "model": f"{subject.identity.structure[:16]} {subject.identity.weights[:16]}",
        "profile": hashlib.sha256(profile).hexdigest()[:32],
        "data": tuning.digest,
        "split": split,
        "target": subject.recipe.target.name,
        "settings": to_jsonable(subject.recipe.config),
        "objective": subject.objective,
        "max_drop": subject.max_drop,
        "threads": subject.threads,
    }


def bases_of(recipe: Recipe) -> tuple[Base, ...]:
    """Return the settings to start from: the recipe's own, other calibrators, and limits of noise."""
    others = [c for c in OTHER_CALIBRATORS if c in CALIBRATORS and c != recipe.config.calibrator]
    limits = OTHER_SQNR if recipe.config.min_sqnr <= 0.0 else (0.0,)
    return (
        Base("default"),
        *(Base(f"calibrator {c}", {"calibrator": c}) for c in others),
        *(Base(f"min_sqnr {limit:g}", {"min_sqnr": limit}) for limit in limits),
    )


@dataclass(frozen=True, eq=False)
class _Run:
    """What answering the search needs.

    Attributes:
        subject, tuning: what is tuned, on what.
        state_path: where trials are kept.
        is_late: whether the time is up.
    """

    subject: Subject
    tuning: JudgedSet
    state_path: Path | None
    is_late: Callable[[], bool]


def _run(task: _Run, state: State, on_trial: OnTrial | None) -> tuple[tuple[Trial, ...], bool]:
    """Answer the search until it or the time ends; return the trials, and whether the search ended."""
    asking = search(bases_of(task.subject.recipe), task.subject.max_drop)
    trials: list[Trial] = []
    asked: Asked = next(asking)
    while True:
        known = _known(state, asked)
        if known is None:
            if trials and task.is_late():
                return tuple(trials), False
            state = _answered(task, state, asked)
            if task.state_path is not None:
                save_state(state, task.state_path)
        answer = _known(state, asked)
        assert answer is not None
        if isinstance(answer, Trial):
            trials.append(answer)
            if on_trial is not None:
                on_trial(len(trials), answer, known is not None)
        try:
            asked = asking.send(answer)
        except StopIteration:
            return tuple(trials), True


def _answered(task: _Run, state: State, asked: Asked) -> State:
    """Return the state with the answer to what the search asked."""
    if isinstance(asked, Candidate):
        return state.with_trial(try_candidate(task.subject, asked, task.tuning, state.trials))
    planned = plan_of(task.subject, Candidate(asked.base))
    found = sensitivity_of(planned.model, planned.plan, task.tuning.samples[:LIMIT])
    return state.with_ranking(asked.base, tuple(node.node for node in found.nodes))


def _known(state: State, asked: Asked) -> Trial | tuple[str, ...] | None:
    return state.rankings.get(asked.base.name) if isinstance(asked, Rank) else state.trial(asked)


def _proved(subject: Subject, result: TuneResult, best: Trial, proof: JudgedSet, files: Files) -> TuneResult:
    """Judge the chosen plan on the proof's samples, and write what was asked for."""
    planned = plan_of(subject, best.candidate)
    lowered = lowered_for(subject, planned)
    plan = replace(planned.plan, notes=tuple(dict.fromkeys([*planned.plan.notes, *lowered.notes])))
    with tempfile.TemporaryDirectory(prefix="qprof-", ignore_cleanup_errors=True) as folder:
        path = Path(folder) / "best.onnx"
        save_model(lowered.model, path)
        found, size = judged(path, proof), model_bytes(path)
    holds = kept(best, subject.max_drop) and found.drop <= subject.max_drop
    if files.plan is not None:
        save_plan(plan, files.plan)
    if files.model is not None and holds:
        save_model(lowered.model, files.model)
    proven = holds and found.drop_high <= subject.max_drop
    return replace(result, proof=found, kept=holds, proven=proven, quantized_bytes=size)
