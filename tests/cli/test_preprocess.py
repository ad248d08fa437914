"""`--preprocess`: the digits as a folder of pictures, through every command that takes data."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
import qprof_onnx as qprof
from click.testing import CliRunner, Result
from qprof_onnx.cli.main import main
from qprof_onnx.cli.options import data_option
from qprof_onnx.profiles.samples.objects import PreprocessedData
from qprof_onnx.quantizer.api import evaluate as evaluation
from qprof_onnx.quantizer.api import from_samples
from qprof_onnx.quantizer.plugins.layers import compare_layers as layers
from qprof_onnx.quantizer.plugins.tune import tune as tuning

from ..profiles.runner.dask_processes import dask_cluster, wait_for_workers
from .running import qprof as run

Image = pytest.importorskip("PIL.Image", reason="of the extra test-all")

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
MODEL = DIGITS / "model.onnx"


def ok(*arguments: str | Path) -> Result:
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the digits as pictures of 16 grey values, and their recipe."""
    folder = tmp_path_factory.mktemp("pictures")
    (folder / "photos").mkdir()
    (folder / "arrays").mkdir()
    for file in sorted((DIGITS / "calibration").glob("*.npz"))[:4]:
        shutil.copy(file, folder / "arrays")
        for row, digit in enumerate(np.load(file)["image"][:, 0]):
            pixels = np.rint(digit * 16).astype(np.uint8)
            Image.fromarray(pixels).save(folder / "photos" / f"{file.stem}-{row}.png")
    (folder / "recipe.yaml").write_text("reader: image\nscale: 1/16\n")
    return folder


@pytest.fixture(scope="module")
def given(folder: Path) -> tuple[str, ...]:
    return ("--data", str(folder / "photos"), "--preprocess", str(folder / "recipe.yaml"))


@pytest.fixture(scope="module")
def profile(folder: Path, given: tuple[str, ...]) -> Path:
    ok("dump-profile", MODEL, *given, "-o", folder / "profile.yaml")
    return folder / "profile.yaml"


def test_pictures_give_the_profile_of_the_same_arrays(folder: Path, profile: Path, tmp_path: Path) -> None:
    ok("dump-profile", MODEL, "--data", folder / "arrays", "-o", tmp_path / "p.yaml")
    pictures, arrays = qprof.load_profile(profile), qprof.load_profile(tmp_path / "p.yaml")
    assert pictures.data == arrays.data
    assert list(pictures) == list(arrays)
    for name, tensor in pictures.items():
        assert (tensor.histogram, tensor.zeros) == (arrays[name].histogram, arrays[name].zeros)


def test_workers_of_a_cluster_read_the_pictures_themselves_and_what_is_made_of_them_is_noted_once(
    profile: Path, given: tuple[str, ...], tmp_path: Path
) -> None:
    with dask_cluster(2) as address:
        wait_for_workers(address, 2)
        said = ok("dump-profile", MODEL, *given, "--scheduler", address, "-o", tmp_path / "p.yaml").stderr
    assert (tmp_path / "p.yaml").read_bytes() == profile.read_bytes()
    assert said.count("note: ") == said.count("32 pictures, each as float32 (batch, 1, 8, 8)") == 1


def test_python_takes_the_recipe_too(profile: Path, folder: Path, tmp_path: Path) -> None:
    qprof.profile(MODEL, folder / "photos", tmp_path / "p.yaml", preprocess=folder / "recipe.yaml")
    assert (tmp_path / "p.yaml").read_bytes() == profile.read_bytes()


