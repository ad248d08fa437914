"""Workflows: what linters say of them, and two nights of those in examples/ci, on examples/digits."""

from __future__ import annotations

import os
import re
import select
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from click.testing import CliRunner
from qprof_onnx.cli.main import main

ROOT = Path(__file__).parent.parent
DIGITS = ROOT / "examples" / "digits"
GITHUB = ROOT / "examples" / "ci" / "github-actions.yml"
ACTION = ROOT / "action.yml"
GITLAB = ROOT / "examples" / "ci" / "gitlab-ci.yml"
WORKFLOWS = [GITHUB, *sorted((ROOT / ".github" / "workflows").glob("*.yml"))]
SCRIPTS = [
    ROOT / ".ci" / "run",
    ROOT / "examples" / "ci" / "nightly.sh",
    ROOT / "tests" / "platforms" / "aarch64.sh",
]
needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="the examples are for Linux: GNU tools")
SHELLCHECK = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
BASH = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c"]
"""How GitHub runs a step whose shell is bash; GitLab's runner sets the same options."""


def github_steps(path: Path) -> list[dict[str, Any]]:
    """Return the steps of a composite action, or of all jobs of a workflow."""
    stated = yaml.safe_load(path.read_text(encoding="utf-8"))
    jobs = [stated["runs"]] if "runs" in stated else stated["jobs"].values()
    return [step for job in jobs for step in job["steps"]]


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
    ("schema", "paths"),
    [("github-workflows", WORKFLOWS), ("github-actions", [ACTION]), ("gitlab-ci", [GITLAB])],
    ids=["workflows", "action", "gitlab"],
)
def test_the_files_are_valid_by_the_schema_of_their_service(schema: str, paths: list[Path]) -> None:
    pytest.importorskip("check_jsonschema")
    transform = ["--data-transform", "gitlab-ci"] if schema == "gitlab-ci" else []
    schema = f"vendor.{schema}"
    command(sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *transform, *paths)


@pytest.mark.skipif(SHELLCHECK is None, reason="needs shellcheck, of the extra test-all")
def test_shellcheck_has_nothing_to_say_of_scripts_and_steps(tmp_path: Path) -> None:
    pieces = [step["run"] for path in [ACTION, *WORKFLOWS] for step in github_steps(path) if "run" in step]
    pieces.append("\n".join(gitlab_job()["before_script"] + gitlab_job()["script"]))
    files = []
    for number, piece in enumerate(pieces):
        files.append(tmp_path / f"{number}.sh")
        files[-1].write_text("#!/usr/bin/env bash\nset -eo pipefail\n" + re.sub(r"\$\{\{.*?\}\}", "x", piece))
    command(str(SHELLCHECK), *SCRIPTS, *files)


def test_no_step_puts_the_text_of_an_event_into_a_shell() -> None:
    """An expression in a step is pasted into the script: a branch's name could be a command."""
    for path in [ACTION, *WORKFLOWS]:
        assert not [step["run"] for step in github_steps(path) if "${{" in step.get("run", "")]


def commands(steps: list[str]) -> list[str]:
    """Return the commands of qprof in shell steps, on one line each."""
    text = (
        "\n".join(steps)
        .replace("\\\n", " ")
        .replace("$BASELINE", "$baseline")
        .replace("$ACCEPTED", "$accepted")
        .replace(" || failed=$?", "")
    )
    lines = [" ".join(line.split()) for line in text.splitlines()]
    return [line for line in lines if re.match(r"qprof (?!--)", line)]


def test_both_examples_give_the_same_commands() -> None:
    github = commands([step["run"] for step in github_steps(GITHUB) if "run" in step])
    assert github == commands(gitlab_job()["script"])
    assert [line.split()[1] for line in github] == ["dump-profile", "quantize", "evaluate", "verify", "diff"]


def test_every_command_that_reads_samples_is_given_how_they_are_made() -> None:
    steps = [step["run"] for path in (GITHUB, ACTION) for step in github_steps(path) if "run" in step]
    nightly = (ROOT / "examples" / "ci" / "nightly.sh").read_text(encoding="utf-8")
    reading = [line for line in commands([*steps, *gitlab_job()["script"], nightly]) if "--data" in line]
    assert len(reading) == 7
    assert all('${PREPROCESS:+--preprocess "$PREPROCESS"}' in line for line in reading)


