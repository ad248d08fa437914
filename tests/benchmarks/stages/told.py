"""What qprof tells of a model, against what is true of it on samples that it has not seen.

    PYTHONPATH=CHECKOUT/.typing python tests/benchmarks/run.py told --work DIR [pose "random graphs" ...]
    python tests/benchmarks/run.py told --work DIR --known

A model goes three paths with default settings: `profile` (dump-profile, then quantize), `data` (quantize with
the samples), `imported` (the profile's ranges as onnxruntime's calibration data, quantized from these). Told
is what --json says and how the commands end; true is what the written model does on the evaluation split: its
score against float's (`bootstrap.py`), the SQNR of each output, equal answers, what is not finite, columns
that have one value. "networks" are those that `architectures_torch.py` has put into DIR/networks, "random
graphs" those of tests/fuzz; neither has a score, and as int8 would seldom pay on them they are quantized for
the target onnx, which has no times. Rows are kept as JSON lines, DIR/told/COMMIT/SUBJECT.jsonl, where COMMIT
is that of the qprof that ran: what is printed has all commits, the oldest first.

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
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import models
import numpy as np
import onnx
from bootstrap import difference
from frame import HERE, Row, Rows, Stage, number, table, write_atomically
from record import Data, Feed, Judged, Outputs, RealModel, judge, make_data, session, written_once
from workbench import QPROF, RUNTIME_ERRORS, Record, digest_of, measured, sentence

PATHS = ("profile", "data", "imported")
NETWORKS, GRAPHS = "networks", "random graphs"
SMALL = "told/"
"""What names of networks and graphs begin with: their folder in the work folder."""
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
OF_NETWORK = 32
"""Samples of a network to profile; the others are held against."""
Known = tuple[Row, dict[str, str]]
"""A row and its faults."""


def options(parser: ArgumentParser) -> None:
    parser.add_argument("--graphs", type=int, default=50, help="how many random graphs")
    parser.add_argument(
        "--networks", type=int, default=30, help="how many networks, the smallest files first"
    )


def rows(subject: str, given: Namespace) -> Iterator[Row]:
    """Measure the models of a subject that were not measured at this commit, and yield the rows of all
    commits.
    """
    commit, when = qprof_commit()
    file = given.work / "told" / commit / f"{subject.replace(' ', '-')}.jsonl"
    found = [] if given.again else _lines(file)
    for model in subjects_of(subject, given):
        if any(row["model"] == model.name for row in found):
            continue
        for row in measured_paths(model, given.work):
            print(model.name, row["path"], *(row["error"] or faults(row).items()), flush=True)
            found.append({"subject": subject, "commit": commit, "time": when, **row})
        write_atomically(file, "".join(json.dumps(row) + "\n" for row in found).encode())
    for kept in sorted(file.parent.parent.glob(f"*/{file.name}")):
        yield from _lines(kept)


def _lines(file: Path) -> list[Row]:
    return [*map(json.loads, file.read_text(encoding="utf-8").splitlines())] if file.exists() else []


def qprof_commit() -> tuple[str, int]:
    """Return the commit of the qprof that runs, and its time in seconds since 1970."""
    spec = find_spec("qprof_onnx.cli")
    folder = Path(next(iter(spec.submodule_search_locations or ()))).resolve() if spec else HERE

    def git(*words: str) -> str:
        run = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True)
        return run.stdout.strip()

    return git("describe", "--always", "--abbrev=8", "--dirty"), int(git("log", "-1", "--format=%ct"))


def subjects_of(subject: str, given: Namespace) -> Iterator[RealModel]:
    """Yield the record of a model, or those of all networks or graphs."""
    if subject == GRAPHS:
        yield from filter(None, map(_graph, range(given.graphs)))
    elif subject == NETWORKS:
        files = sorted(given.work.glob("networks/*/model.onnx"), key=lambda file: file.stat().st_size)
        yield from map(_network, files[: given.networks])
    else:
        yield models.load(subject)


def _unscored(
    name: str, kind: str, path: Callable[[Path], Path], known: Sequence[Feed], new: Sequence[Feed]
) -> RealModel:
    """Return the record of a model that has no answers, of the samples to profile and of those held back."""

    def samples(part: str) -> Iterator[tuple[Feed, None]]:
        return ((feed, None) for feed in (known if part == "calibration" else new))

    splits = {part: (part,) for part in ("calibration", "evaluation")}
    return RealModel(name, "-", kind, "-", path, samples, splits, None)


def _network(path: Path) -> RealModel:
    feeds, name = samples_of(path.parent), f"{SMALL}{NETWORKS}/{path.parent.name}"
    return _unscored(name, "random weights", lambda _: path, feeds[:OF_NETWORK], feeds[OF_NETWORK:])


def samples_of(folder: Path) -> list[Feed]:
    """Return the samples of a network: of the inputs that its exporter has left in."""
    inputs = {value.name for value in onnx.load(folder / "model.onnx", load_external_data=False).graph.input}
    found: dict[int, dict[str, np.ndarray]] = defaultdict(dict)
    with np.load(folder / "samples.npz") as arrays:
        for key in arrays.files:
            number, _, name = key.partition(" ")
            if name in inputs:
                found[int(number)][name] = arrays[key]
    return [found[number] for number in sorted(found)]


def _graph(seed: int) -> RealModel | None:
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

    return _unscored(f"{SMALL}graphs/{seed}", "random graph", path, feeds[:PROFILED], feeds[PROFILED:])


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
        last, profile = steps[-1], place / ("q.profile.yaml" if path == "data" else "p.yaml")
        beside = (file for file in place.glob(f"{profile.stem}.*") if file != profile)
        row: Row = {"model": model.name, "kind": model.kind, "path": path, "error": None, "true": None}
        row["told"] = told(last) | {"exit": max(step["exit"] for step in steps)}
        row["cost"] = {
            "dump": steps[0]["processor"] if path == "profile" else None,
            "quantize": last["processor"],
            "profile": _size(place.glob(profile.name)),
            "beside": _size(beside),
        }
        failed = [step for step in steps if step["exit"] not in (0, 1)]
        if failed or not out.exists():
            row["error"] = [sentence((failed or steps)[-1]["said"])]
        else:
            row["cost"] |= {"model": _size(place.glob("q.onnx*")), "sha256": digest_of(out)}
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
        yield (*dump, "-o", profile, *model.profiling)
    else:
        ranges, known = str(place / "calibration.json"), str(folder / "profile" / "p.yaml")
        yield ("export", known, "--model", float_model, "--format", "onnxruntime", "-o", ranges)
        yield ("import", ranges, "--model", float_model, "-o", profile)
    yield ("quantize", float_model, "--profile", profile, *written)


def _size(files: Iterator[Path]) -> int:
    return sum(file.stat().st_size for file in files)


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
        "nodes": said["nodes"],
        "notes": [finding["sentence"] for finding in said["findings"]],
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


def counts(rows: Rows) -> str:
    """Return how often something was told falsely, of the newest commit."""
    known, commits = judged_rows(rows)
    return _counts([(row, false) for row, false in known if row["commit"] == commits[-1]])


def page(rows: Rows) -> str:
    """Return all tables: counts of what was told falsely, models one by one, and what it costs."""
    known, commits = judged_rows(rows)
    latest = [(row, false) for row, false in known if row["commit"] == commits[-1]]
    parts = [
        "### Told falsely\n\n" + _counts(known),
        f"### Models, at {commits[-1]}\n\n" + _models([e for e in latest if e[0]["true"] and _scored(e[0])]),
        f"### Without a score, what is false at {commits[-1]}\n\n"
        + _models([e for e in latest if e[1] and not _scored(e[0])]),
        f"### Refused, at {commits[-1]}\n\n"
        + table(("model", "path", "said"), [_refusal(row) for row, _ in latest if row["error"]]),
        "### Processor seconds and bytes\n\n" + _costs([row for row, _ in known], commits),
    ]
    return "\n\n".join(parts)


def judged_rows(rows: Rows) -> tuple[list[Known], list[str]]:
    """Return all rows with their faults, the oldest commit first, and the commits."""
    found = sorted((row for some in rows.values() for row in some), key=lambda row: row["time"])
    wanted = {
        (row["commit"], row["model"]): {
            name: output["wanted"]
            for name, output in row["told"].get("outputs", {}).items()
            if "wanted" in output
        }
        for row in found
        if row["path"] == "data"
    }
    known = [(row, faults(row, wanted.get((row["commit"], row["model"])))) for row in found]
    return known, list(dict.fromkeys(row["commit"] for row in found))


def _scored(row: Row) -> bool:
    return row["true"] is not None and row["true"]["difference"] is not None


def _counts(known: Sequence[Known]) -> str:
    """Return how many models were told of falsely, by commit, kind of subject and path, and how many outputs
    have the SQNR that was told, or more.
    """
    groups: dict[tuple[str, str, str], list[Known]] = {}
    for row, false in known:
        of = row["subject"] if row["subject"] in (NETWORKS, GRAPHS) else "models"
        groups.setdefault((row["commit"], of, row["path"]), []).append((row, false))
    lines = []
    for key, entries in groups.items():
        counts = [sum(kind in false for _, false in entries) for kind in FAULTS]
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
        outputs = f"{sum(held)} of {len(held)}"
        lines.append([*key, len(entries), refused, alarms, good, *counts, outputs])
    heads = ("commit", "of", "path", "models", "refused", "alarms", "false good", *FAULTS.values())
    return table((*heads, "outputs as told"), lines)


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
                row["model"].removeprefix(SMALL),
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


def _refusal(row: Row) -> list[str]:
    return [row["model"].removeprefix(SMALL), row["path"], row["error"][0]]


def _costs(found: Sequence[Row], commits: Sequence[str]) -> str:
    """Return, by commit, the costs of the path `profile` and of quantize on the path `data`: those of each
    model with samples of its own, and the sums over all that every commit has.
    """
    by_model: dict[str, dict[tuple[str, str], Row]] = {}
    for row in found:
        if not row["error"]:
            by_model.setdefault(row["model"], {})[row["commit"], row["path"]] = row["cost"]
    asked = [(commit, path) for commit in commits for path in ("profile", "data")]
    whole = {name: costs for name, costs in by_model.items() if all(key in costs for key in asked)}
    heads = ["model"]
    for commit in commits:
        heads += [f"{commit}: dump, s", "quantize, s", "quantize --data, s", "profile, kB", "beside, kB"]

    def cells(commit: str, costs: Mapping[tuple[str, str], Row]) -> list[float]:
        profile, data = costs[commit, "profile"], costs[commit, "data"]
        seconds = [profile["dump"], profile["quantize"], data["quantize"]]
        return [*seconds, profile["profile"] / 1e3, profile["beside"] / 1e3]

    lines: list[list[str]] = []
    sums = np.zeros(5 * len(commits))
    for name, costs in whole.items():
        figures = [figure for commit in commits for figure in cells(commit, costs)]
        sums += figures
        if not name.startswith(SMALL):
            lines.append([name, *(f"{figure:.1f}" for figure in figures)])
    lines.append([f"all {len(whole)}, graphs and networks too", *(f"{figure:.1f}" for figure in sums)])
    return table(heads, lines)


QUICK = tuple(name for name in models.REAL if name not in {"resnet50", "vit-focus"})
"""Without those whose runs take minutes."""
STAGE = Stage(
    rows, {"told": counts, "told-models": page}, (*QUICK, *models.SYNTHETIC, NETWORKS, GRAPHS), options
)
