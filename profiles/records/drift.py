"""Two profiles compared tensor by tensor: have the distributions of the activations changed?

Every measure is computed from the two profiles alone. "Width" below is that of a range extended to 0, because
quantized types always represent 0: max(maximum, 0) - min(minimum, 0).

==============  ==========================================================================================
range_growth    width of what both profiles need over the width of OLD's range: 1 when NEW stays within it
clipping_rate   share of NEW's elements that OLD's parameters would saturate (the caller gives the range that
                these cover, see `drift.covered`; OLD's own range when there are none)
js_distance     Jensen-Shannon distance, 0 (equal) to 1 (nothing in common): the square root of the divergence
                of Lin, "Divergence measures based on the Shannon entropy" (IEEE Transactions on Information
                Theory 37, 1991), in bits, which is a metric (Endres and Schindelin, 2003)
wasserstein     Wasserstein-1 distance over OLD's width: the mean distance between matched elements,
                as a share of OLD's range; the area between both cumulative distributions
non_finite      share of NEW's elements that are NaN or infinite, which no other measure counts
==============  ==========================================================================================

They measure different things. One outlier among millions changes range_growth alone. The Jensen-Shannon
distance reacts to every change of shape, but not to how far elements moved; the Wasserstein distance measures
that.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..base.errors import ProfileError
from ..base.findings import Code, Finding
from ..base.tuned import tuned
from .channel_statistics import Channels
from .histogram import Histogram, bin_exponent
from .profile import InputProfile, Profile, TensorProfile, describe, is_exact, source_of

Floats = npt.NDArray[np.float64]
Cover = tuple[float, float]
"""Smallest and largest value that does not saturate."""


@dataclass(frozen=True)
class TensorDrift:
    """How one tensor changed; the module's docstring defines the measures.

    Attributes:
        tensor: its name.
        old_minimum, old_maximum, new_minimum, new_maximum: ranges of the finite elements.
        range_growth: at least 1; inf when OLD held nothing but zeros and NEW something else.
        clipping_rate: share of NEW's elements, 0 to 1; None when NEW has no elements and OLD has.
        baseline_clipping: the same of OLD's own elements: 0 for calibrator minmax; others clip on purpose.
        js_distance: 0 to 1; None when one of the two has no elements.
        wasserstein: from 0; inf when OLD's range has no width; None when one of the two has no elements.
        non_finite: 0 to 1.
    """

    tensor: str
    old_minimum: float
    old_maximum: float
    new_minimum: float
    new_maximum: float
    range_growth: float
    clipping_rate: float | None
    baseline_clipping: float
    js_distance: float | None
    wasserstein: float | None
    non_finite: float

    @property
    def is_empty(self) -> bool:
        """Whether OLD has elements and NEW has none, so that nothing but their absence was measured."""
        return self.clipping_rate is None

    @property
    def added_clipping(self) -> float | None:
        """How much higher the clipping rate of NEW is than the baseline: the change that a gate is about."""
        return None if self.clipping_rate is None else max(self.clipping_rate - self.baseline_clipping, 0.0)


@dataclass(frozen=True)
class Drift:
    """How one profile differs from another.

    Attributes:
        tensors: those that are in both profiles, in OLD's order.
        appeared: names that only NEW has, in its order.
        vanished: names that only OLD has, in its order.
    """

    tensors: tuple[TensorDrift, ...]
    appeared: tuple[str, ...] = ()
    vanished: tuple[str, ...] = ()


def check_comparable(
    old: Profile, new: Profile, names: tuple[str, str] = ("OLD", "NEW"), *, allow_different: bool = False
) -> tuple[Finding, ...]:
    """Return the findings about a pair: other weights, another structure, the same data.

    ProfileError if one is of another tool, if no tensor is in both, or if the structures differ and
    `allow_different` is not set; with it only tensors of the same name are compared.
    """
    for where, profile in zip(names, (old, new), strict=True):
        if not is_exact(profile):
            raise ProfileError(
                f"{where}: comes from {source_of(profile)}, which has no exact histograms to compare; "
                "make both profiles with 'qprof dump-profile'"
            )
    findings = []
    pair = f"{describe(old.model)} and {describe(new.model)}"
    if (old.model.structure, old.model.opset) != (new.model.structure, new.model.opset):
        if not allow_different:
            raise ProfileError(
                f"{names[1]}: is of another model than {names[0]}: {pair}; give profiles of one model, or "
                "--allow-different to compare tensors of the same name"
            )
        sentence = f"the models differ in structure, tensors are compared by name alone: {pair}"
        findings.append(Finding(Code.OTHER_STRUCTURE, sentence))
    elif old.model.weights != new.model.weights:
        sentence = "the models have the same structure and different weights"
        findings.append(Finding(Code.OTHER_WEIGHTS, sentence))
    if old.data == new.data and old.data.samples:
        findings.append(Finding(Code.SAME_DATA, "both profiles are of the same data"))
    if not set(old) & set(new):
        raise ProfileError(
            f"{names[1]}: has no tensor that {names[0]} has; give profiles of models whose "
            "tensors have the same names"
        )
    return tuple(findings)


def compare(old: Profile, new: Profile, covers: Mapping[str, Cover] | None = None) -> Drift:
    """Return the differences of `new` from `old`; both have passed `check_comparable`.

    `covers` are the ranges that OLD's parameters represent without saturating; None for the tensors' ranges,
    extended to 0.
    """
    tensors = tuple(
        tensor_drift(name, old[name], new[name], covers[name] if covers else _extended(old[name]))
        for name in old
        if name in new
    )
    appeared, vanished = (tuple(n for n in a if n not in b) for a, b in ((new, old), (old, new)))
    return Drift(tensors, appeared, vanished)


# Parts of the data: columns of a table, colours of a picture, folders of classes --------------------------

MIN_SHIFT = tuned(
    1.0,
    figure=(
        "0.5, 1: of 400 nights of 40 samples in which nothing changed 13, 11 name a column, in the worst of "
        "ten data sets; of columns of 100 samples that moved by 0.7 deviations, as a season moves them, 53, "
        "7 % are named"
    ),
    chosen_on="tables, pictures, spectra, loads: random nights of the same data, and one column changed",
)
"""Deviations by which the mean of a part moves where it is named."""

MIN_SPREAD = tuned(
    3.0,
    figure=(
        "1.5, 3, 6: of 400 nights of 40 samples in which nothing changed 174, 8, 0 name a column, in the "
        "worst of ten data sets; of columns of 40 samples that spread 4 times as wide 82, 54, 50 % are named"
    ),
    chosen_on="tables, pictures, spectra, loads: random nights of the same data, and one column changed",
)
"""Factor by which the deviation of a part changes where it is named."""

SURE = tuned(
    5.0,
    figure=(
        "2.5, 5, 10: of 400 nights of 16 samples in which nothing changed 97, 52, 19 name a column, in the "
        "worst of ten data sets; of columns that moved by 1.5 deviations 100, 66, 2 % are named"
    ),
    chosen_on="tables, pictures, spectra, loads: random nights of the same data, and one column changed",
)
"""Standard errors from where on a difference is not one of chance."""

MIN_FOLDER_SHARE = tuned(
    0.1,
    figure="none: with fewer than 900 samples on either side `SURE` asks for more",
    chosen_on="by hand",
)
"""Change of a folder's share of the samples from where on it is named."""


