"""Notes for the user."""

from __future__ import annotations

import pytest
from qprof_onnx.profiles.base.findings import Code, Finding
from qprof_onnx.profiles.base.tool import note, notes_once


def test_a_note_is_made_once_in_a_call_and_again_in_the_next(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        with notes_once():
            for text in ("a: as it is", "a: as it is", "b: as it is"):
                note(Finding(Code.READING_ASSUMED, text))
    note(Finding(Code.READING_ASSUMED, "a: as it is"))
    assert [record.getMessage()[0] for record in caplog.records] == ["a", "b", "a", "b", "a"]
