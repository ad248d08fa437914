"""What is known of an operator whether or not it can be quantized: `Operator` and its vocabulary."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from enum import StrEnum

import onnx_ir as ir

from ..model.graph import constant_of


class KernelSizes(StrEnum):
    """Which sizes the time of an operator's kernel depends on; `costs.kernels` has a function for each."""

    OUTPUT_ELEMENTS = "output-elements"  # one pass over the elements of the outputs
    INPUT_ELEMENTS = "input-elements"  # one pass over the elements of the first input
    VIEW = "view"  # nothing moves: the output is the input with another shape
    BROADCAST = "broadcast"  # one pass over the output, slower where an operand is repeated along some axes
    WINDOW = "window"  # each output element is computed from the taps of a pooling window
    REDUCTION = "reduction"  # one pass over the input, slower where the last axis is kept
    ROWS = "rows"  # two passes over each vector along the last axis
    SOFTMAX = "softmax"  # the same along attribute `axis`, slower where that is not the last
    PLANES = "planes"  # the same over all places of a channel
    RUNS = "runs"  # copies runs of neighbouring elements, up to the last axis that is joined or filled up
    SLICES = "slices"  # copies runs that are cut out of the input
    ENTRIES = "entries"  # copies entries of a table
    TRANSPOSE = "transpose"  # copies in the order of attribute `perm`
    RESIZE = "resize"  # one pass over the output, by attribute `mode`
    CONVOLUTION = "convolution"  # products for each tap, channel and place
    TRANSPOSED_CONVOLUTION = "transposed-convolution"
    """A product of matrices for each place, whose results are added up."""
    MATRIX_STACK = "matrix-stack"  # a product of matrices for each matrix of a stack
    MATRIX = "matrix"  # one product of matrices
    ATTENTION = "attention"
    """Products of queries and keys, and of their Softmax and values; the cache is copied."""
    RECURRENT = "recurrent"  # a product of a matrix and a vector for each step


class ChannelLayout(StrEnum):
    """In which layouts of the channels onnxruntime computes an operator on x86-64.

    Float convolutions compute in blocks of channels (NCHWc), integer ones with channels last (NHWC).
    """

    CONVOLUTION = "convolution"  # wants a layout of its own, and makes it
    KEEPS_BLOCKS = "keeps-blocks"  # takes blocks and returns blocks, and works with the channels last
    COMBINES_BLOCKS = "combines-blocks"  # the same where all that it reads is in blocks and of one shape
    JOINS_BLOCKS = "joins-blocks"
    """The same if all inputs are in blocks, which are joined along the channels."""
    ANY_AXIS = "any-axis"
    """Blocks are converted back before it; with channels last it needs changed attributes."""
    CHANNELS_FIRST = "channels-first"  # needs the layout of the model


class Values(StrEnum):
    """The values of the first output, beside those of the first input."""

    COMPUTED = "computed"  # other values
    SAME_ORDER = "same-order"  # all of them, in the same order, in another shape
    PERMUTED = "permuted"  # all of them, each once, in another order
    PLACED = "placed"  # some of them or all, perhaps several times, at places that are fixed beforehand
    CONVERTED = "converted"  # all of them in another type
    CONSTANT = "constant"  # those of an attribute
    CHOSEN = "chosen"  # some of them, chosen by the values themselves


class Steps(StrEnum):
    """Where the output of an operator jumps while its input changes a little."""

    NONE = "none"  # nowhere, or only where it is not finite
    WHOLE_NUMBERS = "whole-numbers"  # from one whole number to the next
    EQUAL_VALUES = "equal-values"  # where two values are equal, or one is 0
    CANDIDATES = "candidates"  # from one candidate to another of nearly the same value


class Arithmetic(StrEnum):
    """The arithmetic operators."""

    SUM = "sum"
    DIFFERENCE = "difference"
    PRODUCT = "product"
    QUOTIENT = "quotient"


