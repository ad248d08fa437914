"""Scales of the keys and values that a decoder keeps, as the JSON that onnxruntime-genai's builder reads.

    {"scales": {"k_scales": [0.037, ...], "v_scales": [0.03, ...]}, "qmax": 128, "layer_ids": [0, ...],
     "past_keys": [INPUT, ...], "past_values": [INPUT, ...]}

A key is its int8 times the scale. With a scale for each element of each head an entry is a list of as many
numbers, the elements of the first head first. Names of the inputs that hold the cache are for other readers:
the builder looks at `scales`, `qmax` and `layer_ids` alone.

Source: option kv_cache_scale_file of onnxruntime-genai 0.18 (models/builders/base.py).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...profiles.base.errors import ConfigError
from ..numerics.affine import INT8, QuantParams
from ..operators.caches import PLACES
from ..operators.graph import index

if TYPE_CHECKING:
    import onnx_ir as ir

    from ..plan.plan import QuantPlan

STEPS_OF_LARGEST = -INT8.low
"""What the builder calls qmax. It multiplies scales by this over 128 for int8, 8 for int4 and 448 for float8,
so that one file serves all three, and scales of int8 stay as they are."""


def write(plan: QuantPlan, model: ir.Model) -> str:
    """Return the scales of the caches that a plan has in int8, layers in the order of the graph.

    Raises:
        ConfigError: it has none.
    """
    nodes = [node for node in index(model).nodes if plan.nodes[node.name].keeps_int8_cache]
    if not nodes:
        raise ConfigError(
            "format 'kv-scales': the plan keeps no keys and values in int8; make it with --kv-cache int8"
        )
    names, scales = list[list[str]](), list[list[float | list[float]]]()
    for place in PLACES:
        names.append([node.input(place.past) for node in nodes])
        scales.append([_scales(plan.nodes[node.name].inputs[place.past]) for node in nodes])
    content = {
        "scales": {"k_scales": scales[0], "v_scales": scales[1]},
        "qmax": STEPS_OF_LARGEST,
        "layer_ids": layer_ids(names[0]),
        "past_keys": names[0],
        "past_values": names[1],
    }
    return json.dumps(content, indent=2) + "\n"


def _scales(params: QuantParams) -> float | list[float]:
    return params.tensor_scale if params.axis is None else [float(scale) for scale in params.scale]


def layer_ids(names: Sequence[str]) -> list[int]:
    """Return the layers of caches: the first number in the name of each, as in past_key_values.3.key; their
    positions where a name has none or two have the same."""
    found = [re.search(r"\d+", name) for name in names]
    numbers = [int(match.group()) for match in found if match]
    return numbers if len(set(numbers)) == len(names) else list(range(len(names)))
