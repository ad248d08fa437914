"""The operator table: everything that qprof knows about an operator stands in its entry here only.

An entry says which inputs carry activations, which may be a constant weight and where its channels and its
bias are (`weight_layout`), and how the parameters of the output follow from those of the inputs. What a
given runtime can execute is not a fact about the operator: it stands in the target (see `targets`).
Adding an operator is adding an entry.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ...profiles.base.errors import PlanError
from ...profiles.records.profile import Profile
from ..model.graph import Graph, constant_of, name_of
from ..numerics.affine import QuantParams, QuantType, quantize
from ..numerics.density import Density, density, mean_of
from ..numerics.schemas import SCHEMAS, choose_params
from .conditions import (
    EffectiveRange,
    Refusal,
    above_zero,
    absent_input,
    always,
    attribute_is,
    average_of_window,
    bias_for_each_column,
    clip_bounds,
    constant_bias,
    constant_input,
    constant_weight,
    hard_sigmoid_rises,
    hard_swish_rises,
    many_products,
    many_products_of_phases,
    never,
    one_number,
    several_along_axis,
)
from .functions import CHAIN, CHAIN_DOMAIN, chain_of, function_of
from .weight_layout import (
    CHANNEL_SCALE,
    CONV,
    CONV_TRANSPOSE,
    EMBEDDING,
    GEMM,
    GROUP_SCALE,
    INPUT_GATES,
    LAST_AXIS_SCALE,
    MATMUL,
    RECURRENT_GATES,
    WeightAxes,
    WeightLayout,
)

# How much noise power operators let through, where that differs from the signal: values of `Rule.gain`.

Floats = npt.NDArray[np.float64]

STEP = 1e-5
"""Share of a tensor's largest value over which a slope is taken."""
OCTAVES = 10
"""Into which the bin next to zero is split, where a slope may depend on how small a value is."""


@dataclass(frozen=True)
class Step:
    """One input of one node, with the graph, profile and powers that its gain follows from."""

    node: ir.Node
    index: int
    source: str
    graph: Graph
    profile: Profile
    powers: Mapping[str, float]
    opset: int

    def constant(self, index: int) -> Floats | None:
        """Return an input that is a constant in float; None for any other."""
        value = self.node.inputs[index] if index < len(self.node.inputs) else None
        found = None if value is None else self.graph.constant(name_of(value))
        return None if found is None or found.dtype.kind != "f" else found.astype(np.float64)

    def share(self, result: str) -> float:
        """Return the number of this input's elements over that of the output's."""
        return self.profile[self.source].count / max(self.profile[result].count, 1)

    def slope(self) -> float | None:
        """Return the mean square of the slope of a unary function."""
        try:
            function = function_of(self.node, self.opset)
        except PlanError:
            return None
        tensor = self.profile[self.source]
        step = STEP * max(abs(tensor.minimum), abs(tensor.maximum), float(np.finfo(np.float32).tiny))
        return mean_of(
            _octaves_near_zero(density(tensor)),
            lambda x: np.square((function(x + step) - function(x - step)) / (2.0 * step)),
        )


def _octaves_near_zero(whole: Density) -> Density:
    """Split the bin next to zero into octaves of equal mass.

    Small values lie as densely in each octave as in the next, and a logarithm is the steeper the smaller they
    are: a uniform distribution over the bin would hide that.
    """
    first = int(np.argmax(whole.mass > 0.0))
    low, high = whole.edges[first], whole.edges[first + 1]
    if not 0.0 <= low < high / 2.0:
        return whole
    ends = high * 2.0 ** -np.arange(OCTAVES + 1.0)[::-1]
    ends[0] = max(low, 0.0)
    return Density(
        np.concatenate([ends, whole.edges[first + 2 :]]),
        np.concatenate([np.full(OCTAVES, whole.mass[first] / OCTAVES), whole.mass[first + 1 :]]),
        whole.points,
        whole.point_mass,
    )