@dataclass(frozen=True)
class PartDrift:
    """How one part of an input changed: an element along the axis that its profile counts as channels.

    Attributes:
        input: its name.
        part: name of the part, or its number.
        old_mean, new_mean: of its values.
        old_deviation, new_deviation: standard deviations of its values.
        shift: by how many of OLD's deviations the mean moved; inf where OLD's values were all the same.
    """

    input: str
    part: str
    old_mean: float
    new_mean: float
    old_deviation: float
    new_deviation: float
    shift: float

    @property
    def where(self) -> str:
        """Input and part, in words."""
        return f"input '{self.input}', {self.part}"

    @property
    def spread(self) -> float:
        """The ratio of both deviations, from 1 on; inf if only one of them is 0."""
        low, high = sorted((self.old_deviation, self.new_deviation))
        if high == 0.0:
            return 1.0
        return high / low if low > 0.0 else math.inf


def has_parts(old: Profile, new: Profile) -> bool:
    """Whether any parts of the data can be compared: channels of an input, folders, bands of a signal."""
    names = [name for name in old.inputs if name in new.inputs]
    return (
        (bool(sum(old.folders.values())) and bool(sum(new.folders.values())))
        or any(_channels(old.inputs[name], new.inputs[name]) is not None for name in names)
        or any(_signals(name, old, new) is not None for name in names)
    )


