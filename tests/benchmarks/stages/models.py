"""Trained models, float against int8: qprof, onnxruntime's quantizer, NNCF in OpenVINO, beside each other.

    python tests/benchmarks/run.py models --work DIR --peer-python NNCF/bin/python --write

A row is a model. Built are: **qprof** (`dump-profile`, `quantize --profile`) and **with data** (`quantize
--data`), with the defaults; **onnxruntime**: `quant_pre_process` and `quantize_static`, U8S8, QDQ, minmax,
entropy and percentile (each calibrated once), per tensor and per channel, and of these six the one with the
best score on the evaluation data, in its favour; **NNCF**: `nncf.quantize` of the model in OpenVINO, told
which models are transformers; **in OpenVINO**: qprof for target openvino. --peer-python names the Python that
has nncf; without it what was built before is taken.

Scores are of the evaluation split, differences in points (hundredths) with the 95 % interval of a paired
bootstrap. SQNR is that of the worst output. Times are processor time of one thread, the models of one runtime
in turns, over float's in that runtime. Seconds are those of the processor, memory is the peak of a process.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import models
import yaml
from bootstrap import difference
from frame import HERE, Row, Rows, Stage, number, table
from record import Judged, read_feeds, session
from workbench import (
    FLOAT,
    ONNXRUNTIME,
    Runtime,
    Variant,
    Workbench,
    qprof,
    qprof_whole,
    qprof_with_data,
)

PROFILE, DATA, ORT, NNCF, OPENVINO = "qprof", "qprof-data", "onnxruntime", "nncf", "qprof-openvino"
IN_ORT, IN_OPENVINO = (PROFILE, DATA, ORT), (NNCF, OPENVINO)
TITLES = {
    PROFILE: "qprof",
    DATA: "qprof, with data",
    ORT: "onnxruntime",
    NNCF: "NNCF",
    OPENVINO: "qprof in OpenVINO",
}
WELL_KNOWN = {
    "minilm": "all-MiniLM-L6-v2, sentences",
    "silero": "Silero VAD 5, speech",
    "nudenet": "NudeNet, a YOLOv8n",
    "ppocr-det": "PP-OCRv4, finds text",
    "ppocr-rec": "PP-OCRv4, reads text",
    "vit-focus": "a ViT-S, what is in focus",
    "magika": "Magika, types of files",
    "basic-pitch": "Basic Pitch, notes of music",
}
"""Models that people know, by what they call them: the table of README.md."""
GROWS = "because convolutions with few channels are zero-padded to wider ones, which run faster."
"""Cause of a file that is larger than float's: the plan folds the width of convolutions (`fold_width`)."""
TRANSFORMERS = {"minilm", "vit-focus"}
HALF_A_POINT = 0.5
FASTER = 0.95
"""Part of another model's time below which one is called faster: times differ by that from run to run."""
EQUAL = 0.05
"""Points that two models may differ by and be called equal: what a table with one digit shows as 0.0."""


def onnxruntime_settings() -> Iterator[Variant]:
    """Yield the six static settings of onnxruntime's quantizer."""
    # Pre-processing fails on some models, or spoils them: then without symbolic shapes, then without it.
    fallbacks = ((), ("--skip-symbolic-shape",), ("--no-pre-process",))
    script = HERE / "ort_static.py"
    for method in ("minmax", "entropy", "percentile"):
        for grain, more in (("tensor", ()), ("channel", ("--per-channel",))):
            # Opset 13 is the first with scales for each channel.
            words = ("{model}", "--data", "{data}", "-o", "{out}", "--method", method, "--opset", "13", *more)
            ranges = [("--ranges", f"{{folder}}/{method}{number}.json") for number in range(len(fallbacks))]
            attempts = [
                [(sys.executable, str(script), *words, *kept, *other)]
                for kept, other in zip(ranges, fallbacks, strict=True)
            ]
            yield Variant(f"ort-{method}-{grain}", attempts, [script], part="peers")


SETTINGS = tuple(onnxruntime_settings())


