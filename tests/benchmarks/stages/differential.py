"""Every form of a plan, in every runtime that reads it, against the plain integer reference.

    python tests/benchmarks/run.py differential digits ppocr-cls --work DIR

Each float model is quantized from a profile of its calibration data, written in each form, and run on one
sample. Compared, in codes, are the last tensors in codes before the outputs.
"""

from __future__ import annotations

import tempfile
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx.inliner
import onnx_ir as ir
from frame import Row, Rows, Stage, table
from onnx.reference import ReferenceEvaluator
from oracles import CONTRIB, FIXED_OPERATORS, Tensor, run_plan
from qprof_onnx.profiles.base.errors import QprofError
from qprof_onnx.profiles.runner.settings import RunSettings
from qprof_onnx.profiles.samples.samples import input_specs, open_samples
from qprof_onnx.quantizer.api.profiling import profile_model
from qprof_onnx.quantizer.exchange.profiles import read_profile
from qprof_onnx.quantizer.lowering.lower import lower
from qprof_onnx.quantizer.numerics.affine import dequantize, quantize
from qprof_onnx.quantizer.operators.graph import Graph
from qprof_onnx.quantizer.plan.plan import Kind, QuantPlan
from qprof_onnx.quantizer.planning.facts import planning_facts
from qprof_onnx.quantizer.planning.noise_budget import make_plan
from qprof_onnx.quantizer.prepare.prepare import PreparedModel, open_prepared
from qprof_onnx.quantizer.targets.forms import FORMS
from qprof_onnx.quantizer.targets.loading import load_recipe
from record import session
from workbench import Workbench

from stages import scale

Feed = Mapping[str, npt.NDArray[Any]]
Outputs = list[npt.NDArray[Any]]
REFUSALS = (QprofError, RuntimeError, NotImplementedError, ValueError, TypeError, IndexError, KeyError)
"""What runtimes raise for a model that they cannot run; each has kinds of its own."""


def reference_evaluator(proto: onnx.ModelProto, feed: Feed) -> Outputs:
    newer = onnx.inliner.inline_local_functions(proto)  # the evaluator has no `new_ops` inside functions
    for opset in newer.opset_import:
        if not opset.domain:  # the evaluator has no older DequantizeLinear; it is the same
            opset.version = max(opset.version, 19)
    contrib = CONTRIB if any(node.domain == "com.microsoft" for node in proto.graph.node) else []
    return list(ReferenceEvaluator(newer, new_ops=[*FIXED_OPERATORS, *contrib]).run(None, dict(feed)))


def onnxruntime(proto: onnx.ModelProto, feed: Feed, *, optimised: bool = True) -> Outputs:
    return list(session(proto.SerializeToString(), 1, optimised=optimised).run(None, dict(feed)))


def openvino(proto: onnx.ModelProto, feed: Feed) -> Outputs:
    import openvino

    inlined = onnx.inliner.inline_local_functions(proto)
    core = openvino.Core()
    settings = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0}
    compiled = core.compile_model(core.read_model(inlined.SerializeToString()), "CPU", settings)
    found = compiled(dict(feed))
    return [found[i] for i in range(len(proto.graph.output))]


RUNTIMES: Mapping[str, Callable[[onnx.ModelProto, Feed], Outputs]] = {
    "onnx reference": reference_evaluator,
    "onnxruntime, plain": lambda proto, feed: onnxruntime(proto, feed, optimised=False),
    "onnxruntime": onnxruntime,
    "OpenVINO": openvino,
}


def rows(name: str, given: Namespace) -> Iterator[Row]:
    """Yield a row for each form and runtime: `largest` difference in codes, `share` of codes that differ,
    `note`.
    """
    path, data = subject(name, given.work)
    with tempfile.TemporaryDirectory() as folder:
        profile_path = Path(folder) / "profile.yaml"
        profile_model(path, data, profile_path, RunSettings(limit=16))
        prepared = open_prepared(path)
        profile = read_profile(profile_path, prepared.model, prepared.identity)
    # As many operators on codes as there can be, whether or not that pays or is loud.
    recipe = load_recipe(None, {"min_output_sqnr": 0.0, "cost_model": "off"})
    plan = make_plan(planning_facts(prepared, profile, recipe), start_everywhere=True)
    on_codes = sum(entry.kind.reads_quantized for entry in plan.nodes.values())
    model = f"{name}, {on_codes} of {len(plan.nodes)} nodes on codes"
    feed = next(iter(open_samples(str(data), input_specs(prepared.model), 1))).arrays
    expected = run_plan(prepared.model, plan, feed)
    watched = last_quantized(prepared.graph, plan, expected)
    for form in FORMS:
        row: Row = {"model": model, "form": form, "runtime": "all", "largest": None, "share": None}
        formed = replace(plan, config=replace(plan.config, form=form))
        try:
            proto = with_outputs(ir.to_proto(lower(prepared.model, formed).model), watched)
        except QprofError as error:
            yield {**row, "note": f"not written: {error}"}
            continue
        for runtime, run in RUNTIMES.items():
            row = {**row, "runtime": runtime}
            try:
                found = run(proto, feed)
            except REFUSALS as error:
                yield {**row, "note": f"does not run: {_sentence(error)}"}
                continue
            results = dict(zip((o.name for o in proto.graph.output), found, strict=True))
            largest, share = differences({w: results[w] for w in watched if w in results}, expected)
            note = CAUSES.get((form, runtime), ROUNDING) if largest else ""
            yield {**row, "largest": largest, "share": share, "note": note}
            if (form, runtime) == ("qdq", "OpenVINO") and largest:
                largest, share = _as_fused(prepared, plan, feed, proto)
                yield {
                    **row,
                    "runtime": "OpenVINO, as it fuses",
                    "largest": largest,
                    "share": share,
                    "note": FUSED,
                }


