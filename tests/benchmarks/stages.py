"""The stages of the benchmark: build the int8 models, score them, time them. Each keeps its results in the
work folder and does again only what has changed.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from bootstrap import difference
from building import HERE, RUNTIME_ERRORS, Record, build, digest_of, is_current, save, sentence
from record import WORK, Data, Judged, RealModel, Split, judge, write_atomically
from speed import latencies

# onnxruntime's settings: label -> options of ort_static.py. Opset 13 is the first with per-channel scales.
# More than one list of options: the first that gives a model which runs is taken.
_STATIC = {
    f"ort-{method}-{grain}": [["--method", method, "--opset", "13", *options]]
    for method in ("minmax", "entropy", "percentile")
    for grain, options in (("tensor", []), ("channel", ["--per-channel"]))
}
PEERS: Mapping[str, Sequence[Sequence[str]]] = {
    **_STATIC,
    # onnxruntime has no integer convolution with signed weights: unsigned ones are its advice.
    "ort-dynamic": [["--dynamic"], ["--dynamic", "--weights", "QUInt8"]],
}
# Pre-processing fails on some models, or spoils them: then without symbolic shapes, then without all of it.
FALLBACKS: Sequence[Sequence[str]] = ((), ("--skip-symbolic-shape",), ("--no-pre-process",))
QPROF, TUNED, DYNAMIC = "qprof", "qprof-tuned", "ort-dynamic"


def forget(model: RealModel, work: Path) -> None:
    """Drop what was built and timed, so that time and memory are measured again."""
    shutil.rmtree(work / model.name / "built", ignore_errors=True)
    (work / model.name / "latency.json").unlink(missing_ok=True)


def build_peers(model: RealModel, data: Data, work: Path) -> None:
    """Quantize with onnxruntime in each setting; a failure is kept with its sentence."""
    path = model.path(work / model.name)
    script = HERE / "ort_static.py"
    for label, choices in PEERS.items():
        out = _built(model, work, label)
        command = [sys.executable, str(script), str(path), "--data", str(data.calibration), "-o", str(out)]
        attempts = [[[*command, *options, *more]] for options in choices for more in FALLBACKS]
        build(out, attempts, digest_of(script, work / model.name / "data.json"))


def build_qprof(model: RealModel, data: Data, work: Path, options: Sequence[str] = ()) -> None:
    """Profile and quantize with qprof's command line; again when the checkout has changed."""
    out = _built(model, work, "qprof")
    profile = out.with_suffix(".yaml")
    path = str(model.path(work / model.name))
    calibrate = ["dump-profile", path, "--data", str(data.calibration), "-o", str(profile), *model.profiling]
    commands = [
        [*_qprof(), *calibrate],
        [*_qprof(), "quantize", path, "--profile", str(profile), "-o", str(out), *options],
    ]
    build(out, [commands], _qprof_digest(model, work, options))


def build_tuned(model: RealModel, data: Data, work: Path, budget: float) -> None:
    """Let `qprof tune` find a plan on the tuning split that loses at most half a percentage point.

    A model without that split is tuned on its calibration samples, which have no answers.
    """
    profile, out = _built(model, work, "qprof").with_suffix(".yaml"), _built(model, work, TUNED)
    if not profile.exists():
        build_qprof(model, data, work)
    state = out.with_suffix(".state.json")
    path = str(model.path(work / model.name))
    folder = data.calibration if data.tuning is None else data.tuning.folder
    files = ["--profile", str(profile), "--data", str(folder), "-o", str(out)]
    metric = [] if data.tuning is None else ["--metric", f"metrics:{model.name.replace('-', '_')}"]
    target = [*metric, "--max-drop", "0.5", "--objective", "latency", "--budget", str(budget)]
    modules = [str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(modules), WORK: str(work)}
    command = [*_qprof(), "tune", path, *files, "--state", str(state), *target]
    stamp = _qprof_digest(model, work, ["tune", *target])
    if not is_current(out, stamp):
        state.unlink(missing_ok=True)  # trials of another version
    build(out, [[command]], stamp, environment)


def build_setting(model: RealModel, work: Path, out: Path, options: Sequence[str]) -> Record:
    """Quantize with options and the profile of `build_qprof`; return what is known of the result."""
    profile = _built(model, work, QPROF).with_suffix(".yaml")
    path = str(model.path(work / model.name))
    command = [*_qprof(), "quantize", path, "--profile", str(profile), "-o", str(out), *options]
    build(out, [[command]], _qprof_digest(model, work, [*options, "setting"]))
    record: Record = json.loads(out.with_suffix(".json").read_text(encoding="utf-8"))
    return record


def _qprof_digest(model: RealModel, work: Path, options: Sequence[str]) -> str:
    packages = [
        Path(place) for name in ("profiles", "quantizer", "cli", "configs") for place in _package(name)
    ]
    sources = [
        file
        for folder in packages
        for file in sorted(folder.rglob("*"))
        if file.suffix in {".py", ".yaml", ".c"}
    ]
    digest = digest_of(work / model.name / "data.json", *sources)
    return hashlib.sha256((digest + "\0".join(options)).encode()).hexdigest()