def openvino() -> Runtime:
    """Return OpenVINO, which is loaded now."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from openvino_runs import OPENVINO

    return OPENVINO


def options(parser: ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=6.0, help="of timing in each runtime, for a model")


def rows(name: str, given: Namespace) -> Iterator[Row]:
    """Yield the row of a model."""
    bench = Workbench(name, given.work, given.parts, again=given.again)
    script = HERE / "nncf_int8.py"
    nncf = [str(given.peer_python or ""), str(script), "{model}", "--data", "{data}", "-o", "{out}"]
    nncf += ["--transformer"] if name in TRANSFORMERS else []
    theirs = qprof(OPENVINO, "--target", "openvino")
    for variant in (
        *SETTINGS,
        qprof_whole(PROFILE),
        qprof_with_data(DATA),
        replace(theirs, runtime=openvino()),
        *([Variant(NNCF, [[nncf]], [script], openvino(), ".xml", part="peers")] if given.peer_python else []),
    ):
        bench.build(variant)
    best = best_setting(bench)
    labels = {PROFILE: PROFILE, DATA: DATA, ORT: best, NNCF: NNCF, OPENVINO: OPENVINO}
    plain, found = bench.judged(FLOAT, bench.data.evaluation), dict[str, Judged]()
    variants: dict[str, Row] = {}
    for column, label in labels.items():
        judged = _judged(bench, label) if label else "none works"
        variants[column] = {"error": judged if isinstance(judged, str) else None}
        if isinstance(judged, str):
            continue
        found[column] = judged
        variants[column] |= told(bench, label, judged)
        if judged.scores and isinstance(plain, Judged):
            variants[column]["points"] = _gap(bench, judged, plain)
    times = _times(bench, {column: label for column, label in labels.items() if column in found}, given)
    for column, spent in times.items():
        if column in variants:
            variants[column]["time"] = spent
    beside = {
        column: _gap(bench, found[PROFILE], found[column])
        for column in (ORT, NNCF)
        if PROFILE in found and column in found and found[column].scores
    }
    yield {
        "kind": bench.model.kind,
        "source": bench.model.source,
        "task": bench.model.task,
        "size": bench.path.stat().st_size,
        "score": plain.scores.value if isinstance(plain, Judged) and plain.scores else None,
        "setting": best.removeprefix("ort-") if best else None,
        "float": {column: times[column] for column in (FLOAT, "float-openvino") if column in times},
        "beside": beside,
        "inference": plain_inference(bench),
        "variants": variants,
    }


def best_setting(bench: Workbench) -> str:
    """Return the label of onnxruntime's setting with the best score on evaluation data, by SQNR among equals;
    "" where none works.
    """
    judged = {variant.label: _judged(bench, variant.label) for variant in SETTINGS}
    merits = {
        label: (found.scores.value if found.scores else 0.0, found.worst_sqnr)
        for label, found in judged.items()
        if isinstance(found, Judged)
    }
    return max(merits, key=lambda label: merits[label], default="")


def _judged(bench: Workbench, label: str) -> Judged | str:
    runtime = openvino() if label in IN_OPENVINO else ONNXRUNTIME
    return bench.judged(label, bench.data.evaluation, runtime, _suffix(label))


def _suffix(label: str) -> str:
    return ".xml" if label == NNCF else ".onnx"


def _gap(bench: Workbench, one: Judged, other: Judged) -> Row:
    return asdict(difference(one.units, other.units, lambda sums: bench.model.score(sums).value))


def told(bench: Workbench, label: str, judged: Judged) -> Row:
    """Return what a variant has besides its times: size, cost, score, SQNR, and what its plan says of it."""
    record = bench.record(label)
    row: Row = {
        "size": record["size"],
        "steps": _steps(bench, label),
        "score": judged.scores.value if judged.scores else None,
        "sqnr": dict(judged.sqnr),
    }
    plan = bench.file(label).with_name(f"{label}.onnx.plan.yaml")
    if plan.exists():
        with plan.open(encoding="utf-8") as text:
            read = yaml.load(text, Loader=yaml.CSafeLoader)
        spent, bands = read["origin"].get("time"), read["origin"].get("sqnr_bands", {})
        row["predicted"] = spent["planned_us"] / spent["float_us"] if spent else None
        row["bands"] = dict(bands)
        row["nodes"] = dict(Counter(node["kind"] for node in read["nodes"].values()))
    return row


def _steps(bench: Workbench, label: str) -> list[list[float]]:
    """Return seconds of the processor and peak MB of each command of a variant.

    Of onnxruntime's settings with the same method one calibrated, and is told for both.
    """
    method, *_ = label.rsplit("-", 1) if label.startswith("ort-") else (label,)
    same = [variant.label for variant in SETTINGS if variant.label.startswith(f"{method}-")] or [label]
    found = [
        [[step["processor"], step["peak_mb"]] for step in bench.record(one).get("steps", ())] for one in same
    ]
    return max(found, key=lambda steps: sum(step[0] for step in steps))


def _times(bench: Workbench, labels: Mapping[str, str], given: Namespace) -> dict[str, Row]:
    """Return the times of all variants, and of float in both runtimes, as far as they were taken."""
    there = {column: label for column, label in labels.items() if column in IN_OPENVINO}
    here = {column: label for column, label in labels.items() if column not in there}
    runs = {FLOAT: (bench.path, ONNXRUNTIME)}
    runs |= {column: (bench.file(label), ONNXRUNTIME) for column, label in here.items()}
    times = bench.times("onnxruntime", runs, given.seconds)
    if there:
        runs = {"float-openvino": (bench.path, openvino())}
        runs |= {column: (bench.file(label, _suffix(label)), openvino()) for column, label in there.items()}
        times |= bench.times("openvino", runs, given.seconds)
    return times


def plain_inference(bench: Workbench) -> float:
    """Return the seconds of the thread that the float model takes for all calibration samples."""
    opened, spent = session(bench.path, 1), 0.0
    for feed in read_feeds(bench.data.calibration):
        before = time.thread_time()
        opened.run(None, feed)
        spent += time.thread_time() - before
    return spent


def _known(rows: Rows) -> dict[str, Row]:
    return {name: row for name, (row,) in rows.items()}


def _of(row: Row, column: str, *keys: str) -> Any:
    """Return a figure of a variant; None where it has none."""
    found: Any = row["variants"].get(column, {})
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found


def _ratios(known: Mapping[str, Row], column: str, beside: str = PROFILE) -> list[float]:
    """Return the ratios of a column, of the models that both columns have."""
    pairs = [(_of(row, column, "time", "ratio"), _of(row, beside, "time", "ratio")) for row in known.values()]
    return [one for one, other in pairs if isinstance(one, float) and isinstance(other, float)]


def _mean(ratios: Sequence[float]) -> str:
    return number(statistics.geometric_mean(ratios) if ratios else None, 2)


def in_short(rows: Rows) -> str:
    """Return the sentences of README.md on all models."""
    known = _known(rows)
    near, scored = _near(known, PROFILE)
    *_, behind = _beside(known, ORT)
    at_once, theirs = _near(known, DATA)[0], _ratios(known, ORT)
    how = "" if at_once == near else f" ({at_once} by `quantize --data`, which holds samples out)"
    return (
        f"{near} of the {scored} models with a score{how} lose at most {HALF_A_POINT} points. All "
        f"{len(known)} take {_mean(_ratios(known, PROFILE))} of float's time (geometric mean); "
        f"onnxruntime's quantizer takes {_mean(theirs)} on the models that it converts, and has a better "
        f"score on {behind}."
    )


def _near(known: Mapping[str, Row], column: str) -> tuple[int, int]:
    """Return on how many models a column loses at most half a point, and on how many it has a score."""
    gaps = [gap["points"] for row in known.values() if (gap := _of(row, column, "points"))]
    return sum(gap >= -HALF_A_POINT - 1e-9 for gap in gaps), len(gaps)


def _beside(known: Mapping[str, Row], peer: str) -> tuple[int, int, int]:
    """Return on how many models qprof's score by profile is better than a peer's, equal, and worse."""
    gaps = [row["beside"][peer]["points"] for row in known.values() if peer in row["beside"]]
    better, behind = sum(gap > EQUAL for gap in gaps), sum(gap < -EQUAL for gap in gaps)
    return better, len(gaps) - better - behind, behind


def summary(rows: Rows) -> str:
    """Return the sentences of the comparison."""
    known = _known(rows)
    parts = []
    for column, how in (
        (PROFILE, "With the default settings and only a profile,"),
        (DATA, "With data (`quantize --data`),"),
    ):
        near, scored = _near(known, column)
        ratios = _ratios(known, column)
        parts.append(
            f"{how} {near} of {scored} trained models with a task score stay within 0.5 points of float, "
            f"and {len(ratios)} models take {_mean(ratios)} of float's time (geometric mean; slower than "
            f"float: {sum(ratio > 1.0 for ratio in ratios)})."
        )
    for column, what in (
        (ORT, "the best of six settings of onnxruntime's quantizer, chosen on the evaluation data"),
        (NNCF, "NNCF in OpenVINO"),
    ):
        better, equal, behind = _beside(known, column)
        if not better + equal + behind:
            continue
        parts.append(
            f"Compared with {what}, qprof's model by profile has a better score on {better} of "
            f"{better + equal + behind} models, an equal score on {equal}, and a worse one on {behind}."
        )
    both = _ratios(known, PROFILE, ORT), _ratios(known, ORT)
    parts.append(
        f"If onnxruntime's quantizer converts a model, the result takes {_mean(both[1])} of float's time, "
        f"qprof's {_mean(both[0])}."
    )
    return " ".join(parts)


def ahead(rows: Rows) -> str:
    """Return the models on which a peer has the better score, or takes less time in its own runtime."""
    known, lines = _known(rows), []
    for peer, ours in ((ORT, PROFILE), (NNCF, OPENVINO)):
        gaps = {name: -row["beside"][peer]["points"] for name, row in known.items() if peer in row["beside"]}
        better = [f"{name} {gap:+.2f}" for name, gap in gaps.items() if gap > EQUAL]
        times = {
            name: [_of(row, one, "time", "ratio") for one in (peer, ours)] for name, row in known.items()
        }
        pairs = {name: pair for name, pair in times.items() if None not in pair}
        faster = [
            f"{name} {theirs:.2f} ({own:.2f})"
            + (f" at {gaps[name]:+.2f} points" if gaps.get(name, 0.0) < -HALF_A_POINT else "")
            for name, (theirs, own) in pairs.items()
            if theirs < FASTER * own
        ]
        lines.append([TITLES[peer], f"of {len(gaps)}: {_list(better)}", f"of {len(pairs)}: {_list(faster)}"])
    return table(["", "better score, points", "less time, over float's (qprof's)"], lines)


def _list(parts: Sequence[str]) -> str:
    return ", ".join(parts) or "none"


def well_known(rows: Rows) -> str:
    """Return score, size and time of models that people know, beside onnxruntime's best setting.

    Below stand a line for each row that asks for one (where onnxruntime takes less time, where it has no
    file, where the file grows) and what holds for all models.
    """
    heads = ["model", "MB", "score: float", "qprof", "onnxruntime", "time: qprof", "onnxruntime"]
    known, lines, notes = _known(rows), [], []
    for name, title in WELL_KNOWN.items():
        if (row := known.get(name)) is None:
            continue
        before, after = row["size"], _of(row, PROFILE, "size")
        sizes = [number(size and size / 1e6, 1) for size in (before, after)]
        gaps = [_of(row, column, "points", "points") for column in (PROFILE, ORT)]
        scores = [number(100.0 * row["score"], 1)]
        scores += ["-" if gap is None else number(100.0 * row["score"] + gap, 1) for gap in gaps]
        times = [_of(row, column, "time", "ratio") for column in (PROFILE, ORT)]
        lines.append([title, " -> ".join(sizes), *scores, *(number(time, 2) for time in times)])
        (own, theirs), called = times, title.partition(",")[0]
        if None not in (own, theirs, *gaps) and theirs < FASTER * own:
            lost = f"{-gaps[1]:.1f}"
            loss = (
                f"but loses {lost} point{'s'[: lost != '1.0']}" if gaps[1] < -EQUAL else "at the same score"
            )
            notes.append(f"* {called}: onnxruntime's model is faster ({theirs:.2f}, qprof {own:.2f}) {loss}.")
        if row["setting"] is None:
            notes.append(f"* {called}: none of onnxruntime's six settings gives a file that runs.")
        if after and after > before:
            notes.append(f"* {called}: the file grows, {GROWS}")
    return "\n\n".join(filter(None, (table(heads, lines), "\n".join(notes), in_short(rows))))


def accuracy(rows: Rows) -> str:
    """Return scores, points and SQNR."""
    columns = (PROFILE, DATA, ORT, NNCF)
    heads = ["model", "kind", "float", *(f"{TITLES[column]}, points" for column in columns), "its setting"]
    heads += [f"SQNR {TITLES[column]}" for column in columns]
    heads.insert(6, heads.pop(7))
    lines = []
    for name, row in _known(rows).items():
        points = [_points(row, column) for column in columns]
        points.insert(3, row["setting"] or "none works")
        lines.append(
            [name, row["kind"], number(row["score"], 3), *points, *(_sqnr(row, column) for column in columns)]
        )
    return table(heads, lines)


def _points(row: Row, column: str) -> str:
    gap = _of(row, column, "points")
    if isinstance(gap, dict):
        return "{points:+.2f} ({low:+.2f} to {high:+.2f})".format(**gap)
    return "-"


def _sqnr(row: Row, column: str) -> str:
    found = _of(row, column, "sqnr")
    return f"{min(found.values()):.1f}" if isinstance(found, dict) and found else "-"


def times_table(rows: Rows) -> str:
    """Return the times over float's, beside the predicted ones."""
    known = _known(rows)
    columns = (*IN_ORT, *IN_OPENVINO)
    heads = [
        "model",
        "float ms",
        "predicted",
        *(TITLES[column] for column in IN_ORT),
        "float ms in OpenVINO",
    ]
    heads += [TITLES[column] for column in IN_OPENVINO]
    lines = []
    for name, row in known.items():
        ratios = [number(_of(row, column, "time", "ratio"), 2) for column in columns]
        plain = [number(row["float"].get(key, {}).get("ms"), 2) for key in (FLOAT, "float-openvino")]
        predicted = _of(row, PROFILE, "predicted")
        told_of = number(predicted, 2)
        lines.append([name, plain[0], told_of, *ratios[:3], plain[1], *ratios[3:]])
    means = [_mean(_ratios(known, column, column)) for column in columns]
    lines.append(["geometric mean", "", "", *means[:3], "", *means[3:]])
    return f"{table(heads, lines)}\n\n{_spread(known, columns)}"


