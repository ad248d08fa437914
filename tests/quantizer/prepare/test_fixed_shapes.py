"""Inputs of fixed sizes: what depends on these alone is computed once, and the plan says which they are."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import parser
from qprof_onnx.profiles.base.errors import ConfigError, QprofError
from qprof_onnx.profiles.runner.settings import RunSettings
from qprof_onnx.profiles.samples.samples import batches_of_shape
from qprof_onnx.profiles.samples.values import InputSpec
from qprof_onnx.quantizer.api.from_profile import write_quantized
from qprof_onnx.quantizer.api.profiling import profile_model
from qprof_onnx.quantizer.prepare.prepare import (
    PreparedModel,
    fix_shapes,
    open_prepared,
)
from qprof_onnx.quantizer.targets.loading import load_recipe

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
g (float[N,3,H,W] x, float[N,8] z) => (float[N,8] y)
<float[8,3,5,5] w, float[1,8,4,4] embedding, int64[1] zero = {0}, int64[2] axes = {2, 3}>
{
    c = Conv (x, w)
    s = Shape (c)
    size = Gather (s, axes)
    one = Constant <value = int64[2] {1, 8}> ()
    target = Concat <axis = 0> (one, size)
    e = Resize <mode = "cubic"> (embedding, , , target)
    p = Add (c, e)
    m = GlobalAveragePool (p)
    batch = Gather (s, zero)
    rest = Constant <value = int64[1] {8}> ()
    flat = Concat <axis = 0> (batch, rest)
    r = Reshape (m, flat)
    y = Add (r, z)
}"""
SHAPE = "x=1x3x12x10"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A model, samples of one shape and a profile."""
    proto, rng = parser.parse_model(TEXT), np.random.default_rng(4)
    for index, node in enumerate(proto.graph.node):
        node.name = f"{node.op_type}_{index}"
    for name, shape in (("w", (8, 3, 5, 5)), ("embedding", (1, 8, 4, 4))):
        array = rng.standard_normal(shape).astype(np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    onnx.save(proto, tmp_path / "m.onnx")
    (tmp_path / "data").mkdir()
    for index in range(3):
        np.savez(tmp_path / "data" / f"{index}.npz", **sample(index))
    profile_model(tmp_path / "m.onnx", tmp_path / "data", tmp_path / "p.yaml", RunSettings())
    return tmp_path


def sample(seed: int) -> Mapping[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "x": rng.standard_normal((1, 3, 12, 10)).astype(np.float32),
        "z": rng.standard_normal((1, 8)).astype(np.float32),
    }


def fixed(folder: Path, **shapes: tuple[int, ...]) -> PreparedModel:
    return fix_shapes(open_prepared(folder / "m.onnx"), shapes)


def operators(path: Path) -> list[str]:
    return [node.op_type for node in onnx.load(path).graph.node]


def test_what_depends_on_the_sizes_is_a_constant(files: Path) -> None:
    types = [node.op_type for node in fixed(files, x=(1, 3, 12, 10)).graph.nodes]
    assert types == ["Conv", "Add", "GlobalAveragePool", "Reshape", "Add"]


def test_what_computes_sizes_is_computed_once(files: Path) -> None:
    prepared = open_prepared(files / "m.onnx")
    left = {node.name for node in fix_shapes(prepared, {"x": (1, 3, 12, 10)}).graph.nodes}
    names = [node.name for node in prepared.graph.nodes if node.name not in left]
    assert [name.split("_")[0] for name in names] == [
        "Shape",
        "Gather",
        "Concat",
        "Resize",
        "Gather",
        "Concat",
    ]


def test_a_dimension_of_the_same_name_is_fixed_too(files: Path) -> None:
    shapes = {v.name: v.shape for v in fixed(files, x=(2, 3, 12, 10)).model.graph.inputs}
    assert shapes["z"] == (2, 8)


def test_profile_and_plan_belong_to_the_model_with_any_sizes(files: Path) -> None:
    assert fixed(files, x=(1, 3, 12, 10)).identity == open_prepared(files / "m.onnx").identity


def test_the_quantized_model_has_the_shape_and_its_plan_writes_it_again(files: Path) -> None:
    recipe = load_recipe("onnxruntime-x86", {"fix_shapes": [SHAPE]})
    model, plan = files / "q.onnx", files / "plan.yaml"
    write_quantized(files / "m.onnx", files / "p.yaml", model, save_plan=plan, recipe=recipe)
    assert not {"Shape", "Resize", "Concat"} & set(operators(files / "q.onnx"))
    first = onnx.load(files / "q.onnx").graph.input[0]
    assert [dim.dim_value for dim in first.type.tensor_type.shape.dim] == [1, 3, 12, 10]
    expected = ort.InferenceSession(files / "m.onnx").run(None, sample(0))[0]
    found = ort.InferenceSession(files / "q.onnx").run(None, sample(0))[0]
    assert np.abs(found - expected).max() < 0.1  # of values from -3 to 3
    write_quantized(files / "m.onnx", None, files / "again.onnx", plan=files / "plan.yaml")
    assert (files / "again.onnx").read_bytes() == (files / "q.onnx").read_bytes()


def test_check_samples_are_joined_to_batches_of_the_size_that_is_fixed(files: Path) -> None:
    recipe = load_recipe("onnxruntime-x86", {"fix_shapes": ["x=5x3x12x10"]})
    write = partial(write_quantized, files / "m.onnx", files / "p.yaml", files / "q.onnx")
    (check,) = write(save_plan=files / "plan.yaml", recipe=recipe).checks
    assert check.samples == 3  # joined to two batches of five
    assert check.value < check.limit
    (again,) = write(plan=files / "plan.yaml").checks
    assert again == check


def test_a_model_of_a_shape_that_no_check_sample_has_is_estimated_and_says_so(files: Path) -> None:
    recipe = load_recipe("onnxruntime-x86", {"fix_shapes": ["x=1x3x12x12"]})
    result = write_quantized(files / "m.onnx", files / "p.yaml", files / "q.onnx", recipe=recipe)
    assert not result.checks
    assert any(
        "estimated, not run: no sample of the profile has the shape" in note
        for note in map(str, result.findings)
    )


def test_each_sample_is_in_a_batch_and_what_is_no_batch_stays_as_it_is() -> None:
    samples = [{"x": np.full((1, 2), n), "scale": np.ones(1)} for n in range(7)]
    specs = [InputSpec("x", np.dtype(float), (3, 2)), InputSpec("scale", np.dtype(float), (1,))]
    batches = batches_of_shape(samples, specs)
    assert [batch["x"][:, 0].tolist() for batch in batches] == [[0, 1, 2], [3, 4, 5], [6, 0, 1]]
    assert all(batch["scale"].shape == (1,) for batch in batches)
    free = [InputSpec("x", np.dtype(float), (None, 2)), specs[1]]
    assert [batch["x"][0, 0] for batch in batches_of_shape(samples, free)] == list(range(7))
    assert not batches_of_shape(samples, [InputSpec("x", np.dtype(float), (3, 4)), specs[1]])


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"a": (1,)}, "the model has no input 'a'"),
        ({"x": (1, 3, 12)}, "input 'x' has 4 dimensions, not 3"),
        ({"x": (1, 4, 12, 10)}, "a size is 3 already, not 4"),
        ({"x": (1, 3, 12, 10), "z": (2, 8)}, "a size is 1 already, not 2"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(
    files: Path, shapes: dict[str, tuple[int, ...]], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        fixed(files, **shapes)


@pytest.mark.parametrize("text", ["x", "x=", "=1x3", "x=1,3", "x=0x3", "x=1x"])
def test_a_shape_that_is_written_otherwise_is_refused(text: str) -> None:
    with pytest.raises(QprofError, match="is no input and shape"):
        load_recipe("onnxruntime-x86", {"fix_shapes": [text]})
