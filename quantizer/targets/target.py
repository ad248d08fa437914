"""Target and Recipe: what a runtime can execute, and how it writes look-up tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..operators.functions import CHAIN
from .config import FORMS, QuantConfig

CODES, FLOAT = "codes", "float"
OUTPUTS = (CODES, FLOAT)
FEW_BITS = ("int4", "uint4")
TABLE_SPELLINGS = ("runtime", "sigmoid", "portable")
CHAIN_SPELLINGS = ("apart", "runtime", "portable")
MOVE_SPELLINGS = ("codes", "leaky")
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
        operators: operator type to the outputs that its integer kernel can give: "codes", "float" (integer
            inputs, float output) or both. An operator that is not here has no integer kernel.
        tables: operator type to the spelling in which a curve is a look-up table: "runtime", "sigmoid" or
            "portable"; "*" stands for all curves not named, "Chain" for several operators that together are
            a function of one variable: "apart" when each is planned by itself, see `chains`.
        spellings: operator type to the way in which the node is written where conversions around it would
            make the runtime compute it in float: "codes" or "leaky", see `NodePlan.spelling`.
        unsigned_codes: whether the kernels want unsigned codes: signed activations are stored as their
            unsigned twins then, with the same scale and the zero point moved, which changes no number.
        wide: operator types with an integer kernel for 16-bit activations; "*" for all.
        dynamic: operator types with an integer kernel whose activations get their parameters at run time.
        weight_only: operator type to the integer types in which a float node can have its constant weight,
            at a gain: a runtime that would turn it into float when it loads the model has none.
        weight_kernels: those of them that take the codes as they are; the others' weights are made float in
            every run, which costs time.
        float_elementwise: whether float operators between integer ones cost no more than the conversions; if
            not (integer-only hardware), everything that can be in codes is.
        weight_types: integer types of weights that it has kernels for.
        forms: names of `lowering.FORMS` that it can read.
        zero_points: "any", or "zero" where it takes symmetric codes only.
        bias: "int32" (codes of scale(x) * scale(w)), or "float" where it reads no such codes.
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
    tables: Mapping[str, str] = field(default_factory=dict)
    spellings: Mapping[str, str] = field(default_factory=dict)
    unsigned_codes: bool = False
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
    wide: tuple[str, ...] = ()
    dynamic: tuple[str, ...] = ()
    weight_only: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    weight_kernels: tuple[str, ...] = ()

    def computes_wide(self, op_type: str) -> bool:
        """Whether there is an integer kernel of an operator for 16-bit activations."""
        return op_type in self.wide or "*" in self.wide


@dataclass(frozen=True)
class Recipe:
    """Everything that decides a quantization besides model and profile: the settings and the target."""

    config: QuantConfig
    target: Target


def chain_spelling(target: Target, tables: str) -> str:
    """Return what a target does with chains, see `chains`: "apart", or how they become one table."""
    preferred = target.tables.get(CHAIN, target.tables.get("*", "apart"))
    if tables == "portable" or tables == preferred == "runtime":
        return tables
    return preferred if tables == "target" else "apart"


def table_spelling(op_type: str, target: Target, tables: str) -> str:
    """Return how a curve becomes a table, "" when it does not."""
    if op_type == CHAIN:
        return chain_spelling(target, tables).replace("apart", "")
    preferred = target.tables.get(op_type, target.tables.get("*", ""))
    if tables == "target":
        return preferred
    if tables == "sigmoid":  # only Tanh goes through the sigmoid table, and Sigmoid is one
        return {"Tanh": "sigmoid", "Sigmoid": "runtime"}.get(op_type, "")
    if tables == "runtime":
        return "runtime" if preferred == "runtime" else ""
    return "" if tables == "off" else tables
