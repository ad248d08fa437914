"""Findings on the data of a profile: the kind of inputs, samples that are equal or few. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..base.findings import Code, Finding
from .profile import FLOAT_DTYPES, InputProfile, Profile, Sizes, TensorProfile

FEW_SAMPLES = 8
"""Fewer samples cause a finding: a profile of 8 is made in seconds, and fewer show nothing."""


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
            remedy = "give real samples"
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
    count = profile.data.samples
    if are_equal(profile):
        sentence = f"all {count} samples are equal"
        remedy = "give samples that differ, as real data do"
        findings.append(Finding(Code.EQUAL_SAMPLES, sentence, "", {"samples": count}, remedy))
    elif count < FEW_SAMPLES:
        sentence = (
            f"{count} sample{' is' if count == 1 else 's are'} few: ranges from so few samples are unreliable"
        )
        findings.append(Finding(Code.FEW_SAMPLES, sentence, "", {"samples": count}, "give at least 32"))
    return tuple(findings)


def are_equal(profile: Profile) -> bool:
    """Return whether all samples are equal: one is kept, and the digest of the data is a multiple of its."""
    if len(profile.check_samples) != 1 or profile.data.samples < 2:
        return False
    total = profile.data.samples * int(profile.check_samples[0], 16) % (1 << 128)
    return total == int(profile.data.digest, 16)


# Inputs ----------------------------------------------------------------------------------------------------

_IMAGE_CHANNELS = (1, 3, 4)
"""Channels of grey, colour, and colour with transparency."""

_MIN_IMAGE_SIDE = 8
"""Least height and width of an image."""


@dataclass(frozen=True)
class InputCheck:
    """The record of an input's values, checked.

    Attributes:
        name: of the input.
        dtype: its element type, as in a profile.
        sizes: smallest and largest size of each dimension; None if ranks differ.
        elements: number of finite elements; 0 for strings.
        minimum, maximum: exact; None without elements.
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
    """Return whether a float input has one value everywhere; 0 counts only if there is no other input."""
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
