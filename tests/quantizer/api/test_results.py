"""Every result shows itself: one line, a dict for JSON, Markdown, a small table for notebooks, a report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import onnx
import onnx.parser
import pytest
import qprof_onnx as qprof
from qprof_onnx.profiles.base.findings import Code

KINDS = (
    "profile",
    "quantize",
    "plan",
    "evaluate",
    "compare_layers",
    "tune",
    "diff",
    "explain",
    "explain node",
)


@pytest.fixture(scope="module")
def results(path: Path, profile: Any, result: Any) -> dict[str, Any]:
    heldout = path.parent / "heldout"
    return {
        "profile": profile,
        "quantize": result,
        "plan": result.plan,
        "evaluate": qprof.evaluate(path, result, heldout, limit=1, latency=False),
        "compare_layers": qprof.compare_layers(path, result, heldout, limit=1),
        "tune": qprof.tune(path, profile, heldout, objective="size", budget=1.0, limit=2),
        "diff": qprof.diff(profile, profile, max_js_distance=0.1),
        "explain": qprof.explain(result, "block.add.out", path, profile),
        "explain node": qprof.explain(result, "head", path, profile),
    }


@pytest.mark.parametrize("kind", KINDS)
def test_the_repr_is_one_short_line(kind: str, results: dict[str, Any]) -> None:
    text = repr(results[kind])
    assert text.startswith(f"<{type(results[kind]).__name__}: ")
    assert "\n" not in text
    assert len(text) < 220


@pytest.mark.parametrize("kind", KINDS)
def test_the_dict_is_ready_for_json(kind: str, results: dict[str, Any]) -> None:
    found = results[kind].to_dict()
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found


@pytest.mark.parametrize("kind", KINDS)
def test_the_table_for_notebooks_is_small_and_well_formed(kind: str, results: dict[str, Any]) -> None:
    text = results[kind]._repr_html_()
    assert len(text) < 20_000
    root = ElementTree.fromstring(text.replace("<br>", "<br/>"))
    assert root.tag == "div"
    assert root.find("table") is not None


@pytest.mark.parametrize("kind", KINDS)
def test_the_markdown_has_a_heading_and_whole_tables(kind: str, results: dict[str, Any]) -> None:
    lines = results[kind].to_markdown().splitlines()
    assert lines[0].startswith("## ")
    table = [line.replace("\\|", "") for line in lines if line.startswith("|")]
    assert len(table) > 2
    assert table[1].startswith("| :-- |")


@pytest.mark.parametrize("kind", KINDS)
def test_a_report_is_saved_in_the_format_of_its_name(
    kind: str, results: dict[str, Any], tmp_path: Path
) -> None:
    for suffix, begin in ((".html", "<!DOCTYPE html>"), (".md", "## "), (".json", "{")):
        results[kind].save(tmp_path / f"report{suffix}")
        assert (tmp_path / f"report{suffix}").read_text(encoding="utf-8").startswith(begin)


def test_a_report_of_another_format_is_refused(results: dict[str, Any]) -> None:
    with pytest.raises(qprof.ConfigError, match=r"a report ends in .html, .md or .json"):
        results["evaluate"].save("report.pdf")


def test_a_long_table_is_cut_in_a_notebook_and_whole_in_a_file(
    results: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qprof_onnx.profiles.base.presentation.NOTEBOOK_ROWS", 3)
    assert "... and 14 more" in results["profile"]._repr_html_()
    results["profile"].save(tmp_path / "whole.html")
    assert "more" not in (tmp_path / "whole.html").read_text(encoding="utf-8")


def test_a_profile_draws_a_tensor(profile: qprof.Profile, tmp_path: Path) -> None:
    drawing = profile.plot("logits")
    drawing.save(tmp_path / "logits.svg")
    root = ElementTree.parse(tmp_path / "logits.svg").getroot()
    assert len(root.findall("{http://www.w3.org/2000/svg}rect")) > 10
    assert repr(drawing) == "<Drawing: logits>"
    with pytest.raises(qprof.ProfileError, match="Did you mean 'logits'"):
        profile.plot("logit")
    with pytest.raises(qprof.ConfigError, match="is written as"):
        drawing.save("logits.png")


def test_names_that_look_like_markup_stay_names(profile: qprof.Profile) -> None:
    odd = qprof.Profile(profile.model, profile.data, {"<b>|*": profile["logits"]})
    assert "&lt;b&gt;|*" in odd._repr_html_()
    assert "\\<b>\\|\\*" in odd.to_markdown()


def test_a_model_that_stays_as_it_was_is_in_its_own_opset(tmp_path: Path) -> None:
    text = '<ir_version: 7, opset_import: ["": 11]> g (float[N, 8] x) => (float[N, 8] y) { y = Relu(x) }'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "old.onnx")
    samples = [{"x": np.ones((1, 8), np.float32)}]
    result = qprof.quantize(tmp_path / "old.onnx", qprof.profile(tmp_path / "old.onnx", samples))
    assert result.model.opset_imports[""] == 11
    assert Code.OPSET_RAISED not in {finding.code for finding in result.findings}
