"""The compiled counter against its numpy reference: the same numbers, element for element."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from qprof_onnx.profiles.observers import histogram_counter as counter
from qprof_onnx.profiles.observers.histogram_counter import Bins, Remainder, implementations
from qprof_onnx.profiles.observers.tensor_observer import TensorObserver
from qprof_onnx.profiles.records.histogram import BINS, Histogram, bin_exponent, grid_index

IMPLEMENTATIONS = implementations()
TYPES = {"float16": np.uint16, "bfloat16": np.uint16, "float32": np.uint32, "float64": np.uint64}
TINY = 1e-45
"""The smallest positive float32."""

each = pytest.mark.parametrize("name", IMPLEMENTATIONS)


def bins_of(low: float, high: float) -> Bins:
    e = bin_exponent(low, high)
    first = grid_index(low, e)
    return Bins(
        low, high, e, first, np.zeros(grid_index(high, e) - first + 1, np.int64), np.zeros(1, np.int64)
    )


def dtype_of(name: str) -> np.dtype[Any]:
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def from_bits(bits: npt.NDArray[Any], dtype: str) -> npt.NDArray[Any]:
    return bits.astype(TYPES[dtype]).view(dtype_of(dtype))


def finite(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    with np.errstate(invalid="ignore"):
        return values[np.isfinite(values.astype(np.float64))]


def check_twins(name: str, values: npt.NDArray[Any]) -> None:
    """Look at an array, then count its finite elements, and compare both with the reference."""
    count, reference = IMPLEMENTATIONS[name], IMPLEMENTATIONS["numpy"]
    seen = count([values], [Bins.empty()])
    assert seen == reference([values], [Bins.empty()])
    kept = finite(values)
    if kept.size:
        bins, expected = (bins_of(seen[0].low, seen[0].high) for _ in range(2))
        assert count([kept], [bins]) == reference([kept], [expected]) == []
        assert np.array_equal(bins.counts, expected.counts)
        assert bins.zeros == expected.zeros
        assert bins.counts.sum() == kept.size


@pytest.mark.skipif(not (shutil.which("cc") or shutil.which("cl")), reason="no compiler here")
def test_the_compiled_counter_is_built_and_in_use() -> None:
    assert list(IMPLEMENTATIONS)[-2:] == ["plain", "numpy"]
    assert next(iter(IMPLEMENTATIONS)) == counter.IMPLEMENTATION


@pytest.mark.slow
@pytest.mark.parametrize("dtype", TYPES)
@each
@settings(deadline=None, max_examples=60)
@given(st.data())
def test_twins_agree_on_any_bit_patterns(name: str, dtype: str, data: st.DataObject) -> None:
    bits = data.draw(hnp.arrays(TYPES[dtype], st.integers(0, 70)))
    check_twins(name, from_bits(bits, dtype))


@each
@settings(deadline=None, max_examples=100)
@given(hnp.arrays(np.float32, st.integers(1, 70), elements=st.floats(-4, 4, width=32)))
@example(np.array([-TINY, TINY, -0.0, 0.0, 5000.0, -5000.0], np.float32))
@example(np.array([-TINY] * 16 + [3e38], np.float32))
@example(np.array([-0.0] * 17, np.float32))
@example(np.array([1000.0, 1000.0001], np.float32))
def test_twins_agree_on_ordinary_values(name: str, values: npt.NDArray[np.float32]) -> None:
    check_twins(name, values)


@each
def test_twins_agree_on_every_size_of_float32(name: str) -> None:
    """Every 9973rd of all bit patterns: each exponent with about 840 fractions, both signs."""
    every = np.arange(0, 1 << 32, 9973, dtype=np.uint64).astype(np.uint32).view(np.float32)
    edges = np.array([-TINY, TINY, -0.0, 0.0, np.nextafter(np.float32(0.5), np.float32(0))], np.float32)
    for top in (1e-45, 1e-42, 1.2e-38, 2e-34, 1e-3, 1.0, 7.0, 1e4, 1e20, 3.4e38):
        values = every[np.abs(every) <= top]
        for part in (values, values[values >= 0], np.concatenate([values[values <= 0], edges])):
            check_twins(name, part)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@each
def test_twins_agree_on_every_short_float(name: str, dtype: str) -> None:
    every = from_bits(np.arange(1 << 16), dtype)
    kept = finite(every)
    for values in (every, kept, kept[np.abs(kept.astype(np.float32)) <= 1.0]):
        check_twins(name, values)


@each
def test_twins_agree_at_every_length(name: str) -> None:
    """Lengths around those of vectors, blocks, tables and the flush of the tables."""
    for size in (1, 15, 16, 17, 511, 512, 513, 1023, 1024, 1041, 300_001):
        values = np.random.default_rng(size).standard_normal(size).astype(np.float32)
        for array in (values, np.maximum(values, 0), np.minimum(values, 0), np.clip(values, -0.5, 0.5)):
            check_twins(name, array)
        check_twins(name, values.astype(np.float64))
        check_twins(name, np.full(size, 1.5, np.float32))


@each
def test_no_bin_overflows_when_all_elements_are_alike(name: str) -> None:
    values = np.full(3_000_000, 1.0, np.float32)
    values[0] = -1.0
    check_twins(name, values)


@each
def test_the_range_of_a_grid_is_kept_even_where_a_bin_is_wider(name: str) -> None:
    """A value outside minimum .. maximum is not counted though it would fall into the last bin."""
    values = np.concatenate([np.zeros(40), [np.nextafter(np.float32(1), np.float32(2))]]).astype(np.float32)
    (found,) = IMPLEMENTATIONS[name]([values], [bins_of(-1.0, 1.0)])
    assert found.stop < values.size
    assert found.high > 1.0


@each
def test_a_count_goes_on_where_it_stopped(name: str) -> None:
    rng = np.random.default_rng(0)
    values = rng.standard_normal(20_000).astype(np.float32)
    values[9000], values[9001] = 50.0, -70.0
    found = TensorObserver("float", IMPLEMENTATIONS[name])
    found.add(values, values.shape)
    found.add(values * 3, values.shape)
    assert found.profile().histogram == Histogram.of(np.concatenate([values, values * 3]))


@each
@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.floats(-9, 9), st.sampled_from([1e-3, 0.5, 1.0, 3.0])), min_size=1, max_size=9))
def test_ranges_that_grow_leave_the_bins_of_all_values_at_once(
    name: str, parts: list[tuple[float, float]]
) -> None:
    found, rng = TensorObserver("float", IMPLEMENTATIONS[name]), np.random.default_rng(0)
    arrays = [(middle + scale * rng.standard_normal(40)).astype(np.float32) for middle, scale in parts]
    for array in arrays:
        found.add(array, array.shape)
    profile, whole = found.profile(), np.concatenate(arrays)
    assert profile.histogram == Histogram.of(whole)
    assert (profile.minimum, profile.maximum) == (whole.min(), whole.max())


@each
def test_values_that_are_not_finite_are_counted_apart(name: str) -> None:
    values = np.array([1.0, np.nan, np.inf, -2.0, -np.inf, np.nan] * 20, np.float32)
    assert IMPLEMENTATIONS[name]([values], [Bins.empty()]) == [Remainder(0, 0, -2.0, 1.0, 40, 40)]


@each
def test_nothing_at_all_has_no_rest(name: str) -> None:
    assert IMPLEMENTATIONS[name]([np.zeros(0, np.float32)], [Bins.empty()]) == []
    assert IMPLEMENTATIONS[name]([], []) == []


@each
def test_many_arrays_are_counted_as_each_of_them(name: str) -> None:
    """Some are counted to their end, some are not; types, lengths and shapes differ."""
    rng = np.random.default_rng(2)
    arrays = [
        (rng.standard_normal(shape) * scale).astype(dtype_of(dtype))
        for dtype in TYPES
        for shape, scale in (((), 0.1), ((3, 0), 1.0), ((7, 9), 0.2), ((4, 5000), 0.2), ((40_000,), 3.0))
    ]
    arrays[2][3, 4] = np.inf
    apart, together = ([bins_of(-1.0, 1.0) for _ in arrays] for _ in range(2))
    count = IMPLEMENTATIONS[name]
    alone = [count([array], [bins]) for array, bins in zip(arrays, apart, strict=True)]
    expected = [rest._replace(number=i) for i, rests in enumerate(alone) for rest in rests]
    assert count(arrays, together) == expected
    assert [rest.number for rest in expected] == [2, 4, 9, 14, 19]
    for mine, theirs in zip(together, apart, strict=True):
        assert np.array_equal(mine.counts, theirs.counts)
        assert mine.zeros == theirs.zeros


def wrong_calls() -> dict[str, Callable[[Any], object]]:
    def call(
        x: npt.NDArray[Any] | None = None, counts: int = 17, zeros: int = 1, level: int = 0
    ) -> Callable[[Any], object]:
        array = np.zeros(5, np.float32) if x is None else x
        bins = -1.0, 1.0, -3, -8, np.zeros(counts, np.int64), np.zeros(zeros, np.int64)
        return lambda module: module.advance([array], [bins], level)

    return {
        "arrays must be of": call(x=np.zeros(5, np.int32)),
        "contiguous": call(x=np.zeros(10, np.float32)[::2]),
        "counts must hold": call(counts=BINS + 1),
        "zeros must be": call(zeros=2),
        "a range needs bins": call(counts=0),
        "no such level": call(level=9),
        "each array needs its bins": lambda module: module.advance([], [Bins.empty()], 0),
    }


@pytest.mark.parametrize("message", wrong_calls())
def test_the_compiled_module_refuses_what_it_cannot_count(message: str) -> None:
    module = pytest.importorskip("qprof_onnx.profiles.observers._counter")
    with pytest.raises(ValueError, match=message):
        wrong_calls()[message](module)


def test_a_fault_in_one_of_many_arrays_lets_go_of_all() -> None:
    module = pytest.importorskip("qprof_onnx.profiles.observers._counter")
    arrays, bins = [np.zeros(5, np.float32), np.zeros(5, np.int32)], bins_of(-1.0, 1.0)
    before = [sys.getrefcount(array) for array in (*arrays, bins.counts)]
    with pytest.raises(ValueError, match="arrays must be of"):
        module.advance(arrays, [bins, bins], 0)
    assert [sys.getrefcount(array) for array in (*arrays, bins.counts)] == before
    assert not bins.counts.any()


WRITTEN_MEANWHILE = """
import sys, threading, time
import numpy as np
from qprof_onnx.profiles.observers import _counter
from qprof_onnx.profiles.observers.tensor_observer import TensorObserver

