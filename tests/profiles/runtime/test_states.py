"""States that go from step to step: caches of language models, recurrent nets, greedy answers."""

from __future__ import annotations

import json
import logging
import wave
from collections import Counter
from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import numpy_helper, parser
from qprof_onnx.profiles.base.errors import QprofError
from qprof_onnx.profiles.records.profile import ModelId
from qprof_onnx.profiles.records.store import dumps
from qprof_onnx.profiles.runner.calibrate import calibrate
from qprof_onnx.profiles.runner.settings import RunSettings
from qprof_onnx.profiles.runtime.states import model_samples, rows_stand_alone
from qprof_onnx.profiles.samples.objects import ChosenSamples, PreprocessedData
from qprof_onnx.profiles.samples.samples import sample_digests, set_title
from qprof_onnx.profiles.samples.states import follows, state_output
from qprof_onnx.profiles.samples.values import InputSpec, Sample, Samples

WORDS = ("one", "two", "three", "four", "five", "six", "seven", "[UNK]")
TABLE = np.random.default_rng(0).normal(size=(len(WORDS), 4)).astype(np.float32)

DECODER = """
<ir_version: 9, opset_import: ["": 17]>
decoder (int64[batch, new] input_ids, int64[batch, total] attention_mask,
         float[batch, 1, past, 4] past_key_values__0__key)
    => (float[batch, new, 8] logits, float[batch, 1, total, 4] present__0__key)
<int64[1] one = {1}> {
    x = Gather (table, input_ids)
    key = Unsqueeze (x, one)
    present__0__key = Concat <axis = 2> (past_key_values__0__key, key)
    turned = Transpose <perm = [0, 1, 3, 2]> (present__0__key)
    scores = MatMul (key, turned)
    shares = Softmax (scores)
    read = MatMul (shares, present__0__key)
    flat = Squeeze (read, one)
    logits = MatMul (flat, head)
}
"""
GENAI = """
<ir_version: 9, opset_import: ["": 21, "com.microsoft": 1]>
decoder (int64[batch, new] input_ids, int64[batch, total] attention_mask,
         float[batch, 1, past, 8] past_key_values__0__key, float[batch, 1, past, 8] past_key_values__0__value)
    => (float[batch, new, 8] logits, float[batch, 1, total, 8] present__0__key,
        float[batch, 1, total, 8] present__0__value)
<int64[1] one = {1}, int64 place = {1}> {
    x = Gather (table, input_ids)
    q = MatMul (x, wq)
    k = MatMul (x, wk)
    v = MatMul (x, wv)
    held = ReduceSum <keepdims = 0> (attention_mask, one)
    before = Sub (held, one)
    lengths = Cast <to = 6> (before)
    sizes = Shape (attention_mask)
    all = Gather (sizes, place)
    total = Cast <to = 6> (all)
    read, present__0__key, present__0__value = com.microsoft.GroupQueryAttention <num_heads = 2,
        kv_num_heads = 1> (q, k, v, past_key_values__0__key, past_key_values__0__value, lengths, total)
    logits = MatMul (read, head)
}
"""
"""As onnxruntime-genai's builder spells attention."""
RECURRENT = """
<ir_version: 9, opset_import: ["": 17]>
net (float[N, 4] sound, float[2, N, 3] state) => (float[N, 3] y, float[2, N, 3] stateN) {
    y = MatMul (sound, w)
    stateN = Add (state, y)
}
"""


MERGED = """
<ir_version: 9, opset_import: ["": 17]>
decoder (int64[batch, new] input_ids, float[batch, past, 4] past_key_values__0__key, bool[1] use_cache_branch)
    => (float[batch, total, 8] logits, float[batch, total, 4] present__0__key)
{
    x = Gather (table, input_ids)
    present__0__key = If (use_cache_branch) <
        then_branch = g () => (float[batch, total, 4] whole) {
            whole = Concat <axis = 1> (past_key_values__0__key, x) },
        else_branch = h () => (float[batch, total, 4] first) { first = Identity (x) }>
    logits = MatMul (present__0__key, head)
}
"""
"""One file for the first run and for those with a cache, as optimum merges two."""