def factor(step: Step, result: str) -> float | None:
    """A product lets noise through as the power of the other factor; of a square, the slope is 2 x."""
    other = 1 - step.index
    constant = step.constant(other)
    if constant is not None:
        return float(np.square(constant).mean()) if constant.size else None
    value = step.node.inputs[other]
    name = None if value is None else value.name
    if name == step.source:  # each of the two uses carries half of (2 x)^2
        return 2.0 * step.powers[step.source]
    return step.powers.get(name or "")


def quotient(step: Step, result: str) -> float | None:
    """Divided by a constant, noise is as the constant says."""
    divisor = step.constant(1) if step.index == 0 else None
    if divisor is None or not divisor.all():
        return None
    return float(np.square(1.0 / divisor).mean())


def power_of(step: Step, result: str) -> float | None:
    """Return the mean square slope of x to a constant power."""
    exponent = step.constant(1) if step.index == 0 else None
    if exponent is None or exponent.size != 1:
        return None
    e = float(exponent.reshape(-1)[0])
    return mean_of(density(step.profile[step.source]), lambda x: np.square(e * np.abs(x) ** (e - 1.0)))


def average(step: Step, result: str) -> float | None:
    """Divide noise by the number of elements that are averaged."""
    return 1.0 / max(step.share(result), 1.0) if step.index == 0 else 0.0


def window(step: Step, result: str) -> float | None:
    """Divide noise by the size of the pooling window."""
    return 1.0 / max(math.prod(step.node.attributes.get_ints("kernel_shape", (1,))), 1)


def total(step: Step, result: str) -> float | None:
    """Noise of all elements adds up."""
    return max(step.share(result), 1.0) if step.index == 0 else 0.0


def one(step: Step, result: str) -> float | None:
    """Noise goes through as it is."""
    return 1.0


def part(step: Step, result: str) -> float | None:
    """Noise is in one part of the result."""
    return min(step.share(result), 1.0)


def normalised(step: Step, result: str) -> float | None:
    """(x - mean) / deviation * scale: the deviation is at most the root of the power."""
    scale = step.constant(1) if step.index == 0 else None
    return None if scale is None else float(np.square(scale).mean()) / step.powers[step.source]


def probability(step: Step, result: str) -> float | None:
    """Softmax: dy = y (dx - sum of y dx), which y squared bounds."""
    return step.powers[result]


Gain = Callable[[Step, str], float | None]
"""Returns the noise power in the named output for one unit of noise power in one input; None for as much as
signal."""


# Values that an operator puts into its output where it has no input there: padding, extrapolation.
#
# An operator that passes quantized values through has to put the quantized value of such a float value.
# The
# operator table says for each operator which one it is (`Rule.fill`); planning and lowering both read
# that.


class FillSource(StrEnum):
    """Where the float value comes from."""

    ZERO = "zero"
    """It is 0, and no attribute or input changes that."""
    ATTRIBUTE = "attribute"
    """An attribute holds it; 0 without one."""
    INPUT = "input"
    """An input holds it; 0 without one."""


def always_fills(node: ir.Node) -> bool:
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
    applies: Callable[[ir.Node], bool] = always_fills

    def value(self, node: ir.Node) -> float | None:
        """Return the float value that a node fills with; None where it is computed at run time."""
        if self.source is FillSource.ATTRIBUTE:
            return node.attributes.get_float(self.attribute, 0.0)
        if (
            self.source is FillSource.ZERO
            or self.index >= len(node.inputs)
            or node.inputs[self.index] is None
        ):
            return 0.0
        constant = constant_of(node.inputs[self.index])
        return None if constant is None or constant.size != 1 else float(constant.reshape(()))

    def refusal(self, node: ir.Node, graph: Graph) -> str:
        """Return why no integer stands for the value that a node puts beside those that it passes through.

        Zero is a value of all quantization parameters; others may lie outside of their range.
        """
        value = self.value(node) if self.applies(node) else 0.0
        if value is None:
            return f"{node.op_type} fills with a value computed at run time: no integer form"
        return f"{node.op_type} fills with {value:g}: only zero surely has an integer form" if value else ""


def _pads_with_a_constant(node: ir.Node) -> bool:
    return node.attributes.get_string("mode", "constant") == "constant"


