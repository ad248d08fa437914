"""How fast the quantized models are: qprof, an older qprof, onnxruntime, OpenVINO and NNCF, interleaved.

    python tests/benchmarks/speed_table.py --work DIR                             all models, all stages
    python tests/benchmarks/speed_table.py --work DIR --stages build              some stages
    python tests/benchmarks/speed_table.py --work DIR --models minilm,u-net --again   time these again
    python tests/benchmarks/speed_table.py --work DIR --stages show --write       write what is known already

DIR is the work folder of real_models.py, whose data and peers are used. Stages: build (data, every int8
model), score (evaluation split), time (all columns of a row in turns, in one process), nodes (what is run,
with the times of each node), show. Each keeps its results in DIR and does again what has changed. --before
CHECKOUT adds an older version of qprof, --now CHECKOUT takes another than the installed one. While `time` and
`nodes` run, the machine should have nothing else to do. Packages: those of real_models.py, openvino and nncf.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import onnxruntime
import openvino as ov
import speed_builds as builds
import speed_report
import stages
from qprof_onnx.quantizer.plan.store import load_plan
from record import WORK, Data, RealModel, make_data, write_atomically
from speed import interleaved
from speed_builds import BEFORE, FLOAT, NNCF, NOW, OV_FLOAT, OV_QPROF, Checkout
from speed_nodes import executed, integer_share, slowest, slowest_in_openvino
from speed_predicted import predicted_ms

STAGES = ("build", "score", "time", "nodes", "show")
ORT_BEST, ORT_FASTEST = "ort-best", "ort-fastest"
PEERS_SECONDS = 3.0
"""For choosing onnxruntime's fastest setting, once."""
COLUMNS = (FLOAT, BEFORE, NOW, OV_FLOAT, NNCF, OV_QPROF)


def settings(model: RealModel, data: Data, work: Path) -> dict[str, str]:
    """Return onnxruntime's most accurate and its fastest setting, by column; none where none works."""
    known = {label: builds.record_of(model, work, label) for label in stages.PEERS}
    works = [label for label, record in known.items() if record and not record["error"]]
    best = stages.best_peer(model, work)
    if best is None:
        return {}
    target = work / model.name / "speed" / "peers.json"
    files = {label: str(known[label]["file"]) for label in works}
    kept = _read(target)
    if kept.get("files") != files:
        runs = {label: builds.ONNXRUNTIME.run(builds.place(model, work, label), 1) for label in works}
        times = interleaved(runs, next(data.evaluation.feeds()), PEERS_SECONDS)
        kept = {"files": files, "fastest": min(works, key=lambda label: times[label])}
        write_atomically(target, json.dumps(kept).encode())
    return {ORT_BEST: best, ORT_FASTEST: kept["fastest"]}


def time_model(model: RealModel, data: Data, work: Path, given: argparse.Namespace) -> None:
    """Time all columns of a row in turns, for each number of threads, unless nothing has changed."""
    chosen = settings(model, data, work)
    labels = {label: label for label in COLUMNS if _works(model, work, label)} | chosen
    files = {column: str(builds.record_of(model, work, label)["file"]) for column, label in labels.items()}
    target = work / model.name / "speed" / "times.json"
    known = _read(target)
    for threads in given.threads.split(","):
        if known.get(threads, {}).get("files") == files and not given.again:
            continue
        once = dict.fromkeys(labels.values())
        runs = {
            label: builds.runtime_of(label).run(builds.place(model, work, label), int(threads))
            for label in once
        }
        times = interleaved(runs, next(data.evaluation.feeds()), given.seconds)
        spent = {column: times[label] for column, label in labels.items()}
        known[threads] = {"files": files, "settings": chosen, "milliseconds": spent}
        write_atomically(target, json.dumps(known).encode())


