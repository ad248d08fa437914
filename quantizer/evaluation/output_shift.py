"""The error of the outputs of a quantized model, in the unit that decides. Pure.

SQNR over all elements does not predict the loss of points: models that lose points have 10 to 43 dB, and
models without a loss 8 to 54 (DECISIONS.md, 68). A better measure depends on the meaning of the output:

===============  ===========================================================================================
probabilities    the probability that moves: sum |p - q| over sum p, of the values (Softmax, Sigmoid), of exp
                 of log-probabilities, of the softmax of logits, of the scores beside boxes; the profile
                 determines the kind and its reading (`noise.output_kinds`)
embedding        the noise of the cosines between rows, divided by their variation
an index         the answers that change: of the largest score, if the scores are not an output
values           the error of each column (class, coordinate, quantity), divided by its variation, or relative
                 to each value if the graph computes magnitudes (`NoiseLimits.relative`); the typical column
                 and the worst
signal           noise over signal, compared with the limit of the kind of output (`NoiseLimits`)
state            nothing: its effect on the other outputs counts
===============  ===========================================================================================

Padding rows are ignored (`output_rows`). Each figure is an amplitude: half of the figure is a quarter of the
noise power, 6 dB. Faults count at any figure (`output_faults`). Outputs that are drawn at random or have a
variable length cannot be compared sample by sample.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from itertools import combinations
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ...profiles.base.json_values import NOT_IN_JSON
from ...profiles.base.presentation import deciding_digits
from ...profiles.base.tuned import tuned
from ...profiles.records.channel_statistics import Channels
from ...profiles.records.profile import TensorProfile
from ..noise.class_axes import NO_CLASSES, ClassAxis
from ..noise.output_kinds import FEWEST_OF_A_VECTOR, MOST_UNLIKE, ROUNDING
from ..noise.output_limits import MIN_VARYING, NoiseLimits
from ..numerics.quantization_noise import decibels
from ..plan.plan import DESTROYED, SAME_DB
from .compare import Agreement, by_range, column_axis, is_float
from .output_faults import FEWEST_VALUES, LEAST_SCORE, output_fault
from .output_rows import Mask, counted_rows

Floats = npt.NDArray[np.float64]
Arrays = Mapping[str, npt.NDArray[Any]]
"""The outputs, or the inputs, of one sample, by name."""

Reading = Callable[[Floats], Floats]
"""Takes the probabilities from the values of an output."""

MOST_MOVED = tuned(
    0.047,
    figure=(
        "4.8 % and more moved for four of the five models that lost half a point, at most 4.6 for "
        "24 of 26 others (DECISIONS.md, 68)"
    ),
    chosen_on="34 trained models",
)
"""The limit of the error of probabilities, and of the share of answers that change."""

MOST_COSINE_NOISE = tuned(
    0.4,
    figure="0.6 lost three points, 0.39 none (DECISIONS.md, 68)",
    chosen_on="embeddings of trained models",
)
"""Noise of the cosines between rows over their deviation: the order of pairs correlates with 0.93."""

NOISE_SLACK = tuned(2.0, figure="none: 3 dB", chosen_on="by hand")
"""Noise power over the limit of the kind of output that is let pass: the limits are for estimates, from which
few samples differ by as much."""

FAIR = 2.0
"""Times its limit that an output which is fair may be off."""

SAME_GOOD, SAME_FAIR, LEAST_ANSWERS = 0.995, 0.98, 200
"""Share of equal answers with which at most half a point, and two points, of accuracy can be lost, and the
fewest answers that show it."""

WORST_COLUMN, MOST_ERROR = 5.0, 0.25
"""Error of the worst column over that of the typical one that is let pass, and the most."""

FEWEST_ROWS, MOST_ROWS = 6, 256
"""Rows of an embedding whose pairs are compared: fewer say nothing, more nothing new."""

SCORES_DB = 15.0
"""SQNR that each group of channels of detections needs: a detector with scores of 15 to 17 dB lost no boxes,
one with 0.2 nearly all, and over all channels, boxes included, they have 43, 35 and 33 dB."""

Grade = Literal["good", "fair", "poor", "none"]

OTHER_LENGTH = "it has another length than the float model's"
EMPTY = "it is empty in both models on these samples, give others to judge it"


class Measure(StrEnum):
    """The measures of an output."""

    MOVED = "moved probability"
    COSINES = "noise of cosines"
    COLUMNS = "error of columns"
    ANSWERS = "changed answers"
    NOISE = "noise"
    FAULT = "fault"
    NONE = "nothing"


@dataclass(frozen=True)
class OutputShift:
    """How far one output is from float: `value` in its unit, good up to `limit`.

    Attributes:
        measure: the unit; "fault" for a faulty output without a figure, "nothing" without a measure.
        value: 0 for equal outputs; infinite if quantized values are not finite.
        sqnr: SQNR of all its elements, in dB; None if it cannot be compared.
        fault: its fault, such as values that are not finite, another shape, a dead column; "" without one.
        typical, worst: for measure "error of columns", the errors of the median and of the worst column;
            `value` is the one that is worse relative to its limit, scaled to the limit of `typical`.
        columns: how many there are of these.
        answers: fraction of rows (without padding) with the same largest column or integer; None if the
            output is not an answer.
        sequences: fraction of sequences with only equal answers; None without sequences.
        incomparable: why it cannot be compared sample by sample; "" if it can.
        kind: its kind, in words; "" if it is not float.
        worst_group: SQNR of the worst group of channels of detections, in dB, if that is less than they need;
            else None.
        grade: by all of these.
        aside: in words, how often answers are the same that nothing shows to be read so; they are not judged.
    """

    output: str
    measure: Measure
    value: float
    limit: float
    sqnr: float | None
    fault: str = ""
    typical: float = 0.0
    worst: float = 0.0
    columns: int = 0
    answers: Agreement | None = None
    sequences: Agreement | None = None
    incomparable: str = ""
    kind: str = ""
    worst_group: float | None = None
    grade: Grade = "none"
    aside: str = field(default="", metadata=NOT_IN_JSON)

    @property
    def decibels(self) -> str:
        """The deciding SQNR; "" if there is no such value, or if it is the figure itself."""
        if self.deciding_sqnr is None or not math.isfinite(self.deciding_sqnr):
            return ""
        if self.measure is Measure.NOISE:
            return ""
        return "no difference" if self.is_same else f"{self.deciding_sqnr:.1f} dB"

    @property
    def excess(self) -> float:
        """The figure over its limit; infinite for a fault."""
        return math.inf if self.fault else self.ratio

    @property
    def ratio(self) -> float:
        """The figure over its limit, regardless of faults: the measure to compare plans."""
        return self.value / self.limit

    @property
    def deciding_sqnr(self) -> float | None:
        """SQNR in dB; of detections whose scores lack some, that of the worst group of channels."""
        return self.sqnr if self.worst_group is None else self.worst_group

    @property
    def needed(self) -> float:
        """`deciding_sqnr` from which on it is good, in dB."""
        if self.worst_group is not None:
            return SCORES_DB
        known = self.sqnr is not None and self.ratio > 0.0
        return self.sqnr + 20.0 * math.log10(min(self.ratio, 1e9)) if self.sqnr is not None and known else 0.0

    @property
    def margin(self) -> float:
        """DB above the needed SQNR; below 0 for an output that is not good by its SQNR."""
        return -math.inf if self.deciding_sqnr is None else self.deciding_sqnr - self.needed

    @property
    def is_same(self) -> bool:
        """Whether nothing differs but the last bits of a float; without an SQNR, no answer differs."""
        if self.deciding_sqnr is None:
            return self.answers is not None and self.answers.ratio == 1.0
        return self.deciding_sqnr >= SAME_DB

    @property
    def is_destroyed(self) -> bool:
        """Whether it is useless: broken, `DESTROYED` times its limit off, or poor with noise above signal."""
        if self.fault or self.incomparable:
            return bool(self.fault)
        if self.grade == "poor" and self.deciding_sqnr is not None and self.deciding_sqnr <= 0.0:
            return True
        return self.excess >= DESTROYED and not (self.answers is not None and shows_same(self.answers))

    @property
    def figures(self) -> str:
        """Return the measured figure, and the wanted one."""
        if self.fault:
            return self.fault
        if self.incomparable == EMPTY:
            return self.incomparable
        if self.incomparable:
            return f"{self.incomparable}: it cannot be compared sample by sample, and has no decibels"
        match self.measure:
            case Measure.NONE if self.answers is not None:
                return f"{100 * self.answers.ratio:.1f} % of the elements the same"
            case Measure.NOISE:
                sqnr, wanted = (-20.0 * math.log10(max(x, 1e-15)) for x in (self.value, self.limit))
                decimals = int(abs(wanted - round(wanted)) >= 0.05)
                if sqnr >= 300.0:
                    return f"no difference (limit {wanted:.{decimals}f})" if wanted > 0.0 else "no difference"
                shown, limit = deciding_digits(sqnr, wanted, (1, decimals), is_least=True)
                return f"{shown} dB (limit {limit})" if wanted > 0.0 else f"{shown} dB"
            case Measure.COLUMNS if self.columns > 1:
                typical, limit = _percents(self.typical, self.limit)
                worst, most = _percents(self.worst, worst_error(self.limit))
                return f"typical error {typical}, worst column {worst} (limit {limit} and {most})"
            case Measure.COLUMNS:
                typical, limit = _percents(self.typical, self.limit)
                return f"typical error {typical} (limit {limit})"
            case Measure.ANSWERS:
                chance = 0.0 if self.answers is None else 1.0 / self.answers.total  # one more is let pass
                changed = self.value if self.answers is None else 1.0 - self.answers.ratio
                value, limit = _percents(changed, self.limit + chance)
                return f"{value} of the answers change (limit {limit})"
        value, limit = _percents(self.value, self.limit)
        what = "probability error" if self.measure is Measure.MOVED else "cosine error"
        return f"{what} {value} (limit {limit})"

    @property
    def changes(self) -> list[Agreement]:
        """The answers and the whole sequences, if more than one changes, and too many to be good."""
        many = self.answers if self.answers and self.answers.total >= LEAST_ANSWERS else None
        known = (one for one in (self.sequences, many) if one is not None)
        return [one for one in known if one.total - one.same > 1 and one.ratio < SAME_GOOD]

    @property
    def alike(self) -> str:
        """Return how many answers, and whole sequences, are the same; "" if all are."""
        if self.measure is Measure.NONE:
            return self.aside
        shares = {"answers": self.answers, "sequences": self.sequences}
        few = self.changes if self.excess <= 1.0 else []
        limit = f" (limit {100 * SAME_GOOD:g} %)"
        known = [(one, of) for of, one in shares.items() if one and one.same < one.total]
        equal = [f"{_equal(one)} {of} the same{limit * (one in few)}" for one, of in known]
        return ", ".join(filter(None, [*equal, self.aside]))

    @property
    def measured(self) -> str:
        """Return the figures, the decibels if these are another one, and the answers if some change."""
        if self.fault or self.incomparable:
            return self.figures
        return ", ".join(filter(None, [self.figures, self.decibels, self.alike]))

    @property
    def text(self) -> str:
        """Return the measurement with the output's name."""
        return f"output '{self.output}': {self.measured}"


