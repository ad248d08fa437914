"""Names that are not taken yet."""

from __future__ import annotations

from qprof_onnx.profiles.base.errors import free_name


def test_a_free_name_is_taken_as_it_is() -> None:
    assert free_name("x", {"y"}) == "x"


def test_a_name_in_use_gets_the_first_free_number() -> None:
    assert free_name("x", {"x", "x_1", "x_3"}) == "x_2"


def test_the_form_of_the_numbers_can_be_chosen() -> None:
    assert free_name("x", {"x", "x#1"}, lambda number: f"x#{number}") == "x#2"
