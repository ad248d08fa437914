"""Find the plan that meets a quality target with the best objective, and verify it on held-out samples."""

from __future__ import annotations

import hashlib
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir
import onnxruntime

from ...profiles.base.atomic_files import read_bytes, replacing_together
from ...profiles.base.errors import ProfileError
from ...profiles.base.json_values import to_jsonable
from ...profiles.base.tool import tool_name
from ...profiles.readers.random_samples import check_not_random
from ...profiles.records.origins import has_histograms
from ...profiles.records.profile import Profile, check_data_not_random
from ...profiles.records.store import dumps
from ...profiles.samples.objects import source_name
from ..exchange.profiles import read_profile
from ..model.files import model_bytes
from ..model.outputs import FilesRead, check_outputs
from ..model.saving import save_model
from ..plan.store import save_plan
from ..planning.plan_model import check_without_samples
from ..prepare.opening import ProfileLike, open_prepared, profile_name
from ..ranges.calibrators import CALIBRATORS
from ..runtime.sessions import open_session
from ..scoring.quality_target import QualityTarget
from ..scoring.tuning_data import Split, TuningData, read_split
from ..targets.loading import load_recipe
from ..targets.target import Recipe
from .candidates import Base
from .result import TuneResult, target_met
from .running import OnTrial, Runner
from .search import Goal, Outcome, search
from .state import State, load_state
from .trial import TuningTask, lowered_for

OTHER_CALIBRATORS = ("minmax", "percentile", "mse")
LOW_SQNR = (0.0, 10.0)
"""Limits of the outputs (dB) that leave fewer nodes float than the default, for models that can bear it."""
OTHER_MODES = ("dynamic", "weight-only")


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
    _check_not_random(data)
    task = opened_task(Path(model_path), profile_path, recipe, target)
    check_data_not_random(task.profile.data, profile_name(profile_path), "tuning")
    split = read_split(task.float_session, task.prepared.model, data, target.seed, target.side_by_side)
    overlaps = split.overlaps(task.profile.data)
    state = _opened_state(files.state, _key(task, split, profile_path))
    deadline = None if target.budget is None else begin + target.budget
    runner = Runner(task, split, state, files.state, deadline, on_trial)
    goal = Goal(target.max_drop, target.objective == "latency")
    found = runner.outcome(search(bases_of(recipe, task.profile), goal))
    if found.looks > 1:
        overlaps = (*overlaps, f"the held-out samples decided between {found.looks} plans")
    size = None if found.chosen is None else _write(runner, found, files)
    return TuneResult(
        model=task.prepared.identity.file,
        metric=split.tuning.metric.title,
        drop_unit=split.tuning.metric.kind.drop_unit,
        assumed=split.tuning.metric.assumed,
        target=target,
        split=split.description,
        separate_holdout=not overlaps,
        overlaps=overlaps,
        trials=found.trials,
        finished=runner.finished,
        chosen=None if found.chosen is None else found.trials.index(found.chosen),
        holdout=found.holdout,
        float_bytes=model_bytes(task.float_path),
        quantized_bytes=size,
        seconds=time.monotonic() - begin,
    )


def _check_not_random(data: TuningData) -> None:
    """Refuse random values as samples that plans are scored on.

    Raises:
        DataError: they are.
    """
    for samples in (data.data, data.holdout_data):
        if samples is not None:
            check_not_random(source_name(samples), "tuning")


def read_by(model: object, profile: object, data: TuningData) -> FilesRead:
    """Return what a tuning reads."""
    files = (profile, data.labels, data.holdout_labels)
    return FilesRead((model,), files, (data.data, data.holdout_data, data.metric))


def opened_task(path: Path, profile_path: ProfileLike, recipe: Recipe, target: QualityTarget) -> TuningTask:
    """Return what is tuned, with its model and profile read and the float model opened."""
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
        profile = read_bytes(profile_path, ProfileError)
    identity = task.prepared.identity
    return {
        "tool": tool_name(),
        "libraries": {library.__name__: library.__version__ for library in (np, onnx, onnx_ir, onnxruntime)},
        "model": f"{identity.structure[:16]} {identity.weights[:16]}",
        "profile": hashlib.sha256(profile).hexdigest()[:32],
        "data": split.tuning.data.digest,
        "holdout": split.holdout.data.digest,
        "metric": f"{split.tuning.metric.title} {split.tuning.metric.digest}".rstrip(),
        "split": split.description,
        "target": to_jsonable(task.recipe.target),
        "settings": to_jsonable(task.recipe.config),
        "objective": task.target.objective,
        "max_drop": task.target.max_drop,
        "threads": task.target.threads,
    }


def bases_of(recipe: Recipe, profile: Profile) -> tuple[Base, ...]:
    """Return the settings to start from: the recipe's own, and others that may be as good or better.

    A profile that has ranges only leaves no choice of calibrators and of noise.
    """
    config = recipe.config
    can_choose = has_histograms(profile)
    others = [c for c in OTHER_CALIBRATORS if can_choose and c in CALIBRATORS and c != config.calibrator]
    bases = [Base("default"), *(Base(f"calibrator {c}", {"calibrator": c}) for c in others)]
    limits = [limit for limit in LOW_SQNR if can_choose and limit != config.min_output_sqnr]
    bases += [Base(f"min_output_sqnr {limit:g}", {"min_output_sqnr": limit}) for limit in limits]
    bases += [Base(f"mode {mode}", {"mode": mode}) for mode in OTHER_MODES if mode != config.mode]
    return tuple(bases)


def _write(runner: Runner, found: Outcome, files: TuneFiles) -> int:
    """Write the files of the chosen plan; return the size of its model.

    Raises:
        ConfigError: the plan is not the one that was tried, as a state file may say.
    """
    task, best = runner.task, found.chosen
    assert best is not None
    planned = runner.plan_of_trial(best.candidate)
    lowered = lowered_for(task, planned)
    with tempfile.TemporaryDirectory(prefix="qprof-", ignore_cleanup_errors=True) as folder:
        save_model(lowered.model, Path(folder) / "best.onnx")
        size = model_bytes(Path(folder) / "best.onnx")
    with replacing_together(FilesRead((task.float_path,)).weights) as batch:
        if files.model is not None and target_met(best, found.holdout, task.target):
            save_model(lowered.model, files.model, batch=batch)
        if files.plan is not None:
            notes = dict.fromkeys([*planned.plan.notes, *lowered.notes])
            save_plan(replace(planned.plan, notes=tuple(notes)), files.plan, batch)
    return size