# What they do


SUBSTITUTE = """\
#!/bin/bash
# Says what it was told, writes its outputs, and fails where it is told to.
echo "qprof $*" >> calls
[ "$1" = --version ] && { echo qprof 1.0; exit 0; }
for ((i = 1; i <= $#; i++)); do
  [[ "${!i}" = -o || "${!i}" = --card ]] && { j=$((i + 1)); echo "$1" > "${!j}"; }
done
[ "$1" != "$FAILS" ]
"""
ASKING = """\
#!/bin/bash
# Lets the test run the command: a Python that has imported everything is there already.
printf '%s\\0' "$@" > "$SERVED/request"
{ read -r code; cat; } < "$SERVED/answer"
exit "$code"
"""


def serve(process: subprocess.Popen[str], folder: Path) -> int:
    """Run the commands of qprof that a shell asks for, until it ends; return its exit code."""
    requests = os.open(folder / "request", os.O_RDWR | os.O_NONBLOCK)
    while process.poll() is None:
        if select.select([requests], [], [], 0.02)[0]:
            words = os.read(requests, 65536).decode().split("\0")[:-1]
            result = CliRunner().invoke(main, words, prog_name="qprof")
            (folder / "answer").write_text(f"{result.exit_code}\n{result.output}")
    os.close(requests)
    return process.returncode


@dataclass
class Project:
    """A user's project, with what a service keeps from one run to the next: the folder of the cache.

    Attributes:
        folder: models/ and data/, as the examples name them; the current folder.
        programs: holds the qprof that a shell finds, and the pipes through which it asks.
        summary: what was written to the summary page, and `log` what was printed, of the last run.
    """

    folder: Path
    programs: Path
    summary: str = ""
    log: list[str] = field(default_factory=list)

    def shell(self, script: str, variables: dict[str, str]) -> int:
        """Run a step and return its exit code."""
        path = f"{self.programs}{os.pathsep}{os.environ['PATH']}"
        env = os.environ | {"PATH": path, "SERVED": str(self.programs)} | variables
        with (self.programs / "log").open("w+") as log:
            process = subprocess.Popen(
                [*BASH, script], cwd=self.folder, env=env, text=True, stdout=log, stderr=log
            )
            code = serve(process, self.programs)
            log.seek(0)
            self.log.append(log.read())
        return code

    def github(self, path: Path, **inputs: str) -> int:
        """Run the steps of a workflow or action as GitHub does, and return 0 where all succeed."""
        self.log.clear()
        summary, kept, outputs = (self.folder / name for name in ("summary.md", "github.env", "github.out"))
        for file in (summary, kept, outputs):
            file.write_text("")
        stated = yaml.safe_load(path.read_text(encoding="utf-8"))
        inputs = {name: value.get("default", "") for name, value in stated.get("inputs", {}).items()} | inputs
        variables = {
            "GITHUB_ENV": str(kept),
            "GITHUB_OUTPUT": str(outputs),
            "GITHUB_STEP_SUMMARY": str(summary),
        }
        variables |= self.evaluated(stated.get("env", {}), inputs)
        failed = 0
        for step in github_steps(path):
            if step.get("name") == "Install" or "run" not in step:
                continue
            condition = step.get("if", "success()")
            wanted = not failed or "!cancelled()" in condition
            profiled = variables.get("BASELINE") or outputs.read_text()
            if wanted and (profiled or not re.search(r"env\.BASELINE|steps\.profile\.outcome", condition)):
                told = dict(line.split("=", 1) for line in outputs.read_text().splitlines())
                own = self.evaluated(step.get("env", {}), inputs, told)
                failed = self.shell(step["run"], variables | own) or failed
            variables |= dict(line.split("=", 1) for line in kept.read_text().splitlines())
        self.summary = summary.read_text()
        return failed

    @staticmethod
    def evaluated(
        stated: dict[str, str], inputs: dict[str, str], outputs: dict[str, str] | None = None
    ) -> dict[str, str]:
        """Return variables with the inputs, and the outputs of the step that profiles, that they name."""
        pattern = re.compile(r"\$\{\{ (inputs|steps\.profile\.outputs)\.(\w+)(?: \|\| '(\w+)')? \}\}")
        known = {"inputs": inputs, "steps.profile.outputs": outputs or {}}
        return {
            name: pattern.sub(lambda m: known[m[1]].get(m[2]) or m[3] or "", value)
            for name, value in stated.items()
        }


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """Return a project of examples/digits."""
    folder, programs = tmp_path / "project", tmp_path / "bin"
    for name in (folder / "models", folder / "data", programs):
        name.mkdir(parents=True)
    (folder / "models" / "model.onnx").symlink_to(DIGITS / "model.onnx")
    for name in ("calibration", "heldout"):
        (folder / "data" / name).symlink_to(DIGITS / name)
    (programs / "qprof").write_text(ASKING)
    (programs / "qprof").chmod(0o755)
    for name in ("request", "answer"):
        os.mkfifo(programs / name)
    monkeypatch.chdir(folder)
    return Project(folder, programs)


