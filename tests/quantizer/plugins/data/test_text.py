"""Lines of text through a tokenizer: ids by the names of inputs, cut, padded, in pairs."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ....profiles.samples.opening import opened, read, refusal, spec, written

Tokenizer = pytest.importorskip("tokenizers", reason="of the extra test-all").Tokenizer
models = pytest.importorskip("tokenizers.models", reason="of the extra test-all")
pre_tokenizers = pytest.importorskip("tokenizers.pre_tokenizers", reason="of the extra test-all")
processors = pytest.importorskip("tokenizers.processors", reason="of the extra test-all")

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "one", "two", "three", "four"]
IDS = spec("input_ids", np.int64, ("batch", "tokens"))
MASK = spec("attention_mask", np.int64, ("batch", "tokens"))
TYPES = spec("token_type_ids", np.int32, ("batch", "tokens"))


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    return saved_tokenizer(tmp_path)


def saved_tokenizer(folder: Path, **truncation: Any) -> Path:
    made = Tokenizer(models.WordLevel({word: n for n, word in enumerate(WORDS)}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(
        "[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", [("[CLS]", 2), ("[SEP]", 3)]
    )
    if truncation:
        made.enable_truncation(**truncation)
    path = folder / "tokenizer.json"
    made.save(str(path))
    return path


def lines(folder: Path, text: str, name: str = "texts.txt") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_each_line_becomes_a_sample_whose_inputs_are_found_by_their_names(
    tmp_path: Path, tokenizer: Path
) -> None:
    source = lines(tmp_path, "one two\n\nthree\n")
    first, second = read(source, [MASK, IDS], tokenizer)
    assert first.name == "texts.txt:1"
    assert second.name == "texts.txt:3"
    assert list(first.arrays) == ["attention_mask", "input_ids"]
    np.testing.assert_array_equal(first.arrays["input_ids"], [[2, 4, 5, 3]])
    np.testing.assert_array_equal(second.arrays["attention_mask"], [[1, 1, 1]])


def test_a_tab_parts_a_pair_and_the_types_say_which_text_a_token_is_of(
    tmp_path: Path, tokenizer: Path
) -> None:
    (sample,) = read(lines(tmp_path, "one\ttwo\n"), [IDS, TYPES], tokenizer)
    np.testing.assert_array_equal(sample.arrays["input_ids"], [[2, 4, 3, 5, 3]])
    np.testing.assert_array_equal(sample.arrays["token_type_ids"], [[0, 0, 0, 1, 1]])
    assert sample.arrays["token_type_ids"].dtype == np.int32


def test_two_tabs_are_refused_with_the_line(tmp_path: Path, tokenizer: Path) -> None:
    text = refusal(lines(tmp_path, "one\none\ttwo\tthree\n"), [IDS], tokenizer)
    assert "texts.txt: line 2: has 2 tabs" in text
    assert "pairs: none" in text


def test_texts_are_cut_and_padded_to_the_length_that_the_model_fixes(
    tmp_path: Path, tokenizer: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = lines(tmp_path, "one\none two three four\n")
    fixed = [spec(name, np.int64, (1, 5)) for name in ("input_ids", "attention_mask", "position_ids")]
    with caplog.at_level(logging.WARNING):
        short, long = read(source, fixed, tokenizer)
    np.testing.assert_array_equal(short.arrays["input_ids"], [[2, 4, 3, 0, 0]])
    np.testing.assert_array_equal(short.arrays["attention_mask"], [[1, 1, 1, 0, 0]])
    np.testing.assert_array_equal(short.arrays["position_ids"], [[0, 1, 2, 3, 4]])
    np.testing.assert_array_equal(long.arrays["input_ids"], [[2, 4, 5, 6, 3]])
    assert "cut at 5 tokens, as the model fixes" in caplog.text
    assert "padded to 5 tokens with '[PAD]'" in caplog.text


def test_a_recipe_decides_length_padding_and_the_names_of_inputs(tmp_path: Path, tokenizer: Path) -> None:
    recipe = written(
        tmp_path,
        "reader: text; tokenizer: tokenizer.json; max_length: 4; padding: max_length; inputs: {tok: ids}; "
        "constants: {past: zeros}",
    )
    past = spec("past", np.float32, ("N", 2))
    tok = spec("tok", np.int64, ("batch", "tokens"))
    long, short = read(lines(tmp_path, "one two three\none\n"), [tok, past], recipe)
    np.testing.assert_array_equal(long.arrays["tok"], [[2, 4, 5, 3]])
    np.testing.assert_array_equal(short.arrays["tok"], [[2, 4, 3, 0]])
    np.testing.assert_array_equal(short.arrays["past"], [[0, 0]])


def test_the_length_of_the_tokenizer_holds_where_nobody_says_another(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        (sample,) = read(lines(tmp_path, "one two three\n"), [IDS], saved_tokenizer(tmp_path, max_length=3))
    assert sample.arrays["input_ids"].shape == (1, 3)
    assert "cut at 3 tokens, as it says" in caplog.text


def test_a_token_beyond_the_embedding_is_refused(tmp_path: Path, tokenizer: Path) -> None:
    small = spec("input_ids", np.int64, ("batch", "tokens"), rows=6)
    text = refusal(lines(tmp_path, "one\nfour\n"), [small], tokenizer)
    assert "line 2: token 'four' has id 7" in text
    assert "6 rows; give the tokenizer.json of this model" in text


def test_an_input_of_unknown_meaning_is_asked_for(tmp_path: Path, tokenizer: Path) -> None:
    text = refusal(lines(tmp_path, "one\n"), [IDS, spec("state", np.float32, (1, 4))], tokenizer)
    assert "the contents of input 'state' (float32 of shape (1, 4)) are unknown" in text
    assert "as inputs: {state: ids}" in text
    assert "for a cache, its output of the previous step, as state: {OUTPUT: past.*}" in text


def test_a_model_of_texts_needs_no_tokenizer(tmp_path: Path) -> None:
    (sample,) = read(
        lines(tmp_path, "a b\n"), [spec("text", object, ("N",))], written(tmp_path, "reader: text")
    )
    assert sample.arrays["text"].tolist() == ["a b"]


def test_lines_of_json_name_their_text(tmp_path: Path, tokenizer: Path) -> None:
    rows = [{"question": "one", "answer": "two"}, {"question": "three", "answer": "four"}]
    source = lines(tmp_path, "\n".join(map(json.dumps, rows)), "qa.jsonl")
    recipe = written(tmp_path, "reader: text; tokenizer: tokenizer.json; field: [question, answer]")
    first, second = read(source, [IDS], recipe)
    np.testing.assert_array_equal(first.arrays["input_ids"], [[2, 4, 3, 5, 3]])
    assert second.name == "qa.jsonl:2"
    text = refusal(source, [IDS], tokenizer)
    assert "qa.jsonl: line 1: has no field 'text', only 'question', 'answer'" in text
    assert "field: sentence" in text


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b'{"text": 1}\n', "line 1: field 'text' is not a text"),
        (b'{"text": "one"}\n\n{"text": ', "line 3: is not JSON"),
        (b"[1]\n", "line 1: is not a JSON object"),
        (b'{"text": "\xff"}\n', "line 1: is not JSON"),
    ],
)
def test_a_broken_line_of_json_is_named(tmp_path: Path, tokenizer: Path, content: bytes, says: str) -> None:
    (tmp_path / "t.jsonl").write_bytes(content)
    assert f"t.jsonl: {says}" in refusal(tmp_path / "t.jsonl", [IDS], tokenizer)


def test_a_line_that_is_not_utf_8_is_named(tmp_path: Path, tokenizer: Path) -> None:
    (tmp_path / "t.txt").write_bytes(b"\xef\xbb\xbfone\ntwo \xff\n")
    assert "t.txt: line 2: is not UTF-8 text (byte 0xff)" in refusal(tmp_path / "t.txt", [IDS], tokenizer)


def test_a_part_of_the_lines_is_a_part_of_the_samples(tmp_path: Path, tokenizer: Path) -> None:
    source = lines(tmp_path, "".join(f"{word}\n" for word in WORDS))
    samples = opened(source, [IDS], tokenizer)
    assert samples.total == 8
    assert [s.name for s in samples.part(1, 8, 3)] == ["texts.txt:2", "texts.txt:5", "texts.txt:8"]


@pytest.mark.parametrize(
    ("recipe", "says"),
    [
        ("reader: text; tokenizer: none.json", "none.json: no such file"),
        ("reader: text; tokenizer: recipe.yaml", "is not a tokenizer of Hugging Face"),
        ("reader: text", "the model expects token ids; give its tokenizer"),
        ("reader: text; max_lenght: 3", "max_lenght: is not a key of a recipe"),
        ("reader: text; max_length: x", "max_length: 'x' is not allowed; give N from 1"),
        (
            "reader: text; tokenizer: tokenizer.json; max_length: 0",
            "max_length: 0 is not allowed; give N from 1",
        ),
        (
            "reader: text; tokenizer: tokenizer.json; padding: max_length",
            "padding: max_length needs max_length",
        ),
        ("reader: text; inputs: {id: ids}", "inputs: 'id' is not an input of the model"),
    ],
)
def test_a_wrong_recipe_is_refused(tmp_path: Path, tokenizer: Path, recipe: str, says: str) -> None:
    assert says in refusal(lines(tmp_path, "one\n"), [IDS], written(tmp_path, recipe))
