"""Models that qprof quantized, in execution providers of onnxruntime that run without their hardware.

    python tests/benchmarks/run.py providers qnn:digits qnn:keywords --work DIR
    python tests/benchmarks/run.py providers --work DIR --known --write

Providers exclude each other in one environment, so each is run in its own, with one work folder for all.

    qnn        pip install onnxruntime-qnn: a plugin; its x86-64 wheel holds Qualcomm's HTP simulator
    openvino   pip install onnxruntime-openvino: a build of onnxruntime with OpenVINO on the CPU
"""

from __future__ import annotations

import itertools
import tempfile
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from frame import Row, Rows, Stage, table
from onnxruntime.capi import onnxruntime_pybind11_state as ort_errors
from oracles import Tensor, run_plan
from qprof_onnx.quantizer.api.from_profile import write_quantized
from qprof_onnx.quantizer.operators.graph import index
from qprof_onnx.quantizer.targets.loading import load_recipe
from record import Feed, Outputs, RealModel
from workbench import Workbench

from stages.differential import last_quantized, with_outputs


def _is_error(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Exception)


REFUSALS = (RuntimeError, ValueError, *(e for e in vars(ort_errors).values() if _is_error(e)))
"""What onnxruntime raises for a model that it cannot run."""
ORACLES = 2
"""Samples that the plain numpy reference computes: it takes seconds for each."""


@dataclass(frozen=True)
class Provider:
    """One execution provider.

    Attributes:
        target: whose models it gets.
        title: runtime and versions, for people.
        options: of a session, with the provider in them.
    """

    target: str
    title: Callable[[], str]
    options: Callable[[], ort.SessionOptions]


def qnn_options(**more: str) -> ort.SessionOptions:
    """Return options of a session in the HTP simulator, with further options of the provider."""
    import onnxruntime_qnn

    if not any(device.ep_name == _QNN for device in ort.get_ep_devices()):
        ort.register_execution_provider_library(_QNN, onnxruntime_qnn.get_library_path())
    devices = [device for device in ort.get_ep_devices() if device.ep_name == _QNN]
    options = ort.SessionOptions()
    backend = {"backend_path": onnxruntime_qnn.get_qnn_htp_path(), "soc_model": SNAPDRAGON_8_GEN_3, **more}
    options.add_provider_for_devices(devices, backend)
    return options


_QNN = "QNNExecutionProvider"
SNAPDRAGON_8_GEN_3 = "57"
"""Without a processor the simulator prepares graphs for its oldest one, and fails where a tensor is float."""


def _openvino() -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL  # as its documents advise
    options.add_provider("OpenVINOExecutionProvider", {"device_type": "CPU", "precision": "FP32"})
    return options


def _qnn_title() -> str:
    from onnxruntime_qnn.build_and_package_info import qnn_version

    return (
        f"onnxruntime {ort.__version__}, onnxruntime-qnn {version('onnxruntime-qnn')}, QNN {qnn_version}, "
        "HTP simulator on x86-64, Snapdragon 8 Gen 3"
    )


PROVIDERS: Mapping[str, Provider] = {
    "qnn": Provider("qnn", _qnn_title, qnn_options),
    "openvino": Provider(
        "openvino", lambda: f"onnxruntime-openvino {version('onnxruntime-openvino')}, CPU", _openvino
    ),
}


def session(proto: onnx.ModelProto, options: ort.SessionOptions) -> ort.InferenceSession:
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    return ort.InferenceSession(proto.SerializeToString(), options)


def cpu(level: ort.GraphOptimizationLevel) -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.graph_optimization_level = level
    return options


def assigned(opened: ort.InferenceSession) -> tuple[Counter[str], Counter[str]]:
    """Return the operator types that a provider took and that it left, with the number of nodes."""
    taken, left = Counter[str](), Counter[str]()
    for subgraph in opened.get_provider_graph_assignment_info():
        counter = left if subgraph.ep_name == "CPUExecutionProvider" else taken
        counter.update(node.op_type for node in subgraph.get_nodes())
    return taken, left


def fixed(path: Path, feed: Feed) -> onnx.ModelProto:
    """Return a model whose inputs have the shapes of a sample, from which the runtime infers all others."""
    proto = onnx.load(path)
    for value in proto.graph.input:
        for dim, size in zip(value.type.tensor_type.shape.dim, feed[value.name].shape, strict=True):
            dim.dim_value = size
    for value in proto.graph.output:
        value.type.tensor_type.ClearField("shape")
    del proto.graph.value_info[:]
    return proto


def rows(subject: str, given: Namespace) -> Iterator[Row]:
    """Quantize a model for a provider's target and run it there, in onnxruntime and in plain numpy.

    The subject is PROVIDER:MODEL. A row has `taken` and `left`: operators with the number of nodes that the
    provider took, and left to the CPU; `scores` of the task: the float and the quantized model in
    onnxruntime, then in the provider; `there`: the share of elements of the last quantized tensors that are
    those of the reference, and the largest difference of the others in quantized steps; `here`: likewise of
    onnxruntime without graph optimisations.
    """
    name, _, model_name = subject.partition(":")
    row: Row = {"model": model_name, "title": PROVIDERS[name].title()}
    try:
        yield {**row, **compared(Workbench(model_name, given.work), PROVIDERS[name], given.limit)}
    except REFUSALS as error:
        yield {**row, "note": " ".join(str(error).split())[:200]}


