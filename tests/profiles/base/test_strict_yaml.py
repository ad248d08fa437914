"""Strict YAML in, exact scalars out."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from qprof_onnx.profiles.base import strict_yaml as yaml_text
from qprof_onnx.profiles.base.errors import MalformedError
from qprof_onnx.profiles.base.strict_yaml import block, entry, flow_text, parse, parse_all

scalars = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), values, max_size=4))
def test_what_is_spelled_is_read_back(document: dict[str, object]) -> None:
    assert parse(block(document)) == document if document else True


@given(st.text() | st.floats(allow_nan=False, allow_infinity=False))
def test_other_readers_of_yaml_1_1_read_the_same(value: object) -> None:
    assert yaml.safe_load(f"[{flow_text(value)}]") == [value]


@given(st.dictionaries(st.text(), values, max_size=3))
def test_reading_without_libyaml_gives_the_same(document: dict[str, object]) -> None:
    text = "key: 1\n" + block({f"{k}.": v for k, v in document.items()})
    with pytest.MonkeyPatch.context() as patch:
        with_libyaml = parse(text)
        patch.setattr(yaml_text, "_loader", lambda: yaml.SafeLoader)
        assert parse(text) == with_libyaml


def test_a_key_beyond_the_limit_of_yaml_is_written_as_an_explicit_key() -> None:
    name = "n" * 1500
    assert parse(entry(name, "1") + entry("next", "2")) == {name: 1, "next": 2}
    assert parse(entry(name, "\n" + block({"a": 1}, 2).rstrip())) == {name: {"a": 1}}


def test_numbers_are_those_of_yaml_1_2() -> None:
    assert parse("[1e-5, 1.5E+3, .5, 010, 0x1F, 0o17, -3]") == [1e-05, 1500.0, 0.5, 10, 31, 15, -3]


def test_words_that_yaml_1_1_takes_for_other_things_stay_text() -> None:
    assert parse("[no, on, y, 12:30:45, 2001-01-01, 1_000]") == [
        "no",
        "on",
        "y",
        "12:30:45",
        "2001-01-01",
        "1_000",
    ]


def test_keys_are_always_text() -> None:
    assert parse("{123: a, true: b, null: c, 1e5: d}") == {"123": "a", "true": "b", "null": "c", "1e5": "d"}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a: [1", "not YAML"),
        ("a: b: c", "line 1: not YAML: mapping values are not allowed"),
        ("a:\n\tb: 1", "line 2: YAML does not allow this tab"),
        ("x: 1\na: \x01", "not YAML: unacceptable character"),
        ("a: 1\na: 2", "line 2: duplicate key 'a'"),
        ("a: {b: 1, b: 1}", "line 1: duplicate key 'b'"),
        ("a: &x 1\nb: *x", "line 1: anchors and aliases are not used"),
        ("b: *x", "anchors and aliases are not used|undefined alias"),
        ("a: !!int 3", "line 1: the tag 'tag:yaml.org,2002:int' is not used"),
        ("a: !!python/object/apply:os.system [ls]", "the tag .* is not used"),
        ("? [a]\n: 1", "line 1: a key must be a single word"),
        ("a: " + "9" * 5000, "a number of 5000 digits is too long"),
        ("[" * 100_000, "nested too deeply"),
        ("a: 1\n---\nb: 1", "contains 2 YAML documents instead of one"),
        ("", "contains 0 YAML documents"),
    ],
)
@pytest.mark.parametrize("loader", [yaml_text._loader(), yaml.SafeLoader])
def test_each_refusal_has_its_sentence(
    text: str, sentence: str, loader: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(yaml_text, "_loader", lambda: loader)
    with pytest.raises(MalformedError, match=sentence):
        parse(text)


def test_several_documents_can_be_read() -> None:
    assert parse_all("---\na: 1\n...\n---\n- b\n...\n") == [{"a": 1}, ["b"]]


def test_a_number_that_is_not_finite_has_no_spelling() -> None:
    with pytest.raises(ValueError, match="not finite"):
        flow_text(float("inf"))


def test_a_byte_order_mark_amid_the_text_is_refused() -> None:
    with pytest.raises(MalformedError, match="line 2: a byte order mark amid the text"):
        parse("a: 1\n\ufeff\nb: 2\n")
