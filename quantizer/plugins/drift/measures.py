"""Two profiles compared tensor by tensor: have the distributions of the activations changed?

Every measure is computed from the two profiles. "Width" below is that of a range extended to 0, because
quantized types always represent 0: max(maximum, 0) - min(minimum, 0).

==============  ==========================================================================================
range_growth    width of the union of both ranges over the width of OLD's range: 1 if NEW stays within it
clipping_rate   fraction of NEW's elements that OLD's parameters would saturate (`covered`)
js_distance     Jensen-Shannon distance, 0 (equal) to 1 (nothing in common): the square root of the divergence
                of Lin, "Divergence measures based on the Shannon entropy" (IEEE Transactions on Information
                Theory 37, 1991), in bits, which is a metric (Endres and Schindelin, 2003); of the histograms,
                or of a channel (`channel_distances`) if that is larger
non_finite      fraction of NEW's elements that are NaN or infinite, which no other measure counts
==============  ==========================================================================================

They measure different things. One outlier among millions only changes range_growth. The Jensen-Shannon
distance reacts to every change of shape, but not to how far elements moved.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ....profiles.base.errors import ProfileError
from ....profiles.base.findings import Code, Finding
from ....profiles.base.tuned import tuned
from ....profiles.records.channel_statistics import Channels
from ....profiles.records.histogram import Histogram, bin_exponent
from ....profiles.records.profile import Profile, TensorProfile, describe, is_exact, source_of
from ...numerics.clipping import Cover, share_outside

CHANCE = tuned(
    2.0,
    figure="1, 2, 3: 5, 0.8, 0 % of 400 pairs of 16 random rows have a column beyond 0.3, and 98, 95, 92 % "
    "of the tripled columns of 284 rows are beyond it",
    chosen_on="a table of 30 columns (breast cancer); more: DECISIONS.md, 108",
)
"""Standard errors of the difference of two means that are attributed to chance."""


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
        non_finite: 0 to 1.
        channel: the channel whose distance is `js_distance`, from 0; None if that is of the histograms.
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
    non_finite: float
    channel: int | None = None

    @property
    def is_empty(self) -> bool:
        """Whether OLD has elements and NEW does not, so that only their absence was measured."""
        return self.clipping_rate is None

    @property
    def added_clipping(self) -> float | None:
        """How much higher the clipping rate of NEW is than the baseline: the change that a gate is about."""
        return None if self.clipping_rate is None else max(self.clipping_rate - self.baseline_clipping, 0.0)


def check_comparable(
    old: Profile, new: Profile, names: tuple[str, str] = ("OLD", "NEW")
) -> tuple[Finding, ...]:
    """Return the findings about a pair of profiles; ProfileError if they cannot be compared."""
    for where, profile in zip(names, (old, new), strict=True):
        if not is_exact(profile):
            raise ProfileError(
                f"{where}: comes from {source_of(profile)}, which has no exact histograms to compare; "
                "make both profiles with 'qprof dump-profile'"
            )
    findings = []
    pair = f"{describe(old.model)} and {describe(new.model)}"
    if (old.model.structure, old.model.opset) != (new.model.structure, new.model.opset):
        raise ProfileError(
            f"{names[1]}: is of another model than {names[0]}: {pair}; give profiles of one model"
        )
    if old.model.weights != new.model.weights:
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


def tensor_drift(
    name: str, old: TensorProfile, new: TensorProfile, cover: Cover, samples: tuple[int, int]
) -> TensorDrift:
    """Return all measures of one tensor; OLD's parameters do not saturate in `cover`; `samples` of both."""
    assert isinstance(old.histogram, Histogram)
    assert isinstance(new.histogram, Histogram)
    clipped: float | None = share_outside(new, cover)
    distance: float | None = 0.0
    channel = None
    if bool(old.count) != bool(new.count):
        distance = None
        clipped = clipped if new.count else None
    elif old.count:
        finest = bin_exponent(*_extended(old))
        distance = jensen_shannon(*common_bins(old.histogram, new.histogram, finest))
        distances = channel_distances(old.channels, new.channels, samples)
        if (farthest := float(distances.max(initial=0.0))) > distance:
            distance, channel = farthest, int(distances.argmax())
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
        non_finite=non_finite / (new.count + non_finite) if non_finite else 0.0,
        channel=channel,
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


def common_bins(
    old: Histogram, new: Histogram, finest: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the counts of both, neither empty, in the bins of the merged histogram.

    Bins are no narrower than 2**finest, `bin_exponent` of OLD's range extended to 0: values that are closer
    are equal when they are quantized.
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


def channel_distances(
    old: Channels | None, new: Channels | None, samples: tuple[int, int]
) -> npt.NDArray[np.float64]:
    """Return the least Jensen-Shannon distance that means and variances of each channel permit, float64 (n,).

    With p and q the densities, m their mean and t = (p - q) / (p + q), the divergence is the mean over m of
    1 - H((1 + t) / 2), H the binary entropy in bits, which is convex in t**2. By Cauchy-Schwarz the mean of
    t**2 is at least d**2 / (2 v + 2 w + d**2), with v and w the variances and d the difference of the means,
    less `CHANCE` standard errors. Elements of a sample are alike: no more count than there are samples.
    """
    if old is None or new is None or (old.axis, old.count.size) != (new.axis, new.count.size):
        return np.zeros(0)
    with np.errstate(over="ignore", invalid="ignore"):
        # No variance is below the rounding of the squares.
        v, w = (np.maximum(one.power - one.mean**2, 2.0**-15 * one.magnitude**2) for one in (old, new))
        n, m = (np.clip(one.count, 1, most) for one, most in zip((old, new), samples, strict=True))
        moved = np.maximum(np.abs(new.mean - old.mean) - CHANCE * np.sqrt(v / n + w / m), 0.0)
        t = np.sqrt(moved**2 / np.maximum(2.0 * (v + w) + moved**2, np.finfo(np.float64).tiny))
    t = np.where((old.count > 0) & (new.count > 0) & np.isfinite(t), t, 0.0)
    shares = np.stack([1.0 + t, 1.0 - t]) / 2.0
    entropy = -(shares * np.log2(np.maximum(shares, np.finfo(np.float64).tiny))).sum(axis=0)
    distances: npt.NDArray[np.float64] = np.sqrt(np.maximum(1.0 - entropy, 0.0))
    return distances


def _extended(tensor: TensorProfile) -> Cover:
    """Return the range of a tensor, extended to 0, which every quantized type represents."""
    return min(tensor.minimum, 0.0), max(tensor.maximum, 0.0)