def score(model: RealModel, data: Data, work: Path) -> None:
    """Judge the float model and every int8 model that was built."""
    float_judged(model, data.evaluation, work)
    for label, record in builds(model, work).items():
        if record["error"] or record.get("judged_file") == record["file"]:
            continue
        try:
            judged: Record | None = judge(model, _built(model, work, label), data.evaluation, work).record()
        except RUNTIME_ERRORS as problem:
            judged, record["error"] = None, f"does not run: {sentence(str(problem))}"
        save(_built(model, work, label), {**record, "judged": judged, "judged_file": record["file"]})


def float_judged(model: RealModel, split: Split, work: Path) -> Judged:
    """Return what the float model does on a split; judged once."""
    file = work / model.name / "float" / split.name / "judged.json"
    if not file.exists():
        judged = judge(model, model.path(work / model.name), split, work)
        write_atomically(file, json.dumps(judged.record()).encode())
    return Judged.of_record(json.loads(file.read_text(encoding="utf-8")))


def best_peer(model: RealModel, work: Path) -> str | None:
    """Return the label of onnxruntime's setting with the best score, by SQNR among equals."""
    judged = {
        label: Judged.of_record(record["judged"])
        for label, record in builds(model, work).items()
        if label not in {QPROF, TUNED, DYNAMIC} and record.get("judged") and not record["error"]
    }
    return max(judged, key=lambda label: _merit(judged[label]), default=None)


def time_models(model: RealModel, data: Data, work: Path, seconds: float) -> None:
    """Time float, qprof's and onnxruntime's int8 models, interleaved, on one thread."""
    records = builds(model, work)
    paths = {"float": model.path(work / model.name)}
    for label in (QPROF, TUNED, best_peer(model, work), DYNAMIC):
        if label in records and not records[label]["error"]:
            paths[label] = _built(model, work, label)
    files = {label: digest_of(path) for label, path in paths.items()}
    target = work / model.name / "latency.json"
    if target.exists() and json.loads(target.read_text(encoding="utf-8"))["files"] == files:
        return
    times = latencies(paths, next(data.evaluation.feeds()), seconds)
    write_atomically(target, json.dumps({"files": files, "milliseconds": times}).encode())


def builds(model: RealModel, work: Path) -> dict[str, Record]:
    """Return what is known of each int8 model, by label."""
    records = {}
    for label in (QPROF, TUNED, *PEERS):
        file = _built(model, work, label).with_suffix(".json")
        if file.exists():
            records[label] = json.loads(file.read_text(encoding="utf-8"))
    return records


def collect(model: RealModel, work: Path) -> Record:
    """Return all results of a model, as they go into the table and into results.json."""
    latency = work / model.name / "latency.json"
    path = model.path(work / model.name)
    file = work / model.name / "float" / "evaluation" / "judged.json"
    plain = json.loads(file.read_text(encoding="utf-8")) if file.exists() else None
    records, best = builds(model, work), best_peer(model, work)
    judged = {label: record["judged"] for label, record in records.items() if record.get("judged")}
    against = {"float": plain, "peer": judged.get(best or "")}
    gaps = {
        label: {
            name: _difference(model, judged[label], other)
            for name, other in against.items()
            if other is not None and judged[label]["units"] and label != best
        }
        for label in judged
    }
    return {
        "name": model.name,
        "source": model.source,
        "kind": model.kind,
        "task": model.task,
        "size": path.stat().st_size,
        "float": _without_units(plain),
        "builds": {
            label: {**record, "judged": _without_units(record.get("judged"))}
            for label, record in records.items()
        },
        "best_peer": best,
        "differences": gaps,
        "milliseconds": json.loads(latency.read_text(encoding="utf-8"))["milliseconds"]
        if latency.exists()
        else {},
    }


def _difference(model: RealModel, judged: Record, other: Record) -> Record:
    found = difference(judged["units"], other["units"], lambda totals: model.score(totals).value)
    return asdict(found)


def _without_units(judged: Record | None) -> Record | None:
    return {key: value for key, value in judged.items() if key != "units"} if judged else None


def _merit(judged: Judged) -> tuple[float, float]:
    return (judged.scores.value if judged.scores else 0.0, judged.worst_sqnr)


def _built(model: RealModel, work: Path, label: str) -> Path:
    return work / model.name / "built" / f"{label}.onnx"


def _package(name: str) -> list[str]:
    spec = importlib.util.find_spec(f"qprof_onnx.{name}")
    return list(spec.submodule_search_locations or ()) if spec else []


def _qprof() -> list[str]:
    command = Path(sys.executable).with_name("qprof")
    if command.exists():
        return [str(command)]
    return [sys.executable, "-c", "from qprof_onnx.cli.main import main; main()"]
