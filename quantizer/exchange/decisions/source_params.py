"""What another tool decided about a model, in the names of the prepared float model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...numerics.affine import QuantParams
from ...plan.adjustments import NONE, Adjustments
from ...plan.reasons import FloatReason


@dataclass(frozen=True)
class SourceNode:
    """What another tool decided about one node.

    Attributes:
        inputs: parameters of the inputs that it reads quantized, constants included, by input index.
        is_dynamic: whether the parameters of its activation are computed at run time.
        implementation: as in `NodePlan`, where the source has an operator of a runtime's own; "" elsewhere.
    """

    inputs: Mapping[int, QuantParams] = field(default_factory=dict)
    is_dynamic: bool = False
    implementation: str = ""


@dataclass(frozen=True)
class SourceParams:
    """What another tool decided about a model.

    Attributes:
        tool: who decided, for people.
        tensors: activations that are stored quantized, with their parameters.
        nodes: the nodes that read a quantized input; all others are float.
        reasons: why nodes are float, where more is known than that the source has nothing of them.
        float_biases: whether a bias without parameters stays float; else it has those that products take.
        adjustments: what makes quantized weights and biases those of the source.
        notes: what was assumed or left out, one sentence each.
        has_operators: whether the source has operators on quantized tensors, such as QLinearConv.
    """

    tool: str
    tensors: Mapping[str, QuantParams]
    nodes: Mapping[str, SourceNode]
    reasons: Mapping[str, FloatReason] = field(default_factory=dict)
    float_biases: bool = False
    adjustments: Adjustments = NONE
    notes: tuple[str, ...] = ()
    has_operators: bool = False
