"""Conditions of the table's entries: why a node has no integer form, and whether it is compute-bound.

Each function looks at one node and the graph around it. The last part describes values that an operator
inserts into its output, such as padding: an operator that passes quantized values through must insert their
quantized values.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .graph import Graph, Node

Refusal = Callable[["Node", "Graph"], str]
"""Says why this node of the operator cannot be quantized; "" when it can."""

EffectiveRange = Callable[["Node", "Graph"], tuple[float, float]]
"""Returns smallest and largest input at which the node's output still changes."""


def attribute_value(node: Node, name: str, default: object) -> object:
    """Return the value of an attribute, or its default."""
    attribute = node.attributes.get(name)
    return default if attribute is None else attribute.value


def never(node: Node, graph: Graph) -> bool:
    """Return False: the operator is memory-bound."""
    return False


def always(node: Node, graph: Graph) -> bool:
    """Return True: the operator is compute-bound."""
    return True


def constant_weight(node: Node, graph: Graph) -> bool:
    """Whether the weight is constant: a product of two activations converts both, which gained nothing."""
    return node.has_constant(1)


MIN_PRODUCTS = 64
"""Multiplications for each output element from which int8 pays for a convolution's conversions. Measured with
onnxruntime 1.31 on AVX512-VNNI, one thread: one costs 0.019 ns in float and 0.0055 ns in int8, the
conversions and changes of layout around one convolution 0.4 to 0.6 ns for each element."""


def many_products(node: Node, graph: Graph) -> bool:
    """Depthwise convolutions and those of few input channels move more than they compute."""
    weight = node.constant(1)
    return weight is None or weight.size >= MIN_PRODUCTS * max(weight.shape[0], 1)


def many_products_of_phases(node: Node, graph: Graph) -> bool:
    """Each weight of a ConvTranspose meets one in `strides` of the elements of its output."""
    weight = node.constant(1)
    if weight is None:
        return True
    phases = math.prod(node.attributes.get_ints("strides", (1,)))
    outputs = weight.shape[1] * node.attributes.get_int("group", 1)
    return bool(weight.size >= MIN_PRODUCTS * phases * max(outputs, 1))


def default_attribute(name: str, default: object) -> Refusal:
    """Refuse nodes whose attribute `name` has another value than its default."""

    def check(node: Node, graph: Graph) -> str:
        value = attribute_value(node, name, default)
        return "" if value == default else f"{node.op_type} with {name}={value} has no integer form"

    return check


def constant_input(index: int, what: str) -> Refusal:
    """Refuse nodes whose input `index` is not a constant."""

    def check(node: Node, graph: Graph) -> str:
        return "" if node.has_constant(index) else f"the {what} of {node.op_type} is not a constant"

    return check


def scalar_exponent(node: Node, graph: Graph) -> str:
    """Refuse a Pow whose constant exponent has more than one element."""
    exponent = node.constant(1)
    several = exponent is not None and exponent.size != 1
    return f"the exponent of {node.op_type} is not one number" if several else ""


def several_along_axis(node: Node, graph: Graph) -> str:
    """Refuse a Softmax that may be over one element: QLinearSoftmax of onnxruntime 1.31 returns 0 for it."""
    shape = graph.shape(node.inputs[0])
    axis = node.attributes.get_int("axis", -1)
    size = shape[axis] if shape is not None and -len(shape) <= axis < len(shape) else None
    if size is None:
        return f"the size of the axis of {node.op_type} is not known, and one element has no integer form"
    return "" if size > 1 else f"{node.op_type} over one element has no integer form"


def constant_bias(node: Node, graph: Graph) -> str:
    """Refuse nodes whose bias is there and is not a constant."""
    return constant_input(2, "bias")(node, graph) if node.input(2) else ""