def shows_same(answers: Agreement) -> bool:
    """Return whether equal answers show that little is lost; few, or very different ones, show nothing."""
    return answers.total >= LEAST_ANSWERS and answers.ratio >= SAME_FAIR


def _equal(answers: Agreement) -> str:
    """Return a share of equal answers in percent, with the digits that decide; the number of few answers."""
    if answers.total < LEAST_ANSWERS:
        return f"{answers.same} of {answers.total}"
    return f"{deciding_digits(100.0 * answers.ratio, 100.0 * SAME_GOOD, (1, 1), is_least=True)[0]} % of the"


def _digits(share: float) -> int:
    """Return the decimals of a share in percent."""
    return 2 if share < 0.01 else 1 if share < 0.1 else 0


def _percents(share: float, limit: float) -> tuple[str, str]:
    """Return a share and its limit in percent, with the digits that tell which is larger."""
    shown, of_limit = deciding_digits(100.0 * share, 100.0 * limit, (_digits(share), _digits(limit)))
    return f"{shown} %" if share else "0 %", f"{of_limit} %"


def worst_error(typical: float) -> float:
    """Return the limit of the worst column for a given limit of the typical column."""
    return max(typical, min(WORST_COLUMN * typical, MOST_ERROR))


@dataclass(frozen=True, eq=False)
class _Values:
    """The values of both models for one output."""

    floats: Sequence[Floats]  # float64, sample by sample; columns are the last axis if rows were left out
    quantized: Sequence[Floats]
    classes: ClassAxis
    lengths: Sequence[tuple[int, ...]] = ()  # of the sequences of each sample, in rows that count
    are_frames: bool = False  # so that each row of a sequence is read by itself
    free: frozenset[int] = frozenset()  # axes with as many places as the model's input, and no columns


