"""Density of a tensor's values from its histogram: bins and point masses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ...profiles.records.channel_statistics import Channels
from ...profiles.records.histogram import BINS, EqualBins
from ...profiles.records.profile import Profile, TensorProfile
from .affine import Floats, QuantParams, QuantType
from .grid import cubes_up_to, nearest


@dataclass(frozen=True, eq=False)
class Density:
    """Distribution of the values of a tensor."""

    edges: Floats  # ascending ends of n bins, n + 1 of them
    mass: Floats  # share of all elements in each bin, evenly spread over it; with `point_mass` they sum to 1
    points: Floats  # single values
    point_mass: Floats

    @cached_property
    def changes(self) -> tuple[Floats, Floats]:
        """Ends of bins at which the density changes, and by how much it falls there, per unit of value.

        Changes within the rounding of the largest mass are none: estimated histograms have hundreds.
        """
        width = np.diff(self.edges)
        height = np.divide(self.mass, width, out=np.zeros_like(width), where=width > 0.0)
        wider = np.maximum(width[1:], width[:-1])
        changed = np.abs(np.diff(height)) * wider > 1e-12 * self.mass.max(initial=0.0)
        starts = np.flatnonzero(np.append(True, changed)[: height.size])
        height = height[starts]  # of each run of bins, that of its first
        edges = np.append(self.edges[starts], self.edges[-1:])
        return edges, np.append(0.0, height) - np.append(height, 0.0)

    @cached_property
    def middles(self) -> tuple[Floats, Floats]:
        """Middles of the bins that have a mass, and the points, with the mass of each."""
        values = np.concatenate([(self.edges[:-1] + self.edges[1:]) / 2.0, self.points])
        mass = np.concatenate([self.mass, self.point_mass])
        return values[mass > 0.0], mass[mass > 0.0]


def density(profile: TensorProfile) -> Density:
    """Return the distribution of the values of `profile`, whose histogram must not be empty."""
    counts = profile.histogram.counts.astype(np.float64)
    edges = np.clip(profile.histogram.edges(), profile.minimum, profile.maximum)
    zeros = 0.0
    if profile.zeros and counts.size:  # zeros are a point mass, not spread over their bin
        zero_bin = min(int(np.searchsorted(edges, 0.0, side="right")) - 1, counts.size - 1)
        zeros = min(float(profile.zeros), counts[zero_bin])
        counts[zero_bin] -= zeros
    total = counts.sum() + zeros
    single = edges[1:] == edges[:-1]
    points = np.append(edges[:-1][single], 0.0)
    point_mass = np.append(counts[single], zeros)
    return Density(edges, np.where(single, 0.0, counts) / total, points, point_mass / total)


def mean_of(distribution: Density, function: Callable[[Floats], Floats]) -> float:
    """Return the mean of a function of the values, at the middle of each bin; non-finite results are 0."""
    with np.errstate(all="ignore"):
        bins = function((distribution.edges[:-1] + distribution.edges[1:]) / 2.0)
        points = function(distribution.points)
    # Nearly always all are finite, and that is far faster to see than to replace what is not there.
    if not (np.isfinite(bins).all() and np.isfinite(points).all()):
        bins, points = (np.nan_to_num(y, nan=0.0, posinf=0.0, neginf=0.0) for y in (bins, points))
    return float(distribution.mass @ bins + distribution.point_mass @ points)


def mean_square_of_largest(distribution: Density, count: int) -> float:
    """Return the mean square of the largest magnitude among `count` values that are drawn independently.

    The largest of n is below x with the n-th power of the share of values below x. Each bin counts as its
    middle.
    """
    middles = (distribution.edges[:-1] + distribution.edges[1:]) / 2.0
    values = np.abs(np.concatenate([middles, distribution.points]))
    order = np.argsort(values)
    below = np.cumsum(np.concatenate([distribution.mass, distribution.point_mass])[order])
    reached = np.power(np.minimum(below / below[-1], 1.0), count)
    return float(np.diff(reached, prepend=0.0) @ np.square(values[order]))


def signal_power(profile: TensorProfile) -> float:
    """Return the mean square of the values; 0 for a tensor without elements."""
    return 0.0 if profile.histogram.total == 0 else mean_of(density(profile), np.square)


def clipped(distribution: Density, low: float, high: float) -> Density:
    """Return the distribution of the values clipped to [low, high]."""
    edges, points = np.clip(distribution.edges, low, high), np.clip(distribution.points, low, high)
    single = edges[1:] == edges[:-1]
    return Density(
        edges,
        np.where(single, 0.0, distribution.mass),
        np.append(points, edges[:-1][single]),
        np.append(distribution.point_mass, distribution.mass[single]),
    )


# Densities of the values of each channel ------------------------------------------------------------------


BINS_PER_SIDE = 96
"""Bins on either side of zero in which channels are described; they widen with the distance from zero."""

FINEST = 1e-4
"""Width of the innermost bins as a share of the tensor's largest magnitude."""