def bias_for_each_column(node: Node, graph: Graph) -> str:
    """Refuse a Gemm whose constant bias is not one number for each column of the result."""
    weight = node.constant(1)
    bias = node.constant(2)
    if weight is None or bias is None or weight.ndim != 2:
        return ""
    columns = weight.shape[0 if node.attributes.get_int("transB", 0) else 1]
    if bias.size == columns and (bias.ndim < 2 or bias.shape[0] == 1):
        return ""
    return f"the bias of {node.op_type} is not one number for each column"


def average_of_window(node: Node, graph: Graph) -> str:
    """Reject an AveragePool that QLinearAveragePool computes differently: dilations, windows beyond the
    input."""
    if any(d != 1 for d in node.attributes.get_ints("dilations", ())):
        return f"{node.op_type} with dilations has no integer form"
    beyond = all(attribute_value(node, name, 0) for name in ("ceil_mode", "count_include_pad"))
    return f"{node.op_type} with ceil_mode and count_include_pad has no integer form" if beyond else ""


def above_zero(node: Node, graph: Graph) -> tuple[float, float]:
    """Return the interval that Relu rises on."""
    return 0.0, math.inf


def hard_swish_rises(node: Node, graph: Graph) -> tuple[float, float]:
    """Return the interval that HardSwish changes on."""
    return -3.0, math.inf


def hard_sigmoid_rises(node: Node, graph: Graph) -> tuple[float, float]:
    """Return the interval that HardSigmoid rises on."""
    alpha, beta = node.attributes.get_float("alpha", 0.2), node.attributes.get_float("beta", 0.5)
    return (-beta / alpha, (1.0 - beta) / alpha) if alpha > 0.0 else (-math.inf, math.inf)


def clip_bounds(node: Node, graph: Graph) -> tuple[float, float]:
    """Return the constant bounds of a Clip."""
    bounds = [-math.inf, math.inf]
    for i in range(2):
        constant = node.constant(1 + i)
        if constant is not None:
            bounds[i] = float(constant.reshape(-1)[0])
    return bounds[0], bounds[1]


@dataclass(frozen=True)
class Fill:
    """The value that an operator inserts, such as padding: that of an input or an attribute, else 0."""

    index: int | None = None  # input that holds it, 0 where that is left out
    attribute: str = ""  # name of the attribute that holds it, 0 without one; "" where no attribute does
    applies: Callable[[Node], bool] = lambda node: True  # it may depend on a mode

    @property
    def is_zero(self) -> bool:
        """Whether no input and no attribute can make it another value than 0."""
        return self.index is None and not self.attribute

    def value(self, node: Node) -> float | None:
        """Return the float value that a node fills with, 0 without a fill, None if computed at run time."""
        if not self.applies(node):
            return 0.0
        if self.attribute:
            return node.attributes.get_float(self.attribute, 0.0)
        if self.index is None or not node.input(self.index):
            return 0.0
        constant = node.constant(self.index)
        return None if constant is None or constant.size != 1 else float(constant.reshape(()))

    def refusal(self, node: Node, graph: Graph) -> str:
        """Return why no integer stands for the filled value; zero is a value of all parameters."""
        value = self.value(node)
        if value is None:
            return f"{node.op_type} fills with a value computed at run time: no integer form"
        return f"{node.op_type} fills with {value:g}: only zero surely has an integer form" if value else ""


PADDING = Fill(index=2, applies=lambda node: node.attributes.get_string("mode", "constant") == "constant")
"""Of Pad."""
EXTRAPOLATION = Fill(
    attribute="extrapolation_value",
    applies=lambda node: (
        node.attributes.get_string("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize"
    ),
)
"""Fill of Resize outside of the region of interest."""
SAMPLED_ZEROS = Fill(applies=lambda node: node.attributes.get_string("padding_mode", "zeros") == "zeros")
"""Fill of GridSample outside of its input."""
ZEROS = Fill()
"""Fill of padded convolutions and pools, of regions outside of an image, and of triangles."""
