"""The core without its plug-ins: it does README's main job, and tells by name what is not installed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from qprof_onnx.cli.main import COMMANDS, PLUGIN_COMMANDS

ROOT = Path(__file__).parent.parent
PLUGINS = sorted(path.parent.name for path in (ROOT / "quantizer" / "plugins").glob("*/__init__.py"))
DIGITS = ROOT / "examples" / "digits"
MODEL = DIGITS / "model.onnx"
LABELS = DIGITS / "heldout" / "labels.txt"
MAIN_JOB = (
    ("dump-profile", MODEL, "--data", DIGITS / "calibration", "-o", "profile.yaml"),
    ("quantize", MODEL, "--profile", "profile.yaml", "-o", "digits.int8.onnx", "--save-plan", "plan.yaml"),
    (
        *("evaluate", MODEL, "digits.int8.onnx", "--data", DIGITS / "heldout", "--labels"),
        *(LABELS, "--no-latency", "--json"),
    ),
)
RUN = """
import json, sys
if sys.argv[1:]:  # an editable installation finds modules one by one
    sys.meta_path = [find for find in sys.meta_path if "editable" not in getattr(find, "__module__", "")]
from click.testing import CliRunner
from qprof_onnx.cli.main import main
for words in json.load(sys.stdin):
    result = CliRunner().invoke(main, words)
    print(json.dumps([result.exit_code, result.stdout, result.stderr]))
"""


def copied(folder: Path, *without: str) -> Path:
    """Return a folder with the package as it is installed, but without some folders of the checkout."""
    package = folder / "qprof_onnx"
    shutil.copytree(ROOT / "quantizer" / "qprof_onnx", package)
    gone = {str(ROOT / place) for place in ("quantizer/qprof_onnx", *without)}

    def left_out(parent: str, names: list[str]) -> list[str]:
        return [name for name in names if os.path.join(parent, name) in gone]

    for top in ("cli", "configs", "profiles", "quantizer"):
        shutil.copytree(ROOT / top, package / top, ignore=left_out)
    return folder


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the package without any plug-in."""
    return copied(tmp_path_factory.mktemp("core"), "quantizer/plugins")


def runs(commands: object, folder: Path, package: Path | None = None) -> list[tuple[int, str, str]]:
    """Return exit code, stdout and stderr of commands that are run in a folder, in one process.

    Args:
        commands: the words of each.
        folder: where they are run.
        package: parent of the package that is imported; None for the one that is tested.
    """
    where = {} if package is None else {"PYTHONPATH": str(package)}
    result = subprocess.run(
        [sys.executable, "-c", RUN, *where],
        input=json.dumps(commands, default=str),
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
        env=os.environ | where,
    )
    return [tuple(json.loads(line)) for line in result.stdout.splitlines()]


@pytest.mark.slow
def test_the_core_alone_does_the_main_job_with_the_same_bytes(core: Path, tmp_path: Path) -> None:
    whole, alone = tmp_path / "whole", tmp_path / "alone"
    whole.mkdir()
    alone.mkdir()
    expected, found = runs(MAIN_JOB, whole), runs(MAIN_JOB, alone, core)
    assert [code for code, _, _ in found] == [0, 0, 0], found
    assert found[:2] == expected[:2]
    documents = [json.loads(text) for _, text, _ in (found[2], expected[2])]
    assert [len(one.pop("worst_samples")) for one in documents] == [0, 5]  # the report's plug-in keeps them
    assert documents[0] == documents[1]
    files = sorted(path.name for path in whole.iterdir())
    assert {"profile.yaml", "digits.int8.onnx", "plan.yaml"} <= set(files)
    assert files == sorted(path.name for path in alone.iterdir())
    assert not [name for name in files if (whole / name).read_bytes() != (alone / name).read_bytes()]