def output_shifts(
    floats: Sequence[Arrays],
    quantized: Sequence[Arrays],
    limits: NoiseLimits,
    inputs: Sequence[Arrays] | None = None,
) -> tuple[OutputShift, ...]:
    """Return how far each output that is judged or has a fault is from float, in the model's order."""
    shifts = list[OutputShift]()
    for name in floats[0] if floats else ():
        kind, classes = limits.kinds.get(name, "values"), limits.classes.get(name, NO_CLASSES)
        of_float, of_int8 = [f[name] for f in floats], [q[name] for q in quantized]
        free = limits.free_axes.get(name, frozenset())
        is_judged = is_float(of_float[0]) or name in limits.indices
        values = _values(of_float, of_int8, classes, inputs, free) if is_judged else None
        fault = _fault(name, of_float, of_int8, limits, classes)
        why = limits.incomparable.get(name, "")
        if is_float(of_float[0]) and not any(one.size for one in (*of_float, *of_int8)):
            why = EMPTY
        if not why and not fault and any(f.shape != q.shape for f, q in zip(of_float, of_int8, strict=True)):
            why = OTHER_LENGTH
        if kind == "state" and any(other != "state" for other in limits.kinds.values()):
            if fault:
                shifts.append(_without_figure(name, Measure.FAULT, fault=fault))
        elif why:
            shifts.append(_without_figure(name, Measure.NONE, fault=fault, incomparable=why))
        elif values is not None:
            shift = _shift if is_float(of_float[0]) else _index_shift
            shifts.append(replace(shift(name, values, limits), fault=fault))
        elif fault:
            shifts.append(_without_figure(name, Measure.FAULT, fault=fault))
    return tuple(shifts)


