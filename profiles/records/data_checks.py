"""Findings on the data of a profile: the kind of inputs, samples that stand out, ranges that still grow.
Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

import numpy as np

from ..base.findings import Code, Finding
from .profile import FLOAT_DTYPES, Extremes, InputProfile, Profile, Sizes, TensorProfile

GROWTH_TO_REPORT = 0.05
"""Share by which as many samples again may widen the median range: a twentieth costs 0.4 dB."""

FEW_SAMPLES = 8
"""Fewer samples are few: a profile of 8 can be made in seconds, and of fewer nothing can be told."""


def data_findings(profile: Profile) -> tuple[Finding, ...]:
    """Return the findings about the data of a profile; none if it has no record of runs."""
    if not profile.runs:
        return ()
    findings = []

    # Inputs that do not look as the model expects them.
    for name, record in profile.inputs.items():
        if looks_like_pixels(record):
            sentence = f"input '{name}' looks like pixels 0..255, and the model does not begin by scaling it"
            findings.append(Finding(Code.PIXELS, sentence, name, remedy="did you forget to normalise?"))
        if looks_channels_last(record):
            sentence = f"input '{name}' looks like NHWC, and the model does not begin by moving its axes"
            findings.append(Finding(Code.CHANNELS_LAST, sentence, name, remedy="should it be NCHW?"))
        if is_constant_input(record, profile.runs, len(profile.inputs) == 1):
            value = record.tensor.minimum
            sentence = f"input '{name}' is {value:.6g} everywhere, in every sample"
            remedy = "will the model be given that?"
            findings.append(Finding(Code.CONSTANT_INPUT, sentence, name, {"value": value}, remedy))
    zero = [name for name, record in profile.inputs.items() if is_unused_state(record, profile.runs)]
    if zero and len(zero) < len(profile.inputs):
        more = f" and {len(zero) - 1} more" if len(zero) > 1 else ""
        sentence = f"input '{zero[0]}'{more}: zero or empty in all samples"
        remedy = (
            "if it is a state that the model gives back, feed it back, with the line "
            f"'state: {{OUTPUT: {zero[0]}}}' in a recipe"
        )
        findings.append(Finding(Code.ZERO_STATE, sentence, zero[0], {"inputs": len(zero)}, remedy))

    # Samples that are equal, or few.
    equal = equal_runs(profile)
    if equal:
        sentence = f"all {equal} samples are equal"
        remedy = "give samples that differ, as real data do"
        findings.append(Finding(Code.EQUAL_SAMPLES, sentence, "", {"samples": equal}, remedy))
    elif profile.data.samples < FEW_SAMPLES:
        count = profile.data.samples
        sentence = (
            f"{count} sample{' is' if count == 1 else 's are'} few: ranges of so few are seldom those of more"
        )
        findings.append(Finding(Code.FEW_SAMPLES, sentence, "", {"samples": count}, "give at least 32"))

    # Ranges that more samples would widen, and samples that stand out, each of which is named once.
    unusual = outliers(profile, profile.runs)
    if profile.runs >= MIN_RUNS and not equal:
        share = median_growth(profile)
        if share > GROWTH_TO_REPORT:
            more_samples = max(profile.data.samples, profile.runs)
            sentence = (
                f"ranges are still growing: {more_samples} more samples would widen them by about "
                f"{100 * share:.2g} %"
            )
            figures = {"samples": more_samples, "growth": share}
            findings.append(Finding(Code.FEW_SAMPLES, sentence, "", figures, "add samples"))
    for outlier in unusual:
        figures = {"limits": outlier.ends, "of": outlier.of}
        findings.append(
            Finding(Code.OUTLIER, outlier.sentence, outlier.sample, figures, "check it, or leave it out")
        )
    return tuple(findings)


def equal_runs(profile: Profile) -> int:
    """Return the number of samples (or batches) if all are equal, else 0.

    Extremes have a sample once: then the digest of the data is a multiple of its digest.
    """
    tensors = [*profile.values(), *(record.tensor for record in profile.inputs.values())]
    ends = [end for t in tensors if t.extremes for end in (t.extremes.lowest, t.extremes.highest)]
    digests = {extreme.digest for end in ends for extreme in end}
    if profile.runs < 2 or len(digests) != 1:
        return 0
    (digest,) = digests
    total = profile.runs * int(digest, 16) % (1 << 128)
    return profile.runs if total == int(profile.data.digest, 16) else 0


# Inputs ----------------------------------------------------------------------------------------------------

_IMAGE_CHANNELS = (1, 3, 4)
"""Of grey, colour and colour with transparency."""

_MIN_IMAGE_SIDE = 8
"""Least height and width of what is taken for an image."""


@dataclass(frozen=True)
class InputCheck:
    """The record of an input's values, checked.

    Attributes:
        name: of the input.
        dtype: its element type, as in a profile.
        sizes: smallest and largest size of each dimension; None where ranks differ.
        elements: number of finite elements; 0 for strings.
        minimum, maximum: exact; None where there are no elements.
        mean, deviation: of the elements; deviation is the standard deviation. See `mean_and_deviation`.
    """

    name: str
    dtype: str
    sizes: Sizes | None
    elements: int
    minimum: float | None
    maximum: float | None
    mean: float | None
    deviation: float | None

    @property
    def sentence(self) -> str:
        """The check in a line."""
        sizes = (str(low) if low == high else f"{low}-{high}" for low, high in self.sizes or ())
        shape = "x".join(sizes) or ("?" if self.sizes is None else "scalar")
        what = f"input '{self.name}': {self.dtype} {shape}"
        if self.minimum is None:
            return what
        if self.minimum == self.maximum:
            return f"{what}, always {self.minimum:.6g}"
        return (
            f"{what}, range {self.minimum:.6g} to {self.maximum:.6g}, mean {self.mean:.3g}, "
            f"standard deviation {self.deviation:.3g}"
        )


def check_input(name: str, record: InputProfile) -> InputCheck:
    """Return the check of an input's record."""
    tensor = record.tensor
    if not tensor.count:
        return InputCheck(name, tensor.dtype, record.sizes, 0, None, None, None, None)
    mean, deviation = mean_and_deviation(tensor)
    ends = tensor.minimum, tensor.maximum
    return InputCheck(name, tensor.dtype, record.sizes, tensor.count, *ends, mean, deviation)


