"""What qprof tells of a model, against what is true of it on samples that it has not seen.

    PYTHONPATH=CHECKOUT/.typing python tests/benchmarks/run.py told --work DIR [silero "random graphs" ...]

A model goes three paths with default settings: `profile` (dump-profile, then quantize), `data` (quantize with
the samples), `imported` (the profile's ranges as onnxruntime's calibration data, quantized from these). Told
is what --json says and how the commands end; true is what the written model does on the evaluation split: its
score against float's (`bootstrap.py`), the SQNR of each output, equal answers, what is not finite, columns
that have one value. "random graphs" are those of tests/fuzz, which have no score; as int8 would seldom pay on
them they are quantized for the target onnx, which has no times.

A row is a false **good** where the model was graded good, or nothing was said against it (no alarm, exit code
0, no output run and said to be above its limit), and it surely loses more than half a point, or an output
lies more than 1 dB below what was told (below the band of an estimate; 3 dB below a measured figure, which
has no band), or below the SQNR that is wanted of it, though as told it has that; or it is not finite, or a
column died. It is a false **poor** where the grade is poor, or without a grade an alarm or exit code 1 was
given, and the score is within half a point of float's. (Beside a better grade an alarm is of size or speed.)
What is wanted of an output is known from the verdict of the path `data`.
"""

from __future__ import annotations

import json
import math
import shutil
import sys
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import models
import numpy as np
from bootstrap import difference
from frame import HERE, Row, Rows, Stage, number, table
from record import Data, Feed, Judged, Outputs, RealModel, judge, make_data, session, written_once
from workbench import QPROF, RUNTIME_ERRORS, Record, measured, sentence

PATHS = ("profile", "data", "imported")
GRAPHS = "random graphs"
SMALL = "told/graphs/"
"""What names of graphs begin with: their folder in the work folder."""
HALF_A_POINT = 0.5
BELOW_BAND, BELOW_MEASURED = 1.0, 3.0
"""dB below a band, and below a figure that was measured on other samples, from which on more was told than is
true."""
FAULTS = {
    "points": "good, points lost",
    "broken": "good, not finite or dead",
    "wanted": "good, dB below what is wanted",
    "told": "good, dB below what was told",
    "poor": "poor, within half a point",
}
"""What can be told falsely, and the heading of its column."""
DEAD = 0.01
"""Share of the range of an output that a column has in float and not in int8: below it nobody misses it."""
ROUNDING = 1e-5
"""Of the largest value of an output, what another order of float32 sums may change."""
PROFILED, NEW = 48, 24
"""Samples of a random graph: to profile, and to hold against."""
Known = tuple[Row, dict[str, str]]
"""A row and its faults."""


def options(parser: ArgumentParser) -> None:
    parser.add_argument("--graphs", type=int, default=50, help="how many random graphs")


def rows(subject: str, given: Namespace) -> Iterator[Row]:
    """Measure the models of a subject."""
    for model in subjects_of(subject, given):
        for row in measured_paths(model, given.work):
            print(model.name, row["path"], *(row["error"] or faults(row).items()), flush=True)
            yield row


def subjects_of(subject: str, given: Namespace) -> Iterator[RealModel]:
    """Yield the record of a model, or those of all graphs."""
    if subject == GRAPHS:
        yield from filter(None, map(random_graph, range(given.graphs)))
    else:
        yield models.load(subject)


def random_graph(seed: int) -> RealModel | None:
    """Return a graph of tests/fuzz with samples enough to hold some back; None for one without nodes."""
    sys.path.append(str(HERE.parent / "fuzz"))
    import graph_builder
    import graph_recipes

    graph_builder.SAMPLES = graph_recipes.SAMPLES = PROFILED + NEW
    builder, outputs = graph_recipes.random_graph(np.random.default_rng([1, seed]))
    if not outputs:
        return None
    model = graph_builder.model_of(builder.graph(outputs), builder.opset)
    feeds = [{name: builder.values[name][i] for name in builder.inputs} for i in range(PROFILED + NEW)]

    def path(folder: Path) -> Path:
        return written_once(folder / "model.onnx", lambda: model)

    def samples(part: str) -> Iterator[tuple[Feed, None]]:
        return ((feed, None) for feed in (feeds[:PROFILED] if part == "calibration" else feeds[PROFILED:]))

    splits = {part: (part,) for part in ("calibration", "evaluation")}
    return RealModel(f"{SMALL}{seed}", "-", "random graph", "-", path, samples, splits, None)


