"""How the values of each channel are spread, reckoned from the histogram of the whole tensor.

A profile has one histogram for a tensor, and of each channel its smallest and largest value, mean and mean
square. Among all spreads of the channels that agree with these, the one is taken that assumes least (least
relative entropy: Csiszar, "I-divergence geometry", 1975): a density that all channels share, cut to the
channel's range and tilted by exp(a x + b x^2). The shared density is such that the channels together make the
histogram; it and the tilts are found in turns. From the spreads follows what the tensor holds when its
channels are divided by factors; ranges stay exact, the histogram is an estimate.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ...profiles.records.histogram import BINS, EqualBins
from ...profiles.records.profile import Profile, TensorProfile
from .affine import QuantParams
from .density import density

Floats = npt.NDArray[np.float64]

COARSE = 96
"""Bins on either side of zero in which channels are spread; they widen with the distance from zero."""

FINEST = 1e-4
"""Width of the innermost bins as a share of the tensor's largest magnitude."""

ROUNDS, STEPS = 8, 4
"""Turns of the shared density and the tilts, and Newton steps of the tilts in each."""


@dataclass(frozen=True, eq=False)
class Spread:
    """How the values of each of n channels are spread over b bins.

    Attributes:
        low, high: ends of the bins, (b,); equal where a bin is a single value.
        mass: share of the channel's values in each bin, (n, b); rows sum to 1.
        minimum, maximum: of each channel, (n,).
        power: mean square of each channel, (n,).
    """

    low: Floats
    high: Floats
    mass: Floats
    minimum: Floats
    maximum: Floats
    power: Floats


def spread_of(tensor: TensorProfile) -> Spread | None:
    """Return how the channels of a tensor are spread; None without records of channels or without values."""
    channels = tensor.channels
    if channels is None or tensor.count == 0 or tensor.histogram.total == 0:
        return None
    low, high, prior = _coarse(tensor)
    size = np.maximum(np.abs(channels.minimum), np.abs(channels.maximum))
    unit = np.where(size > 0.0, size, 1.0)[:, None]
    # Share of each bin that lies within the channel's range; a single value counts in full.
    wide = np.where(high > low, high - low, 1.0)
    inside = (np.minimum(high, channels.maximum[:, None]) - np.maximum(low, channels.minimum[:, None])) / wide
    point = (low >= channels.minimum[:, None]) & (high <= channels.maximum[:, None])
    share = np.where(high > low, np.clip(inside, 0.0, 1.0), point)
    base = prior * share
    empty = base.sum(1) <= 0.0
    if empty.any():  # a range without a bin of the histogram: the bin that is nearest to the mean
        nearest = np.abs((low + high) / 2.0 - channels.mean[empty, None]).argmin(1)
        base[np.flatnonzero(empty), nearest] = 1.0
    first = (low + high) / 2.0 / unit
    second = (low * low + low * high + high * high) / 3.0 / unit**2
    mean, power = channels.mean / unit[:, 0], channels.power / unit[:, 0] ** 2
    mass = _tilted(base, first, second, mean, power)
    return Spread(low, high, mass, channels.minimum, channels.maximum, channels.power)


def _coarse(tensor: TensorProfile) -> tuple[Floats, Floats, Floats]:
    """Return ends and mass of bins that are narrow near zero, where the small channels live."""
    seen = density(tensor)
    largest = max(abs(tensor.minimum), abs(tensor.maximum))
    side = largest * FINEST * (np.expm1(np.linspace(0.0, np.log1p(1.0 / FINEST), COARSE + 1)))
    grid = np.concatenate([-side[:0:-1], side])
    cut = np.clip(grid, tensor.minimum, tensor.maximum)
    edges = np.unique(cut)
    below = np.append(0.0, np.cumsum(seen.mass))
    keep = np.append(True, np.diff(seen.edges) > 0.0)
    mass = np.diff(np.interp(edges, seen.edges[keep], below[keep]))
    points = seen.point_mass > 0.0
    low = np.concatenate([edges[:-1], seen.points[points]])
    high = np.concatenate([edges[1:], seen.points[points]])
    mass = np.concatenate([mass, seen.point_mass[points]])
    some = mass > 0.0
    return low[some], high[some], mass[some]


def _tilted(base: Floats, first: Floats, second: Floats, mean: Floats, power: Floats) -> Floats:
    """Return base * g * exp(a first + b second) in each row, with the wanted means of `first` and `second`.

    Damped Newton steps on the convex dual, all rows at once; the factors g of the bins are scaled in between
    until the columns add up to those of `base` (iterative proportional fitting). A row whose moments no tilt
    can meet (all its values in one bin) ends near them.
    """
    tilt = np.zeros((base.shape[0], 2))
    logs = np.log(base, where=base > 0.0, out=np.full_like(base, -np.inf))
    wanted = base.max(0)  # the histogram, where any channel can be
    wanted = wanted / wanted.sum()
    mass, spare = np.empty_like(base), np.empty_like(base)
    for _ in range(ROUNDS):
        for _ in range(STEPS):
            _spread_out(logs, tilt, first, second, mass=mass, spare=spare)
            tilt = np.clip(tilt + _newton(mass, first, second, mean, power, spare=spare), -1e4, 1e4)
        _spread_out(logs, tilt, first, second, mass=mass, spare=spare)
        made = mass.mean(0)
        both = (made > 0.0) & (wanted > 0.0)
        logs += np.log(np.divide(wanted, made, out=np.ones_like(made), where=both))
    for _ in range(STEPS):
        _spread_out(logs, tilt, first, second, mass=mass, spare=spare)
        tilt = np.clip(tilt + _newton(mass, first, second, mean, power, spare=spare), -1e4, 1e4)
    _spread_out(logs, tilt, first, second, mass=mass, spare=spare)
    return mass


