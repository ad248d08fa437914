"""One run of a session on one sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import onnxruntime as ort

from ..base.errors import DataError
from ..samples.samples import Sample
from .refusals import RUNTIME_ERRORS, first_line

Array = npt.NDArray[Any]
Found = Array | list[Array]
"""What onnxruntime gives for an output: an array, or a list for a sequence."""


def run_sample(session: ort.InferenceSession, fetched: Sequence[str], sample: Sample) -> dict[str, Found]:
    """Return the named outputs for one sample. The arrays are onnxruntime's own memory, not copies.

    Raises:
        DataError: the model fails on it.
    """
    if not fetched:  # onnxruntime would take an empty list for all outputs
        return {}
    try:
        feed = {name: _feedable(array) for name, array in sample.feed.items()}
        return dict(zip(fetched, session.run(list(fetched), feed), strict=True))
    except RUNTIME_ERRORS as error:
        raise DataError(
            f"sample {sample.name}: the model fails on it: {first_line(error)}; "
            "compare the sample with what the model was made for"
        ) from error


def _feedable(array: npt.NDArray[Any]) -> Any:
    """Return what onnxruntime takes; for bfloat16, which it does not know as a numpy type, its bits."""
    if array.dtype.name != "bfloat16":
        return array
    bits = np.ascontiguousarray(array).view(np.uint16)
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, int(ir.DataType.BFLOAT16))
