"""GPTQ: rounding that compensates the error of each weight in those that are still to be rounded. Pure.

The mean square of what the errors e of an output channel's weights do to its output is e' H e, with the
second moments H of what they are multiplied with. GPTQ (Frantar et al., "GPTQ: Accurate Post-Training
Quantization for Generative Pre-trained Transformers", 2022, arXiv:2210.17323; after Hassibi and Stork,
"Second Order Derivatives for Network Pruning: Optimal Brain Surgeon", 1993) rounds weight after weight, and
lets each one that follows compensate the errors of those before, as far as it is correlated with them. With
H = L L' that is |L'e|^2, a sum of squares, of which the last has a single weight in it, the last but one two,
and so on: from the last to the first each weight is rounded so that its own square is least, given those
after it. That gives the quantized weights of GPTQ without the inverse of H.

L comes from a library that may add in another order on another number of threads. The last bit changes a
quantized weight only where the compensated weight lies midway between two of them to 15 digits, which trained
weights do not do; a test compares the quantized weights of one thread with those of several.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

DAMPING = 0.01
"""Share of the mean second moment that is added to each column's own (Frantar et al., section 3.3)."""

BLOCK = 128
"""Columns whose errors are compensated in the columns before them together."""


def gptq(weight: Floats, scale: Floats, low: Floats, high: Floats, second: Floats) -> Floats:
    """Return quantized weights, zero points taken off, whose e' H e is at most that of rounding to nearest.

    Args:
        weight: (groups, outputs, columns).
        scale, low, high: of each weight, in the same shape: size of a step, first and last step.
        second: H, (groups, columns, columns), up to a factor.

    Returns:
        Integers in float64, (groups, outputs, columns).
    """
    nearest = np.clip(np.rint(weight / scale), low, high)
    order = np.argsort(np.einsum("gcc->gc", second), axis=1, kind="stable")  # the largest is rounded first
    rows, columns = order[:, :, None], order[:, None, :]
    moments = np.take_along_axis(np.take_along_axis(second, rows, 1), columns, 2)
    along = np.broadcast_to(columns, weight.shape)
    ordered = (np.take_along_axis(array, along, 2) for array in (weight, scale, low, high))
    steps = np.empty(weight.shape)
    np.put_along_axis(steps, along, _steps(_factor(moments), *ordered), 2)
    better = _cost(weight - steps * scale, second) < _cost(weight - nearest * scale, second)
    return np.where(better[:, :, None], steps, nearest)


def _factor(second: Floats) -> Floats:
    """Return the L of the damped moments; for a group of columns that are always 0, that of the identity."""
    mean = np.einsum("gcc->g", second) / second.shape[1]
    dead = mean <= 0.0
    damped = second / np.where(dead, 1.0, mean)[:, None, None]
    diagonal = np.einsum("gcc->gc", damped)
    diagonal[...] += np.where(dead, 1.0, DAMPING)[:, None]
    return np.asarray(np.linalg.cholesky(damped))


def _steps(factor: Floats, weight: Floats, scale: Floats, low: Floats, high: Floats) -> Floats:
    errors, steps = np.zeros(weight.shape), np.zeros(weight.shape)
    diagonal = np.einsum("gcc->gc", factor)
    for end in range(weight.shape[2], 0, -BLOCK):
        begin = max(0, end - BLOCK)
        to_compensate = np.matmul(errors[:, :, end:], factor[:, end:, begin:end])
        for at in range(end - 1, begin - 1, -1):
            wanted = weight[:, :, at] + to_compensate[:, :, at - begin] / diagonal[:, None, at]
            step = np.clip(np.rint(wanted / scale[:, :, at]), low[:, :, at], high[:, :, at])
            error = weight[:, :, at] - step * scale[:, :, at]
            steps[:, :, at], errors[:, :, at] = step, error
            to_compensate[:, :, : at - begin] += error[:, :, None] * factor[:, None, at, begin:at]
    return steps


def _cost(errors: Floats, second: Floats) -> Floats:
    """Return e' H e of each output channel, (groups, outputs)."""
    return np.asarray((np.matmul(errors, second) * errors).sum(2))
