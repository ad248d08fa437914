"""The integers of weights and biases that another tool chose, as adjustments of a plan. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ...profiles.base.errors import PlanError
from ..adjustments.rounded_weights import params_digest
from ..model.graph import constant_of
from ..numerics.affine import QuantParams, dequantize, quantize
from ..numerics.schemas import bias_params
from ..operators.graph import Graph, Node, in_main_graph
from ..plan.plan import RoundingOffsets
from .dequantized_model import Array, StoredConstant

FAR = 127
"""Most steps between the nearest integer and one that was chosen that offsets can say."""

OTHER_WEIGHTS = 8.0
"""SQNR (dB) below which a weight is not a rounded form of that of the float model."""


@dataclass(frozen=True)
class Weights:
    """What makes weights and biases those of the source.

    Attributes:
        roundings: node -> how far its integers are from the nearest.
        biases: node -> what is added to its bias.
        lost: node -> why its integers cannot be kept.
        others: nodes whose weights in the float model are other ones altogether.
    """

    roundings: Mapping[str, RoundingOffsets]
    biases: Mapping[str, tuple[float, ...]]
    lost: Mapping[str, str]
    others: tuple[str, ...]


def kept_weights(
    graph: Graph,
    inputs: Mapping[str, Mapping[int, QuantParams]],
    constants: Mapping[str, Mapping[int, StoredConstant]],
) -> Weights:
    """Return what a plan must say so that its quantized weights and biases are those of the source.

    Args:
        graph: the prepared float model.
        inputs: node -> parameters of its inputs, by index.
        constants: node -> what the source stores of its constants, by index.
    """
    roundings: dict[str, RoundingOffsets] = {}
    biases: dict[str, tuple[float, ...]] = {}
    lost: dict[str, str] = {}
    others: list[str] = []
    for node in graph.nodes:
        name, rule = node.name, node.rule
        for position, stored in constants.get(name, {}).items():
            array = graph.constant(node.input(position))
            params = inputs.get(name, {}).get(position)
            if array is None or array.shape != stored.integers.shape:
                continue
            if rule is not None and position == rule.bias:
                delta = _bias_delta(node, array, stored, inputs.get(name, {}))
                if delta is None:
                    lost[name] = "bias"
                elif delta:
                    biases[name] = delta
                continue
            if params is None:
                continue
            steps = stored.integers.astype(np.int64) - quantize(array, params).astype(np.int64)
            if not np.any(steps):
                continue
            if _sqnr(array, dequantize(stored.integers, params)) < OTHER_WEIGHTS:
                others.append(name)
            if not _has_offsets(graph, node, position) or np.abs(steps).max() > FAR:
                lost[name] = "weight"
                continue
            roundings[name] = RoundingOffsets(steps.astype(np.int8).tobytes(), params_digest(params))
    return Weights(roundings, biases, lost, tuple(others))


def _has_offsets(graph: Graph, node: Node, index: int) -> bool:
    """Whether a plan can say how a constant is rounded (`quantized_weights`)."""
    rule, value = node.rule, node.ir_node.inputs[index]
    weight = None if rule is None or rule.weight is None else rule.weight.index
    array = constant_of(value)
    alone = value is not None and len(value.uses()) == 1 and not value.is_graph_output()
    return weight == index and array is not None and array.ndim >= 2 and alone and in_main_graph(graph, node)


def _bias_delta(
    node: Node, array: Array, stored: StoredConstant, inputs: Mapping[int, QuantParams]
) -> tuple[float, ...] | None:
    """Return what is to be added to a bias so that its integers are those of the source; () for nothing.

    None where no float32 does it, or where its parameters are no product.
    """
    rule = node.rule
    if rule is None or rule.weight is None or 0 not in inputs or rule.weight.index not in inputs:
        return None
    try:
        params = bias_params(inputs[0], inputs[rule.weight.index])
    except PlanError:
        return None
    floats, own = np.asarray(array, np.float32), quantize(array, params)
    wanted = dequantize(stored.integers, stored.params)
    same_scale = np.allclose(stored.params.scale_array, params.scale_array, rtol=1e-5, atol=0.0)
    goal = stored.integers.astype(np.int64) if same_scale else quantize(wanted, params).astype(np.int64)
    if np.array_equal(own.astype(np.int64), goal):
        return ()
    delta = np.where(own == goal, np.float32(0.0), dequantize(goal, params) - floats).astype(np.float32)
    fits = np.array_equal(quantize(floats + delta, params).astype(np.int64), goal)
    return tuple(delta.reshape(-1).astype(np.float64).tolist()) if fits else None


def _sqnr(array: Array, other: Array) -> float:
    wanted = np.asarray(array, np.float64)
    noise = float(np.mean((wanted - other) ** 2))
    signal = float(np.mean(wanted**2))
    return np.inf if noise == 0.0 else 10.0 * float(np.log10(max(signal, 1e-300) / noise))
