"""The operator reference: the table of rules, beside what a target can execute."""

from __future__ import annotations

from dataclasses import dataclass

from .candidates import table_spelling
from .rules import RULES, Rule
from .targets import Target


@dataclass(frozen=True)
class OperatorReference:
    """One line of the reference, as text.

    Attributes:
        operator: name of the operator.
        constraint: how the output's parameters follow from the inputs'.
        activations: which inputs carry activations.
        weight, bias: which inputs those are, "" for none.
        curve: whether it can become a look-up table.
        target: what the target makes of it.
    """

    operator: str
    constraint: str
    activations: str
    weight: str
    bias: str
    curve: bool
    target: str


def operator_reference(target: Target) -> tuple[OperatorReference, ...]:
    """Return a line for every entry of the table, sorted by operator."""
    return tuple(_line(RULES[key], target) for key in sorted(RULES, key=lambda key: key[1]))


def _line(rule: Rule, target: Target) -> OperatorReference:
    bounds = f" ({rule.bounds[0]:g} to {rule.bounds[1]:g})" if rule.bounds else ""
    return OperatorReference(
        operator=rule.op_type,
        constraint=f"{rule.constraint.value}{bounds}",
        activations="all" if rule.data is None else ", ".join(map(str, rule.data)),
        weight="" if rule.weight is None else str(rule.weight.index),
        bias="" if rule.bias is None else str(rule.bias),
        curve=rule.curve,
        target=_on_target(rule, target),
    )


def _on_target(rule: Rule, target: Target) -> str:
    if rule.op_type in target.operators:
        outputs = " or ".join(target.operators[rule.op_type])
        spelling = target.spellings.get(rule.op_type)
        return f"integer, returns {outputs}" + (f", written as {spelling}" if spelling else "")
    spelling = table_spelling(rule.op_type, target, "target") if rule.curve else ""
    return f"table, written as {spelling}" if spelling else "float"
