"""A convolution of few channels as one of several neighbouring columns at once: width folded into channels.

With channels last, a tensor [N, H, W, C] can be read as [N, H, W / f, f C] without moving a byte. A
convolution with stride s computes f columns of its result from blocks of s f columns that it reads: result f
q + j is the sum over taps t of x[s f q + s j - p + d t] * w[t], a column of block q + floor((s j - p + d t) /
(s f)). So it is a convolution with stride 1 of f times the output channels, s f times the input channels, and
weights of zero for taps of other columns. Integer kernels copy windows for each pixel and compute at least 16
output channels, even if only 1 or 8 are needed: now there are fewer pixels, and all channels are used.

The sums are the same sums of the same products, and zeros: of integers they are equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ...operators.graph import Node

Array = npt.NDArray[np.generic]


@dataclass(frozen=True)
class _Axis:
    """The window of a convolution along one spatial axis."""

    taps: int
    stride: int
    dilation: int
    before: int  # zeros at the beginning
    after: int  # zeros at the end

    @property
    def is_alone(self) -> bool:
        """Whether each result reads the one value at the same place."""
        return self.taps == self.stride == 1 and not self.before and not self.after

    def result_of(self, size: int) -> int:
        """Return the size of the result."""
        covered = self.dilation * (self.taps - 1) + 1
        return (size + self.before + self.after - covered) // self.stride + 1


_ALONE = _Axis(1, 1, 1, 0, 0)
"""Stands for an axis that a sequence does not have."""


@dataclass(frozen=True)
class FoldedWidth:
    """A convolution with its width folded into channels."""

    fold: int  # columns of the result that are computed together
    along: _Axis  # the window along the width: the last axis with more than one element
    width: int  # columns that are read
    result: int  # columns of the result
    across: _Axis  # the window along the height, the axis before
    has_height: bool  # a sequence has none
    flat: int  # axes after the width, of one element

    @property
    def columns(self) -> int:
        """Columns that become the channels of one block."""
        return self.along.stride * self.fold

    def _column(self, result: int, tap: int) -> int:
        """Return the column that a tap reads for one of the first results, counted from the first block."""
        return self.along.stride * result - self.along.before + self.along.dilation * tap

    @property
    def first(self) -> int:
        """The first block that the first results read, negative before the first of all."""
        return self._column(0, 0) // self.columns

    @property
    def last(self) -> int:
        """The last block that the first results read."""
        return self._column(self.fold - 1, self.along.taps - 1) // self.columns

    @property
    def kernel(self) -> tuple[int, int]:
        """The shape of the kernel."""
        return self.across.taps, self.last - self.first + 1

    @property
    def blocks_read(self) -> int:
        """Blocks of columns, the last of them filled up with zeros."""
        return -(-self.width // self.columns)

    @property
    def blocks(self) -> int:
        """Blocks of the result, the last of them with columns that are not wanted."""
        return max(-(-self.result // self.fold), self.blocks_read - self.last)

    @property
    def filling(self) -> int:
        """Columns of zeros that fill up the last block that is read."""
        return self.blocks_read * self.columns - self.width

    @property
    def pads(self) -> tuple[int, int, int, int]:
        """Attribute `pads`."""
        after = self.blocks - self.blocks_read + self.last
        return self.across.before, -self.first, self.across.after, after

    def weight(self, weight: Array) -> Array:
        """Return the weight [fold * outputs, columns * inputs, *kernel] of [outputs, inputs, *its own]."""
        outputs, inputs = weight.shape[:2]
        own = weight.reshape(outputs, inputs, self.across.taps, self.along.taps)
        folded = np.zeros((self.fold, outputs, self.columns, inputs, *self.kernel), weight.dtype)
        for result in range(self.fold):
            for tap in range(self.along.taps):
                block, column = divmod(self._column(result, tap), self.columns)
                folded[result, :, column, :, :, block - self.first] = own[..., tap]
        return folded.reshape(self.fold * outputs, self.columns * inputs, *self.kernel)


def folded_width(
    node: ir.Node | Node, weight: Sequence[int], read: Sequence[int | None], fold: int
) -> FoldedWidth | str:
    """Return how a Conv is written with `fold` columns folded into channels, or why it is not."""
    attributes, count = node.attributes, len(weight) - 2
    if attributes.get_int("group", 1) != 1:
        return "it has groups"
    if len(read) != count + 2 or count < 1:
        return "the shape of its input is not known"
    if attributes.get_string("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        return "its padding depends on the size of its input"
    strides = attributes.get_ints("strides", (1,) * count)
    dilations = attributes.get_ints("dilations", (1,) * count)
    pads = attributes.get_ints("pads", (0,) * 2 * count)
    axes = [
        _Axis(weight[2 + axis], strides[axis], dilations[axis], pads[axis], pads[count + axis])
        for axis in range(count)
    ]
    sizes = list(read[2:])
    flat = 0
    while len(axes) > 1 and sizes[-1] == 1 and axes[-1].is_alone:
        axes, sizes, flat = axes[:-1], sizes[:-1], flat + 1
    if len(axes) > 2:
        return "its window has three dimensions"
    width = sizes[-1]
    if width is None:
        return "the width of its input is not known"
    result = axes[-1].result_of(width)
    if not 1 <= fold <= result:
        return f"its result has {max(result, 0)} columns"
    across = axes[0] if len(axes) > 1 else _ALONE
    return FoldedWidth(fold, axes[-1], width, result, across, len(axes) > 1, flat)


def folded_sizes(
    form: FoldedWidth, weight: Sequence[int], read: Sequence[int], written: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Return the shapes of weight, input and result of the folded convolution, channels first."""
    rows, result_rows = (read[2], written[2]) if form.has_height else (1, 1)
    return (
        (form.fold * weight[0], form.columns * weight[1], *form.kernel),
        (read[0], form.columns * weight[1], rows, form.blocks_read),
        (read[0], form.fold * weight[0], result_rows, form.blocks),
    )
