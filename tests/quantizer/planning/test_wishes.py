"""Every setting that was given is in the written model, or an error says which target keeps it."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from qprof_onnx.profiles.base.errors import ConfigError
from qprof_onnx.quantizer.lowering.lower import lower
from qprof_onnx.quantizer.numerics.affine import QuantParams
from qprof_onnx.quantizer.plan.plan import Kind
from qprof_onnx.quantizer.planning.plan_model import PlannedModel, model_facts, plan_from
from qprof_onnx.quantizer.targets.config import FEW_BITS
from qprof_onnx.quantizer.targets.loading import load_recipe
from qprof_onnx.quantizer.targets.packaged import target_names

from ..networks import Network, network

FREE = {
    "cost_model": "off",
    "min_output_sqnr": 0.0,
    "equalization": "off",
    "bias_correction": "off",
    "calibrator": "minmax",
}
"""What a wish is free to say otherwise; nothing is left out for its time or noise, and no search is made."""

FAST_TARGETS = ("onnxruntime-x86", "migraphx")  # one of onnxruntime's kernels, one of another's

WORDS: dict[str, tuple[Any, ...]] = {
    "activation_type": ("uint8", "int8", "uint16", "int16"),
    "schema": ("asymmetric", "symmetric", "symmetric-uint8", "symmetric-power2"),
    "weight_type": ("int8", "uint8", "int7", "int4", "uint4"),
    "weight_schema": ("asymmetric", "symmetric", "symmetric-uint8", "symmetric-power2"),
    "granularity": ("per-tensor", "per-channel"),
    "form": ("qdq", "qoperator", "integer", "primitives", "regions"),
    "io": ("float", "uint8", "int8"),
    "mode": ("static", "dynamic", "weight-only", "auto"),
    "block_size": (16, 32),
    "calibrator": ("mse", "minmax", "percentile:99", "kl"),
    "kv_cache": ("float", "int8"),
}


def wishes() -> Iterator[dict[str, Any]]:
    """Yield each value of each setting by itself, and the pairs that speak of the same tensors."""
    yield from ({name: word} for name, words in WORDS.items() for word in words)
    pairs = (("activation_type", "schema"), ("weight_type", "weight_schema"), ("activation_type", "io"))
    for names in pairs:
        yield from (dict(zip(names, each, strict=True)) for each in itertools.product(*map(WORDS.get, names)))  # type: ignore[arg-type]
    for each in itertools.product(("weight_type",), WORDS["weight_type"], WORDS["granularity"]):
        yield {"mode": "weight-only", each[0]: each[1], "granularity": each[2]}
    for weight_type, size in itertools.product(WORDS["weight_type"], (0, 16, 32)):
        yield {"mode": "weight-only", "weight_type": weight_type, "block_size": size}
    yield from ({"mode": mode, "form": form} for mode in WORDS["mode"] for form in WORDS["form"])


@pytest.fixture(scope="module")
def net() -> Network:
    """Convolutions, products, a function and what joins; every axis holds whole blocks."""
    return network(
        """a = Conv <pads = [1, 1, 1, 1]> (x, w) b = Relu (a) c = Conv <pads = [1, 1, 1, 1]> (b, v)
        d = Concat <axis = 1> (b, c) e = Sigmoid (d) f = GlobalAveragePool (e) g = Flatten (f)
        h = MatMul (g, m) y = Gemm (h, t, s)""",
        {"w": (32, 32, 3, 3), "v": (32, 32, 3, 3), "m": (64, 64), "t": (64, 64), "s": (64,)},
        (1, 32, 6, 6),
        opset=21,
    )


def activations(planned: PlannedModel) -> list[QuantParams]:
    graph = planned.graph
    return [
        params
        for name, params in planned.plan.tensors.items()
        if name in graph.values and not graph.is_constant(name)
    ]


def weights(planned: PlannedModel, wish: dict[str, Any] | None = None) -> list[QuantParams]:
    """Return the parameters of weights; of 4 bits where the target has no other, these alone."""
    found, few = [], (wish or {}).get("weight_type") in FEW_BITS
    target = planned.source_facts.target
    for node in planned.graph.nodes:
        if few and (wish or {})["weight_type"] not in target.weight_only.get(node.op_type, ()):
            continue  # 8 bits, as the help says
        for weight in () if node.rule is None else node.rule.constants:
            params = planned.plan.params_read(node.name, weight.index, node.input(weight.index))
            if params is not None and planned.graph.is_constant(node.input(weight.index)):
                found.append(params)
    return found


def broken(wish: dict[str, Any], planned: PlannedModel, model: ir.Model) -> list[str]:
    """Return what of a wish is not in a plan and its model."""
    plan, acts, own = planned.plan, activations(planned), weights(planned, wish)
    operators = Counter(node.op_type for node in model.graph)
    types = {params.qtype.name for params in acts}
    problems = []

    def hold(name: str, kept: bool) -> None:
        if name in wish and not kept:
            problems.append(f"{name} {wish[name]}: {types} {operators}")

    hold("activation_type", types <= {wish.get("activation_type")})
    if wish.get("schema") in ("symmetric", "symmetric-power2"):
        middles = [0 if params.qtype.signed else params.qtype.high // 2 + 1 for params in acts]
        hold("schema", all((p.zero_point == middle).all() for p, middle in zip(acts, middles, strict=True)))
    if wish.get("schema") == "symmetric-power2":
        hold("schema", all(not np.log2(params.scale.astype(float)) % 1 for params in acts))
    hold("weight_type", {params.qtype.name for params in own} <= {wish.get("weight_type")})
    if wish.get("weight_schema") in ("symmetric", "symmetric-power2"):
        hold("weight_schema", not any(params.zero_point.any() for params in own))
    per_channel = wish.get("granularity") == "per-channel"
    hold("granularity", all((params.axis is not None) == per_channel for params in own))
    size = wish.get("block_size", 0)
    hold("block_size", all((params.block_size or 0) == size for params in own))
    if wish.get("io", "float") != "float":
        border = {value.dtype.name for value in (*model.graph.inputs, *model.graph.outputs)}
        hold("io", border == {wish["io"].upper()})
    if "mode" in wish and wish["mode"] != "auto":
        kinds = {entry.kind for entry in plan.nodes.values()}
        fitting = {"static": Kind.QUANTIZED, "dynamic": Kind.DYNAMIC, "weight-only": Kind.WEIGHT_ONLY}
        hold("mode", fitting[wish["mode"]] in kinds)
        hold(
            "mode", not kinds & (set(fitting.values()) - {fitting[wish["mode"]]}) or wish["mode"] == "static"
        )
    if wish.get("mode", "static") == "static":
        marks = {
            "qdq": not any(name.startswith("QLinear") for name in operators)
            and operators["DequantizeLinear"],
            "qoperator": operators["QLinearConv"],
            "integer": operators["ConvInteger"],
            "primitives": not {"QuantizeLinear", "DequantizeLinear", "ConvInteger"} & operators.keys(),
            "regions": model.functions,
        }
        hold("form", bool(marks[wish.get("form", "qdq")]))
    return problems


@pytest.mark.parametrize(
    "target",
    [pytest.param(name, marks=() if name in FAST_TARGETS else pytest.mark.slow) for name in target_names()],
)
def test_what_was_given_is_in_the_model_or_refused(target: str, net: Network) -> None:
    obeyed, problems = 0, []
    for wish in wishes():
        try:
            recipe = load_recipe(target, {**FREE, **wish})
            planned = plan_from(model_facts(net.prepared, net.profile, recipe))
        except ConfigError as error:
            problems += [f"{wish}: {error}"] if "\n" in str(error) or "; " not in str(error) else []
            continue  # one line, and what to do
        problems += [
            f"{wish}: {one}" for one in broken(wish, planned, lower(planned.model, planned.plan).model)
        ]
        obeyed += 1
    assert not problems
    assert obeyed > 20


@pytest.mark.parametrize(
    ("target", "wish", "sentence"),
    [
        (
            "onnxruntime-x86",
            {"activation_type": "int8", "schema": "symmetric"},
            "options: activation_type 'int8': activations of onnxruntime-x86 are unsigned; use "
            "activation_type uint8, or target glow or ",
        ),
        (
            "onnxruntime-x86",
            {"schema": "symmetric-power2"},
            "'symmetric-power2': activations of onnxruntime-x86 are unsigned; use --schema symmetric-uint8",
        ),
        ("qnn", {"schema": "symmetric-uint8"}, "qnn has no activations in int8; "),
        (
            "qnn",
            {"schema": "symmetric"},
            "needs signed activations, which qnn has not; use schema asymmetric",
        ),
        (
            "tensorrt",
            {"io": "uint8"},
            "tensorrt has no integer inputs and outputs in form qdq; use io int8 or float",
        ),
    ],
)
def test_the_error_names_the_nearest_that_keeps_it(target: str, wish: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_recipe(target, wish)
    assert sentence in str(error.value)


def test_what_only_a_default_says_gives_way() -> None:
    recipe = load_recipe("openvino", {"schema": "symmetric"})
    assert recipe.config.activation_type == "int8"
    assert recipe.given == {"schema"}


def test_settings_of_a_file_of_ones_own_are_wishes_too(tmp_path: Any) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("base: onnxruntime-x86\nsettings: {activation_type: int8, schema: symmetric}\n")
    with pytest.raises(
        ConfigError, match=r"mine\.yaml: activation_type 'int8': .*; use activation_type uint8"
    ):
        load_recipe(path)


def test_four_bits_that_no_weight_can_have_are_refused() -> None:
    convolutions = network("a = Conv (x, w) y = Conv (a, w)", {"w": (32, 32, 3, 3)}, (1, 32, 8, 8), opset=21)
    wish = {**FREE, "mode": "weight-only", "weight_type": "int4"}
    facts = model_facts(convolutions.prepared, convolutions.profile, load_recipe("onnxruntime-x86", wish))
    with pytest.raises(
        ConfigError, match=r"of Conv_a and 1 more, .*; use --as weight-only-8 .*, or target onnx$"
    ):
        plan_from(facts)
    kept = model_facts(convolutions.prepared, convolutions.profile, load_recipe("onnx", wish))
    assert {p.qtype.name for p in weights(plan_from(kept))} == {"int4"}


def test_signed_activations_that_a_target_misreads_are_unsigned() -> None:
    text = (
        "a = Conv <pads = [1, 1, 1, 1]> (x, w) c = Concat <axis = 1> (a, x) "
        "y = Conv <pads = [1, 1, 1, 1]> (c, v)"
    )
    misread = network(text, {"w": (8, 8, 3, 3), "v": (8, 16, 3, 3)})
    free = {"cost_model": "off", "min_output_sqnr": 0.0}
    plan = misread.plan("openvino", {"start_everywhere": True}, **free, activation_type="int8")
    assert plan.tensors["c"].qtype.name == "uint8"
