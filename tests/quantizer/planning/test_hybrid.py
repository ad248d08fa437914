"""Dynamic and weight-only nodes: which there are in each mode, why, and what every form computes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import numpy_helper, parser
from qprof_onnx.profiles.base.errors import ConfigError
from qprof_onnx.profiles.records.profile import DataId, Profile
from qprof_onnx.profiles.runner.calibrate import calibrate
from qprof_onnx.profiles.samples.values import Sample
from qprof_onnx.quantizer.api.from_profile import write_quantized
from qprof_onnx.quantizer.lowering.lower import lower
from qprof_onnx.quantizer.model.identity import model_id
from qprof_onnx.quantizer.numerics.quantization_noise import weight_sqnr
from qprof_onnx.quantizer.operators.graph import index
from qprof_onnx.quantizer.plan.plan import Kind, QuantPlan
from qprof_onnx.quantizer.plan.verify import verify_plan
from qprof_onnx.quantizer.prepare.prepare import prepare
from qprof_onnx.quantizer.targets.forms import FORMS
from qprof_onnx.quantizer.targets.loading import load_recipe

from ...reference.plan_interpreter import run_plan
from ..networks import plan_alone

ROWS, WIDTH = 1024, 32
WORDS = np.array([[3, 1, 4, 1, 5], [9, 2, 6, 5, 1023]])
EMBEDDED = "e = Gather (t, i) a = MatMul (e, w) b = Relu (a) y = MatMul (b, v)"
SIZES: dict[str, tuple[int, ...]] = {"t": (ROWS, WIDTH), "w": (WIDTH, 64), "v": (64, 32)}


def model_of(text: str = EMBEDDED, sizes: dict[str, tuple[int, ...]] | None = None) -> ir.Model:
    """Return a prepared model from word numbers i to y, with seeded weights."""
    proto = parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17]> g (int64[2, 5] i) => (float[] y) {{ {text} }}'
    )
    rng = np.random.default_rng(5)
    for name, size in (sizes or SIZES).items():
        array = rng.standard_normal(size).astype(np.float32)
        if name == "t":  # rows of very different size
            array *= np.logspace(-2, 2, size[0], dtype=np.float32)[:, None]
        proto.graph.initializer.append(numpy_helper.from_array(array, name))
    return prepare(ir.serde.deserialize_model(proto)).model


def plan_of(
    model: ir.Model,
    *,
    profiled: bool = True,
    target: str = "onnxruntime-x86",
    products: str = "int8",
    **settings: object,
) -> QuantPlan:
    """Return the plan of a model, verified; `products` is what the target multiplies 4-bit weights with."""
    identity, graph = model_id(model, "net.onnx"), index(model)
    profile = Profile(identity, DataId(), {})
    if profiled:
        profile = calibrate(model, [Sample("0", {"i": WORDS})], identity)
    recipe = load_recipe(target, settings, {"weight_only_activations": products})
    plan = plan_alone(model, profile, recipe)
    verify_plan(plan, graph, identity)
    return plan


def kinds(plan: QuantPlan) -> list[str]:
    return [node.kind.value for node in plan.nodes.values()]


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("static", ["weight-only", "quantized", "pass-through", "quantized"]),
        ("dynamic", ["weight-only", "dynamic", "float", "dynamic"]),
        ("weight-only", ["weight-only", "weight-only", "float", "weight-only"]),
    ],
)
def test_a_mode_decides_the_kinds(mode: str, expected: list[str]) -> None:
    assert kinds(plan_of(model_of(), profiled=mode == "static", mode=mode)) == expected


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("mode", ["static", "dynamic", "weight-only", "auto"])
def test_every_form_of_every_mode_computes_what_the_plan_means(mode: str, form: str) -> None:
    model = model_of()
    plan = plan_of(model, target="onnxruntime-x86", mode=mode, form=form, products="float")
    proto = ir.to_proto(lower(model, plan).model)
    onnx.checker.check_model(proto, full_check=True)
    options = ort.SessionOptions()
    # Optimized, onnxruntime rounds the activations of weight-only products in blocks.
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    (found,) = ort.InferenceSession(proto.SerializeToString(), options).run(None, {"i": WORDS})
    expected = run_plan(model, plan, {"i": WORDS})["y"].values
    # 2e-6 of the largest value: float32 sums and products in another order.
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6 * float(np.abs(expected).max()))


@pytest.mark.parametrize("mode", ["static", "dynamic", "weight-only", "auto"])
def test_the_optimized_model_stays_near_float(mode: str) -> None:
    model = model_of()
    quantized = ir.to_proto(lower(model, plan_of(model, mode=mode)).model).SerializeToString()
    (exact,) = ort.InferenceSession(ir.to_proto(model).SerializeToString()).run(None, {"i": WORDS})
    (found,) = ort.InferenceSession(quantized).run(None, {"i": WORDS})
    assert 10 * np.log10(np.mean(exact**2) / np.mean((exact - found) ** 2)) > 30.0


# Tables that are looked up


def test_each_entry_of_a_table_has_a_scale() -> None:
    model = model_of()
    plan = plan_of(model)
    params = plan.tensors["t"]
    assert (params.axis, len(params.scale), params.qtype.name) == (0, ROWS, "int8")
    assert plan.nodes["Gather_e"].implementation == "integer"
    assert plan.nodes["Gather_e"].reason.startswith(
        "embedding table 1024 x 32 in int8, a scale for each entry: 4"
    )
    # One scale for all would lose the small rows.
    small = model.graph.initializers["t"].const_value
    assert small is not None
    assert weight_sqnr(small.numpy(), params) > 40.0


def test_a_table_is_looked_up_in_codes() -> None:
    lowered = lower(model_of(), plan_of(model_of())).model
    assert "t" not in lowered.graph.initializers
    gathers = [n for n in lowered.graph if n.op_type == "Gather"]
    assert [str(n.inputs[0].dtype) for n in gathers if n.inputs[0]] == ["INT8", "FLOAT"]
    assert not any(
        n.op_type == "DequantizeLinear" and n.inputs[0].name == "t_quantized" for n in lowered.graph
    )


def test_a_table_along_another_axis_has_scales_along_it() -> None:
    text = "e = Gather <axis = 1> (t, i) a = Transpose <perm = [1, 2, 0]> (e) y = MatMul (a, w)"
    model = model_of(text, {"t": (WIDTH, ROWS), "w": (WIDTH, 64)})
    plan = plan_of(model, mode="weight-only", profiled=False)
    assert (plan.tensors["t"].axis, len(plan.tensors["t"].scale)) == (1, ROWS)
    lowered = ir.to_proto(lower(model, plan).model).SerializeToString()
    (found,) = ort.InferenceSession(lowered).run(None, {"i": WORDS})
    expected = run_plan(model, plan, {"i": WORDS})["y"].values
    # 1 %: onnxruntime rounds the activations of the weight-only product.
    np.testing.assert_allclose(found, expected, rtol=0, atol=0.01 * float(np.abs(expected).max()))


TURNED = """a = MatMul (x, w) c = Gather (t, i) s = Gather (u, i) d = Unsqueeze (c, one) r = Mul (a, d)
    k = Neg (a) m = Mul (k, s) y = Add (r, m)"""


@pytest.mark.parametrize("weight_type", ["int8", "int4"])
def test_tables_of_rotary_positions_are_no_embeddings(weight_type: str) -> None:
    proto = parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 17]>
        g (int64[5] i, float[1, 5, 64] x) => (float[] y) <int64[1] one = {{0}}> {{ {TURNED} }}"""
    )
    rng = np.random.default_rng(5)
    angles = np.outer(np.arange(512), 1e4 ** -np.linspace(0.0, 1.0, 64)).astype(np.float32)
    arrays = {"w": rng.standard_normal((64, 64)), "t": np.cos(angles), "u": np.sin(angles)}
    proto.graph.initializer.extend(
        numpy_helper.from_array(array.astype(np.float32), name) for name, array in arrays.items()
    )
    model = prepare(ir.serde.deserialize_model(proto)).model
    plan = plan_of(model, profiled=False, mode="weight-only", weight_type=weight_type)
    assert [plan.nodes[n].kind for n in ("MatMul_a", "Gather_c", "Gather_s")] == [
        Kind.WEIGHT_ONLY,
        Kind.FLOAT,
        Kind.FLOAT,
    ]


