"""Models in OpenVINO: loaded as a session of onnxruntime would be, run, and looked at node by node."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import openvino as ov
from record import Feed
from workbench import Run, Runtime

# Float parts in float32 on every processor: by default OpenVINO takes bfloat16 where the processor has it.
SETTINGS = {
    "INFERENCE_NUM_THREADS": 1,
    "NUM_STREAMS": 1,
    "ENABLE_CPU_PINNING": False,
    "INFERENCE_PRECISION_HINT": "f32",
}
_CORE = ov.Core()


class OpenVinoSession:
    """A compiled model with the two methods of a session that scoring uses."""

    def __init__(self, path: Path, threads: int) -> None:
        self._request = compiled(path, threads).create_infer_request()
        self._outputs = [SimpleNamespace(name=output.any_name) for output in self._request.model_outputs]

    def get_outputs(self) -> list[SimpleNamespace]:
        """Return the outputs, in the model's order."""
        return self._outputs

    def run(self, _names: None, feed: Feed) -> list[np.ndarray]:
        """Return copies of all outputs."""
        found = self._request.infer(dict(feed))
        return [np.array(found[place]) for place in range(len(self._outputs))]


def compiled(path: Path, threads: int, **settings: Any) -> ov.CompiledModel:
    """Return a model for the CPU."""
    chosen = {**SETTINGS, "INFERENCE_NUM_THREADS": threads, **settings}
    return _CORE.compile_model(_CORE.read_model(path), "CPU", chosen)


def openvino_run(path: Path, threads: int) -> Run:
    """Return one run of a model; neither inputs nor outputs are copied."""
    request = compiled(path, threads).create_infer_request()
    return lambda feed: request.infer(dict(feed), share_inputs=True, share_outputs=True)


OPENVINO = Runtime(OpenVinoSession, openvino_run)
_KEYS = ("layerType", "runtimePrecision", "primitiveType")


def steps(path: Path, feed: Feed, runs: int) -> list[dict[str, Any]]:
    """Return what is executed with one thread, the slowest first: op, name, precision, primitive, us
    (microseconds).

    Times of the last runs are OpenVINO's own: it averages over all runs but counts the first, which
    prepares weights, so the median of separate readings is taken.
    """
    model = compiled(path, 1, PERF_COUNT=True)
    request = model.create_infer_request()
    spent: dict[str, list[float]] = {}
    for turn in range(runs + 2):
        request.infer(dict(feed), share_inputs=True, share_outputs=True)
        for info in request.profiling_info if turn >= 2 else ():
            spent.setdefault(info.node_name, []).append(info.real_time.total_seconds() * 1e6)
    found = []
    for node in model.get_runtime_model().get_ordered_ops():
        kind, precision, primitive = (
            node.rt_info[key].astype(str) if key in node.rt_info else "" for key in _KEYS
        )
        times = spent.get(node.friendly_name, [0.0])
        found.append(
            {
                "op": kind or node.type_info.name,
                "name": node.friendly_name,
                "precision": precision,
                "primitive": primitive,
                "us": round(float(np.median(times)), 1),
            }
        )
    return sorted(found, key=lambda step: -float(step["us"]))
