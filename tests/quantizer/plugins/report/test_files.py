"""The files of a report: what they say, and that no name breaks out of them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import pytest
from qprof_onnx.cli.options import REPORT
from qprof_onnx.cli.schemas import schema_of
from qprof_onnx.profiles.base.findings import Code, Finding
from qprof_onnx.quantizer.evaluation.metrics.metric import Found
from qprof_onnx.quantizer.plugins.report.assemble import _level
from qprof_onnx.quantizer.plugins.report.content import Report, Speed, TaskScore, WhatIf
from qprof_onnx.quantizer.plugins.report.figures import percent_text
from qprof_onnx.quantizer.plugins.report.html import capitalised, page
from qprof_onnx.quantizer.plugins.report.writers import junit, markdown, report_texts

HOSTILE = "\"'></script><script>alert(1)</script><img src=x onerror=alert(2)>|`*&lt;\u202e\x00{}"


def hostile(report: Report) -> Report:
    """Return a report in which every name of the model is hostile, as far as they are read."""
    text = json.dumps(HOSTILE)[1:-1]
    names = {node.name for node in report.nodes} | {tensor.name for tensor in report.tensors}

    def spoiled(value: object) -> object:
        if isinstance(value, str):
            return f"{HOSTILE}{value}" if value in names else value
        if isinstance(value, tuple):
            return tuple(spoiled(item) for item in value)
        if hasattr(value, "__dataclass_fields__"):
            names_of = (name for name, field in value.__dataclass_fields__.items() if field.init)
            changed = {name: spoiled(getattr(value, name)) for name in names_of}
            return replace(value, **changed)  # type: ignore[type-var]
        return value

    assert text
    found = spoiled(report)
    assert isinstance(found, Report)
    return replace(found, title=HOSTILE, findings=(Finding(Code.OPSET_RAISED, HOSTILE),))


class Elements(HTMLParser):
    """Notes elements and attributes as a browser would see them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes.update(name for name, _ in attrs)


def test_names_of_the_model_cannot_break_out_of_the_page(whole: Report) -> None:
    before, after = Elements(page(whole)), Elements(page(hostile(whole)))
    assert after.tags.count("script") == before.tags.count("script") == 2
    assert after.tags.count("image") == before.tags.count("image") > 0
    assert not {name for name in after.attributes if name.startswith("on")}


def test_the_policy_of_the_page_allows_its_own_style_and_script_alone(whole: Report) -> None:
    text = page(whole)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    assert policy[1].startswith("default-src 'none'; img-src data:; style-src 'sha256-")
    assert "unsafe" not in policy[1]
    assert not re.search(r'\sstyle="', text)
    assert not re.search(r'(src|href)="(?!#|data:image/png;base64,)', text)


def test_the_samples_that_differ_most_are_shown_with_both_answers(whole: Report) -> None:
    assert len(whole.excerpts) == len(whole.samples) == 5
    text = page(whole)
    assert all(one.picture in text and one.quantized_answer in text for one in whole.excerpts)


def test_the_task_comes_before_decibels(whole: Report) -> None:
    task = TaskScore("accuracy", 97.5, 97.0, "%", "-0.50 points, -1.47 to +0.48", 200)
    text = page(replace(whole, task=task))
    assert 0 < text.index("Accuracy") < text.index("Quality, worst output")


def test_a_model_slower_than_float_has_another_bar_than_a_fast_one(estimated: Report) -> None:
    fast = Speed(2.0, 1.0, 2.0, 1.9, 2.1, "measured", "1 thread, 4 samples")
    slow = replace(fast, quantized_ms=4.0, speedup=0.5)
    assert 'class="bar worse"' not in page(replace(estimated, speed=fast))
    text = page(replace(estimated, speed=slow))
    assert 'class="bar worse"' in text
    assert "slower than float" in text


def test_a_speed_of_a_busy_machine_is_told_as_unclear(estimated: Report) -> None:
    report = replace(estimated, speed=Speed(2.0, 1.8, 1.1, 0.9, 1.5, "measured", "1 thread, 2 samples"))
    assert "unclear" in page(report)
    assert "unclear, 0.90 to 1.50 times float" in markdown(report)


def test_the_page_is_small(whole: Report) -> None:
    assert len(page(whole).encode()) < 2_000_000


def test_the_json_keeps_to_its_schema(whole: Report, estimated: Report) -> None:
    for report in (whole, estimated):
        document = json.loads(report_texts(report)["report.json"])
        assert document["format"] == "qprof-report/1"
        jsonschema.validate(document, schema_of("report"))


def test_the_same_report_gives_the_same_bytes(whole: Report) -> None:
    assert report_texts(whole) == report_texts(replace(whole))


def test_the_command_guards_the_files_that_are_written(whole: Report, tmp_path: Path) -> None:
    whole.save(tmp_path / "new" / "folder")
    assert sorted(path.name for path in (tmp_path / "new" / "folder").iterdir()) == sorted(REPORT.names)
    assert REPORT.names == tuple(report_texts(whole))


