"""The int8 models that SPEED.md compares, built by commands and kept in the work folder of each model."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import models
import stages
import synthetic
from building import HERE, RUNTIME_ERRORS, Record, build, digest_of, run_command, save, sentence
from openvino_runs import openvino_run, openvino_session
from record import Data, Judged, RealModel, judge, session
from speed import Run, onnxruntime_run

QPROF = [sys.executable, "-c", "from qprof_onnx.cli.main import main; main()"]
TRANSFORMERS = {"minilm", "vit-focus", "encoder"}
"""Those for which NNCF is told so."""
ROOMS_OF_PROFILES = ("profiles", "quantizer/prepare", "quantizer/model", "quantizer/operators")
"""What decides about a profile, so that it is made again only when one of them has changed."""
ROOMS = ("profiles", "quantizer", "cli", "configs")
FLOAT, OV_FLOAT, NOW, BEFORE, OV_QPROF, NNCF = "float", "ov-float", "now", "before", "ov-qprof", "nncf"


@dataclass(frozen=True)
class Runtime:
    """How a model file is loaded for scoring, and for timing."""

    session: Callable[[Path, int], Any]
    run: Callable[[Path, int], Run]


ONNXRUNTIME = Runtime(session, onnxruntime_run)
OPENVINO = Runtime(openvino_session, openvino_run)
IN_OPENVINO = {OV_FLOAT, OV_QPROF, NNCF}


def runtime_of(label: str) -> Runtime:
    """Return where the model of a column runs."""
    return OPENVINO if label in IN_OPENVINO else ONNXRUNTIME


def load(name: str) -> RealModel:
    """Return the record of a real model or a synthetic one."""
    return synthetic.MODELS[name] if name in synthetic.MODELS else models.load(name)


NAMES = (*models.FILES, *synthetic.MODELS)


@dataclass(frozen=True)
class Checkout:
    """A version of qprof.

    Attributes:
        folder: its checkout; None for the installed one.
    """

    folder: Path | None

    def environment(self) -> dict[str, str]:
        """Return the environment of its commands: the links of `.typing` name its parts."""
        if self.folder is None:
            return dict(os.environ)
        return {**os.environ, "PYTHONPATH": str(self.folder / ".typing")}

    def digest(self, rooms: Sequence[str]) -> str:
        """Return the digest of the sources in some folders."""
        found = [file for room in rooms for file in sorted((self._root() / room).rglob("*"))]
        return digest_of(*(file for file in found if file.suffix in {".py", ".yaml", ".c"}))

    def _root(self) -> Path:
        if self.folder is not None:
            return self.folder
        spec = importlib.util.find_spec("qprof_onnx.quantizer")
        assert spec is not None
        assert spec.submodule_search_locations
        return Path(next(iter(spec.submodule_search_locations))).parent


def place(model: RealModel, work: Path, label: str) -> Path:
    """Return where the model of a column is, or goes."""
    if label in (FLOAT, OV_FLOAT):
        return model.path(work / model.name)
    if label in stages.PEERS:
        return work / model.name / "built" / f"{label}.onnx"
    return work / model.name / "speed" / f"{label}{'.xml' if label == NNCF else '.onnx'}"


def record_of(model: RealModel, work: Path, label: str) -> Record:
    """Return what is known of a model that was built, or tried; {} without one."""
    if label in (FLOAT, OV_FLOAT):
        return {"error": None, "file": digest_of(place(model, work, label))}
    file = place(model, work, label).with_suffix(".json")
    return dict(json.loads(file.read_text(encoding="utf-8"))) if file.exists() else {}


def build_all(model: RealModel, data: Data, work: Path, versions: Mapping[str, Checkout]) -> None:
    """Build what has changed.

    Args:
        model: its record.
        data: its samples.
        work: folder of all models.
        versions: qprof by column: NOW, and BEFORE where there is an older one.
    """
    stages.build_peers(model, data, work)
    for label, checkout in versions.items():
        profile = _profile(model, data, work, label, checkout)
        _quantize(model, work, (label, profile, checkout), [])
        if label == NOW:
            _quantize(model, work, (OV_QPROF, profile, checkout), ["--target", "openvino"])
    _nncf(model, data, work)


def _profile(model: RealModel, data: Data, work: Path, label: str, checkout: Checkout) -> Path:
    """Return the profile of a version: made again where a room has changed that decides about it."""
    profile = work / model.name / "speed" / f"{label}.yaml"
    stamp, digest = profile.with_suffix(".digest"), checkout.digest(ROOMS_OF_PROFILES)
    digest += digest_of(work / model.name / "data.json")
    if not (profile.exists() and stamp.exists() and stamp.read_text(encoding="utf-8") == digest):
        profile.parent.mkdir(parents=True, exist_ok=True)
        path = str(model.path(work / model.name))
        options = ["--data", str(data.calibration), "-o", str(profile), *model.profiling]
        run_command([*QPROF, "dump-profile", path, *options], checkout.environment())
        stamp.write_text(digest, encoding="utf-8")
    return profile


def _quantize(
    model: RealModel, work: Path, version: tuple[str, Path, Checkout], options: Sequence[str]
) -> None:
    """Build one column of qprof, and keep its plan beside it.

    Args:
        model: its record.
        work: folder of all models.
        version: the column, its profile, its checkout.
        options: of `qprof quantize`.
    """
    label, profile, checkout = version
    out = place(model, work, label)
    plan = out.with_suffix(".plan.yaml")
    files = ["--profile", str(profile), "-o", str(out), "--save-plan", str(plan)]
    command = [*QPROF, "quantize", str(model.path(work / model.name)), *files, *options]
    digest = checkout.digest(ROOMS) + digest_of(profile) + "\0".join(options)
    build(out, [[command]], digest, checkout.environment(), runtime_of(label).session)


def _nncf(model: RealModel, data: Data, work: Path) -> None:
    out, script = place(model, work, NNCF), HERE / "nncf_int8.py"
    path = str(model.path(work / model.name))
    command = [sys.executable, str(script), path, "--data", str(data.calibration), "-o", str(out)]
    command += ["--transformer"] if model.name in TRANSFORMERS else []
    digest = digest_of(script, work / model.name / "data.json")
    build(out, [[command]], digest, None, openvino_session)


def score_all(model: RealModel, data: Data, work: Path) -> None:
    """Judge every model that was built and not judged yet, in its runtime."""
    stages.float_judged(model, data.evaluation, work)
    for label in (*stages.PEERS, NOW, BEFORE, OV_QPROF, NNCF):
        record = record_of(model, work, label)
        if not record or record["error"] or record.get("judged_file") == record["file"]:
            continue
        file = place(model, work, label)
        try:
            judged: Record | None = judge(
                model, file, data.evaluation, work, runtime_of(label).session
            ).record()
        except (*RUNTIME_ERRORS, RuntimeError) as problem:
            judged, record["error"] = None, f"does not run: {sentence(str(problem))}"
        save(file, {**record, "judged": judged, "judged_file": record["file"]})


def judged(model: RealModel, data: Data, work: Path, label: str) -> Judged | None:
    """Return the score of a column; of float where the column is float in either runtime."""
    if label in (FLOAT, OV_FLOAT):
        return stages.float_judged(model, data.evaluation, work)
    found = record_of(model, work, label).get("judged")
    return Judged.of_record(found) if found else None
