"""The integers that a model takes and gives in place of float (setting `io`), but for caches. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import onnx_ir as ir

from ...profiles.base.errors import ConfigError
from ..numerics.affine import TYPES, QuantParams
from ..numerics.schemas import SCHEMAS, choose_params
from .facts import PlanningFacts


def integer_borders(
    facts: PlanningFacts, tensors: Mapping[str, QuantParams], caches: Collection[str]
) -> dict[str, QuantParams]:
    """Return the parameters of the inputs and outputs that are integers at the border; {} with io float.

    8-bit tensors that are quantized inside keep their scale: uint8 and int8 of the same scale represent the
    same numbers, 128 apart. Others get the range in their profile. `caches` are left out. Raises ConfigError
    if the range of a value is not known, or no value is float32.
    """
    config = facts.config
    if config.io == "float":
        return {}
    qtype, borders = TYPES[config.io], dict[str, QuantParams]()
    schema = SCHEMAS["symmetric" if facts.target.zero_points == "zero" else "asymmetric"]
    for name in float_borders(facts.prepared.model, config.io):
        if name in caches:
            continue
        inside = tensors.get(name)
        if inside is not None and inside.axis is None and inside.qtype.bits == qtype.bits:
            moved = inside.zero_point + (qtype.low - inside.qtype.low)
            borders[name] = QuantParams(inside.scale, moved, qtype)
        elif name in facts.profile:
            seen = facts.activations.calibrated(name, qtype)
            borders[name] = choose_params(seen.low, seen.high, schema, qtype)
        else:
            raise ConfigError(
                f"io {config.io}: no profile has '{name}', so its scale is not known; give a profile or "
                "samples (--data)"
            )
    return borders


def float_borders(model: ir.Model, setting: str) -> tuple[str, ...]:
    """Return the float32 inputs and outputs; raise ConfigError if `setting` needs some and there are none."""
    values = (*model.graph.inputs, *model.graph.outputs)
    names = tuple(str(value.name) for value in values if value.dtype is ir.DataType.FLOAT)
    if not names and setting != "float":
        raise ConfigError(f"io {setting}: the model has no input and no output in float32; use io float")
    return names