class Meaning(StrEnum):
    """The meaning of an output's values if this operator is the last one that computes them."""

    VALUES = "values"  # nothing is known
    DECISION = "decision"  # they are compared with each other or with a threshold
    DECISION_OR_PICTURE = "decision-or-picture"
    """Each is between 0 and 1 by itself: a probability, or the brightness of a place of a picture."""
    DIRECTION = "direction"  # vectors whose direction is compared: they are normalised
    MEAN = "mean"  # what there is in a picture or sequence as a whole: an embedding where it is a vector


class Classes(StrEnum):
    """The part that an operator has in classes along an axis of its input or output."""

    NONE = "none"  # nothing is known: what was class 3 before it need not be in place 3
    COMPETE = "compete"  # the values along attribute `axis` are those of classes, of which one is the answer
    APART = "apart"  # each class is judged by itself, in the place that it had
    CARRIED = "carried"  # they stay classes, in the order that they had


class Sums(StrEnum):
    """The sum of many elements that an operator makes on its way to a result."""

    NONE = "none"  # it adds up none, or stored weights and products beside them
    RESULT = "result"  # the result is the sum
    MEAN = "mean"  # the result is the sum over the number of elements
    NORM = "norm"  # the result is the root of the sum
    SHIFTED = "shifted"  # exponentials are added of which the largest is 1
    RUNNING = "running"  # results are the sums up to each element along an axis


class AfterConvolution(StrEnum):
    """The kernel of onnxruntime for a float operator that is the only reader of a convolution's result."""

    APART = "apart"  # it is computed by itself
    ACTIVATION = "activation"  # the convolution applies it to its results
    FOLDED = "folded"  # one constant for each channel becomes a part of weights and bias


Singularity = Callable[[ir.Node, int], bool]
"""Whether a node is infinite if its input of this index is 0."""


def finite_at_zero(node: ir.Node, index: int) -> bool:
    """Return False, the default: the operator is finite for inputs of 0 or below."""
    return False


def singular_in(position: int) -> Singularity:
    """Return the singularity of operators that are infinite if the input at a position is 0."""
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

    The defaults hold for most operators of ONNX: they compute new float values with the shape of their
    inputs, smoothly and deterministically. `tests/quantizer/operators/test_facts.py` compares them with
    onnx's schemas.
    """

    op_type: str
    _: KW_ONLY
    kernel: KernelSizes  # what its time depends on
    layout: ChannelLayout  # in which layouts of the channels it is computed
    domain: str = ""  # that of ONNX itself
    values: Values = Values.COMPUTED  # what becomes of those of the first input
    arithmetic: Arithmetic | None = None  # element by element
    picks_by_condition: bool = False  # the first input says, element by element, which other one is taken
    joins_inputs: bool = False  # its output holds the values of all inputs side by side
    shape_inputs: tuple[int, ...] | None = ()  # whose values decide shapes; None: of any, how many there are
    sizes_result: bool = False  # integers among its inputs say how much there is of the result
    reads_shape_only: bool = False  # what it computes is a shape
    steps: Steps = Steps.NONE  # where its output jumps
    singular: Singularity = finite_at_zero  # infinite where an input is 0
    undefined_below_zero: Singularity = finite_at_zero  # NaN below 0, though finite at 0, as a root
    grows: bool = False  # results are often beyond the inputs by orders of magnitude
    sums: Sums = Sums.NONE  # of many elements
    folds_signs: FoldsSigns = signs_stay  # makes the same of values and of their negatives
    ignores_lowest: bool = False  # what lies far below the largest leaves no trace: masks are made of such
    random: bool = False  # other values in each run
    meaning: Meaning = Meaning.VALUES  # of its values as an output of a model
    magnitude_of: int | None = None  # an error of this input changes a result in proportion to it
    classes: Classes = Classes.NONE  # what it does with their axis; a product's are told by its weight
    left_out: bool = False  # of a float graph by onnxruntime
    joins_sum: bool = False  # onnxruntime makes one float kernel of it and the sum of two before it
    after_convolution: AfterConvolution = AfterConvolution.APART  # what becomes of it in float beside one

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
