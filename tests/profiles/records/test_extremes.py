"""Extremes with their samples: the same for every order, grouping and thread; their text; their tracker."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from qprof_onnx.profiles.base.errors import ProfileError
from qprof_onnx.profiles.observers.extreme_tracker import ExtremeTracker
from qprof_onnx.profiles.records.histogram import Histogram
from qprof_onnx.profiles.records.profile import Extreme, Extremes, ModelId, Profile, TensorProfile
from qprof_onnx.profiles.records.store import dumps, loads
from qprof_onnx.profiles.runner.calibrate import calibrate
from qprof_onnx.profiles.runner.settings import RunSettings
from qprof_onnx.profiles.samples.values import Sample

ID = ModelId("structure", "weights", 13)
Run = tuple[int, str, list[tuple[float, float] | None]]
"""Digest and name of a sample, and the ranges of two tensors; None for no elements."""


def of_one(run: Run) -> list[Extremes]:
    """What one sample alone gives, by the definition."""
    digest, name, ranges = run
    ends = [None if r is None else tuple(Extreme(v, f"{digest:032x}", name) for v in r) for r in ranges]
    return [Extremes() if end is None else Extremes(end[:1], end[1:]) for end in ends]


def merged(runs: list[Run]) -> list[Extremes]:
    """What all samples give, by merging."""
    parts = [of_one(run) for run in runs]
    return [reduce(Extremes.merged, (part[tensor] for part in parts), Extremes()) for tensor in range(2)]


@st.composite
def samples_of_runs(draw: st.DrawFn) -> list[Run]:
    """Few values, so that many are equal; samples of equal data have equal ranges and other names."""
    values = st.sampled_from([-2.5, -1.0, 0.0, 1.0, 3.0])
    ranges = st.none() | st.tuples(values, values).map(lambda r: (min(r), max(r)))
    digests = draw(st.lists(st.integers(0, 5) | st.integers(0, (1 << 128) - 1), max_size=8))
    data = {digest: [draw(ranges), draw(ranges)] for digest in digests}
    return [(digest, draw(st.text(max_size=2)), data[digest]) for digest in digests]


def names_of(extremes: list[Extremes]) -> list[list[str]]:
    return [[e.name for e in (*x.lowest, *x.highest)] for x in extremes]


@settings(deadline=None)
@given(samples_of_runs(), st.randoms(), st.integers(0, 8))
def test_order_and_grouping_change_neither_extremes_nor_names(runs: list[Run], random: Any, cut: int) -> None:
    whole, shuffled = merged(runs), random.sample(runs, len(runs))
    parts = [merged(shuffled[:cut]), merged(shuffled[cut:])]
    for one, other in (parts, parts[::-1]):
        found = [a.merged(b) for a, b in zip(one, other, strict=True)]
        assert found == whole
        assert names_of(found) == names_of(whole)


@settings(deadline=None)
@given(samples_of_runs())
def test_the_tracker_gives_what_merging_gives(runs: list[Run]) -> None:
    tracker = ExtremeTracker(2)
    for digest, name, ranges in runs:
        numbers = [(np.inf, -np.inf) if r is None else r for r in ranges]
        tracker.note(name, digest, np.array(numbers, np.float64))
    assert tracker.extremes() == merged(runs)
    assert names_of(tracker.extremes()) == names_of(merged(runs))


def test_the_two_most_extreme_samples_are_kept_with_ties_in_order_of_digests() -> None:
    runs: list[Run] = [
        (digest, f"s{digest}", [(low, 1.0), None]) for digest, low in [(3, 0.0), (1, 0.0), (2, -1.0)]
    ]
    extremes = merged(runs)[0]
    assert [(e.value, e.name) for e in extremes.lowest] == [(-1.0, "s2"), (0.0, "s1")]
    assert [(e.value, e.name) for e in extremes.highest] == [(1.0, "s1"), (1.0, "s2")]


def test_samples_with_equal_data_count_as_one_with_the_first_name() -> None:
    runs: list[Run] = [(1, name, [(0.0, 1.0), None]) for name in ("10", "9")]
    assert merged(runs)[0] == Extremes(*[(Extreme(v, f"{1:032x}", "9"),) for v in (0.0, 1.0)])
    assert names_of(merged(runs))[0] == ["9", "9"]


def test_nothing_is_known_where_one_side_does_not_know() -> None:
    known = TensorProfile("float", (1,), 0.0, 0.0, 0, 0, 0, 0, Histogram.empty(), extremes=Extremes())
    assert known.merged(replace(known, extremes=None)).extremes is None
    assert known.merged(known).extremes == Extremes()


# ------------------------------------------------------------------------------------------------- whole runs


NET = """<ir_version: 8, opset_import: ["": 13]>
    net (float[N, 3, H] x, int64[N] ids, float[N] unread) => (float[N, 3, H] e, int64[N] out) {
        y = Mul (x, x)  s = Relu (x)  e = Exp (s)  m = ReduceMax <axes = [2]> (y)  out = Neg (ids) }"""


def net() -> ir.Model:
    return ir.from_proto(onnx.shape_inference.infer_shapes(onnx.parser.parse_model(NET)))


def samples(number: int = 7) -> list[Sample]:
    rng = np.random.default_rng(0)
    return [
        Sample(
            f"{i}.npz",
            {
                "x": rng.normal(0.0, 1.0 + i, (1 + i % 2, 3, 4 + 3 * (i % 3))).astype(np.float32),
                "ids": np.arange(1 + i % 2) + 10 * i,
                "unread": np.ones(1 + i % 2, np.float32),
            },
        )
        for i in range(number)
    ]


def profiled(given_samples: list[Sample], **more: Any) -> Profile:
    return calibrate(net(), given_samples, ID, RunSettings(**{"channels": "off", **more}))


@pytest.fixture(scope="module")
def whole() -> str:
    return dumps(profiled(samples(), threads=1))


@settings(deadline=None, max_examples=15)
@given(st.permutations(range(7)), st.integers(1, 6), st.integers(1, 3))
def test_order_shards_and_threads_change_no_byte(
    whole: str, order: list[int], cut: int, threads: int
) -> None:
    shuffled = [samples()[i] for i in order]
    assert dumps(profiled(shuffled, threads=threads)) == whole
    parts = [loads(dumps(profiled(part, threads=threads))) for part in (shuffled[:cut], shuffled[cut:])]
    assert dumps(replace(parts[0].merged(parts[1]), tool=loads(whole).tool)) == whole


def rows() -> Iterator[Sample]:
    for sample in samples():
        for row in range(len(sample.arrays["ids"])):
            yield Sample(f"{sample.name}[{row}]", {n: a[row : row + 1] for n, a in sample.arrays.items()})


def test_row_by_row_a_row_of_a_batch_is_a_sample_and_named_so() -> None:
    by_row = profiled(samples(), by_row=True)
    assert dumps(by_row) == dumps(profiled(list(rows())))
    assert (by_row.runs, by_row.data.samples) == (10, 10)
    assert profiled(samples()).runs == 7


def test_inputs_of_every_type_are_recorded_with_their_sizes() -> None:
    profile = profiled(samples())
    assert list(profile.inputs) == ["x", "ids", "unread"]
    assert profile.inputs["x"].tensor is not None
    assert profile.inputs["x"].tensor == profile["x"]
    assert profile.inputs["x"].sizes == ((1, 2), (3, 3), (4, 10))
    ids = profile.inputs["ids"].tensor
    assert (ids.dtype, ids.minimum, ids.maximum, ids.count) == ("int64", 0.0, 60.0, 10)
    assert "ids" not in profile


def test_inputs_are_recorded_where_their_tensors_are_not_wanted() -> None:
    profile = profiled(samples(), tensors=["y"])
    assert (list(profile), list(profile.inputs)) == (["y"], ["x", "ids", "unread"])
    assert profile.inputs["x"].tensor == profiled(samples())["x"]
    assert loads(dumps(profile)) == profile


# ------------------------------------------------------------------------------------------------------- text


@pytest.mark.parametrize(
    "name", ["a: b", "- {x}", "'\"\\", "\n\t\x1b[31m", "1", "null", "é\u2028", "\ud800x"]
)
def test_samples_may_be_called_anything(name: str) -> None:
    given_samples = [replace(sample, name=f"{name}{i}") for i, sample in enumerate(samples(3))]
    profile = profiled(given_samples)
    read = loads(dumps(profile))
    assert read == profile
    assert [read[t].extremes for t in read] == [profile[t].extremes for t in profile]
    extremes = read["x"].extremes
    assert extremes is not None
    assert extremes.highest[0].name.endswith(("0", "1", "2"))


def test_what_is_merged_with_a_profile_without_extremes_has_none() -> None:
    new = profiled(samples())
    tensors = {name: replace(tensor, extremes=None) for name, tensor in new.items()}
    old = loads(dumps(replace(new, runs=0, inputs={}, tensors=tensors)))
    for found in (new.merged(old), old.merged(new)):
        assert (found.runs, found.inputs) == (0, {})
        assert loads(dumps(found)) == found


MALFORMED = {
    "another value than the minimum": (
        r'lowest: \["[^ ]* ',
        'lowest: ["-999.5 ',
        "extremes: are not of minimum",
    ),
    "one end alone": (r"highest: \[[^]]*\]", "highest: []", "one end has samples and the other has none"),
    "a word": (r'lowest: \["', 'lowest: ["x ', "is not a value, 32 hexadecimal digits and a name"),
    "the same sample twice": (
        r'lowest: \[("[^"]*"), "[^"]*"',
        r"lowest: [\1, \1",
        "not up to 2 different samples in order",
    ),
    "three of them": (r"lowest: \[(.*?)\]", r"lowest: [\1, \1]", "not up to 2 different samples in order"),
    "a digest": (
        r'lowest: \["([^ ]*) [^ ]*',
        r'lowest: ["\1 abc',
        "is not a value, 32 hexadecimal digits and a name",
    ),
    "sizes": (r"sizes: \[\[1", "sizes: [[9", "sizes has a smallest size above the largest"),
    "sizes of one end": (r"sizes: \[\[1, 2\]", "sizes: [[1]", "sizes must be a list of 2 whole numbers"),
    "a flag": ("normalised: false", "normalised: 0", "normalised must be true or false, not 0"),
    "an input that is no tensor": (
        r"(?s)(  ids:\n.*?)    tensor: .*?\n(?=  unread|    )",
        r"\1",
        "key 'tensor' is missing",
    ),
}


@pytest.mark.parametrize(("pattern", "replacement", "message"), MALFORMED.values(), ids=MALFORMED)
def test_malformed_extremes_and_inputs_are_refused(
    whole: str, pattern: str, replacement: str, message: str
) -> None:
    text, times = re.subn(pattern, replacement, whole, count=1)
    assert times == 1
    with pytest.raises(ProfileError, match=message):
        loads(text)
