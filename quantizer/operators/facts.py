"""What is known of an operator whether or not it can be quantized: the record `Operator` and its vocabulary.

`table.py` has an entry for each operator of which any of this is known. Those that can be quantized are
entries of `Rule`, which is an `Operator` and says besides how the quantization parameters follow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from enum import StrEnum

import onnx_ir as ir

from ..model.graph import constant_of


class KernelSizes(StrEnum):
    """Which sizes the time of an operator's kernel depends on; `costs.kernels` has a function for each."""

    OUTPUT_ELEMENTS = "output-elements"
    """One pass over the elements of the outputs."""
    INPUT_ELEMENTS = "input-elements"
    """One pass over the elements of the first input."""
    VIEW = "view"
    """Nothing moves: the output is the input with another shape."""
    BROADCAST = "broadcast"
    """One pass over the output, slower where an operand is repeated along some axes."""
    WINDOW = "window"
    """Each output element is computed from the taps of a pooling window."""
    REDUCTION = "reduction"
    """One pass over the input, slower where the last axis is kept."""
    ROWS = "rows"
    """Two passes over each vector along the last axis."""
    SOFTMAX = "softmax"
    """The same along attribute `axis`, slower where that is not the last."""
    PLANES = "planes"
    """The same over all places of a channel."""
    RUNS = "runs"
    """Copies runs of neighbouring elements, up to the last axis that is joined or filled up."""
    SLICES = "slices"
    """Copies runs that are cut out of the input."""
    ENTRIES = "entries"
    """Copies entries of a table."""
    TRANSPOSE = "transpose"
    """Copies in the order of attribute `perm`."""
    RESIZE = "resize"
    """One pass over the output, by attribute `mode`."""
    CONVOLUTION = "convolution"
    """Products for each tap, channel and place."""
    TRANSPOSED_CONVOLUTION = "transposed-convolution"
    """A product of matrices for each place, whose results are added up."""
    MATRIX_STACK = "matrix-stack"
    """A product of matrices for each matrix of a stack."""
    MATRIX = "matrix"
    """One product of matrices."""
    ATTENTION = "attention"
    """Products of queries and keys, and of what Softmax makes of them and values; the cache is copied."""
    RECURRENT = "recurrent"
    """A product of a matrix and a vector for each step."""


class ChannelLayout(StrEnum):
    """In which layouts of the channels onnxruntime computes an operator on x86-64.

    Float convolutions compute in blocks of channels (NCHWc), integer ones with channels last (NHWC).
    """

    CONVOLUTION = "convolution"
    """Wants a layout of its own, and makes it."""
    KEEPS_BLOCKS = "keeps-blocks"
    """Takes blocks and returns blocks, and works with the channels last."""
    COMBINES_BLOCKS = "combines-blocks"
    """The same where all that it reads is in blocks and of one shape."""
    JOINS_BLOCKS = "joins-blocks"
    """The same where all that it reads is in blocks, which are joined along the channels."""
    ANY_AXIS = "any-axis"
    """Blocks are taken apart before it; with the channels last it works once its attributes are changed."""
    CHANNELS_FIRST = "channels-first"
    """Needs the layout of the model."""


class Values(StrEnum):
    """The values of the first output, beside those of the first input."""

    COMPUTED = "computed"
    """Other values."""
    SAME_ORDER = "same-order"
    """All of them, in the same order, in another shape."""
    PERMUTED = "permuted"
    """All of them, each once, in another order."""
    PLACED = "placed"
    """Some of them or all, perhaps several times, at places that are fixed beforehand."""
    CONVERTED = "converted"
    """All of them in another type."""
    CONSTANT = "constant"
    """Those of an attribute."""
    CHOSEN = "chosen"
    """Some of them, chosen by the values themselves."""


class Steps(StrEnum):
    """Where the output of an operator jumps while its input changes a little."""

    NONE = "none"
    """Nowhere, or only where it is not finite."""
    WHOLE_NUMBERS = "whole-numbers"
    """From one whole number to the next."""
    EQUAL_VALUES = "equal-values"
    """Where two values are equal, or one is 0."""
    CANDIDATES = "candidates"
    """From one candidate to another of nearly the same value."""


