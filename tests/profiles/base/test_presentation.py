"""Texts of numbers."""

from __future__ import annotations

import pytest
from qprof_onnx.profiles.base.presentation import deciding_digits, size_text


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
    ("value", "limit", "shown"),
    [(0.2, 4.7, ("0.2", "4.7")), (4.72, 4.69, ("4.72", "4.69")), (4.68, 4.69, ("4.7", "4.7"))],
)
def test_digits_are_printed_until_the_one_that_decides(
    value: float, limit: float, shown: tuple[str, str]
) -> None:
    assert deciding_digits(value, limit, (1, 1)) == shown
    assert deciding_digits(-value, -limit, (1, 1), is_least=True) == tuple(f"-{text}" for text in shown)
