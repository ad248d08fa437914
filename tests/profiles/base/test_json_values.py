import json

import pytest
from qprof_onnx.profiles.base.errors import MalformedError
from qprof_onnx.profiles.base.json_values import parse_json


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1, "b": 2, "a": 3}', "duplicate key 'a'"),
        ('{"a": NaN}', "NaN is not a number in JSON"),
        ("[-Infinity]", "-Infinity is not a number in JSON"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a":' * 100_000, "nested too deeply"),
        ('{\n"a" 1}', "line 2: not JSON"),
        ("", "line 1: not JSON"),
        ("9" * 5000, "a number has too many digits"),
    ],
)
def test_json_that_is_none_is_refused(text: str, message: str) -> None:
    with pytest.raises(MalformedError, match=message):
        parse_json(text)


def test_json_is_read_as_it_was_written() -> None:
    value = {"a": [1, 2.5, None, True, "x"], "b": {}}
    assert parse_json(json.dumps(value)) == value
