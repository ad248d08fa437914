"""Every form of a plan, in every runtime that reads it, against the plain integer reference.

    python tests/benchmarks/differential.py --work DIR [--models digits,ppocr-cls] [--write]

Each float model is quantized from a profile of its calibration data (made in DIR by real_models.py), written
in each form, and run on one sample. Compared, in codes, are the last tensors in codes before the outputs.
--write puts the table into DIFFERENTIAL.md.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import models
import numpy as np
import numpy.typing as npt
import onnx
import onnx.inliner
import onnx_ir as ir
import onnxruntime as ort
import scale
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
from qprof_onnx.quantizer.plan.plan import ON_CODES, Kind, QuantPlan
from qprof_onnx.quantizer.planning.facts import planning_facts
from qprof_onnx.quantizer.planning.planner import make_plan
from qprof_onnx.quantizer.prepare.prepare import PreparedModel, open_prepared
from qprof_onnx.quantizer.targets.config import FORMS
from qprof_onnx.quantizer.targets.loading import load_recipe

Feed = Mapping[str, npt.NDArray[Any]]
Outputs = list[npt.NDArray[Any]]
HERE = Path(__file__).resolve().parent
REFUSALS = (QprofError, RuntimeError, NotImplementedError, ValueError, TypeError, IndexError, KeyError)
"""What runtimes raise for a model that they cannot run; each has kinds of its own."""


@dataclass(frozen=True)
class Row:
    """One form in one runtime.

    Attributes:
        largest: difference in codes.
        share: of the output's codes that differ, in [0, 1].
        note: the cause, or why there is nothing.
    """

    model: str
    form: str
    runtime: str
    largest: float | None
    share: float | None
    note: str


def plain_onnxruntime(proto: onnx.ModelProto, feed: Feed) -> Outputs:
    return _session(proto, ort.GraphOptimizationLevel.ORT_DISABLE_ALL).run(None, dict(feed))


def onnxruntime(proto: onnx.ModelProto, feed: Feed) -> Outputs:
    return _session(proto, ort.GraphOptimizationLevel.ORT_ENABLE_ALL).run(None, dict(feed))


def _session(proto: onnx.ModelProto, level: Any) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.graph_optimization_level = level
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])


def reference_evaluator(proto: onnx.ModelProto, feed: Feed) -> Outputs:
    newer = onnx.inliner.inline_local_functions(proto)  # the evaluator has no `new_ops` inside functions
    for opset in newer.opset_import:
        if not opset.domain:  # the evaluator has no older DequantizeLinear; it is the same
            opset.version = max(opset.version, 19)
    contrib = CONTRIB if any(node.domain == "com.microsoft" for node in proto.graph.node) else []
    return list(ReferenceEvaluator(newer, new_ops=[*FIXED_OPERATORS, *contrib]).run(None, dict(feed)))


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
    "onnxruntime, plain": plain_onnxruntime,
    "onnxruntime": onnxruntime,
    "OpenVINO": openvino,
}


def compared(model: str, path: Path, data: Path, work: Path) -> Iterator[Row]:
    """Yield a row for each form and runtime."""
    profile_path = work / f"{model}.profile.yaml"
    profile_model(path, data, profile_path, RunSettings(limit=16))
    prepared = open_prepared(path)
    profile = read_profile(profile_path, prepared.model, prepared.identity)
    # As many operators on codes as there can be, whether or not that pays or is loud.
    recipe = load_recipe(None, {"min_output_sqnr": 0.0})
    plan = make_plan(planning_facts(prepared, profile, recipe), start_everywhere=True)
    on_codes = sum(entry.kind in ON_CODES for entry in plan.nodes.values())
    model = f"{model}, {on_codes} of {len(plan.nodes)} nodes on codes"
    feed = next(iter(open_samples(str(data), input_specs(prepared.model), 1))).arrays
    expected = run_plan(prepared.model, plan, feed)
    watched = last_quantized(prepared.graph, plan, expected)
    for form in FORMS:
        formed = replace(plan, config=replace(plan.config, form=form))
        try:
            proto = with_outputs(ir.to_proto(lower(prepared.model, formed).model), watched)
        except QprofError as error:
            yield Row(model, form, "all", None, None, f"not written: {error}")
            continue
        for name, run in RUNTIMES.items():
            try:
                found = run(proto, feed)
            except REFUSALS as error:
                yield Row(model, form, name, None, None, f"does not run: {_sentence(error)}")
                continue
            results = dict(zip((o.name for o in proto.graph.output), found, strict=True))
            row = _row(model, form, name, {w: results[w] for w in watched if w in results}, expected)
            yield replace(row, note=_cause(row))
            if (form, name) == ("qdq", "OpenVINO") and row.largest:
                yield _as_fused(prepared, plan, feed, proto, replace(row, runtime="OpenVINO, as it fuses"))


def _as_fused(prepared: PreparedModel, plan: QuantPlan, feed: Feed, proto: onnx.ModelProto, row: Row) -> Row:
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
    exact = _row(row.model, row.form, row.runtime, {w: found[w] for w in watched if w in found}, expected)
    return replace(exact, note=FUSED)


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


def _row(model: str, form: str, runtime: str, results: Feed, expected: Mapping[str, Tensor]) -> Row:
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
    return Row(model, form, runtime, largest, off / max(count, 1), "")


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


def _cause(row: Row) -> str:
    """Return why codes differ, "" when none do."""
    return CAUSES.get((row.form, row.runtime), ROUNDING) if row.largest else ""


def subjects(work: Path, names: list[str]) -> Iterator[tuple[str, Path, Path]]:
    """Yield name, float model and calibration data of each subject; those that are not installed are told."""
    for name in names:
        if name == "digits":
            folder = HERE.parents[1] / "examples" / "digits"
            yield name, folder / "model.onnx", folder / "calibration"
        elif name == "transformer":
            folder = work / "differential-transformer"
            folder.mkdir(exist_ok=True)
            onnx.save(scale.transformer(1), folder / "model.onnx")
            rng = np.random.default_rng(1)
            shape = (1, scale.LENGTH, scale.WIDTH)
            for number in range(4):
                np.savez(folder / f"{number}.npz", x=rng.standard_normal(shape).astype(np.float32))
            yield name, folder / "model.onnx", folder
        else:
            try:
                yield name, models.load(name).path(work / name), work / name / "calibration"
            except ImportError as error:
                print(f"{name}: left out: {error}")


def table(rows: list[Row]) -> str:
    """Return the rows as a table for people."""
    lines = [
        "| model | form | runtime | largest difference | codes that differ | |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        largest = "-" if row.largest is None else f"{row.largest:g}"
        share = "-" if row.share is None else ("0" if not row.share else f"{100 * row.share:.2g} %")
        lines.append(f"| {row.model} | {row.form} | {row.runtime} | {largest} | {share} | {row.note} |")
    return "\n".join(lines)


HEAD = """# Forms and runtimes, code for code

