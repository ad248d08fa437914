"""Samples from a profile alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from onnx import parser
from qprof_onnx.profiles.base.errors import DataError
from qprof_onnx.profiles.records.profile import Profile
from qprof_onnx.profiles.samples.samples import input_specs
from qprof_onnx.quantizer.api.profiling import profile_model
from qprof_onnx.quantizer.operators.graph import Graph
from qprof_onnx.quantizer.plugins.tune.synthetic_samples import synthetic_samples
from qprof_onnx.quantizer.prepare.prepare import open_prepared


def profiled(
    text: str, samples: list[dict[str, np.ndarray]], folder: Path
) -> tuple[Graph, Profile, ir.Model]:
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}')
    path = folder / "net.onnx"
    path.write_bytes(model.SerializeToString())
    (folder / "data").mkdir()
    for number, sample in enumerate(samples):
        np.savez(folder / "data" / f"{number}.npz", **sample)
    profile = profile_model(path, str(folder / "data"), folder / "p.yaml")
    prepared = open_prepared(path)
    return prepared.graph, profile, prepared.model


def floats(*shape: int) -> np.ndarray:
    return np.linspace(-2.0, 5.0, int(np.prod(shape)), dtype=np.float32).reshape(shape)


def test_fixed_shapes_and_observed_ranges(tmp_path: Path) -> None:
    graph, profile, model = profiled(
        "g (float[1,4] x) => (float[1,4] y) { y = Relu (x) }", [{"x": floats(1, 4)}], tmp_path
    )
    (first, second) = synthetic_samples(input_specs(model), graph, profile, 2)
    assert first["x"].shape == (1, 4)
    assert first["x"].dtype == np.float32
    assert -2.0 <= first["x"].min() < first["x"].max() <= 5.0
    assert not np.array_equal(first["x"], second["x"])
    again = synthetic_samples(input_specs(model), graph, profile, 2)
    np.testing.assert_array_equal(again[1]["x"], second["x"])


def test_a_free_dimension_has_its_mean_size(tmp_path: Path) -> None:
    graph, profile, model = profiled(
        "g (float[1,N] x) => (float[1,N] y) { y = Relu (x) }",
        [{"x": floats(1, 4)}, {"x": floats(1, 8)}],
        tmp_path,
    )
    (sample,) = synthetic_samples(input_specs(model), graph, profile, 1)
    assert sample["x"].shape == (1, 6)


TOKENS = """
g (int64[B,N] ids, int64[B,N] mask) => (float[B,N,4] y)
<float[3,4] words = {0,1,2,3,4,5,6,7,8,9,10,11}>
{
    rows = Gather (words, ids)
    f = Cast <to = 1> (mask)
    axes = Constant <value_ints = [2]> ()
    w = Unsqueeze (f, axes)
    y = Mul (rows, w)
}"""


def test_indices_are_those_of_the_table_and_a_mask_is_all_ones(tmp_path: Path) -> None:
    sample = {"ids": np.zeros((2, 7), np.int64), "mask": np.ones((2, 7), np.int64)}
    graph, profile, model = profiled(TOKENS, [sample], tmp_path)
    (made,) = synthetic_samples(input_specs(model), graph, profile, 1)
    assert made["ids"].shape == made["mask"].shape == (1, 7)  # two rows are two samples
    assert set(np.unique(made["ids"])) == {0, 1, 2}
    assert set(np.unique(made["mask"])) == {1}


def test_sizes_that_the_profile_does_not_tell_are_asked_for(tmp_path: Path) -> None:
    samples = [{"x": floats(1, n, n)} for n in (2, 4)]
    graph, profile, model = profiled(
        "g (float[1,N,M] x) => (float[1,N,M] y) { y = Relu (x) }", samples, tmp_path
    )
    with pytest.raises(DataError, match=r"input 'x': .* give samples with --data DIR"):
        synthetic_samples(input_specs(model), graph, profile, 1)