def test_a_table_that_is_multiplied_with_a_mask_of_the_inputs_is_an_embedding() -> None:
    text = """e = Gather (t, i) z = Greater (i, zero) f = Cast <to = 1> (z) u = Unsqueeze (f, last)
        h = Mul (e, u) y = MatMul (h, w)"""
    proto_model = model_of(f"zero = Constant <value_int = 0> () last = Constant <value_ints = [2]> () {text}")
    assert plan_of(proto_model, profiled=False, mode="weight-only").nodes["Gather_e"].kind is Kind.WEIGHT_ONLY


def test_a_table_whose_entries_are_normalised_first_is_an_embedding() -> None:
    text = """e = Gather (t, i) q = Mul (e, e) m = ReduceMean <axes = [-1]> (q) r = Sqrt (m)
        n = Reciprocal (r) h = Mul (e, n) y = MatMul (h, w)"""
    plan = plan_of(model_of(text), profiled=False, mode="weight-only")
    assert plan.nodes["Gather_e"].kind is Kind.WEIGHT_ONLY


def test_a_table_of_four_bits_keeps_the_sqnr_that_is_asked_for() -> None:
    settings = {"mode": "weight-only", "weight_type": "int4", "min_tensor_sqnr": 30.0, "fit_size": "least"}
    assert plan_of(model_of(), profiled=False, **settings).tensors["t"].qtype.name == "int8"