def made(text: str, **weights: np.ndarray) -> ir.Model:
    proto = parser.parse_model(text)
    proto.graph.initializer.extend(numpy_helper.from_array(w, name) for name, w in weights.items())
    model = ir.from_proto(proto)
    values = [*model.graph.inputs, *(value for node in model.graph for value in node.outputs)]
    for value in values:  # ONNX's text has no dots in names
        value.name = str(value.name).replace("__", ".")
    return model


@pytest.fixture
def decoder() -> ir.Model:
    return made(DECODER, table=TABLE, head=np.ascontiguousarray(TABLE.T) * 3)


@pytest.fixture
def recurrent() -> ir.Model:
    return made(RECURRENT, w=np.arange(12, dtype=np.float32).reshape(4, 3) / 8)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tokenizers = pytest.importorskip("tokenizers", reason="of the extra test-all")
    words = {word: number for number, word in enumerate(WORDS)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "lines.txt").write_text("one two three four five six\n\nseven six\nfour four four four\n")
    return tmp_path


def texts(folder: Path, model: ir.Model, recipe: str = "", limit: int | None = None) -> Samples:
    """Open the lines with a recipe, whose lines are parted by ";", or with the tokenizer alone."""
    path = folder / "tokenizer.json"
    if recipe:
        path = folder / "recipe.yaml"
        path.write_text(f"reader: text; tokenizer: tokenizer.json; {recipe}".replace("; ", "\n"))
    return model_samples(PreprocessedData(str(folder / "lines.txt"), str(path)), model, limit)


def refusal(folder: Path, model: ir.Model, recipe: str) -> str:
    with pytest.raises(QprofError) as caught:
        list(texts(folder, model, recipe))
    return str(caught.value)


def keys(sample: Sample) -> np.ndarray:
    return sample.arrays["past_key_values.0.key"][0, 0]


def test_a_text_is_a_prompt_with_an_empty_cache_and_tokens_with_the_cache_of_those_before(
    folder: Path, decoder: ir.Model
) -> None:
    samples = list(texts(folder, decoder, "prompt: 3; decode: 2"))
    assert [sample.name for sample in samples[:3]] == [f"lines.txt:1[{step}]" for step in range(3)]
    assert [sample.arrays["input_ids"].tolist() for sample in samples[:3]] == [[[0, 1, 2]], [[3]], [[4]]]
    assert [sample.arrays["attention_mask"].shape[1] for sample in samples[:3]] == [3, 4, 5]
    assert keys(samples[0]).shape == (0, 4)
    np.testing.assert_array_equal(keys(samples[1]), TABLE[:3])
    np.testing.assert_array_equal(keys(samples[2]), TABLE[:4])
    assert keys(samples[3]).shape == (0, 4), "another line begins with nothing"


def test_the_tokenizer_alone_is_enough_where_inputs_have_the_usual_names(
    folder: Path, decoder: ir.Model
) -> None:
    samples = texts(folder, decoder)
    assert [sample.step for sample in samples] == [0, 1, 2, 3, 4, 0, 1, 0, 1, 2, 3]
    assert "'present.0.key' goes to 'past_key_values.0.key' from step to step" in str(samples.findings[0])
    assert samples.state == {"past_key_values.0.key": "present.0.key"}


def test_the_tokenizer_beside_the_model_is_taken_and_said(
    folder: Path, decoder: ir.Model, caplog: pytest.LogCaptureFixture
) -> None:
    set_title(decoder, folder / "model.onnx")
    with caplog.at_level(logging.WARNING):
        samples = list(model_samples(str(folder / "lines.txt"), decoder))
    assert len(samples) == 11
    assert "tokenizer.json: this file beside the model is the tokenizer" in caplog.text


def test_sizes_of_a_cache_that_a_model_leaves_open_are_those_of_its_config(
    folder: Path, decoder: ir.Model
) -> None:
    cache = next(value for value in decoder.graph.inputs if "past" in str(value.name))
    cache.shape = ir.Shape(["batch", "heads", "past", "width"])
    set_title(decoder, folder / "model.onnx")
    config = {"hidden_size": 8, "num_attention_heads": 2, "num_key_value_heads": 1}
    (folder / "config.json").write_text(json.dumps(config))
    first, second, *_ = model_samples(str(folder / "lines.txt"), decoder, notes=False)
    assert first.arrays["past_key_values.0.key"].shape == (1, 1, 0, 4)
    assert second.arrays["past_key_values.0.key"].shape == (1, 1, 2, 4)


