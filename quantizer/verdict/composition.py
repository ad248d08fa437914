"""What a quantized model consists of, and what it costs beside the float one. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...profiles.base.presentation import size_text
from ..runtime.latency import Latency

LEAST_SHARE = 0.005
"""Share of the multiply-adds below which none are in int8, as it is printed."""

KEEP_FLOAT = "keep the float model: int8 brings nothing here"
"""What is left to say where nothing is quantized, or no plan is smaller or faster than float."""


@dataclass(frozen=True)
class FloatNodes:
    """Nodes that stay float for one reason."""

    nodes: int
    reason: str


@dataclass(frozen=True)
class Composition:
    """What a quantized model consists of.

    Attributes:
        int8_share: share of the multiply-adds that integers do, in [0, 1]; None in a mode without a profile,
            which would say how many there are.
        quantized: number of nodes that compute in integers or have quantized weights.
        floats: the nodes that stay float by reason, the most first.
        weight_only: of `quantized`, those that have quantized weights and compute in float.
    """

    int8_share: float | None
    quantized: int
    floats: tuple[FloatNodes, ...]
    weight_only: int = 0

    @property
    def is_float(self) -> bool:
        """Whether nothing is gained by integers: no arithmetic, and no weights."""
        return not self.quantized or (self.int8_share == 0.0 and not self.weight_only)


@dataclass(frozen=True)
class Cost:
    """What a quantized model costs beside the float one.

    Attributes:
        float_bytes, quantized_bytes: sizes, external data included.
        latency: None where it was not measured.
    """

    float_bytes: int
    quantized_bytes: int
    latency: Latency | None

    @property
    def is_slower(self) -> bool:
        """Whether float is faster in three of four rounds."""
        return self.latency is not None and self.latency.speedup_high < 1.0

    @property
    def is_faster(self) -> bool:
        """Whether float is slower in three of four rounds."""
        return self.latency is not None and self.latency.speedup_low > 1.0


def is_no_gain(parts: Composition, cost: Cost) -> bool:
    """Whether a fix is none: it leaves nothing in int8, or a model that is larger or slower than float."""
    return parts.is_float or cost.quantized_bytes > cost.float_bytes or cost.is_slower


def brings_nothing(parts: Composition, cost: Cost) -> bool:
    """Whether int8 gains nothing: nothing is quantized, or it is neither smaller nor faster than float."""
    return parts.is_float or (cost.quantized_bytes >= cost.float_bytes and not cost.is_faster)


def alarms_of(parts: Composition, cost: Cost) -> Iterator[str]:
    """Yield what must not go unnoticed: nothing in int8, larger or slower than float."""
    if parts.is_float:
        yield "float kept: nothing is quantized"
    elif parts.int8_share is not None and parts.int8_share < LEAST_SHARE:
        only = (
            f"only the weights of {_nodes(parts.weight_only)} are"
            if parts.weight_only
            else "hardly anything is"
        )
        yield f"no arithmetic in int8 (0 % of the multiply-adds): {only} quantized"
    if cost.quantized_bytes > cost.float_bytes:
        yield f"larger than float: {size_text(cost.quantized_bytes)}, float {size_text(cost.float_bytes)}"
    if cost.is_slower and cost.latency is not None:
        yield f"slower than float: {cost.latency.speedup:.2f} times as fast"


def _nodes(count: int) -> str:
    return f"{count} node{'s'[: count != 1]}"