Written by differential.py. Every form of one plan in every runtime, against a plain numpy reference that sums
in integers and rounds once: the largest difference in codes, at the last tensors in codes before the outputs,
and the share of these that differ. onnxruntime "plain" runs without graph optimisations. Integers start
everywhere, whether or not that pays: each model has as many nodes on codes as the target allows.

A code that lies on the border of two falls to one side or the other with the last bit of a float32 sum. What
is made of it moves along: in the transformer it is 1 of 1,024 codes of the first product, by one, and through
attention, LayerNorm and 57 more nodes it reaches a tenth of the last codes. onnxruntime's kernel of Softmax
on codes is within one code: that makes it a fifth, and one of the two last codes of ppocr-cls.

OpenVINO's departures in form qdq were traced layer by layer in digits. It multiplies inputs by 1 / scale,
where QuantizeLinear divides: mid-grey is 127.49999 steps of 1/255 for the one and 127.5 for the other. And it
fuses a sum into the convolution before it, whose result is then added without having been rounded. "As it
fuses" is against the plan without that rounding, with inputs that lie on codes: every code of digits then
agrees up to the Sigmoids, where 69 of 16,384 differ. The codes before the last Softmax of ppocr-cls differ in
OpenVINO by up to 4 (68 % of them), which was not traced; the probabilities are the same codes.

"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--models", default="digits,transformer,ppocr-cls,magika")
    parser.add_argument("--write", action="store_true", help="write DIFFERENTIAL.md")
    given = parser.parse_args()
    rows: list[Row] = []
    for name, path, data in subjects(given.work, given.models.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            rows += compared(name, path, data, Path(folder))
        print(table([row for row in rows if row.model.startswith(f"{name},")]), flush=True)
    if given.write:
        (HERE / "DIFFERENTIAL.md").write_text(f"{HEAD}{table(rows)}\n", encoding="utf-8")


def _sentence(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith("To facilitate")]
    words = (lines[-1] if lines else type(error).__name__).split()
    return " ".join(word for word in words if "/" not in word)[:140]


if __name__ == "__main__":
    main()