def _newton(
    mass: Floats, first: Floats, second: Floats, mean: Floats, power: Floats, *, spare: Floats
) -> Floats:
    """Return a step of the tilts, shortened where it is long; `spare` is written over."""
    part = np.multiply(mass, first, out=spare)
    m1 = part.sum(1)
    part *= first
    h11 = part.sum(1) - m1 * m1
    part = np.multiply(mass, second, out=spare)
    m2 = part.sum(1)
    part *= second
    h22 = part.sum(1) - m2 * m2
    part = np.multiply(mass, first, out=spare)
    part *= second
    h12 = part.sum(1) - m1 * m2
    g1, g2 = mean - m1, power - m2
    ridge = 1e-9 + 1e-6 * (h11 + h22)
    h11, h22 = h11 + ridge, h22 + ridge
    det = h11 * h22 - h12 * h12
    step = np.stack([(h22 * g1 - h12 * g2) / det, (h11 * g2 - h12 * g1) / det], 1)
    length = np.abs(step).max(1, keepdims=True)
    return np.asarray(step * np.minimum(1.0, 8.0 / np.maximum(length, 1e-300)))


def _spread_out(
    logs: Floats, tilt: Floats, first: Floats, second: Floats, *, mass: Floats, spare: Floats
) -> None:
    """Fill `mass` with exp(logs + a first + b second), its rows adding up to 1; `spare` is written over.

    The arrays are large, and made once for all turns: fresh memory would cost more than the arithmetic.
    """
    np.multiply(tilt[:, :1], first, out=mass)
    mass += logs
    mass += np.multiply(tilt[:, 1:], second, out=spare)
    mass -= mass.max(1, keepdims=True)
    np.exp(mass, out=mass)
    mass /= mass.sum(1, keepdims=True)


def divided(tensor: TensorProfile, spread: Spread, divisors: Floats) -> TensorProfile:
    """Return the profile of a tensor whose channels are divided: exact range, estimated histogram."""
    channels = tensor.channels
    assert channels is not None
    low = float((channels.minimum / divisors).min())
    high = float((channels.maximum / divisors).max())
    edges = np.linspace(low, high, BINS + 1)
    counts = np.zeros(BINS)
    for divisor in np.unique(divisors):
        mass = spread.mass[divisors == divisor].sum(0)
        counts += _rebinned(spread, divisor, mass, edges)
    total = counts.sum()
    if total > 0.0 and high > low:
        histogram = EqualBins(low, high, counts * (tensor.count / total))
    else:
        histogram = EqualBins(low, high, np.array([float(tensor.count)]))
    return replace(tensor, minimum=low, maximum=high, histogram=histogram, channels=None)


def _rebinned(spread: Spread, divisor: float, mass: Floats, edges: Floats) -> Floats:
    """Return the mass of the divided bins in equal bins; what sticks out goes into the outermost ones."""
    low, high = spread.low / divisor, spread.high / divisor
    wide = high > low
    order = np.argsort(low[wide])
    starts, ends, part = low[wide][order], high[wide][order], mass[wide][order]
    knots = np.stack([starts, ends], 1).reshape(-1)
    done = np.cumsum(part)
    below = np.stack([done - part, done], 1).reshape(-1)
    at = np.interp(edges, knots, below) if knots.size else np.zeros(edges.size)
    at[0], at[-1] = 0.0, done[-1] if done.size else 0.0
    found = np.diff(at)
    places = np.clip(np.searchsorted(edges, low[~wide], side="right") - 1, 0, found.size - 1)
    np.add.at(found, places, mass[~wide])
    return np.asarray(found)


def channel_errors(spread: Spread, divisors: Floats, params: QuantParams) -> Floats:
    """Return the expected squared error of each divided channel, in the unit of the divided tensor."""
    scale, zero_point = params.scale[0], params.zero_point[0]
    first, last = params.qtype.low - zero_point, params.qtype.high - zero_point
    errors = np.zeros(divisors.size)
    for divisor in np.unique(divisors):
        own = divisors == divisor
        low, high = spread.low / divisor / scale, spread.high / divisor / scale
        width = high - low
        at = np.square(low - np.clip(np.rint(low), first, last))
        mean = np.divide(
            _integral(high, first, last) - _integral(low, first, last), width, out=at, where=width > 1e-6
        )
        errors[own] = spread.mass[own] @ mean
    return errors * scale**2


def _integral(steps: Floats, first: int, last: int) -> Floats:
    """Return an antiderivative of the squared error of rounding and saturating, in steps (see `noise`)."""
    code = np.clip(np.rint(steps), first, last)
    return np.asarray(code / 12.0 + (steps - code) ** 3 / 3.0)


class Spreads:
    """How the channels of each tensor of a profile are spread, reckoned when it is first asked for."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._known: dict[str, Spread | None] = {}

    def of(self, name: str) -> Spread | None:
        """Return `spread_of` of a tensor."""
        if name not in self._known:
            self._known[name] = spread_of(self._profile[name])
        return self._known[name]