def part_drifts(old: Profile, new: Profile) -> tuple[PartDrift, ...]:
    """Return the parts of inputs that changed by more than chance and much, the largest shift first.

    These are only inputs whose channels both profiles have.
    """
    found: list[PartDrift] = []
    for name in old.inputs:
        if name in new.inputs:
            samples = old.data.samples, new.data.samples
            found += _parts_of_input(name, old.inputs[name], new.inputs[name], samples)
    return tuple(sorted(found, key=lambda part: (-part.shift, -part.spread)))


def _channels(old: InputProfile, new: InputProfile) -> tuple[Channels, Channels] | None:
    """Return the channels of an input in both profiles, None if they are not the same ones."""
    a, b = old.tensor.channels, new.tensor.channels
    if a is None or b is None or a.axis != b.axis or len(a.count) != len(b.count) or len(a.count) < 2:
        return None
    return a, b


def _parts_of_input(
    name: str, old: InputProfile, new: InputProfile, samples: tuple[int, int]
) -> Iterator[PartDrift]:
    """Yield the parts of an input that changed; `samples` are the numbers of samples of both profiles.

    Chance is that of samples, not of elements: the pixels of a picture, and the steps of a recording, are
    alike. And if values have long tails, one sample makes a deviation: the wider one is taken without a
    sample whose values are all as far from the mean as the farthest.
    """
    if (channels := _channels(old, new)) is None:
        return
    a, b = channels
    names = next((parts for parts in (new.parts, old.parts) if len(parts) == len(a.count)), ())
    deviations = [np.sqrt(np.maximum(one.power - one.mean**2, 0.0)) for one in (a, b)]
    found, moves = list[PartDrift](), list[PartDrift]()
    # Differences that rounding alone makes are none.
    least = 1e-6 * np.maximum(a.magnitude, b.magnitude)
    for at in np.nonzero((a.count > 1) & (b.count > 1))[0]:
        part = PartDrift(
            name,
            f"'{names[at]}'" if names else f"{at}",
            float(a.mean[at]),
            float(b.mean[at]),
            float(deviations[0][at]) if deviations[0][at] > least[at] else 0.0,
            float(deviations[1][at]) if deviations[1][at] > least[at] else 0.0,
            0.0,
        )
        moved = abs(part.new_mean - part.old_mean)
        if moved <= least[at]:
            moved = 0.0
        shift = moved / part.old_deviation if part.old_deviation else math.inf if moved else 0.0
        counts = [
            min(int(one.count[at]), n or int(one.count[at])) for one, n in zip((a, b), samples, strict=True)
        ]
        error = math.hypot(
            part.old_deviation / math.sqrt(counts[0]), part.new_deviation / math.sqrt(counts[1])
        )
        # The relative error of a deviation is about one over the root of twice the count.
        spread = MIN_SPREAD * (1.0 + SURE / math.sqrt(2.0 * min(counts)))
        part, is_sure = replace(part, shift=shift), moved > SURE * error
        if (shift >= MIN_SHIFT and is_sure) or _sure_spread(part, (a, b), counts, int(at)) >= spread:
            found.append(part)
        if is_sure and shift >= 0.5 * MIN_SHIFT:
            moves.append(part)
    yield from (_brightness(moves),) if found and _is_light(names, moves) else found


COLOURS = frozenset({"red", "green", "blue"})
BRIGHTNESS = "brightness"
"""Part of pictures whose colours moved together."""


def _is_light(names: Sequence[str], moves: Sequence[PartDrift]) -> bool:
    """Whether all colours of pictures became darker, or all brighter."""
    directions = {part.new_mean > part.old_mean for part in moves}
    return {*names} == COLOURS and len(moves) == len(COLOURS) and len(directions) == 1


def _brightness(colours: Sequence[PartDrift]) -> PartDrift:
    """Return the change of all colours as one of the brightness, the mean of them."""

    def mean(figures: Iterable[float]) -> float:
        return sum(figures) / len(colours)

    return PartDrift(
        colours[0].input,
        BRIGHTNESS,
        mean(one.old_mean for one in colours),
        mean(one.new_mean for one in colours),
        mean(one.old_deviation for one in colours),
        mean(one.new_deviation for one in colours),
        mean(one.shift for one in colours),
    )


