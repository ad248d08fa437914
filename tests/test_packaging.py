"""What is installed: one import root, every package, the configurations, the type markers, the licence."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent
TOPS = ("cli", "configs", "profiles", "quantizer")
DOOR = ("quantizer", "qprof_onnx")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SETUPTOOLS = PROJECT["tool"]["setuptools"]
FALLBACK = PROJECT["tool"]["setuptools_scm"]["fallback_version"]


def package_folders() -> list[Path]:
    """Return every folder of the installed trees that holds modules or configurations."""
    inside = [folder for top in TOPS for folder in [ROOT / top, *(ROOT / top).rglob("*/")]]
    inside = [folder for folder in inside if folder.name != "__pycache__"]
    return [folder for folder in inside if any(folder.glob("*.py")) or any(folder.glob("*.yaml"))]


def dotted(folder: Path) -> str:
    """Return the name that a folder has once installed; `quantizer/qprof_onnx` is the import root itself."""
    parts = folder.relative_to(ROOT).parts
    return ".".join(["qprof_onnx", *(() if parts == DOOR else parts)])


def place_in_wheel(path: Path) -> str:
    """Return where a file lies in the wheel."""
    return f"{dotted(path.parent).replace('.', '/')}/{path.name}"


def run(*command: str | Path, cwd: Path | None = None) -> str:
    """Run a command that must succeed and return its standard output."""
    words = [str(part) for part in command]
    result = subprocess.run(words, cwd=cwd, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the source distribution from a copy, so that no build folder is left; it has no git."""
    copy, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    for name in TOPS:
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    code = f"import setuptools.build_meta as backend; backend.build_sdist({str(out)!r})"
    run(sys.executable, "-c", code, cwd=copy)
    (path,) = out.glob("*.tar.gz")
    return path


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from the source distribution."""
    out = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", out, source)
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
    assert (ROOT / "quantizer" / "qprof_onnx" / "py.typed").is_file()
    assert "py.typed" in SETUPTOOLS["package-data"]["qprof_onnx"]
    assert all("py.typed" in SETUPTOOLS["package-data"][f"qprof_onnx.{layer}"] for layer in layers)


def test_no_compiler_may_fuse_a_product_and_a_sum() -> None:
    tree = ast.parse((ROOT / "setup.py").read_text(encoding="utf-8"))
    (options,) = (
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "OPTIONS"
    )
    assert set(options) == {"unix", "mingw32", "msvc"}
    assert "/fp:precise" in options.pop("msvc")
    assert all("-ffp-contract=off" in flags for flags in options.values())


def test_the_version_is_that_of_a_tag_and_without_git_a_stated_one(source: Path) -> None:
    assert "version" in PROJECT["project"]["dynamic"]
    assert source.name == f"qprof_onnx-{FALLBACK}.tar.gz"
    assert ".git_archival.txt  export-subst" in (ROOT / ".gitattributes").read_text(encoding="utf-8")


@pytest.mark.parametrize(("described", "version"), [("", "0.1.dev0"), ("v0.3.0", "0.3.0")])
def test_an_archive_that_git_made_has_the_version_of_a_clone(
    described: str, version: str, tmp_path: Path
) -> None:
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    told = {"node": "0" * 40, "node-date": "2026-11-27T00:00:00+00:00", "describe-name": described}
    lines = (ROOT / ".git_archival.txt").read_text(encoding="utf-8").splitlines()
    assert [line.partition(": ")[0] for line in lines] == [*told]
    text = "".join(f"{key}: {value}\n" for key, value in told.items())
    (tmp_path / ".git_archival.txt").write_text(text, encoding="utf-8")
    assert run(sys.executable, "setup.py", "--version", cwd=tmp_path).split()[-1] == version


def test_the_source_distribution_holds_what_a_compiler_reads(source: Path) -> None:
    with tarfile.open(source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"profiles/observers/{name}" for name in ("_counter.c", "_channels.c", "_platform.h")} <= names
    assert "quantizer/numerics/_blocks.c" in names


@pytest.mark.slow
@pytest.mark.skipif(
    bool(sysconfig.get_config_var("Py_GIL_DISABLED")), reason="a free-threaded Python has no limited API"
)
@pytest.mark.skipif(not shutil.which("cc"), reason="no compiler here")
def test_the_wheel_has_compiled_kernels_for_every_python_without_debugging_information(wheel: Path) -> None:
    assert "-cp311-abi3-" in wheel.name
    with zipfile.ZipFile(wheel) as archive:
        modules = {
            info.filename: archive.read(info) for info in archive.infolist() if "abi3" in info.filename
        }
    assert {Path(name).name.split(".")[0] for name in modules} == {"_counter", "_channels", "_blocks"}
    assert not any(b".debug_info" in content for content in modules.values())


@pytest.mark.slow
def test_the_wheel_writes_under_one_import_root_only(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"qprof_onnx"}


@pytest.mark.slow
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


@pytest.mark.slow
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
    assert version == f"qprof {FALLBACK}"


def test_the_command_is_called_qprof() -> None:
    assert PROJECT["project"]["scripts"] == {"qprof": "qprof_onnx.cli.entry:run"}


def test_the_conda_recipe_asks_for_what_the_wheel_asks_for() -> None:
    recipe = yaml.safe_load((ROOT / ".conda" / "recipe.yaml").read_text(encoding="utf-8"))
    python, *run = recipe["requirements"]["run"]
    assert [word.replace(" ", "") for word in run] == PROJECT["project"]["dependencies"]
    assert python == "python >=${{ python_min }}"
    assert PROJECT["project"]["requires-python"] == f">={recipe['context']['python_min']}"
    host = {word.replace(" ", "") for word in recipe["requirements"]["host"]}
    assert {*PROJECT["build-system"]["requires"]} <= host
    assert recipe["build"]["python"]["entry_points"] == ["qprof = qprof_onnx.cli.entry:run"]


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


def test_the_container_is_built_from_what_the_wheel_is_made_of() -> None:
    lines = (ROOT / "Containerfile").read_text(encoding="utf-8").splitlines()
    copied = {
        word
        for line in lines
        if line.startswith("COPY ") and "--from" not in line
        for word in line.split()[1:-1]
    }
    assert copied == {*TOPS, "pyproject.toml", "setup.py", "README.md", "LICENSE"}
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert kept == copied
    assert "USER 1000" in lines
    assert 'ENTRYPOINT ["qprof"]' in lines


def test_the_container_file_passes_its_linter() -> None:
    hadolint = shutil.which("hadolint", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if hadolint is None:
        pytest.skip("needs hadolint, of the extra test-all")
    run(hadolint, ROOT / "Containerfile")


def test_a_wheel_is_built_and_tested_on_every_platform() -> None:
    settings = PROJECT["tool"]["cibuildwheel"]
    assert settings["build"] == "cp311-*"
    assert settings["test-command"].endswith("tests/platforms/check_wheel.py")
    release = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8"))
    machines = release["jobs"]["wheels"]["strategy"]["matrix"]["os"]
    assert [name.rpartition("-")[0] or name for name in machines] == [
        *("ubuntu", "ubuntu-24.04", "macos", "macos-15", "windows"),
    ]


def test_every_python_of_the_classifiers_is_tested() -> None:
    classified = [
        entry.rpartition(" ")[2]
        for entry in PROJECT["project"]["classifiers"]
        if entry.startswith("Programming Language :: Python :: 3.")
    ]
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))["jobs"]
    assert jobs["test"]["strategy"]["matrix"]["python"] == classified
    assert jobs["windows"]["strategy"]["matrix"]["python"] == classified
    assert PROJECT["project"]["requires-python"] == f">={classified[0]}"
