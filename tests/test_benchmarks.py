"""The benchmarks' own arithmetic (bootstrap, boxes, ncnn's files) and commands. Nothing is measured here."""

from __future__ import annotations

import importlib
import re
import shlex
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

FOLDER = Path(__file__).parent / "benchmarks"


@pytest.fixture
def bootstrap(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module("bootstrap")


def share(totals: np.ndarray) -> float:
    return float(totals[0] / totals[1])


def told(right: np.ndarray) -> np.ndarray:
    return np.stack([right, np.ones(len(right))], axis=1)


def test_the_bootstrap_interval_has_the_width_that_the_theory_of_proportions_gives(
    bootstrap: ModuleType,
) -> None:
    rng = np.random.default_rng(0)
    one, other = rng.random(400) < 0.9, rng.random(400) < 0.8
    found = bootstrap.difference(told(one), told(other), share)
    gaps = one.astype(float) - other.astype(float)
    half = 196 * gaps.std() / len(gaps) ** 0.5
    assert found.points == pytest.approx(100 * gaps.mean())
    # 4000 draws leave the ends of the interval uncertain by some hundredths of its width.
    assert found.low == pytest.approx(found.points - half, abs=0.15 * half)
    assert found.high == pytest.approx(found.points + half, abs=0.15 * half)


def test_models_that_answer_alike_differ_by_nothing_whatever_is_drawn(bootstrap: ModuleType) -> None:
    units = told(np.random.default_rng(1).random(50) < 0.5)
    assert bootstrap.difference(units, units, share) == bootstrap.Difference(0.0, 0.0, 0.0)


def test_the_bootstrap_refuses_models_that_were_judged_on_other_samples(bootstrap: ModuleType) -> None:
    with pytest.raises(ValueError, match="other samples"):
        bootstrap.difference(told(np.ones(3)), told(np.ones(4)), share)


def commands(text: str) -> list[list[str]]:
    """Return the words of each command of run.py that a text names; what stands three spaces behind one is
    told.
    """
    found = re.findall(r"python tests/benchmarks/run\.py ([^`\n]+)", text)
    return [shlex.split(words.split("   ")[0]) for words in found]


@pytest.fixture(scope="module")
def runner() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FOLDER)
        yield importlib.import_module("run")


def texts() -> Iterator[tuple[str, str]]:
    pages = [*FOLDER.glob("*.md"), *(FOLDER / "stages").glob("*.py"), FOLDER / "run.py"]
    for path in [*pages, *(FOLDER.parents[1] / "docs").rglob("*.md"), FOLDER.parents[1] / "README.md"]:
        yield path.name, path.read_text(encoding="utf-8")


def test_every_command_of_the_benchmarks_that_is_named_starts(runner: ModuleType) -> None:
    wrong = []
    for name, text in texts():
        for words in commands(text):
            try:
                runner.parser_of(words[0]).parse_intermixed_args(words[1:])
            except ModuleNotFoundError:
                continue  # the packages of this stage are not installed
            except (SystemExit, KeyError) as problem:
                if not (isinstance(problem, SystemExit) and problem.code == 0):
                    wrong.append(f"{name}: {' '.join(words)}")
    assert not wrong


@pytest.fixture(scope="module")
def blocks(runner: ModuleType) -> list[tuple[str, str, str, str]]:
    """Return the tables of all pages: the page, the name, its digest, and what stands there."""
    frame = importlib.import_module("frame")
    texts = {page.name: page.read_text(encoding="utf-8") for page in frame.pages()}
    return [(page, *found.groups()) for page, text in texts.items() for found in frame.BLOCK.finditer(text)]


def test_every_table_of_a_page_is_as_it_was_written(blocks: list[tuple[str, str, str, str]]) -> None:
    digest = importlib.import_module("frame").digest
    assert blocks
    edited = [f"{page}: {name}" for page, name, known, text in blocks if known != digest(text)]
    assert not edited, "tables are written by run.py --write alone"


