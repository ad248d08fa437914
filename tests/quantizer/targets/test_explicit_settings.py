"""Settings that a user asks for, with each target: the written model has them, or they are refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper
from qprof_onnx.profiles.base.errors import ConfigError
from qprof_onnx.quantizer.lowering.lower import lower
from qprof_onnx.quantizer.targets.loading import load_recipe
from qprof_onnx.quantizer.targets.packaged import target_names

from ..networks import Network, network, plan_alone

ASKED: Mapping[str, tuple[str, ...]] = {
    "activation_type": ("uint8", "int8", "uint16", "int16"),
    "weight_type": ("int8", "uint8", "int7"),
    "schema": ("symmetric", "symmetric-uint8", "symmetric-power2"),
    "weight_schema": ("symmetric", "symmetric-uint8", "symmetric-power2"),
    "granularity": ("per-tensor", "per-channel"),
}
CASES = [
    (target, key, value) for target in target_names() for key, values in ASKED.items() for value in values
]

ALL_QUANTIZED = {"cost_model": "off", "min_output_sqnr": 0.0}
"""The settings by which a target leaves no node float that it could quantize."""


@dataclass(frozen=True)
class Written:
    """Types, scales and zero points in a model in form qdq, of activations or of weights."""

    types: frozenset[str]
    zero_points: frozenset[int]
    powers_of_two: bool
    per_channel: bool


def written(nodes: Iterator[tuple[np.ndarray, np.ndarray]]) -> Written:
    found = list(nodes)
    scales = [scale for scale, _ in found]
    return Written(
        frozenset(str(zero.dtype) for _, zero in found),
        frozenset(int(value) for _, zero in found for value in zero.ravel()),
        all((np.log2(scale) % 1.0 == 0.0).all() for scale in scales),
        any(scale.size > 1 for scale in scales),
    )


def conversions(model: onnx.ModelProto, *, weights: bool) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield scale and zero point of each conversion of an activation, or of a weight that is no bias.

    The index of a table is no activation: it is unsigned in form qdq, whatever the type.
    """
    arrays = {one.name: numpy_helper.to_array(one) for one in model.graph.initializer}
    indices = {node.input[0] for node in model.graph.node if node.op_type == "Cast"}
    looked_up = {node.output[0] for node in model.graph.node if node.op_type == "Gather"}
    for node in model.graph.node:
        if node.op_type not in ("QuantizeLinear", "DequantizeLinear"):
            continue
        stored = arrays.get(node.input[0])
        is_table = bool(indices & set(node.output) or looked_up & set(node.input))
        if (stored is not None) is weights and not is_table and (stored is None or stored.dtype != np.int32):
            scale = arrays[node.input[1]]
            zero = (
                arrays[node.input[2]]
                if len(node.input) > 2
                else np.zeros(1, stored.dtype if weights else "u1")
            )
            yield scale, zero


@pytest.fixture(scope="module")
def net() -> Network:
    text = (
        "a = Conv <pads = [1, 1, 1, 1]> (x, w, b) r = Relu (a) c = Conv <pads = [1, 1, 1, 1]> (r, v) "
        "s = Add (c, r) t = Sigmoid (s) p = MaxPool <kernel_shape = [2, 2]> (t) "
        "f = Flatten (p) y = MatMul (f, u)"
    )
    weights = {"w": (8, 8, 3, 3), "v": (8, 8, 3, 3), "b": (8,), "u": (200, 5)}
    return network(text, weights, opset=19)


def follows(key: str, value: str, activations: Written, weights: Written) -> bool:
    """Return whether a model is what was asked for."""
    if key == "activation_type":
        return activations.types == {value}
    if key == "weight_type":
        return weights.types == {value.replace("7", "8")}
    if key == "granularity":
        return weights.per_channel is (value == "per-channel")
    of = activations if key == "schema" else weights
    middle = {"int8": {0}, "uint8": {128}}
    if value == "symmetric-uint8":  # from 0 on, which int8 has as -128
        middle = {"int8": {0, -128}, "uint8": {0, 128}}
    centred = of.zero_points <= set().union(*(middle[one] for one in of.types))
    return centred and (of.powers_of_two or value != "symmetric-power2")


@pytest.mark.parametrize(("target", "key", "value"), CASES)
def test_a_setting_is_followed_or_refused(target: str, key: str, value: str, net: Network) -> None:
    try:
        recipe = load_recipe(target, {**ALL_QUANTIZED, key: value})
    except ConfigError:
        with pytest.raises(ConfigError, match=key):
            load_recipe(target, {key: value})
        return
    recipe = replace(recipe, target=replace(recipe.target, start_everywhere=True))
    plan = plan_alone(net.model, net.profile, recipe)
    model = ir.to_proto(lower(net.model, plan).model)
    activations = written(conversions(model, weights=False))
    weights = written(conversions(model, weights=True))
    assert activations.types
    assert follows(key, value, activations, weights), (activations, weights)


def test_signed_activations_that_a_target_misreads_are_unsigned() -> None:
    text = (
        "a = Conv <pads = [1, 1, 1, 1]> (x, w) c = Concat <axis = 1> (a, x) "
        "y = Conv <pads = [1, 1, 1, 1]> (c, v)"
    )
    net = network(text, {"w": (8, 8, 3, 3), "v": (8, 16, 3, 3)})
    plan = net.plan("openvino", {"start_everywhere": True}, **ALL_QUANTIZED, activation_type="int8")
    assert plan.tensors["c"].qtype.name == "uint8"
