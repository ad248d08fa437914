"""The operator reference: the table of rules, beside the operators that a target executes."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from dataclasses import dataclass

from ..operators.table import CHAIN_RULE, MICROSOFT, RULES, Rule
from .target import Target, chain_implementation, lut_implementation


@dataclass(frozen=True)
class OperatorReference:
    """One line of the reference, as text.

    Attributes:
        operator: name of the operator.
        output: source of the output's parameters.
        activations: indices of the inputs that carry activations.
        weight, bias: indices of these inputs, "" for none.
        lookup_table: whether it can become a look-up table.
        target: its treatment on the target.
    """

    operator: str
    output: str
    activations: str
    weight: str
    bias: str
    lookup_table: bool
    target: str

    @property
    def facts(self) -> list[str]:
        """The facts that hold on every target, as the cells of a table."""
        table = "yes" if self.lookup_table else ""
        return [self.operator, self.output, self.activations, self.weight, self.bias, table]


def reference_of(target: Target) -> tuple[OperatorReference, ...]:
    """Return a line for every entry of the table, sorted by operator, and one for chains of operators."""
    rules = [*(RULES[key] for key in sorted(RULES, key=lambda key: key[1])), CHAIN_RULE]
    return tuple(
        OperatorReference(
            operator=rule.op_type,
            output=rule.constraint.value
            + (f" ({rule.bounds[0]:g} to {rule.bounds[1]:g})" if rule.bounds else ""),
            activations="all" if rule.data is None else ", ".join(map(str, rule.data)),
            weight="" if rule.weight is None else str(rule.weight.index),
            bias="" if rule.bias is None else str(rule.bias),
            lookup_table=rule.unary,
            target=_on_target(rule, target),
        )
        for rule in rules
    )


def _on_target(rule: Rule, target: Target) -> str:
    if rule.op_type in target.operators:
        outputs = " or ".join(target.operators[rule.op_type])
        implementation = target.implementations.get(rule.op_type)
        return f"quantized, returns {outputs}" + (f", written as {implementation}" if implementation else "")
    if rule is CHAIN_RULE and chain_implementation(target) == "separate":
        return "each by itself"
    table = lut_implementation(rule.op_type, target) if rule.unary else ""
    return f"look-up table, written as {table}" if table else "float"


def taken_apart_text(names: Iterable[str]) -> tuple[str, ...]:
    """Return lines about the operators that are rewritten before the table is used."""
    listed = textwrap.wrap(f"Of {MICROSOFT}: {', '.join(sorted(names))}.", 110, break_long_words=False)
    return (
        "qprof first replaces these by simpler operators, which are listed above. A node with an input, an",
        "output or an attribute that those do not have stays float.",
        "",
        *listed,
    )
