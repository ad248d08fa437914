"""What recurrent operators (LSTM, GRU, RNN) make of noise: their cells are run on drawn sequences.

Their gates saturate and their states return, so that no gain for all levels and no sum over steps is right:
bounds of the slopes (tanh at most 1, sigmoid at most 1 / 4) say that the noise of a trained LSTM grows
without end, where it decays. The cells are small beside the rest of a planning, and their weights are known.
So they are run on short sequences, with noise and without, and both outputs are compared.

A profile knows how the elements of the input are spread over all samples, not where in a sequence they stood.
Elements of normal distribution say that all steps have one level. Where they are more spread than that, the
level is taken to change from step to step: one range for a whole sequence then loses the small ones, which
make as much of the output as large ones when the gates are saturated. If in truth each sample has a level of
its own, ranges that are computed for each sample keep more (29 dB for five decades of levels), but one range
for all does not. Of the two mistakes, an estimate that is too good is the worse one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ...profiles.records.profile import Profile
from ..numerics.density import ChannelDensity, Density, channel_density, density
from ..operators.graph import Graph, Node
from ..operators.two_parts import FINER

Floats = npt.NDArray[np.float32]

NORMAL_SPREAD = np.pi**2 / 8.0
"""Variance of the natural logarithm of the magnitude of normally distributed values."""

DRAWS = 10_000
"""Values from which the spread of levels is taken."""


@dataclass(frozen=True, eq=False)
class Cell:
    """One direction of a recurrent operator, with gates in the order of ONNX.

    Attributes:
        w: weights of the input [gates * units, features]; four gates are those of an LSTM, three of a GRU,
            one of an RNN.
        r: weights of the state [gates * units, units].
        input_bias, state_bias: [gates * units].
        reset_after: `linear_before_reset` of a GRU: the reset gate multiplies the product with the state.
    """

    w: Floats
    r: Floats
    input_bias: Floats
    state_bias: Floats
    reset_after: bool = False

    def outputs(self, x: Floats, error: Floats | None = None) -> Floats:
        """Return the state after each step for inputs [steps, batch, features].

        `error` [steps, batch, units] is added to the state that the next step reads; None for 0.
        """
        state = (np.zeros((x.shape[1], self.r.shape[1]), np.float32),) * 2
        make_step = _CELLS[self.r.shape[0] // self.r.shape[1]]
        states = []
        # One product for all steps: those of single steps take BLAS more time to begin than to compute.
        products = (x.reshape(-1, x.shape[2]) @ self.w.T + self.input_bias).reshape(*x.shape[:2], -1)
        for step, product in enumerate(products):
            read = state[0] if error is None else state[0] + error[step]
            state = make_step(self, product, read, state)
            states.append(state[0])
        return np.stack(states)


_State = tuple[Floats, Floats]
"""The state that is the output, and that of memory (LSTM)."""


def _lstm(cell: Cell, product: Floats, read: Floats, state: _State) -> _State:
    i, o, f, c = np.split(product + read @ cell.r.T + cell.state_bias, 4, axis=1)
    memory = _sigmoid(f) * state[1] + _sigmoid(i) * np.tanh(c)
    return _sigmoid(o) * np.tanh(memory), memory


def _gru(cell: Cell, product: Floats, read: Floats, state: _State) -> _State:
    units = cell.r.shape[1]
    both = product[:, : 2 * units] + read @ cell.r[: 2 * units].T + cell.state_bias[: 2 * units]
    update, reset = np.split(_sigmoid(both), 2, axis=1)
    r, bias = cell.r[2 * units :], cell.state_bias[2 * units :]
    returned = reset * (read @ r.T + bias) if cell.reset_after else (reset * read) @ r.T + bias
    return (1.0 - update) * np.tanh(product[:, 2 * units :] + returned) + update * read, state[1]


def _rnn(cell: Cell, product: Floats, read: Floats, state: _State) -> _State:
    return np.tanh(product + read @ cell.r.T + cell.state_bias), state[1]


_CELLS: dict[int, Callable[[Cell, Floats, Floats, _State], _State]] = {4: _lstm, 3: _gru, 1: _rnn}
"""The step of a cell, by the number of its gates."""


def _sigmoid(x: Floats) -> Floats:
    return np.asarray(0.5 + 0.5 * np.tanh(0.5 * x))


def drawn_sequences(levels: Density, shape: tuple[int, int, int], rng: np.random.Generator) -> Floats:
    """Return sequences [steps, batch, features] whose elements are about as spread as a density.

    Zeros and signs are drawn for each element. The magnitudes of the others are normal within a step, times a
    level of each step: the logarithm of the magnitudes is as spread as in the density, and the levels have
    the spread above that of normal values (`NORMAL_SPREAD`). Their power is that of the density.
    """
    # Values of the density, each drawn evenly from a bin or a point.
    low, high = (np.append(ends, levels.points) for ends in (levels.edges[:-1], levels.edges[1:]))
    mass = np.append(levels.mass, levels.point_mass)
    bins = rng.choice(mass.size, DRAWS, p=mass / mass.sum())
    values = low[bins] + (high - low)[bins] * rng.random(DRAWS)
    nonzero = values[values != 0.0]
    if not nonzero.size:
        return np.zeros(shape, np.float32)
    logs = np.log(np.abs(nonzero))
    spread = max(float(np.var(logs)) - NORMAL_SPREAD, 0.0) / max(float(np.var(logs)), NORMAL_SPREAD)
    relative = (logs - np.mean(logs)) * np.sqrt(spread)
    step_levels = np.exp(rng.choice(relative, (shape[0], shape[1], 1)))
    signs = np.where(rng.random(shape) * nonzero.size < np.count_nonzero(nonzero > 0.0), 1.0, -1.0)
    is_nonzero = rng.random(shape) * values.size < nonzero.size
    drawn = step_levels * np.abs(rng.standard_normal(shape)) * signs * is_nonzero
    power = np.mean(np.square(nonzero)) / np.mean(np.exp(2.0 * relative))
    return np.asarray(drawn * np.sqrt(power), np.float32)


def drawn_channels(channels: ChannelDensity, shape: tuple[int, int, int], rng: np.random.Generator) -> Floats:
    """Return sequences [steps, batch, features] each of whose features is spread as its channel.

    A feature takes the quantiles of its channel, each once. Their order depends on a level of each step, as
    far as the magnitudes within a channel are more spread than normal values (`NORMAL_SPREAD`), and on
    chance.
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

    The bins are narrower if the channel ends within one, and its power is as it was recorded.
    """
    low = np.maximum(channels.low, channels.minimum[:, None])
    high = np.maximum(np.minimum(channels.high, channels.maximum[:, None]), low)
    squares = (low * low + low * high + high * high) / 3.0
    power = np.sum(channels.mass * squares, axis=1)
    unit = np.sqrt(np.divide(channels.power, power, out=np.ones_like(power), where=power > 0.0))
    by_size = np.argsort(np.abs(channels.low + channels.high), kind="stable")
    columns = []
    for first, last, mass, factor in zip(low, high, channels.mass, unit, strict=True):
        upto = np.cumsum(mass[by_size])
        places = np.minimum(np.searchsorted(upto, ranks * upto[-1]), upto.size - 1)
        bins = by_size[places]
        within = np.clip((upto[places] - ranks * upto[-1]) / np.maximum(mass[bins], 1e-300), 0.0, 1.0)
        # Of a bin below zero, the magnitude falls with the value.
        share = np.where(first[bins] + last[bins] >= 0.0, 1.0 - within, within)
        columns.append(factor * (first[bins] + (last[bins] - first[bins]) * share))
    return np.stack(columns, axis=1)


MAX_STEPS, BATCH = 64, 4
"""Steps of the drawn sequences, at most, and their number."""

INPUT_NOISE = 1e-3
"""Power of the noise over that of the input from which the gain is taken: what 8 bits leave, about."""


@dataclass(frozen=True, eq=False)
class Recurrence:
    """The gains of one recurrent node; every result is noise power over signal power at its output.

    Attributes:
        cells: one for each direction.
        x: drawn inputs [steps, batch, features].
        known: noise that was computed, by the method and its argument: every estimate of a plan asks anew.
    """

    cells: tuple[Cell, ...]
    x: Floats
    known: dict[tuple[str, float], float] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def _signals(self) -> tuple[Floats, ...]:
        return tuple(cell.outputs(self.x) for cell in self.cells)

    @cached_property
    def signal(self) -> float:
        """Power of the output."""
        return _power(*self._signals)

    def _lost(self, outputs: Callable[[Cell], Floats]) -> float:
        errors = (outputs(cell) - clean for cell, clean in zip(self.cells, self._signals, strict=True))
        return _power(*errors) / self.signal

    def _known_lost(self, method: str, argument: float, outputs: Callable[[Cell], Floats]) -> float:
        """Return the noise of outputs that follow from a method's argument, computed once."""
        if (method, argument) not in self.known:
            self.known[method, argument] = self._lost(outputs)
        return self.known[method, argument]

    @cached_property
    def per_unit(self) -> float:
        """The gain for a unit of noise power in every element of the input.

        The mean in dB of two bounds, as elsewhere in `forecast_flow`: for noise that differs in each step, as
        from rounding, and for noise that lasts, as from errors of weights upstream.
        """
        power = INPUT_NOISE * _power(self.x)
        in_steps, lasting = (_noise((steps, *self.x.shape[1:]), power) for steps in (len(self.x), 1))
        of_both = self.of_error(in_steps) * self.of_error(lasting)
        return float(np.sqrt(of_both)) / power

    def of_error(self, error: Floats) -> float:
        """Return the noise of an error that is added to the input."""
        noisy = self.x + error
        return self._lost(lambda cell: cell.outputs(noisy))

    def of_rounding(self, step: float) -> float:
        """Return the noise of rounding the input to multiples of `step`."""
        return self._known_lost(
            "rounding", step, lambda cell: cell.outputs(self.x + (_rounded(self.x, step) - self.x))
        )

    def of_scales(self, scales: Floats, step: float, rounded: Callable[[Floats], Floats]) -> float:
        """Return the noise of rounding the input and its weight, with its channels divided by scales.

        The weight is multiplied by `scales`, one for each feature; the divided input is rounded to multiples
        of `step`; `rounded` returns a weight [gates * units, features] as quantized.
        """
        noisy = _rounded(self.x, scales * step)
        return self._lost(lambda cell: replace(cell, w=rounded(cell.w * scales) / scales).outputs(noisy))

    def of_two_parts(self, scales: Floats, step: float, rounded: Callable[[Floats], Floats]) -> float:
        """Return the noise of `of_scales` for an input in two parts; the first is rounded to `step`."""
        high, finer = _rounded(self.x, scales * step), scales / np.float32(FINER)
        parts = np.concatenate([high, _rounded(self.x - high, finer * step)], axis=2)

        def outputs(cell: Cell) -> Floats:
            w = rounded(np.concatenate([cell.w * scales, cell.w * finer], axis=1))
            return replace(cell, w=w / np.concatenate([scales, finer])).outputs(parts)

        return self._lost(outputs)

    def of_state(self, power: float) -> float:
        """Return the noise from noise of this power in the state that the next step reads."""

        def outputs(cell: Cell) -> Floats:
            return cell.outputs(self.x, _noise((*self.x.shape[:2], cell.r.shape[1]), power))

        return self._known_lost("state", power, outputs)

    def of_input_weight(self, error: float) -> float:
        """Return the noise of an error of W, its square over that of W."""
        return self._known_lost(
            "input weight", error, lambda cell: replace(cell, w=_with_error(cell.w, error)).outputs(self.x)
        )

    def of_state_weight(self, error: float) -> float:
        """Return the noise of an error of R, its square over that of R."""
        return self._known_lost(
            "state weight", error, lambda cell: replace(cell, r=_with_error(cell.r, error)).outputs(self.x)
        )


