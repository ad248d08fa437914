"""Operators that onnx's reference evaluator computes wrongly, for its argument `new_ops`."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from onnx.reference.op_run import OpRun
from onnx.reference.ops.op_conv_transpose import ConvTranspose as OneGroup

Array = npt.NDArray[Any]


class GlobalMaxPool(OpRun):
    """GlobalMaxPool, onnx operator spec: the maximum over all axes after the second, which keep size 1.

    The evaluator of onnx 1.23 takes axes n - 2 and n - 1 of n, which are these in two dimensions only.
    """

    op_domain = ""

    def _run(self, x: Array) -> tuple[Array]:
        return (np.asarray(x.max(axis=tuple(range(2, x.ndim)), keepdims=True)),)


class ConvTranspose(OpRun):
    """ConvTranspose in several groups: those of input channels, weights and bias are side by side.

    The evaluator of onnx 1.23 divides the weight by its output channels, and gives each group the whole bias.
    """

    op_domain = ""

    def _run(self, x: Array, w: Array, b: Array | None = None, **attributes: Any) -> tuple[Array]:
        groups = attributes.pop("group", None) or 1
        biases = [None] * groups if b is None else np.split(b, groups)
        parts = zip(np.split(x, groups, axis=1), np.split(w, groups), biases, strict=True)
        run: Any = OneGroup._run
        return (np.concatenate([run(self, *part, group=1, **attributes)[0] for part in parts], axis=1),)


FIXED_OPERATORS: list[type[OpRun]] = [GlobalMaxPool, ConvTranspose]
"""All of them, in domain ""."""
