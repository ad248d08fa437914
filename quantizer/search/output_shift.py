"""How far the outputs of a quantized model are from those of the float one, in the unit that decides. Pure.

SQNR over all elements says little of what an output decides: models that lose points have 10 to 43 dB, and
models that lose none 8 to 54 (DECISIONS.md, 68). What says more depends on what the output means:

===============  ===========================================================================================
probabilities    how much probability moves: sum |p - q| over sum p, of the values as they are (Softmax,
                 Sigmoid), of exp of log-probabilities, of the softmax of logits, of the scores beside boxes
embedding        the noise of the cosines between rows over what varies in these cosines
values, signal   noise over signal, beside what the kind of output can bear (`NoiseLimits`)
state            nothing: it is judged by what is made of it
===============  ===========================================================================================

Each figure is an amplitude: half of the figure is a quarter of the noise power, 6 dB. What is broken is so
whatever the figure (`output_faults`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from ..evaluation.compare import NO_CLASSES, ClassAxis, is_float
from ..noise.moved_probability import MOST_MOVED
from ..noise.output_limits import NoiseLimits
from .output_faults import output_fault

Floats = npt.NDArray[np.float64]
Arrays = Mapping[str, npt.NDArray[Any]]
"""The outputs of one sample, by name."""

Reading = Callable[[Floats], Floats]
"""Takes the probabilities from the values of an output."""

MOST_COSINE_NOISE = 0.4
"""Noise of the cosines between rows over their deviation: the order of pairs correlates with 0.93."""

NOISE_SLACK = 2.0
"""Noise power over the limit of the kind of output that is let pass, 3 dB: the limits are for estimates, from
which few samples differ by as much."""

FEWEST_ROWS, MOST_ROWS = 6, 256
"""Rows of an embedding whose pairs are compared: fewer say nothing, more nothing new."""

ROUNDING = 1e-3
"""By which sums of float32 probabilities may be off 1."""


class Measure(StrEnum):
    """What is measured of an output."""

    MOVED = "moved probability"
    COSINES = "noise of cosines"
    NOISE = "noise"
    FAULT = "fault"


@dataclass(frozen=True)
class OutputShift:
    """How far one output is from float.

    Attributes:
        output: its name.
        measure: what `value` is; "fault" of a faulty output that has no figure, as of integers.
        value: the figure, 0 for equal outputs; infinite where quantized values are not finite.
        limit: above which the output is too far off.
        sqnr: of all its elements, in dB.
        fault: what is broken in it, "" for nothing: values that are not finite, another shape, a dead column.
    """

    output: str
    measure: Measure
    value: float
    limit: float
    sqnr: float
    fault: str = ""

    @property
    def excess(self) -> float:
        """The figure over its limit; infinite for a fault."""
        return math.inf if self.fault else self.ratio

    @property
    def ratio(self) -> float:
        """The figure over its limit, whatever is broken: by this one plan is nearer than another."""
        return self.value / self.limit

    def averaged(self, other: OutputShift) -> OutputShift:
        """Return the mean of both figures of one output on two sets of samples, with the faults of either."""
        value = (self.value + other.value) / 2.0
        return replace(self, value=value, fault=self.fault or other.fault)

    @property
    def text(self) -> str:
        """Return what is broken, or both figures."""
        if self.fault:
            return f"output '{self.output}': {self.fault}"
        if self.measure is Measure.NOISE:
            sqnr, needed = (-20.0 * math.log10(max(x, 1e-15)) for x in (self.value, self.limit))
            return f"output '{self.output}': {sqnr:.1f} dB, needs {needed:.1f}"
        what = "of the probability moves" if self.measure is Measure.MOVED else "noise of cosines"
        return (
            f"output '{self.output}': {100.0 * self.value:.1f} % {what}, at most {100.0 * self.limit:.1f} %"
        )


def output_shifts(
    floats: Sequence[Arrays],
    quantized: Sequence[Arrays],
    limits: NoiseLimits,
    axes: Mapping[str, ClassAxis],
) -> tuple[OutputShift, ...]:
    """Return how far each output is from float, of those that can be compared or have a fault, in the model's
    order.

    Args:
        floats, quantized: outputs of both models, sample by sample.
        limits: of the outputs, and what each is.
        axes: where outputs have their classes.
    """
    shifts = []
    for name in floats[0] if floats else ():
        kind, classes = limits.kinds.get(name, "values"), axes.get(name, NO_CLASSES)
        beside = kind == "state" and any(other != "state" for other in limits.kinds.values())
        of_float, of_int8 = [f[name] for f in floats], [q[name] for q in quantized]
        fault = _fault(name, of_float, of_int8, limits, classes)
        pairs = [
            _finite(f, q) for f, q in zip(of_float, of_int8, strict=True) if f.shape == q.shape and f.size
        ]
        if pairs and is_float(of_float[0]) and not beside:
            shift = _shift(name, [f for f, _ in pairs], [q for _, q in pairs], limits, classes)
            shifts.append(replace(shift, fault=fault))
        elif fault:
            shifts.append(OutputShift(name, Measure.FAULT, math.inf, 1.0, -math.inf, fault))
    return tuple(shifts)


def _fault(
    name: str,
    floats: Sequence[npt.NDArray[Any]],
    quantized: Sequence[npt.NDArray[Any]],
    limits: NoiseLimits,
    classes: ClassAxis,
) -> str:
    same = all(f.shape == q.shape for f, q in zip(floats, quantized, strict=True))
    seen = limits.profile.get(name)
    return output_fault(
        floats,
        quantized,
        None if same else limits.graph.shape(name),
        classes,
        are_scores=limits.kinds.get(name, "values") in ("decision", "detections"),
        width=seen.maximum - seen.minimum if seen is not None and seen.count else 0.0,
    )


def _finite(floats: npt.NDArray[Any], quantized: npt.NDArray[Any]) -> tuple[Floats, Floats]:
    """Return values of both models as float64; where float is not finite, as what is masked with -inf, both
    have its least or largest finite value."""
    if not (is_float(floats) and is_float(quantized)):
        return np.zeros(0), np.zeros(0)
    f, q = np.asarray(floats, np.float64), np.asarray(quantized, np.float64)
    finite = np.isfinite(f)
    if finite.all() or not finite.any():
        return np.where(finite, f, 0.0), np.where(finite, q, 0.0)
    filled = np.nan_to_num(f, nan=0.0, posinf=float(f[finite].max()), neginf=float(f[finite].min()))
    return filled, np.where(finite, q, filled)


def _shift(
    name: str,
    float_values: Sequence[Floats],
    int8_values: Sequence[Floats],
    limits: NoiseLimits,
    classes: ClassAxis,
) -> OutputShift:
    kind = limits.kinds.get(name, "values")
    finite = all(np.isfinite(q).all() for q in int8_values)
    signal = float(sum(np.square(f).sum() for f in float_values))
    noise = float(sum(np.square(q - f).sum() for f, q in zip(float_values, int8_values, strict=True)))
    share = noise / (signal or 1.0)
    sqnr = -10.0 * math.log10(max(share, 1e-30)) if finite else -math.inf
    probabilities = _as_probabilities(kind, float_values, classes)
    if probabilities is not None:
        moved = _moved_probability(
            [probabilities(f) for f in float_values], [probabilities(q) for q in int8_values]
        )
        return OutputShift(name, Measure.MOVED, moved if finite else math.inf, MOST_MOVED, sqnr)
    if kind == "embedding" and (cosine_noise := _cosine_noise(float_values, int8_values)) is not None:
        return OutputShift(
            name, Measure.COSINES, cosine_noise if finite else math.inf, MOST_COSINE_NOISE, sqnr
        )
    most = min(limits.allowed(name), 1e6) * NOISE_SLACK
    amplitude = math.sqrt(share) if finite else math.inf
    return OutputShift(name, Measure.NOISE, amplitude, math.sqrt(most), sqnr)


# What an output means --------------------------------------------------------------------------------------


def _as_probabilities(kind: str, values: Sequence[Floats], classes: ClassAxis) -> Reading | None:
    """Return how an output's values are probabilities, as they are meant; None where it has none.

    Args:
        kind: of the output.
        values: of the float model, sample by sample.
        classes: where it has its classes.
    """
    if kind in ("decision", "detections") and _within_one(values):
        return np.asarray
    if kind in ("decision", "detections", "values") and _are_logs(values):
        return _exp
    if kind == "detections":
        return _scores_of(values)
    if kind in ("decision", "values") and classes.is_answer:
        axis = classes.axis_in(values[0].shape)
        return None if axis is None else partial(_softmax, axis=axis)
    return None


def _within_one(values: Sequence[Floats]) -> bool:
    return all(float(v.min()) >= -ROUNDING and float(v.max()) <= 1.0 + ROUNDING for v in values)


def _are_logs(values: Sequence[Floats]) -> bool:
    """Whether values are log-probabilities: none is above 0, and along an axis exp of them adds up to 1 at
    most, and to half at least in most places. An assignment has rows that go to nobody, and one more row and
    column for what is left: of ten places nine count."""
    if not all(float(v.max()) <= ROUNDING for v in values):
        return False
    rank = values[0].ndim
    for axis in range(rank):
        if any(v.ndim != rank or v.shape[axis] < 2 for v in values):
            continue
        sums = np.concatenate([np.exp(v).sum(axis=axis).reshape(-1) for v in values])
        if float(np.quantile(sums, 0.9)) <= 1.0 + 10.0 * ROUNDING and float(np.median(sums)) >= 0.5:
            return True
    return False


def _scores_of(values: Sequence[Floats]) -> Reading | None:
    """Return what takes the channels that are within 0 to 1 on all samples, from boxes and scores that stand
    beside each other along axis 1 or the last; None where no channel is, or all are."""
    rank = values[0].ndim
    for axis in dict.fromkeys((rank - 1, 1)):
        if not 0 < axis < rank or len({v.shape[axis] for v in values}) != 1:
            continue
        rest = tuple(a for a in range(rank) if a != axis)
        low = np.min([v.min(axis=rest) for v in values], axis=0)
        high = np.max([v.max(axis=rest) for v in values], axis=0)
        scores = np.flatnonzero((low >= -ROUNDING) & (high <= 1.0 + ROUNDING))
        if 0 < scores.size < low.size:
            return partial(np.take, indices=scores, axis=axis)
    return None


def _exp(values: Floats) -> Floats:
    return np.exp(np.minimum(values, 0.0))


def _softmax(values: Floats, axis: int) -> Floats:
    powers = np.exp(values - values.max(axis=axis, keepdims=True))
    return np.asarray(powers / powers.sum(axis=axis, keepdims=True))


# The figures ----------------------------------------------------------------------------------------------


def _moved_probability(float_values: Sequence[Floats], int8_values: Sequence[Floats]) -> float:
    """Return the share of the probability that moves.

    Of a single probability for each row both answers count. Otherwise at least one answer is expected in a
    sample: outputs that are sure of nothing, as a detector's where nothing is to be seen, count for no more.
    """
    moved = float(sum(np.abs(p - q).sum() for p, q in zip(float_values, int8_values, strict=True)))
    rows = [p.shape[0] if p.ndim else 1 for p in float_values]
    if all(p.size == count for p, count in zip(float_values, rows, strict=True)):
        return 2.0 * moved / max(sum(rows), 1)
    return moved / max(float(sum(p.sum() for p in float_values)), float(len(float_values)))


def _cosine_noise(float_values: Sequence[Floats], int8_values: Sequence[Floats]) -> float | None:
    """Return the noise of the cosines between rows over the deviation of these; None for too few rows."""
    axis = 1 if float_values[0].ndim == 4 and float_values[0].shape[2:] == (1, 1) else -1
    rows, others = (
        np.concatenate([np.moveaxis(v, axis, -1).reshape(-1, v.shape[axis]) for v in values])
        for values in (float_values, int8_values)
    )
    if len(rows) < FEWEST_ROWS:
        return None
    chosen = np.linspace(0, len(rows) - 1, min(len(rows), MOST_ROWS)).astype(np.intp)
    cosines, noisy = _cosines(rows[chosen]), _cosines(others[chosen])
    spread = float(np.std(cosines))
    return float(np.sqrt(np.mean((noisy - cosines) ** 2))) / spread if spread > 0.0 else None


def _cosines(rows: Floats) -> Floats:
    """Return the cosine of each pair of rows."""
    unit = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-30)
    return np.asarray((unit @ unit.T)[np.triu_indices(len(rows), 1)])
