"""No command writes over what it reads, under whatever name; and outputs that are no regular files."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from .running import qprof

SETTINGS = ["m.onnx", "--profile", "p.yaml", "--config", "c.yaml"]
TUNE = ["tune", *SETTINGS, "--data", "cal", "--labels", "labels.txt", "--metric", "scores:score"]
WEIGHTED = ("m.onnx", "m.weights")
CASES: list[tuple[list[str], list[str], tuple[str, ...]]] = [
    (["dump-profile", "m.onnx", "--data", "cal"], ["-o"], (*WEIGHTED, "cal/00.npz")),
    (["dump-profile", "m.onnx", "--data", "cal"], ["-o"], ("cal/new.npz", "linked.npz")),
    (["dump-profile", "m.onnx", "--data", "scores:feeds"], ["-o"], ("scores.py",)),
    (
        ["quantize", *SETTINGS, "--data", "cal"],
        ["-o", "--save-plan"],
        (*WEIGHTED, "p.yaml", "c.yaml", "cal/00.npz"),
    ),
    (
        [*TUNE, "--holdout-data", "held"],
        ["--save-plan"],
        ("labels.txt", "held/00.npz", "scores.py"),
    ),
]
ALL = [(command, option, path) for command, options, paths in CASES for option in options for path in paths]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder, the current one, with an input of every kind: a refusal comes before any is read."""
    monkeypatch.chdir(tmp_path)
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> net (float[N, 8] x) => (float[N, 8] y) { y = MatMul(x, w) }'
    )
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((8, 8), np.float32), "w"))
    onnx.save_model(proto, "m.onnx", save_as_external_data=True, location="m.weights", size_threshold=0)
    for name in ("cal/00.npz", "held/00.npz", "linked.npz"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(b"sample")
    Path("cal/01.npz").symlink_to("../linked.npz")
    for name in ("p.yaml", "c.yaml", "labels.txt", "held.txt", "scores.py"):
        Path(name).write_text("x\n")
    return tmp_path


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("command", "option", "path"), ALL, ids=[f"{command[0]} {option} {path}" for command, option, path in ALL]
)
def test_an_output_over_an_input_is_refused(folder: Path, command: list[str], option: str, path: str) -> None:
    before = contents(folder)
    others = ["-o", "unused.out"] if command[0] == "quantize" and option != "-o" else []
    done = qprof(*command, *others, option, path)
    assert (done.exit_code, contents(folder)) == (2, before)
    assert "which this command reads; choose another name" in done.stderr


@pytest.mark.parametrize("name", ["./m.onnx", "sub/../m.onnx", "ABSOLUTE", "link.onnx", "here/m.onnx"])
def test_an_input_is_recognised_under_other_names(folder: Path, name: str) -> None:
    (folder / "sub").mkdir()
    (folder / "link.onnx").symlink_to("m.onnx")
    (folder / "here").symlink_to(folder, target_is_directory=True)
    done = qprof("instrument", "m.onnx", "-o", folder / "m.onnx" if name == "ABSOLUTE" else name)
    assert done.exit_code == 2
    assert "is the model, which this command reads" in done.stderr


def test_a_hard_link_to_an_input_is_another_file(folder: Path) -> None:
    before = (folder / "m.onnx").read_bytes()
    (folder / "other.onnx").hardlink_to(folder / "m.onnx")
    assert qprof("instrument", "m.onnx", "-o", "other.onnx").exit_code == 0
    assert (folder / "m.onnx").read_bytes() == before != (folder / "other.onnx").read_bytes()


def test_two_outputs_in_one_file_are_refused(folder: Path) -> None:
    done = qprof("quantize", "m.onnx", "--as", "int8-dynamic", "-o", "q.onnx", "--save-plan", "./q.onnx")
    assert done.exit_code == 2
    assert "is another output of this command already" in done.stderr


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("loop.onnx", "loop.onnx: is a link that leads to itself; choose another output"),
        ("new/", "new/: ends in a slash, as the name of a folder; name a file to write"),
        ("cal", "cal: is a folder; name a file to write"),
        ("m.onnx/q.onnx", "m.onnx' is a file, and no folder; choose another name"),
        ("n" * 256, "File name too long; choose another output"),
        ("", "output: its name is empty; name a file to write"),
    ],
)
def test_what_can_be_no_file_is_refused_in_a_sentence(folder: Path, name: str, sentence: str) -> None:
    (folder / "loop.onnx").symlink_to("loop.onnx")
    done = qprof("instrument", "m.onnx", "-o", name)
    assert done.exit_code == 2
    assert done.stderr.startswith("error: ")
    assert done.stderr.endswith(f"{sentence}\n")


def test_the_folder_of_an_output_is_made(folder: Path) -> None:
    done = qprof("quantize", "m.onnx", "--as", "int8-dynamic", "-o", "new/deep/q.onnx", "--save-plan", "p/q")
    assert done.exit_code == 0, done.stderr
    assert (folder / "new/deep/q.onnx").is_file()
    assert (folder / "p/q").is_file()


def test_a_file_in_the_place_of_the_folder_is_left_alone(folder: Path) -> None:
    Path("q.qprof").write_text("mine")
    before = contents(folder)
    done = qprof("quantize", "m.onnx", "--as", "int8-dynamic", "-o", "q.onnx")
    assert (done.exit_code, contents(folder)) == (2, before)
    assert done.stderr.endswith("q.qprof' is a file, and no folder; choose another name\n")


def test_a_command_that_fails_leaves_no_folder_behind(folder: Path) -> None:
    (folder / "empty").mkdir()
    for words in (("--data", "empty"), ("--as", "int8-dynamic", "--keep-float", "nothing")):
        assert qprof("quantize", "m.onnx", *words, "-o", "new/deep/q.onnx").exit_code == 2
        assert not (folder / "new").exists()


def test_a_name_that_is_not_utf_8_is_written_and_shown_escaped(folder: Path) -> None:
    name = os.fsdecode(b"\xff.onnx")
    done = qprof("quantize", "m.onnx", "--as", "int8-dynamic", "-o", name)
    assert done.exit_code == 0
    assert done.stdout.startswith("written   \\xff.onnx\n")
    assert os.path.isfile(name)
    again = qprof("instrument", name, "-o", "out.onnx")
    assert (again.exit_code, again.stderr) == (
        2,
        "error: \\xff.onnx: its name is not UTF-8, and onnx cannot open it; rename it\n",
    )


def test_a_model_is_written_through_a_link(folder: Path) -> None:
    (folder / "store").mkdir()
    (folder / "store/real.onnx").write_bytes(b"\x08old")
    (folder / "q.onnx").symlink_to("store/real.onnx")
    assert qprof("quantize", "m.onnx", "--as", "int8-dynamic", "-o", "q.onnx").exit_code == 0
    assert (folder / "q.onnx").is_symlink()
    assert onnx.load(folder / "store/real.onnx").graph.node
    assert os.listdir(folder / "store") == ["real.onnx"]


def test_a_plan_that_cannot_be_written_leaves_no_model(folder: Path) -> None:
    Path("q.onnx").write_bytes(b"\x08old")
    before = contents(folder)
    plan = "p" * 300
    done = qprof("quantize", "m.onnx", "--as", "int8-dynamic", "-o", "q.onnx", "--save-plan", plan)
    assert (done.exit_code, contents(folder)) == (2, before)
