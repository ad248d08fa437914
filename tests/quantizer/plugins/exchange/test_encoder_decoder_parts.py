"""Encoders and decoders in the files that optimum writes: joined, calibrated with pairs of texts, split."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort
import pytest
from qprof_onnx.profiles.base.errors import ConfigError, DataError, ModelError
from qprof_onnx.profiles.runtime.states import model_samples
from qprof_onnx.profiles.samples.objects import PreprocessedData
from qprof_onnx.profiles.samples.values import Sample
from qprof_onnx.quantizer.api.from_profile import write_quantized
from qprof_onnx.quantizer.api.profiling import profile_model
from qprof_onnx.quantizer.model.folders import model_in
from qprof_onnx.quantizer.model.loading import load_model
from qprof_onnx.quantizer.plugins.exchange.join import Joined, join
from qprof_onnx.quantizer.plugins.exchange.split import split
from qprof_onnx.quantizer.targets.loading import load_recipe

from ...seq2seq import WORDS, export

tokenizers = pytest.importorskip("tokenizers", reason="of the extra test-all")

START, END, MASK = 0, 2, "encoder_attention_mask"
Arrays = dict[str, npt.NDArray[Any]]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder for each kind of encoder, and a tokenizer whose words are w3, w4, ... by their id."""
    folder = tmp_path_factory.mktemp("exported")
    for kind in ("text", "sound", "pixels"):
        (folder / kind).mkdir()
        export(folder / kind, kind)
    words = ["<pad>", "<unk>", "</s>", *(f"w{number}" for number in range(3, WORDS))]
    level = tokenizers.models.WordLevel({word: at for at, word in enumerate(words)}, unk_token="<unk>")
    made = tokenizers.Tokenizer(level)
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.post_processor = tokenizers.processors.TemplateProcessing("$A </s>", "$A $B", [("</s>", END)])
    made.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps({"decoder_start_token_id": START}))
    return folder


def joined(folder: Path, whole: Path, *names: str, connect: tuple[str, ...] = ()) -> Joined:
    return join([folder / f"{name}.onnx" for name in names], whole, connect=connect)


def pairs(folder: Path, text: str = "w5 w6 w7\tw8 w9 w10\n") -> Path:
    (folder / "pairs.txt").write_text(text)
    return folder / "pairs.txt"


def read(exported: Path, whole: Path, data: Path, recipe: str = "") -> list[Sample]:
    """Return the samples of a file of pairs, by the tokenizer or a recipe that names it."""
    preprocess = exported / "tokenizer.json"
    if recipe:
        preprocess = data.with_name("recipe.yaml")
        preprocess.write_text(f"reader: text\ntokenizer: {exported / 'tokenizer.json'}\n{recipe}\n")
    return list(model_samples(PreprocessedData(str(data), str(preprocess)), load_model(whole), notes=False))


def run(file: Path, feed: Arrays) -> Arrays:
    session = ort.InferenceSession(file, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(names, feed), strict=True))


TOKENS = {"text": "decoder_input_ids", "sound": "input_ids", "pixels": "input_ids"}
"""What the tokens of the decoder are called in the whole, by what the encoder reads."""


@pytest.mark.parametrize("kind", TOKENS)
@pytest.mark.parametrize("decoder", ["decoder_model", "decoder_model_merged"])
def test_tokens_of_a_decoder_are_an_input_of_their_own_and_the_mask_is_that_of_its_encoder(
    kind: str, decoder: str, exported: Path, tmp_path: Path
) -> None:
    found = joined(exported / kind, tmp_path / "whole.onnx", decoder, "encoder_model")
    assert found.connections == {f"{decoder}:encoder_hidden_states": "encoder_model:last_hidden_state"}
    assert found.inputs[TOKENS[kind]] == (f"{decoder}:input_ids",)
    if kind == "text":
        assert found.inputs["input_ids"] == ("encoder_model:input_ids",)
        assert set(found.inputs["attention_mask"]) == {"encoder_model:attention_mask", f"{decoder}:{MASK}"}


@pytest.mark.parametrize("kind", TOKENS)
def test_a_decoder_that_goes_on_reads_the_keys_and_values_of_the_first(
    kind: str, exported: Path, tmp_path: Path
) -> None:
    names = ("decoder_with_past_model", "encoder_model", "decoder_model")
    found = joined(exported / kind, tmp_path / "whole.onnx", *names)
    state = "decoder_with_past_model:past_key_values.0.encoder.key"
    assert found.connections[state] == "decoder_model:present.0.encoder.key"
    assert found.inputs["decoder_with_past_input_ids"] == ("decoder_with_past_model:input_ids",)


def test_what_is_shared_and_kept_apart_can_be_changed(exported: Path, tmp_path: Path) -> None:
    connect = ("decoder_model:input_ids=input_ids", f"decoder_model:{MASK}={MASK}")
    names = ("encoder_model", "decoder_model")
    found = joined(exported / "text", tmp_path / "other.onnx", *names, connect=connect)
    assert set(found.inputs) == {"input_ids", "attention_mask", MASK}


def test_a_folder_of_an_encoder_and_a_decoder_is_refused_with_the_command_that_joins_them(
    exported: Path,
) -> None:
    folder = exported / "text"
    with pytest.raises(
        ModelError, match=r"qprof join .*/encoder_model\.onnx .*/decoder_model_merged\.onnx -o"
    ):
        model_in(folder)


