"""Names of a node's inputs, activations and outputs; nodes named by a pattern."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

import onnx_ir as ir

from ...profiles.base.errors import ConfigError, nearest
from ..model.graph import Graph, name_of
from .functions import CHAIN, CHAIN_DOMAIN, chain_of
from .table import Rule, rule_of
from .weight_layout import WeightLayout


def match_nodes(graph: Graph, patterns: Iterable[str], setting: str = "keep_float") -> dict[str, str]:
    """Return node name -> pattern for the nodes that a name, operator type or glob pattern names.

    Raises:
        ConfigError: a pattern names no node; with the nearest name or type.
    """
    matched: dict[str, str] = {}
    names = {name_of(node): node.op_type for node in graph.nodes}
    for pattern in patterns:
        hits = [n for n, op in names.items() if pattern in (n, op)] or [
            n for n, op in names.items() if fnmatchcase(n, pattern) or fnmatchcase(op, pattern)
        ]
        if not hits:
            known = [*dict.fromkeys(names.values()), *names]
            raise ConfigError(
                f"{setting} '{pattern}': no node of the model has this name or operator type; correct it, "
                f"or leave it out."
                f"{nearest(pattern, known)}"
            )
        matched.update(dict.fromkeys(hits, pattern))
    return matched


def operator_of(node: ir.Node) -> str:
    """Return the operator of a node for people."""
    if node.domain == CHAIN_DOMAIN and node.op_type == CHAIN:
        return f"{chain_of(node).operators} in one"
    return f"{node.domain}.{node.op_type}" if node.domain else node.op_type


def activation_names(node: ir.Node, rule: Rule, graph: Graph) -> list[str]:
    """Return the names of the inputs that are activations: the rule's, and a weight that is no constant."""
    indices = list(rule.activations(node))
    if rule.weight is not None:
        value = node.inputs[rule.weight.index]
        if value is not None and graph.constant(name_of(value)) is None:
            indices.append(rule.weight.index)
    return [name_of(value) for i in indices if (value := node.inputs[i]) is not None]


def outputs_of(node: ir.Node) -> list[str]:
    """Return the names of the node's outputs that are used and can be quantized: no indices, as of TopK."""
    return [v.name for v in node.outputs if v.name and (v.dtype is None or not v.dtype.is_integer())]


def channel_layout(node: ir.Node) -> WeightLayout | None:
    """Return the layout of the weight that multiplies the channels of input 0, None for no such operator.

    Of a product it is the layout of its weight, of a recurrent operator that of its input's.
    """
    rule = rule_of(node)
    return next((layout for layout in rule.constants if layout.is_product), None) if rule else None
