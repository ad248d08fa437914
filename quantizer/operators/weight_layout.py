"""Where the channels of a constant weight lie: of every node of an operator, and of one weight."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ..model.graph import constant_of, is_constant

if TYPE_CHECKING:
    from .graph import Node

Array = npt.NDArray[Any]


class Kernel(StrEnum):
    """The meaning of a weight's axes that hold neither output nor input channels."""

    NONE = "none"  # those of a stack of matrices, or none at all
    GATHERS = "gathers"  # taps of a kernel; an output element is the sum over all of them (Conv)
    SCATTERS = "scatters"  # taps of a kernel; each tap makes an output element of its own (ConvTranspose)


@dataclass(frozen=True)
class WeightLayout:
    """Where the channels of a weight lie, for every node of one operator; axes may count from the end."""

    index: int  # position of the input that is the weight
    output_axis: int | None = None  # gates of a recurrent operator, entries of a table; None for one scale
    input_axis: int | None = None  # over which the product sums
    data_axis: int | None = None  # axis of the input channels in input 0; None where there are none
    result_axis: int | None = None  # axis of the output channels in output 0
    bias: int | None = None  # input that is added to each output channel; None: of a product an Add after it
    kernel: Kernel = Kernel.NONE  # what the other axes are: the last ones; `group` splits axis 0
    swapped_by: str = ""  # attribute that exchanges output and input axis when it is set; "" for none
    data_swapped_by: str = ""  # attribute that exchanges the axes of input 0 when it is set; "" for none
    axis_attribute: str = ""  # attribute that holds the output axis; "" for none

    @property
    def is_product(self) -> bool:
        """Whether output channels are sums over the input channels of input 0."""
        return self.input_axis is not None and self.data_axis is not None

    def axes(self, node: ir.Node | Node, shape: tuple[int, ...]) -> WeightAxes:
        """Return the channel axes of the weight of a node with this layout, by the weight's shape."""
        output, input_ = self._channel_axes(node, len(shape))
        return WeightAxes(shape, output, input_, self._groups(node))

    def axis(self, node: ir.Node | Node, rank: int) -> int | None:
        """Return the axis along which each output channel may have a scale, or None, for example if groups
        share."""
        output, _ = self._channel_axes(node, rank)
        return None if output != 0 and self._groups(node) != 1 else output

    def is_stack(self, rank: int) -> bool:
        """Whether a weight of `rank` is a stack of matrices: integer kernels take one scale for all of it."""
        return self.is_product and self.kernel is Kernel.NONE and rank > 2

    def blocked_axis(self, node: ir.Node | Node, rank: int) -> int | None:
        """Return the axis of input channels whose blocks may have scales; None for none or split ones."""
        if not self.is_product or rank < 2 or self._groups(node) != 1:
            return None
        return self._channel_axes(node, rank)[1]

    def reads_transposed(self, node: ir.Node | Node) -> bool:
        """Whether the axes of input 0 are exchanged before the node uses it."""
        return bool(self.data_swapped_by) and node.attributes.get_int(self.data_swapped_by, 0) != 0

    def shape_beside_result(self, size: int, rank: int) -> tuple[int, ...]:
        """Return the shape that broadcasts one number for each output channel with a result of `rank`."""
        assert self.result_axis is not None
        return (size, *(1,) * (rank - 1 - self.result_axis % rank))

    def bias_place(self, node: ir.Node) -> tuple[ir.Node, int] | None:
        """Return the node and input, perhaps absent, whose constant is added to output channels, or None."""
        weight = constant_of(node.inputs[self.index])
        if not self.is_product or weight is None:
            return None
        if self.bias is not None:
            bias = node.inputs[self.bias] if self.bias < len(node.inputs) else None
            return (node, self.bias) if bias is None or is_constant(bias) else None

        # an Add that alone reads the result, of one number for each output channel
        axes, result = self.axes(node, weight.shape), node.outputs[0]
        uses = list(result.uses())
        if axes.output is None or len(uses) != 1 or result.is_graph_output():
            return None
        add, position = uses[0].node, 1 - uses[0].idx
        if add.op_type != "Add" or add.graph is not node.graph:
            return None
        array, size = constant_of(add.inputs[position]), axes.output_channels
        fits = array is not None and array.size == size and array.shape[-1:] == (size,)
        return (add, position) if fits else None

    def _groups(self, node: ir.Node | Node) -> int:
        return 1 if self.kernel is Kernel.NONE else node.attributes.get_int("group", 1)

    def _channel_axes(self, node: ir.Node | Node, rank: int) -> tuple[int | None, int | None]:
        """Return output and input axis, counted from the front; a vector is a single output channel."""
        if rank < 2:
            return None, None if self.input_axis is None else 0
        first = self.output_axis
        if self.axis_attribute:
            first = node.attributes.get_int(self.axis_attribute, first or 0)
        output, input_ = (None if axis is None else axis % rank for axis in (first, self.input_axis))
        swapped = bool(self.swapped_by) and node.attributes.get_int(self.swapped_by, 0) != 0
        return (input_, output) if swapped else (output, input_)


