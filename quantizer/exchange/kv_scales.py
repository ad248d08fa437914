"""Scales of the keys and values that a decoder keeps, as JSON for runtimes with a cache of their own.

    {"kv_cache": {"dtype": "int8", "zero_point": 0, "layers": [
        {"node": NAME, "past_key": INPUT, "present_key": OUTPUT, "k_scale": 0.037,
                       "past_value": INPUT, "present_value": OUTPUT, "v_scale": 0.03}, ...]}}

A layer is an attention, in the order of the graph; a key is its int8 times the scale. With a scale for each
element of each head `k_scale` is a list of heads, each a list of the scales of its elements. `k_scale` and
`v_scale` are the names of onnxruntime's GroupQueryAttention and of the checkpoints that vLLM reads.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np

from ...profiles.base.errors import ConfigError
from ..operators.caches import PLACES
from ..operators.graph import index

if TYPE_CHECKING:
    import onnx_ir as ir

    from ..plan.plan import QuantPlan


def write(plan: QuantPlan, model: ir.Model) -> str:
    """Return the scales of the caches that a plan has in int8.

    Raises:
        ConfigError: it has none.
    """
    graph, layers = index(model), []
    for node in graph.nodes:
        entry = plan.nodes[node.name]
        if not entry.keeps_int8_cache:
            continue
        layer: dict[str, str | float | list[list[float]]] = {"node": node.name}
        for word, place in zip(("key", "value"), PLACES, strict=True):
            if (params := entry.inputs.get(place.past)) is not None:
                layer[f"past_{word}"] = node.input(place.past)
                layer[f"present_{word}"] = node.outputs[place.present]
                heads = node.attributes.get_int("kv_num_heads", 1) or 1
                scales = params.scale.astype(np.float64)
                layer[f"{word[0]}_scale"] = (
                    params.tensor_scale if params.axis is None else scales.reshape(heads, -1).tolist()
                )
        layers.append(layer)
    if not layers:
        raise ConfigError(
            "format 'kv-scales': the plan keeps no keys and values in int8; make it with --kv-cache int8"
        )
    return json.dumps({"kv_cache": {"dtype": "int8", "zero_point": 0, "layers": layers}}, indent=2) + "\n"