def _spread(known: Mapping[str, Row], columns: Sequence[str]) -> str:
    """Return a sentence on how far the rounds of a measurement lie apart."""
    spans = [
        (max(high / spent["ratio"] - 1.0, 1.0 - low / spent["ratio"]), name)
        for name, row in known.items()
        for column in columns
        if (spent := _of(row, column, "time"))
        for low, high in [spent["quartiles"]]
    ]
    if not spans:
        return "Nothing was timed."
    widths = sorted(span for span, _ in spans)
    return (
        f"In half of the cells, half of the rounds are within {statistics.median(widths):.0%} of the figure, "
        f"in nine of ten cells within {widths[int(0.9 * (len(widths) - 1))]:.0%}; the widest is "
        f"{max(spans)[1]} ({widths[-1]:.0%})."
    )


def cost(rows: Rows) -> str:
    """Return sizes, and what profiling and quantizing take."""
    heads = [
        "model",
        "float MB",
        "qprof MB",
        "onnxruntime MB",
        "inference of the samples s",
        "dump-profile s",
    ]
    heads += ["quantize s", "quantize --data s", "onnxruntime s", "qprof peak MB", "onnxruntime peak MB"]
    lines = []
    for name, row in _known(rows).items():
        sizes = [row["size"], _of(row, PROFILE, "size"), _of(row, ORT, "size")]
        steps = {column: _of(row, column, "steps") or [] for column in IN_ORT}
        profile, data, ort = (steps[column] for column in IN_ORT)
        seconds = [row["inference"], *(step[0] for step in profile), *([None] * (2 - len(profile)))]
        seconds += [sum(step[0] for step in some) if some else None for some in (data, ort)]
        peaks = [max((step[1] for step in some), default=None) for some in (profile, ort)]
        lines.append(
            [
                name,
                *(number(size and size / 1e6, 2) for size in sizes),
                *(number(each, 1) for each in seconds),
                *(number(each, 0) for each in peaks),
            ]
        )
    return table(heads, lines)


