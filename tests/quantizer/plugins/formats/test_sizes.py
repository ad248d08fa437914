"""Formats of weights that are not all the same: the ends of a language model, or what fits a size."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import numpy_helper, parser
from qprof_onnx.profiles.base.errors import ConfigError, MalformedError
from qprof_onnx.profiles.records.profile import DataId, Profile
from qprof_onnx.profiles.runner.calibrate import calibrate
from qprof_onnx.profiles.samples.values import Sample
from qprof_onnx.quantizer.api.from_profile import write_quantized
from qprof_onnx.quantizer.lowering.lower import lower
from qprof_onnx.quantizer.model.identity import model_id
from qprof_onnx.quantizer.model.saving import written_bytes
from qprof_onnx.quantizer.noise.measure import measure_noise
from qprof_onnx.quantizer.numerics.affine import INT8, TYPES, BlockScales, FloatFormat, QuantType
from qprof_onnx.quantizer.numerics.schemas import SCHEMAS
from qprof_onnx.quantizer.operators.graph import index
from qprof_onnx.quantizer.plan.plan import QuantPlan
from qprof_onnx.quantizer.plugins.formats.sizes import SIZE_STEPS, FormatChoice, quietest
from qprof_onnx.quantizer.prepare.prepare import prepare
from qprof_onnx.quantizer.targets.config import size_in_bytes
from qprof_onnx.quantizer.targets.loading import load_recipe
from qprof_onnx.quantizer.targets.weight_formats import WeightFormat

from ...networks import plan_alone

WORDS, WIDTH = 512, 64
SOME = WeightFormat(INT8, 0, SCHEMAS["symmetric"])
IDS = np.array([[3, 1, 4, 1, 5, 9, 2, 6]])
DECODER = """e = Gather (table, ids) a = MatMul (e, first) b = Tanh (a) c = MatMul (b, second) d = Add (e, c)
    t = Transpose <perm = [1, 0]> (table) y = MatMul (d, t)"""


def decoder(with_peaks: str = "") -> ir.Model:
    """Return a prepared model with a tied table; the matrix of a name has a large weight in each block."""
    proto = parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 17]> g (int64[1, N] ids) => (float[1, N, {WORDS}] y)
        {{ {DECODER} }}"""
    )
    rng = np.random.default_rng(1)
    arrays = {
        "table": rng.standard_normal((WORDS, WIDTH)),
        "first": rng.standard_normal((WIDTH, 256)) / 8.0,
        "second": rng.standard_normal((256, WIDTH)) / 16.0,
    }
    if with_peaks:
        arrays[with_peaks][::32] *= 8.0
    for name, array in arrays.items():
        proto.graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), name))
    return prepare(ir.from_proto(proto)).model


def plan_of(
    model: ir.Model, *, profiled: bool = False, target: str | None = None, **settings: object
) -> QuantPlan:
    identity = model_id(model, "net.onnx")
    profile = None
    if profiled:
        samples = [("0", Sample("0", {"ids": IDS}))]
        names = [name for name, value in index(model).values.items() if value.producer() is not None]
        profile = replace(
            calibrate(model, [sample for _, sample in samples], identity),
            noise=measure_noise(model, names, samples, 1),
        )
    few = {} if str(settings.get("fit_size", "least")) != "least" else {"weight_type": "int4"}
    recipe = load_recipe(target, {"mode": "weight-only", **few, **settings})
    return plan_alone(model, profile or Profile(identity, DataId(), {}), recipe)


def bits(plan: QuantPlan) -> dict[str, int]:
    return {name: params.qtype.bits for name, params in plan.tensors.items()}


def size(model: ir.Model, plan: QuantPlan) -> int:
    return len(ir.to_proto(lower(model, plan).model).SerializeToString())


def test_table_and_last_product_have_8_bits_and_the_rest_4() -> None:
    assert bits(plan_of(decoder())) == {"table": 8, "first": 4, "second": 4, "t": 8}
    assert set(bits(plan_of(decoder(), fit_size="least")).values()) == {4}


