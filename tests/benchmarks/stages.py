"""The stages of the benchmark: build the int8 models, score them, time them. Each keeps its results in the
work folder and does again only what has changed.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from onnxruntime.capi import onnxruntime_pybind11_state as ort_errors
from record import Data, Judged, RealModel, Split, judge, session, write_atomically
from speed import latencies

HERE = Path(__file__).resolve().parent
LIMIT = 1800  # seconds that one command may take
Record = dict[str, Any]
RUNTIME_ERRORS = (  # what onnxruntime says of a model that it cannot load or run; they share no base class
    ort_errors.Fail,
    ort_errors.InvalidArgument,
    ort_errors.InvalidGraph,
    ort_errors.InvalidProtobuf,
    ort_errors.NotImplemented,
    ort_errors.RuntimeException,
)

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
DYNAMIC = "ort-dynamic"


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
        # Symbolic shapes fail on several models; onnxruntime's advice is to go on without.
        attempts = [
            [[*command, *options, *more]] for options in choices for more in ([], ["--skip-symbolic-shape"])
        ]
        _build(out, attempts, _digest(script, work / model.name / "data.json"))


def build_qprof(model: RealModel, data: Data, work: Path, options: Sequence[str] = ()) -> None:
    """Profile and quantize with qprof's command line; again when the checkout has changed."""
    out = _built(model, work, "qprof")
    profile = out.with_suffix(".yaml")
    path = str(model.path(work / model.name))
    commands = [
        [*_qprof(), "dump-profile", path, "--data", str(data.calibration), "-o", str(profile)],
        [*_qprof(), "quantize", path, "--profile", str(profile), "-o", str(out), *options],
    ]
    packages = [
        Path(place) for name in ("profiles", "quantizer", "cli", "configs") for place in _package(name)
    ]
    sources = [
        file
        for folder in packages
        for file in sorted(folder.rglob("*"))
        if file.suffix in {".py", ".yaml", ".c"}
    ]
    digest = _digest(work / model.name / "data.json", *sources)
    _build(out, [commands], hashlib.sha256((digest + "\0".join(options)).encode()).hexdigest())


def score(model: RealModel, data: Data, work: Path) -> None:
    """Judge the float model and every int8 model that was built."""
    float_judged(model, data.evaluation, work)
    for label, record in builds(model, work).items():
        if record["error"] or record.get("judged_file") == record["file"]:
            continue
        try:
            judged: Record | None = judge(model, _built(model, work, label), data.evaluation, work).record()
        except RUNTIME_ERRORS as problem:
            judged, record["error"] = None, f"does not run: {_sentence(str(problem))}"
        _save(_built(model, work, label), {**record, "judged": judged, "judged_file": record["file"]})


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
        if label not in {"qprof", "qprof-tuned", DYNAMIC} and record.get("judged") and not record["error"]
    }
    return max(judged, key=lambda label: _merit(judged[label]), default=None)


def time_models(model: RealModel, data: Data, work: Path, seconds: float) -> None:
    """Time float, qprof's and onnxruntime's best int8 model, interleaved, on one thread."""
    records = builds(model, work)
    paths = {"float": model.path(work / model.name)}
    for label in ("qprof", best_peer(model, work)):
        if label in records and not records[label]["error"]:
            paths[label] = _built(model, work, label)
    files = {label: _digest(path) for label, path in paths.items()}
    target = work / model.name / "latency.json"
    if target.exists() and json.loads(target.read_text(encoding="utf-8"))["files"] == files:
        return
    times = latencies(paths, next(data.evaluation.feeds()), seconds)
    write_atomically(target, json.dumps({"files": files, "milliseconds": times}).encode())


def builds(model: RealModel, work: Path) -> dict[str, Record]:
    """Return what is known of each int8 model, by label."""
    records = {}
    for label in ("qprof", "qprof-tuned", *PEERS):
        file = _built(model, work, label).with_suffix(".json")
        if file.exists():
            records[label] = json.loads(file.read_text(encoding="utf-8"))
    return records


def collect(model: RealModel, work: Path) -> Record:
    """Return all results of a model, as they go into the table and into results.json."""
    latency = work / model.name / "latency.json"
    path = model.path(work / model.name)
    judged = work / model.name / "float" / "evaluation" / "judged.json"
    return {
        "name": model.name,
        "source": model.source,
        "task": model.task,
        "size": path.stat().st_size,
        "float": json.loads(judged.read_text(encoding="utf-8")) if judged.exists() else None,
        "builds": builds(model, work),
        "best_peer": best_peer(model, work),
        "milliseconds": json.loads(latency.read_text(encoding="utf-8"))["milliseconds"]
        if latency.exists()
        else {},
    }


def _merit(judged: Judged) -> tuple[float, float]:
    return (judged.scores.value if judged.scores else 0.0, judged.worst_sqnr)


def _built(model: RealModel, work: Path, label: str) -> Path:
    return work / model.name / "built" / f"{label}.onnx"


def _build(out: Path, attempts: Sequence[Sequence[Sequence[str]]], digest: str) -> None:
    """Run the commands of the first attempt that works; time and memory are those of this attempt."""
    file = out.with_suffix(".json")
    if file.exists() and json.loads(file.read_text(encoding="utf-8"))["digest"] == digest:
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    before: list[str] = []
    for commands in attempts:
        out.unlink(missing_ok=True)
        record = {"digest": digest, **_attempt(out, commands), "failed_before": list(before)}
        record["error"] = record["error"] or _not_loaded(out)
        if not record["error"]:
            break
        before.append(record["error"])
    _save(out, record)


def _not_loaded(file: Path) -> str | None:
    """Return what onnxruntime says of a model that it cannot load."""
    try:
        session(file, 1)
    except RUNTIME_ERRORS as problem:
        return f"does not run: {_sentence(str(problem))}"
    return None


def _attempt(out: Path, commands: Sequence[Sequence[str]]) -> Record:
    record: Record = {"error": None, "seconds": 0.0, "peak_mb": 0.0, "steps": []}
    step = out.with_suffix(".step.json")
    for command in commands:
        measured = [sys.executable, str(HERE / "measured.py"), str(step), *command]
        run = subprocess.run(measured, capture_output=True, text=True, timeout=LIMIT, check=True)
        taken = json.loads(step.read_text(encoding="utf-8"))
        step.unlink()
        record["steps"].append(taken)
        record["seconds"] += taken["seconds"]
        record["peak_mb"] = max(record["peak_mb"], taken["peak_mb"])
        if taken["exit"] != 0:
            return {**record, "error": _sentence(run.stderr)}
    return {**record, "size": out.stat().st_size, "file": _digest(out)}


def _save(out: Path, record: Record) -> None:
    write_atomically(out.with_suffix(".json"), json.dumps(record, indent=1).encode())


def _sentence(message: str) -> str:
    """Return the last line of an error, without the paths of this machine."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    words = (lines[-1] if lines else "no message").split(" ")
    return " ".join(word for word in words if "/" not in word)[:300]


def _digest(*files: Path) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _package(name: str) -> list[str]:
    spec = importlib.util.find_spec(f"qprof_onnx.{name}")
    return list(spec.submodule_search_locations or ()) if spec else []


def _qprof() -> list[str]:
    command = Path(sys.executable).with_name("qprof")
    if command.exists():
        return [str(command)]
    return [sys.executable, "-c", "from qprof_onnx.cli.main import main; main()"]