def measured_paths(model: RealModel, work: Path) -> Iterator[Row]:
    """Yield what is told of a model and what is true, for each path.

    The folder of the model has a folder `told` with what the commands wrote, made anew.
    """
    data, folder = make_data(model, work), work / model.name / "told"
    plain = model.path(work / model.name)
    shutil.rmtree(folder, ignore_errors=True)
    before, seen = _judged(model, data, plain, plain)
    for path in PATHS:
        place = folder / path
        place.mkdir(parents=True)
        out = place / "q.onnx"
        steps = [measured([*QPROF, *words]) for words in _commands(model, data, plain, path, folder)]
        row: Row = {"model": model.name, "kind": model.kind, "path": path, "error": None, "true": None}
        row["told"] = told(steps[-1]) | {"exit": max(step["exit"] for step in steps)}
        failed = [step for step in steps if step["exit"] not in (0, 1)]
        if failed or not out.exists():
            row["error"] = [sentence((failed or steps)[-1]["said"])]
        else:
            try:
                row["true"] = _truth(model, _judged(model, data, plain, out), (before, seen))
            except RUNTIME_ERRORS as problem:
                row["error"] = [f"does not run: {sentence(str(problem))}"]
        yield row


def _commands(
    model: RealModel, data: Data, plain: Path, path: str, folder: Path
) -> Iterator[tuple[str, ...]]:
    place, float_model = folder / path, str(plain)
    profile, out = str(place / "p.yaml"), str(place / "q.onnx")
    written = ("-o", out, "--save-plan", str(place / "plan.yaml"), "--json")
    if model.name.startswith(SMALL):
        written = (*written, "--target", "onnx")
    if path == "data":
        yield ("quantize", float_model, "--data", str(data.calibration), *written)
        return
    if path == "profile":
        dump = ("dump-profile", float_model, "--data", str(data.calibration))
        yield (*dump, "-o", profile)
    else:
        ranges, known = str(place / "calibration.json"), str(folder / "profile" / "p.yaml")
        yield ("export", known, "--model", float_model, "--format", "onnxruntime", "-o", ranges)
        yield ("import", ranges, "--model", float_model, "-o", profile)
    yield ("quantize", float_model, "--profile", profile, *written)


def told(step: Record) -> Row:
    """Return what a `quantize --json` told: of all outputs, and of each; `printed` has no JSON where it
    failed.

    An output has "estimated" with the band "low" to "high"; "measured" where it was run, best on samples that
    were held out, and "over" where it is then said to be above its limit; "wanted" where it was judged.
    """
    try:
        said = json.loads(step["printed"])
    except json.JSONDecodeError:
        return {"exit": step["exit"], "said": step["said"][-2000:]}
    verdict = (said["judged"] or {}).get("verdict", {})
    outputs: dict[str, Row] = {}
    for entry in said["expected"]:
        outputs[entry["output"]] = {key: float(entry[key]) for key in ("estimated", "low", "high")}
    for entry in said.get("checks", ()):  # run on the samples that the profile keeps, or on some of the data
        measured = math.inf if entry["sqnr"] is None else float(entry["sqnr"])  # no difference
        checked = {"measured": measured, "over": float(entry["value"]) > float(entry["limit"])}
        outputs.setdefault(entry["output"], {}).update(checked)
    for entry in verdict.get("outputs", ()):
        figure = None if entry["sqnr"] is None else float(entry["sqnr"])  # infinity is a string in JSON
        outputs.setdefault(entry["output"], {}).update(
            measured=figure, wanted=entry["needed"], agreement=entry["agreement"], grade=entry["grade"]
        )
    time = said["predicted"]
    return {
        "exit": step["exit"],
        "grade": verdict.get("grade"),
        "alarms": [
            *(one["sentence"] for one in verdict.get("findings", ()) if one["severity"] != "note"),
            *(finding["sentence"] for finding in said["findings"] if finding["severity"] == "alarm"),
        ],
        "keep float": "keep the float model" in step["printed"],
        "outputs": outputs,
        "predicted": time["planned_us"] / time["float_us"] if time else None,
        "said": step["said"][-2000:],
    }


