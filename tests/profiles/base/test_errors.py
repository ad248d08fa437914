"""What a message shows: names that a user chose are escaped, and a long one keeps both of its ends."""

from __future__ import annotations

import pytest
from qprof_onnx.profiles.base.errors import ConfigError, QprofError, shown


@pytest.mark.parametrize("name", ["\x1b[31mred", "a\nb", "\x07", "\x85", "\u202egnp", "\udcff"])
def test_a_message_shows_control_characters_escaped(name: str) -> None:
    message = str(ConfigError(f"{name}: no such file; check the path"))
    assert message.isprintable()
    assert message.endswith(": no such file; check the path")


def test_a_long_message_keeps_its_beginning_and_its_end() -> None:
    message = shown(f"file.yaml: key '{'x' * 100_000}' is unknown; correct it")
    assert len(message) <= 1000
    assert message.startswith("file.yaml: key 'xxx")
    assert message.endswith("x' is unknown; correct it")


def test_a_message_of_usual_words_stays_as_it_is() -> None:
    text = "ä/模型.onnx: is no model; export it again"
    assert str(QprofError(text)) == text
