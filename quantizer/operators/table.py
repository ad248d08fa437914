"""The operator table: everything that qprof knows about an operator stands in its entry here only.

The record `Operator` (see `facts`) contains facts that do not depend on quantization: the sizes that
determine the time of its kernel, its layouts, its effect on values, shapes and classes. A `Rule`, the entry
of an operator that can be quantized, also describes which inputs are activations, which may be a constant
weight with its channels and bias (`weight_layout`), and the rule for the parameters of the output. The
abilities of a runtime are not facts about the operator: the target lists them (see `targets`).

Adding an operator is adding an entry.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING

import onnx_ir as ir

from ...profiles.instrumentation.subgraphs import STANDARD_DOMAINS
from ..model.graph import constant_of
from .conditions import (
    EXTRAPOLATION,
    PADDING,
    SAMPLED_ZEROS,
    ZEROS,
    EffectiveRange,
    Fill,
    Refusal,
    above_zero,
    always,
    average_of_window,
    bias_for_each_column,
    clip_bounds,
    constant_bias,
    constant_input,
    constant_weight,
    default_attribute,
    hard_sigmoid_rises,
    hard_swish_rises,
    many_products,
    many_products_of_phases,
    never,
    scalar_exponent,
    several_along_axis,
)
from .facts import (
    AfterConvolution,
    Arithmetic,
    ChannelLayout,
    Classes,
    KernelSizes,
    Meaning,
    Operator,
    Steps,
    Sums,
    Values,
    even_power,
    fractional_power,
    signs_fold,
    singular_in,
    singular_power,
    square,
)
from .functions import CHAIN, CHAIN_DOMAIN, chain_of
from .noise_gains import (
    Gain,
    mean_gain,
    normalisation_gain,
    part_gain,
    power_gain,
    product_gain,
    quotient_gain,
    softmax_gain,
    sum_gain,
    unit_gain,
    window_gain,
)
from .weight_layout import (
    CHANNEL_SCALE,
    CONV,
    CONV_TRANSPOSE,
    EMBEDDING,
    GEMM,
    GROUP_SCALE,
    INPUT_GATES,
    LAST_AXIS_FACTOR,
    LAST_AXIS_SCALE,
    MATMUL,
    RECURRENT_GATES,
    WeightAxes,
    WeightLayout,
)

if TYPE_CHECKING:
    from .graph import Graph, Node

MICROSOFT = "com.microsoft"
"""The domain of onnxruntime's own operators."""


class Constraint(StrEnum):
    """How the quantization parameters of a node's output follow from those of its inputs."""

    OWN = "own"  # the output has parameters of its own, from its own profile
    SAME = "same-as-input"
    """Moves or selects values: quantized values pass through, the output has the input's parameters."""
    ALL_SAME = "all-same"
    """Inputs and output share their parameters, or each input is requantized to the output's."""
    CLAMP = "clamp"
    """Only clips: a producer without other uses takes the output's range, so that the clip is free."""
    FIXED = "fixed"  # the mathematics bounds the output: its range never exceeds `Rule.bounds`


class ChannelScaling(StrEnum):
    """How output channels are scaled by scaling the input, without a weight, whose layout says it."""

    NONE = "none"  # they are not, or nothing is gained by it
    ELEMENTS = "elements"
    """f(s x) = s f(x) for s > 0 in every element: the input is scaled along the same axis."""
    POOLED = "pooled"
    """f(s x) = s f(x) for s > 0 in each channel of axis 1: the input is scaled along that axis."""
    PERMUTED = "permuted"  # the input is scaled along another axis, which attribute `perm` names
    MERGED = "merged"  # the input is scaled along the axes that are merged into, or split from, the last one
    EITHER_OPERAND = "either-operand"  # one operand is scaled, the other one stays
    QUOTIENT = "quotient"  # the first operand is scaled, or the second one by the inverse
    BOTH_OPERANDS = "both-operands"  # both operands are scaled alike


OPERAND_SCALING = (ChannelScaling.EITHER_OPERAND, ChannelScaling.QUOTIENT, ChannelScaling.BOTH_OPERANDS)
"""Channel scaling of the four arithmetic operators."""


