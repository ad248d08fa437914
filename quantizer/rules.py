"""THE TABLE: everything that qprof knows about an operator stands in its entry here, and nowhere else.

An entry says which inputs carry activations, which may be a constant weight and along which axis that may
have its own scales, which is the bias, and how the parameters of output and inputs hang together. What a
given runtime can execute is not a fact about the operator: it stands in the target (see `targets`).
Adding an operator is adding an entry.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

import onnx_ir as ir

from .graph import Graph

Refusal = Callable[[ir.Node, Graph], str]
"""Says why this node of the operator cannot be quantized; "" when it can."""

Useful = Callable[[ir.Node, Graph], tuple[float, float]]
"""Returns smallest and largest input at which the node's output still changes."""


def _never(node: ir.Node, graph: Graph) -> bool:
    return False


def _always(node: ir.Node, graph: Graph) -> bool:
    return True


def _constant_weight(node: ir.Node, graph: Graph) -> bool:
    """A product of two activations converts both: attention of usual length gained nothing when measured."""
    return node.inputs[1] is not None and graph.constant(node.inputs[1].name or "") is not None


PRODUCTS = 64
"""Products for each output element from which a convolution pays for conversions at its border. Measured with
onnxruntime 1.31 on AVX512-VNNI, one thread: a product costs 0.019 ns in float and 0.0055 ns in int8, the
conversions and changes of layout around one convolution 0.4 to 0.6 ns for each element."""


def _many_products(node: ir.Node, graph: Graph) -> bool:
    """Depthwise convolutions and those of few input channels move more than they compute."""
    weight = graph.constant(node.inputs[1].name or "") if node.inputs[1] is not None else None
    return weight is None or weight.size >= PRODUCTS * max(weight.shape[0], 1)


class Constraint(StrEnum):
    """How the parameters of a node's output hang together with those of its inputs."""

    OWN = "own"
    """The output has parameters of its own, from its own profile."""
    SAME = "same-as-input"
    """Moves or selects values: codes pass through, the output has the parameters of the input."""
    ALL_SAME = "all-same"
    """Inputs and output live in one code space, or each input is converted to the output's."""
    CLAMP = "clamp"
    """Only clips: a producer without other uses takes the output's range, so that the clip is free."""
    FIXED = "fixed"
    """The mathematics bounds the output: its range never exceeds `Rule.bounds`."""


@dataclass(frozen=True)
class Weight:
    """An input that may be a constant weight.

    Attributes:
        index: position of the input.
        axis: axis of the output channels, which may have a scale each; given the node and the rank of the
            weight. None when the weight can only have one scale.
    """

    index: int
    axis: Callable[[ir.Node, int], int | None]


@dataclass(frozen=True)
class Rule:
    """What is true of one operator.

    Attributes:
        op_type: name of the operator.
        constraint: how the output's parameters follow.
        data: indices of the inputs that carry activations; None for all inputs.
        weight: the input that is usually a constant weight, if there is one. When it is constant it has
            the weight's parameters; when not it is an activation like `data`.
        bias: index of the input that is int32 with scale(x) * scale(w), if there is one.
        bounds: smallest and largest output that the mathematics allows, for FIXED.
        curve: the output is a function of one input element alone, so it can become a look-up table.
        heavy: does so much arithmetic per element that integers pay for conversions at its border; given the
            node and the graph.
        useful: the interval of inputs outside which the output no longer changes: a producer needs no codes
            there. None when every input matters.
        refuse: conditions of which the first that gives a sentence keeps the node float.
        domain: operator domain, "" for the standard one.
    """

    op_type: str
    constraint: Constraint = Constraint.OWN
    data: tuple[int, ...] | None = (0,)
    weight: Weight | None = None
    bias: int | None = None
    bounds: tuple[float, float] | None = None
    curve: bool = False
    heavy: Callable[[ir.Node, Graph], bool] = _never
    refuse: tuple[Refusal, ...] = ()
    useful: Useful | None = None
    domain: str = ""

    def activations(self, node: ir.Node) -> tuple[int, ...]:
        """Return the indices of the present inputs that carry activations (a weight not included)."""
        wanted = range(len(node.inputs)) if self.data is None else self.data
        return tuple(i for i in wanted if i < len(node.inputs) and node.inputs[i] is not None)

    def refusal(self, node: ir.Node, graph: Graph) -> str:
        """Return why this node cannot be quantized, "" when it can."""
        return next((text for text in (check(node, graph) for check in self.refuse) if text), "")


def _attribute(node: ir.Node, name: str, default: object) -> object:
    attribute = node.attributes.get(name)
    return default if attribute is None else attribute.value


