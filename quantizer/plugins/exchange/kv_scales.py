"""Scales of the keys and values that a decoder keeps, as the JSON that onnxruntime-genai's builder reads.

    {"scales": {"k_scales": [0.037, ...], "v_scales": [0.03, ...]}, "qmax": 128, "layer_ids": [0, ...]}

A key is its int8 times the scale. With a scale for each element of each head an entry is a list of as many
numbers, the elements of the first head first.

Source: option kv_cache_scale_file of onnxruntime-genai 0.18 (models/builders/base.py).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ....profiles.base.errors import ConfigError
from ...numerics.affine import INT8, QuantParams
from ...operators.graph import index
from ...plan.formats import CACHES

if TYPE_CHECKING:
    import onnx_ir as ir

    from ...plan.plan import QuantPlan

Scales = float | list[float]
"""One for a cache, or one for each element of each head."""

STEPS_OF_LARGEST = -INT8.low
"""What the builder calls qmax. It multiplies scales by this over 128 for int8, 8 for int4 and 448 for float8,
so that one file serves all three, and scales of int8 stay as they are."""


def write(plan: QuantPlan, model: ir.Model) -> str:
    """Return the scales of a plan's int8 caches, layers in the order of the graph, keys or values by use."""
    keys, values = dict[str, Scales](), dict[str, Scales]()
    for past, is_value, params, heads in CACHES.load("format 'kv-scales'").scaled_caches(plan, index(model)):
        (values if is_value else keys)[past] = _scales(params, heads)
    if not keys and not values:
        raise ConfigError(
            "format 'kv-scales': the plan keeps no keys and values in int8; make it with --set kv_cache=int8"
        )
    if len(keys) != len(values):
        raise ConfigError(
            f"format 'kv-scales': the model has {len(keys)} caches that are read as keys and {len(values)} "
            "that are read as values, and a file has both of each layer; 'qprof.borders' in the metadata of "
            "the written model has the scales by name"
        )
    content = {
        "scales": {"k_scales": list(keys.values()), "v_scales": list(values.values())},
        "qmax": STEPS_OF_LARGEST,
        "layer_ids": layer_ids(list(keys)),
    }
    return json.dumps(content, indent=2) + "\n"


def _scales(params: QuantParams, heads: int) -> Scales:
    """Return the scales of a cache; those of its elements for each of the heads that have them in common."""
    return params.tensor_scale if params.axis is None else params.scale.tolist() * heads


def layer_ids(names: Sequence[str]) -> list[int]:
    """Return the first number in each cache's name (past_key_values.3.key), or positions if two are equal."""
    found = [re.search(r"\d+", name) for name in names]
    numbers = [int(match.group()) for match in found if match]
    return numbers if len(set(numbers)) == len(names) else list(range(len(names)))