def mean_and_deviation(tensor: TensorProfile) -> tuple[float, float]:
    """Return mean and standard deviation of a tensor that has elements, from its histogram.

    A bin's elements count as evenly spread, exact to a 2000th of the range; whole numbers are exact to
    rounding.
    """
    edges = np.clip(tensor.histogram.edges(), tensor.minimum, tensor.maximum)
    low, high = edges[:-1], edges[1:]
    share = tensor.histogram.counts / tensor.histogram.counts.sum()
    if whole_numbers(tensor):
        low = np.ceil(low)
        high = np.maximum(low, np.ceil(high) - 1.0)
        high[-1] = max(float(low[-1]), tensor.maximum)
    middle = (low + high) / 2.0
    mean = float(share @ middle)
    inside = 0.0 if whole_numbers(tensor) else float(share @ np.square(high - low)) / 12.0
    return mean, math.sqrt(float(share @ np.square(middle - mean)) + inside)


def whole_numbers(tensor: TensorProfile) -> bool:
    """Return whether all elements are whole numbers, as far as bins of at most a quarter show."""
    if tensor.dtype not in FLOAT_DTYPES:
        return True
    exponent = getattr(tensor.histogram, "exponent", 0)
    if exponent > -2 or not (tensor.minimum.is_integer() and tensor.maximum.is_integer()):
        return False
    if tensor.minimum == tensor.maximum:
        return True
    indices = getattr(tensor.histogram, "first", 0) + np.flatnonzero(tensor.histogram.counts)
    return exponent > -40 and bool((indices % (1 << -exponent) == 0).all())


def looks_like_pixels(record: InputProfile) -> bool:
    """Return whether a float input has pixels from 0 to 255 that the model does not scale.

    Networks are trained on scaled pixels: values beyond 16, and none below 0, do not come up.
    """
    tensor = record.tensor
    if record.normalised or tensor.dtype not in FLOAT_DTYPES or not tensor.count:
        return False
    sizes = record.sizes
    if sizes is None or len(sizes) not in (3, 4):
        return False
    if not (_has_channels(sizes, len(sizes) - 3) or _has_channels(sizes, len(sizes) - 1)):
        return False
    if tensor.minimum < 0.0 or tensor.maximum > 255.0:
        return False
    return tensor.maximum > 127.0 or (tensor.maximum >= 16.0 and whole_numbers(tensor))


