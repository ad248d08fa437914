"""One run of a session on one sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import onnxruntime as ort

from ..base.errors import DataError
from ..readers.values import Sample
from .refusals import RUNTIME_ERRORS, first_line

Array = npt.NDArray[Any]
Output = Array | list[Array]
"""An output of a run: an array, or a list of arrays for a sequence."""


def run_sample(session: ort.InferenceSession, fetched: Sequence[str], sample: Sample) -> dict[str, Output]:
    """Return the named outputs for one sample. The arrays are onnxruntime's own memory, not copies.

    Raises:
        DataError: the model fails on it.
    """
    if not fetched:  # for onnxruntime an empty list means all outputs
        return {}
    try:
        arrays = {name: _ort_input(array) for name, array in sample.arrays.items()}
        return dict(zip(fetched, session.run(list(fetched), arrays), strict=True))
    except RUNTIME_ERRORS as error:
        raise DataError(
            f"sample {sample.name}: the model fails on it: {first_line(error)}; "
            "compare its shapes and values with the inputs that the model expects"
        ) from error


def _ort_input(array: npt.NDArray[Any]) -> Any:
    """Return an array as onnxruntime takes it; for bfloat16, which is not a type of numpy, its bits."""
    if array.dtype.name != "bfloat16":
        return array
    bits = np.ascontiguousarray(array).view(np.uint16)
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, int(ir.DataType.BFLOAT16))
