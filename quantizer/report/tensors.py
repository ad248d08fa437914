"""What a report says of each activation: histogram, limits, and what other calibrators would choose. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

import numpy as np

from ...profiles.base.errors import QprofError
from ...profiles.base.names import natural_key
from ...profiles.records.drawing import shape_text
from ...profiles.records.drift import share_outside
from ...profiles.records.histogram import Histogram, UnknownBins
from ...profiles.records.profile import TensorProfile
from ..equalization.apply import equalized_name
from ..model.graph import name_of
from ..numerics.affine import TYPES, QuantParams
from ..numerics.quantization_noise import expected_noise
from ..numerics.schemas import SCHEMAS, choose_params
from ..plan.plan import QuantPlan
from ..planning.shared_scales import lost_to
from ..ranges.activation_ranges import effective_range
from ..ranges.calibrators import calibrate
from ..ranges.following_function import find_following
from ..targets.calibrator_names import CALIBRATOR_NAMES
from .analysis import Analysis
from .content import SampleRecord
from .records import (
    CalibratorChoice,
    HistogramBins,
    Parameters,
    SharedGroup,
    SharedMember,
    TensorRecord,
)

SHOWN_BINS = 128
"""Most bins of a histogram in a report; they are joined two by two, so that counts stay exact."""

JOINED = 16
"""Equal bins that are joined to one."""

MOST_KL = 400
"""Quantized tensors of a model up to which calibrator kl is asked too: it takes 20 ms for each."""

MOST_TENSORS = 1200
"""Activations of which a report has a record; those that stay float are left out first."""


SHOWN_SAMPLES = 12
"""Samples that are listed."""


def tensor_records(analysis: Analysis) -> tuple[TensorRecord, ...]:
    """Return a record of each activation that was observed, in graph order."""
    plan, graph, profile = analysis.plan, analysis.graph, analysis.profile
    groups = {name: at for at, group in enumerate(plan.shared_scales) for name in group.members}
    equalized = {equalized_name(name) for name in plan.adjustments.equalization}
    names = [n for n in graph.values if n in profile and profile[n].count and graph.is_float(n)]
    names = [n for n in names if not graph.is_constant(n)]
    if len(names) > MOST_TENSORS:
        kept = [n for n in names if n in plan.tensors]
        kept += [n for n in names if n not in plan.tensors][: max(0, MOST_TENSORS - len(kept))]
        names = [n for n in names if n in set(kept)]
    kl = sum(name in plan.tensors for name in names) <= MOST_KL
    return tuple(_record(name, analysis, groups.get(name), name in equalized, kl=kl) for name in names)


def _record(name: str, analysis: Analysis, group: int | None, equalized: bool, *, kl: bool) -> TensorRecord:
    graph, plan, tensor = analysis.graph, analysis.plan, analysis.profile[name]
    producer = graph.producer(name)
    effective, following = _effective(name, analysis)
    readers = dict.fromkeys(name_of(node) for node, _ in graph.consumers(name))
    params = plan.tensors.get(name)
    if params is not None and len(params.scale) != 1:
        params = None
    return TensorRecord(
        name=name,
        shape=shape_text(tensor.shape),
        made_by=name_of(producer),
        operator="input" if producer is None else producer.op_type,
        read_by=tuple(readers),
        minimum=tensor.minimum,
        maximum=tensor.maximum,
        count=tensor.count,
        zeros=tensor.zeros,
        non_finite=tensor.nan + tensor.inf,
        histogram=shown_bins(tensor),
        parameters=None if params is None else parameters_of(tensor, params, effective),
        calibrators=tuple(_choices(name, analysis, params, effective, kl=kl)),
        following=following,
        is_equalized=equalized,
        group=group,
        minimum_samples=() if tensor.extremes is None else tuple(e.name for e in tensor.extremes.lowest),
        maximum_samples=() if tensor.extremes is None else tuple(e.name for e in tensor.extremes.highest),
    )


def shown_bins(tensor: TensorProfile) -> HistogramBins | None:
    """Return the histogram of a tensor in at most `SHOWN_BINS` bins; None without any.

    Of equal bins (a profile of Glow, an equalized tensor) the last may reach beyond the range.
    """
    histogram = tensor.histogram
    if isinstance(histogram, UnknownBins) or not histogram.counts.size:
        return None
    if not isinstance(histogram, Histogram):
        joined = np.add.reduceat(histogram.counts, np.arange(0, histogram.counts.size, JOINED))
        width = (histogram.maximum - histogram.minimum) / histogram.counts.size * JOINED
        return HistogramBins(histogram.minimum, width, tuple(round(count) for count in joined.tolist()))
    while histogram.counts.size > SHOWN_BINS:
        histogram = histogram.coarsened(histogram.exponent + 1)
    start = math.ldexp(float(histogram.first), histogram.exponent)
    return HistogramBins(start, histogram.width, tuple(int(count) for count in histogram.counts))


def represented(params: QuantParams) -> tuple[float, float]:
    """Return the smallest and the largest value that one scale represents."""
    (scale,), (zero_point,), qtype = params.scale, params.zero_point, params.qtype
    return scale * (qtype.low - zero_point), scale * (qtype.high - zero_point)


def clipped_share(tensor: TensorProfile, params: QuantParams) -> float:
    """Return the share of the values that lie outside by more than one step, 0 to 1."""
    low, high = represented(params)
    cover = (low - params.scale[0], high + params.scale[0])
    histogram = tensor.histogram
    if isinstance(histogram, Histogram):
        return share_outside(tensor, cover)
    if isinstance(histogram, UnknownBins):
        return 0.0
    return _share_of_bins(histogram.counts, (histogram.minimum, histogram.maximum), cover)


def _share_of_bins(counts: np.ndarray, ends: tuple[float, float], cover: tuple[float, float]) -> float:
    """Return the share of values outside `cover`, 0 to 1, by bins of equal width from one end to the other
    in each of which they are taken as evenly spread."""
    total, width = float(np.sum(counts)), (ends[1] - ends[0]) / max(counts.size, 1)
    if not (total > 0.0 and 0.0 < width < math.inf):
        return 0.0
    start = ends[0] + width * np.arange(counts.size)
    below = np.clip((cover[0] - start) / width, 0.0, 1.0)
    above = np.clip((start + width - cover[1]) / width, 0.0, 1.0)
    return min(float(counts @ (below + above)) / total, 1.0)


def parameters_of(tensor: TensorProfile, params: QuantParams, effective: tuple[float, float]) -> Parameters:
    """Return how a tensor is quantized, and what that costs."""
    low, high = represented(params)
    return Parameters(
        type=params.qtype.name,
        scale=params.scale[0],
        zero_point=params.zero_point[0],
        low=low,
        high=high,
        clipped=clipped_share(tensor, params),
        sqnr=_sqnr(tensor, params, effective),
    )


def _effective(name: str, analysis: Analysis) -> tuple[tuple[float, float], str]:
    """Return the interval that the readers of a tensor use, and the function by which it was chosen."""
    plain = effective_range(analysis.graph, name)
    if analysis.activations is None:
        return plain, ""
    found = analysis.activations.effective(name)
    followed = None if found == plain else find_following(analysis.graph, name)
    return found, "" if followed is None else followed.chain.operators


def _choices(
    name: str, analysis: Analysis, params: QuantParams | None, effective: tuple[float, float], *, kl: bool
) -> Iterator[CalibratorChoice]:
    """Yield what each calibrator chooses for a tensor that is quantized, in its type."""
    if params is None:
        return
    plan, tensor = analysis.plan, analysis.profile[name]
    own = plan.config.calibrator.partition(":")[0]
    schema = SCHEMAS[plan.config.schema]
    qtype = TYPES[plan.config.activation_type] if params.qtype.bits <= 8 else params.qtype
    names = [found for found in CALIBRATOR_NAMES if kl or found != "kl"]
    for calibrator in names if tensor.histogram.total else [own]:  # without a histogram all choose the same
        try:
            if calibrator == own and analysis.activations is not None:
                chosen = analysis.activations.calibrated(name, qtype)
            else:
                chosen = calibrate(tensor, calibrator, schema, qtype)
        except QprofError:  # bins too coarse for it
            continue
        found = choose_params(chosen.low, chosen.high, schema, qtype)
        low, high = represented(found)
        clipped, sqnr = clipped_share(tensor, found), _sqnr(tensor, found, effective)
        yield CalibratorChoice(calibrator, low, high, clipped, sqnr)


def _sqnr(tensor: TensorProfile, params: QuantParams, effective: tuple[float, float]) -> float | None:
    noise = expected_noise(tensor, params, effective)
    return noise.sqnr_db if noise.signal_power > 0.0 else None


def shared_groups(plan: QuantPlan) -> tuple[SharedGroup, ...]:
    """Return the groups of activations with one scale, that which costs a member most first."""
    groups = [
        SharedGroup(
            *group.range,
            group.tied_by,
            tuple(
                SharedMember(name, *own, name in group.range_set_by, lost_to(own, group.range))
                for name, own in group.members.items()
            ),
        )
        for group in plan.shared_scales
    ]
    return tuple(groups)


def sample_records(analysis: Analysis) -> tuple[SampleRecord, ...]:
    """Return the samples that made most minima and maxima, and in how many of them values saturate.

    A sample that makes them in far more tensors than others is an outlier, or the only one of its kind.
    """
    ends: Counter[str] = Counter()
    clipped: Counter[str] = Counter()
    for name, tensor in analysis.profile.items():
        if tensor.extremes is None or tensor.minimum == tensor.maximum:
            continue
        ends.update({e.name for e in (*tensor.extremes.lowest[:1], *tensor.extremes.highest[:1])})
        params = analysis.plan.tensors.get(name)
        if params is not None and len(params.scale) == 1:
            low, high = represented(params)
            slack = params.scale[0]
            outside = {e.name for e in tensor.extremes.lowest if e.value < low - slack}
            outside |= {e.name for e in tensor.extremes.highest if e.value > high + slack}
            clipped.update(outside)
    order = sorted(ends, key=lambda sample: (-ends[sample], natural_key(sample)))[:SHOWN_SAMPLES]
    return tuple(SampleRecord(sample, ends[sample], clipped[sample]) for sample in order)