def test_the_tokens_that_follow_are_known_but_for_the_last(folder: Path, decoder: ir.Model) -> None:
    first, second, third, *_ = texts(folder, decoder, "prompt: 4; decode: 2")
    following = [sample.next_tokens for sample in (first, second, third)]
    assert [tokens.tolist() for tokens in following if tokens is not None] == [[1, 2, 3, 4], [5], [-1]]


def test_parts_and_chosen_samples_are_those_of_the_whole(folder: Path, decoder: ir.Model) -> None:
    samples = texts(folder, decoder)
    whole = {sample.name: sample for sample in samples}
    for sample in whole.values():
        assert list(sample.arrays) == ["input_ids", "attention_mask", "past_key_values.0.key"]
    positions = (2, 3, 6, 10)
    data = PreprocessedData(str(folder / "lines.txt"), str(folder / "tokenizer.json"))
    chosen = list(model_samples(ChosenSamples(data, positions), decoder))
    shards = [sample for start in range(3) for sample in samples.part(start, None, 3)]
    assert [sample.name for sample in chosen] == [list(whole)[at] for at in positions]
    assert sorted(sample.name for sample in shards) == sorted(whole)
    for sample in (*chosen, *shards, *texts(folder, decoder, limit=7)):
        assert sample_digests(sample.arrays, ()) == sample_digests(whole[sample.name].arrays, ())


def test_an_answer_is_the_most_likely_token_after_each_other(folder: Path, decoder: ir.Model) -> None:
    samples = [sample for sample in texts(folder, decoder, "prompt: 2; answer: 3") if ":1[" in sample.name]
    held = [int(sample.arrays["input_ids"][0, 0]) for sample in samples[1:]]
    past = [0, 1]
    for token in held:  # the last position sees all before it, so its scores need no cache
        x, seen = TABLE[past[-1]], TABLE[past]
        shares = np.exp(seen @ x) / np.exp(seen @ x).sum()
        past.append(int((shares @ seen @ TABLE.T).argmax()))
        assert past[-1] == token
    assert len(held) == 3
    assert all(sample.next_tokens is None for sample in samples[1:])


def test_steps_of_a_decoder_as_genai_spells_it_give_what_the_whole_text_gives(folder: Path) -> None:
    rng = np.random.default_rng(3)
    sizes = {"table": (8, 4), "wq": (4, 16), "wk": (4, 8), "wv": (4, 8), "head": (16, 8)}
    weights = {name: rng.normal(size=size).astype(np.float32) for name, size in sizes.items()}
    model = made(GENAI, **weights)
    session = ort.InferenceSession(ir.to_proto(model).SerializeToString())
    whole, *_ = texts(folder, model, "decode: 0")
    steps = [s for s in texts(folder, model, "prompt: 2; decode: 9") if ":1[" in s.name]
    expected = session.run(["logits"], dict(whole.arrays))[0]
    found = [session.run(["logits"], dict(step.arrays))[0] for step in steps]
    assert [step.arrays["input_ids"].shape[1] for step in steps] == [2, 1, 1, 1, 1]
    np.testing.assert_allclose(np.concatenate(found, axis=1), expected, rtol=1e-4, atol=1e-5)


def test_names_that_do_not_fit_are_refused_with_those_that_are_there(folder: Path, decoder: ir.Model) -> None:
    text = refusal(folder, decoder, "state: {present.*: past_kv.*}")
    assert "recipe.yaml: state: no input is called 'past_kv.*'" in text
    assert "'past_key_values.0.key'" in text
    text = refusal(folder, decoder, "state: {now.*: past_key_values.*}")
    assert "would read 'now.0.key', which is not an output of the model; its outputs are 'logits'" in text
    text = refusal(folder, decoder, "state: {logits: past_key_values.0.key}")
    assert "output 'logits' is float32 of shape (batch, new, 8)" in text
    assert "both names have one *" in refusal(folder, decoder, "state: {present.*: past_key_values.0.key}")
    assert "state: 'present' is not allowed" in refusal(folder, decoder, "state: present")


