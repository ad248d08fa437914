"""Predicted costs against measured ones: how far the table of kernel costs is off for real models.

    python tests/benchmarks/run.py cost-model magika minilm --work DIR --worst 10

Each model is quantized with the defaults and run in float and int8 with onnxruntime's profiler and without;
what is predicted comes from the packaged table alone, whose constants are those of microbenchmarks. With
--worst the nodes that are off by most are listed.
"""

from __future__ import annotations

import pickle
import statistics
import tempfile
from argparse import ArgumentParser, Namespace
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from frame import Row, Rows, Stage, table, write_atomically
from qprof_onnx.profiles.records.profile import Profile
from qprof_onnx.quantizer.api.from_profile import write_quantized
from qprof_onnx.quantizer.api.profiling import profile_model
from qprof_onnx.quantizer.costs.predicted import CostModel, Costs, converted_tensors, total_microseconds
from qprof_onnx.quantizer.evaluation.latency import measure
from qprof_onnx.quantizer.evaluation.node_times import node_times
from qprof_onnx.quantizer.evaluation.options import LatencySettings
from qprof_onnx.quantizer.evaluation.runtimes import open_session, run
from qprof_onnx.quantizer.lowering.lower import lower
from qprof_onnx.quantizer.model.saving import save_model
from qprof_onnx.quantizer.operators.graph import Graph
from qprof_onnx.quantizer.plan.plan import QuantPlan
from qprof_onnx.quantizer.planning.plan_model import open_plan
from qprof_onnx.quantizer.prepare.prepare import open_prepared
from qprof_onnx.quantizer.search.node_costs import find_costs
from qprof_onnx.quantizer.targets.cost_table import costs_of
from record import read_feeds
from workbench import Workbench

NAMES = (
    *("digits", "magika", "minilm", "orientation", "ppocr-cls", "captcha-det", "swift-f0", "silero"),
    "ppocr-rec",
)


@dataclass(frozen=True)
class Measured:
    """What was measured of one model.

    Attributes:
        model: file of the float model.
        sample: what was run.
        plan: the plan that was made.
        costs: microseconds of its nodes.
        sums: microseconds of all nodes that onnxruntime executed, float and int8.
        latency: microseconds of a run without the profiler, float and int8.
    """

    model: Path
    sample: Mapping[str, Any]
    plan: QuantPlan
    costs: Costs
    sums: tuple[float, float]
    latency: tuple[float, float]


def measured(model: Path, profile: Path, sample: Mapping[str, Any], threads: int) -> Measured:
    """Quantize a model and time it."""
    prepared = open_prepared(model)
    with tempfile.TemporaryDirectory() as folder:
        paths = {name: Path(folder, f"{name}.onnx") for name in ("float", "int8")}
        plan = write_quantized(model, profile, paths["int8"]).plan
        planned = open_plan(prepared, plan)
        lowered = lower(planned.model, plan)
        save_model(prepared.model, paths["float"])
        save_model(lowered.model, paths["int8"])
        floats, codes = node_times(paths, [sample], threads=threads, seconds=3.0)
        costs = find_costs(planned.graph, plan, floats, codes, names=lowered.names, prepared=prepared.graph)
        sums = sum(e.microseconds for e in floats), sum(e.microseconds for e in codes)
        sessions = [open_session(str(path), name, threads) for name, path in paths.items()]
        outputs = [output.name for output in sessions[0].get_outputs()]
        runs = [lambda _, s=s: run(s, outputs, sample, "model") for s in sessions]
        found = measure(runs[0], runs[1], 1, LatencySettings(seconds=3.0, samples=1, threads=threads))
    return Measured(model, sample, plan, costs, sums, (found.float_ms * 1e3, found.quantized_ms * 1e3))


def graphs(known: Measured) -> tuple[Graph, Graph, Profile]:
    """Return the index of the prepared model, of the model of the plan, and a profile of the timed run.

    The samples of some models differ in shape, and what was timed is one of them.
    """
    prepared = open_prepared(known.model)
    planned = open_plan(prepared, known.plan)
    profile = profile_model(known.model, [known.sample])
    return prepared.graph, planned.graph, replace(profile, data=replace(profile.data, samples=1))


