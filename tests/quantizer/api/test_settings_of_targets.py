"""Every target with models that int8 suits and does not suit: a model is written, or nothing is quantized."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
import qprof_onnx as qprof
from onnx import numpy_helper, parser
from qprof_onnx.profiles.base.findings import Code
from qprof_onnx.quantizer.targets.loading import load_recipe
from qprof_onnx.quantizer.targets.packaged import target_names

Floats = npt.NDArray[np.float32]
SAMPLES, ROWS = 24, 8


@dataclass(frozen=True)
class Network:
    """A network, its weights and the standard deviation of its input.

    Attributes:
        nodes: as ONNX text, from x with 64 columns to y.
        weights: shapes of those that are drawn.
    """

    nodes: str
    weights: Mapping[str, tuple[int, int]]
    spread: float = 1.0


NETWORKS = {
    "int8 pays": Network(
        "h = MatMul (x, a) r = Relu (h) y = MatMul (r, b)", {"a": (64, 512), "b": (512, 64)}
    ),
    "int8 gains nothing": Network("y = MatMul (x, a)", {"a": (64, 4)}),
    "int8 is too noisy": Network(
        "e = Exp (x) h = MatMul (e, a) y = MatMul (h, b)", {"a": (64, 256), "b": (256, 64)}, spread=3.0
    ),
    "int8 destroys the model": Network(  # the difference of two products that are nearly equal
        "h = MatMul (x, a) c = MatMul (x, near_a) d = Sub (h, c) y = MatMul (d, b)",
        {"a": (64, 256), "near_a": (64, 256), "b": (256, 64)},
    ),
    "int8 is poor and has a fix": Network(
        "h = MatMul (x, a) r = Relu (h) k = MatMul (r, c) t = Tanh (k) k3 = Mul (k, three) e = Exp (k3) "
        "s = Add (e, t) y = MatMul (s, b)",
        {"a": (64, 256), "c": (256, 256), "b": (256, 64)},
    ),
}


@cache
def network(name: str) -> tuple[onnx.ModelProto, list[Floats]]:
    """Return a network with samples."""
    rng, own = np.random.default_rng(0), NETWORKS[name]
    columns = own.weights["a"][1] if len(own.weights) == 1 else 64
    graph = f"g (float[N,64] x) => (float[N,{columns}] y) {{ {own.nodes} }}"
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {graph}')
    arrays = {key: rng.normal(0.0, shape[0] ** -0.5, shape) for key, shape in own.weights.items()}
    if "near_a" in arrays:
        arrays["near_a"] = arrays["a"] + 1e-4 * arrays["near_a"]
    arrays["three"] = np.array(3.0)
    used = (numpy_helper.from_array(a.astype("f4"), key) for key, a in arrays.items() if key in own.nodes)
    model.graph.initializer.extend(used)
    return model, [rng.normal(0.0, own.spread, (ROWS, 64)).astype("f4") for _ in range(SAMPLES)]


FAST_TARGETS, FAST_NETWORKS = ("onnx", "onnxruntime-x86"), ("int8 destroys the model",)
SLOW = pytest.mark.slow


def by_data(name: str, **settings: Any) -> qprof.QuantizeResult:
    model, samples = network(name)
    return qprof.quantize(model, data=samples, latency=False, **settings)


@cache
def profile_of(name: str) -> qprof.Profile:
    return qprof.profile(*network(name))


def is_quantized(result: qprof.QuantizeResult) -> bool:
    return any(
        entry.kind.counts_as_quantized or entry.kind.has_weights for entry in result.plan.nodes.values()
    )


PAIRS = [
    # The other pairs are slow: a network and a target that each have a fast test with another.
    pytest.param(target, name, marks=() if target in FAST_TARGETS or name in FAST_NETWORKS else SLOW)
    for target in target_names()
    for name in NETWORKS
]


@pytest.mark.parametrize(("target", "name"), PAIRS)
def test_samples_lead_to_a_quantized_model_or_to_the_sentence_that_nothing_is_quantized(
    target: str, name: str
) -> None:
    result = by_data(name, target=target)
    assert result.verdict is not None
    says_float = Code.NOTHING_QUANTIZED in {one.code for one in result.verdict.findings}
    assert is_quantized(result) != says_float


@pytest.mark.parametrize(("target", "name"), PAIRS)
def test_a_profile_leads_to_a_model_that_runs(target: str, name: str) -> None:
    model, samples = network(name)
    result = qprof.quantize(model, profile_of(name), target=target)
    assert qprof.evaluate(model, result, samples[:2], latency=False).samples == 2


@pytest.mark.parametrize("target", target_names())
def test_a_type_of_weights_that_was_asked_for_stays_where_int8_is_too_noisy(target: str) -> None:
    recipe = load_recipe(target)
    for weight_type in set(recipe.target.weight_types) - {recipe.config.weight_type}:
        schema = "asymmetric" if weight_type == "uint8" else "symmetric"
        asked = {"weight_type": weight_type, "weight_schema": schema, "granularity": "per-tensor"}
        config = by_data("int8 is too noisy", target=target, **asked).plan.config
        assert {key: getattr(config, key) for key in asked} == asked


@pytest.mark.parametrize("target", target_names())
def test_integers_at_the_border_are_written_or_refused_before_the_data_are_read(
    target: str, tmp_path: Path
) -> None:
    for io in ("int8", "uint8"):
        model, samples = network("int8 gains nothing")
        out = tmp_path / f"{io}.onnx"
        try:
            result = qprof.quantize(model, None, out, data=samples, latency=False, target=target, io=io)
        except qprof.ConfigError:
            assert not list(tmp_path.glob(f"{io}.*"))
        else:
            assert result.plan.config.io == io


@pytest.mark.parametrize("target", ["glow", "migraphx", "qnn", "tensorrt"])
def test_a_speed_that_cannot_be_measured_here_is_refused_before_a_profile_is_made(
    target: str, tmp_path: Path
) -> None:
    model, samples = network("int8 gains nothing")
    with pytest.raises(qprof.ConfigError, match=f"does not show the speed on target {target}"):
        qprof.quantize(
            model, None, tmp_path / "q.onnx", data=samples, target=target, speed=qprof.SpeedCheckOptions()
        )
    assert not list(tmp_path.iterdir())
