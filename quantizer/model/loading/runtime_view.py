"""What onnxruntime says of a model file: whether it loads it, and the types of its outputs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property

import onnx_ir as ir
import onnxruntime as ort

from ....profiles.runtime.custom_operators import new_session, new_session_options
from ....profiles.runtime.refusals import RUNTIME_ERRORS, first_line


@dataclass(frozen=True, eq=False)
class RuntimeView:
    """A model file as onnxruntime sees it; loaded when it is asked for the first time.

    Attributes:
        path: of the file.
    """

    path: str | os.PathLike[str]

    @cached_property
    def _loaded(self) -> ort.InferenceSession | str:
        options = new_session_options()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = 1
        options.log_severity_level = 4  # errors are raised
        options.add_session_config_entry("session.disable_prepacking", "1")  # nothing will be run
        try:
            return new_session(os.fspath(self.path), options, "CPUExecutionProvider")
        except RUNTIME_ERRORS as error:
            return first_line(error)

    @property
    def refusal(self) -> str:
        """Why onnxruntime refuses the model, "" when it loads it."""
        return self._loaded if isinstance(self._loaded, str) else ""

    def output_values(self) -> dict[str, ir.Value]:
        """Return the outputs that are tensors, by name, with type, and with shape where it is known and not
        empty: onnxruntime gives an unknown rank as no dimensions. None when it refuses the model."""
        if isinstance(self._loaded, str):
            return {}
        return {
            output.name: ir.Value(
                name=output.name,
                type=ir.TensorType(_TYPES[output.type]),
                shape=ir.Shape(output.shape) if output.shape else None,
            )
            for output in self._loaded.get_outputs()
            if output.type in _TYPES
        }


_TYPES = {f"tensor({kind.name.lower()})": kind for kind in ir.DataType}