def _noise(values: _Values) -> float:
    """Return the noise over the signal of the selected values; infinite if some are not finite."""
    signal = float(sum(np.square(f).sum() for f in values.floats))
    noise = _summed(np.square, values.floats, values.quantized)
    return noise / (signal or 1.0) if math.isfinite(noise) else math.inf  # as one value that is not finite


def _summed(of: np.ufunc, floats: Sequence[Floats], quantized: Sequence[Floats]) -> float:
    """Return the sum of a function of all differences."""
    total = 0.0
    for f, q in zip(floats, quantized, strict=True):
        difference = np.asarray(q - f)
        total += float(of(difference, out=difference).sum())
    return total


MAX_JUDGED_ELEMENTS = 2**23
"""Elements of outputs that are kept of each model to be judged: 32 MB of float32. The first samples count."""

SEQUENCE_RANK = 3
"""Most dimensions of an input that may mark padding."""


@dataclass(eq=False)
class JudgedSamples:
    """The first samples of a stream, as far as there is room, with the outputs of both models."""

    inputs: list[Arrays] = field(default_factory=list)  # those that may mark padding
    floats: list[Arrays] = field(default_factory=list)
    quantized: list[Arrays] = field(default_factory=list)
    _elements: int = 0

    def add(self, inputs: Arrays, floats: Arrays, quantized: Arrays) -> None:
        """Take one more sample, unless there is no room for it."""
        self._elements += sum(values.size for values in floats.values())
        if self.floats and self._elements > MAX_JUDGED_ELEMENTS:
            return
        self.inputs.append({name: values for name, values in inputs.items() if values.ndim <= SEQUENCE_RANK})
        self.floats.append(dict(floats))
        self.quantized.append(dict(quantized))

    def shifts(self, limits: NoiseLimits) -> tuple[OutputShift, ...]:
        """Return the distance of each output from float on these samples, at least one."""
        return output_shifts(self.floats, self.quantized, limits, self.inputs)