def _extrapolates(node: ir.Node) -> bool:
    mode = node.attributes.get_string("coordinate_transformation_mode", "half_pixel")
    return mode == "tf_crop_and_resize"


def _pads_with_zeros(node: ir.Node) -> bool:
    return node.attributes.get_string("padding_mode", "zeros") == "zeros"


PADDING = Fill(FillSource.INPUT, index=2, applies=_pads_with_a_constant)
"""Of Pad."""
EXTRAPOLATION = Fill(FillSource.ATTRIBUTE, attribute="extrapolation_value", applies=_extrapolates)
"""Of Resize outside of the region of interest."""
SAMPLED_ZEROS = Fill(applies=_pads_with_zeros)
"""Of GridSample outside of its input."""
ZEROS = Fill()
"""Of padded convolutions and pools, of regions outside of an image, and of triangles."""


# Parameters inside activation functions that are sums and products whose saturation cuts off the rest.
#
# HardSigmoid is alpha x + beta, saturated to 0 and 1. HardSwish is x times that with alpha 1/6 and beta
# 1/2,
# the *gate*. PRelu is x + (slope - 1) min(x, 0), the second term being the *correction*. Gate and
# correction
# are quantized tensors that no profile knows: their parameters follow from those of the input and the
# slopes.

ASYMMETRIC = SCHEMAS["asymmetric"]
EXACT = 1e-6
"""Largest relative difference that is rounding of a scale to float32."""
GATE_ALPHA, GATE_BETA = 1.0 / 6.0, 0.5
"""Of the HardSigmoid in HardSwish."""


def gate_params(qtype: QuantType) -> QuantParams:
    """Return the parameters of the gate of HardSwish: its ends 0 and 1 are those of the type."""
    return QuantParams((float(np.float32(1.0 / (qtype.high - qtype.low))),), (qtype.low,), qtype)


def saturates_to_unit(result: QuantParams) -> bool:
    """Whether parameters end at 0, and at 1 or below: then saturation does all that HardSigmoid cuts off."""
    if result.axis is not None:
        return False
    ends = quantize(np.array([0.0, 1.0], np.float32), result)
    return list(ends) == [result.qtype.low, result.qtype.high]


def slope_params(slopes: npt.NDArray[Any], qtype: QuantType, *, power_of_two: bool) -> QuantParams:
    """Return the parameters of the slopes of PRelu in which 0 and 1 both are quantized values.

    So slopes less 1 are the same integers, with another zero point. Where no slope is above 1, 1 is the
    largest quantized value.

    Args:
        slopes: finite numbers of any shape.
        qtype: type of the quantized values.
        power_of_two: whether the scale is to be a power of two.
    """
    low, high = min(float(slopes.min()), 0.0), max(float(slopes.max()), 1.0)
    steps = (qtype.high - qtype.low) // (high - low)
    if steps < 1.0:
        return choose_params(low, high, ASYMMETRIC, qtype)
    if power_of_two:
        steps = 2.0 ** np.floor(np.log2(steps))
    zero_point = qtype.high - steps if high == 1.0 else qtype.low + np.rint(-low * steps)
    return QuantParams((float(np.float32(1.0 / steps)),), (int(zero_point),), qtype)


@dataclass(frozen=True)
class Correction:
    """What PRelu adds to its input.

    Attributes:
        less_one: parameters in which the quantized slopes are read as slopes less 1.
        params: of the correction.
        one_sign: whether no slope can be above 1, so that saturation corrects negative inputs alone.
    """

    less_one: QuantParams
    params: QuantParams
    one_sign: bool