def attribute_is(name: str, allowed: object, default: object) -> Refusal:
    """Refuse nodes whose attribute `name` (or its `default`) is not `allowed`."""

    def check(node: ir.Node, graph: Graph) -> str:
        value = _attribute(node, name, default)
        return "" if value == allowed else f"{node.op_type} with {name}={value} has no integer form"

    return check


def constant_input(index: int, what: str) -> Refusal:
    """Refuse nodes whose input `index` is not a constant."""

    def check(node: ir.Node, graph: Graph) -> str:
        value = node.inputs[index] if index < len(node.inputs) else None
        if value is not None and value.name and graph.constant(value.name) is not None:
            return ""
        return f"the {what} of {node.op_type} is not a constant"

    return check


def one_number(index: int, what: str) -> Refusal:
    """Refuse nodes whose constant input `index` has more than one element."""

    def check(node: ir.Node, graph: Graph) -> str:
        value = node.inputs[index] if index < len(node.inputs) else None
        constant = None if value is None else graph.constant(value.name or "")
        several = constant is not None and constant.size != 1
        return f"the {what} of {node.op_type} is not one number" if several else ""

    return check


def _constant_bias(node: ir.Node, graph: Graph) -> str:
    if len(node.inputs) < 3 or node.inputs[2] is None:
        return ""
    return constant_input(2, "bias")(node, graph)


def _pad_value_is_a_code(node: ir.Node, graph: Graph) -> str:
    """Padding with zero or with copies of values stays inside the code space."""
    if _attribute(node, "mode", "constant") != "constant" or len(node.inputs) < 3 or node.inputs[2] is None:
        return ""
    value = graph.constant(node.inputs[2].name or "")
    if value is not None and value.size == 1 and float(value.reshape(-1)[0]) == 0.0:
        return ""
    return "Pad with a value other than zero has no integer form"


def _undilated(node: ir.Node, graph: Graph) -> str:
    dilations = node.attributes.get_ints("dilations", ())
    return "" if all(d == 1 for d in dilations) else f"{node.op_type} with dilations has no integer form"


def _above_zero(node: ir.Node, graph: Graph) -> tuple[float, float]:
    return 0.0, math.inf


def _hard_swish_rises(node: ir.Node, graph: Graph) -> tuple[float, float]:
    return -3.0, math.inf


def _hard_sigmoid_rises(node: ir.Node, graph: Graph) -> tuple[float, float]:
    alpha, beta = node.attributes.get_float("alpha", 0.2), node.attributes.get_float("beta", 0.5)
    return (-beta / alpha, (1.0 - beta) / alpha) if alpha > 0.0 else (-math.inf, math.inf)


def _clip_bounds(node: ir.Node, graph: Graph) -> tuple[float, float]:
    bounds = [-math.inf, math.inf]
    for i, value in enumerate(node.inputs[1:3]):
        constant = None if value is None else graph.constant(value.name or "")
        if constant is not None:
            bounds[i] = float(constant.reshape(-1)[0])
    return bounds[0], bounds[1]


def _conv_transpose_axis(node: ir.Node, rank: int) -> int | None:
    # The weight is [in, out / group, ...]: with groups one position of axis 1 serves several output channels.
    return 1 if _attribute(node, "group", 1) == 1 else None


def _gemm_axis(node: ir.Node, rank: int) -> int | None:
    return 0 if _attribute(node, "transB", 0) == 1 else 1


def _last_axis(node: ir.Node, rank: int) -> int | None:
    return rank - 1 if rank >= 2 else None


def _axis_0(node: ir.Node, rank: int) -> int | None:
    return 0


def _no_axis(node: ir.Node, rank: int) -> int | None:
    return None


def _own(*op_types: str) -> Iterable[Rule]:
    return (Rule(op_type) for op_type in op_types)


def _moves(*op_types: str) -> Iterable[Rule]:
    return (Rule(op_type, Constraint.SAME) for op_type in op_types)


def _curves(*op_types: str) -> Iterable[Rule]:
    return (Rule(op_type, curve=True) for op_type in op_types)


