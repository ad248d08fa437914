"""Keys and values in int8: planned, written into the attention, run by onnxruntime, compared and exported."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import numpy_helper
from qprof_onnx.profiles.base.errors import ConfigError
from qprof_onnx.profiles.records.profile import Profile
from qprof_onnx.quantizer.api.from_profile import write_quantized
from qprof_onnx.quantizer.api.profiling import profile_model
from qprof_onnx.quantizer.evaluation.evaluate import evaluate
from qprof_onnx.quantizer.evaluation.options import Gate, Judge
from qprof_onnx.quantizer.plan.plan import Kind
from qprof_onnx.quantizer.plan.store import read_plan
from qprof_onnx.quantizer.plugins.formats.caches import PLACES, channel_magnitudes, stored_caches
from qprof_onnx.quantizer.prepare.prepare import open_prepared
from qprof_onnx.quantizer.targets.loading import load_recipe

from ...decoders import genai_decoder

KEY, VALUE = "present.0.key", "present.0.value"
PAST = {"past_key_values.0.key": KEY, "past_key_values.0.value": VALUE}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("decoder")


@pytest.fixture(scope="module")
def model(folder: Path) -> Path:
    return genai_decoder(folder)


@pytest.fixture(scope="module")
def profile(model: Path) -> Profile:
    return profile_model(model, model.parent / "data")


@pytest.fixture(scope="module")
def written(model: Path, profile: Profile) -> Path:
    recipe = load_recipe(None, {"kv_cache": "int8", "weight_type": "int8"})
    write_quantized(model, profile, model.parent / "kv.onnx", recipe=recipe)
    return model.parent / "kv.onnx"


def test_an_attention_keeps_its_cache_in_int8_with_a_scale_for_all_that_was_seen(
    model: Path, profile: Profile, written: Path
) -> None:
    graph = onnx.load(written).graph
    types = {v.name: v.type.tensor_type.elem_type for v in (*graph.input, *graph.output)}
    assert {types[name] for name in (*PAST, *PAST.values())} == {onnx.TensorProto.INT8}
    (node,) = (n for n in graph.node if n.op_type == "GroupQueryAttention")
    scales = {t.name: numpy_helper.to_array(t) for t in graph.initializer if t.name in node.input[12:14]}
    for name, scale in zip((KEY, VALUE), (scales[name] for name in node.input[12:14]), strict=True):
        largest = max(abs(profile[name].minimum), abs(profile[name].maximum))
        assert 0.5 * largest < 127.0 * float(scale[0]) < 1.05 * largest
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    assert (attributes["k_quant_type"], attributes["v_quant_type"]) == (b"PER_TENSOR", b"PER_TENSOR")
    assert attributes["kv_cache_bit_width"] == 8


def test_a_program_that_hands_the_cache_on_in_int8_gets_the_answers_of_float(
    model: Path, written: Path
) -> None:
    """Twelve steps, each model on its own cache, without anything of qprof between them."""
    floats, quantized = (ort.InferenceSession(str(path)) for path in (model, written))
    rng = np.random.default_rng(1)
    caches = [{name: np.zeros((1, 2, 0, 16), kind) for name in PAST} for kind in (np.float32, np.int8)]
    signal = noise = 0.0
    for step in range(12):
        ids = rng.integers(0, 1200, (1, 1))
        results = []
        for session, cache in zip((floats, quantized), caches, strict=True):
            feed = {"input_ids": ids, "attention_mask": np.ones((1, step + 1), np.int64), **cache}
            logits, *new = session.run(["logits", KEY, VALUE], feed)
            cache.update(zip(PAST, new, strict=True))
            results.append(logits)
        signal += float(np.square(results[0]).sum())
        noise += float(np.square(results[0] - results[1]).sum())
    assert 10.0 * np.log10(signal / noise) > 20.0


def test_float_and_int8_caches_are_compared_on_the_same_samples_and_gated(model: Path, written: Path) -> None:
    options = Judge(latency=None)
    found = evaluate(model, written, model.parent / "data", gate=Gate(min_sqnr=25.0), measuring=options)
    assert found.passed
    assert found.provenance is not None
    estimated = found.provenance.estimated_sqnr
    assert {KEY, VALUE, "logits"} <= estimated.keys()
    measured = {one.name: one.difference for one in found.outputs}
    assert abs(estimated["logits"] - measured["logits"].sqnr) < 6.0  # type: ignore[union-attr]
    assert stored_caches(str(written)).keys() == {*PAST, *PAST.values()}


def test_the_plan_holds_the_scales(model: Path, profile: Profile) -> None:
    recipe = load_recipe(None, {"kv_cache": "int8"})
    path = model.parent / "again.onnx"
    plan = write_quantized(model, profile, path, recipe=recipe).plan
    plan.save(model.parent / "plan.yaml")
    again = read_plan(model.parent / "plan.yaml")
    assert again.nodes["attention"] == plan.nodes["attention"]
    assert plan.nodes["attention"].kind is Kind.FLOAT
    assert any("keys and values are int8" in note for note in map(str, plan.findings))


@pytest.mark.slow
def test_a_cache_with_a_scale_for_each_channel_loses_less_than_with_one(
    model: Path, profile: Profile, tmp_path: Path
) -> None:
    errors = {}
    for setting in ("int8", "int8-per-channel"):
        recipe = load_recipe(None, {"kv_cache": setting, "mode": "weight-only"})
        plan = write_quantized(model, profile, tmp_path / f"{setting}.onnx", recipe=recipe).plan
        plan.save(tmp_path / "plan.yaml")
        assert read_plan(tmp_path / "plan.yaml").nodes["attention"] == plan.nodes["attention"]
        assert plan.nodes["attention"].inputs[3].scale.size == (1 if setting == "int8" else 2 * 16)
        options = Judge(latency=None)
        data = model.parent / "data"
        found = evaluate(model, tmp_path / f"{setting}.onnx", data, measuring=options)
        errors[setting] = {o.name: o.difference.sqnr for o in found.outputs if o.difference}
    assert errors["int8-per-channel"][VALUE] > errors["int8"][VALUE] > 25.0
    assert errors["int8-per-channel"][KEY] > 25.0


def test_keys_that_positions_turn_have_the_scales_of_their_pairs(model: Path, profile: Profile) -> None:
    (node,) = (n for n in open_prepared(model).graph.nodes if n.op_type == "GroupQueryAttention")
    largest = profile[node.inputs[1]].channels.magnitude
    found = channel_magnitudes(node, PLACES[0], largest)
    pairs = np.hypot(largest.reshape(2, 2, 8)[:, 0], largest.reshape(2, 2, 8)[:, 1])
    assert np.array_equal(found, np.concatenate([pairs, pairs], axis=1))
    assert np.array_equal(channel_magnitudes(node, PLACES[1], largest), largest.reshape(2, 16))


def test_what_a_cache_needs_is_said(model: Path, profile: Profile, tmp_path: Path) -> None:
    bare = replace(profile, tensors={n: replace(t, channels=None) for n, t in profile.items()})
    recipe = load_recipe(None, {"kv_cache": "int8-per-channel", "mode": "weight-only"})
    with pytest.raises(ConfigError, match=r"the profile has no channels of 'k'; profile the model again"):
        write_quantized(model, bare, tmp_path / "q.onnx", recipe=recipe)
    recipe = load_recipe(None, {"kv_cache": "int8", "mode": "weight-only"})
    with pytest.raises(ConfigError, match=r"no profile has 'present\.0\.key', so its scale is not known"):
        write_quantized(model, None, tmp_path / "q.onnx", recipe=recipe)
    with pytest.raises(ConfigError, match=r"qnn has no operators for an int8 cache; use float"):
        load_recipe("qnn", {"kv_cache": "int8"})


def test_a_decoder_whose_weights_have_4_bits_already_gets_a_cache_in_int8(
    model: Path, tmp_path: Path
) -> None:
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    quantizer = MatMulNBitsQuantizer(onnx.load(model), block_size=32, is_symmetric=True, accuracy_level=4)
    quantizer.process()
    quantizer.model.save_model_to_file(str(tmp_path / "nbits.onnx"))
    profile = profile_model(tmp_path / "nbits.onnx", model.parent / "data")
    options = Judge(latency=None)
    for setting in ("int8", "int8-per-channel"):
        recipe = load_recipe(None, {"kv_cache": setting, "mode": "weight-only"})
        write_quantized(tmp_path / "nbits.onnx", profile, tmp_path / "kv.onnx", recipe=recipe)
        pair = tmp_path / "nbits.onnx", tmp_path / "kv.onnx"
        found = evaluate(*pair, model.parent / "data", measuring=options)
        assert next(o for o in found.outputs if o.name == "logits").difference.sqnr > 25.0


def test_an_attention_whose_cache_tells_its_length_keeps_it_in_int8(model: Path, tmp_path: Path) -> None:
    proto = onnx.load(model)
    shape = onnx.helper.make_node("Shape", [next(iter(PAST))], ["cache_shape"])
    proto.graph.node.insert(0, shape)
    proto.graph.output.append(onnx.helper.make_tensor_value_info("cache_shape", onnx.TensorProto.INT64, [4]))
    onnx.save(proto, tmp_path / "m.onnx")
    profile = profile_model(tmp_path / "m.onnx", model.parent / "data")
    recipe = load_recipe(
        None, {"kv_cache": "int8", "mode": "weight-only", "keep_float": ["MatMul", "Gather"]}
    )
    plan = write_quantized(tmp_path / "m.onnx", profile, tmp_path / "q.onnx", recipe=recipe).plan
    assert plan.int8_caches == 1
    types = {v.name: v.type.tensor_type.elem_type for v in onnx.load(tmp_path / "q.onnx").graph.input}
    assert {types[name] for name in PAST} == {onnx.TensorProto.INT8}


def test_a_model_without_such_an_attention_is_refused(tmp_path: Path) -> None:
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[1,8] x) => (float[1,8] y) { y = Relu(x) }'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    (tmp_path / "data").mkdir()
    np.savez(tmp_path / "data" / "0.npz", x=np.ones((1, 8), np.float32))
    profile = profile_model(tmp_path / "m.onnx", tmp_path / "data")
    with pytest.raises(ConfigError, match="the model has no GroupQueryAttention or Concat that reads"):
        write_quantized(
            tmp_path / "m.onnx", profile, tmp_path / "q.onnx", recipe=load_recipe(None, {"kv_cache": "int8"})
        )