def correction_of(source: QuantParams, slope: QuantParams) -> Correction | None:
    """Return the correction of a PRelu; None where it has no parameters.

    Args:
        source: parameters of the input.
        slope: parameters of the slopes, in which 1 should be a quantized value (see `slope_params`).
    """
    if source.axis is not None or slope.axis is not None or not source.qtype.bits == slope.qtype.bits == 8:
        return None
    scale, qtype = slope.scale[0], slope.qtype
    one = slope.zero_point[0] + int(np.rint(1.0 / scale))
    if one > qtype.high or abs(scale * (one - slope.zero_point[0]) - 1.0) > EXACT:
        return None
    lowest = source.scale[0] * (source.qtype.low - source.zero_point[0])
    params = choose_params(
        lowest * scale * (qtype.high - one), lowest * scale * (qtype.low - one), ASYMMETRIC, source.qtype
    )
    return Correction(QuantParams(slope.scale, (one,), qtype), params, one == qtype.high)


class Constraint(StrEnum):
    """How the quantization parameters of a node's output follow from those of its inputs."""

    OWN = "own"
    """The output has parameters of its own, from its own profile."""
    SAME = "same-as-input"
    """Moves or selects values: quantized values pass through, the output has the input's parameters."""
    ALL_SAME = "all-same"
    """Inputs and output share their parameters, or each input is requantized to the output's."""
    CLAMP = "clamp"
    """Only clips: a producer without other uses takes the output's range, so that the clip is free."""
    FIXED = "fixed"
    """The mathematics bounds the output: its range never exceeds `Rule.bounds`."""


class ChannelScaling(StrEnum):
    """How the channels of a node's output are scaled by scaling what the node reads, for equalization.

    Operators with a weight need none of these: `WeightLayout` says how their weight is scaled.
    """

    NONE = "none"
    """They are not, or nothing is gained by it."""
    ELEMENTS = "elements"
    """f(s x) = s f(x) for s > 0 in every element: the input is scaled along the same axis."""
    POOLED = "pooled"
    """f(s x) = s f(x) for s > 0 in each channel of axis 1: the input is scaled along that axis."""
    PERMUTED = "permuted"
    """The input is scaled along another axis, which attribute `perm` names."""
    MERGED = "merged"
    """The input is scaled along the axes that are merged into, or split from, the last one."""
    EITHER_OPERAND = "either-operand"
    """One operand is scaled, the other one stays."""
    QUOTIENT = "quotient"
    """The first operand is scaled, or the second one by the inverse."""
    BOTH_OPERANDS = "both-operands"
    """Both operands are scaled alike."""


OPERAND_SCALING = (ChannelScaling.EITHER_OPERAND, ChannelScaling.QUOTIENT, ChannelScaling.BOTH_OPERANDS)
"""Of the four arithmetic operators."""


