"""What ranges cost samples that did not choose them, against the same arithmetic in numpy."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir
import pytest
import qprof_onnx as qprof
from onnx import numpy_helper, parser
from qprof_onnx.profiles.samples.values import Sample
from qprof_onnx.quantizer.noise.unseen import ends_of_others, range_errors
from qprof_onnx.quantizer.prepare.prepare import prepare

Array = npt.NDArray[np.float32]
RNG = np.random.default_rng(17)
W = RNG.normal(size=(6, 3)).astype(np.float32)
NET = """<ir_version: 9, opset_import: ["" : 17]>
net (float[n, 6] x) => (float[n, 3] y) {
    h = Relu(x)
    y = MatMul(h, w)
}"""
INF = float("inf")
ROWS = [RNG.uniform(-1.0, 1.0, size=(1, 6)).astype(np.float32) for _ in range(16)]
WIDE = [*ROWS[:-1], 8.0 * ROWS[-1]]


def net() -> onnx.ModelProto:
    proto = parser.parse_model(NET)
    proto.graph.initializer.append(numpy_helper.from_array(W, "w"))
    return proto


def errors(rows: list[Array], **ranges: tuple[float, float]) -> list[dict[str, Array]]:
    model = prepare(ir.from_proto(net())).model
    return range_errors(model, ranges, [Sample(str(at), {"x": row}) for at, row in enumerate(rows)])


def test_a_sample_that_alone_made_a_range_so_wide_has_the_ends_of_the_others() -> None:
    seen = [{"x": (-1.0, 2.0)}, {"x": (-4.0, 1.0)}, {"x": (-3.0, 5.0)}]
    found = ends_of_others(seen, {"x": (-4.0, 5.0)})
    assert found == [{"x": (-INF, INF)}, {"x": (-3.0, INF)}, {"x": (-INF, 2.0)}]


def test_two_samples_that_reach_as_far_leave_each_other_the_range() -> None:
    assert ends_of_others([{"x": (0.0, 5.0)}] * 2, {"x": (0.0, 5.0)}) == [{"x": (-INF, INF)}] * 2


def test_a_range_that_ends_before_the_other_samples_was_not_made_by_one() -> None:
    seen = [{"x": (0.0, 9.0)}, {"x": (0.0, 4.0)}]
    assert ends_of_others(seen, {"x": (0.0, 3.0)}) == [{"x": (-INF, INF)}] * 2


def test_outputs_change_by_what_the_ranges_of_the_others_cut_off() -> None:
    most = max(float(row.max()) for row in ROWS[:-1])
    *others, last = errors(WIDE, h=(0.0, 8.0))
    assert all(not np.any(one.get("y", 0.0)) for one in others)
    clipped = np.minimum(np.maximum(WIDE[-1], 0.0), most) @ W
    np.testing.assert_allclose(last["y"], clipped - np.maximum(WIDE[-1], 0.0) @ W, atol=1e-5)  # float32 sums


def test_an_output_is_clipped_itself() -> None:
    outputs = [np.maximum(row, 0.0) @ W for row in WIDE]
    low, high = (float(end(np.concatenate(outputs))) for end in (np.min, np.max))
    found = errors(WIDE, y=(low, high))
    top = int(np.argmax([one.max() for one in outputs]))
    second = max(float(one.max()) for at, one in enumerate(outputs) if at != top)
    assert float(found[top]["y"].min()) == pytest.approx(second - high, rel=1e-5)


def test_one_sample_has_no_others() -> None:
    assert errors(WIDE[-1:], h=(0.0, 8.0)) == [{}]


@pytest.mark.parametrize("wide", [1, 2])
def test_decibels_are_told_as_if_no_sample_had_chosen_the_ranges(tmp_path: Path, wide: int) -> None:
    onnx.save(net(), tmp_path / "net.onnx")
    rows = [*ROWS[wide:], *(wide * WIDE[-1:])]
    rows[-1] = rows[-1].copy()
    rows[-1][0, 0] *= 1.001  # equal samples count once
    profile = qprof.profile(tmp_path / "net.onnx", [{"x": row} for row in rows])
    result = qprof.quantize(tmp_path / "net.onnx", profile, tmp_path / "q.onnx", cost_model="off")
    (low,) = re.findall(r"dB, (-?\d+) to", result.checks[0].figures)
    assert (int(low) < 20) is (wide == 1), "two samples that reach as far leave each other the range"