ROUNDS, STEPS = 8, 4
"""Rounds of iterative proportional fitting, and the most Newton steps of the tilts in each."""

MOST_TILT, MOST_STEP = 1e4, 8.0
"""Largest magnitude of a tilt, and of its change in one Newton step."""

LEAST_STEP = 1e-4
"""A channel whose tilts change by no more has converged: the next step would change them by its square."""

CHANNELS_AT_ONCE = 128
"""Channels whose densities are computed at a time: they stay in the cache, and BLAS takes one thread."""


@dataclass(frozen=True, eq=False)
class ChannelDensity:
    """Densities of the values of n channels over b bins, uniform within each bin."""

    low: Floats  # ends of the bins, (b,); equal where a bin is a single value
    high: Floats
    mass: Floats  # share of the channel's values in each bin, (n, b); rows sum to 1
    minimum: Floats  # of each channel, (n,)
    maximum: Floats
    power: Floats  # mean square of each channel, (n,)


def channel_density(tensor: TensorProfile) -> ChannelDensity | None:
    """Return the densities of a tensor's channels; None without records of channels or without values.

    A profile has one histogram for a tensor, and of each channel its smallest and largest value, mean and
    mean square. Among all densities of the channels that agree with these, the one is chosen that assumes
    least (least relative entropy: Csiszar, "I-divergence geometry", 1975): a density that all channels share,
    cut to the channel's range and tilted by exp(a x + b x^2). The shared density is such that the channels
    together make the histogram (`max_entropy_mass`). The densities give the tensor's values after its
    channels have been equalized; ranges stay exact, the histogram is an estimate.
    """
    channels = tensor.channels
    if channels is None or tensor.count == 0 or tensor.histogram.total == 0:
        return None
    low, high, prior = _bins_fine_near_zero(tensor)
    base = prior * _share_within(channels, low, high)
    empty = base.sum(1) <= 0.0
    if empty.any():  # a range without a bin of the histogram: the bin that is nearest to the mean
        nearest = np.abs((low + high) / 2.0 - channels.mean[empty, None]).argmin(1)
        base[np.flatnonzero(empty), nearest] = 1.0
    means, squares = (low + high) / 2.0, (low * low + low * high + high * high) / 3.0
    mass = max_entropy_mass(base, means, squares, channels.mean, channels.power)
    return ChannelDensity(low, high, mass, channels.minimum, channels.maximum, channels.power)


def _share_within(channels: Channels, low: Floats, high: Floats) -> Floats:
    """Return the share of each bin that lies within each channel's range; a single value counts in full."""
    width = np.where(high > low, high - low, 1.0)
    overlap = np.minimum(high, channels.maximum[:, None]) - np.maximum(low, channels.minimum[:, None])
    holds_point = (low >= channels.minimum[:, None]) & (high <= channels.maximum[:, None])
    return np.asarray(np.where(high > low, np.clip(overlap / width, 0.0, 1.0), holds_point))


def distinct(values: Floats) -> Floats:
    """Return the distinct values, sorted; np.unique imports numpy.ma, longer than a plan of a small model."""
    ordered = np.sort(values, axis=None)
    return np.asarray(ordered[np.append(True, ordered[1:] != ordered[:-1])[: ordered.size]])


def _bins_fine_near_zero(tensor: TensorProfile) -> tuple[Floats, Floats, Floats]:
    """Return ends and mass of bins that are narrow near zero, at the values of small channels."""
    whole = density(tensor)
    largest = max(abs(tensor.minimum), abs(tensor.maximum))
    side = largest * FINEST * (np.expm1(np.linspace(0.0, np.log1p(1.0 / FINEST), BINS_PER_SIDE + 1)))
    grid = np.concatenate([-side[:0:-1], side])
    edges = distinct(np.clip(grid, tensor.minimum, tensor.maximum))
    below = np.append(0.0, np.cumsum(whole.mass))
    keep = np.append(True, np.diff(whole.edges) > 0.0)
    mass = np.diff(np.interp(edges, whole.edges[keep], below[keep]))
    points = whole.point_mass > 0.0
    low = np.concatenate([edges[:-1], whole.points[points]])
    high = np.concatenate([edges[1:], whole.points[points]])
    mass = np.concatenate([mass, whole.point_mass[points]])
    some = mass > 0.0
    return low[some], high[some], mass[some]


