"""Versions of qprof beside float, model by model: time, points lost, SQNR against what was expected.

    python tests/benchmarks/run.py versions --work DIR --version before=CHECKOUT --version now
    python tests/benchmarks/run.py versions pose --work DIR --version now --from-data --parts build,score

A version is a label, and after `=` the checkout that is run; without one, the installed qprof. Each makes its
profile and quantizes with the defaults (`dump-profile`, `quantize --profile`), or with --from-data by
`quantize --data`, which has the samples while it plans. Parts: build, score (evaluation split, with the 95 %
interval of a paired bootstrap against float), time.

Times are of the calling thread, in turns, one thread: the ratio of a round is the time of a quantized model
on some samples over that of float on the same; given is the median of the rounds, with their quartiles. While
`time` runs, the machine should have nothing else to do, but a busy core disturbs thread time less than time.
"""

from __future__ import annotations

import json
import re
import statistics
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path

import models
from bootstrap import Difference, difference
from frame import Row, Rows, Stage, number, table
from record import Feed, Judged
from workbench import (
    FLOAT,
    ONNXRUNTIME,
    QPROF,
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
EXPECTED = re.compile(r"output '([^']*)': expected SQNR (-?[\d.]+) dB \((-?[\d.]+) to (-?[\d.]+)\)")
COUNTED = re.compile(r"^ +(\d+)  ([a-z-]+)$", re.MULTILINE)


def options(parser: ArgumentParser) -> None:
    parser.add_argument("--version", action="append", required=True, help="LABEL or LABEL=CHECKOUT")
    parser.add_argument("--from-data", action="store_true", help="quantize with the samples at hand")
    parser.add_argument("--parts", default=",".join(PARTS), help="some of " + ",".join(PARTS))
    parser.add_argument("--seconds", type=float, default=20.0, help="of timing for each model")
    parser.add_argument("--again", action="store_true", help="time again what has been timed")


def from_data(label: str, checkout: Path | None) -> Variant:
    """Return `qprof quantize --data`, of the installed version or of another checkout."""
    command = (*QPROF, "quantize", "{model}", "--data", "{data}", "{profiling}")
    files = ("-o", "{out}", "--save-plan", "{out}.plan.yaml")
    environment = {} if checkout is None else {"PYTHONPATH": str(checkout / ".typing")}
    return Variant(label, [[(*command, *files)]], sources_of_qprof(checkout), environment)


def rows(name: str, given: Namespace) -> Iterator[Row]:
    bench, parts = Workbench(name, given.work), given.parts.split(",")
    split, found = bench.data.evaluation, dict[str, Row]()
    checkouts = dict(version.partition("=")[::2] for version in given.version)
    for label, place in checkouts.items():
        checkout = Path(place).resolve() if place else None
        variant = (from_data if given.from_data else qprof_whole)(label, checkout)
        record = bench.build(variant) if "build" in parts else bench.record(label)
        found[label] = {key: record.get(key) for key in ("error", "seconds", "size")}
        found[label]["said"] = "".join(step["printed"] for step in record.get("steps", ()))
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


def expected(said: str) -> dict[str, tuple[float, float, float]]:
    """Return the SQNR that `quantize` expected of each output, and its band, from what it printed."""
    return {name: (float(a), float(b), float(c)) for name, a, b, c in EXPECTED.findall(said)}


def in_band(version: Row) -> tuple[int, int]:
    """Return how many outputs have the SQNR that was expected of them, and of how many one was expected."""
    told, measured = expected(version["said"]), version.get("sqnr", {})
    held = [low <= measured[name] <= high for name, (_, low, high) in told.items() if name in measured]
    return sum(held), len(held)


def page(rows: Rows) -> str:
    """Return a table for each version, and what all of it says in one line each."""
    parts = []
    labels = dict.fromkeys(label for (row,) in rows.values() for label in row["versions"])
    heads = ("model", "kind", "float ms", "time", "float", "score", "points", "SQNR", "expected", "nodes")
    for label in labels:
        known = {name: row for name, (row,) in rows.items() if label in row["versions"]}
        lines = [_line(name, row, row["versions"][label]) for name, row in known.items()]
        versions = [row["versions"][label] for row in known.values()]
        parts += [f"### {label}", table(heads, lines), _summary(versions)]
    return "\n\n".join(parts)


def _line(name: str, row: Row, version: Row) -> list[str]:
    if version["error"]:
        return [name, row["kind"], *["-"] * 7, version["error"]]
    times, gap = version.get("times", {}), version.get("difference")
    told, measured = expected(version["said"]), version.get("sqnr", {})
    worst = min(measured, key=lambda output: measured[output], default="")
    band = "{:.0f} ({:.0f} to {:.0f})".format(*told[worst]) if worst in told else "-"
    counted = COUNTED.findall(version["said"])
    return [
        name,
        row["kind"],
        number(times.get("float_ms"), 2),
        number(times.get("ratio"), 3),
        number(row["score"], 3),
        number(version.get("score"), 3),
        "{points:+.2f} ({low:+.2f} to {high:+.2f})".format(**gap) if gap else "-",
        number(measured.get(worst), 1),
        band,
        ", ".join(f"{count} {kind}" for count, kind in counted),
    ]


def _summary(found: Sequence[Row]) -> str:
    """Return how many of a version's models hold what is asked of them."""
    ratios = [version["times"]["ratio"] for version in found if version.get("times")]
    gaps = [Difference(**version["difference"]) for version in found if version.get("difference")]
    near = sum(gap.points >= -0.5 for gap in gaps)
    lost = sum(gap.points < -0.5 and gap.high < 0 for gap in gaps)
    held, outputs = map(sum, zip(*(in_band(version) for version in found), strict=True))
    words = [f"Within 0.5 points: {near} of {len(gaps)}; lost more, significantly: {lost}."]
    words += [f"Outputs within the band that was expected: {held} of {outputs}."]
    if ratios:
        slower = sum(ratio > 1.0 for ratio in ratios)
        little = sum(0.97 < ratio <= 1.0 for ratio in ratios)
        words += [
            f"Time over float, geometric mean: {statistics.geometric_mean(ratios):.3f} of {len(ratios)}."
        ]
        words += [f"Slower than float: {slower}; gains less than 3 %: {little}."]
    return " ".join(words)


STAGE = Stage(rows, {"": page}, tuple(models.FILES), options)