def _sure_spread(
    part: PartDrift, channels: tuple[Channels, Channels], counts: Sequence[int], at: int
) -> float:
    """Return the ratio of the deviations of a part, the wider one without a sample of the farthest value.

    It is below 1 if only that sample made it wider.
    """
    is_new = part.new_deviation > part.old_deviation
    narrow, wide = sorted((part.old_deviation, part.new_deviation))
    mean, count, wider = part.new_mean if is_new else part.old_mean, counts[is_new], channels[is_new]
    if count < 2:
        return 0.0
    ends = float(wider.minimum[at]), float(wider.maximum[at])
    farthest = max(ends, key=lambda value: abs(value - mean))
    power = (count * (wide**2 + mean**2) - farthest**2) / (count - 1)
    rest = math.sqrt(max(power - ((count * mean - farthest) / (count - 1)) ** 2, 0.0))
    return 0.0 if rest == 0.0 else rest / narrow if narrow else math.inf


def folder_drifts(old: Profile, new: Profile) -> tuple[tuple[str, float, float], ...]:
    """Return the folders whose share of the samples changed much, with both shares, the worst first."""
    totals = [sum(profile.folders.values()) for profile in (old, new)]
    if not all(totals):
        return ()
    found = []
    for name in sorted({*old.folders, *new.folders}):
        shares = [p.folders.get(name, 0) / total for p, total in zip((old, new), totals, strict=True)]
        mean = sum(p.folders.get(name, 0) for p in (old, new)) / sum(totals)
        error = math.sqrt(mean * (1.0 - mean) * (1.0 / totals[0] + 1.0 / totals[1]))
        if (change := abs(shares[1] - shares[0])) >= MIN_FOLDER_SHARE and change > SURE * error:
            found.append((name, shares[0], shares[1]))
    return tuple(sorted(found, key=lambda one: (-round(abs(one[2] - one[1]), 9), one[0])))


# Bands of a signal, of the samples that are kept beside both profiles ---------------------------------------

LOWEST_BAND = 62.5
"""Hz from which on a band is told from those above it."""

MIN_LEVEL_CHANGE = tuned(
    10.0,
    figure=(
        "5, 10, 20: names none of 120 bands of recordings that did not change; of 15 that lost 6 dB 8, 0, 0, "
        "12 dB 15, 11, 0, 24 dB 15, 15, 15"
    ),
    chosen_on="recordings of voices, songs and instruments: random halves, an octave changed",
)
"""dB by which the mean level of a band changes from where on it is named."""


def band_drifts(old: Profile, new: Profile) -> tuple[tuple[str, float, float, float, float], ...]:
    """Return the octaves of signals whose level changed by more than chance and much, the most first.

    Each has the name of the input, its ends in Hz, and the mean level in dB of OLD and of NEW. These are only
    inputs with a rate for which both profiles have some samples.
    """
    found = []
    for name in new.inputs:
        if (signals := _signals(name, old, new)) is None:
            continue
        rate = new.inputs[name].rate
        levels = [_band_levels(one, rate) for one in signals]
        before, after = (one.mean(axis=0) for one in levels)
        error = np.sqrt(sum(one.var(axis=0, ddof=1) / len(one) for one in levels))
        change = np.abs(after - before)
        for at in np.nonzero((change >= MIN_LEVEL_CHANGE) & (change > 3.0 * error))[0]:
            high = rate / 2.0 ** (at + 1)
            last = at == len(change) - 1
            found.append((name, 0.0 if last else high / 2.0, high, float(before[at]), float(after[at])))
    return tuple(sorted(found, key=lambda one: -abs(one[4] - one[3])))


def _signals(name: str, old: Profile, new: Profile) -> list[list[npt.NDArray[Any]]] | None:
    """Return the stored signals of an input of both profiles, None if one has fewer than two."""
    rates = [profile.inputs[name].rate if name in profile.inputs else None for profile in (old, new)]
    if not rates[0] or rates[0] != rates[1]:
        return None
    signals = [[one.arrays[name] for one in profile.held_samples] for profile in (old, new)]
    return signals if min(map(len, signals)) > 1 else None