def max_entropy_mass(base: Floats, means: Floats, squares: Floats, mean: Floats, power: Floats) -> Floats:
    """Return the densities of n channels over b bins with given moments, nearest to a base density.

    The densities are mass[c, i] = base[c, i] g[i] exp(a[c] means[i] / unit[c] + b[c] squares[i] / unit[c]^2)
    / z[c], where z makes each row add up to 1 and the unit is the largest value of the channel's bins. Masses
    are computed as logarithms, so channels may span decades. Two kinds of update alternate:

    - the tilts (a, b) of each channel, by damped Newton steps on the convex dual of the moment conditions:
    (a, b) += H^-1 (wanted - found), with H the covariance of means and squares under the row's mass;
    - the factors g of the bins, by iterative proportional fitting (Deming and Stephan, "On a Least Squares
    Adjustment of a Sampled Frequency Table", 1940), until the columns add up to those of the histogram.

    `base` is (n, b), not normalised, 0 outside a channel's range; `means` and `squares` of each bin are (b,);
    `mean` and `power` are wanted, (n,). A row whose moments no tilt can meet ends near them.
    """
    channels, bins = base.shape
    histogram = base.max(0)  # in some channel the bin lies within the range
    histogram = histogram / histogram.sum()
    moments = np.stack([np.ones_like(means), means, squares, means**2, means * squares, squares**2], 1)
    inside = base > 0.0  # only there are logarithms taken: that of 0, and its power, take three times as long
    unit = np.sqrt(np.where(inside, squares, 0.0).max(1))
    unit[unit == 0.0] = 1.0
    first, second = 1.0 / unit, 1.0 / unit**2
    in_units = np.stack([first, second, second, first * second, second**2])
    wanted_1, wanted_2 = mean * first, power * second
    tilt = np.zeros((2, channels))
    logs = np.log(base, out=np.zeros_like(base), where=inside)
    # The logarithm of a mass is that of its base, and the product of (a, b, 1, -log z) of its channel, in
    # units, with (means, squares, log g, 1) of its bin.
    of_channels = np.tile([0.0, 0.0, 1.0, 0.0], (channels, 1))
    of_bins = np.stack([means, squares, np.zeros(bins), np.ones(bins)])
    mass = base.copy()
    found = np.empty((moments.shape[1], channels))  # the sum of each row of the mass, then its moments
    blocks = [slice(at, at + CHANNELS_AT_ONCE) for at in range(0, channels, CHANNELS_AT_ONCE)]

    def newton_step() -> Floats:
        """Return H^-1 (wanted - found) for each row, (2, n), shortened if it is long."""
        mean_1, mean_2, square_1, both, square_2 = found[1:] / found[0] * in_units
        h_11, h_22 = square_1 - mean_1 * mean_1, square_2 - mean_2 * mean_2
        h_12 = both - mean_1 * mean_2
        ridge = 1e-9 + 1e-6 * (h_11 + h_22)
        h_11, h_22 = h_11 + ridge, h_22 + ridge
        g_1, g_2 = wanted_1 - mean_1, wanted_2 - mean_2
        determinant = h_11 * h_22 - h_12 * h_12
        step = np.stack([h_22 * g_1 - h_12 * g_2, h_11 * g_2 - h_12 * g_1]) / determinant
        length = np.abs(step).max(0)
        return np.asarray(step * np.minimum(1.0, MOST_STEP / np.maximum(length, 1e-300)))

    columns = histogram
    for _ in range(ROUNDS + 1):
        both = (columns > 0.0) & (histogram > 0.0)
        factors = np.divide(histogram, columns, out=np.ones_like(columns), where=both)
        of_bins[2] += np.log(factors)
        for block in blocks:
            found[:, block] = (mass[block] @ (moments * factors[:, None])).T
        moving = np.ones(channels, bool)
        for _ in range(STEPS):
            new = np.minimum(np.maximum(tilt + newton_step(), -MOST_TILT), MOST_TILT)
            still = moving & (np.abs(new - tilt).max(0) > LEAST_STEP)
            tilt[:, moving] = new[:, moving]
            of_channels[:, :2] = (tilt * in_units[:2]).T
            for block in (block for block in blocks if moving[block].any()):
                of_channels[block, 3] -= np.log(found[0, block])
                rows = of_channels[block] @ of_bins
                rows += logs[block]
                np.exp(rows, out=mass[block], where=inside[block])
                found[:, block] = (mass[block] @ moments).T
            moving = still
        columns = np.zeros_like(columns)
        for block in blocks:
            columns += (1.0 / found[0, block]) @ mass[block] / channels
    return np.asarray(mass / found[0][:, None])


