"""What is shown of the samples on which two models differ most."""

from __future__ import annotations

import io
import json
from base64 import b64decode
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir
import pytest
from qprof_onnx.profiles.base.errors import DataError
from qprof_onnx.profiles.base.json_values import to_jsonable
from qprof_onnx.profiles.samples.values import InputSpec, Original, OriginalPicture, Sample
from qprof_onnx.quantizer.api.from_profile import write_quantized
from qprof_onnx.quantizer.evaluation.evaluate import evaluate
from qprof_onnx.quantizer.noise.class_axes import ClassAxis
from qprof_onnx.quantizer.plugins.report.class_names import ClassNames
from qprof_onnx.quantizer.plugins.report.excerpts import (
    MAX_PICTURE_SIDE,
    Excerpt,
    Reading,
    excerpt_of,
    png,
)
from qprof_onnx.quantizer.plugins.report.worst_samples import WorstSamples
from qprof_onnx.quantizer.targets.loading import load_recipe

DIGITS = Path(__file__).parents[4] / "examples" / "digits"
CLASSES = ClassAxis(axis=-1, is_answer=True)
SCORES = np.array([[0.1, 0.9, 0.0], [0.6, 0.3, 0.1]], np.float32)
CHANGED = np.array([[0.1, 0.8, 0.1], [0.3, 0.6, 0.1]], np.float32)


def excerpt(array: npt.NDArray[Any], classes: ClassAxis = CLASSES) -> Excerpt:
    """Return the excerpt of a sample of two rows whose second row changes its class."""
    spec = InputSpec("x", array.dtype, ("rows", *array.shape[1:]))
    return excerpt_of(Sample("a.npz", {"x": array}), [spec], "y", (SCORES, CHANGED), classes)


def test_a_text_is_shown_as_it_was_and_integers_as_integers() -> None:
    ids = np.array([[101, 22530], [102, 22531]])
    assert excerpt(ids).text == "102 22531"
    spec, values = InputSpec("x", ids.dtype, ("rows", 2)), (SCORES, CHANGED)
    originals = (Original("x", "a first text"), Original("x", "another one"))
    sample = Sample("a.txt:1", {"x": ids}, originals=originals)
    assert excerpt_of(sample, [spec], "y", values, CLASSES).text == "another one"


def test_the_row_that_differs_most_is_shown_with_both_classes() -> None:
    found = excerpt(np.array([[1, 2], [3, 4]], np.float32))
    assert (found.float_answer, found.quantized_answer) == ("class 0 (0.6)", "class 1 (0.6)")
    assert found.changed
    assert (found.sample, found.row, found.output) == ("a.npz", 1, "y")
    assert (found.input, found.text) == ("x", "3 4")


def test_an_output_without_classes_says_the_value_that_differs_most() -> None:
    found = excerpt(np.zeros((2, 3), np.float32), ClassAxis())
    assert (found.float_answer, found.quantized_answer) == ("0.6 at [1, 0]", "0.3 at [1, 0]")
    assert not found.changed


def test_a_class_has_its_name_and_the_truth_is_told() -> None:
    model = onnx_ir.Model(onnx_ir.Graph([], [], nodes=[]), ir_version=10)
    spec = InputSpec("x", np.dtype(np.float32), ("rows", 2))
    sample = Sample("a", {"x": np.zeros((2, 2), np.float32)})
    reading = Reading(ClassNames(model, ("a", "b", "c")))
    found = excerpt_of(sample, [spec], "y", (SCORES, CHANGED), CLASSES, reading=reading, true_classes=[1, 0])
    assert (found.float_answer, found.quantized_answer, found.truth) == ("a (0.6)", "b (0.6)", "a")


def test_a_row_whose_class_changes_is_shown_before_one_that_differs_more() -> None:
    floats = np.array([[0.51, 0.49], [9.0, 0.0]], np.float32)
    quantized = np.array([[0.49, 0.51], [5.0, 0.0]], np.float32)
    spec = InputSpec("x", np.dtype(np.float32), ("rows", 2))
    sample = Sample("a", {"x": np.zeros((2, 2), np.float32)})
    assert excerpt_of(sample, [spec], "y", (floats, quantized), CLASSES).row == 0


def test_answers_of_pixels_are_counted() -> None:
    floats = np.zeros((1, 2, 4, 4), np.float32)
    floats[:, 1] = 0.5
    quantized = floats.copy()
    quantized[0, 0, 2, 3] = 1.0
    spec = InputSpec("x", np.dtype(np.float32), (1, 3, 8, 8))
    sample = Sample("a", {"x": np.zeros((1, 3, 8, 8), np.float32)})
    found = excerpt_of(sample, [spec], "y", (floats, quantized), ClassAxis(axis=1, is_answer=True))
    assert found.share == "1 of 16 answers changed"


def test_token_ids_are_the_text_that_they_stand_for() -> None:
    ids = np.array([[5, 7]])
    sample = Sample("a.npz", {"input_ids": ids, "attention_mask": np.ones_like(ids)})
    specs = [InputSpec(name, ids.dtype, (1, 2), rows=9) for name in sample.arrays]
    values = (np.array([[0.0] * 8 + [1.0]]), np.array([[1.0] + [0.0] * 8]))
    reading = Reading(decode=lambda numbers: " ".join(f"word{number}" for number in numbers))
    found = excerpt_of(sample, specs, "y", values, CLASSES, reading=reading)
    assert (found.text, found.float_answer) == ("word5 word7", "'word8' (1)")