def test_a_small_table_stays_float() -> None:
    model = model_of("e = Gather (t, i) y = MatMul (e, w)", {"t": (1024, 8), "w": (8, 64)})
    assert plan_of(model).nodes["Gather_e"].kind is Kind.FLOAT


def test_a_table_that_others_read_too_stays_float() -> None:
    model = model_of(
        "e = Gather (t, i) f = Gather <axis = 1> (t, i) s = ReduceSum <keepdims = 0> (f) y = Add (e, s)",
        {"t": (ROWS, ROWS)},
    )
    assert plan_of(model).nodes["Gather_e"].kind is Kind.FLOAT


# Products


def test_weights_of_dynamic_products_have_the_7_bits_that_were_asked_for() -> None:
    plan = plan_of(model_of(), profiled=False, mode="dynamic", weight_type="int7")
    assert [plan.tensors[name].qtype.name for name in ("w", "v")] == ["int7", "int7"]


def test_weights_have_their_figures() -> None:
    plan = plan_of(model_of(), profiled=False, mode="weight-only")
    assert plan.nodes["MatMul_a"].reason.startswith("weight 32 x 64 in int8: 4")


def test_four_bits_have_a_scale_for_each_block() -> None:
    model = model_of()
    plan = plan_of(model, profiled=False, mode="weight-only", weight_type="int4", fit_size="least")
    params = plan.tensors["w"]
    assert (params.qtype.name, params.axis, params.block_size, len(params.scale)) == ("int4", 0, 32, 64)
    assert (plan.tensors["t"].qtype.name, plan.tensors["t"].axis) == ("int4", 1)
    lowered = lower(model, plan).model
    (found,) = ort.InferenceSession(ir.to_proto(lowered).SerializeToString()).run(None, {"i": WORDS})
    expected = run_plan(model, plan, {"i": WORDS})["y"].values
    # 1 %: onnxruntime rounds the activations of weight-only products to 8 bits in blocks.
    np.testing.assert_allclose(found, expected, rtol=0, atol=0.01 * float(np.abs(expected).max()))


@pytest.mark.parametrize(
    ("width", "form", "expected"), [(40, "qdq", 32), (48, "integer", 16), (40, "integer", None)]
)
def test_a_block_that_does_not_divide_is_halved_where_no_operator_takes_it(
    width: int, form: str, expected: int | None
) -> None:
    sizes = {**SIZES, "t": (ROWS, width), "w": (width, 64)}
    settings = {"mode": "weight-only", "weight_type": "int4", "form": form, "fit_size": "least"}
    plan = plan_of(model_of(sizes=sizes), profiled=False, **settings)
    assert plan.tensors["w"].block_size == expected
    assert plan.tensors["w"].qtype.name == ("int8" if expected is None else "int4")
    assert plan.tensors["v"].qtype.name == "int4"


@pytest.mark.parametrize("weight_type", ["int8", "uint8"])
@pytest.mark.parametrize("form", ["qdq", "qoperator"])
def test_a_weight_that_no_block_divides_has_a_scale_for_each_channel_and_says_so(
    form: str, weight_type: str
) -> None:
    sizes = {**SIZES, "t": (ROWS, 100), "w": (100, 64)}
    schema = "asymmetric" if weight_type == "uint8" else "symmetric"
    plan = plan_of(
        model_of(sizes=sizes),
        profiled=False,
        mode="weight-only",
        form=form,
        weight_type=weight_type,
        weight_schema=schema,
        products="float",
        block_size=16,
    )
    assert (plan.tensors["w"].block_size, len(plan.tensors["w"].scale)) == (None, 64)
    assert "no block divides its 100 rows, so a scale for each channel" in plan.nodes["MatMul_a"].reason
    assert plan.tensors["v"].block_size == 16