def _without_figure(name: str, measure: Measure, *, fault: str, incomparable: str = "") -> OutputShift:
    value = math.inf if fault else 0.0
    return OutputShift(name, measure, value, 1.0, None, fault, incomparable=incomparable)


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
    """Return float64 values of both; beside a float value that is not finite, both are clipped to finite."""
    f, q = np.asarray(floats, np.float64), np.asarray(quantized, np.float64)
    finite = np.isfinite(f)
    if finite.all():
        return f, q
    if not finite.any():
        return np.zeros_like(f), np.zeros_like(q)
    filled = np.nan_to_num(f, nan=0.0, posinf=float(f[finite].max()), neginf=float(f[finite].min()))
    return filled, np.where(finite, q, filled)


def _values(
    floats: Sequence[npt.NDArray[Any]],
    quantized: Sequence[npt.NDArray[Any]],
    classes: ClassAxis,
    inputs: Sequence[Arrays] | None,
    free: frozenset[int],
) -> _Values | None:
    """Return the values that count, or None if no sample has any in common."""
    kept = [
        place
        for place, (f, q) in enumerate(zip(floats, quantized, strict=True))
        if f.shape == q.shape and f.size
    ]
    if not kept:
        return None
    pairs = [_finite(floats[place], quantized[place]) for place in kept]
    of_float, of_int8 = [f for f, _ in pairs], [q for _, q in pairs]
    if not is_float(floats[0]) and of_float[0].ndim == 2:  # one index for each position of sequences
        of_float, of_int8 = [f[..., None] for f in of_float], [q[..., None] for q in of_int8]
        axis: int | None = 2
    else:
        axis = column_axis(of_float, classes, free)
    if axis is None or axis == 0 or of_float[0].ndim != 3:
        return _Values(of_float, of_int8, classes, free=free)
    given = None if inputs is None else [inputs[place] for place in kept]
    masks = counted_rows(of_float, axis, given)
    are_frames = given is not None and _are_frames(of_float, axis, given)
    if masks is None:
        grids = [np.moveaxis(f, axis, -1).shape[:2] for f in of_float]
        inputs_start = {len(array) for one in given or () for array in one.values() if array.ndim}
        is_time_first = all(t == 1 and n not in inputs_start for n, t in grids)
        lengths = [(n,) if is_time_first else n * (t,) for n, t in grids]
        return _Values(of_float, of_int8, classes, lengths, are_frames, free)
    lengths = [tuple(int(length) for length in mask.sum(axis=1)) for mask in masks]
    last = replace(classes, axis=None if classes.axis_in(of_float[0].shape) is None else -1)
    return _Values(_rows(of_float, axis, masks), _rows(of_int8, axis, masks), last, lengths, are_frames)


def _are_frames(values: Sequence[Floats], axis: int, inputs: Sequence[Arrays]) -> bool:
    """Whether each position answers a frame of a float input; others, as of tokens, are one answer."""
    counts = [value.shape[3 - axis] for value in values]
    each = ([(given[name], n) for given, n in zip(inputs, counts, strict=True)] for name in inputs[0])
    return any(all(is_float(array) and n in array.shape[1:] for array, n in pairs) for pairs in each)


