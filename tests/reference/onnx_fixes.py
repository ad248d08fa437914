"""Operators that onnx's reference evaluator computes wrongly or not at all, for its argument `new_ops`."""

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


class GlobalLpPool(OpRun):
    """GlobalLpPool, onnx operator spec: the p-norm over all axes after the second. The evaluator has none."""

    op_domain = ""

    def _run(self, x: Array, p: int | None = None) -> tuple[Array]:
        power = 2 if p is None else p
        sums = (np.abs(x) ** power).sum(axis=tuple(range(2, x.ndim)), keepdims=True)
        return (np.asarray(sums ** (1.0 / power), x.dtype),)


class GroupNormalization(OpRun):
    """GroupNormalization, onnx operator spec from opset 21 on: scale and bias are for each channel.

    The evaluator of onnx 1.23 finds no function of the operator by itself.
    """

    op_domain = ""

    def _run(self, x: Array, scale: Array, bias: Array, **attributes: Any) -> tuple[Array]:
        epsilon, groups = attributes.get("epsilon"), attributes["num_groups"]
        grouped = x.reshape(x.shape[0], groups, -1)
        centred = grouped - grouped.mean(axis=2, keepdims=True)
        variance = grouped.var(axis=2, keepdims=True)
        normal = (centred / np.sqrt(variance + (1e-5 if epsilon is None else epsilon))).reshape(x.shape)
        beside = (-1, *[1] * (x.ndim - 2))
        return (np.asarray(normal * scale.reshape(beside) + bias.reshape(beside), x.dtype),)


FIXED_OPERATORS: list[type[OpRun]] = [GlobalMaxPool, ConvTranspose, GlobalLpPool, GroupNormalization]
"""All of them, in domain ""."""
