"""The documentation site: it builds without a warning, and its blocks of code do what the pages tell."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import click
import jsonschema
import pytest
import yaml
from qprof_onnx.cli.main import COMMANDS, main
from qprof_onnx.cli.schemas import schema_of
from qprof_onnx.quantizer.api import from_samples
from qprof_onnx.quantizer.evaluation import evaluate
from qprof_onnx.quantizer.evaluation.latency import Latency, LatencySettings, Run, measure
from qprof_onnx.quantizer.plugins.tune import speed_check, trial
from qprof_onnx.quantizer.search.verdict import Verdict
from qprof_onnx.quantizer.targets import target
from qprof_onnx.quantizer.targets.cost_table import costs_of

from .consoles import ROOT, blocks, files, is_same_line, missing, run, steps

DOCS = ROOT / "docs"
specification = spec_from_file_location("printed", DOCS / "printed.py")
assert specification is not None
assert specification.loader is not None
printers = module_from_spec(specification)
specification.loader.exec_module(printers)
printers.make_api()

PAGES = sorted(DOCS.rglob("*.md"))
EXECUTED = [page for page in PAGES if steps(page.read_text(encoding="utf-8"))]
SCRIPTED = [page for page in PAGES if blocks(page.read_text(encoding="utf-8"), "python")]


def name_of(page: Path) -> str:
    """Return the path of a page within the docs."""
    return str(page.relative_to(DOCS))


def twice_as_fast(
    run_float: Run,
    run_quantized: Run,
    samples: int,
    settings: LatencySettings,
    before: object = None,
    *,
    clock: object = None,
) -> Latency:
    """Measure two models by a clock that goes 2 ms in a run of the first, 1 ms in one of the second."""
    now = 0.0

    def timed(run: Run, seconds: float) -> Run:
        def step(index: int) -> None:
            nonlocal now
            run(index)
            now += seconds

        return step

    return measure(timed(run_float, 2e-3), timed(run_quantized, 1e-3), samples, settings, clock=lambda: now)


tried_fixes = from_samples._tried_fixes


def find_all_fixes(task: Any, first: Any, trials: Any) -> Verdict:
    """Find what a machine finds that is not busy."""
    return tried_fixes(replace(task, options=replace(task.options, budget=600.0)), first, trials)


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Make the folder in which the blocks of pages run: the examples, and what the quick start makes in out/.

    With the times that were measured for the target, as a user has them, and a clock by which int8 is twice
    as fast as float.
    """
    folder = tmp_path_factory.mktemp("workshop")
    (folder / "examples").symlink_to(ROOT / "examples")
    (folder / "out").mkdir()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(target, "costs_of", costs_of)
        for module in (evaluate, speed_check, trial):
            patched.setattr(module, "measure", twice_as_fast)
        patched.setattr(from_samples, "_tried_fixes", find_all_fixes)
        patched.chdir(folder)
        patched.syspath_prepend(folder)
        for page in PAGES:
            for name, text in files(page.read_text(encoding="utf-8")).items():
                (folder / name).write_text(text, encoding="utf-8")
        for step in steps((DOCS / "quick-start.md").read_text(encoding="utf-8")):
            if not re.search("qprof evaluate|qprof quantize .*--data", step.command):
                run(step, folder)
        yield folder


LIBRARIES = {
    "how-to/data.md": "pyarrow",
    "how-to/language-models.md": "tokenizers",
    "how-to/metrics.md": "pycocotools",
    "index.md": "PIL",
    "quick-start.md": "PIL",
}
"""Libraries of extras that the blocks of a page use."""


def skip_without_library(page: Path) -> None:
    """Skip the test of a page whose blocks need a library that is not installed."""
    if (library := LIBRARIES.get(name_of(page))) is not None:
        pytest.importorskip(library, reason="of the extra test-all")


