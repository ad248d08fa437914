"""Records of runs and inputs: the same for every order, grouping and thread; their text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from qprof_onnx.profiles.base.errors import ProfileError
from qprof_onnx.profiles.records.profile import ModelId, Profile
from qprof_onnx.profiles.records.store import dumps, loads
from qprof_onnx.profiles.runner.calibrate import calibrate
from qprof_onnx.profiles.runner.settings import RunSettings
from qprof_onnx.profiles.samples.values import Sample

ID = ModelId("structure", "weights", 13)


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


MALFORMED = {
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
def test_malformed_inputs_are_refused(whole: str, pattern: str, replacement: str, message: str) -> None:
    text, times = re.subn(pattern, replacement, whole, count=1)
    assert times == 1
    with pytest.raises(ProfileError, match=message):
        loads(text)