def nodes_of(model: RealModel, data: Data, work: Path, again: bool) -> None:
    """Profile qprof's model in both runtimes, and float in onnxruntime, unless nothing has changed."""
    target = work / model.name / "speed" / "nodes.json"
    labels = (NOW, OV_QPROF, NNCF)
    works = [label for label in labels if _works(model, work, label)]
    files = {label: str(builds.record_of(model, work, label)["file"]) for label in works}
    if _read(target).get("files") == files and not again:
        return
    feed = next(data.evaluation.feeds())
    found: dict[str, Any] = {"files": files}
    if NOW in works:
        file = builds.place(model, work, NOW)
        quantized, floats = executed(file, feed), executed(builds.place(model, work, FLOAT), feed)
        plan = load_plan(file.with_suffix(".plan.yaml"))
        found["integer_share"] = integer_share(quantized)
        found["slowest"] = slowest(quantized, floats, plan)
        found["predicted_ms"] = predicted_ms(model.path(work / model.name), plan, file)
    for label in (OV_FLOAT, *works):
        if label != NOW:
            rows, precisions = slowest_in_openvino(builds.place(model, work, label), feed)
            found[label] = {"slowest": rows, "precisions": precisions}
    write_atomically(target, json.dumps(found, indent=1).encode())


def row(model: RealModel, data: Data, work: Path) -> dict[str, Any]:
    """Return what is known of a model, for the page."""
    folder = work / model.name / "speed"
    times = _read(folder / "times.json")
    columns = {column: column for column in COLUMNS}
    columns |= next((times[threads]["settings"] for threads in times), {})
    scores = {column: builds.judged(model, data, work, label) for column, label in columns.items()}
    return {
        "name": model.name,
        "kind": model.kind,
        "settings": {column: label for column, label in columns.items() if column != label},
        "scores": {c: j.scores.value for c, j in scores.items() if j and j.scores},
        "sqnr": {c: j.worst_sqnr for c, j in scores.items() if j},
        "errors": {c: e for c in (NOW, BEFORE, OV_QPROF, NNCF) if (e := _error(model, work, c))},
        "milliseconds": {threads: known["milliseconds"] for threads, known in times.items()},
        "nodes": _read(folder / "nodes.json"),
    }


def _error(model: RealModel, work: Path, label: str) -> str | None:
    record = builds.record_of(model, work, label)
    return record.get("error") if record else None


def _works(model: RealModel, work: Path, label: str) -> bool:
    record = builds.record_of(model, work, label)
    return bool(record) and not record["error"]


def _read(file: Path) -> dict[str, Any]:
    return dict(json.loads(file.read_text(encoding="utf-8"))) if file.exists() else {}


def run(name: str, work: Path, chosen: list[str], given: argparse.Namespace) -> dict[str, Any]:
    """Run the chosen stages of one model and return its row."""
    model, start = builds.load(name), time.perf_counter()
    data = make_data(model, work)
    if "build" in chosen:
        versions = {NOW: Checkout(given.now)}
        versions |= {BEFORE: Checkout(given.before)} if given.before else {}
        builds.build_all(model, data, work, versions)
    if "score" in chosen:
        builds.score_all(model, data, work)
    if "time" in chosen:
        time_model(model, data, work, given)
    if "nodes" in chosen:
        nodes_of(model, data, work, given.again)
    found = row(model, data, work)
    print(speed_report.line(found), f"[{time.perf_counter() - start:.0f} s]", flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--models", default=",".join(builds.NAMES), help="names, separated by commas")
    parser.add_argument("--stages", default=",".join(STAGES), help="some of " + ",".join(STAGES))
    parser.add_argument("--before", type=Path, help="checkout of an older qprof")
    parser.add_argument("--now", type=Path, help="checkout of qprof; otherwise the installed one")
    parser.add_argument("--seconds", type=float, default=8.0, help="for the times of one model")
    parser.add_argument("--threads", default="1", help="numbers of threads, separated by commas")
    parser.add_argument("--again", action="store_true", help="time again what has been timed")
    parser.add_argument("--write", nargs="?", type=Path, const=speed_report.PAGE, help="write SPEED.md")
    given = parser.parse_args()
    work, chosen, names = given.work.resolve(), given.stages.split(","), given.models.split(",")
    unknown = [*(set(chosen) - set(STAGES)), *(set(names) - set(builds.NAMES))]
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; models are {', '.join(builds.NAMES)}")
    os.environ[WORK] = str(work)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    rows = []
    for name in names:
        try:
            rows.append(run(name, work, chosen, given))
        except (SystemExit, RuntimeError, ImportError) as problem:
            print(f"{name}: left out: {problem}", flush=True)
    if given.write:
        versions = f"onnxruntime {onnxruntime.__version__}, OpenVINO {ov.__version__.split('-')[0]}"
        given.write.write_text(speed_report.page(rows, versions), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
