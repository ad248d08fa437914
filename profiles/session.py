"""onnxruntime as the profiler uses it: the graph as it is written, with its refusals as errors of qprof."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import onnx_ir as ir
import onnxruntime as ort
from onnxruntime.capi import onnxruntime_pybind11_state as state

from .errors import ModelError

RUNTIME_ERRORS: tuple[type[Exception], ...] = (
    *(
        getattr(state, name)
        for name in (
            "EPFail",
            "Fail",
            "InvalidArgument",
            "InvalidGraph",
            "InvalidProtobuf",
            "NoSuchFile",
            "NotImplemented",
            "RuntimeException",
        )
    ),
    RuntimeError,
    TypeError,
    ValueError,
)
"""What onnxruntime raises when it refuses a model or a feed; they share no root of their own."""

IN_MEMORY_BYTES = 1 << 30
"""Models with larger weights go to onnxruntime through a file: one protobuf cannot exceed 2 GB."""


@contextmanager
def opened(model: ir.Model, threads: int = 0) -> Iterator[ort.InferenceSession]:
    """Yield a session on the CPU that runs `model` node for node, without any optimisation.

    Unfused, every tensor has the value that its own node gives it, whatever else is asked for as an output;
    and with all tensors as outputs, hardly any fusion would be possible anyway.

    Args:
        model: weights may be in memory or in external files.
        threads: threads inside an operator; 0 for all cores.

    Raises:
        ModelError: onnxruntime refuses the model, or a file of external data cannot be read.
    """
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.use_deterministic_compute = True
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # refusals are raised; warnings would mix with the progress bar
    with tempfile.TemporaryDirectory(prefix="qprof-", ignore_cleanup_errors=True) as folder:
        source = (
            _stored(model, Path(folder)) if _needs_files(model) else ir.to_proto(model).SerializeToString()
        )
        try:
            session = ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])
        except RUNTIME_ERRORS as error:
            raise ModelError(
                f"{_named(model)}: onnxruntime cannot load it: {first_line(error)}; "
                "check the model with onnx.checker, and that this onnxruntime has its operators"
            ) from error
        yield session


def first_line(error: Exception) -> str:
    """Return the first line of an error's text: the rest of onnxruntime's is often its source code."""
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def runtime_dtypes(model: ir.Model, names: tuple[str, ...]) -> dict[str, ir.DataType | None]:
    """Return the element types that onnxruntime infers for tensors of the main graph; None for no tensor.

    For what shape inference of ONNX cannot type: the outputs of operators outside the standard.

    Raises:
        ModelError: onnxruntime refuses the model.
    """
    probe = model.clone()
    there = {value.name for value in probe.graph.outputs}
    wanted = set(names) - there
    values = [v for node in probe.graph for v in node.outputs if v.name in wanted]
    probe.graph.outputs.extend(values)
    with opened(probe) as session:
        found = {output.name: _dtype(output.type) for output in session.get_outputs()}
    return {name: found[name] for name in names}


def _dtype(text: str) -> ir.DataType | None:
    """Return the element type in onnxruntime's "tensor(float)"; None for sequences, maps and the like."""
    if not text.startswith("tensor("):
        return None
    return getattr(ir.DataType, text[len("tensor(") : -1].upper(), None)


def _needs_files(model: ir.Model) -> bool:
    tensors = [v.const_value for graph in model.graphs() for v in graph.initializers.values()]
    if any(isinstance(tensor, ir.ExternalTensor) for tensor in tensors):
        return True
    return sum(tensor.nbytes for tensor in tensors if tensor is not None) > IN_MEMORY_BYTES


def _stored(model: ir.Model, folder: Path) -> str:
    try:
        ir.save(model, folder / "model.onnx", external_data="weights.bin")
    except (OSError, ValueError) as error:
        raise ModelError(
            f"{_named(model)}: its weights cannot be brought to onnxruntime: {first_line(error)}; "
            "check that the files of external data are complete and that the temporary folder has room"
        ) from error
    return str(folder / "model.onnx")


def _named(model: ir.Model) -> str:
    return f"model '{model.graph.name}'" if model.graph.name else "the model"
