"""Target and Recipe: the capabilities of a runtime, and its form of look-up tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal, get_args

from msgspec import Meta

from ..operators.functions import CHAIN
from ..operators.table import RULES
from .config import FloatType, IntegerType, QuantConfig, RestType, WeightType
from .cost_table import CostTable, costs_of, costs_on, is_file_of_costs
from .forms import FORMS, FormName
from .machine import Processor, ProcessorKind
from .packaged import target_names

KernelOutput = Literal["quantized", "float"]
QUANTIZED, FLOAT = get_args(KernelOutput)
LutImplementation = Literal["runtime", "sigmoid", "portable", "separate"]
ALL_OTHERS = "*"
"""In the place of an operator: all that are not named."""
LUT_IMPLEMENTATIONS = ("runtime", "sigmoid", "portable")
CHAIN_IMPLEMENTATIONS = ("separate", "runtime", "portable")


@dataclass(frozen=True)
class Verified:
    """How the facts about a runtime are known.

    Attributes:
        how: run, if written models were run there, or in a simulator or emulator, which shows results but not
            speed; rule, if the facts come from documents or source, against which written models are checked.
        runtime: Runtime or document with its version: 'onnxruntime 1.32.0, AVX512-VNNI'; with '(correctness
            only)' if it was not timed.
        date: The day, such as 2026-11-22.
    """

    how: Literal["run", "rule"]
    runtime: str
    date: Annotated[str, Meta(extra_json_schema={"format": "date"})]

    @property
    def title(self) -> str:
        """The word of tables: "run" or "not run"."""
        return "run" if self.how == "run" else "not run"


@dataclass(frozen=True)
class ProductLimits:
    """The limits of a runtime's kernel of a product for floating-point data and weights of few bits.

    Attributes:
        sizes: Fewest rows and columns of a matrix, input channels (of a group) and output channels of a
            convolution.
        kernel_elements: Most elements of the kernel of a convolution; 0 for no limit.
        head_sizes: Smallest and largest size of a head if both factors are activations, as in attention; none
            if the limits above also apply there.
    """

    sizes: Annotated[int, Meta(ge=1)] = 1
    kernel_elements: Annotated[int, Meta(ge=0)] = 0
    head_sizes: tuple[int, int] | None = None


@dataclass(frozen=True)
class Target:
    """A runtime, as far as quantization is concerned.

    Attributes:
        name: As in --target.
        description: One line for people.
        sources: Where the facts were read or measured.
        verified: The evidence: whether models were run there, on which version, and when.
        activation_types: Integer types of activations that it has kernels for.
        operators: Operator type to what its integer kernel can return: quantized values, float values
            (integer inputs, float output) or both; '*' stands for all other operators of the table, except
            unary functions. An operator that is not listed has no integer kernel.
        lookup_tables: Operator type to the implementation of its look-up table: runtime, sigmoid or portable;
            '*' stands for all unary functions not named, 'Chain' for several operators that together are a
            unary function: separate when each is planned by itself, else runtime or portable.
        implementations: Operator type to its implementation, for nodes that the runtime would otherwise
            compute in float or with a slow integer kernel: a pass-through node on integers, as leaky-relu or
            channels-last, PRelu as saturating, ConvTranspose as sub-pixel convolution, recurrent nodes as a
            scan over their steps.
        float_implementations: Operator type to the way in which a float node is written if the runtime
            would replace it with something slower: clip for one before a conversion that the runtime would
            move in front of it, sum for an Add that it would fuse with the normalization after it or the
            product before it, max for a Relu or Clip before a conversion to floating-point numbers of few
            bits, which onnxruntime leaves out as if these had no values below 0.
        spellings: Further implementations of nodes, each used if the table of kernel times predicts that it
            is faster: fused for SiLU and GELU as one operator of the runtime's own, in float; exp-sum for a
            float Softmax along an axis that is not the last as exponentials over their sum; written-out for
            float Pow, Div by a constant, Elu and Softplus as equivalent operators.
        unsigned_activations: Whether the kernels want unsigned activations: signed ones are stored as uint8
            then, with the same scale and the zero point moved by 128, which changes no value.
        float_elementwise: Whether float operators between integer ones cost no more than the conversions; if
            not (integer-only hardware), everything that can be quantized is.
        start_everywhere: Whether quantization starts at every operator that can be quantized, regardless of
            its neighbours and of time; if not, at convolutions and matrix products, and it spreads from there
            as far as that saves conversions.
        weight_types: Integer types of weights that it has kernels for.
        pairs_in_16_bits: Whether a kernel may add the products of two neighbouring int8 weights in 16 bits,
            as onnxruntime and OpenVINO do on x86-64 without VNNI: scales of weights are raised so far that no
            such sum saturates. false keeps the full range, for processors that all have VNNI.
        float_types: Floating-point types of few bits that products can read as data and weights.
        float_products: Operator type to the limits of its kernel for these types; no other has one.
        forms: Output formats that it can read.
        rest_types: Types of float nodes in a written model.
        zero_points: any, or zero if only zero point 0 is accepted.
        symmetric_inputs: Operator types whose integer kernel wants zero point 0 in the activations that it
            reads. Such products are always worth int8.
        joined_inputs: Operator types whose integer kernel misreads some activations that a Concat makes:
            unsigned, if it only reads unsigned ones (of any zero point); zero, if it only reads zero point 0
            for tensors joined along another axis than the last.
        joined_values_once: Whether it crashes if the result of a Concat, or of a Relu behind it, is quantized
            with a zero point other than 0, and then a second time: qprof then rejects that.
        node_products: Multiplications of one sample below which a product is not worth int8 by itself: it
            takes no longer than a kernel takes to start.
        bias: int32 (with scale(x) * scale(w)), or float if it reads no integer bias.
        domains: Operator domains that it knows besides the standard one.
        opsets: The oldest and the newest opset that it reads, such as [13, 21]; none if its documents name no
            limit.
        static_shapes: Whether it wants every dimension of the inputs fixed.
        full_range: Operator types whose kernels are right only if the parameters of the output cover the
            mathematical range (0 to 1 for Softmax), regardless of the profile.
        known_operators: All standard operators that it can run, for runtimes that lack many; empty for other
            runtimes.
        kernels_16bit: Operator types with an integer kernel for 16-bit activations; '*' for all.
        dynamic: Operator types with an integer kernel for dynamic quantization.
        slower_dynamic: Dynamic operators whose kernel is slower than float, and how many times as long it
            takes: only mode dynamic with cost_model off uses them.
        weight_only: Operator type to the integer types that save memory or time for the constant weight of a
            float node; empty if the runtime would dequantize the weight when it loads the model.
        weight_only_activations: Activations of weight-only products with weights of 4 bits, if the runtime's
            own operator has kernels for both: int8 (rounded in the kernel, a scale for each block), or float
            (slower, and closer to float).
        weight_kernels: Those of them whose kernel reads a quantized weight: of a product one matrix that
            nothing else reads. The weights of the others are dequantized.
        weight_implementations: Operator type to the way in which a node with a weight of 4 or 8 bits and
            float activations is written: runtime for the runtime's own operator (MatMulNBits and
            GatherBlockQuantized of onnxruntime), in forms qdq and qoperator.
        int8_caches: Operator types that extend a cache of keys and values in int8: the attention of
            onnxruntime, and Concat in decoders of standard operators.
        folds: Nodes with only constant inputs that it computes once, when it loads the model: conversions
            (DequantizeLinear), arithmetic (Cast and Mul, but DequantizeLinear in every run) or nothing.
            Quantized weights of float nodes are written in a form that then costs no time.
        costs: The table of measured kernel times, which decides about float nodes and padded channels: name
            of a packaged table, or a file of qprof targets --measure (.json), in the folder of the target's
            file; empty if nothing was measured.
        processors: The processors on which this is the default target; none if the processor that qprof runs
            on does not matter.
    """

    name: str
    description: str = ""
    sources: tuple[str, ...] = ()
    verified: Verified | None = None
    activation_types: tuple[IntegerType, ...] = ("uint8", "int8")
    operators: Mapping[str, tuple[KernelOutput, ...]] = field(default_factory=dict)
    lookup_tables: Mapping[str, LutImplementation] = field(default_factory=dict)
    implementations: Mapping[
        str, Literal["integer", "leaky-relu", "channels-last", "saturating", "sub-pixel", "scan"]
    ] = field(default_factory=dict)
    float_implementations: Mapping[str, Literal["clip", "sum", "max"]] = field(default_factory=dict)
    spellings: tuple[Literal["fused", "exp-sum", "written-out"], ...] = ()
    unsigned_activations: bool = False
    float_elementwise: bool = False
    start_everywhere: bool = False
    weight_types: tuple[WeightType, ...] = ("int8", "uint8", "int7")
    pairs_in_16_bits: bool = False
    float_types: tuple[FloatType, ...] = ()
    float_products: Mapping[str, ProductLimits] = field(default_factory=dict)
    forms: tuple[FormName, ...] = tuple(FORMS)
    rest_types: tuple[RestType, ...] = ("float32", "float16")
    zero_points: Literal["any", "zero"] = "any"
    symmetric_inputs: tuple[str, ...] = ()
    joined_inputs: Mapping[str, Literal["unsigned", "zero"]] = field(default_factory=dict)
    joined_values_once: bool = False
    node_products: int = 0
    bias: Literal["int32", "float"] = "int32"
    domains: tuple[str, ...] = ()
    opsets: tuple[int, int] | None = None
    static_shapes: bool = False
    full_range: tuple[str, ...] = ()
    known_operators: tuple[str, ...] = ()
    kernels_16bit: tuple[str, ...] = ()
    dynamic: tuple[str, ...] = ()
    slower_dynamic: Mapping[str, float] = field(default_factory=dict)
    weight_only: Mapping[str, tuple[WeightType, ...]] = field(default_factory=dict)
    weight_only_activations: Literal["int8", "float"] = "int8"
    weight_kernels: tuple[str, ...] = ()
    weight_implementations: Mapping[str, Literal["runtime"]] = field(default_factory=dict)
    int8_caches: tuple[str, ...] = ()
    folds: Literal["nothing", "arithmetic", "conversions"] = "nothing"

    costs: str = ""
    processors: tuple[ProcessorKind, ...] = ()

    def has_16bit_kernel(self, op_type: str) -> bool:
        """Whether there is an integer kernel of an operator for 16-bit activations."""
        return op_type in self.kernels_16bit or "*" in self.kernels_16bit

    def rounds_16_bits(self, op_type: str) -> bool:
        """Whether a product between conversions rounds 16-bit activations to 8, as MatMulNBits does."""
        reads_weight = self.folds == "arithmetic" and op_type in self.weight_kernels
        return reads_weight and not self.has_16bit_kernel(op_type)


@dataclass(frozen=True)
class Recipe:
    """Everything that decides a quantization besides model and profile: the settings and the target."""

    config: QuantConfig  # the settings, all filled in
    target: Target  # the runtime
    measured: CostTable | None = field(default=None, compare=False)  # the user's own kernel times
    given: frozenset[str] = field(default=frozenset(), compare=False)  # by the user: kept or refused
    own_floats: Mapping[str, str] = field(default_factory=dict, compare=False)  # added patterns and why
    products_alone: bool = field(default=False, compare=False)  # not every operator

    @property
    def costs(self) -> CostTable | None:
        """The kernel times that decide about speed, or None if they are missing or not wanted."""
        if not self.config.regards_time:
            return None
        packaged = self.target.costs and not is_file_of_costs(self.target.costs)
        return self.measured or (costs_of(self.target.costs) if packaged else None)

    def costs_on(self, here: Processor) -> CostTable | None:
        """Return the kernel times of a processor, or None if unknown; plans always use those of `costs`."""
        costs, name = self.costs, self.target.name
        if costs is None or (name in target_names() and not name.startswith(costs.conditions.target)):
            return None
        if here.has_kernels_of(costs.conditions.processor):
            return costs
        return None if self.measured else costs_on(costs.conditions.target, here)


def chain_implementation(target: Target) -> str:
    """Return how a target writes chains: "separate", or how each becomes one look-up table."""
    return target.lookup_tables.get(CHAIN, target.lookup_tables.get("*", "separate"))


def dynamic_implementation(op_type: str, target: Target) -> str:
    """Return the implementation of an operator with dynamic quantization parameters: "" of a product."""
    rule = RULES.get(("", op_type))
    is_recurrent = rule is not None and rule.is_recurrent
    return target.implementations.get(op_type, "runtime") if is_recurrent else ""


def lut_implementation(op_type: str, target: Target) -> str:
    """Return the implementation of an operator as a look-up table, or ""."""
    if op_type == CHAIN:
        return chain_implementation(target).replace("separate", "")
    return target.lookup_tables.get(op_type, target.lookup_tables.get("*", ""))