def rows(name: str, given: Namespace) -> Iterator[Row]:
    """Yield what was predicted and measured of one model; what was measured is kept in the work folder."""
    costs = costs_of("onnxruntime-x86", given.threads)
    assert costs is not None
    bench = Workbench(name, given.work)
    kept = bench.folder / "times" / f"cost-model-{given.threads}.pickle"
    if kept.exists() and not given.again:
        known: Measured = pickle.loads(kept.read_bytes())
    else:
        sample = next(read_feeds(bench.data.calibration))
        known = measured(bench.path, bench.profile(), sample, given.threads)
        write_atomically(kept, pickle.dumps(known))
    floating, graph, profile = graphs(known)
    kernels = {op: points for op, points in costs.kernels.items() if op != "Call"}
    profiled = replace(costs, kernels=kernels)  # the profiler's times, with what it takes itself
    latency = (
        sum(CostModel(floating, profile, costs).floating.values()),
        total_microseconds(CostModel(graph, profile, costs).costs(known.plan), graph, known.plan),
    )
    before = CostModel(floating, profile, profiled)
    after = CostModel(graph, profile, profiled).costs(known.plan)
    border = {t: after.border[t] for t in converted_tensors(graph, known.plan)}
    totals = sum(before.floating.values()), sum(after.integer.values()) + sum(border.values())
    if given.worst:
        kinds = {n.name or "": n.op_type for n in (*floating.nodes, *graph.nodes)}
        _print_kinds("float", kinds, before.floating, known.costs.floating, given.worst)
        _print_kinds("int8", kinds, after.integer, known.costs.integer, given.worst)
        _print_kinds("convert", dict.fromkeys(border, "conversion"), border, known.costs.border, given.worst)
    figures = zip(("float", "int8"), totals, known.sums, latency, known.latency, strict=True)
    for form, guess, time, whole, real in figures:
        yield {"form": form, "nodes": guess, "nodes_real": time, "run": whole, "run_real": real}


def _print_kinds(
    form: str, kinds: Mapping[str, str], predicted: Mapping[str, float], real: Mapping[str, float], worst: int
) -> None:
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    off = []
    for name in dict.fromkeys((*predicted, *real)):
        pair = predicted.get(name, 0.0), real.get(name, 0.0)
        kind = kinds.get(name, "?")
        sums[kind][0] += pair[0]
        sums[kind][1] += pair[1]
        off.append((pair[0] - pair[1], kind, name, *pair))
    for kind, (guess, time) in sorted(sums.items(), key=lambda item: -abs(item[1][0] - item[1][1]))[:worst]:
        print(f"    {form} {kind}: {guess:.0f}, measured {time:.0f}")
    for _, kind, name, guess, time in sorted(off, key=lambda row: -abs(row[0]))[:worst]:
        print(f"        {form} {kind} '{name}': {guess:.0f}, measured {time:.0f}")


def page(rows: Rows) -> str:
    """Return microseconds predicted and measured, of the nodes and of whole runs, and the median of the
    errors.
    """
    found = [(name, row) for name, some in rows.items() for row in some]
    errors = [abs(row["nodes"] / row["nodes_real"] - 1.0) for _, row in found]
    head = ["model", "form", "nodes, us", "measured", "error", "run, us", "measured", "error"]
    said = f"Nodes: median error {100 * statistics.median(errors):.0f} %, largest {100 * max(errors):.0f} %."
    return (
        table(head, [[name, row["form"], *_cells(row, "nodes"), *_cells(row, "run")] for name, row in found])
        + f"\n\n{said}"
    )


def _cells(row: Row, what: str) -> list[str]:
    guess, real = row[what], row[f"{what}_real"]
    return [f"{guess:.0f}", f"{real:.0f}", f"{100 * guess / real - 100:+.0f} %"]


def options(parser: ArgumentParser) -> None:
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--worst", type=int, default=0, help="list so many kinds and nodes")
    parser.add_argument("--again", action="store_true", help="measure again what was measured")


STAGE = Stage(rows, {"": page}, NAMES, options)