@dataclass(frozen=True)
class WeightAxes:
    """Where the channels of one weight lie."""

    shape: tuple[int, ...]  # of the weight
    output: int | None  # of the output channels, counted from the front; None for a single one
    input: int | None  # axis of the input channels, counted from the front; None where there are none
    groups: int = 1  # of axis 0; channels of the other axis are counted anew in each

    @property
    def output_channels(self) -> int:
        """The number of output channels of all groups."""
        return self._channels(self.output)

    @property
    def input_channels(self) -> int:
        """The number of input channels of all groups."""
        return self._channels(self.input)

    @property
    def taps_shape(self) -> tuple[int, ...]:
        """The sizes of the axes that hold no channels: of a kernel, or of a stack of matrices."""
        return tuple(n for axis, n in enumerate(self.shape) if axis not in (self.output, self.input))

    @property
    def block_shape(self) -> tuple[int, int, int, int]:
        """The shape that `blocks` gives: groups, outputs and inputs of one group, taps."""
        outs, ins = self.output_channels // self.groups, self.input_channels // self.groups
        return self.groups, outs, ins, math.prod(self.taps_shape)

    def along_outputs(self, vector: Array) -> Array:
        """Return numbers, one for each output channel, in a shape that broadcasts with the weight."""
        return self._along(vector, self.output)

    def along_inputs(self, vector: Array) -> Array:
        """Return numbers, one for each input channel, in a shape that broadcasts with the weight."""
        return self._along(vector, self.input)

    def blocks(self, weight: Array) -> Array:
        """Return an array of the weight's shape as (groups, outputs, inputs, taps), channels of a group."""
        split = weight.reshape(self._split_shape)
        return split.transpose(self._block_order).reshape(self.block_shape)

    def unblocked(self, flat: Array) -> Array:
        """Undo `blocks`: return an array of (groups, outputs, inputs, taps) in the shape of the weight."""
        order = self._block_order
        moved = flat.reshape(tuple(self._split_shape[axis] for axis in order))
        return np.asarray(moved.transpose(np.argsort(order)).reshape(self.shape))

    @property
    def _split_shape(self) -> tuple[int, ...]:
        """The weight's shape with axis 0 split into groups, and a last axis for a single output channel."""
        last = (1,) if self.output is None else ()
        return (self.groups, self.shape[0] // self.groups, *self.shape[1:], *last)

    @property
    def _block_order(self) -> tuple[int, ...]:
        """The axes of `_split_shape` in the order groups, outputs, inputs, taps."""
        assert self.input is not None
        output = len(self.shape) if self.output is None else self.output
        rest = [axis for axis in range(len(self.shape)) if axis not in (output, self.input)]
        return (0, *(axis + 1 for axis in (output, self.input, *rest)))

    def _channels(self, axis: int | None) -> int:
        return 1 if axis is None else self.shape[axis] * (1 if axis == 0 else self.groups)

    def _along(self, vector: Array, axis: int | None) -> Array:
        if axis is None or axis == 0 or self.groups == 1:
            return vector.reshape(tuple(-1 if i == axis else 1 for i in range(len(self.shape))))
        # The positions of a group lie together along axis 0; each group has its own part of the vector.
        repeated = np.repeat(vector.reshape(self.groups, -1), self.shape[0] // self.groups, axis=0)
        sizes = {0: self.shape[0], axis: repeated.shape[1]}
        return repeated.reshape(tuple(sizes.get(i, 1) for i in range(len(self.shape))))


CONV = WeightLayout(1, output_axis=0, input_axis=1, data_axis=1, result_axis=1, bias=2, kernel=Kernel.GATHERS)
"""[outputs, inputs / groups, *kernel]"""
CONV_TRANSPOSE = WeightLayout(
    1, output_axis=1, input_axis=0, data_axis=1, result_axis=1, bias=2, kernel=Kernel.SCATTERS
)
"""[inputs, outputs / groups, *kernel]"""
GEMM = WeightLayout(
    1,
    output_axis=1,
    input_axis=0,
    data_axis=1,
    result_axis=1,
    bias=2,
    swapped_by="transB",
    data_swapped_by="transA",
)
"""[inputs, outputs]; with transB [outputs, inputs]"""
MATMUL = WeightLayout(1, output_axis=-1, input_axis=-2, data_axis=-1, result_axis=-1)
"""[*stack, inputs, outputs], or [inputs]"""
INPUT_GATES = WeightLayout(1, output_axis=1, input_axis=2, data_axis=-1)
"""[directions, gates, inputs]: the weight of the input of LSTM, GRU and RNN"""
RECURRENT_GATES = replace(INPUT_GATES, index=2, data_axis=None)
"""[directions, gates, hidden]: the weight of the state of LSTM, GRU and RNN"""
EMBEDDING = WeightLayout(0, output_axis=0, axis_attribute="axis")
"""The table that Gather reads entries of, along its attribute `axis`"""
LAST_AXIS_SCALE = WeightLayout(1, bias=2, result_axis=-1)
"""[channels]: the scale of LayerNormalization"""
LAST_AXIS_FACTOR = WeightLayout(1, result_axis=-1)
"""[channels]: the scale of RMSNormalization, which has no bias"""
CHANNEL_SCALE = WeightLayout(1, bias=2, result_axis=1)
"""[channels]: the scale of InstanceNormalization"""
GROUP_SCALE = WeightLayout(1, bias=2)
"""[channels], or [groups] before opset 21: the scale of GroupNormalization"""