class Watched:
    """A session that keeps of each output what is not finite, the best classes, and the ranges of columns.

    A column is a place of the last axis, or the whole output where that axis has not the same length in all
    samples. Statistics are of finite values.
    """

    def __init__(self, path: Path, threads: int) -> None:
        self.opened = session(path, threads)
        self.non_finite: Counter[str] = Counter()
        self.best: dict[str, list[np.ndarray]] = {}
        self.lows: dict[str, list[np.ndarray]] = {}
        self.highs: dict[str, list[np.ndarray]] = {}

    def get_outputs(self) -> Any:
        return self.opened.get_outputs()

    def run(self, names: None, feed: Feed) -> Outputs:
        values: Outputs = self.opened.run(names, feed)
        for output, value in zip(self.get_outputs(), values, strict=True):
            if value.dtype.kind == "f" and value.size:
                finite = np.isfinite(value)
                self.non_finite[output.name] += int(value.size - finite.sum())
                columns = np.where(finite, value, 0.0).reshape(-1, value.shape[-1] if value.ndim else 1)
                self.lows.setdefault(output.name, []).append(columns.min(axis=0))
                self.highs.setdefault(output.name, []).append(columns.max(axis=0))
                if columns.shape[1] > 1:
                    self.best.setdefault(output.name, []).append(columns.argmax(axis=1))
        return values

    def spread(self, name: str) -> np.ndarray:
        """Return the range of each column of an output over all samples; 0 where it is but rounding."""
        lows, highs = self.lows[name], self.highs[name]
        if len({len(low) for low in lows}) > 1:
            lows, highs = [np.array([low.min()]) for low in lows], [np.array([high.max()]) for high in highs]
        low, high = np.min(lows, axis=0), np.max(highs, axis=0)
        return np.where(high - low > ROUNDING * max(np.abs(low).max(), np.abs(high).max()), high - low, 0.0)


def _judged(model: RealModel, data: Data, plain: Path, path: Path) -> tuple[Judged, Watched]:
    opened: list[Watched] = []

    def opener(path: Path, threads: int) -> Watched:
        opened.append(Watched(path, threads))
        return opened[-1]

    return judge(model, (plain, path), data.evaluation, opener), opened[-1]


def _truth(model: RealModel, one: tuple[Judged, Watched], other: tuple[Judged, Watched]) -> Row:
    """Return what is true of a model beside float: points with their interval, and of each output its SQNR
    (dB), the share of equal best classes, and how many values are not finite and columns dead, that are fine
    in float.
    """
    (judged, found), (plain, wanted) = one, other
    outputs: dict[str, Row] = {}
    for name in wanted.lows:
        before, after = wanted.spread(name), found.spread(name)
        same_shape = [a.shape == b.shape for a, b in zip(wanted.lows[name], found.lows[name], strict=True)]
        dead = (after == 0.0) & (before > DEAD * before.max()) if before.shape == after.shape else np.zeros(1)
        pairs = zip(wanted.best.get(name, ()), found.best.get(name, ()), strict=all(same_shape))
        equal = [np.mean(a == b) for a, b in pairs if a.shape == b.shape]
        outputs[name] = {
            "sqnr": judged.sqnr.get(name),
            "equal": float(np.mean(equal)) if equal else None,
            "non finite": max(0, found.non_finite[name] - wanted.non_finite[name]),
            "dead": int(dead.sum()),
        }
    row: Row = {"outputs": outputs, "score": None, "difference": None}
    if judged.scores and plain.scores:
        gap = difference(judged.units, plain.units, lambda sums: model.score(sums).value)
        row |= {"score": plain.scores.value, "difference": asdict(gap)}
    return row


def faults(row: Row, wanted: Mapping[str, float] | None = None) -> dict[str, str]:
    """Return what was told falsely of a model: kind of FAULTS -> figures; empty where nothing was.

    Args:
        row: of a model and a path.
        wanted: SQNR (dB) that each output needs, where another path told it.
    """
    if row["true"] is None:
        return {}
    said, true = row["told"], row["true"]
    gap = true["difference"]
    warned = bool(said["alarms"]) or said["exit"] == 1
    over = any(output.get("over") for output in said["outputs"].values())
    if said["grade"] == "poor" or (warned and said["grade"] is None):
        small = gap is not None and gap["points"] >= -HALF_A_POINT
        return {"poor": f"{gap['points']:+.2f} points"} if small else {}
    if warned or said["grade"] not in (None, "good") or (over and said["grade"] is None):
        return {}
    found = {}
    if gap is not None and gap["high"] < -HALF_A_POINT:
        found["points"] = f"{gap['points']:+.2f} points"
    for name, output in true["outputs"].items():
        if output["non finite"] or output["dead"]:
            found["broken"] = f"{output['non finite']} not finite, {output['dead']} columns dead"
        figure, told_of = output["sqnr"], said["outputs"].get(name)
        if told_of is None or figure is None:
            continue
        promised, low = told_decibels(told_of)
        needed = told_of.get("wanted", (wanted or {}).get(name, -math.inf))
        if figure < needed <= promised:
            found["wanted"] = f"{figure:.1f} dB, wanted {needed:.0f}, told {promised:.1f}"
        if figure < low:
            found["told"] = f"{figure:.1f} dB, told {promised:.1f}"
    return found