def _rounded(values: Floats, step: float | Floats) -> Floats:
    return np.asarray(np.rint(values / step) * step, np.float32)


def _power(*arrays: Floats) -> float:
    return float(np.mean([np.mean(np.square(array, dtype=np.float64)) for array in arrays]))


def _noise(shape: tuple[int, ...], power: float) -> Floats:
    """Return uniform noise, the same for the same shape."""
    rng = np.random.default_rng(1)
    return np.asarray(rng.uniform(-1.0, 1.0, shape) * np.sqrt(3.0 * power), np.float32)


def _with_error(weight: Floats, error: float) -> Floats:
    return weight + _noise(weight.shape, error * _power(weight))


def recurrence_of(node: Node, graph: Graph, profile: Profile) -> Recurrence | None:
    """Return the gains of a recurrent node; None if its weights or its input are not known.

    Peepholes, initial states and unusual activation functions are ignored.
    """
    source = profile.get(node.input(0))
    w, r, bias = (_constant(node, index, graph) for index in (1, 2, 3))
    if w is None or r is None or not w.any() or source is None or not source.histogram.total:
        return None
    if bias is None:
        bias = np.zeros((r.shape[0], 2 * r.shape[1]), np.float32)
    reset_after = bool(node.attributes.get_int("linear_before_reset", 0))
    half = r.shape[1]
    cells = tuple(Cell(w[i], r[i], bias[i, :half], bias[i, half:], reset_after) for i in range(len(w)))
    steps = min(source.shape[0] if source.shape and source.shape[0] else MAX_STEPS, MAX_STEPS)
    rng = np.random.default_rng(0)
    shape = (steps, BATCH, w.shape[2])
    channels = channel_density(source)
    if channels is None or channels.power.size != w.shape[2]:
        x = drawn_sequences(density(source), shape, rng)
    else:
        x = drawn_channels(channels, shape, rng)
    recurrence = Recurrence(cells, x)
    return recurrence if x.any() and recurrence.signal > 0.0 else None


def _constant(node: Node, index: int, graph: Graph) -> Floats | None:
    constant = graph.constant(node.input(index))
    return None if constant is None else constant.astype(np.float32)