def looks_channels_last(record: InputProfile) -> bool:
    """Return whether an image has its channels last, and the model leaves these dimensions free."""
    sizes, shape = record.sizes, record.tensor.shape
    if record.transposed or sizes is None or len(sizes) != 4 or shape is None or len(shape) != 4:
        return False
    free = shape[1] is None and shape[3] is None
    return free and _has_channels(sizes, 3) and not _has_channels(sizes, 1)


def is_constant_input(record: InputProfile, runs: int, alone: bool) -> bool:
    """Return whether a float input has one value everywhere; 0, as of a state, only if it is alone."""
    tensor = record.tensor
    if tensor.dtype not in FLOAT_DTYPES or tensor.count <= runs or tensor.minimum != tensor.maximum:
        return False
    return alone or tensor.minimum != 0.0


def is_unused_state(record: InputProfile, runs: int) -> bool:
    """Return whether a float input was zero or empty in all samples, as a state at its start."""
    tensor = record.tensor
    if tensor.dtype not in FLOAT_DTYPES or record.sizes is None:
        return False
    empty = not tensor.count and any(high == 0 for _, high in record.sizes)
    return empty or (tensor.count > runs and tensor.minimum == tensor.maximum == 0.0)


def _has_channels(sizes: Sizes, axis: int) -> bool:
    """Whether an axis counts channels and the other two of an image are long enough."""
    low, high = sizes[axis]
    others = [size for at, size in enumerate(sizes[-3:], len(sizes) - 3) if at != axis]
    return low == high and low in _IMAGE_CHANNELS and all(size[0] >= _MIN_IMAGE_SIDE for size in others)


# Samples that stand out, and ranges that still grow --------------------------------------------------------

# Samples are taken as exchangeable: drawn alike, in any order. So every figure is the same for every order of
# the samples.

OUTLIER_PROBABILITY = 0.01
"""A sample stands out where what it did is less probable than this, for all samples together."""

MIN_RUNS = 8
"""Samples from which on one of them can stand out, and ranges are said to grow."""

MAX_OUTLIERS = 3
"""Samples that stand out and are named."""


@dataclass(frozen=True)
class Widening:
    """By how much one sample alone widens the range of a tensor.

    Attributes:
        tensor: its name.
        sample: the name of the sample.
        digest: of the sample.
        share: of the width without it, which is extended to 0 as quantized types represent 0.
    """

    tensor: str
    sample: str
    digest: str
    share: float

    @property
    def text(self) -> str:
        """Which range is widened, and by how much."""
        by = (
            f"by {100.0 * self.share:.2g} %"
            if self.share < 0.995
            else f"to {1.0 + self.share:.2g} times its width"
        )
        return f"the range of '{self.tensor}' {'many times' if self.share >= 100.0 else by}"


@dataclass(frozen=True)
class Outlier:
    """A sample that holds the extremes of unusually many tensors.

    Attributes:
        sample: its name.
        ends: of how many ranges it made an end.
        expected: how many that are on average for a sample.
        of: of how many ends it is known which single sample made them.
        example: the tensor whose range it widens most; None where it widens none.
    """

    sample: str
    ends: int
    expected: float
    of: int
    example: Widening | None

    @property
    def sentence(self) -> str:
        """The outlier as a sentence."""
        text = (
            f"sample {self.sample} is unusual: it alone sets {self.ends} of {self.of} limits of ranges, "
            f"where about {max(1, round(self.expected))} would be usual"
        )
        if self.example is None:
            return text
        return f"{text}, and widens {self.example.text}"


