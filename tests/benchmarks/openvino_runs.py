"""Models in OpenVINO: loaded as a session of onnxruntime would be, and run."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

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


def compiled(path: Path, threads: int) -> ov.CompiledModel:
    """Return a model for the CPU."""
    return _CORE.compile_model(_CORE.read_model(path), "CPU", {**SETTINGS, "INFERENCE_NUM_THREADS": threads})


def openvino_run(path: Path, threads: int) -> Run:
    """Return one run of a model; neither inputs nor outputs are copied."""
    request = compiled(path, threads).create_infer_request()
    return lambda feed: request.infer(dict(feed), share_inputs=True, share_outputs=True)


OPENVINO = Runtime(OpenVinoSession, openvino_run)
