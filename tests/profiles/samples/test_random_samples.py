"""Random samples: the same ones each time, within what the model takes."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from qprof_onnx.profiles.samples.samples import input_specs

from .opening import opened, read, refusal, spec, written

IDS = spec("ids", np.int64, ("batch", "tokens"), rows=5)
INPUTS = [spec("x", np.float32, (None, 3)), IDS, spec("mask", np.bool_, (1, 2))]


def test_random_samples_have_the_shapes_of_the_inputs_and_ids_of_the_embedding(tmp_path: Path) -> None:
    recipe = written(tmp_path, "reader: random; sizes: {tokens: 200}; low: 2; high: 3")
    (sample,) = read("random:1", INPUTS, recipe)
    assert {name: array.shape for name, array in sample.arrays.items()} == {
        "x": (1, 3),
        "ids": (1, 200),
        "mask": (1, 2),
    }
    assert set(sample.arrays["ids"].ravel()) == {0, 1, 2, 3, 4}
    assert (sample.arrays["x"] >= 2).all()
    assert sample.arrays["mask"].all()


def test_random_samples_are_the_same_each_time_in_parts_too(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        samples = opened("random:6", INPUTS)
    assert samples.total == 6
    every = {sample.name: sample.arrays["x"].tolist() for sample in samples}
    assert len({str(values) for values in every.values()}) == 6
    assert {s.name: s.arrays["x"].tolist() for s in samples.part(4)} == dict(list(every.items())[4:])
    assert "ranges and quality are meaningless" in caplog.text


@pytest.mark.parametrize(
    ("source", "recipe", "says"),
    [
        ("random:0", "reader: random", "give at least random:1"),
        ("random:1", "reader: random; sizes: {rows: 2}", "no free dimension rows; name one of batch, tokens"),
        ("random:1", "reader: random; sizes: {tokens: 0}", "sizes: {'tokens': 0} is not allowed"),
        ("random:1", "reader: random; low: 2", "low 2 is above high 1"),
        ("random:1", "reader: text", "random values, but --preprocess"),
    ],
)
def test_a_wrong_recipe_is_refused(tmp_path: Path, source: str, recipe: str, says: str) -> None:
    assert says in refusal(source, INPUTS, written(tmp_path, recipe))


def test_inputs_that_cannot_be_made_up_are_named() -> None:
    assert "input 'text'" in refusal("random:1", [spec("text", object, (1,))])
    assert "input 'x' has an unknown rank" in refusal("random:1", [spec("x", np.float32, None)])


def test_the_graph_says_how_many_rows_ids_select_from() -> None:
    model = ir.from_onnx_text(
        """<ir_version: 8, opset_import: ["" : 17]>
        agraph (int64[N] ids, int64[N] other, int64[N] axes) => (float[N, 2] y, int64[N] z)
        <float[7, 2] table = {1,2,3,4,5,6,7,8,9,10,11,12,13,14}>
        { wide = Cast<to=7>(ids)  y = Gather(table, wide)  z = Add(other, axes) }"""
    )
    assert [spec.rows for spec in input_specs(model)] == [7, None, None]
