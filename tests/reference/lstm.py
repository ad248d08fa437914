"""ONNX LSTM with quantized weights in plain numpy, step by step: the reference of `lowering.lstm`.

The formulas are those of the ONNX operator (opset 14, layout 0), with the names of its specification. The two
matrix products multiply integers: `X` is quantized as a whole, and the hidden state before every step, both
with parameters computed from their values (ONNX DynamicQuantizeLinear).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from qprof_onnx.profiles.base.errors import PlanError
from qprof_onnx.quantizer.numerics.affine import UINT8, QuantParams, quantize

Array = npt.NDArray[Any]

ACTIVATIONS: Mapping[str, Callable[[Array], Array]] = {
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Tanh": np.tanh,
    "Relu": lambda x: np.maximum(x, 0),
}
DEFAULT_ACTIVATIONS = ("Sigmoid", "Tanh", "Tanh")


@dataclass(frozen=True, eq=False)
class LstmWeights:
    """Quantized weights of all directions, gates in the order i, o, f, c; every zero point is 0.

    Attributes:
        w, r: integers, [directions, 4 * hidden, inputs] and [directions, 4 * hidden, hidden].
        w_scales, r_scales: float32, [directions] or [directions, 4 * hidden].
        bias: float32, [directions, 8 * hidden]: that of `w`, then that of `r`. None for 0.
        peepholes: float32, [directions, 3 * hidden], of the gates i, o, f. None for 0.
    """

    w: Array
    w_scales: Array
    r: Array
    r_scales: Array
    bias: Array | None = None
    peepholes: Array | None = None


@dataclass(frozen=True)
class LstmSettings:
    """Attributes of the operator.

    Attributes:
        direction: "forward", "reverse" or "bidirectional".
        activations: f, g and h of each direction (`ACTIVATIONS`); empty for `DEFAULT_ACTIVATIONS`.
        clip: bound of the inputs of the activations; 0 for none.
        input_forget: whether the forget gate is one less the input gate.
    """

    direction: str = "forward"
    activations: tuple[str, ...] = ()
    clip: float = 0.0
    input_forget: bool = False

    def is_reverse(self, direction: int) -> bool:
        """Return whether the direction with this index starts at the last step."""
        return self.direction == "reverse" or direction == 1

    def activations_of(self, direction: int) -> list[Callable[[Array], Array]]:
        """Return f, g and h.

        Raises:
            PlanError: one of them is not in `ACTIVATIONS`.
        """
        names = self.activations[3 * direction : 3 * direction + 3] or DEFAULT_ACTIVATIONS
        for name in names:
            if name not in ACTIVATIONS:
                raise PlanError(f"LSTM: the reference has no activation {name}; use {', '.join(ACTIVATIONS)}")
        return [ACTIVATIONS[name] for name in names]

    def clipped(self, values: Array) -> Array:
        """Return the values inside the bound."""
        return np.clip(values, -self.clip, self.clip) if self.clip > 0.0 else values


def run_lstm(
    x: Array,
    weights: LstmWeights,
    lengths: Array | None = None,
    initial: tuple[Array | None, Array | None] = (None, None),
    settings: LstmSettings | None = None,
) -> tuple[Array, Array, Array]:
    """Return Y [steps, directions, batch, hidden], Y_h and Y_c [directions, batch, hidden], float32.

    Args:
        x: float32, [steps, batch, inputs].
        weights: of every direction.
        lengths: steps of each sequence, (batch,); None for all.
        initial: hidden and cell state before the first step, [directions, batch, hidden]; None for 0.
        settings: attributes of the operator; None for the defaults.

    Raises:
        PlanError: an activation is not in `ACTIVATIONS`.
    """
    steps, batch, _ = x.shape
    directions, _, hidden = weights.r.shape
    lengths = np.full(batch, steps) if lengths is None else lengths
    zeros = np.zeros((directions, batch, hidden), np.float32)
    hidden_0, cell_0 = (zeros if state is None else state for state in initial)
    results = [
        _run_direction(
            d, x, weights, (hidden_0[d], cell_0[d]), lengths=lengths, settings=settings or LstmSettings()
        )
        for d in range(directions)
    ]
    y, y_h, y_c = zip(*results, strict=True)
    return np.stack(y, axis=1), np.stack(y_h), np.stack(y_c)


def _run_direction(
    d: int,
    x: Array,
    weights: LstmWeights,
    initial: tuple[Array, Array],
    *,
    lengths: Array,
    settings: LstmSettings,
) -> tuple[Array, Array, Array]:
    """Return Y [steps, batch, hidden], Y_h and Y_c [batch, hidden] of one direction."""
    (steps, batch, _), (h, c) = x.shape, initial
    longest = int(lengths.max(initial=0))
    y = np.zeros((steps, *h.shape), np.float32)
    y_h, y_c = np.zeros_like(h), np.zeros_like(c)
    zero_bias = np.zeros(2 * weights.r.shape[1], np.float32)
    wb, rb = np.split(zero_bias if weights.bias is None else weights.bias[d], 2)
    no_peepholes = np.zeros(3 * weights.r.shape[2], np.float32)
    peepholes = no_peepholes if weights.peepholes is None else weights.peepholes[d]
    x_product = _product(x[:longest], weights.w[d], weights.w_scales[d])
    for step in range(longest):
        runs = step < lengths
        place = lengths - 1 - step if settings.is_reverse(d) else np.full(batch, step)
        at = np.where(runs, place, 0)
        h_product = _product(h, weights.r[d], weights.r_scales[d])
        gates = x_product[at, np.arange(batch)] + h_product + wb + rb
        h_t, c_t = _cell(gates, c, settings, d, peepholes)
        # The state of a finished sequence is 0 in the array that the others share a scale with.
        h = np.where(runs[:, None], h_t, 0.0).astype(np.float32)
        c = np.where(runs[:, None], c_t, 0.0).astype(np.float32)
        y[at[runs], runs] = y_h[runs] = h[runs]
        y_c[runs] = c[runs]
    return y, y_h, y_c


def _cell(
    gates: Array, c: Array, settings: LstmSettings, direction: int, peepholes: Array
) -> tuple[Array, Array]:
    """Return Ht and Ct of one step, from the sums that enter the four gates but for those of peepholes."""
    f, g, h = settings.activations_of(direction)
    i_in, o_in, f_in, c_in = np.split(gates, 4, axis=1)
    p_i, p_o, p_f = np.split(peepholes, 3)
    i_t = f(settings.clipped(i_in + p_i * c))
    f_t = 1 - i_t if settings.input_forget else f(settings.clipped(f_in + p_f * c))
    c_t = f_t * c + i_t * g(settings.clipped(c_in))
    h_t = f(settings.clipped(o_in + p_o * c_t)) * h(settings.clipped(c_t))
    return h_t, c_t


def _product(values: Array, weight: Array, scales: Array) -> Array:
    """Return values (W^T): the values quantized with parameters of all of them, the sums exact."""
    if values.size == 0:
        return np.zeros((*values.shape[:-1], weight.shape[0]), np.float32)
    params = run_time_params(values)
    sums = (quantize(values, params).astype(np.int64) - params.tensor_zero_point) @ weight.T.astype(np.int64)
    return np.asarray(sums.astype(np.float32) * (params.scale_array * scales), np.float32)


def run_time_params(values: Array) -> QuantParams:
    """Return the parameters that ONNX DynamicQuantizeLinear computes from the values."""
    low, high = min(np.float32(0), values.min()), max(np.float32(0), values.max())
    scale = np.float32((high - low) / np.float32(255)) or np.float32(1)
    return QuantParams((float(scale),), (int(np.clip(np.rint(-low / scale), 0, 255)),), UINT8)