@dataclass(frozen=True)
class Rule:
    """What is true of one operator.

    Attributes:
        op_type: name of the operator.
        constraint: how the output's parameters follow.
        data: indices of the inputs that carry activations; None for all inputs.
        weight: the input that is usually a constant weight, if there is one, and where its channels and its
            bias are. When it is constant it has the weight's parameters; when not it is an activation like
            `data`.
        stored: constant inputs that a dynamic or weight-only node has quantized, where there are other ones
            than `weight`.
        bounds: smallest and largest output that the mathematics allows; for FIXED both are finite.
        unary: each output element is a function of one input element alone, so the node can become a look-up
            table.
        elementwise: each output element follows from the input elements at its position, as with every unary
            function: a subgraph of such operators that reads one activation is a unary function.
        compute_bound: whether it does so much arithmetic per element that int8 pays for the conversions of
            its inputs and output; given the node and the graph.
        effective_range: the interval of inputs outside which the output no longer changes, so that a producer
            needs no quantized values there. None when every input matters.
        refuse: conditions of which the first that returns a sentence keeps the node float.
        gain: how much noise power the operator lets through (see `noise_gains`); None where that follows from
            weight, unary function or constraint, or is as much as signal.
        scaling: how scales of the output's channels are handed on to what the node reads.
        fill: the value that it puts where it has no input; None where it makes no value by itself. What
            passes quantized values through is quantized only where that is 0, which all parameters hold.
        in_decompositions: exporters write Gelu or HardSwish with it where they decompose them.
        domain: operator domain, "" for the standard one.
    """

    op_type: str
    constraint: Constraint = Constraint.OWN
    data: tuple[int, ...] | None = (0,)
    weight: WeightLayout | None = None
    stored: tuple[WeightLayout, ...] = ()
    bounds: tuple[float, float] | None = None
    unary: bool = False
    elementwise: bool = False
    compute_bound: Callable[[ir.Node, Graph], bool] = never
    refuse: tuple[Refusal, ...] = ()
    effective_range: EffectiveRange | None = None
    gain: Gain | None = None
    scaling: ChannelScaling = ChannelScaling.NONE
    fill: Fill | None = None
    in_decompositions: bool = False
    domain: str = ""

    def activations(self, node: ir.Node) -> tuple[int, ...]:
        """Return the indices of the present inputs that carry activations (a weight not included)."""
        wanted = range(len(node.inputs)) if self.data is None else self.data
        return tuple(i for i in wanted if i < len(node.inputs) and node.inputs[i] is not None)

    @property
    def bias(self) -> int | None:
        """Index of the input that is int32 with scale(x) * scale(w), if there is one."""
        return None if self.weight is None else self.weight.bias

    @property
    def constants(self) -> tuple[WeightLayout, ...]:
        """The inputs that may be quantized constants of a float operator."""
        return self.stored if self.weight is None else (self.weight,)

    @property
    def is_recurrent(self) -> bool:
        """Whether the node sums over stored weights step by step: output 0 is the sequence, others states."""
        return any(layout.input_axis is not None for layout in self.stored)

    @property
    def is_lookup(self) -> bool:
        """Whether the node reads entries of an embedding table by their indices."""
        return any(layout.input_axis is None for layout in self.stored)

    def refusal(self, node: ir.Node, graph: Graph) -> str:
        """Return why this node cannot be quantized, "" when it can."""
        conditions = [*self.refuse]
        if self.fill is not None and self.constraint is Constraint.SAME:
            conditions.append(self.fill.refusal)
        return next((text for text in (check(node, graph) for check in conditions) if text), "")


def _own(*op_types: str) -> Iterable[Rule]:
    return (Rule(op_type) for op_type in op_types)


def _moves(*op_types: str) -> Iterable[Rule]:
    return (Rule(op_type, Constraint.SAME) for op_type in op_types)


def _unary(*op_types: str, bounds: tuple[float, float] | None = None) -> Iterable[Rule]:
    return (Rule(op_type, unary=True, bounds=bounds) for op_type in op_types)


