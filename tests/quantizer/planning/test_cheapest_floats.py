"""The nodes to leave in float so that an output is within its limit, at the least time."""

from __future__ import annotations

from qprof_onnx.quantizer.costs.float_regions import Crossing, Prices
from qprof_onnx.quantizer.planning.noise_budget import Rounding, cheapest_floats, left_over


def chain(*times: float) -> Prices:
    """Return the prices of nodes a, b, c, ... in a row that take these microseconds more in float."""
    names = "abcdefgh"[: len(times)]
    ends = zip(["", *names], [*names, ""], strict=True)
    crossings = tuple(Crossing(f"{a}{b}", a, (b,), 1.0) for a, b in ends)
    return Prices(dict.fromkeys(names, 0.0), dict(zip(names, times, strict=True)), crossings, {})


def roundings(*shares: float) -> list[Rounding]:
    """Return the noise of the tensors between nodes a, b, c, ... in a row, the last one's result last."""
    names = "abcdefgh"[: len(shares)]
    readers = [*names[1:], ""]
    return [(s, frozenset(a + b)) for s, a, b in zip(shares, names, readers, strict=True)]


def test_the_last_node_goes_to_float_where_its_result_has_the_noise() -> None:
    assert cheapest_floats(chain(10.0, 10.0, 10.0), roundings(0.1, 0.1, 2.0)) == {"c"}


def test_a_tensor_is_exact_only_where_all_nodes_around_it_are_float() -> None:
    assert cheapest_floats(chain(10.0, 10.0, 10.0, 10.0), roundings(0.1, 2.0, 0.1, 0.1)) == {"b", "c"}


def test_of_two_ways_the_cheaper_one_is_taken() -> None:
    both = [(0.8, frozenset("a")), (0.8, frozenset("c"))]
    assert cheapest_floats(chain(10.0, 10.0, 50.0), both) == {"a"}


def test_nothing_goes_to_float_where_the_limit_holds() -> None:
    assert cheapest_floats(chain(10.0, 10.0), roundings(0.3, 0.3)) == set()


def test_what_is_left_is_within_the_limit() -> None:
    many = roundings(0.9, 0.7, 0.5, 0.4, 0.9, 0.2, 0.3, 0.6)
    found = cheapest_floats(chain(*[5.0] * 8), many)
    assert 0 < len(found) < 8
    assert left_over(many, set("abcdefgh") - found) <= 1.0