def equalized(tensor: TensorProfile, channels: ChannelDensity, scales: Floats) -> TensorProfile:
    """Return the profile of a tensor whose channels are divided by scales; its histogram is estimated."""
    low = float((channels.minimum / scales).min())
    high = float((channels.maximum / scales).max())
    edges = np.linspace(low, high, BINS + 1)
    counts = np.zeros(BINS)
    for scale in distinct(scales):
        mass = channels.mass[scales == scale].sum(0)
        counts += _rebinned(channels, scale, mass, edges)
    total = counts.sum()
    if total > 0.0 and high > low:
        histogram = EqualBins(low, high, counts * (tensor.count / total))
    else:
        histogram = EqualBins(low, high, np.array([float(tensor.count)]))
    return replace(tensor, minimum=low, maximum=high, histogram=histogram, channels=None)


def _rebinned(channels: ChannelDensity, scale: float, mass: Floats, edges: Floats) -> Floats:
    """Return the mass of the divided bins in equal bins; mass outside goes into the outermost ones."""
    low, high = channels.low / scale, channels.high / scale
    is_wide = high > low
    order = np.argsort(low[is_wide])
    starts, ends, part = low[is_wide][order], high[is_wide][order], mass[is_wide][order]
    knots = np.stack([starts, ends], 1).reshape(-1)
    done = np.cumsum(part)
    below = np.stack([done - part, done], 1).reshape(-1)
    cumulated = np.interp(edges, knots, below) if knots.size else np.zeros(edges.size)
    cumulated[0], cumulated[-1] = 0.0, done[-1] if done.size else 0.0
    rebinned = np.diff(cumulated)
    places = np.clip(np.searchsorted(edges, low[~is_wide], side="right") - 1, 0, rebinned.size - 1)
    np.add.at(rebinned, places, mass[~is_wide])
    return np.asarray(rebinned)


def channel_mse(channels: ChannelDensity, scales: Floats, params: QuantParams) -> Floats:
    """Return the expected squared error of each equalized channel, in the unit of the equalized tensor."""
    scale, zero_point, qtype = params.tensor_scale, params.tensor_zero_point, params.qtype
    first, last = qtype.low - zero_point, qtype.high - zero_point
    errors = np.zeros(scales.size)
    for divisor in distinct(scales):
        own = scales == divisor
        low, high = channels.low / divisor / scale, channels.high / divisor / scale
        width = high - low
        at_point = np.square(low - nearest(low, first, last, qtype))
        integral = _error_integral(high, first, last, qtype) - _error_integral(low, first, last, qtype)
        errors[own] = channels.mass[own] @ np.divide(integral, width, out=at_point, where=width > 1e-6)
    return errors * scale**2


def _error_integral(steps: Floats, first: float, last: float, qtype: QuantType) -> Floats:
    """Return an antiderivative of the squared error of rounding and saturating, in units of the scale."""
    quantized = nearest(steps, first, last, qtype)
    return np.asarray(cubes_up_to(quantized, qtype) / 12.0 + cubed(steps - quantized) / 3.0)


def cubed(values: Floats) -> Floats:
    """Return the cubes of values: numpy's power takes 200 times as long as two products."""
    return values * values * values


class ChannelDensities:
    """The densities of the channels of each tensor of a profile, estimated on first use."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._by_name: dict[str, ChannelDensity | None] = {}

    def __contains__(self, name: object) -> bool:
        """Whether the profile has this tensor."""
        return name in self._profile

    def of(self, name: str) -> ChannelDensity | None:
        """Return `channel_density` of a tensor."""
        if name not in self._by_name:
            self._by_name[name] = channel_density(self._profile[name])
        return self._by_name[name]