def test_of_a_pair_the_encoder_reads_the_text_and_the_decoder_the_answer_after_its_first_token(
    exported: Path, tmp_path: Path
) -> None:
    joined(exported / "text", tmp_path / "whole.onnx", "encoder_model", "decoder_model")
    (sample,) = read(exported, tmp_path / "whole.onnx", pairs(tmp_path))
    assert {name: array.tolist() for name, array in sample.arrays.items()} == {
        "input_ids": [[5, 6, 7, END]],
        "attention_mask": [[1, 1, 1, 1]],
        "decoder_input_ids": [[START, 8, 9, 10]],
    }


def test_a_decoder_that_goes_on_reads_the_token_after_those_of_the_first(
    exported: Path, tmp_path: Path
) -> None:
    names = ("encoder_model", "decoder_model", "decoder_with_past_model")
    joined(exported / "text", tmp_path / "whole.onnx", *names)
    (sample,) = read(exported, tmp_path / "whole.onnx", pairs(tmp_path))
    assert sample.arrays["decoder_input_ids"].tolist() == [[START, 8]]
    assert sample.arrays["decoder_with_past_input_ids"].tolist() == [[9]]


def test_a_merged_decoder_goes_step_by_step_and_keeps_the_keys_of_its_encoder(
    exported: Path, tmp_path: Path
) -> None:
    joined(exported / "text", tmp_path / "whole.onnx", "encoder_model", "decoder_model_merged")
    first, *others = read(exported, tmp_path / "whole.onnx", pairs(tmp_path), "prompt: 1\ndecode: 3")
    assert [step.arrays["decoder_input_ids"].tolist() for step in (first, *others)] == [
        [[START]],
        [[8]],
        [[9]],
        [[10]],
    ]
    assert [step.arrays["use_cache_branch"].tolist() for step in (first, *others)] == [[False], *[[True]] * 3]
    feed = {name: first.arrays[name] for name in ("input_ids", "attention_mask")}
    rows = run(exported / "text" / "encoder_model.onnx", feed)["last_hidden_state"]
    masked = {MASK: feed["attention_mask"], "encoder_hidden_states": rows}
    ids = np.array([[START, 8, 9, 10]])
    for step, sample in enumerate((first, *others), 1):
        alone = run(exported / "text" / "decoder_model.onnx", {"input_ids": ids[:, :step], **masked})
        found = run(tmp_path / "whole.onnx", dict(sample.arrays))
        expected = alone["logits"][:, -1:]
        np.testing.assert_allclose(found["decoder_model_merged:logits"], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("text", "recipe", "message"),
    [
        ("w5 w6\n", "", r"pairs\.txt: line 1: is one text, but the model needs two.* write TEXT<tab>ANSWER"),
        ("w5\tw6\n", "decoder_start: <s>", r"decoder_start: the tokenizer has no token '<s>'"),
    ],
)
def test_a_text_without_an_answer_or_a_first_token_that_is_none_is_refused(
    text: str, recipe: str, message: str, exported: Path, tmp_path: Path
) -> None:
    joined(exported / "text", tmp_path / "whole.onnx", "encoder_model", "decoder_model")
    with pytest.raises((ConfigError, DataError), match=message):
        read(exported, tmp_path / "whole.onnx", pairs(tmp_path, text), recipe)


def test_the_first_token_of_a_decoder_has_to_be_known(exported: Path, tmp_path: Path) -> None:
    joined(exported / "text", tmp_path / "whole.onnx", "encoder_model", "decoder_model")
    (tmp_path / "tokenizer.json").write_bytes((exported / "tokenizer.json").read_bytes())
    with pytest.raises(ConfigError, match=r"config\.json.*decoder_start: '<pad>'"):
        read(tmp_path, tmp_path / "whole.onnx", pairs(tmp_path))
    (sample,) = read(tmp_path, tmp_path / "whole.onnx", pairs(tmp_path), "decoder_start: <unk>")
    assert sample.arrays["decoder_input_ids"][0, 0] == 1


def test_quantized_parts_one_after_the_other_are_the_quantized_whole(exported: Path, tmp_path: Path) -> None:
    whole, rng = tmp_path / "whole.onnx", np.random.default_rng(0)
    joined(exported / "text", whole, "encoder_model", "decoder_model", "decoder_with_past_model")
    text = "".join(
        "\t".join(" ".join(f"w{at}" for at in rng.integers(3, WORDS, 5)) for _ in range(2)) + "\n"
        for _ in range(8)
    )
    samples = read(exported, whole, pairs(tmp_path, text))
    profile = profile_model(whole, [dict(sample.arrays) for sample in samples])
    recipe = load_recipe(None, {"cost_model": "off"})
    result = write_quantized(whole, profile, tmp_path / "whole.int8.onnx", recipe=recipe)
    encoder, first, later = (part.file for part in split(whole, result.plan, tmp_path / "parts"))
    for sample in samples[:3]:
        feed = dict(sample.arrays)
        expected = run(tmp_path / "whole.int8.onnx", feed)
        mask = {MASK: feed["attention_mask"]}
        rows = run(encoder, {name: feed[name] for name in ("input_ids", "attention_mask")})
        hidden = {"encoder_hidden_states": rows["last_hidden_state"]}
        begun = run(first, {"input_ids": feed["decoder_input_ids"], **mask, **hidden})
        past = {n.replace("present", "past_key_values"): a for n, a in begun.items() if n != "logits"}
        went_on = run(later, {"input_ids": feed["decoder_with_past_input_ids"], **mask, **past})
        np.testing.assert_array_equal(begun["logits"], expected["decoder_model:logits"])
        np.testing.assert_array_equal(went_on["logits"], expected["decoder_with_past_model:logits"])