class Arithmetic(StrEnum):
    """The arithmetic operators."""

    SUM = "sum"
    DIFFERENCE = "difference"
    PRODUCT = "product"
    QUOTIENT = "quotient"


class Meaning(StrEnum):
    """The meaning of an output's values where the operator is the last one that computes them."""

    VALUES = "values"
    """Nothing is known."""
    DECISION = "decision"
    """They are compared with each other or with a threshold."""
    DECISION_OR_PICTURE = "decision-or-picture"
    """Each is between 0 and 1 by itself: a probability, or the brightness of a place of a picture."""
    DIRECTION = "direction"
    """Vectors whose direction is compared: they are normalised."""
    MEAN = "mean"
    """What there is in a picture or sequence as a whole: an embedding where it is a vector."""


class Classes(StrEnum):
    """The part that an operator has in classes along an axis of its input or output."""

    NONE = "none"
    """Nothing is known: what was class 3 before it need not be in place 3."""
    COMPETE = "compete"
    """The values along attribute `axis` are those of classes, of which one is the answer."""
    APART = "apart"
    """Each class is judged by itself, in the place that it had."""
    CARRIED = "carried"
    """They stay classes, in the order that they had."""


class Sums(StrEnum):
    """The sum of many elements that an operator makes on its way to a result."""

    NONE = "none"
    """It adds up none, or stored weights and products beside them."""
    RESULT = "result"
    """The result is the sum."""
    MEAN = "mean"
    """The result is the sum over the number of elements."""
    NORM = "norm"
    """The result is the root of the sum."""
    SHIFTED = "shifted"
    """Exponentials are added of which the largest is 1."""
    RUNNING = "running"
    """Results are the sums up to each element along an axis."""


class AfterConvolution(StrEnum):
    """The kernel that onnxruntime makes of a float operator that alone reads a convolution's result."""

    APART = "apart"
    """It is computed by itself."""
    ACTIVATION = "activation"
    """The convolution applies it to its results."""
    FOLDED = "folded"
    """One constant for each channel becomes a part of weights and bias."""


Singularity = Callable[[ir.Node, int], bool]
"""Whether a node has no finite value where its input of this index is 0."""


def finite_at_zero(node: ir.Node, index: int) -> bool:
    """Return False: the operator is finite where its inputs are 0, or below: the default of both facts."""
    return False


def singular_in(position: int) -> Singularity:
    """Return the singularity of operators that are infinite where the input at a position is 0."""
    return lambda node, index: index == position


def singular_power(node: ir.Node, index: int) -> bool:
    """Whether a Pow has an exponent below 0, or one that is not known."""
    exponent = constant_of(node.inputs[1]) if len(node.inputs) > 1 else None
    return index == 0 and (exponent is None or bool((exponent < 0.0).any()))


def fractional_power(node: ir.Node, index: int) -> bool:
    """Whether a Pow has an exponent that is no whole number: it is NaN below 0."""
    exponent = constant_of(node.inputs[1]) if len(node.inputs) > 1 else None
    return index == 0 and exponent is not None and bool((exponent != exponent.round()).any())


FoldsSigns = Callable[[ir.Node], bool]
"""Whether a node makes the same of a value and of its negative, and so nothing below 0."""


def signs_stay(node: ir.Node) -> bool:
    """Return False: the default of `Operator.folds_signs`."""
    return False


def signs_fold(node: ir.Node) -> bool:
    """Return True: the operator computes magnitudes or squares."""
    return True


def even_power(node: ir.Node) -> bool:
    """Whether all exponents of a Pow are even, as of a square."""
    exponent = constant_of(node.inputs[1]) if len(node.inputs) > 1 else None
    return exponent is not None and not bool((exponent % 2).any())


def square(node: ir.Node) -> bool:
    """Whether a product is that of a tensor with itself."""
    return node.inputs[0] is node.inputs[1]


