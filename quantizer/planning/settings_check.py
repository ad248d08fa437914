"""The settings of a call held against the model, before any data are read.

`check_settings` reports early what planning would reject. It looks up each name, type and shape with the same
functions as planning.
"""

from __future__ import annotations

from ...profiles.base.errors import ConfigError
from ..noise.output_limits import kinds_in_settings
from ..numerics.affine import TYPES
from ..operators.graph import Graph, match_nodes
from ..plan.formats import formats_of
from ..prepare.prepare import PreparedModel
from ..targets.config import WEIGHT_ONLY_TYPES
from ..targets.loading import or_targets
from ..targets.target import Recipe, Target


def check_settings(prepared: PreparedModel, recipe: Recipe) -> None:
    """Raise ConfigError if settings name something that a model lacks, or do not fit it."""
    config = recipe.config
    match_nodes(prepared.graph, config.keep_float)
    kinds_in_settings(prepared.graph, config)
    for number_format in formats_of(config):
        number_format.check(prepared, recipe)
    check_weight_type(prepared.graph, recipe)


def check_weight_type(graph: Graph, recipe: Recipe) -> None:
    """Raise ConfigError if the target reads no weight of the model in the requested type."""
    config, given, own = recipe.config, recipe.given, recipe.target
    target_types = [name for name in own.weight_types if name not in WEIGHT_ONLY_TYPES]
    if config.mode != "weight-only" or config.weight_type in target_types or "weight_type" not in given:
        return
    readers = [
        node
        for node in graph.nodes
        if node.rule is not None and any(node.has_constant(w.index) for w in node.rule.constants)
    ]

    def has_kernel(target: Target, weight_type: str) -> bool:
        takes = [node for node in readers if weight_type in target.weight_only.get(node.op_type, ())]
        # The runtime's own operator alone reads 2 bits, and it computes no other forms of a node.
        is_own = TYPES[weight_type].bits == 2
        return any(node.rule and not (is_own and node.rule.refusal(node, graph)) for node in takes)

    if readers and not has_kernel(own, config.weight_type):
        others = or_targets(lambda target: has_kernel(target, config.weight_type))
        advice = "--as weight-only-8 (weight_type int8)" if has_kernel(own, "int8") else "--as int8"
        first = readers[0].name if len(readers) == 1 else f"{readers[0].name} and {len(readers) - 1} more"
        raise ConfigError(
            f"weight_type {config.weight_type}: {own.name} reads no such weights of {first}, and the model "
            f"has no others; use {advice}{others}"
        )
