"""ConvTranspose as one Conv with an output channel for each phase, whose results are interleaved.

With stride s, result o of a ConvTranspose with weight w, kernel k and padding p before is, along one axis,
sum(x[i] * w[o + p - s * i]). Let o + p = s * q + r with phase r in 0..s-1: it is the sum over j of
x[q - j] * w[r + s * j], for each phase a convolution of x with its own ceil(k / s) weights. A Conv with s
times the output channels has all phases at each q ("sub-pixel convolution": Shi et al. 2016, "Is the
deconvolution layer the same as a convolutional layer?", arXiv:1609.07009). A kernel that the stride does not
divide is filled up with zeros.

Both compute the same sums of the same products, so both are exact in the same cases.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ...operators.graph import Node

MAX_PRODUCT_RATIO = 3.0
"""Products of the Conv for each of the ConvTranspose up to which int8 gains: one in int8 takes 0.0055 / 0.019
of one in float."""


@dataclass(frozen=True)
class SubPixelAxis:
    """How one spatial axis of a ConvTranspose is computed by a Conv and interleaving."""

    stride: int  # of the ConvTranspose; the number of phases
    taps: int  # size of the Conv's kernel
    zeros: tuple[int, int]  # zero weights before and after the kernel, which make it `stride * taps` long
    pads: tuple[int, int]  # padding of the Conv, before and after
    crop: tuple[int, int]  # interleaved results before the first and after the last one that is wanted

    @property
    def growth(self) -> int:
        """How much larger the Conv's result is than its input."""
        return sum(self.pads) - self.taps + 1


def _sub_pixel_axis(kernel: int, stride: int, pads: tuple[int, int], output_padding: int) -> SubPixelAxis:
    """Return how one axis of a ConvTranspose is computed; `pads` are those before and after.

    If they do not make the Conv's kernel longer, zeros before the kernel shift the phases, so that nothing
    has to be cropped before the first result.
    """
    taps, zeros = -(-kernel // stride), -pads[0] % stride
    if -(-(kernel + zeros) // stride) > taps:
        zeros = 0
    last = stride * taps - kernel - zeros
    before, after = pads[0] + zeros, pads[1] + last - output_padding
    # A Conv that reads taps - 1 zeros on both sides has all results; one zero less saves `stride` of them.
    first_pad, last_pad = (max(taps - 1 - size // stride, 0) for size in (before, after))
    crop = (before - stride * (taps - 1 - first_pad), after - stride * (taps - 1 - last_pad))
    return SubPixelAxis(stride, taps, (zeros, last), (first_pad, last_pad), crop)


@dataclass(frozen=True)
class SubPixel:
    """A ConvTranspose as a Conv, whose output channels are (group, phases by axis, channel of a group)."""

    groups: int
    channels: int  # output channels of the ConvTranspose in one group
    axes: tuple[SubPixelAxis, ...]  # the spatial ones

    @property
    def strides(self) -> tuple[int, ...]:
        """The number of phases along each axis."""
        return tuple(axis.stride for axis in self.axes)

    @property
    def phases(self) -> int:
        """The number of phases altogether."""
        return math.prod(self.strides)

    @property
    def kernel(self) -> tuple[int, ...]:
        """The shape of the Conv's kernel."""
        return tuple(axis.taps for axis in self.axes)

    @property
    def pads(self) -> tuple[int, ...]:
        """Attribute `pads` of the Conv."""
        return tuple(axis.pads[side] for side in (0, 1) for axis in self.axes)

    @property
    def crops(self) -> bool:
        """Whether interleaved results have to be cropped."""
        return any(any(axis.crop) for axis in self.axes)

    def weight(self, weight: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        """Return the Conv's weight [groups * phases * channels, inputs of a group, *kernel]."""
        zeros = [(0, 0), (0, 0), *(axis.zeros for axis in self.axes)]
        split = [size for axis in self.axes for size in (axis.taps, axis.stride)]
        padded = np.pad(weight, zeros).reshape(self.groups, -1, self.channels, *split)
        taps = [3 + 2 * index for index in range(len(self.axes))]
        order = (0, *(axis + 1 for axis in taps), 2, 1, *taps)
        flipped = np.flip(padded.transpose(order), tuple(range(-len(taps), 0)))
        return np.ascontiguousarray(flipped.reshape(-1, flipped.shape[-len(taps) - 1], *self.kernel))

    def repeat_per_phase(self, numbers: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        """Return one number for each output channel of the Conv from one for each of the ConvTranspose."""
        by_group = numbers.reshape(self.groups, 1, self.channels)
        return np.repeat(by_group, self.phases, axis=1).reshape(-1)


def sub_pixel_of(node: ir.Node | Node, weight_shape: tuple[int, ...]) -> SubPixel:
    """Return how a ConvTranspose with a weight [inputs, channels of a group, *kernel] becomes a Conv."""
    kernel = weight_shape[2:]
    count, attributes = len(kernel), node.attributes
    strides = attributes.get_ints("strides", (1,) * count)
    pads = attributes.get_ints("pads", (0,) * (2 * count))
    extra = attributes.get_ints("output_padding", (0,) * count)
    axes = (
        _sub_pixel_axis(kernel[i], strides[i], (pads[i], pads[count + i]), extra[i]) for i in range(count)
    )
    return SubPixel(attributes.get_int("group", 1), weight_shape[1], tuple(axes))


def sub_pixel_refusal(node: Node, regards_time: bool) -> str:
    """Return why a ConvTranspose is not written as a Conv of its phases, or "" if it can be."""
    weight = node.constant(1)
    if weight is None:
        return ""  # refused by the operator's own entry
    if any(dilation != 1 for dilation in node.attributes.get_ints("dilations", ())):
        return f"{node.op_type} with dilations is not written as Conv"
    if node.attributes.get_string("auto_pad", "NOTSET") not in ("NOTSET", "VALID") or (
        "output_shape" in node.attributes
    ):
        return f"{node.op_type} whose padding depends on its input's size is not written as Conv"
    form = sub_pixel_of(node, weight.shape)
    ratio = form.phases * math.prod(form.kernel) / math.prod(weight.shape[2:])
    if regards_time and ratio > MAX_PRODUCT_RATIO:
        return f"{node.op_type} with this kernel and stride has {ratio:.1f} times as many products as Conv"
    return ""
