"""Readers of ONNX that are installed here, on models of one operator in every form."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from .quantizer.int8_kernels import WEIGHT_TYPE

FOLDER = Path(__file__).parent / "benchmarks"
SUBJECTS = ("Conv", "MatMul, large")
"""A node in each of the forms, and one in each of the modes."""
Outcomes = Callable[..., list[Any]]


@pytest.fixture(scope="module")
def modules() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FOLDER)
        yield {name: importlib.import_module(f"readers.{name}") for name in ("cases", "running", "table")}


@pytest.fixture(scope="module")
def known(modules: Any, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    cases, folder = modules["cases"], tmp_path_factory.mktemp("readers")
    columns = {name: {"weight_type": WEIGHT_TYPE, **settings} for name, settings in cases.COLUMNS.items()}
    operator = next(subject for subject in cases.operators() if subject.name == SUBJECTS[0])
    product = next(subject for subject in cases.large_products() if subject.name == SUBJECTS[1])
    for subject in (operator, product):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cases, "COLUMNS", columns)
            patch.setattr(cases, "NEUTRAL", replace(cases.NEUTRAL, weight_types=(WEIGHT_TYPE, "uint8")))
            list(cases.write_cases(subject, list(columns), folder))
    return list(cases.read_cases(folder).values())


@pytest.fixture
def outcomes(modules: Any) -> Outcomes:
    def run(reader: str, given: Sequence[Any]) -> list[Any]:
        entry = modules["table"].READERS[reader]
        return list(modules["running"].outcomes(entry, Path(sys.executable), given, {}))

    return run


def test_onnxruntime_reads_every_form(outcomes: Outcomes, known: list[Any]) -> None:
    found = outcomes("onnxruntime", known)
    assert len(found) == len(known) == 20
    # Of a MatMul whose weight alone is quantized it quantizes the activations too.
    assert {o.grade for o in found if o.column not in ("weight-only", "int4")} == {"exact"}
    assert {o.grade for o in found} <= {"exact", "near"}


def test_openvino_reads_every_form_but_functions_and_contrib_operators(
    outcomes: Outcomes, known: list[Any]
) -> None:
    pytest.importorskip("openvino")
    found = outcomes("openvino", [c for c in known if c[0].column not in ("regions", "qoperator")])
    assert {(o.subject, o.column, o.grade) for o in found if o.grade != "exact"} == set()


def test_every_reader_has_a_loader(modules: Any) -> None:
    for reader in modules["table"].READERS.values():
        assert (FOLDER / "readers" / "loaders" / f"{reader.loader}.py").is_file()


def test_a_reader_that_crashes_is_started_anew(
    modules: Any, known: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "loaders").mkdir()
    (tmp_path / "loaders" / "dies.py").write_text("import os\ndef load(model, feed): os.abort()\n")
    worker = (FOLDER / "readers" / "worker.py").read_text(encoding="utf-8")
    (tmp_path / "worker.py").write_text(worker, encoding="utf-8")
    monkeypatch.setattr(modules["running"], "HERE", tmp_path)
    reader = modules["table"].Reader("", (), "", "dies")
    found = modules["running"].outcomes(reader, Path(sys.executable), known[:2], {})
    assert [(o.what, o.said) for o in found] == [("crashes", "ended by SIGABRT")] * 2


@pytest.mark.parametrize(
    ("found", "steps"),
    [((1.0, 2.0), (0, 0)), ((1.5, 2.0), (1, 0)), ((1.0, 3.0), (0, 2)), ((np.nan, 2.0), (np.inf, 0))],
)
def test_differences_are_counted_in_steps_of_the_scale(
    modules: Any, found: tuple[float, ...], steps: tuple[float, ...]
) -> None:
    wanted = np.array([1.0, 2.0], np.float32)
    assert tuple(modules["running"].difference(wanted, np.array(found), 0.5)) == steps