def _rows(values: Sequence[Floats], axis: int, masks: Sequence[Mask]) -> list[Floats]:
    """Return the rows that count, [rows, columns] of each sample."""
    return [np.moveaxis(v, axis, -1)[mask] for v, mask in zip(values, masks, strict=True)]


def _shift(name: str, values: _Values, limits: NoiseLimits) -> OutputShift:
    """Return the distance of an output from float."""
    kind = limits.kinds.get(name, "values")
    floats = values.floats
    share = _noise(values)
    finite = share < math.inf
    sqnr = -10.0 * math.log10(max(share, 1e-30)) if finite else -math.inf
    shift = OutputShift(name, Measure.NOISE, 0.0, 1.0, sqnr)
    if values.classes.is_answer:
        shift = _with_answers(shift, *_answers(values), are_frames=values.are_frames)
    if not finite:
        return replace(shift, measure=Measure.FAULT, value=math.inf)
    if limits.min_output_sqnr:
        wanted = 10.0 ** (-limits.min_output_sqnr / 20.0)
        return replace(shift, value=math.sqrt(share), limit=wanted)
    if kind == "detections":
        shift = replace(shift, worst_group=_worst_group(values))
    probabilities = None
    if kind in ("decision", "detections"):
        probabilities = _as_probabilities(kind, floats, values.classes, limits.profile.get(name))
    if probabilities is not None:
        moved = _moved_probability(*(list(map(probabilities, of)) for of in (floats, values.quantized)))
        return replace(shift, measure=Measure.MOVED, value=moved, limit=MOST_MOVED)
    if kind == "embedding" and (cosine_noise := _cosine_noise(values)) is not None:
        return replace(shift, measure=Measure.COSINES, value=cosine_noise, limit=MOST_COSINE_NOISE)
    if kind == "values":
        relative = name in limits.relative
        errors, scales = _column_errors(values, relative=relative)
        typical, worst = float(np.median(errors)), float(errors.max())
        alike = errors.size >= FEWEST_OF_A_VECTOR and float(scales.max()) <= MOST_UNLIKE * float(scales.min())
        limit = limits.error(name, is_vector=alike and not relative)
        return replace(
            shift,
            aside=_unread_answers(name, values),
            measure=Measure.COLUMNS,
            value=max(typical, worst * limit / worst_error(limit)) if errors.size > 1 else typical,
            limit=limit,
            typical=typical,
            worst=worst,
            columns=errors.size,
        )
    most = min(limits.allowed(name), 1e6) * NOISE_SLACK
    return replace(shift, value=math.sqrt(share), limit=math.sqrt(most))


def _worst_group(values: _Values) -> float | None:
    """Return the lowest SQNR of a group of channels with values that count, if it is less than they need."""
    axis = column_axis(values.floats, values.classes, values.free)
    groups = by_range(values.floats, values.quantized, axis)
    every = [decibels(signal.sum(), noise.sum()) for top, signal, noise in groups if top >= LEAST_SCORE]
    worst = min(every, default=math.inf)
    return worst if worst < SCORES_DB else None


# What an output means --------------------------------------------------------------------------------------


def _as_probabilities(
    kind: str, values: Sequence[Floats], classes: ClassAxis, seen: TensorProfile | None
) -> Reading | None:
    """Return how the float values of a decision or of detections are read as probabilities, or None."""
    least, most = (
        (min(float(v.min()) for v in values), max(float(v.max()) for v in values))
        if seen is None or not seen.count
        else (seen.minimum, seen.maximum)
    )
    if least >= -ROUNDING and most <= 1.0 + ROUNDING:
        return np.asarray
    if _are_logs(values):
        return _exp
    if kind == "detections":
        return _scores_of(values, None if seen is None else seen.channels)
    axis = classes.axis_in(values[0].shape) if classes.is_answer else None
    return None if axis is None else partial(_softmax, axis=axis)


def _are_logs(values: Sequence[Floats]) -> bool:
    """Whether values are log-probabilities: none above 0, exp adds up to about 1 in nine of ten places."""
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


