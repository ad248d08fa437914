"""What running a model costs, node by node and conversion by conversion: measured or predicted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..plan.plan import QuantPlan


@dataclass(frozen=True)
class Costs:
    """Microseconds of one run.

    Attributes:
        integer: by node, in the quantized model; of nodes that stay float there too.
        floating: by node, in the float model.
        border: by tensor, of quantizing or dequantizing it, change of layout included.
        unfused: nodes that are quantized in the plan and that onnxruntime computes in float nevertheless.
        together: groups of nodes that are one kernel in float: each costs what `floating` says where all of
            them are float.
    """

    integer: Mapping[str, float]
    floating: Mapping[str, float]
    border: Mapping[str, float]
    unfused: tuple[str, ...] = ()
    together: tuple[tuple[str, ...], ...] = ()


def is_quantized(name: str, plan: QuantPlan) -> bool:
    """Return whether a node computes on quantized values."""
    entry = plan.nodes.get(name)
    return entry is not None and entry.kind.counts_as_quantized
