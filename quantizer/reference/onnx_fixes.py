"""Operators that onnx's reference evaluator computes wrongly, for its argument `new_ops`."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from onnx.reference.op_run import OpRun

Array = npt.NDArray[Any]


class GlobalMaxPool(OpRun):
    """GlobalMaxPool, onnx operator spec: the maximum over all axes after the second, which keep size 1.

    The evaluator of onnx 1.23 takes axes n - 2 and n - 1 of n, which are these in two dimensions only.
    """

    op_domain = ""

    def _run(self, x: Array) -> tuple[Array]:
        return (np.asarray(x.max(axis=tuple(range(2, x.ndim)), keepdims=True)),)


FIXED_OPERATORS: list[type[OpRun]] = [GlobalMaxPool]
"""All of them, in domain ""."""