@pytest.mark.slow
@needs_linux
def test_the_github_example_passes_the_first_night_and_fails_one_whose_data_drifted(project: Project) -> None:
    assert project.github(GITHUB) == 0, project.log
    int8 = project.folder / "int8"
    assert (int8 / "model.int8.onnx").is_file()
    assert (int8 / "model.card.json").is_file()
    assert {"plan.yaml", "profile.yaml"} <= {path.name for path in (int8 / "model.int8.qprof").iterdir()}
    assert "this profile is the baseline from now on\n" in project.log
    assert any("measured on 64 calibration samples" in text for text in project.log)
    assert not list((project.folder / "int8").rglob("*.npz")), "samples are in an artifact"

    inverted = project.folder / "data" / "calibration"
    inverted.unlink()
    inverted.mkdir()
    for path in (DIGITS / "calibration").glob("*.npz"):
        np.savez(inverted / path.name, image=1 - np.load(path)["image"])
    assert project.github(GITHUB) == 1
    assert any("FAILED" in text for text in project.log)
    assert all(name in project.summary for name in ("logits", "--min-sqnr", "--max-js-distance"))
    for part in ("model.int8.qprof", "evaluate", "drift"):
        written = {path.name for path in (project.folder / "int8" / part).iterdir()}
        assert {"report.html", "report.md", "report.json", "junit.xml"} <= written


services = pytest.mark.parametrize("service", ["github", "gitlab", "action"])
ACTION_INPUTS = {"model": "models/model.onnx", "calibration": "data/calibration", "heldout": "data/heldout"}


def calls(project: Project) -> list[str]:
    """Return which commands of qprof ran since the last look."""
    path = project.folder / "calls"
    names = [line.split()[1] for line in path.read_text().splitlines()]
    path.unlink()
    return [name for name in names if name != "--version"]


def run_once(project: Project, service: str, fails: str = "", accept: str = "false") -> int:
    """Run an example, or the action, without its installation."""
    os.environ["FAILS"] = fails
    if service == "gitlab":
        stated = {name: str(value) for name, value in gitlab_job()["variables"].items()}
        return project.shell("\n".join(gitlab_job()["script"]), stated | {"ACCEPT": accept})
    if service == "github":
        return project.github(GITHUB, accept=accept)
    return project.github(ACTION, **ACTION_INPUTS, accept=accept)