def _band_levels(signals: Sequence[npt.NDArray[Any]], rate: int) -> Floats:
    """Return the level of each octave from half of the rate down, in dB of 1, float64 [signals, octaves]."""
    octaves = max(1, 1 + int(math.log2(rate / 2.0 / LOWEST_BAND)))
    rows = []
    for signal in signals:
        values = np.asarray(signal, np.float64).reshape(-1)
        power = np.abs(np.fft.rfft(values * np.hanning(values.size))) ** 2 / max(values.size, 1) ** 2
        hertz = np.fft.rfftfreq(values.size, 1.0 / rate)
        highs = rate / 2.0 ** np.arange(1, octaves + 1)
        lows = np.append(highs[1:], -1.0)
        bands = [power[(hertz > low) & (hertz <= high)].sum() for low, high in zip(lows, highs, strict=True)]
        rows.append(10.0 * np.log10(np.maximum(bands, 1e-12)))
    return np.array(rows).reshape(-1, octaves)


# Tensors ----------------------------------------------------------------------------------------------------


def tensor_drift(name: str, old: TensorProfile, new: TensorProfile, cover: Cover) -> TensorDrift:
    """Return all measures of one tensor; `cover` is the range of OLD's parameters without saturation."""
    assert isinstance(old.histogram, Histogram)
    assert isinstance(new.histogram, Histogram)
    clipped: float | None = share_outside(new, cover)
    distance: float | None = 0.0
    wasserstein: float | None = 0.0
    if bool(old.count) != bool(new.count):
        distance = wasserstein = None
        clipped = clipped if new.count else None
    elif old.count:
        finest = bin_exponent(*_extended(old))
        distance = jensen_shannon(*common_bins(old.histogram, new.histogram, finest))
        wasserstein = wasserstein_distance(old, new)
    non_finite = new.nan + new.inf
    return TensorDrift(
        tensor=name,
        old_minimum=old.minimum,
        old_maximum=old.maximum,
        new_minimum=new.minimum,
        new_maximum=new.maximum,
        range_growth=range_growth(old, new),
        clipping_rate=clipped,
        baseline_clipping=share_outside(old, cover),
        js_distance=distance,
        wasserstein=wasserstein,
        non_finite=non_finite / (new.count + non_finite) if non_finite else 0.0,
    )


def range_growth(old: TensorProfile, new: TensorProfile) -> float:
    """Return the factor that widens OLD's range to include NEW's: 1, or more, or inf."""
    (old_low, old_high), (new_low, new_high) = _extended(old), _extended(new)
    # Halved, so that the width of the whole of float64 does not overflow.
    needed = max(old_high, new_high) / 2.0 - min(old_low, new_low) / 2.0
    present = old_high / 2.0 - old_low / 2.0
    if needed == present:
        return 1.0
    return needed / present if present > 0.0 else np.inf


def share_outside(tensor: TensorProfile, cover: Cover) -> float:
    """Return the fraction of the finite elements outside `cover`, 0 to 1; 0 if there are none.

    The elements of a bin count as evenly spread, except zeros: they are counted, and always covered.
    """
    histogram = tensor.histogram
    assert isinstance(histogram, Histogram)
    if tensor.count == 0 or (cover[0] <= tensor.minimum and tensor.maximum <= cover[1]):
        return 0.0
    counts = histogram.counts.astype(np.float64)
    if 0 <= -histogram.first < counts.size:
        counts[-histogram.first] -= min(float(tensor.zeros), counts[-histogram.first])
    # In units of one bin only values far outside the range overflow, and infinity is right for those.
    with np.errstate(over="ignore"):
        low, high, minimum, maximum = np.ldexp([*cover, tensor.minimum, tensor.maximum], -histogram.exponent)
    edges = np.clip(histogram.first + np.arange(counts.size + 1, dtype=np.float64), minimum, maximum)
    start, width = edges[:-1], np.diff(edges)
    spread = np.where(width > 0.0, width, 1.0)
    with np.errstate(over="ignore"):
        below = np.where(width > 0.0, np.clip((low - start) / spread, 0.0, 1.0), start < low)
        above = np.where(width > 0.0, np.clip((edges[1:] - high) / spread, 0.0, 1.0), start > high)
    return min(float(counts @ (below + above)) / tensor.count, 1.0)


