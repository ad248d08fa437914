"""Models with a state are compared as they are used: each on its own state, in sequences that stay whole."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser
from qprof_onnx.profiles.samples.objects import PreprocessedData
from qprof_onnx.profiles.samples.states import runs_with_own_state
from qprof_onnx.profiles.samples.values import Sample
from qprof_onnx.quantizer.api.held_out import held_out_positions
from qprof_onnx.quantizer.evaluation.evaluate import evaluate

NET = """
<ir_version: 9, opset_import: ["": 17]>
net (float[N, 4] sound, float[N, 3] state) => (float[N, 3] y, float[N, 3] after) {
    new = MatMul (sound, w)
    both = Add (state, new)
    after = Tanh (both)
    y = Identity (after)
}
"""


def written(path: Path, w: np.ndarray) -> Path:
    model = parser.parse_model(NET)
    model.graph.initializer.append(numpy_helper.from_array(w, "w"))
    onnx.save(model, path)
    return path


def test_each_model_runs_on_its_own_state(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    w, sound = (rng.normal(size=size).astype(np.float32) / 4 for size in ((4, 3), (6, 4)))
    (tmp_path / "data").mkdir()
    np.savez(tmp_path / "data" / "a.npz", sound=sound)
    np.savez(tmp_path / "data" / "b.npz", sound=sound[::-1])
    (tmp_path / "recipe.yaml").write_text("reader: array\nrows: split\nstate: {after: state}\n")
    other = np.float32(1.1) * w
    float_path, other_path = written(tmp_path / "f.onnx", w), written(tmp_path / "q.onnx", other)
    data = PreprocessedData(str(tmp_path / "data"), str(tmp_path / "recipe.yaml"))
    found = evaluate(float_path, other_path, data)

    values = []
    for weights in (w, other):
        for steps in (sound, sound[::-1]):
            state = np.zeros(3)
            for step in steps:
                state = np.tanh(state + step @ weights)
                values.append(state)
    floats, others = np.array(values).reshape(2, -1)
    expected = 10 * np.log10((floats**2).sum() / ((floats - others) ** 2).sum())
    measured = next(output for output in found.outputs if output.name == "y")
    assert measured.difference is not None
    assert measured.difference.sqnr == pytest.approx(expected, abs=1e-3)  # float32 beside float64


def test_sequences_are_held_out_whole_and_drawn_as_samples_are() -> None:
    rng = np.random.default_rng(1)
    rows = [(int(number),) for number in rng.integers(1 << 60, size=60)]
    sequences = tuple(number // 5 for number in range(60))
    out = held_out_positions(rows, sequences)
    assert len(out) == 3 * 5  # a quarter of the 12 sequences
    assert {sequences[place] for place in out} == {number // 5 for number in out}
    assert all(5 * sequences[place] + step in out for place in out for step in range(5))
    assert held_out_positions(rows[5:], sequences[5:]) != ()


@pytest.mark.parametrize(("sequences", "held_out"), [(2, 1), (4, 1), (8, 2), (12, 3), (40, 10)])
def test_of_sequences_a_quarter_is_held_out(sequences: int, held_out: int) -> None:
    rows = [(7919 * number + 1,) for number in range(5 * sequences)]
    numbers = tuple(number // 5 for number in range(5 * sequences))
    assert len(held_out_positions(rows, numbers)) == 5 * held_out


def test_equal_sequences_are_on_one_side() -> None:
    rows = [(1,), (2,), (3,), (4,), (1,), (2,), (5,), (6,)]
    out = held_out_positions(rows, (0, 0, 1, 1, 2, 2, 3, 3))
    assert (0 in out) == (4 in out)
    assert (1 in out) == (5 in out) == (0 in out)


def test_a_model_is_fed_its_own_state_and_keeps_one_that_comes_out_empty() -> None:
    """A merged decoder gives the keys and values of its encoder in the first step alone."""
    steps = [
        Sample(f"a[{step}]", {"x": np.float32([step]), "h": np.zeros(1, np.float32)}, step=step)
        for step in (0, 1, 2)
    ]
    other = Sample("b[0]", {"x": np.float32([0]), "h": np.float32([9])}, step=0)
    taken = []

    def run(sample: Sample) -> dict[str, np.ndarray]:
        taken.append(float(sample.arrays["h"][0]))
        is_first = sample.step == 0
        return {"hn": np.float32([5 + sample.arrays["x"][0]]) if is_first else np.empty(0, np.float32)}

    assert len(list(runs_with_own_state([*steps, other], {"h": "hn"}, run))) == 4
    assert taken == [0.0, 5.0, 5.0, 9.0]
