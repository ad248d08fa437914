"""Values that an operator puts into its output where it has no input there: padding, extrapolation.

An operator that passes quantized values through has to put the quantized value of such a float value. The
operator table says for each operator which one it is (`Rule.fill`); planning and lowering both read that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .graph import Graph, Node


class FillSource(StrEnum):
    """Where the float value comes from."""

    ZERO = "zero"
    """It is 0, and no attribute or input changes that."""
    ATTRIBUTE = "attribute"
    """An attribute holds it; 0 without one."""
    INPUT = "input"
    """An input holds it; 0 without one."""


def always_fills(node: Node) -> bool:
    """Return True: every node of the operator may fill."""
    return True


@dataclass(frozen=True)
class Fill:
    """The value that an operator makes by itself.

    Attributes:
        source: where it comes from.
        index: position of the input that holds it, for INPUT.
        attribute: name of the attribute that holds it, for ATTRIBUTE.
        applies: whether a node fills: it may depend on a mode.
    """

    source: FillSource = FillSource.ZERO
    index: int = -1
    attribute: str = ""
    applies: Callable[[Node], bool] = always_fills

    def value(self, node: Node) -> float | None:
        """Return the float value that a node fills with; None where it is computed at run time."""
        if self.source is FillSource.ATTRIBUTE:
            return node.attributes.get_float(self.attribute, 0.0)
        if self.source is FillSource.ZERO or not node.input(self.index):
            return 0.0
        constant = node.constant(self.index)
        return None if constant is None or constant.size != 1 else float(constant.reshape(()))

    def refusal(self, node: Node, graph: Graph) -> str:
        """Return why no integer stands for the value that a node puts beside those that it passes through.

        Zero is a value of all quantization parameters; others may lie outside of their range.
        """
        value = self.value(node) if self.applies(node) else 0.0
        if value is None:
            return f"{node.op_type} fills with a value computed at run time: no integer form"
        return f"{node.op_type} fills with {value:g}: only zero surely has an integer form" if value else ""


def _pads_with_a_constant(node: Node) -> bool:
    return node.attributes.get_string("mode", "constant") == "constant"


def _extrapolates(node: Node) -> bool:
    mode = node.attributes.get_string("coordinate_transformation_mode", "half_pixel")
    return mode == "tf_crop_and_resize"


def _pads_with_zeros(node: Node) -> bool:
    return node.attributes.get_string("padding_mode", "zeros") == "zeros"


PADDING = Fill(FillSource.INPUT, index=2, applies=_pads_with_a_constant)
"""Of Pad."""
EXTRAPOLATION = Fill(FillSource.ATTRIBUTE, attribute="extrapolation_value", applies=_extrapolates)
"""Of Resize outside of the region of interest."""
SAMPLED_ZEROS = Fill(applies=_pads_with_zeros)
"""Of GridSample outside of its input."""
ZEROS = Fill()
"""Of padded convolutions and pools, of regions outside of an image, and of triangles."""