def compared(bench: Workbench, provider: Provider, limit: int) -> Row:
    model, split = bench.model, bench.data.evaluation
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "quantized.onnx"
        result = write_quantized(bench.path, bench.profile(), path, recipe=load_recipe(provider.target))
        pairs = zip(split.feeds(), split.labels, strict=True)
        feeds, labels = zip(*itertools.islice(pairs, limit), strict=True)
        shapes = {key: array.shape for key, array in feeds[0].items()}
        same = [{key: array.shape for key, array in feed.items()} == shapes for feed in feeds]
        feeds, labels = [list(itertools.compress(values, same)) for values in (feeds, labels)]
        proto = fixed(path, feeds[0])
    opened = session(proto, provider.options())
    taken, left = assigned(opened)
    enable = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    sessions = [session(fixed(bench.path, feeds[0]), cpu(enable)), session(proto, cpu(enable)), opened]
    runs = [[one.run(None, feed) for feed in feeds] for one in sessions]
    prepared, plan = result.planned.model, result.planned.plan
    expected = [run_plan(prepared, plan, feed) for feed in feeds[:ORACLES]]
    watched = last_quantized(index(prepared), plan, expected[0])
    watching = with_outputs(proto, watched)
    plain = cpu(ort.GraphOptimizationLevel.ORT_DISABLE_ALL)
    return {
        "quantized": ", ".join(f"{count} {kind}" for kind, count in result.summary.counts.items()),
        "taken": dict(taken),
        "left": dict(left),
        "scores": [_score(model, outputs, labels) for outputs in runs],
        "samples": len(feeds),
        "there": _differences(session(watching, provider.options()), watching, feeds, expected, watched),
        "here": _differences(session(watching, plain), watching, feeds, expected, watched),
    }


def _score(model: RealModel, outputs: Sequence[Outputs], labels: Sequence[Any]) -> float:
    assert model.count is not None
    return model.score(np.asarray(model.count(iter(outputs), labels), np.float64).sum(axis=0)).value


def _differences(
    opened: ort.InferenceSession,
    proto: onnx.ModelProto,
    feeds: Sequence[Feed],
    expected: Sequence[Mapping[str, Tensor]],
    watched: Sequence[str],
) -> tuple[float, float]:
    """Return the share of elements that are as expected, and the largest difference in quantized steps."""
    names = [output.name for output in proto.graph.output]
    equal, count, largest = 0, 0, 0.0
    for feed, tensors in zip(feeds, expected, strict=False):
        found = dict(zip(names, opened.run(None, feed), strict=True))
        for name in watched:
            tensor = tensors[name]
            if name not in found or tensor.params is None:
                continue
            steps = np.rint(
                np.abs(found[name].astype(np.float64) - tensor.values) / tensor.params.tensor_scale
            )
            equal, count = equal + int((steps == 0).sum()), count + steps.size
            largest = max(largest, float(steps.max()))
    return equal / max(count, 1), largest


def page(rows: Rows) -> str:
    """Return a table for each provider."""
    titles: dict[str, list[Row]] = {}
    for (row,) in rows.values():
        titles.setdefault(row["title"], []).append(row)
    head = ("model", "planned", "taken", "left", "equal", "onnxruntime", "score: float, quantized, there")
    return "\n\n".join(
        f"### {title}\n\n{table(head, [_cells(row) for row in some])}" for title, some in titles.items()
    )


def _cells(row: Row) -> list[str]:
    if "note" in row:
        return [row["model"], f"does not run: {row['note']}", *[""] * 5]
    scores = ", ".join(f"{score:.3f}" for score in row["scores"])
    equal = [_equal(*row["there"]), _equal(*row["here"])]
    counts = [_nodes(row["taken"]), _nodes(row["left"]) or "-"]
    return [row["model"], row["quantized"], *counts, *equal, f"{scores} ({row['samples']} samples)"]


def _nodes(counts: Mapping[str, int]) -> str:
    conversions = sum(counts.get(name, 0) for name in ("QuantizeLinear", "DequantizeLinear"))
    both = ((sum(counts.values()) - conversions, "node"), (conversions, "conversion"))
    return ", ".join(f"{count} {what}{'s' if count > 1 else ''}" for count, what in both if count)


def _equal(share: float, steps: float) -> str:
    if not share and not steps:
        return "none before the outputs"
    if 0.9999 <= share < 1.0:
        return f"over 99.99 %, {steps:g}"
    return "all" if share == 1.0 else f"{100 * share:.4g} %, {steps:g}"


def options(parser: ArgumentParser) -> None:
    parser.add_argument("--limit", type=int, default=20, help="samples of the task")


MODELS = ("digits", "ppocr-cls", "keywords", "texture-faults", "magika", "minilm")
STAGE = Stage(
    rows, {"PROVIDERS.md": page}, [f"{name}:{model}" for name in PROVIDERS for model in MODELS], options
)
