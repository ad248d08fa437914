"""Keys and values in int8: inputs and outputs of a model that hold a cache, and what reads it."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ..model.editing import add_initializer, free_name, value_names
from ..operators.caches import PLACES
from ..operators.graph import index
from ..plan.plan import QuantPlan

BITS = "kv_cache_bit_width"
"""Attribute of GroupQueryAttention."""


def write_caches(model: ir.Model, plan: QuantPlan) -> None:
    """Let the attentions of a written model that have parameters for it keep their cache in int8, in place.

    The model then takes and returns int8 in the inputs and outputs that hold the cache. Their scales are
    inputs `k_scale` and `v_scale` of each node.

    Args:
        model: as a form has written it.
        plan: its plan.
    """
    if not plan.int8_caches:
        return
    taken = value_names(model)
    for node in index(model).nodes:
        entry = plan.nodes.get(node.name)
        if entry is None or not entry.keeps_int8_cache:
            continue
        for place in PLACES:
            params, made = entry.inputs.get(place.past), node.ir_node
            if params is None:
                continue
            past, present = made.inputs[place.past], made.outputs[place.present]
            assert past is not None
            name = free_name(f"{present.name}_scale", taken)
            scale = add_initializer(model.graph, name, np.array([params.tensor_scale], np.float32))
            made.resize_inputs(max(len(made.inputs), place.scale + 1))
            made.replace_input_with(place.scale, scale)
            made.attributes[place.type_attribute] = ir.AttrString(place.type_attribute, "PER_TENSOR")
            made.attributes[BITS] = ir.AttrInt64(BITS, params.qtype.bits)
            past.type = present.type = ir.TensorType(ir.DataType.INT8)