@dataclass(frozen=True)
class Rule(Operator):
    """The facts of an operator that can be quantized, beside those of `Operator`."""

    constraint: Constraint = Constraint.OWN  # how the output's parameters follow
    _: KW_ONLY
    data: tuple[int, ...] | None = (0,)  # indices of the inputs that carry activations; None for all inputs
    weight: WeightLayout | None = None  # an activation like `data` where it is not constant
    stored: tuple[WeightLayout, ...] = ()  # quantized in dynamic and weight-only nodes in place of `weight`
    bounds: tuple[float, float] | None = None  # by mathematics; for FIXED both are finite
    unary: bool = False  # can become a look-up table
    elementwise: bool = False  # as with every unary function
    compute_bound: Callable[[Node, Graph], bool] = never  # int8 pays for the conversions around it
    refuse: tuple[Refusal, ...] = ()  # the first that returns a sentence keeps it float
    effective_range: EffectiveRange | None = None  # beyond it the output no longer changes
    gain: Gain | None = None  # None: by weight or unary function, or as much as signal
    scaling: ChannelScaling = ChannelScaling.NONE  # handed on to what it reads
    fill: Fill | None = None  # that it puts where it has no input
    through_sigmoid: bool = False  # by onnxruntime's QLinearSigmoid
    standard_qlinear: bool = False  # ONNX itself has one
    in_decompositions: bool = False  # exporters write Gelu or HardSwish with it where they decompose them

    def activations(self, node: ir.Node | Node) -> tuple[int, ...]:
        """Return the indices of the present inputs that carry activations (a weight not included)."""
        wanted = range(len(node.inputs)) if self.data is None else self.data
        return tuple(i for i in wanted if i < len(node.inputs) and node.inputs[i])

    @property
    def bias(self) -> int | None:
        """Index of the input that is int32 with scale(x) * scale(w), if there is one."""
        return None if self.weight is None else self.weight.bias

    @property
    def constants(self) -> tuple[WeightLayout, ...]:
        """The inputs that may be quantized constants of a float operator."""
        return self.stored if self.weight is None else (self.weight,)

    @property
    def is_mean(self) -> bool:
        """Whether each output element is a mean of input elements, and of zeros of the padding."""
        return self.sums is Sums.MEAN

    @property
    def makes_probabilities(self) -> bool:
        """Whether values that compete become shares of 1, as by Softmax."""
        return self.classes is Classes.COMPETE and self.bounds == (0.0, 1.0)

    @property
    def is_affine(self) -> bool:
        """Whether it scales or shifts one operand if the other is constant."""
        return self.scaling in OPERAND_SCALING

    @property
    def is_recurrent(self) -> bool:
        """Whether the node sums over stored weights step by step: output 0 is the sequence, others states."""
        return any(layout.input_axis is not None for layout in self.stored)

    @property
    def is_lookup(self) -> bool:
        """Whether the node reads entries of an embedding table by their indices."""
        return any(layout.input_axis is None for layout in self.stored)

    def refusal(self, node: Node, graph: Graph) -> str:
        """Return why this node cannot be quantized, "" when it can."""
        conditions = [*self.refuse]
        if self.fill is not None and self.constraint is Constraint.SAME:
            conditions.append(self.fill.refusal)
        return next((text for text in (check(node, graph) for check in conditions) if text), "")


_unary = partial(Rule, kernel=KernelSizes.OUTPUT_ELEMENTS, layout=ChannelLayout.ANY_AXIS, unary=True)
"""The entry of a function of one variable: one pass over the elements, mostly in any layout."""

_pass = partial(Rule, kernel=KernelSizes.OUTPUT_ELEMENTS, layout=ChannelLayout.ANY_AXIS)
"""The entry of another function with one pass over its elements, in any layout."""

_reduce = partial(Rule, kernel=KernelSizes.REDUCTION, layout=ChannelLayout.ANY_AXIS)
"""The entry of operators that reduce elements along axes."""

_combine = partial(
    Rule, kernel=KernelSizes.BROADCAST, layout=ChannelLayout.ANY_AXIS, data=None, elementwise=True
)
"""The entry of elementwise operators with two inputs, with broadcasting."""

_move = partial(_pass, constraint=Constraint.SAME, values=Values.PLACED)
"""The entry of operators that move values, mostly to fixed places."""