def widening(name: str, extremes: Extremes | None) -> Widening | None:
    """Return how much the sample that widens the range of a tensor most widens it; None for none."""
    if extremes is None or len(extremes.lowest) < 2 or len(extremes.highest) < 2:
        return None
    whole = _width(extremes.lowest[0].value, extremes.highest[0].value)
    widenings = []
    for sample in (extremes.lowest[0], extremes.highest[0]):
        low, high = (
            end[1].value if end[0].digest == sample.digest else end[0].value
            for end in (extremes.lowest, extremes.highest)
        )
        width = _width(low, high)
        share = whole / width - 1.0 if width else math.inf
        if whole > width:
            widenings.append(Widening(name, sample.name, sample.digest, share))
    return max(widenings, key=lambda w: (w.share, w.digest), default=None)


def _width(low: float, high: float) -> float:
    """Return the width of a range that is extended to 0."""
    return max(high, 0.0) - min(low, 0.0)


def growth(extremes: Extremes | None) -> float | None:
    """Return the expected share by which twice the samples would widen a tensor's range; take many's median.

    Each of n + 1 exchangeable samples is the largest with probability 1 / (n + 1), then by the distance D of
    the two largest; so samples n + 1 to 2 n add about D ln 2 at each end.
    """
    if extremes is None or len(extremes.lowest) < 2 or len(extremes.highest) < 2:
        return None
    whole = _width(extremes.lowest[0].value, extremes.highest[0].value)
    inner = _width(extremes.lowest[1].value, extremes.highest[1].value)
    return (whole - inner) / whole * math.log(2.0) if whole else None


def median_growth(tensors: Mapping[str, TensorProfile]) -> float:
    """Return the median of `growth` over tensors; 0 if it is known for none."""
    shares = [share for t in tensors.values() if (share := growth(t.extremes)) is not None]
    return median(shares) if shares else 0.0


def outliers(tensors: Mapping[str, TensorProfile], runs: int) -> tuple[Outlier, ...]:
    """Return up to `MAX_OUTLIERS` samples that make the extremes of unusually many tensors, the worst first.

    Ends of ranges that one sample alone has made are binomial among `runs` samples. As a large value goes on
    through layers, counts are spread more: count and number of ends are divided by the dispersion of the
    other samples (quasi-binomial: McCullagh and Nelder, "Generalized Linear Models", 4.5). A sample stands
    out if its tail probability times the number of samples (Bonferroni) is below `OUTLIER_PROBABILITY`.
    """
    held = dict[str, list[str]]()
    names = dict[str, str]()
    for name, tensor in tensors.items():
        ends = () if tensor.extremes is None else (tensor.extremes.lowest, tensor.extremes.highest)
        for end in ends:
            if len(end) > 1 and end[0].value != end[1].value:
                held.setdefault(end[0].digest, []).append(name)
                names[end[0].digest] = end[0].name
    of = sum(map(len, held.values()))
    if runs < MIN_RUNS or not of:
        return ()
    counts = {digest: len(ends) for digest, ends in held.items()}
    unusual = []
    for digest, count in counts.items():
        others = [n for other, n in counts.items() if other != digest]
        mean = sum(others) / (runs - 1)
        squares = sum((n - mean) ** 2 for n in others) + (runs - 1 - len(others)) * mean**2
        dispersion = max(1.0, squares / (runs - 2) / mean) if mean else 1.0
        trials = round(of / dispersion)
        if runs * binomial_tail(trials, 1.0 / runs, math.ceil(count / dispersion)) < OUTLIER_PROBABILITY:
            unusual.append(digest)
    named = []
    for digest in sorted(unusual, key=lambda d: (-counts[d], d))[:MAX_OUTLIERS]:
        widenings = (widening(name, tensors[name].extremes) for name in dict.fromkeys(held[digest]))
        own = [w for w in widenings if w is not None and w.digest == digest]
        example = max(own, key=lambda w: w.share, default=None)
        named.append(Outlier(names[digest], counts[digest], of / runs, of, example))
    return tuple(named)


def binomial_tail(trials: int, chance: float, least: int) -> float:
    """Return the probability of at least `least` successes."""
    if least <= 0:
        return 1.0
    logs = (
        math.lgamma(trials + 1)
        - math.lgamma(k + 1)
        - math.lgamma(trials - k + 1)
        + k * math.log(chance)
        + (trials - k) * math.log1p(-chance)
        for k in range(least, trials + 1)
    )
    return min(1.0, math.fsum(map(math.exp, logs)))
