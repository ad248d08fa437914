"""What an input was given, in a line (type, sizes, range, mean, spread), and what looks wrong. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .inputs import InputProfile, Sizes

if TYPE_CHECKING:
    from ..records.profile import TensorProfile

_FLOATS = ("float", "float16", "bfloat16", "double")
_CHANNELS = (1, 3, 4)
"""Of grey, colour and colour with transparency."""

_LEAST_SIDE = 8
"""Least height and width of what is taken for an image."""


@dataclass(frozen=True)
class InputCheck:
    """What an input was given.

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


def check_input(name: str, given: InputProfile) -> InputCheck:
    """Return what an input was given."""
    tensor = given.tensor
    if not tensor.count:
        return InputCheck(name, tensor.dtype, given.sizes, 0, None, None, None, None)
    mean, deviation = mean_and_deviation(tensor)
    ends = tensor.minimum, tensor.maximum
    return InputCheck(name, tensor.dtype, given.sizes, tensor.count, *ends, mean, deviation)


def mean_and_deviation(tensor: TensorProfile) -> tuple[float, float]:
    """Return mean and standard deviation of a tensor that has elements, from its histogram.

    A histogram is the same whatever the order of the samples, and so are these. A bin is at most a 999th of
    the range wide and its elements are taken as evenly spread in it, so that both are exact to about a
    2000th of the range; where all elements are whole numbers and a bin has one of them, exact to rounding.
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
    """Whether all elements are whole numbers, as far as bins of at most a quarter tell."""
    if tensor.dtype not in _FLOATS:
        return True
    exponent = getattr(tensor.histogram, "exponent", 0)
    if exponent > -2 or not (tensor.minimum.is_integer() and tensor.maximum.is_integer()):
        return False
    if tensor.minimum == tensor.maximum:
        return True
    indices = getattr(tensor.histogram, "first", 0) + np.flatnonzero(tensor.histogram.counts)
    return exponent > -40 and bool((indices % (1 << -exponent) == 0).all())


# Hints -----------------------------------------------------------------------------------------------------


def input_hints(name: str, given: InputProfile, runs: int, alone: bool) -> Iterator[tuple[str, str]]:
    """Yield what looks wrong with an input: a code, and a sentence with what to do.

    Args:
        name: of the input.
        given: its record.
        runs: how many times the model ran.
        alone: whether the model has no other input.
    """
    if looks_like_pixels(given):
        yield (
            "pixels",
            f"input '{name}' looks like pixels 0..255, and the model does not begin by scaling it: did you "
            "forget to normalise?",
        )
    if looks_channels_last(given):
        yield (
            "channels-last",
            f"input '{name}' looks like NHWC, and the model does not begin by moving its axes: should it be "
            "NCHW?",
        )
    if is_constant(given, runs, alone):
        yield (
            "constant-input",
            f"input '{name}' is {given.tensor.minimum:.6g} everywhere, in every sample: will the model be "
            "given that?",
        )


def looks_like_pixels(given: InputProfile) -> bool:
    """Whether a float input holds pixels from 0 to 255 that the model does not scale.

    Networks for images are trained on pixels over 255 or with mean and deviation taken out, so that values
    beyond 16 do not come up. What is told from it has an image's sizes, no negative value (a mean was not
    taken out), nothing above 255, and either something above 127 or whole numbers alone up to 16 or more.
    Nothing is said where the model itself begins with Sub, Mul, Div or a normalisation by constants.
    """
    tensor = given.tensor
    if given.normalised or tensor.dtype not in _FLOATS or not tensor.count or not _is_image(given.sizes):
        return False
    if tensor.minimum < 0.0 or tensor.maximum > 255.0:
        return False
    return tensor.maximum > 127.0 or (tensor.maximum >= 16.0 and whole_numbers(tensor))


def looks_channels_last(given: InputProfile) -> bool:
    """Whether an image has its channels last where the model leaves all these dimensions free.

    Where the model fixes them, a sample of another layout is refused by its shape. A model that begins with
    Transpose takes such images on purpose.
    """
    sizes, shape = given.sizes, given.tensor.shape
    if given.transposed or sizes is None or len(sizes) != 4 or shape is None or len(shape) != 4:
        return False
    free = shape[1] is None and shape[3] is None
    return free and _has_channels(sizes, 3) and not _has_channels(sizes, 1)


def is_constant(given: InputProfile, runs: int, alone: bool) -> bool:
    """Whether a float input of more than one element has one value everywhere, in every sample.

    Integers often have, such as the mask of sentences without padding; so have scalars, such as a rate. 0 is
    where recurrent models begin: it counts only for an input that is the only one.
    """
    tensor = given.tensor
    if tensor.dtype not in _FLOATS or tensor.count <= runs or tensor.minimum != tensor.maximum:
        return False
    return alone or tensor.minimum != 0.0


def _is_image(sizes: Sizes | None) -> bool:
    if sizes is None or len(sizes) not in (3, 4):
        return False
    return _has_channels(sizes, len(sizes) - 3) or _has_channels(sizes, len(sizes) - 1)


def _has_channels(sizes: Sizes, axis: int) -> bool:
    """Whether an axis counts channels and the other two of an image are long enough."""
    low, high = sizes[axis]
    others = [size for at, size in enumerate(sizes[-3:], len(sizes) - 3) if at != axis]
    return low == high and low in _CHANNELS and all(size[0] >= _LEAST_SIDE for size in others)