def test_asymmetric_blocks_have_zero_points() -> None:
    plan = plan_of(
        model_of(), profiled=False, mode="weight-only", weight_type="uint4", weight_schema="asymmetric"
    )
    assert plan.tensors["w"].qtype.name == "uint4"
    assert len(np.unique(plan.tensors["w"].zero_point)) > 1


def test_kept_nodes_stay_float_in_every_mode() -> None:
    for mode in ("static", "dynamic", "weight-only", "auto"):
        plan = plan_of(model_of(), mode=mode, keep_float=("Gather", "MatMul_a"))
        assert [plan.nodes[n].kind for n in ("Gather_e", "MatMul_a")] == [Kind.FLOAT, Kind.FLOAT]


def outlier_plan(outlier: float, **settings: object) -> QuantPlan:
    """Return the plan of one product whose input has a bulk within 1 and one value far outside."""
    proto = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[600, 1000] x) => (float[] y) { y = MatMul (x, w) }'
    )
    rng = np.random.default_rng(3)
    weight = rng.standard_normal((1000, 4)).astype(np.float32)
    proto.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    model = prepare(ir.serde.deserialize_model(proto)).model
    x = rng.uniform(-1.0, 1.0, (600, 1000)).astype(np.float32)
    x[0, 0] = outlier
    identity = model_id(model, "net.onnx")
    profile = calibrate(model, [Sample("0", {"x": x})], identity)
    return plan_alone(model, profile, load_recipe(None, {"mode": "auto", **settings}))


@pytest.mark.parametrize(
    ("outlier", "kind"), [(1.0, Kind.QUANTIZED), (60.0, Kind.DYNAMIC), (1000.0, Kind.WEIGHT_ONLY)]
)
def test_auto_steps_back_as_far_as_the_noise_of_the_activations_asks(outlier: float, kind: Kind) -> None:
    assert outlier_plan(outlier, min_tensor_sqnr=30.0).nodes["MatMul_y"].kind is kind


def test_auto_tells_the_figures_of_its_choice() -> None:
    reason = outlier_plan(60.0, min_tensor_sqnr=30.0).nodes["MatMul_y"].reason
    assert "quantizing 'x' to uint8 would leave" in reason
    assert "weight 1000 x 4 in int8: 39.4 dB" in reason
    assert "dynamic parameters of 'x': " in reason


def test_convolutions_keep_their_weights_in_codes_in_mode_weight_only(tmp_path: Path) -> None:
    digits = Path(__file__).parents[3] / "examples" / "digits" / "model.onnx"
    recipe = load_recipe(None, {"mode": "weight-only"})
    result = write_quantized(digits, None, tmp_path / "q.onnx", recipe=recipe)
    assert result.quantized_bytes < 0.4 * result.float_bytes
    assert set(result.kinds) == {"weight-only", "float"}


def test_a_static_mode_asks_for_a_profile(tmp_path: Path) -> None:
    digits = Path(__file__).parents[3] / "examples" / "digits" / "model.onnx"
    with pytest.raises(
        ConfigError,
        match=r"mode static needs a profile or samples: .* int8-dynamic or weight-only-8 or weight-only-4$",
    ):
        write_quantized(digits, None, tmp_path / "q.onnx")
    with pytest.raises(ConfigError, match=r"mode static needs a profile .* qprof dump-profile makes$"):
        write_quantized(digits, None, tmp_path / "q.onnx", recipe=load_recipe("migraphx"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"weight_type": "int4"}, "weight_type 'int4' is for mode weight-only"),
        ({"block_size": 32}, "block_size 32 is for mode weight-only"),
        ({"mode": "weight-only", "block_size": 24}, "block_size 24 must be 0 or a power of two from 16"),
        ({"mode": "weight-only", "block_size": 8}, "block_size 8 must be 0 or a power of two from 16"),
        (
            {"mode": "weight-only", "weight_type": "uint4", "block_size": 0},
            "'uint4' needs weight_schema asymmetric",
        ),
        ({"mode": "dynamc"}, "mode 'dynamc' is not one of .* did you mean 'dynamic'"),
        ({"io": "go"}, "io 'go' is not one of float, uint8, int8"),
        ({"block_size": 3.5}, "block_size must be a whole number from 0 on, not 3.5"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(settings: dict[str, object], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        load_recipe(None, settings)


def test_a_target_without_such_kernels_refuses_the_mode() -> None:
    with pytest.raises(ConfigError, match="mode 'dynamic': glow has no kernel for it"):
        load_recipe("glow", {"mode": "dynamic"})
