"""Models in OpenVINO."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import onnx

from ....profiles.base.errors import ConfigError, ModelError, nearest
from ....profiles.base.extras import library
from ...evaluation.runtimes import FloatBorders, Session, stated_borders


class OpenVinoSession:
    """A compiled model with the methods of a session that comparing needs."""

    runtime_title = "OpenVINO"

    def __init__(self, compiled: Any, outputs: Sequence[str]) -> None:
        self._request = compiled.create_infer_request()
        self._inputs = [SimpleNamespace(name=value.any_name, type=_type(value)) for value in compiled.inputs]
        # A tensor may have several names, where OpenVINO left nodes out between them.
        pairs = zip(outputs, compiled.outputs, strict=True)
        self._outputs = [SimpleNamespace(name=name, type=_type(value)) for name, value in pairs]
        self._places = {name: at for at, name in enumerate(outputs)}

    def get_inputs(self) -> Sequence[Any]:
        """Return the inputs in the model's order."""
        return self._inputs

    def get_outputs(self) -> Sequence[Any]:
        """Return the outputs in the model's order."""
        return self._outputs

    def run(self, output_names: Sequence[str], inputs: Mapping[str, npt.NDArray[Any]]) -> list[Any]:
        """Return copies of outputs; OpenVINO's RuntimeError if it fails."""
        values = self._request.infer({name: np.ascontiguousarray(a) for name, a in inputs.items()})
        return [np.array(values[self._places[name]]) for name in output_names]


_TYPES = {"f32": "float", "f16": "float16", "f64": "double", "bf16": "bfloat16", "boolean": "bool"}
_TYPES |= {
    f"{short}{bits}": f"{long}{bits}"
    for short, long in (("i", "int"), ("u", "uint"))
    for bits in (8, 16, 32, 64)
}


def _type(value: Any) -> str:
    """Return the type of a tensor as onnxruntime writes it."""
    name = value.get_element_type().get_type_name()
    return f"tensor({_TYPES.get(name, name)})"


def _reason(error: Exception) -> str:
    """Return OpenVINO's error on one line: without places in its source and headings."""
    lines = [line.strip() for line in str(error).splitlines()]
    said = [n for n in lines if n and not n.startswith(("Exception from", "Check '")) and not n.endswith(":")]
    return "; ".join(line.lstrip("- ").rstrip(".") for line in said[:2])[:300] or type(error).__name__


def _core() -> Any:
    """Return the core of OpenVINO, which is imported as if its telemetry were not installed."""
    loaded: dict[str, Any] = sys.modules
    hidden = loaded.setdefault("openvino_telemetry", None) is None
    try:
        return _only_core(library("openvino", "runtime 'openvino'", "openvino"))
    finally:
        if hidden:
            del loaded["openvino_telemetry"]


@cache
def _only_core(openvino: Any) -> Any:
    """Return the one core of the module, never freed: a second one leaves a freed stack for signals when it
    ends."""
    return openvino.Core()


def device(provider: str) -> str:
    """Return the full name of a device that OpenVINO has here."""
    present: Sequence[str] = _core().available_devices
    for one in present:
        if provider.lower() in (one.lower(), one.partition(".")[0].lower()):
            return str(one)
    raise ConfigError(
        f"provider '{provider}': OpenVINO has no such device here; it has {', '.join(present)}."
        f"{nearest(provider.upper(), present)}"
    )


def open_model(path: str, name: str, threads: int, provider: str, timed: bool) -> Session:
    """Open a model in OpenVINO. Float parts stay float32, as in onnxruntime: it would take bfloat16."""
    settings: dict[str, Any] = {"INFERENCE_PRECISION_HINT": "f32", "NUM_STREAMS": 1}
    if provider == "CPU":
        settings |= {"INFERENCE_NUM_THREADS": threads, "ENABLE_CPU_PINNING": False}
    core = _core()
    try:
        proto = onnx.load(path, load_external_data=False)
        names = [value.name for value in proto.graph.output]
        session = OpenVinoSession(core.compile_model(core.read_model(path), provider, settings), names)
    except (RuntimeError, TypeError) as error:
        raise ModelError(
            f"{name}: OpenVINO cannot load it: {_reason(error)}; compare it with --runtime "
            "onnxruntime, or quantize it with --target openvino"
        ) from error
    values = [
        SimpleNamespace(
            name=value.name, type="", shape=[dim.dim_value for dim in value.type.tensor_type.shape.dim]
        )
        for value in (*proto.graph.input, *proto.graph.output)
    ]
    borders = stated_borders({entry.key: entry.value for entry in proto.metadata_props}, values)
    return cast(Session, FloatBorders(session, borders)) if borders else session
