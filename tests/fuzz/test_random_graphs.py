"""Random graphs through all of qprof: a few of each run; `random_graphs.py` takes as many as one likes."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx_ir as ir
import pytest
from qprof_onnx.quantizer.lowering import pass_through
from qprof_onnx.quantizer.operators.table import RULES, Rule, rule_of

FOLDER = Path(__file__).parent
NAMES = sorted(path.stem for path in (FOLDER / "graphs").glob("*.txt"))
TOO_NEW = {"RMSNormalization", "Swish"}
"""Operators of a later opset than the graphs have."""


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> dict[str, ModuleType]:
    monkeypatch.syspath_prepend(FOLDER)
    names = ("graph_builder", "graph_recipes", "graph_check", "random_graphs", "kept_graphs")
    return {name: importlib.import_module(name) for name in names}


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_graph_that_once_failed_no_longer_does(
    name: str, modules: dict[str, ModuleType], tmp_path: Path
) -> None:
    case = modules["kept_graphs"].kept_case(name)
    forms = [form for form in case.forms if modules["random_graphs"].goes(case, form)]
    outcome = modules["graph_check"].check_case(replace(case, forms=forms), tmp_path)
    assert outcome.findings == []
    assert outcome.forms == len(forms)


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 3, 4, 7])
def test_a_random_graph_is_right_in_all_forms(
    number: int, modules: dict[str, ModuleType], tmp_path: Path
) -> None:
    case = modules["random_graphs"].random_case(1, number)
    outcome = modules["graph_check"].check_case(case, tmp_path)
    assert outcome.findings == []


def test_the_graphs_hold_every_operator_of_the_table(modules: dict[str, ModuleType]) -> None:
    recipes, builder = modules["graph_recipes"], modules["graph_builder"]
    missing = {operator for _, operator in RULES} - TOO_NEW
    for seed in range(60):
        b = builder.Builder(np.random.default_rng(seed), opset=9 + seed % 13)
        x = b.fresh("x")
        b.values[x] = [b.rng.standard_normal((1, 4, 6, 6)).astype(np.float32) for _ in range(builder.SAMPLES)]
        b.inputs[x] = [1, 4, 6, 6]
        for name in sorted(missing):
            recipes.RECIPES[name](b, x)
        missing -= {node.op_type for node in b.nodes}
        if not missing:
            break
    assert missing == set()


def test_the_same_seed_gives_the_same_graph(modules: dict[str, ModuleType]) -> None:
    random_case = modules["random_graphs"].random_case
    assert random_case(3, 4).model == random_case(3, 4).model


def test_the_comparison_sees_a_fill_that_is_not_quantized(
    modules: dict[str, ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = modules["graph_check"]
    kept = modules["kept_graphs"].kept_case("resize_crops_and_fills_with_zero")
    case = replace(kept, forms=("qoperator",))
    (tmp_path / "right").mkdir()
    assert check.check_case(case, tmp_path / "right").findings == []

    def without_fill(node: ir.Node) -> Rule | None:
        rule = rule_of(node)
        return None if rule is None else replace(rule, fill=None)

    monkeypatch.setattr(pass_through, "rule_of", without_fill)
    (tmp_path / "wrong").mkdir()
    outcome = check.check_case(case, tmp_path / "wrong")
    assert "Resize" in outcome.operators
    assert {kind for kind, _ in outcome.findings} == {"wrong"}
