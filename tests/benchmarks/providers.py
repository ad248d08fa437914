"""Models that qprof quantized, in execution providers of onnxruntime that run without their hardware.

    python tests/benchmarks/providers.py --provider qnn --work DIR [--models digits,ppocr-cls] [--write]

Providers exclude each other in one environment, so each is run in its own; --write puts what all runs left in
DIR into PROVIDERS.md. Profiles are those that real_models.py made in DIR.

    qnn        pip install onnxruntime-qnn: a plugin; its x86-64 wheel holds Qualcomm's HTP simulator
    openvino   pip install onnxruntime-openvino: a build of onnxruntime with OpenVINO on the CPU
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import models
import numpy as np
import onnx
import onnxruntime as ort
import provider_report
from differential import last_quantized, with_outputs
from onnxruntime.capi import onnxruntime_pybind11_state as ort_errors
from oracles import Tensor, run_plan
from qprof_onnx.quantizer.api.from_profile import write_quantized
from qprof_onnx.quantizer.operators.graph import index
from qprof_onnx.quantizer.targets.loading import load_recipe
from record import Feed, Outputs, RealModel, make_data


def _is_error(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Exception)


HERE = Path(__file__).resolve().parent
MODELS = "digits,ppocr-cls,keywords,texture-faults,magika,minilm"
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


@dataclass(frozen=True)
class Row:
    """One model in one provider.

    Attributes:
        taken, left: operator types with the number of nodes that the provider took, and left to the CPU.
        scores: of the task: the float model and the quantized one in onnxruntime, then in the provider.
        samples: of the task, as many of them as were run.
        agreement: share of elements of the last quantized tensors that are the same in the provider as in the
            reference; of the others the largest difference in quantized steps.
        cpu_agreement, cpu_steps: likewise of onnxruntime without graph optimisations, as the reference.
        seconds: of one sample in the provider; no speed where that is a simulator.
        note: why there is nothing.
    """

    model: str
    provider: str
    quantized: str = ""
    taken: Mapping[str, int] | None = None
    left: Mapping[str, int] | None = None
    scores: tuple[float, ...] = ()
    samples: int = 0
    agreement: float = 0.0
    steps: float = 0.0
    cpu_agreement: float = 0.0
    cpu_steps: float = 0.0
    seconds: float = 0.0
    note: str = ""


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


def compared(model: RealModel, provider: Provider, name: str, work: Path, limit: int) -> Row:
    """Quantize a model for the provider's target and run it there, in onnxruntime and in plain numpy."""
    data = make_data(model, work)
    float_path = model.path(work / model.name)
    profile = work / model.name / "built" / "qprof.yaml"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "quantized.onnx"
        result = write_quantized(float_path, profile, path, recipe=load_recipe(provider.target))
        pairs = zip(data.evaluation.feeds(), data.evaluation.labels, strict=True)
        feeds, labels = zip(*itertools.islice(pairs, limit), strict=True)
        shapes = {key: array.shape for key, array in feeds[0].items()}
        same = [{key: array.shape for key, array in feed.items()} == shapes for feed in feeds]
        feeds, labels = [list(itertools.compress(values, same)) for values in (feeds, labels)]
        proto = fixed(path, feeds[0])
    opened = session(proto, provider.options())
    taken, left = assigned(opened)
    enable = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    float_model = session(fixed(float_path, feeds[0]), cpu(enable))
    on_cpu = session(proto, cpu(enable))
    started = time.perf_counter()
    found = [opened.run(None, feed) for feed in feeds]
    seconds = (time.perf_counter() - started) / len(feeds)
    runs = [
        [float_model.run(None, feed) for feed in feeds],
        [on_cpu.run(None, feed) for feed in feeds],
        found,
    ]
    assert result.made is not None
    prepared, plan = result.made.planned.model, result.made.planned.plan
    expected = [run_plan(prepared, plan, feed) for feed in feeds[:ORACLES]]
    watched = last_quantized(index(prepared), plan, expected[0])
    watching = with_outputs(proto, watched)
    there = _differences(session(watching, provider.options()), watching, feeds, expected, watched)
    plain = cpu(ort.GraphOptimizationLevel.ORT_DISABLE_ALL)
    here = _differences(session(watching, plain), watching, feeds, expected, watched)
    return Row(
        model.name,
        name,
        ", ".join(f"{count} {kind}" for kind, count in result.summary.counts.items()),
        dict(taken),
        dict(left),
        tuple(_score(model, outputs, labels) for outputs in runs),
        len(feeds),
        *there,
        *here,
        seconds,
    )


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


def rows_of(names: Sequence[str], name: str, work: Path, limit: int) -> Iterator[Row]:
    """Yield a row for each model; a model that the provider refuses has the reason as its note."""
    for one in names:
        try:
            model = models.load(one)
        except ImportError as error:
            print(f"{one}: left out: {error}")
            continue
        try:
            yield compared(model, PROVIDERS[name], name, work, limit)
        except REFUSALS as error:
            yield Row(one, name, note=" ".join(str(error).split())[:200])


def kept(file: Path, title: str, rows: Mapping[str, Row]) -> dict[str, Any]:
    """Return what a file of results holds with these rows in it; those of other models stay."""
    records = json.loads(file.read_text(encoding="utf-8"))["rows"] if file.exists() else {}
    records |= {name: asdict(row) for name, row in rows.items()}
    return {"title": title, "rows": records}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--provider", choices=PROVIDERS)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path, help="folder of the results; the work folder if left out")
    parser.add_argument("--models", default=MODELS)
    parser.add_argument("--limit", type=int, default=20, help="samples of the task")
    parser.add_argument("--write", action="store_true", help="write PROVIDERS.md from the results")
    given = parser.parse_args()
    out = given.out or given.work
    if given.provider:
        title, file = PROVIDERS[given.provider].title(), out / f"providers-{given.provider}.json"
        for row in rows_of(given.models.split(","), given.provider, given.work, given.limit):
            print(json.dumps(asdict(row)), flush=True)
            file.write_text(json.dumps(kept(file, title, {row.model: row})), encoding="utf-8")
    if given.write:
        provider_report.write(HERE / "PROVIDERS.md", out)


if __name__ == "__main__":
    main()