def _as_fused(
    prepared: PreparedModel, plan: QuantPlan, feed: Feed, proto: onnx.ModelProto
) -> tuple[float, float]:
    """Hold OpenVINO against the plan with two departures of its own.

    It multiplies inputs by 1 / scale where the operator divides, so inputs are put on codes first; and it
    adds the result of a convolution to something else within the convolution, before it is rounded.
    """
    on_codes = {}
    for name, array in feed.items():
        params = plan.tensors.get(name)
        on_codes[name] = array if params is None else dequantize(quantize(array, params), params)
    fused = replace(plan, tensors={n: p for n, p in plan.tensors.items() if not _is_fused(n, prepared, plan)})
    expected = run_plan(prepared.model, fused, on_codes)
    watched = last_quantized(prepared.graph, plan, expected)
    found = dict(zip((o.name for o in proto.graph.output), openvino(proto, on_codes), strict=True))
    return differences({w: found[w] for w in watched if w in found}, expected)


def _is_fused(name: str, prepared: PreparedModel, plan: QuantPlan) -> bool:
    """Whether a tensor is what a convolution gives to a sum on codes, and to nothing else."""
    graph = prepared.graph
    if name not in graph.values or graph.is_result(name):
        return False
    maker, readers = graph.producer(name), graph.consumers(name)
    if maker is None or maker.op_type != "Conv" or len(readers) != 1:
        return False
    reader = readers[0][0]
    return reader.op_type == "Add" and plan.nodes[reader.name or ""].kind is Kind.QUANTIZED


def last_quantized(graph: Graph, plan: QuantPlan, expected: Mapping[str, Tensor]) -> list[str]:
    """Return the last tensors in codes before the graph outputs; the outputs themselves where they are."""
    found: dict[str, None] = {}
    waiting, seen = list(graph.outputs), set(graph.outputs)
    while waiting:
        name = waiting.pop(0)
        tensor = expected.get(name)
        if name in plan.tensors and tensor is not None and tensor.params is not None:
            found[name] = None
            continue
        maker = graph.producer(name)
        later = [name for name in (maker.inputs if maker is not None else ()) if name]
        waiting += [n for n in later if n not in seen and not graph.is_constant(n)]
        seen.update(later)
    return list(found)


def with_outputs(proto: onnx.ModelProto, names: list[str]) -> onnx.ModelProto:
    """Return the model with these real-valued tensors as further outputs, where they are in it."""
    made = {name for node in proto.graph.node for name in node.output}
    given = {output.name for output in proto.graph.output}
    for name in names:
        if name in made and name not in given:
            proto.graph.output.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None))
    return proto


def differences(results: Feed, expected: Mapping[str, Tensor]) -> tuple[float, float]:
    """Return the largest difference from a plan's tensors, in codes, and the share of codes that differ."""
    largest, off, count = 0.0, 0, 0
    for name, array in results.items():
        tensor = expected[name]
        assert tensor.params is not None
        steps = np.rint(np.abs(array.astype(np.float64) - tensor.values) / tensor.params.tensor_scale)
        largest, off, count = (
            max(largest, float(steps.max())),
            off + int((steps > 0).sum()),
            count + steps.size,
        )
    return largest, off / max(count, 1)


CAUSES: Mapping[tuple[str, str], str] = {
    ("qdq", "onnxruntime"): "onnxruntime rescales sums by one float32 factor, and merges conversions",
    ("regions", "onnxruntime"): "as form qdq, which the functions are inlined to",
    ("qdq", "OpenVINO"): "inputs are multiplied by 1 / scale where the operator divides; sums are made in "
    "convolutions, of results that are not rounded yet: see the next line",
    ("regions", "OpenVINO"): "as form qdq, which the functions are inlined to",
}
"""Why a form in a runtime may differ from exact sums that are rounded once."""
FUSED = "against the plan with inputs on codes and without those roundings; what is left is not traced"
ROUNDING = "float32 sums and products in another order: codes on a border fall to the other side, see above"


def subject(name: str, work: Path) -> tuple[Path, Path]:
    """Return model and calibration data of a model, or of `transformer`, one layer of stage scale's."""
    if name != "transformer":
        bench = Workbench(name, work)
        return bench.path, bench.data.calibration
    folder = work / "differential-transformer"
    folder.mkdir(exist_ok=True)
    onnx.save(scale.transformer(1), folder / "model.onnx")
    rng = np.random.default_rng(1)
    for number in range(4):
        x = rng.standard_normal((1, scale.LENGTH, scale.WIDTH)).astype(np.float32)
        np.savez(folder / f"{number}.npz", x=x)
    return folder / "model.onnx", folder


def page(rows: Rows) -> str:
    head = ["model", "form", "runtime", "largest difference", "codes that differ", ""]
    lines = []
    for row in (row for some in rows.values() for row in some):
        largest = "-" if row["largest"] is None else f"{row['largest']:g}"
        share = "-" if row["share"] is None else ("0" if not row["share"] else f"{100 * row['share']:.2g} %")
        lines.append([row["model"], row["form"], row["runtime"], largest, share, row["note"]])
    return table(head, lines)


def _sentence(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith("To facilitate")]
    words = (lines[-1] if lines else type(error).__name__).split()
    return " ".join(word for word in words if "/" not in word)[:140]


STAGE = Stage(rows, {"DIFFERENTIAL.md": page}, ("digits", "transformer", "ppocr-cls", "magika"))