@pytest.mark.slow
@pytest.mark.parametrize("page", EXECUTED, ids=name_of)
def test_console_blocks_print_what_the_page_tells(page: Path, workshop: Path) -> None:
    skip_without_library(page)
    for step in steps(page.read_text(encoding="utf-8")):
        printed = run(step, workshop)
        assert printed.exit_code == step.exit_code, f"$ {step.command}\n{printed.text}"
        assert not missing(step.told, printed.text), f"$ {step.command}\n{printed.text}"


@pytest.mark.slow
@pytest.mark.parametrize("page", SCRIPTED, ids=name_of)
def test_python_blocks_run_and_print_what_follows_them(
    page: Path, workshop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    skip_without_library(page)
    names: dict[str, object] = {"__name__": "page"}
    pattern = r"^```python\n(.*?)^```(?:\n\n```text\n(.*?)^```)?"
    for source, told in re.findall(pattern, page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
        exec(compile(source, name_of(page), "exec"), names)
        printed = capsys.readouterr().out
        assert not told or not missing(tuple(told.rstrip("\n").splitlines()), printed), printed


def test_what_the_readme_shows_is_run_on_a_page() -> None:
    run_on_pages = {
        (step.command, line)
        for page in EXECUTED
        for step in steps(page.read_text("utf-8"))
        for line in step.told
    }
    shown = steps((ROOT / "README.md").read_text(encoding="utf-8"))
    assert shown
    assert not [line for step in shown for line in step.told if (step.command, line) not in run_on_pages]


def test_the_first_lines_of_python_are_typed(tmp_path: Path) -> None:
    script = tmp_path / "page.py"
    script.write_text(
        blocks((DOCS / "how-to" / "python.md").read_text("utf-8"), "python")[0], encoding="utf-8"
    )
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), str(script)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_lines_are_compared_by_their_numbers_unless_they_tell_times() -> None:
    assert is_same_line("logits  38.96", "logits   38.97")
    assert not is_same_line("logits  38.96", "logits   30.97")
    assert is_same_line("latency 0.8 ms", "latency 1.9 ms")
    assert missing(("a", "...", "b 2"), "a\nx\nb 3\n") == ["b 2"]
    assert missing(("a",), "a\nb\n") == ["and no more, but printed: b"]
    assert not missing(("...", "b"), "a\nb\n")


def written_examples() -> Iterator[tuple[str, str, object]]:
    """Yield the recipes and configurations in YAML on pages: the page, the name of the schema, the value."""
    for page in PAGES:
        for block in blocks(page.read_text(encoding="utf-8"), "yaml"):
            value = yaml.safe_load(block)
            if isinstance(value, dict) and ("reader" in value or value.get("base") == "imagenet"):
                yield name_of(page), "preprocess", value
            elif isinstance(value, dict) and {"settings", "runtime"} & set(value):
                yield name_of(page), "config", value


def test_recipes_and_configurations_on_pages_are_valid() -> None:
    examples = list(written_examples())
    assert {name for _, name, _ in examples} == {"preprocess", "config"}
    for page, name, value in examples:
        faults = list(jsonschema.Draft202012Validator(schema_of(name)).iter_errors(value))
        assert not faults, f"{page}: {value}: {faults[0].message}"


def test_commands_on_pages_have_the_options_that_they_are_given() -> None:
    unknown, seen = [], 0
    for page in [ROOT / "README.md", ROOT / "action.yml", DOCS / "llms.txt", *PAGES]:
        text = page.read_text(encoding="utf-8").replace("\\\n", " ")
        for name, words in re.findall(r"\bqprof ((?:[a-z]+-)*[a-z]+)([^`\n]*)", text):
            if name not in COMMANDS:
                continue
            seen += 1
            command = main.get_command(click.Context(main), name)
            assert command is not None
            known = {"--help", *(word for parameter in command.params for word in parameter.opts)}
            given = re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", words.partition("qprof ")[0])
            unknown += [f"{page.name}: {name} {word}" for word in given if word not in known]
    assert seen > 200
    assert not unknown


def test_every_word_of_the_glossary_is_used_on_other_pages() -> None:
    glossary = DOCS / "glossary.md"
    words = re.findall(r"^\| ([^|]+?) \|", glossary.read_text(encoding="utf-8"), re.MULTILINE)[1:]
    others = " ".join(page.read_text(encoding="utf-8") for page in PAGES if page != glossary).lower()
    terms = [word.partition(" (")[0].lower() for row in words for word in row.split(", ")]
    assert not [term for term in terms if term not in others]


def in_navigation(entries: object) -> Iterator[str]:
    """Yield the pages of a navigation."""
    if isinstance(entries, str):
        yield entries
    elif isinstance(entries, dict):
        yield from (page for part in entries.values() for page in in_navigation(part))
    elif isinstance(entries, list):
        yield from (page for part in entries for page in in_navigation(part))


def test_every_page_is_in_the_navigation() -> None:
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert sorted(in_navigation(settings["nav"])) == sorted(name_of(page) for page in PAGES)


def test_pages_have_links_to_files_that_are_there_and_no_block_that_only_a_site_makes() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
        targets = [place.partition("#")[0] for place in re.findall(r"\]\(([^)\s]+)\)", prose)]
        places = [place for place in targets if place and not place.startswith("https://")]
        assert not [place for place in places if not (page.parent / place).is_file()], page
        assert not re.search(r"^(--8<--|::: |;--8<--)|exec=", prose, re.MULTILINE), page


@pytest.mark.parametrize("drawing", sorted(DOCS.rglob("*.svg")), ids=name_of)
def test_a_drawing_has_a_title_and_takes_the_colours_of_the_page(drawing: Path) -> None:
    text = drawing.read_text(encoding="utf-8")
    names = {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(text).iter()}
    assert {"title", "desc"} <= names
    assert "currentColor" in text
    assert "\n\n" not in text  # it is put into pages as it is, and an empty line would end it there


def built_site(folder: Path) -> Path:
    """Build the site strictly, in a copy of the checkout's pages, and return its folder."""
    shutil.copytree(DOCS, folder / "docs")
    for part in ("profiles", "quantizer", "cli", "configs", "examples", "tests", ".typing"):
        (folder / part).symlink_to(ROOT / part)
    for page in [*ROOT.glob("*.md"), ROOT / "mkdocs.yml", ROOT / "pyproject.toml"]:
        shutil.copy(page, folder)
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
    quiet = os.environ | {"NO_COLOR": "1"}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=quiet)
    if done.returncode:
        pytest.fail((done.stdout + done.stderr)[-2000:], pytrace=False)
    return folder / "build" / "site"


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_asks_no_other_host(tmp_path: Path) -> None:
    if find_spec("zensical") is None:
        pytest.skip("the site is not built: no zensical; install it with: pip install 'qprof-onnx[docs]'")
    site = built_site(tmp_path)
    fetched = r"<(?:script|link|img)[^>]+(?:src|href)=\"?(https?://[^\"> ]+)"
    for page in PAGES:
        html = (site / page.relative_to(DOCS).with_suffix(".html")).read_text(encoding="utf-8")
        assert "<h1" in html
        assert not re.findall(fetched, html), page


@pytest.mark.parametrize(
    "page", [page for page in PAGES if "<!-- printed " in page.read_text("utf-8")], ids=name_of
)
def test_tables_of_a_page_are_printed_from_the_code(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert printers.printed(text) == text, "print the pages: python docs/printed.py"


def test_the_api_page_has_every_public_name() -> None:
    stub = (ROOT / "quantizer" / "qprof_onnx" / "__init__.pyi").read_text(encoding="utf-8")
    names = set(re.findall(r" as (\w+)$", stub, re.MULTILINE)) - {"__version__"}
    page = (DOCS / "reference" / "api.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^### (?:class (\w+)|(\w+)\(\))$", page, re.MULTILINE)) == sorted(
        (name, "") if name[0].isupper() else ("", name) for name in names
    )


def test_the_page_for_programs_links_to_pages_that_are_there() -> None:
    text = (DOCS / "llms.txt").read_text(encoding="utf-8")
    places = re.findall(r"\]\(([^)]+\.html)\)", text)
    assert places
    assert not [place for place in places if not (DOCS / place).with_suffix(".md").is_file()]
