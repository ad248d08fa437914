"""Workflows: what linters say of them, and two nights of those in examples/ci, on examples/digits."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

ROOT = Path(__file__).parent.parent
DIGITS = ROOT / "examples" / "digits"
GITHUB = ROOT / "examples" / "ci" / "github-actions.yml"
GITLAB = ROOT / "examples" / "ci" / "gitlab-ci.yml"
WORKFLOWS = [GITHUB, *sorted((ROOT / ".github" / "workflows").glob("*.yml"))]
SCRIPTS = [
    ROOT / ".ci" / "run",
    ROOT / "examples" / "ci" / "nightly.sh",
    ROOT / "tests" / "platforms" / "aarch64.sh",
]
BASH = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c"]
"""How GitHub runs a step whose shell is bash; GitLab's runner sets the same options."""


def github_steps(path: Path) -> list[dict[str, Any]]:
    """Return the steps of all jobs of a workflow."""
    jobs = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"]
    return [step for job in jobs.values() for step in job["steps"]]


def gitlab_job() -> dict[str, Any]:
    """Return the job of the GitLab example."""
    job: dict[str, Any] = yaml.safe_load(GITLAB.read_text(encoding="utf-8"))["int8"]
    return job


def command(*words: str | Path, given: str | None = None) -> str:
    """Run a command that must succeed and return its output."""
    result = subprocess.run(list(map(str, words)), input=given, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


# What a linter says


@pytest.mark.parametrize(
    ("schema", "paths"), [("vendor.github-workflows", WORKFLOWS), ("vendor.gitlab-ci", [GITLAB])]
)
def test_the_workflows_are_valid_by_the_schema_of_their_service(schema: str, paths: list[Path]) -> None:
    assert len(paths) in {1, 3}
    transform = ["--data-transform", "gitlab-ci"] if "gitlab" in schema else []
    command(sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *transform, *paths)


def test_shellcheck_has_nothing_to_say_of_scripts_and_steps(tmp_path: Path) -> None:
    pieces = [step["run"] for path in WORKFLOWS for step in github_steps(path) if "run" in step]
    pieces.append("\n".join(gitlab_job()["before_script"] + gitlab_job()["script"]))
    files = []
    for number, piece in enumerate(pieces):
        files.append(tmp_path / f"{number}.sh")
        files[-1].write_text("#!/usr/bin/env bash\nset -eo pipefail\n" + re.sub(r"\$\{\{.*?\}\}", "x", piece))
    command("shellcheck", *SCRIPTS, *files)


def test_no_step_puts_the_text_of_an_event_into_a_shell() -> None:
    """An expression in a step is pasted into the script: a branch's name could be a command."""
    for path in WORKFLOWS:
        assert not [step["run"] for step in github_steps(path) if "${{" in step.get("run", "")]


def commands(steps: list[str]) -> list[str]:
    """Return the commands of qprof in shell steps, on one line each."""
    text = (
        "\n".join(steps).replace("\\\n", " ").replace("$BASELINE", "$baseline").replace(" || failed=$?", "")
    )
    lines = [" ".join(line.split()) for line in text.splitlines()]
    return [line for line in lines if re.match(r"qprof (?!--)", line)]


def test_both_examples_give_the_same_commands() -> None:
    github = commands([step["run"] for step in github_steps(GITHUB) if "run" in step])
    assert github == commands(gitlab_job()["script"])
    assert [line.split()[1] for line in github] == ["dump-profile", "quantize", "evaluate", "diff"]


# What they do


@dataclass
class Project:
    """A user's project, with what a service keeps from one run to the next: the folder of the cache.

    Attributes:
        folder: models/ and data/, as the examples name them.
        path: a PATH with the qprof under test.
        summary: what was written to the summary page, and `log` what was printed, of the last run.
    """

    folder: Path
    path: str
    summary: str = ""
    log: list[str] = field(default_factory=list)

    def shell(self, script: str, variables: dict[str, str]) -> int:
        """Run a step and return its exit code."""
        env = os.environ | {"PATH": self.path} | variables
        result = subprocess.run(
            [*BASH, script], cwd=self.folder, env=env, capture_output=True, text=True, check=False
        )
        self.log.append(result.stdout + result.stderr)
        return result.returncode

    def night(self, accept: bool = False) -> int:
        """Run the steps of the GitHub example as GitHub does, and return 0 where all succeed."""
        self.log.clear()
        said, kept = self.folder / "summary.md", self.folder / "github.env"
        said.write_text("")
        kept.write_text("")
        stated = yaml.safe_load(GITHUB.read_text(encoding="utf-8"))["env"]
        assert stated.pop("ACCEPT") == "${{ inputs.accept || 'false' }}"
        variables = stated | {"ACCEPT": str(accept).lower(), "GITHUB_ENV": str(kept)}
        variables |= {"GITHUB_STEP_SUMMARY": str(said)}
        failed = 0
        for step in github_steps(GITHUB):
            if step.get("name") == "Install" or "run" not in step:
                continue
            condition = step.get("if", "success()")
            wanted = not failed or "!cancelled()" in condition
            if wanted and not ("env.BASELINE" in condition and not variables.get("BASELINE")):
                failed = self.shell(step["run"], variables) or failed
            variables |= dict(line.split("=", 1) for line in kept.read_text().splitlines())
        self.summary = said.read_text()
        return failed


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Return a project of examples/digits."""
    folder, programs = tmp_path / "project", tmp_path / "bin"
    for name in (folder / "models", folder / "data", programs):
        name.mkdir(parents=True)
    (folder / "models" / "model.onnx").symlink_to(DIGITS / "model.onnx")
    for name in ("calibration", "heldout"):
        (folder / "data" / name).symlink_to(DIGITS / name)
    code = "from qprof_onnx.cli.entry import run; run()"
    (programs / "qprof").write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{code}" "$@"\n')
    (programs / "qprof").chmod(0o755)
    return Project(folder, f"{programs}{os.pathsep}{os.environ['PATH']}")


def test_the_github_example_passes_the_first_night_and_fails_one_whose_data_drifted(project: Project) -> None:
    assert project.night() == 0, project.log
    assert {"model.int8.onnx", "plan.yaml", "profile.yaml"} <= {
        path.name for path in (project.folder / "int8").iterdir()
    }
    assert "this profile is the baseline from now on\n" in project.log

    inverted = project.folder / "data" / "calibration"
    inverted.unlink()
    inverted.mkdir()
    for path in (DIGITS / "calibration").glob("*.npz"):
        np.savez(inverted / path.name, image=1 - np.load(path)["image"])
    assert project.night() == 1
    assert any("FAILED" in text for text in project.log)
    assert "logits" in project.summary


SUBSTITUTE = """\
#!/bin/bash
# Says what it was told, writes its outputs, and fails where it is told to.
echo "qprof $*" >> calls
[ "$1" = --version ] && { echo qprof 1.0; exit 0; }
for ((i = 1; i <= $#; i++)); do [ "${!i}" = -o ] && { j=$((i + 1)); echo "$1" > "${!j}"; }; done
[ "$1" != "$FAILS" ]
"""


def calls(project: Project) -> list[str]:
    """Return which commands of qprof ran since the last look."""
    path = project.folder / "calls"
    said = [line.split()[1] for line in path.read_text().splitlines()]
    path.unlink()
    return [name for name in said if name != "--version"]


def gitlab(project: Project, **variables: str) -> int:
    """Run the GitLab job without its installation."""
    stated = {name: str(value) for name, value in gitlab_job()["variables"].items()}
    return project.shell("\n".join(gitlab_job()["script"]), stated | variables)


def test_the_gitlab_example_profiles_once_for_a_model_and_its_data(project: Project, tmp_path: Path) -> None:
    (tmp_path / "bin" / "qprof").write_text(SUBSTITUTE)
    assert gitlab(project) == 0, project.log
    assert calls(project) == ["dump-profile", "quantize", "evaluate"]
    assert gitlab(project) == 0
    assert calls(project) == ["quantize", "evaluate", "diff"]

    data = project.folder / "data" / "calibration"
    data.unlink()
    data.mkdir()
    (data / "new.npz").write_bytes(b"new")
    assert gitlab(project) == 0
    assert calls(project) == ["dump-profile", "quantize", "evaluate", "diff"]
    assert len(list((project.folder / ".qprof").glob("qprof-*.yaml"))) == 1


@pytest.mark.parametrize("gate", ["evaluate", "diff"])
def test_a_gate_of_the_gitlab_example_fails_until_the_profile_is_accepted(
    project: Project, tmp_path: Path, gate: str
) -> None:
    (tmp_path / "bin" / "qprof").write_text(SUBSTITUTE)
    assert gitlab(project) == 0
    (baseline,) = (project.folder / ".qprof").glob("baseline-*.yaml")
    baseline.write_text("of the night before")
    calls(project)
    assert gitlab(project, FAILS=gate) == 1
    assert calls(project) == ["quantize", "evaluate", "diff"]
    assert baseline.read_text() == "of the night before"
    assert gitlab(project, ACCEPT="true", FAILS="diff") == 0
    assert baseline.read_text() == "dump-profile\n"