def common_bins(
    old: Histogram, new: Histogram, finest: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the counts of both, neither empty, in the same bins: those of the merged histogram, exactly.

    `finest` is the exponent of the narrowest bins: `bin_exponent` of OLD's range extended to 0. So values
    less than about a 1000th of that range apart may be taken for equal: quantized they are equal.
    """
    both = old.merged(new)
    both = both.coarsened(max(both.exponent, finest))

    def placed(histogram: Histogram) -> npt.NDArray[np.int64]:
        part = histogram.coarsened(both.exponent)
        counts = np.zeros(both.counts.size, np.int64)
        counts[part.first - both.first :][: part.counts.size] = part.counts
        return counts

    return placed(old), placed(new)


def jensen_shannon(old: npt.NDArray[np.int64], new: npt.NDArray[np.int64]) -> float:
    """Return the Jensen-Shannon distance of two histograms over the same bins, from 0 to 1; neither is all 0.

    With p and q the fractions of a bin and m = (p + q) / 2, the divergence is the sum over bins of (p log2(p
    / m) + q log2(q / m)) / 2, and the distance its square root.

    Two random draws from one distribution differ in every bin, and with many bins and few elements the
    distance would be large without any drift. So neighbouring bins are joined first, into (2 n)^(1/3) groups
    of about equal mass, rounded up to an even number, with n the number of elements of the smaller histogram
    (the number of bins: Terrell and Scott, "Oversmoothed nonparametric density estimates", 1985). Groups of
    equal mass are robust to outliers.
    """
    elements = old.sum(dtype=np.float64), new.sum(dtype=np.float64)
    p, q = old / elements[0], new / elements[1]
    mixed = (p + q) / 2.0
    groups = 2 * math.ceil(np.cbrt(2.0 * min(elements)) / 2.0)  # even: none mixes two separate halves
    # A bin belongs to the group that its middle falls into, by the mass below it.
    group = ((np.cumsum(mixed) - mixed / 2.0) * groups).astype(np.int64)
    joined = [np.bincount(group, share).astype(np.float64) for share in (p, q)]
    mixed = (joined[0] + joined[1]) / 2.0
    divergence = 0.0
    for share in joined:
        some = share > 0.0
        divergence += float(np.sum(share[some] * np.log2(share[some] / mixed[some]))) / 2.0
    return float(np.sqrt(min(max(divergence, 0.0), 1.0)))


def wasserstein_distance(old: TensorProfile, new: TensorProfile) -> float:
    """Return the Wasserstein-1 distance over OLD's width; see the docstring of this module.

    It is the integral of |F - G| over both cumulative distributions, which are straight lines within a bin.
    The elements of a bin count as evenly spread over it, so the distance is right to one bin of the wider
    histogram. Both must have elements.
    """
    a, b = old.histogram, new.histogram
    assert isinstance(a, Histogram)
    assert isinstance(b, Histogram)
    unit = max(a.exponent, b.exponent)  # edges are in widths of the wider bins: nothing overflows
    (x, f), (y, g) = _cumulative(a, unit), _cumulative(b, unit)
    at = np.union1d(x, y)
    gap = np.interp(at, x, f, 0.0, 1.0) - np.interp(at, y, g, 0.0, 1.0)
    first, last = np.abs(gap[:-1]), np.abs(gap[1:])
    crossing = gap[:-1] * gap[1:] < 0.0
    # Two triangles where the lines cross, a trapezium elsewhere.
    height = np.where(
        crossing,
        (first * first + last * last) / np.where(crossing, first + last, 1.0),
        first + last,
    )
    area = float(np.sum(height * np.diff(at))) / 2.0
    if area == 0.0:
        return 0.0
    low, high = _extended(old)
    with np.errstate(over="ignore"):
        ends = np.ldexp([low, high], -unit)
    return area / float(ends[1] - ends[0]) if ends[1] > ends[0] else np.inf


def _cumulative(histogram: Histogram, unit: int) -> tuple[Floats, Floats]:
    """Return edges in units of 2**unit, and the share of the elements below each."""
    edges = histogram.first + np.arange(histogram.counts.size + 1, dtype=np.float64)
    below = np.append(0.0, np.cumsum(histogram.counts, dtype=np.float64))
    # Bins of 2**-900 units are still bins; narrower ones could vanish.
    return np.ldexp(edges, max(histogram.exponent - unit, -900)), below / below[-1]


def _extended(tensor: TensorProfile) -> Cover:
    """Return the range of a tensor, extended to 0, which every quantized type represents."""
    return min(tensor.minimum, 0.0), max(tensor.maximum, 0.0)
