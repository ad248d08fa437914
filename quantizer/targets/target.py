"""Target and Recipe: what a runtime can execute, and how it writes look-up tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..operators.functions import CHAIN
from .config import FORMS, QuantConfig

CODES, FLOAT = "quantized", "float"
OUTPUTS = (CODES, FLOAT)
FEW_BITS = ("int4", "uint4")
LUT_IMPLEMENTATIONS = ("runtime", "sigmoid", "portable")
CHAIN_IMPLEMENTATIONS = ("separate", "runtime", "portable")
PASS_THROUGH_IMPLEMENTATIONS = ("integer", "leaky-relu")
ZERO_POINTS = ("any", "zero")
BIASES = ("int32", "float")


@dataclass(frozen=True)
class Target:
    """A runtime, as far as quantization is concerned.

    Attributes:
        name: as in `--target`.
        description: one line for people.
        sources: where the facts were read or measured.
        activation_types: integer types of activations that it has kernels for.
        operators: operator type to the results that its integer kernel can give: "quantized", "float"
            (integer inputs, float output) or both. An operator that is not here has no integer kernel.
        lookup_tables: operator type to the implementation of its look-up table: "runtime", "sigmoid" or
            "portable"; "*" stands for all unary functions not named, "Chain" for several operators that
            together are a unary function: "separate" when each is planned by itself, see `chains`.
        implementations: operator type to the way in which a pass-through node is written where conversions
            around it would make the runtime compute it in float: "integer" or "leaky-relu", see
            `NodePlan.implementation`.
        unsigned_activations: whether the kernels want unsigned activations: signed ones are stored as uint8
            then, with the same scale and the zero point moved by 128, which changes no value.
        kernels_16bit: operator types with an integer kernel for 16-bit activations; "*" for all.
        dynamic: operator types with an integer kernel for dynamic quantization.
        weight_only: operator type to the integer types in which a float node can have its constant weight,
            at a gain: a runtime that would dequantize it when it loads the model has none.
        weight_kernels: those of them that take the quantized weight as it is; the others' weights are
            dequantized in every run, which costs time.
        float_elementwise: whether float operators between integer ones cost no more than the conversions; if
            not (integer-only hardware), everything that can be quantized is.
        weight_types: integer types of weights that it has kernels for.
        forms: names of `lowering.FORMS` that it can read.
        zero_points: "any", or "zero" where it takes symmetric activations only.
        bias: "int32" (with scale(x) * scale(w)), or "float" where it reads no integer bias.
        domains: operator domains that it knows besides the standard one.
        opsets: the oldest and the newest that it reads; None where its documents name no limit.
        static_shapes: whether it wants every dimension of the inputs fixed.
        full_range: operator types whose kernels are right only where the parameters of the output cover all
            that the mathematics allows (`Rule.bounds`), whatever was profiled.
        known_operators: every standard operator that it can run at all, for runtimes that lack many; empty
            where that is no concern.
    """

    name: str
    description: str = ""
    sources: tuple[str, ...] = ()
    activation_types: tuple[str, ...] = ("uint8", "int8")
    operators: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    lookup_tables: Mapping[str, str] = field(default_factory=dict)
    implementations: Mapping[str, str] = field(default_factory=dict)
    unsigned_activations: bool = False
    float_elementwise: bool = False
    weight_types: tuple[str, ...] = ("int8", "uint8", "int7")
    forms: tuple[str, ...] = tuple(FORMS)
    zero_points: str = "any"
    bias: str = "int32"
    domains: tuple[str, ...] = ()
    opsets: tuple[int, int] | None = None
    static_shapes: bool = False
    full_range: tuple[str, ...] = ()
    known_operators: tuple[str, ...] = ()
    kernels_16bit: tuple[str, ...] = ()
    dynamic: tuple[str, ...] = ()
    weight_only: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    weight_kernels: tuple[str, ...] = ()

    def has_16bit_kernel(self, op_type: str) -> bool:
        """Whether there is an integer kernel of an operator for 16-bit activations."""
        return op_type in self.kernels_16bit or "*" in self.kernels_16bit


@dataclass(frozen=True)
class Recipe:
    """Everything that decides a quantization besides model and profile: the settings and the target."""

    config: QuantConfig
    target: Target


def chain_implementation(target: Target, setting: str) -> str:
    """Return what a target does with chains, see `chains`: "separate", or how each becomes one look-up
    table."""
    preferred = target.lookup_tables.get(CHAIN, target.lookup_tables.get("*", "separate"))
    if setting == "portable" or setting == preferred == "runtime":
        return setting
    return preferred if setting == "target" else "separate"


def lut_implementation(op_type: str, target: Target, setting: str) -> str:
    """Return the implementation of an operator as a look-up table, "" where it is none."""
    if op_type == CHAIN:
        return chain_implementation(target, setting).replace("separate", "")
    preferred = target.lookup_tables.get(op_type, target.lookup_tables.get("*", ""))
    if setting == "target":
        return preferred
    if setting == "sigmoid":  # only Tanh goes through the sigmoid table, and Sigmoid is one
        return {"Tanh": "sigmoid", "Sigmoid": "runtime"}.get(op_type, "")
    if setting == "runtime":
        return "runtime" if preferred == "runtime" else ""
    return "" if setting == "off" else setting
