"""Where the noise of outputs comes from, and what is estimated and measured at each tensor. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

import numpy as np

from ..evaluation.layers import LayerReport
from ..noise.propagation import NoiseFlow
from ..noise.sources import NoiseSource, decibels_of, dynamic_inputs
from ..outputs.limits import NoiseLimits
from .analysis import Analysis, NoiseAnalysis, noise_names
from .records import NoiseBudget, NoisePart, TensorNoiseRecord

MOST_OUTPUTS = 12
"""Outputs whose noise a report takes apart: those with the lowest SQNR."""

COLUMNS = 256
"""Tensors whose noise is estimated at once: the flow has a number for each of them at every tensor."""


def noise_budgets(noise: NoiseAnalysis) -> tuple[NoiseBudget, ...]:
    """Return where the noise of each output comes from, the output with the lowest SQNR first."""
    flow = noise.flow_to(noise.estimator.gains.results())
    by_node: dict[str, np.ndarray] = {}
    for source in _sources(noise, flow):
        by_node[source.node] = by_node.get(source.node, np.zeros(len(flow.outputs))) + source.share
    found = [
        _budget(name, {node: float(shares[at]) for node, shares in by_node.items()}, noise.limits)
        for at, name in enumerate(flow.outputs)
    ]
    return tuple(sorted((b for b in found if b is not None), key=lambda b: b.sqnr)[:MOST_OUTPUTS])


def _sources(noise: NoiseAnalysis, flow: NoiseFlow) -> Iterator[NoiseSource]:
    """Yield every place where the plan rounds, as its estimate of the outputs counts them."""
    estimator = noise.estimator
    yield from chain(
        estimator.sources(flow, noise.plan), dynamic_inputs(flow, noise.plan, estimator.activations)
    )


def _budget(output: str, noise: Mapping[str, float], limits: NoiseLimits) -> NoiseBudget | None:
    total = sum(noise.values())
    if not 0.0 < total < math.inf:
        return None
    order = sorted(noise.items(), key=lambda pair: -pair[1])
    parts = (NoisePart(name, part / total, decibels_of(part)) for name, part in order if part > 0.0)
    allowed = limits.allowed(output) if output in limits.kinds or limits.least is not None else math.inf
    limit = decibels_of(allowed) if 0.0 < allowed < math.inf else None
    return NoiseBudget(output, decibels_of(total), limit, tuple(parts))


def estimated_noise(noise: NoiseAnalysis, tensors: Iterable[str]) -> dict[str, float]:
    """Return the SQNR in dB that is estimated at tensors, with all noise that was added upstream.

    Args:
        noise: of the plan.
        tensors: of the model before equalization; those without signal or noise are left out.
    """
    powers = noise.estimator.gains.powers
    names = [n for n in dict.fromkeys(tensors) if n in noise.facts.graph.values and powers.get(n)]
    found: dict[str, float] = {}
    for first in range(0, len(names), COLUMNS):
        flow = noise.flow_to(tuple(names[first : first + COLUMNS]))
        total = sum((s.share for s in _sources(noise, flow)), np.zeros(len(flow.outputs)))
        found |= {n: decibels_of(x) for n, x in zip(flow.outputs, total.tolist(), strict=True) if x > 0.0}
    return found


def tensor_noise(analysis: Analysis | None, layers: LayerReport | None) -> tuple[TensorNoiseRecord, ...]:
    """Return estimated and measured noise of tensors: of those that were compared, else of the quantized.

    Args:
        analysis: of the plan; None for no estimates.
        layers: what was measured; None for nothing.
    """
    if layers is None:
        return () if analysis is None else tuple(_estimated_only(analysis))
    names = {} if analysis is None else noise_names(analysis)
    noise = None if analysis is None else analysis.noise
    found = {}
    if noise is not None:
        found = estimated_noise(noise, (layer.tensor for layer in layers.layers))
    return tuple(
        TensorNoiseRecord(
            tensor=layer.tensor,
            operator=layer.op_type,
            estimated=None if _is_equalized(layer.tensor, names) else found.get(layer.tensor),
            measured=None if layer.effective is None else layer.effective.sqnr,
            drop=layer.sqnr_drop,
            is_quantized=layer.type == "quantized",
            after=layer.after,
            is_equalized=_is_equalized(layer.tensor, names),
        )
        for layer in layers.layers
    )


def _is_equalized(tensor: str, names: Mapping[str, str]) -> bool:
    return names.get(tensor, tensor) != tensor


def _estimated_only(analysis: Analysis) -> Iterator[TensorNoiseRecord]:
    noise, graph = analysis.noise, analysis.graph
    if noise is None:
        return
    names = noise_names(analysis)
    tensors = [n for n in graph.values if n in analysis.plan.tensors and not graph.is_constant(n)]
    found = estimated_noise(noise, (names[name] for name in [*tensors, *graph.outputs]))
    for name in dict.fromkeys([*tensors, *graph.outputs]):
        if names[name] in found:
            maker = graph.producer(name)
            operator = "input" if maker is None else maker.op_type
            is_quantized = name in analysis.plan.tensors
            equalized = _is_equalized(name, names)
            yield TensorNoiseRecord(
                name, operator, found[names[name]], None, None, is_quantized, is_equalized=equalized
            )
