"""The minimum cut against every choice there is."""

from __future__ import annotations

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st
from qprof_onnx.quantizer.speed.float_regions import Crossing, Prices, cheapest

NAMES = tuple("abcde")
PRICE = st.integers(0, 9).map(float)


@st.composite
def prices(draw: st.DrawFn) -> Prices:
    ends = st.sampled_from([*NAMES, "", "float"])
    crossings = [
        Crossing(f"t{i}", draw(ends), tuple(draw(st.sets(ends, min_size=1, max_size=3))), draw(PRICE))
        for i in range(draw(st.integers(0, 6)))
    ]
    beside = {(draw(st.sampled_from(NAMES)), "float"): draw(PRICE)}
    return Prices(
        {name: draw(PRICE) for name in NAMES},
        {name: draw(PRICE) for name in NAMES},
        tuple(crossings),
        beside,
    )


@settings(deadline=None)  # a busy machine
@given(prices())
def test_no_choice_is_cheaper(found: Prices) -> None:
    choices = [{n for n, taken in zip(NAMES, c, strict=True) if taken} for c in product((0, 1), repeat=5)]
    assert found.total(cheapest(found)) == min(found.total(choice) for choice in choices)


def test_of_equal_choices_integers_stay() -> None:
    assert cheapest(Prices({"a": 2.0}, {"a": 2.0}, (), {})) == {"a"}


def test_a_tensor_with_many_readers_is_converted_once() -> None:
    readers = ("b", "c", "d")
    crossing = Crossing("t", "a", readers, 3.0)
    integer, floating = {"a": 1.0, "b": 9.0, "c": 9.0, "d": 9.0}, {"a": 9.0, "b": 7.0, "c": 7.0, "d": 7.0}
    # Three times 2 is saved by the readers for one conversion of 3.
    assert cheapest(Prices(integer, floating, (crossing,), {})) == {"a"}
