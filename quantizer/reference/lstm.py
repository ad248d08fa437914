"""An LSTM with weights in codes in plain numpy, step by step: the oracle of `recurrent`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ...profiles.base.errors import PlanError
from ..numerics.affine import UINT8, QuantParams, quantize

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class LstmWeights:
    """Weights of all directions.

    Attributes:
        inputs, remembered: codes, [directions, inputs or hidden, 4 * hidden].
        input_scales, remembered_scales: float32, [directions] or [directions, 4 * hidden].
        bias: float32, [directions, 8 * hidden], None for 0.
    """

    inputs: Array
    input_scales: Array
    remembered: Array
    remembered_scales: Array
    bias: Array | None = None


def run_lstm(
    x: Array,
    weights: LstmWeights,
    lengths: Array | None = None,
    initial: tuple[Array | None, Array | None] = (None, None),
    *,
    direction: str = "forward",
    activations: Sequence[str] = (),
    clip: float = 0.0,
    input_forget: bool = False,
) -> tuple[Array, Array, Array]:
    """Return Y, Y_h and Y_c of ONNX LSTM (opset 14, layout 0), computed as `recurrent` tells.

    Args:
        x: float32, [steps, batch, inputs].
        weights: of every direction.
        lengths: steps of each sequence, (batch,); None for all.
        initial: hidden and cell state before the first step, [directions, batch, hidden]; None for 0.
        direction: "forward", "reverse" or "bidirectional".
        activations: f, g and h of each direction: Sigmoid, Tanh or Relu; none for the usual ones.
        clip: bound of what goes into the activations; 0 for none.
        input_forget: whether the forget gate is one less the input gate.

    Raises:
        PlanError: another activation.
    """
    steps, batch, _ = x.shape
    directions, hidden = weights.remembered.shape[:2]
    lengths = np.full(batch, steps) if lengths is None else lengths
    longest = int(lengths.max(initial=0))
    result = np.zeros((steps, directions, batch, hidden), np.float32)
    last_h, last_c = (np.zeros((directions, batch, hidden), np.float32) for _ in range(2))
    for d in range(directions):
        names = list(activations[3 * d : 3 * d + 3]) or ["Sigmoid", "Tanh", "Tanh"]
        f, g, h = (_function(name) for name in names)
        bias = np.zeros(8 * hidden, np.float32) if weights.bias is None else weights.bias[d]
        moved = _product(x[:longest], weights.inputs[d], weights.input_scales[d])
        state, cell = (np.zeros_like(last_h[d]) if start is None else start[d] for start in initial)
        backwards = direction == "reverse" or d == 1
        for step in range(longest):
            remembered = _product(state, weights.remembered[d], weights.remembered_scales[d])
            places = lengths - 1 - step if backwards else np.full(batch, step)
            runs = step < lengths
            at = np.where(runs, places, 0)
            gates = moved[at, np.arange(batch)] + remembered + bias[: 4 * hidden] + bias[4 * hidden :]
            i, o, forget, c = np.split(np.clip(gates, -clip, clip) if clip > 0.0 else gates, 4, axis=1)
            entered = f(i)
            kept = 1 - entered if input_forget else f(forget)
            new_cell = kept * cell + entered * g(c)
            new_state = f(o) * h(np.clip(new_cell, -clip, clip) if clip > 0.0 else new_cell)
            # What a finished sequence remembers is 0 to those that run on: it has a part in the scale.
            state = np.where(runs[:, None], new_state, 0.0).astype(np.float32)
            cell = np.where(runs[:, None], new_cell, 0.0).astype(np.float32)
            result[at[runs], d, runs] = last_h[d, runs] = state[runs]
            last_c[d, runs] = cell[runs]
    return result, last_h, last_c


def _product(values: Array, codes: Array, scales: Array) -> Array:
    """Return values times a matrix in codes, the values in codes that are made of all of them."""
    if values.size == 0:
        return np.zeros((*values.shape[:-1], codes.shape[-1]), np.float32)
    params = run_time_params(values)
    sums = (quantize(values, params).astype(np.int64) - params.zero_point[0]) @ codes.astype(np.int64)
    return np.asarray(sums.astype(np.float32) * (params.scale_array * scales), np.float32)


def run_time_params(values: Array) -> QuantParams:
    """Return the parameters that ONNX DynamicQuantizeLinear makes of data."""
    low, high = min(np.float32(0), values.min()), max(np.float32(0), values.max())
    scale = np.float32((high - low) / np.float32(255)) or np.float32(1)
    return QuantParams((float(scale),), (int(np.clip(np.rint(-low / scale), 0, 255)),), UINT8)


def _function(name: str) -> Callable[[Array], Array]:
    functions: dict[str, Callable[[Array], Array]] = {
        "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
        "Tanh": np.tanh,
        "Relu": lambda x: np.maximum(x, 0),
    }
    if name not in functions:
        raise PlanError(f"LSTM with activation {name}: the reference has {', '.join(functions)} only")
    return functions[name]