def test_a_model_without_a_table_has_4_bits_in_its_last_product_too() -> None:
    proto = parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]> g (float[1, 64] x) => (float[1, 64] y)
        <float[64, 64] w> { y = MatMul (x, w) }"""
    )
    del proto.graph.input[1:]
    array = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    proto.graph.initializer.append(numpy_helper.from_array(array, "w"))
    assert bits(plan_of(prepare(ir.from_proto(proto)).model)) == {"w": 4}


@pytest.mark.parametrize("profiled", [True, False])
def test_a_model_takes_no_more_than_it_may(profiled: bool) -> None:
    model = decoder()
    sizes = []
    for kilobytes in (57, 62, 75, 95, 200):
        plan = plan_of(model, profiled=profiled, fit_size=f"{kilobytes}kB")
        sizes.append(size(model, plan))
        assert sizes[-1] <= 1000 * kilobytes
        assert bits(plan)["table"] == bits(plan)["t"]  # which is stored once
        if kilobytes == 62:
            assert any("to fit the size" in entry.reason for entry in plan.nodes.values())
    assert sizes == sorted(sizes)
    assert set(bits(plan).values()) == {8}


@pytest.mark.parametrize("noisy", ["first", "second"])
def test_bits_go_where_the_measured_noise_is(noisy: str) -> None:
    plan = plan_of(decoder(noisy), profiled=True, fit_size="53.5kB")  # room for one of the two matrices
    assert [name for name, found in bits(plan).items() if found == 8] == [noisy]


@given(
    st.lists(
        st.lists(st.tuples(st.integers(1, SIZE_STEPS // 4), st.floats(1e-9, 1.0)), min_size=0, max_size=3),
        min_size=1,
        max_size=5,
    ),
    st.integers(1, SIZE_STEPS),
)
@settings(max_examples=60)
def test_no_other_formats_that_fit_have_less_noise(each: list[list[tuple[int, float]]], unit: int) -> None:
    room = float(unit * SIZE_STEPS)
    weights = []
    for steps in each:
        choices, size, noise = [FormatChoice(SOME, 0.0, 4.0)], 0, 4.0
        for added, removed in steps:
            size, noise = size + added, noise - removed
            choices.append(FormatChoice(SOME, float(size * unit), noise))
        weights.append(choices)
    places = quietest(weights, room)
    ways = product(*(range(len(choices)) for choices in weights))
    taken = lambda way: [choices[place] for choices, place in zip(weights, way, strict=True)]  # noqa: E731
    best = min(sum(c.noise for c in taken(way)) for way in ways if sum(c.size for c in taken(way)) <= room)
    assert sum(choice.size for choice in taken(places)) <= room
    assert sum(choice.noise for choice in taken(places)) == pytest.approx(best, rel=1e-12)


def test_a_size_is_filled_to_the_last_matrix_that_fits(tmp_path: Path) -> None:
    float_model, file = tmp_path / "float.onnx", tmp_path / "q.onnx"
    ir.save(decoder(), float_model)

    def made(most: float) -> int:
        asked = {"mode": "weight-only", "fit_size": f"{most}B"}
        write_quantized(float_model, None, file, recipe=load_recipe(None, asked))
        return file.stat().st_size

    largest = made(65_000)
    assert made(largest + 40) == largest  # names in the graph are estimated
    assert made(largest - 1) < largest


@pytest.mark.parametrize("asked", [{}, {"fit_size": "least"}, {"weight_type": "int8"}])
def test_the_size_of_a_written_model_is_known_before(asked: dict[str, str]) -> None:
    model, plan = decoder(), plan_of(decoder(), **asked)
    assert 0 <= written_bytes(lower(model, plan).model) - size(model, plan) <= 16  # lengths of the graph


@pytest.mark.parametrize(
    ("target", "floats"), [("openvino", True), ("onnx", True), ("onnxruntime-x86", False)]
)
def test_a_weight_has_any_format_that_its_target_takes(target: str, floats: bool) -> None:
    model = decoder()
    found = set()
    for kilobytes in range(76, 96, 4):
        plan = plan_of(model, fit_size=f"{kilobytes}kB", target=target)
        assert size(model, plan) <= 1000 * kilobytes
        taken = load_recipe(target).target.weight_only["MatMul"]
        types = {params.qtype.name for params in plan.tensors.values()}
        assert types <= set(taken)
        found |= types
    assert any(TYPES[name].is_float for name in found) == floats


@pytest.mark.parametrize(
    ("name", "number", "blocks"),
    [
        ("float6e2m3", FloatFormat(2, 3, 1, "none"), None),
        ("mxfp6", FloatFormat(2, 3, 1, "none"), BlockScales("float8e8m0", 32)),
    ],
)
def test_a_size_takes_a_further_format_up_by_its_entry(
    name: str, number: FloatFormat, blocks: BlockScales | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(TYPES, name, QuantType(name, 6, True, "", number, blocks))
    model, found = decoder(), set[str]()
    for kilobytes in range(84, 104, 4):
        recipe = load_recipe("onnx", {"mode": "weight-only", "fit_size": f"{kilobytes}kB"})
        listed: Any = {**recipe.target.weight_only, "MatMul": ("int8", "int4", name)}
        recipe = replace(recipe, target=replace(recipe.target, weight_only=listed))
        profile = Profile(model_id(model, "net.onnx"), DataId(), {})
        found |= {params.qtype.name for params in plan_alone(model, profile, recipe).tensors.values()}
    assert found == {"int8", "int4", name}


@pytest.mark.parametrize("text", ["", "900", "-3MB", "0MB", "900mb", "MB"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(MalformedError, match="is not a size"):
        size_in_bytes(text)
    assert size_in_bytes("900MB") == 900_000_000
    assert size_in_bytes("1.5 GiB") == 3 << 29


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"fit_size": "10kB"}, r"in the smallest formats that \S+ takes the model has \d+\.\d kB"),
        ({"min_output_sqnr": 20.0}, "fit_size 1MB and min_output_sqnr 20.0: each decides how far"),
        ({"tolerance": 0.01}, r"fit_size 1MB and tolerance 0\.01: each decides how far"),
        ({"weight_type": "int4"}, "weight_type int4: fit_size 1MB chooses the format of each weight"),
        ({"mode": "static"}, "chooses formats of weights in mode weight-only; use --as mixed"),
    ],
)
def test_what_a_size_excludes_is_refused(asked: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plan_of(decoder(), **{"fit_size": "1MB", **asked})