@pytest.mark.parametrize("name", ["dump-profile", "quantize", "evaluate", "compare-layers", "tune"])
def test_every_command_with_data_takes_a_recipe(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    assert {"data", "preprocess"} <= {parameter.name for parameter in command.params}


def test_a_command_gets_the_recipe_beside_its_data() -> None:
    got = {}

    @click.command
    @data_option
    @click.option("--holdout-data")
    def command(**options: Any) -> None:
        got.update(options)

    arguments = ["--data", "a", "--holdout-data", "b"]
    assert CliRunner().invoke(command, [*arguments, "--preprocess", "raw"]).exit_code == 0
    assert got == {"data": "a", "holdout_data": "b", "preprocess": "raw", "limit": None}
    assert CliRunner().invoke(command, arguments).exit_code == 0
    assert got == {"data": "a", "holdout_data": "b", "preprocess": None, "limit": None}


def test_models_are_rounded_and_evaluated_on_pictures(
    profile: Path, given: tuple[str, ...], tmp_path: Path
) -> None:
    out, some = tmp_path / "q.onnx", (*given, "--limit", "2")
    ok("quantize", MODEL, "--profile", profile, "-o", out, "--set", "rounding=gptq", *some)
    found = json.loads(ok("evaluate", MODEL, out, *some, "--no-latency", "--json").stdout)
    assert found["samples"] == 2


def test_every_function_with_data_takes_a_recipe(
    profile: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    got = []

    def stand_in(*arguments: Any, **options: Any) -> None:
        given = (*arguments, *options.values())
        inside = [getattr(g, name, None) for g in given for name in ("data", "holdout_data")]
        given = (*given, *inside)
        got.append(list(dict.fromkeys(g for g in given if isinstance(g, PreprocessedData))))
        raise qprof.QprofError("enough")

    for module, name in (
        (from_samples, "quantize_from_samples"),
        (evaluation, "evaluate_files"),
        (layers, "layers_of"),
        (tuning, "_search"),
    ):
        monkeypatch.setattr(module, name, stand_in)
    recipe = {"preprocess": "raw"}
    for call in (
        lambda: qprof.quantize(MODEL, profile, data="a", **recipe),
        lambda: qprof.evaluate(MODEL, MODEL, "a", **recipe),
        lambda: qprof.compare_layers(MODEL, MODEL, "a", **recipe),
        lambda: qprof.tune(MODEL, profile, "a", holdout_data="b", **recipe),
    ):
        with pytest.raises(qprof.QprofError, match="enough"):
            call()
    assert got == [[PreprocessedData("a", "raw")]] * 3 + [
        [PreprocessedData("a", "raw"), PreprocessedData("b", "raw")]
    ]


@pytest.mark.parametrize(
    "arguments", [{"data": ["no file"]}, {"data": "photos", "transform": lambda item: item}]
)
def test_a_recipe_for_objects_is_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(qprof.ConfigError, match="preprocess: is for folders and files"):
        qprof.profile(MODEL, preprocess="imagenet", **arguments)


def test_a_recipe_for_a_function_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data.py").write_text("def samples(): return []\n")
    result = run("dump-profile", MODEL, "--data", f"{tmp_path}/data.py:samples", "--preprocess", "raw")
    assert "a function gives arrays that are ready; leave preprocess raw out" in result.stderr


@pytest.mark.parametrize("over", ["recipe.yaml", "photos/00-0.png", "photos/new.jpg"])
def test_neither_the_recipe_nor_a_picture_is_written_over(
    folder: Path, given: tuple[str, ...], over: str
) -> None:
    result = run("dump-profile", MODEL, *given, "-o", folder / over)
    assert result.exit_code == 2
    assert "which this command reads; choose another name" in result.stderr
    with pytest.raises(qprof.ConfigError, match="which this command reads"):
        qprof.profile(MODEL, folder / "photos", folder / over, preprocess=folder / "recipe.yaml")


def test_a_missing_library_is_named_with_a_command_that_installs_it(
    given: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    message = run("dump-profile", MODEL, *given, "-o", "p.yaml").stderr
    assert "needs the Python package 'PIL'" in message
    assert "pip install 'pillow" in message


def test_pictures_without_a_recipe_show_the_command_to_copy(folder: Path) -> None:
    message = run("dump-profile", MODEL, "--data", folder / "photos").stderr
    assert f"--data {folder}/photos --preprocess imagenet" in message


def test_data_with_its_recipe_is_a_value() -> None:
    assert PreprocessedData("photos", "raw") == PreprocessedData("photos", "raw")
    assert len({PreprocessedData("photos"), PreprocessedData("photos")}) == 1


def test_the_folders_of_pictures_are_their_labels(
    folder: Path, given: tuple[str, ...], tmp_path: Path
) -> None:
    for number, path in enumerate(sorted((folder / "photos").iterdir())):
        (tmp_path / "classes" / str(number % 10)).mkdir(parents=True, exist_ok=True)
        shutil.copy(path, tmp_path / "classes" / str(number % 10))
    data = ("--data", tmp_path / "classes", *given[2:], "--labels", tmp_path / "classes")
    result = run("evaluate", MODEL, MODEL, *data, "--no-latency", "--json")
    assert result.exit_code == 1  # a verdict: the pictures were dealt to the folders in turn
    assert json.loads(result.stdout)["samples"] == 32
    assert "the folders are 10 classes, numbered by their names: 0 '0', 1 '1'" in result.stderr

    quick = ("--set", "budget=0", "--no-latency", "-o", tmp_path / "q.onnx")
    result = run("quantize", MODEL, *data[:-2], *quick)
    advice = f"a folder for each of the model's 10 classes; --labels {tmp_path}/classes measures the accuracy"
    assert advice in result.stderr


@pytest.mark.parametrize("word", ["imagnet", "x" * 6000])
def test_a_recipe_that_there_is_not_is_told_in_a_short_line(folder: Path, word: str) -> None:
    result = run("dump-profile", MODEL, "--data", folder / "photos", "--preprocess", word)
    assert result.exit_code == 2
    assert "no built-in recipe (imagenet, clip, yolo, raw) and no such file" in result.stderr
    assert (result.stderr.count("\n"), len(result.stderr) < 400) == (1, True)