_RULES: tuple[Rule, ...] = (
    # Multiply and accumulate
    Rule(
        "Conv",
        kernel=KernelSizes.CONVOLUTION,
        layout=ChannelLayout.CONVOLUTION,
        weight=CONV,
        compute_bound=many_products,
        refuse=(constant_input(1, "weight"), constant_bias),
        fill=ZEROS,
        standard_qlinear=True,
    ),
    Rule(
        "ConvTranspose",
        kernel=KernelSizes.TRANSPOSED_CONVOLUTION,
        layout=ChannelLayout.CHANNELS_FIRST,
        weight=CONV_TRANSPOSE,
        compute_bound=many_products_of_phases,
        refuse=(constant_input(1, "weight"), constant_bias),
    ),
    Rule(
        "Gemm",
        kernel=KernelSizes.MATRIX,
        layout=ChannelLayout.CHANNELS_FIRST,
        weight=GEMM,
        compute_bound=always,
        refuse=(
            constant_input(1, "weight"),
            constant_bias,
            bias_for_each_column,
            default_attribute("alpha", 1.0),
            default_attribute("beta", 1.0),
            default_attribute("transA", 0),
        ),
    ),
    Rule(
        "MatMul",
        kernel=KernelSizes.MATRIX_STACK,
        layout=ChannelLayout.CHANNELS_FIRST,
        data=(0,),
        weight=MATMUL,
        compute_bound=constant_weight,
        standard_qlinear=True,
    ),
    # Recurrent: both weights, of the input and of the state, are quantized where one is
    *(
        Rule(
            op_type,
            kernel=KernelSizes.RECURRENT,
            layout=ChannelLayout.CHANNELS_FIRST,
            stored=(INPUT_GATES, RECURRENT_GATES),
            refuse=(
                default_attribute("layout", 0),
                constant_input(1, "weight"),
                constant_input(2, "recurrent weight"),
            ),
        )
        for op_type in ("LSTM", "GRU", "RNN")
    ),
    # Arithmetic
    _combine(
        "Add",
        layout=ChannelLayout.COMBINES_BLOCKS,
        arithmetic=Arithmetic.SUM,
        after_convolution=AfterConvolution.FOLDED,
        gain=unit_gain,
        scaling=ChannelScaling.BOTH_OPERANDS,
    ),
    _combine("Sub", arithmetic=Arithmetic.DIFFERENCE, gain=unit_gain, scaling=ChannelScaling.BOTH_OPERANDS),
    _combine(
        "Mul",
        layout=ChannelLayout.COMBINES_BLOCKS,
        arithmetic=Arithmetic.PRODUCT,
        after_convolution=AfterConvolution.FOLDED,
        gain=product_gain,
        folds_signs=square,
        scaling=ChannelScaling.EITHER_OPERAND,
    ),
    _combine(
        "Div",
        arithmetic=Arithmetic.QUOTIENT,
        magnitude_of=1,
        singular=singular_in(1),
        gain=quotient_gain,
        scaling=ChannelScaling.QUOTIENT,
    ),
    _pass(
        "Sum",
        layout=ChannelLayout.COMBINES_BLOCKS,
        arithmetic=Arithmetic.SUM,
        data=None,
        elementwise=True,
        gain=unit_gain,
    ),
    _pass("Mean", data=None, elementwise=True),
    _combine("PRelu", layout=ChannelLayout.CHANNELS_FIRST, scaling=ChannelScaling.ELEMENTS),
    # Pooling and reducing
    Rule(
        "AveragePool",
        kernel=KernelSizes.WINDOW,
        layout=ChannelLayout.KEEPS_BLOCKS,
        refuse=(average_of_window,),
        gain=window_gain,
        sums=Sums.MEAN,
        scaling=ChannelScaling.POOLED,
        fill=ZEROS,
    ),
    Rule(
        "GlobalAveragePool",
        kernel=KernelSizes.INPUT_ELEMENTS,
        layout=ChannelLayout.KEEPS_BLOCKS,
        meaning=Meaning.MEAN,
        gain=mean_gain,
        sums=Sums.MEAN,
        scaling=ChannelScaling.POOLED,
    ),
    _reduce("ReduceMean", meaning=Meaning.MEAN, gain=mean_gain, sums=Sums.MEAN),
    _reduce("ReduceSum", gain=sum_gain, sums=Sums.RESULT, grows=True),
    Rule(
        "LpPool",
        kernel=KernelSizes.WINDOW,
        layout=ChannelLayout.ANY_AXIS,
        sums=Sums.NORM,
        folds_signs=signs_fold,
        fill=ZEROS,
    ),
    _pass("GlobalLpPool", sums=Sums.NORM, folds_signs=signs_fold),
    _reduce("ReduceProd", grows=True),
    *(
        _reduce(op_type, folds_signs=signs_fold, sums=sums, grows=grows)
        for op_type, sums, grows in (
            ("ReduceL1", Sums.RESULT, False),
            ("ReduceL2", Sums.NORM, True),
            ("ReduceSumSquare", Sums.RESULT, True),
        )
    ),
    # no kernel of theirs was measured
    _pass("ReduceLogSum", sums=Sums.RESULT, undefined_below_zero=singular_in(0)),
    _pass("ReduceLogSumExp", sums=Sums.SHIFTED, ignores_lowest=True),
    _pass("CumSum", sums=Sums.RUNNING, grows=True, fill=ZEROS),
    *(_pass(op_type, fill=ZEROS) for op_type in ("Trilu", "RoiAlign")),
    _pass("GridSample", layout=ChannelLayout.CHANNELS_FIRST, fill=SAMPLED_ZEROS),
    _move(
        "MaxPool",
        kernel=KernelSizes.WINDOW,
        layout=ChannelLayout.KEEPS_BLOCKS,
        values=Values.CHOSEN,
        scaling=ChannelScaling.POOLED,
    ),
    _move(
        "GlobalMaxPool",
        kernel=KernelSizes.INPUT_ELEMENTS,
        layout=ChannelLayout.KEEPS_BLOCKS,
        values=Values.CHOSEN,
        meaning=Meaning.MEAN,
        scaling=ChannelScaling.POOLED,
    ),
    *(
        _move(
            op_type, kernel=KernelSizes.REDUCTION, values=Values.CHOSEN, ignores_lowest=op_type == "ReduceMax"
        )
        for op_type in ("ReduceMax", "ReduceMin")
    ),
    # Operators that move values
    _move(
        "Reshape",
        kernel=KernelSizes.VIEW,
        layout=ChannelLayout.CHANNELS_FIRST,
        values=Values.SAME_ORDER,
        shape_inputs=(1,),
        scaling=ChannelScaling.MERGED,
    ),
    _move("Flatten", kernel=KernelSizes.VIEW, layout=ChannelLayout.CHANNELS_FIRST, values=Values.SAME_ORDER),
    *(
        _move(op_type, kernel=KernelSizes.VIEW, values=Values.SAME_ORDER, shape_inputs=(1,))
        for op_type in ("Squeeze", "Unsqueeze")
    ),
    _move(
        "Transpose",
        kernel=KernelSizes.TRANSPOSE,
        values=Values.PERMUTED,
        classes=Classes.CARRIED,
        scaling=ChannelScaling.PERMUTED,
    ),
    *(_move(op_type, shape_inputs=(1,), sizes_result=True) for op_type in ("Expand", "Tile")),
    _move("Gather", kernel=KernelSizes.ENTRIES, layout=ChannelLayout.CHANNELS_FIRST, stored=(EMBEDDING,)),
    _move("Slice", kernel=KernelSizes.SLICES, shape_inputs=(1, 2, 3, 4), sizes_result=True),
    _move("Split", kernel=KernelSizes.SLICES, shape_inputs=(1,)),
    _move("GatherElements"),
    _move("GatherND", layout=ChannelLayout.CHANNELS_FIRST),
    *(
        _move(op_type, layout=ChannelLayout.CHANNELS_FIRST, values=Values.PERMUTED)
        for op_type in ("DepthToSpace", "SpaceToDepth")
    ),
    _move("Compress", values=Values.CHOSEN, shape_inputs=None),
    _move("ReverseSequence", values=Values.PERMUTED),
    _move(
        "TopK",
        layout=ChannelLayout.CHANNELS_FIRST,
        values=Values.CHOSEN,
        shape_inputs=(1,),
        steps=Steps.CANDIDATES,
        meaning=Meaning.DECISION,
    ),
    _move(
        "Resize",
        kernel=KernelSizes.RESIZE,
        layout=ChannelLayout.KEEPS_BLOCKS,
        shape_inputs=(1, 2, 3),
        sizes_result=True,
        classes=Classes.CARRIED,
        refuse=(default_attribute("mode", "nearest"),),
        fill=EXTRAPOLATION,
    ),
    _move("Pad", kernel=KernelSizes.RUNS, shape_inputs=(1, 3), sizes_result=True, fill=PADDING),
    # Shared parameters
    Rule(
        "Concat",
        Constraint.ALL_SAME,
        kernel=KernelSizes.RUNS,
        layout=ChannelLayout.JOINS_BLOCKS,
        joins_inputs=True,
        data=None,
        gain=part_gain,
    ),
    _pass("Where", Constraint.ALL_SAME, picks_by_condition=True, data=(1, 2)),
    *(
        _pass(
            op_type,
            Constraint.ALL_SAME,
            layout=layout,
            data=(0, 2),
            refuse=(default_attribute("reduction", "none"),),
        )
        for op_type, layout in (
            ("ScatterND", ChannelLayout.CHANNELS_FIRST),
            ("ScatterElements", ChannelLayout.ANY_AXIS),
        )
    ),
    *(_combine(op_type, Constraint.ALL_SAME) for op_type in ("Max", "Min")),
    # Operators that clip values
    _pass(
        "Relu",
        Constraint.CLAMP,
        layout=ChannelLayout.KEEPS_BLOCKS,
        after_convolution=AfterConvolution.ACTIVATION,
        elementwise=True,
        effective_range=above_zero,
        scaling=ChannelScaling.ELEMENTS,
    ),
    _pass(
        "Clip",
        Constraint.CLAMP,
        after_convolution=AfterConvolution.ACTIVATION,
        elementwise=True,
        effective_range=clip_bounds,
        in_decompositions=True,
    ),
    # Unary functions; those with steps turn the noise of their input into whole steps and have no rule
    _unary(
        "Sigmoid",
        Constraint.FIXED,
        bounds=(0.0, 1.0),
        layout=ChannelLayout.KEEPS_BLOCKS,
        ignores_lowest=True,
        meaning=Meaning.DECISION_OR_PICTURE,
        classes=Classes.APART,
        after_convolution=AfterConvolution.ACTIVATION,
    ),
    _unary(
        "HardSigmoid",
        Constraint.FIXED,
        bounds=(0.0, 1.0),
        layout=ChannelLayout.KEEPS_BLOCKS,
        meaning=Meaning.DECISION,
        effective_range=hard_sigmoid_rises,
        after_convolution=AfterConvolution.ACTIVATION,
    ),
    _unary(
        "Tanh",
        Constraint.FIXED,
        bounds=(-1.0, 1.0),
        through_sigmoid=True,
        layout=ChannelLayout.KEEPS_BLOCKS,
        in_decompositions=True,
        after_convolution=AfterConvolution.ACTIVATION,
    ),
    _unary("Erf", Constraint.FIXED, bounds=(-1.0, 1.0), in_decompositions=True),
    *(_unary(op_type, Constraint.FIXED, bounds=(-1.0, 1.0)) for op_type in ("Sin", "Cos")),
    _unary("Softsign", Constraint.FIXED, bounds=(-1.0, 1.0)),
    _unary("Atan", Constraint.FIXED, bounds=(-math.pi / 2, math.pi / 2)),
    _unary("LeakyRelu", scaling=ChannelScaling.ELEMENTS, after_convolution=AfterConvolution.ACTIVATION),
    _unary("Exp", bounds=(0.0, math.inf), ignores_lowest=True, magnitude_of=0, grows=True),
    _unary("Sqrt", bounds=(0.0, math.inf), undefined_below_zero=singular_in(0)),
    _unary("Abs", bounds=(0.0, math.inf), folds_signs=signs_fold),
    _unary("Softplus", bounds=(0.0, math.inf), magnitude_of=0),
    # the least value is -0.16997, and -0.17004 as approximated by tanh
    _unary("Gelu", bounds=(-0.1701, math.inf), layout=ChannelLayout.KEEPS_BLOCKS),
    _unary(
        "HardSwish",
        bounds=(-0.375, math.inf),
        layout=ChannelLayout.KEEPS_BLOCKS,
        effective_range=hard_swish_rises,
        after_convolution=AfterConvolution.ACTIVATION,
    ),
    *(_unary(op_type) for op_type in ("ThresholdedRelu", "Elu", "Selu", "Celu", "Mish", "Swish")),
    _unary("Log", singular=singular_in(0)),
    _unary("Reciprocal", singular=singular_in(0), magnitude_of=0, grows=True),
    *(_unary(op_type) for op_type in ("Neg", "Shrink")),
    *(_unary(op_type) for op_type in ("Asin", "Acos", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh")),
    _unary("Tan"),
    Rule(
        "Pow",
        kernel=KernelSizes.BROADCAST,
        layout=ChannelLayout.ANY_AXIS,
        singular=singular_power,
        undefined_below_zero=fractional_power,
        folds_signs=even_power,
        unary=True,
        magnitude_of=1,
        grows=True,
        gain=power_gain,
        refuse=(constant_input(1, "exponent"), scalar_exponent),
    ),
    # Normalisation
    Rule(
        "Softmax",
        Constraint.FIXED,
        kernel=KernelSizes.SOFTMAX,
        layout=ChannelLayout.ANY_AXIS,
        ignores_lowest=True,
        meaning=Meaning.DECISION,
        classes=Classes.COMPETE,
        bounds=(0.0, 1.0),
        gain=softmax_gain,
        refuse=(several_along_axis,),
    ),
    Rule(
        "LogSoftmax",
        kernel=KernelSizes.SOFTMAX,
        layout=ChannelLayout.ANY_AXIS,
        meaning=Meaning.DECISION,
        classes=Classes.COMPETE,
    ),
    _pass("LRN"),
    _pass("LpNormalization", meaning=Meaning.DIRECTION),
    Rule(
        "InstanceNormalization",
        kernel=KernelSizes.PLANES,
        layout=ChannelLayout.CHANNELS_FIRST,
        weight=CHANNEL_SCALE,
        gain=normalisation_gain,
        refuse=(constant_input(1, "scale"), constant_bias),
    ),
    Rule(
        "LayerNormalization",
        kernel=KernelSizes.ROWS,
        layout=ChannelLayout.CHANNELS_FIRST,
        meaning=Meaning.DIRECTION,
        joins_sum=True,
        weight=LAST_AXIS_SCALE,
        gain=normalisation_gain,
        refuse=(constant_input(1, "scale"), constant_bias),
    ),
    *(
        Rule(
            op_type,
            kernel=KernelSizes.ROWS,
            layout=ChannelLayout.CHANNELS_FIRST,
            meaning=Meaning.DIRECTION,
            weight=LAST_AXIS_FACTOR,
            gain=normalisation_gain,
            refuse=(constant_input(1, "scale"),),
        )
        for op_type in ("RMSNormalization", "SimplifiedLayerNormalization")
    ),
    _pass(
        "GroupNormalization",
        weight=GROUP_SCALE,
        gain=normalisation_gain,
        refuse=(constant_input(1, "scale"), constant_bias),
    ),
)

_float = partial(Operator, kernel=KernelSizes.OUTPUT_ELEMENTS, layout=ChannelLayout.ANY_AXIS)
"""The entry of an operator without integer form: unless it says so, one pass in any layout."""

_FLOAT_ONLY: tuple[Operator, ...] = (
    # Operators that hand values on
    Operator(
        "Identity",
        kernel=KernelSizes.VIEW,
        layout=ChannelLayout.KEEPS_BLOCKS,
        values=Values.SAME_ORDER,
        classes=Classes.CARRIED,
        left_out=True,
    ),
    Operator(
        "Dropout",
        kernel=KernelSizes.VIEW,
        layout=ChannelLayout.ANY_AXIS,
        values=Values.SAME_ORDER,
        classes=Classes.CARRIED,
    ),
    _float("Cast", values=Values.CONVERTED, classes=Classes.CARRIED),
    _float("Upsample", shape_inputs=(1,), sizes_result=True, classes=Classes.CARRIED),
    _float("Constant", values=Values.CONSTANT),
    # Shapes, and what is made of them
    _float("Shape", layout=ChannelLayout.CHANNELS_FIRST, reads_shape_only=True),
    _float("Size", reads_shape_only=True),
    _float("Range", shape_inputs=(0, 1, 2), sizes_result=True),
    _float("ConstantOfShape", shape_inputs=(0,), sizes_result=True),
    _float("CenterCropPad", shape_inputs=(1,)),
    _float("MaxUnpool", shape_inputs=(2,)),
    _float("AffineGrid", shape_inputs=(1,)),
    _float("STFT", shape_inputs=(1, 3)),
    _float("DFT", shape_inputs=(1, 2)),
    *(_float(op_type, shape_inputs=(0,)) for op_type in ("HannWindow", "HammingWindow", "BlackmanWindow")),
    # Sequences: which tensor is taken, and so its shape
    *(_float(op_type, shape_inputs=(1,)) for op_type in ("SplitToSequence", "SequenceAt", "SequenceErase")),
    _float("SequenceInsert", shape_inputs=(2,)),
    # Operators that make as many elements as values say
    _float("StringSplit", shape_inputs=None),
    *(_float(op_type, shape_inputs=None) for op_type in ("If", "Loop", "Scan")),
    _float("NonZero", shape_inputs=None, steps=Steps.EQUAL_VALUES),
    _float("Unique", shape_inputs=None, steps=Steps.CANDIDATES),
    _float("NonMaxSuppression", shape_inputs=None, steps=Steps.CANDIDATES),
    # Steps
    *(_float(op_type, steps=Steps.WHOLE_NUMBERS) for op_type in ("Ceil", "Floor", "Round")),
    *(
        _float(op_type, kernel=KernelSizes.BROADCAST, steps=Steps.EQUAL_VALUES)
        for op_type in ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")
    ),
    _float("Mod", kernel=KernelSizes.BROADCAST, steps=Steps.CANDIDATES),
    *(
        _float(
            op_type,
            kernel=KernelSizes.REDUCTION,
            steps=Steps.EQUAL_VALUES,
            ignores_lowest=op_type == "ArgMax",
            meaning=Meaning.DECISION,
        )
        for op_type in ("ArgMax", "ArgMin")
    ),
    _float(
        "Hardmax",
        steps=Steps.CANDIDATES,
        ignores_lowest=True,
        meaning=Meaning.DECISION,
        classes=Classes.COMPETE,
    ),
    _float("OneHot", shape_inputs=(1,), steps=Steps.CANDIDATES),
    # Random numbers
    *(
        _float(op_type, random=True)
        for op_type in (
            *("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"),
            *("Multinomial", "Bernoulli"),
        )
    ),
    # Others whose kernel or layout is known
    *(_float(op_type, layout=ChannelLayout.CHANNELS_FIRST) for op_type in ("BatchNormalization", "Einsum")),
    # Attention, and turning by rotary positions: what they read is in rows, and their lengths follow from it
    _float("Attention", layout=ChannelLayout.CHANNELS_FIRST, kernel=KernelSizes.ATTENTION),
    _float("Attention", layout=ChannelLayout.CHANNELS_FIRST, domain=MICROSOFT),
    _float(
        "MultiHeadAttention",
        layout=ChannelLayout.CHANNELS_FIRST,
        kernel=KernelSizes.ATTENTION,
        domain=MICROSOFT,
    ),
    _float(
        "GroupQueryAttention",
        layout=ChannelLayout.CHANNELS_FIRST,
        kernel=KernelSizes.ATTENTION,
        shape_inputs=(6,),
        domain=MICROSOFT,
    ),
    _float("RotaryEmbedding", layout=ChannelLayout.CHANNELS_FIRST),
    _float("RotaryEmbedding", layout=ChannelLayout.CHANNELS_FIRST, domain=MICROSOFT),
    # Products and entries of weights that have few bits already
    *(
        _float(op_type, layout=ChannelLayout.CHANNELS_FIRST, domain=MICROSOFT)
        for op_type in ("MatMulNBits", "GatherBlockQuantized")
    ),
    _float("FastGelu", domain=MICROSOFT),
    _float("GridSample", layout=ChannelLayout.CHANNELS_FIRST, domain=MICROSOFT),
)

RULES: dict[tuple[str, str], Rule] = {(rule.domain, rule.op_type): rule for rule in _RULES}
"""The entries of operators that can be quantized, by (domain, operator)."""

OPERATORS: dict[tuple[str, str], Operator] = {
    (entry.domain, entry.op_type): entry for entry in (*_RULES, *_FLOAT_ONLY)
}
"""Every entry by (domain, operator)."""

PRODUCTS = tuple(rule.op_type for rule in _RULES if rule.weight is not None and rule.weight.is_product)
"""The convolutions and matrix products."""

QUANTIZE, DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"
CONVERSIONS = (QUANTIZE, DEQUANTIZE)
"""The operators between float values and quantized values."""


def _chain_changes(node: Node, graph: Graph) -> tuple[float, float]:
    """Return the interval that a chain changes on: that of the nodes that read its source."""
    from .graph import node_view

    chain, low, high = chain_of(node.ir_node), math.inf, -math.inf
    for reader in map(node_view, chain.nodes):
        for index, name in enumerate(reader.inputs):
            if name == chain.source.name:
                rule = rule_of(reader)
                if rule is None or rule.effective_range is None or index != 0:
                    return -math.inf, math.inf
                first, last = rule.effective_range(reader, graph)
                low, high = min(low, first), max(high, last)
    return low, high


CHAIN_RULE = Rule(
    CHAIN,
    kernel=KernelSizes.OUTPUT_ELEMENTS,
    layout=ChannelLayout.ANY_AXIS,
    unary=True,
    domain=CHAIN_DOMAIN,
    effective_range=_chain_changes,
)
"""The entry of a fused pointwise chain, which stands for one unary function."""

UNKNOWN = Operator(
    "", kernel=KernelSizes.OUTPUT_ELEMENTS, layout=ChannelLayout.ANY_AXIS, shape_inputs=None, domain="?"
)
"""Assumptions about an operator of another domain: any value may decide on shapes of outputs."""

ORDINARY = Operator("", kernel=KernelSizes.OUTPUT_ELEMENTS, layout=ChannelLayout.ANY_AXIS)
"""What is true of an operator of ONNX without an entry: one pass over its elements, and the defaults."""


def facts_of(node: ir.Node | Node) -> Operator:
    """Return the facts of the operator of `node`, quantizable or not; see `rule_of`."""
    domain = "" if node.domain in STANDARD_DOMAINS else node.domain
    if domain == CHAIN_DOMAIN and node.op_type == CHAIN:
        return CHAIN_RULE
    return OPERATORS.get((domain, node.op_type), UNKNOWN if domain else ORDINARY)


def rule_of(node: ir.Node | Node) -> Rule | None:
    """Return the entry for the operator of `node`, or None if it cannot be quantized."""
    entry = facts_of(node)
    return entry if isinstance(entry, Rule) else None


def draws(node: ir.Node) -> bool:
    """Whether a node makes other values in each run: it draws them, or drops some in training mode."""
    if node.op_type == "Dropout" and node.domain in STANDARD_DOMAINS and len(node.inputs) > 2:
        training = constant_of(node.inputs[2])
        return node.inputs[2] is not None and (training is None or bool(training))
    return facts_of(node).random


def is_clip(node: ir.Node | Node) -> bool:
    """Whether a node clips values and changes no others."""
    rule = rule_of(node)
    return rule is not None and rule.constraint is Constraint.CLAMP


def product_layout(node: ir.Node | Node) -> WeightLayout | None:
    """Return the layout of the weight of a product (Conv, MatMul, ...), None for every other operator."""
    rule = rule_of(node)
    layout = None if rule is None else rule.weight
    return layout if layout is not None and layout.is_product else None


def channel_layout(node: ir.Node | Node) -> WeightLayout | None:
    """Return the layout of the weight, of a recurrent node its input's, that multiplies input 0."""
    rule = rule_of(node)
    return next((layout for layout in rule.constants if layout.is_product), None) if rule else None


def weight_axes(node: ir.Node | Node, shape: tuple[int, ...]) -> WeightAxes:
    """Return the channel axes of the weight of a product, or of a recurrent operator's input."""
    layout = channel_layout(node)
    assert layout is not None
    return layout.axes(node, shape)
