"""The integers that a model takes and gives where its border is not float (setting `io`). Pure."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from ...profiles.base.errors import ConfigError
from ..numerics.affine import TYPES, QuantParams
from ..numerics.schemas import SCHEMAS, choose_params
from ..operators.caches import PLACES
from ..plan.plan import NodePlan
from ..targets.forms import FORMS
from .facts import PlanningFacts


def integer_borders(
    facts: PlanningFacts, tensors: Mapping[str, QuantParams], nodes: Mapping[str, NodePlan]
) -> dict[str, QuantParams]:
    """Return the parameters of the inputs and outputs that are integers at the border; {} with io float.

    Those of 8 bits that are quantized inside keep their scale: uint8 and int8 of the same scale hold the same
    numbers, 128 apart. Others get the range that their profile shows. Caches of keys and values are left out.

    Raises:
        ConfigError: the form has no conversions, nothing is known of a value, or no value is float32.
    """
    config = facts.config
    if config.io == "float":
        return {}
    if not FORMS[config.form].conversions:
        raise ConfigError(f"io {config.io}: form {config.form} has no conversions; use io float")
    wanted, graph = TYPES[config.io], facts.prepared.model.graph
    kept = {
        name
        for node in facts.graph.nodes
        if nodes[node.name].keeps_int8_cache
        for place in PLACES
        for name in (node.input(place.past), node.outputs[place.present])
    }
    found: dict[str, QuantParams] = {}
    for value in (*graph.inputs, *graph.outputs):
        name = str(value.name)
        if value.dtype is not ir.DataType.FLOAT or name in kept:
            continue
        inside = tensors.get(name)
        if inside is not None and inside.axis is None and inside.qtype.bits == wanted.bits:
            moved = inside.zero_point + (wanted.low - inside.qtype.low)
            found[name] = QuantParams(inside.scale, moved, wanted)
            continue
        if name not in facts.profile:
            raise ConfigError(
                f"io {config.io}: no profile has '{name}', so its scale is not known; give a profile or "
                "samples (--data)"
            )
        known = facts.activations.calibrated(name, wanted)
        found[name] = choose_params(known.low, known.high, SCHEMAS["asymmetric"], wanted)
    if not found:
        raise ConfigError(f"io {config.io}: the model has no input and no output in float32; use io float")
    return found