def _scores_of(values: Sequence[Floats], seen: Channels | None) -> Reading | None:
    """Return a function that takes the channels within 0 to 1 from boxes beside scores, or None."""
    rank = values[0].ndim
    for axis in (seen.axis % rank,) if seen is not None else dict.fromkeys((rank - 1, 1)):
        if not 0 < axis < rank or len({v.shape[axis] for v in values}) != 1:
            continue
        rest = tuple(a for a in range(rank) if a != axis)
        low = np.min([v.min(axis=rest) for v in values], axis=0) if seen is None else seen.minimum
        high = np.max([v.max(axis=rest) for v in values], axis=0) if seen is None else seen.maximum
        scores = np.flatnonzero((low >= -ROUNDING) & (high <= 1.0 + ROUNDING))
        if 0 < scores.size < low.size:
            return partial(np.take, indices=scores, axis=axis)
    return None


def _exp(values: Floats) -> Floats:
    return np.exp(np.minimum(values, 0.0))


def _softmax(values: Floats, axis: int) -> Floats:
    powers = np.exp(values - values.max(axis=axis, keepdims=True))
    return np.asarray(powers / powers.sum(axis=axis, keepdims=True))


def _index_shift(name: str, values: _Values, limits: NoiseLimits) -> OutputShift:
    """Return how many answers change, of indices; one is chance."""
    same = np.concatenate(
        [(f == q).reshape(-1) for f, q in zip(values.floats, values.quantized, strict=True)]
    )
    changed = max(0, same.size - int(same.sum()) - 1) / same.size
    shift = OutputShift(name, Measure.ANSWERS, changed, MOST_MOVED, None)
    return _with_answers(shift, *_agreements(same, values.lengths), are_frames=values.are_frames)


def _answers(values: _Values) -> tuple[Agreement | None, Agreement | None]:
    """Return how often the largest column is the same, by row and by sequence; None without classes."""
    axis = values.classes.axis_in(values.floats[0].shape)
    if axis is None:
        return None, None
    same = [
        (np.argmax(f, axis=axis) == np.argmax(q, axis=axis)).reshape(-1)
        for f, q in zip(values.floats, values.quantized, strict=True)
    ]
    return _agreements(np.concatenate(same), values.lengths)


def _with_answers(
    shift: OutputShift, answers: Agreement | None, whole: Agreement | None, *, are_frames: bool
) -> OutputShift:
    """Return a shift with the answers that are the same; whole sequences of frames are an aside."""
    if whole is None or not are_frames:
        return replace(shift, answers=answers, sequences=whole)
    changed = f"{_equal(whole)} sequences as a whole (judged by frame)"
    return replace(shift, answers=answers, aside=changed if whole.same < whole.total else "")


def _unread_answers(name: str, values: _Values) -> str:
    """Return how often the largest value of a place is the same, if that may be an answer; or ""."""
    answers, whole = _answers(values)
    if answers is None or whole is None or answers.same == answers.total:
        return ""
    return (
        f"{_equal(answers)} positions and {_equal(whole)} sequences have the same largest "
        f"values (--set output_kind={name}=decision judges these)"
    )


def _agreements(
    same: npt.NDArray[np.bool_], lengths_of_samples: Sequence[tuple[int, ...]]
) -> tuple[Agreement, Agreement | None]:
    """Return how many rows, and of how many sequences all rows, are the same; None for no sequences."""
    whole, lengths = None, [length for lengths in lengths_of_samples for length in lengths]
    if any(length > 1 for length in lengths):
        ends = np.cumsum([length for length in lengths if length])
        right = [bool(one.all()) for one in np.split(same, ends[:-1])]
        whole = Agreement("top-1", sum(right), len(right), sum(right) / len(right))
    count = int(same.sum())
    return Agreement("top-1", count, same.size, count / same.size), whole


# The figures ----------------------------------------------------------------------------------------------