SECONDS = 0.08
sys.setswitchinterval(1e-5)

def written(x, stop):
    small, large = x[:].copy(), 1e3 * x
    while not stop.is_set():
        x[:] = large
        x[:] = small

for dtype in ("float16", "float32", "float64"):
    x = np.random.default_rng(0).uniform(-1, 1, 1 << 16).astype(dtype)
    observer, stop = TensorObserver(dtype), threading.Event()
    observer.add(x, x.shape)
    writer = threading.Thread(target=written, args=(x[-512:], stop))
    writer.start()
    for level, name in enumerate(_counter.levels()):
        total, end = observer.bins.counts.sum(), time.monotonic() + SECONDS
        while time.monotonic() < end:
            left = _counter.advance([x], [observer.bins], level)
            total += left[0][1] if left else x.size
            if observer.bins.counts.sum() != total:
                print(name, dtype, "counted outside of the counts")
                break
    stop.set()
    writer.join()
"""


def test_an_array_that_another_thread_writes_is_counted_inside_the_counts() -> None:
    if "plain" not in IMPLEMENTATIONS:
        pytest.skip("not built")
    command = [sys.executable, "-c", WRITTEN_MEANWHILE]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(("first", "size"), [(-9, 21), (-11, 20), (-10, 20), (-10, 2)])
def test_a_range_outside_of_its_bins_is_refused(first: int, size: int) -> None:
    if "plain" not in IMPLEMENTATIONS:
        pytest.skip("not built")
    bins = Bins(-10.0, 10.0, 0, first, np.zeros(size, np.int64), np.zeros(1, np.int64))
    with pytest.raises(ValueError, match="the range must lie in the bins"):
        IMPLEMENTATIONS["plain"]([np.zeros(1, np.float32)], [bins])


@pytest.mark.parametrize("low", [-5e-324, -1e-310])
def test_a_range_whose_ends_are_too_small_to_be_scaled_is_in_its_bins(low: float) -> None:
    for values in ([low, 1e300], [-1e300, low], [low, 0.0]):
        check_twins(counter.IMPLEMENTATION, np.array(values))
