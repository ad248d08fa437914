"""Caches in standard operators, as optimum exports decoders: found, planned, written in int8 and run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import numpy_helper, parser
from qprof_onnx.profiles.base.errors import ConfigError
from qprof_onnx.profiles.records.profile import Profile
from qprof_onnx.quantizer.api.from_profile import write_quantized
from qprof_onnx.quantizer.api.from_samples import quantize_from_samples
from qprof_onnx.quantizer.api.options import QuantizeOptions
from qprof_onnx.quantizer.api.profiling import profile_model
from qprof_onnx.quantizer.evaluation.evaluate import evaluate
from qprof_onnx.quantizer.evaluation.options import Judge
from qprof_onnx.quantizer.numerics.affine import broadcast_scales
from qprof_onnx.quantizer.plan.provenance import borders_in
from qprof_onnx.quantizer.plan.store import read_plan
from qprof_onnx.quantizer.plugins.explanation.explanation import explain_tensor
from qprof_onnx.quantizer.plugins.formats.concat_caches import Turning, concat_caches, turning_of
from qprof_onnx.quantizer.plugins.layers.layers import layers_of
from qprof_onnx.quantizer.prepare.prepare import file_of, open_prepared
from qprof_onnx.quantizer.targets.loading import load_recipe

from ...decoders import GROUPS, HEAD, WORDS, merged_decoder, standard_decoder

PAST = {"past_key_values.0.key": "present.0.key", "past_key_values.0.value": "present.0.value"}
WEIGHTS = {"mode": "weight-only"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return standard_decoder(tmp_path_factory.mktemp("decoder") / "model.onnx")


@pytest.fixture(scope="module")
def profile(model: Path) -> Profile:
    return profile_model(model, model.parent / "data")


@pytest.fixture(scope="module", params=["int8", "int8-per-channel"])
def written(request: pytest.FixtureRequest, model: Path, profile: Profile) -> Path:
    path = model.parent / f"{request.param}.onnx"
    recipe = load_recipe(None, {"kv_cache": request.param, **WEIGHTS})
    plan = write_quantized(model, profile, path, recipe=recipe, save_plan=path.with_suffix(".yaml")).plan
    assert read_plan(path.with_suffix(".yaml")) == plan
    return path


def types_of(path: Path) -> dict[str, int]:
    graph = onnx.load(path).graph
    return {v.name: v.type.tensor_type.elem_type for v in (*graph.input, *graph.output)}


def generated(path: Path, dtype: type, ids: np.ndarray, prompt: int, **more: np.ndarray) -> np.ndarray:
    """Return the logits of a prompt and of single steps after it, the model on its own cache."""
    session = ort.InferenceSession(str(path))
    cache = {name: np.zeros((1, GROUPS, 0, HEAD), dtype) for name in PAST}
    found, begin = [], 0
    for end in (prompt, *range(prompt + 1, ids.shape[1] + 1)):
        flags = {name: np.array([begin > 0]) for name in more}
        feed = {"input_ids": ids[:, begin:end], **cache, **flags}
        logits, *new = session.run(["logits", *PAST.values()], feed)
        cache, begin = dict(zip(PAST, new, strict=True)), end
        found.append(logits)
    return np.concatenate(found, axis=1)


def decibels(signal: np.ndarray, noisy: np.ndarray) -> float:
    return float(10.0 * np.log10(np.square(signal).sum() / np.square(signal - noisy).sum()))


def test_a_program_that_hands_int8_on_gets_the_answers_of_float(model: Path, written: Path) -> None:
    onnx.checker.check_model(onnx.load(written), full_check=True)
    assert {types_of(written)[name] for name in (*PAST, *PAST.values())} == {onnx.TensorProto.INT8}
    ids = np.random.default_rng(3).integers(0, WORDS, (1, 30))
    assert decibels(generated(model, np.float32, ids, 9), generated(written, np.int8, ids, 9)) > 30.0


def test_no_node_multiplies_the_whole_cache_with_its_scale(written: Path) -> None:
    graph = onnx.load(written).graph
    casts = [n for n in graph.node if n.op_type == "Cast" and n.input[0] in PAST.values()]
    assert len(casts) == 2
    readers = [n.op_type for n in graph.node if {*n.input} & {c.output[0] for c in casts}]
    assert readers == ["Unsqueeze", "Unsqueeze"]


def test_tensors_with_a_name_of_the_float_model_are_compared_in_its_unit(model: Path, written: Path) -> None:
    """What is read of a cache before its scale is multiplied in has a name of its own."""
    found = layers_of(model, written, model.parent / "data")
    assert {"a", "s", *PAST.values()} <= {layer.tensor for layer in found.layers}
    assert min(layer.effective.sqnr for layer in found.layers if layer.effective) > 20.0


def test_the_past_goes_through_as_it_is_and_the_new_is_rounded(
    model: Path, written: Path, profile: Profile
) -> None:
    rng = np.random.default_rng(4)
    past = rng.integers(-128, 128, (2, 1, GROUPS, 7, HEAD)).astype(np.int8)
    feed = {"input_ids": rng.integers(0, WORDS, (1, 3)), **dict(zip(PAST, past, strict=True))}
    session = ort.InferenceSession(str(written))
    borders = borders_in(session.get_modelmeta().custom_metadata_map)
    scales = {name: broadcast_scales(borders[name].scale, borders[name], feed[name].shape) for name in PAST}
    floating = {name: feed[name] * scales[name] for name in PAST}
    exact = ort.InferenceSession(str(model)).run([*PAST.values()], {**feed, **floating})
    for name, before, found, floats in zip(
        PAST, past, session.run([*PAST.values()], feed), exact, strict=True
    ):
        assert np.array_equal(found[:, :, :7], before)
        steps = np.clip(np.rint(floats[:, :, 7:] / scales[name]), -128, 127)
        # Weights of 8 bits move the new keys themselves a little.
        assert np.abs(found[:, :, 7:] - steps).max() <= 3


def test_a_scale_for_each_element_loses_less_where_elements_differ(model: Path, profile: Profile) -> None:
    lost = {}
    for setting in ("int8", "int8-per-channel"):
        path = model.parent / f"compared-{setting}.onnx"
        write_quantized(model, profile, path, recipe=load_recipe(None, {"kv_cache": setting, **WEIGHTS}))
        found = evaluate(model, path, model.parent / "data", measuring=Judge(latency=None))
        lost[setting] = {o.name: o.difference.sqnr for o in found.outputs if o.difference}
    # Of the small channels, which one scale leaves few steps; signal and noise are mostly of the large ones.
    assert min(lost["int8-per-channel"].values()) > 33.0
    assert min(lost["int8"].values()) > 30.0


def test_names_decide_nothing(model: Path, profile: Profile, tmp_path: Path) -> None:
    proto = onnx.load(model)
    names = {
        **{"past_key_values.0.key": "a1", "present.0.key": "a2", "past_key_values.0.value": "a3"},
        **{"present.0.value": "a4", "input_ids": "a5", "logits": "a6"},
    }
    for node in proto.graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
    for value in (*proto.graph.input, *proto.graph.output):
        value.name = names[value.name]
    onnx.save(proto, tmp_path / "m.onnx")
    caches = concat_caches(open_prepared(tmp_path / "m.onnx").graph)
    assert [(cache.past, cache.present) for cache in caches] == [("a1", "a2"), ("a3", "a4")]


def test_keys_turned_by_positions_are_known_from_their_pairs(model: Path) -> None:
    graph = open_prepared(model).graph
    keys, values = concat_caches(graph)
    assert turning_of(graph, keys.sources[0], HEAD) == Turning(HEAD, source="kt")
    assert turning_of(graph, values.sources[0], HEAD) is None
    assert np.allclose(Turning(4).envelope(np.array([3.0, 0.0, 4.0, 1.0, 9.0])), [5.0, 1.0, 5.0, 1.0, 9.0])
    assert np.allclose(Turning(4, interleaved=True).envelope(np.array([3.0, 4.0, 0.0, 1.0])), [5, 5, 1, 1])


@pytest.mark.slow
def test_a_merged_decoder_has_int8_in_both_branches(model: Path, tmp_path: Path) -> None:
    merged = merged_decoder(tmp_path / "merged.onnx", model)
    profile = profile_model(merged, tmp_path / "merged-data")
    ids = np.random.default_rng(5).integers(0, WORDS, (1, 24))
    floats = generated(merged, np.float32, ids, 8, use_cache_branch=np.array([True]))
    assert np.allclose(floats, generated(model, np.float32, ids, 8), atol=1e-4)  # sums in another order
    for setting in ("int8", "int8-per-channel"):
        path = tmp_path / f"{setting}.onnx"
        write_quantized(merged, profile, path, recipe=load_recipe(None, {"kv_cache": setting, **WEIGHTS}))
        onnx.checker.check_model(onnx.load(path), full_check=True)
        assert {types_of(path)[name] for name in (*PAST, *PAST.values())} == {onnx.TensorProto.INT8}
        found = generated(path, np.int8, ids, 8, use_cache_branch=np.array([True]))
        assert decibels(floats, found) > 30.0
        evaluate(merged, path, tmp_path / "merged-data", measuring=Judge(latency=None))


CROSSED = """<ir_version: 9, opset_import: ["": 17]> g (float[b, 2, n, 8] query, float[b, 2, n, 8] new,
    float[b, 2, p, 8] own, float[b, 2, m, 8] encoder_keys)
 => (float[b, 2, n, k] y, float[b, 2, t, 8] grown) {
  grown = Concat <axis = 2> (own, new)
  kt = Transpose <perm = [0, 1, 3, 2]> (grown) s = MatMul (query, kt)
  et = Transpose <perm = [0, 1, 3, 2]> (encoder_keys) z = MatMul (query, et)
  y = Concat <axis = 3> (s, z) }"""


def samples(folder: Path, shapes: dict[str, tuple[int, ...]], count: int = 4) -> Path:
    folder.mkdir()
    rng = np.random.default_rng(0)
    for number in range(count):
        arrays = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
        np.savez(folder / f"{number}.npz", **arrays)
    return folder


CROSSED_SHAPES = {
    "query": (1, 2, 1, 8),
    "new": (1, 2, 1, 8),
    "own": (1, 2, 5, 8),
    "encoder_keys": (1, 2, 9, 8),
}


def test_keys_of_an_encoder_stay_float(tmp_path: Path) -> None:
    onnx.save(parser.parse_model(CROSSED), tmp_path / "m.onnx")
    data = samples(tmp_path / "data", CROSSED_SHAPES)
    profile, recipe = profile_model(tmp_path / "m.onnx", data), load_recipe(None, {"kv_cache": "int8"})
    plan = write_quantized(tmp_path / "m.onnx", profile, tmp_path / "q.onnx", recipe=recipe).plan
    assert {*plan.borders} == {"own", "grown"}
    types = types_of(tmp_path / "q.onnx")
    assert (types["encoder_keys"], types["grown"]) == (onnx.TensorProto.FLOAT, onnx.TensorProto.INT8)
    found = evaluate(tmp_path / "m.onnx", tmp_path / "q.onnx", data, measuring=Judge(latency=None))
    assert min(o.difference.sqnr for o in found.outputs if o.difference) > 30.0


def branch(letter: str, keys: str, encoded: str) -> str:
    """Return half of a merged decoder that attends to an encoder."""
    names = ["q", "k0", "kr", "k", "qr", "qt", "kt", "s", "p", "v", "et", "s2", "p2", "y"]
    q, k0, kr, k, qr, qt, kt, s, p, v, et, s2, p2, y = (f"{letter}_{name}" for name in names)
    return f"""{q} = MatMul (x, wq) {k0} = MatMul (x, wk) {kr} = Reshape ({k0}, apart)
      {k} = Transpose <perm = [0, 2, 1, 3]> ({kr}) {qr} = Reshape ({q}, apart)
      {qt} = Transpose <perm = [0, 2, 1, 3]> ({qr}) {keys}
      {kt} = Transpose <perm = [0, 1, 3, 2]> ({letter}_all) {s} = MatMul ({qt}, {kt}) {p} = Softmax ({s})
      {v} = MatMul ({p}, {letter}_all) {encoded}
      {et} = Transpose <perm = [0, 1, 3, 2]> ({letter}_e) {s2} = MatMul ({v}, {et}) {p2} = Softmax ({s2})
      {y} = MatMul ({p2}, {letter}_e)"""


WITH_PAST = branch("a", "a_all = Concat <axis = -2> (own, a_k)", "a_e = Identity (theirs)")
WITHOUT = branch(
    "c",
    "c_all = Identity (c_k)",
    "c_m = MatMul (encoder, we) c_r = Reshape (c_m, apart) c_e = Transpose <perm = [0, 2, 1, 3]> (c_r)",
)
MERGED_WITH_ENCODER = f"""<ir_version: 9, opset_import: ["": 17]> g (float[b, n, 16] x,
    float[b, m, 16] encoder, float[b, 2, p, 8] own, float[b, 2, m, 8] theirs, bool[1] use_cache_branch)
 => (float[b, 2, n, 8] y, float[b, 2, t, 8] grown, float[b, 2, m, 8] kept)
 <int64[4] apart = {{0, 0, 2, 8}}> {{
  y, grown, kept = If (use_cache_branch) <
    then_branch = with_past () => (float[b, 2, n, 8] a_y, float[b, 2, t, 8] a_all, float[z, 2, w, 8] a_none)
      {{ {WITH_PAST} a_none = Identity (nothing) }},
    else_branch = without () => (float[b, 2, n, 8] c_y, float[b, 2, t, 8] c_out, float[b, 2, m, 8] c_e)
      {{ {WITHOUT} c_out = Identity (c_all) }}> }}"""


def crossed_steps(path: Path, dtype: type, seed: int, folder: Path | None = None) -> np.ndarray:
    """Return the results of a run without a past and of steps after it, whose inputs are kept in a folder."""
    session, rng = ort.InferenceSession(str(path)), np.random.default_rng(seed)
    encoder = rng.standard_normal((1, 7, 16)).astype(np.float32)
    own, theirs, found = np.zeros((1, 2, 0, 8), dtype), np.zeros((1, 2, 7, 8), np.float32), []
    for step in range(6):
        x = rng.standard_normal((1, 1 if step else 4, 16)).astype(np.float32)
        feed = {"x": x, "encoder": encoder, "own": own, "theirs": theirs}
        feed["use_cache_branch"] = np.array([step > 0])
        if folder is not None:
            np.savez(folder / f"{seed}-{step}.npz", **feed)
        y, own, kept = session.run(None, feed)
        theirs = theirs if step else kept
        found.append(y)
    return np.concatenate(found, axis=2)


@pytest.mark.parametrize("setting", ["int8", "int8-per-channel"])
def test_a_merged_decoder_with_an_encoder_keeps_its_own_keys_in_int8(setting: str, tmp_path: Path) -> None:
    model, rng, data = parser.parse_model(MERGED_WITH_ENCODER), np.random.default_rng(0), tmp_path / "data"
    weights = {name: rng.standard_normal((16, 16)) / 2 for name in ("wq", "wk", "we")}
    weights["nothing"] = np.zeros((1, 2, 1, 8))
    for name, array in weights.items():
        model.graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), name))
    onnx.save(model, tmp_path / "m.onnx")
    data.mkdir()
    for seed in range(3):
        crossed_steps(tmp_path / "m.onnx", np.float32, seed, data)
    profile = profile_model(tmp_path / "m.onnx", data)
    recipe = load_recipe(None, {"kv_cache": setting, **WEIGHTS})
    write_quantized(tmp_path / "m.onnx", profile, tmp_path / "q.onnx", recipe=recipe)
    types = types_of(tmp_path / "q.onnx")
    assert {types[name] for name in ("own", "grown")} == {onnx.TensorProto.INT8}
    floats = crossed_steps(tmp_path / "m.onnx", np.float32, 9)
    assert decibels(floats, crossed_steps(tmp_path / "q.onnx", np.int8, 9)) > 28.0


def test_what_reads_a_cache_otherwise_reads_its_floats(tmp_path: Path) -> None:
    text = """<ir_version: 9, opset_import: ["": 17]> g (float[b, n, 8] x, float[b, p, 8] past)
      => (float[b, t, 8] y, float[b, t, 8] present) {
      present = Concat <axis = 1> (past, x) y = Tanh (present) }"""
    onnx.save(parser.parse_model(text), tmp_path / "m.onnx")
    data = samples(tmp_path / "data", {"x": (1, 2, 8), "past": (1, 3, 8)})
    profile, recipe = profile_model(tmp_path / "m.onnx", data), load_recipe(None, {"kv_cache": "int8"})
    write_quantized(tmp_path / "m.onnx", profile, tmp_path / "q.onnx", recipe=recipe)
    past = np.arange(-12, 12, dtype=np.int8).reshape(1, 3, 8)
    session = ort.InferenceSession(str(tmp_path / "q.onnx"))
    scale = borders_in(session.get_modelmeta().custom_metadata_map)["past"].scale
    y, present = session.run(["y", "present"], {"x": np.zeros((1, 1, 8), np.float32), "past": past})
    assert np.array_equal(present[:, :3], past)
    assert np.allclose(y, np.tanh(present * scale), atol=0.02)  # Tanh may be a table of 8 bits


def test_the_plan_explains_its_scales(model: Path, written: Path) -> None:
    plan = read_plan(written.with_suffix(".yaml"))
    for name in (*PAST, *PAST.values()):
        assert explain_tensor(plan, name, "the plan").params == plan.borders[name]


@pytest.mark.parametrize(
    ("asked", "least"), [(("openvino", WEIGHTS), 30.0), (("onnx", WEIGHTS), 30.0), (("onnx", {}), 15.0)]
)
def test_targets_of_standard_operators_take_it(
    asked: tuple[str, dict[str, str]], least: float, model: Path, profile: Profile, tmp_path: Path
) -> None:
    recipe = load_recipe(asked[0], {"kv_cache": "int8", **asked[1]})
    plan = write_quantized(model, profile, tmp_path / "q.onnx", recipe=recipe).plan
    assert plan.nodes["keys"].keeps_int8_cache
    ids = np.random.default_rng(3).integers(0, WORDS, (1, 30))
    floats = generated(model, np.float32, ids, 9)
    assert decibels(floats, generated(tmp_path / "q.onnx", np.int8, ids, 9)) > least


def test_a_cache_that_is_not_given_back_is_refused_before_data_are_read(model: Path, tmp_path: Path) -> None:
    proto = onnx.load(model)
    del proto.graph.output[1:]
    onnx.save(proto, tmp_path / "m.onnx")
    recipe, out = load_recipe(None, {"kv_cache": "int8", **WEIGHTS}), tmp_path / "q.onnx"
    with pytest.raises(ConfigError, match=r"no .* Concat that reads a cache .* in float32; use float"):
        quantize_from_samples(
            file_of(tmp_path / "m.onnx"), tmp_path / "no", out, recipe=recipe, options=QuantizeOptions()
        )
    assert not list(tmp_path.glob("q.*"))