_RULES: tuple[Rule, ...] = (
    # Multiply and accumulate
    Rule(
        "Conv",
        weight=Weight(1, _axis_0),
        bias=2,
        heavy=_many_products,
        refuse=(constant_input(1, "weight"), _constant_bias),
    ),
    Rule(
        "ConvTranspose",
        weight=Weight(1, _conv_transpose_axis),
        bias=2,
        heavy=_always,
        refuse=(constant_input(1, "weight"), _constant_bias),
    ),
    Rule(
        "Gemm",
        weight=Weight(1, _gemm_axis),
        bias=2,
        heavy=_always,
        refuse=(
            constant_input(1, "weight"),
            _constant_bias,
            attribute_is("alpha", 1.0, 1.0),
            attribute_is("beta", 1.0, 1.0),
            attribute_is("transA", 0, 0),
        ),
    ),
    Rule("MatMul", data=(0,), weight=Weight(1, _last_axis), heavy=_constant_weight),
    # Arithmetic
    Rule("Add", data=None),
    Rule("Sub", data=None),
    Rule("Mul", data=None),
    Rule("Div", data=None),
    Rule("Sum", data=None),
    Rule("Mean", data=None),
    Rule("PRelu", data=None),
    # Pooling and reducing
    Rule("AveragePool", refuse=(_undilated,)),
    *_own("GlobalAveragePool", "LpPool", "GlobalLpPool", "ReduceMean", "ReduceSum", "ReduceProd"),
    *_own("ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp"),
    *_own("CumSum", "Trilu", "GridSample", "RoiAlign"),
    *_moves("MaxPool", "GlobalMaxPool", "ReduceMax", "ReduceMin"),
    # Movers
    *_moves("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Expand", "Tile"),
    *_moves("Slice", "Split", "Gather", "GatherElements", "GatherND", "DepthToSpace", "SpaceToDepth"),
    *_moves("Compress", "ReverseSequence", "TopK"),
    Rule("Resize", Constraint.SAME, refuse=(attribute_is("mode", "nearest", "nearest"),)),
    Rule("Pad", Constraint.SAME, refuse=(_pad_value_is_a_code,)),
    # One code space
    Rule("Concat", Constraint.ALL_SAME, data=None),
    Rule("Where", Constraint.ALL_SAME, data=(1, 2)),
    Rule("ScatterND", Constraint.ALL_SAME, data=(0, 2), refuse=(attribute_is("reduction", "none", "none"),)),
    Rule(
        "ScatterElements",
        Constraint.ALL_SAME,
        data=(0, 2),
        refuse=(attribute_is("reduction", "none", "none"),),
    ),
    Rule("Max", Constraint.ALL_SAME, data=None),
    Rule("Min", Constraint.ALL_SAME, data=None),
    # Clips
    Rule("Relu", Constraint.CLAMP, useful=_above_zero),
    Rule("Clip", Constraint.CLAMP, useful=_clip_bounds),
    # Functions of one variable (no steps: Sign, Round, ... turn the noise of their input into whole steps)
    Rule("Sigmoid", Constraint.FIXED, bounds=(0.0, 1.0), curve=True),
    Rule("HardSigmoid", Constraint.FIXED, bounds=(0.0, 1.0), curve=True, useful=_hard_sigmoid_rises),
    Rule("Tanh", Constraint.FIXED, bounds=(-1.0, 1.0), curve=True),
    Rule("Erf", Constraint.FIXED, bounds=(-1.0, 1.0), curve=True),
    Rule("Sin", Constraint.FIXED, bounds=(-1.0, 1.0), curve=True),
    Rule("Cos", Constraint.FIXED, bounds=(-1.0, 1.0), curve=True),
    Rule("Softsign", Constraint.FIXED, bounds=(-1.0, 1.0), curve=True),
    Rule("Atan", Constraint.FIXED, bounds=(-math.pi / 2, math.pi / 2), curve=True),
    *_curves("LeakyRelu", "ThresholdedRelu", "Elu", "Selu", "Celu", "Softplus", "Mish", "Gelu"),
    Rule("HardSwish", curve=True, useful=_hard_swish_rises),
    *_curves("Exp", "Log", "Sqrt", "Reciprocal", "Abs", "Neg", "Shrink", "Swish"),
    *_curves("Asin", "Acos", "Tan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh"),
    Rule("Pow", curve=True, refuse=(constant_input(1, "exponent"), one_number(1, "exponent"))),
    # Normalisation
    Rule("Softmax", Constraint.FIXED, bounds=(0.0, 1.0)),
    *_own("LogSoftmax", "LRN", "LpNormalization"),
    *(
        Rule(op_type, weight=Weight(1, _no_axis), bias=2, refuse=(constant_input(1, "scale"), _constant_bias))
        for op_type in ("InstanceNormalization", "LayerNormalization", "GroupNormalization")
    ),
)

RULES: dict[tuple[str, str], Rule] = {(rule.domain, rule.op_type): rule for rule in _RULES}
"""Every entry by (domain, operator)."""


def rule_of(node: ir.Node) -> Rule | None:
    """Return the entry for the operator of `node`, None when the table has none."""
    domain = "" if node.domain == "ai.onnx" else node.domain
    return RULES.get((domain, node.op_type))