def test_the_state_of_a_recurrent_net_goes_from_window_to_window(tmp_path: Path, recurrent: ir.Model) -> None:
    for name, size in (("a", 12), ("b", 8)):
        with wave.open(str(tmp_path / f"{name}.wav"), "wb") as file:
            file.setparams((1, 2, 8, size, "NONE", ""))
            file.writeframes((np.arange(size, dtype="<i2") * 1024).tobytes())
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("reader: audio\nrate: 8\nwindow: 4\nstate: {stateN: state}\n")
    samples = list(model_samples(PreprocessedData(str(tmp_path), str(recipe)), recurrent))
    assert [sample.step for sample in samples] == [0, 1, 2, 0, 1]
    w = np.arange(12, dtype=np.float32).reshape(4, 3) / 8
    total = np.zeros((2, 1, 3), np.float32)
    for sample in samples[:3]:
        np.testing.assert_allclose(sample.arrays["state"], total, rtol=1e-6)
        total += sample.arrays["sound"] @ w
    assert not samples[3].arrays["state"].any()


@pytest.mark.parametrize(("limit", "steps"), [(8, [1] * 8), (32, [4] * 8), (70, [5] * 14), (90, [5] * 18)])
def test_a_limit_takes_steps_in_a_row_of_recordings_spread_over_all_of_them(
    tmp_path: Path, recurrent: ir.Model, limit: int, steps: list[int]
) -> None:
    for number in range(20):
        with wave.open(str(tmp_path / f"{number}.wav"), "wb") as file:
            file.setparams((1, 2, 8, 20, "NONE", ""))
            file.writeframes((np.arange(20, dtype="<i2") * (number + 1)).tobytes())
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("reader: audio\nrate: 8\nwindow: 4\nstate: {stateN: state}\n")
    data = PreprocessedData(str(tmp_path), str(recipe))
    every = {sample.name: sample.arrays["state"] for sample in model_samples(data, recurrent)}
    drawn = list(model_samples(data, recurrent, limit))
    found = Counter(sample.name.partition("[")[0] for sample in drawn)
    assert sum(found.values()) == limit
    assert len(found) >= len(steps)
    assert max(found.values()) <= max(steps)
    places = {sample.step for sample in drawn}
    assert {0, 4} <= places, "from the beginning of one to the end of another"
    assert sum(not follows(*pair) for pair in zip(drawn[1:], drawn, strict=False)) + 1 == len(found)
    for sample in drawn:
        np.testing.assert_array_equal(sample.arrays["state"], every[sample.name])


def test_of_a_text_a_limit_takes_the_steps_from_the_prompt_on(folder: Path, decoder: ir.Model) -> None:
    drawn = list(texts(folder, decoder, limit=6))
    assert [sample.step for sample in drawn] == [0, 1, 0, 1, 0, 1]


def test_an_output_that_was_fed_back_is_a_state_of_the_profile(tmp_path: Path, recurrent: ir.Model) -> None:
    np.savez(tmp_path / "one.npz", sound=np.ones((6, 4), np.float32))
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("reader: array\nrows: split\nstate: {stateN: state}\n")
    samples = model_samples(PreprocessedData(str(tmp_path / "one.npz"), str(recipe)), recurrent)
    profile = calibrate(recurrent, samples, ModelId("s", "w", 17), settings=RunSettings(channels="off"))
    assert {name: given.fed_by for name, given in profile.inputs.items()} == {
        "sound": None,
        "state": "stateN",
    }
    assert profile.merged(profile).inputs["state"].fed_by == "stateN"
    assert "fed_by: stateN" in dumps(profile)


def test_rows_of_a_file_are_steps_and_the_first_state_is_a_constant(
    tmp_path: Path, recurrent: ir.Model
) -> None:
    np.savez(tmp_path / "one.npz", sound=np.ones((3, 4), np.float32))
    recipe = tmp_path / "recipe.yaml"
    first = "constants: {state: {value: 2, shape: [2, 1, 3]}}"
    recipe.write_text(f"reader: array\nrows: split\nstate: {{stateN: state}}\n{first}\n")
    samples = list(model_samples(PreprocessedData(str(tmp_path / "one.npz"), str(recipe)), recurrent))
    w = np.arange(12, dtype=np.float32).reshape(4, 3) / 8
    for number, sample in enumerate(samples):
        expected = np.broadcast_to(2 + number * w.sum(axis=0), (2, 1, 3))
        np.testing.assert_allclose(sample.arrays["state"], expected, rtol=1e-6)
    assert len(samples) == 3


