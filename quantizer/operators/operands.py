"""Names of a node's inputs, activations and outputs; nodes named by a pattern."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

import onnx_ir as ir

from ...profiles.base.errors import ConfigError, nearest
from .functions import CHAIN, CHAIN_DOMAIN, chain_of
from .graph import Graph, Node
from .table import rule_of
from .weight_layout import WeightLayout


def match_nodes(graph: Graph, patterns: Iterable[str], setting: str = "keep_float") -> dict[str, str]:
    """Return node name -> pattern for the nodes that a name, operator type or glob pattern names.

    Raises:
        ConfigError: a pattern names no node; with the nearest name or type.
    """
    matched: dict[str, str] = {}
    names = {node.name: node.op_type for node in graph.nodes}
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


def operator_of(node: Node) -> str:
    """Return the operator of a node for people."""
    if node.domain == CHAIN_DOMAIN and node.op_type == CHAIN:
        return f"{chain_of(node.ir_node).operators} in one"
    return f"{node.domain}.{node.op_type}" if node.domain else node.op_type


def channel_layout(node: ir.Node | Node) -> WeightLayout | None:
    """Return the layout of the weight that multiplies the channels of input 0, None for no such operator.

    Of a product it is the layout of its weight, of a recurrent operator that of its input's.
    """
    rule = rule_of(node)
    return next((layout for layout in rule.constants if layout.is_product), None) if rule else None