def test_a_page_alone_is_written_under_a_name_of_a_page(whole: Report, tmp_path: Path) -> None:
    whole.save(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == page(whole)


def test_junit_has_a_case_for_each_gate(whole: Report) -> None:
    root = ElementTree.fromstring(junit(hostile(whole)))
    (suite,) = root
    assert root.tag == "testsuites"
    assert [child.tag for child in suite] == [
        "properties",
        *["testcase"] * len(whole.gates),
        "system-out",
        "system-err",
    ]
    assert suite.get("tests") == str(len(whole.gates))
    assert suite.get("failures") == "1"
    failed = [case.get("name") for case in suite.iter("testcase") if case.find("failure") is not None]
    assert failed == ["--max-size 10 bytes"]


def test_markdown_has_no_column_of_what_was_not_measured(whole: Report) -> None:
    unmeasured = replace(
        whole, layers=[replace(one, difference=None, difference_after=None) for one in whole.layers]
    )
    assert "| made by | SQNR dB |" in markdown(whole)
    assert "| made by |" not in markdown(unmeasured)


def test_markdown_is_short_and_has_the_gates(whole: Report) -> None:
    text = markdown(whole)
    assert "| `--max-size` | 10 bytes | ❌ failed |" in text
    assert len(text.splitlines()) < 120
    assert "<script>" not in markdown(hostile(whole))


def test_every_file_has_one_word_for_a_failed_gate_and_the_grade_besides(whole: Report) -> None:
    good = replace(whole, verdict=replace(whole.verdict, level="failed", grade="good"))
    assert f"{good.title}: failed (grade good)" in markdown(good).splitlines()[0].replace("\\", "")
    assert '<h2 id="summary-h">Failed <span class="badge good">grade good</span></h2>' in page(good)
    assert "failed (grade good)" in good.headline()


@pytest.mark.parametrize(
    ("gates", "level", "words"), [((), "none", "none"), (("passed",), "passed", "passed (grade none)")]
)
def test_every_file_names_a_grade_of_none_as_evaluate_does(
    whole: Report, gates: tuple[str, ...], level: str, words: str
) -> None:
    results = tuple(replace(whole.gates[0], result=result) for result in gates)
    assert _level("none", results) == level
    none = replace(whole, verdict=replace(whole.verdict, level=level, grade="none"))
    assert f"{none.title}: {words}" in markdown(none).splitlines()[0].replace("\\", "")
    assert f"{none.title}: {words}, " in none.headline()
    assert f'<h2 id="summary-h">{level.capitalize()}' in page(none)


def test_a_share_that_is_not_zero_is_not_shown_as_zero() -> None:
    assert [percent_text(share) for share in (0.0, 1e-9, 2e-4, 1.0)] == ["0 %", "< 0.01 %", "0.02 %", "100 %"]


def test_a_good_model_that_was_measured_has_nothing_to_do(whole: Report, estimated: Report) -> None:
    verdict = replace(whole.verdict, level="good", findings=())
    sentence = "Nothing to do"
    assert sentence in page(replace(whole, verdict=verdict))
    assert sentence not in page(replace(whole, verdict=replace(verdict, level="fair")))
    assert sentence not in page(replace(estimated, verdict=verdict))


def test_objects_are_drawn_where_they_are_in_the_picture_of_the_file(whole: Report) -> None:
    first = whole.excerpts[0]
    objects = (
        Found("cat", (10.0, 20.0, 30.0, 40.0), (11.0, 20.0, 30.0, 40.0), 0.9, 0.8, False),
        Found("<dog>", None, (1.0, 2.0, 3.0, 4.0), None, 0.5, True),
    )
    excerpt = replace(first, found=objects, frame=(0.0, -40.0, 320.0, 280.0), picture="AAAA")
    text = page(replace(whole, excerpts=(excerpt,)))
    assert 'viewBox="0 -40 320 320"' in text
    assert '<rect class="float" x="10.0" y="20.0" width="20.0" height="20.0"/>' in text
    assert text.count('<rect class="int"') == 2
    assert "&lt;dog&gt;" in text
    assert "not in float" in text


def test_a_changed_answer_is_told_by_the_name_of_its_class_and_the_truth(whole: Report) -> None:
    first = whole.excerpts[0]
    excerpt = replace(
        first,
        answered=True,
        changed=True,
        truth="left",
        float_answer="left (0.6)",
        quantized_answer="right (0.5)",
    )
    text = page(replace(whole, excerpts=(excerpt,)))
    assert "<dt>true</dt><dd>left</dd>" in text
    assert '<dd class="other">right (0.5)</dd>' in text
    assert "Samples whose answers changed come first" in text


def test_a_page_that_shows_samples_says_that_it_is_as_private_as_they_are(
    whole: Report, estimated: Report
) -> None:
    assert "It shows 5 samples of the data: if these are private, the file is too." in page(whole)
    assert "It shows 5 samples of the data" in page(estimated)  # of those that the profile keeps
    assert "private" not in page(replace(estimated, excerpts=()))


def test_an_output_is_good_from_one_figure_on_in_all_sections(whole: Report, estimated: Report) -> None:
    for made in (whole, estimated):
        needed = {output.name: output.needed for output in made.outputs}
        assert {budget.output: budget.limit for budget in made.noise if budget.run_on} == needed


def test_names_keep_the_capitals_that_they_have() -> None:
    assert [capitalised(name) for name in ("mAP at IoU 0.5", "accuracy")] == ["mAP at IoU 0.5", "Accuracy"]


def test_a_page_shows_the_fixes_that_were_measured_and_no_other_advice(whole: Report) -> None:
    fair = replace(whole, what_ifs=(), verdict=replace(whole.verdict, grade="fair"))
    assert "to try" not in page(fair)
    tried = WhatIf("--as weight-only-8", "good, 38.0 dB, 3.2 MB (measured)", "logits", 38.0, -1.5, None)
    made = replace(fair, what_ifs=(tried,))
    for text in (page(made), markdown(made)):
        assert "What to try" in text
        assert tried.options in text
        assert tried.brings in text
