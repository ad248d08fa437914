"""Models whose loss decibels over all elements hide are not called good."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
import qprof_onnx as qprof
from onnx import numpy_helper, parser
from qprof_onnx.profiles.base.findings import Code

COLUMNS, WIDTH, LETTERS, TAGS, LONGEST = 12, 128, 30, 6, 20
PLAIN: dict[str, Any] = {
    "latency": False,
    "budget": 0.0,
    "cost_model": "off",
    "check_outputs": "off",
    "equalization": "off",
    "bias_correction": "off",
}
"""The first plan, as it comes: what is judged here is the verdict."""

Arrays = dict[str, npt.NDArray[Any]]


def written(text: str, constants: Arrays, file: Path) -> Path:
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}')
    for name, array in constants.items():
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    onnx.save(model, file)
    return file


def emulator(file: Path, last: str) -> Path:
    """Write a perceptron whose outputs are five decades apart."""
    rng = np.random.default_rng(3)

    def weight(rows: int, columns: int) -> npt.NDArray[np.float32]:
        return (rng.normal(size=(rows, columns)) * np.sqrt(2.0 / rows)).astype(np.float32)

    constants = {
        "w1": weight(6, WIDTH),
        "w2": weight(WIDTH, WIDTH),
        "w3": weight(WIDTH, COLUMNS),
        "spread": np.full(COLUMNS, 0.3, np.float32),
        "decade": np.linspace(-3.0, 2.0, COLUMNS).astype(np.float32),
        "ten": np.float32(10.0)[None],
    }
    body = (
        "a = MatMul (x, w1) b = Relu (a) c = MatMul (b, w2) d = Relu (c) e = MatMul (d, w3)"
        f" f = Mul (e, spread) g = Add (f, decade) {last}"
    )
    return written(f"g (float[N, 6] x) => (float[N, {COLUMNS}] y) {{ {body} }}", constants, file)


def tagger(file: Path) -> Path:
    """Write convolutions over letters that give each a tag, and padding the first one."""
    rng = np.random.default_rng(1)
    table = rng.normal(size=(LETTERS, 32)).astype(np.float32)
    table[0], table[:, 0], table[0, 0] = 0.0, 0.0, 4.0
    constants: Arrays = {"table": table}
    body = ["e = Gather (table, ids) x0 = Transpose <perm = [0, 2, 1]> (e)"]
    for layer in range(3):
        weight = rng.normal(size=(32, 32, 3)) * np.sqrt(2.0 / 96.0)
        weight[0], weight[1:, 0], weight[0, 0, 1] = 0.0, 0.0, 1.0
        constants[f"w{layer}"] = weight.astype(np.float32)
        body.append(f"c{layer} = Conv <pads = [1, 1]> (x{layer}, w{layer}) x{layer + 1} = Relu (c{layer})")
    last = rng.normal(size=(TAGS, 32, 1)) * 1.5
    last[:, 0], last[0, 0] = 0.0, 10.0
    constants["wl"] = last.astype(np.float32)
    body.append("l = Conv (x3, wl) t = Transpose <perm = [0, 2, 1]> (l) y = Softmax <axis = -1> (t)")
    return written(f"g (int64[N, T] ids) => (float[N, T, {TAGS}] y) {{ {' '.join(body)} }}", constants, file)


def words(seed: int) -> npt.NDArray[np.int64]:
    """Return a batch of words, filled up with 0."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(3, LONGEST + 1, (32, 1))
    return np.where(np.arange(LONGEST)[None] < lengths, rng.integers(1, LETTERS, (32, LONGEST)), 0)


def verdict(model: Path, samples: list[Arrays], **settings: Any) -> qprof.Verdict:
    found = qprof.quantize(model, None, model.with_suffix(".q.onnx"), data=samples, **{**PLAIN, **settings})
    assert found.verdict is not None
    return found.verdict


@pytest.mark.parametrize(
    ("last", "names"),
    [
        ("y = Pow (ten, g)", ("Pow_y",)),
        ("y = Exp (g)", ("Exp_y",)),
        ("h = Exp (g) y = Mul (h, ten)", ("Exp_h", "Mul_y")),
    ],
)
def test_an_emulator_of_magnitudes_is_judged_by_relative_errors_of_its_columns(
    last: str, names: tuple[str, ...], tmp_path: Path
) -> None:
    rng = np.random.default_rng(5)
    samples = [{"x": rng.normal(size=(16, 6)).astype(np.float32)} for _ in range(16)]
    model = emulator(tmp_path / "m.onnx", last)
    found = verdict(model, samples, keep_float=names)
    assert found.grade != "good"
    assert "typical error" in found.sentence
    assert "worst column" in found.sentence
    assert "(limit 2.0 % and 10 %)" in found.sentence
    tolerant = verdict(model, samples, keep_float=names, tolerance=0.2, target="auto")
    assert tolerant.grade == "good"  # on any processor: the default target saturates without VNNI


def test_a_tagger_is_judged_by_words_and_padding_counts_for_nothing(tmp_path: Path) -> None:
    found = verdict(tagger(tmp_path / "m.onnx"), [{"ids": words(seed)} for seed in range(40)])
    (output,) = found.outputs
    assert output.answers is not None
    assert output.sequences is not None
    assert output.sequences.ratio < output.answers.ratio < 1.0
    assert found.grade != "good"
    assert " sequences the same" in found.sentence


def test_by_profile_a_tagger_is_told_to_change_whole_words(tmp_path: Path) -> None:
    model = tagger(tmp_path / "m.onnx")
    profile = qprof.profile(model, [{"ids": words(seed)} for seed in range(3)])
    found = qprof.quantize(model, profile, cost_model="off", equalization="off", bias_correction="off")
    (check,) = found.checks
    assert check.value < check.limit
    assert " sequences the same (limit 99.5 %)" in check.text
    assert "that is fair" in next(f.sentence for f in found.findings if f.code is Code.LIMIT_EXCEEDED)


def test_what_is_drawn_at_random_is_not_called_poor(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    constants = {"w": rng.normal(size=(64, 512)).astype(np.float32)}
    body = "a = MatMul (x, w) r = RandomNormalLike (a) y = Mul (a, r)"
    model = written(f"g (float[N, 64] x) => (float[N, 512] y) {{ {body} }}", constants, tmp_path / "m.onnx")
    samples = [{"x": rng.normal(size=(8, 64)).astype(np.float32)} for _ in range(16)]
    found = verdict(model, samples)
    assert found.grade == "none"
    assert "cannot be compared sample by sample, and has no decibels; judge the model by" in found.sentence
