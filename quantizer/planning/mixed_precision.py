"""Which activations have 16 bits: all, those that were named, or those that 8 bits would drown. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase

from ...profiles.records.profile import Profile
from ..model.graph import Graph
from ..numerics.affine import TYPES, QuantType
from ..numerics.quantization_noise import expected_noise
from ..numerics.schemas import SCHEMAS, choose_params
from ..operators.operands import activation_names, match_nodes, name_of, outputs_of
from ..operators.table import rule_of
from ..ranges.calibrators import Range
from ..targets.config import QuantConfig
from ..targets.target import Target


def wide_type(config: QuantConfig) -> QuantType:
    """Return the 16-bit type with the sign of the activation type."""
    return TYPES["int16" if TYPES[config.activation_type].signed else "uint16"]


def named_wide(graph: Graph, patterns: Iterable[str]) -> set[str]:
    """Return the activations that `QuantConfig.keep_16bit` names: tensors, or all activations of nodes.

    Raises:
        ConfigError: a pattern names no tensor and no node.
    """
    activations = [n for n, v in graph.values.items() if not graph.is_constant(n) and graph.is_float(n)]
    found: set[str] = set()
    for pattern in patterns:
        tensors = [n for n in activations if n == pattern] or [
            n for n in activations if fnmatchcase(n, pattern)
        ]
        found.update(tensors)
        if not tensors:
            hits = match_nodes(graph, [pattern], "keep_16bit")
            for node in graph.nodes:
                rule = rule_of(node)
                if name_of(node) in hits and rule is not None:
                    names = [*activation_names(node, rule, graph), *outputs_of(node)]
                    found.update(n for n in names if n in activations)
    return found


def judge_noise(
    graph: Graph,
    profile: Profile,
    ranges: Mapping[str, Range],
    config: QuantConfig,
    target: Target,
    *,
    in_16_bits: Callable[[str], Range],
    useful: Callable[[str], tuple[float, float]],
) -> tuple[dict[str, str], dict[str, Range]]:
    """Return the activations whose codes would drown the signal, with the figures, and those with 16 bits.

    Args:
        graph: the prepared model.
        profile: its profile.
        ranges: calibrated range of every activation in the activation type.
        config: what was asked for.
        target: the runtime.
        in_16_bits: calibrates one activation for 16 bits.
        useful: tells the interval of an activation outside which no reader tells values apart.

    Returns:
        Name to reason, and name to range in 16 bits.

    Raises:
        ConfigError: `config.keep_16bit` names something that the model does not have.
    """
    named = named_wide(graph, config.keep_16bit)
    wide = {name: in_16_bits(name) for name in ranges if name in named}
    noisy: dict[str, str] = {}
    schema = SCHEMAS[config.schema]

    def figure(name: str, span: Range, qtype: QuantType) -> float:
        params = choose_params(span.low, span.high, schema, qtype)
        return expected_noise(profile[name], params, useful(name)).sqnr_db

    for name, span in ranges.items() if config.min_sqnr > 0.0 else ():
        qtype, sqnr = TYPES[config.activation_type], 0.0
        if name not in wide:
            sqnr = figure(name, span, qtype)
            if sqnr >= config.min_sqnr:
                continue
        if name in wide or _computed_wide(graph, name, target):
            qtype, better = wide_type(config), wide.get(name) or in_16_bits(name)
            sqnr = figure(name, better, qtype)
            if sqnr >= config.min_sqnr:
                wide[name] = better
                continue
        noisy[name] = (
            f"tensor '{name}' would keep {sqnr:.1f} dB of signal over noise in "
            f"{qtype.name}, less than {config.min_sqnr:g}"
        )
    return noisy, wide


def _computed_wide(graph: Graph, name: str, target: Target) -> bool:
    """Whether every operator that makes or reads a tensor in codes has a kernel for 16 bits."""
    producer = graph.producer(name)
    nodes = [*([] if producer is None else [producer]), *(node for node, _ in graph.consumers(name))]
    touching = [node.op_type for node in nodes if node.op_type in target.operators]
    return bool(touching) and all(target.has_16bit_kernel(op_type) for op_type in touching)


def wide_note(nodes: Iterable[str], wide: int, target: Target) -> tuple[str, ...]:
    """Return a remark when operators with 16-bit activations have no integer kernel for them.

    Args:
        nodes: operator types of the nodes that read or make such activations.
        wide: number of these activations.
        target: the runtime.
    """
    lacking = sorted({op_type for op_type in nodes if not target.has_16bit_kernel(op_type)})
    if not wide or not lacking:
        return ()
    names = ", ".join(lacking[:4]) + (", ..." if len(lacking) > 4 else "")
    return (
        f"{wide} activations have 16 bits; {target.name} has no such kernel of {names}: "
        "float between conversions",
    )