_RULES: tuple[Rule, ...] = (
    # Multiply and accumulate
    Rule(
        "Conv",
        weight=CONV,
        compute_bound=many_products,
        refuse=(constant_input(1, "weight"), constant_bias),
        fill=ZEROS,
    ),
    Rule(
        "ConvTranspose",
        weight=CONV_TRANSPOSE,
        compute_bound=many_products_of_phases,
        refuse=(constant_input(1, "weight"), constant_bias),
    ),
    Rule(
        "Gemm",
        weight=GEMM,
        compute_bound=always,
        refuse=(
            constant_input(1, "weight"),
            constant_bias,
            bias_for_each_column,
            attribute_is("alpha", 1.0, 1.0),
            attribute_is("beta", 1.0, 1.0),
            attribute_is("transA", 0, 0),
        ),
    ),
    Rule("MatMul", data=(0,), weight=MATMUL, compute_bound=constant_weight),
    # Recurrent: both weights, of the input and of the state, are quantized where one is
    *(
        Rule(
            op_type,
            stored=(INPUT_GATES, RECURRENT_GATES),
            refuse=(
                attribute_is("layout", 0, 0),
                absent_input(7, "peepholes"),
                constant_input(1, "weight"),
                constant_input(2, "recurrent weight"),
            ),
        )
        for op_type in ("LSTM", "GRU", "RNN")
    ),
    # Arithmetic
    Rule("Add", data=None, elementwise=True, gain=one, scaling=ChannelScaling.BOTH_OPERANDS),
    Rule("Sub", data=None, elementwise=True, gain=one, scaling=ChannelScaling.BOTH_OPERANDS),
    Rule("Mul", data=None, elementwise=True, gain=factor, scaling=ChannelScaling.EITHER_OPERAND),
    Rule("Div", data=None, elementwise=True, gain=quotient, scaling=ChannelScaling.QUOTIENT),
    Rule("Sum", data=None, elementwise=True, gain=one),
    Rule("Mean", data=None, elementwise=True),
    Rule("PRelu", data=None, elementwise=True, scaling=ChannelScaling.ELEMENTS),
    # Pooling and reducing
    Rule("AveragePool", refuse=(average_of_window,), gain=window, scaling=ChannelScaling.POOLED, fill=ZEROS),
    Rule("GlobalAveragePool", gain=average, scaling=ChannelScaling.POOLED),
    Rule("ReduceMean", gain=average),
    Rule("ReduceSum", gain=total),
    Rule("LpPool", fill=ZEROS),
    *_own("GlobalLpPool", "ReduceProd"),
    *_own("ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp"),
    *(Rule(op_type, fill=ZEROS) for op_type in ("CumSum", "Trilu", "RoiAlign")),
    Rule("GridSample", fill=SAMPLED_ZEROS),
    Rule("MaxPool", Constraint.SAME, scaling=ChannelScaling.POOLED),
    Rule("GlobalMaxPool", Constraint.SAME, scaling=ChannelScaling.POOLED),
    *_moves("ReduceMax", "ReduceMin"),
    # Operators that move values
    Rule("Reshape", Constraint.SAME, scaling=ChannelScaling.MERGED),
    *_moves("Flatten", "Squeeze", "Unsqueeze"),
    Rule("Transpose", Constraint.SAME, scaling=ChannelScaling.PERMUTED),
    *_moves("Expand", "Tile"),
    Rule("Gather", Constraint.SAME, stored=(EMBEDDING,)),
    *_moves("Slice", "Split", "GatherElements", "GatherND", "DepthToSpace", "SpaceToDepth"),
    *_moves("Compress", "ReverseSequence", "TopK"),
    Rule("Resize", Constraint.SAME, refuse=(attribute_is("mode", "nearest", "nearest"),), fill=EXTRAPOLATION),
    Rule("Pad", Constraint.SAME, fill=PADDING),
    # Shared parameters
    Rule("Concat", Constraint.ALL_SAME, data=None, gain=part),
    Rule("Where", Constraint.ALL_SAME, data=(1, 2)),
    *(
        Rule(op_type, Constraint.ALL_SAME, data=(0, 2), refuse=(attribute_is("reduction", "none", "none"),))
        for op_type in ("ScatterND", "ScatterElements")
    ),
    Rule("Max", Constraint.ALL_SAME, data=None, elementwise=True),
    Rule("Min", Constraint.ALL_SAME, data=None, elementwise=True),
    # Operators that clip values
    Rule(
        "Relu",
        Constraint.CLAMP,
        elementwise=True,
        effective_range=above_zero,
        scaling=ChannelScaling.ELEMENTS,
    ),
    Rule("Clip", Constraint.CLAMP, elementwise=True, effective_range=clip_bounds, in_decompositions=True),
    # Unary functions (no steps: Sign, Round, ... turn the noise of their input into whole steps)
    Rule("Sigmoid", Constraint.FIXED, bounds=(0.0, 1.0), unary=True),
    Rule("HardSigmoid", Constraint.FIXED, bounds=(0.0, 1.0), unary=True, effective_range=hard_sigmoid_rises),
    Rule("Tanh", Constraint.FIXED, bounds=(-1.0, 1.0), unary=True, in_decompositions=True),
    Rule("Erf", Constraint.FIXED, bounds=(-1.0, 1.0), unary=True, in_decompositions=True),
    Rule("Sin", Constraint.FIXED, bounds=(-1.0, 1.0), unary=True),
    Rule("Cos", Constraint.FIXED, bounds=(-1.0, 1.0), unary=True),
    Rule("Softsign", Constraint.FIXED, bounds=(-1.0, 1.0), unary=True),
    Rule("Atan", Constraint.FIXED, bounds=(-math.pi / 2, math.pi / 2), unary=True),
    Rule("LeakyRelu", unary=True, scaling=ChannelScaling.ELEMENTS),
    *_unary("Exp", "Sqrt", "Abs", "Softplus", bounds=(0.0, math.inf)),
    *_unary("Gelu", bounds=(-0.1701, math.inf)),  # -0.16997, and -0.17004 as approximated by tanh
    Rule("HardSwish", unary=True, bounds=(-0.375, math.inf), effective_range=hard_swish_rises),
    *_unary("ThresholdedRelu", "Elu", "Selu", "Celu", "Mish", "Swish", "Log", "Reciprocal", "Neg", "Shrink"),
    *_unary("Asin", "Acos", "Tan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh"),
    Rule("Pow", unary=True, gain=power_of, refuse=(constant_input(1, "exponent"), one_number(1, "exponent"))),
    # Normalisation
    Rule("Softmax", Constraint.FIXED, bounds=(0.0, 1.0), gain=probability, refuse=(several_along_axis,)),
    *_own("LogSoftmax", "LRN", "LpNormalization"),
    *(
        Rule(
            op_type,
            weight=scale,
            gain=normalised,
            refuse=(constant_input(1, "scale"), constant_bias),
        )
        for op_type, scale in (
            ("InstanceNormalization", CHANNEL_SCALE),
            ("LayerNormalization", LAST_AXIS_SCALE),
            ("GroupNormalization", GROUP_SCALE),
        )
    ),
)

