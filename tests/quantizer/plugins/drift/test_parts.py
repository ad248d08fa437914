"""What `diff` says of the data themselves: columns, colours, classes, and samples to look at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import qprof_onnx as qprof
from onnx import numpy_helper, parser
from qprof_onnx.profiles.base.findings import Code

RNG = np.random.default_rng(5)
HEAD = '<ir_version: 9, opset_import: ["": 17]> g '
TABLE = HEAD + "(float[N, 3] x) => (float[N, 2] y) { y = MatMul (x, w) }"
PICTURES = HEAD + "(float[1, 3, 8, 8] x) => (float[1, 2, 6, 6] y) { y = Conv (x, w) }"


def model(text: str, *shape: int) -> onnx.ModelProto:
    made = parser.parse_model(text)
    made.graph.initializer.append(numpy_helper.from_array(RNG.normal(size=shape).astype(np.float32), "w"))
    return made


def table(folder: Path, name: str, *, factor: float = 1.0) -> Path:
    rows = RNG.normal([40, 170, 70], [10, 9, 8], (60, 3))
    rows[:, 1] *= factor
    lines = ["id,age,height,weight", *(f"{n},{a},{b},{c}" for n, (a, b, c) in enumerate(rows))]
    (folder / f"{name}.csv").write_text("\n".join(lines))
    return folder / f"{name}.csv"


def profiles(net: onnx.ModelProto, folder: Path, preprocess: str, *data: Path) -> list[qprof.Profile]:
    """Return the profiles of some data, as their files have them."""
    (folder / "recipe.yaml").write_text(preprocess)
    made = []
    for number, source in enumerate(data):
        file = folder / f"{number}.yaml"
        qprof.profile(net, source, file, preprocess=folder / "recipe.yaml")
        made.append(file)
    return made


def told(files: list[Path], code: Code) -> list[str]:
    return [finding.text for finding in qprof.diff(*files).findings if finding.code is code]


def failed(files: list[Path]) -> str:
    """Return the alarm of the limit that no part of the data may change."""
    report = qprof.diff(*files, limits=qprof.DriftLimits(max_drifted_parts=0))
    assert not report.passed
    (alarm,) = (one.text for one in report.findings if one.code is Code.GATE_FAILED)
    return alarm


def test_the_column_whose_unit_changed_is_named(tmp_path: Path) -> None:
    data = [table(tmp_path, "old"), table(tmp_path, "new", factor=0.01)]
    recipe = "reader: table\ncolumns: {x: all}\nexclude: [id]\n"
    (found,) = told(profiles(model(TABLE, 3, 2), tmp_path, recipe, *data), Code.PART_DRIFT)
    assert found.startswith("input 'x', 'height': mean 1")
    assert "look at its unit and source first" in found


def test_no_column_is_named_where_the_night_was_an_ordinary_one(tmp_path: Path) -> None:
    data = [table(tmp_path, "old"), table(tmp_path, "new")]
    files = profiles(model(TABLE, 3, 2), tmp_path, "reader: table\nexclude: [id]\n", *data)
    assert not told(files, Code.PART_DRIFT)


def test_values_with_long_tails_name_no_column_in_an_ordinary_night(tmp_path: Path) -> None:
    draw = np.random.default_rng(3)
    net, samples = model(TABLE, 3, 2), [draw.lognormal(0.0, 2.0, (20, 3)) for _ in range(2)]
    nights = [[{"x": row[None].astype(np.float32)} for row in night] for night in samples]
    assert not told([qprof.profile(net, night) for night in nights], Code.PART_DRIFT)


def test_pictures_that_differ_from_each_other_name_no_colour_in_an_ordinary_night(tmp_path: Path) -> None:
    draw, net = np.random.default_rng(4), model(PICTURES, 2, 3, 3, 3)

    def night(count: int, brightness: float = 0.0) -> list[dict[str, np.ndarray]]:
        levels = draw.normal(brightness, 1.0, (count, 1, 3, 1, 1))
        return [{"x": (level + draw.normal(0, 0.1, (1, 3, 8, 8))).astype(np.float32)} for level in levels]

    old, *ordinary = (qprof.profile(net, night(count)) for count in (32, 6, 6, 6))
    for new in ordinary:
        assert not told([old, new], Code.PART_DRIFT)
    assert told([old, qprof.profile(net, night(32, 1.8))], Code.PART_DRIFT)


def test_a_job_can_fail_because_a_column_drifted(tmp_path: Path) -> None:
    data = [table(tmp_path, "old"), table(tmp_path, "same"), table(tmp_path, "new", factor=0.01)]
    old, same, new = profiles(model(TABLE, 3, 2), tmp_path, "reader: table\nexclude: [id]\n", *data)
    limits = qprof.DriftLimits(max_drifted_parts=0)
    assert qprof.diff(old, same, limits=limits).passed
    assert failed([old, new]) == "--max-drifted-parts 0: 1: input 'x', 'height'"
    assert qprof.diff(old, new, limits=qprof.DriftLimits(max_drifted_parts=1)).passed


def test_data_without_parts_keep_a_limit_on_them(tmp_path: Path) -> None:
    net = model(HEAD + "(float[N, 1] x) => (float[N, 2] y) { y = MatMul (x, w) }", 1, 2)
    for name in ("old", "new"):
        np.savez(tmp_path / f"{name}.npz", x=RNG.normal(size=(20, 1)).astype(np.float32))
    files = [qprof.profile(net, tmp_path / f"{name}.npz") for name in ("old", "new")]
    assert qprof.diff(*files, limits=qprof.DriftLimits(max_drifted_parts=0)).passed


def test_a_limit_on_parts_that_one_profile_alone_has_is_not_proven(tmp_path: Path) -> None:
    recipe = "reader: table\nexclude: [id]\n"
    files = profiles(model(TABLE, 3, 2), tmp_path, recipe, *(table(tmp_path, n) for n in ("old", "new")))
    old, new = map(qprof.load_profile, files)
    inputs = {n: replace(i, tensor=replace(i.tensor, channels=None)) for n, i in new.inputs.items()}
    report = qprof.diff(old, replace(new, inputs=inputs), limits=qprof.DriftLimits(max_drifted_parts=0))
    assert [one.code for one in report.findings if one.code is Code.GATE_NOT_PROVEN]
    assert not report.passed


def pictures(folder: Path, shares: Mapping[str, int], *, colour: int | None = None) -> Path:
    image = pytest.importorskip("PIL.Image", reason="of the extra test-all")
    for name, count in shares.items():
        (folder / name).mkdir(parents=True)
        for number in range(count):
            pixels = RNG.integers(100, 150, (8, 8, 3)).astype(np.uint8)
            if colour is not None:
                pixels[..., colour] //= 4
            image.fromarray(pixels).save(folder / name / f"{number}.png")
    return folder


def test_the_class_of_pictures_whose_share_changed_is_named(tmp_path: Path) -> None:
    data = [
        pictures(tmp_path / "old", {"cat": 30, "dog": 30}),
        pictures(tmp_path / "new", {"cat": 55, "dog": 5}),
    ]
    files = profiles(model(PICTURES, 2, 3, 3, 3), tmp_path, "reader: image\nresize: exact\n", *data)
    found = told(files, Code.PART_DRIFT)
    assert found[0].startswith("folder 'cat': 50 % of the samples in OLD, 91.7 % in NEW")
    assert failed(files) == "--max-drifted-parts 0: 2: folder 'cat'; folder 'dog'"
    assert all(one.startswith("folder ") for one in found)


def test_the_colour_that_darkened_is_named(tmp_path: Path) -> None:
    data = [pictures(tmp_path / "old", {"a": 8}), pictures(tmp_path / "new", {"a": 8}, colour=2)]
    files = profiles(model(PICTURES, 2, 3, 3, 3), tmp_path, "reader: image\nresize: exact\n", *data)
    (found,) = told(files, Code.PART_DRIFT)
    assert found.startswith("input 'x', 'blue': mean ")


def test_profiles_of_parts_of_the_data_merge_to_that_of_all(tmp_path: Path) -> None:
    whole = pictures(tmp_path / "all", {"cat": 6, "dog": 3})
    recipe = "reader: image\nresize: exact\n"
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).symlink_to(whole / name)
    files = profiles(model(PICTURES, 2, 3, 3, 3), tmp_path, recipe, whole, tmp_path / "cat", tmp_path / "dog")
    merged = qprof.merge(files[1:])
    assert merged.folders == qprof.load_profile(files[0]).folders == {"cat": 6, "dog": 3}
    assert merged.inputs == qprof.load_profile(files[0]).inputs