def refusals(folder: Path) -> dict[tuple[object, ...], str]:
    """Return what needs a plug-in, and what the core says about it."""
    for name in ("a.wav", "a.csv", "a.txt"):
        (folder / name.partition(".")[2]).mkdir()
        (folder / name.partition(".")[2] / name).write_bytes(b"x")
    (folder / "calibration.cache").write_text("TRT-8601-EntropyCalibration2\nx: 3c000000\n")
    dump = ("dump-profile", MODEL, "-o", "p.yaml", "--data")
    evaluate = ("evaluate", MODEL, MODEL, "--data", DIGITS / "heldout")
    return {
        **{
            (command,): f"command '{command}' is not installed"
            for command in (
                *("report", "tune", "export", "import"),
                *("join", "verify", "diff", "instrument", "show", "compare-layers"),
            )
        },
        (*evaluate, "--report", "out"): "--report: needs the report, which is not installed",
        (*evaluate, "--card", "c.json"): "a card is not installed",
        (*evaluate, "--runtime", "openvino"): "runtime 'openvino' is not installed",
        (*evaluate, "--metric", "map50", "--labels", LABELS): "metric 'map50' is not installed",
        (*dump, "wav"): "wav: needs reader 'audio', which is not installed",
        (*dump, "csv"): "csv: needs reader 'table', which is not installed",
        (*dump, "txt"): "txt: needs reader 'text', which is not installed",
        (*dump, "s3://bucket/x"): "s3://bucket/x: needs the reader of URLs, which is not installed",
        (*dump, DIGITS / "calibration", "--format", "glow"): "needs the writer of other tools' files",
        (*dump, DIGITS / "calibration", "--scheduler", "tcp://127.0.0.1:1"): "needs the runner on a cluster",
        ("quantize", MODEL, "--profile", "calibration.cache", "-o", "q.onnx"): (
            "calibration.cache: needs the reader of other tools' files, which is not installed"
        ),
        ("quantize", MODEL, "--as", "weight-only-4", "--form", "integer", "-o", "q.onnx"): (
            "form 'integer' is not installed"
        ),
        ("quantize", MODEL, "--data", DIGITS / "calibration", "--check-speed", "-o", "q.onnx"): (
            "--check-speed: needs the check of speed, which is not installed"
        ),
        (
            "quantize",
            MODEL,
            "--data",
            DIGITS / "calibration",
            "--set",
            "float_type=float16",
            "-o",
            "q.onnx",
        ): ("float_type float16: needs the formats of numbers, which is not installed"),
        ("quantize", MODEL, "--as", "mixed", "--max-size", "9kB", "-o", "q.onnx"): (
            "fit_size: needs the formats of numbers, which is not installed"
        ),
        ("schema", "report"): "schema 'report': not one of config",
    }


def test_the_core_alone_tells_by_name_what_is_not_installed(core: Path, tmp_path: Path) -> None:
    expected = refusals(tmp_path)
    for (words, message), (code, _, error) in zip(
        expected.items(), runs(list(expected), tmp_path, core), strict=True
    ):
        assert (code, error.count("\n"), message in error) == (2, 1, True), (words, error)


def test_the_core_alone_lists_what_it_has(core: Path, tmp_path: Path) -> None:
    unknown = ("evaluate", MODEL, MODEL, "--data", DIGITS / "heldout", "--metric", "unknown")
    (_, help_text, _), (_, _, error), (_, schemas, _) = runs(
        [["--help"], unknown, ["schema"]], tmp_path, core
    )
    assert "  quantize" in help_text
    assert "  report" not in help_text
    assert "use one of top-1 (or another number), or a function of your own" in error
    assert [line.split()[0] for line in schemas.splitlines()[1:4]] == ["config", "preprocess", "plan"]
    assert "tuning" not in schemas


@pytest.mark.parametrize("plugin", PLUGINS)
def test_without_one_plugin_its_commands_alone_are_not_there(plugin: str, tmp_path: Path) -> None:
    folder = copied(tmp_path, f"quantizer/plugins/{plugin}")
    gone = {command for command, name in PLUGIN_COMMANDS.items() if name == plugin}
    found = runs([[command, "--help"] for command in COMMANDS], tmp_path, folder)
    assert {command for command, (code, _, _) in zip(COMMANDS, found, strict=True) if code} == gone