RULES: dict[tuple[str, str], Rule] = {(rule.domain, rule.op_type): rule for rule in _RULES}
"""Every entry by (domain, operator)."""

PRODUCTS = tuple(rule.op_type for rule in _RULES if rule.weight is not None and rule.weight.is_product)
"""The convolutions and matrix products."""

QUANTIZE, DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"
CONVERSIONS = (QUANTIZE, DEQUANTIZE)
"""The operators between float values and quantized values."""

STANDARD_DOMAINS = ("", "ai.onnx")
"""The two names of the standard operator domain."""

MICROSOFT = "com.microsoft"
"""The domain of onnxruntime's own operators."""


def _chain_changes(node: ir.Node, graph: Graph) -> tuple[float, float]:
    """Return the interval in which a chain changes: that of the nodes that read its source."""
    chain, low, high = chain_of(node), math.inf, -math.inf
    for reader in chain.nodes:
        for index, value in enumerate(reader.inputs):
            if value is chain.source:
                rule = rule_of(reader)
                if rule is None or rule.effective_range is None or index != 0:
                    return -math.inf, math.inf
                first, last = rule.effective_range(reader, graph)
                low, high = min(low, first), max(high, last)
    return low, high


CHAIN_RULE = Rule(CHAIN, unary=True, domain=CHAIN_DOMAIN, effective_range=_chain_changes)
"""The entry of a fused pointwise chain, which stands for one unary function."""


def rule_of(node: ir.Node) -> Rule | None:
    """Return the entry for the operator of `node`, None when the table has none."""
    domain = "" if node.domain in STANDARD_DOMAINS else node.domain
    if domain == CHAIN_DOMAIN and node.op_type == CHAIN:
        return CHAIN_RULE
    return RULES.get((domain, node.op_type))


def is_clip(node: ir.Node) -> bool:
    """Whether a node clips values and changes no others."""
    rule = rule_of(node)
    return rule is not None and rule.constraint is Constraint.CLAMP


def product_layout(node: ir.Node) -> WeightLayout | None:
    """Return the layout of the weight of a product (Conv, MatMul, ...), None for every other operator."""
    rule = rule_of(node)
    layout = None if rule is None else rule.weight
    return layout if layout is not None and layout.is_product else None


def weight_axes(node: ir.Node, shape: tuple[int, ...]) -> WeightAxes:
    """Return where the channels of the weight of a product, or of a recurrent operator's input, lie.

    Args:
        node: the product.
        shape: of its weight.
    """
    rule = rule_of(node)
    assert rule is not None
    return next(layout for layout in rule.constants if layout.is_product).axes(node, shape)