def test_whole_recordings_are_no_steps_and_refused(tmp_path: Path, recurrent: ir.Model) -> None:
    np.save(tmp_path / "a.npy", np.ones((1, 4), np.float32))
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("reader: array\nrows: whole\nstate: {stateN: state}\n")
    with pytest.raises(QprofError, match=r"a\.npy: is not a step of a sequence"):
        list(model_samples(PreprocessedData(str(tmp_path), str(recipe)), recurrent))


def test_profiles_of_shards_of_steps_are_the_profile_of_all(folder: Path, decoder: ir.Model) -> None:
    whole = texts(folder, decoder)
    identity = ModelId("s", "w", 17)
    profile = calibrate(decoder, whole, identity, RunSettings(threads=2, channels="off"))
    shards = [calibrate(decoder, whole.part(start, None, 3), identity) for start in range(3)]
    merged = shards[2].merged(shards[0]).merged(shards[1])
    assert dumps(merged) == dumps(profile)
    assert profile.data.samples == 11


def test_a_merged_decoder_takes_its_branch_without_a_cache_for_the_prompt_alone(folder: Path) -> None:
    model = made(MERGED, table=TABLE, head=np.ascontiguousarray(TABLE.T))
    samples = list(texts(folder, model, "prompt: 2; decode: 2"))
    first, *others = (sample.arrays for sample in samples[:3])
    assert first["use_cache_branch"].tolist() == [False]
    assert [step["use_cache_branch"].tolist() for step in others] == [[True], [True]]
    assert [step["past_key_values.0.key"].shape[1] for step in (first, *others)] == [0, 2, 3]


@pytest.mark.parametrize(
    ("inputs", "outputs", "expected"),
    [
        ("input state", "output stateN", ("", "stateN")),
        ("x h c", "y hn cn", ("", "hn", "cn")),
        ("x cache_in_0 cache_in_1", "y cache_out_0 cache_out_1", ("", "cache_out_0", "cache_out_1")),
        ("x past.0.key past.1.key", "y present.0.key present.1.key", ("", "present.0.key", "present.1.key")),
        ("x h0", "y hn", ("", "hn")),
        ("x past", "y present", ("", "present")),
        ("input", "output", ("",)),
        ("x past", "y present next", ("", "")),
        ("x mask", "y z", ("", "")),
    ],
)
def test_an_input_looks_like_the_state_that_an_output_of_its_shape_and_name_gives(
    inputs: str, outputs: str, expected: tuple[str, ...]
) -> None:
    shape = (2, None, 128)
    given = [InputSpec(name, np.dtype(np.float32), shape) for name in outputs.split()]
    found = [state_output(InputSpec(name, np.dtype(np.float32), shape), given) for name in inputs.split()]
    assert tuple(found) == expected


def test_an_output_of_another_type_rank_or_size_is_no_state() -> None:
    state = InputSpec("state", np.dtype(np.float32), (2, None, 128))
    for dtype, shape in ((np.int64, (2, None, 128)), (np.float32, (None, 128)), (np.float32, (2, None, 64))):
        assert state_output(state, [InputSpec("state_out", np.dtype(dtype), shape)]) == ""


@pytest.mark.parametrize(
    ("net", "alone"),
    [
        ("y = Relu(x)", True),
        ("y = Softmax<axis = -1>(x)", True),
        ("y = Softmax<axis = 0>(x)", False),  # rows are steps
        ("t = Transpose(x) u = Unsqueeze<axes = [0]>(t) y = MaxPool<kernel_shape = [3]>(u)", False),  # fails
    ],
)
def test_rows_stand_alone_if_the_first_and_the_last_have_the_outputs_of_the_batch(
    net: str, alone: bool
) -> None:
    text = f'<ir_version: 8, opset_import: ["": 11]> net (float[n, 4] x) => (float[m, k] y) {{ {net} }}'
    batch = np.random.default_rng(1).normal(size=(6, 4)).astype(np.float32)
    model = ir.from_onnx_text(text)
    assert rows_stand_alone(model, Sample("batch", {"x": batch})) is alone