def tasks(rows: Rows) -> str:
    """Return what the models are, and what is asked of them."""
    heads = ("model", "weights from", "task")
    return table(heads, [(name, row["source"], row["task"]) for name, row in _known(rows).items()])


def predictions(rows: Rows) -> str:
    """Return a sentence on how good predicted times are."""
    errors = []
    for name, row in _known(rows).items():
        predicted, measured = _of(row, PROFILE, "predicted"), _of(row, PROFILE, "time", "ratio")
        if isinstance(predicted, float) and isinstance(measured, float):
            errors.append((predicted / measured - 1.0, name))
    if not errors:
        return "Nothing was timed."
    sizes = sorted(abs(error) for error, _ in errors)
    worst, model = max(errors, key=lambda pair: abs(pair[0]))
    return (
        f"The predicted ratio to float has a median error of {statistics.median(sizes):.0%} on {len(errors)} "
        f"models, and at most {sizes[int(0.9 * (len(sizes) - 1))]:.0%} on nine of ten; "
        f"the worst is {model} ({worst:+.0%})."
    )


def bands(rows: Rows) -> str:
    """Return a sentence on how many outputs have the SQNR that was expected of them."""
    held, below, count = 0, 0, 0
    for row in _known(rows).values():
        expected, measured = _of(row, PROFILE, "bands") or {}, _of(row, PROFILE, "sqnr") or {}
        for name, (low, high) in expected.items():
            if name in measured:
                count += 1
                held += low <= measured[name] <= high
                below += measured[name] < low
    return f"{held} of {count} outputs have an SQNR within the estimate's band, {below} below it."


STAGE = Stage(
    rows,
    {
        "summary": summary,
        "ahead": ahead,
        "well-known": well_known,
        "accuracy": accuracy,
        "times": times_table,
        "cost": cost,
        "tasks": tasks,
        "predictions": predictions,
        "bands": bands,
    },
    models.REAL,
    options,
)