def test_every_table_of_a_page_has_a_stage_that_makes_it(
    runner: ModuleType, blocks: list[tuple[str, str, str, str]]
) -> None:
    pytest.importorskip("tokenizers", reason="of the extra test-all")
    made = {name for stage in runner.OF_PAGES for name in runner.load(stage)[0].tables}
    assert {name for _, name, _, _ in blocks} <= made


def test_a_table_is_put_between_its_marks_alone(runner: ModuleType, tmp_path: Path) -> None:
    frame = importlib.import_module("frame")
    page, mark = tmp_path / "page.md", "<!-- table {} -->\nold\n<!-- end -->\n"
    page.write_text(f"before\n{mark.format('one')}between\n{mark.format('other')}after\n", encoding="utf-8")
    frame.write_block(page, "one", "new")
    frame.write_block(page, "one", "newer")
    text = page.read_text(encoding="utf-8")
    assert [found.groups() for found in frame.BLOCK.finditer(text)] == [
        ("one", frame.digest("newer"), "\nnewer\n\n"),
        ("other", None, "old\n"),
    ]
    assert text.startswith("before\n<!--")
    assert "-->\nbetween\n<!--" in text
    assert text.endswith("-->\nafter\n")


def test_a_subject_without_rows_keeps_those_that_are_known(
    runner: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = importlib.import_module("frame")
    monkeypatch.setenv(frame.WORK, "")  # it is set while a stage runs
    made = [[{"figure": 1}], []]
    stage = frame.Stage(lambda subject, given: iter(made.pop(0)), {"t": lambda rows: str(dict(rows))}, ("a",))
    given = Namespace(work=tmp_path, known=False, subjects=[], parts=["score"], jobs=2, write=False)
    for _ in range(2):
        frame.run("s", stage, given)
        assert "{'a': [{'figure': 1}]}" in capsys.readouterr().out


@pytest.fixture
def models_stage(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module("stages.models")


def row_of(points: float, ratio: float, predicted: float, peer: float) -> list[dict[str, Any]]:
    """Return the row of a model that is so many points above float, and above its peer."""
    ours = {
        "error": None,
        "size": 500_000,
        "steps": [[1.0, 100.0], [2.0, 90.0]],
        "score": 0.9,
        "points": {"points": points, "low": points - 0.1, "high": points + 0.1},
        "sqnr": {"y": 30.0},
        "bands": {"y": [20.0, 40.0]},
        "predicted": predicted,
        "time": {"ms": ratio, "ratio": ratio, "quartiles": [ratio, ratio]},
    }
    row = {
        "kind": "classifier",
        "source": "here",
        "task": "share told right",
        "size": 2_000_000,
        "score": 0.9,
        "setting": "minmax-tensor",
        "float": {"float": {"ms": 1.0}},
        "inference": 0.5,
        "beside": {"onnxruntime": {"points": peer}},
        "variants": {**dict.fromkeys(("qprof", "qprof-data", "onnxruntime"), ours), "nncf": {"error": "no"}},
    }
    return [row]


def test_sentences_count_what_the_rows_say(models_stage: ModuleType) -> None:
    figures = {"a": (0.1, 0.5, 0.55, 0.2), "b": (-1.0, 0.5, 0.5, -0.3), "c": (0.0, 0.5, 0.4, 0.0)}
    rows = {name: row_of(*some) for name, some in figures.items()}
    said = models_stage.summary(rows)
    assert "only a profile, 2 of 3 trained models" in said
    assert "3 models take 0.50 of float's time" in said
    assert "a better score on 1 of 3 models, an equal score on 1, and a worse one on 1" in said
    assert models_stage.predictions(rows).startswith("The predicted ratio to float has a median error of 10%")
    assert models_stage.bands(rows).startswith("3 of 3 outputs have")


def test_tables_have_a_cell_for_each_heading(models_stage: ModuleType) -> None:
    rows = {"a": row_of(0.1, 0.5, 0.55, 0.2)}
    for name, text_of in models_stage.STAGE.tables.items():
        widths = {line.count("|") for line in text_of(rows).splitlines() if line.startswith("|")}
        assert len(widths) <= 1, name
