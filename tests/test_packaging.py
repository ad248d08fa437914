"""What is installed: one import root, every package, the configurations, the type markers, the licence."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TOPS = ("cli", "configs", "profiles", "quantizer")
DOOR = ("quantizer", "api")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SETUPTOOLS = PROJECT["tool"]["setuptools"]


def package_folders() -> list[Path]:
    """Return every folder of the installed trees that holds modules or configurations."""
    inside = [folder for top in TOPS for folder in [ROOT / top, *(ROOT / top).rglob("*/")]]
    inside = [folder for folder in inside if folder.name != "__pycache__"]
    return [folder for folder in inside if any(folder.glob("*.py")) or any(folder.glob("*.yaml"))]


def dotted(folder: Path) -> str:
    """Return the name that a folder has once installed; `quantizer/api` is the import root itself."""
    parts = folder.relative_to(ROOT).parts
    return ".".join(["qprof_onnx", *(() if parts == DOOR else parts)])


def place_in_wheel(path: Path) -> str:
    """Return where a file lies in the wheel."""
    return f"{dotted(path.parent).replace('.', '/')}/{path.name}"


def run(*command: str | Path) -> str:
    """Run a command that must succeed and return its standard output."""
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from a copy, so that no build folder is left in the checkout."""
    copy, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in TOPS:
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", out, copy)
    (path,) = out.glob("*.whl")
    return path


def test_the_list_of_packages_is_the_list_of_folders() -> None:
    assert sorted(SETUPTOOLS["packages"]) == sorted(map(dotted, package_folders()))


def test_every_package_is_found_through_the_nearest_folder_that_is_mapped() -> None:
    mapped = SETUPTOOLS["package-dir"]
    for folder in package_folders():
        name = dotted(folder)
        nearest = max((key for key in mapped if f"{name}.".startswith(f"{key}.")), key=len)
        rest = name.removeprefix(nearest).strip(".").split(".")
        assert ROOT.joinpath(mapped[nearest], *filter(None, rest)) == folder


def test_every_layer_is_marked_as_typed() -> None:
    layers = [top for top in TOPS if top != "configs"]
    assert all((ROOT / layer / "py.typed").is_file() for layer in layers)
    assert (ROOT / "quantizer" / "api" / "py.typed").is_file()
    assert "py.typed" in SETUPTOOLS["package-data"]["qprof_onnx"]
    assert all("py.typed" in SETUPTOOLS["package-data"][f"qprof_onnx.{layer}"] for layer in layers)


def test_no_compiler_may_fuse_a_product_and_a_sum() -> None:
    modules = SETUPTOOLS["ext-modules"]
    assert modules
    assert all("-ffp-contract=off" in module["extra-compile-args"] for module in modules)


def test_the_wheel_writes_under_one_import_root_only(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"qprof_onnx"}


def test_the_wheel_holds_every_file_that_is_needed_at_run_time(wheel: Path) -> None:
    wanted = {
        place_in_wheel(path)
        for folder in package_folders()
        for path in folder.iterdir()
        if path.suffix in {".py", ".pyi", ".yaml"} or path.name == "py.typed"
    }
    names = set(zipfile.ZipFile(wheel).namelist())
    assert wanted <= names
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_the_installed_wheel_runs_and_finds_its_configurations(wheel: Path, tmp_path: Path) -> None:
    run(sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", tmp_path, wheel)
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from qprof_onnx.cli import main\n"
        "from qprof_onnx.quantizer.targets.packaged import target_names\n"
        "print(main.__file__)\nprint(*target_names())\n"
        "main.main(['--version'], prog_name='qprof')"
    )
    place, targets, version = run(sys.executable, "-I", "-c", code).splitlines()
    assert Path(place).is_relative_to(tmp_path)
    assert targets.split() == sorted(path.stem for path in (ROOT / "configs").glob("*.yaml"))
    assert version == f"qprof {PROJECT['project']['version']}"


def test_the_command_is_called_qprof() -> None:
    assert PROJECT["project"]["scripts"] == {"qprof": "qprof_onnx.cli.entry:run"}


def test_the_licence_is_the_full_text() -> None:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert PROJECT["project"]["license"] == "Apache-2.0"
    assert "Apache License" in text
    assert "9. Accepting Warranty or Additional Liability" in text


def test_ci_runs_the_test_command_of_the_readme() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "<!-- command: test -->" in script
    assert readme.count("<!-- command: test -->\n```sh\n") == 1
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111
