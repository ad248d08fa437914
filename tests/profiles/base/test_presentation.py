"""Texts of numbers."""

from __future__ import annotations

import pytest
from qprof_onnx.profiles.base.presentation import size_change, size_text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (75_000, "75.0 kB"),
        (49_336_100, "49.3 MB"),
        (3 * 10**9, "3.0 GB"),
    ],
)
def test_a_size_has_the_unit_that_suits_it(size: int, text: str) -> None:
    assert size_text(size) == text


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [(400, 100, "4.00 times smaller"), (1000, 7400, "7.40 times larger"), (10, 10, "1.00 times smaller")],
)
def test_a_size_that_grew_is_called_larger(before: int, after: int, text: str) -> None:
    assert size_change(before, after) == text