@dataclass(frozen=True)
class Operator:
    """The facts of one operator in float and in integers.

    Kernel and layout are stated for each entry. The defaults of all other fields are what is true of most
    operators of ONNX, computing new float values of the shapes of their inputs, smoothly and alike in each
    run; `tests/quantizer/operators/test_facts.py` asks onnx's schemas and inference where they differ.

    Attributes:
        op_type: name of the operator.
        kernel: what its time depends on.
        layout: in which layouts of the channels it is computed.
        domain: operator domain, "" for the standard one.
        values: what becomes of the values of the first input. Most operators compute other ones.
        arithmetic: which operation of arithmetic it is, element by element; None for all others.
        picks_by_condition: whether its first input says, element by element, which other input is taken.
        joins_inputs: whether its output holds the values of all inputs side by side.
        shape_inputs: inputs whose values, not only shapes, the shape of an output depends on; None where
            the values of any input say how many elements there are. Most operators look at shapes alone.
        sizes_result: whether integers among its inputs say how much there is of the result, so that a step
            before it (a duration that is rounded) moves all that follows. Those that arrange what there is,
            such as Reshape, say nothing.
        counts: whether it makes whole numbers, one after the other.
        reads_shape_only: whether it looks at no value at all: what it computes is a shape.
        steps: where its output jumps. Most functions are continuous.
        singular: whether it is infinite where an input is 0. Most are finite.
        undefined_below_zero: whether it is NaN where an input is below 0, though finite at 0, as a root is.
        grows: whether results are often beyond the inputs by orders of magnitude. Most are near them.
        periodic: whether only what is left of its input by a period counts, so that a step of a large input
            is as large in the result.
        sums: the sum that it makes of many elements.
        folds_signs: whether it makes the same of values and of their negatives. Most do not.
        ignores_lowest: whether what lies far below the largest of its first input leaves no trace in the
            output, so that masks are made of such values.
        random: whether its values differ between two runs.
        meaning: of its values as an output of a model; VALUES where nothing can be told, as of most.
        magnitude_of: the input of which it makes magnitudes, where that is no constant: an error of it
            changes a result in proportion to it. None of most.
        classes: what it does with an axis of classes; those that a product makes are told by its weight.
        resamples: whether a picture stays that picture at another size, though values are computed: what
            only moves values says so by `values`.
        left_out: whether onnxruntime leaves it out of a float graph; every other operator is computed.
        joins_sum: whether onnxruntime makes one float kernel of it and the sum of two sequences before it.
        after_convolution: what becomes of it in float beside a convolution. Most stay by themselves.
    """

    op_type: str
    _: KW_ONLY
    kernel: KernelSizes
    layout: ChannelLayout
    domain: str = ""
    values: Values = Values.COMPUTED
    arithmetic: Arithmetic | None = None
    picks_by_condition: bool = False
    joins_inputs: bool = False
    shape_inputs: tuple[int, ...] | None = ()
    sizes_result: bool = False
    counts: bool = False
    reads_shape_only: bool = False
    steps: Steps = Steps.NONE
    singular: Singularity = finite_at_zero
    undefined_below_zero: Singularity = finite_at_zero
    grows: bool = False
    periodic: bool = False
    sums: Sums = Sums.NONE
    folds_signs: FoldsSigns = signs_stay
    ignores_lowest: bool = False
    random: bool = False
    meaning: Meaning = Meaning.VALUES
    magnitude_of: int | None = None
    classes: Classes = Classes.NONE
    resamples: bool = False
    left_out: bool = False
    joins_sum: bool = False
    after_convolution: AfterConvolution = AfterConvolution.APART

    @property
    def moves_values(self) -> bool:
        """Whether the first output holds values of the first input, at places fixed beforehand."""
        return self.values in (Values.SAME_ORDER, Values.PERMUTED, Values.PLACED, Values.CONVERTED)

    def is_root(self, node: ir.Node, index: int) -> bool:
        """Whether an input of a node is rooted: no number below 0, and finite at it."""
        return self.undefined_below_zero(node, index) and not self.singular(node, index)

    def is_power(self, node: ir.Node) -> bool:
        """Whether it raises its first input to constant exponents, none of them below 0."""
        return self.singular is singular_power and not self.singular(node, 0)

    def breaks_at_zero(self, node: ir.Node, index: int) -> bool:
        """Whether an input of a node is not to come to 0, or not to cross it: of a root, a divisor."""
        return self.singular(node, index) or self.undefined_below_zero(node, index)