def test_a_picture_of_a_file_is_read_when_it_is_asked_for_and_not_before() -> None:
    asked = []

    def read(longest: int) -> OriginalPicture:
        asked.append(longest)
        return OriginalPicture(b"PNG", "image/png", (40, 30), (-8.0, 0.0, 32.0, 24.0))

    array = np.zeros((2, 3, 24, 24), np.float32)
    spec = InputSpec("x", array.dtype, ("rows", 3, 24, 24))
    sample = Sample("a", {"x": array}, originals=(Original("x", picture=read),) * 2)
    found = excerpt_of(sample, [spec], "y", (SCORES, CHANGED), CLASSES)
    assert (found.picture, asked) == ("", [])
    shown = found.with_picture
    assert b64decode(shown.picture) == b"PNG"
    assert (shown.size, shown.frame) == ((40, 30), (-8.0, 0.0, 32.0, 24.0))


def test_a_picture_whose_file_has_gone_is_told() -> None:
    def read(longest: int) -> OriginalPicture:
        raise DataError("a.png: no such file")

    found = replace(excerpt(np.zeros((2, 3), np.float32)), original=Original("x", picture=read), text="")
    assert found.with_picture.text == "(the picture can no longer be read)"


@pytest.mark.extra
@pytest.mark.parametrize(
    ("shape", "mode", "size"),
    [
        ((2, 3, 200, 100), "RGB", (MAX_PICTURE_SIDE // 2, MAX_PICTURE_SIDE)),
        ((2, 32, 24, 3), "RGB", (24, 32)),
        ((2, 1, 8, 8), "L", (8, 8)),
        ((2, 40, 60), "L", (60, 40)),
    ],
)
def test_a_picture_is_a_png_that_another_library_reads(
    shape: tuple[int, ...], mode: str, size: tuple[int, int]
) -> None:
    pillow = pytest.importorskip("PIL.Image")
    values = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    with pillow.open(io.BytesIO(b64decode(excerpt(values).picture))) as picture:
        picture.load()
        assert (picture.mode, picture.size) == (mode, size)


@pytest.mark.extra
def test_pixels_come_back_from_a_png() -> None:
    pillow = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(1).integers(0, 256, (9, 11, 3)).astype(np.uint8)
    with pillow.open(io.BytesIO(png(pixels))) as picture:
        assert np.array_equal(np.asarray(picture), pixels)


def test_text_is_shown_before_numbers() -> None:
    arrays = {"length": np.array([[7], [8]]), "words": np.array([["one"], ["two"]], object)}
    specs = [InputSpec(name, array.dtype, ("rows", 1)) for name, array in arrays.items()]
    found = excerpt_of(Sample("a", arrays), specs, "y", (SCORES, CHANGED), CLASSES)
    assert (found.input, found.text) == ("words", "two")


def test_values_that_are_not_finite_are_drawn_and_named() -> None:
    broken = CHANGED.copy()
    broken[0, 2] = np.nan
    picture = np.full((2, 1, 8, 8), np.inf, np.float32)
    spec = InputSpec("x", picture.dtype, ("rows", 1, 8, 8))
    found = excerpt_of(Sample("a", {"x": picture}), [spec], "y", (SCORES, broken), ClassAxis())
    assert found.picture
    assert found.quantized_answer == "nan at [0, 2]"


def test_an_evaluation_has_an_excerpt_of_each_of_its_worst_samples(tmp_path: Path) -> None:
    model, heldout = DIGITS / "model.onnx", str(DIGITS / "heldout")
    recipe = load_recipe(None, {"mode": "weight-only"})
    write_quantized(model, None, tmp_path / "q.onnx", recipe=recipe)
    found = evaluate(model, tmp_path / "q.onnx", heldout)
    assert [one.sample for one in found.excerpts] == [one.sample for one in found.worst_samples]
    assert all(one.picture and one.float_answer.startswith("class") for one in found.excerpts)
    assert "excerpts" not in json.dumps(to_jsonable(found))


def test_numbers_of_which_as_many_classes_have_names_are_an_answer() -> None:
    x = onnx_ir.Value(
        name="x", type=onnx_ir.TensorType(onnx_ir.DataType.FLOAT), shape=onnx_ir.Shape(["n", 2])
    )
    model = onnx_ir.Model(onnx_ir.Graph([x], [], nodes=[]), ir_version=10)
    model.metadata_props["names"] = "['a', 'b', 'c']"
    worst = WorstSamples(model, "data", {"y": ClassAxis()}, ())
    array = np.zeros((1, 2), np.float32)
    for name, quantized in (("same", [0.0, 0.5, 0.0]), ("other", [0.9, 0.89, 0.0])):
        floats = np.array([[0.89, 0.9, 0.0]], np.float32)
        worst.add(Sample(name, {"x": array}), ({"y": floats}, {"y": np.array([quantized], np.float32)}), {})
    assert [one.sample for one in worst.differences] == ["other", "same"]
    first = worst.excerpts[0]
    assert (first.float_answer, first.quantized_answer, first.changed) == ("b (0.9)", "a (0.9)", True)