@pytest.fixture
def substituted(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """Return the project with a qprof that computes nothing."""
    monkeypatch.setenv("FAILS", "")
    (project.programs / "qprof").write_text(SUBSTITUTE)
    return project


@needs_linux
@pytest.mark.parametrize(
    ("extras", "installed"), [("images", "[images]"), ("text,audio", "[text,audio]"), ("", "")]
)
def test_the_action_installs_its_own_checkout_beside_the_packages_of_the_job(
    project: Project, extras: str, installed: str
) -> None:
    environment = project.folder / "runner" / "qprof"
    (project.programs / "python3").write_text(
        '#!/bin/bash\n[ "$1" != -c ] || exit 0\necho "$*" > made; mkdir -p "$4/bin"\n'
        'printf \'#!/bin/bash\\necho "$*" > installed\' > "$4/bin/python"; chmod +x "$4/bin/python"\n'
    )
    (project.programs / "python3").chmod(0o755)
    (step,) = [step for step in github_steps(ACTION) if step.get("name") == "Install"]
    env = {
        "GITHUB_ACTION_PATH": "/actions/qprof/v1",
        "GITHUB_PATH": str(project.folder / "paths"),
        "RUNNER_TEMP": str(environment.parent),
    }
    for _ in range(2):  # the second is that of another model in the same job
        assert project.shell(step["run"], env | project.evaluated(step["env"], {"extras": extras})) == 0
    assert (project.folder / "made").read_text() == f"-m venv --system-site-packages {environment}\n"
    assert (project.folder / "installed").read_text() == f"-m pip install /actions/qprof/v1{installed}\n"
    (folder,) = {*(project.folder / "paths").read_text().splitlines()}
    commands = list(Path(folder).iterdir())
    assert [path.name for path in commands] == ["qprof"], "the job's python is replaced"
    assert commands[0].readlink() == Path("../bin/qprof")


@needs_linux
def test_the_action_says_which_python_it_needs(project: Project) -> None:
    (project.programs / "python3").write_text('#!/bin/bash\n[ "$1" != -c ] || exit 1\necho Python 3.10.12\n')
    (project.programs / "python3").chmod(0o755)
    (step,) = [step for step in github_steps(ACTION) if step.get("name") == "Install"]
    assert project.shell(step["run"], {"EXTRAS": ""}) == 1
    assert (
        "::error::qprof needs Python 3.11 or later, but Python 3.10.12 is first on the PATH"
        in project.log[-1]
    )


@pytest.mark.slow
@needs_linux
def test_the_outputs_of_the_action_are_those_of_the_written_model(project: Project) -> None:
    inputs = ACTION_INPUTS | {"labels": str(DIGITS / "heldout" / "labels.txt")}
    assert project.github(ACTION, **inputs, gates="--no-latency --min-sqnr 20") == 0, project.log
    outputs = dict(line.split("=") for line in (project.folder / "github.out").read_text().splitlines())
    size = (project.folder / outputs["model"]).stat().st_size
    assert int(outputs["size"]) == size
    assert outputs["verdict"] == "good"
    assert float(outputs["score"]) > 99
    assert outputs["speed"] == ""
    named = yaml.safe_load(ACTION.read_text(encoding="utf-8"))["outputs"]
    assert [step for step in github_steps(ACTION) if step.get("id") == "results"]
    assert set(named) <= set(outputs)


@needs_linux
def test_options_of_the_action_are_quoted_as_in_a_shell(substituted: Project) -> None:
    quantize = """--keep-float "a name with spaces" --keep-float '/head/*'"""
    (substituted.programs / "qprof").write_text(
        SUBSTITUTE.replace('echo "qprof $*"', 'printf "%s|" "$@" >> words; echo "qprof $*"')
    )
    assert substituted.github(ACTION, **ACTION_INPUTS, quantize=quantize) == 0, substituted.log
    words = (substituted.folder / "words").read_text()
    assert "|--keep-float|a name with spaces|--keep-float|/head/*|" in words
    assert "||" not in words
    assert substituted.github(ACTION, **ACTION_INPUTS, quantize='"open') != 0


@needs_linux
def test_models_of_one_job_keep_what_is_accepted_apart(substituted: Project) -> None:
    for out in ("first", "second"):
        assert substituted.github(ACTION, **ACTION_INPUTS, out=out) == 0
        assert calls(substituted) == ["dump-profile", "quantize", "evaluate"]
    assert substituted.github(ACTION, **ACTION_INPUTS, out="first") == 0
    assert calls(substituted) == ["quantize", "evaluate", "verify", "diff"]


def test_actions_of_others_are_named_by_digest() -> None:
    used = [step["uses"] for path in (ACTION, GITHUB) for step in github_steps(path) if "uses" in step]
    assert used
    assert all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", name) for name in used)


def test_the_action_is_given_inputs_that_it_has() -> None:
    inputs = yaml.safe_load(ACTION.read_text(encoding="utf-8"))["inputs"]
    given = [step["with"] for path in WORKFLOWS for step in github_steps(path) if step.get("uses") == "./"]
    header = ACTION.read_text(encoding="utf-8").partition("\nname:")[0]
    documented = re.findall(r"^#         (\w+): ", header, re.MULTILINE)
    for names in [*given, documented]:
        assert {name for name, input in inputs.items() if input.get("required")} <= set(names) <= set(inputs)


@needs_linux
def test_the_artifact_of_a_folder_in_a_folder_has_a_name_without_slashes(substituted: Project) -> None:
    assert substituted.github(ACTION, **ACTION_INPUTS, out="build/int8/first") == 0
    assert "artifact=build-int8-first\n" in (substituted.folder / "github.out").read_text()
    (upload,) = [step for step in github_steps(ACTION) if "upload-artifact" in step.get("uses", "")]
    assert upload["with"]["name"] == "${{ steps.profile.outputs.artifact }}"


def test_the_extras_that_an_installation_names_are_there() -> None:
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    known = stated["project"]["optional-dependencies"]
    action = yaml.safe_load(ACTION.read_text(encoding="utf-8"))["inputs"]["extras"]
    texts = [action["default"], (ROOT / "Containerfile").read_text(encoding="utf-8")]
    named = [*re.findall(r"EXTRAS=([a-z,]+)", texts[1]), texts[0]]
    assert {extra for text in named for extra in text.split(",")} <= set(known)
    assert all(
        extra in known
        for extra in re.findall(r"(\w+)(?=[,;])", action["description"].split(":")[1].split(" several")[0])
    )


@needs_linux
@services
def test_the_model_is_profiled_once_for_its_data(substituted: Project, service: str) -> None:
    project = substituted
    assert run_once(project, service) == 0, project.log
    assert "this card is accepted: later runs must not be worse" in "".join(project.log)
    assert calls(project) == ["dump-profile", "quantize", "evaluate"]
    (baseline,) = (project.folder / ".qprof").rglob("baseline-*.yaml")
    baseline.write_text("of the first night")
    assert run_once(project, service) == 0
    assert calls(project) == ["quantize", "evaluate", "verify", "diff"]
    assert baseline.read_text() == "of the first night"

    data = project.folder / "data" / "calibration"
    data.unlink()
    data.mkdir()
    (data / "new.npz").write_bytes(b"new")
    assert run_once(project, service) == 0
    assert calls(project) == ["dump-profile", "quantize", "evaluate", "verify", "diff"]
    assert len(list((project.folder / ".qprof").rglob("qprof-*.yaml"))) == 1


@needs_linux
def test_the_model_is_profiled_again_for_samples_that_are_made_in_another_way(substituted: Project) -> None:
    project = substituted
    recipe = project.folder / "recipe.yaml"
    for text in ("size: 224", "size: 256"):
        recipe.write_text(text)
        assert project.github(ACTION, **ACTION_INPUTS, preprocess="recipe.yaml") == 0, project.log
        lines = (project.folder / "calls").read_text().splitlines()
        reading = [line for line in lines if "--data" in line]
        assert len(reading) == 2
        assert all("--preprocess recipe.yaml" in line for line in reading)
        assert calls(project)[0] == "dump-profile"


@pytest.mark.slow
@needs_linux
@services
@pytest.mark.parametrize("gate", ["evaluate", "verify", "diff"])
def test_a_gate_that_fails_keeps_what_was_accepted_until_the_run_is_accepted(
    substituted: Project, service: str, gate: str
) -> None:
    project = substituted
    assert run_once(project, service) == 0
    (baseline,) = (project.folder / ".qprof").rglob("baseline-*.yaml")
    (accepted,) = (project.folder / ".qprof").rglob("accepted-*.card.json")
    for file in (baseline, accepted):
        file.write_text("of the night before")
    calls(project)
    assert run_once(project, service, fails=gate) == 1
    compared = [] if gate == "evaluate" else ["verify"]
    assert calls(project) == ["quantize", "evaluate", *compared, "diff"]
    assert [file.read_text() for file in (baseline, accepted)] == ["of the night before"] * 2
    assert run_once(project, service, fails="diff", accept="true") == 0
    assert [file.read_text() for file in (baseline, accepted)] == ["dump-profile\n", "evaluate\n"]


@needs_linux
@services
def test_a_command_that_cannot_run_ends_the_job(substituted: Project, service: str) -> None:
    assert run_once(substituted, service, fails="quantize") == 1
    assert "evaluate" not in calls(substituted)
    assert not list((substituted.folder / ".qprof").rglob("baseline-*.yaml"))
