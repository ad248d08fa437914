"""LSTM, GRU and RNN in numpy, run on drawn sequences to see what becomes of noise in them. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..numerics.channel_density import ChannelDensity
from ..numerics.density import Density

Floats = npt.NDArray[np.float32]

NORMAL_SPREAD = np.pi**2 / 8.0
"""Variance of the natural logarithm of the magnitude of normally distributed values."""

DRAWS = 10_000
"""Values from which the spread of levels is taken."""


@dataclass(frozen=True, eq=False)
class Cell:
    """One direction of a recurrent operator, with gates in the order of ONNX.

    Attributes:
        operator: "LSTM", "GRU" or "RNN".
        w: weights of the input [gates * units, features].
        r: weights of the state [gates * units, units].
        input_bias, state_bias: [gates * units].
        reset_after: `linear_before_reset` of a GRU: the reset gate multiplies the product with the state.
    """

    operator: str
    w: Floats
    r: Floats
    input_bias: Floats
    state_bias: Floats
    reset_after: bool = False

    def outputs(self, x: Floats, error: Floats | None = None) -> Floats:
        """Return the state after each step.

        Args:
            x: inputs [steps, batch, features].
            error: what is added to the state [steps, batch, units] where the next step reads it; None for 0.
        """
        state = (np.zeros((x.shape[1], self.r.shape[1]), np.float32),) * 2
        found = []
        # One product for all steps: those of single steps take BLAS more time to begin than to compute.
        given = (x.reshape(-1, x.shape[2]) @ self.w.T + self.input_bias).reshape(*x.shape[:2], -1)
        for step, values in enumerate(given):
            read = state[0] if error is None else state[0] + error[step]
            state = _CELLS[self.operator](self, values, read, state)
            found.append(state[0])
        return np.stack(found)


_State = tuple[Floats, Floats]
"""The state that is the output, and that of memory (LSTM)."""


def _lstm(cell: Cell, given: Floats, read: Floats, state: _State) -> _State:
    i, o, f, c = np.split(given + read @ cell.r.T + cell.state_bias, 4, axis=1)
    memory = _sigmoid(f) * state[1] + _sigmoid(i) * np.tanh(c)
    return _sigmoid(o) * np.tanh(memory), memory


def _gru(cell: Cell, given: Floats, read: Floats, state: _State) -> _State:
    units = cell.r.shape[1]
    both = given[:, : 2 * units] + read @ cell.r[: 2 * units].T + cell.state_bias[: 2 * units]
    update, reset = np.split(_sigmoid(both), 2, axis=1)
    r, bias = cell.r[2 * units :], cell.state_bias[2 * units :]
    returned = reset * (read @ r.T + bias) if cell.reset_after else (reset * read) @ r.T + bias
    return (1.0 - update) * np.tanh(given[:, 2 * units :] + returned) + update * read, state[1]


def _rnn(cell: Cell, given: Floats, read: Floats, state: _State) -> _State:
    return np.tanh(given + read @ cell.r.T + cell.state_bias), state[1]


_CELLS: dict[str, Callable[[Cell, Floats, Floats, _State], _State]] = {
    "LSTM": _lstm,
    "GRU": _gru,
    "RNN": _rnn,
}


def _sigmoid(x: Floats) -> Floats:
    return np.asarray(0.5 + 0.5 * np.tanh(0.5 * x))


def drawn_sequences(levels: Density, shape: tuple[int, int, int], rng: np.random.Generator) -> Floats:
    """Return sequences [steps, batch, features] whose elements are about as spread as a density says.

    Zeros and signs are drawn for each element. The magnitudes of the others are normal within a step, times a
    level that each step has for itself: the logarithm of the magnitudes is as spread as in the density, and
    what is above the spread of normal values (`NORMAL_SPREAD`) is that of the levels. Their power is that of
    the density.
    """
    values = _drawn(levels, DRAWS, rng)
    others = values[values != 0.0]
    if not others.size:
        return np.zeros(shape, np.float32)
    logs = np.log(np.abs(others))
    spread = max(float(np.var(logs)) - NORMAL_SPREAD, 0.0) / max(float(np.var(logs)), NORMAL_SPREAD)
    relative = (logs - np.mean(logs)) * np.sqrt(spread)
    each = np.exp(rng.choice(relative, (shape[0], shape[1], 1)))
    signs = np.where(rng.random(shape) * others.size < np.count_nonzero(others > 0.0), 1.0, -1.0)
    kept = rng.random(shape) * values.size < others.size
    drawn = each * np.abs(rng.standard_normal(shape)) * signs * kept
    power = np.mean(np.square(others)) / np.mean(np.exp(2.0 * relative))
    return np.asarray(drawn * np.sqrt(power), np.float32)


def drawn_channels(channels: ChannelDensity, shape: tuple[int, int, int], rng: np.random.Generator) -> Floats:
    """Return sequences [steps, batch, features] each of whose features is spread as its channel.

    A feature takes the quantiles of its channel, each once. In which order depends on a level that each step
    has for itself, as far as the magnitudes within a channel are more spread than normal values
    (`NORMAL_SPREAD`), and on chance.
    """
    count = shape[0] * shape[1]
    quantiles = _quantiles(channels, (np.arange(count) + 0.5) / count)
    logs = np.log(np.abs(quantiles), where=quantiles != 0.0, out=np.full_like(quantiles, np.nan))
    several = np.count_nonzero(quantiles, axis=0) > 1
    spread = float(np.mean(np.nanvar(logs[:, several], axis=0))) if several.any() else 0.0
    shared = max(1.0 - NORMAL_SPREAD / spread, 0.0) if spread else 0.0
    level, own = rng.standard_normal((count, 1)), rng.standard_normal(quantiles.shape)
    order = np.argsort(np.argsort(np.sqrt(shared) * level + np.sqrt(1.0 - shared) * own, axis=0), axis=0)
    return np.asarray(np.take_along_axis(quantiles, order, axis=0).reshape(shape), np.float32)


def _quantiles(channels: ChannelDensity, ranks: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return values of each channel, [ranks, channels], that have these ranks by their magnitude.

    The bins are narrower where the channel ends within one, and its power is as it was recorded.
    """
    low = np.maximum(channels.low, channels.minimum[:, None])
    high = np.maximum(np.minimum(channels.high, channels.maximum[:, None]), low)
    squares = (low * low + low * high + high * high) / 3.0
    power = np.sum(channels.mass * squares, axis=1)
    unit = np.sqrt(np.divide(channels.power, power, out=np.ones_like(power), where=power > 0.0))
    by_size = np.argsort(np.abs(channels.low + channels.high), kind="stable")
    found = []
    for first, last, mass, factor in zip(low, high, channels.mass, unit, strict=True):
        upto = np.cumsum(mass[by_size])
        places = np.minimum(np.searchsorted(upto, ranks * upto[-1]), upto.size - 1)
        bins = by_size[places]
        within = np.clip((upto[places] - ranks * upto[-1]) / np.maximum(mass[bins], 1e-300), 0.0, 1.0)
        # Of a bin below zero, the magnitude falls with the value.
        share = np.where(first[bins] + last[bins] >= 0.0, 1.0 - within, within)
        found.append(factor * (first[bins] + (last[bins] - first[bins]) * share))
    return np.stack(found, axis=1)


def _drawn(levels: Density, count: int, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """Return values of a density."""
    low, high = (np.append(ends, levels.points) for ends in (levels.edges[:-1], levels.edges[1:]))
    mass = np.append(levels.mass, levels.point_mass)
    places = rng.choice(mass.size, count, p=mass / mass.sum())
    return np.asarray(low[places] + (high - low)[places] * rng.random(count))