def told_decibels(output: Row) -> tuple[float, float]:
    """Return the SQNR (dB) that was told of an output, and the least that keeps to it; infinite for nothing
    told.
    """
    if output.get("measured") is not None:
        return output["measured"], output["measured"] - BELOW_MEASURED
    if "estimated" in output:
        return output["estimated"], output["low"] - BELOW_BAND
    return math.inf, -math.inf


def judged_rows(rows: Rows) -> list[Known]:
    """Return all rows with their faults."""
    found = [row for some in rows.values() for row in some]
    wanted = {
        row["model"]: {
            name: output["wanted"]
            for name, output in row["told"].get("outputs", {}).items()
            if "wanted" in output
        }
        for row in found
        if row["path"] == "data"
    }
    return [(row, faults(row, wanted.get(row["model"]))) for row in found]


def counts(rows: Rows) -> str:
    """Return how many models were told of falsely, by kind of subject and path, and how many outputs have the
    SQNR that was told, or more.
    """
    groups: dict[tuple[str, str], list[Known]] = {}
    for row, false in judged_rows(rows):
        of = "random graphs" if row["model"].startswith(SMALL) else "models"
        groups.setdefault((of, row["path"]), []).append((row, false))
    lines = []
    for key, entries in groups.items():
        good = sum(bool(false) and "poor" not in false for _, false in entries)
        held = [
            figure["sqnr"] >= told_decibels(row["told"]["outputs"][name])[1]
            for row, _ in entries
            if row["true"]
            for name, figure in row["true"]["outputs"].items()
            if figure["sqnr"] is not None and name in row["told"]["outputs"]
        ]
        alarms = sum(bool(row["told"].get("alarms")) or row["told"]["exit"] == 1 for row, _ in entries)
        refused = sum(bool(row["error"]) for row, _ in entries)
        kinds = [sum(kind in false for _, false in entries) for kind in FAULTS]
        lines.append([*key, len(entries), refused, alarms, good, *kinds, f"{sum(held)} of {len(held)}"])
    heads = ("of", "path", "models", "refused", "alarms", "false good", *FAULTS.values(), "outputs as told")
    return table(heads, lines)


def page(rows: Rows) -> str:
    """Return the models that have a score, those of whom something false was told, and what was refused."""
    known = judged_rows(rows)
    shown = [(row, false) for row, false in known if row["true"] and (row["true"]["difference"] or false)]
    refused = [(row["model"], row["path"], row["error"][0]) for row, _ in known if row["error"]]
    return f"{_models(shown)}\n\n{table(('model', 'path', 'said'), refused)}"


def _models(entries: Sequence[Known]) -> str:
    lines = []
    for row, false in entries:
        said, true = row["told"], row["true"]
        worst = min(
            true["outputs"], key=lambda name: _or(true["outputs"][name]["sqnr"], math.inf), default=""
        )
        output, figure = said["outputs"].get(worst, {}), true["outputs"].get(worst, {})
        how = (
            "{points:+.2f} ({low:+.2f} to {high:+.2f})".format(**true["difference"])
            if true["difference"]
            else "-"
        )
        words = [
            said["grade"] or "-",
            *(["alarm"] if said["alarms"] else []),
            *(["keep float"] if said["keep float"] else []),
        ]
        estimate = (
            f"{output['estimated']:.1f} ({output['low']:.0f} to {output['high']:.0f})"
            if "low" in output
            else "-"
        )
        figures = [
            number(output.get("measured"), 1),
            number(figure.get("sqnr"), 1),
            number(figure.get("equal"), 3),
        ]
        lines.append(
            [
                row["model"].removeprefix("told/"),
                row["path"],
                ", ".join(words),
                said["exit"],
                estimate,
                *figures,
                how,
                number(said["predicted"], 2),
                "; ".join(f"{FAULTS[kind]}: {figures}" for kind, figures in false.items()),
            ]
        )
    heads = (
        *("model", "path", "told", "exit", "estimated, dB", "measured, dB", "true, dB", "equal answers"),
        *("points", "predicted time", "false"),
    )
    return table(heads, lines)


def _or(value: float | None, other: float) -> float:
    return other if value is None else value


STAGE = Stage(rows, {"told": counts, "told-models": page}, (*models.REAL, GRAPHS), options)
