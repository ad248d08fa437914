"""Models in OpenVINO: loaded as a session of onnxruntime would be, run, and looked at node by node."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
from record import Feed
from speed import Run

# Float parts in float32 on every processor: by default OpenVINO takes bfloat16 where the processor has it.
SETTINGS = {
    "INFERENCE_NUM_THREADS": 1,
    "NUM_STREAMS": 1,
    "ENABLE_CPU_PINNING": False,
    "INFERENCE_PRECISION_HINT": "f32",
}
_CORE = ov.Core()


@dataclass(frozen=True)
class Named:
    """An output, as sessions of onnxruntime describe it."""

    name: str


class OpenVinoSession:
    """A compiled model with the two methods of a session that scoring uses."""

    def __init__(self, path: Path, threads: int) -> None:
        self._request = compiled(path, threads).create_infer_request()
        self._outputs = [Named(output.any_name) for output in self._request.model_outputs]

    def get_outputs(self) -> list[Named]:
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


def openvino_session(path: Path, threads: int) -> OpenVinoSession:
    """Open a model for scoring."""
    return OpenVinoSession(path, threads)


def openvino_run(path: Path, threads: int) -> Run:
    """Return one run of a model; neither inputs nor outputs are copied."""
    request = compiled(path, threads).create_infer_request()
    return lambda feed: request.infer(dict(feed), share_inputs=True, share_outputs=True)


@dataclass(frozen=True)
class Step:
    """A node of the graph that OpenVINO executes.

    Attributes:
        name: its name, most often that of a node or tensor of the model.
        kind: such as Convolution, Reorder or Subgraph.
        precision: what it computes in, such as i8, u8 or f32.
        primitive: the implementation that was taken.
        originals: names of the model's nodes that went into it.
        microseconds: the mean of the runs.
    """

    name: str
    kind: str
    precision: str
    primitive: str
    originals: str
    microseconds: float


def steps(path: Path, feed: Feed, runs: int = 12) -> list[Step]:
    """Return what is executed with one thread, the slowest first.

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
        facts = {key: node.rt_info[key].astype(str) for key in _KEYS if key in node.rt_info}
        times = spent.get(node.friendly_name, [0.0])
        found.append(
            Step(
                node.friendly_name,
                facts.get("layerType", node.type_info.name),
                facts.get("runtimePrecision", ""),
                facts.get("primitiveType", ""),
                facts.get("originalLayersNames", ""),
                float(np.median(times)),
            )
        )
    return sorted(found, key=lambda step: -step.microseconds)


_KEYS = ("layerType", "runtimePrecision", "primitiveType", "originalLayersNames")
