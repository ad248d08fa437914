"""Records of the files that people write: configuration files and plans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, make_dataclass
from typing import Annotated, Any, Literal, get_type_hints

from msgspec import Meta

from ....quantizer.plan.plan import Kind
from ....quantizer.targets.config import QuantConfig
from ....quantizer.targets.loading import IDENTITY
from ....quantizer.targets.target import Target, Verified

_HINTS = get_type_hints(Target, include_extras=True)
Runtime = make_dataclass(
    "Runtime",
    [
        (entry.name, _HINTS[entry.name], field(default=entry.default, default_factory=entry.default_factory))
        for entry in fields(Target)
        if entry.name not in IDENTITY
    ],
    namespace={"__doc__": "Facts about a runtime."},
    frozen=True,
)
"""The fields of `Target` that a file has under `runtime`."""


@dataclass(frozen=True)
class ConfigDocument:
    """A configuration file: a target, or settings for one."""

    target: Annotated[
        str, Meta(description="Name; of a packaged target when base and runtime are left out.")
    ] = ""
    base: Annotated[str, Meta(description="A packaged target: what is not given here is taken from it.")] = ""
    description: Annotated[str, Meta(description="One line for people.")] = ""
    sources: Annotated[tuple[str, ...], Meta(description="Where the facts were read or measured.")] = ()
    verified: Annotated[
        Verified | None, Meta(description="Whether models were run there, on what, and when.")
    ] = None
    runtime: Runtime | None = None  # type: ignore[valid-type]
    settings: QuantConfig | None = None


@dataclass(frozen=True)
class Parameters:
    """Scale and zero point of a quantized tensor: value = scale * (quantized value - zero_point)."""

    type: Annotated[str, Meta(description="Integer type of the quantized values.")]
    scale: float | tuple[float, ...]
    zero_point: int | tuple[int, ...]
    axis: Annotated[int | None, Meta(description="Of the channels, where each has a scale.")] = None
    block_size: Annotated[int | None, Meta(description="Elements that share a scale.")] = None


@dataclass(frozen=True)
class Node:
    """What becomes of a node.

    Attributes:
        kind: as what it is written.
        implementation: how, where there are several ways.
        reason: why it stays float, a code with its figures; or a remark.
        inputs: number of an input to parameters that it reads instead of the tensor's.
    """

    kind: Kind
    implementation: str = ""
    reason: str | Mapping[str, Any] = ""
    inputs: Mapping[str, Parameters] | None = None


@dataclass(frozen=True)
class PlanDocument:
    """A plan: every decision about one model, to read or to edit."""

    format: Literal["qprof-plan/2"]
    model: Mapping[str, Any]
    config: QuantConfig
    tensors: Mapping[str, Parameters]
    nodes: Mapping[str, Node]
    tool: str = ""
    notes: tuple[str, ...] = ()
    shared_scales: tuple[Mapping[str, Any], ...] = ()
    adjustments: Mapping[str, Any] | None = None
    origin: Mapping[str, Any] | None = None