def _moved_probability(float_values: Sequence[Floats], int8_values: Sequence[Floats]) -> float:
    """Return the share of the probability that moves; of one probability a row both answers count.

    A sample counts at least one answer: outputs without any, as of an empty picture, count for no more.
    """
    moved = _summed(np.abs, float_values, int8_values)
    rows = [p.shape[0] if p.ndim else 1 for p in float_values]
    if all(p.size == count for p, count in zip(float_values, rows, strict=True)):
        return 2.0 * moved / max(sum(rows), 1)
    return moved / max(float(sum(p.sum() for p in float_values)), float(len(float_values)))


def _cosine_noise(values: _Values) -> float | None:
    """Return the noise of cosines between rows over their deviation; None for too few rows."""
    axis = 1 if values.floats[0].ndim == 4 and values.floats[0].shape[2:] == (1, 1) else -1
    cosines, noisy = (
        _cosines(np.concatenate([np.moveaxis(v, axis, -1).reshape(-1, v.shape[axis]) for v in side]))
        for side in (values.floats, values.quantized)
    )
    if cosines.size < FEWEST_ROWS * (FEWEST_ROWS - 1) // 2:
        return None
    spread = float(np.std(cosines))
    return float(np.sqrt(np.mean((noisy - cosines) ** 2))) / spread if spread > 0.0 else None


def _cosines(rows: Floats) -> Floats:
    """Return the cosine of each pair of rows, of many rows of `MOST_ROWS`."""
    rows = rows[np.linspace(0, len(rows) - 1, min(len(rows), MOST_ROWS)).astype(np.intp)]
    unit = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-30)
    return np.asarray((unit @ unit.T)[np.triu_indices(len(rows), 1)])


def _column_errors(values: _Values, *, relative: bool) -> tuple[Floats, Floats]:
    """Return the error of each column that varies over its spread, and that spread.

    Few rows are one column; the error of four and more is the median over all ways to halve them.
    """
    axis = column_axis(values.floats, values.classes, values.free)
    columns = 1 if axis is None else values.floats[0].shape[axis]
    f, q = (
        np.concatenate([(v if axis is None else np.moveaxis(v, axis, -1)).reshape(-1, columns) for v in side])
        for side in (values.floats, values.quantized)
    )
    of_rows = partial(_errors_over_spread, relative=relative)
    if len(f) >= FEWEST_VALUES:
        return of_rows(f, q)
    errors, scale = of_rows(f.reshape(-1, 1), q.reshape(-1, 1))
    if len(f) // 2 < 2:
        return errors, scale

    def error(half: Collection[int]) -> Floats:
        return of_rows(f[list(half)].reshape(-1, 1), q[list(half)].reshape(-1, 1))[0]

    rows = frozenset(range(len(f)))
    halved = [(error(one) + error(rows.difference(one))) / 2.0 for one in combinations(rows, len(f) // 2)]
    return np.asarray(np.median(halved, axis=0)), scale


def _errors_over_spread(f: Floats, q: Floats, *, relative: bool) -> tuple[Floats, Floats]:
    """Return the error of each column that varies in a part over its spread, and that spread.

    A relative one is of the value, at least of its column's median; its spread is of logarithms, at most 1.
    """
    error, scale = q - f, f.std(axis=0)
    power = np.sqrt(np.square(f).mean(axis=0))
    varies = power > 0.0
    scale = np.maximum(scale, math.sqrt(MIN_VARYING) * power)
    if relative:
        sizes = np.abs(f)
        floors = np.array([np.median(one[one > 0.0]) if (one > 0.0).any() else 1.0 for one in sizes.T])
        error = np.clip(error / np.maximum(sizes, floors), -1.0, 1.0)
        logs = np.log(np.maximum(sizes, 1e-6 * floors)).std(axis=0)
        scale = np.clip(logs, math.sqrt(MIN_VARYING), 1.0)
    if not varies.any():
        return np.asarray(np.sqrt(np.square(error).mean(axis=0)).max(keepdims=True)), np.ones(1)
    return np.asarray(np.sqrt(np.square(error).mean(axis=0))[varies] / scale[varies]), scale[varies]
