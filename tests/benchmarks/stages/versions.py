"""Versions of qprof beside float, model by model: time, points lost, SQNR against what was expected.

    python tests/benchmarks/run.py versions --work DIR --version before=CHECKOUT --version now
    python tests/benchmarks/run.py versions pose --work DIR --version now --version loop --from-data loop

A version is a label, and after `=` the checkout that is run; without one, the installed qprof. Each makes its
profile and quantizes with the defaults (`dump-profile`, `quantize --profile`), or with options of quantize
that --settings gives. Those that --from-data names have the samples while they plan (`quantize --data`): the
model is run on 16 of them before it is written, and what that takes is counted apart
(`with_loop_seconds.py`). Parts: build, score (evaluation split, with the 95 % interval of a paired bootstrap
against float), time.

Times are of the calling thread, in turns, one thread: the ratio of a round is the time of a quantized model
on some samples over that of float on the same; given is the median of the rounds. While `time` runs, the
machine should have nothing else to do, but a busy core disturbs thread time less than time.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path

import models
import yaml
from bootstrap import Difference, difference
from frame import HERE, Row, Rows, Stage, number, table
from record import Feed, Judged
from workbench import (
    FLOAT,
    ONNXRUNTIME,
    Run,
    Variant,
    Workbench,
    digest_of,
    qprof_whole,
    read_json,
    sources_of_qprof,
    write_atomically,
)

PARTS = ("build", "score", "time")
SAMPLES = 8  # of the evaluation split, that times are taken on
ROUND = 0.02  # seconds that a model runs in a turn, at least
GAIN = 0.97  # of float's time; what is above gains so little that int8 is not worth its noise


def options(parser: ArgumentParser) -> None:
    parser.add_argument("--version", action="append", required=True, help="LABEL or LABEL=CHECKOUT")
    parser.add_argument(
        "--from-data", action="append", default=[], help="LABEL of a version that has the samples"
    )
    parser.add_argument(
        "--settings", action="append", default=[], help="LABEL=OPTIONS of quantize, as now=--target openvino"
    )
    parser.add_argument("--parts", default=",".join(PARTS), help="some of " + ",".join(PARTS))
    parser.add_argument("--seconds", type=float, default=20.0, help="of timing for each model")
    parser.add_argument("--again", action="store_true", help="time again what has been timed")


def from_data(label: str, checkout: Path | None) -> Variant:
    """Return `qprof quantize --data`, of the installed version or of another checkout."""
    program = (sys.executable, "-P", str(HERE / "with_loop_seconds.py"), "{out}.loop.json")
    command = (*program, "quantize", "{model}", "--data", "{data}")
    files = ("-o", "{out}", "--save-plan", "{out}.plan.yaml")
    environment = {} if checkout is None else {"PYTHONPATH": str(checkout / ".typing")}
    return Variant(label, [[(*command, *files)]], sources_of_qprof(checkout), environment)


def rows(name: str, given: Namespace) -> Iterator[Row]:
    bench, parts = Workbench(name, given.work), given.parts.split(",")
    split, found = bench.data.evaluation, dict[str, Row]()
    checkouts = dict(version.partition("=")[::2] for version in given.version)
    settings = dict(text.partition("=")[::2] for text in given.settings)
    for label, place in checkouts.items():
        checkout = Path(place).resolve() if place else None
        options = settings.get(label, "").split()
        variant = (
            from_data(label, checkout) if label in given.from_data else qprof_whole(label, checkout, options)
        )
        record = bench.build(variant) if "build" in parts else bench.record(label)
        found[label] = {key: record.get(key) for key in ("error", "seconds", "size")}
        found[label]["processor"] = sum(step.get("processor", 0.0) for step in record.get("steps", ()))
        out = bench.file(label)
        found[label]["loop"] = read_json(out.with_name(f"{out.name}.loop.json"))
        found[label] |= _planned(out.with_name(f"{out.name}.plan.yaml"))
    plain = bench.judged(FLOAT, split) if "score" in parts else None
    for label in filter(bench.works, checkouts):
        judged = bench.judged(label, split) if "score" in parts else None
        if not isinstance(judged, Judged) or not isinstance(plain, Judged):
            found[label]["error"] = judged
            continue
        found[label]["sqnr"] = dict(judged.sqnr)
        if judged.scores and plain.scores:
            found[label]["score"] = judged.scores.value
            gap = difference(judged.units, plain.units, lambda sums: bench.model.score(sums).value)
            found[label]["difference"] = asdict(gap)
    if "time" in parts:
        for label, times in _times(bench, [*filter(bench.works, checkouts)], given).items():
            found[label]["times"] = times
    yield {
        "kind": bench.model.kind,
        "size": bench.path.stat().st_size,
        "score": plain.scores.value if isinstance(plain, Judged) and plain.scores else None,
        "versions": found,
    }


def _planned(file: Path) -> Row:
    """Return the nodes of each kind of a plan, and what it says of SQNR (dB) and time (over float's)."""
    if not file.exists():
        return {"nodes": {}, "expected": {}, "predicted": None}
    with file.open(encoding="utf-8") as text:
        plan = yaml.load(text, Loader=yaml.CSafeLoader)
    origin = plan["origin"]
    told = {
        name: [origin["estimated_sqnr"][name], *band] for name, band in origin.get("sqnr_bands", {}).items()
    }
    spent = origin.get("time")
    return {
        "nodes": Counter(node["kind"] for node in plan["nodes"].values()),
        "expected": told,
        "predicted": spent["planned_us"] / spent["float_us"] if spent else None,
        "checks": origin.get("checks", []),
        "notes": plan.get("notes", []),
    }


def _times(bench: Workbench, labels: Sequence[str], given: Namespace) -> Mapping[str, Row]:
    """Return milliseconds and ratios to float of some variants, unless the same files were timed."""
    kept = bench.folder / "times" / f"versions-{'-'.join(labels)}.json"
    files = {label: digest_of(bench.file(label)) for label in (FLOAT, *labels)}
    known = read_json(kept)
    if given.again or known.get("files") != files:
        runs = {label: ONNXRUNTIME.run(bench.file(label), 1) for label in files}
        feeds = list(islice(bench.data.evaluation.feeds(), SAMPLES))
        known = {"files": files, "times": thread_times(runs, feeds, given.seconds)}
        write_atomically(kept, json.dumps(known).encode())
    times: Mapping[str, Row] = known["times"]
    return times


def thread_times(runs: Mapping[str, Run], feeds: Sequence[Feed], seconds: float) -> dict[str, Row]:
    """Return milliseconds of a sample and ratios to float, by thread time, of models that run in turns.

    A turn is all samples, as often as takes float ROUND seconds; the order moves on by one every round. At
    least 15 rounds are run, then as many as fit.
    """
    labels = list(runs)

    def turn(label: str, times: int) -> float:
        before = time.thread_time()
        for _ in range(times):
            for feed in feeds:
                runs[label](feed)
        return (time.thread_time() - before) / times / len(feeds)

    for label in labels:
        turn(label, 1)
    repeats = max(1, round(ROUND / max(1e-6, turn(FLOAT, 2) * len(feeds))))
    rounds: list[dict[str, float]] = []
    start = time.perf_counter()
    while len(rounds) < 15 or time.perf_counter() - start < seconds:
        first = len(rounds) % len(labels)
        rounds.append({label: turn(label, repeats) for label in labels[first:] + labels[:first]})
    found = {}
    for label in labels:
        if label != FLOAT:
            ratios = statistics.quantiles([each[label] / each[FLOAT] for each in rounds], n=4)
            spent = {key: statistics.median(each[key] for each in rounds) * 1e3 for key in (FLOAT, label)}
            found[label] = {"float_ms": spent[FLOAT], "ms": spent[label], "ratio": ratios[1]}
            found[label]["quartiles"] = [ratios[0], ratios[2]]
    return found


def in_band(version: Row) -> tuple[int, int]:
    """Return how many outputs have the SQNR that was expected of them, and of how many one was expected."""
    told, measured = version["expected"], version.get("sqnr", {})
    held = [low <= measured[name] <= high for name, (_, low, high) in told.items() if name in measured]
    return sum(held), len(held)


def page(rows: Rows) -> str:
    """Return the tables of the models, those that were kept aside apart, and what running plans took."""
    known = {name: row for name, (row,) in rows.items()}
    aside = {name: row for name, row in known.items() if name in models.KEPT_ASIDE_OF_VERSIONS}
    seen = {name: row for name, row in known.items() if name not in aside}
    parts = []
    for title, some in (
        ("Models of the benchmarks", seen),
        ("Kept aside, as they came the first time", aside),
    ):
        if some:
            parts += [f"### {title}", _side_by_side(some), *_summaries(some)]
    parts += ["### What running the plan on samples brings and takes", _loops(known)]
    parts += ["### Time predicted and measured", _predictions(known)]
    return "\n\n".join(parts)


def _labels(known: Mapping[str, Row]) -> list[str]:
    return list(dict.fromkeys(label for row in known.values() for label in row["versions"]))


def _side_by_side(known: Mapping[str, Row]) -> str:
    labels = _labels(known)
    heads = ["model", "kind", "float ms", "float score"]
    heads += [f"{word}, {label}" for word in ("time", "points", "SQNR (expected)") for label in labels]
    lines = []
    for name, row in known.items():
        found = [row["versions"].get(label) for label in labels]
        times = [version.get("times", {}) if version else {} for version in found]
        plain = next((number(time["float_ms"], 2) for time in times if time), "-")
        line = [name, row["kind"], plain, number(row["score"], 3)]
        line += [number(time.get("ratio"), 3) for time in times]
        lines.append([*line, *map(_points, found), *map(_worst, found)])
    return table(heads, lines)


def _points(version: Row | None) -> str:
    """Return the points that a version is above float, with the interval."""
    if not version or version["error"]:
        return version["error"] if version else "-"
    gap = version.get("difference")
    return "{points:+.2f} ({low:+.2f} to {high:+.2f})".format(**gap) if gap else "-"


def _worst(version: Row | None) -> str:
    """Return the least SQNR of the outputs, and the band that was expected of that output."""
    measured = (version or {}).get("sqnr", {})
    if not version or not measured:
        return "-"
    worst = min(measured, key=lambda output: measured[output])
    told = version["expected"].get(worst)
    band = f" ({told[1]:.0f} to {told[2]:.0f})" if told else ""
    return f"{measured[worst]:.1f}{band}"


def _summaries(known: Mapping[str, Row]) -> list[str]:
    """Return how many of each version's models hold what is asked of them."""
    lines = []
    for label in _labels(known):
        found = [row["versions"][label] for row in known.values() if label in row["versions"]]
        ratios = [version["times"]["ratio"] for version in found if version.get("times")]
        gaps = [Difference(**version["difference"]) for version in found if version.get("difference")]
        near = sum(gap.points >= -0.5 for gap in gaps)
        inside = sum(gap.points < -0.5 and gap.low <= 0 <= gap.high for gap in gaps)
        held, outputs = map(sum, zip(*(in_band(version) for version in found), strict=True))
        words = [f"**{label}**: within 0.5 points {near} of {len(gaps)}, {inside} more inside the interval."]
        words += [f"Outputs within the band that was expected: {held} of {outputs}."]
        if ratios:
            mean, slower = statistics.geometric_mean(ratios), sum(ratio > 1.0 for ratio in ratios)
            little = [
                v for v in found if v.get("times") and v["times"]["ratio"] > GAIN and not only_weights(v)
            ]
            words += [
                f"Time over float, geometric mean: {mean:.3f} of {len(ratios)}; slower than float: {slower};"
            ]
            words += [f"gain of less than 3 % and not weights only: {len(little)}."]
        lines.append(" ".join(words))
    return lines


def only_weights(version: Row) -> bool:
    """Tell whether a plan computes nothing in int8."""
    return set(version["nodes"]) <= {"float", "weight-only", "pass-through"}


def _loops(known: Mapping[str, Row]) -> str:
    heads = ("model", "version", "s", "s in the loop", "processor s", "in the loop", "nodes in int8", "said")
    lines = []
    for name, row in known.items():
        for label, version in row["versions"].items():
            loop = version["loop"]
            if loop and not version["error"]:
                seconds = [version["seconds"], loop["seconds"], version["processor"], loop["processor"]]
                said = (
                    "; ".join(note for note in version["notes"] if "calibration samples" in note) or "holds"
                )
                nodes = sum(
                    version["nodes"].get(kind, 0) for kind in ("quantized", "lookup-table", "dynamic")
                )
                lines.append([name, label, *(number(each, 1) for each in seconds), nodes, said])
    return table(heads, lines)


def _predictions(known: Mapping[str, Row]) -> str:
    lines, errors = [], []
    for name, row in known.items():
        for label, version in row["versions"].items():
            predicted, measured = version["predicted"], version.get("times", {}).get("ratio")
            if predicted is not None and measured is not None:
                errors.append(abs(predicted / measured - 1.0))
                error = f"{100.0 * (predicted / measured - 1.0):+.0f} %"
                lines.append([name, label, f"{predicted:.3f}", f"{measured:.3f}", error])
    text = table(("model", "version", "predicted", "measured", "error"), lines)
    middle = f"Median error: {100.0 * statistics.median(errors):.1f} %." if errors else ""
    return f"{text}\n\n{middle}"


STAGE = Stage(rows, {"VERSIONS.md": page}, models.REAL, options)
