"""Formats of numbers beside integers of 8 bits and float32: all that the core asks of one.

Settings name them. They are a plug-in: each is a module of `quantizer/plugins/formats/`, which is named here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from ...profiles.base.extras import OptionalModule
from ..operators.graph import Graph
from ..targets.config import DATA_FREE, FLOAT_TYPES, QuantConfig
from .reasons import FloatReasons

if TYPE_CHECKING:
    from ..prepare.prepare import PreparedModel
    from ..targets.target import Recipe
    from .plan import QuantPlan

FLOAT8, CACHES, BORDERS, FLOAT16, PACKED, SIZES, CONSTANTS = (
    OptionalModule("the formats of numbers", f"quantizer.plugins.formats.{module}")
    for module in ("float8", "caches", "borders", "float16", "bit_packed", "sizes", "float_constants")
)
"""The first four have `FORMAT`."""


@dataclass(frozen=True)
class Part:
    """What a format has of one decision of the planner."""

    nodes: Collection[str] = ()  # the nodes in the format, which the planner skips
    floats: FloatReasons = field(default_factory=dict)  # nodes that stay float for it, and why
    finish: Callable[[QuantPlan], QuantPlan] = lambda plan: plan  # writes it into the plan around it


@dataclass(frozen=True)
class Format:
    """The questions of the core that a format answers.

    Attributes:
        check: raises ConfigError if a model has nothing that could be in the format.
        recorded: the activations whose profile it needs, each with the axis of its channels or None.
        floats: the nodes of a prepared model that stay float for it, each with the reason.
        part: the planner's question; its arguments are `PlanningFacts`, nodes in float, and `Known`.
        adjusted: changes a `PlannedModel` once channels and biases are adjusted.
        write_nodes: writes it into the nodes of a written model, or of a part of one, by its plan, in place.
        write: writes it into a whole `LoweredModel` by its plan.
    """

    check: Callable[[PreparedModel, Recipe], object] = lambda *_: None
    recorded: Callable[[Graph], Mapping[str, int | None]] = lambda _: {}
    floats: Callable[[Graph, Recipe], FloatReasons] = lambda *_: {}
    part: Callable[[Any, FloatReasons, Any], Part] = lambda *_: Part()
    adjusted: Callable[[Any], Any] = lambda planned: planned
    write_nodes: Callable[[ir.Model, QuantPlan], None] = lambda *_: None
    write: Callable[[Any, QuantPlan], Any] = lambda lowered, _: lowered


def formats_of(config: QuantConfig) -> tuple[Format, ...]:
    """Return the formats that settings ask for; raise ConfigError if they are not installed."""
    of_products = config.activation_type
    asked = (
        (FLOAT8, of_products, of_products in FLOAT_TYPES and config.mode not in DATA_FREE),
        (CACHES, f"kv_cache {config.kv_cache}", config.kv_cache != "float"),
        (BORDERS, f"io {config.io}", config.io != "float"),
        (FLOAT16, f"float_type {config.float_type}", config.is_float16),
    )
    return tuple(module.load(setting).FORMAT for module, setting, is_asked in asked if is_asked)


def recorded_activations(graph: Graph) -> Mapping[str, int | None]:
    """Return the activations that formats may need with any settings, each with the axis of its channels."""
    return CACHES.load().FORMAT.recorded(graph) if CACHES.is_installed else {}
